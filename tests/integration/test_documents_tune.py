"""The code blocks of RLlib's pages that run through Tune run with their imports changed.

They have no end of their own, and train for long: a stop criterion and small batches are given from
outside.
"""

import functools

import pytest

from tests.document_blocks_tune import (
    BY_NAME_WITH_CALLBACKS,
    FUNCTION_THAT_REPORTS,
    FUNCTION_WITH_REPORTER,
)
from tests.integration.test_documents_advanced import EXPECTED_RETURNS
from tests.integration.test_documents_advanced import YourEnv as Paying
from trainer import PPO
from trainer.tune import RunConfig, TuneConfig, Tuner, trainables, tuner

pytestmark = pytest.mark.process

SMALL = {
    "num_workers": 0,
    "train_batch_size": 70,
    "minibatch_size": 70,
    "num_epochs": 1,
    "model": {"fcnet_hiddens": [4]},
    "env_config": {"min_length": 7, "max_length": 7},
}
"""Ten episodes of seven steps in each iteration."""


class YourEnv(Paying):
    """The same, and it says its task."""

    def get_task(self):
        return self.task


def grid_of(block, monkeypatch, folder):
    """The results of a block's experiment, which ends after four rows."""
    grids = []
    fit = Tuner.fit
    monkeypatch.setattr(Tuner, "fit", lambda self: grids.append(fit(self)))
    monkeypatch.setattr(
        tuner,
        "RunConfig",
        functools.partial(
            RunConfig, stop={"training_iteration": 4}, storage_path=folder, verbose=0
        ),
    )
    monkeypatch.setattr(
        tuner, "check_kind", lambda *_: None
    )  # it asks for the class that a partial is not
    exec(compile(block, "<block>", "exec"), {"__name__": "__main__", "YourEnv": YourEnv})
    return grids[0]


@pytest.mark.parametrize("block", [FUNCTION_WITH_REPORTER, FUNCTION_THAT_REPORTS])
def test_a_curriculum_in_a_function_runs(block, tmp_path, monkeypatch):
    monkeypatch.setattr("trainer.PPO", lambda config, env: PPO(config={**config, **SMALL}, env=env))
    (result,) = grid_of(block, monkeypatch, tmp_path)
    returns = [set(row["env_runners"]["hist_stats"]["episode_reward"]) for row in result.rows()]
    assert returns == EXPECTED_RETURNS


def test_an_algorithm_by_name_with_callbacks_runs(tmp_path, monkeypatch):
    given = trainables.algorithm_config

    def small(algorithm, config, source):
        return given(algorithm, {**config, **SMALL}, source=source)

    monkeypatch.setattr(trainables, "algorithm_config", small)
    monkeypatch.setattr(tuner, "TuneConfig", functools.partial(TuneConfig, in_process=True))
    (result,) = grid_of(BY_NAME_WITH_CALLBACKS, monkeypatch, tmp_path)
    returns = [set(row["env_runners"]["hist_stats"]["episode_reward"]) for row in result.rows()]
    assert returns == EXPECTED_RETURNS

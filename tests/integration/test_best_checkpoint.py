"""The best checkpoint is what its score says, and the rules of keeping go on after a restore."""

import json

import pytest

from callbacks import BestCheckpoint, CallbackConfigError, PeriodicCheckpoint
from checkpoints import latest_checkpoint
from tests.resume_cells import Cell
from tests.resume_envs import Walk
from trainer import PPO, PPOConfig

METRIC = "evaluation/env_runners/episode_return_mean"
CELL = Cell("PPO", "own np_random", 0)


def config(callbacks, **settings):
    made = CELL.config(
        callbacks_class=callbacks,
        evaluation_interval=3,
        evaluation_duration=4,
        **{"lr": 0.05, **settings},
    )
    assert isinstance(made, PPOConfig)
    return made


def names(directory):
    return sorted(path.name for path in directory.iterdir() if path.is_dir())


@pytest.mark.parametrize(
    ("evaluation_seed", "normalizes"),
    [
        (None, True),
        (5, False),
        pytest.param(None, False, marks=pytest.mark.slow),
        pytest.param(5, True, marks=pytest.mark.slow),
    ],
)
def test_evaluating_the_best_checkpoint_again_gives_its_score_bit_for_bit(
    evaluation_seed, normalizes, tmp_path
):
    settings = {
        "evaluation_seed": evaluation_seed,
        "observation_filter": "MeanStdFilter" if normalizes else "NoFilter",
        "normalize_rewards": normalizes,
    }
    best = BestCheckpoint(tmp_path / "best", metric=METRIC, keep=2)
    with config([best], **settings).build_algo() as algo:
        results = [algo.train() for _ in range(12)]
        at_the_end = algo.evaluate()["env_runners/episode_return_mean"]
    measured = {result["training_iteration"]: result[METRIC] for result in results[2::3]}
    assert len(set(measured.values())) == 4
    scores = json.loads((tmp_path / "best" / "best.json").read_text())["checkpoints"]
    assert len(scores) == 2
    assert [entry["score"] for entry in scores] == sorted(measured.values(), reverse=True)[:2]
    for entry in scores:
        path = tmp_path / "best" / entry["name"]
        with PPO.from_checkpoint(path, env=Walk, callbacks_class=[]) as again:
            found = again.evaluate()
        assert found["env_runners/episode_return_mean"] == entry["score"]
        assert found["evaluated_at_iteration"] == int(entry["name"])
        assert found["env_runners/episode_return_mean"] == measured[int(entry["name"])]
    assert at_the_end == measured[12], "nothing but the weights and the stream matters"


def test_the_rules_of_keeping_go_on_after_a_restore(tmp_path):
    def callbacks(folder):
        return [
            BestCheckpoint(folder / "best", metric=METRIC, keep=2),
            PeriodicCheckpoint(folder / "last", every=2, keep_last=2),
        ]

    def kept(folder):
        scores = json.loads((folder / "best" / "best.json").read_text())
        return names(folder / "best"), names(folder / "last"), scores

    through, resumed = tmp_path / "through", tmp_path / "resumed"
    with config(callbacks(through)).build_algo() as algo:
        for _ in range(14):
            algo.train()
    with config(callbacks(resumed)).build_algo() as algo:
        for _ in range(7):
            algo.train()
    foreign = resumed / "last" / "notes"
    foreign.mkdir()
    newest = latest_checkpoint(resumed / "last")
    assert newest is not None
    with PPO.from_checkpoint(newest, env=Walk, callbacks_class=callbacks(resumed)) as algo:
        assert algo.training_iteration == 6
        for _ in range(8):
            algo.train()
    foreign.rmdir()
    assert kept(resumed) == kept(through)


@pytest.mark.process
@pytest.mark.parametrize("name", ["evaluation_parallel_to_training", "enable_async_evaluation"])
def test_a_score_that_would_be_of_earlier_weights_is_refused(name, tmp_path):
    best = BestCheckpoint(tmp_path / "best", metric=METRIC)
    settings = {name: True, "evaluation_num_env_runners": 1}
    with (
        config([best], **settings).build_algo() as algo,
        pytest.raises(CallbackConfigError, match=f"{name}=True.*earlier weights"),
    ):
        algo.train()

"""Ready-made callbacks that steer real runs: what they save goes on with the same bytes."""

import json
import logging
import math

import numpy as np
import pytest

from callbacks import RLlibCallback
from checkpoints import Checkpointable, encode, latest_checkpoint, read_manifest
from tests.small_runs import small_ppo
from trainer import (
    PPO,
    BestCheckpoint,
    EarlyStopping,
    NonFiniteError,
    NonFiniteGuard,
    PeriodicCheckpoint,
    ProgressPrinter,
)
from trainer.metrics import comparable

pytestmark = pytest.mark.process


class Counting(RLlibCallback):
    """Remembers every result, and logs late."""

    def __init__(self):
        self.num_results = 0

    def on_train_result(self, *, metrics_logger, **kwargs):
        self.num_results += 1
        metrics_logger.log_value("late", self.num_results, reduce="max")


def config(*callbacks, **settings):
    made = small_ppo(env="CartPole-v1", num_slots=2, batch=80, seed=3)
    return made.callbacks(list(callbacks)).update_from_dict(settings)


def steering(directory):
    """All callbacks that remember something, those that save listed before those that decide."""
    return [
        ProgressPrinter(),
        PeriodicCheckpoint(directory / "periodic", every=2),
        BestCheckpoint(directory / "best", metric="late", keep=2),
        NonFiniteGuard(["late"]),
        EarlyStopping(patience=100, max_iterations=6),
        Counting,
    ]


def run_to_end(algo):
    outcomes = []
    result = {"done": False}
    while not result["done"]:
        result = algo.train()
        outcomes.append(encode({k: v for k, v in comparable(result).items() if k != "config"}))
    return outcomes


def hashes(path):
    return {name: entry.sha256 for name, entry in read_manifest(path).components.items()}


def test_a_run_restored_from_their_checkpoints_goes_on_with_the_same_bytes(tmp_path):
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    with config(*steering(whole)).build_algo() as algo:
        undisturbed = run_to_end(algo)
    assert len(undisturbed) == 6
    kinds = {"periodic": ["000002", "000004", "000006"], "best": ["000005", "000006", "best.json"]}
    for kind, names in kinds.items():
        assert sorted(path.name for path in (whole / kind).iterdir()) == names
    starts = [(whole / "periodic" / "000002", 2), (whole / "best" / "000005", 5)]
    for checkpoint, iteration in starts:
        directory = resumed / str(iteration)
        with config(*steering(directory)).build_algo() as algo:
            algo.restore_from_path(checkpoint)
            assert run_to_end(algo) == undisturbed[iteration:]
        assert hashes(directory / "periodic/000006") == hashes(whole / "periodic/000006")
        assert hashes(directory / "best/000006") == hashes(whole / "best/000006")


class SavingTooEarly(RLlibCallback):
    """The negative control: saves in the event itself, before others have heard of the result."""

    def __init__(self, path):
        self.path = path

    def get_state(self):
        return {}

    def on_train_result(self, *, algorithm, **kwargs):
        if algorithm.training_iteration == 2:
            algorithm.save_to_path(self.path)


@pytest.mark.parametrize("saves_too_early", [True, False])
def test_saving_in_the_event_itself_would_stop_at_another_iteration(saves_too_early, tmp_path):
    stopping = EarlyStopping("training_iteration", patience=3, mode="min")  # in iteration 4
    saving = (
        SavingTooEarly(tmp_path / "000002")
        if saves_too_early
        else PeriodicCheckpoint(tmp_path, every=2, at_end=False, keep_last=None)
    )
    with config(saving, stopping).build_algo() as algo:
        assert len(run_to_end(algo)) == 4
    with config(stopping).build_algo() as algo:
        algo.restore_from_path(tmp_path / "000002")
        assert len(run_to_end(algo)) == (3 if saves_too_early else 2)


def test_a_failed_save_undoes_the_iteration_which_is_then_made_again(tmp_path, monkeypatch):
    def outcomes(directory, *, fails):
        saves = Checkpointable.save_to_path

        def fail(self, path=None, **how):
            raise OSError(28, "no space left")

        with config(*steering(directory)).build_algo() as algo:
            if fails:
                algo.train()
                with monkeypatch.context() as patch:
                    patch.setattr(Checkpointable, "save_to_path", fail)
                    with pytest.raises(OSError, match="no space left"):
                        algo.train()
                assert Checkpointable.save_to_path is saves
                assert algo.training_iteration == 1
            return run_to_end(algo)

    undisturbed = outcomes(tmp_path / "a", fails=False)
    assert outcomes(tmp_path / "b", fails=True) == undisturbed[1:]


def test_a_run_whose_disk_is_full_goes_on_when_told_to(tmp_path, monkeypatch, caplog):
    (tmp_path / "blocked").mkdir()
    callback = PeriodicCheckpoint(tmp_path / "blocked", every=1, on_error="warn")
    (tmp_path / "blocked").rmdir()
    (tmp_path / "blocked").touch()  # a file where the directory was: nothing can be made in it
    with config(callback).build_algo() as algo, caplog.at_level(logging.WARNING):
        algo.train()
        result = algo.train()
    assert result["fault_tolerance/num_failed_saves_lifetime"] == 2
    assert caplog.text.count("A checkpoint could not be saved; training goes on") == 1


def test_weights_that_are_nan_undo_the_iteration_and_are_never_saved(tmp_path):
    def poison(algorithm):
        if algorithm.training_iteration == 2:
            algorithm.get_module().parameters.flat[0] = math.nan

    made = config(PeriodicCheckpoint(tmp_path, every=1), NonFiniteGuard)
    with made.callbacks(on_train_result=poison).build_algo() as algo:
        algo.train()
        before = algo.get_weights()["default_policy"]
        with pytest.raises(NonFiniteError, match="holds the weights from before it"):
            algo.train()
        assert algo.training_iteration == 1
        for name, array in algo.get_weights()["default_policy"].items():
            np.testing.assert_array_equal(array, before[name])
    assert latest_checkpoint(tmp_path) == tmp_path / "000001"


def test_the_best_evaluation_is_kept_with_the_weights_that_played_it(tmp_path):
    metric = "evaluation/env_runners/episode_return_mean"
    evaluation = {"evaluation_interval": 2, "evaluation_duration": 3, "evaluation_seed": 1}
    with config(BestCheckpoint(tmp_path, metric=metric), **evaluation).build_algo() as algo:
        results = [algo.train() for _ in range(5)]
        scores = algo.callbacks.objects[0].scores
    means = {result["training_iteration"]: result[metric] for result in results if metric in result}
    best = 2 if means[2] >= means[4] else 4
    assert scores == {f"{best:06d}": means[best]}
    kept = json.loads((tmp_path / "best.json").read_text())["checkpoints"]
    assert kept == [{"name": f"{best:06d}", "score": means[best]}]
    with PPO.from_checkpoint(tmp_path / f"{best:06d}", callbacks=None) as restored:
        assert restored.evaluate()["env_runners/episode_return_mean"] == means[best]


def test_a_misspelt_metric_ends_the_first_iteration(tmp_path):
    callbacks = [BestCheckpoint(tmp_path, metric="env_runners/episode_return_men")]
    with (
        config(*callbacks).build_algo() as algo,
        pytest.raises(ValueError, match="The nearest ones are 'env_runners/episode_return_mean'"),
    ):
        algo.train()

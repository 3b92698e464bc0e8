"""Every way into a checkpoint and out of it, and what happens when it does not fit."""

import logging
import shutil
from pathlib import Path

import numpy as np
import pytest

from callbacks import RLlibCallback
from checkpoints import (
    CheckpointCorruptError,
    CheckpointMismatchError,
    CheckpointNotFoundError,
    CodeNotAllowedError,
    encode,
    read_manifest,
)
from tests.small_runs import known, small_ppo
from trainer import DQN, PPO, Algorithm, CallbackError
from trainer.metrics import comparable
from trainer.testing.envs import ContinuousEnv, CorridorEnv, CountdownEnv

pytestmark = pytest.mark.process


class Noting(RLlibCallback):
    def __init__(self):
        self.events = []
        self.num_results = 0

    def on_train_result(self, **kwargs):
        self.num_results += 1

    def on_checkpoint_loaded(self, *, algorithm, metrics_logger, **kwargs):
        assert not kwargs
        assert metrics_logger is algorithm.metrics
        self.events.append(f"loaded {algorithm.training_iteration} {self.num_results}")

    def on_checkpoint_saved(self, *, algorithm, path, **kwargs):
        assert read_manifest(path).metadata["training_iteration"] == algorithm.training_iteration
        self.events.append(f"saved {Path(path).name}")


def config(env="CartPole-v1", **settings):
    return small_ppo(env=env, num_slots=2, batch=40, **settings)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A checkpoint after two iterations, without any code in it."""
    path = tmp_path_factory.mktemp("run") / "checkpoint"
    with config().build_algo() as algo:
        algo.train()
        algo.train()
        algo.save_to_path(path)
    return path


def noting(algo):
    return algo.callbacks.objects[0]


ROUTES = {
    "restore_from_path": lambda algo, path: algo.restore_from_path(path),
    "restore": lambda algo, path: algo.restore(str(path)),
    "load_checkpoint": lambda algo, path: algo.load_checkpoint(path),
}


@pytest.mark.parametrize("route", ROUTES)
def test_every_route_into_an_algorithm_tells_that_a_checkpoint_was_loaded(route, tmp_path):
    with config().callbacks(Noting).build_algo() as algo:
        algo.train()
        path = Path(algo.save_to_path(tmp_path / "checkpoint"))
        algo.train()
        ROUTES[route](algo, path)
        # The callback holds the loaded state when it is told, so what it noted later is gone.
        assert noting(algo).events == ["loaded 1 1"]
        assert algo.train()["training_iteration"] == 2


@pytest.mark.parametrize("cls", [PPO, Algorithm])
def test_from_checkpoint_tells_it_too_and_goes_on_exactly(cls, tmp_path):
    with config().callbacks(Noting).build_algo() as algo:
        algo.train()
        path = algo.save_to_path(tmp_path / "checkpoint")
        noting(algo).events.clear()
        result = encode({**comparable(algo.train()), "config": None})
    with cls.from_checkpoint(path, callbacks_class=Noting) as other:
        assert type(other) is PPO
        assert noting(other).events == ["loaded 1 1"]
        assert encode({**comparable(other.train()), "config": None}) == result


@pytest.mark.parametrize("save", ["save_to_path", "save", "save_checkpoint"])
def test_every_way_of_saving_tells_it_and_gives_the_path(save, tmp_path):
    with config().callbacks(Noting).build_algo() as algo:
        path = getattr(algo, save)(tmp_path / "here")
        assert Path(path) == tmp_path / "here"
        assert noting(algo).events == ["saved here"]


HALF_DONE = {
    **ROUTES,
    "set_state": lambda algo, path: algo.set_state(algo.get_state()),
    "save_to_path": lambda algo, path: algo.save_to_path(path.parent / "half"),
}


@pytest.mark.parametrize("way", HALF_DONE)
def test_half_an_iteration_is_neither_saved_nor_replaced(way, saved, tmp_path):
    path = Path(shutil.copytree(saved, tmp_path / "checkpoint"))
    wanted = "on_learn_on_batch"
    built = []

    def at(event):
        return lambda **_: HALF_DONE[way](built[0], path) if event == wanted else None

    events = {event: at(event) for event in ("on_learn_on_batch", "on_train_result")}
    with config().callbacks(None, **events).build_algo() as algo:
        built.append(algo)
        before = known(algo)
        with pytest.raises(CallbackError, match="while env runners play or modules learn"):
            algo.train()
        assert known(algo) == before
        assert not (tmp_path / "half").exists()
        wanted = "on_train_result"
        algo.train()


def test_time_goes_on_after_a_restore_and_stays_with_a_part(saved):
    at_save = read_manifest(saved).metadata["time_total_s"]
    with PPO.from_checkpoint(saved) as algo:
        result = algo.train()
        assert result["time_total_s"] == pytest.approx(at_save + result["time_this_iter_s"])
        assert result["time_since_restore"] == pytest.approx(result["time_this_iter_s"])
        assert result["iterations_since_restore"] == 1
        algo.restore_from_path(saved, component="learner/rl_module")
        after = algo.train()
        assert after["time_total_s"] == pytest.approx(
            result["time_total_s"] + after["time_this_iter_s"]
        )


class OwnEnv(CountdownEnv):
    """Not importable by those who restore: its class is code of the checkpoint."""


def test_code_of_a_checkpoint_is_run_only_if_that_is_allowed(tmp_path, request):
    with config(OwnEnv).callbacks(Noting).build_algo() as algo:
        algo.train()
        path = algo.save_to_path(tmp_path / "checkpoint")
        noting(algo).events.clear()
        expected = known(algo)
    request.getfixturevalue("as_another_user")
    with pytest.raises(CodeNotAllowedError, match="allow_code=True"):
        PPO.from_checkpoint(path)
    with pytest.raises(CodeNotAllowedError, match=r"path, callbacks_class=\.\.\.\)"):
        PPO.from_checkpoint(path, env=OwnEnv)
    with PPO.from_checkpoint(path, env=OwnEnv, callbacks_class=Noting) as given:
        assert given.counters.training_iteration == 1
    with PPO.from_checkpoint(path, config=config(OwnEnv).callbacks(Noting)) as configured:
        assert configured.counters.training_iteration == 1
    with PPO.from_checkpoint(path, allow_code=True) as allowed:
        noting(allowed).events.clear()
        assert known(allowed) == expected


def test_a_checkpoint_of_another_algorithm_is_refused_by_name(saved):
    with pytest.raises(CheckpointMismatchError, match=r"'PPO'.*DQN cannot.*PPO\.from_checkpoint"):
        DQN.from_checkpoint(saved)
    with Algorithm.from_checkpoint(saved) as algo:
        assert type(algo) is PPO


def damage_altered(path):
    file = max(path.rglob("*.state"), key=lambda file: file.stat().st_size)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))


def damage_no_manifest(path):
    (path / "manifest.json").unlink()


@pytest.mark.parametrize(
    ("damage", "error", "expected"),
    [
        (damage_altered, CheckpointCorruptError, "SHA-256"),
        (damage_no_manifest, CheckpointNotFoundError, "manifest"),
    ],
)
def test_a_damaged_checkpoint_is_refused_and_nothing_is_changed(
    damage, error, expected, saved, tmp_path
):
    path = tmp_path / "copy"
    shutil.copytree(saved, path)
    damage(path)
    with config().callbacks(Noting).build_algo() as algo:
        algo.train()
        before = known(algo)
        with pytest.raises(error, match=expected):
            algo.restore_from_path(path)
        assert known(algo) == before
        assert noting(algo).events == []
    with pytest.raises(error):
        PPO.from_checkpoint(path)


@pytest.mark.parametrize(
    ("env", "settings", "expected"),
    [
        (CorridorEnv, {}, "observation_space: the checkpoint has"),
        (ContinuousEnv, {}, "action_space: the checkpoint has"),
        ("CartPole-v1", {"model": {"fcnet_hiddens": [9]}}, "num_parameters: the checkpoint has"),
    ],
)
def test_a_checkpoint_of_another_env_or_network_is_refused_and_nothing_is_changed(
    env, settings, expected, saved
):
    with config(env, **settings).build_algo() as algo:
        before = known(algo)
        with pytest.raises(CheckpointMismatchError, match=f"{expected}.*Nothing was changed"):
            algo.restore_from_path(saved)
        assert known(algo) == before
        algo.train()


def test_another_env_of_the_same_spaces_is_told_and_its_episodes_are_counted_as_lost(
    tmp_path, caplog
):
    class Other(CountdownEnv):
        def noise(self):
            return super().noise() / 2.0

    with config(CountdownEnv, env_config={"min_length": 9}).build_algo() as algo:
        algo.train()
        path = algo.save_to_path(tmp_path / "checkpoint")
        running = [s for s in algo.get_state()["env_runners"]["slots"] if s["env_seed"] is not None]
    with config(Other, env_config={"min_length": 9}).build_algo() as other:
        with caplog.at_level(logging.WARNING):
            other.restore_from_path(path)
        told = other.train()["fault_tolerance"]
    assert "saved with env 'CountdownEnv'" in caplog.text
    assert running
    assert told["num_episodes_lost"] == len(running)


@pytest.mark.parametrize("seed", [5, 6, None])
def test_the_local_runner_is_there_after_a_restore_and_holds_what_was_restored(saved, seed):
    seen = []

    def note(*, algorithm, **_):
        seen.append(algorithm.env_runner)

    made = config(seed=seed).callbacks(on_checkpoint_loaded=note)
    with made.build_algo() as algo:
        algo.restore_from_path(saved)
        runner = algo.env_runner
        assert runner is not None
        assert seen == [runner]
        assert runner is algo.env_runner_group.local_env_runner
        held, newest = runner.module.get_state(), algo.get_module().get_state()
        assert all(np.array_equal(array, newest[name]) for name, array in held.items())
    assert algo.env_runner is None


def test_large_data_that_code_refers_to_is_named_once(tmp_path, caplog):
    source = """
import numpy
from trainer.testing.envs import CountdownEnv
TABLE = numpy.zeros(800_000)
SMALL = [1, 2, 3]
class Reading(CountdownEnv):
    def reset(self, **options):
        assert len(TABLE) > len(SMALL)
        return super().reset(**options)
"""
    script = {"__name__": "__main__"}
    exec(source, script)
    with config(script["Reading"]).build_algo() as algo:
        for number in range(2):
            algo.save_to_path(tmp_path / str(number))
    (told,) = [text for text in caplog.messages if "The code in every checkpoint" in text]
    assert "has 6.4 MB" in told
    assert "the global `TABLE` (6.4 MB)" in told
    assert "SMALL" not in told

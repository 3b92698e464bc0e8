"""Actors whose class is `Checkpointable` are saved with the algorithm, and restored by name."""

# mypy: disable-error-code="attr-defined"
# Type checkers take a decorated class for the class itself.

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from checkpoints import Checkpointable, CheckpointMismatchError, read_checkpoint
from trainer import PPO, DQNConfig, PPOConfig, actors
from trainer.testing.waiting import wait_until

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def actors_end() -> Iterator[None]:
    yield
    actors.shutdown()


@actors.remote
class Saved(Checkpointable):
    def __init__(self, count: int = 0) -> None:
        self.count = count
        self.num_asked = 0

    def inc(self, n: int) -> None:
        self.count += n

    def get(self) -> int:
        return self.count

    def times_asked(self) -> int:
        return self.num_asked

    def hold(self, path: str) -> None:
        wait_until(Path(path).exists)

    def get_state(self, components: Any = None, *, not_components: Any = None) -> dict[str, Any]:
        self.num_asked += 1
        return {"count": self.count}

    def set_state(self, state: dict[str, Any]) -> None:
        if state["count"] < 0:
            raise ValueError("less than nothing")
        self.count = state["count"]


@actors.remote
class NotSaved:
    def get_state(self) -> Any:
        raise AssertionError("nobody said that it is to be saved")


def config() -> PPOConfig:
    return (
        PPOConfig()
        .environment("CartPole-v1")
        .training(train_batch_size_per_learner=20, minibatch_size=20, num_epochs=1)
    )


def test_a_checkpointable_actor_is_saved_and_restored_by_name(tmp_path: Path) -> None:
    saved = Saved.options(name="saved").remote(1)
    elsewhere = Saved.options(name="saved", namespace="elsewhere").remote(50)
    Saved.remote(7)  # nobody could find it again
    NotSaved.options(name="not_saved").remote()
    with config().build_algo() as algorithm:
        saved.hold.remote(str(tmp_path / "go"))
        saved.inc.remote(2)  # under way: done before the state is taken
        (tmp_path / "go").touch()
        path = algorithm.save_to_path(tmp_path / "checkpoint")
        assert read_checkpoint(path, "actors").components == {
            "actors": {"": {"saved": {"count": 3}}, "elsewhere": {"saved": {"count": 50}}}
        }
        saved.inc.remote(100)
        algorithm.restore_from_path(path)
        assert actors.get([saved.get.remote(), elsewhere.get.remote()]) == [3, 50]
        saved.inc.remote(100)
        algorithm.restore_from_path(path, component="learner")
        assert actors.get(saved.get.remote()) == 103
        algorithm.restore_from_path(path, component="actors")
        assert actors.get(saved.get.remote()) == 3


def test_states_of_missing_actors_are_named_and_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    actors.init(namespace="first")
    Saved.options(name="saved").remote(3)
    with config().build_algo() as algorithm:
        path = algorithm.save_to_path(tmp_path / "checkpoint")
    actors.shutdown()
    with PPO.from_checkpoint(path) as algorithm:
        assert "actors 'saved', but this process has no living actor" in caplog.text
        actors.init(namespace="second")
        saved = Saved.options(name="saved").remote()
        algorithm.restore_from_path(path, component="actors")
        assert actors.get(saved.get.remote()) == 3


def test_without_such_actors_checkpoints_are_what_they_were(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    NotSaved.options(name="not_saved").remote()
    with config().build_algo() as algorithm:
        path = algorithm.save_to_path(tmp_path / "checkpoint")
        assert "actors" not in read_checkpoint(path).components
        algorithm.restore_from_path(path)
        assert not caplog.records
        saved = Saved.options(name="saved").remote(9)
        algorithm.restore_from_path(path)  # from before there was such an actor
        assert "holds no states of actors" in caplog.text
        assert actors.get(saved.get.remote()) == 9


def test_an_actor_that_refuses_its_state_undoes_the_restore(tmp_path: Path) -> None:
    saved = Saved.options(name="saved").remote(-1)
    with config().build_algo() as algorithm:
        path = algorithm.save_to_path(tmp_path / "checkpoint")
        saved.inc.remote(6)
        algorithm.train()
        with pytest.raises(CheckpointMismatchError, match="less than nothing"):
            algorithm.restore_from_path(path)
        assert algorithm.training_iteration == 1
        assert actors.get(saved.get.remote()) == 5


@pytest.mark.parametrize("algorithm_config", [config(), DQNConfig().environment("CartPole-v1")])
def test_training_and_evaluating_ask_actors_for_nothing(algorithm_config: Any) -> None:
    saved = Saved.options(name="saved").remote()
    chosen = algorithm_config.reporting(min_sample_timesteps_per_iteration=1)
    with chosen.evaluation(evaluation_duration=1).build_algo() as algorithm:
        algorithm.train()
        algorithm.evaluate()
        assert actors.get(saved.times_asked.remote()) == 0
        algorithm.get_state()
        assert actors.get(saved.times_asked.remote()) == 1

"""Actors whose class is `Checkpointable` are saved with the algorithm, and restored by name."""

import contextlib
import os
import signal
import threading
from pathlib import Path

import pytest

from checkpoints import (
    Checkpointable,
    CheckpointMismatchError,
    CheckpointWriteError,
    read_checkpoint,
    read_manifest,
)
from tests.small_runs import small_ppo
from trainer import PPO, DQNConfig, actors
from trainer.actors.registry import ActorAddress, ActorRegistry
from trainer.testing.processes import wait_until

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("actors_end")]


@actors.remote
class Saved(Checkpointable):
    def __init__(self, count=0):
        self.count = count
        self.num_asked = 0

    def inc(self, n):
        self.count += n

    def pid(self):
        return os.getpid()

    def get(self):
        return self.count

    def times_asked(self):
        return self.num_asked

    def kill(self, other):
        actors.kill(other)

    def hold(self, path):
        wait_until(Path(path).exists)

    def get_state(self, components=None, *, not_components=None):
        self.num_asked += 1
        return {"count": self.count}

    def set_state(self, state):
        if state["count"] < 0:
            raise ValueError("less than nothing")
        self.count = state["count"]


@actors.remote
class NotSaved:
    def get_state(self):
        raise AssertionError("it was not to be saved")


def config():
    return small_ppo(env="CartPole-v1", num_slots=1, batch=20)


def test_a_checkpointable_actor_is_saved_and_restored_by_name(tmp_path):
    saved = Saved.options(name="saved").remote(1)
    elsewhere = Saved.options(name="saved", namespace="elsewhere").remote(50)
    Saved.remote(7)  # it could not be found again
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


def test_states_of_missing_actors_are_named_and_left_out(tmp_path, caplog):
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


def test_living_actors_that_a_checkpoint_has_no_state_of_are_named(tmp_path, caplog):
    one = Saved.options(name="one").remote(3)
    with config().build_algo() as algorithm:
        path = algorithm.save_to_path(tmp_path / "1")
        algorithm.restore_from_path(path)
        assert not caplog.records
        two = Saved.options(name="two").remote(4)
        algorithm.restore_from_path(path)
        assert "none of the actors 'two', which this process has made" in caplog.text
    assert actors.get([one.get.remote(), two.get.remote()]) == [3, 4]


def test_without_such_actors_checkpoints_are_what_they_were(tmp_path, caplog):
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


def test_an_actor_that_refuses_its_state_undoes_the_restore(tmp_path):
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
def test_training_and_evaluating_ask_actors_for_nothing(algorithm_config):
    saved = Saved.options(name="saved").remote()
    chosen = algorithm_config.reporting(min_sample_timesteps_per_iteration=1)
    with chosen.evaluation(evaluation_duration=1).build_algo() as algorithm:
        algorithm.train()
        algorithm.evaluate()
        assert actors.get(saved.times_asked.remote()) == 0
        algorithm.get_state()
        assert actors.get(saved.times_asked.remote()) == 1


def die(handle):
    os.kill(actors.get(handle.pid.remote()), signal.SIGKILL)
    assert wait_until(lambda: not handle._address.is_alive())


def test_no_checkpoint_is_saved_without_an_actor_that_died(tmp_path, caplog):
    saved = Saved.options(name="saved").remote(3)
    with config().build_algo() as algorithm:
        path = algorithm.save_to_path(tmp_path / "1")
        die(saved)
        for _ in range(2):  # also when its end is known already
            with pytest.raises(CheckpointWriteError, match=r"'saved'.*SIGKILL.*kill\(handle\)"):
                algorithm.save_to_path(tmp_path / "2")
            with pytest.raises(actors.ActorDiedError, match="SIGKILL"):
                algorithm.get_state()
        assert wait_until(lambda: "No checkpoint is saved from now on" in caplog.text)
        assert not (tmp_path / "2").exists()
        algorithm.train()  # it asks actors for nothing
        again = Saved.options(name="saved").remote()
        algorithm.restore_from_path(path)
        algorithm.save_to_path(tmp_path / "2")
        assert actors.get(again.get.remote()) == 3
    found = read_checkpoint(tmp_path / "2", "actors").components
    assert found == {"actors": {"": {"saved": {"count": 3}}}}


@pytest.mark.parametrize("num_looks", [1, 2])
def test_no_checkpoint_lacks_an_actor_that_dies_while_it_is_saved(num_looks, tmp_path, monkeypatch):
    """It dies right after it was seen alive for the first time, or the second."""
    dying, other = (Saved.options(name=name).remote(3) for name in ("dying", "other"))
    pid, is_alive = actors.get(dying.pid.remote()), ActorAddress.is_alive
    looks = []

    def seen(address):
        answer = is_alive(address)
        if address.actor_id == dying._address.actor_id and answer:
            looks.append(answer)
            if len(looks) == num_looks:
                os.kill(pid, signal.SIGKILL)
                assert wait_until(lambda: not is_alive(address))
        return answer

    with config().build_algo() as algorithm:
        monkeypatch.setattr(ActorAddress, "is_alive", seen)
        with contextlib.suppress(CheckpointWriteError):
            algorithm.save_to_path(tmp_path / "1")
        monkeypatch.undo()
    if (tmp_path / "1").exists():
        found = read_checkpoint(tmp_path / "1", "actors").components
        assert found == {"actors": {"": {"dying": {"count": 3}, "other": {"count": 3}}}}
    assert (tmp_path / "1").exists() == (len(looks) < num_looks)
    assert num_looks > 1 or len(looks) == 1  # it did die
    assert actors.get(other.get.remote()) == 3


def test_an_actor_that_was_made_again_before_its_end_was_noted_is_not_missed(
    tmp_path, monkeypatch, caplog
):
    may_note, is_noted, note_end = threading.Event(), threading.Event(), ActorRegistry.note_end

    def late(registry, *args):
        may_note.wait(5.0)
        note_end(registry, *args)
        is_noted.set()

    with config().build_algo() as algorithm:
        saved = Saved.options(name="saved").remote(3)
        pid = actors.get(saved.pid.remote())
        watcher = f"watch of {saved._address.describe()}"
        watchers = [thread for thread in threading.enumerate() if thread.name == watcher]
        monkeypatch.setattr(ActorRegistry, "note_end", late)
        os.kill(pid, signal.SIGKILL)
        assert wait_until(lambda: not saved._address.is_alive())
        again = Saved.options(name="saved").remote(4)
        for name in ("before", "after"):
            algorithm.save_to_path(tmp_path / name)
            may_note.set()
            for thread in watchers:
                thread.join(10.0)
        assert is_noted.is_set()
        monkeypatch.undo()
        assert "No checkpoint is saved" not in caplog.text
        actors.kill(again)
        algorithm.save_to_path(tmp_path / "ended")
    for name in ("before", "after"):
        found = read_checkpoint(tmp_path / name, "actors").components
        assert found == {"actors": {"": {"saved": {"count": 4}}}}
    assert "actors" not in read_checkpoint(tmp_path / "ended").components


def test_an_actor_that_was_killed_on_purpose_is_left_out(tmp_path):
    ended, dead = (Saved.options(name=name).remote() for name in ("ended", "dead"))
    elsewhere = Saved.options(name="ended elsewhere").remote()
    with config().build_algo() as algorithm:
        actors.kill(ended)
        actors.get(dead.kill.remote(elsewhere))
        algorithm.save_to_path(tmp_path / "1")
        die(dead)
        with pytest.raises(CheckpointWriteError):
            algorithm.save_to_path(tmp_path / "2")
        actors.kill(dead)  # no longer wanted
        algorithm.save_to_path(tmp_path / "2")
    assert set(read_checkpoint(tmp_path / "1").components["actors"][""]) == {"dead"}
    assert "actors" not in read_checkpoint(tmp_path / "2").components


def test_a_restore_does_without_actors_that_died(tmp_path):
    saved = Saved.options(name="saved").remote(3)
    with config().build_algo() as algorithm:
        path = algorithm.save_to_path(tmp_path / "1")
        state = algorithm.get_state()
        die(saved)
        algorithm.train()
        algorithm.restore_from_path(path)
        assert algorithm.training_iteration == 0
        algorithm.save_to_path(tmp_path / "2", state=state)
    assert read_checkpoint(tmp_path / "2").components["actors"] == state["actors"]


def test_an_actor_whose_constructor_failed_is_missed(tmp_path):
    broken = Saved.options(name="saved").remote("no", "such arguments", "at all")
    with config().build_algo() as algorithm:
        assert wait_until(lambda: not broken._address.is_alive())
        with pytest.raises(CheckpointWriteError, match="its constructor raised"):
            algorithm.save_to_path(tmp_path / "1")


def test_states_that_nobody_took_are_carried_on(tmp_path):
    """A program that makes its actors later, or never, does not lose what they had learnt."""
    for name in ("one", "two"):
        Saved.options(name=name).remote(3)
    with config().build_algo() as algorithm:
        path = algorithm.save_to_path(tmp_path / "1")
    actors.shutdown()
    with config().build_algo() as algorithm:
        algorithm.save_to_path(tmp_path / "plain")
        algorithm.restore_from_path(path)
        algorithm.train()
        algorithm.save_to_path(tmp_path / "2")
        assert read_manifest(tmp_path / "2").metadata["actors_not_here"] == ["one", "two"]
        one = Saved.options(name="one").remote()
        algorithm.restore_from_path(tmp_path / "2", component="actors")
        actors.get(one.inc.remote(1))
        algorithm.save_to_path(tmp_path / "3")
        # Of another run: what was kept is not of it.
        algorithm.restore_from_path(tmp_path / "plain")
        actors.kill(one)
        algorithm.save_to_path(tmp_path / "4")
    for name, counts in (("2", (3, 3)), ("3", (4, 3))):
        found = read_checkpoint(tmp_path / name, "actors").components["actors"][""]
        assert (found["one"]["count"], found["two"]["count"]) == counts
    assert "actors" not in read_checkpoint(tmp_path / "4").components
    assert "actors_not_here" not in read_manifest(tmp_path / "4").metadata

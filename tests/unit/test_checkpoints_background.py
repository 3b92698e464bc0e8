"""Saving in the background: which state is saved, who waits for whom, how failures are told."""

import copy
import os
import pickle
import signal
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

from checkpoints import (
    Checkpointable,
    CheckpointWriteError,
    StateError,
    find_checkpoints,
    latest_checkpoint,
    read_checkpoint,
    verify,
)
from tests.saved_files import files_of
from tests.scripts import run_script
from tests.slow_disk import SlowDisk
from trainer.testing.processes import wait_until


class Weights(Checkpointable):
    """Shows its live array, and keeps a list of what was saved."""

    def __init__(self, value=0.0):
        self.array = np.full((300, 2), value, np.float32)
        self.saved = []

    def get_state(self, components=None, *, not_components=None):
        return {"array": self.array, "turned": self.array.T[::-1]}

    def set_state(self, state):
        self.array[:] = state["array"]

    def _on_checkpoint_saved(self, path):
        assert threading.current_thread() is threading.main_thread()
        self.saved.append(Path(path).name)


@pytest.fixture
def disk(monkeypatch):
    return SlowDisk.mount(monkeypatch)


def saved_value(path):
    values = set(read_checkpoint(path).components["state"]["array"].ravel().tolist())
    (value,) = values
    return float(value)


def test_the_state_of_the_call_is_saved_while_the_object_goes_on(tmp_path, disk):
    weights = Weights(1.0)
    weights.save_to_path(tmp_path / "blocking")
    path = weights.save_to_path(tmp_path / "background", background=True)
    assert path == str(tmp_path / "background")
    weights.array[:] = 2.0
    assert wait_until(lambda: disk.num_held == 1)
    assert latest_checkpoint(tmp_path) == tmp_path / "blocking"
    assert weights.saved == ["blocking"]
    disk.let_go()
    weights.finish_saving()
    assert weights.saved == ["blocking", "background"]
    weights.finish_saving()
    assert weights.saved == ["blocking", "background"], "told once"
    both = [(files_of(tmp_path / name) / "state.state").read_bytes() for name in weights.saved]
    assert both[0] == both[1]
    assert saved_value(tmp_path / "background") == 1.0


@pytest.mark.parametrize("background", [True, False])
def test_the_next_save_waits_and_takes_its_copy_afterwards(background, tmp_path, disk):
    weights = Weights(1.0)
    weights.save_to_path(tmp_path / "same", background=True)
    weights.array[:] = 2.0
    threading.Timer(0.01, disk.open).start()
    weights.save_to_path(tmp_path / "same", background=background)
    assert weights.saved[0] == "same"
    weights.finish_saving()
    assert weights.saved == ["same", "same"]
    assert saved_value(tmp_path / "same") == 2.0
    assert [path.name for path in tmp_path.iterdir()] == ["same"]


def test_restoring_waits_for_the_save(tmp_path, disk):
    weights = Weights(1.0)
    weights.save_to_path(tmp_path / "c", background=True)
    weights.array[:] = 2.0
    threading.Timer(0.01, disk.open).start()
    weights.restore_from_path(tmp_path / "c")
    assert weights.array[0, 0] == 1.0


def test_a_state_that_cannot_be_saved_is_told_at_once(tmp_path):
    class Odd(Checkpointable):
        def get_state(self, components=None, *, not_components=None):
            return {"file": object()}

    odd = Odd()
    with pytest.raises(StateError):
        odd.save_to_path(tmp_path / "c", background=True)
    odd.finish_saving()
    assert not list(tmp_path.iterdir())


# ---- failures


@pytest.mark.parametrize("when", ["finish_saving", "save_to_path", "restore_from_path"])
def test_a_failure_is_raised_once_in_the_main_thread(when, tmp_path, disk):
    weights = Weights(1.0)
    weights.save_to_path(tmp_path / "c")
    disk.failure = OSError(28, "No space left on device")
    disk.open()
    weights.save_to_path(tmp_path / "c", background=True)
    arguments = [] if when == "finish_saving" else [tmp_path / "c"]
    with pytest.raises(CheckpointWriteError, match="in the background, and that failed") as caught:
        getattr(weights, when)(*arguments)
    assert "No space left" in str(caught.value)
    assert isinstance(caught.value.__cause__, CheckpointWriteError)
    assert caught.value.__cause__.__cause__ is disk.failure
    disk.failure = None
    assert saved_value(tmp_path / "c") == 1.0
    assert [path.name for path in tmp_path.iterdir()] == ["c"]
    weights.finish_saving()
    weights.save_to_path(tmp_path / "c")
    assert weights.saved == ["c", "c"]


@pytest.mark.parametrize("failure", [None, MemoryError(), KeyError("odd")])
def test_whoever_asked_hears_it_instead(failure, tmp_path, disk):
    weights = Weights()
    heard = []
    disk.failure = failure
    disk.open()
    weights.save_to_path(tmp_path / "c", background=True, when_over=heard.append)
    weights.finish_saving()
    if failure is None:
        assert heard == [None]
        assert weights.saved == ["c"]
    else:
        assert type(heard[0]) is CheckpointWriteError
        assert heard[0].__cause__ is failure
        assert weights.saved == []


def test_nobody_can_be_told_of_a_blocking_save(tmp_path):
    with pytest.raises(TypeError, match="Add `background=True`"):
        Weights().save_to_path(tmp_path / "c", when_over=print)
    assert not list(tmp_path.iterdir())


def test_what_was_written_is_read_back_and_compared(tmp_path, disk, monkeypatch):
    def spoil(path):
        file = files_of(Path(path)) / "state.state"
        file.write_bytes(file.read_bytes()[:-1] + b"!")
        return verify(path)

    monkeypatch.setattr("checkpoints.writer.verify", spoil)
    disk.open()
    weights = Weights(1.0)
    weights.save_to_path(tmp_path / "c", background=True)
    with pytest.raises(CheckpointWriteError, match=r"state\.state"):
        weights.finish_saving()
    assert weights.saved == []


def test_without_a_thread_nothing_is_written(tmp_path, monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    weights = Weights(1.0)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(CheckpointWriteError, match="No thread could be started"):
            weights.save_to_path(tmp_path / "c", background=True)
    weights.finish_saving()
    assert not list(tmp_path.iterdir())
    weights.save_to_path(tmp_path / "c", background=True)
    weights.finish_saving()
    assert saved_value(tmp_path / "c") == 1.0


# ---- interrupts, copies, forks, the end


def test_an_interrupt_while_starting_leaves_no_save_without_an_owner(tmp_path, monkeypatch):
    start = threading.Thread.start

    def interrupted(self):
        start(self)
        raise KeyboardInterrupt

    weights = Weights(1.0)
    for _ in range(10):  # the thread may have begun or not
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", interrupted)
            with pytest.raises(KeyboardInterrupt):
                weights.save_to_path(tmp_path / "c", background=True)
        num_saved = len(weights.saved)
        weights.finish_saving()
        assert (tmp_path / "c").exists() == bool(weights.saved)
        assert len(weights.saved) - num_saved <= 1


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_waiting_can_be_interrupted_and_begun_again(tmp_path, disk):
    weights = Weights(1.0)
    weights.save_to_path(tmp_path / "c", background=True)
    assert wait_until(lambda: disk.num_held == 1)
    timer = threading.Timer(0.02, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        weights.finish_saving()
    timer.join()
    assert weights.saved == []
    disk.open()
    weights.finish_saving()
    assert weights.saved == ["c"]


def test_a_copy_has_nothing_under_way(tmp_path, disk):
    weights = Weights(1.0)
    weights.save_to_path(tmp_path / "c", background=True)
    for copied in (copy.deepcopy(weights), pickle.loads(pickle.dumps(weights))):
        copied.finish_saving()
        assert copied.saved == []
    disk.open()
    weights.finish_saving()
    assert weights.saved == ["c"]
    assert "_save_under_way" not in vars(weights)


@pytest.mark.skipif(os.name != "posix", reason="forks")
def test_a_forked_process_leaves_the_save_to_its_parent(tmp_path, disk):
    weights = Weights(1.0)
    weights.save_to_path(tmp_path / "c", background=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # forking while a thread runs is the point
        pid = os.fork()
    if pid == 0:
        weights.finish_saving()
        weights.array[:] = 2.0
        weights.save_to_path(tmp_path / "of-child")
        os._exit(0 if weights.saved == ["of-child"] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    disk.open()
    weights.finish_saving()
    values = [saved_value(found.path) for found in find_checkpoints(tmp_path)]
    assert sorted(values) == [1.0, 2.0]


ENDS_WHILE_SAVING = """
import sys
from checkpoints import Checkpointable

class Large(Checkpointable):
    def get_state(self, components=None, *, not_components=None):
        return {"large": b"x" * 30_000_000}

    def set_state(self, state):
        pass

for path in sys.argv[1:]:
    Large().save_to_path(path, background=True)
print("end of the program", flush=True)
"""


def test_the_end_of_the_program_waits_and_tells_what_failed(tmp_path):
    (tmp_path / "file").touch()
    paths = [str(tmp_path / "c"), str(tmp_path / "file" / "c")]
    ended = run_script(ENDS_WHILE_SAVING, *paths)
    assert ended.stdout == "end of the program\n"
    assert ended.stderr.count("was being saved in the background, and that failed") == 1
    assert paths[1] in ended.stderr
    assert len(read_checkpoint(paths[0]).components["state"]["large"]) == 30_000_000

"""Ctrl-C at each moment of a place that is easily cut in two: all of it is done, or nothing."""

import signal
from collections.abc import Callable
from pathlib import Path
from types import CodeType

import numpy as np
import pytest
from gymnasium import spaces

from checkpoints import decode, encode, write_checkpoint
from checkpoints.codec import ExtEntry
from checkpoints.directory import SaveFolder
from tests import league
from tests.faults.test_checkpoint_crashes import Recording
from tests.moments import IS_POSSIBLE, interrupted, moments
from tests.small_runs import known
from trainer import actors
from trainer.actors.connection import Link, Room
from trainer.algorithms.module_changes import ModuleChanges
from trainer.connectors.encoding import ObservationEncoder
from trainer.runtime import threads
from trainer.runtime.run_lock import RunLock
from trainer.runtime.threads import SingleThreadedBlas, single_threaded_blas
from trainer.testing import wait_until
from trainer.tune.journal_file import JournalFile
from trainer.tune.trial_files import TrialFiles
from trainer_toolkit.files import PathLock

pytestmark = pytest.mark.skipif(not IS_POSSIBLE, reason="reads the instructions of Python 3.11")

Looks = Callable[[CodeType], bool]


@pytest.fixture(autouse=True)
def interrupts_are_raised():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def within(*functions):
    """Looks at these functions only."""
    return lambda code: code in [function.__code__ for function in functions]


# ---- the number of BLAS threads


def two_blocks():
    with single_threaded_blas(), single_threaded_blas():
        pass


def test_the_number_of_blas_threads_is_put_back_by_whoever_comes_next(monkeypatch):
    numbers = [4]
    functions = (lambda: numbers[-1], numbers.append)
    monkeypatch.setattr(threads, "_thread_functions", lambda: functions)
    in_blocks = within(SingleThreadedBlas.__enter__, SingleThreadedBlas.__exit__)
    found = moments(two_blocks, in_blocks)
    assert len(found) > 10
    for moment in found:
        assert interrupted(two_blocks, moment), moment
        two_blocks()
        assert numbers[-1] == 4, moment
        assert not SingleThreadedBlas._users


# ---- memory that goes with the number of observations


def test_an_encoder_has_memory_for_as_many_observations_as_it_takes_them_for():
    """Else whatever acts in the main process fails from then on, at each number of sub-envs."""
    three = [np.full(2, number, np.float32) for number in range(3)]

    def encode():
        return encoder.encode(three)

    encoder = ObservationEncoder(spaces.Box(0, 9, (2,)))
    found = moments(encode, within(ObservationEncoder._reserve))
    assert found
    for moment in found:
        encoder = ObservationEncoder(spaces.Box(0, 9, (2,)))
        assert interrupted(encode, moment)
        assert encode().tolist() == [[0, 0], [1, 1], [2, 2]], moment


# ---- modules


def test_a_change_of_modules_is_made_or_not():
    with league.config(0, 2).callbacks(None).build_algo() as algo:
        algo.train()
        before = algo.get_state()
        states = [known(algo)]

        def add():
            mapping = {"a": "main", 3: "new", "late": "first"}
            algo.add_module("new", copy_of="main", new_agent_to_module_mapping_fn=mapping)

        found = moments(add, within(ModuleChanges._take))
        states.append(known(algo))
        assert len(found) > 10
        for moment in found:
            algo.set_state(before)
            assert interrupted(add, moment)
            assert known(algo) == states["new" in algo.module_specs], moment


# ---- locks of directories

TAKING_A_RUN = (RunLock.__enter__, RunLock._take, RunLock._locked_file, RunLock._remove_made)
LOCKS = [(RunLock, TAKING_A_RUN), (PathLock, (PathLock.__init__,))]


@pytest.mark.parametrize(("lock", "functions"), LOCKS)
def test_a_directory_is_free_again_at_once(lock, functions, tmp_path):
    """Also for the process itself, which goes on."""

    def hold():
        with lock(tmp_path):
            pass

    found = moments(hold, within(*functions))
    assert len(found) > 3
    for moment in found:
        assert interrupted(hold, moment)
        hold()
        assert list(tmp_path.iterdir()) == [], moment


def test_a_save_leaves_nothing_that_the_next_one_does_not_remove(tmp_path):
    def save():
        content = {"components": {"a": 1}, "metadata": {}}
        write_checkpoint(tmp_path / "c", file_system=Recording(), **content)

    found = moments(save, within(SaveFolder.__enter__, SaveFolder._make))
    assert len(found) > 3
    for moment in found:
        assert interrupted(save, moment)
        save()
        assert [entry.name for entry in tmp_path.iterdir()] == ["c"], moment


def test_reading_is_interrupted_and_finds_no_damage():
    """Else a whole checkpoint would be passed over, or set aside."""
    data = encode({"array": np.arange(3)})

    def read():
        decode(data)

    found = moments(read, within(ExtEntry.__init__))
    assert found
    for moment in found:
        assert interrupted(read, moment)


# ---- files of experiments


def test_no_file_of_an_experiment_stays_open(tmp_path):
    def write():
        journal = JournalFile(tmp_path / "journal.jsonl")
        try:
            journal.append([{"event": "a"}])
        finally:
            journal.close()
        TrialFiles(tmp_path).append_row({"a": 1})

    open_files = Path("/proc/self/fd")
    found = moments(write, within(JournalFile._open, TrialFiles.append_row))
    assert len(found) > 3
    for moment in found:
        (tmp_path / "journal.jsonl").unlink(missing_ok=True)
        before = len(list(open_files.iterdir()))
        assert interrupted(write, moment)
        assert len(list(open_files.iterdir())) == before, moment


# ---- calls of actors


class Counter:
    def __init__(self):
        self.count = 0

    def increase(self):
        self.count += 1
        return self.count


@pytest.mark.process
def test_an_actor_can_be_called_again_at_once(monkeypatch):
    """And none of its calls is counted as under way for ever: they would fill its room."""
    rooms = []

    def made(self, *arguments, **keywords):
        rooms.append(self)
        make(self, *arguments, **keywords)

    make = Room.__init__
    monkeypatch.setattr(Room, "__init__", made)
    counter = actors.remote(Counter).remote()
    calls = [counter.increase.remote() for _ in range(2)]
    known_count = actors.get(calls)[-1]

    def call():
        calls[:] = [counter.increase.remote()]

    sending = (Link.call, Room.enter, Room._counts, Link._send_what_is_ready, Link._send)
    found = moments(call, within(*sending))
    for moment in found:
        assert interrupted(call, moment)
        count = actors.get(counter.increase.remote(), timeout=20)
        assert count - known_count in (1, 2, 3), moment
        known_count = count
        assert wait_until(lambda: rooms[-1].num_calls == rooms[-1].num_bytes == 0), moment
    actors.kill(counter)

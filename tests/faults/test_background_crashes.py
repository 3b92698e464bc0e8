"""Background saves that fail or are killed at any file operation, and how runs go on then."""

import functools
import os
import random
import signal

import pytest

from callbacks import PeriodicCheckpoint
from checkpoints import (
    Checkpointable,
    CheckpointWriteError,
    latest_checkpoint,
    read_checkpoint,
    verify,
)
from tests.faults.test_checkpoint_crashes import EXIT_CODE, Interrupted, Recording, in_child
from tests.small_runs import known
from trainer import PPO, PPOConfig
from trainer_toolkit.interrupts import signals_deferred

pytestmark = pytest.mark.skipif(os.name != "posix", reason="forks")


class Pair(Checkpointable):
    """Two components of equal content."""

    def __init__(self, value):
        self.value = value

    def get_checkpointable_components(self):
        return [("a", Number(self.value)), ("b", Number(self.value))]

    def _start_save(self, save):
        with signals_deferred():  # as algorithms do
            super()._start_save(save)


class Number:
    def __init__(self, value):
        self.value = value

    def get_state(self):
        return self.value

    def set_state(self, state):
        self.value = state


OLD, NEW = 1, 2
NUM_OPERATIONS = 17  # to replace it: a folder, 3 files with syncs, the manifest, 3 removals
WAYS = [("error", "before"), ("error for good", "before"), ("exit", "before")]
MORE_WAYS = [(how, when) for how, _ in WAYS for when in ("half", "after")]


def mount(monkeypatch, disk):
    monkeypatch.setattr("checkpoints.writer.FileSystem", lambda: disk)


def save(path, value):
    pair = Pair(value)
    pair.save_to_path(path, background=True)
    pair.value = -1
    pair.finish_saving()


def assert_whole(directory, *values):
    path = latest_checkpoint(directory)
    assert path is not None
    components = read_checkpoint(path).components
    assert components["a"] == components["b"]
    assert components["a"] in values


def check(path, number, how, when, monkeypatch):
    mount(monkeypatch, Recording())
    save(path / "c", OLD)
    mount(monkeypatch, Interrupted(number, when, how))
    if how == "exit":
        assert in_child(lambda: save(path / "c", NEW)) == EXIT_CODE
        assert_whole(path, OLD, NEW)
    else:
        error = None
        try:
            save(path / "c", NEW)
        except CheckpointWriteError as raised:
            error = str(raised)
        assert error is None or "No space left on device" in error
        assert_whole(path, NEW, *([] if error is None else [OLD]))  # failed removals are logged
        if how == "error":
            assert len(list(path.iterdir())) <= 2
    mount(monkeypatch, Recording())
    save(path / "c", 3)
    assert_whole(path, 3)
    if how == "exit":
        assert [entry.name for entry in path.iterdir()] == ["c"]


@pytest.mark.parametrize(("how", "when"), WAYS)
def test_every_operation_that_fails_leaves_one_whole(tmp_path, how, when, monkeypatch):
    recording = Recording()
    mount(monkeypatch, Recording())
    save(tmp_path / "c", OLD)
    mount(monkeypatch, recording)
    save(tmp_path / "c", NEW)
    assert len(recording.operations) == NUM_OPERATIONS
    for number in range(NUM_OPERATIONS):
        directory = tmp_path / str(number)
        directory.mkdir()
        check(directory, number, how, when, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize(("how", "when"), MORE_WAYS)
@pytest.mark.parametrize("number", range(NUM_OPERATIONS))
def test_every_operation_half_done_leaves_one_whole(tmp_path, number, how, when, monkeypatch):
    check(tmp_path, number, how, when, monkeypatch)


# ---- runs that are killed while they save


NUM_ITERATIONS = 4


class Killing(Recording):
    """Kills the process at the operation of one number, in whichever thread."""

    def __init__(self, number):
        super().__init__()
        self._number = number

    def step(self, name, path, act, half=None):
        if len(self.operations) == self._number:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(name, path, act, half)


def train_to_the_end(directory, disk, monkeypatch):
    """As a user's script does: go on with the newest checkpoint, or begin."""
    mount(monkeypatch, disk)
    callback = PeriodicCheckpoint(directory / "run", every=1, keep_last=2, background=True)
    config = PPOConfig().environment("CartPole-v1").debugging(seed=5).callbacks([callback])
    config.training(train_batch_size=50, minibatch_size=50, num_epochs=1)
    config.training(model={"fcnet_hiddens": [8]}).env_runners(num_env_runners=0)
    newest = latest_checkpoint(directory / "run")
    made = config.build_algo() if newest is None else PPO.from_checkpoint(newest, config=config)
    with made as algo:
        while algo.training_iteration < NUM_ITERATIONS:
            algo.train()
        algo.finish_saving()
        (directory / "known").write_bytes(known(algo))


def kill_again_and_again(directory, numbers, monkeypatch):
    """Trains, killed at these operations of saving, one process after another; what it learnt."""
    for index, number in enumerate(numbers):
        disk = Killing(number)
        killed = in_child(functools.partial(train_to_the_end, directory, disk, monkeypatch))
        assert killed in (0, -signal.SIGKILL)
        newest = latest_checkpoint(directory / "run")
        if newest is not None:
            verify(newest)
        if killed == 0:
            assert index > 0, "the first has a whole run to save"
            break
    assert in_child(lambda: train_to_the_end(directory, Recording(), monkeypatch)) == 0
    return (directory / "known").read_bytes()


def check_kills(directory, numbers, monkeypatch):
    (directory / "undisturbed").mkdir()
    (directory / "killed").mkdir()
    expected = kill_again_and_again(directory / "undisturbed", [], monkeypatch)
    assert kill_again_and_again(directory / "killed", numbers, monkeypatch) == expected


def test_a_run_that_is_killed_while_it_saves_goes_on_exactly(tmp_path, monkeypatch):
    check_kills(tmp_path, [2, 60, 17, 40], monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_runs_that_are_killed_often_while_they_save_go_on_exactly(seed, tmp_path, monkeypatch):
    rng = random.Random(seed)
    check_kills(tmp_path, [rng.randrange(90) for _ in range(6)], monkeypatch)


# ---- interrupts


def interrupt_at_random(directory, seed, num_interrupts):
    """Saves again and again, while interrupts come at any moment of it."""
    rng = random.Random(seed)
    pair = Pair(0)
    num_caught = 0
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        while num_caught < num_interrupts:
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, 4e-3))
                for _ in range(40):  # an interrupt within a destructor is lost
                    pair.value += 1
                    pair.save_to_path(directory / "c", background=True)
                    if rng.random() < 0.3:
                        pair.finish_saving()
            except KeyboardInterrupt:
                num_caught += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    pair.finish_saving()
    assert_whole(directory, *range(pair.value + 1))
    pair.value = -1
    pair.save_to_path(directory / "c", background=True)
    pair.finish_saving()
    assert_whole(directory, -1)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 21))]
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # files left open
def test_interrupts_at_any_moment_leave_it_able_to_save(seed, tmp_path, monkeypatch):
    mount(monkeypatch, Recording())
    interrupt_at_random(tmp_path, seed, 60)

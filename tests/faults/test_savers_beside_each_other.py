"""Several processes save into one directory: everything that is found is whole, of one of them."""

import gc
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from callbacks import BestCheckpoint, PeriodicCheckpoint
from callbacks.ready_made.claims import release_claims
from checkpoints import (
    CheckpointNotFoundError,
    CheckpointWriteError,
    FileSystem,
    find_checkpoints,
    latest_checkpoint,
    read_checkpoint,
    verify,
    write_checkpoint,
)
from checkpoints.directory import is_unfinished
from tests.faults.test_checkpoint_crashes import no_locks_here
from tests.steered_algorithm import SteeredAlgorithm
from trainer import PPOConfig
from trainer.testing.envs import CountdownEnv
from trainer.testing.processes import wait_until
from trainer_toolkit.files import PathLock

pytestmark = pytest.mark.skipif(os.name != "posix", reason="two processes at one directory")

PROJECT = Path(__file__).parents[2]

SAVER = """
import os, sys, time
from pathlib import Path
from checkpoints import FileSystem, Retention, apply_retention, write_checkpoint

class Fast(FileSystem):
    def sync_file(self, file):
        file.flush()
    def sync_directory(self, path):
        pass

folder, names, keep = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
if sys.argv[4] == "no locks":
    import errno, fcntl
    def flock(*_):
        raise OSError(errno.ENOLCK, "no locks")
    fcntl.flock = flock
number = 0
while not (folder / "stop").exists():
    number += 1
    value = os.getpid() * 10**6 + number
    iteration = time.time_ns() // 10**7  # of the other process, too
    name = f"{0 if names else iteration:06d}"
    write_checkpoint(folder / "saved" / name, components={"a": [value] * 3000, "b/c": value},
                     metadata={"training_iteration": iteration}, file_system=Fast())
    if keep:
        apply_retention(folder / "saved", Retention(keep_last=keep), file_system=Fast())
    (folder / f"began-{os.getpid()}").touch()
print(number)
"""


def save(path, value, file_system=None):
    return write_checkpoint(
        path,
        components={"a": [value] * 100, "c": value},
        metadata={"training_iteration": value},
        file_system=file_system,
    )


@contextmanager
def savers(folder, *, count, names, keep, locks="locks"):
    """Processes that save until the block ends; then gives how often each did."""
    line = [sys.executable, "-c", SAVER, str(folder), str(names), str(keep), locks]
    processes = [
        subprocess.Popen(line, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(count)
    ]
    num_saves = []
    try:
        yield num_saves
    finally:
        (folder / "stop").touch()
        ends = [process.communicate(timeout=30) for process in processes]
    for out, errors in ends:
        assert errors == b"", errors.decode()
        num_saves.append(int(out))


def read_whole(path):
    """The value of a checkpoint, all of whose parts are of the same save."""
    components = read_checkpoint(path).components
    assert set(components["a"]) == {components["b/c"]}
    return int(components["b/c"])


def look_while_they_save(folder, look, *, count, names, keep, looks, locks="locks"):
    seen = []
    with savers(folder, count=count, names=names, keep=keep, locks=locks) as num_saves:
        assert wait_until(lambda: len([*folder.glob("began-*")]) == count, within_s=30)
        for _ in range(looks):
            value = look()
            if value is not None:
                seen.append(value)
    assert min(num_saves) > 1
    assert len({value // 10**6 for value in seen}) > 1, "those of several processes were seen"
    left = [path for path in (folder / "saved").iterdir() if is_unfinished(path)]
    assert left == []
    return seen


LONG = [pytest.param(2, 60), pytest.param(3, 400, marks=pytest.mark.slow)]


@pytest.mark.parametrize("locks", ["locks", "no locks"])
@pytest.mark.parametrize(("count", "looks"), LONG)
def test_one_path_always_holds_a_whole_checkpoint(tmp_path, count, looks, locks):
    path = tmp_path / "saved" / "000000"

    def look():
        latest = latest_checkpoint(path.parent)
        assert latest is not None
        found = read_whole(latest)
        return read_whole(path) or found

    look_while_they_save(tmp_path, look, count=count, names=1, keep=0, looks=looks, locks=locks)
    assert verify(path)
    assert [path.name for path in path.parent.iterdir()] == ["000000"]
    if locks == "locks":
        assert len(list(path.iterdir())) == 2


@pytest.mark.parametrize(("count", "looks"), LONG)
def test_keeping_the_newest_of_one_directory_always_leaves_one(tmp_path, count, looks):
    """Each removes what the other saved, but never the newest, and never half of one."""

    def look():
        latest = latest_checkpoint(tmp_path / "saved")
        assert latest is not None
        try:
            return read_whole(latest)
        except CheckpointNotFoundError:  # it was one of the older ones when it was to be read
            return None

    look_while_they_save(tmp_path, look, count=count, names=0, keep=2, looks=looks)
    found = find_checkpoints(tmp_path / "saved")
    assert 1 <= len(found) <= 2 * count
    for one in found:
        verify(one)


def test_a_directory_that_is_removed_while_it_is_described_does_not_exist(tmp_path, monkeypatch):
    (tmp_path / "c").mkdir()
    iterdir = Path.iterdir

    def removed_first(path):
        if path.name == "c" and path.exists():
            path.rmdir()
        return iterdir(path)

    monkeypatch.setattr(Path, "iterdir", removed_first)
    with pytest.raises(CheckpointNotFoundError, match="does not exist"):
        read_checkpoint(tmp_path / "c")


class Overtaken(FileSystem):
    """Before a save comes to its one step, others save to the same path."""

    def __init__(self, times):
        self.times = times

    def sync_file(self, file):
        file.flush()

    def replace(self, source, target):
        while self.times:
            self.times -= 1
            save(target.parent, 50 + self.times, Overtaken(0))
        super().replace(source, target)


@pytest.mark.parametrize("has_locks", [True, False])
def test_whoever_comes_last_stays(tmp_path, has_locks, monkeypatch):
    if not has_locks:
        monkeypatch.setattr("fcntl.flock", no_locks_here)
    save(tmp_path / "c", 1)
    save(tmp_path / "c", 2, Overtaken(3))
    assert read_checkpoint(tmp_path / "c").components["c"] == 2
    verify(tmp_path / "c")
    # Without locks, a folder that was made after the last look is not known to be over.
    assert len(list((tmp_path / "c").iterdir())) == (2 if has_locks else 3)


class Foreign(FileSystem):
    """While the files are written, something that is not ours comes to the path."""

    def create_file(self, path):
        (path.parent.parent / "thesis.txt").write_text("precious")
        return super().create_file(path)


def test_what_came_to_the_path_during_the_save_stays_there(tmp_path):
    save(tmp_path / "c", 2, Foreign())
    assert (tmp_path / "c" / "thesis.txt").read_text() == "precious"
    assert read_checkpoint(tmp_path / "c").components["c"] == 2


CLAIMER = """
import sys
from callbacks import PeriodicCheckpoint
from tests.faults.test_checkpoint_crashes import no_locks_here
from tests.steered_algorithm import SteeredAlgorithm
algo = SteeredAlgorithm(PeriodicCheckpoint(sys.argv[1], every=1, keep_last=2))
algo.tell_returns([1.0] * 4)
print("saved", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def occupied(tmp_path):
    """A directory in which the run of another process keeps the checkpoints 3 and 4."""
    line = [sys.executable, "-c", CLAIMER, str(tmp_path / "runs")]
    with subprocess.Popen(
        line, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"saved\n"
        yield tmp_path / "runs", process
        process.kill()


def contents(folder):
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }


@pytest.mark.parametrize(
    "kind", [PeriodicCheckpoint, pytest.param(BestCheckpoint, marks=pytest.mark.slow)]
)
def test_a_directory_of_a_living_run_is_left_alone_by_another_process(kind, occupied):
    folder, process = occupied
    before = contents(folder)
    every = {"every": 1} if kind is PeriodicCheckpoint else {}
    with pytest.raises(CheckpointWriteError, match="is in use: the run of another process"):
        SteeredAlgorithm(kind(folder, **every)).tell()
    warned = SteeredAlgorithm(kind(folder, on_error="warn", **every))
    for number in (1, 2):
        assert warned.tell()["fault_tolerance"]["num_failed_saves_lifetime"] == number
    assert contents(folder) == before
    assert [path.name for path in folder.parent.iterdir()] == ["runs"]

    process.kill()
    process.wait()
    warned.tell()  # a new run: the other one's are set aside
    assert [path.name for path in folder.iterdir() if path.is_dir()] == ["000003"]
    aside = folder.with_name("runs-set-aside-1")
    assert {name: data for name, data in before.items() if name in contents(aside)} == before


def test_a_run_that_is_stopped_or_dropped_gives_its_directory_up(tmp_path):
    first = SteeredAlgorithm(PeriodicCheckpoint(tmp_path / "a", every=1))
    second = SteeredAlgorithm(PeriodicCheckpoint(tmp_path / "a", every=1))
    first.tell()
    before = contents(tmp_path)
    with pytest.raises(CheckpointWriteError, match="another algorithm of this process"):
        second.tell()
    assert contents(tmp_path) == before
    release_claims(first)
    second.tell()
    with pytest.raises(CheckpointWriteError, match="another algorithm of this process"):
        first.tell()
    with pytest.raises(BlockingIOError):
        PathLock(tmp_path / "a")
    release_claims(second)
    PathLock(tmp_path / "a").release()

    third = SteeredAlgorithm(PeriodicCheckpoint(tmp_path / "a", every=1))
    third.tell()
    shutil.rmtree(tmp_path / "a")
    third.tell()  # a directory that was removed meanwhile is made and claimed again
    with pytest.raises(BlockingIOError):
        PathLock(tmp_path / "a")
    del third
    gc.collect()
    PathLock(tmp_path / "a").release()


def test_an_algorithm_that_holds_itself_and_is_dropped_gives_its_directory_up(tmp_path):
    first = SteeredAlgorithm(
        PeriodicCheckpoint(tmp_path / "a", every=1), PeriodicCheckpoint(tmp_path / "b", every=1)
    )
    first.tell()
    first.itself = first
    del first
    second = SteeredAlgorithm(PeriodicCheckpoint(tmp_path / "b", every=1))
    second.tell()
    assert second.saved == ["000001"]


def test_a_stopped_algorithm_gives_its_directories_up(tmp_path):
    config = PPOConfig().environment(CountdownEnv).env_runners(num_env_runners=0)
    config.training(
        train_batch_size=20, minibatch_size=20, num_epochs=1, model={"fcnet_hiddens": [8]}
    )
    with config.callbacks([PeriodicCheckpoint(tmp_path, every=1)]).build_algo() as algo:
        algo.train()
        with pytest.raises(BlockingIOError):
            PathLock(tmp_path)
    PathLock(tmp_path).release()

"""Saving and removing, interrupted at every file operation: one whole checkpoint is always found.

Ways to be interrupted: an error that is cleaned up, Ctrl-C, an error after which nothing works any
more (not even cleaning up), the end of the process without any cleaning up, and a power cut, after
which what was not synced is gone or half there. Each before the operation takes effect, half-way
(writes) and right after.
"""

import errno
import fcntl
import itertools
import os
import random
import shutil
import subprocess
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from checkpoints import (
    CheckpointWriteError,
    FileSystem,
    find_checkpoints,
    latest_checkpoint,
    read_checkpoint,
    verify,
    write_checkpoint,
)
from checkpoints.directory import clear, remove_checkpoint, remove_unfinished
from checkpoints.errors import CheckpointError
from trainer_toolkit.files import PathLock

OLD, NEW = 1, 2
EXIT_CODE = 77

pytestmark = pytest.mark.skipif(os.name != "posix", reason="forks")


class Recording(FileSystem):
    """Does everything except waiting for the disk, and keeps a list of what was done."""

    def __init__(self):
        self.operations = []

    def step(self, name, path, act, half=None):
        """Do one operation; subclasses interrupt here. `half` does a part of it."""
        self.operations.append((name, path.name))
        return act()

    def make_directory(self, path):
        self.step("make_directory", path, lambda: FileSystem.make_directory(self, path))

    def create_file(self, path):
        return self.step("create", path, lambda: path.open("xb", buffering=0))

    def write(self, file, data):
        part = data[: len(data) // 2]
        self.step("write", Path(file.name), lambda: file.write(data), lambda: file.write(part))

    def sync_file(self, file):
        self.step("sync", Path(file.name), lambda: None)

    def sync_directory(self, path):
        self.step("sync_directory", path, lambda: None)

    def replace(self, source, target):
        self.step("replace", target, lambda: FileSystem.replace(self, source, target))

    def remove_file(self, path):
        self.step("remove", path, lambda: FileSystem.remove_file(self, path))

    def remove_directory(self, path):
        self.step("remove_directory", path, lambda: FileSystem.remove_directory(self, path))


class Interrupted(Recording):
    """Interrupts the operation of one number, before it, half-way through it, or after it."""

    def __init__(self, number, when, how):
        super().__init__()
        self.number = number
        self._when = when
        self._how = how

    def step(self, name, path, act, half=None):
        number = len(self.operations)
        self.operations.append((name, path.name))
        if number == self.number:
            if self._when == "half" and half is not None:
                half()
            elif self._when == "after":
                result = act()
                if hasattr(result, "close"):
                    result.close()
            self._interrupt()
        elif number > self.number and self._how == "error for good":
            self._interrupt()
        return act()

    def _interrupt(self):
        if self._how == "exit":
            os._exit(EXIT_CODE)
        if self._how == "keyboard":
            raise KeyboardInterrupt
        raise OSError(28, "No space left on device")


def save(path, value, file_system=None):
    components = {"a/b": {"w": np.full(100, value), "v": np.full(3, value)}, "c": value}
    return write_checkpoint(
        path,
        components=components,
        metadata={"training_iteration": value},
        code=b"code",
        large_array_bytes=100,
        file_system=file_system,
    )


def save_old(path):
    """The previous checkpoint, into which a user put notes."""
    save(path, OLD, Recording())
    (path / "notes.txt").write_text("good run")


def found_values(directory):
    """The values of the checkpoints that are found, each read and verified completely."""
    values = []
    for found in find_checkpoints(directory):
        components = read_checkpoint(found).components
        for array in components["a/b"].values():
            assert set(array.tolist()) == {components["c"]}
        values.append(components["c"])
    return values


def in_child(act):
    """Run `act` in a forked process and return its exit code."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # threads of BLAS are of no concern to file operations
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            act()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


# ---- every operation of everything that changes a checkpoint


def nothing(folder):
    """There was none."""


def old(folder):
    """The previous checkpoint, into which a user put notes."""
    save(folder / "c", OLD, Recording())
    (folder / "c" / "notes.txt").write_text("good run")


def old_and_a_killed_save(folder):
    """The same, and what a killed process left of the next one."""
    old(folder)
    unfinished = folder / "c" / "files-2"
    unfinished.mkdir()
    (unfinished / "a.b.state").write_bytes(b"torn")


def save_new(folder, files):
    """Save over what is there."""
    save(folder / "c", NEW, files)


def remove(folder, files):
    """Remove what is there."""
    remove_checkpoint(folder / "c", files)


Act = Callable[[Path, FileSystem], None]
WORK = {
    "first": (nothing, save_new, [[], [NEW]]),
    "replacement": (old, save_new, [[OLD], [NEW]]),
    "replacement after a killed one": (old_and_a_killed_save, save_new, [[OLD], [NEW]]),
    "removal": (old, remove, [[OLD], []]),
}
"""What was there, what is done, and the values that may be found afterwards."""


def operations_of(work, folder):
    before, act, _ = WORK[work]
    folder.mkdir()
    before(folder)
    recording = Recording()
    act(folder, recording)
    return [name for name, _ in recording.operations]


# 2 components with 2 or 1 parts, a large array, code and manifest: 5 x create, 6 x write, 5 x sync;
# make folder; sync it and the directory, replace, sync. Of the first: make directory, sync. Else:
# 4 x remove, remove folder; of a killed one: sync, remove, remove folder.
# A removal: remove, sync, 4 x remove, remove folder; the directory is not empty.
NUM_OPERATIONS = {
    "first": 23,
    "replacement": 26,
    "replacement after a killed one": 29,
    "removal": 8,
}


def cases():
    """Every moment of every kind of work, in every way, without those that are the same."""
    found = []
    for work, when, how in itertools.product(
        WORK, ("before", "half", "after"), ("error", "error for good", "keyboard", "exit")
    ):
        if (when, how) == ("after", "exit") or (when == "half" and work == "removal"):
            continue  # it is the moment before the next one; a removal writes nothing
        found.append(pytest.param(work, when, how, id=f"{work}, {when}, {how}"))
    return found


@pytest.mark.parametrize("has_locks", [True, False], ids=["locks", "no locks"])
@pytest.mark.parametrize(("work", "when", "how"), cases())
def test_whatever_is_interrupted_the_old_one_or_the_new_one_is_complete(
    work, when, how, has_locks, tmp_path, monkeypatch
):
    if not has_locks:
        monkeypatch.setattr("fcntl.flock", no_locks_here)
    operations = operations_of(work, tmp_path / "undisturbed")
    assert len(operations) == NUM_OPERATIONS[work] or not has_locks
    numbers = [
        number for number, name in enumerate(operations) if when != "half" or name == "write"
    ]
    assert len(numbers) >= 6
    for number in numbers:
        folder = tmp_path / f"operation {number}"
        folder.mkdir()
        _interrupt_and_look(folder, work, Interrupted(number, when, how), how, has_locks=has_locks)


def _interrupt_and_look(folder, work, faulty, how, *, has_locks):
    before, act, allowed = WORK[work]
    before(folder)
    finished = False
    if how == "exit":
        assert in_child(lambda: act(folder, faulty)) in (EXIT_CODE, 0)
    else:
        try:
            act(folder, faulty)
            finished = True  # removing the previous one failed, which is logged
        except (CheckpointWriteError, OSError):
            assert how.startswith("error")
        except KeyboardInterrupt:
            assert how == "keyboard"
    _check(folder, allowed[-1:] if finished else allowed, has_notes=before is not nothing)
    # Without locks, what a killed process left may be of one that saves now.
    _check_next_save(folder, is_exact=has_locks, has_notes=before is not nothing)


def _check(folder, allowed, *, has_notes):
    values = found_values(folder)
    assert values in allowed, folder.name
    if values:
        assert read_checkpoint(folder / "c").components["c"] == values[0]
        latest = latest_checkpoint(folder)
        assert latest is not None
        assert verify(latest).training_iteration == values[0]
    assert (folder / "c" / "notes.txt").exists() == has_notes


def _check_next_save(folder, *, is_exact, has_notes):
    notes = folder / "c" / "notes.txt"
    if has_notes and list((folder / "c").iterdir()) == [notes]:  # no checkpoint is left
        with pytest.raises(CheckpointWriteError, match="not empty and not a checkpoint"):
            save(folder / "c", 3, Recording())
        notes.unlink()
        has_notes = False
    save(folder / "c", 3, Recording())
    assert found_values(folder) == [3]
    assert [path.name for path in folder.iterdir()] == ["c"]
    if not is_exact:
        for path in (folder / "c").glob("files-*"):
            os.utime(path, (0, 0))  # a day later
        clear(folder / "c", Recording())
    assert len(list((folder / "c").iterdir())) == 2 + has_notes
    assert notes.exists() == has_notes


def no_locks_here(_, kind):
    # What other tests left locked, where there were locks, is collected meanwhile and let go of.
    if kind != fcntl.LOCK_UN:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


def test_removing_the_previous_one_first_would_lose_everything(tmp_path):
    """Negative control: these tests do notice a save that is not crash-safe."""

    class Careless(Interrupted):
        def create_file(self, path):
            (tmp_path / "c" / "manifest.json").unlink(missing_ok=True)
            return super().create_file(path)

    save(tmp_path / "c", OLD, Recording())
    careless = Careless(5, "before", "exit")
    assert in_child(lambda: save_new(tmp_path, careless)) == EXIT_CODE
    assert found_values(tmp_path) == []


# ---- power cuts


class Cut(Exception):
    """The power is gone."""


class Disk(FileSystem):
    """Loses, when the power is cut, of each directory the names since its last sync, or the newest.

    Names of one directory come to the disk in order, those of several in any; a file that was not
    synced has any part of its content.
    """

    def __init__(self, number, rng):
        self.number = number
        self._rng = rng
        self._undo = defaultdict(list)
        self._unsynced = {}
        self.num_operations = 0

    def _step(self):
        if self.num_operations == self.number:
            raise Cut
        self.num_operations += 1

    def make_directory(self, path):
        self._step()
        super().make_directory(path)
        self._undo[path.parent].append(lambda: shutil.rmtree(path))

    def create_file(self, path):
        self._step()
        file = path.open("xb", buffering=0)
        self._unsynced[path] = path
        self._undo[path.parent].append(lambda: path.unlink(missing_ok=True))
        return file

    def write(self, file, data):
        self._step()
        super().write(file, data)

    def sync_file(self, file):
        self._step()
        self._unsynced.pop(Path(file.name), None)

    def sync_directory(self, path):
        self._step()
        self._undo.pop(path, None)

    def replace(self, source, target):
        self._step()
        before = target.read_bytes() if target.exists() else None
        super().replace(source, target)
        self._undo[target.parent].append(
            lambda: target.unlink() if before is None else target.write_bytes(before)
        )

    def remove_file(self, path):
        self._step()
        data = path.read_bytes()
        super().remove_file(path)
        self._undo[path.parent].append(
            lambda: path.write_bytes(data) if path.parent.is_dir() else None
        )

    def remove_directory(self, path):
        self._step()
        undo = self._undo.pop(path, [])
        super().remove_directory(path)
        self._undo[path.parent].append(path.mkdir)
        self._undo[path] = undo

    def cut(self):
        """What was not synced is lost, or a part of it."""
        for path in self._unsynced:
            if path.exists():
                os.truncate(path, self._rng.randint(0, path.stat().st_size))
        for path in sorted(self._undo, key=lambda path: len(path.parts)):  # a directory, its files
            undo = self._undo[path]
            for back in reversed(undo[self._rng.randint(0, len(undo)) :]):
                if path.is_dir():
                    back()


@pytest.mark.parametrize("work", WORK)
def test_a_power_cut_leaves_the_old_one_or_the_new_one(work, tmp_path):
    before, act, allowed = WORK[work]
    rng = random.Random(20261124)
    for number, again in itertools.product(range(NUM_OPERATIONS[work]), range(6)):
        folder = tmp_path / f"operation {number}, {again}"
        folder.mkdir()
        before(folder)
        disk = Disk(number, rng)
        try:
            act(folder, disk)
        except (Cut, CheckpointError):
            disk.cut()
        _check(folder, allowed, has_notes=before is not nothing)
        _check_next_save(folder, is_exact=True, has_notes=before is not nothing)


def test_a_power_cut_after_a_save_that_was_killed_before_its_last_sync(tmp_path):
    """The new manifest may still be lost, and the old one needs its files."""
    rng = random.Random(20261125)
    last = NUM_OPERATIONS["replacement"] - 6
    for number, again in itertools.product(range(8), range(6)):
        folder = tmp_path / f"operation {number}, {again}"
        folder.mkdir()
        old(folder)
        disk = Disk(last, rng)
        with pytest.raises(Cut):
            save_new(folder, disk)
        assert found_values(folder) == [NEW]
        disk.number += number
        with pytest.raises(Cut):
            save(folder / "c", 3, disk)
        disk.cut()
        _check(folder, [[OLD], [NEW]], has_notes=True)


def test_negative_control_without_syncing_a_power_cut_loses_both(tmp_path):
    class Lazy(Disk):
        def sync_file(self, file):
            pass

    rng, found = random.Random(1), set()
    for again in range(20):
        folder = tmp_path / str(again)
        folder.mkdir()
        old(folder)
        disk = Lazy(10**9, rng)
        save(folder / "c", NEW, disk)
        disk.cut()
        try:
            found.add(read_checkpoint(folder / "c").components["c"])
        except CheckpointError:
            found.add("damaged")
    assert "damaged" in found


# ---- who may remove what


def test_what_is_being_written_and_what_others_put_there_stays(tmp_path):
    path = save(tmp_path / "c", OLD)
    for number in (4, 5, 6):
        (path / f"files-{number}").mkdir()
        (path / f"files-{number}" / "a.state").touch()
    (path / "files-6" / "thesis.txt").write_text("precious")
    (path / "files-x").mkdir()
    with PathLock(path / "files-5"):
        save(path, NEW)
    left = sorted(entry.name for entry in path.iterdir())
    assert left == ["files-5", "files-6", "files-7", "files-x", "manifest.json"]
    assert [entry.name for entry in (path / "files-6").iterdir()] == ["thesis.txt"]
    assert found_values(tmp_path) == [NEW]


def test_links_to_folders_are_no_folders_of_saves(tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "a.state").write_text("precious")
    path = save(tmp_path / "c", OLD)
    (path / "files-2").symlink_to(mine)
    save(path, NEW)
    assert (mine / "a.state").read_text() == "precious"


def test_what_killed_saves_left_in_a_directory_is_removed(tmp_path):
    save(tmp_path / "whole", OLD)
    for name in ("killed", "alive", "mine"):
        (tmp_path / name / "files-1").mkdir(parents=True)
        (tmp_path / name / "files-1" / "a.state").touch()
    (tmp_path / "mine" / "notes.txt").touch()
    for name in ("empty", "000001"):
        (tmp_path / name).mkdir()
    with PathLock(tmp_path / "alive" / "files-1"):
        remove_unfinished(tmp_path, FileSystem())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alive", "empty", "mine", "whole"]


def test_a_removal_that_is_killed_at_any_moment_leaves_nothing_for_ever(tmp_path):
    for number in range(NUM_OPERATIONS["removal"] - 1):  # without notes, the directory goes, too
        folder = tmp_path / str(number)
        folder.mkdir()
        save(folder / "000001", OLD, Recording())
        faulty = Interrupted(number, "after", "exit")
        assert in_child(lambda: remove_checkpoint(folder / "000001", faulty)) == EXIT_CODE  # noqa: B023
        remove_unfinished(folder, Recording())
        assert found_values(folder) in ([], [OLD])
        assert len(list(folder.iterdir())) == len(found_values(folder)), number


def test_a_process_that_was_forked_while_saving_does_not_hold_the_lock(tmp_path):
    lock = PathLock(tmp_path)
    released, gone_on = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pid = os.fork()
    if pid == 0:
        os.read(released, 1)
        os._exit(0)
    try:
        with pytest.raises(BlockingIOError):
            PathLock(tmp_path)
        lock.release()
        with PathLock(tmp_path) as again:
            assert again.is_real
            assert again.holds(tmp_path)
            assert not again.holds(tmp_path / "other")
    finally:
        os.write(gone_on, b"x")
        os.waitpid(pid, 0)
        os.close(released)
        os.close(gone_on)


@pytest.mark.parametrize("takes", ["the folder", "all"])
def test_a_new_folder_that_is_taken_for_abandoned_is_made_again(tmp_path, takes):
    """Between its making and its locking, a save of another process may clear up."""

    class Cleared(Recording):
        num_left = 3

        def make_directory(self, path):
            super().make_directory(path)
            if path.parent.name == "c" and self.num_left:
                self.num_left -= 1
                clear(path.parent, FileSystem())
                assert not path.exists()
                if takes == "all":
                    path.parent.rmdir()

    save(tmp_path / "c", NEW, Cleared())
    assert found_values(tmp_path) == [NEW]
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


KILLED_SAVER = """
import sys
from checkpoints import write_checkpoint
value = 0
while True:
    value += 1
    write_checkpoint(sys.argv[1], components={"a": [value] * 20000, "b": value}, metadata={})
    print(value, flush=True)
"""


def test_process_killed_while_saving_again_and_again_leaves_one_complete(tmp_path):
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", KILLED_SAVER, str(tmp_path / "c")]
    for saves_before_kill in (1, 3):
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root) as process:
            assert process.stdout is not None
            for _ in range(saves_before_kill):
                process.stdout.readline()
            process.kill()
        components = read_checkpoint(tmp_path / "c").components
        assert components["b"] >= saves_before_kill
        assert set(components["a"]) == {components["b"]}

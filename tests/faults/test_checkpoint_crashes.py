"""Saving interrupted at every single file operation: some complete checkpoint is always found.

Ways to be interrupted: an error that is cleaned up, Ctrl-C, an error after which nothing works any
more (not even cleaning up), and the end of the process without any cleaning up. Each before the
operation takes effect, half-way (writes) and right after.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

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
from checkpoints.directory import sweep
from checkpoints.listing import DirectoryLock, leftover_path

OLD, NEW = 1, 2
EXIT_CODE = 77

pytestmark = pytest.mark.skipif(os.name != "posix", reason="forks")


class Recording(FileSystem):
    """Does everything except waiting for the disk, and keeps a list of what was done."""

    def __init__(self) -> None:
        self.operations: list[tuple[str, str]] = []

    def step(self, name: str, path: Path, act: Callable[[], Any], half: Any = None) -> Any:
        """Do one operation; subclasses interrupt here. `half` does a part of it."""
        self.operations.append((name, path.name))
        return act()

    def make_directory(self, path: Path) -> None:
        self.step("make_directory", path, lambda: FileSystem.make_directory(self, path))

    def create_file(self, path: Path) -> BinaryIO:
        file: BinaryIO = self.step("create", path, lambda: path.open("xb", buffering=0))
        return file

    def write(self, file: BinaryIO, data: bytes | memoryview) -> None:
        part = data[: len(data) // 2]
        self.step("write", Path(file.name), lambda: file.write(data), lambda: file.write(part))

    def sync_file(self, file: BinaryIO) -> None:
        self.step("sync", Path(file.name), lambda: None)

    def sync_directory(self, path: Path) -> None:
        self.step("sync_directory", path, lambda: None)

    def rename(self, source: Path, target: Path) -> None:
        self.step("rename", target, lambda: FileSystem.rename(self, source, target))

    def remove_file(self, path: Path) -> None:
        self.step("remove", path, lambda: FileSystem.remove_file(self, path))

    def remove_directory(self, path: Path) -> None:
        self.step("remove_directory", path, lambda: FileSystem.remove_directory(self, path))


class Interrupted(Recording):
    """Interrupts the operation of one number, before it, half-way through it, or after it."""

    def __init__(self, number: int, when: str, how: str) -> None:
        super().__init__()
        self.number = number
        self._when = when
        self._how = how

    def step(self, name: str, path: Path, act: Callable[[], Any], half: Any = None) -> Any:
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

    def _interrupt(self) -> None:
        if self._how == "exit":
            os._exit(EXIT_CODE)
        if self._how == "keyboard":
            raise KeyboardInterrupt
        raise OSError(28, "No space left on device")


def save(path: Path, value: int, file_system: FileSystem | None = None) -> Path:
    components = {"a/b": {"w": np.full(100, value), "v": np.full(3, value)}, "c": value}
    return write_checkpoint(
        path,
        components=components,
        metadata={"training_iteration": value},
        code=b"code",
        large_array_bytes=100,
        file_system=file_system,
    )


def save_old(path: Path) -> None:
    """The previous checkpoint, into which a user put notes."""
    save(path, OLD, Recording())
    (path / "notes.txt").write_text("good run")


def operations_of_a_save(directory: Path, *, has_old: bool) -> list[str]:
    recording = Recording()
    if has_old:
        save_old(directory / "c")
    save(directory / "c", NEW, recording)
    return [name for name, _ in recording.operations]


def found_values(directory: Path) -> list[int]:
    """The values of the checkpoints that are found, each read and verified completely."""
    values = []
    for found in find_checkpoints(directory):
        components = read_checkpoint(found).components
        for array in components["a/b"].values():
            assert set(array.tolist()) == {components["c"]}
        values.append(components["c"])
    return values


def in_child(act: Callable[[], None]) -> int:
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


# 2 components with 2 or 1 parts, a large array, code and manifest: 5 x create, 6 x write, 5 x sync;
# directory: make, sync; rename, sync; and for the old: rename, rename of the notes, 5 x remove,
# remove directory.
FIRST_SAVE = 20
REPLACEMENT = 28
WRITES = {2, 3, 6, 9, 12, 15}
MOMENTS = {
    "before": range(REPLACEMENT),
    # Only a write has a half; half of any other operation is the moment before it.
    "half": sorted(WRITES),
    "after": range(REPLACEMENT),
}


@pytest.mark.parametrize(("has_old", "expected"), [(False, FIRST_SAVE), (True, REPLACEMENT)])
def test_table_of_cases_covers_every_operation(
    tmp_path: Path, has_old: bool, expected: int
) -> None:
    operations = operations_of_a_save(tmp_path, has_old=has_old)
    assert len(operations) == expected
    assert {number for number, name in enumerate(operations) if name == "write"} == WRITES


@pytest.mark.parametrize("how", ["error", "error for good", "keyboard", "exit"])
@pytest.mark.parametrize("when", MOMENTS)
@pytest.mark.parametrize(("has_old", "num_operations"), [(False, FIRST_SAVE), (True, REPLACEMENT)])
def test_interrupted_save_leaves_the_previous_or_the_new_one_complete(
    tmp_path: Path, has_old: bool, num_operations: int, how: str, when: str
) -> None:
    numbers = [number for number in MOMENTS[when] if number < num_operations]
    # Whoever ends at once ends after one operation as before the next one.
    for number in numbers[-1:] if (when, how) == ("after", "exit") else numbers:
        folder = tmp_path / f"operation {number}"
        folder.mkdir()
        _interrupt_and_look(folder, Interrupted(number, when, how), has_old=has_old, how=how)
    assert len(numbers) == (len(WRITES) if when == "half" else num_operations)


def _interrupt_and_look(folder: Path, faulty: Interrupted, *, has_old: bool, how: str) -> None:
    path = folder / "c"
    if has_old:
        save_old(path)
    finished = False
    if how == "exit":
        assert in_child(lambda: _save_and_forget(path, faulty)) == EXIT_CODE
    else:
        try:
            save(path, NEW, faulty)
            finished = True  # removing the previous one failed, which is logged
        except CheckpointWriteError:
            assert how.startswith("error")
        except KeyboardInterrupt:
            assert how == "keyboard"

    values = found_values(folder)
    assert values in ([[OLD], [NEW]] if has_old else [[], [NEW]]), folder.name
    if values:
        assert read_checkpoint(path).components["c"] == values[0]
        latest = latest_checkpoint(folder)
        assert latest is not None
        assert verify(latest).training_iteration == values[0]
    if finished:
        assert values == [NEW]
    assert len(list(folder.rglob("notes.txt"))) == has_old
    _assert_next_save_works(folder, died=how == "exit", undone=how == "error")
    assert len(list(folder.rglob("notes.txt"))) == has_old
    if how == "exit":
        assert (path / "notes.txt").exists() == has_old


def _save_and_forget(path: Path, file_system: FileSystem) -> None:
    save(path, NEW, file_system)


def _assert_next_save_works(directory: Path, *, died: bool, undone: bool) -> None:
    save(directory / "c", 3, Recording())
    assert found_values(directory) == [3]
    if died:  # the leftovers of dead processes are swept; those of living ones are not
        assert [path.name for path in directory.iterdir()] == ["c"]
    if undone:
        assert len(list(directory.iterdir())) <= 2


def test_removing_the_previous_one_first_would_lose_everything(tmp_path: Path) -> None:
    """Negative control: these tests do notice a save that is not crash-safe."""

    class Careless(Interrupted):
        def make_directory(self, path: Path) -> None:
            for file in (tmp_path / "c").iterdir():
                file.unlink()
            super().make_directory(path)

    save(tmp_path / "c", OLD, Recording())
    careless = Careless(5, "before", "exit")
    assert in_child(lambda: _save_and_forget(tmp_path / "c", careless)) == EXIT_CODE
    assert found_values(tmp_path) == []


def test_operations_are_in_the_order_that_survives_a_loss_of_power(tmp_path: Path) -> None:
    save(tmp_path / "c", OLD, Recording())
    recording = Recording()
    save(tmp_path / "c", NEW, recording)
    names = [name for name, _ in recording.operations]
    files = [file for name, file in recording.operations if name == "create"]
    assert files == ["a.b.state", "a.b.0.array", "c.state", "code.pkl", "manifest.json"]
    for file in files:  # every file is synced before the next one begins
        steps = [name for name, path in recording.operations if path == file and name != "remove"]
        assert steps[0] == "create"
        assert steps[-1] == "sync"
    tail = recording.operations[names.index("sync_directory") :]
    assert [name for name, _ in tail] == [
        "sync_directory",  # the new directory
        "rename",  # the previous one aside
        "rename",  # the new one into place
        "sync_directory",  # the directory around
        *["remove"] * 5,
        "remove_directory",
    ]
    assert ".old-" in tail[1][1]
    assert tail[2][1] == "c"
    assert tail[3][1] == tmp_path.name
    assert tail[4][1] == "manifest.json"


def test_both_copies_survive_between_the_renames_and_the_new_one_is_found(tmp_path: Path) -> None:
    save(tmp_path / "c", OLD)
    (tmp_path / "c").rename(leftover_path(tmp_path / "c", "old"))
    save(tmp_path / "other" / "d", NEW).rename(leftover_path(tmp_path / "c", "new"))
    assert found_values(tmp_path) == [NEW]
    assert read_checkpoint(tmp_path / "c").components["c"] == NEW
    (next(tmp_path.glob(".c.new-*")) / "manifest.json").write_bytes(b"torn")
    assert found_values(tmp_path) == [OLD]
    assert read_checkpoint(tmp_path / "c").components["c"] == OLD


@pytest.mark.parametrize("role", ["new", "old"])
@pytest.mark.parametrize("has_locks", [True, False])
def test_sweep_spares_the_living_and_the_foreign_and_keeps_the_only_copy(
    tmp_path: Path, role: Any, has_locks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_locks:
        monkeypatch.setattr("fcntl.flock", _no_locks_here)
    alive = leftover_path(tmp_path / "c", role)
    alive.mkdir()
    pid_of_another = leftover_path(tmp_path / "c", role)  # as after a restart of a container
    pid_of_another.mkdir()
    foreign_host = alive.with_name(f".c.{role}-00000000-999999999-00000000")
    foreign_host.mkdir()
    dead = alive.with_name(alive.name.replace(f"-{os.getpid()}-", "-999999999-"))
    only_copy = dead.with_name(dead.name.replace(".c.", ".lost."))
    save(tmp_path / "other" / "lost", OLD).rename(only_copy)
    dead.mkdir()
    (dead / "a.state").touch()
    holds_notes = dead.with_name(dead.name[:-8] + "00000000")
    holds_notes.mkdir()
    (holds_notes / "notes.txt").touch()
    with DirectoryLock(alive):
        save(tmp_path / "c", NEW)
    left = {path.name for path in tmp_path.iterdir()} - {"other"}
    # The only copy of a checkpoint has come to its place.
    spared = {alive.name, foreign_host.name, "c", "lost"}
    if not has_locks:
        spared.add(pid_of_another.name)
    # Notes of a checkpoint that was replaced just before a crash are brought to the new one.
    assert left == spared | ({holds_notes.name} if role == "new" else set())
    assert (tmp_path / "c" / "notes.txt").exists() == (role == "old")
    assert found_values(tmp_path) == [OLD, NEW]


def _no_locks_here(*_: Any) -> None:
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


def test_a_process_that_was_forked_while_saving_does_not_hold_the_lock(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    released, gone_on = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pid = os.fork()
    if pid == 0:
        os.read(released, 1)
        os._exit(0)
    try:
        with pytest.raises(BlockingIOError):
            DirectoryLock(tmp_path)
        lock.release()
        with DirectoryLock(tmp_path) as again:
            assert again.is_real
            assert again.holds(tmp_path)
            assert not again.holds(tmp_path / "other")
    finally:
        os.write(gone_on, b"x")
        os.waitpid(pid, 0)
        os.close(released)
        os.close(gone_on)


def test_a_new_directory_that_is_taken_for_abandoned_is_made_again(tmp_path: Path) -> None:
    """Between its making and its locking, a save of another process may sweep."""

    class Swept(Recording):
        def make_directory(self, path: Path) -> None:
            super().make_directory(path)
            if len(self.operations) <= 2:
                sweep(tmp_path, FileSystem())
                assert not path.exists()

    save(tmp_path / "c", NEW, Swept())
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


def test_process_killed_while_saving_again_and_again_leaves_one_complete(tmp_path: Path) -> None:
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

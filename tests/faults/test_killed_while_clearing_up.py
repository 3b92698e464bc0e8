"""A process is killed while it clears up what an earlier one left: nothing whole is ever lost."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from checkpoints import CheckpointError, FileSystem, read_checkpoint, verify
from checkpoints.directory import sweep
from checkpoints.listing import Role, leftover_path
from tests.faults.test_checkpoint_crashes import (
    EXIT_CODE,
    Interrupted,
    Recording,
    found_values,
    in_child,
    save,
)

pytestmark = pytest.mark.skipif(os.name != "posix", reason="forks")


def leave(folder: Path, name: str, role: Role, value: int, *, is_whole: bool = True) -> Path:
    """What a process that is dead now left beside `name`."""
    left = leftover_path(folder / name, role)
    path = save(folder / "elsewhere" / "x", value, Recording()).rename(left)
    path.parent.joinpath("elsewhere").rmdir()
    if not is_whole:
        (path / "manifest.json").unlink()
    return path


def died_while_writing(folder: Path) -> list[int]:
    leave(folder, "c", "new", 2, is_whole=False)
    return []


def died_before_the_second_rename(folder: Path) -> list[int]:
    leave(folder, "c", "new", 2)
    notes = leave(folder, "c", "old", 1) / "notes.txt"
    notes.write_text("good run")
    return [2]


def died_before_the_only_rename(folder: Path) -> list[int]:
    leave(folder, "c", "new", 2)
    return [2]


def died_with_the_new_one_torn(folder: Path) -> list[int]:
    (leave(folder, "c", "new", 2) / "c.state").write_bytes(b"")
    leave(folder, "c", "old", 1)
    return [1]


def died_after_the_second_rename(folder: Path) -> list[int]:
    save(folder / "c", 2, Recording())
    (leave(folder, "c", "old", 1) / "notes.txt").write_text("good run")
    return [2]


def died_while_removing(folder: Path) -> list[int]:
    save(folder / "c", 2, Recording())
    leave(folder, "b", "del", 1)
    leave(folder, "a", "del", 1, is_whole=False)
    return [2]


def died_again_and_again(folder: Path) -> list[int]:
    for number in (1, 2, 3):
        leave(folder, "c", "new", number, is_whole=number == 2)
        leave(folder, "d", "old", number)
    return [2, 1]  # of the equals beside d, any


SITUATIONS = [
    died_while_writing,
    died_before_the_second_rename,
    died_before_the_only_rename,
    died_with_the_new_one_torn,
    died_after_the_second_rename,
    died_while_removing,
    died_again_and_again,
]


@pytest.mark.parametrize("situation", SITUATIONS)
def test_clearing_up_keeps_what_was_found_before_and_nothing_else(
    situation: Callable[[Path], list[int]], tmp_path: Path
) -> None:
    expected = situation(tmp_path)
    before = found_values(tmp_path)
    assert len(before) == len(expected)
    if situation is not died_again_and_again:
        assert before == expected
    had_notes = len([*tmp_path.rglob("notes.txt")])
    for _ in range(2):  # what comes to its place first is what the rest is measured by
        sweep(tmp_path, FileSystem())
    assert found_values(tmp_path) == before
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"c", "d"} if situation is died_again_and_again else names <= {"c"}
    assert len([*tmp_path.rglob("notes.txt")]) == had_notes


def test_a_damaged_copy_stays_where_nothing_else_is_left(tmp_path: Path) -> None:
    left = leave(tmp_path, "c", "old", 1, is_whole=False)
    sweep(tmp_path, FileSystem())
    assert [*tmp_path.iterdir()] == [left]


def test_a_save_that_cannot_come_to_its_place_puts_the_previous_one_back(tmp_path: Path) -> None:
    class RefusesTheNew(Recording):
        def rename(self, source: Path, target: Path) -> None:
            if ".new-" in source.name:
                raise OSError(errno.EACCES, "refused")
            super().rename(source, target)

    save(tmp_path / "c", 1, Recording())
    with pytest.raises(CheckpointError, match="refused"):
        save(tmp_path / "c", 2, RefusesTheNew())
    assert [path.name for path in tmp_path.iterdir()] == ["c"]
    assert read_checkpoint(tmp_path / "c").components["c"] == 1


@pytest.mark.parametrize(
    "situation",
    [
        pytest.param(situation, marks=[pytest.mark.slow] if "again" in situation.__name__ else [])
        for situation in SITUATIONS
    ],
)
@pytest.mark.parametrize("when", ["before", pytest.param("after", marks=pytest.mark.slow)])
@pytest.mark.parametrize("how", ["exit", pytest.param("error", marks=pytest.mark.slow)])
def test_clearing_up_may_be_interrupted_anywhere(
    situation: Callable[[Path], list[int]], when: str, how: str, tmp_path: Path
) -> None:
    number, is_over = 0, False
    while not is_over:
        folder = tmp_path / str(number)
        folder.mkdir()
        situation(folder)
        before = found_values(folder)
        faulty = Interrupted(number, when, how)
        is_over = _sweep_with(folder, faulty, how=how)
        assert found_values(folder) == before, f"interrupted at {number}"
        for _ in range(2):
            sweep(folder, Recording())
        assert found_values(folder) == before
        assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []
        save(folder / "c", 9, Recording())
        assert verify(folder / "c").training_iteration == 9
        assert read_checkpoint(folder / "c").components["c"] == 9
        number += 1
    assert number > 2


def _sweep_with(folder: Path, faulty: Interrupted, *, how: str) -> bool:
    """Clears up; returns whether the interruption was to come later than the last operation."""
    if how == "exit":
        code = in_child(lambda: sweep(folder, faulty))
        assert code in (0, EXIT_CODE)
        return code == 0
    sweep(folder, faulty)  # what fails is logged, and left for the next one
    return len(faulty.operations) <= faulty.number

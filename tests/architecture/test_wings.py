"""The table of wings names files that exist, each once, and no new file is forgotten."""

from __future__ import annotations

from fnmatch import fnmatch

import pytest

from tests.architecture.wings import (
    NEW_FILES_OF_WHAT_WAS_THERE,
    WINGS,
    files_of_base,
    has_history,
    source_files,
    unplaced_files,
    wing_of,
)


def test_every_wing_has_its_files() -> None:
    files = source_files()
    patterns = [pattern for wing in WINGS.values() for pattern in wing]
    assert [p for p in patterns if not any(fnmatch(path, p) for path in files)] == []


def test_no_file_is_in_two_wings() -> None:
    for path in source_files():
        wings = [name for name, own in WINGS.items() if any(fnmatch(path, one) for one in own)]
        assert wings in ([], [wing_of(path)])


@pytest.mark.skipif(not has_history(), reason="a copy without the history of 0.1.0")
def test_every_new_file_is_in_a_wing_or_says_why_not() -> None:
    assert unplaced_files(source_files(), files_of_base()) == []


@pytest.mark.skipif(not has_history(), reason="a copy without the history of 0.1.0")
def test_every_reason_has_files_that_are_new() -> None:
    new = source_files().keys() - files_of_base()
    patterns = [one for group in NEW_FILES_OF_WHAT_WAS_THERE.values() for one in group]
    assert [p for p in patterns if not any(fnmatch(path, p) for path in new)] == []


def test_no_file_with_a_reason_is_in_a_wing() -> None:
    patterns = [one for group in NEW_FILES_OF_WHAT_WAS_THERE.values() for one in group]
    named = [path for path in source_files() if any(fnmatch(path, one) for one in patterns)]
    assert [path for path in named if wing_of(path) is not None] == []


def test_a_file_that_nobody_has_placed_is_found() -> None:
    paths = ["trainer/new.py", "trainer/old.py", "trainer/tune/new.py", "checkpoints/trees.py"]
    assert unplaced_files(paths, {"trainer/old.py"}) == ["trainer/new.py"]
    assert wing_of("callbacks/ready_made/tracker_services.py") == "trackers"

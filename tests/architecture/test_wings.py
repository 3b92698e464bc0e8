"""The table of wings names files that exist, each once."""

from __future__ import annotations

from fnmatch import fnmatch

from tests.architecture.wings import WINGS, source_files, wing_of


def test_every_wing_has_its_files() -> None:
    files = source_files()
    patterns = [pattern for wing in WINGS.values() for pattern in wing]
    assert [p for p in patterns if not any(fnmatch(path, p) for path in files)] == []


def test_no_file_is_in_two_wings() -> None:
    for path in source_files():
        wings = [name for name, own in WINGS.items() if any(fnmatch(path, one) for one in own)]
        assert wings in ([], [wing_of(path)])

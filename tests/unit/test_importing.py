"""While our packages are imported, nothing is looked through for garbage."""

from __future__ import annotations

import gc
import sys

import pytest

from trainer.importing import collections_paused


class ImportFailed(Exception):
    """Stands for a module that cannot be imported."""


def test_collections_go_on_after_the_block_even_if_it_fails() -> None:
    with pytest.raises(ImportFailed), collections_paused():  # noqa: PT012 - nested blocks
        assert not gc.isenabled()
        raise ImportFailed
    assert gc.isenabled()


def test_collections_that_the_program_switched_off_stay_off() -> None:
    gc.disable()
    try:
        with collections_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_the_program_froze_stays_frozen() -> None:
    gc.freeze()
    try:
        num_frozen = gc.get_freeze_count()
        with collections_paused():
            pass
        assert gc.get_freeze_count() >= num_frozen - 1000 > 0
    finally:
        gc.unfreeze()


def test_what_was_made_in_the_block_is_old_afterwards() -> None:
    gc.unfreeze()  # what a test before this one may have left
    with collections_paused():
        kept: list[object] = []
        kept.append(kept)
        young = gc.get_objects(generation=0)
    assert any(each is kept for each in young)
    assert not any(each is kept for each in gc.get_objects(generation=0))


@pytest.mark.parametrize(("program", "stays"), [("bin/local-trainer", True), ("script.py", False)])
def test_programs_of_the_command_line_keep_what_they_imported_out_of_collections(
    program: str, stays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    gc.unfreeze()  # what a test before this one may have left
    monkeypatch.setattr(sys, "argv", [program])
    try:
        with collections_paused():
            pass
        assert (gc.get_freeze_count() > 0) == stays
    finally:
        gc.unfreeze()

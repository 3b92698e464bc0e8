"""While our packages are imported, nothing is looked through for garbage."""

from __future__ import annotations

import gc
import multiprocessing.process
import operator
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from trainer.importing import (
    collections_paused,
    end_quietly_while_importing,
    importing_is_over,
)
from trainer.runtime import threads
from trainer.runtime.threads import sparing_old_objects


@pytest.fixture(autouse=True)
def frozen_objects_stay_frozen() -> Iterator[None]:
    """The tests of a run are frozen: to look through them takes half a second each time."""
    was_frozen = gc.get_freeze_count() > 0
    yield
    if was_frozen:
        gc.freeze()


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


@pytest.mark.parametrize("program", ["bin/local-trainer", "local-trainer.py"])
def test_nothing_stays_frozen_so_that_sampling_may_freeze_and_thaw(
    program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gc.unfreeze()  # what a test before this one may have left
    monkeypatch.setattr(sys, "argv", [program])
    monkeypatch.setattr(threads._Frozen, "by_the_program", False)
    with collections_paused():
        pass
    assert gc.get_freeze_count() == 0
    with sparing_old_objects():
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() == 0


@pytest.mark.parametrize(("arguments", "frozen"), [("", True), ("['--help']", False)])
def test_a_program_of_the_command_line_ends_without_a_look_at_what_it_made(
    arguments: str, frozen: bool
) -> None:
    """Only where it is the whole program."""
    code = f"""
import atexit, gc, sys
atexit.register(lambda: print("frozen", gc.get_freeze_count() > 0))
from trainer.cli import main
sys.argv = ["local-trainer", "--help"]
assert gc.get_freeze_count() == 0
main({arguments})
"""
    done = subprocess.run(
        [sys.executable, "-c", code], timeout=60, check=True, capture_output=True, text=True
    )
    assert done.stdout.endswith(f"frozen {frozen}\n")


@pytest.mark.parametrize(
    ("program", "parent", "ours"),
    [
        ("bin/local-trainer", None, True),
        ("local-trainer.py", None, False),
        ("bin/local-trainer", object(), False),
    ],
)
def test_only_our_script_ends_quietly_while_it_imports(
    program: str, parent: object, ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [program])
    monkeypatch.setattr(multiprocessing.process, "_parent_process", parent)
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    defaults: list[Any] = [signal.default_int_handler, signal.SIG_DFL, signal.SIG_IGN]
    before = [signal.signal(*pair) for pair in zip(numbers, defaults, strict=True)]
    try:
        end_quietly_while_importing()
        changed = [signal.getsignal(each) for each in numbers]
        assert [*map(operator.is_, changed, defaults)] == [not ours, not ours, True]
        importing_is_over()
        assert [*map(signal.getsignal, numbers)] == defaults
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)

"""Another user made the folders in which actors are looked for: no call breaks, no code runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.faults.killed_runs import PROJECT
from tests.faults.squatted_folders import ORDINARY, ROOT, WAYS

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        os.name != "posix" or os.geteuid() != 0,
        reason="only root can try it: a process has to become another user",
    ),
]

_LEFT_BY_DETACHED = {"", "/endings", "/key", "/lock"}


def outcomes(victim: int, *ways: str) -> tuple[list[dict[str, Any]], str]:
    """In a process of its own, which has no threads: what was tried is forked."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.squatted_folders", str(victim), *ways],
        cwd=PROJECT, capture_output=True, text=True, timeout=600, check=True,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def check_nothing_happened(outcome: dict[str, Any]) -> None:
    assert not outcome["broken"]
    assert not outcome["code_run"]
    assert not outcome["killed"]
    assert not outcome["removed"]
    detached = f"local-trainer-detached-{outcome['victim']}"
    assert set(outcome["left"]) <= {detached + name for name in _LEFT_BY_DETACHED}


def test_folders_of_another_user_run_no_code_and_break_no_call() -> None:
    """Three ways; those of the test below are all that we know."""
    ways = ("actor", "unreadable", "own: deep tree")
    found, told = outcomes(ORDINARY, *ways)
    assert [outcome["way"] for outcome in found] == [*ways]
    for outcome in found:
        check_nothing_happened(outcome)
        assert outcome["calls"] == 4
    # Once for each folder where actors are looked for, however often that is done.
    assert told.count("belongs to the user with the id 65534, and not to you") == 1
    assert told.count("cannot be opened") == 1


@pytest.mark.slow
@pytest.mark.parametrize("victim", [ROOT, ORDINARY])
def test_no_way_of_squatting_runs_code_or_breaks_a_call(victim: int) -> None:
    found, _ = outcomes(victim)
    assert [outcome["way"] for outcome in found] == [*WAYS]
    for outcome in found:
        check_nothing_happened(outcome)
    print(sum(outcome["calls"] for outcome in found), "calls")

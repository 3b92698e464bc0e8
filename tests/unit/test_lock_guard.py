"""The guard that every test runs under sees what it is there for."""

import threading
from pathlib import Path

import pytest

from tests.lock_guard import unguarded
from trainer_toolkit.interrupts import ArrivalFlag, signals_deferred

ROOT = Path(__file__).resolve().parents[2]


def of_ours(source, **names):
    """A function `act`, as if it stood in one of our modules."""
    exec(compile(source, str(ROOT / "trainer" / "pretended.py"), "exec"), names)
    return names["act"]


SET_EVENT = "def act():\n    event.set()\n"
START_THREAD = "def act():\n    thread.start()\n    thread.join()\n"


@pytest.mark.parametrize("source", [SET_EVENT, START_THREAD])
def test_conditions_are_seen_outside_of_the_block_that_defers_signals(source):
    def act():
        names = {"event": threading.Event(), "thread": threading.Thread(target=str)}
        of_ours(source, **names)()

    with signals_deferred():
        act()
    assert unguarded == []
    act()
    found = unguarded.copy()
    unguarded.clear()  # or this test would fail
    assert [line.rpartition("/")[2] for line in found] == ["pretended.py:2 in act()"]


def test_locks_and_flags_and_other_threads_are_none_of_its_business():
    flag = ArrivalFlag()
    of_ours("def act():\n    with lock:\n        flag.put()\n", lock=threading.RLock(), flag=flag)()
    other = threading.Thread(target=of_ours(SET_EVENT, event=threading.Event()))
    other.start()
    other.join()
    assert unguarded == []

"""What waits for a complete result is called phase by phase."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from callbacks.chain import RESULT_PHASES, ResultPhases


def _noting(calls: list[str], name: str) -> Callable[[object], None]:
    return lambda result: calls.append(f"{name} {result}")


def test_phases_come_in_their_order_and_functions_in_theirs() -> None:
    calls: list[str] = []
    waiting = ResultPhases()
    for phase in reversed(RESULT_PHASES):
        waiting.add(_noting(calls, phase), phase)
        waiting.add(_noting(calls, f"{phase} again"), phase)
    waiting.add(_noting(calls, "default"))
    waiting.run(7)
    assert calls == [
        *("decide 7", "decide again 7", "default 7", "save 7", "save again 7"),
        *("save_last 7", "save_last again 7", "report 7", "report again 7"),
    ]


def test_a_function_that_another_one_adds_comes_in_the_next_phase() -> None:
    calls: list[str] = []
    waiting = ResultPhases()
    waiting.add(lambda _: waiting.add(lambda _: waiting.add(_noting(calls, "third"))))
    waiting.add(_noting(calls, "saved"), "save")
    waiting.add(_noting(calls, "saved last"), "save_last")
    waiting.add(_noting(calls, "reported"), "report")
    waiting.run(1)
    assert calls == ["saved 1", "saved last 1", "third 1", "reported 1"]


def test_what_is_added_in_the_last_phase_still_runs() -> None:
    calls: list[str] = []
    waiting = ResultPhases()
    waiting.add(lambda _: waiting.add(_noting(calls, "after")), "report")
    waiting.run(1)
    assert calls == ["after 1"]


def test_a_phase_that_does_not_exist_or_is_over_is_refused() -> None:
    waiting = ResultPhases()
    with pytest.raises(ValueError, match=r"'saving' does not exist; expected one of 'decide'"):
        waiting.add(print, "saving")
    waiting.add(lambda _: waiting.add(print, "decide"), "save")
    with pytest.raises(ValueError, match=r"'decide' is over; expected one of 'save'"):
        waiting.run(1)

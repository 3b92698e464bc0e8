"""What waits for a complete result is called phase by phase."""

import numpy as np
import pytest

from callbacks.chain import RESULT_PHASES, ResultPhases


def _noting(calls, name):
    return lambda result: calls.append(f"{name} {result}")


def test_phases_come_in_their_order_and_functions_in_theirs():
    calls = []
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


def test_a_function_that_another_one_adds_comes_in_the_next_phase():
    calls = []
    waiting = ResultPhases()
    waiting.add(lambda _: waiting.add(lambda _: waiting.add(_noting(calls, "third"))))
    waiting.add(_noting(calls, "saved"), "save")
    waiting.add(_noting(calls, "saved last"), "save_last")
    waiting.add(_noting(calls, "reported"), "report")
    waiting.run(1)
    assert calls == ["saved 1", "third 1", "saved last 1", "reported 1"]


class Queue:
    """What waited before there were phases: one queue, which grows while it is gone through."""

    def __init__(self):
        self._waiting = []

    def add(self, function):
        self._waiting.append(function)

    def run(self, result):
        for function in self._waiting:
            function(result)


NUM_DEFERRALS = {"save": 1, "save_last": 2, "report": 3}
"""How often each phase's ready-made callbacks added one another before there were phases."""


def called(waiting, given):
    """The names of functions in the order of the calls.

    Args:
        waiting: calls them.
        given: what callbacks add, one entry each: a tree, or the phase that it is for.
    """
    calls = []

    def grown(name, tree):
        def call(_):
            calls.append(name)
            for index, child in enumerate(tree):
                waiting.add(grown(f"{name}.{index}", child))

        return call

    def deferred(name, times):
        if not times:
            return lambda _: calls.append(name)
        return lambda _: waiting.add(deferred(name, times - 1))

    for index, one in enumerate(given):
        name = f"{index}"
        if not isinstance(one, str):
            waiting.add(grown(name, one))
        elif isinstance(waiting, ResultPhases):
            waiting.add(deferred(name, 0), one)
        else:
            waiting.add(deferred(name, NUM_DEFERRALS[one]))
    waiting.run(1)
    return calls


def test_without_a_phase_all_is_in_the_order_of_a_single_queue():
    twice = [[[]]]
    before_and_after = called(ResultPhases(), [twice, "save", twice])
    assert before_and_after == ["0", "2", "0.0", "1", "2.0", "0.0.0", "2.0.0"]
    rng = np.random.default_rng(0)

    def tree(depth):
        return [tree(depth - 1) for _ in range(rng.integers(3))] if depth else []

    for _ in range(100):
        given = [
            tree(5) if rng.random() < 0.6 else str(rng.choice([*NUM_DEFERRALS])) for _ in range(5)
        ]
        assert called(ResultPhases(), given) == called(Queue(), given), given


def test_what_is_added_in_the_last_phase_still_runs():
    calls = []
    waiting = ResultPhases()
    waiting.add(lambda _: waiting.add(_noting(calls, "after")), "report")
    waiting.run(1)
    assert calls == ["after 1"]


def test_a_phase_that_does_not_exist_or_is_over_is_refused():
    waiting = ResultPhases()
    with pytest.raises(ValueError, match=r"'saving' does not exist; expected one of 'decide'"):
        waiting.add(print, "saving")
    for nothing in ("", [], False):
        with pytest.raises(ValueError, match="does not exist"):
            waiting.add(print, nothing)
    waiting.add(lambda _: waiting.add(print, "decide"), "save")
    with pytest.raises(ValueError, match=r"'decide' is over; expected one of 'save'"):
        waiting.run(1)


def test_no_phase_can_be_asked_for_when_all_are_over():
    waiting = ResultPhases()
    waiting.add(lambda _: waiting.add(lambda _: waiting.add(print, "report")), "report")
    with pytest.raises(ValueError, match=r"'report' is over; .*all are over"):
        waiting.run(1)

"""What waits for a complete result is called phase by phase."""

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


def test_without_a_phase_all_is_in_the_order_of_a_single_queue():
    calls, waiting = [], ResultPhases()

    def grown(name, tree):
        """Adds, when it is called, a function for each branch of the tree."""

        def call(_):
            calls.append(name)
            for index, branch in enumerate(tree):
                waiting.add(grown(f"{name}.{index}", branch))

        return call

    waiting.add(grown("a", [[[]], []]))
    waiting.add(_noting(calls, "reported"), "report")
    waiting.add(_noting(calls, "saved"), "save")
    waiting.add(_noting(calls, "saved last"), "save_last")
    waiting.add(grown("b", [[[[]]]]))
    waiting.run(1)
    assert calls == [
        *("a", "b", "a.0", "a.1", "saved 1", "b.0", "a.0.0"),
        *("saved last 1", "b.0.0", "reported 1", "b.0.0.0"),
    ]


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

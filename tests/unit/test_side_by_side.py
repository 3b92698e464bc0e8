"""Two computations at once: both are done, errors come back, no thread is left behind."""

import threading

import numpy as np
import pytest

from trainer.runtime import threads as module
from trainer.runtime.threads import SideBySide


@pytest.fixture
def two_cores(monkeypatch):
    monkeypatch.setattr(module, "_num_cores", lambda: 2)


def helpers():
    return [thread for thread in threading.enumerate() if thread.name == "side by side"]


@pytest.mark.usefixtures("two_cores")
def test_inside_of_the_block_both_run_at_once_and_the_thread_ends_with_it():
    meeting = threading.Barrier(2, timeout=10.0)

    def wait():
        meeting.wait()

    with SideBySide() as subject:
        assert not helpers(), "the thread starts before it is needed"
        for _ in range(3):
            subject.run(wait, wait)  # one after the other would wait for ever
        assert len(helpers()) == 1
    assert not helpers()


def test_outside_they_run_one_after_the_other_in_this_thread():
    seen = []
    SideBySide().run(
        lambda: seen.append((1, threading.current_thread())),
        lambda: seen.append((2, threading.current_thread())),
    )
    assert seen == [(1, threading.current_thread()), (2, threading.current_thread())]


def test_one_core_gets_no_thread(monkeypatch):
    monkeypatch.setattr(module, "_num_cores", lambda: 1)
    with SideBySide() as subject:
        subject.run(int, int)
        assert not helpers()


@pytest.mark.usefixtures("two_cores")
def test_what_either_raises_is_raised_after_both_are_done():
    done = []

    def fail(number):
        done.append(number)
        raise ValueError(number)

    with SideBySide() as subject:
        with pytest.raises(ValueError, match="1"):
            subject.run(lambda: fail(1), lambda: fail(2))
        assert sorted(done) == [1, 2]
        with pytest.raises(ValueError, match="2"):
            subject.run(lambda: None, lambda: fail(2))
        subject.run(lambda: done.append(3), lambda: done.append(4))
    assert sorted(done[3:]) == [3, 4]
    assert not helpers()


@pytest.mark.usefixtures("two_cores")
def test_numbers_that_are_not_finite_warn_in_neither_thread_of_a_learner():
    def overflow():
        np.multiply(np.full(3, 1e308), 1e10)

    with np.errstate(over="ignore"), SideBySide() as subject:
        subject.run(overflow, overflow)


@pytest.mark.usefixtures("two_cores")
def test_it_can_be_opened_again():
    subject, seen = SideBySide(), []
    for number in range(2):
        with subject:
            subject.run(int, lambda number=number: seen.append(number))
    assert seen == [0, 1]

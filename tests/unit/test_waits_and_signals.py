"""Waits with a limit end in time, also if a signal's handler is at work when it is up."""

import threading
import time
from contextlib import suppress
from queue import Empty

import numpy as np
import pytest

from tests.alarms import alarm
from trainer.tune.session import Session
from trainer_toolkit import interrupts
from trainer_toolkit.interrupts import ArrivalFlag

WAIT_S = 0.002
HANDLER_S = 0.006
RESCUE_S = 1.0


def take_long():
    """A handler that is at work for longer than the wait."""
    until = time.perf_counter() + HANDLER_S
    while time.perf_counter() < until:
        pass


def longest_wait_s(wait, rescue):
    """The longest of some waits that are disturbed; one that does not end is ended from outside."""
    longest = 0.0
    for _ in range(5):
        timer = threading.Timer(RESCUE_S, rescue)
        timer.start()
        started = time.perf_counter()
        with alarm(take_long, after_s=WAIT_S / 2):
            wait()
        longest = max(longest, time.perf_counter() - started)
        timer.cancel()
        timer.join()
    return longest


def test_a_pool_waits_no_longer_than_it_was_told():
    flag = ArrivalFlag()
    assert longest_wait_s(lambda: flag.wait(WAIT_S), flag.put) < RESCUE_S


def test_a_trial_looks_whether_it_is_to_end():
    session = Session(context=None, checkpoint=None)

    def wait():
        with suppress(Empty):
            session.take(WAIT_S)

    assert longest_wait_s(wait, lambda: session.put(None)) < RESCUE_S


def test_the_flag_remembers_once_what_was_told_in_between():
    flag = ArrivalFlag()
    flag.put()
    flag.put()
    flag.wait(60.0)  # it returns at once
    started = time.monotonic()
    flag.wait(0.01)
    assert time.monotonic() - started >= 0.01
    flag.put()
    flag.clear()
    started = time.monotonic()
    flag.wait(0.01)
    assert time.monotonic() - started >= 0.01


def test_another_thread_ends_a_wait_without_limit():
    flag = ArrivalFlag()
    timer = threading.Timer(0.01, flag.put)
    started = time.monotonic()
    timer.start()
    flag.wait(float("inf"))
    assert time.monotonic() - started >= 0.01, "it ended before anything was told"
    timer.join()


def interrupt():
    raise KeyboardInterrupt


def test_an_interrupt_right_before_a_wait_without_limit_ends_it(monkeypatch):
    monkeypatch.setattr(interrupts, "_SLICE_S", 0.01)
    moments = np.random.default_rng(0).uniform(5e-6, 4e-5, 150)
    flag = ArrivalFlag()
    rescue = threading.Timer(20.0, flag.put)  # one of twenty of them would wait for it
    rescue.start()
    for moment in moments.tolist():
        with suppress(KeyboardInterrupt), alarm(interrupt, after_s=moment):
            flag.wait(float("inf"))
        assert rescue.is_alive(), "it ended the wait"
    rescue.cancel()
    rescue.join()


def test_an_interrupt_ends_a_wait_and_leaves_the_flag_usable():
    flag = ArrivalFlag()
    with pytest.raises(KeyboardInterrupt), alarm(interrupt, after_s=0.005):
        flag.wait(float("inf"))
    flag.put()
    flag.wait(float("inf"))

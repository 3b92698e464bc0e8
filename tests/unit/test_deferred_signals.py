"""Signals wait for the end of a block, and none is lost."""

import signal
import threading

import pytest

from trainer_toolkit import interrupts as deferred_signals
from trainer_toolkit.interrupts import signals_deferred

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)


@pytest.fixture(autouse=True)
def handlers_stay():
    before = {number: signal.getsignal(number) for number in NUMBERS}
    yield
    assert {number: signal.getsignal(number) for number in NUMBERS} == before


@pytest.fixture
def heard():
    """The signals for which a handler of the user's was called."""
    numbers = []
    before = {number: signal.getsignal(number) for number in NUMBERS}

    def note(number, frame):
        numbers.append(number)

    for number in NUMBERS:
        signal.signal(number, note)
    yield numbers
    for number, handler in before.items():
        signal.signal(number, handler)


def in_a_block(*numbers, steps, error=None):
    """Sends signals inside a block, and notes how far it gets."""
    with signals_deferred():
        for number in numbers:
            signal.raise_signal(number)
        steps.append("in the block")
        if error is not None:
            raise error
    steps.append("after it")


def test_ctrl_c_comes_when_the_block_is_left():
    steps = []
    with pytest.raises(KeyboardInterrupt):
        in_a_block(signal.SIGINT, steps=steps)
    assert steps == ["in the block"]


def test_handlers_of_the_user_are_called_once_per_signal_in_their_order(heard):
    sent = [signal.SIGTERM, signal.SIGINT, signal.SIGALRM, signal.SIGINT]
    with signals_deferred():
        for number in sent:
            signal.raise_signal(number)
        assert heard == []
    assert heard == sent
    signal.raise_signal(signal.SIGTERM)
    assert heard[-1] == signal.SIGTERM


def test_the_outermost_block_counts(heard):
    with signals_deferred():
        with signals_deferred():
            signal.raise_signal(signal.SIGINT)
        assert heard == []
    assert heard == [signal.SIGINT]


def test_all_handlers_are_called_though_the_first_raises(heard):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt):
        in_a_block(signal.SIGINT, signal.SIGTERM, steps=[])
    assert heard == [signal.SIGTERM]


def test_what_the_block_raises_is_not_lost_in_an_interrupt():
    with pytest.raises(KeyboardInterrupt) as raised:
        in_a_block(signal.SIGINT, steps=[], error=ValueError("in the block"))
    assert isinstance(raised.value.__context__, ValueError)


def test_what_is_not_a_python_function_stays():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with signals_deferred():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_handler_that_is_set_inside_the_block_stays(heard):
    def other(number, frame):
        heard.append(-number)

    with signals_deferred():
        signal.signal(signal.SIGINT, other)
    signal.raise_signal(signal.SIGINT)
    assert heard == [-signal.SIGINT]


def test_a_block_that_hangs_can_be_ended_by_a_second_ctrl_c(monkeypatch):
    monkeypatch.setattr(deferred_signals, "_PATIENCE_S", 0.0)
    steps = []
    with pytest.raises(KeyboardInterrupt):
        in_a_block(signal.SIGINT, steps=steps)
    assert steps == []


def test_it_does_nothing_in_other_threads():
    seen = []

    def look():
        with signals_deferred():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]


def test_a_signal_while_handlers_are_put_in_place_is_delivered(monkeypatch):
    """Whatever it leaves behind passes signals on, and is cleared by the next block."""
    set_handler = deferred_signals._set_handler

    def interrupted(number, handler):
        monkeypatch.setattr(deferred_signals, "_set_handler", set_handler)
        before = set_handler(number, handler)
        signal.raise_signal(signal.SIGINT)
        return before

    for _ in range(2):
        monkeypatch.setattr(deferred_signals, "_set_handler", interrupted)
        with pytest.raises(KeyboardInterrupt), signals_deferred():
            raise AssertionError("the block is not entered")
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    with signals_deferred():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

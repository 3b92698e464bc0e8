"""Workers of this process: calls are made when their answers are taken, and raise there."""

import gc
import logging
import weakref

import pytest

from trainer.runtime.inline_engine import InlineEngine, InlinePlace
from trainer.runtime.messages import Success
from trainer.runtime.worker_pool import WorkerPool


class Handler:
    """Keeps what it was given, and notes what happens to it."""

    def __init__(self, signals):
        self.signals = signals
        self.seen = []

    def report(self):
        return "made"

    def take(self, thing):
        self.seen.append(thing)
        return thing

    def fail(self):
        raise ZeroDivisionError("mine")

    def told_to_end(self):
        return bool(self.signals.must_end)

    def close(self):
        self.seen.append("closed")


def started(place):
    place.start(Handler)
    assert place.take() == Success("made")
    return place.handler


def test_a_call_is_made_when_its_answer_is_taken_and_nothing_travels():
    place, thing = InlinePlace("here"), object()
    assert not place.is_running
    handler = started(place)
    place.submit("take", (thing,))
    assert (place.owes_answer, place.has_answer, place.is_busy) == (True, True, False)
    assert handler.seen == []
    assert place.take().value is thing
    assert not place.owes_answer
    assert handler.seen == [thing]
    with pytest.raises(RuntimeError, match="here was not asked anything"):
        place.take()


def test_what_is_raised_is_raised_and_the_handler_stays():
    place = InlinePlace("here")
    handler = started(place)
    place.submit("fail", ())
    with pytest.raises(ZeroDivisionError, match="mine") as raised:
        place.take()
    assert raised.traceback[-1].name == "fail"
    assert place.handler is handler
    assert (place.is_busy, place.owes_answer) == (False, False)


def test_a_call_that_was_not_taken_is_replaced_by_the_next():
    place = InlinePlace("here")
    handler = started(place)
    place.submit("take", (1,))
    place.submit("take", (2,))
    assert place.take().value == 2
    assert handler.seen == [2]


def test_a_call_that_was_told_to_end_hears_of_it_and_the_next_does_not():
    place = InlinePlace("here")
    started(place)
    place.submit("told_to_end", ())
    place.request_end()
    assert place.take().value is True
    place.submit("told_to_end", ())
    assert place.take().value is False


def test_calls_are_made_inside_of_what_is_around_each_worker():
    seen = []

    class Around:
        def __enter__(self):
            seen.append(("in", id(self)))

        def __exit__(self, *_):
            seen.append(("out", id(self)))

    place = InlinePlace("here", around=Around)
    started(place)
    place.submit("fail", ())
    with pytest.raises(ZeroDivisionError):
        place.take()
    assert [word for word, _ in seen] == ["in", "out"] * 2
    assert len({owner for _, owner in seen}) == 1
    started(place)
    assert len({owner for _, owner in seen}) == 2, "another worker, another block"


def test_a_killed_worker_is_let_go_and_one_that_is_stopped_closed():
    place = InlinePlace("here")
    killed = started(place)
    place.submit("take", (1,))
    place.kill()
    assert (place.is_running, killed.seen) == (False, [])
    stopped = started(place)
    place.stop(2.0)
    place.stop(2.0)
    assert (place.is_running, stopped.seen) == (False, ["closed"])


def test_what_ends_workers_is_called_once_for_each_however_they_end():
    ended = []
    place = InlinePlace("here", on_kill=ended.append)
    handlers = [started(place) for _ in range(2)]
    assert ended == handlers[:1], "another one was started"
    place.stop(2.0)
    place.kill()
    assert ended == handlers
    assert handlers[1].seen == []


def test_an_error_of_closing_is_logged(caplog):
    place = InlinePlace("here")
    handler = started(place)
    handler.close = handler.fail
    with caplog.at_level(logging.WARNING):
        place.stop(2.0)
    assert "Here was stopped, but closing it raised builtins.ZeroDivisionError" in caplog.text
    assert not place.is_running


def test_a_pool_takes_answers_of_this_process_and_does_not_keep_its_worker():
    engine = InlineEngine()
    pool = WorkerPool(["here"], engine=engine, first=0)
    handler = weakref.ref(started(engine.places[0]))
    engine.places[0].submit("take", (7,))
    assert pool.outcome_within(0.0) == (0, Success(7))
    assert pool.pids() == {}
    assert pool.kill_busy() == []
    assert handler() is not None
    circle = handler()
    circle.pool, circle = pool, None  # as an env may refer to the algorithm
    del pool, engine
    gc.collect()
    assert handler() is None

"""What the Ray actor of a place does with its worker process; without Ray."""

import threading
from types import SimpleNamespace

import pytest

from trainer.ray_engine.place_host import KeptPlace, PlaceHost


class ProcessInPlace:
    """A local place without a process: counts the workers that were started and are there."""

    def __init__(self):
        self.is_replaced_meanwhile = False
        self.is_running = False
        self.owes_answer = self.has_answer = False
        self.num_heartbeats = self.num_heartbeats_ever = 0
        self.notes = ()
        self.pid = None

    def start(self, _):
        self.is_running = True

    def kill(self):
        self.is_running = False

    def request_close(self):
        assert self.is_running

    def await_close(self, _):
        if self.is_replaced_meanwhile:
            self.kept.kill(1)
            self.kept.start(2, b"", None)

    def stop(self, grace_s):
        self.request_close()
        self.await_close(grace_s)
        self.kill()


def kept_place():
    """A place whose worker was started by call 1."""
    process = ProcessInPlace()
    engine = SimpleNamespace(
        make_arrivals=lambda: SimpleNamespace(put=lambda: None, wait=lambda _: None),
        make_place=lambda *_, **__: process,
    )
    kept = KeptPlace("env runner 1", engine=engine, node="", starting=threading.Lock())
    process.kept = kept
    kept.start(1, b"", None)
    return kept, process


def test_a_close_ends_the_worker_it_was_asked_for():
    kept, process = kept_place()
    kept.close(1, 1.0)
    assert not process.is_running


def test_a_close_spares_the_worker_that_was_started_while_it_waited():
    kept, process = kept_place()
    process.is_replaced_meanwhile = True
    kept.close(1, 1.0)
    assert process.is_running


def test_a_close_does_nothing_once_something_else_was_asked():
    kept, process = kept_place()
    kept.start(2, b"", None)
    kept.close(1, 1.0)
    assert process.is_running


@pytest.mark.parametrize("private", [{}, {"_private": SimpleNamespace()}])
def test_a_ray_without_its_private_prefix_only_loses_the_names_before_lines(private):
    host = PlaceHost.__new__(PlaceHost)  # the constructor asks Ray for its node
    host._names = ["env runner 1"]
    host._ray = SimpleNamespace(**private)
    host._send_name("env runner 2")
    assert repr(host) == "env runner 1, env runner 2"

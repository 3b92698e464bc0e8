"""How long a call may go without progress; a scripted engine's clock, and what it refuses."""

import os
import threading

import pytest

from trainer.runtime.engine import UNLIMITED, StallLimit, StallWatch
from trainer.runtime.messages import Lost, Success, pack
from trainer.runtime.worker_pool import WorkerPool
from trainer.testing import FakeEngine, ScriptedFault


class _Clock:
    now_s = 100.0

    def __call__(self):
        return self.now_s


def test_a_call_stalls_when_its_signs_stand_still_for_its_limit(caplog):
    clock = _Clock()
    watch = StallWatch("env runner 1", clock)
    watch.begin(7, StallLimit(10.0, "sample_timeout_s"))
    clock.now_s = 109.0
    assert watch.stalled_s(8) is None  # progress, seen just now
    clock.now_s = 113.9
    assert watch.stalled_s(8) is None
    assert not caplog.records
    clock.now_s = 114.0
    assert [watch.stalled_s(8), watch.stalled_s(8)] == [None, None]
    assert [record.getMessage() for record in caplog.records] == [
        "env runner 1 has made no progress for 5.0 s; it is replaced after sample_timeout_s=10.0."
    ]
    clock.now_s = 119.0
    assert watch.stalled_s(8) == 10.0
    watch.begin(8, UNLIMITED)
    clock.now_s = 10_000.0
    assert watch.stalled_s(8) is None


def test_another_limit_counts_from_the_first_sign_on():
    clock = _Clock()
    watch = StallWatch("env runner 1", clock)
    watch.begin(0, StallLimit(100.0, "start", at_work=StallLimit(1.0, "work")))
    clock.now_s = 150.0
    assert watch.stalled_s(0) is None
    assert watch.stalled_s(1) is None
    clock.now_s = 151.0
    assert watch.stalled_s(1) == 1.0
    assert watch.limit.text == "work=1.0"


def test_a_lost_worker_is_told_with_what_its_engine_knows():
    lost = Lost(None, cause="its node left the cluster", where="node-7")
    assert lost.describe() == "died (its node left the cluster) on node-7"
    assert lost == Lost(None)
    assert Lost(None).describe() == "died (its exit code is not known)"


class _Handler:
    def __init__(self, signals):
        self.signals = signals

    def report(self):
        return threading.get_ident()

    def failure_context(self):
        return {}

    def close(self):
        raise KeyError("close")

    def walk(self, num_heartbeats):
        for _ in range(num_heartbeats):
            self.signals.num_heartbeats += 1
        return os.getpid()


def test_the_same_script_strikes_the_same_sign_at_the_same_time():
    def ending():
        engine = FakeEngine(ScriptedFault("die", place="a", call=1, at_sign=700, exit_code=3))
        pool = WorkerPool(["a", "b"], engine=engine)
        for place in pool.places.values():
            place.start(pack(_Handler))
        pool.next_outcome()
        pool.next_outcome()
        for place in pool.places.values():
            place.submit("walk", (1000,))
        found = [pool.next_outcome(), pool.next_outcome()]
        pool.kill()
        return found, engine.now_s(), engine.struck

    first = ending()
    assert first[0] == [(1, Lost(3)), (2, Success(os.getpid()))]
    assert ending() == first


def test_a_wait_that_would_never_end_is_an_error():
    pool = WorkerPool(["a"], engine=FakeEngine(ScriptedFault("hang", method="walk")))
    pool[1].start(pack(_Handler))
    pool.next_outcome()
    pool[1].submit("walk", (1,))
    with pytest.raises(RuntimeError, match=r"waits for ever.*Give the call that hangs a stall"):
        pool[1].take()
    pool.kill()


def test_a_handler_that_cannot_be_closed_is_logged(caplog):
    pool = WorkerPool(["worker 1"], engine=FakeEngine())
    pool[1].start(pack(_Handler))
    pool.next_outcome()
    pool.stop()
    assert "Worker 1 was stopped, but closing it raised builtins.KeyError: 'close'" in caplog.text


def test_only_a_pool_that_was_not_stopped_ends_its_workers_when_it_is_dropped(monkeypatch):
    def num_kills(*, stopped):
        pool = WorkerPool(["worker 1"], engine=FakeEngine())
        if stopped:
            pool.stop()
        kills = []
        monkeypatch.setattr(pool[1], "kill", lambda: kills.append(None))
        del pool
        return len(kills)

    assert num_kills(stopped=False) == 1
    assert num_kills(stopped=True) == 0

"""Actors in their processes: calls, order, names, errors, and actors that call actors."""

import functools
import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from trainer import actors
from trainer.actors import connection as actor_link
from trainer.actors import connection as actor_room
from trainer.errors import SerializationError
from trainer.runtime.messages import RemoteTraceback
from trainer.testing.processes import is_process_alive, wait_until

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("actors_end")]


class OwnError(Exception):
    def __init__(self, code, text):
        super().__init__(code, text)
        self.code = code


@actors.remote
class Counter:
    def __init__(self, start=0):
        self.count = start
        self.seen = []

    def inc(self, n=1):
        self.count += n
        return self.count

    def get(self):
        return self.count

    def append(self, value):
        self.seen.append(value)

    def all_seen(self):
        return self.seen

    def pid(self):
        return os.getpid()

    def echo(self, *args, **kwargs):
        return args, kwargs

    def fail(self):
        raise OwnError(7, "mine")

    def lock(self):
        return {"a": threading.Lock()}

    def _hidden(self): ...

    def unpicklable(self):
        return (value for value in range(3))

    async def asynchronous(self):
        return 1

    async def asynchronous_values(self):
        yield 1

    def wait_for(self, path):
        while not Path(path).exists():
            time.sleep(0.002)
        return path

    def call(self, other, method, *args):
        return actors.get(getattr(other, method).remote(*args))

    def call_by_name(self, name, method, *args):
        return self.call(actors.get_actor(name), method, *args)

    def flood(self, other, times):
        for _ in range(times):
            other.inc.remote()

    def is_initialized(self):
        return actors.is_initialized()

    def make_another(self):
        self.child = Counter.options(name="child").remote(10)
        return self.child


@pytest.mark.usefixtures("start_method")
def test_an_actor_lives_in_a_process_of_its_own():
    counter = Counter.remote(5)
    assert actors.get(counter.inc.remote(2)) == 7
    assert actors.get(counter.inc.remote(n=1)) == 8
    assert actors.get(counter.pid.remote()) not in (os.getpid(), os.getppid())
    assert actors.get([counter.get.remote(), counter.get.remote()]) == [8, 8]


def test_calls_of_one_caller_stay_in_order():
    counter = Counter.remote()
    for number in range(500):
        counter.append.remote(number)
    assert actors.get(counter.all_seen.remote()) == list(range(500))


def test_values_travel_both_ways():
    counter = Counter.remote()
    array = np.arange(100_000, dtype=np.float32)
    args, kwargs = actors.get(counter.echo.remote(array, [1, {"a": (2,)}], f=lambda x: x + 1))
    np.testing.assert_array_equal(args[0], array)
    assert args[1] == [1, {"a": (2,)}]
    assert kwargs["f"](1) == 2


def test_an_error_arrives_as_itself_with_the_remote_traceback():
    counter = Counter.remote()
    future = counter.fail.remote()
    for _ in range(2):  # as often as it is asked for
        with pytest.raises(OwnError) as caught:
            actors.get(future)
        assert caught.value.code == 7
        assert isinstance(caught.value.__cause__, RemoteTraceback)
        assert 'raise OwnError(7, "mine")' in str(caught.value.__cause__)
    assert actors.get(counter.get.remote()) == 0  # it goes on


def test_what_cannot_travel_is_named_and_the_actor_goes_on():
    counter = Counter.remote()
    with pytest.raises(SerializationError, match=r"echo\(\) of actor Counter was not called"):
        counter.echo.remote(threading.Lock())
    for arguments, keywords, place in (
        ((1, threading.Lock()), {}, r"\[1\]"),
        (([1, threading.Lock()],), {}, r"\[0\]\[1\]"),
        ((), {"value": threading.Lock()}, r"\['value'\]"),
    ):
        with pytest.raises(SerializationError, match=rf"arguments of echo\(\){place} is a lock"):
            counter.echo.remote(*arguments, **keywords)
    with pytest.raises(SerializationError, match=r"result of Counter.lock\(\)\['a'\] is a lock"):
        actors.get(counter.lock.remote())
    with pytest.raises(Exception, match=r"result of Counter.unpicklable\(\)"):
        actors.get(counter.unpicklable.remote())
    for method, kind in {
        "unpicklable": "generator",
        "asynchronous": "coroutine",
        "asynchronous_values": "async_generator",
    }.items():
        text = rf"the result of Counter.{method}\(\) is a {kind}, whose body has not run"
        with pytest.raises(actors.ActorUsageError, match=text):
            actors.get(getattr(counter, method).remote())
    with pytest.raises(SerializationError, match="No actor was made"):
        Counter.remote(value for value in range(3))
    assert actors.get(counter.get.remote()) == 0


def test_a_timeout_leaves_the_call_running(tmp_path):
    counter = Counter.remote()
    path = str(tmp_path / "go")
    future = counter.wait_for.remote(path)
    with pytest.raises(TimeoutError, match=r"wait_for\(\) of actor Counter gave no answer"):
        actors.get(future, timeout=0.02)
    with pytest.raises(actors.ActorTimeoutError):
        actors.get([actors.put(1), future], timeout=0.02)
    _, others = actors.wait([future, actors.put(1)], timeout=5)
    assert others == [future]
    assert actors.wait([future], timeout=0.02) == ([], [future])
    (tmp_path / "go").touch()
    assert actors.wait([future]) == ([future], [])
    assert actors.get(future) == path


def test_mistakes_with_methods_say_what_to_write():
    counter = Counter.remote()
    with pytest.raises(TypeError, match=r"handle.inc.remote"):
        counter.inc(1)
    with pytest.raises(AttributeError, match="Did you mean 'inc'"):
        counter.incr.remote(1)
    with pytest.raises(AttributeError, match=r"`_hidden` of the .* is private"):
        counter._hidden.remote()
    with pytest.raises(TypeError, match=r"`inc.options\(num_returns=2\)`: .*`handle.inc.remote"):
        counter.inc.options(num_returns=2)
    with pytest.raises(TypeError, match="argument"):
        actors.get(counter.inc.remote(1, 2, 3))
    with pytest.raises(AttributeError, match=r"`count = 5` would be set on this handle alone"):
        counter.count = 5


def test_names_are_given_once():
    first = Counter.options(name="counter").remote(1)
    with pytest.raises(ValueError, match="'counter' is taken by a living actor"):
        Counter.options(name="counter").remote()
    assert Counter.options(name="counter", get_if_exists=True).remote(50) == first
    assert actors.get_actor("counter") == first
    other = Counter.options(name="counter", namespace="other").remote(2)
    assert actors.get(actors.get_actor("counter", "other").get.remote()) == 2
    assert other != first
    with pytest.raises(ValueError, match=r"did you mean 'counter'\? Make it first"):
        actors.get_actor("countr")
    actors.kill(first)
    with pytest.raises(ValueError, match="'counter'; did you mean 'counter' in namespace 'other'"):
        actors.get_actor("counter")
    actors.kill(other)
    with pytest.raises(ValueError, match="'counter'; no named actor is alive"):
        actors.get_actor("counter")
    assert actors.get(Counter.options(name="counter").remote(3).get.remote()) == 3


def test_actors_call_actors_by_handle_and_by_name():
    one, two = Counter.remote(1), Counter.options(name="two").remote(2)
    assert actors.get(one.call.remote(two, "inc", 5)) == 7
    assert actors.get(one.call_by_name.remote("two", "inc", 5)) == 12


def test_an_actor_makes_an_actor_that_ends_with_it():
    actors.init(namespace="family")
    parent = Counter.remote()
    child = actors.get(parent.make_another.remote())
    assert actors.get(child.inc.remote(1)) == 11
    assert actors.get_actor("child", "family") == child
    assert actors.get(actors.get_actor("child").get.remote()) == 11
    actors.kill(parent)
    pid = child._address.pid
    assert wait_until(lambda: not is_process_alive(pid))
    with pytest.raises(actors.ActorDiedError, match="'child'"):
        actors.get(child.get.remote(), timeout=5)


def test_a_future_is_given_as_its_value_when_that_is_there(tmp_path):
    slow, counter = Counter.remote(), Counter.remote()
    pending = slow.wait_for.remote(str(tmp_path / "go"))
    echoed = counter.echo.remote(pending, k=actors.put(3))
    after = counter.inc.remote(1)  # must not overtake
    assert actors.wait([echoed, after], timeout=0.05)[0] == []
    (tmp_path / "go").touch()
    assert actors.get(echoed) == ((str(tmp_path / "go"),), {"k": 3})
    assert actors.get(after) == 1


def test_the_error_of_a_future_is_that_of_the_calls_which_wait_for_it():
    counter = Counter.remote()
    failed = counter.echo.remote(counter.fail.remote())
    with pytest.raises(OwnError):
        actors.get(failed)
    assert actors.get(counter.inc.remote(1)) == 1


def test_an_error_that_nobody_asks_for_is_told_once(caplog):
    counter = Counter.remote()
    for _ in range(3):
        counter.fail.remote()
    asked = counter.append.remote("one", "too many")
    with pytest.raises(TypeError):
        actors.get(asked)
    del asked
    actors.shutdown()  # by then, all answers are there and gone
    told = [record.getMessage() for record in caplog.records if "future is gone" in record.message]
    assert told == ["fail() of actor Counter failed, and its future is gone: OwnError(7, 'mine')"]


def test_an_actor_that_is_made_by_several_at_once_is_made_once():
    callers = [Caller.remote() for _ in range(4)]
    made = actors.get([caller.make.remote() for caller in callers], timeout=60)
    assert len(set(made)) == 1
    assert actors.get([caller.use.remote() for caller in callers]) == [None] * 4
    assert actors.get(made[0].get.remote()) == 4


left_behind = []


def _use_actor_in_a_child():
    left_behind.append(Counter.remote(3))  # lives until the process ends, which must not wait
    assert actors.get(left_behind[0].get.remote()) == 3


@pytest.mark.parametrize(("method", "daemon"), [("spawn", False), ("forkserver", True)])
def test_an_actor_can_be_made_in_a_child_of_multiprocessing_and_ends_with_it(method, daemon):
    context = multiprocessing.get_context(method)
    child = context.Process(target=_use_actor_in_a_child, daemon=daemon)
    child.start()
    child.join(20)
    assert child.exitcode == 0


def test_a_namespace_of_init_holds_in_this_process_and_in_its_actors():
    actors.init(namespace="mine")
    counter = Counter.options(name="counter").remote(1)
    caller = Counter.remote()
    assert actors.get(caller.call_by_name.remote("counter", "inc", 1)) == 2
    assert actors.get_actor("counter", "mine") == counter
    elsewhere = Counter.options(name="counter", namespace="elsewhere").remote(50)
    assert actors.get_actor("counter") == counter != elsewhere
    actors.shutdown()
    default = Counter.options(name="counter").remote(7)
    assert actors.get_actor("counter") == default
    with pytest.raises(
        actors.ActorNameError, match=r"in namespace 'mine'; did you mean 'counter'\?"
    ):
        actors.get_actor("counter", "mine")


def test_a_namespace_does_not_change_under_actors():
    actors.init(num_cpus=2, ignore_reinit_error=True)
    actors.init()
    with pytest.raises(actors.ActorError, match=r"shutdown\(\)` before"):
        actors.init(namespace="late")
    actors.shutdown()
    actors.init(namespace="early")
    actors.init(namespace="early")
    actors.init()  # says nothing about it
    with pytest.raises(actors.ActorError, match="'early' already"):
        actors.init(namespace="late")


def test_whether_actors_are_initialized_is_told_truly():
    actors.shutdown()
    assert not actors.is_initialized()
    actors.init()
    assert actors.is_initialized()
    actors.shutdown()
    assert not actors.is_initialized()
    counter = Counter.remote()
    assert actors.is_initialized()
    assert actors.get(counter.is_initialized.remote())


def test_a_caller_that_is_faster_than_the_actor_waits(tmp_path, monkeypatch):
    monkeypatch.setattr(actor_link, "Room", functools.partial(actor_room.Room, most_calls=100))
    counter = Counter.remote()
    held = counter.wait_for.remote(str(tmp_path / "go"))
    sent = []

    def send():
        for number in range(300):
            counter.append.remote(number)
            sent.append(number)

    thread = threading.Thread(target=send)
    thread.start()
    assert wait_until(lambda: len(sent) == 99)  # and the one that is held
    thread.join(0.05)
    assert len(sent) == 99
    (tmp_path / "go").touch()
    assert actors.get(held)
    thread.join(20)
    assert actors.get(counter.all_seen.remote()) == list(range(300))


def test_a_stopped_actor_is_told_and_no_call_is_lost(caplog, monkeypatch):
    monkeypatch.setattr(actor_link, "Room", functools.partial(actor_room.Room, patience_s=0.01))
    counter = Counter.remote()
    pid = actors.get(counter.pid.remote())
    os.kill(pid, signal.SIGSTOP)
    try:
        thread = threading.Thread(
            target=lambda: [counter.inc.remote() for _ in range(5_000)]  # more than a socket takes
        )
        thread.start()
        assert wait_until(lambda: "may have been stopped" in caplog.text)
        assert thread.is_alive()
    finally:
        os.kill(pid, signal.SIGCONT)
    thread.join(20)
    assert actors.get(counter.get.remote()) == 5_000
    assert caplog.text.count("may have been stopped") == 1


def test_an_actor_may_call_an_actor_that_cannot_answer_yet_as_often_as_it_likes():
    counter = Counter.remote()
    times = actor_room.MOST_CALLS + 100
    actors.get(counter.flood.remote(counter, times), timeout=60)  # itself: busy until it is done
    assert wait_until(lambda: bool(actors.get(counter.get.remote()) == times), within_s=30)


def test_a_caller_that_does_not_ask_for_answers_holds_nobody_up():
    counter = Counter.remote()
    large = np.zeros(200_000)
    for _ in range(20):
        counter.echo.remote(large)
    assert actors.get(counter.inc.remote(1)) == 1


@actors.remote
class Caller:
    def make(self):
        self.shared = Counter.options(name="shared", get_if_exists=True).remote()
        return self.shared

    def use(self):
        actors.get(self.shared.inc.remote(1))

"""What users write with actors, without any process: options, misuse, futures of `put`."""

import pickle
import sys

import cloudpickle
import pytest

from trainer import actors
from trainer.errors import SerializationError


@actors.remote
class Counter:
    """Counts."""

    def __init__(self):
        self.count = 0

    def inc(self, n):
        self.count += n
        return self.count


@actors.remote(num_cpus=1, name="by_default")
class Named:
    pass


def test_the_decorated_class_keeps_its_name_and_text():
    assert (Counter.__name__, Counter.__doc__) == ("Counter", "Counts.")
    assert Counter.original().inc(3) == 3
    assert isinstance(Named, actors.ActorClass)


def test_calling_the_class_says_what_to_write():
    with pytest.raises(TypeError, match=r"Write `Counter.remote\(…\)`"):
        Counter()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"nam": "x"}, "did you mean `name`"),
        ({"get_if_exists": True}, "needs a `name`"),
        ({"lifetime": "forever"}, "detached"),
        ({"name": ""}, "not empty"),
        ({"namespace": 3}, "not empty"),
        ({"max_restarts": 3}, "not restarted"),
        ({"max_concurrency": 2}, "one call at a time"),
        ({"nam": "x", "lifetime": 1}, "did you mean.*lifetime=1"),
    ],
)
def test_wrong_options_are_all_told(options, text):
    with pytest.raises(actors.ActorUsageError, match=text):
        Counter.options(**options)
    with pytest.raises(actors.ActorUsageError, match=text):
        actors.remote(**options)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"num_cpu": 1}, "did you mean `num_cpus`"),
        ({"namespaces": "a"}, "did you mean `namespace`"),
        ({"xyz": 1}, "leave it out"),
        ({"namespace": ""}, "a text, or None"),
    ],
)
def test_init_names_what_it_does_not_know(options, text):
    with pytest.raises(actors.ActorUsageError, match=text):
        actors.init(**options)


def test_options_of_a_cluster_mean_nothing():
    Counter.options(num_cpus=1, num_gpus=0.5, resources={"x": 1}, max_restarts=0)


@pytest.mark.parametrize("target", [len, 3, lambda: None])
def test_only_classes_are_made_into_actors(target):
    with pytest.raises(TypeError, match=r"is for classes.*def \S+\(self, …\)"):
        actors.remote(target)


def test_a_class_may_be_derived_from_an_actor_class():
    class Doubled(Counter):
        def inc(self, n):
            return 2 * int(super().inc(n))

    assert Doubled().inc(2) == 4


def test_an_actor_class_that_can_be_imported_travels_as_its_name(monkeypatch):
    # Test files cannot be imported under their name, so a package lends its own.
    module = sys.modules["trainer.actors"]
    lent = actors.remote(type("Lent", (), {"__module__": module.__name__}))
    monkeypatch.setattr(module, "Lent", lent, raising=False)
    assert pickle.loads(pickle.dumps(lent)) is lent


def test_an_actor_class_that_cannot_be_imported_travels_by_value():
    class Local:
        def value(self):
            return 5

    copy = cloudpickle.loads(cloudpickle.dumps(actors.remote(Local)))
    assert copy.original().value() == 5


def test_put_keeps_the_value_as_it_was():
    numbers = [1, 2]
    future = actors.put(numbers)
    numbers.append(3)
    assert actors.get(future) == [1, 2]
    assert actors.get([future, actors.put("a")]) == [[1, 2], "a"]


def test_put_names_what_cannot_travel():
    with pytest.raises(SerializationError, match=r"put\(\)"):
        actors.put(sys.stdout)


def test_a_future_does_not_travel_inside_something():
    with pytest.raises(SerializationError, match="argument of its own"):
        pickle.dumps([actors.put(1)])


@pytest.mark.parametrize("wrong", [3, "text", [1], None])
def test_get_and_kill_say_what_they_take(wrong):
    with pytest.raises(TypeError, match="remote"):
        actors.get(wrong)
    with pytest.raises(TypeError, match="handle"):
        actors.kill(wrong)


@pytest.mark.parametrize("num_returns", [0, 3])
def test_wait_says_how_many_can_be_waited_for(num_returns):
    with pytest.raises(actors.ActorUsageError, match="from 1 to the number"):
        actors.wait([actors.put(1), actors.put(2)], num_returns=num_returns)


@pytest.mark.parametrize("timeout", ["1", float("nan"), True])
def test_a_timeout_is_a_number_of_seconds(timeout):
    for ask in (actors.get, actors.wait):
        with pytest.raises(actors.ActorUsageError, match="give a number of seconds"):
            ask([actors.put(1)], timeout=timeout)
    assert actors.get(actors.put(1), timeout=float("inf")) == 1


def test_wait_gives_no_more_than_it_was_asked_for_in_order():
    futures = [actors.put(number) for number in range(3)]
    assert actors.wait(futures, num_returns=2) == (futures[:2], futures[2:])

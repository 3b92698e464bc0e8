"""What many workers are sent is packed once; machines are told apart by what they compute with."""

import pickle
import threading
from dataclasses import replace

import cloudpickle
import numpy as np
import pytest

from trainer import SerializationError, actors
from trainer.actors import registry
from trainer.errors import ActorNameError
from trainer.runtime.local_engine import LocalEngine
from trainer.runtime.machine_facts import MachineFacts, cpu_kinds, facts_of_this_machine
from trainer.runtime.messages import pack_arguments, published
from trainer.runtime.worker import unpack
from trainer.runtime.worker_pool import WorkerPool


def test_a_published_value_arrives_as_the_value_and_is_a_copy_of_its_own():
    array = np.arange(5)
    packed = pack_arguments("worker", "sample", (published({"a": array}, name="weights"), 1))
    first, number = unpack(packed)
    again, _ = unpack(packed)
    assert number == 1
    np.testing.assert_array_equal(first["a"], array)
    first["a"][0] = 9  # it can be written, and no one else sees it
    assert array[0] == 0
    assert again["a"][0] == 0


def test_its_bytes_can_go_beside_the_call_and_other_arrays_stay_in_it():
    weights = published(np.arange(1000), name="weights")
    beside = []

    def is_packed(buffer):
        if memoryview(buffer).obj is weights.packed:
            beside.append(weights.packed)
            return False
        return True

    arguments = (np.ones(3), weights, np.zeros(2))
    packed = pack_arguments("worker", "sample", arguments, buffer_callback=is_packed)
    assert len(beside) == 1
    assert len(packed) < 1000
    ones, array, zeros = unpack(packed, beside)
    np.testing.assert_array_equal(array, np.arange(1000))
    assert [*ones, *zeros] == [1, 1, 1, 0, 0]
    with pytest.raises(pickle.UnpicklingError):
        cloudpickle.loads(packed)  # negative control: it is not in there


def test_a_pool_publishes_a_value_once_until_there_is_another(monkeypatch):
    made = []
    publish = LocalEngine.publish

    def count(engine, value, *, name):
        made.append(name)
        return publish(engine, value, name=name)

    monkeypatch.setattr(LocalEngine, "publish", count)
    pool = WorkerPool(["worker 1"])
    weights, newer = {"a": 1}, {"a": 1}
    one = pool.publish("weights", weights)
    assert pool.publish("weights", weights) is one
    assert pool.publish("weights", newer) is not one  # by identity: it may be another state
    assert pool.publish("normalization", None) is None
    assert made == ["weights", "weights"]


def test_what_cannot_be_packed_is_refused_by_name():
    with pytest.raises(SerializationError, match=r"weights\['f'\]"):
        published({"f": threading.Lock()}, name="weights")


def test_versions_that_differ_are_named_and_kinds_of_cpu_counted():
    here = facts_of_this_machine()
    assert here.differences(here) == []
    there = replace(here, host="b", versions=(*here.versions[:1], ("numpy", "0.1")))
    assert here.differences(there)[0] == f"numpy {np.__version__}, there 0.1"
    machines = [
        MachineFacts("a", (), "Zen"),
        MachineFacts("b", (), "Skylake"),
        MachineFacts("c", (), "Zen"),
        MachineFacts("a", (), "Zen"),
    ]
    assert cpu_kinds(machines) == {"Zen": ["a", "c"], "Skylake": ["b"]}


def test_in_a_process_of_another_machine_actors_are_refused_with_what_to_do(monkeypatch):
    monkeypatch.setenv(registry.ELSEWHERE_VARIABLE, "")
    of_main_process = registry.ActorRegistry("/nowhere", "")
    registry.join_registry(of_main_process, machine="head-node")
    with pytest.raises(ActorNameError, match=r"of the machine head-node.*do not reach it"):
        actors.get_actor("counter")

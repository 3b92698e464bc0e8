"""Faults on purpose: when they are due, how often, and what they do to those who suffer them."""

import multiprocessing
import pickle
from concurrent.futures import ThreadPoolExecutor

import cloudpickle
import numpy as np
import pytest

from trainer import ConfigError, EnvContext
from trainer.testing import (
    CountdownEnv,
    Fault,
    FaultyCallback,
    FaultyEnv,
    HugeError,
    InjectedFaultError,
    Parcel,
    UnpicklableError,
    with_faults,
)
from trainer.testing.faults import FaultWatch, RunnerOfCall

TRAINING = RunnerOfCall(1, False)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"place": "stepp"}, "Did you mean 'step'"),
        ({"place": "on_episode_ended"}, "Did you mean 'on_episode_end'"),
        ({"place": "step", "way": "kill"}, "Did you mean 'sigkill'"),
        ({"place": "close", "way": "nan_reward"}, 'Use place="reset" or place="step"'),
        ({"place": "step", "times": 0}, "a number from 1"),
        ({"place": "step", "times": "twice"}, "a number from 1"),
    ],
)
def test_a_fault_that_cannot_be_is_refused(arguments, told):
    with pytest.raises(ConfigError, match=told):
        Fault(**arguments)
    with pytest.raises(ConfigError, match="expected faults one after the other"):
        with_faults(CountdownEnv, [Fault("step")])


@pytest.mark.parametrize(
    ("times", "expected"), [("once", 1), (1, 1), (3, 3), ("always", 5)], ids=str
)
def test_a_fault_happens_as_often_as_it_is_to(times, expected):
    fault = Fault("step", times=times)
    assert sum(fault.claim() for _ in range(5)) == expected
    assert fault.num_fired == expected
    assert fault.is_armed is (times == "always")


def test_a_fault_can_be_disarmed_and_armed_again():
    fault = Fault("step", times=2)
    fault.disarm()
    assert not fault.is_armed
    assert not fault.claim()
    fault.arm()
    assert [fault.claim(), fault.claim(), fault.claim()] == [True, True, False]
    assert fault.num_fired == 2


def test_the_memory_of_a_fault_is_that_of_all_its_copies(tmp_path):
    fault = Fault("step", memory=str(tmp_path / "memory"))
    copy = pickle.loads(pickle.dumps(fault))
    assert copy == fault
    assert copy.claim()
    assert not fault.claim()
    assert Fault("step", memory=str(tmp_path / "memory")).num_fired == 1
    assert Fault("step").claim(), "another one has another memory"


def test_claims_at_the_same_time_get_no_more_than_there_is():
    # Each claim opens the file for itself, so threads are to it what processes are.
    fault = Fault("step", times=50)
    with ThreadPoolExecutor(4) as pool:
        claimed = list(pool.map(lambda _: fault.claim(), range(200)))
    assert sum(claimed) == fault.num_fired == 50


@pytest.mark.parametrize(
    ("conditions", "is_due"),
    [
        ({}, True),
        ({"worker_index": 1, "env_index": 0, "episode": 2, "at_step": 3}, True),
        ({"in_evaluation": False}, True),
        ({"worker_index": 2}, False),
        ({"env_index": 1}, False),
        ({"episode": 1}, False),
        ({"at_step": 4}, False),
        ({"in_evaluation": True}, False),
    ],
)
def test_a_fault_is_due_where_all_its_conditions_hold(conditions, is_due):
    fault = Fault("step", **conditions)
    watch = FaultWatch([Fault("reset"), fault])
    found = watch.due("step", TRAINING, env_index=0, episode=2, step=3)
    assert found is (fault if is_due else None)
    assert fault.num_fired == is_due


def test_only_calls_that_fulfil_the_other_conditions_are_counted():
    watch = FaultWatch([Fault("step", on_call=2, at_step=3, times="always")])
    due = [watch.due("step", TRAINING, step=step) is not None for step in (3, 1, 2, 3, 3)]
    assert due == [False, False, False, True, True]


def test_an_env_fails_at_the_step_that_is_named_and_goes_on_afterwards():
    fault = Fault("step", episode=2, at_step=1)
    env = FaultyEnv(CountdownEnv({"min_length": 5}), fault)
    for _ in range(2):
        env.reset(seed=3)
        env.step(0)
    with pytest.raises(InjectedFaultError, match="on purpose at 'step'"):
        env.step(0)
    undisturbed = CountdownEnv({"min_length": 5})
    undisturbed.reset(seed=3)
    undisturbed.step(0)
    np.testing.assert_array_equal(env.step(0)[0], undisturbed.step(0)[0])
    assert isinstance(env.unwrapped, CountdownEnv)


@pytest.mark.parametrize(
    ("way", "error"),
    [
        ("raise", InjectedFaultError),
        ("unpicklable_error", UnpicklableError),
        ("out_of_memory", MemoryError),
    ],
)
@pytest.mark.parametrize("place", ["reset", "close"])
def test_an_env_raises_what_it_is_told_to(place, way, error):
    env = FaultyEnv(CountdownEnv(), Fault(place, way=way))
    with pytest.raises(error):
        getattr(env, place)()
    getattr(env, place)()  # once


def test_errors_of_faults_can_be_pickled_or_not_as_they_are_meant_to():
    with pytest.raises(HugeError) as raised:
        Fault("close", way="huge_reply", num_bytes=1000).act()
    assert len(pickle.loads(pickle.dumps(raised.value)).payload) == 1000
    with pytest.raises(TypeError, match="lock"):
        cloudpickle.dumps(UnpicklableError("text"))


def spoilt_step(way, env=None):
    faulty = FaultyEnv(env or CountdownEnv({"min_length": 5}), Fault("step", way=way))
    faulty.reset(seed=0)
    return faulty.step(0)


@pytest.fixture
def in_a_worker(monkeypatch):
    monkeypatch.setattr(multiprocessing, "parent_process", multiprocessing.current_process)


@pytest.mark.usefixtures("in_a_worker")
def test_answers_of_envs_are_spoilt_as_told():
    assert np.isnan(spoilt_step("nan_observation")[0]).all()
    assert np.isnan(spoilt_step("nan_reward")[1])
    assert not CountdownEnv().observation_space.contains(spoilt_step("wrong_shape")[0])
    huge = cloudpickle.dumps(spoilt_step("huge_reply")[4])
    assert len(huge) > 50_000_000
    assert pickle.loads(huge) == {"parcel": None}
    with pytest.raises(TypeError, match="on purpose"):
        cloudpickle.dumps(spoilt_step("unpicklable_result")[4])


def test_a_parcel_fails_when_it_is_packed_or_unpacked_in_a_worker(request):
    parcel = Parcel(Fault("pack"))
    assert isinstance(pickle.loads(pickle.dumps(parcel)), Parcel), "sent to a worker it arrives"
    request.getfixturevalue("in_a_worker")
    with pytest.raises(InjectedFaultError):
        pickle.dumps(parcel)
    assert pickle.loads(pickle.dumps([parcel])) == [None]
    packed = pickle.dumps(Parcel(Fault("unpack", way="unpicklable_error")))
    with pytest.raises(UnpicklableError):
        pickle.loads(packed)
    assert pickle.loads(packed) is None


def test_a_creator_fails_before_the_env_is_made_and_is_called_like_it():
    creator = with_faults("CartPole-v1", Fault("init", env_index=1))
    assert creator.__qualname__ == "CartPole-v1"
    assert creator(EnvContext({}, worker_index=1)).observation_space.shape == (4,)
    with pytest.raises(InjectedFaultError):
        creator(EnvContext({}, worker_index=1, vector_index=1))


def test_a_faulty_callback_listens_to_what_its_faults_name_and_to_nothing_else():
    callback = FaultyCallback(Fault("on_train_result"), Fault("step"))
    with pytest.raises(InjectedFaultError):
        callback.on_train_result(algorithm=None, metrics_logger=None, result={})
    callback.on_train_result(algorithm=None, metrics_logger=None, result={})
    assert "on_episode_step" not in vars(callback)
    assert callback.get_state() == {"parcel": None}

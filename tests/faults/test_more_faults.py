"""Faults beside the matrix: spoilt answers, a lack of memory, and each event of env runners."""

import functools
import os
import signal
from dataclasses import replace

import pytest

from callbacks import EVENTS, CallbackError
from tests.faults.fault_run import config, outcome
from trainer import EnvContractError, SerializationError
from trainer.testing import Fault, InjectedFaultError, Parcel, no_leaks

pytestmark = pytest.mark.process

RUNNER_EVENTS = [event.name for event in EVENTS.values() if event.scope == "env_runner"]


def at_step(way, *, in_evaluation=False):
    return Fault("step", way=way, worker_index=1, in_evaluation=in_evaluation, at_step=3)


@pytest.mark.parametrize(
    ("way", "in_evaluation"),
    [
        ("nan_observation", False),
        ("nan_reward", False),
        ("wrong_shape", False),
        ("nan_reward", True),
    ],
)
def test_an_answer_against_the_contract_is_an_error_at_once(way, in_evaluation):
    fault = at_step(way, in_evaluation=in_evaluation)
    with (
        no_leaks(),
        config(fault).build_algo() as algo,
        pytest.raises(EnvContractError, match=r"observation|reward"),
    ):
        algo.train()
    assert fault.num_fired == 1


@functools.cache
def undisturbed():
    with config().build_algo() as algo:
        return outcome(algo)


@pytest.mark.parametrize(
    ("way", "num_restarts"), [("slow", 0), ("out_of_memory", 1), ("unpicklable_result", 1)]
)
def test_what_is_no_error_of_the_env_is_repaired(way, num_restarts):
    fault = at_step(way)
    with no_leaks(), config(fault).build_algo() as algo:
        disturbed = outcome(algo)
        assert algo.env_runner_group.num_remote_worker_restarts() == num_restarts
    assert fault.num_fired == 1
    assert disturbed == undisturbed()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("event", "in_evaluation"),
    [
        (event, in_evaluation)
        for event in RUNNER_EVENTS
        for in_evaluation in (False, True)
        if not (in_evaluation and event == "on_postprocess_trajectory")  # not fired there
    ],
)
def test_a_process_that_dies_in_an_event_is_replaced(event, in_evaluation):
    fault = Fault(event, way="sigkill", worker_index=1, in_evaluation=in_evaluation)
    with no_leaks(), config(fault).build_algo() as algo:
        disturbed = outcome(algo)
    assert fault.num_fired == 1
    # The same listener: chunks of before are kept, in the state as well, for `on_episode_end` only.
    unreached = replace(fault, on_call=10**9, memory="")
    with config(unreached).build_algo() as algo:
        assert disturbed == outcome(algo)


def live_through_everything(fault, folder):
    """A run in which every event fires."""
    with config(fault).build_algo() as algo:
        algo.train()
        algo.save_to_path(folder)
        algo.restore_from_path(folder)
        os.kill(algo.env_runner_group.env_runner_pids()[1], signal.SIGKILL)
        algo.train()


@pytest.mark.slow
@pytest.mark.parametrize("event", list(EVENTS))
def test_a_callback_that_raises_in_any_event_is_one_error(event, tmp_path):
    fault = Fault(event)
    with no_leaks(), pytest.raises(CallbackError, match=rf"FaultyCallback\.{event}"):
        live_through_everything(fault, tmp_path / "saved")
    assert fault.num_fired == 1


@pytest.mark.parametrize("place", ["pack", "unpack"])
def test_what_a_users_function_returns_may_fail_on_its_way(place):
    broken = Fault(place, times=1)
    fatal = Fault("pack", way="sigkill", times=1)
    huge = Fault("pack", way="huge_reply")
    with no_leaks(), config().build_algo() as algo:
        group = algo.env_runner_group
        with pytest.raises((SerializationError, InjectedFaultError), match="fails on purpose"):
            group.foreach_env_runner(lambda _: Parcel(broken), remote_worker_ids=[1])
        assert group.num_remote_worker_restarts() == 0, "the runner is not to blame"
        assert group.foreach_env_runner(lambda _: Parcel(fatal), remote_worker_ids=[1]) == [None]
        assert group.num_remote_worker_restarts() == 1
        parcel = Parcel(huge)
        assert group.foreach_env_runner(lambda _: parcel, remote_worker_ids=[2]) == [None]
    assert [fault.num_fired for fault in (broken, fatal, huge)] == [1, 1, 1]

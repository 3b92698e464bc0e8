"""The public methods of a group of env runners, under their new and old names."""

import os
import signal
import tempfile

import numpy as np
import pytest

from checkpoints import encode
from tests.small_runs import small_ppo
from trainer import (
    CallbackError,
    ConfigError,
    SerializationError,
    TrainerError,
)
from trainer.testing.envs import TaskCountdownEnv, UnseededEnv
from trainer.testing.processes import wait_until

pytestmark = pytest.mark.process


def config(**settings):
    spread = {"num_env_runners": 2, "num_envs_per_env_runner": 2}
    return small_ppo(batch=40, **{**spread, **settings})


@pytest.fixture
def algo():
    with config().build_algo() as made:
        made.train()
        yield made


@pytest.fixture
def group(algo):
    return algo.env_runner_group


def index_of(runner):
    return runner.worker_index


def fetched(group):
    """All answers to come, ordered by runner."""
    return sorted(group.fetch_ready_async_reqs(timeout_seconds=None))


def test_modules_of_all_runners_are_handed_out_in_one_list(group):
    assert group.foreach_policy(lambda module, name, number: (name, number), number=3) == [
        ("default_policy", 3),
        ("default_policy", 3),
    ]


def test_calls_that_nobody_waits_for_are_answered_later(group):
    assert group.foreach_env_runner_async(index_of) == 2
    assert fetched(group) == [(1, 1), (2, 2)]
    assert group.fetch_ready_async_reqs() == []
    assert group.num_in_flight_async_reqs() == 0
    assert group.foreach_worker_async(index_of, remote_worker_ids=[2]) == 1
    assert wait_until(lambda: group.fetch_ready_async_reqs() == [(2, 2)])


def test_a_runner_has_one_such_call_at_a_time(group, tmp_path):
    gate = tmp_path / "gate"

    def wait_for_gate(runner):
        assert wait_until(gate.exists)
        return "through"

    assert group.foreach_env_runner_async(wait_for_gate, remote_worker_ids=[1]) == 1
    assert group.num_in_flight_async_reqs() == 1
    assert group.foreach_env_runner_async(index_of) == 1, "only runner 2 is free"
    assert group.fetch_ready_async_reqs() in ([], [(2, 2)])
    gate.touch()
    assert (1, "through") in fetched(group)


def test_whatever_is_asked_next_waits_for_them(algo, group):
    group.foreach_env_runner_async(index_of)
    algo.train()
    assert sorted(group.fetch_ready_async_reqs()) == [(1, 1), (2, 2)]


def test_what_they_raise_is_raised_when_they_are_fetched(group):
    def fail_in_one(runner):
        if runner.worker_index == 1:
            raise ZeroDivisionError("mine")
        return 2

    group.foreach_env_runner_async(fail_in_one)
    with pytest.raises(ZeroDivisionError, match="mine") as raised:
        fetched(group)
    assert "Env runner 1" in str(raised.value.__cause__)
    assert fetched(group) == [(2, 2)]


def test_no_call_is_dropped_that_nobody_waits_for(group, tmp_path):
    def mark(name):
        return lambda runner: setattr(runner, name, True)

    def wait_for_gate(runner):
        assert wait_until((tmp_path / "gate").exists)

    group.foreach_env_runner(mark("first"), timeout_seconds=0)
    group.foreach_env_runner(mark("second"), timeout_seconds=0)
    assert group.foreach_env_runner(lambda r: r.first and r.second) == [True, True]
    assert group.foreach_env_runner_async(wait_for_gate, remote_worker_ids=[1]) == 1
    assert group.foreach_env_runner_async(mark("third"), remote_worker_ids=[2]) == 1
    assert wait_until(
        lambda: group.foreach_env_runner_async(index_of, remote_worker_ids=[2]) == 1
    ), "who has answered is free, fetched or not"
    (tmp_path / "gate").touch()
    found = group.fetch_ready_async_reqs(timeout_seconds=None)
    assert sorted(found, key=str) == [(1, None), (2, 2), (2, None)]


def test_calls_see_the_weights_that_were_set_before_them(algo, group):
    def total(runner):
        return sum(float(np.abs(array).sum()) for array in runner.get_weights().values())

    group.foreach_env_runner_async(total, remote_worker_ids=[1])
    zeros = {name: 0 * array for name, array in algo.get_weights()["default_policy"].items()}
    algo.set_weights({"default_policy": zeros})
    group.foreach_env_runner_async(total, remote_worker_ids=[2])
    sums = dict(fetched(group))
    assert sums[1] > 0
    assert sums[2] == 0


def test_a_call_that_cannot_travel_leaves_those_under_way_alone(group):
    with tempfile.TemporaryFile() as file:
        group.foreach_env_runner_async(index_of, remote_worker_ids=[1])
        with pytest.raises(SerializationError, match="No env runner was asked"):
            group.foreach_env_runner_async(lambda runner: file, remote_worker_ids=[2])
    assert fetched(group) == [(1, 1)]
    assert group.num_remote_worker_restarts() == 0


@pytest.mark.parametrize("made_in_the_iteration", [False, True])
def test_calls_that_nobody_waits_for_are_undone_with_their_iteration_alone(made_in_the_iteration):
    def ask(algorithm):
        algorithm.env_runner_group.foreach_env_runner_async(
            lambda runner: runner.foreach_env(lambda env: env.set_task(7))
        )

    def fail_once(algorithm):
        if algorithm.training_iteration == 2 and not failed:
            failed.append(2)
            if made_in_the_iteration:
                ask(algorithm)
            raise ValueError("in the second")

    failed = []
    made = config().environment(TaskCountdownEnv).callbacks(on_train_result=fail_once)
    with made.build_algo() as algo:
        algo.train()
        if not made_in_the_iteration:
            ask(algo)
        with pytest.raises(CallbackError):
            algo.train()
        algo.train()
        expected = 0 if made_in_the_iteration else 7
        assert algo.env_runner_group.get_tasks() == [expected] * 4


def test_weights_are_sent_without_giving_up_an_episode():
    """The env does not repeat its episodes, so that a runner that is put back loses them."""
    with config().environment(UnseededEnv).build_algo() as algo:
        algo.train()
        algo.env_runner_group.sync_weights()
        assert algo.train()["fault_tolerance/num_episodes_lost_lifetime"] == 0


def test_who_does_not_answer_in_time_is_replaced(group, caplog):
    def hang_in_one(runner):
        if runner.worker_index == 1:
            wait_until(lambda: False, within_s=60)
        return index_of(runner)

    before = group.num_remote_worker_restarts()
    assert group.foreach_env_runner(hang_in_one, timeout_seconds=1.0) == [None, 2]
    assert "did not answer foreach_env_runner() within timeout_seconds=1.0" in caplog.text
    assert group.foreach_env_runner(index_of) == [1, 2]
    assert group.num_remote_worker_restarts() == before + 1


def test_changed_weights_are_brought_back(algo, group):
    def spoil(runner):
        runner.set_weights({name: 0 * array for name, array in runner.get_weights().items()})

    def sums(runner):
        return sum(float(np.abs(array).sum()) for array in runner.get_weights().values())

    right = group.foreach_env_runner(sums)
    group.foreach_env_runner(spoil)
    assert group.foreach_env_runner(sums) == [0, 0]
    group.sync_weights(to_worker_indices=[2])
    assert group.foreach_env_runner(sums) == [0, right[1]]
    group.sync_weights(policies=["default_policy"])
    assert group.foreach_env_runner(sums) == right
    group.foreach_env_runner(spoil)
    group.sync_weights(from_worker_or_learner_group=algo.learner)
    assert group.foreach_env_runner(sums) == right
    group.sync_env_runner_states(algo.config)


def test_what_cannot_be_is_told(group):
    with pytest.raises(ConfigError, match="no such module; there is 'default_policy'"):
        group.sync_weights(policies=["other"])
    with pytest.raises(ConfigError, match="expected a learner"):
        group.sync_weights(from_worker_or_learner_group=3)
    with pytest.raises(ConfigError, match="expected a number from 0 on"):
        group.add_workers(-1)
    with pytest.raises(ConfigError, match="foreach_env_runner_async"):
        group.foreach_env_runner(index_of, return_obj_refs=True)
    with pytest.raises(ConfigError, match=r"\[9\]"):
        group.foreach_env_runner(index_of, remote_worker_ids=[9])


def test_questions_under_both_names(algo, group):
    assert algo.workers is group
    assert group.foreach_worker(index_of, local_worker=False) == [1, 2]
    assert group.foreach_worker_with_id(lambda number, runner: number) == [1, 2]
    assert group.num_remote_env_runners() == group.num_remote_workers() == 2
    assert group.num_healthy_env_runners() == group.num_healthy_workers() == 2
    assert group.num_healthy_remote_workers() == 2
    assert group.healthy_env_runner_ids() == group.healthy_worker_ids() == [1, 2]
    assert group.probe_unhealthy_env_runners() == group.probe_unhealthy_workers() == []
    assert group.local_env_runner is group.local_worker() is None
    assert group.is_policy_to_train("default_policy")
    assert not group.is_policy_to_train("other")


def test_a_group_in_the_main_process_answers_alike():
    with config(num_env_runners=0).build_algo() as algo:
        group = algo.env_runner_group
        assert group.foreach_env_runner_async(index_of) == 1
        assert fetched(group) == [(0, 0)]
        assert group.foreach_env_runner(index_of, timeout_seconds=0.0) == [0]
        assert group.num_in_flight_async_reqs() == 0


def test_more_runners_and_others_in_the_same_places_go_on_with_the_episodes():
    def slots(algo):
        return algo.env_runner_group.get_state()["slots"]

    with config(num_env_runners=0).build_algo() as algo:
        algo.train()
        before = encode(slots(algo))
        algo.env_runner_group.add_workers(1)
        assert algo.env_runner_group.num_remote_env_runners() == 1
        assert encode(slots(algo)) == before
        algo.env_runner_group.reset()
        algo.env_runner_group.add_workers(1)
        assert algo.env_runner_group.num_slots == 4
        assert encode(slots(algo)[:2]) == before
        assert algo.train()["env_runners/num_env_steps_sampled"] == 40
    with config(num_env_runners=0).build_algo() as undisturbed, config().build_algo() as algo:
        undisturbed.train()
        algo.restore_from_path(undisturbed.save_to_path())
        algo.env_runner_group.reset()
        assert encode(slots(algo)[:2]) == encode(slots(undisturbed))


def test_runners_that_were_given_up_can_be_called_back():
    settings = {"restart_failed_env_runners": False, "ignore_env_runner_failures": True}
    with config(**settings).build_algo() as algo:
        group = algo.env_runner_group
        os.kill(group.env_runner_pids()[1], signal.SIGKILL)
        algo.train()
        assert group.healthy_env_runner_ids() == [2]
        assert group.foreach_env_runner(index_of) == [None, 2]
        assert group.probe_unhealthy_env_runners() == [1]
        assert group.foreach_env_runner(index_of) == [1, 2]


def test_the_number_of_runners_stays_while_an_iteration_may_be_undone(algo):
    group = algo.env_runner_group
    group.is_training = True
    with pytest.raises(TrainerError, match="while train"):
        group.add_workers(1)
    with pytest.raises(TrainerError, match="while train"):
        group.reset()
    group.is_training = False

"""Threads of the user's: one at a time works with an algorithm; actions are computed in turns."""

import pickle
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from checkpoints import encode
from tests.small_runs import small_ppo
from trainer import (
    AlgorithmStoppedError,
    EnvRunnerGroup,
    TrainedPolicy,
    TrainerError,
    export_policy,
)
from trainer.algorithms import algorithm
from trainer.runtime import threads
from trainer.runtime.threads import OneThread
from trainer.testing.envs import CountdownEnv
from trainer.testing.processes import wait_until

LIMIT_S = 20.0
OF_GROUP = "A method of the env runners"


class Waiting(CountdownEnv):
    """Its first step after `waits` is set says so, and waits until it may go on."""

    waits = threading.Event()
    is_there = threading.Event()
    may_go_on = threading.Event()

    def step(self, action):
        if self.waits.is_set():
            self.waits.clear()
            self.is_there.set()
            assert self.may_go_on.wait(LIMIT_S)
        return super().step(action)


@pytest.fixture
def other_thread():
    for event in (Waiting.waits, Waiting.is_there, Waiting.may_go_on):
        event.clear()
    with ThreadPoolExecutor(1, "other") as executor:
        yield executor
        Waiting.may_go_on.set()


def _in_the_middle(executor, call):
    """A call that another thread is in the middle of."""
    Waiting.waits.set()
    future = executor.submit(call)
    assert Waiting.is_there.wait(LIMIT_S)
    return future


def _state(algo):
    return encode(algo.get_state(not_components="config"))


def test_calls_of_another_thread_are_refused_and_change_nothing(tmp_path, other_thread):
    with small_ppo(env=Waiting).build_algo() as algo:
        state, path = algo.get_state(), algo.save_to_path(tmp_path / "begin")
        algo.train()
        algo.train()
        expected = _state(algo)
        algo.set_state(state)

        algo.train()
        weights = algo.get_weights()
        observation = np.zeros(algo.learner.module.observation_space.shape)
        under_way = _in_the_middle(other_thread, algo.train)
        calls = {
            "train()": algo.train,
            "evaluate()": algo.evaluate,
            "get_state()": algo.get_state,
            "set_state()": lambda: algo.set_state(state),
            "save_to_path()": lambda: algo.save_to_path(tmp_path / "torn"),
            "restore_from_path()": lambda: algo.restore_from_path(path),
            "add_module()": lambda: algo.add_module("more", copy_of="default_policy"),
            "compute_single_action()": lambda: algo.compute_single_action(observation),
            "compute_actions()": lambda: algo.compute_actions({"a": observation}),
            "get_weights()": algo.get_weights,
            "set_weights()": lambda: algo.set_weights(weights),
            "export_policy()": lambda: export_policy(algo, tmp_path / "torn.npz"),
        }
        group, held = algo.env_runner_group, algo.newest_policy()
        of_group = [
            lambda: group.foreach_env_runner(id),
            lambda: group.set_task(1),
            lambda: group.act_with(held),
            group.get_state,
            lambda: group.set_state(state["env_runners"]),
        ]
        for name, call in [*calls.items(), *((OF_GROUP, call) for call in of_group)]:
            with pytest.raises(TrainerError, match=r"train\(\) runs in thread 'other_0'") as caught:
                call()
            assert str(caught.value).startswith(f"{name} was called in thread 'MainThread' while")
        Waiting.may_go_on.set()
        assert under_way.result(LIMIT_S)["training_iteration"] == 2
        assert _state(algo) == expected
        assert not (tmp_path / "torn").exists()


def test_stop_ends_a_training_of_another_thread(other_thread):
    algo = small_ppo(env=Waiting).build_algo()
    under_way = _in_the_middle(other_thread, algo.train)
    Waiting.may_go_on.set()
    algo.stop()
    assert isinstance(under_way.exception(LIMIT_S), AlgorithmStoppedError | None)


def test_stop_says_who_is_still_at_work_and_leaves_their_envs_open(other_thread, monkeypatch):
    monkeypatch.setattr(algorithm, "_OTHERS_END_WITHIN_S", 0.05)
    algo = small_ppo(env=Waiting).build_algo()
    under_way = _in_the_middle(other_thread, algo.train)
    with pytest.raises(TrainerError, match=r"stop\(\) has waited .* train\(\) in thread 'other_0'"):
        algo.stop()
    Waiting.may_go_on.set()
    assert under_way.result(LIMIT_S)["training_iteration"] == 1
    algo.stop()
    assert algo.env_runner is None
    with pytest.raises(AlgorithmStoppedError):
        algo.train()


def test_a_group_serves_one_thread_at_a_time(other_thread):
    group = EnvRunnerGroup(config=small_ppo(env=Waiting))
    under_way = _in_the_middle(other_thread, lambda: group.sample_env_steps(40))
    with pytest.raises(TrainerError, match="one thread at a time"):
        group.sample_env_steps(40)
    Waiting.may_go_on.set()
    assert under_way.result(LIMIT_S).num_env_steps == 40
    assert group.sample_env_steps(40).num_env_steps == 40
    group.stop()


def test_who_is_gone_holds_nothing_up():
    one_thread = OneThread()
    lost = threading.Thread(target=lambda: one_thread.alone("train()").__enter__())
    lost.start()
    lost.join()
    with one_thread.alone("train()"), one_thread.alone("get_state()"):
        one_thread.refuse_others("evaluate()")
    with ThreadPoolExecutor(1) as executor:
        executor.submit(one_thread.refuse_others, "evaluate()").result(LIMIT_S)


def test_threads_read_together_and_never_beside_one_at_work(monkeypatch):
    one_thread, is_there, may_go = OneThread(), threading.Event(), threading.Event()
    order = []

    def read():
        with one_thread.reading("compute_single_action()"):
            is_there.set()
            assert may_go.wait(LIMIT_S)
            order.append("read")

    def train():
        with one_thread.alone("train()"):
            order.append("trained")

    with ThreadPoolExecutor(2, "other") as executor:
        reads = executor.submit(read)
        assert is_there.wait(LIMIT_S)
        with one_thread.reading("get_weights()"):
            pass
        with monkeypatch.context() as patch:
            patch.setattr(threads, "_READING_TAKES_S", 0.0)
            with pytest.raises(TrainerError, match=r"while compute_single_action\(\) runs"):
                train()
        trains = executor.submit(train)  # waits for the other's end, and lets no more begin
        assert wait_until(lambda: bool(one_thread._at_work))
        with pytest.raises(TrainerError, match=r"while train\(\) runs in thread 'other_1'"):
            one_thread.reading("get_weights()").__enter__()
        may_go.set()
        reads.result(LIMIT_S)
        trains.result(LIMIT_S)
        assert order == ["read", "trained"]
        with one_thread.alone("train()"), one_thread.reading("get_weights()"):
            with pytest.raises(TrainerError, match="while train"):
                executor.submit(read).result(LIMIT_S)
            with one_thread.alone("get_state()"):
                pass
        executor.submit(read).result(LIMIT_S)
    held = one_thread.reading("get_weights()")
    lost = threading.Thread(target=held.__enter__)
    lost.start()
    lost.join()
    with one_thread.alone("train()"):  # by an interrupt or a fork
        pass


def test_threads_that_ask_one_policy_get_the_actions_of_their_own_observations(tmp_path):
    with small_ppo(env="Pendulum-v1").build_algo() as algo:
        policy = TrainedPolicy.from_checkpoint(algo.save_to_path(tmp_path / "saved"))
        observations = np.random.default_rng(0).uniform(-1.0, 1.0, (100, 3)).astype(np.float32)
        expected = [policy.predict(one).tobytes() for one in observations]
        assert pickle.loads(pickle.dumps(policy)).predict(observations[0]).tobytes() == expected[0]
        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)  # threads take turns after every few instructions
        try:
            with ThreadPoolExecutor(4) as executor:
                for ask in (
                    policy.predict,
                    lambda one: algo.compute_single_action(one, explore=False),
                ):
                    answers = executor.map(ask, [*observations] * 3)
                    assert [one.tobytes() for one in answers] == expected * 3
        finally:
            sys.setswitchinterval(before)

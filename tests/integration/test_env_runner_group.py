"""The user's own code in runners, and what runners hold when it runs there."""

import functools
import os
import re
import signal
import threading

import numpy as np
import pytest

from callbacks import CallbackError
from tests.small_runs import Counting, small_ppo, told_and_known
from trainer import (
    ConfigError,
    RunnerFailedError,
    RunnerLostError,
    SerializationError,
    TrainerError,
)

pytestmark = pytest.mark.process


config = functools.partial(small_ppo, callbacks=Counting)


def outcome(algo):
    """The next result and everything the algorithm knows after it."""
    return told_and_known(algo, [algo.train()])


def undisturbed_outcome(num_env_runners):
    with config(num_env_runners).build_algo() as algo:
        algo.train()
        return outcome(algo)


def index_of(env_runner):
    return env_runner.worker_index


def callback_steps(env_runner):
    return env_runner.callbacks.objects[0].num_steps


@pytest.mark.parametrize(("num_env_runners", "expected"), [(0, [0]), (2, [1, 2])])
def test_results_come_in_the_order_of_the_runners(num_env_runners, expected):
    with config(num_env_runners).build_algo() as algo:
        group = algo.env_runner_group
        assert group.foreach_env_runner(index_of) == expected
        assert group.foreach_env_runner("ping") == ["pong"] * len(expected)
        assert group.foreach_env_runner_with_id(lambda n, r: (n, r.worker_index)) == [
            (n, n) for n in expected
        ]
        assert group.foreach_env(lambda env: env.length * 0) == [[0] * (4 // len(expected))] * len(
            expected
        )
        contexts = group.foreach_env_with_context(
            lambda env, context: (context.worker_index, context.vector_index, context.num_workers)
        )
        assert contexts == [
            [(n, v, num_env_runners) for v in range(4 // len(expected))] for n in expected
        ]


def test_arguments_lists_of_functions_and_chosen_runners():
    with config(2).build_algo() as algo:
        each = algo.env_runner_group.foreach_env_runner
        assert each(lambda r, a, b: (r.worker_index, a + b), kwargs={"a": 1, "b": 2}) == [
            (1, 3),
            (2, 3),
        ]
        assert each([lambda r: "first", lambda r: "second"]) == ["first", "second"]
        assert each(index_of, remote_worker_ids=[2]) == [2]
        assert each(index_of, remote_worker_ids=[2, 1]) == [2, 1]
        assert each(index_of, remote_worker_ids=[]) == []
        assert each(index_of, local_env_runner=False) == [1, 2]
        assert each("sample", kwargs={"num_timesteps": 3}, remote_worker_ids=[1])[0][0].t == 2
        with pytest.raises(ConfigError, match=r"there is no \[3\]; there are 1 … 2"):
            each(index_of, remote_worker_ids=[1, 3])
        with pytest.raises(ConfigError, match=r"got 1 functions for 2 env runners \[1, 2\]"):
            each([index_of])


def test_without_processes_only_the_local_runner_can_be_left_out():
    with config(0).build_algo() as algo:
        assert algo.env_runner_group.foreach_env_runner(index_of, local_env_runner=False) == []
        assert algo.env_runner_group.local_env_runner is algo.env_runner
        assert algo.env_runner_group.env_runner_pids() == {}


@pytest.mark.parametrize("num_env_runners", [0, 2])
def test_an_error_of_the_function_is_raised_and_nothing_is_restarted(num_env_runners):
    def fails_in_the_last(env_runner):
        env_runner.sample(num_timesteps=9)
        if env_runner.worker_index == num_env_runners:
            raise KeyError("user's own")

    with config(num_env_runners).build_algo() as algo:
        algo.train()
        pids = algo.env_runner_group.env_runner_pids()
        with pytest.raises(KeyError, match="user's own") as raised:
            algo.env_runner_group.foreach_env_runner(fails_in_the_last)
        if num_env_runners:
            assert isinstance(raised.value.__cause__, RunnerFailedError)
            assert "Env runner 2 raised" in str(raised.value.__cause__)
            assert "in fails_in_the_last" in str(raised.value.__cause__), "the remote traceback"
        assert algo.env_runner_group.env_runner_pids() == pids
        assert algo.env_runner_group.num_remote_worker_restarts() == 0
        if num_env_runners == 0:
            # What the failed function did is undone: it never happened.
            assert outcome(algo) == undisturbed_outcome(0)


def test_a_function_that_kills_its_process_is_called_again_in_the_new_one(tmp_path):
    armed = tmp_path / "armed"
    armed.touch()

    def kills_once(env_runner):
        if env_runner.worker_index == 2 and armed.exists():
            armed.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return env_runner.worker_index, callback_steps(env_runner)

    with config(2).build_algo() as algo:
        algo.train()
        before = algo.env_runner_group.foreach_env_runner(callback_steps)
        answers = algo.env_runner_group.foreach_env_runner(kills_once)
        assert answers == [(1, before[0]), (2, before[1])]
        assert algo.env_runner_group.num_remote_worker_restarts() == 1
        assert outcome(algo) == undisturbed_outcome(2)


def test_a_function_that_kills_twice_is_told_and_costs_no_episode():
    def kills(env_runner):
        os.kill(os.getpid(), signal.SIGKILL)

    with config(2).build_algo() as algo:
        algo.train()
        with pytest.raises(RunnerLostError, match=r"SIGKILL.*ran the function given to foreach"):
            algo.env_runner_group.foreach_env_runner(kills, remote_worker_ids=[1])
        told = algo.train()["fault_tolerance"]
        assert (told["num_episodes_lost"], told["num_remote_worker_restarts"]) == (0, 2)


def test_a_function_that_cannot_travel_changes_nothing():
    lock = threading.Lock()
    with config(2).build_algo() as algo:
        algo.train()
        with pytest.raises(SerializationError, match="was not asked"):
            algo.env_runner_group.foreach_env_runner(lambda r: lock)
        versions = algo.env_runner_group.foreach_env_runner(lambda r: r.weights_version)
        assert versions == [1, 1], "the weights that were due with the failed call arrive later"
        assert outcome(algo) == undisturbed_outcome(2)


def test_an_answer_that_cannot_travel_is_an_error_of_the_function():
    with config(1).build_algo() as algo:
        with pytest.raises(SerializationError, match="cannot be sent to another process"):
            algo.env_runner_group.foreach_env_runner(lambda r: threading.Lock())
        assert algo.env_runner_group.num_remote_worker_restarts() == 0


@pytest.mark.parametrize("num_env_runners", [0, 2])
def test_what_a_function_plays_does_not_count_as_sampled(num_env_runners):
    with config(num_env_runners).build_algo() as algo:
        algo.train()
        lengths = algo.env_runner_group.foreach_env_runner(
            lambda r: sum(map(len, r.sample(num_timesteps=31)))
        )
        assert lengths == [31] * max(1, num_env_runners)
        result = algo.train()
        assert result["env_runners/num_env_steps_sampled"] == 60
        assert result["num_env_steps_sampled_lifetime"] == 120
        assert result["learners/__all_modules__/num_env_steps_trained_lifetime"] == 120


def weights_in(algo):
    return algo.env_runner_group.foreach_env_runner(
        lambda r: (r.weights_version, r.get_weights()["pi/0/kernel"])
    )


@pytest.mark.parametrize("num_env_runners", [0, 2])
def test_runners_always_act_with_the_newest_weights(num_env_runners, tmp_path):
    def check(algo, version):
        expected = algo.get_weights()["default_policy"]["pi/0/kernel"]
        for found_version, found in weights_in(algo):
            assert found_version == version
            assert np.array_equal(found, expected)

    with config(num_env_runners).build_algo() as algo:
        check(algo, 0)
        algo.train()
        check(algo, 1)
        path = algo.save_to_path(tmp_path / "checkpoint")
        algo.train()
        weights = algo.get_weights()["default_policy"]
        algo.set_weights({"default_policy": {name: array + 1 for name, array in weights.items()}})
        check(algo, 2)
        algo.restore_from_path(path)
        check(algo, 1)
        for pid in algo.env_runner_group.env_runner_pids().values():
            os.kill(pid, signal.SIGKILL)
        check(algo, 1)


def test_weights_set_in_a_runner_last_until_the_next_ones_arrive():
    def zero(env_runner):
        env_runner.set_weights({k: 0 * v for k, v in env_runner.get_weights().items()})

    with config(1).build_algo() as algo:
        algo.env_runner_group.foreach_env_runner(zero)
        assert not weights_in(algo)[0][1].any()
        algo.train()
        assert weights_in(algo)[0][1].any()


def test_an_error_in_a_callback_of_a_runner_is_not_a_failure_of_the_runner():
    def boom(**kwargs):
        raise ZeroDivisionError("in the callback")

    with config(2).callbacks(on_episode_end=boom).build_algo() as algo:
        with pytest.raises(CallbackError, match=r"boom.*on_episode_end.*env runner \d") as raised:
            algo.train()
        assert isinstance(raised.value.__cause__, ZeroDivisionError)
        assert algo.env_runner_group.num_remote_worker_restarts() == 0
        assert algo.training_iteration == 0


@pytest.mark.parametrize(
    ("where", "stored", "expected"),
    [
        (
            "custom_metrics",
            "fast",
            r"MetricsError: episode\.custom_metrics\['x'\] is 'fast', not a",
        ),
        ("custom_data", threading.Lock, r"EpisodeError: .* keys \['x'\] cannot be copied"),
    ],
)
def test_what_a_callback_wrongly_stored_is_no_failure_of_the_runner(where, stored, expected):
    def store(episode, **_):
        getattr(episode, where)["x"] = stored() if callable(stored) else stored

    with config(1, train_batch_size=61).callbacks(on_episode_start=store).build_algo() as algo:
        pids = algo.env_runner_group.env_runner_pids()
        with pytest.raises(TrainerError) as raised:
            algo.train()
        assert re.match(expected, f"{type(raised.value).__name__}: {raised.value}")
        assert algo.env_runner_group.env_runner_pids() == pids
        assert algo.training_iteration == 0


def test_what_cannot_be_sent_is_named_with_its_place_in_the_episode():
    def store(episode, **_):
        episode.user_data["x"] = threading.Lock()

    told = r"^The answer\.episodes\[0\]\.user_data\['x'\] is a lock, which cannot be sent"
    made = config(1, train_batch_size=61).callbacks(on_episode_start=store)
    made.fault_tolerance(num_consecutive_env_runner_failures_tolerance=1)
    with made.build_algo() as algo, pytest.raises(SerializationError, match=told):
        algo.train()


def test_every_sub_env_of_an_algorithm_has_a_number_of_its_own():
    made = config(2).env_runners(num_envs_per_env_runner=2)
    made.evaluation(evaluation_num_env_runners=1, evaluation_interval=1)
    made.evaluation(evaluation_config={"num_envs_per_env_runner": 3})

    def places(env_runner):
        return [
            (c.worker_index, c.vector_index, c.is_evaluation, c.unique_index)
            for c in env_runner.env.contexts
        ]

    with made.build_algo() as algo:
        training = algo.env_runner_group.foreach_env_runner(places)
        evaluation = algo.eval_env_runner_group.foreach_env_runner(places)
        os.kill(algo.env_runner_group.env_runner_pids()[2], signal.SIGKILL)
        assert algo.env_runner_group.foreach_env_runner(places) == training
    assert training == [
        [(1, 0, False, 0), (1, 1, False, 2)],
        [(2, 0, False, 4), (2, 1, False, 6)],
    ]
    assert evaluation == [[(1, 0, True, 1), (1, 1, True, 3), (1, 2, True, 5)]]

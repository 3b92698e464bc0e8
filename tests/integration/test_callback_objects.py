"""Callback objects in their processes: what they keep, what they share, and when they fail."""

import logging
import os
import signal
import sys

import numpy as np
import pytest

from callbacks import CallbackError, MultiCallbacks, RLlibCallback
from tests.small_runs import small_ppo
from trainer import PPO
from trainer.testing.envs import CountdownEnv


class Tally(RLlibCallback):
    """Counts by its own step, without `super().__init__()`: two of them have different states."""

    def __init__(self, step=1):
        self.step = step
        self.results = 0
        self.env_steps = 0
        self.seen = {"lengths": np.zeros(0, np.int64)}

    def on_train_result(self, **kwargs):
        self.results += self.step

    def on_episode_step(self, **kwargs):
        self.env_steps += self.step

    def on_episode_end(self, *, episode, **kwargs):
        self.seen["lengths"] = np.append(self.seen["lengths"], self.step * episode.t)


def config(num_env_runners, callbacks, **settings):
    batch = {"train_batch_size": 40, "minibatch_size": 40}
    return small_ppo(num_env_runners, callbacks=callbacks, **batch, **settings)


def on_driver(algo):
    return [(tally.results, tally.env_steps) for tally in algo.callbacks.objects]


def of_runner(env_runner):
    return [
        (tally.results, tally.env_steps, tally.seen["lengths"].tolist())
        for tally in env_runner.callbacks.objects
    ]


def on_runners(algo):
    return algo.env_runner_group.foreach_env_runner(of_runner)


def two():
    return [Tally(), lambda: Tally(100)]


@pytest.mark.process
@pytest.mark.parametrize("num_env_runners", [0, 2])
def test_two_callbacks_of_one_class_keep_their_own_states(num_env_runners, tmp_path):
    with config(num_env_runners, two()).build_algo() as algo:
        algo.train()
        algo.train()
        steps = 80 // max(1, num_env_runners)
        assert on_driver(algo) == [(2, 0), (200, 0)]
        before = on_runners(algo)
        assert [[(r, s) for r, s, _ in runner] for runner in before] == [
            [(0, steps), (0, 100 * steps)]
        ] * max(1, num_env_runners)
        assert all(
            [100 * length for length in small] == large and large
            for (_, _, small), (_, _, large) in before
        )
        for pid in algo.env_runner_group.env_runner_pids().values():
            os.kill(pid, signal.SIGKILL)
        assert on_runners(algo) == before, "a replaced runner has the state of the lost one"
        path = algo.save_to_path(tmp_path / "checkpoint")
        algo.train()
        after = (on_driver(algo), on_runners(algo))
    with PPO.from_checkpoint(path, env=CountdownEnv, callbacks_class=two()) as restored:
        assert (on_driver(restored), on_runners(restored)) == ([(2, 0), (200, 0)], before)
        restored.train()
        assert (on_driver(restored), on_runners(restored)) == after


@pytest.mark.process
@pytest.mark.parametrize(
    ("saved_with", "restored_with", "expected", "dropped"),
    [
        (1, 0, [10], None),
        (2, 1, [10], "2"),
        (0, 2, [10, 7], None),
    ],
)
def test_runners_of_another_number_get_the_state_of_their_own_number(
    saved_with, restored_with, expected, dropped, tmp_path, caplog
):
    def mark(env_runner):
        env_runner.callbacks.objects[0].results = 10 * max(1, env_runner.worker_index)

    def marks(env_runner):
        return env_runner.callbacks.objects[0].results

    pattern = Tally()
    pattern.results = 7
    with config(saved_with, pattern).build_algo() as algo:
        algo.env_runner_group.foreach_env_runner(mark)
        path = algo.save_to_path(tmp_path / "checkpoint")
    num_envs = 4 // max(1, restored_with)
    with (
        caplog.at_level(logging.WARNING),
        PPO.from_checkpoint(
            path,
            env=CountdownEnv,
            callbacks_class=pattern,
            num_env_runners=restored_with,
            num_envs_per_env_runner=num_envs,
        ) as restored,
    ):
        assert restored.env_runner_group.foreach_env_runner(marks) == expected
        restored.train()
    texts = [record.message for record in caplog.records if "callback state" in record.message]
    assert len(texts) == (dropped is not None)
    assert all(f"env runner(s) {dropped} is dropped" in text for text in texts)


@pytest.mark.process
@pytest.mark.parametrize("num_env_runners", [0, 1])
def test_main_process_and_runners_share_no_callback_object(num_env_runners):
    pattern = Tally()
    shared = [Tally(), MultiCallbacks([Tally]), pattern]
    made = config(num_env_runners, shared, evaluation_interval=1, evaluation_duration=2)
    with made.build_algo() as algo:
        algo.train()
        assert algo.callbacks.objects[0].results == 1
        assert algo.callbacks.objects[0].env_steps == 0
        assert algo.callbacks.objects[1].chain.objects[0].env_steps == 0
        assert (pattern.results, pattern.env_steps) == (0, 0)
        groups = (algo.env_runner_group, algo.eval_env_runner_group)
        training, evaluation = (
            group.foreach_env_runner(lambda runner: runner.callbacks.objects[0].env_steps)
            for group in groups
        )
        assert training == [40]
        assert 0 < evaluation[0] < 40
        if num_env_runners == 0:
            runners = [group.local_env_runner for group in groups]
            objects = [algo.callbacks.objects, *(runner.callbacks.objects for runner in runners)]
            ids = {id(one) for chain in objects for one in chain} | {id(pattern)}
            assert len(ids) == 10


@pytest.mark.process
@pytest.mark.parametrize("num_env_runners", [0, 1])
def test_a_callback_that_exits_ends_training_and_no_process(num_env_runners):
    def leave_once(episode):
        if episode.id_ == "training-0-1":
            sys.exit(3)

    made = config(num_env_runners, Tally).callbacks(on_episode_start=leave_once)
    with made.build_algo() as algo:
        pids = algo.env_runner_group.env_runner_pids()
        with pytest.raises(CallbackError, match=r"raised SystemExit: 3.*episode training-0-1"):
            algo.train()
        assert algo.env_runner_group.env_runner_pids() == pids
        assert algo.env_runner_group.num_restarts == 0
        assert on_driver(algo) == [(0, 0)]

"""Sub-envs that raise at random moments make no difference to anything that is learnt."""

import random
from typing import Any

import pytest

from callbacks import RLlibCallback
from checkpoints import encode
from trainer import DQNConfig, PPOConfig, TaskSettableEnv
from trainer.metrics import comparable
from trainer.testing.envs import CountdownEnv

_PROBABILITY = 0.012
"""Of a failure in one call; episodes that are played again may fail again."""


class Flaky(CountdownEnv, TaskSettableEnv[Any, Any]):
    """Raises at moments that are no part of any episode; its task is a part of its observations.

    Settings: seed, of the moments; None never fails.
    """

    failures = {}

    def __init__(self, env_config):
        super().__init__({"min_length": 6, "max_length": 30})
        self._seed = env_config.get("seed")
        self._task = 0

    def get_task(self):
        return self._task

    def set_task(self, task):
        self._task = task

    def noise(self):
        return (super().noise() + 0.001 * self._task) % 1.0

    def reset(self, *, seed=None, options=None):
        self._may_fail()
        return super().reset(seed=seed, options=options)

    def step(self, action):
        answer = super().step(action)
        self._may_fail()  # the env is spoilt: it has made the step already
        return answer

    def _may_fail(self):
        if self._seed is None:
            return
        state = self.failures  # of this process: every call of every env counts
        if state.get("seed") != self._seed:
            state.update(seed=self._seed, rng=random.Random(self._seed))
        if state["rng"].random() < _PROBABILITY:
            raise OSError("at random")


class Counting(RLlibCallback):
    """Has state, logs, and sets a task in the middle of episodes."""

    def __init__(self):
        self.num_steps = 0

    def on_episode_step(self, *, episode, metrics_logger, env, env_index, **_):
        self.num_steps += 1
        episode.custom_data["steps"] = episode.custom_data.get("steps", 0) + 1
        metrics_logger.log_value("steps", 1, reduce="sum")
        if episode.t == 4:
            env.envs[env_index].set_task(self.num_steps % 7)

    def on_episode_end(self, *, episode, prev_episode_chunks, **_):
        chunks = [*prev_episode_chunks, episode]
        assert sum(map(len, chunks)) == episode.t == episode.custom_data["steps"]


def config(make, num_env_runners, seed):
    if make == "ppo":
        made = PPOConfig().training(train_batch_size=80, minibatch_size=40, num_epochs=1)
    else:
        made = DQNConfig().training(train_batch_size=8, num_steps_sampled_before_learning_starts=0)
    return (
        made.environment(Flaky, env_config={"seed": seed}, env_task_fn=lambda result, *_: 3)
        .env_runners(
            num_env_runners=num_env_runners,
            num_envs_per_env_runner=4 // max(1, num_env_runners),
            observation_filter="MeanStdFilter",
        )
        .training(model={"fcnet_hiddens": [8]})
        .evaluation(evaluation_interval=2, evaluation_duration=4)
        .callbacks(Counting)
        .fault_tolerance(restart_failed_sub_environments=True)
        .reporting(min_sample_timesteps_per_iteration=80)
        .debugging(seed=5)
    )


def outcome(make, num_env_runners, seed):
    with config(make, num_env_runners, seed).build_algo() as algo:
        results = [algo.train() for _ in range(4)]
        plain = [{**comparable(result), "config": None} for result in results]
        state = {**algo.get_state(), "config": None}
    told = results[-1]
    assert told["fault_tolerance/num_episodes_lost_lifetime"] == 0
    assert told["fault_tolerance/num_remote_worker_restarts"] == 0
    restarts = told["fault_tolerance/num_sub_environment_restarts"]
    return encode([plain, state]), restarts + told["evaluation/num_sub_environment_restarts"]


@pytest.mark.parametrize(("make", "num_env_runners"), [("ppo", 2), ("dqn", 0)])
def test_failures_at_random_moments_change_no_byte(make, num_env_runners):
    expected, none = outcome(make, num_env_runners, None)
    repaired, some = outcome(make, num_env_runners, 1)
    assert none == 0
    assert some >= 2
    assert repaired == expected


@pytest.mark.slow
@pytest.mark.parametrize("make", ["ppo", "dqn"])
def test_that_holds_for_many_seeds(make):
    expected, _ = outcome(make, 0, None)
    for seed in range(2, 40):
        repaired, some = outcome(make, 0, seed)
        assert some
        assert repaired == expected, f"seed {seed}"

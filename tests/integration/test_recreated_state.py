"""A runner that replaces another knows all that a runner that was never lost would know."""

from typing import Any

import pytest

from tests.small_runs import Counting, kill
from trainer import DQNConfig, PPOConfig, TaskSettableEnv
from trainer.testing.envs import CountdownEnv

pytestmark = pytest.mark.process


class WithTask(CountdownEnv, TaskSettableEnv[Any, Any]):
    """Its task is a number that changes nothing."""

    def __init__(self, env_config):
        super().__init__({"min_length": 6})
        self.context = env_config
        self._task = 0

    def get_task(self):
        return self._task

    def set_task(self, task):
        self._task = task


def known(env_runner):
    """What a runner holds, as plain data."""
    player = env_runner._player
    encoder, strategy = player.policy._encoder, player.policy.strategy
    return {
        "weights version": env_runner.weights_version,
        "weights": {name: a.tobytes() for name, a in env_runner.get_weights().items()},
        "statistics": None if encoder.normalizer is None else encoder.normalizer.mean.tobytes(),
        "tasks": env_runner.env.foreach_env(lambda env: env.get_task()),
        "exploration": None if strategy is None else repr(strategy.runner_state()),
        "counters": env_runner._timestep,
        "callbacks": env_runner.callbacks.get_state(),
        "episodes": [
            (slot.episode_number, slot.env_seed, slot.num_steps_played) for slot in player.slots
        ],
        "evaluation": player.evaluation,
    }


def is_recreated(env_runner):
    contexts = env_runner.env.contexts
    made = [env.unwrapped.context for env in env_runner.env.envs]
    assert [c.recreated_worker for c in made] == [c.recreated_worker for c in contexts]
    return [context.recreated_worker for context in contexts]


def ppo():
    made = PPOConfig().training(minibatch_size=30, num_epochs=1)
    return made.training(train_batch_size=60, model={"fcnet_hiddens": [8]})


def dqn():
    made = DQNConfig().training(num_steps_sampled_before_learning_starts=0)
    return made.training(train_batch_size=8, model={"fcnet_hiddens": [8]})


def built(make, told):
    def ask_them(env_runner_group, env_runner_indices, is_evaluation):
        answers = env_runner_group.foreach_env_runner(
            lambda env_runner: env_runner.worker_index,
            remote_worker_ids=env_runner_indices,
            local_env_runner=False,
        )
        told.append((env_runner_indices, answers, is_evaluation))

    return (
        make()
        .environment(WithTask, env_task_fn=lambda *_: 7)
        .env_runners(
            num_env_runners=2, num_envs_per_env_runner=2, observation_filter="MeanStdFilter"
        )
        .evaluation(evaluation_num_env_runners=1, evaluation_duration=2)
        .callbacks(Counting, on_env_runners_recreated=ask_them)
        .debugging(seed=5)
        .build_algo()
    )


@pytest.mark.parametrize("make", [ppo, pytest.param(dqn, marks=pytest.mark.slow)])
def test_a_replacement_is_never_stale(make):
    told = []
    with built(make, told) as algo:
        for _ in range(3):
            algo.train()
        algo.evaluate()
        for group, killed in (
            (algo.env_runner_group, (2,)),
            (algo.eval_env_runner_group, (1,)),
        ):
            group.sync_weights()  # the newest ones, which else go along with the next request
            undisturbed = group.foreach_env_runner(known)
            kill(group, *killed)
            repaired = group.foreach_env_runner(known)
            for found, expected in zip(repaired, undisturbed, strict=True):
                assert {key: found[key] == expected[key] for key in expected} == dict.fromkeys(
                    expected, True
                )
            assert group.foreach_env_runner(is_recreated)[killed[0] - 1] == [True, True]
        assert undisturbed[0]["weights version"] > 0
        assert algo.env_runner_group.foreach_env_runner(known)[0]["tasks"] == [7, 7]
    assert told == [([2], [2], False), ([1], [1], True)]

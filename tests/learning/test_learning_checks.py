"""Ways to ruin learning: each is told with its cause; runs that learn are told nothing."""

import gymnasium
import numpy as np
import pytest

from benchmarks.quality.ruined import Scaled
from trainer import DQNConfig, PPOConfig
from trainer.learners.learning_checks import findings
from trainer.testing.envs import CorridorEnv

pytestmark = pytest.mark.learning


def ppo(env="CartPole-v1", **settings):
    config = PPOConfig.recipe("CartPole-v1").environment(env)
    return config.training(**{"lr": 1e-3, "clip_param": 0.2, "train_batch_size": 1024, **settings})


def scaled(**factors):
    return ppo(Scaled).environment(env_config={"name": "CartPole-v1", **factors})


def pendulum(**model):
    config = PPOConfig.recipe("Pendulum-v1").training(train_batch_size=1024)
    return config.rl_module(model_config=model)


def dqn(**settings):
    return DQNConfig.recipe("CartPole-v1").training(**{"lr": 1e-3, **settings})


class Endless(gymnasium.Env):
    """Goes on for ever, and pays for the second action."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), float(action), False, False, {}


TOO_FAST = ("kl_far_above_target", "entropy_collapsed")
"""Which comes first depends on rounding: one update may leave a policy that nothing moves again.
Both say first that lr is to be lowered."""

RUINED = {
    "learning rate x 300": (lambda: ppo(lr=0.3), TOO_FAST, 20),
    "learning rate / 10,000": (lambda: ppo(lr=1e-7), ("updates_change_nothing",), 40),
    "learning rate that falls to 0 at once": (
        lambda: ppo(lr=[[0, 1e-4], [1000, 0.0]]), ("learning_rate_is_zero",), 20),
    "value clip far below the returns": (
        lambda: scaled(reward=100.0).training(vf_clip_param=10.0),
        ("value_loss_beyond_clip",), 20),
    "rewards x 10,000 without normalisation": (
        lambda: scaled(reward=1e4),
        ("rewards_beg_for_normalization",), 20),
    "observations x 10,000 without normalisation": (
        lambda: scaled(obs=1e4),
        ("observations_beg_for_normalization",), 20),
    "no clip and many epochs": (
        lambda: ppo(clip_param=100.0, num_epochs=100, lr=1e-2, grad_clip=None), TOO_FAST, 20),
    "learning rate x 300 where all episodes end alike": (
        lambda: PPOConfig.recipe("Acrobot-v1").training(lr=0.1), TOO_FAST, 10),
    "a clip of nothing": (lambda: ppo(clip_param=1e-4), ("ratio_clipped_everywhere",), 20),
    "entropy coefficient 10": (lambda: ppo(entropy_coeff=10.0), ("policy_stays_random",), 40),
    "deviation far beyond the bounds": (
        lambda: pendulum(log_std_init=4.0), ("actions_at_bounds",), 20),
    "gradients clipped to nothing": (
        lambda: ppo(grad_clip=1e-7, lr=1e-6), ("gradients_always_clipped",), 40),
    "episodes without end": (
        lambda: ppo(Endless).env_runners(num_envs_per_env_runner=1), ("episodes_never_end",), 12),
    "learning starts too late": (
        lambda: dqn(num_steps_sampled_before_learning_starts=10**6),
        ("never_learns_from_replay",), 100),
    "values that chase themselves": (
        lambda: dqn(lr=1.0, target_network_update_freq=1, grad_clip=None), ("values_diverge",), 8),
}  # fmt: skip

SOUND = {
    "PPO": (lambda: ppo(), 40),
    "PPO with numbers for actions": (lambda: PPOConfig.recipe("Pendulum-v1"), 20),
    "DQN": (lambda: DQNConfig.recipe("CartPole-v1"), 15),
    "PPO in a corridor that it soon knows": (
        lambda: PPOConfig().environment(CorridorEnv).training(train_batch_size=1000, lr=1e-3),
        40,  # in iteration 51 an update of 5 nats makes it forget the way: that is told
    ),
}


def results_of(config, num_iterations):
    with config.debugging(seed=0).build_algo() as algo:
        return [algo.train() for _ in range(num_iterations)]


LONG = (
    "learning starts too late",
    "PPO in a corridor that it soon knows",
    "PPO with numbers for actions",
    "DQN",
    "values that chase themselves",
    "no clip and many epochs",
    "learning rate x 300 where all episodes end alike",
    "learning rate / 10,000",
    "entropy coefficient 10",
)


def with_long_ones_slow(names):
    return [pytest.param(n, marks=[pytest.mark.slow] if n in LONG else []) for n in names]


@pytest.mark.parametrize("way", with_long_ones_slow(RUINED))
def test_what_ruins_learning_is_told_first(way):
    make, check, num_iterations = RUINED[way]
    found = findings(results_of(make(), num_iterations))
    assert found
    assert found[0].check in check


@pytest.mark.parametrize("run", with_long_ones_slow(SOUND))
def test_nothing_is_told_of_a_run_that_learns(run):
    make, num_iterations = SOUND[run]
    assert findings(results_of(make(), num_iterations)) == []

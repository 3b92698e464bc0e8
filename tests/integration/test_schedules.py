"""Settings of learning steps.

Schedules are read at the env steps that were sampled before an update, as in RLlib.
"""

import pytest

from trainer import DQNConfig, PGConfig, PPOConfig, SACConfig, TD3Config
from trainer.testing.envs import ContinuousEnv, CountdownEnv

_FALLS_AT_ONCE = [[0, 1e-2], [128, 0.0]]


def _on_policy(config, **settings):
    return (
        config.environment(CountdownEnv)
        .env_runners(num_env_runners=0)
        .training(train_batch_size=128, model={"fcnet_hiddens": [4]}, **settings)
        .debugging(seed=1)
    )


def _weights(algo):
    return algo.get_module().parameters.flat.tobytes()


@pytest.mark.parametrize("config_class", [PPOConfig, PGConfig])
def test_the_first_update_learns_with_the_first_value_of_a_schedule(config_class):
    with _on_policy(config_class(), lr=_FALLS_AT_ONCE).build_algo() as algo:
        weights, rates = [_weights(algo)], []
        for _ in range(2):
            learner = algo.train()["learners"]["default_policy"]
            rates.append(learner["default_optimizer_learning_rate"])
            weights.append(_weights(algo))
    assert rates == [1e-2, 0.0]
    assert weights[0] != weights[1] == weights[2]


def test_the_entropy_coefficient_begins_at_its_first_value():
    settings = {"entropy_coeff": [[0, 0.1], [256, 0.0]], "num_epochs": 1}
    with _on_policy(PPOConfig(), **settings).build_algo() as algo:
        learners = [algo.train()["learners"]["default_policy"] for _ in range(3)]
    assert [each["curr_entropy_coeff"] for each in learners] == [0.1, 0.05, 0.0]


def test_the_ratio_is_clipped_less_and_less():
    """With ε = 0 the policy moves by its first step alone: later ones have no gradient."""

    def moved(clip_param):
        settings = {"clip_param": clip_param, "num_epochs": 5, "lr": 1e-2, "use_kl_loss": False}
        with _on_policy(PPOConfig(), **settings, vf_loss_coeff=0.0).build_algo() as algo:
            return [algo.train()["learners/default_policy/mean_kl_loss"] for _ in range(2)]

    falling, constant = moved([[0, 0.3], [128, 0.0]]), moved(0.3)
    assert falling[0] == constant[0]
    assert 0.0 < falling[1] < 0.5 * constant[1]


@pytest.mark.parametrize(
    ("config", "rate"),
    [
        (DQNConfig().environment(CountdownEnv), {"lr": [[0, 1e-2], [8, 0.0]]}),
        (
            SACConfig().environment(ContinuousEnv),
            {name: [[0, 1e-2], [8, 0.0]] for name in ("actor_lr", "critic_lr", "alpha_lr")},
        ),
        (
            TD3Config().environment(ContinuousEnv).training(policy_delay=1),
            {name: [[0, 1e-2], [8, 0.0]] for name in ("actor_lr", "critic_lr")},
        ),
    ],
    ids=["DQN", "SAC", "TD3"],
)
def test_learning_from_replay_begins_at_the_first_value(config, rate):
    config.env_runners(num_env_runners=0, rollout_fragment_length=8).training(
        train_batch_size=8,
        num_steps_sampled_before_learning_starts=0,
        model={"fcnet_hiddens": [4]},
        **rate,
    ).reporting(min_sample_timesteps_per_iteration=8)
    with config.build_algo() as algo:
        weights = [_weights(algo)]
        for _ in range(2):
            algo.train()
            weights.append(_weights(algo))
    assert weights[0] != weights[1] == weights[2]


@pytest.mark.parametrize(
    "config",
    [
        _on_policy(PPOConfig(), minibatch_size=128, num_epochs=1),
        _on_policy(PGConfig()),
        DQNConfig().environment(CountdownEnv),
        SACConfig().environment(ContinuousEnv),
        TD3Config().environment(ContinuousEnv),
    ],
    ids=["PPO", "PG", "DQN", "SAC", "TD3"],
)
def test_a_large_epsilon_makes_adams_steps_small(config):
    """Adam's first step is lr · g / (|g| + ε): of size lr, or of size lr · g / ε."""
    config.env_runners(num_env_runners=0)
    if not isinstance(config, PPOConfig | PGConfig):
        config.training(
            train_batch_size=8,
            num_steps_sampled_before_learning_starts=0,
            model={"fcnet_hiddens": [4]},
        ).reporting(min_sample_timesteps_per_iteration=1)

    def moved(epsilon):
        with config.copy(copy_frozen=False).training(adam_epsilon=epsilon).build_algo() as algo:
            before = algo.get_module().parameters.flat.copy()
            algo.train()
            return abs(algo.get_module().parameters.flat - before).max()

    assert moved(1e6) < 1e-3 * moved(1e-8)

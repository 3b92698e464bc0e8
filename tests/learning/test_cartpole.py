"""The main job: PPO solves CartPole-v1 with processes, from three seeds."""

import pytest

from trainer import PPOConfig

pytestmark = [pytest.mark.learning, pytest.mark.process]

SEEDS = (0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow))


@pytest.mark.parametrize("seed", SEEDS)
def test_cartpole_is_solved_within_120_000_steps(seed):
    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=2, num_envs_per_env_runner=4)
        .training(
            train_batch_size=2048,
            minibatch_size=64,
            num_epochs=10,
            lr=3e-4,
            clip_param=0.2,
            lambda_=0.95,
            use_kl_loss=False,
            vf_loss_coeff=0.5,
            vf_clip_param=float("inf"),
            grad_clip=0.5,
            model={"fcnet_hiddens": [64, 64]},
        )
        .debugging(seed=seed)
    )
    mean_return = 0.0
    with config.build_algo() as algo:
        while algo.counters.num_env_steps_sampled + 2048 <= 120_000:
            mean_return = algo.train()["env_runners/episode_return_mean"]
            if mean_return >= 450:
                break
    assert mean_return >= 450

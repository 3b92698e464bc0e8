"""TD3 and DDPG follow a number, and TD3 swings the pendulum up."""

import numpy as np
import pytest

from tests.learning.test_sac_learns import Follow
from trainer import DDPGConfig, TD3Config

pytestmark = pytest.mark.learning

SMALL = {
    "train_batch_size": 64,
    "num_steps_sampled_before_learning_starts": 500,
    "model": {"fcnet_hiddens": [64, 64]},
    "seed": 0,
}


@pytest.mark.parametrize("make", [TD3Config, pytest.param(DDPGConfig, marks=pytest.mark.slow)])
def test_a_number_that_is_shown_is_followed(make):
    config = make().environment(Follow).training(tau=0.02).update_from_dict(SMALL)
    with config.build_algo() as algo:
        for _ in range(3):
            algo.train()
        for number in (-0.8, -0.2, 0.5):
            shown = np.array([number], np.float32)
            action = algo.compute_single_action(shown, explore=False)
            assert action[0] == pytest.approx(number, abs=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_td3_swings_the_pendulum_up(seed):
    # Measured: 10,000 env steps or fewer, 4 s.
    config = TD3Config().environment("Pendulum-v1").update_from_dict({**SMALL, "seed": seed})
    config.evaluation(evaluation_duration=20)
    with config.build_algo() as algo:
        for _ in range(15):
            algo.train()
            if algo.evaluate()["env_runners"]["episode_return_mean"] > -200:
                break
        else:
            pytest.fail("-200 was not reached in 15,000 env steps")

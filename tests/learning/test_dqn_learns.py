"""DQN finds the known best way of a tiny env, whatever it is made of; larger envs: `test_tasks`."""

import pytest

from tests.learning.test_ppo_learns import WindingCorridor
from trainer import DQNConfig
from trainer.testing.envs import CorridorEnv

pytestmark = pytest.mark.learning

SETTINGS = {
    "plain": {"double_q": False, "dueling": False, "n_step": 1},
    "all": {},
    "atoms": {"num_atoms": 11, "v_min": -1.0, "v_max": 2.0},
}


@pytest.mark.parametrize(
    "settings", [pytest.param("plain", marks=pytest.mark.slow), "all", "atoms"]
)
def test_the_end_of_a_corridor_is_found_on_the_shortest_way(settings):
    env_config = {"corridor_length": 6}
    config = (
        DQNConfig()
        .environment(WindingCorridor, env_config=env_config)
        .env_runners(num_envs_per_env_runner=4)
        .training(
            lr=5e-3,
            train_batch_size=32,
            n_step=3,
            num_steps_sampled_before_learning_starts=200,
            target_network_update_freq=50,
            epsilon=[[0, 1.0], [1500, 0.1]],
            model={"fcnet_hiddens": [32]},
        )
        .evaluation(evaluation_duration=5)
        .debugging(seed=0)
    )
    config.update_from_dict(SETTINGS[settings])
    with config.build_algo() as algo:
        while algo.counters.num_env_steps_sampled < 3000:
            algo.train()
        mean = algo.evaluate()["env_runners/episode_return_mean"]
    assert mean == pytest.approx(CorridorEnv(env_config).best_return)


def test_negative_control_without_learning_the_end_is_not_found_so_fast():
    config = DQNConfig().environment(WindingCorridor, env_config={"corridor_length": 6})
    # Updates that change nothing: few are enough.
    config.env_runners(num_envs_per_env_runner=4, rollout_fragment_length=25)
    config.training(lr=0.0, num_steps_sampled_before_learning_starts=200)
    config.evaluation(evaluation_duration=5).debugging(seed=0)
    with config.build_algo() as algo:
        algo.train()
        mean = algo.evaluate()["env_runners/episode_return_mean"]
    assert mean < CorridorEnv({"corridor_length": 6}).best_return

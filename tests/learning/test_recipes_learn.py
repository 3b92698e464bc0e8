"""The recipes that take seconds learn their envs; the others: `python -m benchmarks.quality`."""

import pytest

from trainer import PPOConfig
from trainer.config.recipes import recipe_for

pytestmark = pytest.mark.learning


@pytest.mark.parametrize(
    ("config_class", "env", "wanted_return"),
    [
        (PPOConfig, "CartPole-v1", 475.0),
        pytest.param(PPOConfig, "Pendulum-v1", -400.0, marks=pytest.mark.slow),
        pytest.param(PPOConfig, "Acrobot-v1", -100.0, marks=pytest.mark.slow),
    ],
)
def test_a_short_recipe_reaches_what_it_promises(config_class, env, wanted_return):
    config = config_class.recipe(env).debugging(seed=0)
    config.evaluation(evaluation_duration=20, evaluation_config={"explore": False})
    budget = recipe_for(env, config_class.default_algo_class.__name__).num_env_steps
    with config.build_algo() as algo:
        while algo.counters.num_env_steps_sampled < budget:
            algo.train()
        assert algo.evaluate()["env_runners/episode_return_mean"] >= wanted_return

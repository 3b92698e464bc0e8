"""Recipes are configs like any other, and say what the learning campaign ran and measured."""

import json

import pytest

from benchmarks.quality import recipes as made
from trainer import (
    APPOConfig,
    DDPGConfig,
    DQNConfig,
    IMPALAConfig,
    PGConfig,
    PPOConfig,
    SACConfig,
    TD3Config,
)
from trainer.config.algorithm_config import AlgorithmConfig
from trainer.config.recipes import recipe_for, recipe_named, recipes
from trainer.errors import ConfigError

CONFIGS = {
    "PPO": PPOConfig,
    "APPO": APPOConfig,
    "DQN": DQNConfig,
    "SAC": SACConfig,
    "TD3": TD3Config,
}


def test_the_file_says_what_the_campaign_ran_and_measured():
    """After a change of tasks or results: python -m benchmarks.quality.recipes."""
    assert json.loads(made.FILE.read_text()) == made.recipes()


@pytest.mark.parametrize(
    "recipe", recipes(), ids=lambda recipe: f"{recipe.algorithm}-{recipe.name}"
)
def test_every_recipe_is_a_config_of_its_algorithm_without_problems(recipe):
    config = CONFIGS[recipe.algorithm].recipe(recipe.name)
    assert config.find_problems() == []
    given = config.given_settings()
    for name, value in recipe.settings.items():
        assert (
            given[name] == value if name != "model_config" else value.items() <= given[name].items()
        )


def test_a_recipe_of_an_env_sets_it_and_can_be_changed():
    config = PPOConfig.recipe("HalfCheetah-v5").training(lr=1e-3)
    assert config.env == "HalfCheetah-v5"
    assert config.observation_filter == "MeanStdFilter"
    assert config.lr == 1e-3


def test_a_kind_has_no_env_of_its_own_and_serves_all_of_its_envs():
    assert PPOConfig.recipe("mujoco").env is None
    assert PPOConfig.recipe("Swimmer-v4").env == "Swimmer-v4"
    assert recipe_for("Swimmer-v4").name == "mujoco"


def test_an_own_recipe_goes_before_that_of_the_kind_and_an_algorithm_has_its_own():
    assert recipe_for("HalfCheetah-v5").name == "HalfCheetah-v5"
    assert recipe_for("HalfCheetah-v5", "SAC").algorithm == "SAC"
    assert recipe_for("HalfCheetah-v5", "PG") is None
    assert recipe_for("NobodysEnv-v0") is None


@pytest.mark.parametrize("config", [APPOConfig, IMPALAConfig, DDPGConfig])
def test_an_algorithm_has_no_recipes_of_another_one(config):
    with pytest.raises(ConfigError, match="has no recipe"):
        config.recipe("Acrobot-v1" if config is APPOConfig else "Pendulum-v1")


def test_a_class_derived_from_a_config_has_the_recipes_of_its_algorithm():
    class Mine(PPOConfig):
        pass

    assert isinstance(Mine.recipe("CartPole-v1"), Mine)


@pytest.mark.parametrize(
    ("config", "name", "told"),
    [
        (PPOConfig, "mujocco", "PPO has no recipe for 'mujocco'. Did you mean 'mujoco'?"),
        (PGConfig, "CartPole-v1", "PG has no recipe for 'CartPole-v1'. Others have"),
        (AlgorithmConfig, "CartPole-v1", "AlgorithmConfig has no recipe"),
    ],
)
def test_an_unknown_name_is_told_with_the_nearest(config, name, told):
    with pytest.raises(ConfigError) as raised:
        config.recipe(name)
    assert told in str(raised.value)


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ("ale_py:ALE/Pong-v5", "atari"),
        ("BreakoutNoFrameskip-v4", "atari"),
        ("gymnasium:CartPole-v1", "CartPole-v1"),
        ("CartPole-v0", "classic"),
        ("CartPole-v1,Pendulum-v1", None),
        ("CartPole-v", None),
        ("MyCartPole-v1", None),
    ],
)
def test_a_pattern_is_of_versions_and_games_whatever_module_makes_the_env(env, name):
    found = recipe_for(env)
    assert (found and found.name) == name


@pytest.mark.parametrize("name", [None, 3, ["CartPole-v1"]])
def test_what_is_no_name_is_refused(name):
    with pytest.raises(ConfigError, match="expected the name of an env"):
        PPOConfig.recipe(name)


def test_without_an_algorithm_the_first_recipe_that_fits_is_taken():
    assert recipe_named("MountainCar-v0") is recipe_for("MountainCar-v0")

"""What users of Stable-Baselines3 type first is answered with what to write."""

import pytest

import trainer
from tests.small_runs import small_ppo
from trainer import DQN, PPO, ConfigError, DQNConfig
from trainer.config.names_elsewhere import IMPORTS, LIGHTNING, METHODS
from trainer.testing.envs import CountdownEnv


@pytest.fixture(scope="module")
def algorithms():
    with small_ppo().build_algo() as ppo:
        dqn = DQNConfig().environment(CountdownEnv).env_runners(num_env_runners=0)
        with dqn.build_algo() as other:
            yield ppo, other


@pytest.mark.parametrize("name", METHODS)
def test_methods_of_others_are_answered(name, algorithms):
    for algo in algorithms:
        assert not hasattr(algo, name)
        with pytest.raises(AttributeError) as caught:
            getattr(algo, name)
        told = str(caught.value)
        assert f"no attribute {name!r}. {METHODS[name]}" in told
        assert "docs/coming-from-others.md" in told
        assert caught.value.name == name


def test_what_the_answers_name_is_there(algorithms):
    ppo, dqn = algorithms
    for name in ("train", "compute_single_action", "get_weights", "set_weights", "get_module"):
        assert callable(getattr(ppo, name))
    assert dqn.local_replay_buffer is not None


def test_other_names_are_as_python_has_them(algorithms):
    with pytest.raises(AttributeError, match=r"'PPO' object has no attribute 'lern'\.$"):
        algorithms[0].lern  # noqa: B018 - it is looked up


@pytest.mark.parametrize("name", LIGHTNING)
def test_methods_of_lightning_are_answered(name, algorithms):
    told = r"has no attribute .*docs/coming-from-others\.md"
    with pytest.raises(AttributeError, match=told) as caught:
        getattr(algorithms[0], name)
    assert LIGHTNING[name] in str(caught.value)


@pytest.mark.parametrize("kind", [PPO, DQN])
def test_methods_of_the_class_are_answered(kind):
    with pytest.raises(AttributeError, match=r"no attribute 'load'\. `Algorithm.from_checkpoint"):
        kind.load("agent.zip")
    with pytest.raises(AttributeError, match=r"type object '.*' has no attribute 'lode'\.$"):
        kind.lode  # noqa: B018 - it is looked up


@pytest.mark.parametrize("kind", [PPO, DQN])
def test_the_first_line_of_others_is_answered(kind):
    with pytest.raises(ConfigError, match=r"Config\(\)\.environment\('CartPole-v1'\)\.build_algo"):
        kind("MlpPolicy", "CartPole-v1")


@pytest.mark.parametrize("name", IMPORTS)
def test_imports_of_others_are_answered(name):
    with pytest.raises(ImportError) as caught:
        exec(f"from trainer import {name}")
    assert str(caught.value) == f"trainer has no {name!r}. {IMPORTS[name]}"
    with pytest.raises(ImportError, match="cannot import name 'Evil'"):
        exec("from trainer import Evil")
    assert not hasattr(trainer, "Evil")

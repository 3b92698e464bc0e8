"""`epsilon` and `exploration_config` of DQN: one place decides."""

import pytest

from trainer import ConfigError, DQNConfig

_SCHEDULE = [[0, 1.0], [5000, 0.05]]


def _config():
    return DQNConfig().environment("CartPole-v1")


def test_epsilon_and_arguments_without_a_type_are_refused_together():
    config = _config().training(epsilon=_SCHEDULE)
    config.exploration(exploration_config={"warmup_timesteps": 100})
    with pytest.raises(ConfigError, match="says already how often actions are random"):
        config.validate()


def test_each_alone_is_fine():
    by_epsilon = _config().training(epsilon=_SCHEDULE)
    by_epsilon.validate()
    assert by_epsilon.get_exploration_config()["epsilon_schedule"] == _SCHEDULE
    by_arguments = _config().exploration(exploration_config={"final_epsilon": 0.1})
    by_arguments.validate()
    expected = {"type": "EpsilonGreedy", "final_epsilon": 0.1}
    assert by_arguments.get_exploration_config() == expected


def test_a_type_replaces_epsilon():
    config = _config().training(epsilon=_SCHEDULE)
    config.exploration(exploration_config={"type": "SoftQ", "temperature": 2.0})
    config.validate()
    assert config.get_exploration_config() == {"type": "SoftQ", "temperature": 2.0}

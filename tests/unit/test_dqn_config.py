"""DQNConfig: RLlib's defaults, its arguments accepted or refused with a reason, combinations."""

import pytest
from gymnasium import spaces

from trainer import ConfigError, DQNConfig, PPOConfig, RLModuleSpec, UnknownSettingError
from trainer.config.algorithm_config import module_specs
from trainer.modules import QModule, RLModule
from trainer.replay import PrioritizedReplayBuffer, make_replay_buffer


def problems(**settings):
    with pytest.raises(ConfigError) as caught:
        DQNConfig().update_from_dict(settings).validate()
    return str(caught.value)


def test_the_defaults_are_valid_and_do_not_explore_in_evaluation():
    config = DQNConfig()
    assert config.get_evaluation_config_object().explore is False
    assert config.explore is True
    assert config.store_buffer_in_checkpoints is True  # RLlib never saves it
    config.validate()


def test_hidden_layers_of_rllib_are_those_of_the_heads():
    config = DQNConfig().training(lr_schedule=None, hiddens=[256])
    config.validate()
    assert config.model_config["head_fcnet_hiddens"] == [256]


@pytest.mark.parametrize(
    ("name", "value", "advice"),
    [
        ("noisy", True, "ParameterNoise"),
        ("before_learn_on_batch", print, "on_learn_on_batch"),
        ("burn_in_len", 4, "recurrent"),
        ("categorical_distribution_temperature", 0.5, "SoftQ"),
        ("num_epochs", 2, "training_intensity"),
    ],
)
def test_what_is_not_offered_is_refused_with_what_to_do(name, value, advice):
    text = problems(**{name: value})
    assert name in text
    assert "not offered" in text
    assert advice in text


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"num_atoms": 51, "v_min": 1.0, "v_max": 1.0}, "above v_min=1.0"),
        ({"n_step": 3, "rollout_fragment_length": 2}, "shorter than n_step=3"),
        ({"n_step": (2, 5), "rollout_fragment_length": 4}, "rollout_fragment_length=5 or more"),
        ({"n_step": (5, 2)}, "(lowest, highest)"),
        ({"epsilon": [[0, 1.5], [10, 0.1]]}, "must not be above 1"),
        ({"replay_buffer_config": {"type": "EpisodReplayBuffer"}}, "Did you mean"),
        ({"replay_buffer_config": {"capacty": 5}}, "'capacity'"),
        ({"replay_buffer_config": {"capacity": 0}}, "an int ≥ 1 and"),
        ({"model_config": {"dueling": False}}, "dueling"),
    ],
)
def test_what_cannot_be_is_explained(settings, expected):
    assert expected in problems(**settings)


def test_all_problems_are_told_at_once():
    text = problems(noisy=True, tau=2.0, td_error_loss_fn="l1", num_epochs=3)
    assert "4 problems" in text


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"capacity": 7}, {"type": "PrioritizedEpisodeReplayBuffer", "capacity": 7, "alpha": 0.6}),
        # Another type keeps the capacity; RLlib falls back to the buffer's own.
        ({"type": "EpisodeReplayBuffer"}, {"type": "EpisodeReplayBuffer", "capacity": 9}),
        ({"alpha": 0.1}, {"alpha": 0.1, "beta": 0.4, "capacity": 9}),
    ],
)
def test_the_buffers_settings_are_merged(given, expected):
    config = DQNConfig().training(replay_buffer_config={"capacity": 9})
    config.training(replay_buffer_config=given)
    config.validate()
    assert expected.items() <= config.replay_buffer_config.items()


def test_auto_fragments_are_as_long_as_the_longest_transition():
    assert DQNConfig().get_rollout_fragment_length() == 1
    assert DQNConfig().training(n_step=3).get_rollout_fragment_length() == 3
    assert DQNConfig().training(n_step=[2, 5]).get_rollout_fragment_length() == 5
    config = DQNConfig().training(n_step=3).env_runners(rollout_fragment_length=8)
    assert config.get_rollout_fragment_length() == 8


def test_the_settings_of_the_network_are_dqns_own():
    config = DQNConfig().training(dueling=False, num_atoms=3, model={"fcnet_hiddens": [4]})
    spec = module_specs(config).only
    assert spec.module_class is QModule
    assert {"dueling": False, "num_atoms": 3}.items() <= spec.model_config.items()
    with pytest.raises(UnknownSettingError):
        PPOConfig().training(dueling=False)


def test_networks_of_ones_own_give_values_and_no_distributions():
    class Own(RLModule):
        pass

    config = DQNConfig().rl_module(rl_module_spec=RLModuleSpec(module_class=Own))
    config.validate()
    assert "dueling" not in module_specs(config).only.model_config
    config.training(num_atoms=5)
    with pytest.raises(ConfigError, match=r"module class Own gives one value .* derive .* QModule"):
        config.validate()


def test_what_was_said_of_the_buffer_at_the_top_goes_into_it():
    config = DQNConfig().training(
        buffer_size=9,
        prioritized_replay_alpha=0.5,
        prioritized_replay_beta=0.3,
        prioritized_replay_eps=1e-6,
        learning_starts=7,
    )
    config.validate()
    made = make_replay_buffer(config.replay_buffer_config)
    assert isinstance(made, PrioritizedReplayBuffer)
    assert (made.capacity, made.alpha, made.beta) == (9, 0.5, 0.3)
    assert config.num_steps_sampled_before_learning_starts == 7
    assert "It is always 1e-6" in problems(prioritized_replay_eps=1e-3)


@pytest.mark.parametrize("value", [True, False])
def test_prioritized_replay_is_the_kind_of_the_buffer_and_never_ignored(value):
    with pytest.raises(ConfigError, match=r'prioritized_replay=.*"type": "EpisodeReplayBuffer"'):
        DQNConfig().training(prioritized_replay=value)
    assert DQNConfig().update_from_dict({"prioritized_replay": None}) == DQNConfig()


def test_old_dict_configs_are_understood():
    config = DQNConfig.from_dict(
        {
            "num_workers": 0,
            "hiddens": [16],
            "lr_schedule": [[0, 1e-3], [100, 1e-4]],
            "timesteps_per_iteration": 50,
            "replay_buffer_config": {
                "type": "MultiAgentPrioritizedReplayBuffer",
                "prioritized_replay_alpha": 0.5,
            },
        }
    )
    config.validate()
    assert config.lr == [[0, 1e-3], [100, 1e-4]]
    assert config.min_sample_timesteps_per_iteration == 50
    config.environment(observation_space=spaces.Box(-1, 1, (2,)), action_space=spaces.Discrete(2))
    assert "af/1/kernel" in module_specs(config).only.build().parameters.shapes


def test_first_weights_are_uniform_and_saved_configs_keep_theirs():
    assert DQNConfig().model_config == {"initializer": "uniform"}
    assert DQNConfig().training(model={"fcnet_hiddens": [8]}).model_config == {
        "fcnet_hiddens": [8],
        "initializer": "uniform",
    }
    state = DQNConfig().get_state()
    assert DQNConfig.from_state(state).model_config == {"initializer": "uniform"}
    of_before = {**state, "settings": {**state["settings"], "model_config": {}}}
    assert DQNConfig.from_state(of_before).model_config == {}


# ---- epsilon and exploration_config: one place decides

_SCHEDULE = [[0, 1.0], [5000, 0.05]]


def test_epsilon_and_arguments_without_a_type_are_refused_together():
    config = DQNConfig().training(epsilon=_SCHEDULE)
    config.exploration(exploration_config={"warmup_timesteps": 100})
    with pytest.raises(ConfigError, match="says already how often actions are random"):
        config.validate()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"epsilon": _SCHEDULE}, {"epsilon_schedule": _SCHEDULE}),
        ({"exploration_config": {"final_epsilon": 0.1}}, {"final_epsilon": 0.1}),
        (
            {"epsilon": _SCHEDULE, "exploration_config": {"type": "SoftQ", "temperature": 2.0}},
            {"type": "SoftQ", "temperature": 2.0},
        ),
    ],
)
def test_each_alone_is_fine_and_a_type_replaces_epsilon(settings, expected):
    config = DQNConfig.from_dict(settings)
    config.validate()
    assert config.get_exploration_config() == {"type": "EpsilonGreedy", **expected}

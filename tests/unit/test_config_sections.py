"""The sections: which arguments exist, with which defaults, and how they are documented."""

import inspect

import pytest

from callbacks.events import EVENTS
from trainer import DQNConfig, PGConfig, PPOConfig, SACConfig
from trainer.config import AlgorithmConfig, NotProvided
from trainer.rllib_names.config import UNUSED_SETTINGS

# Every default of an algorithm is a row of docs/settings.md, which is compared with what the
# classes say (`test_docs`). These are what PPO changes.
_CHANGED_BY_PPO = {
    "lr": 0.001,
    "train_batch_size": 32,
    "num_epochs": 1,
    "minibatch_size": None,
    "shuffle_batch_per_epoch": False,
    "num_env_runners": 0,
    "rollout_fragment_length": 200,
    "model_config": {},
}


def test_defaults_that_ppo_changes_are_others_without_it():
    common, ppo = AlgorithmConfig(), PPOConfig()
    names = [name for name in common.keys() if common[name] != ppo[name]]  # noqa: SIM118
    assert {name: common[name] for name in names} == _CHANGED_BY_PPO


def _arguments(config):
    rows = config.describe_settings()
    return {(row.section, row.argument) for row in rows if row.section not in ("", "callbacks")}


_COMMON = _arguments(AlgorithmConfig) | {
    # In more sections than its own, as in RLlib.
    ("multi_agent", "algorithm_config_overrides_per_module")
}
_WITH_RULES_OF_THEIR_OWN = {("training", "replay_buffer_config")}
_ARGUMENTS = [
    *((AlgorithmConfig, *argument) for argument in sorted(_COMMON)),
    *(
        (config, *argument)
        for config in (DQNConfig, PGConfig, PPOConfig, SACConfig)
        for argument in sorted(_arguments(config) - _COMMON - _WITH_RULES_OF_THEIR_OWN)
    ),
]


def test_each_argument_sets_its_setting_and_gives_the_config():
    for config_class, section, argument in _ARGUMENTS:
        config = config_class()
        value = {"explore": False} if argument == "evaluation_config" else {"key": 1}
        assert getattr(config, section)(**{argument: value}) is config, argument
        assert config[argument] == value, argument
        assert argument in inspect.signature(getattr(config, section)).parameters


def test_every_event_is_an_argument_of_callbacks():
    parameters = list(inspect.signature(AlgorithmConfig.callbacks).parameters)
    assert parameters == ["self", "callbacks_class", *parameters[2:-1], "old_names"]
    assert set(parameters[2:-1]) == set(EVENTS)


def test_completion_shows_all_arguments_of_a_class_with_its_defaults():
    shown = inspect.signature(PPOConfig().training).parameters
    ours = {
        name for name, setting in PPOConfig._names.settings.items() if setting.section == "training"
    }
    assert ours <= set(shown)
    for name in ("lr", "gamma", "train_batch_size", "clip_param", "num_epochs", "lambda_"):
        assert shown[name].default == PPOConfig()[name], name
    common = inspect.signature(AlgorithmConfig.training).parameters
    assert common["lr"].default == AlgorithmConfig().lr
    assert "clip_param" not in common
    assert list(inspect.signature(PPOConfig.environment).parameters)[:2] == ["self", "env"]
    assert inspect.signature(PPOConfig().env_runners).parameters["num_env_runners"].default == 2
    assert inspect.signature(DQNConfig().training).parameters["num_atoms"].default == 1


def test_not_provided_changes_nothing_but_none_does():
    config = AlgorithmConfig().training(grad_clip=1.0)
    assert config.training(grad_clip=NotProvided, gamma=0.5).grad_clip == 1.0
    assert config.training(grad_clip=None).grad_clip is None


def test_positional_arguments_where_rllib_has_them():
    config = AlgorithmConfig().environment("CartPole-v1").callbacks(dict)
    config.framework("tf").api_stack(False, False).checkpointing(True, False)
    found = (config.env, config.callbacks_class, config.framework_str)
    assert found == ("CartPole-v1", dict, "tf")
    assert not config.enable_rl_module_and_learner
    assert config.export_native_model_files


@pytest.mark.parametrize(
    ("section", "given", "named", "told"),
    [
        ("environment", ["a", "b"], {}, "takes 1 positional"),
        ("environment", ["a"], {"env": "b"}, "two values for the argument `env`"),
        ("callbacks", [object] * 2, {}, r"\(callbacks_class\).* as a list, callbacks\(\[a, b\]\)"),
    ],
)
def test_wrong_use_of_positional_arguments_is_a_type_error(section, given, named, told):
    with pytest.raises(TypeError, match=told):
        getattr(AlgorithmConfig(), section)(*given, **named)


def test_a_later_event_function_replaces_and_leaves_the_class():
    class Listener:
        pass

    config = AlgorithmConfig().callbacks(Listener, on_episode_end=print)
    config.callbacks(on_episode_end=repr)
    assert config.callbacks_class is Listener
    assert config.callbacks_on_episode_end is repr


def test_callback_spec_holds_classes_and_functions_in_order():
    def first(episode, **_): ...
    def second(**_): ...

    spec = PPOConfig().callbacks(on_episode_end=[first, second]).callback_spec()
    assert spec.classes == ()
    assert dict(spec.functions) == {"on_episode_end": (first, second)}


def test_env_config_is_merged_on_every_level():
    config = AlgorithmConfig().environment(env_config={"a": {"b": 1}, "c": [1]})
    config.environment(env_config={"a": {"d": 2}, "c": [2]})
    assert config.env_config == {"a": {"b": 1, "d": 2}, "c": [2]}


def test_model_config_keeps_the_defaults_of_the_algorithm():
    config = PPOConfig().training(model={"fcnet_hiddens": [64]})
    expected = {"vf_share_layers": False, "fcnet_hiddens": [64]}
    assert config.model_config == expected
    config.model_config = {"fcnet_hiddens": [32]}
    assert config.model_config == {**expected, "fcnet_hiddens": [32]}
    config.training(vf_share_layers=True)
    assert config.model_config == {"vf_share_layers": True, "fcnet_hiddens": [32]}
    config.rl_module(model_config=None)
    assert config.model_config == {"vf_share_layers": False}


@pytest.mark.parametrize("config", [DQNConfig, PGConfig, PPOConfig, SACConfig])
def test_a_setting_without_argument_or_docstring_is_named(config):
    rows = config.describe_settings()
    assert {row.name for row in rows} == config().keys()
    assert [row.name for row in rows if not row.doc] == []
    assert [row.name for row in rows if not row.section] == ["in_evaluation"]
    assert [row.name for row in rows if not row.argument] == ["in_evaluation"]


def test_settings_that_nothing_reads_are_no_settings():
    for config in (AlgorithmConfig, DQNConfig, PGConfig, PPOConfig, SACConfig):
        assert not UNUSED_SETTINGS.keys() & config().keys()

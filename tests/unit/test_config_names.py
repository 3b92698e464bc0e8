"""Names: old ones mean the same everywhere, unknown ones are refused everywhere."""

import inspect

import pytest

from trainer import tune
from trainer.algorithms.dqn.dqn import DQNConfig
from trainer.algorithms.ppo.ppo import PPOConfig
from trainer.config import AlgorithmConfig, Setting
from trainer.config.config_values import ConfigValues
from trainer.errors import ConfigError, UnknownSettingError
from trainer.rllib_names.config import OLD_SETTINGS, REFUSED_NAMES, UNUSED_SETTINGS
from trainer_toolkit.checks import number

_SCHEDULE = [[0, 1e-3], [1000, 1e-4]]
_SPECIAL_VALUES = {
    "lr_schedule": _SCHEDULE,
    "entropy_coeff_schedule": _SCHEDULE,
    "model": {"fcnet_hiddens": [8], "vf_share_layers": False},
    "model_config_dict": {"fcnet_hiddens": [8], "vf_share_layers": False},
    "vf_share_layers": True,
}


def _value(old):
    return _SPECIAL_VALUES.get(old, 7)


_SECTIONS = {
    config: {row.name: row.section for row in config.describe_settings()}
    for config in (PPOConfig, DQNConfig)
}


def _class_with(old):
    """A config class that has the setting that an old name stands for."""
    return PPOConfig if OLD_SETTINGS[old].new in _SECTIONS[PPOConfig] else DQNConfig


def test_old_names_read_and_write_the_values_of_new_ones():
    for old, setting in OLD_SETTINGS.items():
        by_item, by_dict, by_attribute = (_class_with(old)() for _ in range(3))
        by_item[old] = _value(old)
        by_dict.update_from_dict({old: _value(old)})
        setattr(by_attribute, old, _value(old))
        assert by_item == by_dict == by_attribute, old
        assert by_item[old] == by_dict.get(old) == _value(old)
        new = by_item[setting.new]
        assert (new[setting.key] if setting.key else new) == _value(old), old
        assert old in by_item


def test_old_names_are_arguments_of_the_sections_of_new_ones():
    for old, setting in OLD_SETTINGS.items():
        made = _class_with(old)
        if setting.new in UNUSED_SETTINGS:
            assert made().training(**{old: _value(old)})[old] == _value(old)
            continue
        for section_name in (_SECTIONS[made][setting.new], *setting.sections):
            config = getattr(made(), section_name)(**{old: _value(old)})
            assert config[old] == _value(old), (old, section_name)


def test_old_names_in_overrides_become_new_ones():
    for old, setting in OLD_SETTINGS.items():
        assert setting.new in _class_with(old).overrides(**{old: _value(old)}), old


def test_rollouts_takes_arguments_of_both_its_successors():
    config = PPOConfig().rollouts(
        num_rollout_workers=3, num_envs_per_worker=2, recreate_failed_workers=False
    )
    assert (config.num_env_runners, config.num_envs_per_env_runner) == (3, 2)
    assert not config.restart_failed_env_runners
    again = config.rollouts(rollout_fragment_length=50)
    assert again is config
    with pytest.raises(UnknownSettingError, match="belongs to training"):
        config.rollouts(gamma=0.5)


def test_an_old_name_whose_setting_belongs_to_an_algorithm_is_unknown_without_it():
    assert PPOConfig.overrides(**{"lambda": 0.5}) == {"lambda_": 0.5}
    with pytest.raises(UnknownSettingError):
        AlgorithmConfig.overrides(**{"lambda": 0.5})


@pytest.mark.parametrize(
    ("config_class", "name", "owners"),
    [
        (DQNConfig, "clip_param", "It belongs to APPO, IMPALA, PPO; leave"),
        (DQNConfig, "entropy_coeff_schedule", "It belongs to APPO, IMPALA, PPO; leave"),
        (PPOConfig, "buffer_size", "It belongs to DDPG, DQN, SAC, TD3; leave"),
    ],
)
def test_a_setting_of_another_algorithm_is_told_to_be_one(config_class, name, owners):
    with pytest.raises(UnknownSettingError, match=f"{name}.*no such setting. {owners} it out"):
        config_class().training(**{name: 1})
    with pytest.raises(UnknownSettingError, match=owners):
        config_class.from_dict({name: 1})


def test_evaluation_num_episodes_sets_the_unit_too():
    config = PPOConfig().evaluation(evaluation_duration_unit="timesteps")
    config.evaluation(evaluation_num_episodes=3)
    assert (config.evaluation_duration, config.evaluation_duration_unit) == (3, "episodes")


def test_schedule_given_beside_a_number_wins_in_any_order():
    first = PPOConfig().update_from_dict({"lr": 0.1, "lr_schedule": _SCHEDULE})
    second = PPOConfig().update_from_dict({"lr_schedule": _SCHEDULE, "lr": 0.1})
    assert first == second
    assert first.lr == _SCHEDULE


def test_empty_old_schedule_says_nothing():
    config = PPOConfig().training(lr=0.1, lr_schedule=None, entropy_coeff_schedule=None)
    assert config.lr == 0.1
    assert config["lr_schedule"] is None


def test_train_batch_size_has_two_spellings():
    config = PPOConfig().training(train_batch_size_per_learner=500)
    assert config.train_batch_size == config.total_train_batch_size == 500
    config.training(train_batch_size=600, train_batch_size_per_learner=None)
    assert config["train_batch_size_per_learner"] == 600


@pytest.mark.parametrize(
    "given",
    [
        {"num_workers": 2, "num_env_runners": 3},
        {"lr": _SCHEDULE, "lr_schedule": [[0, 1], [1, 2]]},
        {"model": {"vf_share_layers": True}, "vf_share_layers": False},
        {"evaluation_num_episodes": 3, "evaluation_duration_unit": "timesteps"},
    ],
)
def test_two_names_with_different_values_are_refused_in_any_order(given):
    texts = []
    for config_dict in (given, dict(reversed(given.items()))):
        with pytest.raises(ConfigError, match="two names of one setting") as caught:
            PPOConfig().update_from_dict(config_dict)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]


def test_two_names_with_the_same_value_are_fine():
    assert PPOConfig.from_dict({"num_workers": 3, "num_env_runners": 3}).num_env_runners == 3


def test_names_without_successor_are_refused_unless_they_ask_for_nothing():
    for name in REFUSED_NAMES:
        assert PPOConfig().update_from_dict({name: None}) == PPOConfig(), name
        with pytest.raises(ConfigError, match=name) as caught:
            PPOConfig().update_from_dict({name: 10})
        assert not isinstance(caught.value, UnknownSettingError), name


def test_offline_events_are_refused_as_arguments():
    assert PPOConfig().callbacks(on_evaluate_offline_start=None) == PPOConfig()
    with pytest.raises(ConfigError, match="recorded data"):
        PPOConfig().callbacks(on_evaluate_offline_start=print)


_ROUTES = {
    "section": lambda name: PPOConfig().env_runners(**{name: 1}),
    "old section": lambda name: PPOConfig().rollouts(**{name: 1}),
    "set attribute": lambda name: setattr(PPOConfig(), name, 1),
    "get attribute": lambda name: getattr(PPOConfig(), name),
    "set item": lambda name: PPOConfig().__setitem__(name, 1),
    "get item": lambda name: PPOConfig()[name],
    "dict": lambda name: PPOConfig().update_from_dict({name: 1}),
    "from_dict": lambda name: PPOConfig.from_dict({name: 1}),
    "overrides": lambda name: PPOConfig.overrides(**{name: 1}),
    "evaluation_config": lambda name: PPOConfig().evaluation(evaluation_config={name: 1}),
    "multiagent": lambda name: PPOConfig().update_from_dict({"multiagent": {name: 1}}),
    "pop": lambda name: PPOConfig().pop(name),
}


@pytest.mark.parametrize("route", _ROUTES)
def test_unknown_name_is_refused_with_nearest_spelling_and_section(route):
    with pytest.raises(UnknownSettingError) as caught:
        _ROUTES[route]("num_env_runner")
    assert "Did you mean `num_env_runners`, an argument of env_runners()?" in str(caught.value)


@pytest.mark.parametrize("route", _ROUTES)
def test_misspelt_old_name_leads_to_the_new_one(route):
    with pytest.raises(UnknownSettingError, match="Did you mean `num_envs_per_env_runner`"):
        _ROUTES[route]("num_envs_per_worke")


def test_all_unknown_names_of_a_call_are_told_and_nothing_is_set():
    config = PPOConfig()
    with pytest.raises(UnknownSettingError) as caught:
        config.training(lr=1.0, gama=0.5, num_sgd_iters=3, num_env_runners=1)
    text = str(caught.value)
    assert text.startswith("PPOConfig.training(): 3 problems\n  1. `gama=0.5`: ")
    assert "`gamma`" in text
    assert "`num_epochs`" in text
    assert "It belongs to env_runners()" in text
    assert config == PPOConfig()


@pytest.mark.parametrize(
    "give",
    [
        lambda given: PPOConfig().training(**given),
        PPOConfig.from_dict,
        lambda given: PPOConfig.overrides(**given),
        lambda given: PPOConfig().evaluation(evaluation_config=given),
        lambda given: PPOConfig().checked_settings_of_module("a", given),
    ],
)
def test_an_unknown_name_hides_no_wrong_value(give):
    is_drawn = tune.uniform(0.5, 1.0)
    with pytest.raises(UnknownSettingError) as caught:
        give({"lr": -1, "gama": 0.5, "gamma": is_drawn, "model": None, "clip_param": 0.1})
    assert "`gama=0.5`: no setting" in str(caught.value)
    assert "`lr=-1`: expected a number ≥ 0" in str(caught.value)
    assert str(caught.value).count(": expected ") == 1


def test_name_like_nothing_lists_what_the_section_takes():
    with pytest.raises(UnknownSettingError, match=r"resources\(\) takes engine, strict_cpus"):
        PPOConfig().resources(zzz=1)


def test_section_name_as_a_setting_says_that_it_is_a_method():
    with pytest.raises(UnknownSettingError, match="`evaluation` is a section method"):
        PPOConfig.from_dict({"evaluation": {"evaluation_interval": 1}})


@pytest.mark.parametrize("error", [AttributeError, KeyError, TypeError, ValueError])
def test_unknown_setting_error_can_be_caught_as_python_would_raise_it(error):
    with pytest.raises(error):
        PPOConfig().training(typo=1)
    assert not hasattr(PPOConfig(), "typo")
    assert PPOConfig().get("typo", 5) == 5
    assert "typo" not in PPOConfig()


class _OwnConfig(PPOConfig):
    changed_defaults = {"lr": 1e-3}
    temperature = Setting(1.0, number(above=0), "of something")


def test_subclass_adds_settings_and_changes_defaults():
    config = _OwnConfig().training(temperature=2.0, clip_param=0.1, num_sgd_iter=2)
    assert (config.temperature, config.clip_param, config.num_epochs) == (2.0, 0.1, 2)
    assert (config.lr, config.train_batch_size) == (1e-3, 4000)
    assert PPOConfig().lr == 5e-5
    assert "temperature" not in PPOConfig()
    row = next(row for row in _OwnConfig.describe_settings() if row.name == "temperature")
    assert (row.section, row.doc) == ("training", "of something")


def test_class_attribute_with_the_name_of_a_setting_is_refused():
    with pytest.raises(ConfigError, match="changed_defaults"):
        type("Hiding", (PPOConfig,), {"lr": 3e-4})
    with pytest.raises(UnknownSettingError, match="Did you mean `gamma`"):
        type("Misspelt", (PPOConfig,), {"changed_defaults": {"gama": 0.5}})


class _Size(ConfigValues, section="size"):
    """Say how large it is."""

    width = Setting(1, number(), "from left to right", is_positional=True)
    height = Setting(3, number(), "from top to bottom")


class _OwnSection(_Size, PPOConfig):
    changed_defaults = {"width": 2}
    own = Setting("a")


def test_a_class_with_a_section_makes_the_method_that_takes_its_settings():
    config = _OwnSection()
    assert (config.width, config.height) == (2, 3)
    assert config.size(4, height=5).training(own="b", lr=1.0) is config
    assert (config.width, config.height, config.own, config.lr) == (4, 5, "b", 1.0)
    assert str(inspect.signature(config.size)).startswith("(width: 'int' = 2, *, height: 'int' = 3")
    assert "Say how large it is.\n\nArgs:\n    width: from left to right" in config.size.__doc__
    rows = {row.name: row for row in _OwnSection.describe_settings()}
    assert [rows[name].section for name in ("width", "height", "own")] == [
        *("size", "size", "training")
    ]
    with pytest.raises(UnknownSettingError, match=r"It belongs to size\(\)"):
        config.training(width=1)


def test_settings_that_change_nothing_are_one_object_for_all_classes():
    ours, theirs = _OwnSection._names.settings, PPOConfig._names.settings
    assert ours["gamma"] is theirs["gamma"]
    assert ours["width"] is not _Size._names.settings["width"]

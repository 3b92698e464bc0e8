"""What is misspelt in a config, method or setting, is answered with the nearest spelling."""

import pytest

from trainer import DQNConfig, PPOConfig, UnknownSettingError
from trainer.config.settings import NAMES_ELSEWHERE


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("trainning", "the section method `training()`"),
        ("biuld_algo", "the method `build_algo()`"),
        ("to_dic", "the method `to_dict()`"),
        ("learning_rate", "`lr`, an argument of training()"),  # of Stable-Baselines3
        ("num_gpu", "`num_gpus`, which nothing here reads"),
    ],
)
def test_what_was_probably_meant_is_named(written, meant):
    with pytest.raises(UnknownSettingError) as caught:
        getattr(PPOConfig(), written)
    assert f"Did you mean {meant}?" in str(caught.value)


def test_what_looks_like_nothing_gets_no_guess():
    with pytest.raises(UnknownSettingError, match=r"`describe_settings\(\)` lists all"):
        PPOConfig().zzzz  # noqa: B018  reading is what is tested


def test_a_misspelt_section_in_a_dict_is_named_as_a_section():
    with pytest.raises(UnknownSettingError, match=r"It is called: `config.training\(...\)`"):
        PPOConfig.from_dict({"trainning": {"lr": 1e-3}})


def test_names_of_other_libraries_lead_to_settings_that_exist():
    configs = (PPOConfig, DQNConfig)
    known = {one.name for config in configs for one in config.describe_settings()}
    assert set(NAMES_ELSEWHERE.values()) <= known
    assert not NAMES_ELSEWHERE.keys() & known


def test_a_setting_of_another_algorithm_is_not_named():
    with pytest.raises(UnknownSettingError) as caught:
        DQNConfig().training(ent_coef=0.1)
    assert "entropy_coeff" not in str(caught.value)


@pytest.mark.parametrize(
    ("written", "advice"),
    [
        ("env_runners.num_env_runners", "such as `num_env_runners`"),
        ("model.fcnet_hiddens", "Give a dict for `model`: {'fcnet_hiddens': ...}"),
        ("x.y", "Names have no dots."),
    ],
)
def test_a_dotted_name_is_told_how_it_is_written(written, advice):
    with pytest.raises(UnknownSettingError) as caught:
        PPOConfig().update_from_dict({written: 1})
    assert advice in str(caught.value)

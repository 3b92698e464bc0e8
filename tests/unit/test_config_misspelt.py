"""What is misspelt in a config, method or setting, is answered with the nearest spelling."""

from __future__ import annotations

import pytest

from trainer import PPOConfig, UnknownSettingError


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("trainning", "the section method `training()`"),
        ("env_runers", "the section method `env_runners()`"),
        ("enviroment", "the section method `environment()`"),
        ("biuld_algo", "the method `build_algo()`"),
        ("to_dic", "the method `to_dict()`"),
        ("gama", "`gamma`, an argument of training()"),
        ("num_env_runer", "`num_env_runners`, an argument of env_runners()"),
    ],
)
def test_what_was_probably_meant_is_named(written: str, meant: str) -> None:
    with pytest.raises(UnknownSettingError) as caught:
        getattr(PPOConfig(), written)
    assert f"Did you mean {meant}?" in str(caught.value)


def test_what_looks_like_nothing_gets_no_guess() -> None:
    with pytest.raises(UnknownSettingError, match=r"`describe_settings\(\)` lists all"):
        PPOConfig().zzzz  # noqa: B018  reading is what is tested


def test_a_misspelt_section_in_a_dict_is_named_as_a_section() -> None:
    with pytest.raises(UnknownSettingError, match=r"It is called: `config.training\(...\)`"):
        PPOConfig.from_dict({"trainning": {"lr": 1e-3}})

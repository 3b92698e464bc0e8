"""What is misspelt in a config, method or setting, is answered with the nearest spelling."""

import re

import pytest

from trainer import BCConfig, DQNConfig, PPOConfig, SACConfig, TD3Config, UnknownSettingError
from trainer.config.names_elsewhere import ADVICE_ELSEWHERE, NAMES_ELSEWHERE


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


@pytest.mark.parametrize("written", ["input", "inputs", "input_path"])
def test_where_recordings_are_is_called_input_(written):
    with pytest.raises(UnknownSettingError, match="Did you mean `input_`, an argument of offline"):
        BCConfig().offline_data(**{written: "recordings"})


def test_what_looks_like_nothing_gets_no_guess():
    with pytest.raises(UnknownSettingError, match=r"`describe_settings\(\)` lists all"):
        PPOConfig().zzzz  # noqa: B018  reading is what is tested


def test_a_misspelt_section_in_a_dict_is_named_as_a_section():
    with pytest.raises(UnknownSettingError, match=r"It is called: `config.training\(...\)`"):
        PPOConfig.from_dict({"trainning": {"lr": 1e-3}})


def test_names_of_other_libraries_lead_to_settings_that_exist():
    configs = (PPOConfig, DQNConfig, SACConfig, TD3Config)
    known = {one.name for config in configs for one in config.describe_settings()}
    assert set(NAMES_ELSEWHERE.values()) <= known
    assert not NAMES_ELSEWHERE.keys() & known


def test_advice_for_names_of_other_libraries_names_what_is_there():
    configs = (PPOConfig, DQNConfig, SACConfig, TD3Config)
    known = {one.name for config in configs for one in config.describe_settings()}
    said = {text for advice in ADVICE_ELSEWHERE.values() for text in advice.values()}
    written = {name for text in said for name in re.findall(r"`(\w+)[=`]", text)}
    written -= {"num_env_steps_sampled_lifetime", "on_train_result"}  # of results, of callbacks
    assert len(written) > 10
    assert written <= known
    for config in configs:
        of_config = {one.name for one in config.describe_settings()}
        for name, advice in ADVICE_ELSEWHERE.items():
            assert name not in of_config
            for marker, text in advice.items():
                if marker in of_config or not marker:
                    named = {*re.findall(r"`(\w+)[=`]", text)} & known
                    assert named <= of_config, (name, config)
                    break


@pytest.mark.parametrize(
    ("config", "name", "advice"),
    [
        (PPOConfig, "n_steps", "Write `train_batch_size`"),
        (SACConfig, "ent_coef", "Write `initial_alpha` and `target_entropy`"),
        (SACConfig, "learning_rate", "Write `actor_lr`, `critic_lr` and `alpha_lr`"),
        (TD3Config, "learning_rate", "Write `actor_lr` and `critic_lr`"),
        (TD3Config, "target_policy_noise", "`target_noise`"),
        (DQNConfig, "learning_rate", "Did you mean `lr`"),
        (SACConfig, "batch_size", "Write `train_batch_size`"),
        (PPOConfig, "batch_size", "Write `minibatch_size`"),
        (PPOConfig, "norm_adv", "True is `standardize_advantages='minibatch'`"),
        (SACConfig, "alpha", "Did you mean `initial_alpha`"),
        (SACConfig, "q_lr", "Did you mean `critic_lr`"),
        (DQNConfig, "exploration_fraction", "Write `epsilon=[[0, 1.0], [50_000, 0.05]]`"),
        (DQNConfig, "train_frequency", "Write `training_intensity`"),
        (PPOConfig, "net_arch", "Write `model_config={'fcnet_hiddens': [64, 64]"),
        (PPOConfig, "max_epochs", "one call of `train()`"),
        (SACConfig, "accumulate_grad_batches", "a larger `train_batch_size`"),
        (PPOConfig, "on_train_epoch_end", "Write `on_train_result`"),
    ],
)
def test_names_of_other_libraries_are_answered_for_each_algorithm(config, name, advice):
    with pytest.raises(UnknownSettingError) as caught:
        config().training(**{name: 3})
    assert advice in str(caught.value)


def test_a_setting_of_another_algorithm_is_not_named():
    with pytest.raises(UnknownSettingError) as caught:
        DQNConfig().training(ent_coef=0.1)
    assert "entropy_coeff" not in str(caught.value)


@pytest.mark.parametrize(
    ("written", "advice"),
    [
        ("env_runners.num_env_runners", "of their own: `num_env_runners`"),
        ("config.lr", "Leave `config.` out: settings have names of their own: `lr`"),
        ("training.learning_rate", "Did you mean `lr`, an argument of training()?"),
        ("model.fcnet_hiddens", "Give a dict: `model={'fcnet_hiddens': 1}`"),
        ("model_config.fcnet_hiddens", "Give a dict: `model_config={'fcnet_hiddens': 1}`"),
        ("lr.initial", "`lr` has no keys; give a value: `lr=...`"),
        ("x.y", "Names have no dots."),
    ],
)
def test_a_dotted_name_is_told_how_it_is_written(written, advice):
    with pytest.raises(UnknownSettingError) as caught:
        PPOConfig().update_from_dict({written: 1})
    assert advice in str(caught.value)


def test_a_section_with_settings_in_it_is_told_which_stand_alone():
    with pytest.raises(UnknownSettingError) as caught:
        PPOConfig().update_from_dict({"training": {"lr": 1e-3, "gamma": 0.9}})
    assert "settings without it around them: `lr`, `gamma`." in str(caught.value)

"""RLlib's keys of `model_config` and `model`: read, left alone where they ask for nothing, told."""

import gymnasium as gym
import numpy as np
import pytest

from trainer import (
    DefaultModelConfig,
    DQNConfig,
    PPOConfig,
    RLModuleSpec,
    SACConfig,
    UnknownSettingError,
)
from trainer.config.algorithm_config import module_specs
from trainer.errors import ConfigError
from trainer.nn.initializers import KERNEL_RULES, TensorDraw


def xavier_uniform_(tensor, gain=1.0):
    """Stands for the function of `torch.nn.init`."""
    raise AssertionError("only its name is of use")


def built(config, env="CartPole-v1"):
    made = gym.make(env)
    spec = module_specs(config.environment(env)).only
    return RLModuleSpec(
        spec.module_class, made.observation_space, made.action_space, spec.model_config
    ).build(np.random.default_rng(3))


def test_the_tuned_dqn_model_of_cartpole_is_built():
    config = DQNConfig().rl_module(
        model_config=DefaultModelConfig(
            fcnet_hiddens=[16],
            fcnet_activation="tanh",
            fcnet_bias_initializer="constant_",
            fcnet_bias_initializer_kwargs={"val": 0.25},
        )
    )
    weights = built(config).get_state()
    assert (weights["encoder/0/bias"] == 0.25).all()
    assert (weights["af/0/bias"] == 0.0).all()


def test_the_tuned_sac_model_of_pendulum_is_built():
    config = SACConfig().rl_module(
        model_config=DefaultModelConfig(
            fcnet_hiddens=[8, 8],
            fcnet_activation="relu",
            fcnet_kernel_initializer=xavier_uniform_,
            head_fcnet_hiddens=[],
            head_fcnet_activation=None,
            head_fcnet_kernel_initializer="orthogonal_",
            head_fcnet_kernel_initializer_kwargs={"gain": 0.01},
        )
    )
    assert config.model_config["fcnet_kernel_initializer"] == "xavier_uniform"
    config.validate()
    weights = built(config, "Pendulum-v1").get_state()
    limit = np.sqrt(6.0 / (8 + 8))
    assert 0.7 * limit < np.abs(weights["pi/1/kernel"]).max() <= limit
    last = weights["pi/2/kernel"]
    np.testing.assert_allclose(last.T @ last, 1e-4 * np.eye(last.shape[1]), atol=1e-9)


@pytest.mark.parametrize(
    ("name", "options", "std"),
    [
        ("xavier_normal_", {"gain": 2.0}, 2.0 * np.sqrt(2.0 / 500)),
        ("kaiming_normal_", {"nonlinearity": "relu"}, np.sqrt(2.0 / 300)),
        ("kaiming_uniform_", {"mode": "fan_out", "nonlinearity": "linear"}, np.sqrt(1.0 / 200)),
        ("normal_", {"std": 0.5}, 0.5),
        ("uniform_", {"a": -1.0, "b": 1.0}, np.sqrt(1.0 / 3.0)),
        ("trunc_normal_", {"a": -1e9, "b": 1e9}, 1.0),
        ("ones_", {}, 0.0),
    ],
)
def test_kernels_are_drawn_as_torch_draws_them(name, options, std):
    kernel = np.zeros((300, 200))
    TensorDraw.named(name, options, KERNEL_RULES)(np.random.default_rng(0), kernel)
    assert kernel.std() == pytest.approx(std, rel=0.02, abs=1e-12)


def test_a_truncated_normal_stays_within_its_bounds():
    kernel = np.zeros((50, 50))
    draw = TensorDraw.named("trunc_normal_", {"a": -0.1, "b": 0.2}, KERNEL_RULES)
    draw(np.random.default_rng(0), kernel)
    assert kernel.min() >= -0.1
    assert kernel.max() <= 0.2


@pytest.mark.parametrize(
    "model",
    [
        {"use_lstm": False, "lstm_cell_size": 64, "lstm_use_prev_action": True},
        {"lstm_kernel_initializer": "xavier_uniform_"},
        {"use_attention": False, "attention_dim": 32},
        {"framestack": True, "grayscale": False, "zero_mean": True, "dim": 84},
        {"custom_model": None, "custom_model_config": {}, "_disable_preprocessor_api": False},
        {"fcnet_activation": None, "no_final_linear": False},
        {"fcnet_weights_initializer": "orthogonal_"},
    ],
)
def test_keys_that_ask_for_nothing_may_stay(model):
    PPOConfig().environment("CartPole-v1").training(model=model).validate()


@pytest.mark.parametrize(
    ("model", "advice"),
    [
        ({"use_attention": True}, "no attention networks"),
        ({"use_lstm": True, "lstm_use_prev_action_reward": True}, "lstm_use_prev_action"),
        ({"custom_model": "mine"}, "RLModule"),
        ({"dim": 42}, "ResizeObservation"),
        ({"fcnet_bias_initializer": "orthogonal_"}, "must be one of"),
        ({"fcnet_kernel_initializer": "xavier"}, "must be one of"),
        (
            {
                "head_fcnet_kernel_initializer": "normal_",
                "head_fcnet_kernel_initializer_kwargs": {"sd": 1.0},
            },
            "does not take the options",
        ),
    ],
)
def test_keys_that_ask_for_more_are_told_apart_from_misspelt_ones(model, advice):
    with pytest.raises(ConfigError) as caught:
        PPOConfig().environment("CartPole-v1").training(model=model).validate()
    assert advice in str(caught.value)
    assert "spelling" not in str(caught.value)
    with pytest.raises(UnknownSettingError, match="did you mean 'fcnet_hiddens'"):
        DefaultModelConfig.from_setting({"fcnet_hidden": [8]})
    with pytest.raises(UnknownSettingError, match="'net_arch' \\(did you mean 'fcnet_hiddens'"):
        DefaultModelConfig.from_setting({"net_arch": [8]})


@pytest.mark.parametrize(
    ("model", "hiddens", "activation"),
    [
        ({"fcnet_hiddens": [8], "post_fcnet_hiddens": [4]}, [8, 4], "tanh"),
        ({"post_fcnet_hiddens": [4]}, [256, 256, 4], "tanh"),
        (
            {"fcnet_hiddens": [], "post_fcnet_hiddens": [4], "post_fcnet_activation": "relu"},
            [4],
            "relu",
        ),
        (
            {"conv_filters": [[4, 3, 1]], "fcnet_hiddens": [9], "post_fcnet_hiddens": [4]},
            [4],
            "tanh",
        ),
    ],
)
def test_post_fcnet_hiddens_are_the_layers_that_they_are_in_rllib(model, hiddens, activation):
    config = DefaultModelConfig.from_setting(model)
    assert (list(config.fcnet_hiddens), config.fcnet_activation) == (hiddens, activation)


def test_no_activation_is_linear():
    config = DefaultModelConfig(fcnet_activation=None, head_fcnet_activation=None)
    assert config.fcnet_activation == config.head_fcnet_activation == "linear"


def test_networks_without_rules_of_their_own_begin_as_ever():
    plain = built(PPOConfig().training(model={"fcnet_hiddens": [8]}))
    told = built(PPOConfig().training(model={"fcnet_hiddens": [8], "lstm_cell_size": 3}))
    assert plain.get_state().keys() == told.get_state().keys()
    assert all((told.get_state()[n] == a).all() for n, a in plain.get_state().items())

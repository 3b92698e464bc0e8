"""SACConfig: RLlib's defaults, what is refused and why, the shapes of both kinds of networks."""

import pytest
from gymnasium import spaces

from trainer import ConfigError, PPOConfig, RLModuleSpec, SACConfig, UnknownSettingError
from trainer.config.algorithm_config import module_specs
from trainer.modules import ActorCriticModule, SACModule


def problems(**settings):
    with pytest.raises(ConfigError) as caught:
        SACConfig().update_from_dict(settings).validate()
    return str(caught.value)


def built(**settings):
    """The network that a config asks for, in a small env."""
    made = {"observation_space": spaces.Box(-1, 1, (3,)), "action_space": spaces.Box(-2, 2, (2,))}
    return module_specs(SACConfig().environment(**made).update_from_dict(settings)).only.build()


def test_the_defaults_are_valid_and_do_not_explore_in_evaluation():
    config = SACConfig()
    assert config.get_evaluation_config_object().explore is False
    config.validate()


def test_lr_must_stay_none_and_the_three_rates_are_named():
    text = problems(lr=1e-3)
    assert "lr=0.001" in text
    assert "`actor_lr`, `critic_lr` and `alpha_lr`" in text
    SACConfig().training(lr=None, actor_lr=[[0, 1e-3], [1000, 1e-4]]).validate()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"grad_clip": 0}, "grad_clip=0"),
        ({"initial_alpha": 0}, "initial_alpha=0"),
        ({"target_entropy": "automatic"}, "target_entropy='automatic'"),
        ({"tau": 0}, "tau=0"),
        ({"twin_q": 1}, "twin_q=1"),
        ({"critic_lr": -1e-3}, "critic_lr=-0.001"),
        ({"normalize_actions": False}, "scaled to the bounds"),
        ({"_use_beta_distribution": True}, "squashed normal"),
        ({"_deterministic_loss": True}, "drawn from the policy"),
        ({"optimization_config": {"actor_rate": 1e-3}}, "'actor_learning_rate'"),
        ({"model_config": {"free_log_std": True}}, "free_log_std"),
        ({"model_config": {"conv_filters": [[16, 4, 2]]}}, "conv_filters"),
        ({"q_model_config": {"fcnet_hidden": [8]}}, "did you mean 'fcnet_hiddens'"),
        ({"policy_model_config": {"fcnet_activation": "rely"}}, "fcnet_activation"),
        ({"policy_model_config": {"fcnet_hiddens": "a"}}, "policy_model_config={'fcnet_hiddens'"),
        ({"q_model_config": 5}, "q_model_config=5"),
        ({"policy_model_config": {"free_log_std": True}}, "policy_model_config: `free_log_std"),
        ({"q_model_config": {"conv_filters": [[16, 4, 2]]}}, "q_model_config: `conv_filters"),
        ({"q_model_config": {"log_std_clip_param": [1]}}, "log_std_clip_param=[1]"),
        ({"n_step": 3, "rollout_fragment_length": 2}, "n_step=3"),
        ({"num_epochs": 2}, "num_epochs=2"),
        ({"rl_module_spec": RLModuleSpec(module_class=ActorCriticModule)}, "SACModule"),
    ],
)
def test_what_cannot_work_is_refused(settings, expected):
    assert expected in problems(**settings)


def test_unknown_arguments_are_named():
    with pytest.raises(UnknownSettingError, match="Did you mean `twin_q`"):
        SACConfig().training(twin_qs=True)
    with pytest.raises(UnknownSettingError):
        PPOConfig().training(twin_q=True)


def test_a_network_derived_from_sacs_is_accepted():
    class Own(SACModule):
        pass

    config = SACConfig().rl_module(rl_module_spec=RLModuleSpec(module_class=Own))
    assert config.find_problems() == []


def test_the_networks_have_two_relu_layers_of_256_unless_told_otherwise():
    module = built()
    shapes = module.parameters.shapes
    assert shapes["pi/0/kernel"] == (3, 256)
    assert shapes["qf_twin/1/kernel"] == (256, 256)
    assert shapes["qf/2/kernel"] == (256, 1)
    assert shapes["pi/2/kernel"] == (256, 4)
    names = {type(layer.activation).__name__ for layer in module.critics.networks[0].layers[:-1]}
    assert names == {"Relu"}


def test_policy_and_critics_may_have_shapes_of_their_own():
    shapes = built(
        model_config={"fcnet_hiddens": [16]},
        policy_model_config={"fcnet_hiddens": [8, 4]},
        q_model_config={"head_fcnet_hiddens": [5]},
        twin_q=False,
    ).parameters.shapes
    assert shapes["pi/1/kernel"] == (8, 4)
    assert shapes["qf/0/kernel"] == (5, 16)
    assert shapes["qf/1/kernel"] == (16, 5)
    assert not any(name.startswith("qf_twin") for name in shapes)

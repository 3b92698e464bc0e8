"""gSDE: the network's deviations by hand and against differences, and the strategy's noise."""

import numpy as np
import pytest
from gymnasium import spaces

from tests.exploration_cases import choice_for, made, same_rows
from trainer import PPOConfig, SACConfig
from trainer.errors import ConfigError
from trainer.modules import RLModuleSpec, SACModule
from trainer.modules.actor_critic import ActorCriticModule
from trainer.modules.recurrent_module import RecurrentModule
from trainer.testing.checks import gradient_check

OBSERVATIONS = spaces.Box(-1.0, 1.0, (3,))
ACTIONS = spaces.Box(-1.0, 1.0, (2,), np.float32)
MEANS = [0.1, -0.2, 0.0, 0.0]
LAYERS = {
    "apart": {"vf_share_layers": False},
    "shared": {"vf_share_layers": True},
    "head": {"vf_share_layers": True, "head_fcnet_hiddens": [4]},
    "no hidden layer": {"fcnet_hiddens": [], "vf_share_layers": True},
}


def build(dtype=np.float64, *, module_class=None, **config):
    settings = {"fcnet_hiddens": [5], "free_log_std": True, "log_std_by_feature": True, **config}
    spec = RLModuleSpec(module_class, OBSERVATIONS, ACTIONS, settings)
    return spec.build(np.random.default_rng(0), dtype=dtype)


def rows(count=7, dtype=np.float64):
    return np.random.default_rng(1).standard_normal((count, 3)).astype(dtype)


# ---- the network


def test_variances_are_those_of_noise_on_the_last_layer():
    module, obs = build(fcnet_hiddens=[], log_std_init=-0.5), rows()
    log_std = module.parameters.views["pi/log_std"]
    assert log_std.shape == (3, 2)
    assert (log_std == -0.5).all()
    log_std[:] = [[0.0, -1.0], [0.5, 0.0], [-2.0, 1.0]]
    variance = obs**2 @ np.exp(2 * log_std) + 1e-6  # without a hidden layer, features are obs
    for given in (module.forward_exploration({"obs": obs}), module.forward_train({"obs": obs})):
        np.testing.assert_allclose(given["action_dist_inputs"][:, 2:], 0.5 * np.log(variance))
    loadings = module.forward_exploration({"obs": obs})["noise_loadings"]
    expected = obs[:, None, :] * np.exp(log_std).T / np.sqrt(variance)[:, :, None]
    np.testing.assert_allclose(loadings, expected)
    np.testing.assert_allclose((loadings**2).sum(axis=-1), 1.0, rtol=1e-4)


@pytest.mark.parametrize("layers", LAYERS)
def test_deviations_learn_by_their_derivative_and_features_do_not_learn_from_them(layers):
    module, obs = build(**LAYERS[layers]), rows()
    rng = np.random.default_rng(2)
    weights = rng.standard_normal((len(obs), 4))
    tensor = module.parameters.views["pi/log_std"]
    tensor[...] = 0.5 * rng.standard_normal(tensor.shape)

    def learn(d_inputs):
        module.forward_train({"obs": obs})
        module.backward(d_action_dist_inputs=d_inputs, d_vf_preds=np.zeros(len(obs)))
        return {name: view.copy() for name, view in module.gradients.views.items()}

    found = learn(weights)

    def weighted(values):
        tensor[...] = values
        inputs = module.forward_train({"obs": obs})["action_dist_inputs"]
        return float((weights * inputs).sum())

    gradient_check(weighted, found["pi/log_std"], tensor.copy())
    of_means = learn(weights * [1.0, 1.0, 0.0, 0.0])
    assert not of_means.pop("pi/log_std").any()
    for name, gradient in of_means.items():
        assert gradient.tobytes() == found[name].tobytes(), name


@pytest.mark.parametrize("layers", LAYERS)
def test_loadings_stand_alone_row_by_row(layers):
    module, obs = build(np.float32, **LAYERS[layers]), rows(dtype=np.float32)
    whole = module.forward_exploration({"obs": obs})
    for row in range(len(obs)):
        alone = module.forward_exploration({"obs": obs[row : row + 1]})
        for name, array in alone.items():
            assert array[0].tobytes() == whole[name][row].tobytes()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"free_log_std": False}, "of `free_log_std=True`, which is not set"),
        ({"log_std_by_feature": "yes"}, "log_std_by_feature='yes'"),
        ({"use_lstm": True}, "which has memory, does not offer it"),
        ({"module_class": RecurrentModule}, "which has memory, does not offer it"),
        ({"module_class": SACModule}, "a policy with critics gives the standard deviation"),
        ({"log_std_init": 21.0}, "within ± 20"),
    ],
    ids=str,
)
def test_settings_that_do_not_fit_are_refused(wrong, said):
    with pytest.raises(ConfigError, match=said):
        build(**wrong)


class Squashing(ActorCriticModule):
    """Acts in a way of its own."""

    def forward_acting(self, obs):
        inputs = super().forward_acting(obs)
        inputs[:, :2] = np.tanh(inputs[:, :2])
        return inputs


def test_a_subclass_that_acts_its_own_way_explores_that_way_and_has_no_loadings():
    module, obs = build(np.float32, module_class=Squashing), rows(dtype=np.float32)
    explored = module.forward_exploration({"obs": obs})
    assert explored.keys() == {"action_dist_inputs"}
    assert explored["action_dist_inputs"].tobytes() == module.forward_acting(obs).tobytes()
    config = (
        PPOConfig()
        .environment("Pendulum-v1")
        .rl_module(
            rl_module_spec=RLModuleSpec(module_class=Squashing),
            model_config={"free_log_std": True, "log_std_by_feature": True},
        )
    )
    config.exploration(exploration_config="StateDependentNoise").env_runners(num_env_runners=0)
    with pytest.raises(ConfigError, match="The network is Squashing"):
        config.build_algo()


# ---- the strategy


def acted(strategy, count, *, steps):
    """The noise of some steps in units of the deviations, [steps, count, 2]; all see the same."""
    found = []
    for slot in range(count):
        strategy.begin_episode(slot)
    for step in range(steps):
        choice = choice_for(strategy, same_rows(MEANS, count), seed=step)
        choice.loadings[:] = choice.loadings[0]
        actions, logp = strategy.get_exploration_action(action_distribution=choice, timestep=0)
        assert logp is None
        found.append(actions - np.array(MEANS[:2], np.float32))
    return np.stack(found)


def test_over_many_episodes_actions_are_of_the_modules_distribution():
    noise = acted(made("StateDependentNoise", ACTIONS), 20_000, steps=1)[0]
    np.testing.assert_allclose(noise.mean(axis=0), 0.0, atol=0.03)
    np.testing.assert_allclose(noise.std(axis=0), 1.0, rtol=0.02)
    np.testing.assert_allclose((noise**4).mean(axis=0), 3.0, rtol=0.08)


@pytest.mark.parametrize(
    ("sample_freq", "stretches"), [(None, [0] * 6), (1, [0, 1, 2, 3, 4, 5]), (4, [0] * 4 + [1] * 2)]
)
def test_noise_stays_for_a_stretch(sample_freq, stretches):
    config = {"type": "StateDependentNoise", "sample_freq": sample_freq}
    noise = acted(made(config, ACTIONS), 5, steps=6)
    for one in range(6):
        for other in range(6):
            are_same = (noise[one] == noise[other]).all()
            assert are_same == (stretches[one] == stretches[other])
    assert len({row.tobytes() for row in noise[0]}) == 5, "each slot has its own"


def test_a_new_episode_has_other_noise():
    strategy = made("StateDependentNoise", ACTIONS)
    first = acted(strategy, 3, steps=2)[0]
    strategy.begin_episode(1)
    choice = choice_for(strategy, same_rows(MEANS, 3), seed=9)
    choice.loadings[:] = choice.loadings[0]
    actions, _ = strategy.get_exploration_action(action_distribution=choice, timestep=0)
    noise = actions - np.array(MEANS[:2], np.float32)
    assert (noise == first).all(axis=1).tolist() == [True, False, True]


@pytest.mark.parametrize("wrong", [0, -3, 2.5, "4"])
def test_a_stretch_has_a_whole_number_of_steps(wrong):
    with pytest.raises(ConfigError, match="sample_freq"):
        made({"type": "StateDependentNoise", "sample_freq": wrong}, ACTIONS)


@pytest.mark.parametrize(
    "make", [PPOConfig, SACConfig], ids=["PPO without the setting", "SAC, whose networks lack it"]
)
@pytest.mark.parametrize("sub", [False, True])
def test_networks_without_loadings_are_refused_when_built(make, sub):
    exploration = {"type": "StateDependentNoise"}
    if sub:
        encoder = {"embeds_dim": 4, "encoder_net_config": {"fcnet_hiddens": [6]}}
        exploration = {"type": "RE3", "sub_exploration": exploration, **encoder}
    config = make().environment("Pendulum-v1").exploration(exploration_config=exploration)
    with pytest.raises(ConfigError, match='"log_std_by_feature": True'):
        config.env_runners(num_env_runners=0).build_algo()

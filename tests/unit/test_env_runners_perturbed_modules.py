"""Weights with the noise of an episode: what is added, to which tensors, and for how long."""

import numpy as np
from gymnasium import spaces

from tests.exploration_cases import made
from trainer.env_runners.acting import PerturbedModules
from trainer.modules import RLModuleSpec

_OBS = spaces.Box(-1.0, 1.0, (3,), np.float32)
_ACTIONS = spaces.Discrete(2)


def module(*, inference_only=True):
    return RLModuleSpec(
        observation_space=_OBS,
        action_space=_ACTIONS,
        model_config={"fcnet_hiddens": [4], "vf_share_layers": False},
        inference_only=inference_only,
    ).build(np.random.default_rng(0))


def strategy(stddev=0.5):
    return made({"type": "ParameterNoise", "initial_stddev": stddev}, _ACTIONS)


def outputs(perturbed, slots):
    obs = np.tile(np.array([0.3, -0.2, 0.9], np.float32), (len(slots), 1))
    return perturbed.forward({"obs": obs}, slots)


def test_a_slot_acts_with_weights_plus_stddev_times_noise():
    net, noisy = module(), strategy(0.5)
    perturbed = PerturbedModules(net, noisy)
    perturbed.begin_episode(0, np.random.default_rng(1))
    other = module()
    noise = np.random.default_rng(1).standard_normal(net.num_parameters, dtype=np.float32)
    other.parameters.flat[:] = net.parameters.flat + np.float32(0.5) * noise
    expected = other.forward_acting(np.array([[0.3, -0.2, 0.9]], np.float32))
    np.testing.assert_array_equal(outputs(perturbed, [0]), expected)


def test_noise_stays_for_an_episode_while_weights_and_stddev_change():
    net, noisy = module(), strategy(0.5)
    perturbed = PerturbedModules(net, noisy)
    perturbed.begin_episode(0, np.random.default_rng(1))
    net.parameters.flat[:] *= 2.0
    noisy.set_state({"cur_stddev": 0.25})
    perturbed.refresh()
    again = PerturbedModules(net, strategy(0.25))
    again.begin_episode(0, np.random.default_rng(1))
    np.testing.assert_array_equal(outputs(perturbed, [0]), outputs(again, [0]))


def test_slots_have_noise_of_their_own_and_a_new_one_with_each_episode():
    perturbed = PerturbedModules(module(), strategy())
    perturbed.begin_episode(0, np.random.default_rng(1))
    perturbed.begin_episode(1, np.random.default_rng(2))
    first = outputs(perturbed, [0, 1])
    assert not np.array_equal(first[0], first[1])
    perturbed.begin_episode(0, np.random.default_rng(2))
    np.testing.assert_array_equal(outputs(perturbed, [0])[0], first[1])


def test_the_module_itself_is_never_changed():
    net = module()
    before = net.parameters.flat.copy()
    perturbed = PerturbedModules(net, strategy())
    perturbed.begin_episode(0, np.random.default_rng(1))
    outputs(perturbed, [0])
    np.testing.assert_array_equal(net.parameters.flat, before)


def test_a_module_with_more_than_acting_needs_acts_the_same():
    """Runners hold the value network only while callbacks rewrite trajectories."""
    whole, part = module(inference_only=False), module()
    part.set_state(whole.get_state())
    found = []
    for net in (whole, part):
        perturbed = PerturbedModules(net, strategy())
        perturbed.begin_episode(0, np.random.default_rng(7))
        found.append(outputs(perturbed, [0]))
    np.testing.assert_array_equal(found[0], found[1])

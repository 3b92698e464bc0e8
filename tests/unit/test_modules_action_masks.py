"""Masks: impossible actions have no probability, no gradient, and are never the best."""

import numpy as np
import pytest
from gymnasium import spaces

from trainer.errors import ConfigError, UnsupportedSpaceError
from trainer.modules import ActorCriticModule, RLModule, RLModuleSpec
from trainer.nn import DiagGaussian, matmul_rows

BOX = spaces.Box(-1.0, 1.0, (3,))
OBS = np.array([[0.1, 0.2, 0.3, 1, 0, 1, 1], [-0.1, 0.5, 0.9, 0, 0, 1, 0]], np.float32)
MASK = OBS[:, 3:] != 0


def observations():
    return spaces.Dict({"action_mask": spaces.MultiBinary(4), "observations": BOX})


class LinearModule(RLModule):
    """As a user writes it: it knows nothing of masks."""

    def parameter_shapes(self):
        return {"pi/kernel": (self.obs_size, self.action_distribution.num_inputs)}

    def initialize(self, rng):
        kernel = self.parameters.views["pi/kernel"]
        kernel[:] = rng.standard_normal(kernel.shape)

    def forward_acting(self, obs):
        assert obs.shape[1] == self.obs_size == 3
        return matmul_rows(obs, self.parameters.views["pi/kernel"])

    def forward_train(self, batch):
        self._obs = batch["obs"]
        inputs = self._obs @ self.parameters.views["pi/kernel"]
        return {"action_dist_inputs": inputs, "vf_preds": 0.0 * inputs[:, 0]}

    def backward(self, *, d_action_dist_inputs, d_vf_preds):
        del d_vf_preds
        self.gradients.views["pi/kernel"][:] = self._obs.T @ d_action_dist_inputs


def build(action_space=None, **more):
    space = spaces.Discrete(4) if action_space is None else action_space
    spec = RLModuleSpec(ActorCriticModule, observations(), space, {"fcnet_hiddens": [4]})
    return spec.build(np.random.default_rng(0), **more)


def test_probabilities_entropies_and_gradients_are_those_of_the_possible_actions():
    module = build(dtype=np.float64)
    rows = OBS.astype(np.float64)
    inputs = module.forward_train({"obs": rows})["action_dist_inputs"]
    terms = module.action_distribution.evaluate(inputs, np.array([2, 2]), reference=inputs)
    logits = inputs[0, MASK[0]]
    probs = np.exp(logits) / np.exp(logits).sum()
    assert terms.logp[0] == pytest.approx(np.log(probs[1]))
    assert terms.entropy[0] == pytest.approx(-(probs * np.log(probs)).sum())
    assert terms.logp[1] == terms.entropy[1] == 0.0
    gradient = terms.backward(d_logp=np.ones(2), d_entropy=5.0, d_kl=2.0)
    assert np.isfinite(gradient).all()
    assert (gradient[~MASK] == 0.0).all()


def test_a_mask_that_allows_nothing_leaves_all_actions_free_in_learning():
    module = build()
    row = OBS[:1].copy()
    row[0, 3:] = 0.0
    inputs = module.forward_train({"obs": row})["action_dist_inputs"]
    np.testing.assert_allclose(inputs, module.forward_acting(row[:, :3]), atol=1e-6)
    assert module.action_mask(row).all()
    assert module.action_masks.leaves_nothing(np.concatenate([row, OBS])).tolist() == [1, 0, 0]


def test_every_choice_has_its_own_part_of_the_mask():
    module = build(spaces.MultiDiscrete([2, 2]))
    row = OBS[:1].copy()
    row[0, 3:] = [0, 1, 0, 0]  # the second choice has nothing left: it is free
    assert module.action_mask(row).tolist() == [[False, True, True, True]]
    assert module.action_masks.leaves_nothing(row).tolist() == [True]
    inputs = module.forward_inference({"obs": row})["action_dist_inputs"]
    assert module.action_distribution.deterministic(inputs)[0, 0] == 1


def test_without_masks_methods_are_those_of_the_class():
    spec = RLModuleSpec(LinearModule, BOX, spaces.Discrete(4))
    module = spec.build(np.random.default_rng(0))
    assert module.action_masks is None
    assert module.action_mask(OBS[:, :3]) is None
    assert "forward_train" not in vars(module)


class GaussianForDiscrete(LinearModule):
    def make_action_distribution(self):
        return DiagGaussian((1,))


def test_masks_that_do_not_fit_the_actions_are_refused():
    with pytest.raises(UnsupportedSpaceError, match=r"4 entries, but .* has 5 alternatives"):
        build(spaces.Discrete(5))
    with pytest.raises(UnsupportedSpaceError, match="masks are for Discrete and MultiDiscrete"):
        build(BOX)
    with pytest.raises(ConfigError, match="has 2 inputs"):
        RLModuleSpec(GaussianForDiscrete, observations(), spaces.Discrete(4)).build()

"""`check_module` accepts what is right and finds what is wrong, each mistake by its own message."""

import numpy as np
import pytest
from gymnasium import spaces

from trainer.modules import ActorCriticModule, RLModule
from trainer.nn import matmul_rows
from trainer.testing.checks import check_module

SPACES = {
    "observation_space": spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Box(-9e9, 9e9, (4,))}),
    "action_space": spaces.Box(-1.0, 1.0, (2,)),
}


class Right(RLModule):
    """Linear in the observation."""

    def parameter_shapes(self):
        d, k = self.obs_size, self.action_distribution.num_inputs
        return {"pi/kernel": (d, k), "vf/kernel": (d,)}

    def initialize(self, rng):
        kernel = self.parameters.views["pi/kernel"]
        kernel[:] = 0.1 * rng.standard_normal(kernel.shape)

    def forward_acting(self, obs):
        return matmul_rows(obs, self.parameters.views["pi/kernel"])

    def forward_train(self, batch):
        w, self._obs = self.parameters.views, batch["obs"]
        return {
            "action_dist_inputs": self._obs @ w["pi/kernel"],
            "vf_preds": self._obs @ w["vf/kernel"],
        }

    def backward(self, *, d_action_dist_inputs, d_vf_preds):
        g = self.gradients.views
        g["pi/kernel"][:] = self._obs.T @ d_action_dist_inputs
        g["vf/kernel"][:] = self._obs.T @ d_vf_preds


class AddsUpGradients(Right):
    def backward(self, *, d_action_dist_inputs, d_vf_preds):
        before = self.gradients.flat.copy()
        super().backward(d_action_dist_inputs=d_action_dist_inputs, d_vf_preds=d_vf_preds)
        self.gradients.flat[:] += before


class ForgetsAGradient(Right):
    def backward(self, *, d_action_dist_inputs, d_vf_preds):
        super().backward(d_action_dist_inputs=d_action_dist_inputs, d_vf_preds=0.5 * d_vf_preds)


class LooksAtOtherRows(Right):
    def forward_acting(self, obs):
        return super().forward_acting(obs - obs.mean(axis=0))


class OverwritesActions(Right):
    def setup(self):
        self._memory = np.zeros((100, self.action_distribution.num_inputs), np.float32)

    def forward_acting(self, obs):
        self._memory[: len(obs)] = super().forward_acting(obs)
        return self._memory[: len(obs)]


def acting(changed):
    """A module that changes what it acts by."""

    class Acting(Right):
        def forward_acting(self, obs):
            return changed(super().forward_acting(obs))

    return Acting


class GivesColumnsOfValues(Right):
    def forward_train(self, batch):
        outputs = super().forward_train(batch)
        return {**outputs, "vf_preds": outputs["vf_preds"][:, None]}


class HidesAWeight(Right):
    """The factor is drawn with the weights, but is no part of the state."""

    factor = np.float32(1.0)

    def initialize(self, rng):
        super().initialize(rng)
        self.factor = np.float32(2.0)

    def forward_acting(self, obs):
        return super().forward_acting(obs) * self.factor

    def forward_train(self, batch):
        outputs = super().forward_train(batch)
        return {**outputs, "action_dist_inputs": outputs["action_dist_inputs"] * self.factor}


@pytest.mark.parametrize("module_class", [Right, ActorCriticModule])
def test_right_modules_pass(module_class):
    config = {} if module_class is Right else {"fcnet_hiddens": [3]}
    assert isinstance(check_module(module_class, model_config=config, **SPACES), module_class)


@pytest.mark.parametrize(
    ("module_class", "message"),
    [
        (AddsUpGradients, "must overwrite"),
        (ForgetsAGradient, "central differences give"),
        (LooksAtOtherRows, "other bits when they stand alone"),
        (OverwritesActions, "overwrote what it had returned"),
        (acting(lambda given: given.astype(np.float64)), "gave float64; expected float32"),
        (
            acting(lambda given: given + np.float32(0.5)),
            "forward_acting disagree",
        ),
        (acting(lambda given: given[:, :-1]), r"expected \(11, 4\)"),
        (GivesColumnsOfValues, r"the shape \(11, 1\); expected \(11,\)"),
        (HidesAWeight, "a copy acts differently"),
    ],
)
def test_every_mistake_is_found(module_class, message):
    with pytest.raises(AssertionError, match=message):
        check_module(module_class, **SPACES)

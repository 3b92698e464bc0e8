"""Modules in Torch that name a distribution class: it changes logits, and does nothing else."""

import numpy as np
import pytest
from gymnasium import spaces

from trainer import Columns, RLModuleSpec, TorchRLModule
from trainer.errors import ModuleError
from trainer.modules.torch_distributions import (
    TorchDiagGaussian,
    TorchMultiCategorical,
    TorchMultiDistribution,
)
from trainer.rllib_names.torch_names import TorchCategorical, ValueFunctionAPI, try_import_torch
from trainer.testing.checks import check_module

pytest.importorskip("torch")

torch, nn = try_import_torch()
SPACES = (spaces.Box(-1.0, 1.0, (4,)), spaces.Discrete(3))


def warm(default):
    """A categorical distribution with a temperature, as an example of RLlib's has it."""

    class Warm(TorchCategorical):
        def __init__(self, logits=None, probs=None, temperature=default):
            if logits is not None:
                logits /= temperature
            super().__init__(logits, probs)

    return Warm


class WithTemperature(TorchRLModule, ValueFunctionAPI):
    def setup(self):
        self.body = nn.Sequential(nn.Linear(self.obs_size, 8), nn.Tanh())
        width = self.action_distribution.num_inputs
        self.pi, self.vf = nn.Linear(8, width), nn.Linear(8, 1)
        temperature = self.model_config.get("temperature")
        if temperature is not None:
            self.action_dist_cls = warm(temperature)

    def _forward(self, batch, **kwargs):
        return {Columns.ACTION_DIST_INPUTS: self.pi(self.body(batch[Columns.OBS]))}

    def compute_values(self, batch, embeddings=None):
        return self.vf(self.body(batch[Columns.OBS])).squeeze(-1)


def built(module_class=WithTemperature, **model_config):
    return RLModuleSpec(module_class, *SPACES, model_config).build(np.random.default_rng(0))


@pytest.mark.parametrize("temperature", [None, 4.0])
def test_logits_and_gradients_are_those_after_the_temperature(temperature):
    plain, module = built(), built(temperature=temperature)
    obs = np.random.default_rng(1).standard_normal((6, 4)).astype(np.float32)
    factor = 1.0 / (temperature or 1.0)
    for forward in ("forward_inference", "forward_exploration", "forward_train"):
        expected = getattr(plain, forward)({"obs": obs})["action_dist_inputs"]
        found = getattr(module, forward)({"obs": obs})["action_dist_inputs"]
        np.testing.assert_allclose(found, factor * expected, rtol=1e-6)
    slope = np.ones((6, 3), np.float32)
    for each in (plain, module):
        each.backward(d_action_dist_inputs=slope, d_vf_preds=np.zeros(6, np.float32))
    np.testing.assert_allclose(
        module.gradients.flat, factor * plain.gradients.flat, rtol=1e-5, atol=1e-7
    )
    model_config = {"temperature": temperature}
    check_module(
        WithTemperature,
        observation_space=SPACES[0],
        action_space=SPACES[1],
        model_config=model_config,
    )


class OfOneKind(WithTemperature):
    def get_train_action_dist_cls(self):
        return warm(2.0)


def test_a_forward_pass_may_have_a_class_of_its_own():
    module, obs = built(OfOneKind), np.ones((1, 4), np.float32)
    acting = module.forward_exploration({"obs": obs})["action_dist_inputs"]
    learning = module.forward_train({"obs": obs})["action_dist_inputs"]
    np.testing.assert_allclose(2.0 * learning, acting, rtol=1e-6)


class NoClass(WithTemperature):
    def setup(self):
        super().setup()
        self.action_dist_cls = torch.distributions.Categorical


class DrawsOtherwise(WithTemperature):
    def setup(self):
        super().setup()

        class Odd(TorchCategorical):
            def sample(self):
                return self.logits.argmin(-1)

            def logp(self, actions):
                return actions

        self.action_dist_cls = Odd


class LosesLogits(WithTemperature):
    def setup(self):
        super().setup()

        class Short(TorchCategorical):
            def __init__(self, logits=None, probs=None):
                super().__init__(logits[:, :1], probs)

        self.action_dist_cls = Short


@pytest.mark.parametrize(
    ("module_class", "message"),
    [
        (NoClass, "`action_dist_cls` of NoClass names 'Categorical', a distribution class that"),
        (DrawsOtherwise, "names Odd, whose methods logp, sample would not be used"),
        (LosesLogits, r"`logits` of Short is the shape \[8, 1\] for inputs of the shape \[8, 3\]"),
    ],
)
def test_what_a_class_cannot_do_here_is_named(module_class, message):
    with pytest.raises(ModuleError, match=message):
        built(module_class)


def test_a_box_of_actions_has_no_such_class():
    spec = RLModuleSpec(OfBox, SPACES[0], spaces.Box(-1.0, 1.0, (1,)), {"temperature": 2.0})
    with pytest.raises(ModuleError, match="a distribution of one choice, but the action space is"):
        spec.build(np.random.default_rng(0))


class OfBox(TorchRLModule):
    def setup(self):
        self.pi = nn.Linear(4, 2)
        self.action_dist_cls = warm(2.0)

    def _forward(self, batch, **kwargs):
        return {"action_dist_inputs": self.pi(batch["obs"])}


def test_logits_and_probabilities_are_alternatives():
    probs = torch.tensor([[0.25, 0.75]])
    torch.testing.assert_close(TorchCategorical(probs=probs).logits, probs.log())
    for given in ({}, {"logits": probs, "probs": probs}):
        with pytest.raises(ModuleError, match="expected one of them"):
            TorchCategorical(**given)


def of_torch(dist):
    """The same distribution of Torch's own."""
    if isinstance(dist, TorchCategorical):
        return torch.distributions.Categorical(logits=dist.logits)
    return torch.distributions.Independent(torch.distributions.Normal(dist.loc, dist.scale), 1)


@pytest.mark.parametrize("kind", ["categorical", "gaussian"])
def test_divergences_and_draws_are_those_of_torch(kind):
    first, second = torch.randn((2, 5, 6), generator=torch.Generator().manual_seed(0))
    made = TorchCategorical if kind == "categorical" else TorchDiagGaussian
    before, now = made.from_logits(first), made.from_logits(second)
    expected = torch.distributions.kl_divergence(of_torch(before), of_torch(now))
    torch.testing.assert_close(before.kl(now), expected)
    pair = TorchMultiDistribution([before, now])
    other = TorchMultiDistribution([now, now])
    torch.testing.assert_close(pair.kl(other), expected)
    torch.manual_seed(3)
    single = before.sample()
    torch.manual_seed(3)
    several = before.sample(sample_shape=())
    assert torch.equal(single, several)
    drawn = before.sample(sample_shape=(4000,))
    assert drawn.shape == (4000, *single.shape)
    estimate = -before.logp(drawn).mean(dim=0)
    torch.testing.assert_close(estimate, of_torch(before).entropy(), atol=0.1, rtol=0.0)
    fixed = before.to_deterministic()
    assert torch.equal(fixed.sample(sample_shape=(2,))[1], fixed.loc)


def test_several_choices_are_one_action():
    logits = torch.randn((5, 5), generator=torch.Generator().manual_seed(0))
    by_class = TorchMultiCategorical.get_partial_dist_cls(space=None, input_lens=[2, 3])
    dist = by_class.from_logits(logits)
    parts = [TorchCategorical(logits[:, :2]), TorchCategorical(logits[:, 2:])]
    actions = dist.sample(sample_shape=(7,))
    assert actions.shape == (7, 5, 2)
    assert actions.dtype == torch.int64
    expected = parts[0].logp(actions[..., 0]) + parts[1].logp(actions[..., 1])
    torch.testing.assert_close(dist.logp(actions), expected)
    torch.testing.assert_close(dist.entropy(), parts[0].entropy() + parts[1].entropy())
    likely = dist.to_deterministic().sample()
    assert torch.equal(likely, torch.stack([part.logits.argmax(-1) for part in parts], dim=-1))
    same = TorchMultiCategorical.from_logits(logits, input_lens=(2, 3))
    torch.testing.assert_close(same.logp(actions), expected)


@pytest.mark.parametrize("sizes", [None, [2, 3], [3, 2]])
def test_a_module_may_name_the_class_of_its_multi_discrete_actions(sizes):
    class Module(WithTemperature):
        def setup(self):
            super().setup()
            found = TorchMultiCategorical
            self.action_dist_cls = found.get_partial_dist_cls(input_lens=sizes) if sizes else found

    spec = RLModuleSpec(Module, SPACES[0], spaces.MultiDiscrete([2, 3]))
    if sizes == [3, 2]:
        with pytest.raises(ModuleError, match="would not be used here"):
            spec.build(np.random.default_rng(0))
    else:
        inputs = spec.build(np.random.default_rng(0)).forward_train({"obs": np.ones((3, 4))})
        plain = RLModuleSpec(WithTemperature, SPACES[0], spaces.MultiDiscrete([2, 3]))
        expected = plain.build(np.random.default_rng(0)).forward_train({"obs": np.ones((3, 4))})
        np.testing.assert_array_equal(inputs["action_dist_inputs"], expected["action_dist_inputs"])


def test_draws_of_a_gaussian_let_gradients_through():
    loc = torch.zeros((3, 2), requires_grad=True)
    dist = TorchDiagGaussian(loc, torch.tensor([0.5, 2.0]))
    assert not dist.sample().requires_grad
    dist.rsample(sample_shape=(4,)).sum().backward()
    assert torch.equal(loc.grad, torch.full((3, 2), 4.0))


def test_an_action_of_probability_0_has_a_finite_entropy():
    assert torch.isfinite(TorchCategorical(probs=torch.tensor([[1.0, 0.0]])).entropy()).all()

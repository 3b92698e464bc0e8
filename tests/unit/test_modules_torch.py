"""`TorchRLModule`: what users may write, what it computes, and what it refuses."""

import contextlib
import copy
import pickle
import sys

import cloudpickle
import numpy as np
import pytest
from gymnasium import spaces

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from tests.sac_updates import sac_learner  # noqa: E402
from tests.torch_modules import (  # noqa: E402
    DenseModule,
    NoisyConvolution,
    NoisyDense,
    TwinSAC,
    small_network,
)
from trainer import ModuleError, RLModuleSpec, TorchRLModule  # noqa: E402
from trainer.nn import torch_network  # noqa: E402
from trainer.testing.checks import encoded_samples  # noqa: E402

BOX = spaces.Box(-1.0, 1.0, (4,))
TWO = spaces.Discrete(2)
IMAGE = spaces.Box(0, 255, (5, 6, 3), np.uint8)
SEVEN = spaces.Box(-1.0, 1.0, (7,))
MASKED = spaces.Dict({"action_mask": spaces.Box(0, 1, (3,), np.int8), "observations": BOX})


LAZY_LAYERS_WARN = pytest.mark.filterwarnings("ignore:Lazy modules are a new feature:UserWarning")
"""Torch 2.3 warns that they may change."""


def built(module_class, observation_space=BOX, action_space=TWO, **settings):
    spec = RLModuleSpec(module_class, observation_space, action_space, settings)
    return spec.build(np.random.default_rng(0))


def rows(count, size=4):
    return np.random.default_rng(1).standard_normal((count, size)).astype(np.float32)


def update(module, obs, *, number=0):
    """One pass forward and backward, as a learner makes it."""
    module.begin_update(5, number)
    outputs = module.forward_train({"obs": obs})
    module.backward(
        d_action_dist_inputs=np.ones_like(outputs["action_dist_inputs"]),
        d_vf_preds=np.ones(len(obs), np.float32),
    )
    return outputs


# ---- what users may write


class OfAllParts(TorchRLModule):
    """Reads every part of a nested observation."""

    def setup(self):
        self.embedding = nn.Linear(3, 8, bias=False)
        self.body = nn.Linear(8 + 4 + 2, 16)
        self.pi = nn.Linear(16, self.action_distribution.num_inputs)
        self.vf = nn.Linear(16, 1)

    def _forward(self, batch, **kwargs):
        obs = batch["obs"]
        parts = [self.embedding(obs["choice"]), *obs["pair"]]
        features = torch.tanh(self.body(torch.cat(parts, dim=1)))
        return {
            "action_dist_inputs": self.pi(features),
            "vf_preds": self.vf(features).squeeze(-1),
        }


class ReadsItsMask(TorchRLModule):
    """As in RLlib's example of action masking: takes the mask off itself."""

    def setup(self):
        self.pi = nn.Linear(4, self.action_distribution.num_inputs)
        self.vf = nn.Linear(4, 1)

    def _forward(self, batch, **kwargs):
        mask = batch["obs"].pop("action_mask")
        obs = batch["obs"].pop("observations")
        logits = self.pi(obs) + torch.clamp(torch.log(mask), min=-1e37)
        return {"action_dist_inputs": logits, "vf_preds": self.vf(obs).squeeze(-1)}


class IgnoresItsMask(ReadsItsMask):
    def _forward(self, batch, **kwargs):
        obs = batch["obs"]["observations"]
        return {"action_dist_inputs": self.pi(obs), "vf_preds": self.vf(obs).squeeze(-1)}


def test_parameters_and_gradients_lie_in_the_flat_vectors():
    module = built(DenseModule)
    weight = module.pi[0].weight
    module.parameters.views["pi.0.weight"][:] = 2.0
    assert (weight == 2.0).all()
    update(module, rows(3))
    assert weight.grad.numpy().tobytes() == module.gradients.views["pi.0.weight"].tobytes()
    assert module.gradients.flat.any()
    assert sum(p.numel() for p in module.parameters()) == module.num_parameters
    assert [name for name, _ in module.named_parameters()] == list(module.parameters.views)


def test_the_example_of_rllib_that_takes_its_mask_off_runs_as_it_is():
    module = built(ReadsItsMask, MASKED, spaces.Discrete(3))
    plain = built(IgnoresItsMask, MASKED, spaces.Discrete(3))
    plain.set_state(module.get_state())
    obs = encoded_samples(MASKED, seed=0)
    obs[:, 4:] = np.random.default_rng(0).integers(0, 2, (len(obs), 3))
    obs[:, 5] = 1.0
    obs[0, 4:] = (0, 1, 0)
    logits = module.forward_inference({"obs": obs})["action_dist_inputs"]
    assert logits[0, 0] <= -1e29
    assert logits[0, 1] > -1e3
    assert logits.tobytes() == plain.forward_inference({"obs": obs})["action_dist_inputs"].tobytes()
    for each in (module, plain):
        update(each, obs)
    assert plain.gradients.flat.tobytes() == module.gradients.flat.tobytes()
    assert module.compute_values({"obs": obs[:, :4]}).shape == (len(obs),)


def test_batches_of_tensors_give_tensors():
    module = built(DenseModule)
    batch = {"obs": torch.from_numpy(rows(3))}
    for forward in (module.forward_inference, module.forward_exploration):
        inputs = forward(batch)["action_dist_inputs"]
        assert isinstance(inputs, torch.Tensor)
        assert not inputs.requires_grad
    assert module.forward_train(batch)["action_dist_inputs"].requires_grad
    assert module.compute_values(batch).shape == (3,)


def test_a_network_that_exists_is_wrapped_in_one_line():
    network = small_network()
    module = built(TorchRLModule.wrapping(network))
    obs = rows(5)
    with torch.no_grad():
        expected = network(torch.from_numpy(obs)).numpy()
    np.testing.assert_allclose(module.forward_acting(obs), expected, rtol=1e-5, atol=1e-6)
    before = network[0].weight.detach().clone()
    module.parameters.flat[:] = 0.0
    assert (network[0].weight == before).all()
    assert type(module).__name__ == "Wrapped_Sequential"


class WithValues(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = small_network()
        self.vf = nn.Linear(4, 1)

    def forward(self, obs):
        return self.body(obs), self.vf(obs)


def test_a_wrapped_network_may_be_made_by_a_function_and_give_values():
    wrapped = TorchRLModule.wrapping(lambda obs, actions, config: WithValues())
    outputs = update(built(wrapped), rows(3))
    assert outputs["vf_preds"].shape == (3,)
    with pytest.raises(ModuleError, match=r"returned a int; expected a torch\.nn\.Module"):
        built(TorchRLModule.wrapping(lambda obs, actions, config: 3))
    with pytest.raises((TypeError, ValueError), match="network"):
        TorchRLModule.wrapping(3)


class Lazy(TorchRLModule):
    def setup(self):
        self.pi = nn.LazyLinear(self.action_distribution.num_inputs)

    def _forward(self, batch, **kwargs):
        return {"action_dist_inputs": self.pi(batch["obs"])}


@LAZY_LAYERS_WARN
def test_layers_that_learn_their_size_from_an_input_are_built():
    module = built(Lazy)
    assert module.parameters.shapes == {"pi.weight": (2, 4), "pi.bias": (2,)}
    assert module.parameters.flat.any()


class Tied(TorchRLModule):
    """One layer under two names, a number of its own, and layers that are frozen."""

    def setup(self):
        self.one = nn.Linear(4, 4)
        self.other = self.one
        self.scale = nn.Parameter(torch.tensor(0.5))
        self.pi = nn.Linear(4, 2)
        self.pi.weight.requires_grad_(False)

    def _forward(self, batch, **kwargs):
        hidden = self.other(self.one(batch["obs"]))
        return {"action_dist_inputs": self.scale * self.pi(hidden)}


def test_shared_frozen_and_single_numbers_are_learnt_as_torch_does():
    module = built(Tied)
    assert list(module.parameters.shapes) == [
        *("scale", "one.weight", "one.bias", "pi.weight", "pi.bias")
    ]
    update(module, rows(3))
    assert not module.gradients.views["pi.weight"].any()
    assert module.gradients.views["scale"] != 0.0
    assert pickle.loads(cloudpickle.dumps(module)).scale == 0.5


# ---- state


def test_buffers_are_taken_over_by_a_copy_that_follows():
    module, copy = built(NoisyDense), built(NoisyDense)
    update(module, rows(8))
    copy.copy_buffers(module)
    copy.parameters.flat[:] = module.parameters.flat
    assert copy.forward_acting(rows(3)).tobytes() == module.forward_acting(rows(3)).tobytes()
    theirs = copy.get_state()["body.1.running_mean"].tobytes()
    update(module, rows(8))
    assert copy.get_state()["body.1.running_mean"].tobytes() == theirs, "no memory is shared"


def test_state_dicts_of_torch_go_out_and_in():
    module, other = built(NoisyDense), built(NoisyDense)
    module.parameters.flat[:] += 0.3
    update(module, rows(8))
    given = module.to_torch()
    assert all(isinstance(tensor, torch.Tensor) for tensor in given.values())
    assert other.from_torch(given) == []
    assert other.forward_acting(rows(3)).tobytes() == module.forward_acting(rows(3)).tobytes()
    other.load_state_dict(built(NoisyDense).state_dict())
    assert other.get_state()["body.1.num_batches_tracked"] == 0

    part = {"pi.bias": torch.ones(2, dtype=torch.float64), "more": torch.ones(1)}
    with pytest.raises(ModuleError):
        other.from_torch(part)
    assert "pi.weight" in other.from_torch(part, strict=False)
    assert (other.get_state()["pi.bias"] == 1.0).all()


# ---- draws


def test_dropout_follows_from_update_and_minibatch():
    module, obs = built(NoisyDense), rows(16)

    def outputs(number, minibatch, root_seed=5):
        module.begin_update(root_seed, number)
        for _ in range(minibatch):
            module.forward_train({"obs": rows(3)})
        return module.forward_train({"obs": obs})["action_dist_inputs"].tobytes()

    expected = outputs(3, 1)
    torch.manual_seed(0)
    assert outputs(3, 1) == expected
    assert len({expected, outputs(4, 1), outputs(3, 2), outputs(3, 1, root_seed=6)}) == 4


def test_the_generator_of_torch_stays_as_it_is():
    before = torch.default_generator.get_state()
    module = built(NoisyDense)
    update(module, rows(8))
    module.forward_acting(rows(3))
    assert torch.equal(torch.default_generator.get_state(), before)


@contextlib.contextmanager
def default_float64():
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


class MixesNewNumbersIn(DenseModule):
    """Its forward pass makes numbers of the default type, and of what autocast makes of them."""

    def _forward(self, batch, **kwargs):
        wide = torch.ones(3, 4) @ torch.full((4, 1), 0.1)
        shifted = {"obs": batch["obs"] * (wide.sum() / 7.0)}
        return super()._forward(shifted, **kwargs)


def told_by_networks():
    """What networks of every kind in Torch compute, from their first weights on."""
    images = {"conv_filters": [[2, 3, 2]], "fcnet_hiddens": [5], "backend": "torch"}
    memory = {"use_lstm": True, "lstm_cell_size": 4, "fcnet_hiddens": [5], "backend": "torch"}
    modules = [
        built(MixesNewNumbersIn),
        built(NoisyConvolution, IMAGE),
        RLModuleSpec(None, IMAGE, TWO, images).build(np.random.default_rng(0)),
        RLModuleSpec(None, BOX, TWO, memory).build(np.random.default_rng(0)),
    ]
    told = []
    for module in modules:
        obs = encoded_samples(module.observation_space, seed=1)
        outputs = update(module, obs)
        acted = module.forward_acting(obs) if not module.is_stateful() else obs
        told += [array.tobytes() for array in (*outputs.values(), module.gradients.flat, acted)]
    critics = sac_learner(module_class=TwinSAC, model={})
    return [*told, critics.module.parameters.flat.tobytes()]


MODES = {
    "autocast": lambda: torch.autocast("cpu"),
    "inference_mode": lambda: torch.inference_mode(),
    "no_grad": lambda: torch.no_grad(),
    "set_default_dtype": default_float64,
}


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_what_surrounds_a_call_does_not_reach_networks(mode):
    expected = told_by_networks()
    with mode():
        assert told_by_networks() == expected
        assert torch.ones(1).dtype == (torch.float64 if mode is default_float64 else torch.float32)


def test_autocast_that_has_no_effect_is_told_once(caplog):
    torch_network._warn_of_autocast.cache_clear()
    module = built(DenseModule)
    for _ in range(2):
        with torch.autocast("cpu"):
            module.forward_acting(rows(3))
    assert [text[:40] for text in caplog.messages] == ["torch.autocast around calls of this libr"]


# ---- acting gives a row the same bits in any batch


class OddWidths(TorchRLModule):
    """Widths for which products in blocks of eight round differently at different places."""

    def setup(self):
        self.pi = nn.Sequential(nn.Linear(7, 33), nn.Tanh(), nn.Linear(33, 33), nn.Linear(33, 5))

    def _forward(self, batch, **kwargs):
        return {"action_dist_inputs": self.pi(batch["obs"])}


class AcrossRows(OddWidths):
    """Looks at the other rows of its batch."""

    def _forward(self, batch, **kwargs):
        obs = batch["obs"]
        return {"action_dist_inputs": self.pi(obs - obs.mean(dim=0))}


@pytest.mark.parametrize("module_class", [OddWidths, AcrossRows])
def test_a_row_gets_the_same_bits_in_any_batch(module_class):
    module = built(module_class, SEVEN, spaces.Discrete(5))
    obs = rows(50, 7)
    together = module.forward_acting(obs)
    for part in (slice(0, 1), slice(3, 20), slice(11, 12), slice(7, 50)):
        assert module.forward_acting(obs[part]).tobytes() == together[part].tobytes()


class InBlocks(NoisyConvolution):
    acting_block = 4


def test_images_are_acted_on_in_blocks_if_a_class_asks_for_it():
    module = built(InBlocks, IMAGE, spaces.Discrete(16))
    alone = built(NoisyConvolution, IMAGE, spaces.Discrete(16))
    obs = encoded_samples(IMAGE, seed=0)
    together = module.forward_acting(obs)
    assert (module.acts_row_by_row, alone.acts_row_by_row) == (False, True)
    assert not built(DenseModule).acts_row_by_row
    np.testing.assert_allclose(together, alone.forward_acting(obs), rtol=1e-4, atol=1e-5)
    for row in range(len(obs)):
        assert module.forward_acting(obs[row : row + 1]).tobytes() == together[row].tobytes()


def test_a_network_that_looks_at_other_rows_acts_row_by_row_and_says_so(caplog):
    module = built(AcrossRows, SEVEN, spaces.Discrete(5))
    assert module.acts_row_by_row
    copy.deepcopy(module)
    assert ["AcrossRows acts row by row" in message for message in caplog.messages] == [True]


# ---- mistakes, one clear error each


def giving(outputs):
    class Giving(DenseModule):
        def _forward(self, batch, **kwargs):
            return outputs(self, batch["obs"])

    return Giving


class WithoutForward(TorchRLModule):
    def setup(self):
        self.pi = nn.Linear(4, 2)


class DrawsWhileActing(DenseModule):
    def _forward_exploration(self, batch, **kwargs):
        inputs = self.pi(batch["obs"])
        return {"action_dist_inputs": inputs + torch.randn_like(inputs)}


class NormalisesWhileActing(DenseModule):
    def setup(self):
        super().setup()
        self.register_buffer("mean", torch.zeros(4))

    def _forward(self, batch, **kwargs):
        self.mean.mul_(0.9).add_(batch["obs"].mean(dim=0))
        return {"action_dist_inputs": self.pi(batch["obs"] - self.mean)}


class CountsWhileActing(DenseModule):
    calls = 0

    def _forward(self, batch, **kwargs):
        self.calls += 1
        return {"action_dist_inputs": self.calls * self.pi(batch["obs"])}


class ChangesWeights(DenseModule):
    def _forward(self, batch, **kwargs):
        with torch.no_grad():
            self.pi[0].weight.clamp_(-0.1, 0.1)
        return super()._forward(batch)


class ReplacesLayers(DenseModule):
    def _forward(self, batch, **kwargs):
        self.pi = nn.Linear(4, 2)
        return super()._forward(batch)


class LayersAfterSetup(DenseModule):
    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.more = nn.Linear(4, 2)


class MoreForActing(DenseModule):
    def setup(self):
        super().setup()
        if self.inference_only:
            self.more = nn.Linear(1, 1)


class NamesADistribution(DenseModule):
    def get_inference_action_dist_cls(self):
        return torch.distributions.Categorical


class OfComplexNumbers(DenseModule):
    def setup(self):
        super().setup()
        self.phase = nn.Parameter(torch.zeros(2, dtype=torch.complex64))


@pytest.mark.parametrize(
    ("module_class", "message"),
    [
        (
            giving(lambda self, obs: {"action_dist_inputs": self.vf(obs)}),
            r"Giving\._forward\w+ returned .* the shape \[8, 1\] for 8 .* \[8, 2\]",
        ),
        (
            giving(lambda self, obs: {"logits": self.pi(obs)}),
            r"returned \['logits'\], without 'action_dist_inputs'",
        ),
        (
            giving(lambda self, obs: {"action_dist_inputs": self.pi(obs).detach().numpy()}),
            "returned a ndarray as 'action_dist_inputs'; expected",
        ),
        (WithoutForward, "WithoutForward has no forward pass"),
        (DrawsWhileActing, "draws random numbers while it acts"),
        (NormalisesWhileActing, r"changes its buffers while it acts \(mean\)"),
        (CountsWhileActing, "other 'action_dist_inputs' when the same observation"),
        (ChangesWeights, "changed a parameter in place"),
        (ReplacesLayers, "`self.pi = …` would give"),
        (LayersAfterSetup, "`self.more = …` would give"),
        (NamesADistribution, r"`get_inference_action_dist_cls\(\)` of Names.* names 'Categorical'"),
        (OfComplexNumbers, "phase of OfComplexNumbers are no real"),
    ],
)
def test_every_mistake_is_named_when_the_module_is_built(module_class, message):
    with pytest.raises(ModuleError, match=message):
        built(module_class)


class ColumnsOfValues(DenseModule):
    def compute_values(self, batch, embeddings=None):
        return self.vf(batch["obs"])


class Detached(DenseModule):
    def _forward_train(self, batch, **kwargs):
        return {"action_dist_inputs": self.pi(batch["obs"]).detach()}


class MovesItsWeights(DenseModule):
    def _forward_train(self, batch, **kwargs):
        self.pi.double().float()
        return super()._forward_train(batch)


@pytest.mark.parametrize(
    ("module_class", "message"),
    [
        (ColumnsOfValues, r"the shape \[3, 1\] for 3 observations; .*squeeze"),
        (Detached, "`action_dist_inputs` of the forward pass of learning does not depend"),
        (MovesItsWeights, "'pi.0.weight' of MovesItsWeights was given other memory"),
        (MoreForActing, "makes tensors with `inference_only=True` that it does not"),
    ],
)
def test_every_mistake_is_named_when_the_module_learns(module_class, message):
    module = built(module_class)

    def learn_and_send():
        update(module, rows(3))
        module.get_state(inference_only=True)

    with pytest.raises(ModuleError, match=message):
        learn_and_send()


@LAZY_LAYERS_WARN
def test_values_that_are_missing_are_named():
    module = built(Lazy)
    with pytest.raises(ModuleError, match="Lazy gives no values, but its algorithm learns them"):
        module.compute_values({"obs": rows(3)})
    with pytest.raises(ModuleError, match="without 'vf_preds'"):
        module.training_output({"obs": rows(3)}, "vf_preds")


def test_backward_belongs_to_one_forward_pass():
    module = built(DenseModule)
    gradients = {"d_action_dist_inputs": np.ones((3, 2), np.float32)}
    for before, words in (
        (lambda: None, "forward_train before"),
        (lambda: module.forward_train({"obs": rows(4)}), r"\(4, 2\)"),
        (lambda: update(module, rows(3)), "forward_train before"),
    ):
        before()
        with pytest.raises((ValueError, TypeError), match=words):
            module.backward(**gradients)


# ---- another device


def accelerators():
    """The second name of the processor, which takes the same path, and what is there besides."""
    return ["cpu:0", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.mark.parametrize("device", accelerators())
def test_learning_on_a_device_gives_the_same(device):
    here, there = built(NoisyDense), built(NoisyDense, device=device)
    obs = rows(16)
    for number in range(3):
        outputs = [update(module, obs, number=number) for module in (here, there)]
        if device == "cpu:0":  # an accelerator draws other numbers
            for name, output in outputs[0].items():
                assert outputs[1][name].tobytes() == output.tobytes()
            assert there.gradients.flat.tobytes() == here.gradients.flat.tobytes()
        for module in (here, there):
            module.parameters.flat[:] -= 0.1 * module.gradients.flat
    state = there.get_state()
    assert state["body.1.num_batches_tracked"] == 3
    here.set_state(state)
    assert here.forward_acting(obs).tobytes() == there.forward_acting(obs).tobytes()
    values = [module.compute_values({"obs": obs}) for module in (here, there)]
    np.testing.assert_allclose(values[0], values[1], rtol=1e-4, atol=1e-5)


def test_a_device_that_is_not_there_is_named():
    for device in ("nonsense", "cuda:77"):
        with pytest.raises(ModuleError, match=f"{device}.*Torch cannot compute there"):
            built(DenseModule, device=device)


# ---- without Torch


def test_its_lack_is_named(monkeypatch):
    """That importing the library never imports Torch is shown in `test_fresh_import`."""
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError) as caught:
        RLModuleSpec(TorchRLModule, BOX, TWO).build()
    assert "TorchRLModule needs the package `torch`" in str(caught.value)
    assert 'pip install "local-trainer[torch]"' in str(caught.value)

"""Networks in Torch with memory: masks, devices, and what is refused."""

import numpy as np
import pytest
from gymnasium import spaces

pytest.importorskip("torch")

import torch
from torch import nn

from tests.torch_modules import Remembering
from trainer import RLModuleSpec, TorchRLModule
from trainer.errors import ModuleError
from trainer.testing.checks import check_module

OBS, ACT = spaces.Box(-1.0, 1.0, (3,)), spaces.Discrete(3)


def built(module_class=Remembering, **settings):
    return RLModuleSpec(module_class, OBS, ACT, {"cell_size": 4, **settings}).build(
        np.random.default_rng(0)
    )


class Masked(TorchRLModule):
    """A GRU over a Dict observation with a mask, values from the same pass."""

    def setup(self):
        self.gru = nn.GRU(3, 4, batch_first=True)
        self.pi, self.vf = nn.Linear(4, 3), nn.Linear(4, 1)

    def get_initial_state(self):
        return {"h": np.zeros(4, np.float32)}

    def _forward(self, batch, **kwargs):
        obs = batch["obs"]
        assert obs["action_mask"].shape[:2] == obs["a"].shape[:2] == batch["loss_mask"].shape
        embeddings, h = self.gru(obs["a"], batch["state_in"]["h"][None])
        outputs = {"action_dist_inputs": self.pi(embeddings), "state_out": {"h": h[0]}}
        return {**outputs, "vf_preds": self.vf(embeddings).squeeze(-1)}


def test_masks_and_dict_observations_have_a_time_axis():
    mask = spaces.Box(0, 1, (3,), np.int8)
    space = spaces.Dict({"a": spaces.Box(-1.0, 1.0, (3,)), "action_mask": mask})
    check_module(Masked, observation_space=space, action_space=ACT)


ACCELERATORS = ["cpu:0", *(["cuda"] if torch.cuda.is_available() else [])]
"""The second name of the processor, which takes the same path, and what is there besides."""


@pytest.mark.parametrize("device", ACCELERATORS)
def test_sequences_are_learnt_on_a_device_as_here(device):
    here, there = built(), built(device=device)
    obs = np.random.default_rng(1).standard_normal((5, 3)).astype(np.float32)
    batch = {"obs": obs, "seq_lens": np.array([2, 3])}
    for module in (here, there):
        outputs = module.forward_train(batch)
        d_inputs = np.cos(outputs["action_dist_inputs"])
        module.backward(d_action_dist_inputs=d_inputs, d_vf_preds=np.ones(5, np.float32))
    np.testing.assert_allclose(there.gradients.flat, here.gradients.flat, rtol=1e-4, atol=1e-6)
    if device == "cpu:0":
        assert there.gradients.flat.tobytes() == here.gradients.flat.tobytes()
    acted = [module.forward_inference({"obs": obs}) for module in (here, there)]
    for name in ("h", "c"):
        first, second = (outputs["state_out"][name] for outputs in acted)
        assert first.tobytes() == second.tobytes()


class Broken(Remembering):
    """Breaks one rule, which `model_config` names."""

    def _forward(self, batch, **kwargs):
        outputs = super()._forward(batch)
        breaks = self.model_config["breaks"]
        if breaks == "missing":
            del outputs["state_out"]
        elif breaks == "shape":
            outputs["state_out"] = {name: s[:, :1] for name, s in outputs["state_out"].items()}
        elif breaks == "axis":
            outputs["action_dist_inputs"] = outputs["action_dist_inputs"][:, 0]
        return outputs


@pytest.mark.parametrize(
    ("breaks", "message"),
    [
        ("missing", r"_forward_exploration returned .* without 'state_out'"),
        ("shape", r"of the shape \[8, 1\] at \['h'\]"),
        ("axis", r"of the shape \[8, 3\] for 8 sequences of 1 observations"),
    ],
)
def test_what_breaks_the_contract_is_one_error(breaks, message):
    with pytest.raises(ModuleError, match=message):
        built(Broken, breaks=breaks)

"""`TorchSACModule`: SAC learns the same with it as with networks in NumPy, and what is refused."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from checkpoints import encode  # noqa: E402
from tests.sac_updates import BOX, CHOICE, MODEL, replayed_rows, sac_learner  # noqa: E402
from tests.torch_modules import TwinSAC  # noqa: E402
from trainer import ConfigError, ModuleError, RLModuleSpec, SACConfig, TorchSACModule  # noqa: E402
from trainer.modules import SACModule  # noqa: E402

RATES = {"critic_lr": 1e-2, "actor_lr": 1e-2, "alpha_lr": 1e-2}


def learner(module_class, actions, model=None):
    return sac_learner(actions, module_class=module_class, model=model or {}, **RATES)


def as_in_torch(state):
    """NumPy's tensors by the names that Torch has for them: "pi/1/kernel" is "pi.2.weight"."""
    found = {"log_alpha": state["log_alpha"]}
    for name, array in state.items():
        part, layer, kind = (name.split("/") * 3)[:3]
        if kind in ("kernel", "bias"):
            ours = {"kernel": "weight"}.get(kind, kind)
            found[f"{part}.{2 * int(layer)}.{ours}"] = np.ascontiguousarray(array.T)
    return found


@pytest.mark.parametrize("actions", [BOX, CHOICE])
def test_losses_and_gradients_are_those_of_numpy(actions):
    expected = learner(SACModule, actions, MODEL)
    found = learner(TwinSAC, actions)
    found.set_weights(as_in_torch(expected.get_weights()))
    rows = replayed_rows(actions)
    for _ in range(3):
        losses = [
            subject.losses(rows, rng=np.random.default_rng(2)) for subject in (expected, found)
        ]
        # Terms of about 1 that nearly cancel: some units in the last place of float32 remain.
        assert losses[1].total == pytest.approx(losses[0].total, rel=1e-5, abs=5e-7)
        assert losses[1].policy_loss == pytest.approx(losses[0].policy_loss, rel=1e-5)
        numpy_gradients = as_in_torch(expected.module.gradients.views)
        gradients = found.module.gradients.views
        assert numpy_gradients.keys() == gradients.keys()
        for name, gradient in gradients.items():
            largest = np.abs(numpy_gradients[name]).max()
            error = np.abs(gradient - numpy_gradients[name]).max()
            assert error <= 1e-5 * largest, name
        for subject in (expected, found):
            subject._set_rates(0)
            subject.learn(rows, lr=0.0, rng=np.random.default_rng(2))
            subject.follow()
    target = as_in_torch({**expected.target.get_state(), "log_alpha": np.zeros(1)})
    for name, array in found.target.get_state().items():
        np.testing.assert_allclose(array, target[name], rtol=1e-4, atol=1e-6)


def test_targets_have_weights_of_their_own_and_are_restored():
    subject = learner(TwinSAC, BOX)
    before = subject.get_state()
    subject._set_rates(0)
    for number in range(3):
        subject.module.begin_update(3, number)
        subject.learn(replayed_rows(BOX), lr=0.0, rng=np.random.default_rng(number))
        subject.follow()
    target = subject.target.get_state()
    weights = subject.get_weights()
    assert all(target[name].tobytes() != weights[name].tobytes() for name in target)
    assert list(target) == [name for name in weights if name.startswith("qf")]
    subject.set_state(before)
    assert encode(subject.target.get_state()) == encode(before["target"])


class Shared(TwinSAC):
    def compute_q_values(self, batch):
        return self.pi(batch["obs"]).sum(dim=1) + super().compute_q_values(batch)[0]


class ReadsCritics(TwinSAC):
    def _forward(self, batch, **kwargs):
        inputs = torch.cat([batch["obs"], torch.zeros(len(batch["obs"]), 2)], dim=1)
        return {"action_dist_inputs": self.pi(batch["obs"]) + self.qf(inputs)}


class Columns(TwinSAC):
    def compute_q_values(self, batch):
        return self.qf(torch.cat([batch["obs"], batch["actions"]], dim=1))


class Three(TwinSAC):
    def compute_q_values(self, batch):
        return (*super().compute_q_values(batch), super().compute_q_values(batch)[0])


class WithoutCritics(TorchSACModule):
    def setup(self):
        self.pi = nn.Linear(3, self.action_distribution.num_inputs)

    def _forward(self, batch, **kwargs):
        return {"action_dist_inputs": self.pi(batch["obs"])}


@pytest.mark.parametrize(
    ("module_class", "message"),
    [
        (Shared, r"The critics read pi\.0\.weight"),
        (ReadsCritics, r"The policy reads qf\.0\.weight"),
        (Columns, r"returned \[2, 1\] for 2 observations; expected .* \[2\]"),
        (Three, "returned 3 critics; SAC learns one or two"),
        (WithoutCritics, "has no critics: no layer's name begins with `qf`"),
    ],
)
def test_mistakes_are_named(module_class, message):
    with pytest.raises(ModuleError, match=message):
        learner(module_class, BOX)


def test_other_modules_in_torch_are_refused():
    config = SACConfig().environment("Pendulum-v1")
    config.rl_module(rl_module_spec=RLModuleSpec(module_class=TorchSACModule.__base__))
    with pytest.raises(ConfigError, match="Derive it from SACModule or TorchSACModule"):
        config.validate()

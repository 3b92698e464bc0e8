"""SAC with a policy and critics in Torch: what users write, and the critics as SAC learns them."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from trainer.errors import ModuleError
from trainer.modules.sac_module import LOG_ALPHA, sac_distribution
from trainer.modules.torch_module import TorchRLModule
from trainer.nn import ActionDistribution, Categorical, Parameters
from trainer.types import Array

_CRITIC: Final = "qf"
"""What the names of critics begin with."""
_NAMES: Final = ("qf", "qf_twin")
"""What metrics call the first and the second critic."""


class TorchSACModule(TorchRLModule):
    """A policy and one or two critics in Torch, for SAC.

        class MySAC(TorchSACModule):
            def setup(self):
                d, a = self.obs_size, self.action_space.shape[0]
                self.pi = nn.Sequential(nn.Linear(d, 64), nn.ReLU(), nn.Linear(64, 2 * a))
                self.qf = nn.Sequential(nn.Linear(d + a, 64), nn.ReLU(), nn.Linear(64, 1))
                self.qf_twin = nn.Sequential(nn.Linear(d + a, 64), nn.ReLU(), nn.Linear(64, 1))

            def _forward(self, batch):
                return {"action_dist_inputs": self.pi(batch["obs"])}

            def compute_q_values(self, batch):
                inputs = torch.cat([batch["obs"], batch["actions"]], dim=1)
                return self.qf(inputs).squeeze(-1), self.qf_twin(inputs).squeeze(-1)

    Attributes whose names begin with "qf" are critics; policy and critics share no layer. The
    parameter `log_alpha` is made here; `model_config["initial_alpha"]` is its first value.

    Attributes:
        is_discrete: the action space is Discrete; else it is a bounded Box.
        critics: Q as SAC learns it; None if built for acting.
    """

    critics: TorchCritics | None = None

    def make_action_distribution(self) -> ActionDistribution:
        """Squashed Gaussian or categorical."""
        distribution = sac_distribution(
            self.action_space, log_std_clip=self.model_config.get("log_std_clip_param", 20.0)
        )
        self.is_discrete = isinstance(distribution, Categorical)
        return distribution

    def compute_q_values(self, batch: dict[str, Any]) -> Any:
        """What the critics say of observations; users write it.

        Args:
            batch: {"obs": tensors as in `_forward`, "actions": [B, A] in [-1, 1]}; without actions
                for Discrete ones.

        Returns:
            A tensor [B], or [B, n] of all n Discrete actions; or a tuple of two such.
        """
        del batch
        raise ModuleError(
            f"{type(self).__name__} has no critics. Write `compute_q_values(self, batch)`: from "
            '{"obs", "actions"} to a tensor [B], or to a tuple of two such; for Discrete actions '
            'from {"obs"} to [B, n].'
        )

    def place_of(self, name: str) -> int:
        """Policy, critics, temperature, in this order."""
        return {"pi": 0, LOG_ALPHA: 2}.get(self.part_of(name), 1)

    def part_of(self, name: str) -> str:
        """What a tensor belongs to: "pi", a critic by the name of its attribute, or "log_alpha"."""
        part = name.split(".", maxsplit=1)[0]
        return part if part == LOG_ALPHA or part.startswith(_CRITIC) else "pi"

    def copy_critics(self) -> TorchCritics:
        """Critics with weights of their own, the same at first."""
        return TorchCritics(copy.deepcopy(self), followed=self)

    def _setup(self) -> None:
        super()._setup()
        if not self.inference_only:
            torch = self._torch_layers.torch
            first = float(np.log(self.model_config.get("initial_alpha", 1.0)))
            self.log_alpha = torch.nn.Parameter(torch.full((1,), first))

    def _make_tensors(self, rng: np.random.Generator | None, dtype: type[np.floating[Any]]) -> None:
        super()._make_tensors(rng, dtype)
        if self.model_config.get("device") not in (None, "cpu"):
            raise ModuleError(
                f'`model_config={{"device": {self.model_config["device"]!r}}}`: SAC learns on the '
                "processor only. Leave it out."
            )
        if not self.inference_only:
            self.critics = TorchCritics(self)
            self.critics.check()


class TorchCritics:
    """The critics of a `TorchSACModule`, with the manners of `trainer.modules.sac_module.Critics`.

    Life: any number of times `forward`, followed by `backward`, or by `d_actions`, or by none; both
    belong to the last `forward`.

    Attributes:
        names: of the critics, by which metrics are called.
        parameters: where their weights are, among others perhaps.
    """

    def __init__(self, module: TorchSACModule, *, followed: TorchSACModule | None = None) -> None:
        """Finds the critics of a module.

        Args:
            module: whose `compute_q_values` is asked.
            followed: the module that learns, if these are target critics; then `module` is a copy
                that belongs to them, and their weights get a vector of their own.
        """
        self._module = module
        self._layers = module._torch_layers
        self._followed = followed
        self.parameters: Parameters = module.parameters
        tensors = module.parameters.tensors
        self._tensors = {n: t for n, t in tensors.items() if module.place_of(n) == 1}
        if followed is not None:
            self._give_own_vector()
        self._outputs: list[Any] = []
        self._actions: Any = None
        self.names: tuple[str, ...] = _NAMES

    def _give_own_vector(self) -> None:
        from_numpy = self._layers.torch.from_numpy
        shapes = {name: tuple(tensor.shape) for name, tensor in self._tensors.items()}
        own = Parameters(shapes, dtype=self.parameters.dtype)
        for name, tensor in self._tensors.items():
            view = from_numpy(own.views[name])
            view.copy_(tensor.detach())
            tensor.data = view
        self.parameters = own

    @property
    def block(self) -> Array:
        """The memory of all their weights, one vector."""
        names = list(self._tensors)
        return self.parameters.block(names[0], names[-1])

    def forward(self, obs: Array, actions: Array | None = None) -> list[Array]:
        """The values that each critic gives; see `Critics.forward`."""
        module, layers = self._module, self._layers
        is_target = self._followed is not None
        if self._followed is not None:
            module.copy_buffers(self._followed)
        rows = layers.with_masks(obs)
        with layers.computing(is_training=not is_target):
            batch = layers.batch(layers.aligned(rows), {})
            if actions is not None:
                given = np.ascontiguousarray(actions, module.parameters.dtype)
                self._actions = layers.aligned(given.reshape(len(rows), -1))
                self._actions.requires_grad_(not is_target)
                batch["actions"] = self._actions
            self._outputs = self._checked(module.compute_q_values(batch), len(rows))
        self.names = _NAMES[: len(self._outputs)]
        return [output.detach().numpy() for output in self._outputs]

    def backward(self, d_values: Sequence[Array]) -> None:
        """Overwrites the gradients of all critics; see `Critics.backward`."""
        gradients = self._module.gradients
        names = list(self._tensors)
        gradients.block(names[0], names[-1])[:] = 0.0
        self._layers.accumulate(self._outputs, d_values, list(self._tensors.values()))

    def d_actions(self, d_values: Sequence[Array]) -> Array:
        """How the values change with the actions, [B, A]; see `Critics.d_actions`."""
        layers = self._layers
        with layers.fixed():
            given = [layers.gradient(d) for d in d_values]
            grad = layers.torch.autograd.grad(self._outputs, [self._actions], given)
        d_actions: Array = grad[0].numpy()
        return d_actions

    def check(self) -> None:
        """Lets the critics value something once, to find mistakes before anything is learnt.

        Raises:
            ModuleError: shapes are wrong, or policy and critics share layers, or a critic reads
                parameters that are not called a critic's.
        """
        module = self._module
        width = module.action_distribution.noise_width
        rows = np.zeros((2, module.obs_size), module.parameters.dtype)
        buffers = {name: array.copy() for name, array in self._layers.buffers().items()}
        if not self._tensors:
            raise ModuleError(
                f"{type(module).__name__} has no critics: no layer's name begins with `qf`. Make "
                "them in `setup`: `self.qf = …`, and `self.qf_twin = …` for a second one."
            )
        self.forward(rows, None if module.is_discrete else np.zeros((2, width)))
        self._refuse_others(self._outputs, is_critic=True)
        with self._layers.computing(is_training=True):
            batch = self._layers.batch(self._layers.aligned(self._layers.with_masks(rows)), {})
            inputs = module._forward_train(batch)["action_dist_inputs"]
        self._refuse_others([inputs], is_critic=False)
        for name, array in self._layers.buffers().items():
            array[...] = buffers[name]
        self._outputs = []

    def _refuse_others(self, outputs: Sequence[Any], *, is_critic: bool) -> None:
        """Raises a ModuleError if critics depend on other parameters, or others on theirs."""
        tensors: Mapping[str, Any] = self._module.parameters.tensors
        others = {
            n: t
            for n, t in tensors.items()
            if (n in self._tensors) is not is_critic and t.requires_grad
        }
        if not others:
            return
        leaves, grad = list(others.values()), self._layers.torch.autograd.grad
        with self._layers.fixed():
            grads = grad(sum(output.sum() for output in outputs), leaves, allow_unused=True)
        found = [name for name, grad in zip(others, grads, strict=True) if grad is not None]
        if found:
            what = "The critics read" if is_critic else "The policy reads"
            raise ModuleError(
                f"{what} {', '.join(found)} of {type(self._module).__name__}: SAC learns policy "
                "and critics apart. Give each layers of their own; attributes whose names begin "
                "with `qf` are the critics'."
            )

    def _checked(self, given: Any, count: int) -> list[Any]:
        """The values of each critic as a list of one or two tensors."""
        module, torch = self._module, self._layers.torch
        values = list(given) if isinstance(given, tuple | list) else [given]
        shape = (count, module.action_distribution.noise_width) if module.is_discrete else (count,)
        for value in values:
            if not isinstance(value, torch.Tensor) or tuple(value.shape) != shape:
                found = list(getattr(value, "shape", [type(value).__name__]))
                raise ModuleError(
                    f"{type(module).__name__}.compute_q_values returned {found} for {count} "
                    f"observations; expected a tensor of the shape {list(shape)} for each critic. "
                    "A last layer of one unit gives [B, 1]: take `.squeeze(-1)` of it."
                )
        if not 1 <= len(values) <= len(_NAMES):
            raise ModuleError(
                f"{type(module).__name__}.compute_q_values returned {len(values)} critics; SAC "
                "learns one or two. Return a tensor, or a tuple of two."
            )
        return values

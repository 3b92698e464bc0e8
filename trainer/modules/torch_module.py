"""Networks written in Torch: users give layers and a forward pass, gradients come from autograd.

The parameters and gradients of the layers are views on the flat vectors of `trainer.nn.Parameters`,
so optimisers, clipping, weights and checkpoints work as for networks in NumPy. Torch is the extra
`[torch]`; it is imported when the first such module is built, never before.
"""

from __future__ import annotations

import contextlib
import copy
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from checkpoints import state_array
from trainer.episodes.episode_columns import ACTION_DIST_INPUTS, OBS, VF_PREDS
from trainer.errors import ModuleError
from trainer.modules.rl_module import RLModule
from trainer.modules.torch_distributions import TorchPolicies
from trainer.modules.torch_layers import TorchLayers, TorchParameters, buffer_problems
from trainer.modules.torch_memory import TorchMemoryLayers
from trainer.nn.torch_network import torch_library
from trainer.types import Array, State
from trainer_toolkit.arguments import argument_error


class TorchRLModule(RLModule):
    """A network in Torch; subclass it as in RLlib.

        class MyModule(TorchRLModule):
            def setup(self):
                self.body = nn.Sequential(nn.Linear(self.observation_space.shape[0], 64), nn.Tanh())
                self.pi = nn.Linear(64, self.action_space.n)
                self.vf = nn.Linear(64, 1)

            def _forward(self, batch):
                return {"action_dist_inputs": self.pi(self.body(batch["obs"]))}

            def compute_values(self, batch, embeddings=None):
                return self.vf(self.body(batch["obs"])).squeeze(-1)

        config.rl_module(rl_module_spec=RLModuleSpec(module_class=MyModule))

    `batch["obs"]` is a tensor [B, *shape] for a Box; [B, n], one-hot codes, for a Discrete or
    MultiDiscrete space; a dict or tuple of such for Dict and Tuple spaces, action mask included.
    All of it is float32; bytes of an image are 0 to 255. Masks are applied to what is returned.

    Learning runs in training mode (`train()`), everything else in evaluation mode and without
    gradients. Dropout and other draws while learning follow from the update and the minibatch.
    Buffers are part of the state: they reach the env runners, checkpoints and undone updates.

    Acting runs in blocks of eight rows if that gives each row the same bits wherever it stands, and
    row by row otherwise; a probe decides when the module is built. Images are acted on one by one;
    with eight or more envs per runner, `acting_block = 8` in the class takes less time for them.

    With memory, override `get_initial_state()`: {"h": zeros [H], ...}. All columns are [B, T, ...]
    then, T = 1 while acting; `batch["state_in"]` holds the states [B, ...] before the first step,
    and forward passes return those after the last one as "state_out". While learning, sequences
    are padded with zeros, which no loss counts; "loss_mask" [B, T] says where.

    A module is no `torch.nn.Module`, but gives what one has: `state_dict()`, `named_parameters()`,
    `register_buffer()` … docs/modules.md has the rules.

    Attributes:
        acting_block: rows that acting computes together; None: 8, or 1 for images. Part of what a
            run computes.
        acts_row_by_row: whether acting computes every row alone.
    """

    acting_block: ClassVar[int | None] = None
    applies_masks: ClassVar[bool] = True
    framework = "torch"
    parameters: TorchParameters
    _torch_layers: TorchLayers

    # ---- what users write

    def setup(self) -> None:
        """Makes the layers, as attributes; `self.inference_only` says which can be left out."""

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """The forward pass wherever no other one is given.

        Args:
            batch: {"obs": tensors (see the class)}; while learning, the learner's other columns.
            kwargs: none today.

        Returns:
            {"action_dist_inputs": [B, K]}, and while learning "vf_preds" [B], or "embeddings" for
            `compute_values`.
        """
        del batch, kwargs
        raise ModuleError(
            f"{type(self).__name__} has no forward pass. Write `_forward(self, batch)`, or "
            "`_forward_inference`, `_forward_exploration` and `_forward_train`; it returns "
            '{"action_dist_inputs": a tensor [B, K]}.'
        )

    def _forward_inference(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Acting without exploration; see `_forward`."""
        return self._forward(batch, **kwargs)

    def _forward_exploration(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Acting with exploration; see `_forward`."""
        return self._forward(batch, **kwargs)

    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Learning; see `_forward`."""
        return self._forward(batch, **kwargs)

    def initialize(self, rng: np.random.Generator) -> None:
        """Nothing: `setup` has drawn the first weights, from a seed that `rng` gave."""
        del rng

    @classmethod
    def wrapping(cls, network: Any) -> type[TorchRLModule]:
        """A module class around a `torch.nn.Module` that exists already.

            config.rl_module(rl_module_spec=RLModuleSpec(module_class=TorchRLModule.wrapping(net)))

        The network is called with the observations and returns `action_dist_inputs`, or a pair
        (`action_dist_inputs`, `vf_preds`), or a dict of both.

        Args:
            network: a `torch.nn.Module`, whose weights are the first ones; or a function
                (observation_space, action_space, model_config) that makes one.

        Raises:
            ModuleError: it is neither, or the network has no `forward`; when it is made.
        """
        if not callable(network):
            raise argument_error(
                "TorchRLModule.wrapping()",
                "network",
                network,
                "a torch.nn.Module, or a function of spaces and model_config that makes one",
            )

        class Wrapped(cls):  # type: ignore[valid-type,misc]
            """A network that was written elsewhere."""

            def setup(self) -> None:
                self.network = _made_network(self, network)

            def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
                del kwargs
                return _outputs_of_network(self.network(batch[OBS]))

        name = getattr(network, "__name__", type(network).__name__)
        Wrapped.__name__ = Wrapped.__qualname__ = f"Wrapped_{name}"
        return Wrapped

    # ---- weights

    def to_torch(self) -> OrderedDict[str, Any]:
        """A copy of all parameters and buffers: a Torch `state_dict` on the processor."""
        return OrderedDict((n, t.detach().clone()) for n, t in self._torch_layers.tensors().items())

    def from_torch(self, state_dict: Mapping[str, Any], *, strict: bool = True) -> list[str]:
        """Takes over a Torch `state_dict`, such as pretrained weights.

        Args:
            state_dict: tensors by name; converted to the number types of this module.
            strict: all tensors must be there, and no others; else those that fit are taken over.

        Returns:
            The names of this module's tensors that were left as they are.

        Raises:
            ModuleError: tensors do not fit; the message lists them, nothing is changed.
        """
        own = self.get_state()
        given = {
            name: np.asarray(
                tensor.detach().cpu().numpy(), own[name].dtype if name in own else None
            )
            for name, tensor in state_dict.items()
        }
        if not strict:
            fits = {n: a for n, a in given.items() if n in own and a.shape == own[n].shape}
            self.set_state({**own, **fits})
            return [name for name in own if name not in fits]
        self.set_state(given)
        return []

    def _tensors(self) -> dict[str, Array]:
        layers = self._torch_layers
        layers.check_views()
        buffers = {name: state_array(array) for name, array in layers.buffers().items()}
        return {**super()._tensors(), **buffers}

    def _all_for_acting(self) -> bool:
        return False  # buffers are looked at, too

    def set_state(self, state: State) -> None:
        """Takes back what `get_state` gave; see `RLModule.set_state`."""
        layers = self._torch_layers
        layers.check_views()
        buffers = layers.buffers()
        if self.inference_only:
            state = {n: a for n, a in state.items() if n in self.parameters.shapes or n in buffers}
        given = {name: np.asarray(state[name]) for name in buffers if name in state}
        problems = buffer_problems(buffers, given)
        if problems:
            raise ModuleError(
                f"The buffers of {type(self).__name__} do not fit this state: {'; '.join(problems)}"
                ". It is of a network with other layers, spaces or another `model_config`. Build "
                "the network with the same settings."
            )
        self.parameters.set_state({name: a for name, a in state.items() if name not in buffers})
        for name, array in given.items():
            buffers[name][...] = array

    def copy_buffers(self, other: RLModule) -> None:
        """Takes over the buffers of a module of the same class."""
        if not isinstance(other, TorchRLModule):
            return
        theirs = other._torch_layers.buffers()
        for name, array in self._torch_layers.buffers().items():
            array[...] = theirs[name]

    def is_for_acting(self, name: str) -> bool:
        """Whether a module that was built with `inference_only=True` has that tensor."""
        return self.inference_only or name in self._torch_layers.acting_names()

    # ---- what the library calls

    def is_stateful(self) -> bool:
        """Whether it has memory: `get_initial_state` is overridden."""
        return type(self).get_initial_state is not RLModule.get_initial_state

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the layers' parameters, by their names in Torch."""
        return dict(self.parameters.shapes)

    def forward_acting(self, obs: Array) -> Array:
        return self._torch_layers.act(self._forward_exploration, obs)

    def forward_inference(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """See `RLModule.forward_inference`; tensors in the batch give what the forward pass gives.

        Raises:
            ModuleError: the observations are no rows of encoded ones.
        """
        return self._acted(self._forward_inference, batch)

    def forward_exploration(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        return self._acted(self._forward_exploration, batch)

    def _acted(self, forward: Callable[..., Any], batch: Mapping[str, Any]) -> dict[str, Any]:
        layers = self._torch_layers
        if layers.has_tensors(batch):
            with layers.computing(is_training=False):
                return forward(dict(batch))  # type: ignore[no-any-return]
        return layers.acted(forward, self.checked_rows(batch), batch)

    def forward_train(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """See `RLModule.forward_train`; tensors in the batch give what the forward pass gives."""
        layers = self._torch_layers
        if self.inference_only:
            raise self.acting_only_error()
        if layers.has_tensors(batch):
            with layers.computing(is_training=True):
                return self._forward_train(dict(batch))
        return layers.learn(self.checked_rows(batch), batch)

    def backward(self, *, d_action_dist_inputs: Array, d_vf_preds: Array | None = None) -> None:
        """Overwrites `self.gradients` with what autograd gives; see `RLModule.backward`."""
        self._torch_layers.backward(d_action_dist_inputs, d_vf_preds)

    def learn_from_loss(
        self, batch: Mapping[str, Any], loss_of: Callable[[dict[str, Any], dict[str, Any]], Any]
    ) -> float:
        """Overwrites `self.gradients` with those of a loss that is computed in Torch.

        Args:
            batch: {"obs": encoded rows [B, D]}, and the learner's other columns.
            loss_of: makes the loss, a tensor of one number, from the batch as tensors and from what
                the forward pass of learning gave.

        Returns:
            The loss.

        Raises:
            ModuleError: it is no such loss.
        """
        if self.inference_only:
            raise self.acting_only_error()
        return self._torch_layers.learn_from_loss(self.checked_rows(batch), batch, loss_of)

    def no_values_error(self) -> ModuleError:
        """The error where the module gives no values, and they are needed."""
        return self._torch_layers.no_values_error()

    def lend_gradients(self) -> None:
        """Gives each parameter its part of `self.gradients` as `.grad`, for optimisers of Torch."""
        self._torch_layers.lend_gradients()

    def get_train_action_dist_cls(self) -> TorchPolicies:
        """What makes π of a forward pass of learning: `.from_logits(fwd_out["…_inputs"])`."""
        return TorchPolicies(self.action_distribution)

    def get_inference_action_dist_cls(self) -> TorchPolicies:
        """As `get_train_action_dist_cls`: acting draws from the same distribution."""
        return self.get_train_action_dist_cls()

    def get_exploration_action_dist_cls(self) -> TorchPolicies:
        """As `get_train_action_dist_cls`: acting draws from the same distribution."""
        return self.get_train_action_dist_cls()

    def target_output(self, batch: Mapping[str, Array], name: str) -> Array:
        """One output of the forward pass of learning, in evaluation mode and without gradients."""
        return self._torch_layers.evaluate(self.checked_rows(batch), batch, name)

    def compute_values(self, batch: Any, embeddings: Any = None) -> Any:
        """The values of observations; users who override it get and return tensors.

        Args:
            batch: {"obs": encoded rows [B, D]}, then the values are an array [B] in evaluation
                mode; or {"obs": tensors}, then they are a tensor.
            embeddings: what the forward pass gave under that name, if it did.
        """
        layers = self._torch_layers
        if self.inference_only:
            raise self.acting_only_error()
        if layers.has_tensors(batch):
            return layers.values_of(dict(batch), embeddings)
        return layers.values(self.checked_rows(batch), batch)

    def place_of(self, name: str) -> int:
        """Where in the flat vector a parameter stands; equal ones stand as they were made."""
        del name
        return 0

    def begin_update(self, root_seed: int, number: int, *, of: tuple[int, ...] = ()) -> None:
        self._torch_layers.draws.begin_update(root_seed, number, of=of)

    @property
    def gives_values(self) -> bool:
        """Whether the forward passes of acting return "vf_preds", the same for a row anywhere."""
        return self._torch_layers.gives_values

    @property
    def gives_actions(self) -> bool:
        """Whether `_forward_exploration` draws actions itself."""
        return self._torch_layers.gives_actions

    @property
    def acts_row_by_row(self) -> bool:
        """Whether acting computes every row alone."""
        return self._torch_layers.rows_at_once == 1

    def _setup(self) -> None:
        """Calls `setup`, and adds what a kind of modules needs besides."""
        before = self.observation_space
        self.setup()
        if self.observation_space is not before:
            # RLlib's modules with masks make their layers for the observations inside of a Dict.
            self._read_observation_space()

    def _make_tensors(self, rng: np.random.Generator | None, dtype: type[np.floating[Any]]) -> None:
        if type(self).compute_values is not TorchRLModule.compute_values:
            # The user's method takes tensors; the library calls the one above.
            own, ours = self.compute_values, TorchRLModule.compute_values
            self.__dict__["_own_values"] = own
            self.__dict__["compute_values"] = ours.__get__(self)
        kind = TorchMemoryLayers if self.is_stateful() else TorchLayers
        layers = kind(self, torch_library(type(self).__name__), dtype)
        self.__dict__["_torch_layers"] = layers
        with layers.fixed():
            layers.build(0 if rng is None else int(rng.integers(2**63)))
            if rng is not None:
                self.initialize(rng)
            layers.probe(logs=rng is not None and not self.inference_only)

    # ---- layers are attributes

    def __setattr__(self, name: str, value: Any) -> None:
        layers = self.__dict__.get("_torch_layers")
        if layers is None or not layers.takes(name, value):
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        layers = self.__dict__.get("_torch_layers")
        if layers is not None:
            with contextlib.suppress(AttributeError):
                return getattr(layers.container, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _made_network(module: TorchRLModule, network: Any) -> Any:
    """The network that a wrapped module computes with: a copy, or a new one."""
    torch_module = torch_library("TorchRLModule.wrapping").nn.Module
    if isinstance(network, torch_module):
        if getattr(network.forward, "__func__", None) is torch_module.forward:
            raise ModuleError(
                f"TorchRLModule.wrapping() was given a {type(network).__name__} without `forward`. "
                "Write one that takes observations [B, …] and returns `action_dist_inputs` (logits "
                "of Discrete actions), or a pair of these and values [B]."
            )
        return copy.deepcopy(network)
    if isinstance(network, type) and issubclass(network, torch_module):
        raise ModuleError(
            f"TorchRLModule.wrapping() was given the class {network.__name__}; expected a network "
            f"of it, or a function that makes one. Write wrapping({network.__name__}(...))."
        )
    made = network(module.observation_space, module.action_space, module.model_config)
    if not isinstance(made, torch_module):
        raise ModuleError(
            f"TorchRLModule.wrapping() was given a function that returned a {type(made).__name__}; "
            "expected a torch.nn.Module. Return the network."
        )
    return made


def _outputs_of_network(given: Any) -> dict[str, Any]:
    """What a wrapped network returned, by name."""
    if isinstance(given, Mapping):
        return dict(given)
    if isinstance(given, tuple | list) and len(given) == 2:
        inputs, values = given
        return {ACTION_DIST_INPUTS: inputs, VF_PREDS: values.reshape(inputs.shape[0])}
    return {ACTION_DIST_INPUTS: given}

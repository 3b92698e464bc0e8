"""The Torch half of a `TorchRLModule`: its layers, how they act and learn, and what is refused.

Acting must give a row the same bits whatever other rows are in the batch (`trainer.nn.layers`).
Torch does not promise that, but the same shapes take the same code: rows are acted on in blocks of
eight, or one by one if a probe finds that a block gives a row other bits at another place.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from trainer.episodes import nested
from trainer.episodes.episode_columns import ACTION_DIST_INPUTS, ACTIONS, OBS, VF_PREDS
from trainer.errors import ModuleError
from trainer.modules.rl_module import check_gradient
from trainer.modules.spaces import INVALID, masked_gradient, masked_outputs
from trainer.modules.torch_distributions import NamedDistributions
from trainer.modules.torch_draws import DRAW_SEEDS, Draws, check_drawing, drawn_actions
from trainer.modules.torch_mirror import TorchMirror
from trainer.nn import Parameters
from trainer.nn.layers import BLOCK_ROWS
from trainer.nn.torch_network import aligned_copy, fixed_torch, seeded_draws
from trainer.spaces import leaf_spaces, shown_images
from trainer.types import Array

EMBEDDINGS: Final = "embeddings"
"""The output of a forward pass that `compute_values` gets instead of computing it again."""

_LOGGER: Final = logging.getLogger(__name__)
_VALUES_AT_ONCE: Final = 64
"""Images whose values are computed together; more would only take more memory."""
_PROBED_BLOCKS: Final = 3


class TorchParameters(Parameters):
    """The flat vector of a module with Torch layers, and the layers' parameters over it.

    Called, it gives `torch.nn.Parameter` objects, as `parameters()` of a Torch module does:
    `sum(p.numel() for p in module.parameters())`.

    Attributes:
        tensors: the `torch.nn.Parameter` objects by name; their memory is that of `views`.
    """

    def __init__(self, tensors: Mapping[str, Any], *, dtype: type[np.floating[Any]]) -> None:
        """Lays `torch.nn.Parameter` objects over a flat vector; they keep their values."""
        super().__init__({name: tuple(p.shape) for name, p in tensors.items()}, dtype=dtype)
        self.tensors = dict(tensors)

    def __call__(self) -> Iterator[Any]:
        """The `torch.nn.Parameter` objects, in the order of the flat vector."""
        return iter(self.tensors.values())


class TorchLayers:
    """The Torch half of one module: its layers, and how they act and learn.

    Attributes:
        container: a `torch.nn.Module` that holds what users assign in `setup`.
        torch: the library.
        draws: where the seeds of a forward pass come from.
        rows_at_once: how many rows acting computes together.
        gives_values: whether acting gives the values of observations, too.
        gives_actions: whether acting draws actions, too.
    """

    def __init__(self, module: Any, torch: Any, dtype: type[np.floating[Any]]) -> None:
        """Begins without layers; `build` lets the module, with spaces and masks, make them."""
        self._module = module
        self.torch = torch
        self._number_type = dtype
        self._dtype = torch.float64 if dtype is np.float64 else torch.float32
        self._masks = module.action_masks
        self._is_built = False
        self._graph: tuple[Any, Any, Array | None] | None = None
        self._mirror: TorchMirror | None = None
        self._device: Any = None
        self._acting_names: frozenset[str] | None = None
        self.container = torch.nn.Module()
        self.draws = Draws()
        self.rows_at_once = 1
        self.gives_values = self.gives_actions = False
        self._values_first = False

    # ---- building

    def build(self, seed: int) -> None:
        """Calls `setup` and lays what it made over flat vectors; inside `fixed_torch`."""
        module, torch = self._module, self.torch
        with seeded_draws(torch, seed):
            module._setup()
            self._masks = module.action_masks
            self._refuse_complex_numbers()
            self.container.to(self._dtype)
            self._make_lazy_layers()
        self._distributions = NamedDistributions(module)
        # Kinds of parameters stand together, in the order in which they were made.
        named = list(self.container.named_parameters())
        tensors = dict(sorted(named, key=lambda pair: module.place_of(pair[0])))
        parameters = TorchParameters(tensors, dtype=self._number_type)
        module.parameters = parameters
        module.gradients = parameters.zeros_like()
        self._parts: list[tuple[Any, Any, int]] = []
        for name, tensor in tensors.items():
            view = torch.from_numpy(parameters.views[name])
            view.copy_(tensor.detach())
            tensor.data = view
            gradient = torch.from_numpy(module.gradients.views[name])
            self._parts.append((tensor, gradient, view.data_ptr()))
        width = module.obs_size + (0 if self._masks is None else self._masks.width)
        is_image = bool(shown_images(module.seen_space))
        self.rows_at_once = module.acting_block or (1 if is_image else BLOCK_ROWS)
        self._block = torch.zeros((self.rows_at_once, width), dtype=self._dtype)
        self._mirror = self._make_mirror()
        self._is_built = True

    def _make_mirror(self) -> TorchMirror | None:
        """The copy on the device that `model_config` names; None if it names none."""
        module, torch = self._module, self.torch
        name = module.model_config.get("device")
        if name in (None, "cpu") or module.inference_only:
            return None
        try:
            device = torch.device(name)
            torch.zeros(1, device=device)
        except (RuntimeError, AssertionError, TypeError, ValueError) as cause:
            raise ModuleError(
                f'`model_config={{"device": {name!r}}}` of {type(module).__name__}: Torch cannot '
                f"compute there ({str(cause).splitlines()[0]}). Name a device that this machine "
                "has, or leave it out."
            ) from cause
        return TorchMirror(torch, device, self.container, module)

    def _make_lazy_layers(self) -> None:
        """Lets layers that take their size from their first input (`LazyLinear`) see one."""
        is_lazy = self.torch.nn.parameter.is_lazy
        if not any(is_lazy(tensor) for tensor in self.container.parameters()):
            return
        width = self._module.obs_size + (0 if self._masks is None else self._masks.width)
        rows = self.torch.zeros((2, width), dtype=self._dtype)
        self.container.train(False)
        with self.torch.no_grad():
            outputs = self._module._forward_train(self.batch(rows, {}))
            self._values_or_none(self.batch(rows, {}), outputs, 2)

    def _refuse_complex_numbers(self) -> None:
        tensors = self.container.named_parameters()
        odd = [name for name, tensor in tensors if not tensor.dtype.is_floating_point]
        if odd:
            raise ModuleError(
                f"The parameters {', '.join(odd)} of {type(self._module).__name__} are no real "
                "numbers, but what is learnt is one vector of such. Keep real and imaginary parts "
                "apart."
            )

    def takes(self, name: str, value: Any) -> bool:
        """Whether an attribute belongs to the layers; then it is there now.

        Raises:
            ModuleError: it would replace or add parameters of a module that is built.
        """
        nn, container = self.torch.nn, self.container
        is_layer = isinstance(value, nn.Module | nn.Parameter)
        is_known = name in container._parameters or name in container._modules
        if self._is_built and (is_layer or is_known):
            raise ModuleError(
                f"`self.{name} = …` would give {type(self._module).__name__} other parameters than "
                "those that are learnt, saved and sent to the env runners. Make all layers in "
                "`setup`; change values in place, under `torch.no_grad()`, between updates."
            )
        if not (is_layer or is_known or name in container._buffers):
            return False
        setattr(container, name, value)
        return True

    # ---- tensors

    def tensors(self) -> dict[str, Any]:
        """All parameters and buffers by name."""
        return {**self._module.parameters.tensors, **self._named_buffers()}

    def buffers(self) -> dict[str, Array]:
        """The buffers that belong to the state, as arrays over their own memory."""
        return {name: b.detach().numpy() for name, b in self._named_buffers().items()}

    def _named_buffers(self) -> dict[str, Any]:
        buffers = dict(self.container.named_buffers())
        if not buffers:
            return buffers
        saved = self.container.state_dict(keep_vars=True).keys()
        return {name: buffer for name, buffer in buffers.items() if name in saved}

    def acting_names(self) -> frozenset[str]:
        """The tensors of a module of the same arguments that only acts."""
        if self._acting_names is None:
            module = self._module
            _, arguments = module.get_ctor_args_and_kwargs()
            actor = type(module)(**{**arguments, "inference_only": True})
            names, own = frozenset(actor.get_state()), self.tensors().keys()
            if names - own:
                raise ModuleError(
                    f"{type(module).__name__}.setup() makes tensors with `inference_only=True` "
                    f"that it does not make without: {', '.join(sorted(names - own))}. A module "
                    "for acting gets its weights from one that learns: let it have the same "
                    "layers or fewer."
                )
            self._acting_names = names
        return self._acting_names

    def check_views(self) -> None:
        """Raises a ModuleError if a parameter does not lie in the flat vector any more."""
        for tensor, _, place in self._parts:
            if tensor.data_ptr() != place or tensor.dtype != self._dtype:
                names = [n for n, t in self._module.parameters.tensors.items() if t is tensor]
                raise ModuleError(
                    f"The parameter {names[0]!r} of {type(self._module).__name__} was given other "
                    "memory (`parameter.data = …`, `.to(…)`, `.half()`, `.cuda()`), so what is "
                    "learnt would not reach it. Change values in place, under `torch.no_grad()`, "
                    "between updates; choose an accelerator with "
                    '`model_config={"device": …}`.'
                )

    def _num_changes(self) -> int:
        """Goes up with every change in place that Torch makes to a parameter."""
        parts = self._parts if self._device is None or self._mirror is None else self._mirror.parts
        return sum(tensor._version for tensor, *_ in parts)

    def has_tensors(self, batch: Any) -> bool:
        """Whether the observations of a batch are tensors already."""
        obs = batch.get(OBS) if isinstance(batch, Mapping) else None
        while isinstance(obs, dict | tuple) and obs:
            obs = next(iter(obs.values())) if isinstance(obs, dict) else obs[0]
        return isinstance(obs, self.torch.Tensor)

    def _nested(self, rows: Any) -> Any:
        """Rows [B, D + M] as the observations that the user's forward pass reads; views."""
        module, masks = self._module, self._masks
        observations, end = _unflattened(module.seen_space, rows, 0)
        if masks is not None:
            observations[module.action_mask_key] = rows[:, end:]
        return observations

    def aligned(self, rows: Array) -> Any:
        """Numbers as a tensor in memory of its own; see `aligned_copy`."""
        return self._placed(aligned_copy(self.torch, rows, self._dtype))

    def _placed(self, tensor: Any) -> Any:
        return tensor if self._device is None else tensor.to(self._device)

    def with_masks(self, rows: Array) -> Array:
        """Rows with mask columns; without them, everything is allowed."""
        if self._masks is None or rows.shape[1] > self._masks.start:
            return rows
        free = np.ones((len(rows), self._masks.width), rows.dtype)
        return np.concatenate([rows, free], axis=1)

    def _tensors_of(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        """The learner's columns of numbers, besides the observations; nested actions, too."""
        found = {
            name: self._tensor_of(column)
            for name, column in columns.items()
            if name != OBS and isinstance(column, np.ndarray) and column.dtype.kind in "biuf"
        }
        if isinstance(columns.get(ACTIONS), dict | tuple):
            found[ACTIONS] = nested.map_leaves(self._tensor_of, columns[ACTIONS])
        return found

    def _tensor_of(self, column: Array) -> Any:
        return self._placed(self.torch.from_numpy(np.ascontiguousarray(column)))

    def batch(self, rows: Any, columns: Mapping[str, Any]) -> dict[str, Any]:
        """What the user's forward pass gets: a dict of its own, from which it may take things."""
        return {**columns, OBS: self._nested(rows)}

    # ---- computing

    @contextlib.contextmanager
    def computing(self, *, is_training: bool) -> Iterator[None]:
        """Torch as it always is, the right mode, draws from the position, parameters that stay."""
        torch, container = self.torch, self.container
        if container.training is not is_training:
            container.train(is_training)
        changes = self._num_changes()
        with fixed_torch(torch):
            if is_training:
                with seeded_draws(torch, self.draws.next_seed(), device=self._accelerator):
                    yield
            else:
                with torch.no_grad():
                    yield
        if self._num_changes() != changes:
            raise ModuleError(
                f"The forward pass of {type(self._module).__name__} changed a parameter in place, "
                "so env runners and learner would compute with different weights. Compute with "
                "changed copies, or keep what changes in a buffer (`register_buffer`)."
            )

    @contextlib.contextmanager
    def _where_it_learns(self) -> Iterator[None]:
        """Lets the user's methods find the layers on the device inside the block."""
        mirror = self._mirror
        if mirror is None:
            yield
            return
        host = self.container
        mirror.fetch()
        self.container, self._device = mirror.container, mirror.device
        try:
            yield
        finally:
            self.container, self._device = host, None
            if mirror.container.training:
                mirror.return_buffers()

    @property
    def _accelerator(self) -> Any:
        """The device whose draws are to be seeded besides those of the processor."""
        is_other = self._device is not None and self._device.type != "cpu"
        return self._device if is_other else None

    def act(self, forward: Callable[..., Any], obs: Array) -> Array:
        """The action distribution inputs of rows, the same bits for a row in any batch."""
        inputs, _ = self._inputs_and_values(forward, obs)
        return inputs

    def _inputs_and_values(
        self, forward: Callable[..., Any], obs: Array
    ) -> tuple[Array, Array | None]:
        """What acting gives for rows, [B, K], and their values [B] if it gives them."""
        inputs, values, _ = self._acted(forward, obs)
        return inputs, values

    def _acted(
        self, forward: Callable[..., Any], obs: Array, seeds: Array | None = None
    ) -> tuple[Array, Array | None, Any]:
        """Inputs [B, K], values [B] and actions [B, …] that acting gives for rows, as it does.

        A module that draws actions draws those of each row from its seed (without, from 0).
        """
        module, size = self._module, self.rows_at_once
        obs = obs if obs.ndim == 2 else module.checked_rows({OBS: obs})
        rows = self.with_masks(obs)
        inputs = np.empty((len(rows), module.action_distribution.num_inputs), self._number_type)
        values = np.empty(len(rows), self._number_type) if self.gives_values else None
        block = self._block[:size]
        numbers, actions = block.numpy(), []
        with self.computing(is_training=False):
            for start in range(0, len(rows), size):
                part = rows[start : start + size]
                numbers[: len(part)] = part
                numbers[len(part) :] = 0.0
                seed = 0 if seeds is None else int(seeds[start])
                outputs = self._passed(forward, block, seed)
                found = self._inputs(forward, outputs, size)
                if self.gives_actions:
                    actions.append(drawn_actions(module, forward, outputs, found))
                inputs[start : start + size] = found.numpy()[: len(part)]
                if values is not None:
                    given = self._checked_values(outputs.get(VF_PREDS), size)
                    values[start : start + size] = given.numpy()[: len(part)]
        if self._masks is not None:
            inputs = masked_outputs(inputs, self._masks.effective(rows))
        return inputs, values, nested.concatenate(*actions) if actions else None

    def _passed(self, forward: Callable[..., Any], block: Any, seed: int) -> Any:
        """What the user's forward pass of acting gives for a block of rows."""
        if not self.gives_actions:
            return forward({OBS: self._nested(block)})
        with seeded_draws(self.torch, seed):
            return forward({OBS: self._nested(block)})

    def acted(
        self, forward: Callable[..., Any], rows: Array, batch: Mapping[str, Any]
    ) -> dict[str, Any]:
        """What acting upon rows gives; `batch` has what else is there of them."""
        inputs, values, actions = self._acted(forward, rows, batch.get(DRAW_SEEDS))
        given = {ACTION_DIST_INPUTS: inputs, VF_PREDS: values, ACTIONS: actions}
        return {name: rows for name, rows in given.items() if rows is not None}

    def act_as_part(
        self, rows: Any, state: Sequence[Any], columns: Mapping[str, Any]
    ) -> tuple[Any, ...]:
        """What acting without exploration gives for tensors, as part of a network around it.

        In the mode, on the device and with the gradients that it finds. Masks are not applied.

        Args:
            rows: encoded observations with masks, [B, D + M].
            state: the leaves of the state of a module with memory, [B, ...]; else empty.
            columns: of the steps before, as far as it reads them, [B, ...].

        Returns:
            The action distribution inputs [B, K], and the leaves of the state after the step.
        """
        del state
        forward = self._module._forward_inference
        outputs = forward(self.batch(rows, columns))
        return (self._checked_inputs(forward, outputs, (rows.shape[0],)),)

    def learn(self, rows: Array, columns: Mapping[str, Any]) -> dict[str, Array]:
        """The forward pass of learning; keeps the graph for `backward`."""
        rows = self.with_masks(rows)
        with self._where_it_learns(), self.computing(is_training=True):
            _, inputs, values = self._pass(self.aligned(rows), self._tensors_of(columns))
        mask = None if self._masks is None else self._masks.effective(rows)
        self._graph = (inputs, values, mask)
        return self._as_arrays(inputs, values, mask)

    def _pass(self, rows: Any, others: Mapping[str, Any]) -> tuple[Any, Any, Any]:
        """What the user's forward pass of learning returns, and its inputs and values, checked."""
        forward, batch, count = self._module._forward_train, self.batch(rows, others), len(rows)
        values = None
        if self._values_first:
            values = self._checked_values(self.values_of(batch, None), count)
        outputs = forward(batch)
        inputs = self._inputs(forward, outputs, count)
        if values is None:
            values = self._values_or_none(self.batch(rows, others), outputs, count)
        return outputs, inputs, values

    def learn_from_loss(
        self,
        rows: Array,
        columns: Mapping[str, Any],
        loss_of: Callable[[dict[str, Any], dict[str, Any]], Any],
    ) -> float:
        """A forward pass of learning, a loss computed from it in Torch, and its gradients.

        Args:
            rows: encoded observations, [B, D].
            columns: the learner's, actions among them.
            loss_of: makes the loss, a tensor of one number, from the batch and from what the
                forward pass gave, with masks applied and with values if the module has some.

        Returns:
            The loss.
        """
        torch, module, rows = self.torch, self._module, self.with_masks(rows)
        self._graph = None
        mask = None if self._masks is None else self._masks.effective(rows)
        with self._where_it_learns(), self.computing(is_training=True):
            tensor, others = self.aligned(rows), self._tensors_of(columns)
            outputs, inputs, values = self._pass(tensor, others)
            inputs = self._placed(inputs)
            if mask is not None:
                inputs = _masked_inputs(torch, inputs, mask)
            given = {**outputs, ACTION_DIST_INPUTS: inputs}
            if values is not None:
                given[VF_PREDS] = self._placed(values)
            loss = loss_of({**others, OBS: self._nested(tensor)}, given)
            self._check_loss(loss)
            self.check_views()
            module.gradients.flat[:] = 0.0
            self.accumulate([loss], [torch.ones_like(loss)])
        return float(loss.detach())

    def _check_loss(self, loss: Any) -> None:
        if isinstance(loss, self.torch.Tensor) and loss.ndim == 0 and loss.requires_grad:
            return
        found = f"a {type(loss).__name__}"
        if isinstance(loss, self.torch.Tensor):
            found = f"a tensor of the shape {list(loss.shape)}"
            found += "" if loss.requires_grad else ", which no parameter has a part in"
        raise ModuleError(
            f"`compute_loss_for_module` returned {found}; expected a tensor of one number that "
            "follows from the network, as from `fwd_out`. Take the mean over the rows, and keep "
            "what it is computed from attached (no `.detach()`, `.item()`, `torch.no_grad()`)."
        )

    def evaluate(self, rows: Array, columns: Mapping[str, Any], name: str) -> Array:
        """One output of the forward pass of learning, in evaluation mode."""
        rows = self.with_masks(rows)
        forward = self._module._forward_train
        with self._where_it_learns(), self.computing(is_training=False):
            tensor, others = self.aligned(rows), self._tensors_of(columns)
            outputs = forward(self.batch(tensor, others))
            inputs = self._inputs(forward, outputs, len(rows))
            values = None
            if name == VF_PREDS:
                values = self._values_or_none(self.batch(tensor, others), outputs, len(rows))
        mask = None if self._masks is None else self._masks.effective(rows)
        arrays = self._as_arrays(inputs, values, mask)
        if name not in arrays:
            raise self.no_values_error()
        return arrays[name]

    def values(self, rows: Array, columns: Mapping[str, Any]) -> Array:
        """The values of rows, [B], in evaluation mode; images in parts."""
        del columns
        module, rows = self._module, self.with_masks(rows)
        size = _VALUES_AT_ONCE if shown_images(module.seen_space) else max(1, len(rows))
        values = np.empty(len(rows), self._number_type)
        with self._where_it_learns(), self.computing(is_training=False):
            for start in range(0, len(rows), size):
                part = rows[start : start + size]
                given = self.values_of(self.batch(self.aligned(part), {}), None)
                values[start : start + size] = self._checked_values(given, len(part)).numpy()
        return values

    def values_of(self, batch: dict[str, Any], embeddings: Any) -> Any:
        """The user's values of a batch of tensors; a ModuleError if there are none."""
        own = self._module.__dict__.get("_own_values")
        if own is not None:
            if embeddings is None or not _takes_embeddings(own):
                return own(batch)
            return own(batch, embeddings=embeddings)
        outputs = self._module._forward_train(batch)
        if not isinstance(outputs, Mapping) or VF_PREDS not in outputs:
            raise self.no_values_error()
        return outputs[VF_PREDS]

    def _values_or_none(self, batch: dict[str, Any], outputs: Mapping[str, Any], count: int) -> Any:
        """The values that belong to a forward pass, [B]; None if the module has none."""
        if VF_PREDS in outputs:
            values = outputs[VF_PREDS]
        elif "_own_values" in self._module.__dict__:
            values = self.values_of(batch, outputs.get(EMBEDDINGS))
        else:
            return None
        return self._checked_values(values, count)

    def backward(self, d_inputs: Array, d_values: Array | None) -> None:
        """Overwrites the gradients; belongs to the last forward pass of learning, once."""
        module = self._module
        if self._graph is None:
            shape: tuple[int, ...] = (-1, module.action_distribution.num_inputs)
            check_gradient("d_action_dist_inputs", d_inputs, shape)
            raise AssertionError  # the line above has raised
        inputs, values, mask = self._graph
        check_gradient("d_action_dist_inputs", d_inputs, tuple(inputs.shape))
        if mask is not None:
            d_inputs = masked_gradient(d_inputs, mask)
        self.check_views()
        outputs, gradients = [inputs], [d_inputs]
        if values is not None and d_values is not None and d_values.any():
            check_gradient("d_vf_preds", d_values, tuple(values.shape))
            outputs, gradients = [inputs, values], [*gradients, d_values]
        self._check_graph(outputs)
        self._graph = None
        module.gradients.flat[:] = 0.0
        self.accumulate(outputs, gradients)

    def accumulate(
        self, outputs: Sequence[Any], d_outputs: Sequence[Any], tensors: list[Any] | None = None
    ) -> None:
        """Adds to the gradients what autograd makes of derivatives.

        Args:
            outputs: tensors of a forward pass.
            d_outputs: the derivatives of the loss by them, tensors or arrays.
            tensors: the parameters whose gradients are wanted; None: all.
        """
        mirror = self._mirror
        parts = self._parts if mirror is None else mirror.parts
        for tensor, gradient, *_ in parts:
            if tensor.grad is not gradient and tensor.requires_grad:
                tensor.grad = gradient
        with self.fixed():
            given = [d if isinstance(d, self.torch.Tensor) else self.gradient(d) for d in d_outputs]
            if mirror is not None:
                mirror.clear_gradients()
            self.torch.autograd.backward(list(outputs), given, inputs=tensors)
            if mirror is not None:
                mirror.return_gradients()

    def lend_gradients(self) -> None:
        """See `TorchRLModule.lend_gradients`; also where another device has computed them."""
        for tensor, gradient, _ in self._parts:
            tensor.grad = gradient if tensor.requires_grad else None

    def fixed(self) -> AbstractContextManager[None]:
        return fixed_torch(self.torch)

    def gradient(self, array: Array) -> Any:
        """A derivative that a loss gave, as a tensor."""
        return self.torch.from_numpy(np.ascontiguousarray(array, self._number_type))

    def _check_graph(self, outputs: list[Any]) -> None:
        names = (ACTION_DIST_INPUTS, VF_PREDS)
        cut = [n for n, t in zip(names, outputs, strict=False) if not t.requires_grad]
        if cut:
            raise ModuleError(
                f"{type(self._module).__name__}: `{'`, `'.join(cut)}` of the forward pass of "
                "learning does not depend on any parameter, so nothing can be learnt from it: was "
                "it computed under `torch.no_grad()`, detached, or are all its parameters frozen? "
                "Compute it with the layers alone in `_forward_train`."
            )

    def _as_arrays(self, inputs: Any, values: Any, mask: Array | None) -> dict[str, Array]:
        array = inputs.detach().numpy()
        outputs = {ACTION_DIST_INPUTS: array if mask is None else masked_outputs(array, mask)}
        if values is not None:
            outputs[VF_PREDS] = values.detach().numpy()
        return outputs

    # ---- what the user's methods returned

    def _inputs(self, forward: Callable[..., Any], outputs: Any, count: int) -> Any:
        """The action distribution inputs among the outputs, [B, K]."""
        return self._returned(self._checked_inputs(forward, outputs, (count,)))

    def _checked_inputs(
        self, forward: Callable[..., Any], outputs: Any, shape: tuple[int, ...]
    ) -> Any:
        """The action distribution inputs among the outputs, [*shape, K]."""
        module, torch = self._module, self.torch
        where = f"{type(module).__name__}.{forward.__name__}"
        width = module.action_distribution.num_inputs
        axes = "B" if len(shape) == 1 else "B, T"
        wanted = f"{ACTION_DIST_INPUTS!r}: a tensor [{axes}, {width}]"
        if not isinstance(outputs, Mapping) or ACTION_DIST_INPUTS not in outputs:
            given = repr(sorted(map(str, outputs))) if isinstance(outputs, Mapping) else outputs
            raise ModuleError(
                f"{where} returned {_short(given)}, without {ACTION_DIST_INPUTS!r}, by which "
                f"actions are chosen. Return {{{wanted}}}."
            )
        inputs = outputs[ACTION_DIST_INPUTS]
        if not isinstance(inputs, torch.Tensor):
            raise ModuleError(
                f"{where} returned a {type(inputs).__name__} as {ACTION_DIST_INPUTS!r}; expected "
                f"{wanted}. Gradients flow through tensors only: compute with Torch."
            )
        if tuple(inputs.shape) != (*shape, width):
            raise ModuleError(
                f"{where} returned {ACTION_DIST_INPUTS!r} of the shape {list(inputs.shape)} for "
                f"{_counted(shape)}; {module.action_space} needs {[*shape, width]}: "
                f"`self.action_distribution.num_inputs` = {width} numbers per row."
            )
        return self._distributions.logits(forward, inputs)

    def _checked_values(self, values: Any, count: int) -> Any:
        self._check_shape_of_values(values, (count,))
        return self._returned(values)

    def _check_shape_of_values(self, values: Any, shape: tuple[int, ...]) -> None:
        name = type(self._module).__name__
        if not isinstance(values, self.torch.Tensor) or tuple(values.shape) != shape:
            given = getattr(values, "shape", None)
            said = type(values).__name__ if given is None else f"the shape {list(given)}"
            raise ModuleError(
                f"{name} gave values ({VF_PREDS!r}) of {said} for {_counted(shape)}; expected "
                f"a tensor of the shape {list(shape)}: one number per row. A last layer of one "
                "unit gives a last axis of 1: take `.squeeze(-1)` of it."
            )

    def _returned(self, tensor: Any) -> Any:
        if tensor.dtype != self._dtype:
            tensor = tensor.to(self._dtype)
        return tensor if self._device is None else tensor.cpu()

    def no_values_error(self) -> ModuleError:
        """The error where values are needed."""
        return ModuleError(
            f"{type(self._module).__name__} gives no values, but its algorithm learns them. Return "
            f"{VF_PREDS!r} [B] from `_forward_train`, or write `compute_values(self, batch, "
            "embeddings=None)`; or use PG, or PPO with `use_critic=False, use_gae=False`."
        )

    # ---- the probe

    def probe(self, *, logs: bool) -> None:
        """Decides how many rows are acted on together, and refuses what cannot be repeated.

        It computes with weights and observations of its own, so that the decision follows from the
        network alone, and is the same in every process.

        Raises:
            ModuleError: acting changes buffers or draws random numbers.
        """
        module, torch = self._module, self.torch
        rng = np.random.Generator(np.random.Philox(key=0))
        saved = module.parameters.flat.copy()
        for view in module.parameters.views.values():
            scale = math.prod(view.shape[1:]) ** -0.5
            view[...] = scale * rng.standard_normal(view.shape)
        buffers = {name: array.copy() for name, array in self.buffers().items()}
        draws = torch.default_generator.get_state()
        try:
            if self._returns_actions():
                self.gives_actions, self.rows_at_once = True, 1
            wanted = self.rows_at_once
            is_exact = self._is_exact(rng)
            self._refuse_draws(draws)
            self._refuse_changed_buffers(buffers)
            if not is_exact and wanted > 1:
                self.rows_at_once = 1
                is_exact = self._is_exact(rng)
            self.gives_values = is_exact and self._returns_values()
            self.gives_values = self.gives_values and self._is_exact(rng)
            self._values_first = self._needs_values_first()
        finally:
            module.parameters.flat[:] = saved
            for name, array in self.buffers().items():
                array[...] = buffers[name]
            torch.default_generator.set_state(draws)
        if not is_exact:
            raise ModuleError(
                f"{type(module).__name__} gives other {ACTION_DIST_INPUTS!r} when the same "
                "observation is shown again, so a run could not be repeated or repaired. Acting "
                "must be a function of weights, buffers and observation."
            )
        if logs and self.rows_at_once < wanted:
            _LOGGER.warning(
                "%s acts row by row: in a block of rows, Torch gives a row other bits at another "
                "place, and a run would depend on how envs are spread over processes. With many "
                "envs this takes more time. Products of an odd number of inputs and few outputs "
                "are such; widths that are multiples of 8 are not.",
                type(module).__name__,
            )

    def _is_exact(self, rng: np.random.Generator) -> bool:
        """Whether a row gets the same bits at any place of a block, whatever stands beside it."""
        count = _PROBED_BLOCKS * self.rows_at_once
        rows = self._probe_rows(rng, count)
        forward = self._module._forward_exploration
        with np.errstate(all="ignore"):
            expected = self._probed(forward, rows)
            for order in (np.roll(np.arange(count), 1), rng.permutation(count)):
                if self._probed(forward, rows[order]).tobytes() != expected[order].tobytes():
                    return False
            firsts = range(self.rows_at_once)
            alone = np.concatenate([self._probed(forward, rows[i : i + 1]) for i in firsts])
        return alone.tobytes() == expected[: self.rows_at_once].tobytes()

    def _returns_values(self) -> bool:
        """Whether both forward passes of acting return values that nothing else computes."""
        module, size = self._module, self.rows_at_once
        if "_own_values" in module.__dict__:
            return False
        with self.computing(is_training=False):
            for forward in (module._forward_exploration, module._forward_inference):
                values = forward({OBS: self._nested(self._block[:size])}).get(VF_PREDS)
                if not isinstance(values, self.torch.Tensor) or tuple(values.shape) != (size,):
                    return False
        return True

    def _returns_actions(self) -> bool:
        """Whether acting with exploration returns actions; a ModuleError if they cannot be used."""
        module = self._module
        if module.is_stateful():
            return False
        forward = module._forward_exploration
        with self.computing(is_training=False), seeded_draws(self.torch, 0):
            outputs = forward({OBS: self._nested(self._block[:1])})
        if not isinstance(outputs, Mapping) or ACTIONS not in outputs:
            return False
        check_drawing(module, forward, outputs, self._inputs(forward, outputs, 1))
        return True

    def _needs_values_first(self) -> bool:
        """Whether `_forward_train` reads what `compute_values` has made of the batch before.

        So does RLlib's example of masks: its learner computes values first, in the same dict.
        """
        module = self._module
        if "_own_values" not in module.__dict__ or module.inference_only or module.is_stateful():
            return False

        def passes(*, values_first: bool) -> bool:
            batch = self.batch(self._block, {})
            with self.computing(is_training=False):
                try:
                    if values_first:
                        self.values_of(batch, None)
                    module._forward_train(batch)
                except Exception:  # noqa: BLE001 - of the user's code: learning raises it again
                    return False
            return True

        return not passes(values_first=False) and passes(values_first=True)

    def _probed(self, forward: Callable[..., Any], rows: Array) -> Array:
        """What acting gives for rows of `_probe_rows`, side by side."""
        inputs, values = self._inputs_and_values(forward, rows)
        return inputs if values is None else np.column_stack([inputs, values])

    def _probe_rows(self, rng: np.random.Generator, count: int) -> Array:
        module = self._module
        rows = rng.standard_normal((count, self._block.shape[1])).astype(self._number_type)
        if self._masks is not None:
            rows[:, self._masks.start :] = 1.0
        start = 0
        for space in leaf_spaces(module.seen_space):
            width = spaces.flatdim(space)
            if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
                codes = self._codes(space, rng, count)
                rows[:, start : start + width] = codes
            start += width
        return rows

    @staticmethod
    def _codes(space: gym.Space[Any], rng: np.random.Generator, count: int) -> Array:
        """One-hot codes of random values of a space."""
        space.seed(int(rng.integers(2**31)))
        samples: list[Any] = [spaces.flatten(space, space.sample()) for _ in range(count)]
        return np.stack(samples)

    def _refuse_draws(self, before: Any) -> None:
        if not self.torch.equal(before, self.torch.default_generator.get_state()):
            raise ModuleError(
                f"{type(self._module).__name__} draws random numbers while it acts, so a run could "
                "not be repeated or repaired. Draw in `_forward_train` only; actions are drawn "
                "from the distribution, and `exploration_config` offers noise on actions and "
                "weights."
            )

    def _refuse_changed_buffers(self, before: Mapping[str, Array]) -> None:
        changed = [n for n, a in self.buffers().items() if a.tobytes() != before[n].tobytes()]
        if changed:
            raise ModuleError(
                f"{type(self._module).__name__} changes its buffers while it acts "
                f"({', '.join(changed)}), each env runner its own. Change them only while "
                "`self.training`; `observation_filter` normalises observations by what all runners "
                "have seen."
            )


def _masked_inputs(torch: Any, inputs: Any, mask: Array) -> Any:
    """As `masked_outputs`, for tensors; no gradient goes through what is masked."""
    allowed = torch.from_numpy(mask).to(inputs.device)
    repeats = inputs.shape[1] // allowed.shape[1]
    if repeats != 1:
        allowed = allowed.repeat_interleave(repeats, dim=1)
    return torch.where(allowed, inputs, torch.full_like(inputs, INVALID))


def _unflattened(space: gym.Space[Any], rows: Any, start: int) -> tuple[Any, int]:
    """What encoded rows hold from a column on, nested as the space; and the column behind it."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts: Any = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space)
        found = {}
        for key, part in parts:
            found[key], start = _unflattened(part, rows, start)
        return (found if isinstance(space, spaces.Dict) else tuple(found.values())), start
    stop = start + spaces.flatdim(space)
    part = rows[:, start:stop]
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        # Not len(rows): a number, where the computation is written down for any number of rows.
        part = part.reshape(rows.shape[0], *space.shape)
    return part, stop


def _takes_embeddings(method: Callable[..., Any]) -> bool:
    given = inspect.signature(method).parameters
    kinds = {parameter.kind for parameter in given.values()}
    return EMBEDDINGS in given or inspect.Parameter.VAR_KEYWORD in kinds


def buffer_problems(buffers: Mapping[str, Array], given: Mapping[str, Array]) -> list[str]:
    """One sentence for every buffer that is missing or does not fit."""
    problems = [f"{name!r} is missing" for name in buffers if name not in given]
    for name, array in given.items():
        own = buffers[name]
        if (array.shape, array.dtype) != (own.shape, own.dtype):
            problems.append(
                f"{name!r} has shape {array.shape} and dtype {array.dtype}, expected {own.shape} "
                f"and {own.dtype}"
            )
        elif array.dtype.kind == "f" and not np.isfinite(array).all():
            problems.append(f"{name!r} holds numbers that are not finite")
    return problems


def _counted(shape: tuple[int, ...]) -> str:
    """How many observations there are, for messages."""
    if len(shape) == 1:
        return f"{shape[0]} observations"
    return f"{shape[0]} sequences of {shape[1]} observations"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else f"a {type(value).__name__}"
    return text if len(text) <= 200 else f"{text[:200]}…"

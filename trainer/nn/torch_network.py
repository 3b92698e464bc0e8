"""Torch as it is used here: imported on request, one thread, draws from a given seed.

Torch is the extra `[torch]`. Nothing imports it before a network asks for it, so this module takes
the library as an argument (`torch_library()` gives it).
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType, ModuleType
from typing import Any, Final

import numpy as np

from callbacks.optional_import import optional_module
from trainer.nn.convolution import ConvolutionLayer, ConvolutionStack
from trainer.nn.layers import (
    MLP,
    Activation,
    DenseLayer,
    Elu,
    Linear,
    Relu,
    Sigmoid,
    Swish,
    Tanh,
    columns_with_ones,
)
from trainer.nn.optimizers import Parameters
from trainer.nn.recurrent import GRU, LSTM, RECURRENT_LAYERS, RecurrentLayer, RecurrentState
from trainer.types import Array

_LOGGER: Final = logging.getLogger(__name__)

# ---- torch computing


def torch_library(user: str) -> Any:
    """The package `torch`, imported now.

    Args:
        user: what needs it, for the error text.

    Raises:
        ImportError: it is not installed; says how to install it.
    """
    return optional_module("torch", user=user, extra="torch")


@contextlib.contextmanager
def fixed_torch(torch: ModuleType) -> Iterator[None]:
    """Computes with Torch as it is in a new process inside the block, then puts the caller's back.

    With one thread: sums that are split are rounded differently, so a result would depend on the
    number of cores. The number belongs to the calling thread (OpenMP). And with gradients, without
    `autocast` and `inference_mode`, and with float32 as default: whatever surrounds `train()` does
    not reach env runners in other processes. Costs 1 µs.
    """
    num_threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    is_plain = torch.is_grad_enabled() and not (
        torch.is_inference_mode_enabled() or torch._C._is_any_autocast_enabled()
    )
    if num_threads == 1 and is_plain and dtype is torch.float32:
        yield
        return
    torch.set_num_threads(1)
    # The type belongs to all threads: one that found float32 must not put that back.
    if dtype is not torch.float32:
        torch.set_default_dtype(torch.float32)
    try:
        with contextlib.nullcontext() if is_plain else _usual_modes(torch):
            yield
    finally:
        if dtype is not torch.float32:
            torch.set_default_dtype(dtype)
        torch.set_num_threads(num_threads)


@functools.cache
def _warn_of_autocast() -> None:
    _LOGGER.warning(
        "torch.autocast around calls of this library changes no network: env runners in other "
        "processes would compute without it. Use it in the forward pass of a module of your own "
        "(`_forward` of a TorchRLModule), or leave it out. Said once."
    )


@contextlib.contextmanager
def _usual_modes(torch: ModuleType) -> Iterator[None]:
    if torch._C._is_any_autocast_enabled():
        _warn_of_autocast()
    # Torch uses this class itself; `torch.autocast(…, enabled=False)` is for one kind of device.
    with torch.inference_mode(False), torch.enable_grad(), torch._C._DisableAutocast():
        yield


@contextlib.contextmanager
def seeded_draws(torch: ModuleType, seed: int, *, device: Any = None) -> Iterator[None]:
    """Draws Torch's random numbers from a seed inside the block; the user's generator stays as is.

    Args:
        torch: the library.
        seed: in [0, 2**63).
        device: an accelerator whose generator is seeded, too; None: the processor's alone.
    """
    devices = [] if device is None else [device]
    kind = "cuda" if device is None else device.type
    generator = torch.default_generator
    before = generator.get_state()
    with torch.random.fork_rng(devices, device_type=kind) if devices else contextlib.nullcontext():
        if devices:
            torch.manual_seed(seed)
        generator.manual_seed(seed)
        try:
            yield
        finally:
            generator.set_state(before)


def aligned_copy(torch: ModuleType, array: Array, dtype: Any = None) -> Any:
    """The numbers as a tensor in memory of Torch's own, [same shape].

    Kernels may add up in another order where memory begins at another place. Torch's own memory
    begins at a multiple of 64 bytes, so the same numbers give the same bits in every process.
    """
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    return tensor.clone() if dtype is None or tensor.dtype == dtype else tensor.to(dtype)


# ---- torch network
#
# The ready-made networks, learning in Torch: `model_config={"backend": "torch"}`. Tensors, first
# weights and acting are those of the networks in NumPy, so checkpoints fit both, and processes
# that only act need no Torch. What differs is the order of additions while learning, and the
# time: convolutions take about half as long.

_USER: Final = 'model_config={"backend": "torch"}'

_FUNCTIONS: Final[Mapping[type[Activation], str]] = MappingProxyType(
    {Tanh: "tanh", Relu: "relu", Sigmoid: "sigmoid", Elu: "elu", Swish: "silu"}
)
"""What an activation is called in `torch.nn.functional`."""


class TorchMLP(MLP):
    """An `MLP` whose passes forward and backward are made by Torch."""

    def __init__(self, parameters: Parameters, gradients: Parameters, **network: Any) -> None:
        """See `MLP`; an ImportError if Torch is not installed."""
        super().__init__(parameters, gradients, **network)
        layers_in_torch = [_Dense(layer) for layer in self.layers]
        self._graph = _Graph(layers_in_torch, before=(1, 0), after=(1, 0))
        self._outputs_and_ones: Array = columns_with_ones(0, 0, parameters.dtype)

    def forward(self, inputs: Array) -> Array:
        outputs = self._graph.forward(inputs[:-1])
        width, count = outputs.shape
        if self._outputs_and_ones.shape != (width + 1, count):
            self._outputs_and_ones = columns_with_ones(width, count, self._dtype)
        self._outputs_and_ones[:-1] = outputs
        return self._outputs_and_ones

    def backward(
        self, gradient: Array, *, d_inputs: Array | None = None, only_inputs: bool = False
    ) -> None:
        self._graph.backward(gradient, d_inputs=d_inputs, only_inputs=only_inputs)


class TorchStack(ConvolutionStack):
    """A `ConvolutionStack` whose passes forward and backward are made by Torch.

    Images stay [B, height, width, channels] in memory ("channels last" in Torch), the layout in
    which kernels are fastest and features have NumPy's order.
    """

    def __init__(self, parameters: Parameters, gradients: Parameters, **network: Any) -> None:
        """See `ConvolutionStack`; an ImportError if Torch is not installed."""
        super().__init__(parameters, gradients, **network)
        layers = [_Convolution(layer) for layer in self._layers]
        self._graph = _Graph(layers, before=(0, 3, 1, 2), after=(0, 2, 3, 1))

    def forward(self, rows: Array) -> Array:
        return self._graph.forward(self._images(rows)).reshape(len(rows), self._num_features)

    def backward(self, d_features: Array) -> None:
        self._graph.backward(d_features.reshape(len(d_features), *self._layers[-1].output_shape))


class _InTorch:
    """What replaces the passes of a `RecurrentLayer` in NumPy, and its memory for them."""

    _in_torch: _Recurrence

    def prepare(self, inputs: Array, state: RecurrentState) -> None:
        self._given = inputs, state

    def run_forward(self) -> Array:
        return self._in_torch.forward(*self._given)

    def run_backward(self, gradient: Array, d_inputs: Array | None) -> None:
        self._in_torch.backward(gradient, d_inputs)


class TorchLSTM(_InTorch, LSTM):
    """An `LSTM` whose passes over sequences are made by Torch; `step` is NumPy's."""

    def __init__(self, parameters: Parameters, gradients: Parameters, **layer: Any) -> None:
        """See `LSTM`; an ImportError if Torch is not installed."""
        super().__init__(parameters, gradients, **layer)
        self._in_torch = _Recurrence(self, "lstm", parameters, gradients, layer["name"])


class TorchGRU(_InTorch, GRU):
    """A `GRU` whose passes over sequences are made by Torch; `step` is NumPy's."""

    def __init__(self, parameters: Parameters, gradients: Parameters, **layer: Any) -> None:
        """See `GRU`; an ImportError if Torch is not installed."""
        super().__init__(parameters, gradients, **layer)
        self._in_torch = _Recurrence(self, "gru", parameters, gradients, layer["name"])


class _Recurrence:
    """The passes of a recurrent layer in Torch, over the memory of one in NumPy."""

    def __init__(
        self,
        layer: RecurrentLayer,
        function: str,
        parameters: Parameters,
        gradients: Parameters,
        name: str,
    ) -> None:
        """Lays tensors over the weights of the layer called `name`; `function` is Torch's."""
        self._torch = torch_library(_USER)
        self._function = getattr(self._torch, function)
        self._layer = layer
        names = list(layer.shapes(name, num_inputs=layer.num_inputs, width=layer.width))
        with fixed_torch(self._torch):
            self._leaves = [
                self._torch.from_numpy(parameters.views[part]).requires_grad_() for part in names
            ]
        self._targets = [gradients.views[part] for part in names]
        self._inputs: Any = None
        self._outputs: Any = None

    def forward(self, inputs: Array, state: RecurrentState) -> Array:
        """The outputs of all steps with a row of ones below; new memory."""
        torch, layer = self._torch, self._layer
        self._inputs = self._outputs = None  # frees the last graph before there is another
        count, num_columns = len(state["h"]), inputs.shape[1]
        with fixed_torch(torch):
            self._inputs = aligned_copy(torch, inputs[:-1].T).requires_grad_()
            before = [aligned_copy(torch, state[name])[None] for name in layer.state_names]
            kernel, bias, recurrent, *others = self._leaves
            # Torch adds a bias on the state's side, too. Only that inside a GRU's reset is learnt.
            zeros = torch.zeros(len(bias) - sum(map(len, others)), dtype=bias.dtype)
            self._outputs, *_ = self._function(
                self._inputs.reshape(num_columns // count, count, layer.num_inputs),
                before[0] if len(before) == 1 else tuple(before),
                [kernel.t(), recurrent.t(), bias, torch.cat([zeros, *others])],
                *(True, 1, 0.0, True, False, False),
            )
        columns = columns_with_ones(layer.width, num_columns, inputs.dtype.type)
        columns[:-1] = self._outputs.detach().numpy().reshape(num_columns, layer.width).T
        return columns

    def backward(self, gradient: Array, d_inputs: Array | None) -> None:
        """Overwrites the gradients; belongs to the last forward pass."""
        torch, outputs = self._torch, self._outputs
        with fixed_torch(torch):
            given = aligned_copy(torch, gradient.T, outputs.dtype).reshape(outputs.shape)
            found = torch.autograd.grad(
                outputs, [*self._leaves, self._inputs], given, retain_graph=True
            )
        for target, part in zip(self._targets, found[:-1], strict=True):
            target[...] = part.numpy()
        if d_inputs is not None:
            d_inputs[...] = found[-1].numpy().T


class _Graph:
    """Layers in a chain, and autograd's record of the last forward pass."""

    def __init__(
        self,
        layers: Sequence[_Dense | _Convolution],
        *,
        before: tuple[int, ...],
        after: tuple[int, ...],
    ) -> None:
        """Lays the layers over their weights.

        Args:
            layers: at least one.
            before: the order of the axes of inputs as the first layer wants them.
            after: the order of the axes of its outputs as they are wanted here.
        """
        self._torch = torch_library(_USER)
        self._layers = layers
        with fixed_torch(self._torch):
            for layer in layers:
                layer.place(self._torch)
        self._before, self._after = before, after
        self._inputs: Any = None
        self._outputs: Any = None

    def forward(self, inputs: Array) -> Array:
        """The outputs of the last layer; views that the next forward pass leaves alone."""
        torch = self._torch
        self._inputs = self._outputs = None  # frees the last graph before there is another
        with fixed_torch(torch):
            self._inputs = self._layers[0].placed(torch, inputs)
            values = self._inputs.permute(self._before)
            for layer in self._layers:
                values = layer.compute(values)
            self._outputs = values.permute(self._after)
        outputs: Array = self._outputs.detach().numpy()
        return outputs

    def backward(
        self, d_outputs: Array, *, d_inputs: Array | None = None, only_inputs: bool = False
    ) -> None:
        """Overwrites the gradients; belongs to the last forward pass, and may come again for it.

        Args:
            d_outputs: derivative of the loss, of the outputs' shape.
            d_inputs: that for the inputs, overwritten; None if it is not needed.
            only_inputs: leave the gradients of the layers alone.
        """
        torch = self._torch
        layers = [] if only_inputs else self._layers
        wanted = [leaf for layer in layers for leaf in layer.leaves]
        targets = [gradient for layer in layers for gradient in layer.gradients]
        if d_inputs is not None:
            wanted, targets = [*wanted, self._inputs], [*targets, d_inputs]
        with fixed_torch(torch):
            given = aligned_copy(torch, d_outputs, self._outputs.dtype)
            found = torch.autograd.grad(self._outputs, wanted, given, retain_graph=True)
        for target, gradient in zip(targets, found, strict=True):
            target[...] = gradient.numpy()


class _Dense:
    """A dense layer in Torch, over the memory of one in NumPy.

    Attributes:
        leaves: the tensors that are learnt.
        gradients: the memory of their gradients.
    """

    def __init__(self, layer: DenseLayer) -> None:
        self._weights = layer.weights
        self._activation = layer.activation
        self.gradients = (layer.weight_gradients[:-1], layer.weight_gradients[-1])

    def place(self, torch: Any) -> None:
        """Lays tensors over the weights."""
        self.leaves = tuple(
            torch.from_numpy(part).requires_grad_()
            for part in (self._weights[:-1], self._weights[-1])
        )
        self._product = torch.addmm
        self._function = _function_of(self._activation, torch)

    def placed(self, torch: Any, inputs: Array) -> Any:
        """Inputs of the network as a tensor whose gradient can be asked for."""
        return aligned_copy(torch, inputs, self.leaves[0].dtype).requires_grad_()

    def compute(self, values: Any) -> Any:
        """The layer's outputs, [B, N]."""
        kernel, bias = self.leaves
        return self._function(self._product(bias, values, kernel))


class _Convolution:
    """A convolution in Torch, over the memory of one in NumPy; attributes as in `_Dense`."""

    def __init__(self, layer: ConvolutionLayer) -> None:
        self._layer = layer
        kernel = (*layer.spec.kernel, layer.input_shape[2], layer.spec.channels)
        self._kernel = layer.weights[:-1].reshape(kernel)
        gradients = layer.weight_gradients
        self.gradients = (gradients[:-1].reshape(kernel), gradients[-1])

    def place(self, torch: Any) -> None:
        """Lays tensors over the weights."""
        self.leaves = tuple(
            torch.from_numpy(part).requires_grad_()
            for part in (self._kernel, self._layer.weights[-1])
        )
        self._functional = torch.nn.functional
        self._channels_last = torch.channels_last
        self._function = _function_of(self._layer.activation, torch)

    def placed(self, torch: Any, inputs: Array) -> Any:
        """Images as a tensor: scaled, if this is the network's first layer."""
        dtype, scale = self.leaves[0].dtype, self._layer.scale
        if scale == 1.0:
            return aligned_copy(torch, inputs, dtype)
        # A product is in memory of Torch's own, too.
        return torch.from_numpy(np.ascontiguousarray(inputs)).to(dtype) * scale

    def compute(self, values: Any) -> Any:
        """The layer's outputs, [B, channels, h, w]."""
        layer, functional = self._layer, self._functional
        kernel, bias = self.leaves
        (above, below), (left, right) = layer.zeros
        if above or below or left or right:
            values = functional.pad(values, (left, right, above, below))
        values = functional.conv2d(
            values,
            kernel.permute(3, 2, 0, 1).contiguous(memory_format=self._channels_last),
            bias,
            stride=layer.spec.stride,
        )
        return self._function(values)


def _function_of(activation: Activation, torch: Any) -> Callable[[Any], Any]:
    """The function of Torch that computes an activation."""
    if isinstance(activation, Linear):
        return lambda values: values
    function: Callable[[Any], Any] = getattr(torch.nn.functional, _FUNCTIONS[type(activation)])
    return function


@dataclass(frozen=True)
class Backend:
    """What computes the ready-made networks while they learn.

    Attributes:
        mlp: dense layers.
        stack: convolutions.
        recurrent: recurrent layers, by kind.
    """

    mlp: type[MLP]
    stack: type[ConvolutionStack]
    recurrent: Mapping[str, type[RecurrentLayer]]


BACKENDS: Final[Mapping[str, Backend]] = MappingProxyType(
    {
        "numpy": Backend(MLP, ConvolutionStack, RECURRENT_LAYERS),
        "torch": Backend(
            TorchMLP, TorchStack, MappingProxyType({"lstm": TorchLSTM, "gru": TorchGRU})
        ),
    }
)
"""By the name that `model_config={"backend": ...}` gives."""

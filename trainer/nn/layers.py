"""Activations, dense layers and chains of them; and their forward pass for acting.

Acting: every row gives the same bits, whatever other rows are in the batch. An env slot must
compute the same action whether it acts alone, with seven others, or in another process. BLAS does
not promise that: a product of one row may run other code than a product of eight rows, and sums
then round differently. So rows are padded to blocks of eight, and every block is multiplied as its
own [8, K] @ [K, N]: same shape, same code, same order of additions. Measured on OpenBLAS with seven
instruction sets: identical bits for every place in a block; only products with N = 1, which BLAS
treats as matrix times vector, differed on one of them and are therefore added up by NumPy row by
row. The blocks must never be merged into one larger product.

Training: forward and backward on batches whose *columns* are the samples. Inside `trainer.nn` a
batch of B samples with K features is a matrix [K + 1, B] whose last row is all ones, and a layer's
weights are a matrix [K + 1, N]: the kernel [K, N] with the bias [N] as its last row. One matrix
product then gives outputs with bias, and another one gives the gradients of kernel and bias
together. Samples stand in columns because the row of ones then leaves every block contiguous.
Separate biases would cost each layer two more operations (measured for 64 samples and 64 units:
adding the bias 1.7 µs, its gradient 1.0 µs, next to 5.7 µs for the matrix product).

A multi-layer perceptron is a chain of dense layers with one reusable workspace: its passes allocate
nothing as long as the batch size stays the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np

from trainer.errors import ConfigError
from trainer.nn import kernels
from trainer.nn.initializers import AS_THE_NETWORK, HIDDEN_GAIN, Initializer, LayerDraw
from trainer.nn.optimizers import Parameters
from trainer.types import Array

# ---- activations
#
# Activation functions: forward and backward side by side, both in place. `forward` replaces pre-
# activations by activations, `backward` replaces the gradient with respect to the activations by
# the gradient with respect to the pre-activations. Most derivatives follow from the activation
# itself; where the pre-activation is needed as well (`needs_inputs`), the caller keeps a copy of
# it. All are elementwise, any shape.


@dataclass(frozen=True)
class ActivationCache:
    """What one layer keeps from the forward to the backward pass; arrays of one shape, reused.

    Attributes:
        outputs: y, the activations.
        inputs: z, the pre-activations, if `needs_inputs`; otherwise the same memory as `outputs`.
        gradient: dL/dy before and dL/dz after the activation's backward pass.
        scratch: memory that any step may overwrite.
    """

    outputs: Array
    inputs: Array
    gradient: Array
    scratch: Array


class Activation(ABC):
    """One activation function y = f(z)."""

    needs_inputs: ClassVar[bool] = False
    """True if `backward` needs the pre-activations z and not only y."""

    @abstractmethod
    def forward(self, values: Array) -> None:
        """Replaces z by f(z)."""

    @abstractmethod
    def backward(self, cache: ActivationCache) -> None:
        """Replaces dL/dy by dL/dz.

        Args:
            cache: what the forward pass left; its `gradient` is changed, its `scratch` overwritten.
        """


class Linear(Activation):
    """f(z) = z."""

    def forward(self, values: Array) -> None:
        """Leaves z as it is."""

    def backward(self, cache: ActivationCache) -> None:
        """Multiplies by f' = 1."""


class Tanh(Activation):
    """f(z) = tanh z."""

    def forward(self, values: Array) -> None:
        """Replaces z by tanh z."""
        np.tanh(values, values)

    def backward(self, cache: ActivationCache) -> None:
        """Multiplies by f' = 1 - y²."""
        scratch = cache.scratch
        np.multiply(cache.outputs, cache.outputs, scratch)
        np.subtract(1.0, scratch, scratch)
        np.multiply(cache.gradient, scratch, cache.gradient)


class Relu(Activation):
    """f(z) = max(z, 0)."""

    def forward(self, values: Array) -> None:
        """Replaces negative z by 0."""
        np.maximum(values, 0.0, out=values)

    def backward(self, cache: ActivationCache) -> None:
        """Multiplies by f' = 1 where z > 0, otherwise 0 (also at 0)."""
        scratch = cache.scratch
        np.greater(cache.outputs, 0.0, scratch, casting="unsafe")
        np.multiply(cache.gradient, scratch, cache.gradient)


class Sigmoid(Activation):
    """f(z) = 1 / (1 + exp(-z))."""

    def forward(self, values: Array) -> None:
        """Replaces z by its sigmoid."""
        sigmoid(values, values)

    def backward(self, cache: ActivationCache) -> None:
        """Multiplies by f' = y (1 - y)."""
        scratch = cache.scratch
        np.subtract(1.0, cache.outputs, scratch)
        np.multiply(scratch, cache.outputs, scratch)
        np.multiply(cache.gradient, scratch, cache.gradient)


class Elu(Activation):
    """f(z) = z for z > 0, otherwise exp(z) - 1 (Clevert et al. 2016, equation 15, alpha = 1)."""

    def forward(self, values: Array) -> None:
        """Replaces negative z by exp(z) - 1; expm1 is exact for small z."""
        negative = np.minimum(values, 0.0)
        np.expm1(negative, negative)
        np.maximum(values, 0.0, out=values)
        np.add(values, negative, values)

    def backward(self, cache: ActivationCache) -> None:
        """Multiplies by f' = 1 for y > 0, otherwise exp(z) = y + 1."""
        scratch = cache.scratch
        np.minimum(cache.outputs, 0.0, out=scratch)
        np.add(scratch, 1.0, scratch)
        np.multiply(cache.gradient, scratch, cache.gradient)


class Swish(Activation):
    """f(z) = z sigmoid(z), also called SiLU (Elfwing et al. 2018, equation 8)."""

    needs_inputs = True

    def forward(self, values: Array) -> None:
        """Replaces z by z sigmoid(z)."""
        gate = np.empty_like(values)
        sigmoid(values, gate)
        np.multiply(values, gate, values)

    def backward(self, cache: ActivationCache) -> None:
        """Multiplies by f' = s + y (1 - s) with s = sigmoid(z)."""
        scratch = cache.scratch
        sigmoid(cache.inputs, scratch)
        rest = np.subtract(1.0, scratch)
        np.multiply(rest, cache.outputs, rest)
        np.add(scratch, rest, scratch)
        np.multiply(cache.gradient, scratch, cache.gradient)


def sigmoid(values: Array, out: Array) -> None:
    """Writes the sigmoid of z as (1 + tanh(z/2)) / 2, which cannot overflow as exp(-z) does."""
    np.multiply(values, 0.5, out)
    np.tanh(out, out)
    np.multiply(out, 0.5, out)
    np.add(out, 0.5, out)


ACTIVATIONS: Final[Mapping[str, Activation]] = MappingProxyType(
    {
        "linear": Linear(),
        "tanh": Tanh(),
        "relu": Relu(),
        "sigmoid": Sigmoid(),
        "elu": Elu(),
        "swish": Swish(),
        "silu": Swish(),
    }
)
"""Every activation by the name used in a `model_config`."""


def activation_named(name: str) -> Activation:
    """The activation of that name; a ConfigError if there is none."""
    if name not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise ConfigError(
            f"There is no activation {name!r}. Networks here are plain NumPy and know: {known}. "
            "Choose one of them, or write an own `RLModule`."
        )
    return ACTIVATIONS[name]


# ---- layers


@dataclass(frozen=True)
class LayerSpec:
    """What a layer looks like.

    Attributes:
        width: the number of outputs N, ≥ 1.
        activation: a name in `trainer.nn.layers.ACTIVATIONS`.
        draw: how its first weights are drawn, where that is decided for the layer alone.
    """

    width: int
    activation: str
    draw: LayerDraw = AS_THE_NETWORK


class DenseLayer:
    """y = f(Wᵀ x + b); weights and gradients are views into the network's parameters.

    Attributes:
        num_inputs: K.
        num_outputs: N.
        activation: f.
        draw: how its first weights are drawn.
        weights: [K + 1, N]; kernel and, as last row, bias.
        weight_gradients: [K + 1, N]; overwritten by each backward pass.
    """

    def __init__(
        self, parameters: Parameters, gradients: Parameters, *, name: str, spec: LayerSpec
    ) -> None:
        self.name = name
        self.activation: Activation = activation_named(spec.activation)
        self.draw = spec.draw
        self.weights, self.weight_gradients = parameters.layer(name), gradients.layer(name)
        self.num_inputs, self.num_outputs = len(self.weights) - 1, spec.width
        self._transposed = self.weights.T
        self._kernel = self.weights[:-1]

    @staticmethod
    def shapes(name: str, *, num_inputs: int, num_outputs: int) -> dict[str, tuple[int, ...]]:
        """The tensors of a layer called `name`, in the order that `weights` relies on."""
        return {f"{name}/kernel": (num_inputs, num_outputs), f"{name}/bias": (num_outputs,)}

    def forward(self, inputs: Array, *, out: Array) -> None:
        """Writes the pre-activations.

        Args:
            inputs: [K + 1, B], last row ones.
            out: [N, B], contiguous; overwritten.
        """
        np.matmul(self._transposed, inputs, out)

    def backward(self, gradient: Array, *, inputs: Array | None, d_inputs: Array | None) -> None:
        """Overwrites `weight_gradients` and `d_inputs`, as far as they are wanted.

        Args:
            gradient: dL/dz, [N, B]: with respect to the pre-activations.
            inputs: what `forward` got, [K + 1, B]; None leaves `weight_gradients` alone.
            d_inputs: dL/dx, [K, B]; overwritten. None if it is not needed.
        """
        if inputs is not None:
            np.matmul(inputs, gradient.T, self.weight_gradients)
        if d_inputs is None:
            return
        if self.num_outputs == 1:
            # An outer product; matmul takes twice as long for it (5.5 against 2.4 µs at 64 x 64).
            np.multiply(self._kernel, gradient, d_inputs)
        else:
            np.matmul(self._kernel, gradient, d_inputs)

    def plan(self, values: Array, gradient: Array) -> kernels.LayerPlan | None:
        """What the kernels must know of it and of its memory; None if they do not know such.

        A product with a single row is another one in NumPy.
        """
        kind = kernels.ACTIVATIONS.get(type(self.activation).__name__)
        arrays = self.weights, self.weight_gradients, values, gradient
        if kind is None or self.num_inputs == 1 or not kernels.are_plain(*arrays):
            return None
        return kernels.LayerPlan.of(self.num_inputs, self.num_outputs, kind, *arrays)


# ---- mlp


class MLP:
    """Dense layers in a chain, writing gradients straight into a flat gradient vector.

    Life: `shapes` tells what parameters to create; `initialize` draws them; then any number of
    times `forward` followed by `backward`, which belongs to the last forward pass.

    Attributes:
        layers: in order.
        num_weights: of all layers.
    """

    def __init__(
        self,
        parameters: Parameters,
        gradients: Parameters,
        *,
        name: str,
        layers: Sequence[LayerSpec],
    ) -> None:
        """Finds its layers in `parameters` and `gradients`, which hold (at least) `shapes(...)`."""
        self.layers = [
            DenseLayer(parameters, gradients, name=f"{name}/{index}", spec=spec)
            for index, spec in enumerate(layers)
        ]
        self.num_weights = sum(layer.weights.size for layer in self.layers)
        self._dtype = parameters.dtype
        self._batch_size = -1
        self._caches: list[ActivationCache] = []
        self._outputs: list[Array] = []
        self._inputs: Array = np.empty((0, 0))
        self._functions = kernels.functions_if(_chains_are_same)
        self._chain: kernels.Chain | None = None

    @staticmethod
    def shapes(
        name: str, *, num_inputs: int, layers: Sequence[LayerSpec]
    ) -> dict[str, tuple[int, ...]]:
        """The tensors of all layers: `<name>/<layer number>/kernel` and `.../bias`."""
        shapes: dict[str, tuple[int, ...]] = {}
        for index, spec in enumerate(layers):
            shapes |= DenseLayer.shapes(
                f"{name}/{index}", num_inputs=num_inputs, num_outputs=spec.width
            )
            num_inputs = spec.width
        return shapes

    def initialize(
        self, rng: np.random.Generator, *, initializer: Initializer, gain: float = HIDDEN_GAIN
    ) -> None:
        """Draws all weights; `gain` is that of the last layer."""
        for layer in self.layers:
            own = gain if layer is self.layers[-1] else HIDDEN_GAIN
            layer.draw.after(initializer, rng, weights=layer.weights, gain=own)

    def forward(self, inputs: Array) -> Array:
        """The network's outputs with a row of ones below, ready for another network.

        Args:
            inputs: [K + 1, B], last row ones; kept (not copied) for the backward pass.

        Returns:
            [N + 1, B], valid until the next forward pass.
        """
        if inputs.shape[1] != self._batch_size:
            self._allocate(inputs.shape[1])
        self._inputs = inputs
        if self._chain is not None and self._chain.forward(inputs):
            return self._outputs[-1]
        for layer, cache, outputs in zip(self.layers, self._caches, self._outputs, strict=True):
            layer.forward(inputs, out=cache.outputs)
            if layer.activation.needs_inputs:
                np.copyto(cache.inputs, cache.outputs)
            layer.activation.forward(cache.outputs)
            inputs = outputs
        return inputs

    def backward(
        self, gradient: Array, *, d_inputs: Array | None = None, only_inputs: bool = False
    ) -> None:
        """Overwrites the gradients of all layers; belongs to the last forward pass.

        Args:
            gradient: dL/d(outputs), [N, B].
            d_inputs: dL/d(inputs), [K, B], overwritten; None if it is not needed.
            only_inputs: leave the gradients of the layers alone, which saves half the work.
        """
        caches = self._caches
        np.copyto(caches[-1].gradient, gradient)
        chain = self._chain
        if chain is not None and chain.backward(self._inputs, d_inputs, only_inputs=only_inputs):
            return
        for index in range(len(caches) - 1, -1, -1):
            layer, cache = self.layers[index], caches[index]
            layer.activation.backward(cache)
            d_before: Array | None
            if index > 0:
                inputs, d_before = self._outputs[index - 1], caches[index - 1].gradient
            else:
                inputs, d_before = self._inputs, d_inputs
            layer.backward(
                cache.gradient, inputs=None if only_inputs else inputs, d_inputs=d_before
            )

    @property
    def newest_outputs(self) -> Array:
        """What the last forward pass gave."""
        return self._outputs[-1]

    def planned_forward(self, inputs: Array) -> kernels.PassPlan | None:
        """A forward pass to be run in C; None if that cannot be."""
        if type(self).forward is not MLP.forward:
            return None
        if inputs.shape[1] != self._batch_size:
            self._allocate(inputs.shape[1])
        self._inputs = inputs
        chain = self._chain
        return None if chain is None else chain.planned(kernels.FORWARD, inputs)

    def planned_backward(
        self, gradient: Array, d_inputs: Array | None, *, only_inputs: bool
    ) -> kernels.PassPlan | None:
        """A backward pass to be run in C; None if that cannot be."""
        if self._chain is None or type(self).backward is not MLP.backward:
            return None
        np.copyto(self._caches[-1].gradient, gradient)
        kind = kernels.BACKWARD_TO_INPUTS if only_inputs else kernels.BACKWARD
        return self._chain.planned(kind, self._inputs, d_inputs)

    @property
    def chain_in_c(self) -> kernels.Chain | None:
        """What the kernels have of the batches that were learnt from last; None if nothing."""
        return self._chain

    def _allocate(self, batch_size: int) -> None:
        """Makes the workspace for batches of that size."""
        self._batch_size, self._chain = -1, None  # an interrupt may come before all is there
        self._outputs = [
            columns_with_ones(layer.num_outputs, batch_size, self._dtype) for layer in self.layers
        ]
        self._caches = [
            _new_cache(outputs[:-1], needs_inputs=layer.activation.needs_inputs)
            for layer, outputs in zip(self.layers, self._outputs, strict=True)
        ]
        if self._functions is not None and batch_size > 1:
            pairs = zip(self.layers, self._outputs, self._caches, strict=True)
            plans = [layer.plan(outputs, cache.gradient) for layer, outputs, cache in pairs]
            self._chain = kernels.Chain.of(self._functions, plans)
        self._batch_size = batch_size


# ---- several passes

LARGE_PASS: Final = 2_000_000
"""So many multiplications (about 20 µs) are worth a second thread."""


class ForwardPass:
    """A forward pass of a network, to be run; see `run_side_by_side`.

    Attributes:
        outputs: what `MLP.forward` gives, once it was run.
    """

    outputs: Array

    def __init__(self, network: MLP, inputs: Array) -> None:
        """Is not run yet; arguments as of `MLP.forward`."""
        self.network, self._inputs = network, inputs

    @property
    def num_products(self) -> int:
        """Multiplications."""
        return self.network.num_weights * int(self._inputs.shape[1])

    def run(self) -> None:
        """Runs it in this thread."""
        self.outputs = self.network.forward(self._inputs)

    def plan(self) -> kernels.PassPlan | None:
        """What runs it in C; None if NumPy is to."""
        plan = self.network.planned_forward(self._inputs)
        if plan is not None:
            self.outputs = self.network.newest_outputs
        return plan


class BackwardPass:
    """A backward pass of a network, to be run; see `run_side_by_side`."""

    def __init__(
        self,
        network: MLP,
        gradient: Array,
        *,
        d_inputs: Array | None = None,
        only_inputs: bool = False,
    ) -> None:
        """Is not run yet; arguments as of `MLP.backward`."""
        self.network, self._gradient = network, gradient
        self._d_inputs, self._only_inputs = d_inputs, only_inputs

    @property
    def num_products(self) -> int:
        """Multiplications, or half of them."""
        return self.network.num_weights * int(self._gradient.shape[1])

    def run(self) -> None:
        """Runs it in this thread."""
        self.network.backward(
            self._gradient, d_inputs=self._d_inputs, only_inputs=self._only_inputs
        )

    def plan(self) -> kernels.PassPlan | None:
        """What runs it in C; None if NumPy is to."""
        return self.network.planned_backward(
            self._gradient, self._d_inputs, only_inputs=self._only_inputs
        )


Pass = ForwardPass | BackwardPass


def are_large(networks: Sequence[Any], batch_size: int) -> bool:
    """Whether there are two networks of dense layers, or more, each worth a second thread."""
    return len(networks) > 1 and all(
        isinstance(network, MLP) and network.num_weights * batch_size >= LARGE_PASS
        for network in networks
    )


def run_side_by_side(first: Sequence[Pass], second: Sequence[Pass]) -> None:
    """Runs the first passes in order, and the second ones in order.

    At once, if they are large, known in C, and there are two cores; the bits are the same. Neither
    may touch what the other changes.
    """
    functions = kernels.functions_if(_chains_are_same)
    sides = first, second
    if functions is not None and min(_products_of(side) for side in sides) >= LARGE_PASS:
        plans = [one.plan() for one in (*first, *second)]
        known = [plan for plan in plans if plan is not None]
        if len(known) == len(plans):
            functions.run_both((kernels.PassPlan * len(known))(*known), len(first), len(second))
            return
    for one in (*first, *second):
        one.run()


def _products_of(passes: Sequence[Pass]) -> int:
    return sum(one.num_products for one in passes)


def columns_with_ones(features: int, batch_size: int, dtype: type[np.floating[Any]]) -> Array:
    """An empty batch [features + 1, batch_size] whose last row is ones."""
    batch: Array = np.zeros((features + 1, batch_size), dtype)
    batch[features] = 1.0
    return batch


def _new_cache(outputs: Array, *, needs_inputs: bool) -> ActivationCache:
    return ActivationCache(
        outputs=outputs,
        inputs=np.empty_like(outputs) if needs_inputs else outputs,
        gradient=np.empty_like(outputs),
        scratch=np.empty_like(outputs),
    )


# ---- acting

BLOCK_ROWS: Final = 8
"""Rows per product. Part of what a run computes: another number changes the bits of actions."""


def padded_rows(rows: int) -> int:
    """The number of rows rounded up to whole blocks."""
    return -(-rows // BLOCK_ROWS) * BLOCK_ROWS


def matmul_rows(rows: Array, matrix: Array) -> Array:
    """`rows @ matrix` with bits that do not depend on the number of rows, for users' networks.

    Args:
        rows: [B, K].
        matrix: [K, N], same dtype.

    Returns:
        A new array [B, N].
    """
    count, width = rows.shape
    blocks = np.zeros((padded_rows(count) // BLOCK_ROWS, BLOCK_ROWS, width), rows.dtype)
    blocks.reshape(-1, width)[:count] = rows
    product = np.empty((*blocks.shape[:2], matrix.shape[1]), matrix.dtype)
    _multiply_blocks(blocks, matrix, product)
    return product.reshape(-1, matrix.shape[1])[:count]


def _multiply_blocks(blocks: Array, matrix: Array, out: Array) -> None:
    """Writes blocks @ matrix, block by block.

    Args:
        blocks: [M, 8, K].
        matrix: [K, N].
        out: [M, 8, N], overwritten.
    """
    if matrix.shape[1] == 1:
        np.add.reduce(blocks * matrix[:, 0], axis=-1, out=out[:, :, 0])
    else:
        np.matmul(blocks, matrix, out)


class _Stage(NamedTuple):
    """One layer with its memory: inputs [M, 8, K + 1] (last column ones) and outputs [M, 8, N].

    Attributes:
        activate: what comes after the products; None leaves them as they are.
    """

    inputs: Array
    weights: Array
    outputs: Array
    activate: Callable[[Array], None] | None


class ActingForward:
    """Runs a chain of dense layers on rows, row-exactly.

    The layers are shared with training, so new weights take effect at once. Memory is kept as long
    as the number of blocks stays the same. Measured for 4-64-64-2 with tanh: 8 µs for one to eight
    rows.
    """

    def __init__(self, layers: Sequence[DenseLayer]) -> None:
        self._layers = list(layers)
        self._num_blocks = -1
        self._stages: list[_Stage] = []
        self._rows: Array = np.empty((0, 0))
        self._outputs: Array = np.empty((0, 0))
        self._functions = kernels.functions_if(_chains_are_same)
        self._chain: kernels.ActingChain | None = None

    def __call__(self, rows: Array) -> Array:
        """The outputs of the last layer.

        Args:
            rows: [B, K].

        Returns:
            A new array [B, N] of the parameters' dtype.
        """
        count = len(rows)
        num_blocks = -(-count // BLOCK_ROWS)
        if num_blocks != self._num_blocks:
            self._allocate(num_blocks)
        self._rows[:count] = rows
        if self._chain is not None:
            self._chain.act()
        else:
            for inputs, weights, products, activate in self._stages:
                _multiply_blocks(inputs, weights, products)
                if activate is not None:
                    activate(products)
        outputs: Array = self._outputs[:count].copy()
        return outputs

    def _allocate(self, num_blocks: int) -> None:
        self._num_blocks, self._chain = -1, None  # an interrupt may come before all is there
        self._stages = []
        inputs = _blocks_with_ones(self._layers[0], self._layers[0].num_inputs, num_blocks)
        num_inputs = self._layers[0].num_inputs
        self._rows = inputs.reshape(-1, num_inputs + 1)[:, :num_inputs]
        for layer in self._layers:
            # The last layer gets a column of ones too; it is not read.
            following = _blocks_with_ones(layer, layer.num_outputs, num_blocks)
            outputs = following[:, :, : layer.num_outputs]
            is_linear = isinstance(layer.activation, Linear)
            activate = None if is_linear else layer.activation.forward
            self._stages.append(_Stage(inputs, layer.weights, outputs, activate))
            inputs = following
        width = self._layers[-1].num_outputs
        self._outputs = inputs.reshape(-1, width + 1)[:, :width]
        if self._functions is not None and all(layer.num_outputs > 1 for layer in self._layers):
            memory = [self._stages[0].inputs, *(stage.inputs for stage in self._stages[1:]), inputs]
            plans = [layer.plan(*memory[:2]) for layer in self._layers]
            self._chain = kernels.ActingChain.of(self._functions, plans, memory)
        self._num_blocks = num_blocks


def _blocks_with_ones(layer: DenseLayer, features: int, num_blocks: int) -> Array:
    blocks: Array = np.zeros((num_blocks, BLOCK_ROWS, features + 1), layer.weights.dtype)
    blocks[:, :, features] = 1.0
    return blocks


# ---- in C


@kernels.compared_with_numpy("dense layers")
def _chains_are_same(functions: Any) -> bool:
    """Whether a pass in C gives the bits of one in NumPy."""
    draw = np.random.default_rng(0)
    for width, activation, batch in ((3, "tanh", 29), (1, "relu", 16), (2, "tanh", 300)):
        specs = [LayerSpec(70, activation), LayerSpec(9, activation), LayerSpec(width, "linear")]
        parameters = Parameters(MLP.shapes("net", num_inputs=5, layers=specs))
        parameters.flat[:] = draw.standard_normal(parameters.num_parameters)
        inputs = columns_with_ones(5, batch, np.float32)
        inputs[:-1] = draw.standard_normal((5, batch))
        gradient = draw.standard_normal((width, batch)).astype(np.float32)
        found = []
        for chosen in (None, functions):
            gradients, d_inputs = parameters.zeros_like(), np.empty((5, batch), np.float32)
            network = MLP(parameters, gradients, name="net", layers=specs)
            acting = ActingForward(network.layers)
            network._functions = acting._functions = chosen
            outputs = [network.forward(inputs).copy(), acting(inputs[:-1].T)]
            network.backward(gradient, d_inputs=d_inputs)
            outputs += [gradients.flat, d_inputs.copy()]
            network.backward(gradient, d_inputs=d_inputs, only_inputs=True)
            found.append([array.tobytes() for array in (*outputs, d_inputs)])
        if found[0] != found[1]:
            return False
    return True

"""Recurrent layers: LSTM and GRU, forward and backward through time, and one step for acting.

Training runs over T steps of B sequences side by side. Like all layers here (`trainer.nn.layers`)
they read columns with a row of ones below, [K + 1, T · B]; column t · B + b is step t of sequence
b. One product makes the inputs' part of all gates and steps, so that a step is one product, of the
state of all sequences with the weights of all gates.

Gates stand in the order of `torch.nn.LSTM` and `torch.nn.GRU`, and the equations are theirs, so
weights of one fit the other.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Final

import numpy as np

from trainer.nn import kernels
from trainer.nn.initializers import AS_THE_NETWORK, LayerDraw
from trainer.nn.layers import BLOCK_ROWS, columns_with_ones, matmul_rows, padded_rows, sigmoid
from trainer.nn.optimizers import Parameters
from trainer.types import Array

RecurrentState = Mapping[str, Array]
"""The state of a layer by name, [B, H] each."""


class RecurrentLayer(ABC):
    """A layer that hands a state on from step to step.

    Life: `shapes` tells what parameters to create; `initialize` draws them; then any number of
    times `forward` followed by `backward`, which belongs to the last forward pass; or `step`.

    Attributes:
        num_inputs: K.
        width: H, the numbers of its output and of each part of its state.
        weights: [K + 1, G · H] for G gates side by side; of the inputs, the bias in the last row.
        recurrent: [H, G · H]; of the state.
        outputs: of the last forward pass, [H + 1, T · B].
    """

    state_names: ClassVar[tuple[str, ...]]
    """The parts of the state; the first one is the output."""
    num_gates: ClassVar[int]
    """G."""

    def __init__(
        self,
        parameters: Parameters,
        gradients: Parameters,
        *,
        name: str,
        draw: LayerDraw = AS_THE_NETWORK,
    ) -> None:
        """Finds its weights in `parameters` and `gradients`, which hold (at least) `shapes(...)`.

        Args:
            parameters: what it computes with.
            gradients: what `backward` overwrites.
            name: what its tensors' names begin with.
            draw: how its first weights are drawn, where that is decided for the layer alone.
        """
        self._draw = draw
        self.weights, self._weight_gradients = parameters.layer(name), gradients.layer(name)
        self.recurrent: Array = parameters.views[f"{name}/recurrent"]
        self._recurrent_gradients: Array = gradients.views[f"{name}/recurrent"]
        self.num_inputs, self.width = len(self.weights) - 1, len(self.recurrent)
        self._dtype = parameters.dtype
        self._sizes = (-1, -1)
        self._inputs: Array = np.empty((0, 0))
        self._allocate(0, 0)

    @classmethod
    def shapes(cls, name: str, *, num_inputs: int, width: int) -> dict[str, tuple[int, ...]]:
        """The tensors `<name>/kernel` [K, G · H], `.../bias` and `.../recurrent` [H, G · H]."""
        gates = cls.num_gates * width
        return {
            f"{name}/kernel": (num_inputs, gates),
            f"{name}/bias": (gates,),
            f"{name}/recurrent": (width, gates),
        }

    def initialize(self, rng: np.random.Generator) -> None:
        """Draws all weights from U(-1/√H, 1/√H), as `torch.nn.LSTM` and `torch.nn.GRU` do.

        Each gate has two biases there, which are drawn and added up. What a `model_config` says of
        kernels or biases replaces that, gate by gate.
        """
        bound = 1.0 / math.sqrt(self.width)
        for tensor in (self.weights, self.recurrent):
            tensor[...] = rng.uniform(-bound, bound, tensor.shape)
        self._add_second_bias(rng.uniform(-bound, bound, (self.weights.shape[1],)))
        for gate in range(self.num_gates):
            if self._draw.kernel is not None:
                self._draw.kernel(rng, self._gate(self.weights[:-1], gate))
                self._draw.kernel(rng, self._gate(self.recurrent, gate))
            if self._draw.bias is not None:
                self._draw.bias(rng, self._gate(self.weights[-1], gate))

    def _add_second_bias(self, drawn: Array) -> None:
        self.weights[-1] += drawn

    def initial_state(self) -> dict[str, Array]:
        """The state before the first step: zeros [H] by name."""
        return {name: np.zeros(self.width, self._dtype) for name in self.state_names}

    def forward(self, inputs: Array, state: RecurrentState) -> Array:
        """The outputs of all steps with a row of ones below, ready for an `MLP`.

        Args:
            inputs: [K + 1, T · B], last row ones; kept (not copied) for the backward pass.
            state: before the first step, [B, H] by name; no gradient flows into it.

        Returns:
            [H + 1, T · B], valid until the next forward pass.
        """
        (outputs,) = forward_side_by_side([self], [inputs], [state])
        return outputs

    def prepare(self, inputs: Array, state: RecurrentState) -> None:
        """Makes sure of the memory, and keeps what a forward pass begins with."""
        count = len(state[self.state_names[0]])
        sizes = inputs.shape[1] // count, count
        if sizes != self._sizes:
            self._allocate(*sizes)
        self._inputs = inputs
        self._begin(state)

    def run_forward(self) -> Array:
        """The forward pass that was prepared, in NumPy; gives the outputs."""
        num_steps, count = self._sizes
        np.matmul(self._inputs.T, self.weights, self._gates.reshape(num_steps * count, -1))
        for step in range(num_steps):
            self._forward_step(step)
        self.outputs[:-1].reshape(self.width, num_steps, count)[...] = self._hidden[1:].transpose(
            2, 0, 1
        )
        return self.outputs

    def backward(self, gradient: Array, *, d_inputs: Array | None = None) -> None:
        """Overwrites the gradients, back through all steps; belongs to the last forward pass.

        Args:
            gradient: dL/d(outputs), [H, T · B].
            d_inputs: dL/d(inputs), [K, T · B], overwritten; None if it is not needed.
        """
        backward_side_by_side([self], [gradient], [d_inputs])

    def run_backward(self, gradient: Array, d_inputs: Array | None) -> None:
        """A backward pass in NumPy."""
        num_steps, count = self._sizes
        d_gates = self._d_gates.reshape(num_steps * count, -1)
        self._backward_steps(gradient, num_steps, count)
        np.matmul(self._inputs, d_gates, self._weight_gradients)
        self._end_backward(self._hidden[:-1].reshape(num_steps * count, self.width))
        if d_inputs is not None:
            np.matmul(self.weights[:-1], d_gates.T, d_inputs)

    def planned(
        self,
        gradient: Array | None = None,  # noqa: ARG002 - for layers that are known in C
        d_inputs: Array | None = None,  # noqa: ARG002
    ) -> kernels.LstmPass | None:
        """What runs a pass in C, backward with a gradient; None if NumPy is to."""
        return None

    def _backward_steps(self, gradient: Array, num_steps: int, count: int) -> None:
        """Writes the gradients of all gates, from that of the outputs."""
        by_step = gradient.reshape(self.width, num_steps, count).transpose(1, 2, 0)
        d_hidden: Array = np.zeros((count, self.width), self._dtype)
        self._begin_backward()
        for step in range(num_steps - 1, -1, -1):
            d_hidden += by_step[step]
            d_hidden = self._backward_step(step, d_hidden)

    def step(self, rows: Array, state: RecurrentState) -> tuple[Array, dict[str, Array]]:
        """One step, row-exact (see `trainer.nn.layers`).

        Args:
            rows: inputs, [B, K].
            state: before the step, [B, H] by name.

        Returns:
            The outputs, a new array [B, H], and the state after the step; new arrays.
        """
        count = len(rows)
        # Whole blocks also where elements are computed one by one: same shapes, same code.
        num_rows = padded_rows(count)
        ones: Array = np.ones((num_rows, self.num_inputs + 1), self._dtype)
        ones[:count, :-1] = rows
        before: dict[str, Array] = {}
        for name in self.state_names:
            before[name] = np.zeros((num_rows, self.width), self._dtype)
            before[name][:count] = state[name]
        after = self._act(matmul_rows(ones, self.weights), before)
        after = {name: array[:count] for name, array in after.items()}
        return after[self.state_names[0]], after

    def _allocate(self, num_steps: int, count: int) -> None:
        """Makes the memory for so many steps of so many sequences."""
        self._sizes = (-1, -1)  # an interrupt may come before all of it is there
        shape = (num_steps, count, self.num_gates * self.width)
        self._gates: Array = np.empty(shape, self._dtype)
        self._d_gates: Array = np.empty(shape, self._dtype)
        self._hidden: Array = np.empty((num_steps + 1, count, self.width), self._dtype)
        self.outputs: Array = columns_with_ones(self.width, num_steps * count, self._dtype)
        self._allocate_others(num_steps, count)
        self._sizes = (num_steps, count)

    def _begin(self, state: RecurrentState) -> None:
        self._hidden[0] = state["h"]

    def _gate(self, array: Array, number: int) -> Array:
        """The columns of one gate, or of several that begin with it."""
        return array[..., number * self.width : (number + 1) * self.width]

    @abstractmethod
    def _allocate_others(self, num_steps: int, count: int) -> None:
        """Makes what a kind of layer keeps besides."""

    @abstractmethod
    def _forward_step(self, step: int) -> None:
        """Computes gates and state of a step, from the inputs' part that is in the gates."""

    @abstractmethod
    def _begin_backward(self) -> None:
        """Computes what all steps need."""

    @abstractmethod
    def _backward_step(self, step: int, d_hidden: Array) -> Array:
        """Writes the gradient of a step's gates; gives that of the output before it, new memory."""

    @abstractmethod
    def _end_backward(self, hidden: Array) -> None:
        """Overwrites the gradients of what reads the state, [T · B, H]."""

    @abstractmethod
    def _act(self, gates: Array, state: RecurrentState) -> dict[str, Array]:
        """The state after one step, from the inputs' part of the gates; row-exact."""


class LSTM(RecurrentLayer):
    """Long short-term memory with forget gates (Hochreiter and Schmidhuber 1997; Gers et al. 2000).

    With x the inputs, h the output, c the cell, σ the sigmoid and ⊙ the product of elements:

        i = σ(x W_i + b_i + h R_i)        f = σ(x W_f + b_f + h R_f)
        g = tanh(x W_g + b_g + h R_g)     o = σ(x W_o + b_o + h R_o)
        c' = f ⊙ c + i ⊙ g                h' = o ⊙ tanh(c')

    Gates stand as i, f, g, o.
    """

    state_names = ("h", "c")
    num_gates = 4
    _acting: _ActingLSTM | None = None

    def step(self, rows: Array, state: RecurrentState) -> tuple[Array, dict[str, Array]]:
        num_blocks = padded_rows(len(rows)) // BLOCK_ROWS
        if self._acting is None or self._acting.num_blocks != num_blocks:
            self._acting = self._acting_in_c(kernels.functions_if(_lstms_are_same), num_blocks)
        if self._acting is None:
            return super().step(rows, state)
        after = self._acting.step(rows, state)
        return after["h"], after

    def _acting_in_c(self, functions: Any, num_blocks: int) -> _ActingLSTM | None:
        """What acts in C; None if NumPy is to."""
        are_plain = kernels.are_plain(self.weights, self.recurrent)
        if functions is None or self.width == 1 or not are_plain:
            return None
        return _ActingLSTM(functions, self.weights, self.recurrent, self._constants, num_blocks)

    def _allocate_others(self, num_steps: int, count: int) -> None:
        self._cells: Array = np.empty((num_steps + 1, count, self.width), self._dtype)
        self._tanh_cells: Array = np.empty((num_steps, count, self.width), self._dtype)
        self._slopes: Array = np.empty_like(self._gates)
        # σ(z) = (1 + tanh(z/2)) / 2: all gates go through one tanh, between a factor and a sum.
        self._factors: Array = np.full(4 * self.width, 0.5, self._dtype)
        self._gate(self._factors, 2)[...] = 1.0
        self._sums: Array = 1.0 - self._factors
        self._is_tanh: Array = 1.0 - 2.0 * self._sums
        self._constants = self._factors, self._sums, self._is_tanh
        functions = kernels.functions_if(_lstms_are_same)
        self._in_c = self._passes_in_c(functions, num_steps, count)

    def _passes_in_c(self, functions: Any, num_steps: int, count: int) -> kernels.Lstm | None:
        """What computes passes in C; None if NumPy is to, as for products of one row."""
        scratch: Array = np.empty((6 * self.width, count), self._dtype)
        arrays = [
            *(self.weights, self.recurrent, self._weight_gradients, self._recurrent_gradients),
            *self._constants,
            *(self._gates, self._d_gates, self._slopes),
            *(self._hidden, self._cells, self._tanh_cells, scratch, self.outputs),
        ]
        is_known = min(count, self.width, self.num_inputs) > 1 and kernels.are_plain(*arrays)
        if functions is None or not is_known:
            return None
        sizes = num_steps, count, self.num_inputs, self.width
        return kernels.Lstm(functions, *sizes, arrays=arrays)

    def planned(
        self, gradient: Array | None = None, d_inputs: Array | None = None
    ) -> kernels.LstmPass | None:
        return None if self._in_c is None else self._in_c.planned(self._inputs, gradient, d_inputs)

    def _begin(self, state: RecurrentState) -> None:
        super()._begin(state)
        self._cells[0] = state["c"]

    def _activate(self, gates: Array) -> None:
        np.multiply(gates, self._factors, gates)
        np.tanh(gates, gates)
        np.multiply(gates, self._factors, gates)
        np.add(gates, self._sums, gates)

    def _forward_step(self, step: int) -> None:
        gates = self._gates[step]
        np.add(gates, self._hidden[step] @ self.recurrent, gates)
        self._activate(gates)
        i, f, g, o = (self._gate(gates, number) for number in range(4))
        cells, tanh_cells = self._cells[step + 1], self._tanh_cells[step]
        np.multiply(f, self._cells[step], cells)
        np.add(cells, i * g, cells)
        np.tanh(cells, tanh_cells)
        np.multiply(o, tanh_cells, self._hidden[step + 1])

    def _begin_backward(self) -> None:
        # σ' = y (1 - y) and tanh' = (1 + y) (1 - y)
        np.add(self._gates, self._is_tanh, self._slopes)
        self._slopes *= 1.0 - self._gates
        self._d_cells: Array = np.zeros(self._cells.shape[1:], self._dtype)

    def _backward_step(self, step: int, d_hidden: Array) -> Array:
        gates, d_gates = self._gates[step], self._d_gates[step]
        i, f, g, o = (self._gate(gates, number) for number in range(4))
        d_i, d_f, d_g, d_o = (self._gate(d_gates, number) for number in range(4))
        tanh_cells, d_cells = self._tanh_cells[step], self._d_cells
        np.multiply(d_hidden, tanh_cells, d_o)
        d_cells += d_hidden * o * (1.0 - tanh_cells * tanh_cells)
        np.multiply(d_cells, g, d_i)
        np.multiply(d_cells, i, d_g)
        np.multiply(d_cells, self._cells[step], d_f)
        d_cells *= f
        np.multiply(d_gates, self._slopes[step], d_gates)
        before: Array = d_gates @ self.recurrent.T
        return before

    def _end_backward(self, hidden: Array) -> None:
        np.matmul(hidden.T, self._d_gates.reshape(len(hidden), -1), self._recurrent_gradients)

    def _act(self, gates: Array, state: RecurrentState) -> dict[str, Array]:
        gates += matmul_rows(state["h"], self.recurrent)
        self._activate(gates)
        i, f, g, o = (self._gate(gates, number) for number in range(4))
        cells = f * state["c"] + i * g
        return {"h": o * np.tanh(cells), "c": cells}


class _ActingLSTM:
    """One step of an LSTM for blocks of rows, in C: each block is a batch of sequences of one step.

    The memory is kept.

    Attributes:
        num_blocks: of `BLOCK_ROWS` rows.
    """

    def __init__(
        self,
        functions: Any,
        weights: Array,
        recurrent: Array,
        constants: Sequence[Array],
        num_blocks: int,
    ) -> None:
        """Makes the memory.

        Args:
            functions: those in C.
            weights: of the inputs, [K + 1, 4 · H].
            recurrent: weights of the state, [H, 4 · H].
            constants: `factors`, `sums` and `is_tanh` of `LstmPlan`.
            num_blocks: of rows.
        """
        self.num_blocks, self._weights = num_blocks, weights
        num_inputs, width, dtype = len(weights) - 1, weights.shape[1] // 4, weights.dtype
        self._inputs: Array = np.ones((num_blocks, BLOCK_ROWS, num_inputs + 1), dtype)
        self._rows = self._inputs.reshape(-1, num_inputs + 1)[:, :-1]
        self._gates: Array = np.empty((num_blocks, BLOCK_ROWS, 4 * width), dtype)
        before_and_after = (num_blocks, 2, BLOCK_ROWS, width)
        self._state = {name: np.zeros(before_and_after, dtype) for name in LSTM.state_names}
        tanh_cells: Array = np.empty((BLOCK_ROWS, width), dtype)
        scratch: Array = np.empty((6 * width, BLOCK_ROWS), dtype)
        self._steps = [
            kernels.Lstm(
                functions,
                *(1, BLOCK_ROWS, num_inputs, width),
                # A step reads and writes no gradients, slopes and outputs: any memory stands there.
                arrays=[
                    *(weights, recurrent, weights, recurrent, *constants, gates, gates, gates),
                    *(hidden, cells, tanh_cells, scratch, hidden),
                ],
            )
            for gates, hidden, cells in zip(self._gates, *self._state.values(), strict=True)
        ]

    def step(self, rows: Array, state: RecurrentState) -> dict[str, Array]:
        """The state after a step; arguments as of `RecurrentLayer.step`."""
        count = len(rows)
        self._rows[:count] = rows
        self._rows[count:] = 0.0
        np.matmul(self._inputs, self._weights, self._gates)
        for name, kept in self._state.items():
            for block in range(self.num_blocks):
                begin = block * BLOCK_ROWS
                given = state[name][begin : begin + BLOCK_ROWS]
                kept[block, 0, : len(given)] = given
                kept[block, 0, len(given) :] = 0.0
        for steps in self._steps:
            steps.act()
        return {
            name: kept[:, 1].reshape(-1, kept.shape[-1])[:count].copy()
            for name, kept in self._state.items()
        }


class GRU(RecurrentLayer):
    """Gated recurrent units (Cho et al. 2014, equations 5 to 8, with the reset after the product).

    With the names of `LSTM`:

        r = σ(x W_r + b_r + h R_r)        z = σ(x W_z + b_z + h R_z)
        n = tanh(x W_n + b_n + r ⊙ (h R_n + b_m))
        h' = (1 - z) ⊙ n + z ⊙ h

    The paper resets h before the product; this form, that of cuDNN and Torch, has one product for
    all gates, and a bias b_m of its own inside the reset. Gates stand as r, z, n.
    """

    state_names = ("h",)
    num_gates = 3

    def __init__(self, parameters: Parameters, gradients: Parameters, **layer: Any) -> None:
        self._recurrent_bias: Array = parameters.views[f"{layer['name']}/recurrent_bias"]
        self._d_recurrent_bias: Array = gradients.views[f"{layer['name']}/recurrent_bias"]
        super().__init__(parameters, gradients, **layer)

    @classmethod
    def shapes(cls, name: str, *, num_inputs: int, width: int) -> dict[str, tuple[int, ...]]:
        """See `RecurrentLayer.shapes`; and `<name>/recurrent_bias` [H], b_m."""
        shapes = super().shapes(name, num_inputs=num_inputs, width=width)
        return {**shapes, f"{name}/recurrent_bias": (width,)}

    def initialize(self, rng: np.random.Generator) -> None:
        """See `RecurrentLayer.initialize`; b_m is the second bias of n."""
        super().initialize(rng)
        if self._draw.bias is not None:
            self._draw.bias(rng, self._recurrent_bias)

    def _add_second_bias(self, drawn: Array) -> None:
        own = self._gate(drawn, 2)
        self._recurrent_bias[...] = own
        own[...] = 0.0
        super()._add_second_bias(drawn)

    def _allocate_others(self, num_steps: int, count: int) -> None:
        self._products: Array = np.empty((num_steps, count, self.width), self._dtype)
        self._d_recurrent: Array = np.empty_like(self._gates)

    def _forward_step(self, step: int) -> None:
        hidden, products = self._hidden[step], self._products[step]
        gates, two = self._gates[step], slice(0, 2 * self.width)
        recurrent = hidden @ self.recurrent
        np.add(gates[:, two], recurrent[:, two], gates[:, two])
        sigmoid(gates[:, two], gates[:, two])
        r, z, n = (self._gate(gates, number) for number in range(3))
        np.add(self._gate(recurrent, 2), self._recurrent_bias, products)
        np.add(n, r * products, n)
        np.tanh(n, n)
        np.add(n, z * (hidden - n), self._hidden[step + 1])

    def _begin_backward(self) -> None:
        """Nothing: no derivative is common to all steps."""

    def _backward_step(self, step: int, d_hidden: Array) -> Array:
        hidden, products = self._hidden[step], self._products[step]
        r, z, n = (self._gate(self._gates[step], number) for number in range(3))
        d_r, d_z, d_n = (self._gate(self._d_gates[step], number) for number in range(3))
        d_recurrent, two = self._d_recurrent[step], slice(0, 2 * self.width)
        np.multiply(d_hidden, (1.0 - z) * (1.0 - n * n), d_n)
        np.multiply(d_hidden, (hidden - n) * z * (1.0 - z), d_z)
        np.multiply(d_n, products * r * (1.0 - r), d_r)
        d_recurrent[:, two] = self._d_gates[step][:, two]
        np.multiply(d_n, r, self._gate(d_recurrent, 2))
        before: Array = d_recurrent @ self.recurrent.T
        before += d_hidden * z
        return before

    def _end_backward(self, hidden: Array) -> None:
        d_recurrent = self._d_recurrent.reshape(len(hidden), -1)
        np.matmul(hidden.T, d_recurrent, self._recurrent_gradients)
        np.add.reduce(self._gate(d_recurrent, 2), axis=0, out=self._d_recurrent_bias)

    def _act(self, gates: Array, state: RecurrentState) -> dict[str, Array]:
        hidden, two = state["h"], slice(0, 2 * self.width)
        recurrent = matmul_rows(hidden, self.recurrent)
        first = gates[:, two] + recurrent[:, two]
        sigmoid(first, first)
        r, z = (self._gate(first, number) for number in range(2))
        n = np.tanh(self._gate(gates, 2) + r * (self._gate(recurrent, 2) + self._recurrent_bias))
        return {"h": n + z * (hidden - n)}


RECURRENT_LAYERS: Final[Mapping[str, type[RecurrentLayer]]] = MappingProxyType(
    {"lstm": LSTM, "gru": GRU}
)
"""Every kind of recurrent layer by the name used in a `model_config` (`use_lstm`, `use_gru`)."""


# ---- passes of several layers


def forward_side_by_side(
    layers: Sequence[RecurrentLayer], inputs: Sequence[Array], states: Sequence[RecurrentState]
) -> list[Array]:
    """The outputs of layers that share nothing; arguments as of `RecurrentLayer.forward`.

    Two at once, if they are known in C and there are two cores; the bits are the same.
    """
    for layer, columns, state in zip(layers, inputs, states, strict=True):
        layer.prepare(columns, state)
    if kernels.run_lstms([layer.planned() for layer in layers]):
        return [layer.outputs for layer in layers]
    return [layer.run_forward() for layer in layers]


def backward_side_by_side(
    layers: Sequence[RecurrentLayer], gradients: Sequence[Array], d_inputs: Sequence[Array | None]
) -> None:
    """Backward passes of layers that share nothing; arguments as of `RecurrentLayer.backward`."""
    given = list(zip(layers, gradients, d_inputs, strict=True))
    if not kernels.run_lstms([layer.planned(gradient, room) for layer, gradient, room in given]):
        for layer, gradient, room in given:
            layer.run_backward(gradient, room)


@kernels.compared_with_numpy("LSTM")
def _lstms_are_same(functions: Any) -> bool:
    """Whether the steps of an LSTM in C have the bits of those in NumPy."""
    draw = np.random.default_rng(0)
    for num_steps, count, width in ((5, 3, 8), (20, 13, 64)):
        shapes = LSTM.shapes("net", num_inputs=4, width=width)
        parameters = Parameters(shapes)
        parameters.flat[:] = draw.standard_normal(parameters.num_parameters)
        inputs = columns_with_ones(4, num_steps * count, np.float32)
        inputs[:-1] = draw.standard_normal((4, num_steps * count))
        before = {name: draw.standard_normal((count, width)) for name in LSTM.state_names}
        gradient = draw.standard_normal((width, num_steps * count)).astype(np.float32)
        d_inputs, found = np.empty((4, num_steps * count), np.float32), []
        for chosen in (None, functions):
            gradients = parameters.zeros_like()
            layer = LSTM(parameters, gradients, name="net")
            layer._allocate(num_steps, count)
            layer._in_c = layer._passes_in_c(chosen, num_steps, count)
            outputs = layer.forward(inputs, before).tobytes()
            layer.backward(gradient, d_inputs=d_inputs)
            acting = layer._acting_in_c(chosen, padded_rows(count) // BLOCK_ROWS)
            rows = inputs[:-1, :count].T
            if acting is None:
                _, after = RecurrentLayer.step(layer, rows, before)
            else:
                after = acting.step(rows, before)
            arrays = gradients.flat, d_inputs, *after.values()
            found.append((outputs, *(array.tobytes() for array in arrays)))
        if found[0] != found[1]:
            return False
    return True

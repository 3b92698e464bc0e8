"""A dense layer: forward and backward, for training on batches whose *columns* are the samples.

Inside `trainer.nn` a batch of B samples with K features is a matrix [K + 1, B] whose last row is
all ones, and a layer's weights are a matrix [K + 1, N]: the kernel [K, N] with the bias [N] as its
last row. One matrix product then gives outputs with bias, and another one gives the gradients of
kernel and bias together. Samples stand in columns
because the row of ones then leaves every block contiguous. Separate biases would cost each layer
two more operations (measured for 64 samples and 64 units: adding the bias 1.7 µs, its gradient
1.0 µs, next to 5.7 µs for the matrix product).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainer.nn.activations import Activation, activation_named
from trainer.nn.initializers import AS_THE_NETWORK, LayerDraw
from trainer.nn.parameters import Parameters
from trainer.types import Array


@dataclass(frozen=True)
class LayerSpec:
    """What a layer looks like.

    Attributes:
        width: the number of outputs N, ≥ 1.
        activation: a name in `trainer.nn.activations.ACTIVATIONS`.
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
        self,
        parameters: Parameters,
        gradients: Parameters,
        *,
        name: str,
        num_inputs: int,
        spec: LayerSpec,
    ) -> None:
        self.name = name
        self.num_inputs = num_inputs
        self.num_outputs = spec.width
        self.activation: Activation = activation_named(spec.activation)
        self.draw = spec.draw
        shape = (num_inputs + 1, spec.width)
        first, last = f"{name}/kernel", f"{name}/bias"
        self.weights: Array = parameters.block(first, last).reshape(shape)
        self.weight_gradients: Array = gradients.block(first, last).reshape(shape)
        self._transposed = self.weights.T
        self._kernel = self.weights[:num_inputs]

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
            d_inputs: dL/dx, [K, B]; overwritten. None if nobody needs it.
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

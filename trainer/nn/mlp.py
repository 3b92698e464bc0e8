"""A multi-layer perceptron for training: a chain of dense layers with one reusable workspace.

Batches are laid out as `trainer.nn.layers` explains: [features + 1, B] with a last row of ones. The
passes allocate nothing as long as the batch size stays the same. Acting uses `trainer.nn.acting` on
the same layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trainer.nn.activations import ActivationCache
from trainer.nn.initializers import Initializer
from trainer.nn.layers import DenseLayer, LayerSpec
from trainer.nn.parameters import Parameters
from trainer.types import Array


class MLP:
    """Dense layers in a chain, writing gradients straight into a flat gradient vector.

    Life: `shapes` tells what parameters to create; `initialize` draws them; then any number of
    times `forward` followed by `backward`, which belongs to the last forward pass.
    """

    def __init__(
        self,
        parameters: Parameters,
        gradients: Parameters,
        *,
        name: str,
        num_inputs: int,
        layers: Sequence[LayerSpec],
    ) -> None:
        """Finds its layers in `parameters` and `gradients`, which hold (at least) `shapes(...)`."""
        self.layers: list[DenseLayer] = []
        for index, spec in enumerate(layers):
            layer = DenseLayer(
                parameters, gradients, name=f"{name}/{index}", num_inputs=num_inputs, spec=spec
            )
            self.layers.append(layer)
            num_inputs = spec.width
        self._dtype = parameters.dtype
        self._batch_size = -1
        self._caches: list[ActivationCache] = []
        self._outputs: list[Array] = []
        self._inputs: Array = np.empty((0, 0))

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
        self, rng: np.random.Generator, *, initializer: Initializer, gains: Sequence[float]
    ) -> None:
        """Draws all weights, with one gain per layer."""
        for layer, gain in zip(self.layers, gains, strict=True):
            layer.draw.after(initializer, rng, weights=layer.weights, gain=gain)

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
            d_inputs: dL/d(inputs), [K, B], overwritten; None if nobody needs it.
            only_inputs: leave the gradients of the layers alone, which saves half the work.
        """
        caches = self._caches
        np.copyto(caches[-1].gradient, gradient)
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

    def _allocate(self, batch_size: int) -> None:
        """Makes the workspace for batches of that size."""
        self._batch_size = -1  # an interrupt may come before all of it is there
        self._outputs = [
            columns_with_ones(layer.num_outputs, batch_size, self._dtype) for layer in self.layers
        ]
        self._caches = [
            _new_cache(outputs[:-1], needs_inputs=layer.activation.needs_inputs)
            for layer, outputs in zip(self.layers, self._outputs, strict=True)
        ]
        self._batch_size = batch_size


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

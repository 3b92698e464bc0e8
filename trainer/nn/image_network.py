"""Convolutions followed by dense layers, with the manners of an `MLP`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from trainer.nn.acting import ActingForward
from trainer.nn.convolution import ConvolutionStack, ImageSpec
from trainer.nn.initializers import Initializer
from trainer.nn.layers import LayerSpec
from trainer.nn.mlp import MLP, columns_with_ones
from trainer.nn.parameters import Parameters
from trainer.types import Array


class ImageNetwork:
    """An `MLP` whose inputs are the features of a `ConvolutionStack`.

    Unlike an `MLP`, it reads rows, [B, D], and may have no dense layer at all.

    Attributes:
        layers: the dense layers.
        convolutions: what stands before them.
    """

    def __init__(
        self,
        parameters: Parameters,
        gradients: Parameters,
        *,
        name: str,
        image: ImageSpec,
        layers: Sequence[LayerSpec],
    ) -> None:
        """Finds its layers in `parameters` and `gradients`, which hold (at least) `shapes(...)`."""
        self.convolutions = ConvolutionStack(parameters, gradients, name=name, image=image)
        self._num_features = image.num_features
        self._dense: MLP | None = None
        if layers:
            self._dense = MLP(
                parameters, gradients, name=name, num_inputs=self._num_features, layers=layers
            )
        self.layers = self._dense.layers if self._dense else []
        self._dtype = parameters.dtype
        self._batch_size = -1
        self._allocate(0)

    @staticmethod
    def shapes(
        name: str, *, image: ImageSpec, layers: Sequence[LayerSpec]
    ) -> dict[str, tuple[int, ...]]:
        """The tensors of all layers: `<name>/conv/<number>/...` and `<name>/<number>/...`."""
        dense = MLP.shapes(name, num_inputs=image.num_features, layers=layers)
        return {**ConvolutionStack.shapes(name, image=image), **dense}

    def initialize(
        self, rng: np.random.Generator, *, initializer: Initializer, gains: Sequence[float]
    ) -> None:
        """Draws all weights; the gains are those of the dense layers."""
        self.convolutions.initialize(rng, initializer=initializer)
        if self._dense is not None:
            self._dense.initialize(rng, initializer=initializer, gains=gains)

    def forward(self, rows: Array) -> Array:
        """The network's outputs with a row of ones below, [N + 1, B]; see `MLP.forward`.

        Args:
            rows: flat images, [B, D].
        """
        if len(rows) != self._batch_size:
            self._allocate(len(rows))
        self._features[:-1] = self.convolutions.forward(rows).T
        return self._features if self._dense is None else self._dense.forward(self._features)

    def backward(self, gradient: Array, *, d_inputs: Array | None = None) -> None:
        """Overwrites the gradients of all layers; belongs to the last forward pass.

        Args:
            gradient: dL/d(outputs), [N, B].
            d_inputs: must be None: images come first, so nobody needs their gradient.
        """
        if d_inputs is not None:
            raise ValueError("The gradient for images is not computed; leave `d_inputs` out.")
        if self._dense is not None:
            self._dense.backward(gradient, d_inputs=self._d_features)
            gradient = self._d_features
        self.convolutions.backward(np.ascontiguousarray(gradient.T))

    def _allocate(self, batch_size: int) -> None:
        self._batch_size = -1  # an interrupt may come before all of it is there
        self._features = columns_with_ones(self._num_features, batch_size, self._dtype)
        self._d_features: Array = np.empty((self._num_features, batch_size), self._dtype)
        self._batch_size = batch_size


def acting_forward(*networks: MLP | ImageNetwork) -> Callable[[Array], Array]:
    """The row-exact forward pass through networks in a chain, [B, D] to a new array [B, N].

    Args:
        networks: at least one; only the first may read images.
    """
    dense = [layer for network in networks for layer in network.layers]
    forward = ActingForward(dense) if dense else None
    first = networks[0]
    if not isinstance(first, ImageNetwork):
        if forward is None:
            raise ValueError("A chain of networks without any layer computes nothing.")
        return forward
    convolutions = first.convolutions
    if forward is None:
        return convolutions.act
    return lambda rows: forward(convolutions.act(rows))

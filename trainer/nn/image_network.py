"""Convolutions followed by dense layers, with the manners of an `MLP`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from trainer.nn.acting import ActingForward
from trainer.nn.convolution import ConvolutionStack, ImageSpec
from trainer.nn.initializers import Initializer
from trainer.nn.layers import LayerSpec
from trainer.nn.mlp import MLP, columns_with_ones
from trainer.nn.parameters import Parameters
from trainer.types import Array


@dataclass(frozen=True)
class MixedSpec:
    """What reads observations that are images and other numbers side by side.

    Attributes:
        num_inputs: D, all numbers of an observation.
        images: where they stand in it, and their convolutions; at least one.
    """

    num_inputs: int
    images: tuple[ImageSpec, ...]

    @property
    def num_others(self) -> int:
        """The numbers that are part of no image."""
        return self.num_inputs - sum(math.prod(image.shape) for image in self.images)

    @property
    def num_features(self) -> int:
        """Those of all images, and the other numbers."""
        return sum(image.num_features for image in self.images) + self.num_others


class MixedFeatures:
    """The features of several images, each with a `ConvolutionStack`, then the other numbers.

    It has the manners of a `ConvolutionStack`.
    """

    def __init__(
        self, parameters: Parameters, gradients: Parameters, *, name: str, image: MixedSpec
    ) -> None:
        """Finds its layers in `parameters` and `gradients`, which hold (at least) `shapes(...)`."""
        self._stacks = [
            ConvolutionStack(parameters, gradients, name=stack_name, image=part)
            for stack_name, part in _named_images(name, image)
        ]
        self._columns = [part.columns for part in image.images]
        self._widths = [part.num_features for part in image.images]
        is_other = np.ones(image.num_inputs, np.bool_)
        for columns in self._columns:
            is_other[columns] = False
        self._others = np.flatnonzero(is_other)

    @staticmethod
    def shapes(name: str, *, image: MixedSpec) -> dict[str, tuple[int, ...]]:
        """The tensors of all layers; several images have a number before `conv`."""
        shapes: dict[str, tuple[int, ...]] = {}
        for stack_name, part in _named_images(name, image):
            shapes |= ConvolutionStack.shapes(stack_name, image=part)
        return shapes

    def initialize(self, rng: np.random.Generator, *, initializer: Initializer) -> None:
        """Draws all weights, image by image."""
        for stack in self._stacks:
            stack.initialize(rng, initializer=initializer)

    def forward(self, rows: Array) -> Array:
        """The features [B, F] of rows [B, D], in memory of their own."""
        parts = zip(self._stacks, self._columns, strict=True)
        features = [stack.forward(rows[:, columns]) for stack, columns in parts]
        return np.concatenate([*features, rows[:, self._others]], axis=1)

    def backward(self, d_features: Array) -> None:
        """Overwrites the gradients of all layers; belongs to the last forward pass."""
        start = 0
        for stack, width in zip(self._stacks, self._widths, strict=True):
            stack.backward(np.ascontiguousarray(d_features[:, start : start + width]))
            start += width

    def act(self, rows: Array) -> Array:
        """The same features as `forward`, row-exact."""
        parts = zip(self._stacks, self._columns, strict=True)
        features = [stack.act(rows[:, columns]) for stack, columns in parts]
        return np.concatenate([*features, rows[:, self._others]], axis=1)


def _named_images(name: str, image: MixedSpec) -> Iterator[tuple[str, ImageSpec]]:
    for number, part in enumerate(image.images):
        yield (name if len(image.images) == 1 else f"{name}/image_{number}"), part


class ImageNetwork:
    """An `MLP` whose inputs are the features of a `ConvolutionStack` or of `MixedFeatures`.

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
        image: ImageSpec | MixedSpec,
        layers: Sequence[LayerSpec],
    ) -> None:
        """Finds its layers in `parameters` and `gradients`, which hold (at least) `shapes(...)`."""
        self.convolutions: ConvolutionStack | MixedFeatures
        if isinstance(image, MixedSpec):
            self.convolutions = MixedFeatures(parameters, gradients, name=name, image=image)
        else:
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
        name: str, *, image: ImageSpec | MixedSpec, layers: Sequence[LayerSpec]
    ) -> dict[str, tuple[int, ...]]:
        """The tensors of all layers: `<name>/conv/<number>/...` and `<name>/<number>/...`."""
        dense = MLP.shapes(name, num_inputs=image.num_features, layers=layers)
        if isinstance(image, MixedSpec):
            return {**MixedFeatures.shapes(name, image=image), **dense}
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
            rows: flat images, or observations with images in them, [B, D].
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

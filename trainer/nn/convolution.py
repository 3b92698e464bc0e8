"""Convolution layers, computed as matrix products of image patches (im2col).

A layer copies the patch under every position of its kernel into one row of a matrix,
[positions, kernel height · kernel width · channels + 1], whose last column is ones; one product
with the weights then gives all outputs with their biases, and another one gives all their gradients
(Chellapilla, Puri and Simard 2006, "High performance convolutional neural networks for document
processing"). Images are laid out as [B, height, width, channels], so that a row of a patch is one
piece of memory.

For acting, every image is a product of its own, so that its bits do not depend on the others (see
`trainer.nn.layers`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.lib.stride_tricks import as_strided

from trainer.nn.initializers import AS_THE_NETWORK, HIDDEN_GAIN, Initializer, LayerDraw
from trainer.nn.layers import (
    BLOCK_ROWS,
    MLP,
    ActingForward,
    Activation,
    ActivationCache,
    LayerSpec,
    activation_named,
    columns_with_ones,
    matmul_rows,
)
from trainer.nn.optimizers import Parameters
from trainer.types import Array

# ---- convolution

_IMAGES_ACTED_ON: Final = 8
"""Images whose patches are taken together for acting: they stay in the processor's cache."""
PADDINGS: Final = ("same", "valid")
"""Zeros around an image so that a kernel fits at every stride-th place; or none."""


@dataclass(frozen=True)
class ConvolutionSpec:
    """What a convolution layer looks like.

    Attributes:
        channels: of its output, ≥ 1.
        kernel: height and width of the patches, ≥ 1.
        stride: vertical and horizontal distance of the patches, ≥ 1.
        padding: one of `PADDINGS`.
        activation: a name in `trainer.nn.layers.ACTIVATIONS`.
        draw: how its first weights are drawn, where that is decided for the layer alone.
    """

    channels: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: str
    activation: str
    draw: LayerDraw = AS_THE_NETWORK

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, int, int]:
        """Height, width, channels of what it makes of images of a shape; 0 where none fits."""
        sizes = []
        for length, kernel, stride in zip(shape[:2], self.kernel, self.stride, strict=True):
            reach = length + stride - 1 if self.padding == "same" else length - kernel + stride
            sizes.append(max(0, reach // stride))
        return sizes[0], sizes[1], self.channels

    def zeros_around(self, shape: tuple[int, ...]) -> tuple[tuple[int, int], tuple[int, int]]:
        """How many zeros stand before and after, vertically and horizontally.

        An odd one stands after.
        """
        if self.padding == "valid":
            return (0, 0), (0, 0)
        places = zip(shape[:2], self.output_shape(shape)[:2], self.kernel, self.stride, strict=True)
        both = [max(0, (count - 1) * stride + k - n) for n, count, k, stride in places]
        vertical, horizontal = ((zeros // 2, zeros - zeros // 2) for zeros in both)
        return vertical, horizontal


@dataclass(frozen=True)
class ImageSpec:
    """What reads images.

    Attributes:
        shape: height, width, channels of an image.
        scale: what its numbers are multiplied by, 1/255 for bytes.
        convolutions: the layers, at least one.
        channels_first: an image comes as [channels, height, width]; the layers are the same.
        start: where its numbers begin in a row of an observation with other parts.
    """

    shape: tuple[int, ...]
    scale: float
    convolutions: tuple[ConvolutionSpec, ...]
    channels_first: bool = False
    start: int = 0

    @property
    def columns(self) -> slice:
        """Where its numbers stand in a row of an observation with other parts."""
        return slice(self.start, self.start + math.prod(self.shape))

    @property
    def num_features(self) -> int:
        """The numbers that the last layer makes of one image; 0 if a kernel does not fit."""
        shape = self.shape
        for spec in self.convolutions:
            shape = spec.output_shape(shape)
        return math.prod(shape)


class _Memory:
    """Memory that batches of any size use one after the other; it grows, and is used again.

    Fresh memory of the size of patches takes as long to write as their product to compute.
    """

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._flat: Array = np.empty(0, dtype)
        self._taken = 0

    def begin(self, count: int) -> None:
        """Makes room for `count` numbers; what was taken before is overwritten from now on."""
        if count > len(self._flat):
            self._flat = np.empty(0, self._flat.dtype)  # first gives back what it has
            self._flat = np.empty(count, self._flat.dtype)
        self._taken = 0

    def take(self, *shape: int) -> Array:
        """An array with any numbers in it."""
        start, self._taken = self._taken, self._taken + math.prod(shape)
        return self._flat[start : self._taken].reshape(shape)


@dataclass(frozen=True)
class _Workspace:
    """The memory for batches of one size.

    Attributes:
        padded: the images with zeros around them, [B, H', W', C].
        inside: where the images stand in it, [B, H, W, C]; a view.
        windows: every patch, [B, h, w, kernel height, kernel width, C]; a view into `padded`.
        patches: [B · h · w, K + 1], the last column ones.
        patch_numbers: its other columns in the shape of `windows`; a view.
        cache: of the activation; outputs [B · h · w, channels].
    """

    padded: Array
    inside: Array
    windows: Array
    patches: Array
    patch_numbers: Array
    cache: ActivationCache


class ConvolutionLayer:
    """One layer; weights and gradients are views into the network's parameters.

    Attributes:
        spec: what it looks like.
        scale: what numbers of its images are multiplied by first.
        zeros: how many stand before and after an image, vertically and horizontally.
        input_shape, output_shape: height, width, channels.
        activation: applied to every output.
        weights: [patch + 1, channels]; kernel and, as last row, bias.
        weight_gradients: of the same shape; overwritten by each backward pass.
    """

    def __init__(
        self,
        parameters: Parameters,
        gradients: Parameters,
        *,
        name: str,
        input_shape: tuple[int, ...],
        spec: ConvolutionSpec,
        scale: float = 1.0,
    ) -> None:
        """Finds its tensors.

        Args:
            parameters: hold (at least) `shapes(...)`.
            gradients: of the same shapes.
            name: of the layer.
            input_shape: height, width, channels.
            spec: what it looks like.
            scale: what numbers of its images are multiplied by first.
        """
        self.spec = spec
        self.scale = scale
        self.input_shape = input_shape
        self.output_shape = spec.output_shape(input_shape)
        self.activation: Activation = activation_named(spec.activation)
        self._positions = self.output_shape[0] * self.output_shape[1]
        self._patch_size = math.prod(spec.kernel) * input_shape[2]
        self.weights, self.weight_gradients = parameters.layer(name), gradients.layer(name)
        self.zeros = spec.zeros_around(input_shape)
        self._memory = _Memory(self.weights.dtype)
        self._acting_memory = _Memory(self.weights.dtype)
        self._batch_size = self._acting_size = -1
        self._work = self._workspace(0, self._memory)
        self._acting_work = self._workspace(0, self._acting_memory, for_acting=True)

    @staticmethod
    def shapes(
        name: str, *, input_shape: tuple[int, ...], spec: ConvolutionSpec
    ) -> dict[str, tuple[int, ...]]:
        """The tensors of a layer called `name`: kernel [height, width, in, out], bias [out]."""
        kernel = (*spec.kernel, input_shape[2], spec.channels)
        return {f"{name}/kernel": kernel, f"{name}/bias": (spec.channels,)}

    def forward(self, images: Array) -> Array:
        """Runs a batch and keeps what `backward` needs.

        Args:
            images: [B, H, W, C].

        Returns:
            [B, h, w, channels], valid until the next forward pass.
        """
        if len(images) != self._batch_size:
            self._batch_size = -1  # an interrupt may come before all of it is there
            self._work = self._workspace(len(images), self._memory)
            self._batch_size = len(images)
        work = self._work
        self._take_patches(images, work)
        cache = work.cache
        np.matmul(work.patches, self.weights, cache.outputs)
        if self.activation.needs_inputs:
            np.copyto(cache.inputs, cache.outputs)
        self.activation.forward(cache.outputs)
        return cache.outputs.reshape(len(images), *self.output_shape)

    def backward(self, d_outputs: Array, *, wants_inputs: bool) -> Array | None:
        """Overwrites the gradients; belongs to the last forward pass.

        Args:
            d_outputs: derivative of the loss, [B, h, w, channels].
            wants_inputs: whether the derivative for the images is needed.

        Returns:
            That derivative, [B, H, W, C], in memory that the next backward pass uses again.
        """
        work, cache = self._work, self._work.cache
        np.copyto(cache.gradient, d_outputs.reshape(cache.gradient.shape))
        self.activation.backward(cache)
        np.matmul(work.patches.T, cache.gradient, self.weight_gradients)
        if not wants_inputs:
            return None
        d_patches = cache.gradient @ self.weights[:-1].T
        return self._add_up_patches(d_patches, work)

    def act(self, images: Array) -> Array:
        """The outputs [B, h, w, channels] with bits that depend on each image alone."""
        outputs = np.empty((len(images) * self._positions, self.spec.channels), self.weights.dtype)
        for start in range(0, len(images), _IMAGES_ACTED_ON):
            part = images[start : start + _IMAGES_ACTED_ON]
            rows = slice(start * self._positions, (start + len(part)) * self._positions)
            self._act_on(part, outputs[rows])
        self.activation.forward(outputs)
        return outputs.reshape(len(images), *self.output_shape)

    def _act_on(self, images: Array, outputs: Array) -> None:
        """Writes the pre-activations [B · h · w, channels] of a few images."""
        if len(images) != self._acting_size:
            self._acting_size = -1  # an interrupt may come before all of it is there
            self._acting_work = self._workspace(len(images), self._acting_memory, for_acting=True)
            self._acting_size = len(images)
        work = self._acting_work
        self._take_patches(images, work)
        if self._positions < BLOCK_ROWS or self.spec.channels == 1:
            outputs[...] = matmul_rows(work.patches, self.weights)
        else:
            # As many products as images, each of the same shape.
            by_image = work.patches.reshape(len(images), self._positions, self._patch_size + 1)
            np.matmul(by_image, self.weights, outputs.reshape(len(images), self._positions, -1))

    def _take_patches(self, images: Array, work: _Workspace) -> None:
        np.multiply(images, self.scale, work.inside)
        np.copyto(work.patch_numbers, work.windows)

    def _add_up_patches(self, d_patches: Array, work: _Workspace) -> Array:
        """Every number of an image gets the sum over the patches that it is part of (col2im)."""
        height, width, _ = self.output_shape
        parts = d_patches.reshape(work.windows.shape)
        total = work.padded
        total[...] = 0.0
        down, right = self.spec.stride
        for row in range(self.spec.kernel[0]):
            for column in range(self.spec.kernel[1]):
                rows = slice(row, row + down * (height - 1) + 1, down)
                columns = slice(column, column + right * (width - 1) + 1, right)
                total[:, rows, columns] += parts[:, :, :, row, column]
        d_images: Array = work.inside.copy()
        total[...] = 0.0  # the zeros around the images, for the next forward pass
        return d_images

    def _workspace(
        self, batch_size: int, memory: _Memory, *, for_acting: bool = False
    ) -> _Workspace:
        (above, below), (left, right) = self.zeros
        height, width, channels = self.input_shape
        padded_shape = (batch_size, above + height + below, left + width + right, channels)
        rows = batch_size * self._positions
        num_caches = 0 if for_acting else 4
        memory.begin(
            math.prod(padded_shape)
            + rows * (self._patch_size + 1)
            + num_caches * rows * self.spec.channels
        )
        padded = memory.take(*padded_shape)
        padded[...] = 0.0
        patches = memory.take(rows, self._patch_size + 1)
        patches[:, -1] = 1.0
        shape = (0 if for_acting else rows, self.spec.channels)
        outputs = memory.take(*shape)
        windows = self._windows(padded)
        return _Workspace(
            padded=padded,
            inside=padded[:, above : above + height, left : left + width],
            windows=windows,
            patches=patches,
            patch_numbers=patches[:, :-1].reshape(windows.shape),
            cache=ActivationCache(
                outputs=outputs,
                inputs=memory.take(*shape) if self.activation.needs_inputs else outputs,
                gradient=memory.take(*shape),
                scratch=memory.take(*shape),
            ),
        )

    def _windows(self, padded: Array) -> Array:
        height, width, _ = self.output_shape
        of_image, of_row, of_column, of_channel = padded.strides
        down, right = self.spec.stride
        return as_strided(
            padded,
            (len(padded), height, width, *self.spec.kernel, padded.shape[3]),
            (of_image, down * of_row, right * of_column, of_row, of_column, of_channel),
        )


class ConvolutionStack:
    """Convolution layers in a chain, from flat images to flat features."""

    def __init__(
        self,
        parameters: Parameters,
        gradients: Parameters,
        *,
        name: str,
        image: ImageSpec,
    ) -> None:
        """Finds its layers in `parameters` and `gradients`, which hold (at least) `shapes(...)`."""
        input_shape = image.shape
        self._image = image
        self._num_features = image.num_features
        self._layers: list[ConvolutionLayer] = []
        for index, spec in enumerate(image.convolutions):
            layer = ConvolutionLayer(
                parameters,
                gradients,
                name=f"{name}/conv/{index}",
                input_shape=input_shape,
                spec=spec,
                scale=image.scale if index == 0 else 1.0,
            )
            self._layers.append(layer)
            input_shape = layer.output_shape

    @staticmethod
    def shapes(name: str, *, image: ImageSpec) -> dict[str, tuple[int, ...]]:
        """The tensors of all layers: `<name>/conv/<layer number>/kernel` and `.../bias`."""
        shapes: dict[str, tuple[int, ...]] = {}
        input_shape = image.shape
        for index, spec in enumerate(image.convolutions):
            shapes |= ConvolutionLayer.shapes(
                f"{name}/conv/{index}", input_shape=input_shape, spec=spec
            )
            input_shape = spec.output_shape(input_shape)
        return shapes

    def initialize(self, rng: np.random.Generator, *, initializer: Initializer) -> None:
        """Draws all weights."""
        for layer in self._layers:
            layer.spec.draw.after(initializer, rng, weights=layer.weights, gain=HIDDEN_GAIN)

    def forward(self, rows: Array) -> Array:
        """The features [B, F] of flat images [B, H · W · C]; valid until the next forward pass."""
        images = self._images(rows)
        for layer in self._layers:
            images = layer.forward(images)
        return images.reshape(len(rows), self._num_features)

    def backward(self, d_features: Array) -> None:
        """Overwrites the gradients of all layers; belongs to the last forward pass.

        Args:
            d_features: derivative of the loss, [B, F].
        """
        gradient: Any = d_features.reshape(len(d_features), *self._layers[-1].output_shape)
        for index in range(len(self._layers) - 1, -1, -1):
            gradient = self._layers[index].backward(gradient, wants_inputs=index > 0)

    def act(self, rows: Array) -> Array:
        """The same features as `forward`, row-exact and in memory of their own."""
        images = self._images(rows)
        for layer in self._layers:
            images = layer.act(images)
        return images.reshape(len(rows), self._num_features)

    def _images(self, rows: Array) -> Array:
        """Flat images as [B, H, W, C]."""
        height, width, channels = self._image.shape
        if self._image.channels_first:
            planes = rows.reshape(len(rows), channels, height, width)
            channels_last: Array = planes.transpose(0, 2, 3, 1)
            return channels_last
        return rows.reshape(len(rows), height, width, channels)


# ---- image network
#
# Convolutions followed by dense layers, with the manners of an `MLP`.


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
        self,
        parameters: Parameters,
        gradients: Parameters,
        *,
        name: str,
        image: MixedSpec,
        stack_class: type[ConvolutionStack] = ConvolutionStack,
    ) -> None:
        """Finds its layers in `parameters` and `gradients`, which hold (at least) `shapes(...)`."""
        self._stacks = [
            stack_class(parameters, gradients, name=stack_name, image=part)
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
        stack_class: type[ConvolutionStack] = ConvolutionStack,
        mlp_class: type[MLP] = MLP,
    ) -> None:
        """Finds its layers in `parameters` and `gradients`, which hold (at least) `shapes(...)`.

        Args:
            parameters: what it computes with.
            gradients: what `backward` overwrites.
            name: what its tensors' names begin with.
            image: the convolutions.
            layers: the dense layers behind them.
            stack_class: what computes the convolutions.
            mlp_class: what computes the dense layers.
        """
        self.convolutions: ConvolutionStack | MixedFeatures
        if isinstance(image, MixedSpec):
            self.convolutions = MixedFeatures(
                parameters, gradients, name=name, image=image, stack_class=stack_class
            )
        else:
            self.convolutions = stack_class(parameters, gradients, name=name, image=image)
        self._num_features = image.num_features
        self._dense: MLP | None = None
        if layers:
            self._dense = mlp_class(parameters, gradients, name=name, layers=layers)
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
        self, rng: np.random.Generator, *, initializer: Initializer, gain: float = HIDDEN_GAIN
    ) -> None:
        """Draws all weights; `gain` is that of the last dense layer."""
        self.convolutions.initialize(rng, initializer=initializer)
        if self._dense is not None:
            self._dense.initialize(rng, initializer=initializer, gain=gain)

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
            d_inputs: must be None: images come first, so their gradient is not needed.
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


def acting_forward(
    *networks: MLP | ImageNetwork, but_last: bool = False
) -> Callable[[Array], Array]:
    """The row-exact forward pass through networks in a chain, [B, D] to a new array [B, N].

    Args:
        networks: at least one; only the first may read images.
        but_last: leave the last dense layer out, and give what it reads.
    """
    dense = [layer for network in networks for layer in network.layers]
    if but_last:
        dense.pop()
    forward = ActingForward(dense) if dense else None
    first = networks[0]
    if not isinstance(first, ImageNetwork):
        if forward is None and not but_last:
            raise ValueError("A chain of networks without any layer computes nothing.")
        return forward or np.copy
    convolutions = first.convolutions
    if forward is None:
        return convolutions.act
    return lambda rows: forward(convolutions.act(rows))

"""The networks that read observations: images through convolutions, everything else directly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from trainer.errors import ConfigError, UnsupportedSpaceError
from trainer.modules.model_config import DefaultModelConfig, parsed_filter
from trainer.modules.rl_module import RLModule
from trainer.nn import (
    MLP,
    ConvolutionSpec,
    ImageNetwork,
    ImageSpec,
    LayerSpec,
    MixedSpec,
    Parameters,
    columns_with_ones,
)
from trainer.spaces import ShownImage, shown_images
from trainer.types import Array

_DEFAULT_FILTERS: Final = (
    (60, ((16, 8, 4), (32, 4, 2))),
    (24, ((16, 4, 2), (32, 4, 2))),
    (0, ((16, 3, 1), (32, 3, 2))),
)
"""Layers for images whose shorter side has at least so many pixels.

The first are those of Mnih et al. 2013, the others shrink them with the image.
"""


def image_of(module: RLModule, config: DefaultModelConfig) -> ImageSpec | MixedSpec | None:
    """The convolutions that a module begins with; None if it reads numbers directly.

    Raises:
        UnsupportedSpaceError: convolutions are asked for, but there is no image.
        ConfigError: a kernel is larger than what it reads.
    """
    filters = config.conv_filters
    found = shown_images(module.seen_space, channels_first=config.conv_channels_first)
    if filters is None:
        found = tuple(image for image in found if image.has_channels)
    if (filters is not None and not filters) or (filters is None and not found):
        return None
    if not found:
        raise UnsupportedSpaceError(
            "`conv_filters` need an image in the observation, a Box [height, width, channels] or "
            f"[channels, height, width], or else a Box [height, width] and nothing beside it; this "
            f"env shows {module.seen_space}. Leave them out, or let the env show an image."
        )
    images = tuple(_image_spec(image, config) for image in found)
    if len(images) == 1 and found[0].size == module.obs_size:
        return images[0]
    return MixedSpec(module.obs_size, images)


def _image_spec(found: ShownImage, config: DefaultModelConfig) -> ImageSpec:
    """What reads one image."""
    filters = config.conv_filters
    if filters is None:
        shorter = min(found.shape[:2])
        filters = next(layers for least, layers in _DEFAULT_FILTERS if shorter >= least)
    convolutions = []
    for entry in filters:
        channels, kernel, stride, padding = parsed_filter(entry)
        convolutions.append(
            ConvolutionSpec(
                channels,
                kernel,
                stride,
                padding,
                config.conv_activation or "linear",
                config.draw_of("conv"),
            )
        )
    image = ImageSpec(
        found.shape,
        1.0 / 255.0 if found.is_bytes else 1.0,
        tuple(convolutions),
        channels_first=found.channels_first,
        start=found.start,
    )
    if image.num_features == 0:
        raise ConfigError(
            f"`conv_filters={filters!r}` do not fit images of {found.shape}: with the padding "
            '"valid", a kernel is larger than what is left of the image. Use smaller kernels or '
            'strides, or the padding "same".'
        )
    return image


@dataclass(frozen=True)
class NetworkPlan:
    """One network of a module, before its parameters exist.

    Attributes:
        name: what its tensors' names begin with.
        num_inputs: how many numbers it reads, of rows without an image.
        layers: its dense layers.
        image: its convolutions, which then read the observations; None if there are none.
    """

    name: str
    num_inputs: int
    layers: Sequence[LayerSpec]
    image: ImageSpec | MixedSpec | None = None

    @property
    def num_outputs(self) -> int:
        """The width of its last layer."""
        if self.layers:
            return self.layers[-1].width
        return self.num_inputs if self.image is None else self.image.num_features

    @property
    def is_empty(self) -> bool:
        """Whether it has no layer at all."""
        return not self.layers and self.image is None

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The tensors of all its layers."""
        if self.image is None:
            return MLP.shapes(self.name, num_inputs=self.num_inputs, layers=self.layers)
        return ImageNetwork.shapes(self.name, image=self.image, layers=self.layers)

    def build(self, parameters: Parameters, gradients: Parameters) -> MLP | ImageNetwork:
        """The network, laid over its tensors."""
        if self.image is None:
            return MLP(
                parameters,
                gradients,
                name=self.name,
                num_inputs=self.num_inputs,
                layers=self.layers,
            )
        return ImageNetwork(
            parameters, gradients, name=self.name, image=self.image, layers=self.layers
        )


class ObservationColumns:
    """Observations as the networks that read them want them, in memory that is used again.

    An `MLP` wants columns with a row of ones below, an `ImageNetwork` rows.
    """

    def __init__(self, obs_size: int, *, dtype: type[np.floating[Any]], are_images: bool) -> None:
        self._obs_size = obs_size
        self._dtype = dtype
        self._are_images = are_images
        self._columns: Array = columns_with_ones(obs_size, 0, dtype)

    def of(self, obs: Array) -> Array:
        """What `forward` of the networks takes, for observations [B, D]."""
        if self._are_images:
            return obs
        if self._columns.shape[1] != len(obs):
            self._columns = columns_with_ones(self._obs_size, len(obs), self._dtype)
        self._columns[:-1] = obs.T
        return self._columns

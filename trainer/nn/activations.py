"""Activation functions: forward and backward side by side, both in place.

`forward` replaces pre-activations by activations, `backward` replaces the gradient with respect to
the activations by the gradient with respect to the pre-activations. Most derivatives follow from
the activation itself; where the pre-activation is needed as well (`needs_inputs`), the caller keeps
a copy of it. All are elementwise, any shape.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Final

import numpy as np

from trainer.errors import ConfigError
from trainer.types import Array


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
        _sigmoid(values, values)

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
        _sigmoid(values, gate)
        np.multiply(values, gate, values)

    def backward(self, cache: ActivationCache) -> None:
        """Multiplies by f' = s + y (1 - s) with s = sigmoid(z)."""
        scratch = cache.scratch
        _sigmoid(cache.inputs, scratch)
        rest = np.subtract(1.0, scratch)
        np.multiply(rest, cache.outputs, rest)
        np.add(scratch, rest, scratch)
        np.multiply(cache.gradient, scratch, cache.gradient)


def _sigmoid(values: Array, out: Array) -> None:
    """Writes sigmoid(z) as (1 + tanh(z/2)) / 2, which cannot overflow as exp(-z) does."""
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
    """The activation of that name.

    Raises:
        ConfigError: there is none.
    """
    if name not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        raise ConfigError(
            f"There is no activation {name!r}. Networks here are plain NumPy and know: {known}. "
            "Choose one of them, or write an own `RLModule`."
        )
    return ACTIVATIONS[name]

"""How weights are first drawn.

A `model_config` may decide for a part of the layers how kernels and biases are drawn, by the names
of `torch.nn.init` (`TensorDraw`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from trainer.types import Array

# ---- initializers
#
# `orthogonal` is the default for all networks here: kernels are
# random orthogonal matrices (Saxe, McClelland and Ganguli 2014, section 3) times a gain, biases
# are zero. The gains are those of the PPO implementations that learn most reliably (Huang et al.
# 2022, "The 37 implementation details of PPO", detail 2; confirmed by the study of Andrychowicz
# et al. 2021, section 3.2): √2 in hidden layers; 0.01 in the policy head, so that the first
# policy is almost uniform and no action is ruled out by chance; 1 in the value head. RLlib draws
# as Torch's `Linear` does, which `uniform` offers.

HIDDEN_GAIN: Final = math.sqrt(2.0)
POLICY_HEAD_GAIN: Final = 0.01
VALUE_HEAD_GAIN: Final = 1.0


def orthogonal(rng: np.random.Generator, *, kernel: Array, bias: Array, gain: float) -> None:
    """Fills a layer with gain times a random orthogonal matrix, and zero biases.

    The decomposition runs in float64: the signs of R fix the ambiguity of QR, so that the result is
    uniform over the orthogonal matrices (Mezzadri 2007, section 4).

    Args:
        rng: draws the numbers.
        kernel: [inputs, outputs], overwritten. Its shorter side is orthonormal up to the gain.
        bias: [outputs], overwritten.
        gain: factor ≥ 0.
    """
    rows, columns = kernel.shape
    normal = rng.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(normal)
    q *= np.sign(np.diagonal(r))[None, :]
    kernel[...] = gain * (q if rows >= columns else q.T)
    bias[...] = 0.0


def uniform(rng: np.random.Generator, *, kernel: Array, bias: Array, gain: float) -> None:
    """Fills kernel and bias from U(-b, b) with b = 1 / √inputs, as Torch's `Linear` does.

    Args:
        rng: draws the numbers.
        kernel: [inputs, outputs], overwritten.
        bias: [outputs], overwritten.
        gain: ignored: this rule has none.
    """
    del gain
    bound = 1.0 / math.sqrt(kernel.shape[0])
    kernel[...] = rng.uniform(-bound, bound, kernel.shape)
    bias[...] = rng.uniform(-bound, bound, bias.shape)


Initializer = Callable[..., None]
"""A function of (rng, *, kernel, bias, gain) that fills one layer."""

INITIALIZERS: Final[Mapping[str, Initializer]] = MappingProxyType(
    {"orthogonal": orthogonal, "uniform": uniform}
)
"""Every initialiser by the name used in a `model_config`."""


def _uniform_between(
    rng: np.random.Generator, out: Array, *, a: float = 0.0, b: float = 1.0
) -> None:
    out[...] = rng.uniform(a, b, out.shape)


def _normal(rng: np.random.Generator, out: Array, *, mean: float = 0.0, std: float = 1.0) -> None:
    out[...] = rng.normal(mean, std, out.shape)


def _truncated_normal(
    rng: np.random.Generator,
    out: Array,
    *,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
) -> None:
    # Numbers outside are drawn again, which must come to an end.
    if not (std > 0.0 and a <= mean <= b and b - a > 0.01 * std):
        raise ValueError(
            f"mean={mean}, std={std}, a={a}, b={b}: expected a ≤ mean ≤ b, std > 0, and more than "
            "a hundredth of std between a and b"
        )
    numbers = rng.normal(mean, std, out.shape)
    while (outside := (numbers < a) | (numbers > b)).any():
        numbers[outside] = rng.normal(mean, std, int(outside.sum()))
    out[...] = numbers


def _constant(rng: np.random.Generator, out: Array, *, val: float) -> None:
    del rng
    out[...] = val


def _zeros(rng: np.random.Generator, out: Array) -> None:
    del rng
    out[...] = 0.0


def _ones(rng: np.random.Generator, out: Array) -> None:
    del rng
    out[...] = 1.0


def _xavier_uniform(rng: np.random.Generator, out: Array, *, gain: float = 1.0) -> None:
    """U(-b, b), b = gain · √(6 / (inputs + outputs)) (Glorot and Bengio 2010, equation 16)."""
    bound = gain * math.sqrt(6.0 / sum(out.shape))
    out[...] = rng.uniform(-bound, bound, out.shape)


def _xavier_normal(rng: np.random.Generator, out: Array, *, gain: float = 1.0) -> None:
    out[...] = rng.normal(0.0, gain * math.sqrt(2.0 / sum(out.shape)), out.shape)


def _kaiming_scale(
    out: Array, *, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> float:
    """The standard deviation of He et al. 2015, equations 10 and 14."""
    gains = {"linear": 1.0, "sigmoid": 1.0, "tanh": 5.0 / 3.0, "relu": math.sqrt(2.0)}
    gains["leaky_relu"] = math.sqrt(2.0 / (1.0 + a * a))
    fans = {"fan_in": out.shape[0], "fan_out": out.shape[1]}
    if mode not in fans or nonlinearity not in gains:
        raise ValueError(
            f"mode={mode!r}, nonlinearity={nonlinearity!r}: expected one of {list(fans)}, and one "
            f"of {list(gains)}"
        )
    return gains[nonlinearity] / math.sqrt(fans[mode])


def _kaiming_uniform(rng: np.random.Generator, out: Array, **options: Any) -> None:
    bound = math.sqrt(3.0) * _kaiming_scale(out, **options)
    out[...] = rng.uniform(-bound, bound, out.shape)


def _kaiming_normal(rng: np.random.Generator, out: Array, **options: Any) -> None:
    out[...] = rng.normal(0.0, _kaiming_scale(out, **options), out.shape)


def _orthogonal_kernel(rng: np.random.Generator, out: Array, *, gain: float = 1.0) -> None:
    orthogonal(rng, kernel=out, bias=np.zeros(out.shape[1]), gain=gain)


TensorRule = Callable[..., None]
"""A function of (rng, out, **options) that fills one tensor."""

BIAS_RULES: Final[Mapping[str, TensorRule]] = MappingProxyType(
    {
        "uniform": _uniform_between,
        "normal": _normal,
        "trunc_normal": _truncated_normal,
        "constant": _constant,
        "zeros": _zeros,
        "ones": _ones,
    }
)
"""Rules for biases, by the name of Torch's function without its last underscore."""

KERNEL_RULES: Final[Mapping[str, TensorRule]] = MappingProxyType(
    {
        **BIAS_RULES,
        "xavier_uniform": _xavier_uniform,
        "xavier_normal": _xavier_normal,
        "kaiming_uniform": _kaiming_uniform,
        "kaiming_normal": _kaiming_normal,
        "orthogonal": _orthogonal_kernel,
    }
)
"""Rules for kernels [inputs, outputs], likewise; the inputs of a convolution are its patches."""


def name_of_rule(given: Any) -> Any:
    """The name of a rule: of Torch's function, or its name with or without the last underscore."""
    name = getattr(given, "__name__", given) if callable(given) else given
    return name.rstrip("_") if isinstance(name, str) else given


@dataclass(frozen=True)
class TensorDraw:
    """How one kind of tensor is drawn.

    Attributes:
        rule: fills it.
        options: of the rule.
    """

    rule: TensorRule
    options: Mapping[str, Any]

    @classmethod
    def named(
        cls, given: Any, options: Mapping[str, Any] | None, rules: Mapping[str, TensorRule]
    ) -> TensorDraw:
        """The draw of that name, tried once; a ValueError for unknown rules and options."""
        name = name_of_rule(given)
        if not isinstance(name, str) or name not in rules:
            raise ValueError(f"must be one of {', '.join(rules)}")
        draw = cls(rules[name], dict(options or {}))
        try:
            draw(np.random.default_rng(0), np.zeros((2, 2)))
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"does not take the options {dict(options or {})!r}: {error}"
            ) from error
        return draw

    def __call__(self, rng: np.random.Generator, out: Array) -> None:
        """Fills `out`."""
        self.rule(rng, out, **self.options)


@dataclass(frozen=True)
class LayerDraw:
    """How the weights of one layer are drawn, where a `model_config` says so.

    Attributes:
        kernel: None leaves it to the initialiser of the whole network.
        bias: likewise.
    """

    kernel: TensorDraw | None = None
    bias: TensorDraw | None = None

    def after(
        self,
        initializer: Initializer,
        rng: np.random.Generator,
        *,
        weights: Array,
        gain: float,
    ) -> None:
        """Draws a layer: with the network's initialiser, then what is decided here.

        Args:
            initializer: of the whole network.
            rng: draws the numbers.
            weights: kernel and, as last row, bias: [inputs + 1, outputs], overwritten.
            gain: for `initializer`.
        """
        kernel, bias = weights[:-1], weights[-1]
        initializer(rng, kernel=kernel, bias=bias, gain=gain)
        if self.kernel is not None:
            self.kernel(rng, kernel)
        if self.bias is not None:
            self.bias(rng, bias)


AS_THE_NETWORK: Final = LayerDraw()
"""Leaves everything to the initialiser of the whole network."""

"""How weights are first drawn.

`orthogonal` is the default for all networks here: kernels are random orthogonal matrices (Saxe,
McClelland and Ganguli 2014, section 3) times a gain, biases are zero. The gains are those of the
PPO implementations that learn most reliably (Huang et al. 2022, "The 37 implementation details of
PPO", detail 2; confirmed by the study of Andrychowicz et al. 2021, section 3.2): √2 in hidden
layers; 0.01 in the policy head, so that the first policy is almost uniform and no action is ruled
out by chance; 1 in the value head. RLlib draws as Torch's `Linear` does, which `uniform` offers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from trainer.types import Array

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

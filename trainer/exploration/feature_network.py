"""Small networks that strategies learn by themselves, beside the module: dense layers and Adam."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from trainer.errors import ConfigError, UnknownSettingError
from trainer.exploration.nearest_name import hint
from trainer.nn import (
    ACTIVATIONS,
    INITIALIZERS,
    MLP,
    Adam,
    LayerSpec,
    Parameters,
    columns_with_ones,
)
from trainer.nn.initializers import HIDDEN_GAIN
from trainer.types import Array, State

_CONFIG: Final[Mapping[str, Any]] = {"fcnet_hiddens": (256, 256), "fcnet_activation": "tanh"}


def encoder_layers(config: Mapping[str, Any] | None, *, name: str, num_outputs: int) -> Any:
    """The layers of an encoder: hidden ones, then linear outputs.

    Args:
        config: `fcnet_hiddens` and `fcnet_activation`; None takes (256, 256) and tanh.
        name: what the setting is called, for errors.
        num_outputs: numbers of the embedding.

    Raises:
        ConfigError: something in the config is unknown or wrong.
    """
    given = dict(config or {})
    for key in given:
        if key not in _CONFIG:
            raise UnknownSettingError(
                f"`{name}` has no key {key!r}.{hint(key, _CONFIG)} It takes {', '.join(_CONFIG)}."
            )
    chosen = {**_CONFIG, **given}
    layers = dense_layers(chosen["fcnet_hiddens"], chosen["fcnet_activation"], name=name)
    return [*layers, LayerSpec(num_outputs, "linear")]


def dense_layers(widths: Any, activation: Any, *, name: str) -> list[LayerSpec]:
    """Hidden layers of some widths.

    Raises:
        ConfigError: the widths are no positive ints, or the activation does not exist.
    """
    if not isinstance(widths, list | tuple) or not all(
        isinstance(width, int) and width > 0 for width in widths
    ):
        raise ConfigError(f"`{name}={widths!r}`: expected a list of widths > 0, such as [256].")
    if activation not in ACTIVATIONS:
        raise ConfigError(
            f"`{name}`: there is no activation {activation!r}.{hint(str(activation), ACTIVATIONS)} "
            f"Give one of {', '.join(ACTIVATIONS)}."
        )
    return [LayerSpec(width, activation) for width in widths]


class FeatureNetworks:
    """Some networks in one flat vector of parameters, with one optimiser.

    Attributes:
        networks: by name.
    """

    def __init__(
        self, layers: Mapping[str, tuple[int, Sequence[LayerSpec]]], rng: np.random.Generator
    ) -> None:
        """Creates and draws the networks.

        Args:
            layers: name → (number of inputs, layers).
            rng: draws the weights, network by network.
        """
        shapes: dict[str, tuple[int, ...]] = {}
        for name, (num_inputs, specs) in layers.items():
            shapes |= MLP.shapes(name, num_inputs=num_inputs, layers=specs)
        self.parameters = Parameters(shapes)
        self.gradients = self.parameters.zeros_like()
        self._optimizer = Adam(self.parameters, self.gradients)
        self.networks = {
            name: MLP(
                self.parameters, self.gradients, name=name, num_inputs=num_inputs, layers=specs
            )
            for name, (num_inputs, specs) in layers.items()
        }
        for network in self.networks.values():
            gains = [HIDDEN_GAIN] * (len(network.layers) - 1) + [1.0]
            network.initialize(rng, initializer=INITIALIZERS["orthogonal"], gains=gains)

    def step(self, *, lr: float) -> None:
        """One step of Adam against the gradients."""
        self._optimizer.step(lr=lr)

    def get_state(self) -> State:
        """Weights and moments; copies."""
        return {"weights": self.parameters.get_state(), "optimizer": self._optimizer.get_state()}

    def set_state(self, state: State) -> None:
        """Takes back what `get_state` gave.

        Raises:
            ModuleError: it does not fit.
        """
        self.parameters.set_state(state["weights"])
        self._optimizer.set_state(state["optimizer"])


def as_columns(rows: Array) -> Array:
    """Rows [B, K] as the networks read them: float32 [K + 1, B] with a last row of ones."""
    columns = columns_with_ones(rows.shape[1], len(rows), np.float32)
    columns[:-1] = rows.T
    return columns

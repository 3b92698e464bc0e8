"""The critics of SAC: one or two networks of the same shape that read the same inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from trainer.nn import MLP, LayerSpec, Parameters, columns_with_ones
from trainer.runtime.side_by_side import SideBySide
from trainer.types import Array

LARGE_PRODUCTS: Final = 4_000_000
"""So many multiplications in a forward pass (about 40 µs) are worth a thread of their own."""


class Critics:
    """Q(s, a) of given actions, or Q(s, ·) of all actions, from every critic.

    Life: any number of times `forward`, followed by `backward`, or by `d_actions`, or by none; both
    belong to the last `forward`.

    Attributes:
        names: of the critics, by which their tensors are called.
        networks: one for each name.
        parameters: where their weights are, among others perhaps.
        of_all_actions: they give the values of all actions of a Discrete space.
        side_by_side: computes two critics at once while it is open; the bits are the same.
    """

    def __init__(
        self,
        parameters: Parameters,
        gradients: Parameters,
        *,
        names: Sequence[str],
        obs_size: int,
        num_actions: int,
        layers: Sequence[LayerSpec],
        of_all_actions: bool,
    ) -> None:
        """Lays the networks over parameters that hold (at least) `shapes(...)`.

        Args:
            parameters: what they compute with.
            gradients: what `backward` overwrites.
            names: of the critics.
            obs_size: D.
            num_actions: n, or the numbers A that make up an action.
            layers: of each critic.
            of_all_actions: they read the observation only.
        """
        self.names = tuple(names)
        self.parameters = parameters
        self.of_all_actions = of_all_actions
        self.side_by_side = SideBySide()
        self._obs_size, self._num_actions = obs_size, num_actions
        self._num_inputs = obs_size if of_all_actions else obs_size + num_actions
        self.networks = [
            MLP(parameters, gradients, name=name, num_inputs=self._num_inputs, layers=layers)
            for name in self.names
        ]
        self._allocate(0)

    @staticmethod
    def shapes(
        names: Sequence[str], *, num_inputs: int, layers: Sequence[LayerSpec]
    ) -> dict[str, tuple[int, ...]]:
        """The tensors of all critics, `<name>/<layer>/kernel` and `.../bias`, one after another."""
        shapes: dict[str, tuple[int, ...]] = {}
        for name in names:
            shapes |= MLP.shapes(name, num_inputs=num_inputs, layers=layers)
        return shapes

    @property
    def block(self) -> Array:
        """The memory of all their weights, one vector."""
        last = len(self.networks[-1].layers) - 1
        return self.parameters.block(f"{self.names[0]}/0/kernel", f"{self.names[-1]}/{last}/bias")

    def forward(self, obs: Array, actions: Array | None = None) -> list[Array]:
        """The values that each critic gives.

        Args:
            obs: encoded, [B, D].
            actions: [B, …], in [-1, 1]; None if they value all actions.

        Returns:
            [B] of the given actions, or [B, n] of all; views that the next call overwrites.
        """
        if len(obs) != self._batch_size:
            self._allocate(len(obs))
        inputs = self._inputs
        inputs[: self._obs_size] = obs[:, : self._obs_size].T  # without the action mask
        if actions is not None:
            inputs[self._obs_size : -1] = actions.reshape(len(obs), -1).T
        outputs: list[Array] = [inputs] * len(self.networks)

        def forward(index: int) -> None:
            outputs[index] = self.networks[index].forward(inputs)[:-1]

        self._for_each(forward)
        return [values.T if self.of_all_actions else values[0] for values in outputs]

    def backward(self, d_values: Sequence[Array]) -> None:
        """Overwrites the gradients of all critics.

        Args:
            d_values: for each critic, of the shape that `forward` gave.
        """

        def backward(index: int) -> None:
            gradient = d_values[index]
            self.networks[index].backward(gradient.T if self.of_all_actions else gradient[None, :])

        self._for_each(backward)

    def d_actions(self, d_values: Sequence[Array]) -> Array:
        """How the values change with the actions: Σ d_values · dQ/da over the critics, [B, A].

        The gradients of the critics are left alone.

        Args:
            d_values: for each critic, [B].
        """

        def backward(index: int) -> None:
            self.networks[index].backward(
                d_values[index][None, :], d_inputs=self._d_inputs[index], only_inputs=True
            )

        self._for_each(backward)
        d_actions: Array = np.add.reduce(self._d_inputs[:, self._obs_size :], axis=0).T
        return d_actions

    def _for_each(self, compute: Callable[[int], None]) -> None:
        """Computes something for every critic, by its index."""
        if len(self.networks) == 2 and self._num_products >= LARGE_PRODUCTS:
            self.side_by_side.run(lambda: compute(0), lambda: compute(1))
            return
        for index in range(len(self.networks)):
            compute(index)

    def _allocate(self, batch_size: int) -> None:
        """Makes the memory that batches of that size need."""
        dtype = self.parameters.dtype
        self._batch_size = -1  # an interrupt may come before all of it is there
        self._inputs = columns_with_ones(self._num_inputs, batch_size, dtype)
        self._d_inputs: Array = np.empty((len(self.networks), self._num_inputs, batch_size), dtype)
        layers = self.networks[0].layers
        self._num_products = batch_size * sum(math.prod(layer.weights.shape) for layer in layers)
        self._batch_size = batch_size

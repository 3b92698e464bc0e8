"""The distribution over nested actions: independent parts, each with its own distribution."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainer.nn.distributions import (
    ActionDistribution,
    SummedTerms,
    from_uniform,
    total,
    uniform_width,
)
from trainer.seeding import NoiseKind
from trainer.types import Array

Parts = Any
"""Dicts and tuples, nested at will, whose leaves are distributions."""


@dataclass(frozen=True)
class _Part:
    """One leaf and its place.

    Attributes:
        path: the keys and indices that lead to it, outermost first.
        distribution: over its actions.
        inputs: its columns of the inputs.
        noise: its columns of the noise.
    """

    path: tuple[Any, ...]
    distribution: ActionDistribution
    inputs: slice
    noise: slice


class ProductDistribution(ActionDistribution):
    """Independent parts: log-probabilities, entropies and divergences add up.

    The inputs of the parts stand side by side, in the order of the leaves, and so does their noise.
    If all parts want the same kind of noise, that is the kind; otherwise it is uniform and turned
    into what each part wants. Actions are nested as the parts are, with arrays [B, ...] as leaves.
    """

    def __init__(self, parts: Parts) -> None:
        """Lays the parts side by side: dicts and tuples of distributions, at least one."""
        self._structure = parts
        leaves = list(_leaves(parts, ()))
        kinds = {distribution.noise_kind for _, distribution in leaves}
        self.noise_kind: NoiseKind = kinds.pop() if len(kinds) == 1 else "uniform"
        self._parts: list[_Part] = []
        self.num_inputs = self.noise_width = 0
        for path, distribution in leaves:
            width = self._noise_width(distribution)
            inputs = slice(self.num_inputs, self.num_inputs + distribution.num_inputs)
            noise = slice(self.noise_width, self.noise_width + width)
            self._parts.append(_Part(path, distribution, inputs, noise))
            self.num_inputs, self.noise_width = inputs.stop, noise.stop

    def sample(self, inputs: Array, noise: Array) -> Any:
        """Draws every part with its own noise."""
        return self._nested(
            [
                part.distribution.sample(self._inputs_of(part, inputs), self._noise_of(part, noise))
                for part in self._parts
            ]
        )

    def deterministic(self, inputs: Array) -> Any:
        """The most probable action of every part."""
        chosen = [
            part.distribution.deterministic(self._inputs_of(part, inputs)) for part in self._parts
        ]
        return self._nested(chosen)

    def check_actions(self, actions: Any) -> None:
        """Part by part."""
        for part in self._parts:
            part.distribution.check_actions(_value_at(actions, part.path))

    def canonical(self, inputs: Array) -> Array:
        """The canonical inputs of the parts."""
        columns = [
            part.distribution.canonical(self._inputs_of(part, inputs)) for part in self._parts
        ]
        return np.concatenate(columns, axis=1)

    def evaluate(
        self, inputs: Array, actions: Any, *, reference: Array | None = None
    ) -> SummedTerms:
        return SummedTerms.of(
            [
                part.distribution.evaluate(
                    self._inputs_of(part, inputs),
                    _value_at(actions, part.path),
                    reference=None if reference is None else self._inputs_of(part, reference),
                )
                for part in self._parts
            ]
        )

    def logp(self, inputs: Array, actions: Any) -> Array:
        """The sum over the parts."""
        return total(
            [
                part.distribution.logp(self._inputs_of(part, inputs), _value_at(actions, part.path))
                for part in self._parts
            ]
        )

    def entropy(self, inputs: Array) -> Array:
        """The sum over the parts."""
        return total(
            [part.distribution.entropy(self._inputs_of(part, inputs)) for part in self._parts]
        )

    def kl(self, p_inputs: Array, q_inputs: Array) -> Array:
        """The sum over the parts."""
        return total(
            [
                part.distribution.kl(
                    self._inputs_of(part, p_inputs), self._inputs_of(part, q_inputs)
                )
                for part in self._parts
            ]
        )

    def _noise_width(self, distribution: ActionDistribution) -> int:
        if distribution.noise_kind == self.noise_kind:
            return distribution.noise_width
        return uniform_width(distribution.noise_kind, distribution.noise_width)

    def _noise_of(self, part: _Part, noise: Array) -> Array:
        """The noise of one part, of the kind that it wants."""
        distribution, columns = part.distribution, noise[:, part.noise]
        if distribution.noise_kind == self.noise_kind:
            return columns
        return from_uniform(columns, kind=distribution.noise_kind, width=distribution.noise_width)

    @staticmethod
    def _inputs_of(part: _Part, inputs: Array) -> Array:
        """The inputs of one part; contiguous, so that one row rounds as many rows do."""
        return np.ascontiguousarray(inputs[:, part.inputs])

    def _nested(self, leaves: Sequence[Array]) -> Any:
        return _with_leaves(self._structure, iter(leaves))


def _leaves(
    parts: Parts, path: tuple[Any, ...]
) -> Iterator[tuple[tuple[Any, ...], ActionDistribution]]:
    """Every distribution with its path, in order."""
    if isinstance(parts, ActionDistribution):
        yield path, parts
        return
    for key, part in parts.items() if isinstance(parts, dict) else enumerate(parts):
        yield from _leaves(part, (*path, key))


def _with_leaves(structure: Parts, leaves: Iterator[Array]) -> Any:
    """The same structure with other leaves, taken in order."""
    if isinstance(structure, dict):
        return {key: _with_leaves(part, leaves) for key, part in structure.items()}
    if isinstance(structure, tuple):
        return tuple(_with_leaves(part, leaves) for part in structure)
    return next(leaves)


def _value_at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value

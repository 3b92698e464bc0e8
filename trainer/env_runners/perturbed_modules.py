"""Modules whose weights carry the noise of an episode, for strategies that perturb weights."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import numpy as np

from trainer.episodes.columns import ACTION_DIST_INPUTS, OBS
from trainer.exploration import Exploration
from trainer.modules import RLModule
from trainer.types import Array


class PerturbedModules:
    """A copy of a module for each env slot: its weights plus stddev · noise of the episode.

    Life: `begin_episode` draws a slot's noise; `refresh` once per request, because weights and
    standard deviation change between requests only; `forward` per vector step. What a slot acts
    with is a function of its episode, the newest weights and the newest standard deviation, so it
    is found again after a repair.
    """

    def __init__(self, module: RLModule, strategy: Exploration) -> None:
        self._module = module
        self._strategy = strategy
        shapes = module.parameters.shapes
        self._names = [name for name in shapes if module.is_for_acting(name)]
        self._copies: dict[int, RLModule] = {}
        self._noise: dict[int, Array] = {}

    def begin_episode(self, slot: int, rng: np.random.Generator) -> None:
        """Draws the noise of the episode that begins in a slot, or goes on there.

        Args:
            slot: its number in the runner.
            rng: the episode's own generator.
        """
        shapes = {name: self._module.parameters.shapes[name] for name in self._names}
        drawn = self._strategy.perturbation(shapes, rng)
        noise = self._module.parameters.zeros_like()
        start = 0
        for view in (noise.views[name] for name in self._names):
            view[...] = drawn[start : start + view.size].reshape(view.shape)
            start += view.size
        self._noise[slot] = noise.flat
        if slot not in self._copies:
            self._copies[slot] = copy.deepcopy(self._module)
        self._update(slot)

    def refresh(self) -> None:
        """Takes over the newest weights and the newest standard deviation."""
        for slot in self._copies:
            self._update(slot)

    def _update(self, slot: int) -> None:
        stddev = np.float32(self._strategy.current_stddev)
        parameters = self._copies[slot].parameters
        self._copies[slot].copy_buffers(self._module)
        np.add(self._module.parameters.flat, stddev * self._noise[slot], out=parameters.flat)

    def forward(self, batch: Mapping[str, Array], slots: Sequence[int]) -> Array:
        """The distribution inputs of each slot's own module, [B, K].

        Args:
            batch: encoded observations, a row for each of `slots`.
            slots: numbers in the runner.
        """
        rows = [
            self._copies[slot].forward_exploration({OBS: batch[OBS][row : row + 1]})
            for row, slot in enumerate(slots)
        ]
        return np.concatenate([row[ACTION_DIST_INPUTS] for row in rows])

"""Choices to explore from, with noise that follows from a seed."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from trainer.exploration import ActionChoice, Exploration, ExplorationSpec
from trainer.name_resolution import PROGRAM
from trainer.nn import ActionDistribution, Categorical, DiagGaussian, MultiCategorical
from trainer.seeding import NOISE_DRAWS
from trainer.types import Array


def distribution_of(space: spaces.Space[Any]) -> ActionDistribution:
    if isinstance(space, spaces.Discrete):
        return Categorical(int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        return MultiCategorical(space.nvec.ravel().tolist(), shape=space.nvec.shape)
    assert isinstance(space, spaces.Box)
    return DiagGaussian(space.shape)


def made(config: Any, space: spaces.Space[Any], **context: int) -> Exploration:
    spec = ExplorationSpec.from_config(config, source=PROGRAM)
    return spec.make(space, distribution=distribution_of(space), **context)


def choice_for(
    strategy: Exploration, inputs: Array, *, seed: int = 0, mask: Array | None = None
) -> ActionChoice:
    """One choice per row of `inputs`, each with noise of its own, in slots 0, 1, …"""
    rng = np.random.default_rng(seed)
    rows = len(inputs)
    return ActionChoice(
        distribution=strategy.distribution,
        inputs=inputs.astype(np.float32),
        noise=NOISE_DRAWS[strategy.noise_kind](rng, (rows, strategy.noise_width)),
        noise_kind=strategy.noise_kind,
        slots=range(rows),
        mask=mask,
    )


def likelihoods(
    strategy: Exploration, choice: ActionChoice, actions: Array, *, timestep: int = 0
) -> Array:
    """What a runner asks for all steps of a request at once."""
    return strategy.logp(choice.allowed_inputs(), actions, timestep=timestep)


def same_rows(row: list[float], count: int) -> Array:
    return np.tile(np.array(row, np.float32), (count, 1))


def chi_square(actions: Array, probabilities: Array) -> float:
    """Pearson's statistic of counted actions; its mean is the number of alternatives - 1."""
    expected = len(actions) * probabilities
    counts = np.bincount(actions, minlength=len(probabilities))
    assert not counts[probabilities == 0].any(), "an impossible action was chosen"
    possible = probabilities > 0
    return float(((counts - expected)[possible] ** 2 / expected[possible]).sum())

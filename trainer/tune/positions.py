"""Random numbers of an experiment by position: no generator is kept (see `trainer.seeding`)."""

from __future__ import annotations

import enum

import numpy as np

from trainer.seeding import Role, position_rng


class Kind(enum.IntEnum):
    """What numbers of an experiment are drawn for; the first part of each position."""

    SUGGEST = 0
    """(n, parameter): the values of suggestion n, its sampler's seed, its `sample_from`."""
    BRACKET = 1
    """(n): the bracket of trial n in ASHA."""
    EXPLORE = 2
    """(n, generation): donor and changes of an exploit."""
    CLONE = 3
    """(n, generation): the root seed of a clone, so that it does not play its donor's episodes."""
    GLOBAL = 4
    """(n, row number): NumPy's and Python's global generators in a trial's process."""
    SAMPLER = 5
    """(n, ended, path): a generator of Optuna's sampler at suggestion n (0) or its end (1)."""


def rng_at(experiment_seed: int, kind: Kind, *position: int) -> np.random.Generator:
    """A generator for one position of an experiment."""
    return position_rng(experiment_seed, Role.TUNE, int(kind), *position)


def seed_at(experiment_seed: int, kind: Kind, *position: int) -> int:
    """One seed in [0, 2**31) for a position, for code that wants a seed and no generator."""
    return int(rng_at(experiment_seed, kind, *position).integers(2**31))

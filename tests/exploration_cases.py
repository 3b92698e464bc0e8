"""Choices to explore from, with noise that follows from a seed."""

import numpy as np
from gymnasium import spaces

from trainer.exploration import ActionChoice, ExplorationSpec
from trainer.name_resolution import PROGRAM
from trainer.nn import Categorical, DiagGaussian, MultiCategorical
from trainer.seeding import NOISE_DRAWS


def distribution_of(space):
    if isinstance(space, spaces.Discrete):
        return Categorical(int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        return MultiCategorical(space.nvec.ravel().tolist(), shape=space.nvec.shape)
    assert isinstance(space, spaces.Box)
    return DiagGaussian(space.shape)


def made(config, space, **context):
    spec = ExplorationSpec.from_config(config, source=PROGRAM)
    return spec.make(space, distribution=distribution_of(space), **context)


def choice_for(strategy, inputs, *, seed=0, mask=None):
    """One choice per row of `inputs`, each with noise of its own, in slots 0, 1, …"""
    rng = np.random.default_rng(seed)
    rows = len(inputs)
    loadings = None
    if strategy.needs_loadings:  # as a network with 70 features gives them: of length 1
        size = (rows, strategy.distribution.noise_width, 70)
        loadings = np.random.default_rng(7).normal(size=size)
        loadings = (loadings / np.linalg.norm(loadings, axis=-1, keepdims=True)).astype(np.float32)
    return ActionChoice(
        distribution=strategy.distribution,
        inputs=inputs.astype(np.float32),
        noise=NOISE_DRAWS[strategy.noise_kind](rng, (rows, strategy.noise_width)),
        noise_kind=strategy.noise_kind,
        slots=range(rows),
        mask=mask,
        loadings=loadings,
    )


def likelihoods(strategy, choice, actions, *, timestep=0):
    """What a runner asks for all steps of a request at once."""
    return strategy.logp(choice.allowed_inputs(), actions, timestep=timestep)


def same_rows(row, count):
    return np.tile(np.array(row, np.float32), (count, 1))


def chi_square(actions, probabilities):
    """Pearson's statistic of counted actions; its mean is the number of alternatives - 1."""
    expected = len(actions) * probabilities
    counts = np.bincount(actions, minlength=len(probabilities))
    assert not counts[probabilities == 0].any(), "an impossible action was chosen"
    possible = probabilities > 0
    return float(((counts - expected)[possible] ** 2 / expected[possible]).sum())

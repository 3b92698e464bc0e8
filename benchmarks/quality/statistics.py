"""What is said of several runs: Agarwal et al. 2021, "Deep RL at the edge of the precipice".

Their library is rliable, whose definitions these are: interquartile means, percentile bootstrap
over runs, probability of improvement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

NUM_RESAMPLES: Final = 2000
"""Of the bootstrap."""
CONFIDENCE: Final = 0.95


def interquartile_mean(values: Sequence[float] | np.ndarray[Any, Any]) -> float:
    """The mean without the lowest and the highest quarter, rounded down to whole runs."""
    ordered = np.sort(np.asarray(values, float))
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


def interval(statistic: Callable[..., float], *samples: Sequence[float]) -> tuple[float, float]:
    """The percentile interval of a statistic, each sample drawn anew with replacement.

    Args:
        statistic: a function of as many samples.
        samples: of runs; new ones are drawn from each by itself.
    """
    rng = np.random.default_rng(0)
    arrays = [np.asarray(sample, float) for sample in samples]
    found = [
        statistic(*(array[rng.integers(len(array), size=len(array))] for array in arrays))
        for _ in range(NUM_RESAMPLES)
    ]
    tail = 50.0 * (1.0 - CONFIDENCE)
    low, high = np.percentile(found, [tail, 100.0 - tail])
    return float(low), float(high)


def probability_of_improvement(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """How often a run of ours is above one of theirs, over all pairs; a draw is half a win."""
    mine, other = np.asarray(ours)[:, None], np.asarray(theirs)[None, :]
    return float(((mine > other) + 0.5 * (mine == other)).mean())

"""What the main process shows a strategy of a sample: arrays, chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainer.types import Array


@dataclass(frozen=True)
class ExploredChunk:
    """One chunk of an episode.

    Attributes:
        obs: encoded observations, float32 [T + 1, D].
        actions: as the module gave them, [T, …].
        rewards: of the env, float64 [T].
        inputs: the distribution inputs that acted, float32 [T, K]; None if no module acted.
    """

    obs: Array
    actions: Array
    rewards: Array
    inputs: Array | None


@dataclass(frozen=True)
class ExploredSample:
    """What all runners played for one request.

    Attributes:
        chunks: ordered by env slot, then time.
        timestep: env steps sampled before.
        iteration: training iterations completed before.
        clean_inputs: the distribution inputs of the unperturbed module for encoded observations:
            [B, D] to [B, K]; with the weights that acted.
    """

    chunks: Sequence[ExploredChunk]
    timestep: int
    iteration: int
    clean_inputs: Callable[[Array], Array]

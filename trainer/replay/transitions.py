"""What is stored of an episode's steps, and what comes out: transitions and sequences.

Observations and actions keep their own number types (images stay bytes).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from trainer.episodes import SingleAgentEpisode
from trainer.errors import ReplayError
from trainer.replay.step_ring import Layout, parts_of
from trainer.types import Array

OBS: Final = "obs"
NEXT_OBS: Final = "new_obs"
ACTIONS: Final = "actions"
REWARDS: Final = "rewards"
TERMINATEDS: Final = "terminateds"


@dataclass(frozen=True)
class Transitions:
    """A batch to learn from; B rows.

    Attributes:
        obs: observations before the steps, as the env gave them: [B, …], or a dict or tuple of such
            arrays.
        actions: as the policy chose them, likewise.
        rewards: discounted sums over up to n steps, float32 [B].
        next_obs: observations after the last of these steps.
        discounts: what the value of `next_obs` counts: γ^m after m ≤ n steps, and 0 where the
            episode reached a final state, float32 [B].
        weights: importance weights, float32 [B]; 1 without priorities.
        rows: where the steps are stored, for `update_priorities`, int64 [B].
    """

    obs: Any
    actions: Any
    rewards: Array
    next_obs: Any
    discounts: Array
    weights: Array
    rows: Array


@dataclass(frozen=True)
class Sequences:
    """B pieces of episodes, T steps each, for modules that remember.

    Where an episode ends (or its newest step is reached) before T steps, zeros follow.

    Attributes:
        obs: observations before the steps: [B, T, …], or a dict or tuple of such arrays.
        actions: as the policy chose them, likewise.
        rewards: of the single steps, float32 [B, T].
        next_obs: observations after the steps.
        terminateds: whether a step reached a final state, bool [B, T].
        mask: whether there is a step, bool [B, T]; the first one of a sequence always is.
        weights: importance weights of the sequences' first steps, float32 [B].
        rows: where the steps are stored, or -1, int64 [B, T].
    """

    obs: Any
    actions: Any
    rewards: Array
    next_obs: Any
    terminateds: Array
    mask: Array
    weights: Array
    rows: Array


def columns_of(chunk: SingleAgentEpisode) -> dict[str, Array]:
    """One row per step of a chunk, without look-back; views into its arrays.

    Whether the last step reached a final state is left to the caller, who has many chunks.

    Raises:
        ReplayError: the chunk still holds lists.
    """
    if not chunk.is_numpy:
        raise ReplayError(
            f"Episode {chunk.id_} still holds lists, but replay stores arrays. Call `to_numpy()` "
            "before adding it."
        )
    columns = {}
    # Straight to the arrays: the getters, which know many kinds of indices, cost twice as much.
    first = chunk.observations.lookback
    for name, part in parts_of("", chunk.observations.data):
        columns[OBS + name] = part[first:-1]
        columns[NEXT_OBS + name] = part[first + 1 :]
    first = chunk.actions.lookback
    for name, part in parts_of(ACTIONS, chunk.actions.data):
        columns[name] = part[first:]
    columns[REWARDS] = chunk.rewards.data[chunk.rewards.lookback :]
    return columns


def n_step_sums(rewards: Array, chains: Array, gamma: float) -> tuple[Array, Array, Array]:
    """Rewards over up to n steps, and where they lead.

    Args:
        rewards: of all rows, float32 [N + 1], the last one 0.
        chains: rows of consecutive steps, -1 behind the last one of each chain, int64 [n, B].
        gamma: γ, the discount per step.

    Returns:
        The last rows int64 [B], Σ γ^k·r_k float32 [B], and γ^m after the m steps of each chain
        float32 [B].
    """
    # γ^0 … γ^n in float64, as sums may be long; each the product of the one before.
    powers = np.multiply.accumulate(np.array([1.0] + [gamma] * len(chains)))
    # Behind an end stand zeros, so no sum needs to know where it stops.
    sums = (rewards.take(chains) * powers[:-1, None]).sum(axis=0)
    num_steps = np.count_nonzero(chains >= 0, axis=0)
    last = chains[num_steps - 1, np.arange(chains.shape[1])]
    return last, sums.astype(np.float32), powers.take(num_steps).astype(np.float32)


def layout_of(columns: Mapping[str, Array]) -> Layout:
    """The layout of a buffer whose first steps these are.

    Args:
        columns: as from `columns_of`.

    Raises:
        ReplayError: a column holds Python objects.
    """
    layout = {name: (values.dtype, values.shape[1:]) for name, values in columns.items()}
    for name, (dtype, _) in layout.items():
        if dtype.hasobject:
            raise ReplayError(
                f"{name} of the env's steps holds Python objects, and replay stores numbers. "
                "Return arrays of numbers from the env, or wrap it."
            )
    return {
        **layout,
        REWARDS: (np.dtype(np.float32), ()),
        TERMINATEDS: (np.dtype(np.bool_), ()),
    }


def check_layout(columns: Mapping[str, Array], layout: Layout, *, episode_id: str) -> None:
    """Compares steps with what a buffer holds; rewards may have any number type.

    Raises:
        ReplayError: they differ in names, number types or shapes.
    """
    fits = len(columns) == len(layout) - 1  # `columns_of` leaves one out
    for name, values in columns.items():
        dtype, shape = layout.get(name, (None, None))
        if values.shape[1:] != shape or (values.dtype != dtype and name != REWARDS):
            fits = False
    if fits:
        return
    given = {name: (values.dtype, values.shape[1:]) for name, values in columns.items()}
    stored = {name: layout[name] for name in layout if name != TERMINATEDS}
    raise ReplayError(
        f"The replay buffer holds steps of {_text(stored)}, but episode {episode_id} has "
        f"{_text(given)}. All steps of a run must have the same shapes and number types: check "
        "what the env returns, and what callbacks wrote into episodes."
    )


def _text(layout: Layout) -> str:
    return ", ".join(f"{name} {dtype}{list(shape)}" for name, (dtype, shape) in layout.items())

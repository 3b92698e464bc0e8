"""A chunk with other rewards: what is learnt from, while the chunk that callbacks hold stays."""

from __future__ import annotations

from trainer.episodes.lookback_buffer import LookbackBuffer
from trainer.episodes.single_agent_episode import SingleAgentEpisode
from trainer.types import Array


def with_rewards(
    chunk: SingleAgentEpisode, rewards: Array, *, keeps_return: bool = False
) -> SingleAgentEpisode:
    """The same chunk with other rewards; all other columns are shared.

    Args:
        chunk: to which nothing is added any more.
        rewards: float64, one per step, look-back included.
        keeps_return: `get_return()` stays what the env paid.
    """
    # Not `copy.copy`, which would go by way of the episode's state and copy its arrays.
    changed = object.__new__(type(chunk))
    vars(changed).update(vars(chunk))
    own = chunk.rewards
    changed.rewards = LookbackBuffer(rewards, lookback=own.lookback, space=own.space)
    if keeps_return:
        changed.note_rewrite(chunk.rewards_list())
    return changed

"""What an episode paid, over all its chunks, and what it is worth after callbacks rewrote rewards.

Sums are exact (`trainer.metrics.exact_sum`). So they do not depend on where an episode was cut, and
what a rewrite added can be taken off again without a trace.
"""

from __future__ import annotations

from typing import Any

from trainer.episodes.lookback_buffer import LookbackBuffer
from trainer.metrics.exact_sum import exact_partials, rounded_sum

Change = list[float] | None
"""Exact partials of what rewriting added to rewards; None if nobody rewrote them."""


class EpisodeReturns:
    """Returns of the steps up to the end of a chunk.

    Attributes:
        rewards: of this chunk and its look-back, T numbers.
        earlier_return: exact partials of what the env paid in the episode's earlier chunks.
        own_change: of the rewards of this chunk.
        earlier_change: of those of the earlier chunks.
    """

    rewards: LookbackBuffer
    earlier_return: list[float]
    own_change: Change = None
    earlier_change: Change = None

    def chunk_return(self) -> float:
        """The sum of the rewards of this chunk, without look-back and earlier chunks."""
        return rounded_sum(self.rewards_list())

    def get_return(self) -> float:
        """What the env paid in the episode up to the end of this chunk, rounded once.

        It covers the earlier chunks of an episode that was cut, and does not depend on where it was
        cut, nor on what callbacks made of the rewards while the episode was played.
        """
        return rounded_sum(self._paid())

    def get_rewritten_return(self) -> float | None:
        """`get_return()` with the rewards that callbacks wrote; None if they wrote none."""
        change = self.change_partials()
        return None if change is None else rounded_sum(self._paid() + change)

    def return_partials(self) -> list[float]:
        """`get_return()` before rounding, for the chunk that follows."""
        return exact_partials(self._paid())

    def change_partials(self) -> Change:
        """What rewriting added up to the end of this chunk, for the chunk that follows."""
        return joined_changes(self.earlier_change, self.own_change)

    def note_rewrite(self, before: list[float]) -> None:
        """Notes that the rewards of this chunk were others; `get_return()` stays what it was.

        Args:
            before: the rewards that were replaced, [T].
        """
        change = exact_partials([*self.rewards_list(), *(-reward for reward in before)])
        self.own_change = joined_changes(self.own_change, change)

    def rewards_list(self) -> list[float]:
        """The rewards of this chunk, without look-back; not to be changed."""
        rewards: Any = self.rewards.data
        if self.rewards.lookback:
            rewards = rewards[self.rewards.lookback :]
        return rewards if isinstance(rewards, list) else rewards.tolist()

    def _paid(self) -> list[float]:
        """Numbers that add up to what the env paid."""
        rewards = self.rewards_list()
        if not self.earlier_return and not self.own_change:
            return rewards
        return [*self.earlier_return, *rewards, *(-part for part in self.own_change or ())]


def joined_changes(first: Change, second: Change) -> Change:
    """The change that both make together."""
    if first is None or second is None:
        return second if first is None else first
    return exact_partials(first + second)

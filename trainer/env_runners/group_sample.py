"""The answers of all runners to one request, put together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trainer.env_runners.spec import SampleReply
from trainer.episodes import SingleAgentEpisode
from trainer.metrics import EpisodeRecord


@dataclass(frozen=True)
class GroupSample:
    """What a group of runners played, in the order of the runners and never of their arrival.

    Attributes:
        episodes: finished episodes and chunks, ordered by env slot, then time.
        records: of finished episodes, ordered by slot, then time.
        numbers: the episode numbers of the records.
        metrics: what callbacks logged, one entry per runner.
        num_env_steps: env steps made.
        num_episodes_lost, num_env_steps_lost: of running episodes that had to be given up.
        repair_s: seconds spent on replacing runners.
    """

    episodes: list[SingleAgentEpisode]
    records: list[EpisodeRecord]
    numbers: list[int]
    metrics: list[Any]
    num_env_steps: int
    num_episodes_lost: int = 0
    num_env_steps_lost: int = 0
    repair_s: float = 0.0

    @classmethod
    def of(cls, replies: Mapping[int, SampleReply], *, repair_s: float) -> GroupSample:
        """The sample that some replies, by runner number, make up."""
        ordered = [replies[index] for index in sorted(replies)]
        return cls(
            episodes=[episode for reply in ordered for episode in reply.episodes],
            records=[record for reply in ordered for record in reply.records],
            numbers=[number for reply in ordered for number in reply.numbers],
            metrics=[reply.metrics for reply in ordered],
            num_env_steps=sum(reply.num_env_steps for reply in ordered),
            num_episodes_lost=sum(reply.num_episodes_lost for reply in ordered),
            num_env_steps_lost=sum(reply.num_env_steps_lost for reply in ordered),
            repair_s=repair_s,
        )

    @classmethod
    def joined(cls, samples: Iterable[GroupSample]) -> GroupSample:
        """Several samples one after the other."""
        parts = list(samples)
        return cls(
            episodes=[episode for part in parts for episode in part.episodes],
            records=[record for part in parts for record in part.records],
            numbers=[number for part in parts for number in part.numbers],
            metrics=[metrics for part in parts for metrics in part.metrics],
            num_env_steps=sum(part.num_env_steps for part in parts),
            num_episodes_lost=sum(part.num_episodes_lost for part in parts),
            num_env_steps_lost=sum(part.num_env_steps_lost for part in parts),
            repair_s=sum(part.repair_s for part in parts),
        )

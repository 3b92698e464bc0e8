"""The answers of all runners to one request, put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from trainer.env_runners.spec import PlayTimes, SampleReply
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
        repair_s: seconds spent on replacing runners and sub-envs.
        num_sub_env_restarts: sub-envs that were made anew because they failed.
        times: where the time of the runners went, summed over them.
    """

    episodes: list[SingleAgentEpisode]
    records: list[EpisodeRecord]
    numbers: list[int]
    metrics: list[Any]
    num_env_steps: int
    num_episodes_lost: int = 0
    num_env_steps_lost: int = 0
    repair_s: float = 0.0
    num_sub_env_restarts: int = 0
    times: PlayTimes = field(default_factory=PlayTimes)

    @classmethod
    def of(cls, replies: Sequence[SampleReply], *, repair_s: float) -> GroupSample:
        """The sample that some replies make up, in that order."""
        return cls(
            episodes=[episode for reply in replies for episode in reply.episodes],
            records=[record for reply in replies for record in reply.records],
            numbers=[number for reply in replies for number in reply.numbers],
            metrics=[reply.metrics for reply in replies],
            num_env_steps=sum(reply.num_env_steps for reply in replies),
            num_episodes_lost=sum(reply.num_episodes_lost for reply in replies),
            num_env_steps_lost=sum(reply.num_env_steps_lost for reply in replies),
            repair_s=repair_s + sum(reply.restarts.repair_s for reply in replies),
            num_sub_env_restarts=sum(reply.restarts.count for reply in replies),
            times=sum((reply.times for reply in replies), PlayTimes()),
        )

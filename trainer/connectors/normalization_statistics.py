"""The running statistics behind normalisation: kept in the main process, fed by samples.

They need no reports from env runners, for the main process has every observation and reward in the
episodes that were sampled, ordered by env slot, then time. So what the statistics become depends
neither on how slots are spread over runners nor on which of them died.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from checkpoints import check_shape, like
from checkpoints.state_shapes import dict_of, fields, number
from trainer.connectors.normalization import (
    EPSILON,
    NOTHING,
    Normalization,
    ObservationNormalizer,
    RewardTransform,
    RunningMoments,
)
from trainer.connectors.observations import ObservationEncoder
from trainer.episodes import SingleAgentEpisode
from trainer.episodes.other_rewards import with_rewards
from trainer.types import Array, State


@dataclass(frozen=True)
class NormalizationSettings:
    """What is to be normalised.

    Attributes:
        observations: by running mean and standard deviation (`observation_filter`).
        rewards: by the running standard deviation of the discounted return (`normalize_rewards`).
        clip_rewards: see `RewardTransform`.
        gamma: discount per env step of that return, in [0, 1].
        num_slots: sub-envs that are sampled, ≥ 1: so many episodes may be running.
    """

    observations: bool = False
    rewards: bool = False
    clip_rewards: float | bool | None = None
    gamma: float = 0.99
    num_slots: int = 1


class NormalizationStatistics:
    """Collects moments, and says what follows from them.

    Life: `add` after each sample; `current` when a training step is over; `get_state` and
    `set_state` for the checkpoint component "connectors".
    """

    def __init__(self, settings: NormalizationSettings, encoder: ObservationEncoder) -> None:
        """Begins with nothing seen.

        Args:
            settings: what is to be normalised.
            encoder: of the observation space, without a normalizer.
        """
        self.settings = settings
        self._encoder = encoder
        self._observations = RunningMoments.empty(encoder.size)
        self._returns = RunningMoments.empty(1)
        # Of running episodes: the discounted return so far, by id, oldest first.
        self._running: dict[str, float] = {}

    @property
    def has_state(self) -> bool:
        """Whether anything depends on what was seen."""
        return self.settings.observations or self.settings.rewards

    @property
    def has_effect(self) -> bool:
        """Whether anything is changed at all."""
        return self.has_state or RewardTransform(self.settings.clip_rewards).does_clip

    def add(self, chunks: Sequence[SingleAgentEpisode]) -> None:
        """Takes in what was sampled.

        Every observation that an env returned counts once: the last one of a chunk that was cut is
        the first one of the next, and counts there no more.

        Args:
            chunks: ordered by env slot, then time; after `to_numpy()`.

        Raises:
            EpisodeError: a number is not finite; nothing is changed.
        """
        observations, returns, running = self._observations, self._returns, self._running
        played = [chunk for chunk in chunks if len(chunk) > 0]
        if not played:
            return
        if self.settings.observations:
            rows = [self._fresh_rows(chunk) for chunk in played]
            observations = observations.merged(RunningMoments.of(np.concatenate(rows)))
        if self.settings.rewards:
            running = dict(running)
            sums = np.concatenate([self._discounted(chunk, running) for chunk in played])
            returns = returns.merged(RunningMoments.of(sums[:, None]))
            for id_ in list(running)[: -self.settings.num_slots]:
                del running[id_]  # of episodes that were given up
        self._observations, self._returns, self._running = observations, returns, running

    def with_clipped_rewards(
        self, chunks: Sequence[SingleAgentEpisode]
    ) -> Sequence[SingleAgentEpisode]:
        """The chunks as a replay buffer stores them, which adds rewards up before they are scaled.

        Chunks that are changed are copies, because callbacks may hold the others.
        """
        transform = RewardTransform(self.settings.clip_rewards)
        if not transform.does_clip:
            return chunks
        return [with_rewards(chunk, transform.clipped(chunk.rewards.data)) for chunk in chunks]

    def current(self) -> Normalization:
        """What follows from everything seen so far."""
        settings = self.settings
        normalizer = transform = None
        if settings.observations:
            normalizer = ObservationNormalizer.of(
                self._observations, is_normalized=self._encoder.is_scalable
            )
        if settings.rewards:
            transform = RewardTransform(
                settings.clip_rewards, float(1.0 / (self._returns.std[0] + EPSILON))
            )
        elif RewardTransform(settings.clip_rewards).does_clip:
            transform = RewardTransform(settings.clip_rewards)
        if normalizer is None and transform is None:
            return NOTHING
        return Normalization(normalizer, transform)

    def get_state(self) -> State:
        """Plain data: the moments, and the discounted returns of running episodes."""
        return {
            "observations": self._observations.get_state(),
            "returns": self._returns.get_state(),
            "running": dict(self._running),
        }

    def check_state(self, state: State) -> None:
        """Raises a CheckpointMismatchError unless `set_state` will take it; changes nothing."""
        now = self.get_state()
        moments = {name: like(now[name]) for name in ("observations", "returns")}
        check_shape(state, fields({**moments, "running": dict_of(number)}))

    def set_state(self, state: State) -> None:
        """Goes on where `get_state` was called."""
        self._observations = RunningMoments.from_state(state["observations"])
        self._returns = RunningMoments.from_state(state["returns"])
        self._running = dict(state["running"])

    def _fresh_rows(self, chunk: SingleAgentEpisode) -> Array:
        """The encoded observations of a chunk that no earlier chunk had, [T or T + 1, D]."""
        rows = self._encoder.encode(chunk.get_observations())
        return rows[1:] if chunk.t_started > 0 else rows

    def _discounted(self, chunk: SingleAgentEpisode, running: dict[str, float]) -> Array:
        """R_t = γ R_{t-1} + r_t over a chunk, float64 [T]; R goes on where the last chunk ended."""
        rewards = RewardTransform(self.settings.clip_rewards).clipped(
            np.asarray(chunk.get_rewards(), np.float64)
        )
        gamma, total = self.settings.gamma, running.pop(chunk.id_, 0.0)
        sums = []
        for reward in rewards.tolist():
            total = gamma * total + reward
            sums.append(total)
        if not chunk.is_done:
            running[chunk.id_] = total
        return np.array(sums)

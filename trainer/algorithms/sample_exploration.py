"""The exploration strategy of the main process: sees every sample before it is learnt from.

It may change the rewards (Curiosity, RE3) and adapt itself (ParameterNoise). Both happen in the
order of env slots and time, after all runners have answered, so it makes no difference how slots
are spread over runners.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trainer.connectors import before_decoding
from trainer.episodes import SingleAgentEpisode, nested
from trainer.episodes.conversion import with_rewards
from trainer.episodes.episode_columns import ACTION_DIST_INPUTS, OBS
from trainer.exploration import Exploration, ExplorationSpec, ExploredChunk, ExploredSample
from trainer.learners import Learner
from trainer.types import Array, State


class SampleExploration:
    """The strategy of the main process and its state.

    Attributes:
        strategy: one like those of the runners, with `worker_index` 0.
    """

    def __init__(
        self,
        spec: ExplorationSpec,
        learner: Learner,
        *,
        root_seed: int,
        num_workers: int,
        normalize_actions: bool,
    ) -> None:
        """Makes the strategy.

        Raises:
            UnsupportedSpaceError: it cannot serve the action space.
            ConfigError: an argument of it is wrong.
        """
        module = learner.module
        self.strategy = spec.make(
            before_decoding(module.action_space, normalize_actions=normalize_actions),
            distribution=module.action_distribution,
            num_workers=num_workers,
            worker_index=0,
        )
        self._learner = learner
        self._encoder = learner.make_encoder()
        self._observes = type(self.strategy).observe_sample is not Exploration.observe_sample
        if self._observes:
            self.strategy.prepare(obs_size=self._encoder.size, root_seed=root_seed)

    @property
    def has_state(self) -> bool:
        """Whether there is something to save."""
        return not self.strategy.state_follows and bool(self.strategy.get_state())

    def observe(
        self, chunks: Sequence[SingleAgentEpisode], *, timestep: int, iteration: int
    ) -> Sequence[SingleAgentEpisode]:
        """Shows a sample to the strategy.

        Args:
            chunks: what the module acted in, from all runners.
            timestep: env steps sampled before.
            iteration: training iterations completed before.

        Returns:
            the chunks, with the rewards that are to be learnt from. Those given stay as they are: a
            local runner goes on to use them.
        """
        self.strategy.last_timestep = timestep
        if not self._observes:
            return chunks
        self._encoder.normalizer = self._learner.normalization.observations
        rewards = self.strategy.observe_sample(
            ExploredSample(
                chunks=[self._chunk(episode) for episode in chunks],
                timestep=timestep,
                iteration=iteration,
                clean_inputs=self._clean_inputs,
            )
        )
        if rewards is None:
            return chunks
        pairs = zip(chunks, rewards, strict=True)
        return [_with_explored_rewards(episode, new) for episode, new in pairs]

    def _chunk(self, episode: SingleAgentEpisode) -> ExploredChunk:
        observations = episode.get_observations()
        inputs = None
        if ACTION_DIST_INPUTS in episode.extra_model_outputs:
            inputs = np.asarray(episode.get_extra_model_outputs(ACTION_DIST_INPUTS))
        return ExploredChunk(
            # A copy: the memory of encoded lists is used again.
            obs=self._encoder.encode(observations).copy(),
            actions=_stacked(episode.get_actions()),
            rewards=np.array(episode.get_rewards(), np.float64),
            inputs=inputs,
        )

    def _clean_inputs(self, obs: Array) -> Array:
        return self._learner.module.forward_exploration({OBS: obs})[ACTION_DIST_INPUTS]

    def get_state(self) -> State:
        """Plain data."""
        return self.strategy.get_state()

    def check_state(self, state: State) -> None:
        """Raises a CheckpointMismatchError unless `set_state` will take it; changes nothing."""
        self.strategy.check_state(state)

    def set_state(self, state: State) -> None:
        """Takes back what `get_state` gave."""
        self.strategy.set_state(state)


def _with_explored_rewards(episode: SingleAgentEpisode, rewards: Array) -> SingleAgentEpisode:
    """A chunk with other rewards (float64, one per step), whose return stays the env's."""
    data = np.array(episode.rewards.data, np.float64)
    data[episode.rewards.lookback :] = rewards
    return with_rewards(episode, data, keeps_return=True)


def _stacked(items: Any) -> Any:
    return nested.stack(items, name="actions") if isinstance(items, list) else items

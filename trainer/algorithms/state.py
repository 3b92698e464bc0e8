"""What is in a checkpoint of an algorithm, and in which order it is restored.

config        plain settings, for `from_checkpoint`; the root seed
counters      lifetime counts
learner/…     weights, optimiser, coefficients
connectors    running statistics of observations and rewards, if they are normalised
exploration   what the strategy of the main process has learnt or adapted, if it has state
env_runners   where every env slot stands, running episodes included; the runners' callbacks
evaluation    number of the next evaluation, the last result, its runners' callbacks
metrics       windows, sums, the last episodes
callbacks     the callback objects of the main process
actors        the states of actors, if there are any that are `Checkpointable`; asked and told by
              `algorithm`, because they are no part of the algorithm
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from checkpoints import check_shape
from checkpoints.state_shapes import TEXT, anything, dict_of, fields, list_of, seed
from trainer.actors.handles import get_actor_states, set_actor_states, with_kept
from trainer.connectors import NormalizationStatistics, before_decoding
from trainer.episodes import SingleAgentEpisode, nested
from trainer.episodes.conversion import with_rewards
from trainer.episodes.episode_columns import ACTION_DIST_INPUTS, OBS
from trainer.exploration import Exploration, ExplorationSpec, ExploredChunk, ExploredSample
from trainer.learners import Learner
from trainer.metrics import EpisodeStatistics, MetricsLogger
from trainer.metrics.logger import EPISODES_STATE, LOGGER_STATE
from trainer.types import Array, State

# ---- state

ACTORS: Final = "actors"

CONFIG: Final = fields(
    {"class": TEXT, "settings": dict_of(anything), "code": list_of(TEXT), "root_seed": seed}
)
_METRICS: Final = fields({"logger": LOGGER_STATE, "episodes": EPISODES_STATE})


class ConfigRecord:
    """The settings, which are written but never applied: an algorithm keeps its own.

    The root seed is the exception: the numbers to come follow from it.
    """

    def __init__(self, get_state: Callable[[], State], adopt: Callable[[int], None]) -> None:
        """Wraps an algorithm's settings.

        Args:
            get_state: gives them, as they are now.
            adopt: takes another root seed.
        """
        self._get_state = get_state
        self._adopt = adopt

    def get_state(self) -> State:
        """The settings and the root seed."""
        return self._get_state()

    def check_state(self, state: State) -> None:
        """Raises a CheckpointMismatchError unless `set_state` will take it."""
        check_shape(state, CONFIG)

    def set_state(self, state: State) -> None:
        """Adopts the root seed."""
        self._adopt(state["root_seed"])


class ConnectorsRecord:
    """The statistics of normalisation; what follows from them comes into force with them."""

    def __init__(self, statistics: NormalizationStatistics, apply: Callable[[], None]) -> None:
        """Wraps statistics.

        Args:
            statistics: of observations and rewards.
            apply: brings into force what follows from them.
        """
        self._statistics = statistics
        self._apply = apply

    def get_state(self) -> State:
        """The statistics."""
        return self._statistics.get_state()

    def check_state(self, state: State) -> None:
        """Raises a CheckpointMismatchError unless `set_state` will take it."""
        self._statistics.check_state(state)

    def set_state(self, state: State) -> None:
        """Takes statistics, and brings into force what follows from them."""
        self._statistics.set_state(state)
        self._apply()


class MetricsRecord:
    """The logger and the episode statistics under one name."""

    def __init__(self, logger: MetricsLogger, episodes: EpisodeStatistics) -> None:
        self._logger = logger
        self._episodes = episodes

    def get_state(self) -> State:
        """Both states."""
        return {"logger": self._logger.get_state(), "episodes": self._episodes.get_state()}

    def check_state(self, state: State) -> None:
        """Raises a CheckpointMismatchError unless `set_state` will take it."""
        check_shape(state, _METRICS)

    def set_state(self, state: State) -> None:
        """Takes both states."""
        self._logger.set_state(state["logger"])
        self._episodes.set_state(state["episodes"])


class ActorStates:
    """The states of actors that belong to the checkpoints of an algorithm.

    Actors are no part of the algorithm: those are asked and restored that there are.
    """

    def __init__(self) -> None:
        # Of the checkpoint that was restored: states of actors that were not made here.
        self._kept: Mapping[str, Mapping[str, Any]] = {}
        self._may_miss_some = False

    def get(self) -> State:
        """The states of all actors, and those that are kept.

        Raises:
            ActorDiedError: an actor is gone whose state belongs to it, and was not made again.
        """
        found = get_actor_states(may_miss_some=self._may_miss_some)
        return with_kept(found, self._kept)

    def set(self, state: State) -> None:
        """Gives actors their states; keeps those of actors that are not there."""
        self._kept = set_actor_states(state)

    def names_kept(self) -> list[str]:
        """The names of actors whose states are kept though they are not there."""
        return sorted(name for names in self._kept.values() for name in names)

    @contextlib.contextmanager
    def missing_allowed(self) -> Iterator[None]:
        """Within it a state may be taken without actors that are gone: to compare, or to undo."""
        before, self._may_miss_some = self._may_miss_some, True
        try:
            yield
        finally:
            self._may_miss_some = before

    @contextlib.contextmanager
    def restoring(self, *, all_of_them: bool) -> Iterator[None]:
        """Within it states are restored; those that were kept belong to another state."""
        kept = self._kept
        if all_of_them:
            self._kept = {}
        try:
            with self.missing_allowed():
                yield
        except BaseException:
            self._kept = kept
            raise


# ---- sample exploration
#
# The exploration strategy of the main process: sees every sample before it is learnt from. It may
# change the rewards (Curiosity, RE3) and adapt itself (ParameterNoise). Both happen in the order
# of env slots and time, after all runners have answered, so it makes no difference how slots are
# spread over runners.


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

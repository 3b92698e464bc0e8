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
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from checkpoints import check_shape
from checkpoints.state_shapes import TEXT, anything, dict_of, fields, list_of, seed
from trainer.actors.handles import get_actor_states, set_actor_states, with_kept
from trainer.connectors import NormalizationStatistics
from trainer.metrics import EpisodeStatistics, MetricsLogger
from trainer.metrics.logger import EPISODES_STATE, LOGGER_STATE
from trainer.types import State

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

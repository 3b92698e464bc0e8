"""Many rounds in one request to the runner of this process, with the bytes of single rounds.

A request, its answer, chunks of episodes and their way into the replay buffer cost more than a few
env steps and an update of a small network. So where nobody looks at single rounds, the runner is
asked once for many of them, and learns from this object in between:

    with buffer.writing(num_steps) as writer:
        stretch = Stretch(writer=writer, …)
        sample = ask(num_steps, rounds=stretch)      steps → rows → updates → weights → steps …
    stretch.make_metrics()                           of the last update
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from trainer.algorithms.training_iteration import IterationResult
from trainer.episodes import SingleAgentEpisode
from trainer.learners.replay_learner import ReplayLearner
from trainer.modules import RLModule
from trainer.replay import ReplayBuffer
from trainer.replay.episode_writer import EpisodeWriter

_OF_STATE: Final = ("get_state", "set_state", "copy_buffers")
"""What a class of modules has of its own that keep more than parameters."""


class StretchError(Exception):
    """Something failed in a stretch; in single rounds it says more, if it fails again."""


class Stretch:
    """The rounds of one request; see `trainer.env_runners.messages.Rounds`.

    Attributes:
        steps_per_slot: env steps of a round, in each slot.
        num_updates: made so far.
        num_sampled_at_update: env steps of the whole run when the last of them were made.
        make_metrics: makes the metrics of the last of them; None before there is one.
        own_error: what was raised neither by playing nor by storing, but by learning or by what is
            called after each round.
    """

    def __init__(
        self,
        *,
        learner: ReplayLearner,
        writer: EpisodeWriter,
        buffer: ReplayBuffer,
        result: IterationResult,
        steps_per_slot: int,
        num_slots: int,
        num_sampled: int,
        num_updates_due: Callable[[int, int], int],
        look_after: Callable[[], object],
    ) -> None:
        """No round is played yet.

        Args:
            learner: learns after each round.
            writer: of the buffer.
            buffer: what it learns from.
            result: where times are noted.
            steps_per_slot: see above.
            num_slots: which play side by side.
            num_sampled: env steps of the whole run so far.
            num_updates_due: how many updates a round pays for, after so many env steps of the whole
                run, and of the round.
            look_after: called after each round.
        """
        self.steps_per_slot = steps_per_slot
        self.num_updates = self.num_sampled_at_update = 0
        self.make_metrics: Callable[[], dict[str, Any]] | None = None
        self.own_error: Exception | None = None
        self._learner, self._writer, self._buffer, self._result = learner, writer, buffer, result
        self._num_steps = steps_per_slot * num_slots
        self._num_sampled = num_sampled
        self._num_updates_due, self._look_after = num_updates_due, look_after

    def end_round(self, played: Sequence[SingleAgentEpisode], module: RLModule) -> int:
        """Stores what was played, learns, and gives the module the new weights."""
        result, before = self._result, self._num_sampled
        self._num_sampled = before + self._num_steps
        with result.time("replay_buffer_add_timer"):
            self._writer.write(played)
        num_updates = self._num_updates_due(self._num_sampled, self._num_steps)
        if num_updates:
            with result.time("learner_update_timer"), self._noting_errors():
                self.make_metrics = self._learn(num_updates, before)
            with result.time("synch_weights"):
                self._hand_over(module)
            self.num_updates += num_updates
            self.num_sampled_at_update = self._num_sampled
        with self._noting_errors():
            self._look_after()
        return self._num_sampled

    @contextlib.contextmanager
    def _noting_errors(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.own_error = error
            raise

    def _learn(self, num_updates: int, num_sampled_before: int) -> Callable[[], dict[str, Any]]:
        return self._learner.update_from(
            self._buffer,
            num_updates=num_updates,
            num_env_steps_sampled_lifetime=self._num_sampled,
            num_env_steps_sampled_before=num_sampled_before,
        )

    def _hand_over(self, module: RLModule) -> None:
        """Gives the module that acts the weights of the one that learnt."""
        source, kind = self._learner.module, type(module)
        if all(getattr(kind, name) is getattr(RLModule, name) for name in _OF_STATE):
            module.parameters.follow(source.parameters)
        else:
            module.set_state(source.get_state(inference_only=module.inference_only))

"""Says so when whole episodes were asked for and none comes to its end.

An env whose episodes never end makes such a request run for ever, without a sign of what it waits
for. It may also just have long episodes, so the request goes on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from trainer.env_runners.env_slot import EnvSlot
from trainer.env_runners.spec import EnvRunnerSpec, SampleRequest

_LOGGER = logging.getLogger(__name__)

PATIENCE_S: Final = 60.0
"""Seconds without the end of an episode …"""
PATIENCE_STEPS: Final = 1000
"""… and steps of one, after which it is said."""


class EndlessEpisodes:
    """Watches one request.

    watch = EndlessEpisodes(spec, request)
    watch.look(slots, num_ended=…)         after each step of all slots; costs 0.1 µs
    """

    def __init__(
        self,
        spec: EnvRunnerSpec,
        request: SampleRequest,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begins to watch.

        Args:
            spec: of the runner.
            request: what it is to play.
            clock: gives seconds.
        """
        self._spec = spec
        self._clock = clock
        self._num_ended = 0
        self._ended_at = clock()
        self._is_silent = not any(
            assignment.whole_episodes or assignment.num_episodes
            for assignment in request.assignments
        )

    def look(self, slots: Sequence[EnvSlot], *, num_ended: int) -> None:
        """Logs a warning, once, when no episode has ended for too long.

        Args:
            slots: those that play.
            num_ended: episodes that have ended so far.
        """
        if self._is_silent:
            return
        if num_ended != self._num_ended:
            self._num_ended, self._ended_at = num_ended, self._clock()
        elif self._clock() - self._ended_at >= PATIENCE_S:
            longest = max(slots, key=lambda slot: slot.num_steps_played)
            if longest.num_steps_played >= PATIENCE_STEPS:
                self._is_silent = True
                self._tell(longest)

    def _tell(self, slot: EnvSlot) -> None:
        setting = (
            'evaluation(evaluation_duration_unit="timesteps")'
            if self._spec.in_evaluation
            else 'env_runners(batch_mode="truncate_episodes")'
        )
        _LOGGER.warning(
            "Env %r: no episode has ended for %.0f s; the one of sub-env %d of env runner %d has "
            "%d steps so far. Whole episodes were asked for, so this goes on until they end. If "
            "they never do, limit them with gymnasium.wrappers.TimeLimit(env, max_episode_steps=…) "
            "or ask for steps: %s.",
            self._spec.env_factory.name,
            self._clock() - self._ended_at,
            slot.index,
            self._spec.worker_index,
            slot.num_steps_played,
            setting,
        )

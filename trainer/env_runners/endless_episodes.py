"""Says so when whole episodes were asked for and none comes to its end; ends an evaluation then.

An env whose episodes never end makes such a request run for ever, without a sign of what it waits
for. It may also just have long episodes, so the request goes on; that of an evaluation only as long
as `evaluation_sample_timeout_s` says.
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
    if watch.look(slots, num_ended=…):     after each step of all slots; costs 0.1 µs
        end the request
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
        is_watched = any(
            assignment.whole_episodes or assignment.num_episodes
            for assignment in request.assignments
        )
        self._limit_s = spec.episode_limit_s if is_watched else None
        self._is_off = not is_watched
        self._is_silent = False

    def look(self, slots: Sequence[EnvSlot], *, num_ended: int) -> bool:
        """Logs a warning, once, when no episode has ended for too long.

        Args:
            slots: those that play.
            num_ended: episodes that have ended so far.

        Returns:
            whether the request is to end as it is.
        """
        if self._is_off:
            return False
        if num_ended != self._num_ended:
            self._num_ended, self._ended_at = num_ended, self._clock()
            return False
        waited_s = self._clock() - self._ended_at
        if self._limit_s is not None and waited_s >= self._limit_s:
            return True
        if waited_s >= PATIENCE_S and not self._is_silent:
            longest = max(slots, key=lambda slot: slot.num_steps_played)
            if longest.num_steps_played >= PATIENCE_STEPS:
                self._is_silent = True
                self._tell(longest)
        return False

    def _tell(self, slot: EnvSlot) -> None:
        setting = (
            'evaluation(evaluation_duration_unit="timesteps")'
            if self._spec.in_evaluation
            else 'env_runners(batch_mode="truncate_episodes")'
        )
        _LOGGER.warning(
            "Env %r: no episode has ended for %.0f s; the one of sub-env %d of env runner %d has "
            "%d steps so far. Whole episodes were asked for, so this goes on until %s. If "
            "they never do, limit them with gymnasium.wrappers.TimeLimit(env, max_episode_steps=…) "
            "or ask for steps: %s.",
            self._spec.env_factory.name,
            self._clock() - self._ended_at,
            slot.index,
            self._spec.worker_index,
            slot.num_steps_played,
            "they end"
            if self._limit_s is None
            else f"they end, or none does within evaluation_sample_timeout_s={self._limit_s}",
            setting,
        )

"""Firing the events of running episodes, as far as somebody listens."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from trainer.env_runners.env_slot import EnvSlot
from trainer.env_runners.runner_parts import RunnerParts
from trainer.env_runners.whereabouts import Whereabouts

_EVENTS: Final = ("on_episode_created", "on_episode_start", "on_episode_step", "on_episode_end")


class EpisodeEvents:
    """Fires what concerns a running episode; events that nobody listens to cost nothing.

    Attributes:
        listens_to_steps, listens_to_ends: whether somebody does.
        seconds: spent in callbacks so far.
    """

    def __init__(
        self, runner: RunnerParts, slots: Sequence[EnvSlot], whereabouts: Whereabouts
    ) -> None:
        self.seconds = 0.0
        self._runner = runner
        self._whereabouts = whereabouts
        self._slots_with_tasks = [slot for slot in slots if slot.tasks is not None]
        emitters = {event: runner.callbacks.emitter(event) for event in _EVENTS}
        self._emitters = {event: emit for event, emit in emitters.items() if emit is not None}
        self.listens_to_steps = "on_episode_step" in self._emitters
        self.listens_to_ends = "on_episode_end" in self._emitters

    def fire(self, event: str, slot: EnvSlot, **more: Any) -> None:
        """Fires an event for the running episode of a slot."""
        emit = self._emitters.get(event)
        if emit is None:
            return
        runner, begun = self._runner, time.perf_counter()
        self._whereabouts.doing(event)
        emit(
            episode=slot.episode,
            env_runner=runner,
            metrics_logger=runner.metrics,
            env=runner.env,
            rl_module=runner.module,
            env_index=slot.index,
            **more,
        )
        self.notice_tasks()
        self.seconds += time.perf_counter() - begun

    def notice_tasks(self) -> None:
        """Notes tasks that somebody changed: a callback may reach every sub-env of its runner."""
        for slot in self._slots_with_tasks:
            slot.notice_task()

"""The tasks of a group's envs: set from the main process, by number of the env slot.

A task is a part of a slot's position. To set one changes the position at once, in the main process;
the runner is told with the next thing that it is asked, and whoever replaces it starts from there.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from typing import Any

from callbacks import PackingError
from callbacks.packing import pack_object
from checkpoints import StateError, encode
from trainer.env_runners.messages import SlotPosition
from trainer.errors import ConfigError, SerializationError, TaskError
from trainer.runner_group.records import RunnerRecords
from trainer.types import State

_LOGGER = logging.getLogger(__name__)


class EnvTasks:
    """The tasks of a group's envs: parts of the slots' positions."""

    def __init__(self, records: RunnerRecords) -> None:
        self._records = records

    def set(self, tasks: Sequence[Any]) -> None:
        """Gives each sub-env its task; see `EnvRunnerGroup.set_tasks`."""
        num_slots = self._records.num_slots
        if len(tasks) != num_slots:
            raise ConfigError(
                f"set_tasks() got {len(tasks)} tasks for {num_slots} sub-envs of "
                f"{len(self._records.places)} env runner(s). Give one for each, or one for all "
                "with set_task(task)."
            )
        self.require("set_task()")
        for task in tasks if self._records.is_remote else ():
            try:
                pack_object(task, name="the task")
            except PackingError as error:
                raise SerializationError(f"The task {task!r:.80} was not set: {error}") from error
        for place in self._records:
            first = place.spec.first_slot
            for index, task in enumerate(tasks[first : first + place.spec.num_envs]):
                place.set_task(index, copy.deepcopy(task))

    def get(self) -> list[Any]:
        """The tasks of all sub-envs, by env slot; None where there is none.

        As of the last answer of their runner, and what was set since.
        """
        return [
            position.tasks[-1].task if position.tasks else None
            for position in self._records.positions()
        ]

    def positions(self) -> list[State]:
        """The tasks as slots of a state without running episodes; empty if there are none."""
        return [
            SlotPosition(tasks=position.task_now).to_state()
            for position in self._records.positions()
            if position.tasks
        ]

    def require(self, what_for: str) -> None:
        """Makes sure that the envs can be given tasks.

        Args:
            what_for: what needs them, for the message.

        Raises:
            TaskError: they cannot; says what they lack.
        """
        for place in self._records:
            if place.why_no_tasks:
                raise TaskError(
                    f"{what_for} needs an env that can be given tasks, and "
                    f"{place.spec.env_factory.name!r} cannot: {place.why_no_tasks}. Give the env, "
                    "or a wrapper around it, set_task(task) and get_task(); "
                    "`trainer.TaskSettableEnv` shows how."
                )

    def check_can_be_saved(self) -> None:
        """Makes sure that all tasks are plain data.

        Raises:
            StateError: one is not; names the env and the task.
        """
        for place in self._records:
            for index, position in enumerate(place.positions):
                where = f"sub-env {index} of {place.spec.title}"
                _check_plain([entry.task for entry in position.tasks], where)


def _check_plain(tasks: Sequence[Any], where: str) -> None:
    for task in tasks:
        try:
            encode({"task": task})
        except StateError as error:
            raise StateError(
                f"The task {task!r:.80} of {where} cannot be saved: {error}. Tasks are part of a "
                "checkpoint, so they must be plain data: numbers, texts, lists, dicts, arrays. Let "
                "get_task() and set_task() speak of such data, for example of a name or a number "
                "that stands for the task."
            ) from error

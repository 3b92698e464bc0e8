"""The tasks of a group's envs: set from the main process, by number of the env slot.

A task is a part of a slot's position. To set one changes the position at once, in the main process;
the runner is sent it with the next thing that it is asked, and a replacement starts from there.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from callbacks import PackingError
from callbacks.packing import pack_object
from checkpoints import StateError, encode
from trainer.env_runners.messages import SlotPosition
from trainer.errors import ConfigError, SerializationError, TaskError
from trainer.runner_group.records import RunnerRecords
from trainer.types import State
from trainer_toolkit.plain_classes import to_plain
from trainer_toolkit.trees import copied_if_possible


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
                f"{len(self._records.by_index)} env runner(s). Give one for each, or one for all "
                "with set_task(task)."
            )
        self.require("set_task()")
        for task in tasks if self._records.is_remote else ():
            undone = f"The task {task!r:.80} was not set"
            require_that_it_travels(task, name="the task", undone=undone)
        for record in self._records:
            first = record.spec.first_slot
            for index, task in enumerate(tasks[first : first + record.spec.num_envs]):
                record.set_task(index, copy.deepcopy(task))

    def get(self) -> list[Any]:
        return [
            copied_if_possible(position.tasks[-1].task) if position.tasks else None
            for position in self._records.positions()
        ]

    def positions(self) -> list[State]:
        """The tasks as slots of a state without running episodes; empty if there are none."""
        return [
            to_plain(SlotPosition(tasks=position.task_now))
            for position in self._records.positions()
            if position.tasks
        ]

    def require(self, what_for: str) -> None:
        """Raises a TaskError that says what they lack unless the envs can be given tasks."""
        for record in self._records:
            if record.why_no_tasks:
                raise TaskError(
                    f"{what_for} needs an env that can be given tasks, and "
                    f"{record.spec.env_factory.name!r} cannot: {record.why_no_tasks}. Give the "
                    "env, or a wrapper around it, set_task(task) and get_task(); "
                    "`trainer.TaskSettableEnv` shows how."
                )

    def check_can_be_saved(self) -> None:
        """Raises a StateError that names env and task unless all tasks are plain data."""
        for record in self._records:
            for index, position in enumerate(record.taken.positions):
                where = f"sub-env {index} of {record.spec.title}"
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


def require_that_it_travels(thing: Any, *, name: str, undone: str) -> None:
    """Refuses what cannot be sent before it is: a failing call ends all others in flight."""
    try:
        pack_object(thing, name=name)
    except PackingError as error:
        raise SerializationError(f"{undone}: {error}") from error

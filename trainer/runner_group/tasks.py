"""The tasks of a group's envs: set from the main process, by number of the env slot.

A task is a part of a slot's position. To set one changes the position at once, in the main process;
the runner is told with the next thing that it is asked, and whoever replaces it starts from there.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from callbacks import PackingError
from callbacks.packing import pack_object
from checkpoints import StateError, encode
from trainer.env_runners.messages import SlotPosition
from trainer.envs.tasks import TaskFunction
from trainer.errors import ConfigError, SerializationError, TaskError
from trainer.runner_group.parts import GroupParts
from trainer.types import State

_LOGGER = logging.getLogger(__name__)


class GroupTasks(GroupParts):
    """Adds the tasks of the envs to a group."""

    def set_task(self, task: Any) -> None:
        """Gives all sub-envs of all runners a task, where they stand.

        It is sent along with the next thing that a runner is asked; runners whose envs have it
        already are sent nothing. Runners that are replaced start with it.

        Args:
            task: whatever `set_task` of the env takes.

        Raises:
            TaskError: the env cannot be given tasks. If its `set_task` refuses this one, that
                error comes with the next request.
            SerializationError: the task cannot travel to the runners.
        """
        self.set_tasks([task] * self._num_slots())

    def set_tasks(self, tasks: Sequence[Any]) -> None:
        """Like `set_task`, with a task for each sub-env.

        Args:
            tasks: one per env slot: those of the first runner, then those of the second, …

        Raises:
            ConfigError: their number is not that of the slots.
        """
        if len(tasks) != self._num_slots():
            raise ConfigError(
                f"set_tasks() got {len(tasks)} tasks for {self._num_slots()} sub-envs of "
                f"{len(self._places)} env runner(s). Give one for each, or one for all with "
                "set_task(task)."
            )
        self.require_tasks("set_task()")
        self._finish_open()
        for task in tasks if self._pool is not None else ():
            try:
                pack_object(task, name="the task")
            except PackingError as error:
                raise SerializationError(f"The task {task!r:.80} was not set: {error}") from error
        for place in self._places.values():
            first = place.spec.first_slot
            for index, task in enumerate(tasks[first : first + place.spec.num_envs]):
                place.set_task(index, copy.deepcopy(task))

    def get_tasks(self) -> list[Any]:
        """The tasks of all sub-envs, by env slot; None where there is none.

        As of the last answer of their runner, and what was set since.
        """
        return [
            position.tasks[-1].task if position.tasks else None
            for place in self._places.values()
            for position in place.positions
        ]

    def get_task_positions(self) -> list[State]:
        """The tasks as slots of a state without running episodes; empty if there are none."""
        return [
            SlotPosition(tasks=position.task_now).to_state()
            for place in self._places.values()
            for position in place.positions
            if position.tasks
        ]

    def set_tasks_by(
        self, function: Callable[..., Any], results: Mapping[str, Any], *, name: str
    ) -> None:
        """Lets a function choose the task of each sub-env, in the processes where they live.

        Args:
            function: `function(results, env, env_context) -> task`.
            results: what it is given; it must be possible to send it.
            name: what messages call the function.

        Raises:
            TaskError: the function raised, or `set_task` did; names the runner and the sub-env.
        """
        self.require_tasks(name)
        asks = self._asks(TaskFunction(function, results), None, list(self._places))
        result = self._run(asks)
        self._commit_applied(result.answers)
        self._tell_recreated()
        result.raise_first_failure(doing=f"asked {name}")

    def require_tasks(self, what_for: str) -> None:
        """Makes sure that the envs can be given tasks.

        Args:
            what_for: what needs them, for the message.

        Raises:
            TaskError: they cannot; says what they lack.
        """
        for place in self._places.values():
            if place.why_no_tasks:
                raise TaskError(
                    f"{what_for} needs an env that can be given tasks, and "
                    f"{place.spec.env_factory.name!r} cannot: {place.why_no_tasks}. Give the env, "
                    "or a wrapper around it, set_task(task) and get_task(); "
                    "`trainer.TaskSettableEnv` shows how."
                )

    def check_tasks_can_be_saved(self) -> None:
        """Makes sure that all tasks are plain data.

        Raises:
            StateError: one is not; names the env and the task.
        """
        for place in self._places.values():
            for index, position in enumerate(place.positions):
                where = f"sub-env {index} of {place.spec.title}"
                _check_plain([entry.task for entry in position.tasks], where)

    def _num_slots(self) -> int:
        return sum(place.spec.num_envs for place in self._places.values())


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

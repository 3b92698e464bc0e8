"""The tasks of one sub-env: which are in force since when, and how they are set.

A running episode is its seed, its actions, and the tasks that were set in between. Tasks may be set
by anybody who gets hold of the env: so after every event and every function of users the env is
asked for its task, and a difference is noted with the step at which the episode stands.
"""

from __future__ import annotations

import copy
from typing import Any

import gymnasium

from trainer.curriculum import TaskInForce, followed_by, same_task, task_layer
from trainer.errors import TaskError


class SlotTasks:
    """Asks, notes and sets the tasks of one sub-env that can be given tasks.

    Attributes:
        in_force: as in `SlotPosition.tasks`; never empty.
    """

    def __init__(self, layer: Any, *, where: str) -> None:
        """Asks for the first task.

        Args:
            layer: the layer of the sub-env that has `set_task` and `get_task`.
            where: which sub-env it is, for messages.

        Raises:
            TaskError: `get_task` raised.
        """
        self._layer = layer
        self._where = where
        self.in_force: tuple[TaskInForce, ...] = (TaskInForce(0, self._ask()),)

    @classmethod
    def of(cls, env: gymnasium.Env[Any, Any], *, where: str) -> SlotTasks | None:
        """The tasks of a sub-env; None if it has none."""
        layer = task_layer(env)
        return None if layer is None else cls(layer, where=where)

    @property
    def now(self) -> Any:
        """The task that was in force when last looked."""
        return self.in_force[-1].task

    def begin_episode(self) -> None:
        """Notes what is in force when the env is about to be reset."""
        self.in_force = (TaskInForce(0, self._ask()),)

    def put_back(self, tasks: tuple[TaskInForce, ...], step: int) -> None:
        """Lets these be the tasks in force; none at all leaves the task as it is.

        Args:
            tasks: as in `SlotPosition.tasks`.
            step: env steps that the running episode has made.

        Raises:
            TaskError: `set_task` raised.
        """
        if not tasks:
            self.begin_episode()
            return
        self.enter(tasks[-1].task)
        self.in_force = tasks
        self.notice(step)

    def end_episode(self) -> None:
        """Keeps what is in force, for an episode to come."""
        self.in_force = (TaskInForce(0, self.now),)

    def notice(self, step: int) -> None:
        """Notes the env's task if it is another one than when last looked.

        The env may have changed it itself, in `step` or `reset`. That is noted, too, but does no
        harm: when the episode is played again it changes there by itself, and is left alone.

        Args:
            step: env steps that the running episode has made.
        """
        task = self._ask()
        if not same_task(task, self.now):
            self.in_force = followed_by(self.in_force, task, step=step)

    def set(self, task: Any, step: int) -> None:
        """Sets a task and notes it.

        Args:
            task: what the env gets a copy of.
            step: env steps that the running episode has made.

        Raises:
            TaskError: `set_task` raised.
        """
        self.enter(task)
        self.in_force = followed_by(self.in_force, task, step=step)
        self.notice(step)  # an env may make something else of what it is given, such as a bound

    def enter(self, task: Any) -> None:
        """Sets a task that is noted already, unless it is in force.

        Raises:
            TaskError: `set_task` raised.
        """
        if same_task(task, self._ask()):
            return
        try:
            self._layer.set_task(_copied(task))
        except Exception as error:
            raise TaskError(
                f"set_task({task!r:.80}) raised {type(error).__name__}: {error}, for "
                f"{self._where}. Every env must take every task that it is given, at any moment. "
                "Correct set_task, or give tasks that it takes."
            ) from error

    def _ask(self) -> Any:
        try:
            return _copied(self._layer.get_task())
        except Exception as error:
            raise TaskError(
                f"get_task() raised {type(error).__name__}: {error}, for {self._where}. An env "
                "that can be given tasks has one from the start, and can tell it at any moment. "
                "Give it a first task in __init__."
            ) from error


def _copied(task: Any) -> Any:
    """A copy, because an env may change its task in place, which must show as a difference.

    What cannot be copied is taken as it is; it cannot be saved either, and that error names it.
    """
    try:
        return copy.deepcopy(task)
    except Exception:  # noqa: BLE001 - whatever the object's own copying raises
        return task

"""`TaskSettableEnv`: the base class of envs that can be given tasks."""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

import gymnasium

ObsT = TypeVar("ObsT")
ActT = TypeVar("ActT")


class TaskSettableEnv(gymnasium.Env[ObsT, ActT]):
    """An env whose difficulty, or anything else about it, can be set from outside.

        class Corridor(TaskSettableEnv):
            def __init__(self, env_config):
                self.length = 2  # an env has a task from the start

            def get_task(self):
                return self.length

            def set_task(self, task):
                self.length = task

    A task is plain data: numbers, texts, lists, dicts, arrays. It takes effect where the env
    applies it, at once or at the next reset; `get_task()` gives what `set_task()` was last given.
    Deriving from this class is not needed: any env or wrapper that has both methods counts as
    task-settable.
    """

    def sample_tasks(self, n_tasks: int) -> list[Any]:
        """Draws tasks; for users, nothing here calls it.

        Args:
            n_tasks: how many.
        """
        del n_tasks
        self._refuse("sample_tasks", "return a list of `n_tasks` tasks")

    def set_task(self, task: Any) -> None:
        """Takes up another task, at any moment, also in the middle of an episode."""
        del task
        self._refuse("set_task", "keep the task, and use it from then on or from the next reset")

    def get_task(self) -> Any:
        """What `set_task` was last given, or the first task."""
        self._refuse("get_task", "return the task that was set last, or the first one")

    def _refuse(self, method: str, what_to_do: str) -> NoReturn:
        raise NotImplementedError(
            f"{type(self).__name__} is a TaskSettableEnv without a {method}() of its own, so it "
            f"was called in vain. Write {type(self).__name__}.{method}: {what_to_do}."
        )

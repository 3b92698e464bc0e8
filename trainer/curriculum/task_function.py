"""`env_task_fn` on its way to the envs: called beside each of them, where its runner lives."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trainer.curriculum.layers import task_layer
from trainer.curriculum.tasks import same_task
from trainer.errors import TaskError

NUM_ARGUMENTS = 3


@dataclass(frozen=True)
class TaskFunction:
    """A curriculum function and what it is called with, for every sub-env of a runner.

    Attributes:
        function: `env_task_fn(train_results, task_settable_env, env_ctx) -> task`.
        results: of the iteration, without the config.
    """

    function: Callable[[Mapping[str, Any], Any, Any], Any]
    results: Mapping[str, Any]

    def __call__(self, env_runner: Any) -> None:
        """Sets the task of each sub-env for which the function gives another one.

        Raises:
            TaskError: the function, `get_task` or `set_task` raised, or the function returned
                nothing; names runner and sub-env.
        """
        pairs = zip(env_runner.env.envs, env_runner.env.contexts, strict=True)
        for index, (wrapped, context) in enumerate(pairs):
            where = f"sub-env {index} of env runner {env_runner.worker_index}"
            env: Any = task_layer(wrapped)
            task = _called(where, "env_task_fn", self.function, self.results, env, context)
            before = _called(where, "get_task", env.get_task)
            if task is None and before is not None:
                raise TaskError(
                    f"env_task_fn returned None for {where}, whose task is {before!r:.80}; is a "
                    "`return` missing? Return `task_settable_env.get_task()` to keep the task."
                )
            if not same_task(task, before):
                _called(where, f"set_task({task!r:.80})", env.set_task, task)

    @staticmethod
    def takes_its_arguments(function: Callable[..., Any]) -> bool:
        """Whether a function can be called with results, env and context, in this order."""
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):  # some callables written in C have no signature
            return True
        try:
            signature.bind(*range(NUM_ARGUMENTS))
        except TypeError:
            return False
        return True


def _called(where: str, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except Exception as error:
        raise TaskError(
            f"{name} raised {type(error).__name__}: {error}, for {where}. No task of this "
            "iteration was set, and the iteration is undone. Correct it, or let the curriculum "
            "give tasks that the env takes."
        ) from error

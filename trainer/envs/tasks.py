"""Curricula: envs that can be given tasks, where they are among wrappers, what tasks are."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import gymnasium

from trainer.errors import TaskError
from trainer_toolkit.trees import copied_if_possible, same

# ---- tasks
#
# What tasks are here: any plain data, compared by value, and when which of them was in force.


@dataclass(frozen=True)
class TaskInForce:
    """A task, and from when on it was in force in an episode.

    Attributes:
        step: env steps of the episode that were made before it was set.
        task: whatever `set_task` takes.
    """

    step: int
    task: Any


def followed_by(tasks: tuple[TaskInForce, ...], task: Any, *, step: int) -> tuple[TaskInForce, ...]:
    """The tasks of a running episode after another one was set.

    A task under which no step was made is left out, but for the one that the reset was made under.

    Args:
        tasks: in force so far; the first one was at the reset.
        task: in force now.
        step: env steps that the episode has made.
    """
    is_replaced = len(tasks) > 1 and tasks[-1].step == step
    return (*(tasks[:-1] if is_replaced else tasks), TaskInForce(step, task))


# ---- task settable env

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


# ---- layers
#
# Finding an env in a stack of wrappers: the user's own object, and the layer that takes tasks.
# From gymnasium 1.0 on wrappers do not forward the methods of what they wrap, so a caller has to
# look for them.

_WRAPPERS_OF_OTHERS = ("gymnasium.wrappers.", "trainer.connectors.")


def layers(env: Any) -> Iterator[Any]:
    """An env and what it wraps, from the outside inwards."""
    yield env
    while isinstance(env, gymnasium.Wrapper):
        env = env.env
        yield env


def user_layer(env: Any) -> Any:
    """The user's own object: the outermost layer that is no wrapper of gymnasium's or of ours."""
    for layer in layers(env):
        if not f"{type(layer).__module__}.".startswith(_WRAPPERS_OF_OTHERS):
            return layer
    return env.unwrapped


def has_own(layer: Any, method: str) -> bool:
    """Whether a layer has a method that does more than `TaskSettableEnv` does."""
    inherited = getattr(TaskSettableEnv, method)
    return (
        callable(getattr(layer, method, None))
        and getattr(type(layer), method, None) is not inherited
    )


def task_layer(env: Any) -> Any | None:
    """The outermost layer with `set_task` and `get_task`; None if there is none."""
    for layer in layers(env):
        if has_own(layer, "set_task") and has_own(layer, "get_task"):
            return layer
    return None


def why_no_tasks(env: Any) -> str:
    """What an env lacks that cannot be given tasks, as the end of a sentence; "" if it can be."""
    if task_layer(env) is not None:
        return ""
    names = " in ".join(type(layer).__name__ for layer in layers(env))
    found = [
        method
        for method in ("set_task", "get_task")
        if any(has_own(layer, method) for layer in layers(env))
    ]
    if len(found) == 2:
        return f"no layer of it ({names}) has both set_task and get_task"
    if found:
        missing = "get_task" if found == ["set_task"] else "set_task"
        return f"it ({names}) has {found[0]}, but no {missing}"
    return f"it ({names}) has neither set_task nor get_task"


# ---- task function
#
# `env_task_fn` on its way to the envs: called beside each of them, where its runner lives.

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
        owners: set[int] = set()
        for index, (wrapped, context) in enumerate(pairs):
            where = f"sub-env {index} of env runner {env_runner.worker_index}"
            env: Any = task_layer(wrapped)
            owner = id(getattr(env.get_task, "__self__", env))
            if owner in owners:
                continue  # a vector env that steps all of them has one task, and was given it
            owners.add(owner)
            # Copied: the function may change the env's own dict and return it.
            before = copied_if_possible(_called(where, "get_task", env.get_task))
            task = _called(where, "env_task_fn", self.function, self.results, env, context)
            if task is None and before is not None:
                raise TaskError(
                    f"env_task_fn returned None for {where}, whose task is {before!r:.80}; is a "
                    "`return` missing? Return `task_settable_env.get_task()` to keep the task."
                )
            if not same(task, before):
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

"""Finding an env in a stack of wrappers: the user's own object, and the layer that takes tasks.

From gymnasium 1.0 on wrappers do not forward the methods of what they wrap, so somebody has to look
for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium

from trainer.curriculum.task_settable_env import TaskSettableEnv

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

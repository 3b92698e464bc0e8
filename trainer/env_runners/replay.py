"""Playing an episode again from its seed, its actions and its tasks, without any event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium

from trainer.curriculum import TaskInForce
from trainer.env_runners.slot_tasks import SlotTasks
from trainer.env_runners.spec import SlotPosition
from trainer.episodes import nested


def replayed(
    env: gymnasium.Env[Any, Any],
    position: SlotPosition,
    tasks: SlotTasks | None,
    to_env: Callable[[Any], Any],
    *,
    on_step: Callable[[], None],
) -> Any:
    """The newest observation of the replayed episode; None if the episode ended too early.

    Args:
        env: where to play.
        position: its seed, actions and tasks.
        tasks: of that env; None if it has none.
        to_env: turns an action of the module into one of the env.
        on_step: called after every step.
    """
    _enter_due(tasks, position.tasks[:1], 0)
    observation, _ = env.reset(seed=position.env_seed)
    is_done = False
    num_steps, due = 0, _enter_due(tasks, position.tasks[1:], 0)
    for chunk in position.actions:
        for action in nested.unstack(chunk, nested.batch_length(chunk)):
            if is_done:
                return None
            observation, _, terminated, truncated, _ = env.step(to_env(action))
            is_done = bool(terminated or truncated)
            num_steps += 1
            if due:
                due = _enter_due(tasks, due, num_steps)
            on_step()
    return None if is_done else observation


def _enter_due(
    tasks: SlotTasks | None, changes: tuple[TaskInForce, ...], num_steps: int
) -> tuple[TaskInForce, ...]:
    """Sets the tasks that were set after so many steps; returns those to come."""
    while changes and changes[0].step <= num_steps:
        if tasks is not None:
            tasks.enter(changes[0].task)
        changes = changes[1:]
    return changes

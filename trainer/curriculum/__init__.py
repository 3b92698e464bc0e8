"""Curricula: envs that can be given tasks, where they are among wrappers, what tasks are."""

from trainer.curriculum.layers import task_layer, user_layer, why_no_tasks
from trainer.curriculum.task_function import TaskFunction
from trainer.curriculum.task_settable_env import TaskSettableEnv
from trainer.curriculum.tasks import TaskInForce, followed_by, same_task

__all__ = [
    "TaskFunction",
    "TaskInForce",
    "TaskSettableEnv",
    "followed_by",
    "same_task",
    "task_layer",
    "user_layer",
    "why_no_tasks",
]

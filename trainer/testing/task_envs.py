"""Small envs that can be given tasks, for tests of curricula: yours and ours."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from trainer.testing.debug_envs import CountdownEnv
from trainer.types import Array

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class TaskCountdownEnv(CountdownEnv):
    """A CountdownEnv whose observations follow from its tasks, too; every info tells the task.

    A task takes effect at once. It goes into all observations from then on, so that an episode can
    be repeated only by who sets the same tasks at the same steps.

    Settings (`env_config`): those of CountdownEnv, and
        task: the first task, a number; 0.
        refuses: a task that `set_task` refuses with a ValueError; None.
    """

    def __init__(self, env_config: Mapping[str, Any] = _NOTHING) -> None:
        super().__init__(env_config)
        self.task: Any = env_config.get("task", 0)
        self.refuses: Any = env_config.get("refuses")

    def get_task(self) -> Any:
        """The task that was set last."""
        return self.task

    def set_task(self, task: Any) -> None:
        """Takes up another task at once.

        Raises:
            ValueError: it is the one that `env_config` says to refuse.
        """
        if self.refuses is not None and task == self.refuses:
            raise ValueError(f"there is no way to do {task!r}")
        self.task = task

    def noise(self) -> float:
        """A random number between 0 and 1, shifted by the task."""
        return (super().noise() + 0.137 * float(self.task)) % 1.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Starts an episode; the info tells the task."""
        observation, _ = super().reset(seed=seed, options=options)
        return observation, {"task": self.task}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Counts one step down; the info tells the task under which it was made."""
        observation, reward, terminated, truncated, _ = super().step(action)
        return observation, reward, terminated, truncated, {"task": self.task}

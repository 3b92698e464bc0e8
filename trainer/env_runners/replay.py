"""Playing an episode again from its seed, its actions and its tasks, without any event.

If the env's state is known as of some moment, it is enough to play what came after that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium

from trainer.curriculum import TaskInForce
from trainer.env_runners.slot_tasks import SlotTasks
from trainer.env_runners.spec import SlotPosition
from trainer.episodes import nested


@dataclass(frozen=True)
class Replay:
    """What is needed to play an episode in one env again.

    Attributes:
        env: where to play.
        tasks: of that env; None if it has none.
        to_env: turns an action of the module into one of the env.
        on_step: called after every step.
    """

    env: gymnasium.Env[Any, Any]
    tasks: SlotTasks | None
    to_env: Callable[[Any], Any]
    on_step: Callable[[], None]

    def from_reset(self, position: SlotPosition) -> Any:
        """Plays all of the episode of a position.

        Returns:
            its newest observation; None if the episode ended too early.
        """
        observation = self.reset(position)
        due = self._enter_due(position.tasks[1:], 0)
        return self._played(position.actions, due, 0, observation)

    def reset(self, position: SlotPosition) -> Any:
        """Begins the episode of a position; its first observation."""
        self._enter_due(position.tasks[:1], 0)
        observation, _ = self.env.reset(seed=position.env_seed)
        return observation

    def enter_tasks_before(self, position: SlotPosition, num_steps: int) -> None:
        """Sets what was in force last when an episode had made so many steps."""
        before = tuple(entry for entry in position.tasks if entry.step < num_steps)
        self._enter_due(before[-1:], num_steps)

    def from_state(self, position: SlotPosition, num_steps: int) -> Any:
        """Plays the rest of the episode of a position; the env stands in it already.

        Args:
            position: the actions are those of the rest, the tasks those of the whole episode.
            num_steps: env steps that the episode had made when the env stood there.

        Returns:
            its newest observation; None if the episode ended too early, or nothing was played.
        """
        # Tasks set at this very step may be newer than the state: it must not undo them.
        due = tuple(entry for entry in position.tasks[1:] if entry.step >= num_steps)
        due = self._enter_due(due, num_steps)
        return self._played(position.actions, due, num_steps, None)

    def _played(
        self,
        chunks: tuple[Any, ...],
        due: tuple[TaskInForce, ...],
        num_steps: int,
        observation: Any,
    ) -> Any:
        is_done = False
        for chunk in chunks:
            for action in nested.unstack(chunk, nested.batch_length(chunk)):
                if is_done:
                    return None
                answer = self.env.step(self.to_env(action))
                observation, _, terminated, truncated, _ = answer
                is_done = bool(terminated or truncated)
                num_steps += 1
                if due:
                    due = self._enter_due(due, num_steps)
                self.on_step()
        return None if is_done else observation

    def _enter_due(
        self, changes: tuple[TaskInForce, ...], num_steps: int
    ) -> tuple[TaskInForce, ...]:
        """Sets the tasks that were set after so many steps; returns those to come."""
        while changes and changes[0].step <= num_steps:
            if self.tasks is not None:
                self.tasks.enter(changes[0].task)
            changes = changes[1:]
        return changes

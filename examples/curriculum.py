"""A curriculum: a corridor that grows as the agent learns to walk it.

    python examples/curriculum.py

From the left end of a corridor of 12 fields, an agent that knows nothing hardly ever meets the
right end within the steps that it has. From 2 fields on, it learns the way in steps.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from trainer import PPOConfig, TaskLadder, TaskSettableEnv

LENGTHS = [2, 4, 8, 12]


class GrowingCorridor(TaskSettableEnv[Any, Any]):
    """Action 1 goes right, action 0 left; the right end pays 1. The task is the length."""

    observation_space = spaces.Box(0.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, _: Any = None) -> None:
        self.task = self.length = LENGTHS[0]
        self.position = self.steps = 0

    def get_task(self) -> int:
        return self.task

    def set_task(self, task: int) -> None:
        self.task = task  # the walls move when no agent is between them: at the next reset

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.length = self.task
        self.position = self.steps = 0
        return self._seen(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        self.position = max(0, self.position + (1 if action == 1 else -1))
        has_arrived = self.position >= self.length
        reward = 1.0 if has_arrived else -0.01
        return self._seen(), reward, has_arrived, self.steps >= 2 * self.length, {}

    def _seen(self) -> Any:
        return np.array([self.position / LENGTHS[-1], self.length / LENGTHS[-1]], np.float32)


def main(*, iterations: int = 30, num_env_runners: int = 2) -> list[int]:
    """Trains until the longest corridor is walked; returns the level of each iteration."""
    env: type[gymnasium.Env[Any, Any]] = GrowingCorridor
    config = (
        PPOConfig()
        .environment(env)
        .env_runners(num_env_runners=num_env_runners, num_envs_per_env_runner=2)
        .training(train_batch_size=400, minibatch_size=100, lr=0.003, gamma=0.95)
        .training(model={"fcnet_hiddens": [16, 16]})
        .callbacks([TaskLadder(LENGTHS, promote_at=0.8, demote_below=0.2, min_episodes=20)])
        .debugging(seed=1)
    )
    levels = []
    with config.build_algo() as algo:
        for _ in range(iterations):
            result = algo.train()
            judged = result["curriculum"]
            levels.append(judged["level"])
            print(
                f"iteration {algo.training_iteration:2d}: length {judged['task']:>2s}, "
                f"return {judged['episode_return_mean']:5.2f}"
            )
            if judged["level"] == len(LENGTHS) - 1 and judged["episode_return_mean"] >= 0.8:
                break
    return levels


if __name__ == "__main__":
    main()

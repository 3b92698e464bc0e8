"""Figures that others have published, for envs of the campaign's tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Published:
    """What CleanRL reports: mean and standard deviation of training returns over 3 seeds.

    Attributes:
        task: ours, of the same algorithm and env.
        env_name: theirs.
        mean: at the end of a run.
        deviation: over seeds.
        num_env_steps: of a run.
    """

    task: str
    env_name: str
    mean: float
    deviation: float
    num_env_steps: int


SOURCE: Final = "docs/benchmark and docs/rl-algorithms of vwxyzjn/cleanrl at commit fe8d8a03"
CLEANRL: Final = (
    Published("PPO CartPole-v1", "CartPole-v1", 490.04, 6.12, 500_000),
    Published("PPO Acrobot-v1", "Acrobot-v1", -86.36, 1.32, 500_000),
    Published("PPO MountainCar-v0", "MountainCar-v0", -200.0, 0.0, 500_000),
    Published("PPO HalfCheetah-v5 defaults", "HalfCheetah-v4", 1442.64, 46.03, 1_000_000),
    Published("PPO Hopper-v5 defaults", "Hopper-v4", 2382.86, 271.74, 1_000_000),
    Published("PPO Walker2d-v5 defaults", "Walker2d-v4", 2287.95, 571.78, 1_000_000),
    Published("DQN CartPole-v1", "CartPole-v1", 488.69, 16.11, 500_000),
    Published("DQN Acrobot-v1", "Acrobot-v1", -91.54, 7.20, 500_000),
    Published("DQN MountainCar-v0", "MountainCar-v0", -194.95, 8.48, 500_000),
    Published("SAC HalfCheetah-v5", "HalfCheetah-v4", 9634.89, 1423.73, 1_000_000),
    Published("SAC Hopper-v5", "Hopper-v4", 2310.46, 342.82, 1_000_000),
)

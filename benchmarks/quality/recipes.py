"""Writes `trainer/config/recipes.json`: settings of tasks, and the figures of their runs.

python -m benchmarks.quality.recipes
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

import trainer.config.recipes
from benchmarks.quality.ours import config_of
from benchmarks.quality.runs import OURS, load
from benchmarks.quality.tasks import BY_NAME, TASKS, Task
from checkpoints.writer import write_whole_file
from trainer.config.recipes import is_any_of

FILE: Final = Path(trainer.config.recipes.__file__).with_name(trainer.config.recipes.FILE)

_ENVS: Final = (
    "PPO CartPole-v1",
    "PPO Acrobot-v1",
    "PPO Pendulum-v1",
    "PPO LunarLander-v3",
    "PPO LunarLanderContinuous-v3",
    "PPO BipedalWalker-v3",
    "PPO HalfCheetah-v5 defaults",
    "PPO Hopper-v5 defaults",
    "PPO Walker2d-v5 defaults",
    "PPO Ant-v5 defaults",
    "PPO InvertedDoublePendulum-v5 defaults",
    "PPO MountainCar-v0",
    "DQN MountainCar-v0",
    "PPO MountainCarContinuous-v0",
    "DQN CartPole-v1",
    "DQN Acrobot-v1",
    "DQN LunarLander-v3",
    "SAC LunarLanderContinuous-v3",
    "SAC Pendulum-v1",
    "SAC Hopper-v5",
    "SAC HalfCheetah-v5",
    "TD3 Pendulum-v1",
    "TD3 Hopper-v5",
    "APPO CartPole-v1",
)
"""Tasks whose settings are the recipe of their env; of several, the first is taken unasked."""

_MUJOCO: Final = tuple(
    f"{env}-v*"
    for env in (
        "Ant",
        "HalfCheetah",
        "Hopper",
        "Humanoid",
        "HumanoidStandup",
        "InvertedDoublePendulum",
        "InvertedPendulum",
        "Pusher",
        "Reacher",
        "Swimmer",
        "Walker2d",
    )
)
_KINDS: Final = (
    ("mujoco", "PPO HalfCheetah-v5 defaults", _MUJOCO),
    ("classic", "PPO Acrobot-v1", ("Acrobot-v*", "CartPole-v*", "MountainCar-v*")),
    ("atari", "PPO ALE/Pong-v5", ("ALE/*-v*", "*NoFrameskip-v*")),
    ("minigrid", "PPO MiniGrid-DoorKey-5x5-v0", ("MiniGrid-*-v*",)),
    ("box2d", "PPO BipedalWalker-v3", ("BipedalWalker*-v*",)),
)
"""A kind, the task that has its settings, and what envs of the kind are called."""


def recipes() -> list[dict[str, Any]]:
    """What the file holds."""
    tasks = [BY_NAME[name] for name in _ENVS]
    kinds = [_recipe(name, BY_NAME[task], envs) for name, task, envs in _KINDS]
    return [*(_recipe(task.env_name, task, (task.env_name,)) for task in tasks), *kinds]


def _recipe(name: str, task: Task, envs: Sequence[str]) -> dict[str, Any]:
    same = [other for other in TASKS if other.learns_as(task) and is_any_of(other.env_name, envs)]
    return {
        "name": name,
        "algorithm": task.algorithm,
        "envs": list(envs),
        "num_env_steps": task.num_env_steps,
        "settings": _settings(task),
        "source": task.source,
        "needs": task.needs,
        "measured": {other.env_name: figures for other in same if (figures := _measured(other))},
    }


def _settings(task: Task) -> dict[str, Any]:
    """Those that are not the algorithm's defaults, in the words of JSON."""
    config = config_of(task)
    defaults = type(config)()
    given: dict[str, Any] = json.loads(json.dumps(config.given_settings()))
    changed = {name: value for name, value in given.items() if value != defaults[name]}
    if "model_config" in changed:
        changed["model_config"] = {
            name: value
            for name, value in changed["model_config"].items()
            if value != defaults["model_config"].get(name)
        }
    return changed


def _measured(task: Task) -> dict[str, Any]:
    """The figures of our runs of a task; nothing if there are none."""
    mine = [run for run in load(task) if run.trainer == OURS]
    if not mine:
        return {}
    return {
        "num_seeds": len(mine),
        "final_return": round(median(run.final_return for run in mine), 1),
        "processor_s": round(median(run.processor_s for run in mine), 1),
    }


if __name__ == "__main__":
    write_whole_file(FILE, (json.dumps(recipes(), indent=1) + "\n").encode(), overwrite=True)

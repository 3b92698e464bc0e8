"""The table of envs to solve: each from three seeds within its budget of env steps."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.tasks import SEEDS, TASKS, Task, solve

pytestmark = pytest.mark.learning

# Seconds, one core. The tasks that are left out need a minute or so for each seed.
QUICK = {"DQN, CartPole-v1", "PG, CartPole-v1", "PPO, Acrobot-v1", "PPO, Pendulum-v1"}


def case(task: Task, seed: int) -> Any:
    """The first seed of the quick ones is part of the default run."""
    marks = () if task.name in QUICK and seed == SEEDS[0] else (pytest.mark.slow,)
    return pytest.param(task, seed, id=f"{task.name}, seed {seed}", marks=marks)


@pytest.mark.parametrize(("task", "seed"), [case(task, seed) for task in TASKS for seed in SEEDS])
def test_envs_are_solved_within_the_budget(task: Task, seed: int) -> None:
    _, num_env_steps, mean = solve(task, seed)
    assert mean >= task.wanted_return
    assert num_env_steps <= task.max_env_steps


def test_quick_tasks_exist() -> None:
    assert {task.name for task in TASKS} >= QUICK

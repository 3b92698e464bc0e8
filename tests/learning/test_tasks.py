"""The table of envs to solve: each from three seeds within its budget of env steps."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.tasks import SEEDS, TASKS, Task, solve

pytestmark = pytest.mark.learning

# Part of the default run. Smaller tasks, also of DQN and SAC, are in other files of this folder.
QUICK = {"PPO, Acrobot-v1": 0}


def case(task: Task, seed: int) -> Any:
    """Slow unless the table above says otherwise."""
    marks = () if QUICK.get(task.name) == seed else (pytest.mark.slow,)
    return pytest.param(task, seed, id=f"{task.name}, seed {seed}", marks=marks)


@pytest.mark.parametrize(("task", "seed"), [case(task, seed) for task in TASKS for seed in SEEDS])
def test_envs_are_solved_within_the_budget(task: Task, seed: int) -> None:
    _, num_env_steps, mean = solve(task, seed)
    assert mean >= task.wanted_return
    assert num_env_steps <= task.max_env_steps


def test_the_default_run_has_tasks_of_the_table() -> None:
    assert set(QUICK) <= {task.name for task in TASKS}
    assert set(QUICK.values()) <= set(SEEDS)

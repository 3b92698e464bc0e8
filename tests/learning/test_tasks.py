"""The table of envs to solve: each from three seeds within its budget of env steps."""

import pytest

from benchmarks.tasks import SEEDS, TASKS, solve

pytestmark = [pytest.mark.learning, pytest.mark.slow]


# Smaller tasks, also of DQN and SAC, are in other files of this folder.
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_envs_are_solved_within_the_budget(task, seed):
    _, num_env_steps, mean = solve(task, seed)
    assert mean >= task.wanted_return
    assert num_env_steps <= task.max_env_steps

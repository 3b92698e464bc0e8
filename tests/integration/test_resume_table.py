"""20 iterations against 10, a checkpoint, a new process and 10: the same bytes everywhere.

The whole table is slow; a sample of it, with every algorithm, env and number of runners, is not.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.resume_cells import Cell, all_cells, continued_elsewhere, different, digests

pytestmark = pytest.mark.process

REPEATABLE = ("CartPole", "Acrobot", "Pendulum", "get_state", "own np_random")
SAMPLE = [
    Cell("PPO", "CartPole", 2),
    Cell("PG", "Pendulum", 1),
    Cell("DQN", "Acrobot", 0),
    Cell("SAC", "get_state", 0),
    Cell("PPO", "own np_random", 0),
]


def expected_and_resumed(
    cells: list[Cell], folder: Path, num_iterations: int = 10
) -> list[tuple[Cell, dict[str, str], dict[str, str]]]:
    """What a run finds in its second half, and what another process does from a checkpoint."""
    paths, expected = {}, {}
    for number, cell in enumerate(cells):
        with cell.config().build_algo() as algo:
            for _ in range(num_iterations):
                algo.train()
            slots = algo.get_state()["env_runners"]["slots"]
            assert any(slot["env_seed"] is not None for slot in slots), "no episode is running"
            paths[cell.name] = algo.save_to_path(folder / str(number))
            expected[cell.name] = digests(algo, num_iterations)
    resumed = continued_elsewhere(paths, num_iterations)
    return [(cell, expected[cell.name], resumed[cell.name]) for cell in cells]


def test_a_new_process_goes_on_with_the_same_bytes(tmp_path: Path) -> None:
    for cell, expected, resumed in expected_and_resumed(SAMPLE, tmp_path):
        assert different(expected, resumed) == [], cell.name


@pytest.mark.slow
@pytest.mark.parametrize("cell", all_cells(REPEATABLE), ids=lambda cell: cell.name)
def test_every_cell_goes_on_with_the_same_bytes_in_a_new_process(
    cell: Cell, tmp_path: Path
) -> None:
    [(_, expected, resumed)] = expected_and_resumed([cell], tmp_path)
    assert len(expected) > 20
    assert different(expected, resumed) == []

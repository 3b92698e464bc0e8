"""Some iterations, a checkpoint, a new process and as many again: the same bytes everywhere.

The whole table is slow; a sample of it, with every algorithm and number of runners, is not.
"""

import logging

import pytest

from checkpoints import encode
from tests.resume_cells import (
    ALGORITHMS,
    Cell,
    all_cells,
    continued_elsewhere,
    different,
    digests,
    file_hashes,
    restored,
)

pytestmark = pytest.mark.process

REPEATABLE = (
    "CartPole",
    "Acrobot",
    "Pendulum",
    "get_state",
    "own np_random",
    "own generator in get_state",
)
SAMPLE = [
    Cell("PG", "Pendulum", 0),
    Cell("DQN", "CartPole", 2),
    Cell("SAC", "get_state", 0),
    Cell("TD3", "Pendulum", 2),
    Cell("PPO", "own generator in get_state", 1),
]


def expected_and_resumed(cells, folder, num_iterations=10):
    """What a run finds in its second half, and what another process does from a checkpoint.

    With the hashes of the checkpoint's files, and of those that the other process saves at once.
    """
    paths, expected = {}, {}
    for number, cell in enumerate(cells):
        with cell.config().build_algo() as algo:
            for _ in range(num_iterations):
                algo.train()
            path = paths[cell.name] = algo.save_to_path(folder / str(number))
            expected[cell.name] = {**file_hashes(path), **digests(algo, num_iterations)}
    resumed = continued_elsewhere(paths, num_iterations)
    return [(cell, expected[cell.name], resumed[cell.name]) for cell in cells]


def test_a_new_process_goes_on_with_the_same_bytes(tmp_path):
    for cell, expected, resumed in expected_and_resumed(SAMPLE, tmp_path, 2):
        assert different(expected, resumed) == [], cell.name


@pytest.mark.slow
@pytest.mark.parametrize("cell", all_cells(REPEATABLE), ids=lambda cell: cell.name)
def test_every_cell_goes_on_with_the_same_bytes_in_a_new_process(cell, tmp_path):
    [(_, expected, resumed)] = expected_and_resumed([cell], tmp_path)
    assert len(expected) > 30
    assert different(expected, resumed) == []


@pytest.mark.parametrize(
    "algorithm",
    [name if name == "PPO" else pytest.param(name, marks=pytest.mark.slow) for name in ALGORITHMS],
)
def test_what_no_seed_determines_is_told_and_all_the_rest_goes_on(algorithm, tmp_path, caplog):
    cell = Cell(algorithm, "own generator", 0)
    with cell.config().build_algo() as algo:
        for _ in range(4):
            algo.train()
        path = algo.save_to_path(tmp_path / "checkpoint")
        state = algo.get_state(not_components="config")
        expected = digests(algo, 2)
    running = [slot for slot in state["env_runners"]["slots"] if slot["env_seed"] is not None]
    with restored(path, cell) as algo:
        assert encode(algo.get_state(not_components="config")) == encode(state)
        assert running
        with caplog.at_level(logging.WARNING):
            result = algo.train()
        assert result["training_iteration"] == 5
        told = result["fault_tolerance"]
        assert told["num_episodes_lost"] == len(running)
        assert told["num_env_steps_lost"] == sum(
            len(chunk) for slot in running for chunk in slot["actions"]
        )
        assert f"{len(running)} running episode(s) of env runner 0 start anew" in caplog.text
        assert different(digests(algo, 1), expected) != []

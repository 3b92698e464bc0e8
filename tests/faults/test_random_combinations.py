"""Features drawn together, and faults in every iteration: the bytes stay what they are."""

import logging

import pytest

from tests.random_runs import disturbed, drawn

pytestmark = [
    pytest.mark.process,
    # An interrupt where an object is finalized, or before a block that would close a file.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

FEW = (27, 20, 7)
"""Of one agent, of several whose modules change, and a vector env."""
MANY = [seed for seed in range(300) if seed not in FEW]


@pytest.fixture(autouse=True)
def nothing_is_logged():
    """Each fault is a warning with a traceback."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", [*FEW, *(pytest.param(s, marks=pytest.mark.slow) for s in MANY)])
def test_faults_in_every_iteration_make_no_difference(seed, tmp_path):
    run = disturbed(seed, tmp_path)
    assert run.trouble == [], drawn(seed).name
    assert run.num_failures or run.num_kills  # where all is repaired, no iteration fails

"""Each fault of the matrix ends as its table says: repaired with the same bytes, or told."""

import os
import pickle
import random
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from callbacks import CallbackError
from checkpoints import encode
from tests.faults.fault_matrix import CELLS, STALLING, Outcome
from tests.faults.fault_run import STALL_LIMIT_S, config, outcome
from trainer import EnvCreationError
from trainer.testing import Fault, is_process_alive, no_leaks, wait_until

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
ERRORS = {
    Outcome.CREATION_ERROR: EnvCreationError,
    Outcome.CALLBACK_ERROR: CallbackError,
}
IN_MAIN = (Outcome.MAIN_ENDS, Outcome.MAIN_WAITS)


def sample():
    """The cells of the default run: few that take long."""
    rng = random.Random(6)
    quick = [cell for cell in CELLS if not cell.takes_long]
    slow = [cell for cell in CELLS if cell.takes_long]
    return {*rng.sample(quick, 8), *rng.sample(slow, 2)}


def cells(*, in_main):
    in_default_run = sample()
    return [
        pytest.param(cell, id=str(cell), marks=() if cell in in_default_run else pytest.mark.slow)
        for cell in CELLS
        if (cell.outcome in IN_MAIN) is in_main
    ]


@pytest.fixture(scope="module")
def undisturbed():
    fault = Fault("step")
    fault.disarm()
    with config(fault).build_algo() as algo:
        return outcome(algo)


@pytest.mark.parametrize("cell", cells(in_main=False))
def test_a_fault_in_a_runner_ends_as_the_matrix_says(cell, undisturbed, caplog):
    fault = cell.fault()
    with no_leaks():
        if cell.outcome in ERRORS:
            with (
                pytest.raises(
                    ERRORS[cell.outcome], match=f"this fails on purpose at '{cell.place}"
                ),
                config(fault).build_algo() as algo,
            ):
                outcome(algo)
        else:
            with config(fault).build_algo() as algo:
                assert outcome(algo) == undisturbed
                restarts = [
                    group.num_remote_worker_restarts()
                    for group in (algo.env_runner_group, algo.eval_env_runner_group)
                ]
            is_repaired = cell.outcome is Outcome.REPAIRED
            assert (restarts[cell.in_evaluation] > 0) is is_repaired
    assert fault.num_fired == 1
    texts = [record.getMessage() for record in caplog.records]
    replacements = [text for text in texts if "; it is replaced." in text]
    assert len(replacements) == (cell.outcome is Outcome.REPAIRED)
    closings = [text for text in texts if "closing it raised" in text or "did not close" in text]
    assert len(closings) == (cell.outcome is Outcome.WARNED)


@contextmanager
def main_process(fault, folder):
    """A process that makes the run, in a session of its own, ended at the end of the block."""
    (folder / "fault").write_bytes(pickle.dumps(fault))
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.fault_run", str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def workers_of(process):
    """The processes of its session, itself left out."""
    told = subprocess.run(["ps", "-A", "-o", "pid=,sess="], capture_output=True, text=True).stdout
    pairs = [tuple(map(int, line.split())) for line in told.splitlines()]
    return [pid for pid, session in pairs if session == process.pid != pid]


@pytest.mark.parametrize("cell", cells(in_main=True))
def test_a_fault_in_the_main_process_leaves_no_worker(cell, undisturbed, tmp_path):
    fault = cell.fault()
    with main_process(fault, tmp_path) as process:
        assert wait_until(lambda: fault.num_fired > 0, within_s=20.0)
        if cell.way in STALLING:
            workers = workers_of(process)
            assert len(workers) >= 3
        if cell.way == "sigstop":
            os.kill(process.pid, signal.SIGCONT)
        elif cell.way == "hang":
            os.kill(process.pid, signal.SIGINT)
        _, told = process.communicate(timeout=20.0)
        assert wait_until(lambda: not any(map(is_process_alive, workers_of(process))))
    expected = {"exit": 7, "segfault": -11, "sigkill": -9, "sigstop": 0, "hang": -2}
    assert process.returncode == expected[cell.way], told
    if cell.way == "sigstop":
        assert (tmp_path / "outcome").read_bytes() == undisturbed
    if cell.way == "hang":
        assert told.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.parametrize("place", [pytest.param("init", marks=pytest.mark.slow), "step"])
def test_a_replacement_that_hangs_while_it_is_made_or_put_back_is_replaced(place):
    fault = Fault(place, way="hang", worker_index=1, in_evaluation=False)

    def state_after_two(*, is_disturbed):
        fault.disarm()
        with config(fault).build_algo() as algo:
            algo.train()
            if is_disturbed:
                fault.arm()
                os.kill(algo.env_runner_group.env_runner_pids()[1], signal.SIGKILL)
            repair_s = algo.train()["fault_tolerance/repair_time_s"]
            assert (repair_s > STALL_LIMIT_S) is is_disturbed
            return encode({**algo.get_state(), "config": None})

    undisturbed = state_after_two(is_disturbed=False)
    with no_leaks():
        assert state_after_two(is_disturbed=True) == undisturbed
    assert fault.num_fired == 1

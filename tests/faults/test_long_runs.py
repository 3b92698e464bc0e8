"""Runs that go on for long cost no more memory, files, threads or processes than short ones.

python -m tests.faults.test_long_runs 2000 [NAME …]    tells how runs of the table grow
"""

import ctypes
import gc
import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from callbacks import RLlibCallback
from tests.contract.test_algorithms import RUNS, config

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]
_LIBC = ctypes.CDLL(None)
ROOT = Path(__file__).parents[2]
LONG = 2_000
MOST_BYTES = 4_000_000
"""What three quarters of a long run may add to a process: less than 3 kB an iteration.

Where something is learnt, episodes and batches grow: by up to 1.5 MB.
"""


SETTINGS = {"ParameterNoise": {"use_kl_loss": False}}
"""Noise counts as divergence: the coefficient of that term would grow until losses overflow."""


class Keeping(RLlibCallback):
    """The negative control: keeps something of every iteration."""

    def __init__(self):
        self.kept = []

    def on_train_result(self, **_):
        self.kept.append(bytearray(60_000))


def belongings(pids):
    """Bytes of memory of each process, and the open files and threads of this one."""
    gc.collect()
    if hasattr(_LIBC, "malloc_trim"):  # what this heap has free is nothing that is kept
        _LIBC.malloc_trim(0)
    return {
        "bytes": {index: _resident_bytes(pid) for index, pid in pids.items()},
        "files": len(list(Path("/proc/self/fd").iterdir())),
        "threads": threading.active_count(),
    }


def _resident_bytes(pid):
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def growth(name, num_iterations, **settings):
    """What the last three quarters of a run with a runner add: bytes of each process, and others.

    Now and then it is saved, and evaluated if its settings say so.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        config(name, 1, **SETTINGS.get(name, {}), **settings).build_algo() as algo,
    ):
        pids = {0: os.getpid(), **algo.env_runner_group.env_runner_pids()}
        for iteration in range(1, num_iterations + 1):
            algo.train()
            if iteration % 50 == 0:
                algo.save_to_path(Path(folder) / str(iteration))
            if iteration == num_iterations // 4:
                before = belongings(pids)
        after = belongings(pids)
    added = [after["bytes"][index] - before["bytes"][index] for index in pids]
    return {"bytes": added, **{of: after[of] - before[of] for of in ("files", "threads")}}


def told(name, num_iterations, *more):
    """As `growth`, of a run in a new process, whose heap holds nothing else."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.test_long_runs", str(num_iterations), name, *more],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)[name]


def is_sound(grown):
    """Nothing that a long run leaves behind."""
    return max(grown["bytes"]) < MOST_BYTES and grown["files"] == grown["threads"] == 0


@pytest.mark.parametrize(
    ("name", "num_iterations"),
    [("PPO", 120), *[pytest.param(name, LONG, marks=pytest.mark.slow) for name in RUNS]],
)
def test_a_long_run_leaves_nothing_behind(name, num_iterations):
    grown = told(name, num_iterations)
    assert is_sound(grown), grown


def test_what_is_kept_of_every_iteration_is_found():
    assert not is_sound(told("PPO", 120, "keeping"))


def main(num_iterations, *names):
    """Tells the growth of these runs, of all without any."""
    logging.disable(logging.WARNING)
    settings = {"callbacks_class": Keeping} if "keeping" in names else {}
    chosen = [name for name in RUNS if name in names or not names]
    print(json.dumps({name: growth(name, int(num_iterations), **settings) for name in chosen}))


if __name__ == "__main__":
    main(*sys.argv[1:])

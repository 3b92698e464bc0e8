"""Runners that are replaced again and again leave nothing behind in the main process."""

import gc
import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from trainer import PPOConfig
from trainer.testing.envs import CountdownEnv

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]


def resident_bytes():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def num_open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("num_restarts", [12, pytest.param(1000, marks=pytest.mark.slow)])
def test_restarts_cost_no_memory_threads_or_files(num_restarts):
    made = (
        PPOConfig()
        .environment(CountdownEnv)
        .env_runners(num_env_runners=1)
        .training(model={"fcnet_hiddens": [8]})
        .fault_tolerance(max_num_env_runner_restarts=2000)
        .debugging(seed=5)
    )
    with made.build_algo() as algo:
        group = algo.env_runner_group

        def replace_one():
            os.kill(group.env_runner_pids()[1], signal.SIGKILL)
            assert group.foreach_env_runner("ping") == ["pong"]

        for _ in range(4):
            replace_one()
        gc.collect()
        before = (threading.active_count(), num_open_files())
        memory_before = resident_bytes()
        for _ in range(num_restarts):
            replace_one()
        gc.collect()
        assert group.num_restarts == num_restarts + 4
        assert (threading.active_count(), num_open_files()) == before
        assert resident_bytes() - memory_before < 10_000_000

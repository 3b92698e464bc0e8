"""A program forks while it has runners: the copy touches nothing of the original, and can train."""

import os
import subprocess
import sys
import threading

import pytest

from callbacks.ready_made.followers import Follower, FollowerThread, Sink
from callbacks.ready_made.rows_file import RowsFile
from trainer.runtime.process_start import START_METHOD_VARIABLE
from trainer.runtime.run_lock import LOCK_FILE, RunLock

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork"),
    pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning"),
]

SCRIPT = """
import multiprocessing, os, sys, warnings
from trainer import PPOConfig
from trainer.testing.envs import CountdownEnv

warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads

def build():
    config = PPOConfig().environment(CountdownEnv).env_runners(num_env_runners=1)
    config.training(train_batch_size=20, minibatch_size=20, num_epochs=1)
    return config.training(model={"fcnet_hiddens": [8]}).debugging(seed=3).build_algo()

def in_fork(act, ends=lambda: sys.exit(0), daemon=None):
    if daemon is None:
        pid = os.fork()
        if not pid:
            act()
            ends()
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    child = multiprocessing.get_context("fork").Process(target=act, daemon=daemon)
    child.start()
    child.join()
    return child.exitcode

def train_own():
    global theirs
    theirs = build()  # global and never stopped: it lives until the process ends
    theirs.train()
    assert theirs.env_runner_group.env_runner_pids() != pids

def train_inherited():
    algo.train()
    assert algo.env_runner_group.env_runner_pids() != pids

algo = build()
algo.train()
pids = algo.env_runner_group.env_runner_pids()
for case, code in CASES.items():
    print(case, flush=True)
    exec(code)
    algo.train()
    assert algo.env_runner_group.env_runner_pids() == pids, "the original lost its runner"
    assert algo.env_runner_group.num_restarts == 0
algo.stop()
print("done")
"""
CASES = {
    "ends": "assert in_fork(lambda: None) == in_fork(lambda: None, daemon=False) == 0",
    "trains": "assert in_fork(train_own) == in_fork(train_own, daemon=False) == 0",
    "is a daemon": "assert in_fork(train_own, daemon=True) == 0",
    "goes on with the algorithm": "assert in_fork(train_inherited) == 0",
    "stops the algorithm": "assert in_fork(lambda: algo.stop()) == 0",
    "drops the algorithm": (
        "def drop():\n    import gc; global algo; del algo; gc.collect()\nassert in_fork(drop) == 0"
    ),
}


@pytest.mark.parametrize(
    "start_method", ["forkserver", pytest.param("spawn", marks=pytest.mark.slow)]
)
def test_a_forked_copy_leaves_the_runners_of_the_original_alone(start_method):
    """Each of the copies, one after the other, in one program: what it printed last has failed."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.replace("CASES", repr(CASES))],
        env={**os.environ, START_METHOD_VARIABLE: start_method},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines() == [*CASES, "done"], done.stderr
    assert (done.returncode, done.stderr) == (0, "")


def exit_code_of_fork(act):
    """What `act` returns in a forked copy of this process that ends at once."""
    pid = os.fork()
    if not pid:
        code = 99
        try:
            code = act()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_what_is_to_be_followed_when_a_process_forks_is_followed_by_the_original(tmp_path):
    may_write, written = threading.Event(), list[int]()

    class Waiting(Sink):
        def append(self, number, row):
            may_write.wait(10)
            written.append(number)

    rows, thread = RowsFile(tmp_path / "rows"), FollowerThread("rows")
    rows.append({"training_iteration": 1})
    sink = Waiting(tmp_path)
    sink.bookmark = tmp_path / "bookmark"
    follower = Follower(rows, sink, thread)
    follower.wake()

    def in_the_copy():
        return 0 if thread.flush(0) else 1  # nothing is to be done here

    assert exit_code_of_fork(in_the_copy) == 0
    may_write.set()
    assert thread.flush(5)
    assert written == [1]


def test_a_forked_copy_that_leaves_does_not_give_back_the_lock_of_the_run(tmp_path):
    lock = RunLock(tmp_path)
    with lock:

        def leave():
            lock.__exit__(None, None, None)
            return 0

        assert exit_code_of_fork(leave) == 0
        assert (tmp_path / LOCK_FILE).exists()

"""The main process is ended from outside: no process of its stays behind, and nothing complains."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trainer.runtime.process_start import START_METHOD_VARIABLE
from trainer.testing.processes import is_process_alive, wait_until

pytestmark = pytest.mark.process

SCRIPT = """
import threading
from trainer import PPOConfig, actors
from trainer.testing.envs import CountdownEnv

class Mine(CountdownEnv):
    def step(self, action):
        if self.is_slow:
            threading.Event().wait(SECONDS)
        return super().step(action)

    def __init__(self, env_config):
        super().__init__(env_config)
        self.is_slow = env_config.get("is_slow", False)

@actors.remote
class Counter:
    def wait(self):
        threading.Event().wait()

    def pid(self):
        import os
        return os.getpid()

counter = Counter.remote()
config = PPOConfig().environment(Mine).env_runners(num_env_runners=2)
config.training(train_batch_size=60, minibatch_size=30, num_epochs=1, model={"fcnet_hiddens": [8]})
config.evaluation(evaluation_interval=1, evaluation_duration=2, evaluation_num_env_runners=1)
config.evaluation(evaluation_parallel_to_training=True)
config.evaluation(evaluation_config={"env_config": {"is_slow": True}})
algo = config.build_algo()
print(*algo.env_runner_group.env_runner_pids().values(),
      *algo.eval_env_runner_group.env_runner_pids().values(),
      actors.get(counter.pid.remote()), flush=True)
counter.wait.remote()
while True:
    algo.train()
"""


_IS_OF_THE_TRACKER = re.compile(r"resource_tracker: .* leaked semaphore|^  warnings\.warn\(")


def semaphores_of(pid):
    """The files of those that a process has open; none where there is no /proc."""
    maps = Path(f"/proc/{pid}/maps")
    lines = maps.read_text().splitlines() if maps.exists() else []
    inodes = {int(line.split()[4]) for line in lines if "/dev/shm/" in line}
    found = []
    for path in Path("/dev/shm").glob("sem.*"):
        with contextlib.suppress(FileNotFoundError):  # those of other programs come and go
            if path.stat().st_ino in inodes:
                found.append(path)
    return found


def case(number, start_method, seconds):
    default = {(signal.SIGTERM, "forkserver", 60.0), (signal.SIGKILL, "spawn", 60.0)}
    marks = () if (number, start_method, seconds) in default else (pytest.mark.slow,)
    name = f"{number.name}-{start_method}-{'evaluating' if seconds > 1 else 'working'}"
    return pytest.param(number, start_method, seconds, id=name, marks=marks)


@pytest.mark.parametrize(
    ("number", "start_method", "seconds"),
    [
        case(number, start_method, seconds)
        for number in (signal.SIGKILL, signal.SIGTERM)
        for start_method in ("forkserver", "spawn")
        for seconds in (60.0, 0.001)
    ],
)
def test_runners_and_actors_end_with_the_main_process(number, start_method, seconds):
    parent = subprocess.Popen(
        [sys.executable, "-c", SCRIPT.replace("SECONDS", str(seconds))],
        env={**os.environ, START_METHOD_VARIABLE: start_method},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == 4
    with pytest.raises(subprocess.TimeoutExpired):
        parent.wait(timeout=0.3)  # until it is in the middle of its work
    semaphores = semaphores_of(parent.pid)
    assert semaphores or sys.platform != "linux"
    since = time.monotonic()
    parent.send_signal(number)
    _, errors = parent.communicate(timeout=20)  # until all of them have closed it
    assert time.monotonic() - since < 20.0, "an evaluation takes 60 s"
    assert wait_until(lambda: not any(map(is_process_alive, pids)))
    assert parent.returncode == -number
    complaints = [line for line in errors.splitlines() if not _IS_OF_THE_TRACKER.search(line)]
    assert complaints == []
    assert wait_until(lambda: not any(path.exists() for path in semaphores))

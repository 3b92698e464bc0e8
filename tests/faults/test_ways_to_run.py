"""However Python runs the user's code, workers start: no guard is needed, nothing runs twice."""

import errno
import gc
import os
import pdb  # noqa: T100 - what runners cannot do
import re
import resource
import shutil
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from typing import Any, cast

import gymnasium
import pytest
from gymnasium.envs.registration import EnvSpec

from tests.small_runs import small_ppo
from trainer.errors import DebuggerError, RunnerLostError
from trainer.runtime.process_start import START_METHOD_VARIABLE
from trainer.testing.envs import CountdownEnv

pytestmark = pytest.mark.process

PROJECT = Path(__file__).resolve().parents[2]

CODE = """
import sys
from trainer import PPOConfig
from trainer.testing.envs import CountdownEnv

class Mine(CountdownEnv):
    pass

def tell(env_runner):
    return type(env_runner.env.envs[0]).__name__

config = PPOConfig().environment(Mine).env_runners(num_env_runners=1)
config.training(train_batch_size=20, minibatch_size=20, num_epochs=1, model={"fcnet_hiddens": [8]})
algo = config.build_algo()
print("trained", algo.train()["training_iteration"], algo.env_runner_group.foreach_env_runner(tell))
algo.stop()
"""
# A kernel runs cells in the namespace of a __main__ of its own, which has no file.
NOTEBOOK = """
import sys, types
cells = CELLS
main = sys.modules["__main__"] = types.ModuleType("__main__")
for number, cell in enumerate(cells.split("\\n\\n")):
    exec(compile(cell, f"<ipython-input-{number}>", "exec"), main.__dict__)
"""
PYTEST = "def test_it():\n" + "".join(f"    {line}\n" for line in CODE.splitlines())

WAYS = {
    "a script": (["script.py"], None),
    "python -m": (["-m", "package.module"], None),
    "python -c": (["-c", CODE], None),
    "standard input": (["-"], CODE),
    "a REPL": (["-i", "-q"], CODE.replace("pass\n", "pass\n\n").replace("__\n", "__\n\n")),
    "a notebook": (["-c", NOTEBOOK.replace("CELLS", repr(CODE))], None),
    "pytest": (["-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "test_it.py"], None),
}
# Scripts, `-c` and pytest are what all other tests use.
DEFAULT = {
    ("python -m", "spawn"),
    ("standard input", "forkserver"),
    ("a REPL", "forkserver"),
    ("a notebook", "forkserver"),
}


def way(name, start_method):
    marks = () if (name, start_method) in DEFAULT else (pytest.mark.slow,)
    return pytest.param(name, start_method, id=f"{name}-{start_method}", marks=marks)


def run(folder, words, start_method, stdin):
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), START_METHOD_VARIABLE: start_method}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, input=stdin or "",
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "start_method"), [way(name, how) for how in ("forkserver", "spawn") for name in WAYS]
)
def test_workers_start_however_python_runs_the_code(name, start_method, tmp_path):
    (tmp_path / "package").mkdir()
    for place in ("script.py", "package/__init__.py", "package/module.py"):
        (tmp_path / place).write_text("" if "__init__" in place else CODE)
    (tmp_path / "test_it.py").write_text(PYTEST)
    words, stdin = WAYS[name]
    code, output = run(tmp_path, words, start_method, stdin)
    assert code == 0, output
    assert output.count("trained 1 ['Mine']") == 1
    assert "Error" not in output


@pytest.mark.parametrize(
    "start_method", ["forkserver", pytest.param("spawn", marks=pytest.mark.slow)]
)
def test_a_module_that_trains_when_it_is_imported_is_refused_by_the_first_worker(
    start_method, tmp_path
):
    """Without that, workers would make workers until the machine has no process left."""
    (tmp_path / "script.py").write_text(CODE)
    code, output = run(tmp_path, ["-c", "import script"], start_method, None)
    assert code == 1
    assert "RunnerError: Workers were to be started while one of your modules was" in output
    assert 'under `if __name__ == "__main__":`' in output


def limit_files(patch, folder):
    gc.collect()  # what earlier tests left open must not be closed afterwards
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    is_open = {int(path.name) for path in Path("/dev/fd").iterdir()}
    fifth = [number for number in range(len(is_open) + 6) if number not in is_open][5]
    resource.setrlimit(resource.RLIMIT_NOFILE, (fifth, before[1]))
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, before)


def limit_threads(patch, folder):
    def refuse(_):
        raise RuntimeError("can't start new thread")

    patch.setattr(threading.Thread, "start", refuse)
    return patch.undo


def remove_folder(patch, folder):
    patch.chdir(folder)
    folder.rmdir()
    return patch.undo


def fill_shared_memory(patch, folder):
    def refuse(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    patch.setattr("multiprocessing.synchronize._multiprocessing.SemLock", refuse)
    return patch.undo


LIMITS = {
    limit_files: r"have \d+ open files \(`ulimit -n`\), and each worker takes some 10: raise",
    limit_threads: r"processes and threads \(`ulimit -u`, or of the container\) or the memory is",
    fill_shared_memory: r"files in /dev/shm, which has .*: make it larger .*--shm-size=1g",
    remove_folder: "folder of this process was removed, and a new process starts there: change",
}


@pytest.mark.parametrize("limit", LIMITS)
def test_what_keeps_processes_from_starting_is_told_with_what_to_do(
    limit, tmp_path, monkeypatch, caplog
):
    if limit is remove_folder and sys.version_info[:3] == (3, 13, 0):
        pytest.skip("Python 3.13.0 cannot import anything after its folder was removed")
    lift = limit(monkeypatch, tmp_path)
    try:
        with pytest.raises(RunnerLostError) as raised:
            small_ppo(1).build_algo()
    finally:
        lift()
    told = caplog.text + "".join(traceback.format_exception(raised.value))
    assert told.count("Traceback") == 1, told
    assert re.match("Env runner 1 failed 3 times in a row", str(raised.value))
    assert re.search(LIMITS[limit], str(raised.value).splitlines()[-1])
    assert "that is a matter of the machine, not of the env" in str(raised.value)
    assert "config" not in str(raised.value)


SMALL_SHARED_MEMORY = """
mount -t tmpfs -o size=8k tmpfs /dev/shm || exit 77
exec "$0" script.py
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux keeps shared memory in a file system")
def test_a_full_shared_memory_is_told_with_its_size(tmp_path):
    (tmp_path / "script.py").write_text(CODE)
    if shutil.which("unshare") is None:
        pytest.skip("there is no program unshare")
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", SMALL_SHARED_MEMORY, sys.executable],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(PROJECT)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    if done.returncode == 77 or "unshare:" in done.stderr:
        pytest.skip(f"no file system may be mounted here: {done.stderr}")
    assert done.returncode == 1
    assert re.search(r"/dev/shm, which has 0\.0 of 0\.0 MB free: make it larger", done.stderr)
    assert "that is a matter of the machine, not of the env" in done.stderr


POOLED = """
def train(lr):
    from trainer import PPOConfig
    from trainer.testing.envs import CountdownEnv
    config = PPOConfig().environment(CountdownEnv).env_runners(num_env_runners=1)
    config.training(train_batch_size=20, minibatch_size=20, num_epochs=1, lr=lr)
    with config.training(model={"fcnet_hiddens": [8]}).build_algo() as algo:
        return algo.train()["training_iteration"]

if __name__ == "__main__":
    import concurrent.futures, importlib.util, multiprocessing
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(train, [0.1]))
    print(list(concurrent.futures.ProcessPoolExecutor(1).map(train, [0.1])))
    if importlib.util.find_spec("joblib"):
        import joblib
        assert joblib.Parallel(n_jobs=2)([joblib.delayed(train)(0.1)]) == [1]
"""


@pytest.mark.parametrize(
    "start_method", ["forkserver", pytest.param("spawn", marks=pytest.mark.slow)]
)
def test_an_algorithm_with_runners_trains_in_a_process_of_a_pool(start_method, tmp_path):
    (tmp_path / "script.py").write_text(POOLED)
    assert run(tmp_path, ["script.py"], start_method, None) == (0, "[1]\n[1]\n")


class Mine(CountdownEnv):
    def __init__(self, max_length=3):
        super().__init__({"max_length": max_length})


def test_ids_that_the_program_registers_with_gymnasium_are_known_in_runners(monkeypatch):
    def make(context):
        assert gymnasium.make("Long-v0").spec.max_episode_steps == 9
        return gymnasium.make("Mine-v0")

    lock = threading.Lock()
    point = "gymnasium.envs.classic_control:CartPoleEnv"
    for spec in (
        EnvSpec("Mine-v0", entry_point="__main__:Mine", kwargs={"max_length": 7}),
        EnvSpec("Long-v0", entry_point=point, max_episode_steps=9),
        EnvSpec(
            "Stays-v0", entry_point=cast(Any, lambda: lock)
        ),  # cannot travel, and is not needed
    ):
        monkeypatch.setitem(gymnasium.registry, spec.id, spec)
    monkeypatch.setattr(sys.modules["__main__"], "Mine", Mine, raising=False)
    with small_ppo(1, env=make).build_algo() as algo:
        (found,) = algo.env_runner_group.foreach_env_runner(
            lambda runner: runner.env.envs[0].spec.kwargs
        )
    assert found == {"max_length": 7}


class Debugged(CountdownEnv):
    def __init__(self, env_config):
        super().__init__({})
        os.environ.pop("PYTHONBREAKPOINT", None)
        self.pause = breakpoint if env_config["stop"] == "breakpoint" else pdb.set_trace

    def step(self, action):
        self.pause()


CALLED = {
    "breakpoint": rf"breakpoint\(\) was called at {re.escape(__file__)}:\d+, in a process of its",
    "pdb": "Env runner 1 called the debugger pdb in a",
}


@pytest.mark.parametrize("stop", CALLED)
def test_a_debugger_in_a_runner_is_one_short_error_that_says_what_to_do(stop, caplog):
    made = small_ppo(1, env=Debugged, env_config={"stop": stop})
    with made.build_algo() as algo, pytest.raises(DebuggerError, match=CALLED[stop]) as raised:
        algo.train()
    assert "num_env_runners=0" in str(raised.value).splitlines()[-1]
    told = caplog.text + "".join(traceback.format_exception(raised.value))
    assert len(told.splitlines()) < 50
    assert told.count("Traceback") == 1

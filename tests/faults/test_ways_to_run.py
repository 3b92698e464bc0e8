"""However Python runs the user's code, workers start: no guard is needed, nothing runs twice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainer.runtime.process_start import START_METHOD_VARIABLE

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

WAYS: dict[str, tuple[list[str], str | None]] = {
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


def way(name: str, start_method: str) -> object:
    marks = () if (name, start_method) in DEFAULT else (pytest.mark.slow,)
    return pytest.param(name, start_method, id=f"{name}-{start_method}", marks=marks)


def run(folder: Path, words: list[str], start_method: str, stdin: str | None) -> tuple[int, str]:
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), START_METHOD_VARIABLE: start_method}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, input=stdin or "",
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "start_method"), [way(name, how) for how in ("forkserver", "spawn") for name in WAYS]
)
def test_workers_start_however_python_runs_the_code(
    name: str, start_method: str, tmp_path: Path
) -> None:
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
    start_method: str, tmp_path: Path
) -> None:
    """Without that, workers would make workers until the machine has no process left."""
    (tmp_path / "script.py").write_text(CODE)
    code, output = run(tmp_path, ["-c", "import script"], start_method, None)
    assert code == 1
    assert "RunnerError: Workers were to be started while one of your modules was" in output
    assert 'under `if __name__ == "__main__":`' in output


LIMITED = """
import os, resource, tempfile, threading
from trainer import PPOConfig
from trainer.testing.envs import CountdownEnv

config = PPOConfig().environment(CountdownEnv).env_runners(num_env_runners=1)
LIMIT
config.build_algo()
"""
LIMITS = {
    "files": (
        "resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))",
        "this process may have 16 open files (`ulimit -n`), and each worker takes some 10: raise",
    ),
    "threads": (
        'def start(self): raise RuntimeError("can\'t start new thread")\n'
        "threading.Thread.start = start",
        "the limit of processes and threads (`ulimit -u`, or of the container) or the memory is",
    ),
    "folder": (
        "folder = tempfile.mkdtemp(); os.chdir(folder); os.rmdir(folder)",
        "the current folder of this process was removed, and a new process starts there: change",
    ),
}


@pytest.mark.parametrize(
    "what",
    [
        pytest.param(
            what,
            marks=pytest.mark.skipif(
                what == "folder" and sys.version_info[:3] == (3, 13, 0),
                reason="Python 3.13.0 cannot import anything after its folder was removed",
            ),
        )
        for what in LIMITS
    ],
)
def test_what_keeps_processes_from_starting_is_told_with_what_to_do(
    what: str, tmp_path: Path
) -> None:
    limit, text = LIMITS[what]
    code, output = run(tmp_path, ["-c", LIMITED.replace("LIMIT", limit)], "forkserver", None)
    assert code == 1
    assert output.count("Traceback") == 1, output
    last = output.rstrip().splitlines()[-1]
    assert last.startswith("trainer.errors.RunnerLostError: Env runner 1 failed 3 times in a row")
    assert text in last


POOLED = """
def train(lr):
    from trainer import PPOConfig
    from trainer.testing.envs import CountdownEnv
    config = PPOConfig().environment(CountdownEnv).env_runners(num_env_runners=1)
    config.training(train_batch_size=20, minibatch_size=20, num_epochs=1, lr=lr)
    with config.training(model={"fcnet_hiddens": [8]}).build_algo() as algo:
        return algo.train()["training_iteration"]

if __name__ == "__main__":
    CALL
"""
POOLS = {
    "Python's": """
    import concurrent.futures, multiprocessing
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        first = pool.map(train, [0.1])
    second = list(concurrent.futures.ProcessPoolExecutor(1).map(train, [0.1]))
    print(first if first == second else second)
""",
    "joblib": "import joblib; print(joblib.Parallel(n_jobs=2)([joblib.delayed(train)(0.1)]))",
}


@pytest.mark.parametrize(
    "start_method", ["forkserver", pytest.param("spawn", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("pool", POOLS)
def test_an_algorithm_with_runners_trains_in_a_process_of_a_pool(
    pool: str, start_method: str, tmp_path: Path
) -> None:
    if pool == "joblib":
        pytest.importorskip("joblib")
    (tmp_path / "script.py").write_text(POOLED.replace("CALL", POOLS[pool]))
    assert run(tmp_path, ["script.py"], start_method, None) == (0, "[1]\n")


REGISTERED = """
import gymnasium
from trainer import PPOConfig
from trainer.testing.envs import CountdownEnv

class Mine(CountdownEnv):
    def __init__(self, max_length=3):
        super().__init__({"max_length": max_length})

gymnasium.register("Mine-v0", entry_point="__main__:Mine", kwargs={"max_length": 7})
gymnasium.register("Long-v0", entry_point="gymnasium.envs.classic_control:CartPoleEnv",
                   max_episode_steps=9)
held = open(__file__)
gymnasium.register("Stays-v0", entry_point=lambda: held)  # cannot travel, and is not needed

def make(context):
    assert gymnasium.make("Long-v0").spec.max_episode_steps == 9
    return gymnasium.make("Mine-v0")

config = PPOConfig().environment(make).env_runners(num_env_runners=1)
config.training(train_batch_size=20, minibatch_size=20, num_epochs=1, model={"fcnet_hiddens": [8]})
with config.build_algo() as algo:
    print(algo.env_runner_group.foreach_env_runner(lambda runner: runner.env.envs[0].spec.kwargs))
"""


def test_ids_that_the_program_registers_with_gymnasium_are_known_in_runners(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(REGISTERED)
    code, output = run(tmp_path, ["script.py"], "forkserver", None)
    assert (code, output) == (0, "[{'max_length': 7}]\n")


DEBUGGED = """
from trainer import PPOConfig
from trainer.errors import DebuggerError
from trainer.testing.envs import CountdownEnv

class Debugged(CountdownEnv):
    def __init__(self, env_config):
        super().__init__({})
        self.stop = env_config["stop"]

    def step(self, action):
        if self.stop == "breakpoint":
            breakpoint()
        import pdb; pdb.set_trace()

config = PPOConfig().environment(Debugged).env_runners(num_env_runners=1)
for stop in ("pdb", "breakpoint"):
    with config.copy().environment(env_config={"stop": stop}).build_algo() as algo:
        try:
            algo.train()
        except DebuggerError as error:
            print(error, flush=True)
            if stop == "breakpoint":
                raise
"""


def test_a_debugger_in_a_runner_is_one_short_error_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONBREAKPOINT", raising=False)
    code, output = run(tmp_path, ["-c", DEBUGGED], "forkserver", None)
    lines = output.splitlines()
    assert code == 1
    told = "breakpoint() was called at <string>:13, in a process of its own"
    assert lines[-1].startswith(f"trainer.errors.DebuggerError: {told}")
    assert any(line.startswith("Env runner 1 called the debugger pdb in a") for line in lines)
    assert "num_env_runners=0" in lines[-1]
    assert len(lines) < 50
    assert output.count("Traceback") == 1

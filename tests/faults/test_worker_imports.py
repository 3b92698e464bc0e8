"""Workers import what the main process has, whatever files lie in the folders around them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainer.runtime.process_start import (
    path_for_starting,
    variables_for_starting,
)

PROJECT = Path(__file__).resolve().parents[2]
OURS = ("trainer.py", "callbacks.py", "checkpoints.py", "numpy.py", "gymnasium.py")
# Python 3.10 always looks into the current folder.
PYTHONS = ("random.py", "socket.py") if sys.version_info >= (3, 11) else ()

_SCRIPT = """
import os, sys
from trainer import PPOConfig
FIRST
config = (
    PPOConfig()
    .environment("my_part.MyEnv")
    .env_runners(num_env_runners=1)
    .training(train_batch_size=20, minibatch_size=20, num_epochs=1, model={"fcnet_hiddens": [8]})
)

def seen(env_runner):
    import trainer, numpy
    variables = [os.environ.get(name) for name in ("PYTHONPATH", "PYTHONSAFEPATH")]
    return [trainer.__file__, numpy.__file__, os.getcwd(), [p or os.getcwd() for p in sys.path],
            variables, type(env_runner.env.envs[0]).__module__]

with config.build_algo() as algo:
    algo.train()
    theirs = algo.env_runner_group.foreach_env_runner(seen)[0]
config.env_runners(num_env_runners=0)
with config.build_algo() as algo:
    assert theirs == algo.env_runner_group.foreach_env_runner(seen)[0], theirs
print("trained")
"""
_MY_PART = """
from trainer.testing.envs import CountdownEnv
class MyEnv(CountdownEnv): pass
"""


def run_script(folder, *, first=""):
    """Runs the script from `folder / "current"`; it lies in `folder / "scripts"`."""
    (folder / "scripts").mkdir()
    (folder / "scripts" / "script.py").write_text(_SCRIPT.replace("FIRST", first))
    (folder / "scripts" / "my_part.py").write_text(_MY_PART)
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    environment.pop("PYTHONSAFEPATH", None)
    return subprocess.run(
        [sys.executable, str(folder / "scripts" / "script.py")],
        cwd=folder / "current",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def make_shadows(folder, names):
    folder.mkdir()
    for name in names:
        (folder / name).write_text("raise RuntimeError('imported by mistake')\n")
    return folder


@pytest.mark.process
def test_files_of_the_current_folder_do_not_hide_what_workers_need(start_method, tmp_path):
    make_shadows(tmp_path / "current", (*OURS, *PYTHONS))
    done = run_script(tmp_path)
    assert done.stdout == "trained\n", done.stderr
    assert done.stderr == ""


@pytest.mark.process
@pytest.mark.parametrize("start_method", ["forkserver", "spawn"], indirect=True)
def test_a_folder_put_in_front_after_the_import_changes_nothing_but_finds_the_users_modules(
    start_method, tmp_path
):
    (tmp_path / "current").mkdir()
    front = make_shadows(tmp_path / "front", OURS)
    (front / "my_part.py").write_text(_MY_PART)
    done = run_script(tmp_path, first=f"sys.path.insert(0, {str(front)!r})")
    assert done.stdout == "trained\n", done.stderr
    assert done.stderr == ""


@pytest.mark.process
@pytest.mark.skipif(sys.version_info >= (3, 11), reason="newer ones do not look there")
def test_an_old_python_that_cannot_start_workers_names_the_file(tmp_path):
    make_shadows(tmp_path / "current", ("random.py",))
    done = run_script(tmp_path)
    assert done.returncode == 1
    assert "holds 'random.py', of the same name as modules that a new process" in done.stderr


def test_only_folders_that_hide_this_library_are_left_out(tmp_path):
    hiding = make_shadows(tmp_path / "hiding", ("callbacks.py",))
    (tmp_path / "plain" / "checkpoints").mkdir(parents=True)  # a user's folder of checkpoints
    (tmp_path / "plain" / "numpy.py").touch()
    entries = ["", str(hiding), str(tmp_path / "plain"), str(PROJECT)]
    assert path_for_starting(entries) == ["", str(tmp_path / "plain"), str(PROJECT)]


def test_pythons_own_library_comes_before_the_users_folders():
    own = str(Path(os.__file__).parent)
    variables = variables_for_starting(["/users/folder", own, "/other"])
    assert variables["PYTHONPATH"].split(os.pathsep) == [own, "/users/folder", "/other"]

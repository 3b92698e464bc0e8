"""`import trainer` in a fresh interpreter: light, from any folder, and never of another project."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.source_tree import PACKAGES, PROJECT

HEAVY = {
    *("torch", "tensorflow", "jax", "ray", "matplotlib", "pandas", "scipy"),
    *("pettingzoo", "supersuit", "rich", "optuna", "tensorboardX", "moviepy", "PIL"),
    *("onnx", "onnxruntime", "pygame"),
}
"""Packages that are slow to import or not installed by us; training must not need them."""

ROOMS_OF_OTHERS = frozenset({"tune", "reports", "cli", "testing"})
"""Rooms of `trainer` that a program which trains one algorithm does not enter."""

_SHOW = """
import json, sys, trainer, callbacks, checkpoints, trainer_toolkit
names = ("trainer", "callbacks", "checkpoints", "trainer_toolkit")
files = {name: sys.modules[name].__file__ for name in names}
print(json.dumps({"loaded": sorted(sys.modules), "files": files}))
"""


_TRAIN = """
import trainer
config = trainer.PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=0)
config.training(train_batch_size=8, minibatch_size=8, num_epochs=1, model={"fcnet_hiddens": [4]})
algo = config.build_algo()
algo.train()
algo.stop()
"""


def run_python(code, folder):
    """Runs code in a new interpreter that starts in a folder: that is where it looks first."""
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("PYTHONSAFEPATH", None)
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def heavy_modules(loaded):
    """The heavy packages among loaded modules."""
    return sorted({name.split(".")[0] for name in loaded} & HEAVY)


def rooms_entered(loaded):
    """The rooms of `trainer` among loaded modules."""
    return sorted({name.split(".")[1] for name in loaded if name.startswith("trainer.")})


def test_training_in_a_foreign_folder_finds_ours_and_loads_only_what_it_needs(tmp_path):
    (tmp_path / "tensorflow.py").write_text("", encoding="utf-8")
    done = run_python("import tensorflow" + _TRAIN + _SHOW, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    shown = json.loads(done.stdout.splitlines()[-1])
    for package in PACKAGES:
        assert Path(shown["files"][package]).resolve() == PROJECT / package / "__init__.py"
    loaded = shown["loaded"]
    assert heavy_modules(loaded) == ["tensorflow"], "a negative control, and nothing else"
    assert not ROOMS_OF_OTHERS.intersection(rooms_entered(loaded))
    assert {"algorithms", "learners", "env_runners"}.issubset(rooms_entered(loaded))


@pytest.mark.parametrize(
    ("package", "path"),
    [
        ("callbacks", "callbacks.py"),
        ("checkpoints", "checkpoints.py"),
        ("callbacks", "callbacks/__init__.py"),
    ],
)
def test_a_module_of_the_same_name_in_the_users_folder_is_named(tmp_path, package, path):
    file = tmp_path / path
    file.parent.mkdir(exist_ok=True)
    file.write_text("raise SystemExit('the wrong module was run')\n", encoding="utf-8")
    done = run_python("import trainer", tmp_path)
    assert done.returncode == 1
    message = done.stderr.splitlines()[-1]
    assert message.startswith(f"ImportError: local-trainer needs its own package {package!r}")
    assert str(file.resolve()) in message
    assert "Rename that file" in message

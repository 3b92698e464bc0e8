"""`local-trainer doctor` says what is here, and whether a runner process works."""

import json
import platform
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.scripts import run_script
from trainer import PPOConfig
from trainer.cli import doctor, main
from trainer.cli.doctor import _REQUIREMENT
from trainer.nn import kernels

ROOT = Path(__file__).parents[2]


@pytest.mark.process
def test_it_says_what_is_installed_and_that_a_runner_works(capsys):
    assert main(["doctor"]) == 0
    told = capsys.readouterr().out
    for expected in (f"numpy {np.__version__}", "[tune]", "forkserver", "played 200 steps"):
        assert expected in told
    assert main(["doctor", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["runner process"]["works"]
    assert facts["cores"] >= 1
    assert {"torch", "ray", "envpool"} <= facts["extras"].keys()
    assert "test" not in facts["extras"]
    assert facts["kernels"] == ("in C" if not kernels.why_not() else facts["kernels"])
    assert kernels.why_not() in facts["kernels"]


@pytest.fixture
def untried(monkeypatch):
    """No runner is started: the test is about the other lines."""
    monkeypatch.setattr(doctor, "_tried", lambda: {"works": True, "told": ""})


def told_lines(capsys):
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    return {line[:16].strip(): line[16:] for line in lines}


def test_it_says_where_runs_go_and_whether_there_is_room(tmp_path, monkeypatch, capsys, untried):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(doctor, "_SHARED_MEMORY", tmp_path)
    free = {"free": 5 * 2**30}
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(**free))
    told = told_lines(capsys)
    assert told["runs go to"] == f"{tmp_path / 'runs'}, 5.0 GB free"
    assert told["imported from"] == str(ROOT)
    assert told["temporary files"].endswith(", 5.0 GB free")
    assert told["shared memory"].endswith(" free")
    free["free"] = 2**26
    assert told_lines(capsys)["shared memory"].endswith("small: docker run --shm-size=1g")


def test_files_that_take_the_place_of_ours_are_named(tmp_path, monkeypatch, capsys, untried):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "checkpoints").mkdir()  # a folder of files is in nobody's way
    assert "in the way" not in told_lines(capsys)
    (tmp_path / "callbacks.py").touch()
    (tmp_path / "checkpoints" / "__init__.py").touch()
    told = told_lines(capsys)["in the way"]
    assert told.startswith("callbacks.py, checkpoints in this folder: ")
    monkeypatch.chdir(ROOT)
    assert "in the way" not in told_lines(capsys)


def test_extras_that_are_missing_are_told_with_a_command(monkeypatch, capsys, untried):
    extras = {"tune": {"optuna": "5.0"}, "onnx": {"onnx": "1", "onnxscript": None}}
    monkeypatch.setattr(doctor, "_packages", lambda: {"packages": "", "extras": extras})
    told = told_lines(capsys)
    assert told["extras"] == "[tune] optuna 5.0"
    assert told["not installed"] == "[onnx]"


@pytest.mark.parametrize(
    ("coretype", "expected"), [("Haswell", ", for Haswell by OPENBLAS_CORETYPE, "), ("", ", for ")]
)
def test_it_says_for_which_processor_products_are_computed(coretype, expected):
    build = np.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"]
    if "openblas" not in build or platform.machine() != "x86_64":
        pytest.skip(f"NumPy's BLAS is {build} on {platform.machine()}")
    told = run_script(
        f"import os; os.environ['OPENBLAS_CORETYPE'] = {coretype!r}\n"
        "from trainer.cli.doctor import _blas; print(_blas())"
    ).stdout
    assert expected in told
    assert ("by OPENBLAS" in told) == bool(coretype)


def test_a_runner_that_does_not_work_is_an_exit_code(capsys, monkeypatch):
    def fail(config):
        raise OSError("no more processes")

    monkeypatch.setattr(PPOConfig, "build_algo", fail)
    assert main(["doctor"]) == 1
    assert "OSError: no more processes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("requirement", "parts"),
    [
        ("numpy>=1.26", ("numpy", None)),
        ('ray[tune]>=2.49; extra == "ray"', ("ray", "ray")),
        ("optuna>=3; python_version >= '3.10' and extra == 'tune'", ("optuna", "tune")),
    ],
)
def test_requirements_are_read(requirement, parts):
    assert _REQUIREMENT.match(requirement).groups() == parts

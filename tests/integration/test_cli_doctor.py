"""`local-trainer doctor` says what is here, and whether a runner process works."""

import json
import platform

import numpy as np
import pytest

from tests.scripts import run_script
from trainer import PPOConfig
from trainer.cli import main
from trainer.cli.doctor import _REQUIREMENT
from trainer.nn import kernels


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

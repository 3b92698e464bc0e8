"""`local-trainer doctor` says what is here, and whether a runner process works."""

import json

import numpy as np
import pytest

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

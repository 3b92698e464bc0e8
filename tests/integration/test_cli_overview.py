"""What the program says of itself to who does not know it yet."""

import re
import shlex
from importlib.metadata import version

import pytest

from tests.command_line import run
from trainer.cli import overview
from trainer.cli.main import make_parser

pytestmark = pytest.mark.process

SHORTER = {
    "train": ["--stop-iterations", "1", "--num-env-runners", "0"],
    "resume": ["--stop-iterations", "2"],
    "evaluate": ["--episodes", "1"],
}
"""What is typed behind an example to make it small."""


def test_the_name_alone_is_greeted_with_the_first_day(tmp_path):
    greeted = run(folder=tmp_path, code=2)  # a script that lost its words fails
    assert greeted.stdout == ""
    shown = re.findall(r"^ +\$ local-trainer (\S+)", greeted.stderr, re.MULTILINE)
    assert shown == ["train", "runs", "resume", "evaluate", "report"]
    assert "local-trainer --help" in greeted.stderr
    assert all(len(line) <= 100 for line in greeted.stderr.splitlines())


def test_the_examples_of_the_first_day_work_one_after_the_other(tmp_path):
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    outputs = {}
    for name, (_, example) in overview.FIRST_DAY.items():
        program, *words = shlex.split(example)
        assert program == "local-trainer"
        outputs[name] = run(*words, *SHORTER.get(name, []), folder=tmp_path).stdout
    assert "runs/cartpole" in outputs["runs"]
    assert (tmp_path / "report.html").is_file()


def test_the_help_has_every_command_once_under_a_purpose(tmp_path):
    told = run("--help", folder=tmp_path).stdout
    purposes = [name for names in overview.PURPOSES.values() for name in names]
    assert sorted(purposes) == sorted(make_parser().get_default("parsers"))
    for purpose, names in overview.PURPOSES.items():
        part = told.partition(f"\n{purpose}:\n")[2].partition("\n\n")[0]
        assert [line.split()[0] for line in part.splitlines()] == list(names)


def test_the_help_of_a_command_begins_with_what_it_does(tmp_path):
    assert "\n\nPlay episodes with a checkpoint's policy.\n" in run(
        "evaluate", "--help", folder=tmp_path
    ).stdout  # fmt: skip


def test_the_version_is_that_of_the_distribution(tmp_path):
    assert run("--version", folder=tmp_path).stdout == f"local-trainer {version('local-trainer')}\n"

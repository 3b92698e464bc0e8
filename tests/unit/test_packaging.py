"""What is installed: versions, packages, dependencies, types, licences, and how it is built."""

import importlib
import json
import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.lowest_versions import lowest_versions
from trainer.cli.main import make_parser

ROOT = Path(__file__).parents[2]
PACKAGES = ("callbacks", "checkpoints", "trainer", "trainer_toolkit")


@pytest.fixture(scope="module")
def project():
    try:
        reader = importlib.import_module("tomllib")
    except ImportError:
        reader = pytest.importorskip("tomli")
    found = reader.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return found["project"]


def test_the_version_is_a_release_number(project):
    assert re.fullmatch(r"\d+\.\d+\.\d+", project["version"])
    assert tuple(map(int, project["version"].split("."))) >= (0, 2, 0)


def test_the_changelog_begins_with_this_version_or_one_to_come(project):
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest, state = re.search(r"^## \[(\d+\.\d+\.\d+)\] - (\S+)$", text, re.M).groups()
    numbers = [tuple(map(int, version.split("."))) for version in (newest, project["version"])]
    assert numbers[0] >= numbers[1]
    assert state == "unreleased" or numbers[0] == numbers[1]


def test_the_licence_is_an_expression_and_its_file_is_there(project):
    assert project["license"] == "MIT"
    assert all((ROOT / name).is_file() for name in project["license-files"])
    assert not [line for line in project["classifiers"] if line.startswith("License ::")]


def test_five_packages_are_needed_and_their_lowest_versions_are_stated(project):
    names = [line.partition("==")[0] for line in lowest_versions()]
    assert sorted(names) == ["cloudpickle", "gymnasium", "numpy", "ormsgpack", "platformdirs"]
    assert len(project["dependencies"]) == 5


@pytest.mark.parametrize("package", PACKAGES)
def test_each_package_tells_type_checkers_that_it_has_types(package):
    assert (ROOT / package / "py.typed").is_file()
    assert "* = py.typed" in (ROOT / "setup.cfg").read_text(encoding="utf-8")


def test_what_lies_beside_the_source_is_installed_with_it():
    """Docstrings name the README.md beside them."""
    (line,) = re.findall(r"^\* = (.*)$", (ROOT / "setup.cfg").read_text(encoding="utf-8"), re.M)
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.*")]
    compiled = (".c", ".shared")  # see `setup.py`
    names = {
        path.name for path in files if path.suffix not in (".py", ".pyc", ".pyi", "", *compiled)
    }
    assert {*names, "*.pyi"} == set(line.split(", "))


def test_every_extra_is_listed_with_its_packages_licences_and_size(project):
    page = (ROOT / "docs" / "installing.md").read_text(encoding="utf-8")
    rows = {
        name: line
        for line in page.splitlines()
        for name in re.findall(r"^\| `\[(\w+)\]`", line)
    }  # fmt: skip
    extras = project["optional-dependencies"]
    assert rows.keys() == extras.keys() - {"test", "bench", "tables"}
    for name, requirements in extras.items():
        for requirement in requirements if name in rows else ():
            package = re.split(r"[\[<>=]", requirement)[0]
            assert package in rows[name], f"{package} of [{name}]"
        if name in rows:
            assert len(rows[name].strip("| ").split(" | ")) == 5, name


def test_the_image_copies_what_there_is():
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    copied = [word for line in lines if line.startswith("COPY ") for word in line.split()[1:-1]]
    assert set(PACKAGES) <= set(copied)
    assert all((ROOT / name).exists() for name in copied)


def test_the_image_starts_what_is_installed_with_extras_that_there_are(project):
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    (entry,) = re.findall(r"^ENTRYPOINT (.*)$", text, flags=re.MULTILINE)
    assert json.loads(entry) == list(project["scripts"])
    (extras,) = re.findall(r"^ARG EXTRAS=(.*)$", text, flags=re.MULTILINE)
    assert set(extras.split(",")) <= project["optional-dependencies"].keys()
    (base,) = re.findall(r"^FROM python:(\d+\.\d+)", text, flags=re.MULTILINE)
    assert tuple(map(int, base.split("."))) >= (3, 10)
    (shown,) = re.findall(r"^#.* local-trainer (train .*)$", text, flags=re.MULTILINE)
    make_parser().parse_args(shown.split())  # which ends the program if it does not know a word
    (command,) = re.findall(r"^CMD (.*)$", text, flags=re.MULTILINE)
    assert json.loads(command) == ["--help"]


def test_what_the_image_copies_is_not_left_out():
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    files = ("pyproject.toml", "setup.cfg", "README.md", "LICENSE", *PACKAGES)
    assert not any(fnmatch(name, pattern.strip("/")) for name in files for pattern in ignored)


def test_the_dev_container_is_set_up_by_a_target_of_the_makefile():
    file = ROOT / ".devcontainer" / "devcontainer.json"
    make, target = json.loads(file.read_text(encoding="utf-8"))["postCreateCommand"].split()
    assert make == "make"
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert target.startswith(".venv/")
    assert f"\n$(VENV)/{target.removeprefix('.venv/')}:" in makefile

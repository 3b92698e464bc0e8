"""Files are named after what they hold, public names say what they give, nothing is put off."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.architecture.source_tree import (
    PACKAGES,
    PROJECT,
    Function,
    Problems,
    SourceTree,
    all_statements,
    expect_clean,
    made_tree,
    project_tree,
)

FORBIDDEN_NAMES: Final = frozenset(
    {"util", "utils", "helper", "helpers", "common", "misc", "base", "core", "manager", "managers"}
)
PUT_OFF: Final = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")

SHORTENED: Final = re.compile(r"\bditto\b|\b(Args|Attributes|Returns|Raises): +\S")

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def forbidden_names(tree: SourceTree) -> Problems:
    """Files and folders with a name that says nothing about what they hold."""
    problems: Problems = {}
    for module in tree.values():
        words = {word for part in module.name.split(".") for word in part.lower().split("_")}
        for word in sorted(words & FORBIDDEN_NAMES):
            path = module.path.as_posix()
            problems[path] = f"{path}: {word!r} says nothing; name it after the thing it holds"
    return problems


def put_off_work(tree: SourceTree) -> Problems:
    """Lines that put work off instead of naming an issue."""
    problems: Problems = {}
    for module in tree.values():
        for number, line in enumerate(module.lines, start=1):
            if PUT_OFF.search(line):
                place = f"{module.path.as_posix()}:{number}"
                problems[place] = f"{place}: an issue number or nothing: {line.strip()}"
    return problems


def missing_docstrings(tree: SourceTree) -> Problems:
    """Public modules, classes, functions and methods without a docstring."""
    problems: Problems = {}
    for module in tree.values():
        for name, node in _public_names(module.tree, module.name):
            if ast.get_docstring(node) is None:
                problems[name] = f"{name}: no docstring"
    return problems


def shortened_docstrings(tree: SourceTree) -> Problems:
    """Docstrings that point to the line above, or that have a list within a line."""
    problems: Problems = {}
    for module in tree.values():
        for node in all_statements(module.tree):
            if not isinstance(node, Documented):
                continue
            found = SHORTENED.search(ast.get_docstring(node, clean=False) or "")
            if found is not None:
                name = getattr(node, "name", module.name)
                place = f"{module.path.as_posix()}:{name}"
                problems[place] = f"{place}: write it out, one entry a line: {found[0]!r}"
    return problems


def _public_names(node: Documented, name: str) -> Iterator[tuple[str, Documented]]:
    yield name, node
    if isinstance(node, Function):
        return  # what is defined inside a function is not public
    for child in node.body:
        if not isinstance(child, Documented) or child.name.startswith("_"):
            continue
        if not _is_described_elsewhere(child):
            yield from _public_names(child, f"{name}.{child.name}")


def _is_described_elsewhere(node: Documented) -> bool:
    """Whether it is the setter of a property or one of several signatures of a function."""
    decorators = getattr(node, "decorator_list", [])
    names = {
        decorator.attr if isinstance(decorator, ast.Attribute) else getattr(decorator, "id", "")
        for decorator in decorators
    }
    return bool(names & {"setter", "deleter", "overload"})


def test_files_are_named_after_what_they_hold() -> None:
    expect_clean(forbidden_names(project_tree()))


def test_no_work_is_put_off() -> None:
    expect_clean(put_off_work(project_tree()))


def test_every_public_name_has_a_docstring() -> None:
    expect_clean(missing_docstrings(project_tree()))


def test_every_docstring_is_written_out() -> None:
    expect_clean(shortened_docstrings(project_tree()))


def test_no_test_folder_shadows_a_package() -> None:
    folders = {folder.name for folder in (PROJECT / "tests").rglob("*") if folder.is_dir()}
    assert not folders & set(PACKAGES)


@pytest.mark.parametrize(
    "path",
    ["trainer/utils.py", "trainer/common/a.py", "callbacks/file_helpers.py", "trainer/base.py"],
)
def test_a_name_that_says_nothing_is_found(tmp_path: Path, path: str) -> None:
    assert list(forbidden_names(made_tree(tmp_path, {path: "", "trainer/basement.py": ""}))) == [
        path
    ]


@pytest.mark.parametrize("word", ["TODO", "FIXME", "XXX", "HACK"])
def test_work_put_off_is_found(tmp_path: Path, word: str) -> None:
    tree = made_tree(tmp_path, {"trainer/a.py": f"x = 1  # {word}: later\nHACKNEY = 2\n"})
    assert list(put_off_work(tree)) == ["trainer/a.py:1"]


def test_missing_docstrings_are_found(tmp_path: Path) -> None:
    text = '''"""A module."""
class A:
    """A class."""
    def method(self): ...
    def _private(self): ...
    def __len__(self): ...
    @property
    def value(self):
        """A value."""
        def inside(): ...
    @value.setter
    def value(self, value): ...
    class Inner: ...
def function(): ...
class _Private:
    def method(self): ...
'''
    tree = made_tree(tmp_path, {"trainer/a.py": text, "trainer/b.py": "x = 1\n"})
    assert list(missing_docstrings(tree)) == [
        "trainer.a.A.method",
        "trainer.a.A.Inner",
        "trainer.a.function",
        "trainer.b",
    ]


def test_shortened_docstrings_are_found(tmp_path: Path) -> None:
    text = '''"""A module."""
def whole(a, b):
    """A function.

    Args:
        a: a number.
        b: another one.
    """
def pointing(a, b):
    """A function.

    Args:
        a: a number.
        b: ditto.
    """
class A:
    """A class."""
    def __init__(self, a):
        """Args: a: a number."""
'''
    tree = made_tree(tmp_path, {"trainer/a.py": text})
    assert list(shortened_docstrings(tree)) == ["trainer/a.py:pointing", "trainer/a.py:__init__"]

"""The source of the four packages as syntax trees, read without importing any of it.

Every rule of these tests is a function from such a tree to its problems, so that the same function
can be shown a small tree that breaks the rule: a rule that never finds anything proves nothing.
"""

import ast
import functools
from dataclasses import dataclass
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
PACKAGES = ("trainer_toolkit", "checkpoints", "callbacks", "trainer")

Problems = dict[str, str]
"""What breaks a rule: the place (the key of an exception to the rule) to a sentence about it."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One source file.

    Attributes:
        name: dotted; a package's `__init__.py` has the name of the package.
        path: of the file, relative to the root of the tree.
        text: its source.
    """

    name: str
    path: Path
    text: str

    @functools.cached_property
    def tree(self):
        """Its syntax tree, parsed when a rule looks at it."""
        return ast.parse(self.text, filename=str(self.path))

    @functools.cached_property
    def lines(self):
        """The lines of its source."""
        return self.text.splitlines()

    @property
    def room(self):
        """The first part below the package, such as `nn`; empty for a package's own `__init__`."""
        return ".".join(self.name.split(".")[1:2])


SourceTree = dict[str, Module]
"""Modules by dotted name."""


def read_tree(root):
    """Reads all modules of the four packages below a folder."""
    tree = {}
    for package in PACKAGES:
        for file in sorted((root / package).rglob("*.py")):
            path = file.relative_to(root)
            parts = path.parent.parts if path.stem == "__init__" else path.with_suffix("").parts
            text = file.read_text(encoding="utf-8")
            name = ".".join(parts)
            tree[name] = Module(name, path, text)
    return tree


@functools.cache
def project_tree():
    """The modules of this project, read once for all tests of a file.

    Then `conftest.py` forgets them: they are millions of objects, and whenever a later test looks
    for garbage, Python would look through all of them, which takes a second.
    """
    return read_tree(PROJECT)


def made_tree(root, files):
    """Writes source files below a folder and reads them: a tree for a negative control."""
    for path, text in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return read_tree(root)


def functions(module):
    """Every function, method and nested function of a module with its qualified name."""
    yield from _functions_below(module.tree, module.name)


def statements(node):
    """What stands directly in a node, without expressions: most nodes are theirs."""
    return (child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr))


def all_statements(node):
    """A node and everything that stands in it, at any depth, without expressions."""
    yield node
    for child in statements(node):
        yield from all_statements(child)


def _functions_below(node, name):
    for child in statements(node):
        if isinstance(child, Function):
            yield f"{name}.{child.name}", child
            yield from _functions_below(child, f"{name}.{child.name}")
        elif isinstance(child, ast.ClassDef):
            yield from _functions_below(child, f"{name}.{child.name}")
        else:
            yield from _functions_below(child, name)


def expect_clean(problems, exceptions=None):
    """Fails the test with a line per problem.

    Args:
        problems: what a rule found.
        exceptions: place to reason; a reason excuses its place, and one that excuses nothing is a
            problem itself.
    """
    excused = exceptions or {}
    lines = [text for place, text in problems.items() if place not in excused]
    lines += [
        f"{place}: this exception is not needed any more, remove it from the list"
        for place in excused
        if place not in problems
    ]
    if lines:
        pytest.fail("\n".join(lines), pytrace=False)

"""Private names of the standard library: six at most, each with what its absence would cost."""

import ast
import functools
import importlib
import importlib.util
import re
import sys
from pathlib import Path

import pytest

from tests.architecture.source_tree import (
    expect_clean,
    made_tree,
    project_tree,
)

MOST = 6

EXCEPTIONS = {
    "_register_atexit": "a program whose env hangs could not end: Python waits for pools first",
    "_forkserver_pid": "a fork server that hangs, or is not ours, would be waited for forever",
    "_writer": "a worker killed in the middle of a long answer would be waited for forever",
    "_reader": "a worker killed in the middle of a long request, likewise, before Python 3.11.5",
    "_run_exitfuncs": "what libraries in an env leave to `atexit` would not happen in workers",
    "_signal": "putting signals off would cost 60 µs instead of 5, several times in an iteration",
}
"""Name -> what would be lost without it."""

DOCUMENTED = frozenset(
    {"_exit", "_getframe", "_asdict", "_make", "_fields", "_fields_", "_replace"}
)
"""Names that begin with `_` and are public all the same."""

PRIVATE = re.compile(r"\b_[A-Za-z]\w*")

OF_TORCH = frozenset({"_C", "_buffers", "_modules", "_parameters", "_version"})
"""Some of which Python's library has, too."""


def is_private(name):
    """Whether a text is a name that is private by its form, and not documented."""
    return (
        isinstance(name, str)
        and name.isidentifier()
        and name.startswith("_")
        and not name.startswith("__")
        and name not in DOCUMENTED
        and name.strip("_") != ""
    )


def imported(module):
    """The dotted names of what a file imports."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def defined(tree):
    """The private names that a file gives to something of its own."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id in ("self", "cls")
        ):
            found.add(node.attr)
        elif isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "__slots__" for target in node.targets
        ):
            found |= {
                str(part.value) for part in ast.walk(node.value) if isinstance(part, ast.Constant)
            }
    return frozenset(filter(is_private, found))


@functools.cache
def private_names_of(library):
    """Those of a top-level module of the standard library, and of what is inside it."""
    spec = importlib.util.find_spec(library)
    origin = "" if spec is None else str(spec.origin)
    if not origin.endswith(".py"):
        return frozenset(filter(is_private, dir(importlib.import_module(library))))
    path = Path(origin)
    files = path.parent.rglob("*.py") if path.name == "__init__.py" else [path]
    found = set()
    for file in files:
        found.update(PRIVATE.findall(file.read_text(encoding="utf-8", errors="replace")))
    own = dir(importlib.import_module(library))
    return frozenset(filter(is_private, found.union(own)))


def used(module):
    """Lines and names of attributes, imports, and texts such as that of `getattr`."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute):
            yield node.lineno, node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                yield node.lineno, alias.name.rpartition(".")[2]


def uses_of_private_names(tree):
    """Where a file uses a private name of a library of Python that it imports."""
    found = {}
    own = {name: defined(module.tree) for name, module in tree.items()}
    for dotted, module in tree.items():
        names = set(imported(module))
        ours = own[dotted].union(*(own[name] for name in names & set(tree)))
        others = [
            (line, name)
            for line, name in used(module)
            if is_private(name) and name not in ours | OF_TORCH
        ]
        if not others:
            continue
        libraries = {name.partition(".")[0] for name in names} & set(sys.stdlib_module_names)
        theirs = frozenset(sys.stdlib_module_names).union(*map(private_names_of, libraries))
        for line, name in others:
            if name in theirs:
                found[name] = f"{module.path}:{line}: {name} is private to Python's own library"
    return found


def test_private_names_of_the_standard_library_are_few_and_have_a_reason():
    expect_clean(uses_of_private_names(project_tree()), EXCEPTIONS)
    assert len(EXCEPTIONS) <= MOST


@pytest.mark.parametrize(
    "source",
    [
        "import threading\nthreading._register_atexit(print)\n",
        "from multiprocessing import forkserver\n"
        "found = getattr(forkserver, '_forkserver', None)\n",
        "import weakref\nfor one in vars(weakref.finalize).get('_registry', ()): print(one)\n",
        "from concurrent.futures.process import _python_exit\n",
        "import sys\nfound = sys.modules['_signal']\n",
        "import _thread\n",
        "from multiprocessing.process import BaseProcess\n"
        "class Mine(BaseProcess):\n    def end(self):\n        return self._popen\n",
        "import atexit\natexit._clear()\n",
    ],
)
def test_a_private_name_is_found(source, tmp_path):
    assert len(uses_of_private_names(made_tree(tmp_path, {"trainer/a.py": source}))) == 1


def test_own_names_and_documented_ones_are_none(tmp_path):
    source = (
        "import os, threading\n"
        "class Mine:\n    def __init__(self):\n        self._lock = threading.Lock()\n"
        "def end(mine):\n    mine._lock.acquire()\n    os._exit(0)\n"
    )
    assert uses_of_private_names(made_tree(tmp_path, {"trainer/a.py": source})) == {}

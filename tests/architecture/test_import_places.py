"""Imports stand at the top of a module, are absolute, and form no cycle."""

import graphlib

import pytest

from tests.architecture.import_statements import all_imports
from tests.architecture.source_tree import (
    expect_clean,
    made_tree,
    project_tree,
)

IN_FUNCTIONS = {}
"""Imports inside functions that are wanted, such as optional dependencies: place to reason."""

FOR_TYPES = {
    "trainer.algorithms.building -> trainer.algorithms.algorithm": (
        "an algorithm registers itself when it is defined; the registry names the class in "
        "annotations only"
    ),
    "trainer.episodes.episode_state -> trainer.episodes.single_agent_episode": (
        "functions that take an episode apart name its class in annotations"
    ),
    "trainer.episodes.agent_table -> trainer.episodes.multi_agent_episode": (
        "a table names in an annotation what it is played into"
    ),
    "trainer.config.algorithm_config -> trainer.algorithms.algorithm": (
        "an annotation says to type checkers which algorithm `build_algo()` makes"
    ),
}
"""Imports under `if TYPE_CHECKING:` that are wanted: they may go upward and close a cycle."""


def cycle(tree):
    """The modules of one import cycle, the first one repeated at the end; empty if there is none.

    Imports under `if TYPE_CHECKING:` are never run and do not count; imports inside functions are
    run, later, and count. The import of a package's `__init__` that comes with the import of each
    of its modules does not count.
    """
    graph = {name: set() for name in tree}
    for found in all_imports(tree):
        if found.imported in tree and not found.is_for_types:
            graph[found.importer].add(found.imported)
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(reversed(error.args[1]))
    return []


def hidden_imports(tree):
    """Imports inside functions."""
    return {
        found.place: f"{found.place} (line {found.line}): import inside {found.function}()"
        for found in all_imports(tree)
        if found.function
    }


def imports_for_types(tree):
    """Imports of our own modules under `if TYPE_CHECKING:`."""
    return {
        found.place: f"{found.place} (line {found.line}): import under TYPE_CHECKING"
        for found in all_imports(tree)
        if found.is_for_types and found.imported in tree
    }


def relative_imports(tree):
    """Imports that begin with a dot."""
    return {
        found.place: f"{found.place} (line {found.line}): relative import"
        for found in all_imports(tree)
        if found.is_relative
    }


def test_there_is_no_import_cycle():
    assert not cycle(project_tree())


def test_no_import_hides_in_a_function():
    expect_clean(hidden_imports(project_tree()), IN_FUNCTIONS)


def test_every_import_for_types_has_a_reason():
    expect_clean(imports_for_types(project_tree()), FOR_TYPES)


def test_imports_are_absolute():
    expect_clean(relative_imports(project_tree()))


@pytest.mark.parametrize(
    "last",
    [
        "from trainer.envs import a",
        "from trainer.envs.a import x",
        "import trainer.envs.a",
        "from . import a",
        "from .a import x",
        "def f():\n    import trainer.envs.a",
    ],
)
def test_a_cycle_is_found(tmp_path, last):
    files = {
        "trainer/envs/a.py": "import trainer.envs.b",
        "trainer/envs/b.py": "import trainer.envs.c",
        "trainer/envs/c.py": last,
    }
    found = cycle(made_tree(tmp_path, files))
    assert found[0] == found[-1]
    assert set(found) == {"trainer.envs.a", "trainer.envs.b", "trainer.envs.c"}


def test_a_module_that_imports_from_its_own_package_is_a_cycle(tmp_path):
    files = {
        "trainer/envs/__init__.py": "from trainer.envs.a import x",
        "trainer/envs/a.py": "from trainer.envs import y",
    }
    assert set(cycle(made_tree(tmp_path, files))) == {"trainer.envs", "trainer.envs.a"}


def test_an_import_for_types_closes_no_cycle_and_is_found(tmp_path):
    files = {
        "trainer/envs/a.py": "import trainer.envs.b",
        "trainer/envs/b.py": "if TYPE_CHECKING:\n    import trainer.envs.a\nelse:\n    import os\n",
    }
    tree = made_tree(tmp_path, files)
    assert not cycle(tree)
    assert list(imports_for_types(tree)) == ["trainer.envs.b -> trainer.envs.a"]


def test_an_import_in_a_method_is_found(tmp_path):
    text = "class A:\n    def f(self):\n        if self:\n            import json\n"
    tree = made_tree(tmp_path, {"callbacks/a.py": text})
    assert list(hidden_imports(tree)) == ["callbacks.a -> json"]


def test_a_relative_import_is_found(tmp_path):
    tree = made_tree(tmp_path, {"callbacks/a.py": "from .b import x", "callbacks/b.py": ""})
    assert list(relative_imports(tree)) == ["callbacks.a -> callbacks.b"]

"""Text becomes a class, a function or a module in `trainer.name_resolution`, and nowhere else."""

import ast

from tests.architecture.source_tree import (
    expect_clean,
    made_tree,
    project_tree,
)

DOOR = "trainer.name_resolution"
IMPORTING = frozenset(
    {"import_module", "__import__", "resolve_name", "find_class", "optional_module"}
)
"""Calls that import what a text names. With a constant, they are an `import` at a later time."""
RUNNING = frozenset(
    {"eval", "exec", "exec_module", "spec_from_file_location", "run_path", "run_module"}
)
"""Calls that run a text or a file."""

EXCEPTIONS = {
    "callbacks.optional_import: import_module": "its callers give constants, which is checked",
    "callbacks.ready_made.tracker_services: optional_module": "an attribute of our own classes",
    "trainer.actors.handles: getattr": "whether a class is found where it says that it is",
    "trainer.cli.named_code: spec_from_file_location": "a file that the user typed",
    "trainer.cli.named_code: exec_module": "a file that the user typed",
    "trainer.cli.rllib_scripts: run_path": "a file that the user typed",
    "trainer.cli.tuning_commands: getattr": "a file that the user typed",
    "trainer.runtime.machine_facts: import_module": "a constant list of two modules of NumPy",
}


def called(node):
    """The last part of the name of what is called."""
    function = node.func
    return getattr(function, "attr", "") or getattr(function, "id", "")


def is_constant(node):
    """Whether a text is written in the source, or made of such by an f-string."""
    if isinstance(node, ast.JoinedStr):
        return isinstance(node.values[0], ast.Constant) and "." in str(node.values[0].value)
    return isinstance(node, ast.Constant)


def modules_in(module, tree):
    """The names in a source file that stand for modules."""
    found = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            found |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {
                alias.asname or alias.name
                for alias in node.names
                if f"{node.module}.{alias.name}" in tree
            }
        elif isinstance(node, ast.Assign) and gives_module(node.value):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return frozenset(found)


def gives_module(node):
    """Whether an expression is a look-up of a module."""
    if isinstance(node, ast.Call) and called(node) in (*IMPORTING, "imported_module", "executed"):
        return True
    inner = node.func if isinstance(node, ast.Call) else node
    return (
        isinstance(inner, ast.Subscript | ast.Attribute)
        and isinstance(inner.value, ast.Attribute)
        and inner.value.attr == "modules"
    )


def root_of(node):
    """The first name of a dotted one."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node


def lookups(module, tree):
    """Lines at which a file may turn a text into code, and by what."""
    modules = modules_in(module, tree)

    def is_module(node):
        root = root_of(node)
        return gives_module(node) or (isinstance(root, ast.Name) and root.id in modules)

    for node in ast.walk(module.tree):
        if isinstance(node, ast.Subscript):  # vars(module)[name], module.__dict__[name]
            value = node.value
            is_vars = isinstance(value, ast.Call) and called(value) == "vars" and value.args
            of = value.args[0] if is_vars and isinstance(value, ast.Call) else None
            if isinstance(value, ast.Attribute) and value.attr == "__dict__":
                of = value.value
            if of is not None and is_module(of) and not is_constant(node.slice):
                yield node.lineno, "vars"
        if not isinstance(node, ast.Call):
            continue
        name, first = called(node), node.args[0] if node.args else None
        if (
            (name in IMPORTING and not is_constant(first))
            or name in RUNNING
            or (name == "getattr" and is_module(node.args[0]) and not is_constant(node.args[1]))
        ):
            yield node.lineno, name


def second_doors(tree):
    """Where text becomes code outside of the one door."""
    return {
        f"{module.name}: {name}": (
            f"{module.path}:{line}: {name}() turns a text into code; call "
            f"{DOOR}.imported(), which knows whether its source may name code"
        )
        for module in tree.values()
        if module.name != DOOR
        for line, name in lookups(module, tree)
    }


def test_names_are_resolved_in_one_place():
    expect_clean(second_doors(project_tree()), EXCEPTIONS)


def test_a_second_door_is_found(tmp_path):
    ways = {
        "a": "import importlib\nfound = importlib.import_module(name)\n",
        "b": "from importlib import import_module\nfound = import_module(f'{name}.x')\n",
        "c": "import pkgutil\nfound = pkgutil.resolve_name(name)\n",
        "d": "import sys\nfound = getattr(sys.modules[name], other)\n",
        "e": "import os\nfound = getattr(os, name, None)\n",
        "f": "import os\nfound = vars(os)[name]\n",
        "g": "from trainer import metrics\nfound = getattr(metrics, name)\n",
        "h": "found = __import__(name)\n",
        "i": "import numpy as np\nfound = getattr(np.random, name)\n",
        "j": "found = eval(name)\n",
        "k": "import sys\nmodule = sys.modules.get(name)\nfound = getattr(module, other)\n",
        "metrics": "",
    }
    files = {f"trainer/{name}.py": text for name, text in ways.items()}
    tree = made_tree(tmp_path, files)
    found = {place.partition(":")[0] for place in second_doors(tree)}
    assert found == {f"trainer.{name}" for name in ways if name != "metrics"}


def test_constants_are_imports_at_a_later_time(tmp_path):
    ways = {
        "a": "import importlib\nfound = importlib.import_module('tomllib')\n",
        "b": "import numpy as np\nfound = getattr(np, 'bool')\nother = getattr(self, name)\n",
    }
    files = {f"trainer/{name}.py": text for name, text in ways.items()}
    assert not second_doors(made_tree(tmp_path, files))

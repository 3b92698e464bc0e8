"""The tree of errors that each `errors.py` draws is the tree of its classes."""

import ast
import re

import pytest

from tests.architecture.source_tree import (
    expect_clean,
    made_tree,
    project_tree,
)

_BRANCH = re.compile(r"^(?P<indent>[│ ]*)(?:[├└]── )?(?P<name>[A-Z]\w+)(?: \((?P<others>[^)]*)\))?")


def drawn_errors(module):
    """The errors in the tree of a module docstring: name to the names of its bases."""
    lines = (ast.get_docstring(module.tree) or "").splitlines()
    paragraphs = "\n".join(lines).split("\n\n")
    drawing = next((text for text in paragraphs if "── " in text), "")
    drawn = {}
    above = []
    for line in drawing.splitlines():
        match = _BRANCH.match(line)
        if match is None:
            continue
        column = match.start("name")
        above = [(depth, name) for depth, name in above if depth < column]
        bases = {name for _, name in above[-1:]}
        others = match["others"] or ""
        drawn[match["name"]] = bases | {name.strip() for name in others.split(",") if name}
        above.append((column, match["name"]))
    return drawn


def defined_errors(module):
    """The public classes of a module: name to the names of its bases, `Exception` left out."""
    return {
        node.name: {ast.unparse(base) for base in node.bases} - {"Exception"}
        for node in module.tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    }


def tree_problems(module):
    """Where the drawing and the classes of an `errors.py` differ."""
    drawn, defined = drawn_errors(module), defined_errors(module)
    problems = {}
    for name in [*defined, *(name for name in drawn if name not in defined)]:
        if name not in drawn:
            problems[name] = f"{module.name}.{name} is not in the tree of the module docstring"
        elif name not in defined:
            problems[name] = f"{module.name} draws {name}, which it does not define"
        elif drawn[name] != defined[name]:
            problems[name] = (
                f"{module.name}.{name} is drawn with the bases {sorted(drawn[name])} and defined "
                f"with {sorted(defined[name])}"
            )
    return problems


@pytest.mark.parametrize("package", ["checkpoints", "callbacks", "trainer"])
def test_the_tree_of_errors_is_drawn_as_it_is(package):
    module = project_tree()[f"{package}.errors"]
    assert len(defined_errors(module)) > 1
    expect_clean(tree_problems(module))


_ERRORS = '''"""Errors.

    RootError
    ├── OneError (ValueError, KeyError)    something
    │   └── InnerError     more
    └── TwoError           something else

Text. NoError is only a word.
"""
class RootError(Exception): ...
class OneError(RootError, ValueError, KeyError): ...
class InnerError(OneError): ...
class TwoError(RootError): ...
'''


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ("RootError\n", "RootError\n", []),
        ("    │   └── InnerError     more\n", "", ["InnerError"]),
        ("class TwoError(RootError): ...\n", "", ["TwoError"]),
        ("class InnerError(OneError)", "class InnerError(RootError)", ["InnerError"]),
        ("(ValueError, KeyError)", "(ValueError)", ["OneError"]),
        ("class TwoError(RootError)", "class TwoError(RootError, OSError)", ["TwoError"]),
        ("class RootError(Exception): ...\n", "class RootError(OSError): ...\n", ["RootError"]),
    ],
)
def test_a_difference_between_drawing_and_classes_is_found(tmp_path, old, new, wrong):
    assert old in _ERRORS
    tree = made_tree(tmp_path, {"trainer/errors.py": _ERRORS.replace(old, new, 1)})
    assert list(tree_problems(tree["trainer.errors"])) == wrong

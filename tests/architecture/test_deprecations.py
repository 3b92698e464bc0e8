"""What is deprecated goes in the version that it names: no earlier, and no later."""

import ast
import re
from pathlib import Path

import pytest

from tests.architecture.source_tree import expect_clean, made_tree, project_tree

ROOT = Path(__file__).parents[2]
DECORATORS = ("deprecated", "deprecated_argument")


def present_version():
    """Major and minor version of this tree."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return numbers(re.search(r'^version = "(.*?)"', text, re.M)[1])


def numbers(version):
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def deprecations(module):
    """Name and decorator call of everything that a module deprecates."""
    for node in ast.walk(module.tree):
        for call in getattr(node, "decorator_list", ()):
            if isinstance(call, ast.Call) and ast.unparse(call.func).endswith(DECORATORS):
                yield f"{module.name}.{node.name}", call


def deprecation_problems(tree, version):
    """What is deprecated and should have gone by this version, or says nothing that holds."""
    problems = {}
    for module in tree.values():
        for name, call in deprecations(module):
            given = {word.arg: word.value for word in call.keywords}
            since, gone_in = (
                numbers(ast.literal_eval(given[key])) if key in given else None
                for key in ("since", "gone_in")
            )
            if since is None or gone_in is None:
                problems[name] = f"{name}: name `since` and `gone_in`"
            elif version >= gone_in:
                problems[name] = f"{name} was to go in {gone_in}, and this is {version}: remove it"
            elif since > version:
                problems[name] = f"{name} is deprecated since {since}, and this is {version}"
            elif gone_in[1] != 0 or gone_in[0] == since[0]:
                problems[name] = f"{name} may go in a major version after {since}, not in {gone_in}"
    return problems


def test_nothing_that_is_deprecated_outlives_its_version():
    expect_clean(deprecation_problems(project_tree(), present_version()))


_SOURCE = """from trainer_toolkit.deprecation import deprecated, deprecated_argument

@deprecated(since="1.2", gone_in="2.0", instead="Write `new()`.")
def old(): ...

class Door:
    @deprecated_argument("a", since="1.2", gone_in="2.0", becomes="b")
    def open(self, *, b): ...
"""


@pytest.mark.parametrize(
    ("version", "old", "new", "wrong"),
    [
        ((1, 2), "", "", []),
        ((1, 9), "", "", []),
        ((2, 0), "", "", ["trainer.a.old", "trainer.a.open"]),
        ((3, 1), "", "", ["trainer.a.old", "trainer.a.open"]),
        ((1, 1), "", "", ["trainer.a.old", "trainer.a.open"]),
        ((1, 2), 'old(): ...', 'old(): ...\ndef other(): ...', []),
        ((1, 2), 'gone_in="2.0", instead', 'gone_in="1.4", instead', ["trainer.a.old"]),
        ((1, 2), 'gone_in="2.0", instead', 'gone_in="2.1", instead', ["trainer.a.old"]),
        ((1, 2), 'gone_in="2.0", instead', "instead", ["trainer.a.old"]),
    ],
)  # fmt: skip
def test_what_stays_too_long_or_goes_too_early_is_found(tmp_path, version, old, new, wrong):
    tree = made_tree(tmp_path, {"trainer/a.py": _SOURCE.replace(old, new, 1)})
    assert list(deprecation_problems(tree, version)) == wrong

"""Files are named after what they hold, public names say what they give, nothing is put off.

And a file holds one concept whole; a function can be read in one go. Of one file, so that the
source of the project is parsed once.
"""

import ast
import re

import pytest

from tests.architecture.source_tree import (
    PACKAGES,
    PROJECT,
    Function,
    all_statements,
    expect_clean,
    functions,
    made_tree,
    project_tree,
    statements,
)

MOST_LINES_PER_FILE = 900
MOST_LINES_PER_FUNCTION = 60
DEEPEST_NESTING = 3

LONG_FILES = {
    "trainer/algorithms/algorithm.py": (
        "what users see of an algorithm, half of it docstrings; the work is done by its parts"
    ),
    "trainer/exploration/strategies.py": (
        "one class per ready-made strategy, and the table by which a config names them"
    ),
}
"""Files of more than 900 lines, and why they have one reason to change all the same."""

LONG_FUNCTIONS = {}
DEEP_FUNCTIONS = {}

FORBIDDEN_NAMES = frozenset(
    {"util", "utils", "helper", "helpers", "common", "misc", "base", "core", "manager", "managers"}
)
PUT_OFF = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")

SHORTENED = re.compile(r"\bditto\b|\b(Args|Attributes|Returns|Raises): +\S")

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def forbidden_names(tree):
    """Files and folders with a name that says nothing about what they hold."""
    problems = {}
    for module in tree.values():
        words = {word for part in module.name.split(".") for word in part.lower().split("_")}
        for word in sorted(words & FORBIDDEN_NAMES):
            path = module.path.as_posix()
            problems[path] = f"{path}: {word!r} says nothing; name it after the thing it holds"
    return problems


def put_off_work(tree):
    """Lines that put work off instead of naming an issue."""
    problems = {}
    for module in tree.values():
        for number, line in enumerate(module.lines, start=1):
            if PUT_OFF.search(line):
                place = f"{module.path.as_posix()}:{number}"
                problems[place] = f"{place}: an issue number or nothing: {line.strip()}"
    return problems


def shortened_docstrings(tree):
    """Docstrings that point to the line above, or that have a list within a line."""
    problems = {}
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


def long_files(tree):
    """Files so long that they may have two reasons to change."""
    problems = {}
    for module in tree.values():
        path, lines = module.path.as_posix(), len(module.lines)
        if lines > MOST_LINES_PER_FILE:
            problems[path] = f"{path}: {lines} lines; does it have two reasons to change?"
    return problems


def long_functions(tree):
    """Functions with too many lines of code: no docstring, no comment lines, no empty lines."""
    problems = {}
    for module in tree.values():
        for name, function in functions(module):
            lines = code_lines(function, module)
            if lines > MOST_LINES_PER_FUNCTION:
                problems[name] = f"{name}: {lines} lines of code, more than 60"
    return problems


def code_lines(function, module):
    """Lines of code of a function, its signature included."""
    numbers = set(range(function.lineno, (function.end_lineno or function.lineno) + 1))
    if ast.get_docstring(function) is not None:
        docstring = function.body[0]
        numbers -= set(range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1))
    texts = [module.lines[number - 1].strip() for number in numbers]
    return sum(bool(text) and not text.startswith("#") for text in texts)


def deep_functions(tree):
    """Functions whose blocks are nested too deeply."""
    problems = {}
    for module in tree.values():
        for name, function in functions(module):
            depth = nesting(function)
            if depth > DEEPEST_NESTING:
                problems[name] = f"{name}: blocks {depth} deep, more than {DEEPEST_NESTING}"
    return problems


_BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)


def nesting(node):
    """How deep the blocks below a node are nested; functions inside it count for themselves."""
    deepest = 0
    for child in statements(node):
        if isinstance(child, Function | ast.ClassDef):
            continue
        is_level = isinstance(child, _BLOCKS) and not _is_elif(node, child)
        deepest = max(deepest, nesting(child) + is_level)
    return deepest


def _is_elif(node, child):
    return (
        isinstance(node, ast.If)
        and isinstance(child, ast.If)
        and child in node.orelse
        and child.col_offset == node.col_offset
    )


def test_files_hold_one_concept():
    expect_clean(long_files(project_tree()), LONG_FILES)


def test_functions_are_short():
    expect_clean(long_functions(project_tree()), LONG_FUNCTIONS)


def test_blocks_are_not_nested_deeply():
    expect_clean(deep_functions(project_tree()), DEEP_FUNCTIONS)


def test_a_long_file_is_found(tmp_path):
    files = {"trainer/a.py": "x = 1\n" * 900, "trainer/b.py": "x = 1\n" * 901}
    assert list(long_files(made_tree(tmp_path, files))) == ["trainer/b.py"]


def test_a_long_function_is_found_and_its_docstring_does_not_count(tmp_path):
    docstring = '    """One.\n' + "\n    More.\n" * 50 + '    """\n'
    comments = "    # why\n\n" * 50
    files = {
        "trainer/a.py": "class A:\n  def f(self):\n" + "    x = 1\n" * 60,
        "trainer/b.py": "def f():\n" + docstring + comments + "    x = 1\n" * 59,
    }
    assert list(long_functions(made_tree(tmp_path, files))) == ["trainer.a.A.f"]


def test_deep_nesting_is_found_and_elif_is_no_level(tmp_path):
    def nested(depth):
        lines = ["    " * level + "if x:" for level in range(1, depth + 1)]
        return "def f(x):\n" + "\n".join(lines) + "\n" + "    " * (depth + 1) + "return\n"

    chain = "def f(x):\n    if x == 0:\n        return\n"
    chain += "".join(f"    elif x == {number}:\n        return\n" for number in range(1, 9))
    files = {"trainer/a.py": nested(4), "trainer/b.py": nested(3), "trainer/c.py": chain}
    assert list(deep_functions(made_tree(tmp_path, files))) == ["trainer.a.f"]


def test_files_are_named_after_what_they_hold():
    expect_clean(forbidden_names(project_tree()))


def test_no_work_is_put_off():
    expect_clean(put_off_work(project_tree()))


def test_every_docstring_is_written_out():
    expect_clean(shortened_docstrings(project_tree()))


def test_no_test_folder_shadows_a_package():
    folders = {folder.name for folder in (PROJECT / "tests").rglob("*") if folder.is_dir()}
    assert not folders & set(PACKAGES)


@pytest.mark.parametrize(
    "path",
    ["trainer/utils.py", "trainer/common/a.py", "callbacks/file_helpers.py", "trainer/base.py"],
)
def test_a_name_that_says_nothing_is_found(tmp_path, path):
    assert list(forbidden_names(made_tree(tmp_path, {path: "", "trainer/basement.py": ""}))) == [
        path
    ]


@pytest.mark.parametrize("word", ["TODO", "FIXME", "XXX", "HACK"])
def test_work_put_off_is_found(tmp_path, word):
    tree = made_tree(tmp_path, {"trainer/a.py": f"x = 1  # {word}: later\nHACKNEY = 2\n"})
    assert list(put_off_work(tree)) == ["trainer/a.py:1"]


def test_shortened_docstrings_are_found(tmp_path):
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

"""The import statements of a source tree: who imports whom, and in what kind of place."""

import ast
import functools
from dataclasses import dataclass, replace

from tests.architecture.source_tree import Function, Module, statements


@dataclass(frozen=True)
class Import:
    """One imported module.

    Attributes:
        importer: the module that imports.
        imported: the module that is imported, dotted.
        line: the line of the statement.
        function: the function that holds the statement; empty at the top of a module.
        is_for_types: whether it stands under `if TYPE_CHECKING:`.
        is_relative: whether it begins with a dot.
    """

    importer: str
    imported: str
    line: int
    function: str = ""
    is_for_types: bool = False
    is_relative: bool = False

    @property
    def place(self):
        """The key of an exception: who imports whom."""
        return f"{self.importer} -> {self.imported}"


def imports_of(module, tree):
    """Every import of a module, in the order of the source."""
    for found, source in _statements_of(module.name, module.path, module.text):
        # `from package import module` imports the module, `from module import name` its module.
        is_name = source and found.imported not in tree
        yield replace(found, imported=source) if is_name else found


def all_imports(tree):
    """Every import of every module."""
    for module in tree.values():
        yield from imports_of(module, tree)


@functools.cache
def _statements_of(name, path, text):
    """What a source imports, each name of a `from` with the module that it is from.

    Kept for all rules, while its syntax tree is not.
    """
    return tuple(_imports_below(Module(name, path, text).tree, Import(name, "", 0), path))


def _imports_below(node, place, path):
    for child in statements(node):
        inside = place
        if isinstance(child, Function):
            inside = replace(place, function=child.name)
        elif isinstance(node, ast.If) and child in node.body and _asks_for_types(node.test):
            inside = replace(place, is_for_types=True)
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield replace(inside, imported=alias.name, line=child.lineno), ""
        elif isinstance(child, ast.ImportFrom):
            yield from _imports_from(child, inside, path)
        else:
            yield from _imports_below(child, inside, path)


def _imports_from(node, place, path):
    source = node.module or ""
    if node.level:
        is_package = path.stem == "__init__"
        parents = place.importer.split(".")
        above = parents[: len(parents) - node.level + is_package]
        source = ".".join([*above, source] if source else above)
    for alias in node.names:
        found = replace(
            place,
            imported=f"{source}.{alias.name}",
            line=node.lineno,
            is_relative=node.level > 0,
        )
        yield found, source


def _asks_for_types(test):
    return "TYPE_CHECKING" in {
        part.id if isinstance(part, ast.Name) else getattr(part, "attr", None)
        for part in ast.walk(test)
    }

"""What a class is called in files: the same in the process that defined it and where it is loaded.

A class that was defined inside a function loses the function's name on its way through a pickle.
"""

from __future__ import annotations


def without_locals(qualified_name: str) -> str:
    """`make.<locals>.Callback` is `Callback` to the person who wrote it."""
    return qualified_name.rpartition("<locals>.")[2]


def class_name(cls: type) -> str:
    """The name of a class within its module, without the function that it was defined in."""
    return without_locals(cls.__qualname__)


def full_name(cls: type) -> str:
    """The name of a class with its module: "package.module.Class"."""
    return f"{cls.__module__}.{class_name(cls)}"

"""What a class is called in files: the same in the process that defined it and where it is loaded.

A class that was defined inside a function loses the function's name on its way through a pickle.
"""

from __future__ import annotations


def class_name(cls: type) -> str:
    """The name of a class within its module, without the function that it was defined in."""
    return cls.__qualname__.rpartition("<locals>.")[2]


def full_name(cls: type) -> str:
    """The name of a class with its module: "package.module.Class"."""
    return f"{cls.__module__}.{class_name(cls)}"

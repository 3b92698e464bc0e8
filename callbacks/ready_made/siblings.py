"""The other callback objects of the same run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from callbacks.chain import CallbackGroup
from callbacks.views import AlgorithmView

CallbackT = TypeVar("CallbackT")


def objects_beside(algorithm: AlgorithmView, kind: type[CallbackT]) -> list[CallbackT]:
    """The callback objects of an algorithm that are of one kind, those in groups included.

    Stand-ins for algorithms in tests may have no chain of callbacks; they have none beside.
    """
    chain = getattr(algorithm, "callbacks", None)
    return _of_kind(getattr(chain, "objects", ()), kind)


def _of_kind(objects: Iterable[object], kind: type[CallbackT]) -> list[CallbackT]:
    found: list[CallbackT] = []
    for instance in objects:
        if isinstance(instance, CallbackGroup):
            found += _of_kind(instance.chain.objects, kind)
        elif isinstance(instance, kind):
            found.append(instance)
    return found

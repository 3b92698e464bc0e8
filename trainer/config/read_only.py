"""Copies of values, and read-only copies: how a frozen config stays frozen down to its last list.

Containers (dict, list, tuple, set) and NumPy arrays are copied; other objects — classes, functions,
spaces, what a user keeps in `env_config` — are shared, because not every object can be copied.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from checkpoints.arguments import shown
from trainer.errors import ConfigError, FrozenConfigError

_ADVICE = (
    "This value belongs to a frozen config, which cannot be changed because processes already "
    "work with it. Change a copy instead: `config.copy(copy_frozen=False)`."
)


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise FrozenConfigError(_ADVICE)


class ReadOnlyDict(dict[Any, Any]):
    """A dict that cannot be changed; equal to a dict with the same entries."""

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[type, tuple[dict[Any, Any]]]:
        return ReadOnlyDict, (dict(self),)

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[Any, Any]:
        copied: dict[Any, Any] = copy_value(self)
        return copied


class ReadOnlyList(list[Any]):
    """A list that cannot be changed; equal to a list with the same entries."""

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __reduce__(self) -> tuple[type, tuple[list[Any]]]:
        return ReadOnlyList, (list(self),)

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        copied: list[Any] = copy_value(self)
        return copied


def _rebuild_tuple(value: tuple[Any, ...], entries: list[Any]) -> tuple[Any, ...]:
    # A named tuple takes its entries one by one.
    return type(value)(*entries) if hasattr(value, "_fields") else tuple(entries)


_DEEPEST = 100


def copy_value(value: Any, depth: int = 0) -> Any:
    """A copy whose containers and arrays can be changed without changing `value`.

    Raises:
        ConfigError: it is nested too deep, or holds itself.
    """
    if depth > _DEEPEST:
        raise ConfigError(
            f"A value is nested more than {_DEEPEST} levels deep, or holds itself: "
            f"{shown(value)}. Settings are flat or a few levels deep; give an object of a class of "
            "your own for more."
        )
    if isinstance(value, dict):
        return {key: copy_value(entry, depth + 1) for key, entry in value.items()}
    if isinstance(value, list):
        return [copy_value(entry, depth + 1) for entry in value]
    if isinstance(value, tuple):
        return _rebuild_tuple(value, [copy_value(entry, depth + 1) for entry in value])
    if isinstance(value, set):
        return set(value)
    if isinstance(value, np.ndarray):
        return value.copy()
    return value


def without_numpy_scalars(value: Any) -> Any:
    """The value, with Python's numbers instead of NumPy's scalars, also in dicts and lists.

    So `np.int64(4)` passes every check that `4` does, and is the same everywhere afterwards.
    """
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {key: without_numpy_scalars(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [without_numpy_scalars(entry) for entry in value]
    if isinstance(value, tuple):
        return _rebuild_tuple(value, [without_numpy_scalars(entry) for entry in value])
    return value


def freeze_value(value: Any) -> Any:
    """A copy whose containers and arrays refuse to be changed, on every level."""
    if isinstance(value, dict):
        return ReadOnlyDict({key: freeze_value(entry) for key, entry in value.items()})
    if isinstance(value, list):
        return ReadOnlyList([freeze_value(entry) for entry in value])
    if isinstance(value, tuple):
        return _rebuild_tuple(value, [freeze_value(entry) for entry in value])
    if isinstance(value, set):
        return frozenset(value)
    if isinstance(value, np.ndarray):
        frozen = value.copy()
        frozen.flags.writeable = False
        return frozen
    return value

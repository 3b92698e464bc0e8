"""The state of one callback object: its plain-data attributes, copied out and back in.

"Plain data" is what a checkpoint can hold: None, bool, int, float, complex, str, bytes, list,
tuple, dict, set, frozenset, NumPy arrays and NumPy scalars without object dtype. Subclasses
(OrderedDict, an enum) are not plain: they would come back as something else. Nothing here writes
files or logs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from checkpoints.moved_names import current_class

# ---- state

MAX_DEPTH: Final = 64
"""Deeper nesting is taken for a structure that contains itself."""

_IMMUTABLE: Final = frozenset({type(None), bool, int, float, complex, str, bytes})
_PLAIN_DTYPE_KINDS: Final = frozenset("biufcSUVmM")
_COPIED_WHOLE: Final = frozenset({list, tuple, set, frozenset})


class NotPlainError(TypeError):
    """A value is no plain data; the message names the part, relative to the value."""


def plain_copy(value: Any, *, path: str = "", depth: int = 0) -> Any:
    """A copy of plain data that shares nothing changeable with the original.

    Args:
        value: What to copy.
        path: How the value is reached, for the message of the error.
        depth: How many containers it is inside of.

    Raises:
        NotPlainError: A part is not plain data, or the data contains itself.
    """
    kind = type(value)
    if kind in _IMMUTABLE:
        return value
    if depth > MAX_DEPTH:
        raise NotPlainError(f"{path} is nested more than {MAX_DEPTH} deep or contains itself")
    if kind in _COPIED_WHOLE and _IMMUTABLE.issuperset(map(type, value)):
        return kind(value)  # most states are flat; this is ten times faster than item by item
    if kind is dict:
        return _dict_copy(value, path, depth)
    if kind is list or kind is tuple:
        items = [
            plain_copy(item, path=f"{path}[{index}]", depth=depth + 1)
            for index, item in enumerate(value)
        ]
        return items if kind is list else tuple(items)
    if kind is set or kind is frozenset:
        path_inside = f"an element of {path}"
        return kind(plain_copy(item, path=path_inside, depth=depth + 1) for item in value)
    if kind is np.ndarray or (isinstance(value, np.generic) and kind is value.dtype.type):
        return _array_copy(value, path)
    raise NotPlainError(f"{path} is {kind.__module__}.{kind.__qualname__}".replace("builtins.", ""))


def plain_attributes(instance: object) -> dict[str, Any]:
    """{name: copy} of the attributes that are plain data; the others are left out."""
    found: dict[str, Any] = {}
    for name, value in _attributes(instance).items():
        try:
            found[name] = plain_copy(value, path=name)
        except NotPlainError:
            continue  # named by whoever asks unsaved_attributes()
    return found


def unsaved_attributes(instance: object) -> dict[str, str]:
    """{name: why} of the attributes that `plain_attributes` leaves out."""
    found: dict[str, str] = {}
    for name, value in _attributes(instance).items():
        try:
            plain_copy(value, path=name)
        except NotPlainError as error:
            found[name] = str(error)
    return found


def restore_attributes(instance: object, state: dict[str, Any]) -> None:
    """Set each entry of a state as an attribute; nothing is shared with the state.

    Attributes the state does not name stay: a class that learnt a new attribute since the state was
    saved keeps what its `__init__` gave it.

    Args:
        instance: The callback object.
        state: What `plain_attributes` gave for an object of the same class.
    """
    for name, value in state.items():
        setattr(instance, name, plain_copy(value, path=name))


def attribute_names(instance: object) -> set[str]:
    """The names of all attributes, plain data or not."""
    return set(_attributes(instance))


def _attributes(instance: object) -> dict[str, Any]:
    """The attributes of an object, those in slots included, as {name: value}."""
    found: dict[str, Any] = dict(getattr(instance, "__dict__", {}))
    for cls in type(instance).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(instance, name):
                found[name] = getattr(instance, name)
    return found


def _dict_copy(value: dict[Any, Any], path: str, depth: int) -> dict[Any, Any]:
    """The copy of a dict whose keys are plain as well."""
    copied = {}
    for key, item in value.items():
        item_path = f"{path}[{key!r}]"
        copied_key = plain_copy(key, path=f"the key {key!r} of {path}", depth=depth + 1)
        copied[copied_key] = plain_copy(item, path=item_path, depth=depth + 1)
    return copied


def _array_copy(value: Any, path: str) -> Any:
    """The copy of an array or NumPy scalar whose memory is its value; the memory order is kept."""
    if value.dtype.hasobject or value.dtype.kind not in _PLAIN_DTYPE_KINDS:
        raise NotPlainError(f"{path} is an array of dtype {value.dtype}")
    return value.copy(order="K") if type(value) is np.ndarray else value.copy()


# ---- state matching
#
# Which saved callback state belongs to which callback object, decided by class and order.

_MAIN = "__main__."


@dataclass(frozen=True, kw_only=True)
class Matches:
    """The outcome of matching.

    Attributes:
        pairs: Index of the object -> its saved state.
        states_without_object: Class names of saved states that nobody took.
        objects_without_state: Class names of objects that got none.
    """

    pairs: dict[int, Any]
    states_without_object: tuple[str, ...]
    objects_without_state: tuple[str, ...]

    @property
    def text(self) -> str:
        """What did not match, as a sentence; empty when everything did."""
        parts = []
        if self.states_without_object:
            names = ", ".join(self.states_without_object)
            parts.append(f"no callback object takes the saved state of {names}")
        if self.objects_without_state:
            names = ", ".join(self.objects_without_state)
            parts.append(f"no state was saved for {names}, which starts as `__init__` made it")
        return "; ".join(parts)


def matched_states(saved: Sequence[dict[str, Any]], classes: Sequence[str]) -> Matches:
    """Match the k-th saved state of a class with the k-th object of that class.

    A callback that was added, removed or moved thus leaves the states of all other classes in
    place. A class that was defined in the script itself (`__main__`) when saved matches the class
    of the same name in a module.

    Args:
        saved: Entries `{"class": dotted name, "state": ...}` in the order they were saved.
        classes: The dotted class name of each object, in order.
    """
    waiting = [{**entry, "class": current_class(entry["class"])} for entry in saved]
    pairs: dict[int, Any] = {}
    for same in (_same_name, _same_name_in_script):
        for index, name in enumerate(classes):
            if index in pairs:
                continue
            found = next((entry for entry in waiting if same(entry["class"], name)), None)
            if found is not None:
                pairs[index] = found["state"]
                # By identity: two entries may be equal.
                waiting = [entry for entry in waiting if entry is not found]
    return Matches(
        pairs=pairs,
        states_without_object=tuple(entry["class"] for entry in waiting),
        objects_without_state=tuple(
            name for index, name in enumerate(classes) if index not in pairs
        ),
    )


def _same_name(saved: str, current: str) -> bool:
    return saved == current


def _same_name_in_script(saved: str, current: str) -> bool:
    """`__main__.Counter` and `my_run.Counter` are one class, met as a script and as a module."""
    if saved.startswith(_MAIN):
        return current.endswith("." + saved.removeprefix(_MAIN))
    return current.startswith(_MAIN) and saved.endswith("." + current.removeprefix(_MAIN))

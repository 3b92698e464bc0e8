"""What a state must look like, said in one place and compared before anything is changed.

    SHAPE = fields({"count": count, "names": list_of(TEXT)}, optional={"note": TEXT})
    check_shape(state, SHAPE)                # names every place that is otherwise
    check_shape(state, like(self.get_state()))      # the same keys, types, dtypes and shapes

A check is a function from a value and the place where it stands to the problems that it has.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from checkpoints.errors import CheckpointMismatchError

ShapeCheck = Callable[[Any, str], Iterator[str]]
"""From a value and its place to its problems."""

_MAX_PROBLEMS: Final = 5
_MAX_FLOAT_BITS: Final = 1023


def check_shape(state: Any, check: ShapeCheck) -> None:
    """Raise a CheckpointMismatchError that names what is not as it should be, if anything is."""
    problems = list(check(state, ""))
    if problems:
        more = len(problems) - _MAX_PROBLEMS
        listed = "; ".join(problems[:_MAX_PROBLEMS])
        raise CheckpointMismatchError(listed + (f"; and {more} more" if more > 0 else ""))


def of_type(*types: type, name: str = "") -> ShapeCheck:
    """Return a check for values of exactly one of these types."""
    expected = name or " or ".join(a_type(one) for one in types)

    def check(value: Any, place: str) -> Iterator[str]:
        if type(value) not in types:
            yield f"{place or 'it'} is {described(value)}, expected {expected}"

    return check


def anything(_: Any, __: str) -> Iterator[str]:
    """Accept every value."""
    return iter(())


def number(value: Any, place: str) -> Iterator[str]:
    """Accept integers that a float can hold, and floats, also NumPy's; no truth values."""
    if not _is_number(value):
        yield f"{place or 'it'} is {described(value)}, expected a number"
    elif isinstance(value, int) and value.bit_length() > _MAX_FLOAT_BITS:
        yield f"{place or 'it'} is {described(value)}, expected a number that a float can hold"


def _count(max_bits: int) -> ShapeCheck:
    def check(value: Any, place: str) -> Iterator[str]:
        is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if not is_whole or value < 0 or int(value).bit_length() > max_bits:
            found, expected = described(value), f"an integer of at least 0, below 2**{max_bits}"
            yield f"{place or 'it'} is {found}, expected {expected}"

    return check


count: Final = _count(63)
"""Accepts integers ≥ 0 that NumPy can hold, also NumPy's."""

seed: Final = _count(1024)
"""Accepts integers ≥ 0 that a manifest can hold."""


TEXT: Final = of_type(str, name="a text")
FLAG: Final = of_type(bool, name="True or False")
NOTHING: Final = of_type(type(None), name="None")


def one_of(*checks: ShapeCheck) -> ShapeCheck:
    """Return a check that is content when one of several is."""

    def check(value: Any, place: str) -> Iterator[str]:
        found = [list(single(value, place)) for single in checks]
        if all(found):  # the alternative whose first problem lies deepest is the likeliest one
            yield from max(found, key=lambda problems: problems[0].count("["))

    return check


def list_of(item: ShapeCheck, *, length: int | None = None) -> ShapeCheck:
    """Return a check for lists whose items pass a check; of any length, unless one is given."""
    return _sequence_of(list, item, length)


def tuple_of(item: ShapeCheck) -> ShapeCheck:
    """Return a check for tuples of any length whose items pass a check."""
    return _sequence_of(tuple, item, None)


def _sequence_of(kind: type[Any], item: ShapeCheck, length: int | None) -> ShapeCheck:
    of_kind = of_type(kind)

    def check(value: Any, place: str) -> Iterator[str]:
        yield from of_kind(value, place)
        if type(value) is not kind:
            return
        if length not in (None, len(value)):
            yield f"{place or 'it'} has {len(value)} items, expected {length}"
        for index, entry in enumerate(value):
            yield from item(entry, f"{place}[{index}]")

    return check


def dict_of(item: ShapeCheck) -> ShapeCheck:
    """Return a check for dicts with any text keys, whose values pass a check."""

    def check(value: Any, place: str) -> Iterator[str]:
        if type(value) is not dict:
            yield f"{place or 'it'} is {described(value)}, expected a dict"
            return
        for key, entry in value.items():
            if type(key) is not str:
                yield f"{place or 'it'} has the key {described(key)}, expected texts"
            yield from item(entry, f"{place}[{key!r}]")

    return check


def fields(
    required: Mapping[str, ShapeCheck], *, optional: Mapping[str, ShapeCheck] | None = None
) -> ShapeCheck:
    """Return a check for dicts with these keys and no others."""
    known = {**required, **(optional or {})}

    def check(value: Any, place: str) -> Iterator[str]:
        if type(value) is not dict:
            yield f"{place or 'it'} is {described(value)}, expected a dict"
            return
        if missing := [key for key in required if key not in value]:
            yield f"{place or 'it'} lacks {', '.join(map(repr, missing))}"
        if unknown := [key for key in value if key not in known]:
            yield f"{place or 'it'} has the unknown {', '.join(map(repr, unknown))}"
        for key, single in known.items():
            if key in value:
                yield from single(value[key], f"{place}[{key!r}]")

    return check


def array(*, dtype: Any = None, shape: tuple[int | None, ...] | None = None) -> ShapeCheck:
    """Return a check for arrays; None is any dtype or shape, and any length in a shape."""
    wanted = None if dtype is None else np.dtype(dtype)

    def check(value: Any, place: str) -> Iterator[str]:
        if not isinstance(value, np.ndarray):
            yield f"{place or 'it'} is {described(value)}, expected an array"
            return
        if wanted is not None and value.dtype != wanted:
            yield f"{place or 'it'} has dtype {value.dtype}, expected {wanted}"
        if shape is not None and not _fits(value.shape, shape):
            expected = tuple("n" if length is None else length for length in shape)
            yield f"{place or 'it'} has shape {value.shape}, expected {expected}"

    return check


def like(example: Any) -> ShapeCheck:
    """Return a check for the same keys, types, dtypes and shapes.

    A number may be any number, for what begins as 1 may have become 0.5. Lists may have any length.
    None says nothing about what comes later.
    """
    if type(example) is dict:
        return fields({key: like(value) for key, value in example.items()})
    if isinstance(example, np.ndarray):
        return array(dtype=example.dtype, shape=example.shape)
    if example is None:
        return anything
    return number if _is_number(example) else of_type(type(example))


def described(value: Any) -> str:
    """Return a value as a message shows it: its type, and the value if it is short."""
    if isinstance(value, np.ndarray):
        return f"an array of dtype {value.dtype} and shape {value.shape}"
    if value is None:
        return "None"
    if isinstance(value, int) and value.bit_length() > _MAX_FLOAT_BITS:  # not every one is printed
        return f"{a_type(type(value))} of {value.bit_length():,} bits"
    shown = f" ({reprlib.repr(value)})" if not isinstance(value, dict | list | tuple) else ""
    return f"{a_type(type(value))}{shown}"


def a_type(kind: type) -> str:
    """Return "a dict", "an int"."""
    name = kind.__name__
    return "None" if kind is type(None) else f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float | np.integer | np.floating)
    return is_number and not isinstance(value, bool)


def _fits(shape: tuple[int, ...], expected: tuple[int | None, ...]) -> bool:
    return len(shape) == len(expected) and all(
        wanted in (None, length) for length, wanted in zip(shape, expected, strict=True)
    )

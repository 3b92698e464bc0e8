"""One vocabulary of checks, for arguments, settings and states: what is expected, what is wrong.

    number(0, maximum=1).accepts(0.5)                               True
    list(fields({"n": COUNT})({"n": -1}, "it"))                     ["it['n'] is an int (-1), …"]

A check is a predicate and the words that describe it, always together; one of something with parts
names the places of those that are wrong. Arguments and settings may be whatever can be used as what
is expected, NumPy's scalars too; a state is held against exact types, for it was written by us.
"""

from __future__ import annotations

import math
import numbers
import os
import reprlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

_MAX_FLOAT_BITS: Final = 1023


@dataclass(frozen=True)
class Check:
    """One condition on one value.

    Attributes:
        expected: completes the sentence "expected ...".
        accepts: whether a value fulfils it; never raises.
        by_place: of what has parts: from a value and the place where it stands to its problems.
    """

    expected: str
    accepts: Callable[[Any], bool]
    by_place: Callable[[Any, str], Iterator[str]] | None = None

    def __call__(self, value: Any, place: str = "") -> Iterator[str]:
        """What is wrong with a value that stands at a place; nothing if it is accepted."""
        if self.by_place is not None:
            yield from self.by_place(value, place)
        elif not self.accepts(value):
            yield f"{place or 'it'} is {described(value)}, expected {self.expected}"


def by_place(expected: str, problems: Callable[[Any, str], Iterator[str]]) -> Check:
    """A check of something with parts."""
    return Check(expected, lambda value: next(problems(value, ""), None) is None, problems)


# ---- arguments and settings


def anything(expected: str = "any value") -> Check:
    """Accepts every value."""
    return Check(expected, lambda _: True)


def boolean() -> Check:
    """True or False (NumPy's too); 0 and 1 are not booleans."""
    return Check("True or False", lambda value: isinstance(value, bool | np.bool_))


def integer(minimum: int | None = None, maximum: int | None = None) -> Check:
    """An int (NumPy's too, no bool), at least `minimum` and at most `maximum`."""
    bound = "" if minimum is None else f" ≥ {minimum:,}"
    bound += "" if maximum is None else f"{' and' if bound else ''} ≤ {maximum:,}"

    def accepts(value: Any) -> bool:
        # By type first: asking an abstract class takes longer than all the rest.
        if type(value) is not int and (
            isinstance(value, bool) or not isinstance(value, numbers.Integral)
        ):
            return False
        return (minimum is None or int(value) >= minimum) and (
            maximum is None or int(value) <= maximum
        )

    return Check(f"an int{bound}", accepts)


def number(
    minimum: float | None = None,
    *,
    maximum: float | None = None,
    above: float | None = None,
    infinite: bool = False,
) -> Check:
    """A real number (no bool, no NaN) within bounds.

    Args:
        minimum: the smallest value allowed.
        maximum: the largest value allowed.
        above: the value must be larger than this.
        infinite: whether infinity is allowed.
    """
    bounds = [
        f" {sign} {bound:g}"
        for sign, bound in (("≥", minimum), (">", above), ("≤", maximum))
        if bound is not None
    ]

    def accepts(value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            return False
        try:
            real = float(value)
        except OverflowError:  # an int of more than 308 digits
            return False
        if math.isnan(real) or (math.isinf(real) and not infinite):
            return False
        within = (minimum is None or real >= minimum) and (maximum is None or real <= maximum)
        return within and (above is None or real > above)

    return Check("a number" + " and".join(bounds), accepts)


def text() -> Check:
    """A string that is not empty."""
    return Check("a string", lambda value: isinstance(value, str) and bool(value))


def path() -> Check:
    """A path: a string that is not empty, or a `pathlib.Path`."""

    def accepts(value: Any) -> bool:
        if not isinstance(value, str | os.PathLike):
            return False
        plain = os.fspath(value)
        return isinstance(plain, str) and bool(plain) and "\0" not in plain

    return Check("a path (a string or a pathlib.Path)", accepts)


def one_of(*choices: str | int | float | bool | None) -> Check:
    """One of a few values, by type and value; NumPy's scalars count as Python's."""
    names = ", ".join(repr(choice) for choice in choices)

    def accepts(value: Any) -> bool:
        value = plain_scalar(value)
        return any(type(value) is type(choice) and value == choice for choice in choices)

    return Check(f"one of {names}", accepts)


def function() -> Check:
    """Anything that can be called."""
    return Check("a callable", callable)


def instance(kind: type | tuple[type, ...], expected: str) -> Check:
    """An instance of a class."""
    return Check(expected, lambda value: isinstance(value, kind))


def mapping(of: Check | None = None) -> Check:
    """A dict; with `of`, every value must fulfil it."""

    def accepts(value: Any) -> bool:
        if not isinstance(value, Mapping):
            return False
        return of is None or all(of.accepts(entry) for entry in value.values())

    return Check("a dict" if of is None else f"a dict of {of.expected}", accepts)


def several(of: Check | None = None) -> Check:
    """A list or tuple; with `of`, every entry must fulfil it."""

    def accepts(value: Any) -> bool:
        if not isinstance(value, list | tuple):
            return False
        return of is None or all(of.accepts(entry) for entry in value)

    return Check("a list" if of is None else f"a list of {of.expected}", accepts)


def numeric() -> Check:
    """What NumPy makes an array of numbers or booleans of."""

    def accepts(value: Any) -> bool:
        if type(value) is np.ndarray:
            return value.dtype.kind in "biuf"
        try:
            return np.asarray(value).dtype.kind in "biuf"
        except (ValueError, TypeError, RecursionError, OverflowError):
            return False

    return Check("an array of numbers", accepts)


def optional(check: Check) -> Check:
    """None, or what `check` accepts."""
    return either(NOTHING, check)


def either(*checks: Check) -> Check:
    """What any of the checks accepts."""

    def problems(value: Any, place: str) -> Iterator[str]:
        found = [list(check(value, place)) for check in checks]
        if all(found):  # the alternative whose first problem lies deepest is the likeliest one
            yield from max(found, key=lambda each: each[0].count("["))

    return Check(
        " or ".join(check.expected for check in checks),
        lambda value: any(check.accepts(value) for check in checks),
        problems,
    )


# ---- states


def of_type(*types: type, name: str = "") -> Check:
    """A value of exactly one of these types."""
    expected = name or " or ".join(a_type(one) for one in types)
    return Check(expected, lambda value: type(value) in types)


TEXT: Final = of_type(str, name="a text")
FLAG: Final = of_type(bool, name="True or False")
NOTHING: Final = of_type(type(None), name="None")


def _whole(max_bits: int) -> Check:
    def accepts(value: Any) -> bool:
        is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        return is_whole and value >= 0 and int(value).bit_length() <= max_bits

    return Check(f"an integer of at least 0, below 2**{max_bits}", accepts)


COUNT: Final = _whole(63)
"""An integer ≥ 0 that NumPy can hold; also one of NumPy's."""

SEED: Final = _whole(1024)
"""An integer ≥ 0 that a manifest can hold."""


def _number_problems(value: Any, place: str) -> Iterator[str]:
    if not _is_number(value):
        yield f"{place or 'it'} is {described(value)}, expected a number"
    elif isinstance(value, int) and value.bit_length() > _MAX_FLOAT_BITS:
        yield f"{place or 'it'} is {described(value)}, expected a number that a float can hold"


ANY_NUMBER: Final = by_place("a number", _number_problems)
"""An integer that a float can hold, or a float, NaN included; also NumPy's; no truth value."""


def list_of(item: Check, *, length: int | None = None) -> Check:
    """A check for lists whose items pass a check; of any length, unless one is given."""
    return _sequence_of(list, item, length)


def tuple_of(item: Check) -> Check:
    """A check for tuples of any length whose items pass a check."""
    return _sequence_of(tuple, item, None)


def _sequence_of(kind: type[Any], item: Check, length: int | None) -> Check:
    of_kind = of_type(kind)

    def problems(value: Any, place: str) -> Iterator[str]:
        yield from of_kind(value, place)
        if type(value) is not kind:
            return
        if length not in (None, len(value)):
            yield f"{place or 'it'} has {len(value)} items, expected {length}"
        for index, entry in enumerate(value):
            yield from item(entry, f"{place}[{index}]")

    return by_place(f"{a_type(kind)} of {item.expected}", problems)


def dict_of(item: Check, *, length: int | None = None) -> Check:
    """A check for dicts with any text keys, whose values pass a check; `length` as of `list_of`."""

    def problems(value: Any, place: str) -> Iterator[str]:
        if type(value) is not dict:
            yield f"{place or 'it'} is {described(value)}, expected a dict"
            return
        if length not in (None, len(value)):
            yield f"{place or 'it'} has {len(value)} items, expected {length}"
        for key, entry in value.items():
            if type(key) is not str:
                yield f"{place or 'it'} has the key {described(key)}, expected texts"
            yield from item(entry, f"{place}[{key!r}]")

    return by_place(f"a dict of {item.expected}", problems)


def fields(required: Mapping[str, Check], *, optional: Mapping[str, Check] | None = None) -> Check:
    """A check for dicts with these keys and no others."""
    known = {**required, **(optional or {})}

    def problems(value: Any, place: str) -> Iterator[str]:
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

    return by_place(f"a dict with {', '.join(map(repr, required))}", problems)


def array(*, dtype: Any = None, shape: tuple[int | None, ...] | None = None) -> Check:
    """A check for arrays; None is any dtype or shape, and any length in a shape."""
    wanted = None if dtype is None else np.dtype(dtype)

    def problems(value: Any, place: str) -> Iterator[str]:
        if not isinstance(value, np.ndarray):
            yield f"{place or 'it'} is {described(value)}, expected an array"
            return
        if wanted is not None and value.dtype != wanted:
            yield f"{place or 'it'} has dtype {value.dtype}, expected {wanted}"
        if shape is not None and not _fits(value.shape, shape):
            expected = tuple("n" if length is None else length for length in shape)
            yield f"{place or 'it'} has shape {value.shape}, expected {expected}"

    return by_place("an array", problems)


def like(example: Any) -> Check:
    """A check for the same keys, types, dtypes and shapes.

    A number may be any number, for what begins as 1 may have become 0.5. Lists may have any length.
    None says nothing about what comes later.
    """
    if type(example) is dict:
        return fields({key: like(value) for key, value in example.items()})
    if isinstance(example, np.ndarray):
        return array(dtype=example.dtype, shape=example.shape)
    if example is None:
        return anything()
    return ANY_NUMBER if _is_number(example) else of_type(type(example))


def described(value: Any) -> str:
    """A value as a message shows it: its type, and the value if it is short."""
    if isinstance(value, np.ndarray):
        return f"an array of dtype {value.dtype} and shape {value.shape}"
    if value is None:
        return "None"
    if isinstance(value, int) and value.bit_length() > _MAX_FLOAT_BITS:  # not every one is printed
        return f"{a_type(type(value))} of {value.bit_length():,} bits"
    shown = f" ({reprlib.repr(value)})" if not isinstance(value, dict | list | tuple) else ""
    return f"{a_type(type(value))}{shown}"


def a_type(kind: type) -> str:
    """The words "a dict", "an int"."""
    name = kind.__name__
    return "None" if kind is type(None) else f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float | np.integer | np.floating)
    return is_number and not isinstance(value, bool)


def _fits(shape: tuple[int, ...], expected: tuple[int | None, ...]) -> bool:
    return len(shape) == len(expected) and all(
        wanted in (None, length) for length, wanted in zip(shape, expected, strict=True)
    )


def plain_scalar(value: Any) -> Any:
    """A scalar of NumPy as Python's own; anything else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def shown(value: Any) -> str:
    """A value for an error text: short, whatever it is."""
    try:
        short = reprlib.Repr()
        short.maxother, short.maxstring, short.maxlong = 60, 60, 40
        return short.repr(value)
    except Exception:  # noqa: BLE001 - a broken __repr__ must not hide what is wrong
        return f"a {type(value).__name__}"

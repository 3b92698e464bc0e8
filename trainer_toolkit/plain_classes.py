"""Data classes as plain data, and back: what a field may hold follows from its type.

    @dataclass(frozen=True)
    class Position:
        number: int
        seed: int | None = None
        tasks: tuple[Task, ...] = ()

    plain = to_plain(Position(3, tasks=(Task("a"),)))
    # {"number": 3, "seed": None, "tasks": [{"name": "a"}]}
    check_of(Position)              a check for such dicts, with the place of each problem
    from_plain(Position, plain)     the position, of a dict that was checked

| type | plain data | checked as |
|---|---|---|
| `int`, `float`, `bool`, `str`, `bytes` | itself | `COUNT`, `ANY_NUMBER`, `FLAG`, `TEXT`, bytes |
| `X | None`, `Literal[…]` | as of X, or None; itself | either; one of |
| `tuple[X, ...]`, `list[X]`, `Sequence[X]` | a list | `list_of` |
| `Mapping[str, X]`, `dict[str, X]` | a dict | `dict_of` |
| an array | itself, or what `array` makes of it | an array |
| a data class | a dict of its fields | `fields` |
| `Annotated[X, Plain(…)]` | what `Plain` says | what it says |
| `Any` | itself | anything |

A class that is none of these says it by a class method `plain_form(*forms)`, given the forms of its
type's arguments. A field with `Plain(is_rare=True)` is left out while it has its default, one with
`Plain(is_kept=False)` always.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeVar, Union

import numpy as np

from trainer_toolkit import checks
from trainer_toolkit.checks import Check

_Value = TypeVar("_Value")
ArrayMaker = Callable[[Any], Any]


def itself(value: Any) -> Any:
    """The value."""
    return value


@dataclass(frozen=True)
class Plain:
    """What the type of a field does not say of its plain data.

    Attributes:
        check: what the plain data must be; None: as the type says.
        to: makes the plain data of the value.
        back: makes the value of the plain data.
        is_rare: it is left out while the field has its default.
        is_kept: else it is no part of the plain data at all; the field must have a default.
    """

    check: Check | None = None
    to: Callable[[Any], Any] | None = None
    back: Callable[[Any], Any] | None = None
    is_rare: bool = False
    is_kept: bool = True


RARE: Final = Plain(is_rare=True)
NOT_KEPT: Final = Plain(is_kept=False)


@dataclass(frozen=True)
class Form:
    """How values of a type stand in plain data.

    Attributes:
        check: for the plain data.
        to: from a value, and what makes plain data of arrays, to the plain data.
        back: from plain data that was checked to the value.
        is_rare, is_kept: of a field: see `Plain`.
    """

    check: Check
    to: Callable[[Any, ArrayMaker], Any]
    back: Callable[[Any], Any] = itself
    is_rare: bool = False
    is_kept: bool = True


def to_plain(
    value: Any, *, array: ArrayMaker = itself, keeps_defaults: bool = True
) -> dict[str, Any]:
    """The fields of a data class as plain data, by name.

    Args:
        value: an instance of the class.
        array: says how arrays are kept, such as copied.
        keeps_defaults: else fields that have their default are left out, rare or not.
    """
    kind: Any = type(value)
    found = {}
    for field, form in _fields(kind):
        part = getattr(value, field.name)
        may_go = form.is_rare or not keeps_defaults
        if not (may_go and is_default(field, part)):
            found[field.name] = form.to(part, array)
    return found


def from_plain(kind: type[_Value], plain: Mapping[str, Any]) -> _Value:
    """The value that `to_plain` was called on; `plain` was checked with `check_of`."""
    of_any: Any = kind
    forms = {field.name: form for field, form in _fields(of_any)}
    return kind(**{name: forms[name].back(part) for name, part in plain.items()})


@functools.cache
def check_of(kind: type, *, needs_defaults: bool = True) -> Check:
    """The check for what `to_plain` gives of a data class.

    Args:
        kind: the class.
        needs_defaults: else all fields with a default may be left out.
    """
    required: dict[str, Check] = {}
    optional: dict[str, Check] = {}
    for field, form in _fields(kind):
        may_go = form.is_rare or (not needs_defaults and _has_default(field))
        (optional if may_go else required)[field.name] = form.check
    return checks.fields(required, optional=optional)


def is_default(field: dataclasses.Field[Any], part: Any) -> bool:
    """Whether a part of a value is what the field has by default."""
    if field.default_factory is not dataclasses.MISSING:
        return not part and type(part) is type(field.default_factory())
    default = field.default
    return part is default or (type(part) is type(default) and bool(part == default))


def _has_default(field: dataclasses.Field[Any]) -> bool:
    missing = dataclasses.MISSING
    return field.default is not missing or field.default_factory is not missing


@functools.cache
def _fields(kind: Any) -> list[tuple[dataclasses.Field[Any], Form]]:
    hints = typing.get_type_hints(kind, include_extras=True)
    forms = [(field, _form(hints[field.name])) for field in dataclasses.fields(kind)]
    return [(field, form) for field, form in forms if form.is_kept]


# ---- forms of types

_SCALARS: Final[Mapping[Any, Check]] = {
    int: checks.COUNT,
    float: checks.ANY_NUMBER,
    bool: checks.FLAG,
    str: checks.TEXT,
    bytes: checks.of_type(bytes),
    type(None): checks.NOTHING,
    Any: checks.anything(),
}


def _as_it_is(value: Any, _: ArrayMaker) -> Any:
    return value


def _form(hint: Any) -> Form:
    if hint in _SCALARS:
        return Form(_SCALARS[hint], _as_it_is)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return Form(
            check_of(hint),
            lambda value, array: to_plain(value, array=array),
            functools.partial(from_plain, hint),
        )
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _annotated(*arguments)
    if origin in (Union, types.UnionType):
        return _either([_form(one) for one in arguments])
    if origin is Literal:
        return Form(checks.one_of(*arguments), _as_it_is)
    if origin is np.ndarray:
        return Form(checks.array(), lambda value, array: array(value))
    if origin is tuple or (isinstance(origin, type) and issubclass(origin, Sequence)):
        kind = tuple if origin is tuple else list
        return _sequence(kind, _form(arguments[0]))
    if isinstance(origin, type) and hasattr(origin, "plain_form"):
        form: Form = origin.plain_form(*map(_form, arguments))
        return form
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(_form(arguments[1]))
    raise TypeError(f"There is no plain data for {hint}; expected a type of the table or Plain().")


def _annotated(hint: Any, *notes: Any) -> Form:
    plain = next((note for note in notes if isinstance(note, Plain)), Plain())
    is_said = plain.check is not None and plain.to is not None and plain.back is not None
    needs_type = plain.is_kept and not is_said
    form = _form(hint) if needs_type else Form(checks.anything(), _as_it_is)
    to, back = plain.to, plain.back
    return Form(
        plain.check or form.check,
        form.to if to is None else lambda value, _: to(value),
        back or form.back,
        plain.is_rare,
        plain.is_kept,
    )


def _either(forms: Sequence[Form]) -> Form:
    """That of None and one other, or of several whose values are their own plain data."""
    others = [form for form in forms if form.check is not checks.NOTHING]
    check = checks.either(*(form.check for form in forms))
    if len(others) != 1:
        return Form(check, _as_it_is)
    (other,) = others
    return Form(
        check,
        lambda value, array: None if value is None else other.to(value, array),
        lambda plain: None if plain is None else other.back(plain),
    )


def _sequence(kind: Callable[[Any], Any], item: Form) -> Form:
    return Form(
        checks.list_of(item.check),
        lambda value, array: [item.to(entry, array) for entry in value],
        lambda plain: kind(map(item.back, plain)),
    )


def _mapping(item: Form) -> Form:
    return Form(
        checks.dict_of(item.check),
        lambda value, array: {key: item.to(entry, array) for key, entry in value.items()},
        lambda plain: {key: item.back(entry) for key, entry in plain.items()},
    )

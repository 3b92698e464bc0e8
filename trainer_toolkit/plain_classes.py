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
| `int`, `float`, `bool`, `str`, `bytes` | itself | a count from 0, a number, a truth value … |
| `X | None`, `Literal[…]` | as of X, or None; itself | either; one of |
| `tuple[X, ...]`, `list[X]`, `Sequence[X]` | a list | `list_of` |
| `Mapping[str, X]`, `dict[str, X]` | a dict | `dict_of` |
| an array | itself, or what `array` makes of it | an array |
| a data class | a dict of its fields | `fields` |
| `Annotated[X, Plain(…)]` | what `Plain` says | what it says |
| `Any` | itself | anything |

A class that is none of these says it by a class method `plain_form(*forms)`, given the forms of its
type's arguments. Of several `Plain` for one field, each adds what it says. A field with
`Plain(is_rare=True)` is left out while it has its default, one with `Plain(is_kept=False)` always.
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
    """

    check: Check
    to: Callable[[Any, ArrayMaker], Any] = lambda value, _: value
    back: Callable[[Any], Any] = itself

    @property
    def is_itself(self) -> bool:
        """Whether values are their own plain data."""
        return self.to is Form.to and self.back is itself


@dataclass(frozen=True)
class _Field:
    name: str
    form: Form
    is_rare: bool
    has_default: bool
    default: Any

    def is_default(self, value: Any) -> bool:
        default = self.default
        return value is default or (type(value) is type(default) and bool(value == default))


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
    for field in _fields(kind):
        part = getattr(value, field.name)
        may_go = field.has_default and (field.is_rare or not keeps_defaults)
        if not (may_go and field.is_default(part)):
            found[field.name] = field.form.to(part, array)
    return found


def from_plain(kind: type[_Value], plain: Mapping[str, Any]) -> _Value:
    """The value that `to_plain` was called on; `plain` was checked with `check_of`."""
    of_any: Any = kind
    forms = {field.name: field.form for field in _fields(of_any)}
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
    for field in _fields(kind):
        may_go = field.has_default and (field.is_rare or not needs_defaults)
        (optional if may_go else required)[field.name] = field.form.check
    return checks.fields(required, optional=optional)


@functools.cache
def _fields(kind: Any) -> list[_Field]:
    """Those that are kept."""
    hints = typing.get_type_hints(kind, include_extras=True)
    found = []
    for field in dataclasses.fields(kind):
        plain = _said_of(hints[field.name])
        if not plain.is_kept:
            continue
        missing, default = dataclasses.MISSING, field.default
        if field.default_factory is not missing:
            default = field.default_factory()
        is_given = default is not missing
        found.append(_Field(field.name, _form(hints[field.name]), plain.is_rare, is_given, default))
    return found


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


def _form(hint: Any) -> Form:
    if hint in _SCALARS:
        return Form(_SCALARS[hint])
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return Form(
            check_of(hint),
            lambda value, array: to_plain(value, array=array),
            functools.partial(from_plain, hint),
        )
    hint = getattr(hint, "__value__", hint)  # of a name of a type, as NDArray from NumPy 2.5 on
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _annotated(arguments[0], _said_of(hint))
    if origin in (Union, types.UnionType):
        return _either([_form(one) for one in arguments])
    if origin is Literal:
        return Form(checks.one_of(*arguments))
    if origin is np.ndarray:
        return Form(checks.array(), lambda value, array: array(value))
    if origin is tuple and arguments[1:] == (...,):
        return _sequence(tuple, _form(arguments[0]))
    if isinstance(origin, type) and hasattr(origin, "plain_form"):
        form: Form = origin.plain_form(*map(_form, arguments))
        return form
    if isinstance(origin, type) and origin is not tuple and issubclass(origin, Sequence):
        return _sequence(list, _form(arguments[0]))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(_form(arguments[1]))
    raise TypeError(f"There is no plain data for {hint}; expected a type of the table or Plain().")


def _said_of(hint: Any) -> Plain:
    """What a field's type says beside the type, all together."""
    notes = typing.get_args(hint)[1:] if typing.get_origin(hint) is Annotated else ()
    said: dict[str, Any] = {}
    for note in notes:
        if isinstance(note, Plain):
            said |= {
                name: part for name, part in vars(note).items() if part != getattr(Plain, name)
            }
    return Plain(**said)


def _annotated(hint: Any, plain: Plain) -> Form:
    check, to, back = plain.check, plain.to, plain.back
    if check is not None and to is not None and back is not None:  # then the type may be any
        return Form(check, lambda value, _: to(value), back)
    form = _form(hint)
    return Form(
        check or form.check,
        form.to if to is None else lambda value, _: to(value),
        back or form.back,
    )


def _either(forms: Sequence[Form]) -> Form:
    """That of None and one other, or of several whose values are their own plain data."""
    others = [form for form in forms if form.check is not checks.NOTHING]
    check = checks.either(*(form.check for form in forms))
    if all(form.is_itself for form in others):
        return Form(check)
    if len(others) > 1:
        raise TypeError("Which of several kinds plain data is of cannot be told; expected Plain().")
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

"""Checks of arguments at the edges of all three packages: what is given, or an error that names it.

    @takes(num_env_steps=integer(1), path=optional(path()))
    def play(self, num_env_steps: int, path: PathLike | None = None) -> None: ...

A check is a predicate and the words that describe it, always together. It stands where users call,
so that what is wrong is told there and not by something inside. NumPy's scalars are numbers like
any other: `takes` turns them into Python's.
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import itertools
import math
import numbers
import os
import reprlib
import types
from collections.abc import Callable, Mapping
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    Protocol,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
)

import numpy as np

from checkpoints.data_classes import dataclass

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Class = TypeVar("_Class", bound=type)


class ArgumentError(TypeError, ValueError):
    """An argument of a public function or method is nothing that it can use."""


def _never(_: Any) -> bool:
    return False


def _always(_: Any) -> bool:
    return True


@dataclass(frozen=True)
class Check:
    """One condition on one value.

    Attributes:
        expected: completes the sentence "expected ...".
        accepts: whether a value fulfils it; never raises.
        follows_type: called with an accepted value: whether every other value of its type is
            accepted, too. Then `takes` does not check that type again.
    """

    expected: str
    accepts: Callable[[Any], bool]
    follows_type: Callable[[Any], bool] = _never


def of_type(expected: str, accepts: Callable[[Any], bool]) -> Check:
    """A check that looks at nothing but the type of a value."""
    return Check(expected, accepts, _always)


def anything(expected: str = "any value") -> Check:
    """Accepts every value."""
    return Check(expected, lambda _: True)


def boolean() -> Check:
    """True or False (NumPy's too); 0 and 1 are not booleans."""
    return of_type("True or False", lambda value: isinstance(value, bool | np.bool_))


def integer(minimum: int | None = None, maximum: int | None = None) -> Check:
    """An int (NumPy's too, no bool), at least `minimum` and at most `maximum`."""
    bound = "" if minimum is None else f" ≥ {minimum}"
    bound += "" if maximum is None else f"{' and' if bound else ''} ≤ {maximum}"

    def accepts(value: Any) -> bool:
        # By type first: asking an abstract class takes longer than all the rest.
        if type(value) is not int and (
            isinstance(value, bool) or not isinstance(value, numbers.Integral)
        ):
            return False
        return (minimum is None or int(value) >= minimum) and (
            maximum is None or int(value) <= maximum
        )

    is_bounded = minimum is not None or maximum is not None
    return Check(f"an int{bound}", accepts, _never if is_bounded else _always)


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
    return of_type("a callable", callable)


def instance(kind: type | tuple[type, ...], expected: str) -> Check:
    """An instance of a class."""
    return of_type(expected, lambda value: isinstance(value, kind))


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
    return Check(
        f"None or {check.expected}",
        lambda value: value is None or check.accepts(value),
        follows_type=lambda value: value is None or check.follows_type(value),
    )


def either(*checks: Check) -> Check:
    """What any of the checks accepts."""
    return Check(
        " or ".join(check.expected for check in checks),
        lambda value: any(check.accepts(value) for check in checks),
        follows_type=lambda value: any(
            check.accepts(value) and check.follows_type(value) for check in checks
        ),
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


def argument_error(where: str, name: str, value: Any, expected: str) -> ArgumentError:
    """The error that an argument is none of what was expected."""
    return ArgumentError(
        f"{where}: `{name}={shown(value)}` is of type {type(value).__name__}; expected {expected}. "
        f"Give {name} as that."
    )


def require_keys(where: str, name: str, value: Any, keys: tuple[str, ...]) -> None:
    """Raises an ArgumentError unless a dict has all of some keys."""
    missing = [key for key in keys if key not in value]
    if missing:
        raise ArgumentError(
            f"{where}: `{name}={shown(value)}` has no {', '.join(map(repr, missing))}; expected a "
            f"dict with {', '.join(map(repr, keys))}. Give {name} as it was handed out."
        )


def takes(**checks: Check) -> Callable[[_Function], _Function]:
    """Checks arguments of a function or method before it runs.

    Parameters that are left out of a call are not looked at.
    """

    def decorate(function: _Function) -> _Function:
        return _with_checks(function, lambda: checks)

    return decorate


def checked_arguments(function: _Function) -> _Function:
    """Checks the arguments of a function or method by their annotations before it runs."""
    return _with_checks(function, lambda: _checks_of_annotations(function))


def judges_arguments(function: _Function) -> _Function:
    """Says of a method that it checks its arguments itself, with better advice than annotations."""
    function.checks_arguments = True  # type: ignore[attr-defined]
    return function


def checked_methods(*, but: tuple[str, ...] = ()) -> Callable[[_Class], _Class]:
    """Checks the arguments of a class' public methods, inherited ones too, by their annotations.

    Not those of events (`on_…`), which only a chain of callbacks calls.

    Args:
        but: those that are called for every env step, whose cost is counted in microseconds, or
            that check more than annotations say; see also `judges_arguments`.
    """

    def decorate(cls: _Class) -> _Class:
        # Nearer classes win, and a method is replaced where it is defined, so that a comparison of
        # methods still finds an inherited one.
        members = {
            name: (owner, member)
            for owner in reversed(cls.__mro__)
            for name, member in vars(owner).items()
        }
        for name, (owner, member) in members.items():
            if name in but or (name.startswith(("_", "on_")) and name != "__init__"):
                continue
            kind = type(member) if isinstance(member, classmethod | staticmethod) else None
            plain = member.__func__ if kind is not None else member
            # Not what a test or a user put there, nor Python's own, nor twice.
            is_ours = inspect.isfunction(plain) and plain.__module__.startswith(_OURS)
            if is_ours and _has_arguments(plain, kind) and not hasattr(plain, "checks_arguments"):
                checked = checked_arguments(plain)
                setattr(owner, name, checked if kind is None else kind(checked))
        return cls

    return decorate


def _has_arguments(function: Callable[..., Any], kind: type | None) -> bool:
    # Without any there is nothing to check: one frame less in every traceback through `train()`.
    # From the code object: a thousand signatures would be a tenth of the time of an import.
    code = inspect.unwrap(function).__code__
    many = bool(code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS))
    return many or code.co_argcount + code.co_kwonlyargcount > (kind is not staticmethod)


_OURS: Final = ("trainer.", "callbacks.", "checkpoints.")


def _with_checks(function: _Function, find_checks: Callable[[], Mapping[str, Check]]) -> _Function:
    by_name: dict[str, _Parameter] = {}
    by_place: list[tuple[int, _Parameter]] = []
    is_ready = False

    def prepare() -> None:  # at the first call: annotations may name later classes
        nonlocal is_ready
        parameters = inspect.signature(function).parameters.values()
        order = [parameter.name for parameter in parameters if parameter.kind in _ORDERED]
        by_name.update({name: _Parameter(name, check) for name, check in find_checks().items()})
        by_place.extend(
            (place, by_name[name]) for place, name in enumerate(order) if name in by_name
        )
        is_ready = True

    # Called some 50 times per round of an algorithm; looking at every value takes twice as long.
    @functools.wraps(function)
    def checked(*args: Any, **named: Any) -> Any:
        if not is_ready:
            prepare()
        count = len(args)
        given: Any = args
        for place, parameter in by_place:
            if place < count and type(args[place]) not in parameter.known_types:
                given = [*given]
                given[place] = parameter.accepted(function, args, args[place])
        for name, value in named.items():
            if name in by_name and type(value) not in by_name[name].known_types:
                named[name] = by_name[name].accepted(function, args, value)
        return function(*given, **named)

    checked.checks_arguments = True  # type: ignore[attr-defined]
    return cast(_Function, checked)


_ORDERED: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _called(function: Callable[..., Any], args: tuple[Any, ...]) -> str:
    """What was called, in the words of its caller: of a method the object's class, not its base."""
    owner, _, name = function.__qualname__.rpartition(".")
    if not owner or not args or name == "__init__":
        return f"{owner or name}()"
    of = args[0] if isinstance(args[0], type) else type(args[0])
    known = any(each.__qualname__ == owner for each in of.__mro__)
    return f"{of.__name__ if known else owner}.{name}()"


_MOST_KNOWN_TYPES: Final = 16
"""Types that are remembered per parameter: classes of users are kept alive by that."""


class _Parameter:
    """One parameter's check.

    Attributes:
        known_types: types of values that were accepted, where nothing but the type counts.
    """

    __slots__ = ("_check", "_name", "known_types")

    def __init__(self, name: str, check: Check) -> None:
        self.known_types: set[type] = set()
        self._name, self._check = name, check

    def accepted(self, function: Callable[..., Any], args: tuple[Any, ...], value: Any) -> Any:
        """The value, a scalar of NumPy as Python's own; an ArgumentError if it is not accepted."""
        check = self._check
        if not check.accepts(value):
            raise argument_error(_called(function, args), self._name, value, check.expected)
        if isinstance(value, np.generic):
            return value.item()
        if check.follows_type(value) and len(self.known_types) < _MOST_KNOWN_TYPES:
            self.known_types.add(type(value))
        return value


# ---- from annotations


def _checks_of_annotations(function: Callable[..., Any]) -> dict[str, Check]:
    """A check for every parameter whose annotation says something."""
    checks = {}
    for name, parameter in inspect.signature(function).parameters.items():
        check = parameter_check(parameter, function)
        if check is not None:
            checks[name] = check
    return checks


def parameter_check(parameter: inspect.Parameter, function: Callable[..., Any]) -> Check | None:
    """What a parameter accepts by its annotation; None if that is everything."""
    if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
        return None
    check, default = check_of(_resolved(parameter.annotation, function)), parameter.default
    if check is None or default is parameter.empty or check.accepts(default):
        return check
    return Check(
        check.expected,
        lambda value: value is default or check.accepts(value),
        # Another default than None is accepted by itself, whatever else of its type is.
        follows_type=lambda value: default is None and (value is None or check.follows_type(value)),
    )


def _resolved(hint: Any, function: Callable[..., Any]) -> Any:
    if not isinstance(hint, str):
        return hint
    try:
        return eval(hint, inspect.unwrap(function).__globals__)  # noqa: S307 - our own source
    except (NameError, TypeError, AttributeError):  # for type checkers only, or generated code
        return Any


_PLAIN: Final = (bool, int, float, complex, str, bytes, list, tuple, dict, set, np.ndarray)
_MANY: Final = 1000
_TEXT: Final = frozenset({str})


def check_of(hint: Any) -> Check | None:
    """What an annotation accepts; None if that is everything.

    What only type checkers can tell apart is accepted, and so are other kinds of sequences. An
    argument of one of our protocols may be anything but plain data.
    """
    if isinstance(hint, TypeVar):
        return None if hint.__bound__ is None else check_of(hint.__bound__)
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        checks = [check_of(each) for each in inner]
        known = [check for check in checks if check is not None]
        return either(*known) if len(known) == len(checks) else None
    if origin is Literal:
        return one_of(*inner)
    if hint in _BY_TYPE:
        return _BY_TYPE[hint]
    if hint in (Any, object, inspect.Parameter.empty) or origin is Annotated:
        return None
    return _check_of_class(origin or hint, inner)


def _check_of_class(kind: Any, inner: tuple[Any, ...]) -> Check | None:
    if kind is collections.abc.Callable:
        return function()
    if kind is type:
        return of_type("a class", lambda value: isinstance(value, type))
    if kind is np.ndarray:
        is_numeric = numeric().accepts
        return Check(
            "an array of numbers",
            lambda value: (
                value.dtype.kind in "biuf"
                if type(value) is np.ndarray
                else isinstance(value, (np.ndarray, list, tuple)) and is_numeric(value)
            ),
        )
    if not isinstance(kind, type):
        return None
    # A dict class of ours has more than any dict: there only its instances will do.
    if issubclass(kind, collections.abc.Mapping) and not kind.__module__.startswith(_OURS):
        return _mapping_of(*(inner or (Any, Any)))
    if kind is tuple and inner and inner[-1] is not Ellipsis:
        return _tuple_of(inner)
    if kind in _SEVERAL:
        of = check_of(inner[0]) if inner else None
        return _several_of(of, in_order=kind in (list, tuple, collections.abc.Sequence))
    if Protocol in kind.__bases__:
        return of_type(
            f"{_article(kind.__name__)} {kind.__name__}",
            lambda value: value is not None and not isinstance(value, _PLAIN),
        )
    return instance(kind, f"{_article(kind.__name__)} {kind.__name__}")


def _article(name: str) -> str:
    return "an" if name[0] in "AEIO" else "a"


def _mapping_of(key: Any, value: Any) -> Check:
    of_keys, of_values = check_of(key), check_of(value)
    are_texts = of_values is None and of_keys is _BY_TYPE[str]

    def accepts(given: Any) -> bool:
        # By type first: asking an abstract class takes longer than all the rest.
        if type(given) is not dict and not isinstance(given, collections.abc.Mapping):
            return False
        if of_keys is None and of_values is None:
            return True
        # Weights and batches have keys of text: no call per key.
        if are_texts and _TEXT.issuperset(map(type, given)):
            return True
        entries = itertools.islice(given.items(), _MANY)
        return all(
            (of_keys is None or of_keys.accepts(key))
            and (of_values is None or of_values.accepts(entry))
            for key, entry in entries
        )

    keys = "" if of_keys is None else f" whose keys are each {of_keys.expected}"
    also = " and its values each" if keys else " whose values are each"
    values = "" if of_values is None else f"{also} {of_values.expected}"
    return Check(f"a dict{keys}{values}", accepts)


def _tuple_of(inner: tuple[Any, ...]) -> Check:
    checks = [check_of(each) or anything() for each in inner]

    def accepts(given: Any) -> bool:
        if not isinstance(given, list | tuple) or len(given) != len(checks):
            return False
        return all(check.accepts(entry) for check, entry in zip(checks, given, strict=True))

    return Check(f"({', '.join(check.expected for check in checks)})", accepts)


def _several_of(of: Check | None, *, in_order: bool) -> Check:
    def accepts(given: Any) -> bool:
        if type(given) in (list, tuple) and (of is None or not given):
            return True
        is_counted = isinstance(given, collections.abc.Sized)
        if in_order and (not is_counted or isinstance(given, collections.abc.Mapping)):
            return False
        if isinstance(given, str | bytes) or not isinstance(given, collections.abc.Iterable):
            return False
        if isinstance(given, np.ndarray) and given.ndim == 0:
            return False
        if of is None or not isinstance(given, collections.abc.Sized):
            return True
        return all(of.accepts(entry) for entry in itertools.islice(given, _MANY))

    expected = "a list" if of is None else f"a list of {of.expected}"
    return Check(expected, accepts, lambda given: of is None and type(given) in (list, tuple))


_SEVERAL: Final = (
    list,
    tuple,
    set,
    frozenset,
    collections.abc.Sequence,
    collections.abc.Collection,
    collections.abc.Iterable,
    collections.abc.Container,
    collections.abc.Iterator,
)
_BY_TYPE: Final[Mapping[Any, Check]] = types.MappingProxyType(
    {
        None: of_type("None", lambda value: value is None),
        type(None): of_type("None", lambda value: value is None),
        bool: boolean(),
        int: integer(),
        float: of_type(
            "a number",
            lambda value: (
                isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_)
            ),
        ),
        str: of_type("a string", lambda value: isinstance(value, str)),
        bytes: of_type("bytes", lambda value: isinstance(value, bytes | bytearray | memoryview)),
        os.PathLike: of_type("a path", lambda value: isinstance(value, os.PathLike)),
    }
)

"""One setting: its default, what it accepts, how problems with it are told; values as data.

What settings accept: the checks of all arguments, and those of lists and schedules.
A check says nothing about other settings; rules that involve several live in
`trainer.config.validation`.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import itertools
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, NoReturn, Protocol, TypeVar, overload

import numpy as np
from gymnasium import spaces

from checkpoints.arguments import (
    Check,
    anything,
    boolean,
    either,
    function,
    integer,
    mapping,
    number,
    one_of,
    optional,
    shown,
    text,
)
from trainer.errors import ConfigError, FrozenConfigError, UnknownSettingError

# ---- checks

__all__ = [
    "Check",
    "anything",
    "boolean",
    "either",
    "function",
    "integer",
    "is_schedule",
    "mapping",
    "number",
    "one_of",
    "optional",
    "schedule",
    "single_or_list",
    "space",
    "text",
]


def space() -> Check:
    """A gymnasium space."""
    return Check("a gymnasium space", lambda value: isinstance(value, spaces.Space))


def single_or_list(check: Check) -> Check:
    """None, one value, or a list of values that `check` accepts."""

    def accepts(value: Any) -> bool:
        entries = value if isinstance(value, (list, tuple)) else [value]
        return value is None or all(check.accepts(entry) for entry in entries)

    return Check(f"None, {check.expected} or a list of them", accepts)


def is_schedule(value: Any) -> bool:
    """Whether a value is meant as a schedule: a list of pairs, right or wrong."""
    return isinstance(value, (list, tuple))


def schedule(minimum: float | None = None) -> Check:
    """A number, or a piecewise linear schedule over env steps.

    A schedule is a list `[[env_steps, value], ...]` of at least two pairs whose first entry is at 0
    and whose env steps ascend.

    Args:
        minimum: the smallest value allowed, for the number and for every entry.
    """
    constant = number(minimum)

    def accepts(value: Any) -> bool:
        if constant.accepts(value):
            return True
        return is_schedule(value) and _is_ascending(value, constant)

    return Check(
        f"{constant.expected}, or a schedule [[env_steps, value], ...] of at least two pairs "
        "that starts at 0 and ascends",
        accepts,
    )


def _is_ascending(pairs: Sequence[Any], constant: Check) -> bool:
    steps = number(0)
    if len(pairs) < 2:
        return False
    for pair in pairs:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            return False
        if not steps.accepts(pair[0]) or not constant.accepts(pair[1]):
            return False
    starts_at_zero = float(pairs[0][0]) == 0.0
    return starts_at_zero and all(
        earlier[0] < later[0] for earlier, later in itertools.pairwise(pairs)
    )


# ---- setting
#
# One setting: its default, what it accepts, and how it is read from and written to a config. A
# `Setting` is declared in the class body of a section, once; the attribute, its default, its
# validation, the dict forms and the documentation all come from that declaration:
#
#     class FaultTolerance(ConfigValues):
#         restart_failed_env_runners = Setting(True, boolean())
#
# It is a descriptor, so type checkers know `config.restart_failed_env_runners` as a bool. What a
# setting *means* is documented in the docstring of its section method, and nowhere else.


class _NotProvidedType:
    """The type of `NotProvided`."""

    def __repr__(self) -> str:
        return "NotProvided"

    def __bool__(self) -> bool:
        return False

    def __reduce__(self) -> str:
        # Pickled by name, so that there is one object in every process.
        return "NotProvided"


NotProvided: Final[Any] = _NotProvidedType()
"""Stands for an argument that was not given; None is a value like any other."""


class Merge(enum.Enum):
    """What a section method or a dict config does with a dict that is already there."""

    REPLACE = "replace"
    """The new value replaces the old one."""
    DEEP = "deep"
    """Keys are merged on every level; None replaces."""
    BY_TYPE = "by type"
    """Keys are merged unless the key `type` changes: then the new dict replaces the old one."""


T = TypeVar("T")


class Holder(Protocol):
    """What a setting needs of the object it is read from."""

    def read_value(self, name: str) -> Any:
        """The value of the setting `name`."""

    def write_value(self, name: str, value: Any) -> None:
        """Replace the value of the setting `name`."""


@dataclasses.dataclass(frozen=True, eq=False)
class Setting(Generic[T]):
    """The declaration of one setting.

    Attributes:
        default: its value until it is set. Containers are copied before anyone can change them.
        check: which values it accepts; applied by `validate()`, not when the value is set.
        unit: of numbers: "s", "env steps", "episodes", ...; empty for pure numbers.
        merge: what sections and dict configs do with a dict that is already there.
        normalize: turns other spellings of a value into the stored one, whenever it is set.
        holds_settings: the value is a dict of settings of the same config; its keys are checked
            when it is set.
        keeps_default: an assigned dict is laid over the default of the class; None is the default.
        is_saved: checkpoints hold it; False for what says where a run happens, not what it is.
        name: filled in from the class body.
        section: the section method that takes it; filled in from the signatures of the methods.
    """

    default: T
    check: Check
    unit: str = ""
    merge: Merge = Merge.REPLACE
    normalize: Callable[[Any], Any] | None = None
    holds_settings: bool = False
    keeps_default: bool = False
    is_saved: bool = True
    name: str = ""
    section: str = ""

    @overload
    def __get__(self, holder: None, owner: type) -> Setting[T]: ...

    @overload
    def __get__(self, holder: Holder, owner: type) -> T: ...

    def __get__(self, holder: Holder | None, owner: type) -> Setting[T] | T:
        if holder is None:
            return self
        value: T = holder.read_value(self.name)
        return value

    def __set__(self, holder: Holder, value: T) -> None:
        holder.write_value(self.name, value)


# ---- problems
#
# How problems with settings are told: all of one call at once, each with what to do about it.

_MOST_PRINTED_BITS = 1024
_LONGEST_VALUE_CHARS = 120


@dataclasses.dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        what: the setting and its value, e.g. "`gamma=2.0`".
        expected: what was expected or why it matters, a sentence.
        advice: what to do, a sentence; empty where `expected` says it all.
        settings: the settings involved; rules about them are not checked any more.
        unknown: whether the problem is a name that nobody knows.
    """

    what: str
    expected: str
    advice: str = ""
    settings: tuple[str, ...] = ()
    unknown: bool = False

    def __str__(self) -> str:
        return f"{self.what}: {self.expected}" + (f" {self.advice}" if self.advice else "")


class _Printer(reprlib.Repr):
    """Shortens values; of integers that Python does not print, says how long they are."""

    def repr_int(self, value: int, level: int) -> str:
        """See `reprlib.Repr`."""
        if value.bit_length() > _MOST_PRINTED_BITS:
            return f"<int of {value.bit_length():,} bits>"
        return super().repr_int(value, level)


def assignment(name: str, value: Any) -> str:
    """`name=value` as a user would write it, with long values shortened."""
    printer = _Printer()
    printer.maxstring = printer.maxother = _LONGEST_VALUE_CHARS
    return f"`{name}={printer.repr(value)}`"


def nearest(name: str, candidates: Iterable[str], *, similarity: float = 0.6) -> str | None:
    """The candidate that looks most like `name`, or None when none looks similar.

    Args:
        name: what was written.
        candidates: what could have been meant.
        similarity: how similar a candidate has to be: 0 anything, 1 equal but for case.
    """
    lowered = {candidate.lower(): candidate for candidate in sorted(candidates)}
    matches = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=similarity)
    return lowered[matches[0]] if matches else None


def raise_problems(where: str, problems: Sequence[Problem]) -> None:
    """Raise one error that lists all problems; return when there are none.

    Args:
        where: the config or the call that is wrong, e.g. "PPOConfig.training()".
        problems: what was found.

    Raises:
        UnknownSettingError: at least one of the problems is an unknown name.
        ConfigError: there are other problems only.
    """
    if not problems:
        return
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    lines = [f"{where}: {count}"]
    lines += [f"  {position}. {problem}" for position, problem in enumerate(problems, start=1)]
    unknown = any(problem.unknown for problem in problems)
    raise (UnknownSettingError if unknown else ConfigError)("\n".join(lines))


# ---- read only
#
# Copies of values, and read-only copies: how a frozen config stays frozen down to its last list.
# Containers (dict, list, tuple, set) and NumPy arrays are copied; other objects — classes,
# functions, spaces, what a user keeps in `env_config` — are shared, because not every object can
# be copied.

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


# ---- values
#
# Pure functions on the values of settings: merging, comparing, telling data from code.


def deep_merge(old: Mapping[Any, Any], new: Mapping[Any, Any]) -> dict[Any, Any]:
    """A new dict with the entries of both; dicts in both are merged, otherwise `new` wins."""
    merged: dict[Any, Any] = copy_value(dict(old))
    for key, value in new.items():
        if isinstance(value, Mapping) and isinstance(merged.get(key), dict):
            merged[key] = deep_merge(merged[key], value)
        else:
            merged[key] = copy_value(value)
    return merged


def merge_by_type(old: Mapping[Any, Any], new: Mapping[Any, Any]) -> dict[Any, Any]:
    """Like `deep_merge`, but on every level a dict of another `type` replaces the old one.

    Its other entries are arguments of that type.
    """
    if "type" in new and not same_value(new["type"], old.get("type")):
        replaced: dict[Any, Any] = copy_value(dict(new))
        return replaced
    merged: dict[Any, Any] = copy_value(dict(old))
    for key, value in new.items():
        if isinstance(value, Mapping) and isinstance(merged.get(key), dict):
            merged[key] = merge_by_type(merged[key], value)
        else:
            merged[key] = copy_value(value)
    return merged


def same_value(first: Any, second: Any) -> bool:
    """Whether two values are equal.

    Containers are compared entry by entry, arrays by dtype and content; NaN is equal to NaN.
    """
    if first is second:
        return True
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        return _same_array(first, second)
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(
            same_value(value, second[key]) for key, value in first.items()
        )
    for kind in (list, tuple):
        if isinstance(first, kind) and isinstance(second, kind):
            return len(first) == len(second) and all(map(same_value, first, second))
    if isinstance(first, bool) != isinstance(second, bool):
        return False
    if isinstance(first, float) and isinstance(second, float) and first != first:
        return second != second
    equal = first == second
    return isinstance(equal, (bool, np.bool_)) and bool(equal)


def _same_array(first: Any, second: Any) -> bool:
    if not isinstance(first, np.ndarray) or not isinstance(second, np.ndarray):
        return False
    if first.dtype != second.dtype or first.shape != second.shape:
        return False
    return first.tobytes() == second.tobytes()


def is_plain_data(value: Any) -> bool:
    """Whether a value is data that a checkpoint can hold: no classes, functions or objects."""
    if value is None or isinstance(value, (bool, int, float, str, bytes, np.generic)):
        return True
    if isinstance(value, np.ndarray):
        return not value.dtype.hasobject
    if isinstance(value, dict):
        return all(is_plain_data(key) and is_plain_data(entry) for key, entry in value.items())
    if isinstance(value, (list, tuple, set, frozenset)):
        return not hasattr(value, "_fields") and all(map(is_plain_data, value))
    return False

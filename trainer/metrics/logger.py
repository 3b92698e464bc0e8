"""`MetricsLogger`: where callbacks, runners and the algorithm log what should appear in results."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from checkpoints import Checkpointable, check_shape
from trainer.errors import MetricsError
from trainer.metrics.result import (
    Key,
    Options,
    Path,
    Reduce,
    checked_options,
    describe,
    path_of,
    put,
    sorting_key,
    text_of,
)
from trainer.metrics.statistic import Delta, Stat, Statistic
from trainer.types import State
from trainer_toolkit import checks
from trainer_toolkit.arguments import require_keys
from trainer_toolkit.nearest_names import did_you_mean
from trainer_toolkit.trees import leaves

# ---- state shapes
#
# What the states of metrics look like, to be compared before they are taken.

_MOMENTS: Final = checks.fields(
    {
        "count": checks.COUNT,
        "nan_count": checks.COUNT,
        "is_integral": checks.FLAG,
        "partials": checks.list_of(checks.ANY_NUMBER),
        "low": checks.either(checks.ANY_NUMBER, checks.NOTHING),
        "high": checks.either(checks.ANY_NUMBER, checks.NOTHING),
    }
)

_OPTIONS: Final = checks.fields(
    {
        "reduce": checks.either(checks.TEXT, checks.NOTHING),
        "window": checks.either(checks.COUNT, checks.NOTHING),
        "ema_coeff": checks.either(checks.ANY_NUMBER, checks.NOTHING),
        "percentiles": checks.either(checks.of_type(tuple), checks.NOTHING),
        "clear_on_reduce": checks.FLAG,
        "with_throughput": checks.FLAG,
        "throughput_ema_coeff": checks.ANY_NUMBER,
        "reduce_per_index_on_aggregate": checks.FLAG,
        "min_max": checks.FLAG,
        "is_wall_clock": checks.FLAG,
    }
)

_KEPT: Final = checks.fields({"values": checks.list_of(checks.ANY_NUMBER)})
_LISTED: Final = checks.fields(
    {
        "values": checks.list_of(
            checks.either(checks.ANY_NUMBER, checks.array(), checks.of_type(list, tuple))
        )
    }
)
_BY_INDEX: Final = checks.fields({"entries": checks.list_of(_MOMENTS)})
_HEAD: Final = checks.fields(
    {
        "key": checks.list_of(checks.of_type(str, int)),
        "options": _OPTIONS,
        "held": checks.of_type(dict),
        "new": checks.of_type(dict),
    }
)


def _statistic(value: Any, place: str) -> Iterator[str]:
    """Check a statistic, whose values are kept as its options say."""
    problems = list(_HEAD(value, place))
    yield from problems
    if problems:
        return
    if not value["key"]:
        yield f"{place}['key'] is empty, expected at least one part"
    options = Options(**value["options"])
    yield from _option_problems(options, f"{place}['options']")
    listed = _LISTED if options.reduce is None else _KEPT
    kept = listed if options.keeps_values else _MOMENTS
    for name in ("held", "new"):
        yield from (_BY_INDEX if options.is_by_index else kept)(value[name], f"{place}['{name}']")


def _option_problems(options: Options, place: str) -> Iterator[str]:
    try:
        checked_options(place, {**dataclasses.asdict(options), "throughput_ema_coeff": None})
    except MetricsError as error:
        yield f"{place} cannot be: {error}"


LOGGER_STATE: Final = checks.fields(
    {"statistics": checks.list_of(checks.by_place("a statistic", _statistic))}
)
"""Of a `MetricsLogger`."""

_AGENT_RECORD: Final = checks.fields(
    {
        "agent_id": checks.either(checks.TEXT, checks.of_type(int)),
        "module_id": checks.either(checks.TEXT, checks.NOTHING),
        "episode_return": checks.ANY_NUMBER,
        "length": checks.either(checks.COUNT, checks.NOTHING),
    }
)
_NUMBER: Final = checks.either(checks.ANY_NUMBER, checks.of_type(bool))
_RECORD: Final = checks.fields(
    {
        "id_": checks.TEXT,
        "episode_return": checks.ANY_NUMBER,
        "length": checks.COUNT,
        "agent_id": checks.either(checks.TEXT, checks.NOTHING),
        "module_id": checks.either(checks.TEXT, checks.NOTHING),
        "custom_metrics": checks.dict_of(_NUMBER),
        "hist_data": checks.dict_of(checks.list_of(_NUMBER)),
        "rewritten_return": checks.either(checks.ANY_NUMBER, checks.NOTHING),
    },
    optional={
        "task": checks.anything(),
        "agents": checks.list_of(_AGENT_RECORD),
    },
)

EPISODES_STATE: Final = checks.fields(
    {
        "num_this_iteration": checks.COUNT,
        "num_lifetime": checks.COUNT,
        "records": checks.list_of(_RECORD),
    }
)
"""Of `EpisodeStatistics`."""


# ---- statistic table
#
# All statistics of a logger by their keys: making, finding, deleting, saving.

_LOG: Final = logging.getLogger(__name__)


class StatisticTable:
    """Statistics by path.

    Attributes:
        by_path: {path: statistic}, in order of the first log.
        by_key: the same statistics by the keys as callers wrote them so far, so that logging needs
            one look-up; always the same dict object.
    """

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self.by_path: dict[Path, Statistic] = {}
        self.by_key: dict[Any, Statistic] = {}
        self._clock = clock

    def find(self, key: Key) -> Statistic | None:
        """The statistic of a key in any spelling; None if there is none. Errors as of `path_of`."""
        return self.by_path.get(path_of(key))

    def find_or_make(
        self,
        key: Key,
        given: tuple[Any, ...],
        *,
        is_wall_clock: bool = False,
    ) -> Statistic:
        """The statistic of a key in a spelling that was not used yet, made if there is none.

        Args:
            key: as callers write it.
            given: the options as callers write them, in the order of `OPTION_DEFAULTS`.
            is_wall_clock: see `Options`.

        Raises:
            MetricsError: impossible options, no key, or a key that is a group already.
        """
        path = path_of(key)
        statistic = self.by_path.get(path)
        if statistic is None:
            options = _checked(path, given, is_wall_clock=is_wall_clock)
            statistic = self.add(path, options)
            statistic.given = given
        elif given != statistic.given:
            self.check_given(statistic, given)
        self.by_key[key] = statistic
        return statistic

    def add(self, path: Path, options: Options) -> Statistic:
        """A new statistic with checked options.

        Raises:
            MetricsError: the key is a group of keys already, or a part of it is a value.
        """
        for known in self.by_path:
            shorter = min(len(known), len(path))
            if known[:shorter] == path[:shorter]:
                raise MetricsError(
                    f"{text_of(path)!r} cannot be logged beside {text_of(known)!r}. In a nested "
                    "result one of them would have to be a value and a group at once. Rename one "
                    "of them."
                )
        statistic = Statistic(text_of(path), options, clock=self._clock)
        self._put(path, statistic)
        return statistic

    def _put(self, path: Path, statistic: Statistic) -> None:
        self.by_path[path] = statistic
        self.by_key[path] = statistic
        if len(path) == 1:
            self.by_key[path[0]] = statistic

    def check_given(self, statistic: Statistic, given: tuple[Any, ...]) -> None:
        """Warns once if a statistic is logged with other options than it was made with."""
        path = (statistic.name,)
        options = _checked(path, given, is_wall_clock=statistic.options.is_wall_clock)
        if options == statistic.options:
            statistic.given = given  # the same in other words; next time one comparison is enough
        else:
            self.warn_once(statistic, options)

    def warn_once(self, statistic: Statistic, options: Options) -> None:
        """Warns that `options` are ignored, once per statistic."""
        if not statistic.has_warned:
            statistic.has_warned = True
            _LOG.warning(
                "The metric %r is logged with different options: %s, then %s. The first ones stay. "
                "Use the same options for a key everywhere.",
                statistic.name,
                _differing(statistic.options, options),
                _differing(options, statistic.options),
            )

    def below(self, prefix: Path) -> dict[Path, Statistic]:
        """The statistics whose paths begin with `prefix`, in order of paths."""
        length = len(prefix)
        items = sorted(self.by_path.items(), key=sorting_key)
        return {path: statistic for path, statistic in items if path[:length] == prefix}

    def delete(self, paths: dict[Path, Statistic]) -> None:
        """Forgets some statistics."""
        remaining = {p: s for p, s in self.by_path.items() if p not in paths}
        self.by_path = {}
        self.by_key.clear()
        for path, statistic in remaining.items():
            self._put(path, statistic)

    def get_state(self) -> list[State]:
        """One dict per statistic, in order of paths; those that measure time are left out."""
        return [
            {
                "key": list(path),
                "options": dataclasses.asdict(statistic.options),
                **statistic.get_state(),
            }
            for path, statistic in self.below(()).items()
            if not statistic.options.is_wall_clock
        ]

    def set_state(self, states: list[State]) -> None:
        """Replaces all statistics by those that `get_state` described."""
        self.delete(self.by_path)
        for state in states:
            self.add(tuple(state["key"]), Options(**state["options"])).set_state(state)


def _checked(path: Path, given: tuple[Any, ...], *, is_wall_clock: bool) -> Options:
    named = dict(zip(OPTION_DEFAULTS, given, strict=True))
    return checked_options(text_of(path), named, is_wall_clock=is_wall_clock)


def _given(method: str, options: Mapping[str, Any]) -> tuple[Any, ...]:
    """All options, in the order of `OPTION_DEFAULTS`, of a method that takes them by name."""
    unknown = options.keys() - OPTION_DEFAULTS.keys()
    if unknown:
        raise TypeError(
            f"{method} got unknown options {sorted(unknown)}. It takes those of log_value(): "
            f"{', '.join(OPTION_DEFAULTS)}."
        )
    given = {**OPTION_DEFAULTS, **options}
    if isinstance(given["percentiles"], np.ndarray):
        given["percentiles"] = given["percentiles"].tolist()  # options are compared
    return tuple(given.values())


def _differing(options: Options, other: Options) -> dict[str, Any]:
    own, theirs = dataclasses.asdict(options), dataclasses.asdict(other)
    return {name: value for name, value in own.items() if value != theirs[name]}


def sibling(path: Path, suffix: str) -> Path:
    """The path beside a path, such as `speed_min`; a final `_mean` of the name is replaced."""
    name = str(path[-1])
    return (*path[:-1], name.removesuffix("_mean") + suffix)


# ---- block timer


class BlockTimer:
    """Calls `report` with the seconds of every block, also when it ends with an exception.

    One object may be entered by several threads at once, and again within itself.
    """

    def __init__(self, report: Callable[[float], None], *, clock: Callable[[], float]) -> None:
        self._report = report
        self._clock = clock
        self._starts = threading.local()

    def __enter__(self) -> BlockTimer:
        self._starts.stack = [*getattr(self._starts, "stack", []), self._clock()]
        return self

    def __exit__(self, *_: object) -> None:
        self._report(self._clock() - self._starts.stack.pop())


# ---- logger

_NO_DEFAULT: Final = object()


class MetricsLogger(Checkpointable):
    """Collects values under keys and reduces them to one number each.

    Life on a runner: `log_value` … `drain()` after every `sample()`. Life on the driver:
    `aggregate(what the runners drained, in the order of the runners)`, then `compile()` once per
    result.

    What a key means without options: the plain mean of what was logged since the last result. All
    sums and means are exact, so that N runners give the bits that one process gives from the same
    values (`trainer.metrics.statistic`).

    | options                      | result                                                     |
    |------------------------------|------------------------------------------------------------|
    | none                         | mean of the values since the last result                   |
    | `window=n`                   | mean (sum, min, max) of the last n values of all runners   |
    | `window=float("inf")`        | mean of all values ever                                    |
    | `ema_coeff=c`                | moving average: first value, then c·new + (1 - c)·old      |
    | `reduce="sum"`, "min", "max" | of all values ever, or since the last result if it clears  |
    | `reduce=None`                | list of the values since the last result, or of the last n |
    | … and `percentiles=[5, 95]`  | {percentile: value} of the last n values                   |

    "The last n" counts in order of iteration, then runner, then time. NaN is ignored, but holds its
    place in a window. Where there is no value: NaN (mean, min, max), 0 (sum), [] (list). Means
    without `ema_coeff` also appear as `<key>_min` and `<key>_max` (a final `_mean` in the key is
    replaced), unless `min_max=False`.

    The options of a key are fixed when it is first logged; other options later warn once and change
    nothing. Slashes in a key separate its parts: "car/speed" is ("car", "speed").

    Memory is bounded but for what lists, moving averages, and means by index hold of the values
    since the last result or hand-over.
    """

    def __init__(self, root: bool = False, *, clock: Callable[[], float] = time.monotonic) -> None:
        """An empty logger.

        Args:
            root: it belongs to the algorithm: `reduce` gives plain values. Else `reduce` gives what
                another logger can `aggregate`.
            clock: gives seconds, for `log_time` and throughputs.
        """
        self._is_root = root
        self._clock = clock
        self._table = StatisticTable(clock=clock)
        self._by_key = self._table.by_key

    def log_value(
        self,
        key: Key,
        value: Any,
        *,
        reduce: Reduce = "mean",
        window: float | None = None,
        ema_coeff: float | None = None,
        percentiles: Iterable[float] | bool = False,
        clear_on_reduce: bool = False,
        with_throughput: bool = False,
        throughput_ema_coeff: float | None = None,
        reduce_per_index_on_aggregate: bool = False,
        min_max: bool = True,
    ) -> None:
        """Adds one value; the class explains the options.

        Args:
            key: a slash path, or a tuple or list of its parts.
            value: a number; with `reduce=None` also an array or list of numbers.
            reduce: "mean", "sum", "min", "max" or None.
            window: how many of the last values count.
            ema_coeff: the weight of a new value in a moving average, in (0, 1].
            percentiles: which percentiles to give instead of the list, or True for the usual ones.
            clear_on_reduce: begin anew after every result.
            with_throughput: also give `<key>_throughput`, the growth of a sum per second.
            throughput_ema_coeff: the weight of its newest measurement, 0.05 unless given.
            reduce_per_index_on_aggregate: the newest values of all runners are reduced to
                one, those before them to another, and so on.
            min_max: whether results also show the smallest and largest value beside a mean.

        Raises:
            MetricsError: the options cannot be combined, the value is no number, or the key is both
                a value and a group.
        """
        if isinstance(percentiles, np.ndarray):
            percentiles = percentiles.tolist()  # options are compared at every call
        given = (
            *(reduce, window, ema_coeff, percentiles, clear_on_reduce),
            *(with_throughput, throughput_ema_coeff, reduce_per_index_on_aggregate, min_max),
        )
        try:
            statistic = self._by_key.get(key)
        except TypeError:  # a list, or no key at all
            key = path_of(key)
            statistic = self._by_key.get(key)
        if statistic is None:
            self._log_all([(key, value)], given)
            return
        if given != statistic.given:
            self._table.check_given(statistic, given)
        statistic.log(value)

    def _log_all(self, values: Iterable[tuple[Key, Any]], given: tuple[Any, ...]) -> None:
        """Logs values under keys in any spelling, or nothing: one that is refused leaves no key."""
        num_known = len(self._table.by_path)
        accepted: list[tuple[Statistic, Any]] = []
        try:
            for key, value in values:
                statistic = self._by_key.get(key)
                if statistic is None:
                    statistic = self._table.find_or_make(key, given)
                elif given != statistic.given:
                    self._table.check_given(statistic, given)
                accepted.append((statistic, statistic.accepted(value)))
        except BaseException:
            made = itertools.islice(self._table.by_path.items(), num_known, None)
            self._table.delete(dict(made))
            raise
        for statistic, value in accepted:
            statistic.log(value)

    def log_dict(
        self, value_dict: Mapping[Any, Any], *, key: Key | None = None, **options: Any
    ) -> None:
        """Logs every leaf of a nested dict, or none.

        Args:
            value_dict: {part: value or dict}.
            key: what all keys begin with.
            options: as in `log_value`.

        Raises:
            MetricsError: a leaf cannot be logged; names its path. Nothing was logged.
        """
        prefix = () if key is None else path_of(key)
        self._log_all(leaves(value_dict, prefix), _given("log_dict()", options))

    def log_time(self, key: Key, **options: Any) -> BlockTimer:
        """Logs how many seconds a `with` block takes, as often as it is entered, from any thread.

        Args:
            key: as in `log_value`.
            options: as in `log_value`, but `min_max` is False unless given. Times are not part of
                states.
        """
        given = _given("log_time()", {"min_max": False, **options})
        key = tuple(key) if isinstance(key, list) else key

        def report(seconds: float) -> None:
            statistic = self._by_key.get(key)
            if statistic is None:
                statistic = self._table.find_or_make(key, given, is_wall_clock=True)
            elif given != statistic.given:
                self._table.check_given(statistic, given)
            statistic.log(seconds)

        return BlockTimer(report, clock=self._clock)

    def set_value(self, key: Key, value: Any, **options: Any) -> None:
        """Overwrites the newest value of a window or list, and everything that any other key holds.

        Args:
            key: as in `log_value`; made if it does not exist.
            value: as in `log_value`.
            options: as in `log_value`.
        """
        statistic = self._table.find(key)
        if statistic is None:
            self.log_value(key, value, **options)
        else:
            statistic.set_value(value)

    def peek(
        self,
        key: Key | None = None,
        default: Any = _NO_DEFAULT,
        compile: bool = True,  # noqa: A002 (RLlib's name)
        *,
        throughput: bool = False,
        stat: Stat | None = None,
    ) -> Any:
        """What a result would show now; nothing is cleared.

        Args:
            key: a key, or the beginning of keys for a nested dict; None for everything.
            default: the answer if there is no such key; without it that is a KeyError.
            compile: False gives the single values as a list, as far as they are kept.
            throughput: give the throughput instead; of several keys, those that were logged with
                one, each as `<key>_throughput`.
            stat: give "mean", "sum", "min", "max", "count" (without NaN) or "nan_count" instead.

        Raises:
            KeyError: there is no such key; the message names the nearest.
        """

        def read(statistic: Statistic) -> Any:
            if throughput:
                return statistic.throughput
            return statistic.read(stat) if compile else statistic.values()

        path = () if key is None else path_of(key)
        if path in self._table.by_path:
            return read(self._table.by_path[path])
        found = self._table.below(path)
        if not found and path:
            if default is not _NO_DEFAULT:
                return default
            known = [text_of(known) for known in self._table.by_path]
            if describe(text_of(path)) is None:
                hint = did_you_mean(text_of(path), known)
            else:
                hint = (
                    " It is a standard key of results, and no logger holds those: read it in what "
                    "`train()` returns, which `on_train_result` gets as `result`."
                )
            raise KeyError(f"Nothing was logged as {key!r}.{hint}")
        tree: dict[Any, Any] = {}
        for below, statistic in found.items():
            if throughput and not statistic.options.with_throughput:
                continue
            shown = sibling(below, "_throughput") if throughput else below
            put(tree, shown[len(path) :], read(statistic))
        return tree

    @staticmethod
    def peek_results(results: Any, compile: bool = True) -> Any:  # noqa: A002, ARG004
        """What `reduce` gave, as plain values; what is plain already stays as it is."""
        if isinstance(results, Mapping):
            return {key: MetricsLogger.peek_results(value) for key, value in results.items()}
        return results.read() if isinstance(results, Delta) else results

    def __contains__(self, key: Key) -> bool:
        return bool(self._table.below(path_of(key)))

    def reduce(self, key: Key | None = None) -> Any:
        """Ends a result; keys that clear are empty afterwards, the others go on.

        Args:
            key: gives what is under this key alone, and ends nothing: `peek(key)`.

        Returns:
            a root logger: the reduced values as a nested dict, in order of keys. Any other: the
            same as `drain()`, which `peek_results` turns into plain values.
        """
        if key is not None:
            return self.peek(key)
        return self._result({}) if self._is_root else self.drain()

    def compile(self) -> dict[Any, Any]:
        """Ends a result and gives plain values, also of a logger that is not a root.

        Beside the keys stand `<key>_throughput`, `<key>_min` and `<key>_max` where they exist; a
        key, or a group of keys, that was logged under such a name itself wins.
        """
        extras: dict[Path, Any] = {}
        for path, statistic in self._table.by_path.items():
            if statistic.options.shows_min_max:
                extras[sibling(path, "_min")] = statistic.read("min")
                extras[sibling(path, "_max")] = statistic.read("max")
        return self._result(extras)

    def _result(self, extras: dict[Path, Any]) -> dict[Any, Any]:
        values = {path: statistic.read() for path, statistic in self._table.by_path.items()}
        for path, statistic in self._table.by_path.items():
            statistic.end_result()
            if statistic.options.with_throughput:
                extras[sibling(path, "_throughput")] = statistic.throughput
        groups = {path[:depth] for path in values for depth in range(1, len(path))}
        tree: dict[Any, Any] = {}
        for path, value in sorted({**extras, **values}.items(), key=sorting_key):
            if path not in groups:
                put(tree, path, value)
        return tree

    def drain(self) -> dict[Any, Any]:
        """Everything new since the last `drain()`: a nested dict of `Delta`, for `aggregate`."""
        tree: dict[Any, Any] = {}
        for path, statistic in self._table.by_path.items():
            delta = statistic.drain()
            if delta is not None:
                put(tree, path, delta)
        return tree

    def aggregate(
        self, stats_dicts: Iterable[Mapping[Any, Any]], *, key: Key | None = None
    ) -> None:
        """Adds what other loggers drained, as if it had been logged here.

        Args:
            stats_dicts: what `drain()` or `reduce()` gave, in the order of the runners (never of
                arrival). Leaves may also be plain numbers, which are logged.
            key: what all keys begin with, e.g. "env_runners".

        Raises:
            MetricsError: a key is reduced in different ways in different loggers.
        """
        prefix = () if key is None else path_of(key)
        side_by_side: dict[Path, Delta] = {}
        for stats in stats_dicts:
            for path, leaf in leaves(stats, prefix):
                if not isinstance(leaf, Delta):
                    self.log_value(path, leaf)
                elif leaf.options.is_by_index:
                    path = path_of(path)
                    before = side_by_side.get(path)
                    side_by_side[path] = leaf if before is None else before.beside(leaf)
                else:
                    self._merge(path_of(path), leaf)
        for path, delta in side_by_side.items():
            self._merge(path, delta)

    def _merge(self, path: Path, delta: Delta) -> None:
        statistic = self._table.by_path.get(path) or self._table.add(path, delta.options)
        if statistic.options != delta.options:
            self._table.warn_once(statistic, delta.options)
        statistic.merge(delta)

    def delete(self, *key: str | int, key_error: bool = True) -> None:
        """Forgets a key, or all keys that begin so: `delete("env_runners", "speed")`.

        Args:
            key: the parts of the key.
            key_error: whether a key that does not exist is an error.

        Raises:
            KeyError: there is no such key.
        """
        found = self._table.below(path_of(key))
        if not found and key_error:
            raise KeyError(f"Nothing was logged as {key!r}, so it cannot be deleted.")
        self._table.delete(found)

    def reset(self) -> None:
        """Forgets everything."""
        self._table.delete(self._table.by_path)

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """See `Checkpointable`; a clock has to be given again."""
        return (), {"root": self._is_root}

    def _own_state(self) -> State:
        # Without times, throughputs and other things that depend on the clock.
        return {"statistics": self._table.get_state()}

    def check_state(self, state: State) -> None:
        check_shape(state, LOGGER_STATE)

    def set_state(self, state: State) -> None:
        """Replaces everything by what `get_state` gave."""
        require_keys("MetricsLogger.set_state()", "state", state, ("statistics",))
        self._table.set_state(state["statistics"])


OPTION_DEFAULTS: Final[Mapping[str, Any]] = {
    parameter.name: parameter.default
    for parameter in inspect.signature(MetricsLogger.log_value).parameters.values()
    if parameter.kind is parameter.KEYWORD_ONLY
}
"""The options of `log_value`, in its order."""

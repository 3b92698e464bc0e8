"""How the values of one metric are reduced: the options of `log_value`, checked.

Metric keys as paths, and nested dicts addressed by them. Pure functions.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from trainer.errors import MetricsError
from trainer.old_names import OLD_NAMES

# ---- paths

Key = str | tuple[str | int, ...]
"""A metric's name: a slash path such as "car/speed", or a tuple of parts for nested dicts."""

Path = tuple[str | int, ...]
"""A key as a tuple of parts without slashes."""


def path_of(key: Any) -> Path:
    """The path that a key means: "a/b", ("a", "b") and ("a/b",) are the same.

    One meaning for all, because results are read and written by slash paths, in which the three
    could not be told apart.

    Raises:
        MetricsError: it is neither a string nor a tuple of strings and ints, or a part is empty.
    """
    parts = key if isinstance(key, tuple) else (key,)
    path: list[str | int] = []
    for part in parts:
        if isinstance(part, str):
            path += part.split("/")
        elif isinstance(part, int):
            path.append(part)
        else:
            path.append("")  # refused below
    if not path or "" in path:
        raise MetricsError(
            f"{key!r} is no key for a metric. A key is a string, or a tuple of strings for nested "
            "results; slashes separate parts, and no part is empty. Write for example 'speed', "
            "'car/speed' or ('car', 'speed')."
        )
    return tuple(path)


def text_of(path: Path) -> str:
    """The path as people write it: "env_runners/episode_return_mean"."""
    return "/".join(str(part) for part in path)


def put(tree: dict[Any, Any], path: Path, value: Any) -> None:
    """Sets a leaf of a nested dict and makes the dicts on the way."""
    for part in path[:-1]:
        tree = tree.setdefault(part, {})
    tree[path[-1]] = value


def leaves(tree: Mapping[Any, Any], prefix: Path = ()) -> Iterator[tuple[Path, Any]]:
    """All (path, leaf) of a nested dict, in its order; empty dicts have none."""
    for part, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, (*prefix, part))
        else:
            yield (*prefix, part), value


def sorting_key(item: tuple[Path, Any]) -> tuple[str, ...]:
    """Orders (path, anything) by path, ints and strings alike."""
    return tuple(str(part) for part in item[0])


def nearest(name: str, known: Iterable[str]) -> str:
    """A sentence naming the known name most like `name`, or an empty string."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" The nearest one is {found[0]!r}." if found else ""


# ---- options

Reduce = str | None
"""What becomes of many values: "mean", "sum", "min" or "max"; None keeps them all."""

REDUCTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {"mean": "mean", "min": "low", "max": "high", "sum": "total"}
)
"""Every reduction, and the property of kept values (`trainer.metrics.statistic`) that gives it."""

OPTION_DEFAULTS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "reduce": "mean",
        "window": None,
        "ema_coeff": None,
        "percentiles": False,
        "clear_on_reduce": False,
        "with_throughput": False,
        "throughput_ema_coeff": None,
        "reduce_per_index_on_aggregate": False,
        "min_max": True,
    }
)
"""The options of `log_value` as callers write them."""

_ALL_PERCENTILES: Final = (0, 50, 75, 90, 95, 99, 100)


@dataclass(frozen=True)
class Options:
    """The options of one metric; they are fixed when it is first logged.

    Attributes:
        reduce: "mean", "sum", "min", "max", or None for a list of all values.
        window: only the last so many values count (over all runners).
        ema_coeff: exponential moving average; the weight of a new value, in (0, 1].
        percentiles: the percentiles to give instead of the list, each in [0, 100].
        clear_on_reduce: every result begins anew; so it is for plain means and plain lists.
        with_throughput: also give the amount per second.
        throughput_ema_coeff: the weight of a new measurement of the throughput, in (0, 1].
        reduce_per_index_on_aggregate: values of parallel loggers at the same index, counted from
            the newest, become one (`ValuesByIndex`).
        min_max: also show `_min` and `_max` beside a mean.
        is_wall_clock: the values are times; they are left out of states, which must not depend on
            the speed of the machine.
    """

    reduce: Reduce = "mean"
    window: int | None = None
    ema_coeff: float | None = None
    percentiles: tuple[float, ...] | None = None
    clear_on_reduce: bool = False
    with_throughput: bool = False
    throughput_ema_coeff: float = 0.05
    reduce_per_index_on_aggregate: bool = False
    min_max: bool = True
    is_wall_clock: bool = False

    @property
    def keeps_values(self) -> bool:
        """Whether single values must be kept, because their order matters."""
        return (
            self.reduce is None
            or self.window is not None
            or self.ema_coeff is not None
            or self.is_by_index
        )

    @property
    def is_by_index(self) -> bool:
        """Whether parallel values are reduced by index; lifetime values have no index."""
        return self.reduce_per_index_on_aggregate and (
            self.window is not None or self.clear_on_reduce
        )

    @property
    def shows_min_max(self) -> bool:
        """Whether results show the smallest and largest value beside this one."""
        return self.min_max and self.reduce == "mean" and self.ema_coeff is None


def checked_options(
    name: str,
    *,
    reduce: Any,
    window: Any,
    ema_coeff: Any,
    percentiles: Any,
    clear_on_reduce: bool,
    with_throughput: bool,
    throughput_ema_coeff: Any,
    reduce_per_index_on_aggregate: bool,
    min_max: bool,
    is_wall_clock: bool = False,
) -> Options:
    """The options for a new metric.

    Args:
        name: the metric, for error texts.
        reduce: see `Options`; so for the others.
        window: an int ≥ 1; infinity means all values ever.
        ema_coeff: ditto.
        percentiles: True means 0, 50, 75, 90, 95, 99 and 100; False or None means none.
        clear_on_reduce: ditto.
        with_throughput: ditto.
        throughput_ema_coeff: None means 0.05.
        reduce_per_index_on_aggregate: ditto.
        min_max: ditto.
        is_wall_clock: ditto.

    Raises:
        MetricsError: an option is impossible, or two cannot be combined.
    """
    _check_reduction(name, reduce, ema_coeff, window)
    _check_number_options(name, window, ema_coeff, throughput_ema_coeff)
    if with_throughput and (reduce != "sum" or window is not None):
        raise MetricsError(
            f"{name}: with_throughput=True cannot be combined with reduce={reduce!r}, "
            f"window={window!r}. A throughput is the growth of a sum per second. Use "
            "reduce='sum' without window."
        )
    if reduce_per_index_on_aggregate and (reduce is None or ema_coeff is not None):
        raise MetricsError(
            f"{name}: reduce_per_index_on_aggregate=True cannot be combined with "
            f"reduce={reduce!r}, ema_coeff={ema_coeff!r}. It says that values of equal index are "
            "reduced to one. Use reduce='mean', 'sum', 'min' or 'max' with a window."
        )
    is_endless = window == math.inf
    is_plain = window is None and ema_coeff is None and reduce in ("mean", None)
    return Options(
        reduce=reduce,
        window=None if is_endless else window,
        ema_coeff=ema_coeff,
        percentiles=_checked_percentiles(name, percentiles, reduce, window),
        clear_on_reduce=bool(clear_on_reduce) or is_plain or (is_endless and reduce is None),
        with_throughput=bool(with_throughput),
        throughput_ema_coeff=0.05 if throughput_ema_coeff is None else throughput_ema_coeff,
        reduce_per_index_on_aggregate=bool(reduce_per_index_on_aggregate),
        min_max=bool(min_max),
        is_wall_clock=is_wall_clock,
    )


def _check_reduction(name: str, reduce: Any, ema_coeff: Any, window: Any) -> None:
    if reduce is not None and reduce not in REDUCTIONS:
        advice = OLD_NAMES.reductions.get(str(reduce))
        raise MetricsError(
            f"{name}: reduce={reduce!r} is unknown. It says what becomes of many values: one of "
            f"{', '.join(map(repr, REDUCTIONS))} or None."
            f"{f' {advice}' if advice else nearest(str(reduce), REDUCTIONS)}"
        )
    if ema_coeff is not None and window is not None:
        raise MetricsError(
            f"{name}: window={window!r} and ema_coeff={ema_coeff!r} cannot be combined. Both say "
            "how old values lose their weight. Give one of them."
        )
    if ema_coeff is not None and reduce != "mean":
        raise MetricsError(
            f"{name}: ema_coeff={ema_coeff!r} cannot be combined with reduce={reduce!r}. An "
            "exponential moving average is a mean. Use reduce='mean', or leave ema_coeff out."
        )


def _check_number_options(name: str, window: Any, ema_coeff: Any, throughput: Any) -> None:
    is_count = isinstance(window, int) and not isinstance(window, bool) and window >= 1
    if window is not None and window != math.inf and not is_count:
        raise MetricsError(
            f"{name}: window={window!r} is no number of values. A window holds the last so many "
            "values. Give an integer of at least 1, or None."
        )
    for option, value in (("ema_coeff", ema_coeff), ("throughput_ema_coeff", throughput)):
        if value is not None and not 0.0 < value <= 1.0:
            raise MetricsError(
                f"{name}: {option}={value!r} lies outside (0, 1]. It is the weight of a new value. "
                "Give for example 0.01."
            )


def _checked_percentiles(
    name: str, percentiles: Any, reduce: Any, window: Any
) -> tuple[float, ...] | None:
    if percentiles is None or percentiles is False:
        return None
    if reduce is not None or window is None or window == math.inf:
        raise MetricsError(
            f"{name}: percentiles={percentiles!r} cannot be combined with reduce={reduce!r}, "
            f"window={window!r}. They need the single values, and not too many. Use reduce=None "
            "with a finite window."
        )
    wanted = _ALL_PERCENTILES if percentiles is True else tuple(percentiles)
    if not all(0 <= percentile <= 100 for percentile in wanted):
        raise MetricsError(
            f"{name}: percentiles={percentiles!r} are not all within [0, 100]. They are parts of "
            "100. Give for example [5, 50, 95]."
        )
    return wanted

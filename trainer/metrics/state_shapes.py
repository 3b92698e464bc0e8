"""What the states of metrics look like, to be compared before they are taken."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from checkpoints.state_shapes import (
    FLAG,
    NOTHING,
    TEXT,
    anything,
    array,
    count,
    dict_of,
    fields,
    list_of,
    number,
    of_type,
    one_of,
)
from trainer.errors import MetricsError
from trainer.metrics.options import Options, checked_options

_MOMENTS: Final = fields(
    {
        "count": count,
        "nan_count": count,
        "is_integral": FLAG,
        "partials": list_of(number),
        "low": one_of(number, NOTHING),
        "high": one_of(number, NOTHING),
    }
)

_OPTIONS: Final = fields(
    {
        "reduce": one_of(TEXT, NOTHING),
        "window": one_of(count, NOTHING),
        "ema_coeff": one_of(number, NOTHING),
        "percentiles": one_of(of_type(tuple), NOTHING),
        "clear_on_reduce": FLAG,
        "with_throughput": FLAG,
        "throughput_ema_coeff": number,
        "reduce_per_index_on_aggregate": FLAG,
        "min_max": FLAG,
        "is_wall_clock": FLAG,
    }
)

_KEPT: Final = fields({"values": list_of(number)})
_LISTED: Final = fields({"values": list_of(one_of(number, array(), of_type(list, tuple)))})
_BY_INDEX: Final = fields({"entries": list_of(_MOMENTS)})
_HEAD: Final = fields(
    {
        "key": list_of(of_type(str, int)),
        "options": _OPTIONS,
        "held": of_type(dict),
        "new": of_type(dict),
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
    percentiles = options.percentiles
    try:
        checked_options(
            place,
            reduce=options.reduce,
            window=options.window,
            ema_coeff=options.ema_coeff,
            percentiles=False if percentiles is None else list(percentiles),
            clear_on_reduce=options.clear_on_reduce,
            with_throughput=options.with_throughput,
            throughput_ema_coeff=None,
            reduce_per_index_on_aggregate=options.reduce_per_index_on_aggregate,
            min_max=options.min_max,
            is_wall_clock=options.is_wall_clock,
        )
    except MetricsError as error:
        yield f"{place} cannot be: {error}"


LOGGER_STATE: Final = fields({"statistics": list_of(_statistic)})
"""Of a `MetricsLogger`."""

_RECORD: Final = fields(
    {
        "id_": TEXT,
        "episode_return": number,
        "length": count,
        "agent_id": one_of(TEXT, NOTHING),
        "module_id": one_of(TEXT, NOTHING),
        "custom_metrics": dict_of(anything),
        "hist_data": dict_of(list_of(anything)),
    },
    optional={"task": anything, "rewritten_return": one_of(number, NOTHING)},
)

EPISODES_STATE: Final = fields(
    {"num_this_iteration": count, "num_lifetime": count, "records": list_of(_RECORD)}
)
"""Of `EpisodeStatistics`."""

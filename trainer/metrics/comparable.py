"""What of a result two runs can be compared by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from trainer.metrics.keys import describe
from trainer.metrics.result_key import ResultKey

_CLOCK_ENDINGS: Final = ("_throughput", "_timer")


def comparable(result: Mapping[str, Any], *, also_drop: Iterable[str] = ()) -> dict[str, Any]:
    """A copy of a result without what no two runs share.

    Left out are times, dates and the machine (also any key that ends in `_throughput` or `_timer`),
    the record of faults, repairs and restores, and the config, which is no outcome. What remains of
    a run that was killed and resumed, or that lost runners, equals what remains of an undisturbed
    one.

    Args:
        result: what `train()` or `evaluate()` returned.
        also_drop: further patterns of slash paths, as in `trainer.metrics.keys`, for example of
            what callbacks logged with `log_time`.
    """
    patterns = [ResultKey(pattern, "", "caller") for pattern in ("config", *also_drop)]
    return _without(result, "", patterns)


def _without(tree: Mapping[str, Any], prefix: str, patterns: list[ResultKey]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, value in tree.items():
        path = f"{prefix}{name}"
        standard = describe(path)
        if standard is not None and (standard.is_wall_clock or standard.is_disturbance):
            continue
        if path.endswith(_CLOCK_ENDINGS) or any(pattern.matches(path) for pattern in patterns):
            continue
        kept[name] = _without(value, f"{path}/", patterns) if isinstance(value, Mapping) else value
    return kept

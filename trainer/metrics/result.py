"""`ResultDict`: what `train()` and `evaluate()` return."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Final

from checkpoints.arguments import argument_error, checked_methods, mapping, shown, takes
from trainer.metrics.keys import ResultKey, describe, leaves, nearest, text_of
from trainer.old_names import OLD_NAMES

# ---- summary
#
# The short printed form of a result.

_FIRST: Final = (
    "training_iteration",
    "stop_reason",
    "time_total_s",
    "num_env_steps_sampled_lifetime",
    "env_runners/episode_return_mean",
    "env_runners/episode_return_min",
    "env_runners/episode_return_max",
    "env_runners/episode_len_mean",
    "env_runners/num_episodes",
    "env_runners/num_episodes_lifetime",
    "env_runners/num_env_steps_sampled_lifetime_throughput",
    "evaluation/evaluated_at_iteration",
    "evaluation/env_runners/episode_return_mean",
    "evaluation/env_runners/num_episodes",
)
"""The rows everybody looks at, in this order."""

_LAST: Final = ("learners/", "fault_tolerance/")
"""Standard keys that come behind the metrics of users, as far as there is room."""

_OF_USERS: Final = "/custom_metrics/"
"""What lies below this is the users', although the key itself is a standard one."""


def summary(flat: Mapping[str, Any], *, num_rows: int) -> str:
    """Lines of "key  value", the important ones first.

    Args:
        flat: {slash path: value}.
        num_rows: how many at most; a last line tells what is left out.
    """
    chosen = [key for key in _FIRST if key in flat]
    numbers = [key for key in flat if key not in _FIRST and _is_number(flat[key])]
    users = [key for key in numbers if _OF_USERS in key or describe(key) is None]
    last = [key for start in _LAST for key in numbers if key.startswith(start)]
    chosen = list(dict.fromkeys(chosen + users + last))[:num_rows]
    width = max(map(len, chosen), default=0)
    lines = [f"{key:<{width}}  {_format(flat[key])}" for key in chosen]
    if len(chosen) < len(flat):
        lines.append(f"… and {len(flat) - len(chosen)} more in result.flat()")
    return "\n".join(lines)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _format(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


# ---- result

_MISSING: Final = object()


_LONGEST_REPR: Final = 400
"""Characters of a repr that shows everything."""

_SHOWN: Final = (
    "training_iteration",
    "num_env_steps_sampled_lifetime",
    "env_runners/episode_return_mean",
    "evaluation/env_runners/episode_return_mean",
)
"""What the repr of a long result shows."""


@checked_methods(but=("__init__", "flatten"))
class ResultDict(dict[str, Any]):
    """A nested dict of metrics that also answers slash paths and RLlib's old keys.

        result["env_runners"]["episode_return_mean"]
        result["env_runners/episode_return_mean"]
        result["episode_reward_mean"]               # an old key: found, but not listed

    Iterating, `len`, `==`, copying, pickling and JSON see the nested dict only. `in` and `get` know
    all three spellings. Nested dicts that it is made of become ResultDicts too (copies, so that
    changing a result never changes its source). `print(result)` shows the important rows,
    `repr(result)` one line; `result.to_dict()` is everything, as plain dicts.
    """

    def __init__(
        self, values: Mapping[str, Any] | Iterable[tuple[str, Any]] = (), /, **more: Any
    ) -> None:
        super().__init__()
        try:
            given = {**dict(values), **more}
        except (TypeError, ValueError) as cause:
            expected = "a dict, or pairs of a key and a value"
            raise argument_error("ResultDict()", "values", values, expected) from cause
        for key, value in given.items():
            self[key] = ResultDict(value) if isinstance(value, dict) else value

    def __missing__(self, key: object) -> Any:
        found = self._find(key)
        if found is _MISSING:
            raise KeyError(self._message(key))
        return found

    def _find(self, key: object) -> Any:
        if not isinstance(key, str):
            return _MISSING
        if "/" in key:
            return self._at_path(key)
        if key in OLD_NAMES.result_keys:
            try:
                return OLD_NAMES.result_keys[key](self)
            except KeyError:
                return _MISSING
        return _by_text(self, key)

    def _at_path(self, path: str) -> Any:
        tree: Any = self
        for part in path.split("/"):
            if not isinstance(tree, Mapping) or part not in tree:
                # Rarer: ids that are numbers, percentiles, and keys with slashes in them.
                return _by_text(self, path)
            tree = tree[part]
        return tree

    def _message(self, key: object) -> str:
        known = [*self.flat(), *self, *OLD_NAMES.result_keys]
        return f"This result has no {key!r}.{nearest(str(key), known)}"

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or self._find(key) is not _MISSING

    def get(self, key: object, default: Any = None) -> Any:
        """The value of a key, slash path or old key, or `default`."""
        if not isinstance(key, Hashable):
            raise argument_error("ResultDict.get()", "key", key, "a key such as 'a/b'")
        if super().__contains__(key):
            return self[key]  # type: ignore[index]
        found = self._find(key)
        return default if found is _MISSING else found

    def copy(self) -> ResultDict:
        """A copy down to the leaves, which are shared."""
        return ResultDict(self)

    def flat(self) -> dict[str, Any]:
        """{"env_runners/episode_return_mean": value, …} of all leaves."""
        return ResultDict.flatten(self)

    @staticmethod
    @takes(result=mapping())
    def flatten(result: Mapping[str, Any]) -> dict[str, Any]:
        """`flat()` for any nested dict, such as what a callback or a file holds.

        Keys that are no strings become text, so that all keys are.
        """
        return {text_of(path): value for path, value in leaves(result)}

    def summary(self, *, num_rows: int = 25) -> str:
        """The important rows as text, without config, lists and internals.

        Args:
            num_rows: how many at most.
        """
        return summary(self.flat(), num_rows=num_rows)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain nested dicts; `repr(result.to_dict())` shows every value."""
        return {
            key: value.to_dict() if isinstance(value, ResultDict) else value
            for key, value in self.items()
        }

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        whole = repr(self.to_dict())
        if len(whole) <= _LONGEST_REPR:
            return whole
        flat = self.flat()
        first = ", ".join(f"{key!r}: {shown(flat[key])}" for key in _SHOWN if key in flat)
        return (
            f"<ResultDict of {len(flat)} values{': ' if first else ''}{first}; print() it for the "
            "important ones, to_dict() holds all>"
        )


def _by_text(tree: Any, path: str) -> Any:
    """What `ResultDict.flatten` lists under a path, or a dict on the way; keys are told by text."""
    if not isinstance(tree, Mapping):
        return _MISSING
    for key, value in tree.items():
        text = str(key)
        if text == path:
            return value
        if path.startswith(f"{text}/"):
            found = _by_text(value, path[len(text) + 1 :])
            if found is not _MISSING:
                return found
    return _MISSING


def overlaid(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Both trees in one; where both have a value, the one above stays."""
    merged = {**below, **above}
    for key in below.keys() & above.keys():
        if isinstance(below[key], Mapping) and isinstance(above[key], Mapping):
            merged[key] = overlaid(below[key], above[key])
    return merged


# ---- comparable
#
# What of a result two runs can be compared by.

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

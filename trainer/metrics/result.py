"""Results: `ResultDict`, the paths and keys in it, and the options that metrics are logged with."""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from callbacks.ready_made.metric_values import METRICS_ELSEWHERE
from trainer.errors import MetricsError
from trainer.old_names import OLD_NAMES
from trainer_toolkit.checks import shown
from trainer_toolkit.nearest_names import did_you_mean, nearest
from trainer_toolkit.trees import at_path, leaves, named_leaves

_LOGGER: Final = logging.getLogger(__name__)

# ---- paths
#
# Metric keys as paths, and nested dicts addressed by them. Pure functions.

Key = str | tuple[str | int, ...] | list[str | int]
"""A metric's name: a slash path such as "car/speed", or its parts in a tuple or list."""

Path = tuple[str | int, ...]
"""A key as a tuple of parts without slashes."""


def path_of(key: Any) -> Path:
    """The path that a key means: "a/b", ("a", "b"), ["a", "b"] and ("a/b",) are the same.

    One meaning for all, because results are read and written by slash paths, in which they could
    not be told apart.

    Raises:
        MetricsError: it is no string, and no tuple or list of strings and ints, or a part is empty.
    """
    parts = key if isinstance(key, tuple | list) else (key,)
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


def sorting_key(item: tuple[Path, Any]) -> tuple[str, ...]:
    """Orders (path, anything) by path, ints and strings alike."""
    return tuple(str(part) for part in item[0])


# ---- options

Reduce = str | None
"""What becomes of many values: "mean", "sum", "min" or "max"; None keeps them all."""

REDUCTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {"mean": "mean", "min": "low", "max": "high", "sum": "total"}
)
"""Every reduction, and the property of kept values (`trainer.metrics.statistic`) that gives it."""

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


def checked_options(name: str, given: Mapping[str, Any], *, is_wall_clock: bool = False) -> Options:
    """The options for a new metric.

    Args:
        name: the metric, for error texts.
        given: those of `log_value`, as callers write them: a `window` of infinity means
            all values ever; `percentiles` may be True for 0, 50, 75, 90, 95, 99 and 100;
            `throughput_ema_coeff=None` means 0.05.
        is_wall_clock: see `Options`.

    Raises:
        MetricsError: an option is impossible, or two cannot be combined.
    """
    reduce, window, ema_coeff = given["reduce"], given["window"], given["ema_coeff"]
    throughput_coeff = given["throughput_ema_coeff"]
    _check_reduction(name, reduce, ema_coeff, window)
    _check_number_options(name, window, ema_coeff, throughput_coeff)
    if given["with_throughput"] and (reduce != "sum" or window is not None):
        raise MetricsError(
            f"{name}: with_throughput=True cannot be combined with reduce={reduce!r}, "
            f"window={window!r}. A throughput is the growth of a sum per second. Use "
            "reduce='sum' without window."
        )
    is_per_index = bool(given["reduce_per_index_on_aggregate"])
    if is_per_index and (reduce is None or ema_coeff is not None):
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
        percentiles=_checked_percentiles(name, given["percentiles"], reduce, window),
        clear_on_reduce=bool(given["clear_on_reduce"])
        or is_plain
        or (is_endless and reduce is None),
        with_throughput=bool(given["with_throughput"]),
        throughput_ema_coeff=0.05 if throughput_coeff is None else throughput_coeff,
        reduce_per_index_on_aggregate=is_per_index,
        min_max=bool(given["min_max"]),
        is_wall_clock=is_wall_clock,
    )


def _check_reduction(name: str, reduce: Any, ema_coeff: Any, window: Any) -> None:
    if reduce is not None and reduce not in REDUCTIONS:
        advice = OLD_NAMES.reductions.get(str(reduce))
        raise MetricsError(
            f"{name}: reduce={reduce!r} is unknown. It says what becomes of many values: one of "
            f"{', '.join(map(repr, REDUCTIONS))} or None."
            f"{f' {advice}' if advice else did_you_mean(reduce, REDUCTIONS)}"
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


# ---- keys
#
# Every standard key of a result: its unit, who writes it, where it always is, what it depends on.
# A pattern is a slash path in which `*` stands for one part, such as a module id. The value may
# be a number, a list, or a dict by agent or module id; then everything below is the same key. All
# that is under `env_runners` may appear under `evaluation/env_runners` as well. Keys that
# callbacks log are not listed; they stand beside these. `docs/metrics.md` lists the same keys,
# which a test compares.


@dataclass(frozen=True)
class ResultKey:
    """One standard key.

    Attributes:
        pattern: its slash path.
        unit: what the number counts or measures; "" if it has no unit.
        owner: who writes it.
        always_in: the methods in whose every result it is: "train", "evaluate". There, `evaluate()`
            leaves out the leading `evaluation/`.
        is_wall_clock: it depends on the time of day, or on the speed or name of the machine.
        is_disturbance: it records faults, repairs or restores, which do not change what was learnt.
    """

    pattern: str
    unit: str
    owner: str
    always_in: frozenset[str] = frozenset()
    is_wall_clock: bool = False
    is_disturbance: bool = False

    def matches(self, path: str) -> bool:
        """Whether a slash path is this key, or lies below it."""
        own, parts = self.pattern.split("/"), path.split("/")
        return len(own) <= len(parts) and all(
            mine in ("*", part) for mine, part in zip(own, parts, strict=False)
        )


_KEYS: Final = """
episode statistics | env_runners/ | train evaluate
    episode_return_mean: reward
    episode_return_min: reward
    episode_return_max: reward
    episode_len_mean: env steps
    episode_len_min: env steps
    episode_len_max: env steps
    num_episodes: episodes
    num_episodes_lifetime: episodes
    agent_episode_return_mean: reward
    module_episode_return_mean: reward
    custom_metrics:
    hist_stats:
episode statistics | env_runners/ | sometimes
    episode_media:
    agent_episode_len_mean: agent steps
    module_agent_return_mean: reward
    module_agent_return_min: reward
    module_agent_return_max: reward
episode statistics | env_runners/task_stats/*/ | sometimes
    num_episodes: episodes
    episode_return_mean: reward
    episode_len_mean: env steps
episode statistics | env_runners/ | sometimes
    rewritten_return_mean: reward
    rewritten_return_min: reward
    rewritten_return_max: reward
episode statistics | env_runners/ | train evaluate clock
    episode_duration_sec_mean: seconds
algorithm | env_runners/ | train evaluate
    num_env_steps_sampled: env steps
algorithm | env_runners/ | train
    num_env_steps_sampled_lifetime: env steps
    num_agent_steps_sampled: agent steps
    num_agent_steps_sampled_lifetime: agent steps
    num_module_steps_sampled: agent steps
    num_module_steps_sampled_lifetime: agent steps
algorithm | env_runners/ | sometimes
    num_agent_steps_carried_over: agent steps
    num_agent_steps_not_to_learn: agent steps
    num_rewards_after_end: rewards
    num_rewards_after_end_unlearnt: rewards
    num_truncations_without_observation: agents
algorithm | learners/*/ | sometimes
    is_trained:
    num_updates_lifetime: updates
    num_module_steps_trained_lifetime: agent steps
algorithm | env_runners/ | train clock
    num_env_steps_sampled_lifetime_throughput: env steps per second
env runner group | env_runners/ | train evaluate clock
    env_step_timer: seconds
    env_reset_timer: seconds
    rlmodule_inference_timer: seconds
    callbacks_timer: seconds
learner | learners/*/ | train
    total_loss:
    gradients_default_optimizer_global_norm:
    default_optimizer_learning_rate:
    num_module_steps_trained: agent steps
    num_trainable_parameters: numbers
policy learner | learners/*/ | sometimes
    policy_loss:
    entropy: nats
PG learner | learners/*/ | sometimes
    return_to_go_mean: reward
PPO learner | learners/*/ | sometimes
    vf_loss: reward²
    vf_loss_unclipped: reward²
    vf_explained_var: at most 1
    mean_kl_loss: nats
    clip_fraction: share of rows
    vf_clip_fraction: share of rows
    curr_kl_coeff:
    curr_entropy_coeff:
replay learner | learners/*/ | sometimes
    qf_loss:
    qf_mean: reward
    qf_min: reward
    qf_max: reward
    td_error_mean: reward
    num_target_updates: updates
    last_target_update_ts: env steps
SAC learner | learners/*/ | sometimes
    qf_twin_loss:
    alpha_loss:
    alpha_value: reward per nat
    log_alpha_value:
    target_entropy: nats
    logps: nats
    actor_learning_rate:
    alpha_learning_rate:
replay buffer | replay_buffer/ | sometimes
    num_env_steps_stored: env steps
    num_episodes_stored: episodes
    num_env_steps_added: env steps
    num_env_steps_added_lifetime: env steps
    num_env_steps_evicted_lifetime: env steps
recordings | recordings/ | sometimes
    num_episodes: episodes
    num_env_steps: env steps
    num_env_steps_read: env steps
    num_passes_lifetime: passes
algorithm | learners/__all_modules__/ | train
    num_env_steps_trained: env steps
    num_env_steps_trained_lifetime: env steps
algorithm | learners/__all_modules__/ | sometimes
    num_agent_steps_trained: agent steps
    num_agent_steps_trained_lifetime: agent steps
    num_module_steps_trained: agent steps
    num_module_steps_trained_lifetime: agent steps
evaluation | evaluation/ | evaluate
    evaluated_at_iteration: iterations
    weights_version: updates
    num_episodes: episodes
evaluation | evaluation/ | sometimes disturbance
    num_episodes_missing: episodes
asynchronous evaluation | evaluation/ | sometimes disturbance
    num_env_steps_missing: env steps
    num_agent_steps_missing: agent steps
    num_evaluations_left_out: evaluations
env runner group | evaluation/ | evaluate disturbance
    num_healthy_workers: runners
    num_remote_worker_restarts: restarts
    num_sub_environment_restarts: restarts
algorithm |  | train
    training_iteration: iterations
    num_env_steps_sampled_lifetime: env steps
    num_training_step_calls_per_iteration: calls
    done:
    config:
checks of learning | learners/*/ | sometimes
    actions_at_bounds: share of numbers
    obs_magnitude:
checks of learning |  | sometimes
    learning_signs:
early stopping |  | sometimes
    stop_reason: sentence
task ladder | curriculum/ | sometimes
    level: tasks
    task:
    num_episodes: episodes
    episode_return_mean: reward
non-finite guard |  | sometimes
    non_finite: places
algorithm |  | train clock
    timers: seconds
algorithm | timers/ | train clock
    training_iteration: seconds
    env_runner_sampling_timer: seconds
    learner_update_timer: seconds
    synch_weights: seconds
    split: seconds
algorithm | timers/ | sometimes clock
    evaluation_iteration: seconds
    replay_buffer_add_timer: seconds
run clock |  | train clock
    date: local time
    timestamp: seconds since 1970
    time_this_iter_s: seconds
    time_total_s: seconds
    pid: process id
    hostname: name
run clock |  | train disturbance
    time_since_restore: seconds
    iterations_since_restore: iterations
machines of unlike kinds |  | sometimes disturbance
    engine:
machines of unlike kinds | engine/ | sometimes disturbance
    num_cpu_kinds: kinds
env runner group |  | train disturbance
    fault_tolerance:
env runner group | fault_tolerance/ | train disturbance
    num_healthy_workers: runners
    num_remote_worker_restarts: restarts
    num_sub_environment_restarts: restarts
    num_episodes_lost: episodes
    num_env_steps_lost: env steps
    num_episodes_lost_lifetime: episodes
    num_env_steps_lost_lifetime: env steps
    repair_time_s: seconds
env runner group | fault_tolerance/ | sometimes disturbance
    num_samples_dropped: samples
checkpoint callbacks | fault_tolerance/ | sometimes disturbance
    num_failed_saves_lifetime: saves
result loggers | fault_tolerance/ | sometimes disturbance
    num_lost_rows_lifetime: results
"""
"""Lines with owner, what the paths below begin with, in which results they always are ("train",
"evaluate" or "sometimes") and on what they depend ("clock", "disturbance"); under each, its keys
with their units."""


def _keys_of(table: str) -> Iterator[ResultKey]:
    """The keys of a table like `_KEYS`."""
    owner = prefix = ""
    words: frozenset[str] = frozenset()
    for line in table.strip().splitlines():
        if line.startswith(" "):
            name, _, unit = line.strip().partition(":")
            yield ResultKey(
                f"{prefix}{name}",
                unit.strip(),
                owner,
                always_in=words & {"train", "evaluate"},
                is_wall_clock="clock" in words,
                is_disturbance="disturbance" in words,
            )
        else:
            owner, prefix, when = map(str.strip, line.split("|"))
            words = frozenset(when.split())


STANDARD_KEYS: Final = tuple(_keys_of(_KEYS))
"""All standard keys; `describe` looks one up."""


# Results have the same paths again and again, and each look-up compares all keys: 0.1 ms.
@functools.lru_cache(maxsize=4096)
def describe(path: str) -> ResultKey | None:
    """The standard key that a slash path is, or lies below; None if there is none."""
    exact = [key for key in STANDARD_KEYS if key.matches(path)]
    if exact:
        return max(exact, key=lambda key: key.pattern.count("/"))
    return describe(path.removeprefix("evaluation/")) if path.startswith("evaluation/") else None


# ---- summary

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
"""The rows most looked at, in this order."""

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
_WITHOUT_EVALUATION: Final = {
    "evaluated_at_iteration": "evaluate() returns the metrics without that key",
    "training_iteration": "no evaluation came with it; `evaluation_interval` says when one does",
}
"""Why a dict has no evaluation in it, by what it has."""
_MAX_LISTED: Final = 10


def _listed(keys: Iterable[Any]) -> str:
    """The first few keys, for errors."""
    shown = [repr(key) for key in keys]
    more = f" and {len(shown) - _MAX_LISTED} more" if len(shown) > _MAX_LISTED else ""
    return f"{', '.join(shown[:_MAX_LISTED]) or 'nothing'}{more}"


_LONGEST_REPR: Final = 400
"""Characters of a repr that shows everything."""

_SHOWN: Final = (
    "training_iteration",
    "num_env_steps_sampled_lifetime",
    "env_runners/episode_return_mean",
    "evaluation/env_runners/episode_return_mean",
)
"""What the repr of a long result shows."""


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
        for key, value in {**dict(values), **more}.items():
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
            found = at_path(self, key, _MISSING)
            # Rarer: ids that are numbers, percentiles, and keys with slashes in them.
            return _by_text(self, key) if found is _MISSING else found
        if key in OLD_NAMES.result_keys:
            try:
                return OLD_NAMES.result_keys[key](self)
            except KeyError:
                return _MISSING
        return _by_text(self, key)

    def _message(self, key: object) -> str:
        if key in METRICS_ELSEWHERE:
            return f"This result has no {key!r}. Here it is {METRICS_ELSEWHERE[str(key)]!r}."
        if str(key).partition("/")[0] == "evaluation" and not super().__contains__("evaluation"):
            whose = sorted(_WITHOUT_EVALUATION.keys() & self.keys())
            if whose:
                return f"This result has no {key!r}: {_WITHOUT_EVALUATION[whose[0]]}."
        known = [*self.flat(), *self, *OLD_NAMES.result_keys]
        if isinstance(key, str) and "/" in key:  # what is before its last name is all too similar
            place, _, name = key.rpartition("/")
            siblings = self._find(place)
            if isinstance(siblings, Mapping):
                beside = {str(sibling): f"{place}/{sibling}" for sibling in siblings}
                meant = nearest(name, [*beside, *OLD_NAMES.result_keys])
                if meant is not None:
                    return f"This result has no {key!r}. Did you mean {beside.get(meant, meant)!r}?"
                return f"This result has no {key!r}. There is {_listed(beside.values())}."
        hint = did_you_mean(key, known) or f" There is {_listed(self)}."
        return f"This result has no {key!r}.{hint}"

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or self._find(key) is not _MISSING

    def get(self, key: object, default: Any = None) -> Any:
        """The value of a key, slash path or old key, or `default`."""
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
    def flatten(result: Mapping[str, Any]) -> dict[str, Any]:
        """`flat()` for any nested dict, such as what a callback or a file holds.

        Keys that are no strings become text, so that all keys are. Of values whose paths are one
        text, the last stays; `train()` warns of such in its results.
        """
        return dict(named_leaves(result))

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
    """What `ResultDict.flatten` lists under a path, or a dict on the way; keys as text."""
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


class HiddenMetrics:
    """Names, once each, metrics that others hide, and those that are taken for standard values."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def warn(
        self,
        metrics: Mapping[str, Any],
        standard: Mapping[str, Any],
        *,
        but: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Warns of metrics that `overlaid(metrics, standard)` leaves out or shows as standard ones.

        Not of those that are in `but`.
        """
        for path, _ in leaves(metrics):
            name = text_of(path)
            if name in self._logged or _is_taken(path, but):
                continue
            if _is_taken(path, standard):
                problem = (
                    "does not appear in results: it has the name of a standard key or of a group "
                    "of such, or lies below one"
                )
            elif _is_reserved(name):
                problem = (
                    "is found where results are asked for a standard value: it has the name of a "
                    "standard key, of a group of such, or of one of RLlib's old keys"
                )
            else:
                continue
            self._logged.add(name)
            _LOGGER.warning("The metric %r %s. Log it under a name of your own.", name, problem)

    def warn_of_one_path(self, result: Mapping[str, Any]) -> None:
        """Warns of values that have one path as text: lists by path hold only one of them."""
        found: set[str] = set()
        for name, _ in named_leaves(result) if _has_a_key_with_slash(result) else ():
            if name in found and name not in self._logged:
                self._logged.add(name)
                _LOGGER.warning(
                    "The result has two values called %r, because a key has a slash in it, or is a "
                    "number beside its text; result.flat(), CSV files and loggers show one of them."
                    " To change a value, write result['a']['b'], not result['a/b'].",
                    name,
                )
            found.add(name)


def _has_a_key_with_slash(tree: Mapping[Any, Any]) -> bool:
    """Whether a key has a slash in it, or is no text: without one, each path is of one value."""
    for key, value in tree.items():
        if type(key) is not str or "/" in key:
            return True
        if isinstance(value, Mapping) and _has_a_key_with_slash(value):
            return True
    return False


@functools.lru_cache(maxsize=4096)  # metrics have the same names in each iteration
def _is_reserved(name: str) -> bool:
    """Whether a name is an old key, or a standard key or group that not every result has."""
    group = f"{name.removeprefix('evaluation/')}/"
    return name in OLD_NAMES.result_keys or any(
        f"{key.pattern}/".startswith(group) for key in STANDARD_KEYS
    )


def _is_taken(path: Path, tree: Any) -> bool:
    """Whether a tree has a value or a group at a path, or a value above it."""
    for part in path:
        if not isinstance(tree, Mapping):
            break
        if part not in tree.keys():  # noqa: SIM118 - a ResultDict also "has" RLlib's old keys
            return False
        tree = tree[part]
    return True


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
        also_drop: further patterns of slash paths, as in `trainer.metrics.result`, for example of
            what callbacks logged with `log_time`.
    """
    return _without(result, "", ("config", *also_drop))


def _without(tree: Mapping[str, Any], prefix: str, patterns: tuple[str, ...]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, value in tree.items():
        path = f"{prefix}{name}"
        if _is_left_out(path, patterns):
            continue
        kept[name] = _without(value, f"{path}/", patterns) if isinstance(value, Mapping) else value
    return kept


@functools.lru_cache(maxsize=4096)  # rows come by thousands, and have the same paths
def _is_left_out(path: str, patterns: tuple[str, ...]) -> bool:
    standard = describe(path)
    if standard is not None and (standard.is_wall_clock or standard.is_disturbance):
        return True
    return path.endswith(_CLOCK_ENDINGS) or any(
        ResultKey(pattern, "", "caller").matches(path) for pattern in patterns
    )

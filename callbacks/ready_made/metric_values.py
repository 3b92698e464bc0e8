"""Metrics in results: found by slash path, "not yet" told from "misspelt"; names of tasks.

A metric may be absent for good reasons: no episode has ended yet, or this iteration had no
evaluation. It may also be absent because nothing logs it, and then waiting for it would never end.
`WatchedMetric` tells the two apart. Nothing here changes a result.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from callbacks.errors import CallbackConfigError
from checkpoints import CheckpointError
from checkpoints.listing import resolve_path
from trainer_toolkit.nearest_names import nearest_names
from trainer_toolkit.trees import at_path, named_leaves

# ---- task names
#
# What results call a task: a short text that stands as one part of a path. It lives here because
# both need it: the statistics of tasks, and callbacks that look for those of one task.

_LONGEST: Final = 60


def task_name(task: Any) -> str:
    """The name of a task in results: the text itself, the number, or else what `repr` gives.

    Slashes, which separate the parts of a path, become bars, long names are cut, and addresses are
    left out: a copy in another process has another one.
    """
    if isinstance(task, np.ndarray | np.generic):
        task = task.tolist()
    text = task if isinstance(task, str) and task else repr(task)
    text = re.sub(" at 0x[0-9a-fA-F]+", "", text).replace("/", "|")
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


# ---- metric values

RETURN: Final = "env_runners/episode_return_mean"
"""The mean return of the last training episodes."""

_EVALUATION: Final = "evaluation/"

METRICS_ELSEWHERE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "rollout/ep_rew_mean": RETURN,
        "rollout/ep_len_mean": "env_runners/episode_len_mean",
        "eval/mean_reward": f"{_EVALUATION}{RETURN}",
        "charts/episodic_return": RETURN,
        "time/total_timesteps": "num_env_steps_sampled_lifetime",
    }
)
"""What Stable-Baselines3 and CleanRL call a metric, for hints."""


def value_at(result: Mapping[str, Any], path: str) -> Any:
    """What a slash path leads to; None if it leads nowhere.

    A result of `train()` also knows old keys.
    """
    return result[path] if path in result else at_path(result, path)


def number_at(result: Mapping[str, Any], path: str) -> float | None:
    """The finite number at a path; None if there is none, or NaN, or an infinite one."""
    value = as_number(value_at(result, path))
    return value if value is not None and math.isfinite(value) else None


def as_number(value: Any) -> float | None:
    """A number, NumPy's included, as a float; None for anything else, truth values included."""
    if isinstance(value, bool | np.bool_):
        return None
    if isinstance(value, int | float | np.integer | np.floating):
        try:
            return float(value)
        except OverflowError:  # an int of a file may have any length
            return math.inf if value > 0 else -math.inf
    return None


def numbers_in(tree: Mapping[Any, Any]) -> Iterator[tuple[str, float]]:
    """(slash path, number) of all numbers in a nested dict, in its order, but of the config."""
    results = {key: value for key, value in tree.items() if key != "config"}
    for path, value in named_leaves(results):
        if (number := as_number(value)) is not None:
            yield path, number


def has_no_episodes(result: Mapping[str, Any], section: str) -> bool:
    """Whether the section of an env runner's metrics has not seen the end of an episode yet."""
    counts = ("num_episodes_lifetime", "num_episodes")  # evaluations have only the second
    return 0 in [value_at(result, f"{section}/{count}") for count in counts]


def path_problems(name: str, path: Any) -> list[str]:
    """What is wrong with the path of a metric, as it was written."""
    if isinstance(path, str) and path and all(path.split("/")):
        return []
    return [
        f"`{name}={path!r}` is no path of a metric; expected its place in the result, with slashes "
        f"between the parts, such as {RETURN!r}"
    ]


class WatchedMetric:
    """A metric that a callback waits for in every result.

    Attributes:
        path: its slash path.
        was_found: it was in a result before; from then on it may be absent without an error.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.was_found = False

    def get_state(self) -> dict[str, Any]:
        """Which metric it is, and whether it was ever there."""
        return {"metric": self.path, "metric_was_found": self.was_found}

    def set_state(self, state: Mapping[str, Any]) -> bool:
        """Takes back what `get_state` gave; False, and no change, if that is another metric's.

        A callback that is given anew may watch another one: what it saw of the old says nothing.
        """
        if state["metric"] != self.path:
            return False
        self.was_found = state["metric_was_found"]
        return True

    def read(self, result: Mapping[str, Any], *, config: Any = None) -> float | None:
        """The metric, if it was measured in this iteration.

        Args:
            result: complete, so that what callbacks logged is in it.
            config: of the algorithm, to see whether there will ever be an evaluation.

        Returns:
            a finite number. None if there is none this time: the metric is NaN, absent because no
            episode has ended yet, or of an evaluation that was made earlier.

        Raises:
            CallbackConfigError: the metric is no number, or will never be there (names the
                nearest), or is always of earlier weights.
        """
        self._refuse_evaluations_of_earlier_weights(config)
        self.check(result, config=config)
        value = value_at(result, self.path)
        if value is None:
            return None
        number = as_number(value)
        if number is None:
            raise CallbackConfigError(
                [
                    f"the metric {self.path!r} is a {type(value).__name__} ({value!r:.60}) in this "
                    f"result; expected a number.{self._nearest(result)}"
                ]
            )
        is_measured = math.isfinite(number) and self._is_fresh(result)
        return number if is_measured else None

    def check(self, result: Mapping[str, Any], *, config: Any = None) -> None:
        """Raises if the metric is absent and nothing suggests that it is still to come.

        Args:
            result: complete, so that what callbacks logged is in it.
            config: of the algorithm, to see whether there will ever be an evaluation.

        Raises:
            CallbackConfigError: the metric will never be there; names the nearest ones.
        """
        if "recordings" in result and self.path == RETURN:  # a NaN for ever
            raise CallbackConfigError(
                [
                    f"there will never be {self.path!r}: who learns from recordings plays no "
                    f"episodes in training. Evaluate, and take {_EVALUATION + self.path!r}"
                ]
            )
        self.was_found = self.was_found or value_at(result, self.path) is not None
        if self.was_found or self._waits_for_evaluation(result, config):
            return
        section = _EVALUATION if self.path.startswith(_EVALUATION) else ""
        if has_no_episodes(result, f"{section}env_runners"):
            return  # callbacks of episodes had nothing to log yet
        raise CallbackConfigError(
            [
                f"there is no metric {self.path!r} in this result, although episodes have ended."
                f"{self._nearest(result)} A metric that comes only later can be logged as NaN "
                "until then"
            ]
        )

    def _waits_for_evaluation(self, result: Mapping[str, Any], config: Any) -> bool:
        """Whether the metric is of an evaluation that this iteration does not have.

        Raises:
            CallbackConfigError: there will never be one.
        """
        if not self.path.startswith(_EVALUATION):
            return False
        if "evaluation" in result:
            return not self._is_fresh(result)
        if not getattr(config, "evaluation_interval", True):
            raise CallbackConfigError(
                [
                    f"the metric {self.path!r} is of an evaluation, but there is none: "
                    "`evaluation_interval` is not set. Write for example "
                    "`config.evaluation(evaluation_interval=5)`"
                ]
            )
        return True

    def _refuse_evaluations_of_earlier_weights(self, config: Any) -> None:
        """Raises if no evaluation will ever be of the weights that its result is about."""
        if not self.path.startswith(_EVALUATION):
            return
        for name in ("evaluation_parallel_to_training", "enable_async_evaluation"):
            if getattr(config, name, False):
                raise CallbackConfigError(
                    [
                        f"the metric {self.path!r} would never be of the weights of its iteration: "
                        f"with {name}=True, results show evaluations of earlier weights. Evaluate "
                        f"after the training step ({name}=False), or take another metric"
                    ]
                )

    def _is_fresh(self, result: Mapping[str, Any]) -> bool:
        """Whether the metric is of this iteration; an evaluation stays in later results."""
        if not self.path.startswith(_EVALUATION):
            return True
        made_at = value_at(result, f"{_EVALUATION}evaluated_at_iteration")
        return made_at is None or made_at == value_at(result, "training_iteration")

    def _nearest(self, result: Mapping[str, Any]) -> str:
        if self.path in METRICS_ELSEWHERE:
            return f" Here it is {METRICS_ELSEWHERE[self.path]!r}."
        known = [path for path, _ in numbers_in(result)]
        found = nearest_names(self.path, known, most=3, similarity=0.5)
        if not found:  # perhaps only the sections before it were left out
            found = [path for path in known if path.endswith(f"/{self.path}")][:3]
        named = ", ".join(map(repr, found))
        return f" The nearest ones are {named}." if found else " `result.flat()` lists all."


# ---- choices
#
# Checks of what users give to ready-made callbacks, as sentences: all problems at once.


def raise_if_any(user: str, problems: Collection[str]) -> None:
    """Raises all problems of one callback at once, as a CallbackConfigError."""
    if problems:
        raise CallbackConfigError([f"{user}: {problem}" for problem in problems])


def is_word(value: Any, word: str) -> bool:
    """Whether a value, which may be anything, is this word."""
    return isinstance(value, str) and value == word


def choice_problems(name: str, value: Any, choices: Collection[str]) -> list[str]:
    """One of some words."""
    if isinstance(value, str) and value in choices:
        return []
    return [f"`{name}={value!r}` must be one of {', '.join(map(repr, choices))}"]


def count_problems(name: str, value: Any, *, none: str = "") -> list[str]:
    """An int of at least 1, or None where `none` says what that means."""
    if value is None and none:
        return []
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return []
    return [f"`{name}={value!r}` must be an int of at least 1{_or_none(none)}"]


def number_problems(
    name: str, value: Any, *, above: float = -math.inf, none: str = ""
) -> list[str]:
    """A finite number above a bound, or None where `none` says what that means."""
    if value is None and none:
        return []
    number = as_number(value)
    if number is not None and math.isfinite(number) and number > above:
        return []
    bound = "" if above == -math.inf else f" above {above:g}"
    return [f"`{name}={value!r}` must be a finite number{bound}{_or_none(none)}"]


def directory_problems(path: Any) -> list[str]:
    """The path of a directory, as far as can be seen now; nothing is made."""
    try:
        resolved = resolve_path(path)
        is_file = resolved.exists() and not resolved.is_dir()
    except (CheckpointError, TypeError, ValueError, OSError, RuntimeError) as error:
        return [f"`directory={path!r}` is no path of a directory: {error}"]
    if is_file:
        return [f"`directory={str(path)!r}` is a file; expected a directory, or a new path"]
    return []


def _or_none(none: str) -> str:
    return f", or None for {none}" if none else ""


# ---- fault counts
#
# What ready-made callbacks count in results when something failed that did not end the run. All
# callbacks of a kind count together, under `fault_tolerance`.

NUM_FAILED_SAVES: Final = "num_failed_saves_lifetime"
"""Checkpoints that could not be saved."""

NUM_LOST_ROWS: Final = "num_lost_rows_lifetime"
"""Results that a logger could not write."""


def count_fault(result: Mapping[str, Any], name: str, number: int) -> None:
    """Adds to a count of a result; one whose section a callback replaced is left alone.

    The result is changed in place; 0 sees to it that the count is there.
    """
    section = result.get("fault_tolerance")
    if isinstance(section, dict):
        section[name] = section.get(name, 0) + number

"""`TaskLadder`: harder tasks when the agent does well, easier ones when it does badly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from callbacks.callback import RLlibCallback
from callbacks.ready_made.metric_values import (
    count_problems,
    number_at,
    number_problems,
    raise_if_any,
    task_name,
)
from callbacks.views import AlgorithmView


class TaskLadder(RLlibCallback):
    """A curriculum: goes up and down a list of tasks, one step at a time.

        config.callbacks([TaskLadder([2, 4, 8], promote_at=0.8, demote_below=0.2)])

    All training envs have the same task, the first one to begin with. After each iteration the mean
    return of the episodes is judged that began under the current task: those of the last iterations
    that together have at least `min_episodes` of them. At `promote_at` or above, the next task
    follows; below `demote_below`, the one before. After a change nothing of what came before
    counts, so at least `min_episodes` episodes lie between two changes. The gap between the two
    bounds is the margin within which nothing changes.

    The result holds `curriculum/level` (from 0) and `curriculum/task`, under which the iteration
    was played, and `curriculum/num_episodes` and `curriculum/episode_return_mean`, which were
    judged. The level is in checkpoints.

    Attributes:
        level: index of the current task, from 0.

    Args:
        tasks: from easy to hard, at least two; whatever `set_task` of the env takes.
        promote_at: mean return, for all tasks or one for each but the last.
        demote_below: mean return, for all tasks or one for each but the first; None never demotes.
        min_episodes: how many episodes a decision needs at least.

    Raises:
        CallbackConfigError: a value makes no sense; lists all problems. Or `env_task_fn` is
            configured, too; then building the algorithm fails.
    """

    def __init__(
        self,
        tasks: Sequence[Any],
        *,
        promote_at: float | Sequence[float],
        demote_below: float | Sequence[float] | None = None,
        min_episodes: int = 20,
    ) -> None:
        problems = count_problems("min_episodes", min_episodes)
        if isinstance(tasks, str) or not isinstance(tasks, Sequence) or len(tasks) < 2:
            problems.append(f"`tasks={tasks!r:.80}` must be a list of at least two tasks")
            raise_if_any("TaskLadder", problems)
        if any(task is None for task in tasks):
            problems.append(f"`tasks={tasks!r:.80}`: None is no task, and no results count for it")
        names = [task_name(task) for task in tasks]
        if len(set(names)) < len(names):
            problems.append(f"`tasks`: results cannot tell two of them apart: {names!r:.200}")
        steps = len(tasks) - 1
        self._promote_at = _bounds("promote_at", promote_at, steps, problems)
        self._demote_below = (
            None if demote_below is None else _bounds("demote_below", demote_below, steps, problems)
        )
        if not problems and self._demote_below is not None:
            problems += _margin_problems(self._promote_at, self._demote_below)
        raise_if_any("TaskLadder", problems)
        self._tasks = list(tasks)
        self._min_episodes = min_episodes
        self.level = 0
        self._judged: list[tuple[int, float]] = []  # (episodes, mean return) of the last iterations

    @property
    def task(self) -> Any:
        """The current task."""
        return self._tasks[self.level]

    def on_algorithm_init(self, *, algorithm: AlgorithmView, **_: Any) -> None:
        """Sets the first task.

        Raises:
            CallbackConfigError: `env_task_fn` chooses tasks, too.
        """
        if algorithm.config.env_task_fn is not None:
            raise_if_any(
                "TaskLadder",
                [
                    f"`env_task_fn={algorithm.config.env_task_fn!r:.80}` chooses the task after "
                    "each iteration as well, and the last one would win: configure one of the two"
                ],
            )
        algorithm.env_runner_group.set_task(self.task)

    def on_checkpoint_loaded(self, *, algorithm: AlgorithmView, **_: Any) -> None:
        """Sets the task of the restored level, if the envs do not have it already."""
        algorithm.env_runner_group.set_task(self.task)

    def on_train_result(
        self,
        *,
        algorithm: AlgorithmView,
        result: dict[str, Any],
        **_: Any,
    ) -> None:
        """Judges the episodes of the current task, and moves up or down."""
        statistics = f"env_runners/task_stats/{task_name(self.task)}"
        num_episodes = number_at(result, f"{statistics}/num_episodes")
        mean = number_at(result, f"{statistics}/episode_return_mean")
        if num_episodes and mean is not None:
            self._judged.append((int(num_episodes), mean))
        self._forget_old()
        total, mean = self._summary()
        # As the iteration was played: what is decided now shows in the next result.
        result["curriculum"] = {
            "level": self.level,
            "task": task_name(self.task),
            "num_episodes": total,
            "episode_return_mean": mean,
        }
        if total >= self._min_episodes:
            self._move(mean)
        algorithm.env_runner_group.set_task(self.task)

    def get_state(self) -> dict[str, Any]:
        """The level, and the episodes that count for the next decision."""
        return {"level": self.level, "judged": [list(entry) for entry in self._judged]}

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes back what `get_state` gave; tasks and bounds stay those of the config."""
        self.level = min(state["level"], len(self._tasks) - 1)
        self._judged = [(count, mean) for count, mean in state["judged"]]

    def _forget_old(self) -> None:
        """Leaves only the last iterations that have enough episodes together."""
        while sum(count for count, _ in self._judged[1:]) >= self._min_episodes:
            del self._judged[0]

    def _summary(self) -> tuple[int, float]:
        """How many episodes are judged, and their mean return; NaN if there are none."""
        total = sum(count for count, _ in self._judged)
        returns = sum(count * mean for count, mean in self._judged)
        return total, returns / total if total else float("nan")

    def _move(self, mean: float) -> None:
        level = self.level
        if level < len(self._tasks) - 1 and mean >= self._promote_at[level]:
            self.level += 1
        elif level and self._demote_below is not None and mean < self._demote_below[level - 1]:
            self.level -= 1
        if self.level != level:
            self._judged = []


def _bounds(name: str, given: Any, count: int, problems: list[str]) -> list[float]:
    """One bound per step of the ladder; adds what is wrong to the problems."""
    if not isinstance(given, list | tuple):
        problems += number_problems(name, given)
        return [given] * count
    if len(given) != count:
        problems.append(f"`{name}` has {len(given)} bounds; {count + 1} tasks need {count}")
    for bound in given:
        problems += number_problems(name, bound)
    return list(given)


def _margin_problems(promote_at: list[float], demote_below: list[float]) -> list[str]:
    """Where a task (but the first and the last) would be left upwards and downwards at once."""
    for level, (up, down) in enumerate(zip(promote_at[1:], demote_below[:-1], strict=True), 1):
        if down >= up:
            return [
                f"`demote_below={down!r}` must be less than `promote_at={up!r}` of the same task "
                f"(number {level}), so that there is a margin within which nothing changes"
            ]
    return []

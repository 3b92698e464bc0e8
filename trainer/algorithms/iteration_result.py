"""Gathers what happens in one training iteration and puts the result together."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any

from trainer.algorithms.counters import Counters
from trainer.algorithms.run_clock import RunClock
from trainer.config import AlgorithmConfig
from trainer.env_runners import EnvRunnerGroup, GroupSample
from trainer.env_runners.messages import PlayTimes
from trainer.metrics import ResultDict
from trainer.metrics.result import overlaid
from trainer.types import DEFAULT_AGENT_ID, DEFAULT_MODULE_ID


class IterationResult:
    """One iteration's numbers, from its first sample to its result.

    Attributes:
        num_training_steps, num_env_steps_sampled, num_env_steps_trained: of this iteration.
    """

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self.num_training_steps = 0
        self.num_env_steps_sampled = 0
        self.num_env_steps_trained = 0
        self._num_episodes_lost = 0
        self._num_env_steps_lost = 0
        self._repair_s = 0.0
        self._times = PlayTimes()
        self._learner: Mapping[str, Any] = {}
        self._timers: dict[str, float] = {}
        self._health: dict[str, int] = {}
        self._sections: dict[str, Mapping[str, Any]] = {}

    @contextlib.contextmanager
    def time(self, name: str) -> Iterator[None]:
        """Adds the seconds of the block to the timer of that name."""
        started_at = time.perf_counter()
        try:
            yield
        finally:
            self._timers[name] = self._timers.get(name, 0.0) + time.perf_counter() - started_at

    def add_sample(self, sample: GroupSample) -> None:
        """Counts what the runners played."""
        self.num_env_steps_sampled += sample.num_env_steps
        self._num_episodes_lost += sample.num_episodes_lost
        self._num_env_steps_lost += sample.num_env_steps_lost
        self._repair_s += sample.repair_s
        self._times += sample.times

    def add_update(self, metrics: Mapping[str, Any], *, num_env_steps: int) -> None:
        """Keeps an update's metrics; those of the iteration's last update are shown."""
        self.num_env_steps_trained += num_env_steps
        self._learner = metrics

    def add_section(self, name: str, values: Mapping[str, Any]) -> None:
        """Adds a section of the algorithm's own to the result; a later one replaces it."""
        self._sections[name] = values

    def add_group(self, group: EnvRunnerGroup) -> None:
        """Notes how the training runners are."""
        self._health = {
            "num_healthy_workers": group.num_healthy_remote_workers(),
            "num_remote_worker_restarts": group.num_remote_worker_restarts(),
            "num_sub_environment_restarts": group.num_sub_environment_restarts(),
        }

    def compile(
        self,
        *,
        user_metrics: Mapping[str, Any],
        episodes: Mapping[str, Any],
        evaluation: Mapping[str, Any],
        clock: RunClock,
        config: AlgorithmConfig,
        elapsed_s: float,
    ) -> ResultDict:
        """Puts the result together.

        Args:
            user_metrics: what callbacks logged, nested as it is to appear.
            episodes: the statistics of finished episodes, for `env_runners`.
            evaluation: the evaluation to show; empty for none.
            clock: wall-clock times.
            config: the settings.
            elapsed_s: seconds of this iteration.
        """
        counters = self._counters
        standard = {
            "env_runners": {**episodes, **self._steps(elapsed_s), **self._times.entries()},
            "learners": {
                DEFAULT_MODULE_ID: dict(self._learner),
                "__all_modules__": {
                    "num_env_steps_trained": self.num_env_steps_trained,
                    "num_env_steps_trained_lifetime": counters.num_env_steps_trained,
                },
            },
            **self._sections,
            **({"evaluation": evaluation} if evaluation else {}),
            "fault_tolerance": {
                **self._health,
                "num_episodes_lost": self._num_episodes_lost,
                "num_env_steps_lost": self._num_env_steps_lost,
                "num_episodes_lost_lifetime": counters.num_episodes_lost,
                "num_env_steps_lost_lifetime": counters.num_env_steps_lost,
                "repair_time_s": self._repair_s,
            },
            "timers": {"training_iteration": elapsed_s, **self._timers},
            "num_training_step_calls_per_iteration": self.num_training_steps,
            "num_env_steps_sampled_lifetime": counters.num_env_steps_sampled,
            "training_iteration": counters.training_iteration,
            "done": False,
            **clock.entries(elapsed_s),
        }
        result = ResultDict(overlaid(user_metrics, standard))
        result["config"] = dict(config.items())
        return result

    def _steps(self, elapsed_s: float) -> dict[str, Any]:
        steps, lifetime = self.num_env_steps_sampled, self._counters.num_env_steps_sampled
        return {
            "num_env_steps_sampled": steps,
            "num_env_steps_sampled_lifetime": lifetime,
            "num_env_steps_sampled_lifetime_throughput": steps / elapsed_s
            if elapsed_s > 0
            else 0.0,
            "num_agent_steps_sampled": {DEFAULT_AGENT_ID: steps},
            "num_agent_steps_sampled_lifetime": {DEFAULT_AGENT_ID: lifetime},
            "num_module_steps_sampled": {DEFAULT_MODULE_ID: steps},
            "num_module_steps_sampled_lifetime": {DEFAULT_MODULE_ID: lifetime},
        }


def merge_late_values(
    result: dict[str, Any], *, before: Mapping[str, Any], after: Mapping[str, Any]
) -> None:
    """Brings what was logged in `on_train_result` into the result of the same iteration.

    Args:
        result: what the callbacks were given; where they changed a value themselves, theirs stays.
        before: the logger's values when the result was made.
        after: its values after the callbacks.
    """
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, Mapping):
            section = result.setdefault(key, {})
            if isinstance(section, dict):
                merge_late_values(
                    section, before=old if isinstance(old, Mapping) else {}, after=value
                )
        elif not dict.__contains__(result, key) or (
            not _same(value, old) and _same(result[key], old)
        ):
            result[key] = value


def _same(left: Any, right: Any) -> bool:
    # NaN equals itself here; arrays are compared by identity, which is enough to see a new one.
    if left is right:
        return True
    try:
        return bool(left == right) or (left != left and right != right)
    except ValueError:
        return False

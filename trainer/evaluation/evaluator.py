"""Plays evaluation episodes and reports on them alone.

An evaluation is a list of *tickets*. A ticket fixes the seeds of its episodes by (root seed,
evaluation number, ticket number); who plays it changes nothing. Training's episodes, metrics and
streams of randomness are never touched.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainer.env_runners import Assignment, EnvRunnerGroup, GroupSample, Weights
from trainer.env_runners.shares import share_out
from trainer.evaluation.same_spaces import check_same_spaces
from trainer.metrics import EpisodeStatistics, MetricsLogger
from trainer.types import State


@dataclass(frozen=True)
class EvaluationSettings:
    """How long an evaluation is.

    Attributes:
        duration: so many episodes or env steps, > 0.
        unit: "episodes" or "timesteps".
        has_fixed_seed: every evaluation plays the same episodes (`evaluation_seed` is given).
    """

    duration: int
    unit: str
    has_fixed_seed: bool = False


class Evaluator:
    """Plays evaluations with its own group of runners.

    Attributes:
        group: the evaluation runners.
        num_evaluations: how many were played; the number of the next one.
    """

    def __init__(self, group: EnvRunnerGroup, settings: EvaluationSettings) -> None:
        self.group = group
        self.num_evaluations = 0
        self._settings = settings
        self._metrics = MetricsLogger()
        self._is_started = False

    def start(self, training_group: EnvRunnerGroup) -> None:
        """Makes the runners, if they are not there yet.

        Raises:
            ConfigError: what is trained by the other group cannot act in this one's env.
        """
        if self._is_started:
            return
        self.group.start()
        check_same_spaces(training_group, self.group)
        self._is_started = True

    def tickets(self) -> list[Assignment]:
        """The tickets of the next evaluation.

        Exactly `duration` episodes; env steps are rounded up to a multiple of the number of
        runners.
        """
        stream = 0 if self._settings.has_fixed_seed else self.num_evaluations
        if self._settings.unit == "episodes":
            return [
                Assignment(stream, ticket=ticket, num_episodes=1)
                for ticket in range(self._settings.duration)
            ]
        num_runners = max(1, self.group.num_remote_env_runners())
        total = math.ceil(self._settings.duration / num_runners) * num_runners
        shares = share_out(total, self.group.num_slots)
        return [
            # The numbers of a ticket's later episodes step over all other tickets.
            Assignment(stream, ticket=ticket, stride=len(shares), num_env_steps=share)
            for ticket, share in enumerate(shares)
            if share
        ]

    def evaluate(self, weights: Weights) -> dict[str, Any]:
        """Plays one evaluation and returns its metrics, from its own episodes alone.

        Args:
            weights: what to act with.

        Returns:
            `env_runners` with the keys that training has, and `weights_version`.
        """
        self.group.set_weights(weights)
        sample = self.group.play(self.tickets())
        self.num_evaluations += 1
        self._metrics.aggregate(sample.metrics)
        logged, self._metrics = self._metrics.compile(), MetricsLogger()
        return {
            "env_runners": {**logged, **_statistics(sample)},
            "weights_version": weights.version,
        }

    def add_metrics(self, metrics: Sequence[Any]) -> None:
        """Adds what users' functions logged in the runners; the next evaluation reports it.

        Args:
            metrics: one entry per runner, in the order of the runners.
        """
        self._metrics.aggregate(metrics)

    def get_state(self) -> State:
        """Plain data: number of evaluations, callback state and tasks of the runners, metrics.

        The metrics are those that the next evaluation will report.
        """
        return {
            "num_evaluations": self.num_evaluations,
            "metrics": self._metrics.get_state(),
            "callbacks": self.group.get_state()["callbacks"],
            "slots": self.group.get_task_positions(),
        }

    def set_state(self, state: State) -> None:
        """Goes on where `get_state` was called."""
        self.num_evaluations = state["num_evaluations"]
        self._metrics = MetricsLogger()
        if "metrics" in state:  # not before the first evaluation
            self._metrics.set_state(state["metrics"])
        self.group.set_state(
            {
                "slots": state.get("slots", []),
                "callbacks": state["callbacks"],
                "is_continued": self.num_evaluations > 0,
            }
        )

    def stop(self) -> None:
        """Ends the runners. Idempotent."""
        self.group.stop()


def _statistics(sample: GroupSample) -> dict[str, Any]:
    # By ticket, so that sums and windows do not depend on who played what.
    by_number = sorted(zip(sample.numbers, sample.records, strict=True), key=lambda pair: pair[0])
    statistics = EpisodeStatistics(smoothing=None)
    statistics.add([record for _, record in by_number])
    return {**statistics.result(), "num_env_steps_sampled": sample.num_env_steps}

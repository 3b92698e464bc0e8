"""The settings that every learner has."""

from __future__ import annotations

import math
from dataclasses import dataclass

from trainer.errors import ConfigError
from trainer.nn import CLIP_MODES, Schedule, ScheduleSetting


@dataclass(frozen=True)
class LearnerSettings:
    """How a learner learns; names are those of `AlgorithmConfig.training()`.

    Attributes:
        gamma: discount per env step, in [0, 1].
        lr: learning rate, or `[[env steps, learning rate], ...]`.
        num_epochs: passes over the batch per update, ≥ 1.
        minibatch_size: rows per gradient step, ≥ 1; None is the whole batch.
        shuffle_batch_per_epoch: draw a new order of the rows for every pass.
        grad_clip: limit of the gradient, > 0; None is no limit.
        grad_clip_by: "value", "norm" (per tensor) or "global_norm".
        adam_betas: decay of Adam's two moments, in [0, 1).
        adam_epsilon: Adam's epsilon, > 0.
    """

    gamma: float = 0.99
    lr: ScheduleSetting = 0.001
    num_epochs: int = 1
    minibatch_size: int | None = None
    shuffle_batch_per_epoch: bool = False
    grad_clip: float | None = None
    grad_clip_by: str = "global_norm"
    adam_betas: tuple[float, float] = (0.9, 0.999)
    adam_epsilon: float = 1e-8

    def __post_init__(self) -> None:
        problems = self.problems()
        if problems:
            raise ConfigError("The learner cannot use its settings: " + "; ".join(problems) + ".")

    def problems(self) -> list[str]:
        """One sentence for every setting that is impossible."""
        problems = [
            *self.outside(gamma=(0.0, 1.0)),
            *schedule_problems(self.lr, name="lr"),
        ]
        if self.num_epochs < 1:
            problems.append(f"`num_epochs={self.num_epochs}` must be at least 1")
        if self.minibatch_size is not None and self.minibatch_size < 1:
            problems.append(f"`minibatch_size={self.minibatch_size}` must be at least 1, or None")
        if self.grad_clip is not None and not self.grad_clip > 0.0:
            problems.append(f"`grad_clip={self.grad_clip}` must be above 0, or None")
        if self.grad_clip_by not in CLIP_MODES:
            problems.append(
                f"`grad_clip_by={self.grad_clip_by!r}` must be one of {', '.join(CLIP_MODES)}"
            )
        if not all(0.0 <= beta < 1.0 for beta in self.adam_betas):
            problems.append(f"`adam_betas={self.adam_betas}` must be in [0, 1)")
        if not self.adam_epsilon > 0.0:
            problems.append(f"`adam_epsilon={self.adam_epsilon}` must be above 0")
        return problems

    def outside(self, **bounds: tuple[float, float]) -> list[str]:
        """One sentence for every named setting that is outside its bounds (both included)."""
        return [
            f"`{name}={getattr(self, name)!r}` must be between {low:g} and {high:g}"
            for name, (low, high) in bounds.items()
            if not low <= getattr(self, name) <= high
        ]


def schedule_problems(setting: ScheduleSetting, *, name: str) -> list[str]:
    """What is wrong with a number or schedule that must not be negative."""
    try:
        schedule = Schedule.from_setting(setting, name=name)
    except ConfigError as error:
        return [str(error)]
    if min(schedule.values) < 0.0:
        return [f"`{name}={setting!r}` must not be negative"]
    return []


def is_positive(number: float) -> bool:
    """Whether a number is above 0 and not nan; inf is positive."""
    return not math.isnan(number) and number > 0.0

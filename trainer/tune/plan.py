"""What an experiment follows from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from trainer.tune.rows import Mode
from trainer.tune.scheduling import TrialScheduler
from trainer.tune.search_space import SearchSpace
from trainer.tune.searchers import Searcher
from trainer.tune.stoppers import StopCriteria


@dataclass(frozen=True)
class ExperimentPlan:
    """Everything that decisions follow from; made by the `Tuner` out of what users write.

    Attributes:
        space: where configs are drawn from.
        searcher: suggests.
        scheduler: judges.
        stop: criteria of `RunConfig.stop`, and a time budget.
        metric: path into the row, or None.
        mode: "min", "max" or None.
        seed: of the experiment.
        num_samples: draws per grid; -1: no end. At a restore what the experiment was begun with.
        num_lanes: trials that run at the same time at most, ≥ 1.
        cpus: logical CPUs that trials share.
        cpus_of: what a trial asks for, by its config.
        order: "turns" or "arrival".
        max_failures: errors of the user's code that a trial survives; -1: any number.
        fail_fast: the first failed trial ends the experiment.
        save_at_end: `checkpoint_at_end`.
        save_frequency: `checkpoint_frequency`; 0: never.
    """

    space: SearchSpace
    searcher: Searcher
    scheduler: TrialScheduler
    stop: StopCriteria
    metric: str | None
    mode: Mode | None
    seed: int
    num_samples: int
    num_lanes: int
    cpus: float
    cpus_of: Callable[[Any], float]
    order: Literal["turns", "arrival"] = "turns"
    max_failures: int = 0
    fail_fast: bool = False
    save_at_end: bool = False
    save_frequency: int = 0

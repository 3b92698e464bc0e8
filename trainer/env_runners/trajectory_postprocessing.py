"""What an algorithm adds to trajectories before callbacks see them: the interface."""

from __future__ import annotations

from typing import Protocol

from trainer.connectors import SampleBatch
from trainer.modules import RLModule
from trainer.types import FloatArray


class TrajectoryPostprocessing(Protocol):
    """What an algorithm adds to a trajectory before `on_postprocess_trajectory` shows it.

    A small frozen value, for it travels to the runners. It is there for callbacks alone: the
    learner computes what it learns from itself, except for what they rewrote.
    """

    @property
    def needs_whole_module(self) -> bool:
        """Whether runners need the parts of the module that acting does without."""

    def add_columns(self, batch: SampleBatch, *, module: RLModule, obs: FloatArray) -> None:
        """Adds columns, [T, ...] each; a function of its arguments alone.

        Args:
            batch: the T steps of one chunk.
            module: the runner's module.
            obs: encoded observations, [T + 1, D]: the last one follows the chunk.
        """

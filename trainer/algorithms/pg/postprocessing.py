"""What PG shows of its returns in `on_postprocess_trajectory`."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.connectors import SampleBatch, compute_advantages
from trainer.modules import RLModule
from trainer.types import FloatArray


@dataclass(frozen=True)
class ReturnPostprocessing:
    """Adds the returns of a chunk as `advantages` (and `value_targets`), as RLlib's PG does.

    Attributes:
        gamma: see `PGConfig`.
    """

    gamma: float

    @property
    def needs_whole_module(self) -> bool:
        """No values are needed."""
        return False

    def add_columns(self, batch: SampleBatch, *, module: RLModule, obs: FloatArray) -> None:
        """See `TrajectoryPostprocessing.add_columns`."""
        del module, obs
        compute_advantages(batch, 0.0, gamma=self.gamma, use_gae=False, use_critic=False)

"""What PPO shows of its advantages in `on_postprocess_trajectory`."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.connectors import SampleBatch, compute_advantages
from trainer.episodes.columns import OBS, TERMINATEDS, VF_PREDS
from trainer.modules import RLModule
from trainer.types import FloatArray


@dataclass(frozen=True)
class AdvantagePostprocessing:
    """Adds `vf_preds`, `advantages` and `value_targets` to a chunk, with the weights that acted.

    The learner computes the same again for all chunks together, where the last bits of values may
    differ; so only what callbacks change is taken from here.

    Attributes:
        gamma, lambda_, use_gae, use_critic: see `PPOSettings`.
    """

    gamma: float
    lambda_: float
    use_gae: bool
    use_critic: bool

    @property
    def needs_whole_module(self) -> bool:
        """Whether values are needed."""
        return self.use_critic

    def add_columns(self, batch: SampleBatch, *, module: RLModule, obs: FloatArray) -> None:
        """See `TrajectoryPostprocessing.add_columns`."""
        last_value = 0.0
        if self.use_critic:
            values = module.compute_values({OBS: obs})
            batch[VF_PREDS] = values[:-1]
            last_value = 0.0 if batch[TERMINATEDS][-1] else float(values[-1])
        compute_advantages(
            batch,
            last_value,
            gamma=self.gamma,
            lambda_=self.lambda_,
            use_gae=self.use_gae,
            use_critic=self.use_critic,
        )

"""PG: plays whole episodes with the current weights, and makes one step towards what paid."""

from __future__ import annotations

from typing import ClassVar

from checkpoints.arguments import checked_methods
from trainer.algorithms.on_policy import OnPolicyAlgorithm
from trainer.algorithms.pg.config import PGConfig
from trainer.algorithms.pg.learner import PGLearner, PGSettings
from trainer.algorithms.pg.postprocessing import ReturnPostprocessing
from trainer.config import AlgorithmConfig


@checked_methods()
class PG(OnPolicyAlgorithm):
    """Policy gradient without a value function: REINFORCE (Williams 1992).

    The equations are in `README.md` beside this file.
    """

    config_class: ClassVar[type[AlgorithmConfig]] = PGConfig

    def make_learner(self) -> PGLearner:
        """The learner with the settings of `PGConfig.training()`."""
        config = self.config
        settings = PGSettings(
            gamma=config.gamma,
            lr=config.lr,
            grad_clip=config.grad_clip,
            grad_clip_by=config.grad_clip_by,
        )
        return PGLearner(module_spec=self.module_spec, settings=settings, root_seed=self.root_seed)

    def make_postprocessing(self) -> ReturnPostprocessing:
        """Returns, as the learner computes them."""
        return ReturnPostprocessing(gamma=self.config.gamma)

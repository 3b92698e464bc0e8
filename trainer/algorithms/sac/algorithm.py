"""SAC: plays with a policy that is rewarded for randomness, and learns from all it has seen."""

from __future__ import annotations

from typing import ClassVar

from checkpoints.arguments import checked_methods
from trainer.algorithms.off_policy.algorithm import OffPolicyAlgorithm
from trainer.algorithms.sac.config import SACConfig
from trainer.algorithms.sac.learner import SACLearner, SACSettings
from trainer.config import AlgorithmConfig


@checked_methods()
class SAC(OffPolicyAlgorithm):
    """Soft actor-critic (Haarnoja et al. 2018), for bounded Box and for Discrete actions.

    The equations are in `README.md` beside this file.
    """

    config_class: ClassVar[type[AlgorithmConfig]] = SACConfig
    config: SACConfig

    def make_learner(self) -> SACLearner:
        """The learner with the settings of `SACConfig.training()`."""
        config = self.config
        settings = SACSettings(
            **self.replay_settings(),
            lr=config.critic_lr,
            actor_lr=config.actor_lr,
            alpha_lr=config.alpha_lr,
            target_entropy=config.target_entropy,
        )
        return SACLearner(module_spec=self.module_spec, settings=settings, root_seed=self.root_seed)

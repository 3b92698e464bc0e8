"""PPO: samples with the current weights, learns from that sample alone, and samples again."""

from __future__ import annotations

from typing import ClassVar

from checkpoints.arguments import checked_methods
from trainer.algorithms.on_policy import OnPolicyAlgorithm
from trainer.algorithms.ppo.config import PPOConfig
from trainer.algorithms.ppo.learner import PPOLearner, PPOSettings
from trainer.algorithms.ppo.postprocessing import AdvantagePostprocessing
from trainer.config import AlgorithmConfig


@checked_methods()
class PPO(OnPolicyAlgorithm):
    """Proximal Policy Optimization (Schulman et al. 2017).

    The equations are in `README.md` beside this file.
    """

    config_class: ClassVar[type[AlgorithmConfig]] = PPOConfig

    def make_learner(self) -> PPOLearner:
        """The learner with the settings of `PPOConfig.training()`."""
        config = self.config
        settings = PPOSettings(
            gamma=config.gamma,
            lr=config.lr,
            num_epochs=config.num_epochs,
            minibatch_size=config.minibatch_size,
            shuffle_batch_per_epoch=config.shuffle_batch_per_epoch,
            grad_clip=config.grad_clip,
            grad_clip_by=config.grad_clip_by,
            lambda_=config.lambda_,
            use_critic=config.use_critic,
            use_gae=config.use_gae,
            use_kl_loss=config.use_kl_loss,
            kl_coeff=config.kl_coeff,
            kl_target=config.kl_target,
            vf_loss_coeff=config.vf_loss_coeff,
            entropy_coeff=config.entropy_coeff,
            clip_param=config.clip_param,
            vf_clip_param=config.vf_clip_param,
        )
        return PPOLearner(module_spec=self.module_spec, settings=settings, root_seed=self.root_seed)

    def make_postprocessing(self) -> AdvantagePostprocessing:
        """Advantages, as the learner estimates them."""
        config = self.config
        return AdvantagePostprocessing(
            gamma=config.gamma,
            lambda_=config.lambda_,
            use_gae=config.use_gae,
            use_critic=config.use_critic,
        )

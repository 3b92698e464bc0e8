"""PPO's loss in Torch, for those who write one of their own."""

from __future__ import annotations

from typing import Any

from numpy.random import Generator

from trainer.algorithms.ppo.loss import PPOCoefficients
from trainer.algorithms.ppo.ppo import PPOLearner
from trainer.episodes.episode_columns import (
    ACTION_DIST_INPUTS,
    ACTION_LOGP,
    ACTIONS,
    ADVANTAGES,
    VALUE_TARGETS,
    VF_PREDS,
)
from trainer.learners import Columns, TorchLearner, TrainBatchEvent
from trainer.types import Array, ModuleId


class PPOTorchLearner(TorchLearner, PPOLearner):
    """PPO whose loss is computed in Torch; autograd makes the gradients.

        class MyLearner(PPOTorchLearner):
            def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
                loss = super().compute_loss_for_module(
                    module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
                )
                sizes = torch.stack([p.square().mean() for p in self.get_parameters()])
                self.metrics.log_value("weight_size", sizes.mean().item(), window=1)
                return loss + config.learner_config_dict["decay"] * sizes.mean()

        config.training(learner_class=MyLearner, learner_config_dict={"decay": 1e-3})

    The network is a `TorchRLModule`; if none is named, `PPOTorchRLModule`. Clipping, Adam and
    schedules are those of the config, unless there are optimisers of one's own
    (`configure_optimizers_for_module`); minibatches, advantages and targets are those of
    `PPOLearner`. The same loss as PPO's gives the same numbers up to the last bits.

    Attributes:
        coefficients: the weights of the loss's parts in this update.
    """

    coefficients: PPOCoefficients

    def learn(
        self, columns: Columns, *, rng: Generator, num_env_steps: int, event: TrainBatchEvent
    ) -> dict[str, Any]:
        """One update; see `EpisodeLearner.learn`."""
        self._num_env_steps = num_env_steps
        # Not TorchLearner's: that of the PPOLearner behind it, which may be APPO's.
        of_ppo: Any = super(TorchLearner, self)
        metrics = of_ppo.learn(columns, rng=rng, num_env_steps=num_env_steps, event=event)
        return self.with_rates(metrics)

    def compute_loss_for_module(
        self,
        *,
        module_id: ModuleId,
        config: Any,
        batch: dict[str, Any],
        fwd_out: dict[str, Any],
    ) -> Any:
        """The loss of a minibatch, a tensor of one number; see `trainer.algorithms.ppo.loss`.

        Arguments are those of `TorchLearner`; the batch has "vf_preds" (before the update),
        "advantages" and "value_targets" besides, and `fwd_out` always has "vf_preds" [B].
        """
        del module_id, config
        c = self.coefficients
        policy = self.policies.from_logits(fwd_out[ACTION_DIST_INPUTS])
        logp, entropy, kl = policy.terms(batch[ACTIONS], reference=batch[ACTION_DIST_INPUTS])
        ratio, advantages = (logp - batch[ACTION_LOGP]).exp(), batch[ADVANTAGES]
        clipped = ratio.clamp(1.0 - c.clip_param, 1.0 + c.clip_param)
        surrogate = (ratio * advantages).minimum(clipped * advantages).mean()
        loss = -surrogate - c.entropy_coeff * entropy.mean()
        if c.kl_coeff:
            loss = loss + c.kl_coeff * kl.mean()
        self.note_terms(
            policy_loss=-surrogate,
            entropy=entropy.mean(),
            mean_kl_loss=kl.mean(),
            clip_fraction=(clipped != ratio).double().mean(),
        )
        return loss + self._value_loss(batch, fwd_out) if c.vf_loss_coeff else loss

    def _value_loss(self, batch: dict[str, Any], fwd_out: dict[str, Any]) -> Any:
        if VF_PREDS not in fwd_out:
            raise self.module.no_values_error()
        limit = self.coefficients.vf_clip_param
        errors = (fwd_out[VF_PREDS] - batch[VALUE_TARGETS]).square()
        vf_loss = errors.clamp(max=limit).mean()
        self.note_terms(
            vf_loss=vf_loss,
            vf_loss_unclipped=errors.mean(),
            vf_clip_fraction=(errors > limit).double().mean(),
        )
        return self.coefficients.vf_loss_coeff * vf_loss

    def _step(
        self, minibatch: dict[str, Array], *, coefficients: PPOCoefficients, lr: float
    ) -> tuple[dict[str, float], float]:
        self.coefficients = coefficients
        return self.gradient_step(minibatch, lr=lr)

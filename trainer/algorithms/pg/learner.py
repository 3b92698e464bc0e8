"""PG's learner: returns, and one gradient step over the whole batch.

The policy gradient loss and its gradients, on arrays only.
With G the return that followed an action, and B rows:

    L = -1/B Σ log π(a|s) G        Williams 1992, sections 4 and 5; Sutton et al. 2000, theorem 1

Its gradient is minus the sample mean of ∇ log π(a|s) G. G is a number here: no gradient flows
through it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from checkpoints.arguments import checked_methods
from trainer.connectors import Chunks, discounted_returns
from trainer.episodes.episode_columns import (
    ACTION_DIST_INPUTS,
    ACTION_LOGP,
    ACTIONS,
    ADVANTAGES,
    OBS,
)
from trainer.learners import Columns, EpisodeLearner, LearnerSettings, TrainBatchEvent
from trainer.nn import DistributionTerms, ScheduleSetting
from trainer.types import Array

# ---- loss


@dataclass(frozen=True)
class PGLoss:
    """The loss of one batch and its gradients.

    Attributes:
        policy_loss: L.
        entropy: mean entropy of the policy in nats; not part of the loss.
        d_action_dist_inputs: derivative of L, [B, K].
    """

    policy_loss: float
    entropy: float
    d_action_dist_inputs: Array


def pg_loss(returns: Array, *, terms: DistributionTerms) -> PGLoss:
    """Loss and gradients of one batch.

    Args:
        returns: G, or whatever else is to take its place, [B].
        terms: π at the batch's observations and actions, B rows.
    """
    num_rows = len(returns)
    return PGLoss(
        policy_loss=-float(terms.logp @ returns) / num_rows,
        entropy=float(terms.entropy.mean()),
        d_action_dist_inputs=terms.backward(d_logp=returns * (-1.0 / num_rows)),
    )


# ---- learner


@dataclass(frozen=True)
class PGSettings(LearnerSettings):
    """How PG learns; names and defaults are those of `PGConfig.training()`."""

    lr: ScheduleSetting = 4e-4


@checked_methods()
class PGLearner(EpisodeLearner):
    """Policy gradient with Monte Carlo returns (Williams 1992, section 5).

    Metrics: `policy_loss` (and `total_loss`, the same), `entropy`, `return_to_go_mean` (the mean of
    G over all steps), `gradients_default_optimizer_global_norm`, `default_optimizer_learning_rate`,
    `num_module_steps_trained`.
    """

    def learn(
        self,
        columns: Columns,
        *,
        rng: np.random.Generator,
        num_env_steps: int,
        event: TrainBatchEvent,
    ) -> dict[str, Any]:
        """One update; see `EpisodeLearner.learn`. It draws no random numbers."""
        del rng
        lr = self._lr.value_at(num_env_steps)
        returns = self.returns(columns)
        rows = event.fire(
            {
                **columns.extras,
                OBS: columns.obs,
                ACTIONS: columns.actions,
                ADVANTAGES: returns.astype(np.float32),
            },
            **{ACTION_LOGP: columns.action_logp, ACTION_DIST_INPUTS: columns.action_dist_inputs},
        )
        loss = self._loss(rows)
        # A network of the user's own may have a value function; nothing is learnt for it here.
        no_values = np.zeros(len(rows[OBS]), self.module.parameters.dtype)
        self.module.backward(d_action_dist_inputs=loss.d_action_dist_inputs, d_vf_preds=no_values)
        norm = self.apply_gradients(loss=loss.policy_loss, lr=lr, batch=rows)
        return {
            "policy_loss": loss.policy_loss,
            "total_loss": loss.policy_loss,
            "entropy": loss.entropy,
            "return_to_go_mean": float(returns.mean()),
            "gradients_default_optimizer_global_norm": norm,
            "default_optimizer_learning_rate": lr,
            "num_module_steps_trained": len(rows[OBS]),
        }

    def returns(self, columns: Columns) -> Array:
        """G of every step, float64 [B]: discounted rewards to the end of the chunk, then nothing.

        Advantages that callbacks decided on are taken in their place.
        """
        chunks = Chunks(
            rewards=columns.rewards,
            values=np.zeros(len(columns.rewards)),
            lengths=columns.lengths,
            bootstrap_values=np.zeros(len(columns.lengths)),
        )
        returns = discounted_returns(
            chunks, gamma=self.settings.gamma, use_critic=False
        ).value_targets
        given = columns.given.get(ADVANTAGES)
        return returns if given is None else given.put_into(returns)

    def _loss(self, rows: dict[str, Array]) -> PGLoss:
        inputs = self.module.training_output(rows, ACTION_DIST_INPUTS)
        terms = self.module.action_distribution.evaluate(inputs, rows[ACTIONS])
        return pg_loss(rows[ADVANTAGES], terms=terms)

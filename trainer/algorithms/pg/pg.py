"""PG: plays whole episodes with the current weights, and makes one step towards what paid.

The policy gradient loss and its gradients, on arrays only.
With G the return that followed an action, and B rows:

    L = -1/B Σ log π(a|s) G        Williams 1992, sections 4 and 5; Sutton et al. 2000, theorem 1

Its gradient is minus the sample mean of ∇ log π(a|s) G. G is a number here: no gradient flows
through it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.random import Generator

from trainer.algorithms.on_and_off_policy import OnPolicyAlgorithm
from trainer.config import AlgorithmConfig
from trainer.config.settings import Problem, assignment
from trainer.config.validation import COMMON_RULES, ON_POLICY_RULES, Rule
from trainer.connectors import Chunks, SampleBatch, compute_advantages, discounted_returns
from trainer.episodes.episode_columns import (
    ACTION_DIST_INPUTS,
    ACTION_LOGP,
    ACTIONS,
    ADVANTAGES,
    OBS,
)
from trainer.learners import GRADIENT_NORM, NOT_IN_TORCH, Columns, EpisodeLearner, TrainBatchEvent
from trainer.modules import PolicyModule, RLModule
from trainer.nn import DistributionTerms
from trainer.types import Array, FloatArray, ModuleId

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


class PGLearner(EpisodeLearner):
    """Policy gradient with Monte Carlo returns (Williams 1992, section 5).

    Metrics: `policy_loss` (and `total_loss`, the same), `entropy`, `return_to_go_mean` (the mean of
    G over all steps), `gradients_default_optimizer_global_norm`, `default_optimizer_learning_rate`,
    `num_module_steps_trained`.
    """

    never_called: ClassVar[Mapping[str, str]] = NOT_IN_TORCH

    def learn(
        self, columns: Columns, *, rng: Generator, num_env_steps: int, event: TrainBatchEvent
    ) -> dict[str, Any]:
        """One update; see `EpisodeLearner.learn`. It draws no random numbers."""
        del rng
        lr = self._lr.value_at(num_env_steps)
        returns = self.returns(columns)
        rows = event.fire(
            {
                **columns.extras,
                **self.batching.state_rows(columns),
                OBS: columns.obs,
                ACTIONS: columns.actions,
                ADVANTAGES: returns.astype(np.float32),
            },
            **{ACTION_LOGP: columns.action_logp, ACTION_DIST_INPUTS: columns.action_dist_inputs},
        )
        rows = self.batching.whole(rows, columns.lengths)
        outputs = self.module.training_outputs(rows, ACTION_DIST_INPUTS)
        loss = self.compute_loss(rows, outputs)
        # A network of the user's own may have a value function; nothing is learnt for it here.
        no_values = np.zeros(len(rows[OBS]), self.module.parameters.dtype)
        self.module.backward(d_action_dist_inputs=loss.d_action_dist_inputs, d_vf_preds=no_values)
        norm = self.apply_gradients(loss=loss.policy_loss, lr=lr, batch=rows)
        return {
            "policy_loss": loss.policy_loss,
            "total_loss": loss.policy_loss,
            "entropy": loss.entropy,
            "return_to_go_mean": float(returns.mean()),
            GRADIENT_NORM: norm,
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

    def compute_loss(self, batch: Mapping[str, Array], outputs: Mapping[str, Array]) -> PGLoss:
        """The loss and its gradient, for subclasses to change.

        Args:
            batch: the columns "obs", "actions" and "advantages" (G), and those of callbacks, [B, …]
                each.
            outputs: what the network gives for them, "action_dist_inputs" [B, K] among it.
        """
        terms = self.module.action_distribution.evaluate(
            outputs[ACTION_DIST_INPUTS], batch[ACTIONS]
        )
        return pg_loss(batch[ADVANTAGES], terms=terms)


# ---- config

# Section methods only declare; the decorator `section` reads their arguments.


def every_row_counts_once(config: PGConfig) -> Iterator[Problem]:
    """A batch is learnt from as a whole and once: afterwards it is not of the policy any more."""
    for name, fine in (("num_epochs", 1), ("minibatch_size", None)):
        value = config.read_value(name)
        if value != fine:
            yield Problem(
                assignment(name, value),
                "PG makes one gradient step from the whole batch; a second one would need a "
                "correction, because the policy is another one by then.",
                "Leave it out, or use PPO, which makes that correction.",
                (name,),
            )


def samples_are_of_the_policy(config: PGConfig) -> Iterator[Problem]:
    """The gradient is that of the policy which acted."""
    if config.sample_ahead:
        yield Problem(
            assignment("sample_ahead", config.sample_ahead),
            "samples ahead lack an update, and PG does not correct for that.",
            "Leave it out, or use APPO, which corrects for it, or PPO, whose ratio is to the "
            "policy that acted.",
            ("sample_ahead",),
        )


class PGConfig(AlgorithmConfig):
    """The settings of PG (Williams 1992, "Simple statistical gradient-following algorithms …").

    Example:
        `PGConfig().environment("CartPole-v1").training(lr=4e-3).build_algo()`
    """

    if TYPE_CHECKING:

        def _builds(self) -> PG: ...

    changed_defaults: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {
            "lr": 4e-4,
            "train_batch_size": 200,
            "rollout_fragment_length": "auto",
            # The return of a cut episode leaves out what would have followed, and nothing here
            # could estimate it; RLlib cuts nevertheless. See README.md.
            "batch_mode": "complete_episodes",
            "model_config": {"vf_share_layers": False},
        }
    )
    rules: ClassVar[tuple[Rule, ...]] = (
        *COMMON_RULES,
        *ON_POLICY_RULES,
        Rule(("num_epochs", "minibatch_size"), every_row_counts_once),
        Rule(("sample_ahead",), samples_are_of_the_policy),
    )
    default_module_class: ClassVar[type[RLModule]] = PolicyModule


# ---- postprocessing


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
        del module, obs
        compute_advantages(batch, 0.0, gamma=self.gamma, use_gae=False, use_critic=False)


# ---- algorithm


class PG(OnPolicyAlgorithm):
    """Policy gradient without a value function: REINFORCE (Williams 1992).

    The equations are in `README.md` beside this file.
    """

    config_class: ClassVar[type[AlgorithmConfig]] = PGConfig

    def make_learner(self, module_id: ModuleId | None = None) -> PGLearner:
        """The learner with the settings of `PGConfig.training()`."""
        return self.new_learner(PGLearner, module_id)

    def make_postprocessing(self) -> ReturnPostprocessing:
        """Returns, as the learner computes them."""
        return ReturnPostprocessing(gamma=self.config.gamma)

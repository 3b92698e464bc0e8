"""DQN's learner: one gradient step on the error of Q values against a target network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from checkpoints.arguments import checked_methods
from trainer.algorithms.dqn.loss import (
    QLoss,
    distributional_loss,
    projected_distribution,
    softmax,
    td_loss,
    td_targets,
)
from trainer.episodes.columns import ACTION_DIST_INPUTS, OBS
from trainer.learners import ReplayBatch, ReplayLearner, ReplaySettings, ReplayUpdate, TargetNetwork
from trainer.modules import QModule, RLModule, RLModuleSpec
from trainer.nn import ScheduleSetting
from trainer.types import Array


@dataclass(frozen=True)
class DQNSettings(ReplaySettings):
    """How DQN learns; names and defaults are those of `DQNConfig.training()`.

    Attributes:
        double_q: choose the next action with the learning network.
        td_error_loss_fn: "huber" or "mse".
    """

    lr: ScheduleSetting = 5e-4
    grad_clip: float | None = 40.0
    target_network_update_freq: int = 500
    double_q: bool = True
    td_error_loss_fn: str = "huber"


@checked_methods()
class DQNLearner(ReplayLearner):
    """Deep Q-learning (Mnih et al. 2015) with the extensions of Hessel et al. 2018.

    The module's `action_dist_inputs` are the Q values [B, n], so that any `RLModule` can be used;
    a `QModule` with atoms gives their logits.
    """

    settings: DQNSettings

    def __init__(self, *, module_spec: RLModuleSpec, settings: DQNSettings, root_seed: int) -> None:
        """See `Learner`; settings are DQN's."""
        super().__init__(module_spec=module_spec, settings=settings, root_seed=root_seed)
        self.target = TargetNetwork(self.module)
        self.parts["target"] = self.target
        atoms = self.module.atoms if isinstance(self.module, QModule) else np.zeros(1)
        self._atoms = atoms if len(atoms) > 1 else None
        self._no_values: Array = np.zeros(0)

    def learn(self, batch: ReplayBatch, *, lr: float, rng: np.random.Generator) -> ReplayUpdate:
        """One gradient step; see `ReplayLearner.learn`."""
        del rng
        # The next observations first: `backward` belongs to the last forward pass.
        next_outputs = self._target_outputs(self.target.module, batch.next_obs)
        chooser = next_outputs
        if self.settings.double_q:
            chooser = self._target_outputs(self.module, batch.next_obs)
        loss = (
            self._value_loss(batch, next_outputs, chooser)
            if self._atoms is None
            else self._atom_loss(batch, next_outputs, chooser, self._atoms)
        )
        if len(self._no_values) != len(batch.obs):
            self._no_values = np.zeros(len(batch.obs), self.module.parameters.dtype)
        self.module.backward(d_action_dist_inputs=loss.d_outputs, d_vf_preds=self._no_values)
        norm = self.apply_gradients(loss=loss.total_loss, lr=lr, batch=vars(batch))
        return ReplayUpdate(loss.td_errors, lambda: _metrics(loss, norm))

    def follow(self) -> None:
        """Moves the target network."""
        self.target.follow(self.settings.tau)

    def _outputs(self, obs: Array) -> Array:
        return self.module.training_output({OBS: obs}, ACTION_DIST_INPUTS)

    @staticmethod
    def _target_outputs(module: RLModule, obs: Array) -> Array:
        return module.target_output({OBS: obs}, ACTION_DIST_INPUTS)

    def _value_loss(self, batch: ReplayBatch, next_q: Array, chooser: Array) -> QLoss:
        if chooser is next_q:
            next_values = np.maximum.reduce(next_q, axis=1)
        else:
            next_values = next_q[np.arange(len(next_q)), chooser.argmax(axis=1)]
        targets = td_targets(batch.rewards, batch.discounts, next_values)
        return td_loss(
            self._outputs(batch.obs),
            batch.actions,
            targets,
            batch.weights,
            kind=self.settings.td_error_loss_fn,
        )

    def _atom_loss(
        self, batch: ReplayBatch, next_outputs: Array, chooser: Array, atoms: Array
    ) -> QLoss:
        by_action = (len(batch.obs), -1, len(atoms))
        values = softmax(chooser.reshape(by_action)) @ atoms
        possible = self.module.action_mask(batch.next_obs)
        if possible is not None:  # the logits of an impossible action are all the same
            values[~possible] = -np.inf
        best = values.argmax(axis=1)
        next_probs = softmax(next_outputs.reshape(by_action)[np.arange(len(best)), best])
        target = projected_distribution(batch.rewards, batch.discounts, next_probs, atoms)
        logits = self._outputs(batch.obs).reshape(by_action)
        return distributional_loss(logits, batch.actions, target, batch.weights, atoms=atoms)


def _metrics(loss: QLoss, norm: float) -> dict[str, Any]:
    q_values = loss.q_selected
    return {
        "qf_loss": loss.total_loss,
        "total_loss": loss.total_loss,
        "qf_mean": float(q_values.mean()),
        "qf_min": float(q_values.min()),
        "qf_max": float(q_values.max()),
        "gradients_default_optimizer_global_norm": norm,
    }

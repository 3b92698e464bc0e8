"""DQN's learner: one gradient step on the error of Q values against a target network.

The losses of DQN and their gradients, on arrays only.
With Q the learning and Q⁻ the target network, w the importance weights, and R, s', γ' the sum of
rewards, the observation and the discount after up to n steps (γ' = 0 where the episode ended):

    a*   = argmax Q(s', ·)   (double: van Hasselt et al. 2016, equation 4; else argmax Q⁻(s', ·))
    y    = R + γ' Q⁻(s', a*)                   Mnih et al. 2015; n steps: Sutton 1988
    δ    = Q(s, a) - y
    loss = mean w · huber(δ)  or  mean w · δ²

Huber is δ²/2 for |δ| ≤ 1 and |δ| - 1/2 beyond (Mnih et al. 2015, "error clipping").

With m atoms z (Bellemare et al. 2017, algorithm 1) every action has a distribution p(s, a) over the
atoms; the target is the distribution of R + γ' z under Q⁻, clipped to [z_1, z_m] and shared out
between neighbouring atoms, and the loss is its cross-entropy with p(s, a).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from checkpoints.arguments import checked_methods
from trainer.episodes.episode_columns import ACTION_DIST_INPUTS, OBS
from trainer.learners import ReplayBatch, ReplayLearner, ReplaySettings, ReplayUpdate, TargetNetwork
from trainer.modules import QModule, RLModule, RLModuleSpec
from trainer.nn import ScheduleSetting
from trainer.types import Array

# ---- loss


@dataclass(frozen=True)
class QLoss:
    """The loss of one batch and its gradient.

    Attributes:
        total_loss: the value that is minimised.
        td_errors: δ, or the cross-entropy of each row with atoms; [B], what priorities follow.
        q_selected: Q(s, a), [B].
        d_outputs: derivative of the total with respect to the network's outputs, [B, n·m].
    """

    total_loss: float
    td_errors: Array
    q_selected: Array
    d_outputs: Array


def td_targets(rewards: Array, discounts: Array, next_values: Array) -> Array:
    """The targets y = R + γ' V(s'), [B].

    Args:
        rewards: R, [B].
        discounts: γ', [B].
        next_values: Q⁻(s', a*), [B].
    """
    targets: Array = rewards + discounts * next_values
    return targets


def td_loss(q_values: Array, actions: Array, targets: Array, weights: Array, *, kind: str) -> QLoss:
    """The loss of plain values.

    Args:
        q_values: Q(s, ·), [B, n].
        actions: int64 [B].
        targets: y, [B].
        weights: w, [B].
        kind: "huber" or "mse".
    """
    num_rows = len(actions)
    rows = np.arange(num_rows)
    selected = q_values[rows, actions]
    errors = selected - targets
    if kind == "huber":
        # With c = δ clipped to [-1, 1], huber(δ) = c (δ - c/2), and c is its derivative.
        slopes = np.minimum(np.maximum(errors, -1.0), 1.0)
        losses = slopes * (errors - 0.5 * slopes)
    else:
        slopes, losses = 2.0 * errors, errors * errors
    gradient = np.zeros_like(q_values)
    gradient[rows, actions] = weights * slopes / num_rows
    # Sums instead of means: `np.mean` costs 8 µs here, as much as all products together.
    total = float(np.add.reduce(weights * losses)) / num_rows
    return QLoss(total, errors, selected, gradient)


def projected_distribution(
    rewards: Array, discounts: Array, next_probs: Array, atoms: Array
) -> Array:
    """The target distribution on the atoms (Bellemare et al. 2017, algorithm 1), [B, m].

    Args:
        rewards: R, [B].
        discounts: γ', [B].
        next_probs: of the best next action under Q⁻, [B, m].
        atoms: z, equally spaced, ascending, [m].
    """
    num_atoms = len(atoms)
    spacing = (atoms[-1] - atoms[0]) / (num_atoms - 1)
    values = np.clip(rewards[:, None] + discounts[:, None] * atoms, atoms[0], atoms[-1])
    places = np.clip((values - atoms[0]) / spacing, 0.0, num_atoms - 1.0)
    # What is no number has no place; it stays in `above`, so that the loss shows it.
    lower = np.floor(np.nan_to_num(places)).astype(np.int64)
    upper = np.minimum(lower + 1, num_atoms - 1)
    above = places - lower
    projected = np.zeros_like(next_probs)
    rows = np.arange(len(rewards))[:, None]
    np.add.at(projected, (rows, lower), next_probs * (1.0 - above))
    np.add.at(projected, (rows, upper), next_probs * above)
    return projected


def distributional_loss(
    logits: Array, actions: Array, target_probs: Array, weights: Array, *, atoms: Array
) -> QLoss:
    """The cross-entropy -Σ target · log p(s, a), and its gradient.

    Args:
        logits: [B, n, m].
        actions: int64 [B].
        target_probs: [B, m].
        weights: w, [B].
        atoms: z, [m].
    """
    rows = np.arange(len(actions))
    chosen = logits[rows, actions]
    chosen = chosen - chosen.max(axis=1, keepdims=True)
    log_probs = chosen - np.log(np.exp(chosen).sum(axis=1, keepdims=True))
    probs = np.exp(log_probs)
    losses = -(target_probs * log_probs).sum(axis=1)
    gradient = np.zeros_like(logits)
    gradient[rows, actions] = (weights / len(actions))[:, None] * (probs - target_probs)
    return QLoss(
        float(np.add.reduce(weights * losses)) / len(actions),
        losses,
        probs @ atoms,
        gradient.reshape(len(actions), -1),
    )


def softmax(logits: Array) -> Array:
    """Probabilities along the last axis."""
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    probs: Array = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return probs


# ---- learner


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

    def __init__(
        self,
        *,
        module_spec: RLModuleSpec,
        settings: DQNSettings,
        root_seed: int,
        position: tuple[int, ...] = (),
    ) -> None:
        """See `Learner`; settings are DQN's."""
        super().__init__(
            module_spec=module_spec, settings=settings, root_seed=root_seed, position=position
        )
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

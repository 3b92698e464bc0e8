"""SAC: plays with a policy that is rewarded for randomness, and learns from all it has seen.

The slowly following critics that targets are computed with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

import numpy as np
from gymnasium import spaces

from trainer.algorithms.on_and_off_policy import OffPolicyAlgorithm
from trainer.algorithms.policy_and_critics import PolicyAndCriticsConfig
from trainer.algorithms.sac.training_section import SACTrainingSection
from trainer.config import AlgorithmConfig
from trainer.episodes.episode_columns import ACTION_DIST_INPUTS, OBS
from trainer.errors import ConfigError
from trainer.learners import (
    GRADIENT_NORM,
    BatchListener,
    CriticLoss,
    LearnerSettings,
    ReplayBatch,
    ReplayLearner,
    ReplaySettings,
    ReplayUpdate,
    critic_loss,
    loss_metrics,
    mean_errors,
    smallest_of,
    td_targets,
    value_metrics,
)
from trainer.modules import RLModule, RLModuleSpec, SACModule, TorchSACModule
from trainer.modules.policy_and_critics import Critics
from trainer.modules.sac_module import LOG_ALPHA
from trainer.modules.torch_critics import TorchCritics
from trainer.nn import GradientClipping, Schedule, ScheduleSetting, SquashedGaussian
from trainer.nn.layers import run_side_by_side
from trainer.nn.optimizers import follow
from trainer.replay import ReplayBuffer
from trainer.types import Array, ModuleId, State

# ---- target critics


class TargetCritics:
    """Copies of a module's critics whose weights follow them: θ⁻ ← τ θ + (1 - τ) θ⁻.

    Only critics have targets in SAC; a `TargetNetwork` would carry a copy of the policy along.

    Attributes:
        critics: the copies.
    """

    def __init__(self, module: SACModule | TorchSACModule) -> None:
        """Starts with the same weights as a module that learns."""
        if module.critics is None:
            raise module.acting_only_error()
        self._followed = module.critics.block
        self.critics = module.copy_critics()
        self._scratch: Array = np.empty_like(self._followed)
        self.follow(1.0)

    def follow(self, tau: float) -> None:
        """Moves by the share τ, in (0, 1], of the way."""
        follow(self.critics.parameters.flat, self._followed, tau, scratch=self._scratch)

    def get_state(self) -> State:
        """Copies of the weights by name."""
        return self.critics.parameters.get_state()

    def set_state(self, state: State) -> None:
        self.critics.parameters.set_state(state)


# ---- loss
#
# The losses of SAC and their gradients, on arrays only. With π the policy, Q_i the critics, Q_i⁻
# their targets, α the temperature, H̄ the target entropy, w the importance weights, R, s', γ' the
# sum of rewards, observation and discount after n steps (Haarnoja et al. 2018a, 2018b, equation
# numbers of 2018b):
#
#     y       = R + γ' (min_i Q_i⁻(s', a') - α log π(a'|s')),   a' ~ π(s')        equations 5, 6
#     L_Q     = Σ_i mean w · huber(Q_i(s, a) - y)        "mse" in the paper, Huber in RLlib
#     L_π     = mean (α log π(ã|s) - min_i Q_i(s, ã)),          ã ~ π(s)          equation 9
#     L_α     = mean -log α (log π(ã|s) + H̄)            log α for α, as in RLlib   equation 18
#
# With finitely many actions the expectations over a', ã are sums (Christodoulou 2019, equations
# 4, 10, 12).


@dataclass(frozen=True)
class PolicyLoss:
    """The loss of a policy over finitely many actions.

    Attributes:
        loss: L_π.
        logp: Σ π log π of each row, [B].
        d_logits: derivative of the loss, [B, n].
    """

    loss: float
    logp: Array
    d_logits: Array


def discrete_policy_loss(log_probs: Array, q_values: Array, *, alpha: float) -> PolicyLoss:
    """L_π over finitely many actions: mean Σ_a π(a) (α log π(a) - Q(a)).

    With f(a) = α log π(a) - Q(a): dL/d logit_k = π_k (f_k - Σ π f) / B.

    Args:
        log_probs: log π(·|s), [B, n].
        q_values: min_i Q_i(s, ·), [B, n].
        alpha: α ≥ 0.
    """
    probs = np.exp(log_probs)
    advantages = alpha * log_probs - q_values
    means = (probs * advantages).sum(axis=1, keepdims=True)
    return PolicyLoss(
        loss=float(means.mean()),
        logp=(probs * log_probs).sum(axis=1),
        d_logits=probs * (advantages - means) / len(probs),
    )


def temperature_loss(
    logp: Array, *, log_alpha: float, target_entropy: float
) -> tuple[float, float]:
    """L_α and its derivative with respect to log α.

    Args:
        logp: log π(ã|s), or Σ π log π, [B].
        log_alpha: log α.
        target_entropy: H̄ in nats.
    """
    gradient = -float(np.mean(logp + target_entropy))
    return log_alpha * gradient, gradient


# ---- learner

_DISCRETE_SHARE: Final = 0.98
"""The share of the largest possible entropy that "auto" aims at with Discrete actions."""


@dataclass(frozen=True, kw_only=True)
class SACSettings(ReplaySettings):
    """The settings of `SACConfig.training()` that its learner reads; `lr` is `critic_lr`."""

    actor_lr: ScheduleSetting
    alpha_lr: ScheduleSetting
    target_entropy: float | str | None
    td_error_loss_fn: str


def target_entropy_of(module: RLModule, setting: float | str | None) -> float:
    """H̄ in nats.

    Minus the dimensions of the actions (Haarnoja et al. 2018b, table 1), or 0.98 ln n for n
    Discrete actions (Christodoulou 2019, appendix A).

    Args:
        module: with the action space.
        setting: H̄ itself; "auto" or None for these rules.
    """
    if isinstance(setting, float | int):
        return float(setting)
    space = module.action_space
    if isinstance(space, spaces.Discrete):
        return _DISCRETE_SHARE * math.log(int(space.n))
    return -float(module.action_distribution.noise_width)


@dataclass(frozen=True)
class SACLosses:
    """All losses of one batch; their gradients are in the module's.

    Attributes:
        critics: of each critic.
        policy_loss: L_π.
        alpha_loss: L_α.
        logp: log π(ã|s), or Σ π log π, [B].
        min_q: min_i Q_i(s, a), [B].
    """

    critics: list[CriticLoss]
    policy_loss: float
    alpha_loss: float
    logp: Array
    min_q: Array

    @property
    def total(self) -> float:
        """The sum of all losses."""
        return self.policy_loss + self.alpha_loss + sum(critic.loss for critic in self.critics)


class SACLearner(ReplayLearner):
    """Soft actor-critic (Haarnoja et al. 2018b) for squashed Gaussian and for Discrete policies.

    Metrics: `policy_loss`, `qf_loss`, `qf_twin_loss`, `alpha_loss`, `total_loss`, `alpha_value`,
    `log_alpha_value` (both before the update), `target_entropy`, `logps`, `qf_mean`, `qf_min`,
    `qf_max`, `actor_learning_rate`, `alpha_learning_rate`; `default_optimizer_learning_rate` is
    that of the critics.

    Attributes:
        target: the critics that targets are computed with.
        target_entropy: H̄ in nats.
    """

    settings_class: ClassVar[type[LearnerSettings]] = SACSettings
    settings: SACSettings
    module: SACModule | TorchSACModule
    target: TargetCritics
    _critics: Critics | TorchCritics
    _target_entropy: float
    _actor_lr: Schedule
    _alpha_lr: Schedule
    _optimized: dict[str, slice]
    _rates: Array
    _shown_rates: dict[str, float]

    def __init__(
        self,
        *,
        module_spec: RLModuleSpec,
        settings: SACSettings,
        root_seed: int,
        position: tuple[int, ...] = (),
    ) -> None:
        """See `Learner`; settings are SAC's.

        Raises:
            ConfigError: the module is no `SACModule` or `TorchSACModule`.
        """
        super().__init__(
            module_spec=module_spec, settings=settings, root_seed=root_seed, position=position
        )
        own: RLModule = self.module
        if not isinstance(own, SACModule | TorchSACModule) or own.critics is None:
            raise ConfigError(
                f"SAC learns a policy and critics, but the module is a "
                f"{type(self.module).__name__}. Derive it from SACModule or TorchSACModule, or use "
                "PPO or DQN."
            )
        self._critics = own.critics
        self.target = TargetCritics(self.module)
        self.parts["target"] = self.target
        self._target_entropy = target_entropy_of(self.module, settings.target_entropy)
        self._actor_lr = Schedule.from_setting(settings.actor_lr, name="actor_lr")
        self._alpha_lr = Schedule.from_setting(settings.alpha_lr, name="alpha_lr")
        self._optimized = _optimized_parts(self.module)
        self.clipping = GradientClipping(
            self.module.gradients,
            limit=settings.grad_clip,
            mode=settings.grad_clip_by,
            parts=list(self._optimized.values()),
        )
        self._rates = np.zeros_like(self.module.parameters.flat)
        self._shown_rates = {}

    @property
    def target_entropy(self) -> float:
        """H̄ in nats."""
        return self._target_entropy

    def update_from(
        self,
        buffer: ReplayBuffer,
        *,
        num_updates: int,
        num_env_steps_sampled_lifetime: int,
        num_env_steps_sampled_before: int,
        on_batch: BatchListener | None = None,
    ) -> Callable[[], dict[str, Any]]:
        self._set_rates(num_env_steps_sampled_before)
        return super().update_from(
            buffer,
            num_updates=num_updates,
            num_env_steps_sampled_lifetime=num_env_steps_sampled_lifetime,
            num_env_steps_sampled_before=num_env_steps_sampled_before,
            on_batch=on_batch,
        )

    def _set_rates(self, num_env_steps: int) -> None:
        """Writes the learning rate of every number that is learnt."""
        rates = {
            "critic": self._lr.value_at(num_env_steps),
            "actor": self._actor_lr.value_at(num_env_steps),
            "alpha": self._alpha_lr.value_at(num_env_steps),
        }
        if rates == self._shown_rates:
            return
        self._shown_rates = rates
        for name, part in self._optimized.items():
            kind = {"pi": "actor", LOG_ALPHA: "alpha"}.get(name, "critic")
            self._rates[part] = rates[kind]

    def learn(self, batch: ReplayBatch, *, lr: float, rng: np.random.Generator) -> ReplayUpdate:
        """One gradient step of everything; see `ReplayLearner.learn`.

        Args:
            batch: transitions.
            lr: of the critics; it is in the rates already.
            rng: gives the noise of the actions a' and ã.
        """
        del lr
        log_alpha = float(self.module.parameters.views[LOG_ALPHA][0])
        losses = self.losses(batch, rng=rng)
        norm = self.apply_gradients(loss=losses.total, lr=self._rates, batch=vars(batch))
        metrics = self._metrics(losses, log_alpha, norm)
        return ReplayUpdate(mean_errors(losses.critics), metrics)

    def losses(self, batch: ReplayBatch, *, rng: np.random.Generator) -> SACLosses:
        """The losses with the present weights; `rng` draws actions. Overwrites all gradients."""
        module = self.module
        alpha = math.exp(float(module.parameters.views[LOG_ALPHA][0]))
        distribution = module.action_distribution
        if isinstance(distribution, SquashedGaussian):
            # float32 draws would be another sequence than those of the float64 of gradient checks.
            shape = (2, len(batch.obs), distribution.noise_width)
            noise = rng.standard_normal(shape).astype(module.parameters.dtype)
            if self._computes_pairs():
                next_inputs, inputs = self._both_inputs(batch)
                values = self._soft_values(
                    batch.next_obs, next_inputs, noise[0], alpha, distribution
                )
            else:
                next_inputs = self._target_inputs(batch.next_obs)
                values = self._soft_values(
                    batch.next_obs, next_inputs, noise[0], alpha, distribution
                )
                inputs = self._inputs(batch.obs)
            policy_loss, logp, outputs = self._policy(batch, inputs, noise[1], alpha, distribution)
        else:
            values = self._discrete_soft_values(batch.next_obs, alpha)
            policy_loss, logp = self._discrete_policy(batch.obs, alpha)
            outputs = self._critics.forward(self._seen(batch.obs))
        targets = td_targets(batch.rewards, batch.discounts, values)
        critics, min_q = self._learn_critics(batch, targets, outputs)
        alpha_loss, d_log_alpha = temperature_loss(
            logp, log_alpha=math.log(alpha), target_entropy=self.target_entropy
        )
        module.gradients.views[LOG_ALPHA][:] = d_log_alpha
        return SACLosses(critics, policy_loss, alpha_loss, logp, min_q)

    # ---- actions that are drawn

    def _computes_pairs(self) -> bool:
        """Whether parts of the policy and of the critics can be computed at once."""
        module = self.module
        is_own = isinstance(module, SACModule) and module.has_own_passes
        return is_own and isinstance(self._critics, Critics)

    def _both_inputs(self, batch: ReplayBatch) -> tuple[Array, Array]:
        """The policy's inputs after and before the steps, computed side by side."""
        module: Any = self.module
        now, ahead = module.pass_for(batch.obs), module.pass_ahead(batch.next_obs)
        run_side_by_side([now], [ahead])
        return ahead.outputs[:-1].T, now.outputs[:-1].T

    def _soft_values(
        self,
        obs: Array,
        inputs: Array,
        noise: Array,
        alpha: float,
        distribution: SquashedGaussian,
    ) -> Array:
        """V(s') from the target critics and an action drawn from the policy, [B]."""
        drawn = distribution.reparameterized(inputs, noise)
        values: Array = smallest_of(self.target.critics.forward(obs, drawn.actions))
        values -= alpha * drawn.logp
        return values

    def _policy(
        self,
        batch: ReplayBatch,
        inputs: Array,
        noise: Array,
        alpha: float,
        distribution: SquashedGaussian,
    ) -> tuple[float, Array, list[Array]]:
        """L_π and log π(ã|s); overwrites the policy's gradients.

        Beside these the critics value the actions of the batch: the third of what is returned.
        """
        obs = batch.obs
        drawn = distribution.reparameterized(inputs, noise)
        q_values = self._critics.forward(obs, drawn.actions)
        smallest = smallest_of(q_values)
        loss = float(np.mean(alpha * drawn.logp - smallest))
        # The gradient flows through the smaller value; through the first where both are equal.
        share = -1.0 / len(obs)
        d_values = [share * (q_values[0] == smallest).astype(smallest.dtype)]
        d_values += [share - d_values[0]] * (len(q_values) - 1)
        d_actions = self._critics.d_actions(d_values)
        d_inputs = drawn.backward(d_actions=d_actions, d_logp=alpha / len(obs))
        if not self._computes_pairs():
            self.module.backward(d_action_dist_inputs=d_inputs)
            return loss, drawn.logp, self._critics.forward(self._seen(obs), batch.actions)
        critics, module = cast("Critics", self._critics), cast("SACModule", self.module)
        passes = critics.passes(self._seen(obs), batch.actions)
        run_side_by_side([module.pass_back(d_inputs)], passes)
        return loss, drawn.logp, critics.values(passes)

    # ---- finitely many actions

    def _discrete_soft_values(self, obs: Array, alpha: float) -> Array:
        """V(s') from the target critics and all actions, [B]."""
        log_probs = self.module.action_distribution.canonical(self._target_inputs(obs))
        q_values = smallest_of(self.target.critics.forward(self._seen(obs)))
        values: Array = (np.exp(log_probs) * (q_values - alpha * log_probs)).sum(axis=1)
        return values

    def _discrete_policy(self, obs: Array, alpha: float) -> tuple[float, Array]:
        """L_π and Σ π log π; overwrites the policy's gradients."""
        log_probs = self.module.action_distribution.canonical(self._inputs(obs))
        q_values = smallest_of(self._critics.forward(self._seen(obs)))
        loss = discrete_policy_loss(log_probs, q_values, alpha=alpha)
        self.module.backward(d_action_dist_inputs=loss.d_logits)
        return loss.loss, loss.logp

    # ---- both

    def _learn_critics(
        self, batch: ReplayBatch, targets: Array, outputs: list[Array]
    ) -> tuple[list[CriticLoss], Array]:
        """L_Q of every critic, and the smallest Q(s, a), [B]; overwrites their gradients.

        Args:
            batch: transitions.
            targets: y, [B].
            outputs: what the critics gave for the batch last.
        """
        losses, smallest = self._critic_losses(batch, targets, outputs)
        gradients = [loss.d_q for loss in losses]
        if self.module.is_discrete:
            rows, by_action = np.arange(len(targets)), [np.zeros_like(q) for q in outputs]
            for gradient, d_q in zip(by_action, gradients, strict=True):
                gradient[rows, batch.actions] = d_q
            gradients = by_action
        self._critics.backward(gradients)
        return losses, smallest

    def _critic_losses(
        self, batch: ReplayBatch, targets: Array, outputs: list[Array]
    ) -> tuple[list[CriticLoss], Array]:
        """L_Q of every critic, and the smallest Q(s, a); no gradients yet."""
        rows = np.arange(len(targets))
        selected = [q[rows, batch.actions] if self.module.is_discrete else q for q in outputs]
        kind = self.settings.td_error_loss_fn
        losses = [critic_loss(q, targets, batch.weights, kind=kind) for q in selected]
        return losses, smallest_of(selected)

    def _inputs(self, obs: Array) -> Array:
        inputs: Array = self.module.training_output({OBS: obs}, ACTION_DIST_INPUTS)
        return inputs

    def _target_inputs(self, obs: Array) -> Array:
        """The policy's inputs where no gradient goes through them."""
        return self.module.target_output({OBS: obs}, ACTION_DIST_INPUTS)

    def _seen(self, obs: Array) -> Array:
        """Observations without the action masks, which the critics do not read."""
        return obs[:, : self.module.obs_size]

    def follow(self) -> None:
        """Moves the target critics."""
        self.target.follow(self.settings.tau)

    def set_weights(self, weights: State) -> None:
        """Replaces the module's weights; the target critics take them over, too."""
        super().set_weights(weights)
        self.target.follow(1.0)

    def _metrics(
        self, losses: SACLosses, log_alpha: float, norm: float
    ) -> Callable[[], dict[str, Any]]:
        def metrics() -> dict[str, Any]:
            return {
                **loss_metrics(self._critics.names, losses.critics),
                "policy_loss": losses.policy_loss,
                "alpha_loss": losses.alpha_loss,
                "total_loss": losses.total,
                "alpha_value": math.exp(log_alpha),
                "log_alpha_value": log_alpha,
                "target_entropy": self.target_entropy,
                "logps": float(losses.logp.mean()),
                **value_metrics(losses.min_q),
                GRADIENT_NORM: norm,
                "actor_learning_rate": self._shown_rates["actor"],
                "alpha_learning_rate": self._shown_rates["alpha"],
            }

        return metrics


def _optimized_parts(module: SACModule | TorchSACModule) -> dict[str, slice]:
    """Where the numbers of policy, each critic and temperature stand in the flat vector."""
    parts: dict[str, slice] = {}
    start = 0
    for name, shape in module.parameters.shapes.items():
        stop = start + math.prod(shape)
        part = module.part_of(name)
        begins = parts[part].start if part in parts else start
        parts[part] = slice(begins, stop)
        start = stop
    return parts


# ---- config


class SACConfig(SACTrainingSection, PolicyAndCriticsConfig):
    """The settings of SAC (Haarnoja et al. 2018, "Soft actor-critic algorithms and applications").

    Example:
        `SACConfig().environment("Pendulum-v1").training(actor_lr=1e-3, critic_lr=1e-3)`
    """

    if TYPE_CHECKING:

        def _builds(self) -> SAC: ...

    changed_defaults: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {
            **PolicyAndCriticsConfig.changed_defaults,
            "train_batch_size": 256,
            "tau": 5e-3,
            "adam_epsilon": 1e-7,
            "num_steps_sampled_before_learning_starts": 1500,
            "min_sample_timesteps_per_iteration": 100,
            "replay_buffer_config": {
                **PolicyAndCriticsConfig.replay_buffer_config.default,
                "capacity": 1_000_000,
            },
        }
    )
    default_module_class: ClassVar[type[RLModule]] = SACModule
    own_module_classes: ClassVar[tuple[type[RLModule], ...]] = (SACModule, TorchSACModule)
    module_settings: ClassVar[tuple[str, ...]] = (
        "twin_q",
        "initial_alpha",
        "policy_model_config",
        "q_model_config",
    )


# ---- algorithm


class SAC(OffPolicyAlgorithm):
    """Soft actor-critic (Haarnoja et al. 2018), for bounded Box and for Discrete actions.

    The equations are in `README.md` beside this file.
    """

    config_class: ClassVar[type[AlgorithmConfig]] = SACConfig
    config: SACConfig

    def make_learner(self, module_id: ModuleId | None = None) -> SACLearner:
        """The learner with the settings of `SACConfig.training()`."""
        lr = self.config_for(module_id).critic_lr
        return self.new_learner(SACLearner, module_id, lr=lr)

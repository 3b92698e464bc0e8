"""TD3 and DDPG: a policy that is a function, taught by critics that learn from all that was seen.

The targets and losses, on arrays. With π the policy, Q_i the critics, π⁻ and Q_i⁻ their targets, w
the importance weights, R, s', γ' the sum of rewards, observation and discount after n steps (γ' = 0
where the episode ended; Fujimoto et al. 2018, algorithm 1, and Lillicrap et al. 2016, algorithm 1):

    a'  = clip(π⁻(s') + clip(ε, ±c), ±1),   ε ~ N(0, σ²)       equation 14; DDPG: a' = π⁻(s')
    y   = R + γ' min_i Q_i⁻(s', a')                            equation 10; DDPG has one critic
    L_Q = Σ_i mean w · (Q_i(s, a) - y)²
    L_π = -mean Q_1(s, π(s))                                   after every d-th step of the critics
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from trainer.algorithms.on_and_off_policy import OffPolicyAlgorithm
from trainer.algorithms.policy_and_critics import PolicyAndCriticsConfig
from trainer.algorithms.td3.training_section import TD3TrainingSection
from trainer.config import AlgorithmConfig
from trainer.episodes.episode_columns import ACTION_DIST_INPUTS, OBS
from trainer.errors import ConfigError, UnsupportedSpaceError
from trainer.learners import (
    GRADIENT_NORM,
    CriticLoss,
    LearnerSettings,
    ReplayBatch,
    ReplayLearner,
    ReplaySettings,
    ReplayUpdate,
    TargetNetwork,
    critic_loss,
    loss_metrics,
    mean_errors,
    smallest_of,
    td_targets,
    value_metrics,
)
from trainer.modules import RLModule
from trainer.modules.policy_and_critics import Critics, PolicyAndCritics, is_bounded_box
from trainer.nn import (
    ActionDistribution,
    Adam,
    Deterministic,
    GradientClipping,
    Schedule,
    ScheduleSetting,
)
from trainer.nn.layers import run_side_by_side
from trainer.replay import ReplayBuffer
from trainer.types import Array, ModuleId

# ---- networks


class TD3Module(PolicyAndCritics):
    """Policy and critics for bounded Box actions; an action is the tanh of the policy's outputs."""

    critics: Critics

    def distribution_of_policy(self) -> ActionDistribution:
        """No distribution: the same action always."""
        if not is_bounded_box(self.action_space):
            raise UnsupportedSpaceError(
                "TD3 and DDPG choose in a Box of floats with bounds on both sides, at least one "
                f"number; this env has {self.action_space}. Bound a Box with a wrapper "
                "(gymnasium.wrappers.TransformAction and a bounded Box), or use PPO, or DQN for "
                "Discrete actions."
            )
        return Deterministic(self.action_space.shape)


# ---- target


def smoothed(actions: Array, noise: Array, *, clip: float) -> Array:
    """Actions with noise, [B, A], both within bounds.

    Args:
        actions: π⁻(s') in [-1, 1], [B, A].
        noise: ε, [B, A].
        clip: c ≥ 0.
    """
    noisy: Array = actions + np.minimum(np.maximum(noise, -clip), clip)
    return np.minimum(np.maximum(noisy, -1.0), 1.0)


# ---- learner


@dataclass(frozen=True, kw_only=True)
class TD3Settings(ReplaySettings):
    """The settings of `TD3Config.training()` that its learner reads; `lr` is `critic_lr`."""

    actor_lr: ScheduleSetting
    policy_delay: int
    smooth_target_policy: bool
    target_noise: float
    target_noise_clip: float
    td_error_loss_fn: str


class TD3Learner(ReplayLearner):
    """Twin delayed deep deterministic policy gradient (Fujimoto et al. 2018), and DDPG.

    Metrics: `policy_loss` (with the weights after the update), `qf_loss`, `qf_twin_loss`,
    `total_loss` of the critics, `qf_mean`, `qf_min`, `qf_max`, `actor_learning_rate`;
    `default_optimizer_learning_rate` is that of the critics.

    Attributes:
        target: the policy and critics that targets are computed with.
    """

    settings_class: ClassVar[type[LearnerSettings]] = TD3Settings
    settings: TD3Settings
    module: TD3Module
    target: TargetNetwork
    _actor_lr: Schedule
    _policy_lr: float
    _policy_optimizer: Adam
    _policy_clipping: GradientClipping

    def __init__(self, **arguments: Any) -> None:
        """See `ReplayLearner`; settings are TD3's.

        Raises:
            ConfigError: the module is no `TD3Module`.
        """
        super().__init__(**arguments)
        own: RLModule = self.module
        if not isinstance(own, TD3Module):
            raise ConfigError(
                f"TD3 learns a policy and critics, but the module is a {type(own).__name__}. "
                "Derive it from TD3Module, or use PPO or SAC."
            )
        self.target = TargetNetwork(own)
        self._actor_lr = Schedule.from_setting(self.settings.actor_lr, name="actor_lr")
        self._policy_lr = self._actor_lr.value_at(0)
        names = list(own.parameters.shapes)
        first_of_critics = names.index("qf/0/kernel")
        self.optimizer, self.clipping = self._steps_of(names[first_of_critics:])
        self._policy_optimizer, self._policy_clipping = self._steps_of(names[:first_of_critics])
        self.parts |= {
            "optimizer": self.optimizer,
            "policy_optimizer": self._policy_optimizer,
            "target": self.target,
        }

    def _steps_of(self, names: list[str]) -> tuple[Adam, GradientClipping]:
        """What moves a part of the weights, and limits its gradient."""
        module, settings = self.module, self.settings
        parameters, gradients = (
            both.part(names[0], names[-1]) for both in (module.parameters, module.gradients)
        )
        return Adam(parameters, gradients, epsilon=settings.adam_epsilon), GradientClipping(
            gradients, limit=settings.grad_clip, mode=settings.grad_clip_by
        )

    def update_from(self, buffer: ReplayBuffer, **arguments: Any) -> Callable[[], dict[str, Any]]:
        self._policy_lr = self._actor_lr.value_at(arguments["num_env_steps_sampled_before"])
        return super().update_from(buffer, **arguments)

    def learn(self, batch: ReplayBatch, *, lr: float, rng: np.random.Generator) -> ReplayUpdate:
        """A step of the critics, and when it is due one of the policy; see `ReplayLearner.learn`.

        Args:
            batch: transitions.
            lr: of the critics.
            rng: gives the noise of the actions a'.
        """
        losses, min_q = self.critic_losses(batch, rng=rng)
        total = sum(loss.loss for loss in losses)
        norm = self.apply_gradients(loss=total, lr=lr, batch=vars(batch))
        if (self.num_updates + 1) % self.settings.policy_delay == 0:
            self._learn_policy(batch)

        def metrics() -> dict[str, Any]:
            return {
                **loss_metrics(self.module.critics.names, losses),
                "policy_loss": self.policy_loss(batch),
                "total_loss": total,
                **value_metrics(min_q),
                GRADIENT_NORM: norm,
                "actor_learning_rate": self._policy_lr,
            }

        return ReplayUpdate(mean_errors(losses), metrics)

    def critic_losses(
        self, batch: ReplayBatch, *, rng: np.random.Generator
    ) -> tuple[list[CriticLoss], Array]:
        """L_Q of every critic, and min_i Q_i(s, a), [B]; overwrites the critics' gradients."""
        critics, target = self.module.critics, cast("TD3Module", self.target.module)
        next_actions = self._next_actions(batch.next_obs, rng)
        ahead = target.critics.passes(batch.next_obs, next_actions)
        now = critics.passes(batch.obs, batch.actions)
        run_side_by_side([*ahead[:1], *now[:1]], [*ahead[1:], *now[1:]])
        next_values = smallest_of(target.critics.values(ahead))
        targets = td_targets(batch.rewards, batch.discounts, next_values)
        values, kind = critics.values(now), self.settings.td_error_loss_fn
        losses = [critic_loss(q, targets, batch.weights, kind=kind) for q in values]
        smallest = smallest_of(values)
        critics.backward([loss.d_q for loss in losses])
        return losses, smallest

    def _next_actions(self, next_obs: Array, rng: np.random.Generator) -> Array:
        """The actions a', [B, A]."""
        actions = np.tanh(self.target.module.target_output({OBS: next_obs}, ACTION_DIST_INPUTS))
        settings = self.settings
        if not settings.smooth_target_policy:
            return actions
        # float32 draws would be another sequence than those of the float64 of gradient checks.
        noise = settings.target_noise * rng.standard_normal(actions.shape)
        return smoothed(actions, noise.astype(actions.dtype), clip=settings.target_noise_clip)

    def policy_loss(self, batch: ReplayBatch) -> float:
        """L_π; overwrites the policy's gradients."""
        module, num_rows = self.module, len(batch.obs)
        actions = np.tanh(module.training_output({OBS: batch.obs}, ACTION_DIST_INPUTS))
        first = module.critics.passes(batch.obs, actions)[:1]
        run_side_by_side(first, [])
        loss = -float(np.mean(module.critics.values(first)[0]))
        d_actions = module.critics.d_actions([np.full(num_rows, -1.0 / num_rows, actions.dtype)])
        module.backward(d_action_dist_inputs=d_actions * (1.0 - actions * actions))
        return loss

    def _learn_policy(self, batch: ReplayBatch) -> None:
        """A step of the policy."""
        loss, clipping = self.policy_loss(batch), self._policy_clipping
        norm = clipping.global_norm()
        self.note_applied(loss, norm, vars(batch))
        clipping.clip(global_norm=norm)
        self._policy_optimizer.step(lr=self._policy_lr)

    def _update_targets(self, num_env_steps: int) -> None:
        if self.num_updates % self.settings.policy_delay == 0:
            super()._update_targets(num_env_steps)

    def follow(self) -> None:
        """Moves the target networks."""
        self.target.follow(self.settings.tau)


# ---- config


class TD3Config(TD3TrainingSection, PolicyAndCriticsConfig):
    """The settings of TD3 (Fujimoto et al. 2018, "Addressing function approximation error …").

    Example:
        `TD3Config().environment("Pendulum-v1").build_algo()`
    """

    if TYPE_CHECKING:

        def _builds(self) -> TD3: ...

    changed_defaults: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {
            **PolicyAndCriticsConfig.changed_defaults,
            "actor_lr": 1e-3,
            "critic_lr": 1e-3,
            "td_error_loss_fn": "mse",
            "train_batch_size": 100,
            "tau": 5e-3,
            "num_steps_sampled_before_learning_starts": 10_000,
            "min_sample_timesteps_per_iteration": 1000,
            "model_config": {"fcnet_hiddens": [400, 300]},
            "replay_buffer_config": {
                **PolicyAndCriticsConfig.replay_buffer_config.default,
                "type": "EpisodeReplayBuffer",
                "capacity": 1_000_000,
            },
        }
    )
    default_module_class: ClassVar[type[RLModule]] = TD3Module
    own_module_classes: ClassVar[tuple[type[RLModule], ...]] = (TD3Module,)

    def default_exploration_config(self) -> dict[str, Any]:
        """Uniform actions until learning starts, then Gaussian noise that stays as it is."""
        return {
            "type": "GaussianNoise",
            "random_timesteps": self.num_steps_sampled_before_learning_starts,
            "stddev": 0.1,
            "scale_schedule": 1.0,
        }


class DDPGConfig(TD3Config):
    """The settings of DDPG (Lillicrap et al. 2016, "Continuous control with deep RL").

    It is TD3 with one critic, exact next actions, and a step of the policy per step of the critic.

    Example:
        `DDPGConfig().environment("Pendulum-v1").build_algo()`
    """

    if TYPE_CHECKING:

        def _builds(self) -> DDPG: ...

    changed_defaults: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {
            **TD3Config.changed_defaults,
            "twin_q": False,
            "policy_delay": 1,
            "smooth_target_policy": False,
            "train_batch_size": 256,
            "tau": 2e-3,
            "num_steps_sampled_before_learning_starts": 1500,
            "replay_buffer_config": PolicyAndCriticsConfig.replay_buffer_config.default,
        }
    )

    def default_exploration_config(self) -> dict[str, Any]:
        """Uniform actions until learning starts, then an Ornstein-Uhlenbeck process."""
        random_timesteps = self.num_steps_sampled_before_learning_starts
        return {"type": "OrnsteinUhlenbeckNoise", "random_timesteps": random_timesteps}


# ---- algorithms


class TD3(OffPolicyAlgorithm):
    """Twin delayed DDPG (Fujimoto et al. 2018), for bounded Box actions; see `README.md` here."""

    config_class: ClassVar[type[AlgorithmConfig]] = TD3Config
    config: TD3Config

    def make_learner(self, module_id: ModuleId | None = None) -> TD3Learner:
        """The learner with the settings of `TD3Config.training()`."""
        lr = self.config_for(module_id).critic_lr
        return self.new_learner(TD3Learner, module_id, lr=lr)


class DDPG(TD3):
    """Deep deterministic policy gradient (Lillicrap et al. 2016): TD3 with other defaults."""

    config_class: ClassVar[type[AlgorithmConfig]] = DDPGConfig
    config: DDPGConfig

"""Learning from replay: settings, batches, target networks, and the base of such learners."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Final

import numpy as np

from trainer.episodes.episode_columns import ACTIONS, NEW_OBS, OBS, REWARDS
from trainer.errors import ConfigError
from trainer.learners.columns import BatchListener, TrainBatchEvent
from trainer.learners.learner import STEPS, Learner, LearnerSettings
from trainer.modules import RLModule, RLModuleSpec
from trainer.nn.optimizers import follow
from trainer.replay import NStep, PrioritizedReplayBuffer, ReplayBuffer, Transitions
from trainer.seeding import PositionStream, Role
from trainer.types import Array, State

# ---- target network


class TargetNetwork:
    """A copy of a module whose weights follow it: θ⁻ ← τ θ + (1 - τ) θ⁻.

    With τ = 1 and updates from time to time it is that of Mnih et al. 2015, with a small τ at every
    update that of Lillicrap et al. 2016.

    Attributes:
        module: the copy; its gradients are of no use.
    """

    def __init__(self, followed: RLModule) -> None:
        """Starts with the same weights."""
        self._followed = followed
        self.module = copy.deepcopy(followed)
        self._scratch: Array = np.empty_like(followed.parameters.flat)

    def follow(self, tau: float) -> None:
        """Moves by the share τ, in (0, 1], of the way."""
        self.module.copy_buffers(self._followed)
        target, source = self.module.parameters.flat, self._followed.parameters.flat
        follow(target, source, tau, scratch=self._scratch)

    def get_state(self) -> State:
        """Copies of the weights by name."""
        return self.module.get_state()

    def set_state(self, state: State) -> None:
        self.module.set_state(state)


# ---- replay learner


@dataclass(frozen=True, kw_only=True)
class ReplaySettings(LearnerSettings):
    """The settings of `OffPolicyConfig.training()` that a learner from replay reads."""

    train_batch_size: int
    n_step: NStep
    tau: float
    target_network_update_freq: int


@dataclass(frozen=True)
class ReplayBatch:
    """A batch of transitions, ready for networks.

    Attributes:
        obs: encoded observations before the steps, float32 [B, D].
        actions: as the policy chose them, [B, …].
        rewards: discounted sums over n steps, float32 [B].
        next_obs: encoded observations after them, float32 [B, D].
        discounts: what the value of `next_obs` counts, float32 [B].
        weights: importance weights, float32 [B].
    """

    obs: Array
    actions: Any
    rewards: Array
    next_obs: Array
    discounts: Array
    weights: Array


def td_error_losses(errors: Array, *, kind: str) -> tuple[Array, Array]:
    """The losses of temporal-difference errors δ, and their derivatives, [B] each.

    Args:
        errors: δ, [B].
        kind: "huber" (δ²/2 up to 1 and |δ| - 1/2 beyond) or "mse" (δ²).
    """
    if kind == "mse":
        return errors * errors, 2.0 * errors
    # With c = δ clipped to [-1, 1], huber(δ) = c (δ - c/2), and c is its derivative.
    slopes = np.minimum(np.maximum(errors, -1.0), 1.0)
    return slopes * (errors - 0.5 * slopes), slopes


def td_targets(rewards: Array, discounts: Array, next_values: Array) -> Array:
    """The targets y = R + γ' V(s'), [B].

    Args:
        rewards: R, [B].
        discounts: γ', [B].
        next_values: V(s'), [B].
    """
    targets: Array = rewards + discounts * next_values
    return targets


@dataclass(frozen=True)
class CriticLoss:
    """The loss of one critic and its gradient.

    Attributes:
        loss: mean w · loss(Q(s, a) - y).
        td_errors: Q(s, a) - y, [B].
        d_q: derivative with respect to Q(s, a), [B].
    """

    loss: float
    td_errors: Array
    d_q: Array


def critic_loss(q_selected: Array, targets: Array, weights: Array, *, kind: str) -> CriticLoss:
    """The loss of one critic.

    Args:
        q_selected: Q(s, a), [B].
        targets: y, [B].
        weights: w, [B].
        kind: see `td_error_losses`.
    """
    errors = q_selected - targets
    losses, slopes = td_error_losses(errors, kind=kind)
    return CriticLoss(float(np.mean(weights * losses)), errors, weights * slopes / len(errors))


def smallest_of(values: Sequence[Array]) -> Array:
    """The elementwise minimum over one or two critics; a copy."""
    smallest: Array = values[0].copy() if len(values) == 1 else np.minimum(values[0], values[1])
    return smallest


def mean_errors(losses: Sequence[CriticLoss]) -> Array:
    """The mean size of the critics' errors, [B], which priorities follow."""
    errors: Array = np.mean([np.abs(loss.td_errors) for loss in losses], axis=0)
    return errors


def loss_metrics(names: Sequence[str], losses: Sequence[CriticLoss]) -> dict[str, float]:
    """`<name>_loss` of each critic."""
    return {f"{name}_loss": loss.loss for name, loss in zip(names, losses, strict=True)}


def value_metrics(smallest: Array) -> dict[str, float]:
    """How large values, [B], are: the smallest one that critics give for each row."""
    return {
        "qf_mean": float(smallest.mean()),
        "qf_min": float(smallest.min()),
        "qf_max": float(smallest.max()),
    }


@dataclass(frozen=True)
class ReplayUpdate:
    """What one update gives.

    Attributes:
        td_errors: by which priorities follow, [B].
        metrics: makes the metrics; called for the last of several updates only.
    """

    td_errors: Array
    metrics: Callable[[], dict[str, Any]]


_FROM_REPLAY: Final = "Learning from replay makes a whole update in `learn(batch, *, lr, rng)`."


class ReplayLearner(Learner, ABC):
    """Learns from transitions that any earlier weights have played.

    Life:
        learner.update_from(buffer, num_updates=8, num_env_steps_sampled_lifetime=...,
                            num_env_steps_sampled_before=...)                      per round
        weights = learner.module.get_state(inference_only=True)            for the env runners
        state = learner.get_state(); learner.set_state(state)              exact resume

    Unlike `EpisodeLearner` it does not undo a failed update by itself: the algorithm puts buffer
    and learner back together. A subclass implements `learn` and `follow`, and puts its target
    networks into `parts`.

    Attributes:
        last_target_update_ts: env steps sampled when the target networks were last updated.
        num_target_updates: how often they were.
    """

    settings_class: ClassVar[type[LearnerSettings]] = ReplaySettings
    never_called: ClassVar[Mapping[str, str]] = MappingProxyType(
        dict.fromkeys(
            ("compute_loss", "compute_loss_for_module", "configure_optimizers_for_module"),
            _FROM_REPLAY,
        )
    )
    settings: ReplaySettings
    last_target_update_ts: int
    num_target_updates: int
    _root_seed: int
    _random: PositionStream

    def __init__(
        self,
        *,
        module_spec: RLModuleSpec,
        settings: ReplaySettings,
        root_seed: int,
        position: tuple[int, ...] = (),
    ) -> None:
        super().__init__(
            module_spec=module_spec, settings=settings, root_seed=root_seed, position=position
        )
        if self.module.is_stateful():
            raise ConfigError(
                f"The network {type(self.module).__name__} has memory (`get_initial_state()`), but "
                "learning from replay takes single steps of a buffer. Use PPO or PG, or show "
                "the last steps in the observation: "
                "gymnasium.wrappers.FrameStackObservation(env, n)."
            )
        self.last_target_update_ts = 0
        self.num_target_updates = 0

    @abstractmethod
    def learn(self, batch: ReplayBatch, *, lr: float, rng: np.random.Generator) -> ReplayUpdate:
        """Makes one update; `apply_gradients` changes the weights.

        Args:
            batch: transitions.
            lr: learning rate.
            rng: the random numbers of this update.
        """

    @abstractmethod
    def follow(self) -> None:
        """Moves the target networks by the share τ."""

    @property
    def root_seed(self) -> int:
        """The seed of the run."""
        return self._root_seed

    @root_seed.setter
    def root_seed(self, value: int) -> None:
        self._root_seed = value
        self._random = PositionStream(value, Role.REPLAY, of=self._position)

    def update_from(
        self,
        buffer: ReplayBuffer,
        *,
        num_updates: int,
        num_env_steps_sampled_lifetime: int,
        num_env_steps_sampled_before: int,
        on_batch: BatchListener | None = None,
    ) -> Callable[[], dict[str, Any]]:
        """Learns from a buffer, and tells it how wrong the values were.

        Args:
            buffer: not empty.
            num_updates: how many batches, ≥ 1.
            num_env_steps_sampled_lifetime: for target networks.
            num_env_steps_sampled_before: the same without the steps of this round; schedules are
                read there.
            on_batch: called for each batch with the module, the columns of `ReplayBatch` (with
                `next_obs` under its name `new_obs`), which it may change, and a dict for metrics
                of its own.

        Returns:
            What makes the metrics of the last update, by their key under `learners/{module_id}`,
            until there is another update; of many rounds only the last one is asked. Those of
            `on_batch` are under `custom_metrics`.

        Raises:
            ModuleError: a loss or gradient was not finite.
            EpisodeError: `on_batch` left what cannot be learnt from.
        """
        settings = self.settings
        num_env_steps = num_env_steps_sampled_lifetime
        timesteps = {STEPS: num_env_steps_sampled_before}
        lr = self._lr.value_at(num_env_steps_sampled_before)
        event = None
        if on_batch is not None:
            event = TrainBatchEvent(self.module, (), on_batch, keeps_rows=True)
        # What is not finite is found and raised before it does harm.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            for _ in range(num_updates):
                self.before_gradient_based_update(timesteps=timesteps)
                rng = self._random.at(self.num_updates)
                self.module.begin_update(self.root_seed, self.num_updates, of=self._position)
                sampled = buffer.sample(
                    settings.train_batch_size, rng=rng, n_step=settings.n_step, gamma=settings.gamma
                )
                batch = self._encoded_batch(sampled)
                if event is not None:
                    event.result.clear()
                    batch = _shown(batch, event)
                update = self.learn(batch, lr=lr, rng=rng)
                if isinstance(buffer, PrioritizedReplayBuffer):
                    buffer.update_priorities(sampled.rows, update.td_errors)
                self.num_updates += 1
                if (
                    num_env_steps - self.last_target_update_ts
                    >= settings.target_network_update_freq
                ):
                    self._update_targets(num_env_steps)
                self.after_gradient_based_update(timesteps=timesteps)
        custom = {} if event is None or not event.result else {"custom_metrics": dict(event.result)}

        def make_metrics() -> dict[str, Any]:
            return {
                **update.metrics(),
                "td_error_mean": float(np.abs(update.td_errors).mean()),
                **custom,
                "default_optimizer_learning_rate": lr,
                "last_target_update_ts": self.last_target_update_ts,
                "num_target_updates": self.num_target_updates,
                "num_module_steps_trained": num_updates * settings.train_batch_size,
                "num_trainable_parameters": self.module.num_parameters,
            }

        return make_metrics

    def _update_targets(self, num_env_steps: int) -> None:
        self.follow()
        self.last_target_update_ts = num_env_steps
        self.num_target_updates += 1

    def _encoded_batch(self, sampled: Transitions) -> ReplayBatch:
        """Ready for networks, normalised with the newest statistics.

        Rewards were clipped when they were stored; sums of them are scaled as single ones are.
        """
        rewards = sampled.rewards
        if self.normalization.rewards is not None:
            rewards = self.normalization.rewards.scaled(rewards)
        return ReplayBatch(
            obs=self._encoder.encode_own(sampled.obs),
            actions=sampled.actions,
            rewards=rewards,
            next_obs=self._encoder.encode_own(sampled.next_obs),
            discounts=sampled.discounts,
            weights=sampled.weights,
        )

    def set_weights(self, weights: State) -> None:
        """Replaces the module's weights; target networks take them over, too.

        Raises:
            ModuleError: they do not fit the module.
        """
        super().set_weights(weights)
        for part in self.parts.values():
            if isinstance(part, TargetNetwork):
                part.follow(1.0)

    def extra_state(self) -> State:
        """Where the target networks stand."""
        return {
            "last_target_update_ts": self.last_target_update_ts,
            "num_target_updates": self.num_target_updates,
        }

    def set_extra_state(self, state: State) -> None:
        """Takes back what `extra_state` gave."""
        self.last_target_update_ts = int(state["last_target_update_ts"])
        self.num_target_updates = int(state["num_target_updates"])


def _shown(batch: ReplayBatch, event: TrainBatchEvent) -> ReplayBatch:
    """The batch as the listener leaves it."""
    columns = {
        OBS: batch.obs,
        ACTIONS: batch.actions,
        REWARDS: batch.rewards,
        NEW_OBS: batch.next_obs,
        "discounts": batch.discounts,
        "weights": batch.weights,
    }
    rows = event.fire(columns)
    return ReplayBatch(
        obs=rows[OBS],
        actions=rows[ACTIONS],
        rewards=rows[REWARDS],
        next_obs=rows[NEW_OBS],
        discounts=rows["discounts"],
        weights=rows["weights"],
    )

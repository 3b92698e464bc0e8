"""Learning from a replay buffer: many small updates, each from a batch of transitions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainer.episodes.columns import ACTIONS, NEW_OBS, OBS, REWARDS
from trainer.learners.learner import Learner
from trainer.learners.settings import LearnerSettings
from trainer.learners.target_network import TargetNetwork
from trainer.learners.train_batch import BatchListener, TrainBatchEvent
from trainer.modules import RLModuleSpec
from trainer.replay import NStep, PrioritizedReplayBuffer, ReplayBuffer, Transitions
from trainer.seeding import PositionStream, Role
from trainer.types import Array, State


@dataclass(frozen=True)
class ReplaySettings(LearnerSettings):
    """How a learner learns from replay; names are those of `OffPolicyConfig.training()`.

    Attributes:
        train_batch_size: B, transitions per update, ≥ 1.
        n_step: env steps per transition.
        tau: τ of the target networks, in (0, 1].
        target_network_update_freq: env steps between their updates; 0 is after every update.
    """

    train_batch_size: int = 32
    n_step: NStep = 1
    tau: float = 1.0
    target_network_update_freq: int = 0


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


@dataclass(frozen=True)
class ReplayUpdate:
    """What one update gives.

    Attributes:
        td_errors: by which priorities follow, [B].
        metrics: makes the metrics; called for the last of several updates only.
    """

    td_errors: Array
    metrics: Callable[[], dict[str, Any]]


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

    settings: ReplaySettings

    def __init__(
        self, *, module_spec: RLModuleSpec, settings: ReplaySettings, root_seed: int
    ) -> None:
        """See `Learner`."""
        super().__init__(module_spec=module_spec, settings=settings, root_seed=root_seed)
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
        self._random = PositionStream(value, Role.REPLAY)

    def update_from(
        self,
        buffer: ReplayBuffer,
        *,
        num_updates: int,
        num_env_steps_sampled_lifetime: int,
        num_env_steps_sampled_before: int,
        on_batch: BatchListener | None = None,
    ) -> dict[str, Any]:
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
            Metrics of the last update by their key under `learners/{module_id}`. Those of
            `on_batch` are under `custom_metrics`.

        Raises:
            ModuleError: a loss or gradient was not finite.
            EpisodeError: `on_batch` left what cannot be learnt from.
        """
        settings = self.settings
        num_env_steps = num_env_steps_sampled_lifetime
        lr = self._lr.value_at(num_env_steps_sampled_before)
        event = TrainBatchEvent(self.module, (), on_batch, keeps_rows=True)
        # What is not finite is found and raised before it does harm.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            for _ in range(num_updates):
                rng = self._random.at(self.num_updates)
                self.module.begin_update(self.root_seed, self.num_updates)
                sampled = buffer.sample(
                    settings.train_batch_size, rng=rng, n_step=settings.n_step, gamma=settings.gamma
                )
                batch = self._encoded_batch(sampled)
                if on_batch is not None:
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
        return {
            **update.metrics(),
            **({"custom_metrics": dict(event.result)} if event.result else {}),
            "td_error_mean": float(np.abs(update.td_errors).mean()),
            "default_optimizer_learning_rate": lr,
            "last_target_update_ts": self.last_target_update_ts,
            "num_target_updates": self.num_target_updates,
            "num_module_steps_trained": num_updates * settings.train_batch_size,
            "num_trainable_parameters": self.module.num_parameters,
        }

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
            obs=self._encoder.encode(sampled.obs),
            actions=sampled.actions,
            rewards=rewards,
            next_obs=self._encoder.encode(sampled.next_obs),
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

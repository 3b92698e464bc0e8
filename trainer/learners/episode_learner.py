"""Learning from each sample once: columns of whole chunks, one update, all or nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from trainer import seeding
from trainer.episodes.single_agent_episode import SingleAgentEpisode
from trainer.learners.columns import Columns, columns_from_episodes
from trainer.learners.learner import Learner
from trainer.learners.train_batch import BatchListener, TrainBatchEvent


class EpisodeLearner(Learner, ABC):
    """Learns from episodes that its own weights have just played.

    Life:
        learner = LearnerSpec(...).build()
        metrics = learner.update(episodes, num_env_steps_sampled_before=...)     once per iteration
        weights = learner.module.get_state(inference_only=True)                  for the env runners
        state = learner.get_state(); learner.set_state(state)                    exact resume

    An update either happens as a whole or not at all: if it raises, everything is as it was before.
    A subclass implements `learn`.
    """

    @abstractmethod
    def learn(
        self,
        columns: Columns,
        *,
        rng: np.random.Generator,
        num_env_steps: int,
        event: TrainBatchEvent,
    ) -> dict[str, Any]:
        """Makes one update; `apply_gradients` changes the weights.

        Args:
            columns: all steps to learn from.
            rng: the random numbers of this update.
            num_env_steps: env steps sampled before these, where schedules are read.
            event: to fire once with all columns of the loss, which it may change.

        Returns:
            Metrics by their key under `learners/{module_id}`.
        """

    def update(
        self,
        episodes: Sequence[SingleAgentEpisode],
        *,
        num_env_steps_sampled_before: int,
        on_batch: BatchListener | None = None,
    ) -> dict[str, Any]:
        """Learns from episodes.

        Args:
            episodes: chunks after `to_numpy()`, sampled with the current weights.
            num_env_steps_sampled_before: env steps sampled since the start of training, without
                those of these episodes; schedules are read there, so that the first update uses
                their first value.
            on_batch: called with the module, the complete train batch, which it may change, and a
                dict for metrics of its own.

        Returns:
            Metrics by their key under `learners/{module_id}`; learning algorithms list theirs.
            Those of `on_batch` are under `custom_metrics`.

        Raises:
            ModuleError: a loss or gradient was not finite.
            EpisodeError: the episodes cannot be learnt from, or what `on_batch` made of them.
        """
        columns = columns_from_episodes(episodes, encoder=self._encoder)
        if self.normalization.rewards is not None:
            columns = replace(columns, rewards=self.normalization.rewards(columns.rewards))
        rng = seeding.learner_rng(self.root_seed, self.num_updates)
        event = TrainBatchEvent(self.module, episodes, on_batch)
        self.module.begin_update(self.root_seed, self.num_updates)
        before = self.get_state()
        try:
            # Overflow is not a warning here: what is not finite is found and raised before it does
            # harm.
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                metrics = self.learn(
                    columns, rng=rng, num_env_steps=num_env_steps_sampled_before, event=event
                )
        except BaseException:  # raised again; also Ctrl-C must not leave half an update
            self.set_state(before)
            raise
        self.num_updates += 1
        metrics["num_trainable_parameters"] = self.module.num_parameters
        if event.result:
            metrics["custom_metrics"] = event.result
        return metrics

"""Firing `on_postprocess_trajectory`: callbacks see a chunk as columns and may rewrite it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from trainer.connectors import Normalization, ObservationEncoder, SampleBatch
from trainer.connectors.sample_batch import read_only
from trainer.env_runners.runner_parts import RunnerParts
from trainer.env_runners.trajectories import (
    ObservationCodes,
    Rewrite,
    all_observations,
    rewrite_of,
    sealed_copy,
    trajectory_columns,
)
from trainer.episodes import SingleAgentEpisode
from trainer.episodes.columns import REWARDS
from trainer.errors import EpisodeError
from trainer.seeding import Role
from trainer.types import Array

EVENT: Final = "on_postprocess_trajectory"


class TrajectoryEvent:
    """Shows chunks to the listeners of a training runner.

    What a chunk's columns hold depends on that chunk alone, so it makes no difference how slots are
    spread over runners. What listeners leave unchanged never reaches the learner: who only listens
    changes no byte of what is learnt.
    """

    @classmethod
    def of(
        cls, runner: RunnerParts, *, logp: Callable[[Array, Any], Array]
    ) -> TrajectoryEvent | None:
        """None if nobody listens, or the runner plays for evaluation.

        Args:
            runner: whose chunks to show.
            logp: log-likelihoods of actions, from distribution inputs and actions.
        """
        emit = runner.callbacks.emitter(EVENT)
        if emit is None or runner.spec.role is Role.EVALUATION:
            return None
        return cls(runner, emit, logp)

    def __init__(
        self,
        runner: RunnerParts,
        emit: Callable[..., None],
        logp: Callable[[Array, Any], Array],
    ) -> None:
        self._runner = runner
        self._logp = logp
        self._emit = emit
        self._normalization = Normalization()
        module = runner.module
        self._codes = ObservationCodes.of(module.observation_space)
        self._encoder = ObservationEncoder(
            module.observation_space, action_mask_key=module.action_mask_key
        )

    def normalize_with(self, normalization: Normalization) -> None:
        """Shows columns that follow from observations and rewards as these make them."""
        self._normalization = normalization
        self._encoder.normalizer = normalization.observations

    def fire(self, episode: SingleAgentEpisode) -> Rewrite | None:
        """Fires the event for the steps since the episode began or was cut.

        Args:
            episode: still running or just ended, with at least one step.

        Returns:
            what is to be written into the chunk.

        Raises:
            CallbackError: a callback raised, or left what cannot be learnt from.
        """
        runner, module = self._runner, self._runner.module
        batch = trajectory_columns(episode, logp=self._logp, codes=self._codes)
        before = sealed_copy(batch)
        original = before.copy(shallow=True)
        self._add_columns(batch, before)
        agent_id, module_id = episode.get_agents()[0], episode.policy_for()
        arguments: dict[str, Any] = {
            "env_runner": runner,
            "metrics_logger": runner.metrics,
            "episode": episode,
            "agent_id": agent_id,
            "policy_id": module_id,
            "policies": {module_id: module},
            "postprocessed_batch": batch,
            "original_batches": {agent_id: (module_id, module, original)},
        }
        self._emit(**arguments)
        try:
            rewrite = rewrite_of(batch, before=before)
            return None if rewrite is None else rewrite.decoded(self._codes)
        except EpisodeError as error:
            raise runner.callbacks.blame(EVENT, arguments, error) from error

    def _add_columns(self, batch: SampleBatch, before: SampleBatch) -> None:
        """Adds the algorithm's columns to the batch, and sealed copies of them to `before`."""
        postprocessing = self._runner.spec.postprocessing
        if postprocessing is None:
            return
        obs = all_observations(batch)
        obs = self._encoder.encode(obs if self._codes is None else self._codes.decode(obs))
        # Advantages follow from what the learner will make of the rewards; callbacks see those of
        # the env, for they may rewrite them.
        paid = batch[REWARDS]
        batch[REWARDS] = self._normalization.rewards_to_learn(paid)
        postprocessing.add_columns(batch, module=self._runner.module, obs=obs)
        batch[REWARDS] = paid
        for name in [name for name in batch if name not in before]:
            before[name] = read_only(batch[name].copy())

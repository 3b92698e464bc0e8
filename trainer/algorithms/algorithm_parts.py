"""What an algorithm is made of: the attributes that its parts in several files share."""

from __future__ import annotations

from typing import Any

from callbacks import CallbackChain
from trainer.algorithms.counters import Counters
from trainer.algorithms.inference import Inference
from trainer.algorithms.run_clock import RunClock
from trainer.algorithms.sample_exploration import SampleExploration
from trainer.config import AlgorithmConfig
from trainer.connectors import Normalization, NormalizationStatistics
from trainer.env_runners import EnvRunnerGroup, TrajectoryPostprocessing, Weights
from trainer.evaluation import Evaluator
from trainer.learners import Learner
from trainer.metrics import EpisodeStatistics, MetricsLogger
from trainer.modules import RLModuleSpec
from trainer.types import State


class AlgorithmParts:
    """The attributes of an algorithm.

    Attributes:
        config: the settings: validated, frozen, and the algorithm's own.
        root_seed: what all randomness is derived from: `config.seed`, or drawn once if that is
            None.
        callbacks: the callback objects of the main process.
        metrics: the logger of the main process; what is logged here appears at the top of results.
        counters: what was sampled and trained so far.
        env_runner_group: the training runners.
        module_spec: the network, with the spaces of the env.
        learner: makes updates.
        episode_statistics: of the finished training episodes.
        sample_exploration: the exploration strategy of the main process.
        normalization_statistics: what normalisation follows from: of all that was sampled.
    """

    config: AlgorithmConfig
    root_seed: int
    callbacks: CallbackChain
    metrics: MetricsLogger
    counters: Counters
    env_runner_group: EnvRunnerGroup
    module_spec: RLModuleSpec
    learner: Learner
    episode_statistics: EpisodeStatistics
    sample_exploration: SampleExploration
    normalization_statistics: NormalizationStatistics
    _clock: RunClock
    _inference: Inference
    _evaluator: Evaluator | None
    _evaluator_state: State
    _last_evaluation: dict[str, Any]
    _evaluation_reported_at: int | None

    @property
    def eval_env_runner_group(self) -> EnvRunnerGroup | None:
        """The evaluation runners; None until evaluation is configured or used."""
        raise NotImplementedError

    def adopt_root_seed(self, root_seed: int) -> None:
        """Derives all randomness to come from another seed."""
        raise NotImplementedError

    def _refuse_if_stopped(self, what: str) -> None:
        """Raises an AlgorithmStoppedError after `stop()`; `what` is the method that was called."""
        raise NotImplementedError

    def get_evaluation_state(self) -> State:
        """Where evaluation stands: plain data."""
        raise NotImplementedError

    def check_evaluation_state(self, state: State) -> None:
        """Raises a CheckpointMismatchError unless `set_evaluation_state` will take it."""
        raise NotImplementedError

    def set_evaluation_state(self, state: State) -> None:
        """Goes on where `get_evaluation_state` was called."""
        raise NotImplementedError

    def make_postprocessing(self) -> TrajectoryPostprocessing | None:
        """What trajectories get before `on_postprocess_trajectory` shows them; None for nothing."""
        return None

    def _postprocessing_to_show(self) -> TrajectoryPostprocessing | None:
        """The same, if there is somebody to show it to."""
        is_wanted = self.callbacks.listens_to("on_postprocess_trajectory")
        return self.make_postprocessing() if is_wanted else None

    def _weights(self) -> Weights:
        """The newest weights, as runners take them: only what they act with, if that will do."""
        acts_only = self.env_runner_group.module_spec.inference_only
        state = self.learner.module.get_state(inference_only=acts_only)
        return Weights(
            self.learner.num_updates,
            state,
            exploration=self.sample_exploration.strategy.runner_state(),
            timestep=self.counters.num_env_steps_sampled,
            connectors=self.env_runner_group.connector_state(),
        )

    def _send_weights(self) -> None:
        """Gives the training runners the newest weights."""
        self.env_runner_group.set_weights(self._weights())

    def _send_weights_if_others_set_them(self) -> None:
        """For weights that were given to the learner or the module, which tell nobody."""
        newest = self._weights()
        if not self.env_runner_group.has_weights(newest):
            self.env_runner_group.set_weights(newest)

    @property
    def normalization(self) -> Normalization:
        """What is done to observations and rewards now; `normalization.observations(rows)` does it.

        It changes when a training step is over, never within one: runners and learner use the same.
        """
        return self.learner.normalization

    def apply_normalization(self) -> None:
        """Brings into force what follows from the statistics as they are now."""
        if not self.normalization_statistics.has_effect:
            return
        normalization = self.normalization_statistics.current()
        self.learner.normalize_with(normalization)
        self.env_runner_group.set_normalization(normalization)
        self._inference.normalize_with(normalization)

    def _tell_recreated(self, indices: list[int], *, is_evaluation: bool) -> None:
        """Fires the events that runners were replaced."""
        group = self._evaluator.group if is_evaluation and self._evaluator else None
        arguments = {"algorithm": self, "is_evaluation": is_evaluation}
        self.callbacks.fire(
            "on_env_runners_recreated",
            env_runner_group=group or self.env_runner_group,
            env_runner_indices=indices,
            **arguments,
        )
        self.callbacks.fire(
            "on_workers_recreated",
            worker_set=group or self.env_runner_group,
            worker_ids=indices,
            **arguments,
        )

"""The events of an algorithm as documented no-op methods: the first half of `RLlibCallback`.

All of them run in the main process. When each fires and when not is in `callbacks.events` as well;
nothing here fires anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from callbacks.no_op import no_op
from callbacks.views import (
    AlgorithmView,
    EnvRunnerGroupView,
    MetricsLoggerView,
    RLModuleView,
    SampleBatchView,
)


class AlgorithmEvents:
    """One no-op per event of an algorithm; users inherit it through `RLlibCallback`."""

    @no_op
    def on_algorithm_init(
        self, *, algorithm: AlgorithmView, metrics_logger: MetricsLoggerView, **kwargs: Any
    ) -> None:
        """Runs once in the main process, when an algorithm and its env runners are complete.

        Args:
            algorithm: The new algorithm.
            metrics_logger: Its logger; values appear at the top of the first result.
            **kwargs: For arguments of later versions.
        """

    @no_op
    def on_train_result(
        self,
        *,
        algorithm: AlgorithmView,
        metrics_logger: MetricsLoggerView,
        result: dict[str, Any],
        **kwargs: Any,
    ) -> None:
        """Runs in the main process at the end of every `train()`, before loggers write.

        Args:
            algorithm: The algorithm; `algorithm.training_iteration` counts this iteration already.
            metrics_logger: Its logger; values logged here appear in this same result.
            result: What `train()` will return; changes are returned and logged, not kept for the
                next one.
            **kwargs: For arguments of later versions.
        """

    @no_op
    def on_evaluate_start(
        self, *, algorithm: AlgorithmView, metrics_logger: MetricsLoggerView, **kwargs: Any
    ) -> None:
        """Runs in the main process before every evaluation; its runners already hold the weights.

        Args:
            algorithm: The algorithm; training may be running beside a parallel evaluation.
            metrics_logger: Its logger.
            **kwargs: For arguments of later versions.
        """

    @no_op
    def on_evaluate_end(
        self,
        *,
        algorithm: AlgorithmView,
        metrics_logger: MetricsLoggerView,
        evaluation_metrics: dict[str, Any],
        **kwargs: Any,
    ) -> None:
        """Runs in the main process after every evaluation that did not raise.

        Args:
            algorithm: The algorithm.
            metrics_logger: Its logger.
            evaluation_metrics: What `evaluate()` will return, with `env_runners` inside; may be
                changed.
            **kwargs: For arguments of later versions.
        """

    @no_op
    def on_env_runners_recreated(
        self,
        *,
        algorithm: AlgorithmView,
        env_runner_group: EnvRunnerGroupView,
        env_runner_indices: Sequence[int],
        is_evaluation: bool,
        **kwargs: Any,
    ) -> None:
        """Runs in the main process after lost env runners were replaced.

        Weights, task, callback state and positions are restored already; do here what only you know
        of, with `env_runner_group.foreach_env_runner(func, remote_worker_ids=env_runner_indices,
        local_env_runner=False)`.

        Args:
            algorithm: The algorithm.
            env_runner_group: The group the runners belong to.
            env_runner_indices: The indices of the runners that were replaced.
            is_evaluation: Whether it is the group for evaluation.
            **kwargs: For arguments of later versions.
        """

    @no_op
    def on_workers_recreated(
        self,
        *,
        algorithm: AlgorithmView,
        worker_set: EnvRunnerGroupView,
        worker_ids: Sequence[int],
        is_evaluation: bool,
        **kwargs: Any,
    ) -> None:
        """Runs in the main process directly after `on_env_runners_recreated`, its new name.

        Args:
            algorithm: The algorithm.
            worker_set: The group the runners belong to.
            worker_ids: The indices of the runners that were replaced.
            is_evaluation: Whether it is the group for evaluation.
            **kwargs: For arguments of later versions.
        """

    @no_op
    def on_checkpoint_loaded(
        self, *, algorithm: AlgorithmView, metrics_logger: MetricsLoggerView, **kwargs: Any
    ) -> None:
        """Runs in the main process after a checkpoint was loaded, by whichever method.

        Args:
            algorithm: The algorithm; it, its runners and the callback objects hold the loaded
                state.
            metrics_logger: Its logger.
            **kwargs: For arguments of later versions.
        """

    @no_op
    def on_checkpoint_saved(
        self,
        *,
        algorithm: AlgorithmView,
        metrics_logger: MetricsLoggerView,
        path: str | Path,
        **kwargs: Any,
    ) -> None:
        """Runs in the main process after a checkpoint was written completely.

        With `save_to_path(background=True)`, that is when the algorithm next looks: at the
        beginning of `train()`, or before anything else is saved, restored or stopped.

        Args:
            algorithm: The algorithm.
            metrics_logger: Its logger; what is logged here is not part of the checkpoint just
                written.
            path: The directory of the checkpoint.
            **kwargs: For arguments of later versions.
        """

    @no_op
    def on_learn_on_batch(
        self,
        *,
        policy: RLModuleView,
        train_batch: SampleBatchView,
        result: dict[str, Any],
        **kwargs: Any,
    ) -> None:
        """Runs in the main process per module and update, before it learns from its train batch.

        Args:
            policy: The module that will learn, with the weights that acted.
            train_batch: {column: array, [B, ...]}; what is changed in it is what the loss sees.
                Advantages are standardised already. Rewards, ends and ids are read-only.
            result: An empty dict; what is put in appears in the result, under
                `learners/{module id}/custom_metrics`.
            **kwargs: For arguments of later versions.
        """

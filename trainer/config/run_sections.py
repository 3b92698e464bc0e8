"""Settings of what happens around training: failures, reports, checkpoints, debugging."""

# Section methods only declare; the decorator `section` reads their arguments.
# ruff: noqa: ARG002

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from trainer.config.checks import (
    boolean,
    function,
    integer,
    mapping,
    number,
    one_of,
    optional,
    text,
)
from trainer.config.config_values import ConfigValues, section
from trainer.config.setting import Merge, NotProvided, Setting

ConfigT = TypeVar("ConfigT", bound="RunSections")

_LOG_LEVELS = ("DEBUG", "INFO", "WARN", "WARNING", "ERROR", "CRITICAL")


class RunSections(ConfigValues):
    """`fault_tolerance()`, `reporting()`, `checkpointing()` and `debugging()`."""

    restart_failed_env_runners = Setting(True, boolean())
    ignore_env_runner_failures = Setting(False, boolean())
    max_num_env_runner_restarts = Setting(1000, integer(0))
    delay_between_env_runner_restarts_s = Setting[float](0.0, number(0), unit="s")
    restart_failed_sub_environments = Setting(False, boolean())
    num_consecutive_env_runner_failures_tolerance = Setting(100, integer(0))
    env_runner_health_probe_timeout_s = Setting[float](30.0, number(above=0), unit="s")
    env_runner_restore_timeout_s = Setting[float](1800.0, number(above=0), unit="s")
    crash_dir = Setting[str | None](None, optional(text()))

    keep_per_episode_custom_metrics = Setting(False, boolean())
    metrics_episode_collection_timeout_s = Setting[float](60.0, number(0), unit="s")
    metrics_num_episodes_for_smoothing = Setting[int | None](
        100, optional(integer(1)), unit="episodes"
    )
    min_time_s_per_iteration = Setting[float | None](None, optional(number(0)), unit="s")
    min_train_timesteps_per_iteration = Setting[int | None](
        0, optional(integer(0)), unit="env steps"
    )
    min_sample_timesteps_per_iteration = Setting[int | None](
        0, optional(integer(0)), unit="env steps"
    )
    log_gradients = Setting(True, boolean())

    export_native_model_files = Setting(False, boolean())
    checkpoint_trainable_policies_only = Setting(False, boolean())

    logger_creator = Setting[Callable[..., Any] | None](None, optional(function()))
    logger_config = Setting[dict[str, Any] | None](None, optional(mapping()), merge=Merge.DEEP)
    log_level = Setting("WARN", one_of(*_LOG_LEVELS))
    log_sys_usage = Setting(True, boolean())
    fake_sampler = Setting(False, boolean())
    seed = Setting[int | None](None, optional(integer(0)))

    @section
    def fault_tolerance(
        self: ConfigT,
        *,
        restart_failed_env_runners: bool = NotProvided,
        ignore_env_runner_failures: bool = NotProvided,
        max_num_env_runner_restarts: int = NotProvided,
        delay_between_env_runner_restarts_s: float = NotProvided,
        restart_failed_sub_environments: bool = NotProvided,
        num_consecutive_env_runner_failures_tolerance: int = NotProvided,
        env_runner_health_probe_timeout_s: float = NotProvided,
        env_runner_restore_timeout_s: float = NotProvided,
        crash_dir: str | None = NotProvided,
        **old_names: Any,
    ) -> ConfigT:
        """Say what happens when an env runner fails.

        Args:
            restart_failed_env_runners: replace a failed runner, put it back to where it was, and
                ask again.
            ignore_env_runner_failures: go on without a failed runner that is not replaced.
            max_num_env_runner_restarts: replacements of one runner, after which its failure is
                final.
            delay_between_env_runner_restarts_s: wait before a replacement; grows from the second
                failure without progress on.
            restart_failed_sub_environments: if `reset` or `step` of a single env raises, replace
                that env alone; its runner only if that does not help.
            num_consecutive_env_runner_failures_tolerance: failures of one runner without progress
                that are tolerated in a row, and in excess of its answers (those that are not kills
                from outside: this or 8); failures in a row of a single env: this or 10.
            env_runner_health_probe_timeout_s: how long a lost runner may take to answer a probe.
            env_runner_restore_timeout_s: how long a runner may take to be made and put to where
                it stood, without an env step in that time.
            crash_dir: directory for files from which requests that failed can be played again
                (`local-trainer replay-episode`); None keeps none.
            **old_names: old names of these settings, such as `recreate_failed_workers`.

        Raises:
            UnknownSettingError: an argument does not exist.
        """
        return self

    @section
    def reporting(
        self: ConfigT,
        *,
        keep_per_episode_custom_metrics: bool = NotProvided,
        metrics_episode_collection_timeout_s: float = NotProvided,
        metrics_num_episodes_for_smoothing: int | None = NotProvided,
        min_time_s_per_iteration: float | None = NotProvided,
        min_train_timesteps_per_iteration: int | None = NotProvided,
        min_sample_timesteps_per_iteration: int | None = NotProvided,
        log_gradients: bool = NotProvided,
        **old_names: Any,
    ) -> ConfigT:
        """Say what a result holds and how long an iteration lasts.

        Args:
            keep_per_episode_custom_metrics: report lists of custom metrics instead of their mean.
            metrics_episode_collection_timeout_s: how long to wait for episode metrics of runners.
            metrics_num_episodes_for_smoothing: episode means are over the last so many episodes of
                all runners; None means all episodes since the last result, as in evaluation.
            min_time_s_per_iteration: an iteration repeats its training step until it has lasted as
                long; None: once.
            min_train_timesteps_per_iteration: ... until it has trained on as many env steps.
            min_sample_timesteps_per_iteration: ... until it has sampled as many env steps.
            log_gradients: report norms of gradients.
            **old_names: old names of these settings.

        Raises:
            UnknownSettingError: an argument does not exist.
        """
        return self

    @section
    def checkpointing(
        self: ConfigT,
        export_native_model_files: bool = NotProvided,
        checkpoint_trainable_policies_only: bool = NotProvided,
    ) -> ConfigT:
        """Say what checkpoints hold.

        Args:
            export_native_model_files: write the module in the format of its framework as well.
            checkpoint_trainable_policies_only: leave out modules that are not trained.

        Raises:
            UnknownSettingError: an argument does not exist.
        """
        return self

    @section
    def debugging(
        self: ConfigT,
        *,
        logger_creator: Callable[..., Any] | None = NotProvided,
        logger_config: dict[str, Any] | None = NotProvided,
        log_level: str = NotProvided,
        log_sys_usage: bool = NotProvided,
        fake_sampler: bool = NotProvided,
        seed: int | None = NotProvided,
        **old_names: Any,
    ) -> ConfigT:
        """Say what makes a run repeatable and visible.

        Args:
            logger_creator: makes a logger of results.
            logger_config: arguments of that logger.
            log_level: the level of log messages.
            log_sys_usage: report CPU and memory use.
            fake_sampler: sample without envs.
            seed: the root seed; the same seed and settings give the same run. None draws one, which
                is reported.
            **old_names: old names of these settings.

        Raises:
            UnknownSettingError: an argument does not exist.
        """
        return self

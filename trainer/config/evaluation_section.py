"""Settings of evaluation."""

# Section methods only declare; the decorator `section` reads their arguments.
# ruff: noqa: ARG002

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from trainer.config.checks import (
    boolean,
    either,
    function,
    integer,
    mapping,
    number,
    one_of,
    optional,
)
from trainer.config.config_values import ConfigValues, section
from trainer.config.setting import Merge, NotProvided, Setting

ConfigT = TypeVar("ConfigT", bound="EvaluationSection")


def _given_settings(value: Any) -> Any:
    """Of a config, the settings that were set in it: what it leaves open is as in training."""
    return value.given_settings() if isinstance(value, ConfigValues) else value


class EvaluationSection(ConfigValues):
    """`evaluation()`: when the weights are evaluated, on how much, by whom."""

    evaluation_interval = Setting[int | None](None, optional(integer(0)), unit="iterations")
    evaluation_duration = Setting[int | str](10, either(integer(1), one_of("auto")))
    evaluation_duration_unit = Setting("episodes", one_of("episodes", "timesteps"))
    evaluation_auto_duration_min_env_steps_per_sample = Setting(100, integer(1), unit="env steps")
    evaluation_auto_duration_max_env_steps_per_sample = Setting(2000, integer(1), unit="env steps")
    evaluation_sample_timeout_s = Setting[float | None](120.0, optional(number(above=0)), unit="s")
    evaluation_parallel_to_training = Setting(False, boolean())
    evaluation_force_reset_envs_before_iteration = Setting(True, boolean())
    evaluation_config = Setting[Any](
        None,
        optional(mapping()),
        merge=Merge.DEEP,
        normalize=_given_settings,
        holds_settings=True,
    )
    evaluation_num_env_runners = Setting(0, integer(0))
    evaluation_seed = Setting[int | None](None, optional(integer(0)))
    custom_evaluation_function = Setting[Callable[..., Any] | None](None, optional(function()))
    off_policy_estimation_methods = Setting[dict[str, Any]]({}, mapping())
    ope_split_batch_by_episode = Setting(True, boolean())
    always_attach_evaluation_results = Setting(True, boolean())
    enable_async_evaluation = Setting(False, boolean())

    @section
    def evaluation(
        self: ConfigT,
        *,
        evaluation_interval: int | None = NotProvided,
        evaluation_duration: int | str = NotProvided,
        evaluation_duration_unit: str = NotProvided,
        evaluation_auto_duration_min_env_steps_per_sample: int = NotProvided,
        evaluation_auto_duration_max_env_steps_per_sample: int = NotProvided,
        evaluation_sample_timeout_s: float | None = NotProvided,
        evaluation_parallel_to_training: bool = NotProvided,
        evaluation_force_reset_envs_before_iteration: bool = NotProvided,
        evaluation_config: Any = NotProvided,
        evaluation_num_env_runners: int = NotProvided,
        evaluation_seed: int | None = NotProvided,
        custom_evaluation_function: Callable[..., Any] | None = NotProvided,
        off_policy_estimation_methods: dict[str, Any] = NotProvided,
        ope_split_batch_by_episode: bool = NotProvided,
        always_attach_evaluation_results: bool = NotProvided,
        enable_async_evaluation: bool = NotProvided,
        **old_names: Any,
    ) -> ConfigT:
        """Say when and how the weights are evaluated.

        Args:
            evaluation_interval: evaluate after every so many iterations; None and 0 do not
                evaluate.
            evaluation_duration: how many episodes or env steps; "auto" lasts as long as the
                training step.
            evaluation_duration_unit: "episodes" or "timesteps". Episodes are played exactly; env
                steps are rounded up to a multiple of the evaluation runners.
            evaluation_auto_duration_min_env_steps_per_sample: with duration "auto" a runner plays
                in chunks; the least env steps of one.
            evaluation_auto_duration_max_env_steps_per_sample: the most env steps of one.
            evaluation_sample_timeout_s: a runner that makes no env step for so long is replaced;
                and one in which no episode ends for so long ends its part of the evaluation with
                the episodes that have ended (NaN if none has). None waits.
            evaluation_parallel_to_training: evaluate the previous weights while the training step
                runs; needs evaluation runners that are processes.
            evaluation_force_reset_envs_before_iteration: start every evaluation with fresh
                episodes.
            evaluation_config: settings that differ in evaluation, e.g. `{"explore": False}`, or a
                config whose given settings are taken. Merged into what is there; None removes all.
            evaluation_num_env_runners: processes that evaluate; 0 evaluates in the main process.
            evaluation_seed: the root seed of evaluation episodes; None derives them from `seed`.
            custom_evaluation_function: called as `fn(algorithm, eval_env_runner_group)` instead of
                playing episodes; gives a dict of metrics, or (dict, env steps, agent steps).
            off_policy_estimation_methods: estimators on recorded data.
            ope_split_batch_by_episode: how those estimators cut their data.
            always_attach_evaluation_results: keep the last evaluation in every later result; False
                shows it only in the result of its own iteration.
            enable_async_evaluation: training waits for no evaluation; its result comes with the
                iteration in which it is over, and runners take over the work of those that hang.
            **old_names: old names of these settings, such as `evaluation_num_workers`.

        Raises:
            UnknownSettingError: an argument, or a key of `evaluation_config`, does not exist.
        """
        return self

"""Settings of sampling: how many env runners, how much each samples, how it explores."""

# Section methods only declare; the decorator `section` reads their arguments.
# ruff: noqa: ARG002

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    text,
)
from trainer.config.config_values import ConfigValues, section
from trainer.config.setting import Merge, NotProvided, Setting
from trainer.rllib_names.config_names import OLD_FILTERS

ConfigT = TypeVar("ConfigT", bound="EnvRunnersSection")

_Connector = Callable[..., Any] | None


def _vectorize_mode(value: Any) -> Any:
    """Accept gymnasium's `VectorizeMode` and lower case as well."""
    name = getattr(value, "value", value)
    return name.upper() if isinstance(name, str) else value


def _filter_of_today(value: Any) -> Any:
    """Accept older names of filters."""
    return OLD_FILTERS.get(value, value) if isinstance(value, str) else value


def _exploration_config(value: Any) -> Any:
    """Accept the type alone, and None for the algorithm's own strategy."""
    if isinstance(value, Mapping):
        return value
    return {} if value is None else {"type": value}


class EnvRunnersSection(ConfigValues):
    """`env_runners()` and its old part `exploration()`."""

    num_env_runners = Setting(0, integer(0))
    create_local_env_runner = Setting(True, boolean())
    create_env_on_local_worker = Setting(False, boolean())
    num_envs_per_env_runner = Setting(1, integer(1))
    gym_env_vectorize_mode = Setting("SYNC", one_of("SYNC", "ASYNC"), normalize=_vectorize_mode)
    num_cpus_per_env_runner = Setting[float](1, number(0))
    num_gpus_per_env_runner = Setting[float](0, number(0))
    custom_resources_per_env_runner = Setting[dict[str, float]]({}, mapping(number(0)))
    validate_env_runners_after_construction = Setting(True, boolean())
    sample_timeout_s = Setting[float | None](60.0, optional(number(above=0)), unit="s")
    max_requests_in_flight_per_env_runner = Setting(1, integer(1))
    env_to_module_connector = Setting[_Connector](None, optional(function()))
    module_to_env_connector = Setting[_Connector](None, optional(function()))
    add_default_connectors_to_env_to_module_pipeline = Setting(True, boolean())
    add_default_connectors_to_module_to_env_pipeline = Setting(True, boolean())
    episode_lookback_horizon = Setting(1, integer(0), unit="env steps")
    merge_env_runner_states = Setting[bool | str](
        "training_only", one_of(True, False, "training_only")
    )
    broadcast_env_runner_states = Setting(True, boolean())
    compress_observations = Setting(False, boolean())
    rollout_fragment_length = Setting[int | str](
        200, either(integer(1), one_of("auto")), unit="env steps"
    )
    batch_mode = Setting("truncate_episodes", one_of("truncate_episodes", "complete_episodes"))
    explore = Setting(True, boolean())
    episodes_to_numpy = Setting(True, boolean())
    exploration_config = Setting[Any](
        {}, mapping(), merge=Merge.BY_TYPE, normalize=_exploration_config
    )
    remote_worker_envs = Setting(False, boolean())
    remote_env_batch_wait_ms = Setting[float](0, number(0), unit="ms")
    preprocessor_pref = Setting[str | None]("deepmind", one_of("deepmind", "rllib", None))
    observation_filter = Setting("NoFilter", text(), normalize=_filter_of_today)
    use_worker_filter_stats = Setting(True, boolean())
    update_worker_filter_stats = Setting(True, boolean())
    sample_async = Setting(False, boolean())
    enable_connectors = Setting(True, boolean())

    @section
    def env_runners(
        self: ConfigT,
        *,
        num_env_runners: int = NotProvided,
        create_local_env_runner: bool = NotProvided,
        create_env_on_local_worker: bool = NotProvided,
        num_envs_per_env_runner: int = NotProvided,
        gym_env_vectorize_mode: Any = NotProvided,
        num_cpus_per_env_runner: float = NotProvided,
        num_gpus_per_env_runner: float = NotProvided,
        custom_resources_per_env_runner: dict[str, float] = NotProvided,
        validate_env_runners_after_construction: bool = NotProvided,
        sample_timeout_s: float | None = NotProvided,
        max_requests_in_flight_per_env_runner: int = NotProvided,
        env_to_module_connector: _Connector = NotProvided,
        module_to_env_connector: _Connector = NotProvided,
        add_default_connectors_to_env_to_module_pipeline: bool = NotProvided,
        add_default_connectors_to_module_to_env_pipeline: bool = NotProvided,
        episode_lookback_horizon: int = NotProvided,
        merge_env_runner_states: bool | str = NotProvided,
        broadcast_env_runner_states: bool = NotProvided,
        compress_observations: bool = NotProvided,
        rollout_fragment_length: int | str = NotProvided,
        batch_mode: str = NotProvided,
        explore: bool = NotProvided,
        episodes_to_numpy: bool = NotProvided,
        exploration_config: Any = NotProvided,
        remote_worker_envs: bool = NotProvided,
        remote_env_batch_wait_ms: float = NotProvided,
        preprocessor_pref: str | None = NotProvided,
        observation_filter: str = NotProvided,
        use_worker_filter_stats: bool = NotProvided,
        update_worker_filter_stats: bool = NotProvided,
        sample_async: bool = NotProvided,
        enable_connectors: bool = NotProvided,
        **old_names: Any,
    ) -> ConfigT:
        """Say how experience is sampled.

        Args:
            num_env_runners: processes that sample; 0 samples in the main process.
            create_local_env_runner: whether the main process has an env runner as well.
            create_env_on_local_worker: whether that runner has an env although other processes
                sample.
            num_envs_per_env_runner: envs that each runner steps together.
            gym_env_vectorize_mode: "SYNC" steps the envs of a runner one after the other, "ASYNC"
                in processes.
            num_cpus_per_env_runner: CPUs to reserve for each runner.
            num_gpus_per_env_runner: GPUs to reserve for each runner.
            custom_resources_per_env_runner: other resources to reserve for each runner.
            validate_env_runners_after_construction: make sure that every runner has started.
            sample_timeout_s: the longest time a runner may go without an env step or reset before
                it is replaced; None waits.
            max_requests_in_flight_per_env_runner: requests a runner may have waiting.
            env_to_module_connector: makes connector pieces between env and module.
            module_to_env_connector: makes connector pieces between module and env.
            add_default_connectors_to_env_to_module_pipeline: keep the default pieces before the
                module.
            add_default_connectors_to_module_to_env_pipeline: keep the default pieces behind the
                module.
            episode_lookback_horizon: steps of the past kept when a running episode is cut.
            merge_env_runner_states: merge the states of connectors over runners: True, False or
                "training_only".
            broadcast_env_runner_states: send the merged states back to the runners.
            compress_observations: compress observations on their way between processes.
            rollout_fragment_length: env steps each env owes per sample; "auto" divides the train
                batch.
            batch_mode: "truncate_episodes" cuts running episodes at the end of a sample,
                "complete_episodes" plays them to their end.
            explore: main switch of exploration; False takes the most likely action.
            episodes_to_numpy: whether returned episodes hold arrays instead of lists.
            exploration_config: the strategy that chooses actions: `{"type": ..., arguments}`, where
                `type` is a name (see docs/exploration.md), a dotted path, a class, a callable or a
                strategy; merged into what is there unless the type changes.
            remote_worker_envs: run every env in a process of its own.
            remote_env_batch_wait_ms: how long to wait for such envs.
            preprocessor_pref: which preprocessor old Atari envs get.
            observation_filter: "MeanStdFilter" brings observations to mean 0 and standard deviation
                1 by running statistics over all runners; "NoFilter" does not.
            use_worker_filter_stats: whether runners' filter statistics reach the main process.
            update_worker_filter_stats: whether filter statistics are sent to the runners.
            sample_async: sample in a thread.
            enable_connectors: use connectors.
            **old_names: old names of these settings, such as `num_rollout_workers`.

        Raises:
            UnknownSettingError: an argument does not exist.
        """
        return self

    @section
    def exploration(
        self: ConfigT,
        *,
        explore: bool = NotProvided,
        exploration_config: Any = NotProvided,
    ) -> ConfigT:
        """Old name of two arguments of `env_runners()`.

        Args:
            explore: see `env_runners()`.
            exploration_config: see `env_runners()`.

        Raises:
            UnknownSettingError: an argument does not exist.
        """
        return self

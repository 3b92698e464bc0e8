"""The sections of a config: every setting is declared here, beside the method that takes it."""

from __future__ import annotations

import dataclasses
import inspect
import logging
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from callbacks.events import EVENTS
from callbacks.spec import CallbackSpec
from trainer.config.config_values import ConfigValues
from trainer.config.section_methods import section
from trainer.config.settings import (
    Merge,
    NotProvided,
    Setting,
    Translation,
    assignment,
    schedule,
    space,
)
from trainer.modules import MultiRLModuleSpec, RLModuleSpec, plain_names
from trainer.old_names import OLD_NAMES
from trainer.runtime.engine import ENGINES, Engine
from trainer.types import DEFAULT_MODULE_ID
from trainer_toolkit.arguments import (
    Check,
    anything,
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

_LOGGER: Final = logging.getLogger(__name__)

# ---- environment section

# Section methods only declare; the decorator `section` reads their arguments.
# ruff: noqa: ARG002

SectionT = TypeVar("SectionT", bound=ConfigValues)

_ENV = Check(
    "an env's name, its class, or a function that makes one: an env that is made already cannot be "
    "played by several sub-envs",
    either(text(), function()).accepts,
)


class EnvironmentSection(ConfigValues):
    """`environment()`: which env is played, and how rewards and actions pass its border."""

    env = Setting[Any](None, optional(_ENV))
    env_config = Setting[dict[Any, Any]]({}, mapping(), merge=Merge.DEEP)
    observation_space = Setting[Any](None, optional(space()))
    action_space = Setting[Any](None, optional(space()))
    render_env = Setting(False, boolean())
    max_empty_steps = Setting(1000, integer(1), unit="env steps")
    clip_rewards = Setting[float | bool | None](None, optional(either(boolean(), number(above=0))))
    normalize_rewards = Setting(False, boolean())
    normalize_actions = Setting(True, boolean())
    clip_actions = Setting(False, boolean())
    disable_env_checking = Setting(False, boolean())
    is_atari = Setting[bool | None](None, optional(boolean()))
    action_mask_key = Setting("action_mask", text())
    env_task_fn = Setting[Callable[..., Any] | None](None, optional(function()))
    auto_wrap_old_gym_envs = Setting(True, boolean())

    @section
    def environment(
        self: SectionT,
        env: Any = NotProvided,
        *,
        env_config: dict[Any, Any] = NotProvided,
        observation_space: Any = NotProvided,
        action_space: Any = NotProvided,
        render_env: bool = NotProvided,
        clip_rewards: float | bool | None = NotProvided,
        normalize_rewards: bool = NotProvided,
        normalize_actions: bool = NotProvided,
        clip_actions: bool = NotProvided,
        disable_env_checking: bool = NotProvided,
        is_atari: bool | None = NotProvided,
        action_mask_key: str = NotProvided,
        env_task_fn: Callable[..., Any] | None = NotProvided,
        auto_wrap_old_gym_envs: bool = NotProvided,
        max_empty_steps: int = NotProvided,
        **old_names: Any,
    ) -> SectionT:
        """Say which environment is played.

        Args:
            env: a registered name, a gymnasium id, a dotted path to a class, a class or a function;
                the last two are called with one `EnvContext`.
            env_config: what the env finds in its `EnvContext`. Merged into what is already there,
                on every level.
            observation_space: overrides the env's observation space.
            action_space: overrides the env's action space.
            render_env: call `render()` while sampling.
            clip_rewards: learn from the sign of rewards (True), or from rewards clipped to ±c (a
                number c); False and None leave them. Reported returns are the env's own.
            normalize_rewards: learn from rewards divided by the running standard deviation of the
                discounted return, and clipped to ±10. Reported returns are the env's own.
            normalize_actions: the module acts in [-1, 1]; actions are scaled to the bounds of a Box
                before `step`.
            clip_actions: actions are clipped to the bounds of a Box before `step`.
            disable_env_checking: do not check the env against the gymnasium contract when it is
                made.
            is_atari: whether the env is an Atari game.
            action_mask_key: the key of the action mask in a dict observation.
            env_task_fn: the curriculum, called as `fn(train_results, env, env_context)` after each
                iteration, beside each training env; gives the env's next task.
            auto_wrap_old_gym_envs: wrap envs written for gym before 0.26.
            max_empty_steps: with several agents: an env that observes no agent for more env steps
                in a row is taken for broken.
            **old_names: old names of these settings.
        """
        return self


# ---- env runners section
_Connector = Callable[..., Any] | None


def _vectorize_mode(value: Any) -> Any:
    """Accept gymnasium's `VectorizeMode` and lower case as well."""
    name = getattr(value, "value", value)
    return name.upper() if isinstance(name, str) else value


def _filter_of_today(value: Any) -> Any:
    """Accept older names of filters."""
    return OLD_NAMES.filters.get(value, value) if isinstance(value, str) else value


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
    gym_env_vectorize_mode = Setting(
        "SYNC", one_of("SYNC", "ASYNC", "VECTOR_ENTRY_POINT"), normalize=_vectorize_mode
    )
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
        self: SectionT,
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
    ) -> SectionT:
        """Say how experience is sampled.

        Args:
            num_env_runners: processes that sample; 0 samples in the main process.
            create_local_env_runner: whether the main process has an env runner as well.
            create_env_on_local_worker: whether that runner has an env although other processes
                sample.
            num_envs_per_env_runner: envs that each runner steps together.
            gym_env_vectorize_mode: "SYNC" steps the envs of a runner one after the other, "ASYNC"
                in processes; "VECTOR_ENTRY_POINT" steps a vector env of gymnasium's or of a
                creator's in one call ([envs](envs.md#vector-envs)).
            num_cpus_per_env_runner: CPUs to reserve for each runner in a cluster (engine="ray").
            num_gpus_per_env_runner: GPUs to reserve for each runner.
            custom_resources_per_env_runner: other resources to reserve for each runner there.
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
        """
        return self

    @section
    def exploration(
        self: SectionT,
        *,
        explore: bool = NotProvided,
        exploration_config: Any = NotProvided,
    ) -> SectionT:
        """Old name of two arguments of `env_runners()`.

        Args:
            explore: see `env_runners()`.
            exploration_config: see `env_runners()`.
        """
        return self


# ---- callbacks section
#
# Settings of callbacks: classes, and functions per event. The events themselves, with their
# arguments and when they fire, are listed in `callbacks.events`; the two lists are compared by a
# test. What was configured is judged by `callbacks.spec.CallbackSpec`.
Listener = Callable[..., Any] | list[Callable[..., Any]] | None
"""One function, several in the order they are called, or none."""

# Judged by CallbackSpec, which knows the arguments of each event.
_LISTENER = anything("None, a callable or a list of callables")


_MethodT = TypeVar("_MethodT", bound=Callable[..., Any])


def _with_events(method: _MethodT) -> _MethodT:
    """Gives `callbacks()` an argument per event: its signature and docstring name all of them."""
    signature = inspect.signature(method)
    *first, others = signature.parameters.values()
    events = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=NotProvided, annotation="Listener"
        )
        for name in EVENTS
    ]
    changed: Any = method
    changed.__signature__ = signature.replace(parameters=[*first, *events, others])
    entries = [f"{name}: functions called {event.fired}." for name, event in EVENTS.items()]
    text = inspect.cleandoc(method.__doc__ or "")  # as Python 3.13 and later compile it
    others_entry = " " * 4 + "**old_names:"
    lines = [
        textwrap.fill(entry, 92, initial_indent=" " * 4, subsequent_indent=" " * 8)
        for entry in entries
    ]
    changed.__doc__ = text.replace(others_entry, "\n".join(lines) + "\n" + others_entry)
    return method


class CallbacksSection(ConfigValues):
    """`callbacks()`: your code, called at the events of a run."""

    callbacks_class = Setting[Any](None, anything("None, a callback class or a list of them"))
    # In a class body, `vars()` is the class' namespace: a setting per event.
    vars().update({f"callbacks_{name}": Setting[Listener](None, _LISTENER) for name in EVENTS})

    @section
    @_with_events
    def callbacks(self: SectionT, callbacks_class: Any = NotProvided, **old_names: Any) -> SectionT:
        """Say which of your code is called when: methods of classes first, then functions.

        An event given again in a later call replaces the earlier functions. Arguments left out
        leave what is there. `callbacks.EVENTS` lists the arguments of every event.

        Args:
            callbacks_class: a subclass of `RLlibCallback`, or a list of them in the order they are
                called.
            **old_names: old names of these settings.
        """
        return self

    def callback_spec(self) -> CallbackSpec:
        """What was configured, checked, ready to be sent to other processes.

        Raises:
            CallbackConfigError: a class or function cannot be called at its event; lists all.
        """
        functions = {event: self.read_value(f"callbacks_{event}") for event in EVENTS}
        return CallbackSpec(self.callbacks_class, functions)


# ---- evaluation section

INSTEAD_IN_EVALUATION: Final = {
    "num_env_runners": "evaluation_num_env_runners",
    "batch_mode": "evaluation_duration_unit",
    "rollout_fragment_length": "evaluation_duration",
}
"""Settings of runners, and what decides about them in evaluation."""


def _given_settings(value: Any) -> Any:
    """Of a config, the settings that were set in it: what it leaves open is as in training.

    It may be a changed copy of the training config, so what says nothing about evaluation is left
    out.
    """
    if not isinstance(value, ConfigValues):
        return value
    given = value.given_settings()
    left_out = {*INSTEAD_IN_EVALUATION, "in_evaluation", "evaluation_config"}
    return {name: given[name] for name in given if name not in left_out}


class EvaluationSection(ConfigValues):
    """`evaluation()`: when the weights are evaluated, on how much, by whom."""

    def _translated(self, given: Mapping[Any, Any], section_name: str, where: str) -> Translation:
        translation = super()._translated(given, section_name, where)
        for config in given.values():
            if isinstance(config, ConfigValues):
                self._warn_of_left_out(config)
        return translation

    def _warn_of_left_out(self, config: ConfigValues) -> None:
        """Logs what a config given as `evaluation_config` says and evaluation settings decide."""
        given = config.given_settings()
        for name, instead in INSTEAD_IN_EVALUATION.items():
            # A copy of this config says it, too, and means nothing by it.
            if name in given and given[name] != self.read_value(name):
                _LOGGER.warning(
                    "evaluation_config: %s of the %s has no effect; in evaluation this follows "
                    "from `%s`. Set that with evaluation().",
                    assignment(name, given[name]),
                    type(config).__name__,
                    instead,
                )

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
        self: SectionT,
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
    ) -> SectionT:
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
            evaluation_seed: the root seed of evaluation episodes, which are then the same at every
                evaluation. None: the `seed` of `evaluation_config`, if it is another than
                training's; else they are derived from `seed`.
            custom_evaluation_function: called as `fn(algorithm, eval_env_runner_group)` instead of
                playing episodes; gives a dict of metrics, or (dict, env steps, agent steps).
            off_policy_estimation_methods: estimators on recorded data.
            ope_split_batch_by_episode: how those estimators cut their data.
            always_attach_evaluation_results: keep the last evaluation in every later result; False
                shows it only in the result of its own iteration.
            enable_async_evaluation: training waits for no evaluation; its result comes with the
                iteration in which it is over, and runners take over the work of those that hang.
            **old_names: old names of these settings, such as `evaluation_num_workers`.
        """
        return self


# ---- run sections


def _engine() -> Check:
    def accepts(value: Any) -> bool:
        return value in ENGINES if isinstance(value, str) else hasattr(value, "make_place")

    return Check(f"one of {', '.join(map(repr, ENGINES))}, or an engine", accepts)


_LOG_LEVELS = ("DEBUG", "INFO", "WARN", "WARNING", "ERROR", "CRITICAL")


class RunSections(ConfigValues):
    """`fault_tolerance()`, `resources()`, `reporting()`, `checkpointing()` and `debugging()`."""

    engine = Setting[str | Engine]("local", _engine(), is_saved=False)
    strict_cpus = Setting(False, boolean(), is_saved=False)

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
        self: SectionT,
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
    ) -> SectionT:
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
            env_runner_restore_timeout_s: how long a runner may take to be made, until the first
                step that puts its episodes back; from then on the limit of sampling holds.
            crash_dir: directory for files from which requests that failed can be played again
                (`local-trainer replay-episode`); None keeps none.
            **old_names: old names of these settings, such as `recreate_failed_workers`.
        """
        return self

    @section
    def resources(
        self: SectionT,
        *,
        engine: str | Engine = NotProvided,
        strict_cpus: bool = NotProvided,
        num_cpus_for_main_process: float = NotProvided,
        num_gpus: float = NotProvided,
        placement_strategy: str = NotProvided,
        **old_names: Any,
    ) -> SectionT:
        """Say where env runners run.

        Args:
            engine: "local": processes of this machine; "ray": on a Ray cluster (docs/scale-out.md);
                or an engine of your own. Checkpoints do not hold it.
            strict_cpus: with engine="ray", refuse machines whose CPUs are of another kind than this
                one's: their results may differ in the last bits.
            num_cpus_for_main_process: CPUs for the main process.
            num_gpus: GPUs for learning.
            placement_strategy: how runners are spread over machines (engine="ray"): "PACK",
                "SPREAD", "STRICT_PACK" or "STRICT_SPREAD".
            **old_names: old names of these settings, such as `num_cpus_per_worker`.
        """
        return self

    @section
    def reporting(
        self: SectionT,
        *,
        keep_per_episode_custom_metrics: bool = NotProvided,
        metrics_episode_collection_timeout_s: float = NotProvided,
        metrics_num_episodes_for_smoothing: int | None = NotProvided,
        min_time_s_per_iteration: float | None = NotProvided,
        min_train_timesteps_per_iteration: int | None = NotProvided,
        min_sample_timesteps_per_iteration: int | None = NotProvided,
        log_gradients: bool = NotProvided,
        **old_names: Any,
    ) -> SectionT:
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
        """
        return self

    @section
    def checkpointing(
        self: SectionT,
        export_native_model_files: bool = NotProvided,
        checkpoint_trainable_policies_only: bool = NotProvided,
    ) -> SectionT:
        """Say what checkpoints hold.

        Args:
            export_native_model_files: write the module in the format of its framework as well.
            checkpoint_trainable_policies_only: leave out modules that are not trained.
        """
        return self

    @section
    def debugging(
        self: SectionT,
        *,
        logger_creator: Callable[..., Any] | None = NotProvided,
        logger_config: dict[str, Any] | None = NotProvided,
        log_level: str = NotProvided,
        log_sys_usage: bool = NotProvided,
        fake_sampler: bool = NotProvided,
        seed: int | None = NotProvided,
        **old_names: Any,
    ) -> SectionT:
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
        """
        return self


# ---- training sections
GivenSchedule = float | list[list[float]]
"""A number, or the pairs of a piecewise linear schedule over env steps."""


def _model_config(value: Any) -> Any:
    """Accept a dataclass such as RLlib's `DefaultModelConfig`, and functions for their names."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    return {**value, **plain_names(value)} if isinstance(value, dict) else value


_MODULE_SPEC = Check(
    "None, an RLModuleSpec or a MultiRLModuleSpec",
    lambda value: value is None or isinstance(value, RLModuleSpec | MultiRLModuleSpec),
)


class TrainingSections(ConfigValues):
    """`training()`, `learners()` and `rl_module()`."""

    gamma = Setting[float](0.99, number(0, maximum=1))
    lr = Setting[GivenSchedule](0.001, schedule(0))
    grad_clip = Setting[float | None](None, optional(number(above=0)))
    grad_clip_by = Setting("global_norm", one_of("value", "norm", "global_norm"))
    train_batch_size = Setting(32, integer(1), unit="env steps")
    num_epochs = Setting(1, integer(1))
    minibatch_size = Setting[int | None](None, optional(integer(1)), unit="env steps")
    shuffle_batch_per_epoch = Setting(False, boolean())
    sample_ahead = Setting(False, boolean())
    optimizer = Setting[dict[str, Any]]({}, mapping(), merge=Merge.DEEP)
    learner_class = Setting[Any](None, anything("None or a Learner class"))
    learner_connector = Setting[Callable[..., Any] | None](None, optional(function()))
    add_default_connectors_to_learner_pipeline = Setting(True, boolean())
    learner_config_dict = Setting[dict[str, Any]]({}, mapping(), merge=Merge.DEEP)

    num_learners = Setting(0, integer(0))
    num_cpus_per_learner = Setting[float | str]("auto", either(number(0), one_of("auto")))
    num_gpus_per_learner = Setting[float](0, number(0))
    num_aggregator_actors_per_learner = Setting(0, integer(0))
    max_requests_in_flight_per_aggregator_actor = Setting[float](3, number(1, infinite=True))
    local_gpu_idx = Setting(0, integer(0))
    max_requests_in_flight_per_learner = Setting[float](3, number(1, infinite=True))

    model_config = Setting[dict[str, Any]](
        {}, mapping(), merge=Merge.DEEP, normalize=_model_config, keeps_default=True
    )
    rl_module_spec = Setting[Any](None, _MODULE_SPEC)
    algorithm_config_overrides_per_module = Setting[dict[str, Any]]({}, mapping(mapping()))

    @section
    def training(
        self: SectionT,
        *,
        gamma: float = NotProvided,
        lr: GivenSchedule = NotProvided,
        grad_clip: float | None = NotProvided,
        grad_clip_by: str = NotProvided,
        train_batch_size: int = NotProvided,
        train_batch_size_per_learner: int | None = NotProvided,
        num_epochs: int = NotProvided,
        minibatch_size: int | None = NotProvided,
        shuffle_batch_per_epoch: bool = NotProvided,
        sample_ahead: bool = NotProvided,
        model: dict[str, Any] = NotProvided,
        optimizer: dict[str, Any] = NotProvided,
        learner_class: Any = NotProvided,
        learner_connector: Callable[..., Any] | None = NotProvided,
        add_default_connectors_to_learner_pipeline: bool = NotProvided,
        learner_config_dict: dict[str, Any] = NotProvided,
        **more_settings: Any,
    ) -> SectionT:
        """Say how the algorithm learns; algorithms add their own arguments.

        Args:
            gamma: the discount factor, in [0, 1].
            lr: the learning rate: a number, or a schedule `[[env_steps, value], ...]` starting at
                0.
            grad_clip: the bound that `grad_clip_by` applies to gradients; None does not clip.
            grad_clip_by: "value" clips each number, "norm" each array by its norm, "global_norm"
                all by their norm.
            train_batch_size: env steps sampled for one update.
            train_batch_size_per_learner: the same; there is one learner. None says nothing.
            num_epochs: how often an update passes over its batch.
            minibatch_size: rows per gradient step; None takes the whole batch.
            shuffle_batch_per_epoch: draw a new order of the rows for every epoch.
            sample_ahead: let env runners play the next sample, with the weights of now, while this
                one is learnt from (PPO). Every sample but the first lacks one update, as a rule.
            model: old name of `model_config`; merged into what is there.
            optimizer: options of the optimizer.
            learner_class: a Learner of your own.
            learner_connector: makes connector pieces between episodes and learner.
            add_default_connectors_to_learner_pipeline: keep the default pieces there.
            learner_config_dict: your own data for a Learner of your own; nothing else reads it.
            **more_settings: settings of the algorithm and old names, such as `num_sgd_iter`.
        """
        return self

    @section
    def learners(
        self: SectionT,
        *,
        num_learners: int = NotProvided,
        num_cpus_per_learner: float | str = NotProvided,
        num_gpus_per_learner: float = NotProvided,
        num_aggregator_actors_per_learner: int = NotProvided,
        max_requests_in_flight_per_aggregator_actor: float = NotProvided,
        local_gpu_idx: int = NotProvided,
        max_requests_in_flight_per_learner: float = NotProvided,
        **old_names: Any,
    ) -> SectionT:
        """Say where learning runs: here, always in the main process.

        Args:
            num_learners: learner processes; 0 learns in the main process.
            num_cpus_per_learner: CPUs to reserve for each learner.
            num_gpus_per_learner: GPUs to reserve for each learner.
            num_aggregator_actors_per_learner: processes that build batches for each learner.
            max_requests_in_flight_per_aggregator_actor: requests such a process may have waiting.
            local_gpu_idx: which GPU a learner in the main process uses.
            max_requests_in_flight_per_learner: requests a learner may have waiting.
            **old_names: old names of these settings.
        """
        return self

    @section
    def rl_module(
        self: SectionT,
        *,
        model_config: Any = NotProvided,
        rl_module_spec: Any = NotProvided,
        algorithm_config_overrides_per_module: dict[str, Any] = NotProvided,
        **old_names: Any,
    ) -> SectionT:
        """Say which networks are used.

        Args:
            model_config: settings of the networks, e.g. `{"fcnet_hiddens": [64, 64]}`; merged into
                what is there.
            rl_module_spec: an `RLModuleSpec` with a module class of your own.
            algorithm_config_overrides_per_module: by module id: settings that are different for it.
            **old_names: old names of these settings.
        """
        return self


# ---- multi agent
_POLICIES = Check(
    "a dict by module id, or a list or set of module ids",
    lambda value: isinstance(value, (dict, list, tuple, set, frozenset)),
)
_MAPPING_FN = Check(
    "None, a callable, or a dict {agent: module id}",
    lambda value: value is None or callable(value) or isinstance(value, dict),
)


class MultiAgentSection(ConfigValues):
    """`multi_agent()`."""

    policies = Setting[Any]({DEFAULT_MODULE_ID: None}, _POLICIES)
    policy_map_capacity = Setting(100, integer(1))
    policy_mapping_fn = Setting[Any](None, _MAPPING_FN)
    policies_to_train = Setting[Any](None, anything("None, module ids or a callable"))
    policy_states_are_swappable = Setting(False, boolean())
    observation_fn = Setting[Callable[..., Any] | None](None, anything("None or a callable"))
    count_steps_by = Setting("env_steps", one_of("env_steps", "agent_steps"))
    rewards_after_end = Setting("credit", one_of("credit", "error"))

    @section
    def multi_agent(
        self: SectionT,
        *,
        policies: Any = NotProvided,
        policy_map_capacity: int = NotProvided,
        policy_mapping_fn: Any = NotProvided,
        policies_to_train: Any = NotProvided,
        policy_states_are_swappable: bool = NotProvided,
        observation_fn: Callable[..., Any] | None = NotProvided,
        count_steps_by: str = NotProvided,
        rewards_after_end: str = NotProvided,
        algorithm_config_overrides_per_module: dict[str, Any] = NotProvided,
        **old_names: Any,
    ) -> SectionT:
        """Say which modules act for which agents.

        Args:
            policies: modules by id (`{id: PolicySpec}`, an `RLModuleSpec` or None), or just ids. By
                default there is one module, which serves all agents.
            policy_map_capacity: modules kept in memory.
            policy_mapping_fn: `{agent: module id}`, or a function that gives the module of an
                agent. It is called once per episode and agent, right after the reset, as
                `fn(agent_id, episode)`; of the episode it may use `number` and what the reset gave.
                Arguments that it does not name are left out; `rng` is a generator that follows from
                episode and agent. A function whose first argument is `episode` gives
                `{agent: module id}` for all; `{"type": Class, **arguments}` makes what is called.
            policies_to_train: ids of the modules that learn, or a function `f(module_id, batch)`
                that is asked once per update; None trains all.
            policy_states_are_swappable: whether modules can share memory.
            observation_fn: changes the observations of all agents of an env.
            count_steps_by: what `train_batch_size`, `rollout_fragment_length`,
                `num_steps_sampled_before_learning_starts`, `training_intensity`, an evaluation's
                "timesteps" and the least numbers of steps per iteration count: "env_steps", or
                "agent_steps", which are the completed actions of all agents. By agent steps, every
                env slot plays whole env steps until it has its share, and what it made beyond that
                is taken off its next share. Schedules and target networks go by env steps.
            rewards_after_end: what an agent is paid after its end: "credit" adds it to its last
                reward if that was not handed out yet, and counts it in returns in any case; "error"
                refuses it.
            algorithm_config_overrides_per_module: see `rl_module()`.
            **old_names: old names of these settings.
        """
        return self


# ---- sections


class Sections(
    EnvironmentSection,
    EnvRunnersSection,
    TrainingSections,
    CallbacksSection,
    EvaluationSection,
    RunSections,
    MultiAgentSection,
):
    """The settings that every algorithm shares, and what follows directly from them.

    Attributes:
        in_evaluation: whether this config belongs to evaluation runners; set by the algorithm.
    """

    in_evaluation = Setting(False, boolean())

    @property
    def counts_agent_steps(self) -> bool:
        """Whether sizes of samples are in agent steps, and not in env steps."""
        return bool(self.count_steps_by == "agent_steps")

    @property
    def total_train_batch_size(self) -> int:
        """Steps sampled for one update, by all runners together; see `count_steps_by`."""
        return self.train_batch_size

    @property
    def is_multi_agent(self) -> bool:
        """Whether there is any module besides the default one."""
        return list(self.policies) != [DEFAULT_MODULE_ID]

    @property
    def num_env_slots(self) -> int:
        """How many envs sample at the same time, in all runners."""
        return max(1, self.num_env_runners) * self.num_envs_per_env_runner

    def get_rollout_fragment_length(self, worker_index: int = 0) -> int:
        """Steps that each env of a runner owes per sample; see `count_steps_by`.

        With "auto" the train batch is divided by the number of env slots. What is left over is
        given to the first runners, one more step for each of their envs, until it is used up; the
        local runner (index 0) takes one more when anything is left. Example: 4000 steps, 3 runners
        of one env: 1334, 1333, 1333.

        Args:
            worker_index: 1 and up for runners in processes, 0 for the local one.
        """
        fragment = self.rollout_fragment_length
        if not isinstance(fragment, str):
            return fragment
        share, rest = divmod(self.total_train_batch_size, self.num_env_slots)
        return (
            share + 1
            if (worker_index - 1) * self.num_envs_per_env_runner < rest and rest
            else share
        )

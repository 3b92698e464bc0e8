"""Settings of acting: the env, sampling, callbacks, evaluation."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from callbacks.events import EVENTS
from callbacks.spec import CallbackSpec
from trainer.config.config_values import ConfigValues, section
from trainer.config.settings import (
    Merge,
    NotProvided,
    Setting,
    anything,
    boolean,
    either,
    function,
    integer,
    mapping,
    number,
    one_of,
    optional,
    space,
    text,
)
from trainer.old_names import OLD_NAMES

# ---- environment section
#
# Settings of the environment.

# Section methods only declare; the decorator `section` reads their arguments.
# ruff: noqa: ARG002


EnvironmentT = TypeVar("EnvironmentT", bound="EnvironmentSection")

_ENV = either(text(), function())


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
        self: EnvironmentT,
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
    ) -> EnvironmentT:
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
            max_empty_steps: with several agents: an env that observes nobody for more env steps in
                a row is taken for broken.
            **old_names: old names of these settings.

        Raises:
            UnknownSettingError: an argument does not exist.
        """
        return self


# ---- env runners section
#
# Settings of sampling: how many env runners, how much each samples, how it explores.

# Section methods only declare; the decorator `section` reads their arguments.
# ruff: noqa: ARG002


EnvRunnersT = TypeVar("EnvRunnersT", bound="EnvRunnersSection")

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
        self: EnvRunnersT,
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
    ) -> EnvRunnersT:
        """Say how experience is sampled.

        Args:
            num_env_runners: processes that sample; 0 samples in the main process.
            create_local_env_runner: whether the main process has an env runner as well.
            create_env_on_local_worker: whether that runner has an env although other processes
                sample.
            num_envs_per_env_runner: envs that each runner steps together.
            gym_env_vectorize_mode: "SYNC" steps the envs of a runner one after the other, "ASYNC"
                in processes.
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

        Raises:
            UnknownSettingError: an argument does not exist.
        """
        return self

    @section
    def exploration(
        self: EnvRunnersT,
        *,
        explore: bool = NotProvided,
        exploration_config: Any = NotProvided,
    ) -> EnvRunnersT:
        """Old name of two arguments of `env_runners()`.

        Args:
            explore: see `env_runners()`.
            exploration_config: see `env_runners()`.

        Raises:
            UnknownSettingError: an argument does not exist.
        """
        return self


# ---- callbacks section
#
# Settings of callbacks: classes, and functions per event. The events themselves, with their
# arguments and when they fire, are listed in `callbacks.events`; the two lists are compared by a
# test. What was configured is judged by `callbacks.spec.CallbackSpec`.

# Section methods only declare; the decorator `section` reads their arguments.
# ruff: noqa: ARG002


CallbacksT = TypeVar("CallbacksT", bound="CallbacksSection")

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
    lines = [
        textwrap.fill(entry, 100, initial_indent=" " * 12, subsequent_indent=" " * 16)
        for entry in entries
    ]
    others_entry = " " * 12 + "**old_names:"
    changed.__doc__ = (method.__doc__ or "").replace(
        others_entry, "\n".join(lines) + "\n" + others_entry
    )
    return method


class CallbacksSection(ConfigValues):
    """`callbacks()`: your code, called at the events of a run."""

    callbacks_class = Setting[Any](None, anything("None, a callback class or a list of them"))
    # In a class body, `vars()` is the class' namespace: a setting per event.
    vars().update({f"callbacks_{name}": Setting[Listener](None, _LISTENER) for name in EVENTS})

    @section
    @_with_events
    def callbacks(
        self: CallbacksT, callbacks_class: Any = NotProvided, **old_names: Any
    ) -> CallbacksT:
        """Say which of your code is called when: methods of classes first, then functions.

        An event given again in a later call replaces the earlier functions. Arguments left out
        leave what is there. `callbacks.EVENTS` lists the arguments of every event.

        Args:
            callbacks_class: a subclass of `RLlibCallback`, or a list of them in the order they are
                called.
            **old_names: old names of these settings.

        Raises:
            UnknownSettingError: an event or argument does not exist.
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
#
# Settings of evaluation.

# Section methods only declare; the decorator `section` reads their arguments.
# ruff: noqa: ARG002


EvaluationT = TypeVar("EvaluationT", bound="EvaluationSection")


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
        self: EvaluationT,
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
    ) -> EvaluationT:
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

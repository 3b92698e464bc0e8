"""RLlibCallback: the class users inherit from, with a documented no-op per event and a state.

Its methods declare the events: their names, arguments, and when they fire and when not. Which
callbacks are called in which order is in `callbacks.chain`. Every event fires by keyword; an
override names what it needs and takes the rest as `**kwargs` (or leaves `**kwargs` out: it then
gets just what it names).

Events of the algorithm run in the main process. Those of an env runner run in its process: a worker
process, or the main process for the local one. Every runner has its own callback objects.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from callbacks.events import event
from callbacks.views import (
    AlgorithmView,
    EnvRunnerGroupView,
    EnvRunnerView,
    EpisodeView,
    MetricsLoggerView,
    RLModuleView,
    SampleBatchView,
    VectorEnvView,
)

# ---- state
#
# The state of one callback object: its plain-data attributes, copied out and back in. "Plain
# data" is what a checkpoint can hold: None, bool, int, float, complex, str, bytes, list, tuple,
# dict, set, frozenset, NumPy arrays and NumPy scalars without object dtype. Subclasses
# (OrderedDict, an enum) are not plain: they would come back as something else. Nothing here
# writes files or logs.

MAX_DEPTH: Final = 64
"""Deeper nesting is taken for a structure that contains itself."""

_IMMUTABLE: Final = frozenset({type(None), bool, int, float, complex, str, bytes})
_PLAIN_DTYPE_KINDS: Final = frozenset("biufcSUVmM")
_COPIED_WHOLE: Final = frozenset({list, tuple, set, frozenset})


class NotPlainError(TypeError):
    """A value is no plain data; the message names the part, relative to the value."""


def plain_copy(value: Any, *, path: str = "", depth: int = 0) -> Any:
    """A copy of plain data that shares nothing changeable with the original.

    Raises:
        NotPlainError: A part is not plain data, or the data contains itself.
    """
    kind = type(value)
    if kind in _IMMUTABLE:
        return value
    if depth > MAX_DEPTH:
        raise NotPlainError(f"{path} is nested more than {MAX_DEPTH} deep or contains itself")
    if kind in _COPIED_WHOLE and _IMMUTABLE.issuperset(map(type, value)):
        return kind(value)  # most states are flat; this is ten times faster than item by item
    if kind is dict:
        return _dict_copy(value, path, depth)
    if kind is list or kind is tuple:
        items = [
            plain_copy(item, path=f"{path}[{index}]", depth=depth + 1)
            for index, item in enumerate(value)
        ]
        return items if kind is list else tuple(items)
    if kind is set or kind is frozenset:
        path_inside = f"an element of {path}"
        return kind(plain_copy(item, path=path_inside, depth=depth + 1) for item in value)
    if kind is np.ndarray or (isinstance(value, np.generic) and kind is value.dtype.type):
        return _array_copy(value, path)
    raise NotPlainError(f"{path} is {kind.__module__}.{kind.__qualname__}".replace("builtins.", ""))


def plain_attributes(instance: object, *, besides: Collection[str] = ()) -> dict[str, Any]:
    """{name: copy} of the attributes that are plain data; the others and `besides` are left out."""
    found: dict[str, Any] = {}
    for name, value in _attributes(instance, besides).items():
        try:
            found[name] = plain_copy(value, path=name)
        except NotPlainError:
            continue  # named by `unsaved_attributes()`
    return found


def unsaved_attributes(instance: object, *, besides: Collection[str] = ()) -> dict[str, str]:
    """{name: why} of the attributes that `plain_attributes` leaves out."""
    found: dict[str, str] = {}
    for name, value in _attributes(instance, besides).items():
        try:
            plain_copy(value, path=name)
        except NotPlainError as error:
            found[name] = str(error)
    return found


def restore_attributes(instance: object, state: dict[str, Any]) -> None:
    """Set each entry of a state as an attribute; nothing is shared with the state.

    Attributes the state does not name stay: a class that learnt a new attribute since the state was
    saved keeps what its `__init__` gave it.
    """
    for name, value in state.items():
        # Past the `__setattr__` of a class, as they were read: that of a frozen one refuses.
        object.__setattr__(instance, name, plain_copy(value, path=name))


def attribute_names(instance: object, *, besides: Collection[str] = ()) -> set[str]:
    """The names of all attributes but `besides`, plain data or not."""
    return set(_attributes(instance, besides))


def _attributes(instance: object, besides: Collection[str]) -> dict[str, Any]:
    """The attributes of an object, those in slots included, as {name: value}."""
    found: dict[str, Any] = dict(getattr(instance, "__dict__", {}))
    for cls in type(instance).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(instance, name):
                found[name] = getattr(instance, name)
    return {name: value for name, value in found.items() if name not in besides}


def _dict_copy(value: dict[Any, Any], path: str, depth: int) -> dict[Any, Any]:
    """The copy of a dict whose keys are plain as well."""
    copied = {}
    for key, item in value.items():
        item_path = f"{path}[{key!r}]"
        copied_key = plain_copy(key, path=f"the key {key!r} of {path}", depth=depth + 1)
        copied[copied_key] = plain_copy(item, path=item_path, depth=depth + 1)
    return copied


def _array_copy(value: Any, path: str) -> Any:
    """The copy of an array or NumPy scalar whose memory is its value; the memory order is kept."""
    if value.dtype.hasobject or value.dtype.kind not in _PLAIN_DTYPE_KINDS:
        raise NotPlainError(f"{path} is an array of dtype {value.dtype}")
    return value.copy(order="K") if type(value) is np.ndarray else value.copy()


# ---- callback


class RLlibCallback:
    """Base class of callbacks that keep something between events; override the methods you need.

    Life of a callback object:
        1. The algorithm makes one object per class, without arguments; every env runner makes its
           own. An *instance* given to the configuration is a pattern: each of them gets a copy.
        2. Events call its methods: objects in the order given, then the functions of the event.
        3. `get_state()` is taken with every answer of a runner and with every checkpoint.
        4. A replaced runner makes a new object and gives it the last state; so does a loaded
           checkpoint.

    `__init__` needs no `super().__init__()`. Attributes of plain data are the state: None, bool,
    int, float, str, bytes, list, tuple, dict, set, frozenset, NumPy arrays and scalars. Other
    attributes (open files, networks) are not saved; the first time, a warning names them. Override
    `get_state` and `set_state` to save them in your own way.
    """

    def get_state(self) -> dict[str, Any]:
        """What this object needs to continue: by default its plain-data attributes."""
        return plain_attributes(self)

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from what `get_state` gave.

        Args:
            state: The answer of `get_state`; by default each entry becomes an attribute.
        """
        restore_attributes(self, state)

    # ---- events, in the order of the settings that take functions for them

    @event(
        "algorithm",
        fired="once, at the end of the construction of an algorithm: its runners hold its weights",
        not_fired="when runners are restarted, or when a checkpoint is loaded into an algorithm",
    )
    def on_algorithm_init(
        self, *, algorithm: AlgorithmView, metrics_logger: MetricsLoggerView, **kwargs: Any
    ) -> None:
        """Runs once in the main process, when an algorithm and its env runners are complete.

        Args:
            algorithm: The new algorithm.
            metrics_logger: Its logger; values appear at the top of the first result.
            **kwargs: For arguments of later versions.
        """

    @event(
        "algorithm",
        fired="at the end of every `train()`: the iteration is counted and the result is complete",
        not_fired="by `evaluate()` called by hand, or when `train()` raised before its end",
    )
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

    @event(
        "algorithm",
        fired="before every evaluation: its runners hold the weights that will be evaluated",
        not_fired="in iterations without evaluation",
    )
    def on_evaluate_start(
        self, *, algorithm: AlgorithmView, metrics_logger: MetricsLoggerView, **kwargs: Any
    ) -> None:
        """Runs in the main process before every evaluation; its runners already hold the weights.

        Args:
            algorithm: The algorithm; training may be running beside a parallel evaluation.
            metrics_logger: Its logger.
            **kwargs: For arguments of later versions.
        """

    @event(
        "algorithm",
        fired="after every evaluation, before its metrics are returned or put into a result",
        not_fired="when the evaluation raised or was cancelled",
    )
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

    @event(
        "algorithm",
        fired="after lost, failed or interrupted env runners were replaced and put back to where "
        "they were; after Ctrl-C, with the next request",
        not_fired="for the first start of a runner, or when a runner is not replaced",
    )
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

    @event(
        "algorithm",
        fired="directly after `on_env_runners_recreated`, which is its new name",
        not_fired="whenever `on_env_runners_recreated` is not",
    )
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

    @event(
        "algorithm",
        fired="after a checkpoint was loaded by any route and all runners hold its state",
        not_fired="when only one component is restored, or when loading raised",
    )
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

    @event(
        "algorithm",
        fired="after a checkpoint is complete at its place",
        not_fired="when writing raised; `get_state()` alone writes nothing",
    )
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

    @event(
        "env_runner",
        fired="per agent and chunk of a training episode: when the episode ends (before "
        "`on_episode_end`), and when `sample()` ends in the middle of an episode, for the steps "
        "played so far",
        not_fired="in evaluation, for a chunk without steps, or when an episode is given up",
    )
    def on_postprocess_trajectory(
        self,
        *,
        env_runner: EnvRunnerView,
        metrics_logger: MetricsLoggerView,
        episode: EpisodeView,
        agent_id: Any,
        policy_id: str,
        policies: dict[str, RLModuleView],
        postprocessed_batch: SampleBatchView,
        original_batches: dict[Any, tuple[str, RLModuleView, SampleBatchView]],
        **kwargs: Any,
    ) -> None:
        """Runs in the process of a training env runner per agent and chunk, to rewrite it.

        What is changed in the batch is what will be learnt from. Advantages, value targets and
        `action_logp` that were not changed themselves are computed anew from what was.

        Args:
            env_runner: The runner.
            metrics_logger: The logger of the runner.
            episode: The episode: ended, or running and about to be cut. Its return stays what the
                env paid.
            agent_id: The agent the batch belongs to.
            policy_id: The id of the module that acted for it.
            policies: {module id: module}.
            postprocessed_batch: {column: array, [T, ...]}, with advantages if the algorithm
                has them.
            original_batches: {agent id: (module id, module, columns before post-processing)};
                read-only.
            **kwargs: For arguments of later versions.
        """

    @event(
        "algorithm",
        fired="per module and update, when its train batch is complete and nothing is learnt yet",
        not_fired="per minibatch or epoch",
    )
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

    @event(
        "env_runner",
        fired="after an env runner made all its sub-envs, also in a runner that replaces a lost "
        "one",
        not_fired="for single sub-envs, not even when one is made anew: see "
        "`on_sub_environment_created`",
    )
    def on_environment_created(
        self,
        *,
        env_runner: EnvRunnerView,
        metrics_logger: MetricsLoggerView,
        env: VectorEnvView,
        env_context: Any,
        **kwargs: Any,
    ) -> None:
        """Runs in the process of an env runner whenever it has made its vector env.

        Args:
            env_runner: The runner; its module does not exist yet at the first time.
            metrics_logger: The logger of the runner.
            env: The vector env; its sub-envs are `env.envs`.
            env_context: The `env_config` the env was made with, with `worker_index` and
                `num_workers`.
            **kwargs: For arguments of later versions.
        """

    @event(
        "env_runner",
        fired="after each sub-env was made, in order of its index, before "
        "`on_environment_created`; again when a single one failed and was made anew "
        "(`restart_failed_sub_environments`)",
        not_fired="at a reset",
    )
    def on_sub_environment_created(
        self,
        *,
        env_runner: EnvRunnerView,
        metrics_logger: MetricsLoggerView,
        sub_environment: Any,
        env_context: Any,
        env_index: int,
        **kwargs: Any,
    ) -> None:
        """Runs in the process of an env runner for each sub-env it has made, in their order.

        Args:
            env_runner: The runner.
            metrics_logger: The logger of the runner.
            sub_environment: The new sub-env.
            env_context: The `env_config` of this sub-env, with `worker_index` and `vector_index`.
            env_index: Its index in the vector env.
            **kwargs: For arguments of later versions.
        """

    @event(
        "env_runner",
        fired="after each module of an env runner was built, before it gets its weights",
        not_fired="when weights are updated",
    )
    def on_create_policy(self, *, policy_id: str, policy: RLModuleView, **kwargs: Any) -> None:
        """Runs in the process of an env runner for each module built, before it gets weights.

        Args:
            policy_id: The module id.
            policy: The module.
            **kwargs: For arguments of later versions.
        """

    @event(
        "env_runner",
        fired="when the object of a new episode was made, always before the env is reset for it",
        not_fired="for a chunk that continues an episode",
    )
    def on_episode_created(
        self,
        *,
        episode: EpisodeView,
        env_runner: EnvRunnerView,
        metrics_logger: MetricsLoggerView,
        env: VectorEnvView,
        env_index: int,
        rl_module: RLModuleView,
        **kwargs: Any,
    ) -> None:
        """Runs in the process of an env runner before an env is reset for a new episode.

        The place to set the task of the env or to prepare `episode.custom_data`.

        Args:
            episode: The new episode, without an observation.
            env_runner: The runner; `env_runner.config.in_evaluation` tells training from
                evaluation.
            metrics_logger: The logger of the runner; values appear under `env_runners/`.
            env: The vector env; this episode is played in `env.envs[env_index]`.
            env_index: The index of its sub-env.
            rl_module: The module that will act.
            **kwargs: For arguments of later versions.
        """

    @event(
        "env_runner",
        fired="after the env was reset and the first observation is in the episode",
        not_fired="for a chunk that continues an episode",
    )
    def on_episode_start(
        self,
        *,
        episode: EpisodeView,
        env_runner: EnvRunnerView,
        metrics_logger: MetricsLoggerView,
        env: VectorEnvView,
        env_index: int,
        rl_module: RLModuleView,
        **kwargs: Any,
    ) -> None:
        """Runs in the process of an env runner when the env was reset for an episode.

        Args:
            episode: The episode, with its first observation and info.
            env_runner: The runner.
            metrics_logger: The logger of the runner.
            env: The vector env.
            env_index: The index of the sub-env.
            rl_module: The module that will act.
            **kwargs: For arguments of later versions.
        """

    @event(
        "env_runner",
        fired="after each env step was added to the episode, the last one included",
        not_fired="for the reset: n steps give n events",
    )
    def on_episode_step(
        self,
        *,
        episode: EpisodeView,
        env_runner: EnvRunnerView,
        metrics_logger: MetricsLoggerView,
        env: VectorEnvView,
        env_index: int,
        rl_module: RLModuleView,
        **kwargs: Any,
    ) -> None:
        """Runs in the process of an env runner after every env step, the last one included.

        Args:
            episode: The episode, with the action, reward and observation of this step as its
                newest.
            env_runner: The runner.
            metrics_logger: The logger of the runner.
            env: The vector env, after the step.
            env_index: The index of the sub-env.
            rl_module: The module that acts.
            **kwargs: For arguments of later versions.
        """

    @event(
        "env_runner",
        fired="once per episode, after its last step event, before conversion to arrays",
        not_fired="when an episode is only cut into chunks, or is dropped or given up before its "
        "end",
    )
    def on_episode_end(
        self,
        *,
        episode: EpisodeView,
        env_runner: EnvRunnerView,
        metrics_logger: MetricsLoggerView,
        env: VectorEnvView,
        env_index: int,
        rl_module: RLModuleView,
        prev_episode_chunks: Sequence[EpisodeView],
        **kwargs: Any,
    ) -> None:
        """Runs in the process of an env runner once per episode, after its last step event.

        Args:
            episode: The terminated or truncated episode; `episode.get_return()` is that of the
                whole episode.
            env_runner: The runner.
            metrics_logger: The logger of the runner.
            env: The vector env, not yet reset.
            env_index: The index of the sub-env.
            rl_module: The module that acted.
            prev_episode_chunks: The earlier chunks of this episode, oldest first; often empty.
            **kwargs: For arguments of later versions.
        """

    @event(
        "env_runner",
        fired="at the end of every `sample()` of an env runner",
        not_fired="per iteration: one iteration may sample several times",
    )
    def on_sample_end(
        self,
        *,
        env_runner: EnvRunnerView,
        metrics_logger: MetricsLoggerView,
        samples: list[Any],
        **kwargs: Any,
    ) -> None:
        """Runs in the process of an env runner at the end of every `sample()`.

        Args:
            env_runner: The runner.
            metrics_logger: The logger of the runner.
            samples: The episodes and chunks to be returned; changes in place reach the learner.
            **kwargs: For arguments of later versions.
        """

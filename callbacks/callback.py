"""RLlibCallback: the class users inherit from, with one documented no-op per event and a state.

The events themselves are documented in `callbacks.callback` and
`callbacks.callback`. This class decides nothing: which events exist is in
`callbacks.events`, who is called in which order in `callbacks.chain`. Every event fires by keyword;
an override names what it needs and takes the rest as `**kwargs` (or leaves `**kwargs` out: it then
gets just what it names).

The events of an algorithm as documented no-op methods: the first half of `RLlibCallback`.
All of them run in the main process. When each fires and when not is in `callbacks.events` as well;
nothing here fires anything.

The events of an env runner as documented no-op methods: the second half of `RLlibCallback`.
All of them run in the process of an env runner: a worker process, or the main process for the local
one. Every runner has its own callback objects. When each event fires and when not is in
`callbacks.events`.

`no_op`: turns a documented method into one that does nothing and accepts anything.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from callbacks.state import plain_attributes, restore_attributes
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

# ---- no op


def no_op(method: Callable[..., None]) -> Callable[..., None]:
    """A method that looks like `method` but does nothing, whatever it is given.

    For type checkers it takes anything, too: so an override may be annotated with RLlib's classes,
    name only what it needs, and leave `**kwargs` out.

    An override may thus call `super().on_episode_end(episode=episode, **kwargs)` with the arguments
    it happens to have, under their old names too.
    """

    @functools.wraps(method)
    def nothing(*_: Any, **__: Any) -> None:
        return None

    return nothing


# ---- algorithm events


# ---- env runner events


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

    # ---- events of env runners

    @no_op
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

    @no_op
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

    @no_op
    def on_create_policy(self, *, policy_id: str, policy: RLModuleView, **kwargs: Any) -> None:
        """Runs in the process of an env runner for each module built, before it gets weights.

        Args:
            policy_id: The module id.
            policy: The module.
            **kwargs: For arguments of later versions.
        """

    @no_op
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

    @no_op
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

    @no_op
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

    @no_op
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

    @no_op
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

    @no_op
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

    # ---- events of the algorithm

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

"""RLlibCallback: the class users inherit from, with a documented no-op per event and a state.

Its methods declare the events: their names, arguments, and when they fire and when not. Which
callbacks are called in which order is in `callbacks.chain`. Every event fires by keyword; an
override names what it needs and takes the rest as `**kwargs` (or leaves `**kwargs` out: it then
gets just what it names).

Events of the algorithm run in the main process. Those of an env runner run in its process: a worker
process, or the main process for the local one. Every runner has its own callback objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from callbacks.events import event
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
        "they were; in the next request to them if theirs was cut short",
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
        fired="after a checkpoint was written completely and renamed into place",
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
        fired="per agent and chunk of a training episode: when the episode ends, before "
        "`on_episode_end`, and for what was played of it when `sample()` ends in its middle",
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
        fired="after an env runner made all its sub-envs; a runner that replaces a lost one does "
        "too",
        not_fired="for single sub-envs, also when one is made anew: see "
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

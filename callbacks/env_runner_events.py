"""The events of an env runner as documented no-op methods: the second half of `RLlibCallback`.

All of them run in the process of an env runner: a worker process, or the main process for the local
one. Every runner has its own callback objects. When each event fires and when not is in
`callbacks.events`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from callbacks.no_op import no_op
from callbacks.views import (
    EnvRunnerView,
    EpisodeView,
    MetricsLoggerView,
    RLModuleView,
    SampleBatchView,
    VectorEnvView,
)


class EnvRunnerEvents:
    """One no-op per event of an env runner; users inherit it through `RLlibCallback`."""

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

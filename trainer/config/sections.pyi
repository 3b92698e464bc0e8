"""Made by `docs/make_section_stubs.py`; do not edit it by hand."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing_extensions import Self
from trainer.config.config_values import ConfigValues
from trainer.config.settings import Setting
from trainer.runtime.engine import Engine
from trainer.types import ToBeDrawn


class EnvironmentSection(ConfigValues):
    env: Setting[Any]
    env_config: Setting[dict[Any, Any]]
    observation_space: Setting[Any]
    action_space: Setting[Any]
    max_empty_steps: Setting[int]
    clip_rewards: Setting[float | bool | None]
    normalize_rewards: Setting[bool]
    normalize_actions: Setting[bool]
    clip_actions: Setting[bool]
    disable_env_checking: Setting[bool]
    action_mask_key: Setting[str]
    env_task_fn: Setting[Callable[..., Any] | None]
    def environment(
        self,
        env: Any = None,
        *,
        env_config: dict[Any, Any] | ToBeDrawn = ...,
        observation_space: Any = None,
        action_space: Any = None,
        max_empty_steps: int | ToBeDrawn = 1000,
        clip_rewards: float | bool | None | ToBeDrawn = None,
        normalize_rewards: bool | ToBeDrawn = False,
        normalize_actions: bool | ToBeDrawn = True,
        clip_actions: bool | ToBeDrawn = False,
        disable_env_checking: bool | ToBeDrawn = False,
        action_mask_key: str | ToBeDrawn = 'action_mask',
        env_task_fn: Callable[..., Any] | None | ToBeDrawn = None,
        **old_names: Any,
    ) -> Self:
        """Say which environment is played.

        Args:
            env: a registered name, a gymnasium id, a dotted path to a class, or a class or function
                that is called with one `EnvContext`.
            env_config: what the env finds in its `EnvContext`; merged into earlier values, on every
                level.
            observation_space: overrides the env's observation space.
            action_space: overrides the env's action space.
            max_empty_steps: with several agents: an env that observes no agent for more than so many
                env steps in a row counts as broken.
            clip_rewards: learn from the sign of rewards (True), or from rewards clipped to ±c (a number
                c); returns are reported unclipped.
            normalize_rewards: learn from rewards divided by the running standard deviation of the
                discounted return and clipped to ±10; returns are reported as the env gave them.
            normalize_actions: the module acts in [-1, 1]; actions are scaled to the bounds of a Box
                before `step`.
            clip_actions: actions are clipped to the bounds of a Box before `step`.
            disable_env_checking: do not check the env against the gymnasium contract when it is made.
            action_mask_key: the key of the action mask in a dict observation.
            env_task_fn: the curriculum, called as `fn(train_results, env, env_context)` after each
                iteration, beside each training env; gives the env's next task.
            **old_names: old names of these settings.

        Raises:
            UnknownSettingError: a setting does not exist.
        """


class EnvRunnersSection(ConfigValues):
    num_env_runners: Setting[int]
    num_envs_per_env_runner: Setting[int]
    gym_env_vectorize_mode: Setting[str]
    num_cpus_per_env_runner: Setting[float]
    custom_resources_per_env_runner: Setting[dict[str, float]]
    sample_timeout_s: Setting[float | None]
    env_to_module_connector: Setting[Callable[..., Any] | None]
    module_to_env_connector: Setting[Callable[..., Any] | None]
    episode_lookback_horizon: Setting[int]
    rollout_fragment_length: Setting[int | str]
    batch_mode: Setting[str]
    explore: Setting[bool]
    exploration_config: Setting[Any]
    observation_filter: Setting[str]
    def env_runners(
        self,
        *,
        num_env_runners: int | ToBeDrawn = 0,
        num_envs_per_env_runner: int | ToBeDrawn = 1,
        gym_env_vectorize_mode: Any = 'SYNC',
        num_cpus_per_env_runner: float | ToBeDrawn = 1,
        custom_resources_per_env_runner: dict[str, float] | ToBeDrawn = ...,
        sample_timeout_s: float | None | ToBeDrawn = 60.0,
        env_to_module_connector: Callable[..., Any] | None | ToBeDrawn = None,
        module_to_env_connector: Callable[..., Any] | None | ToBeDrawn = None,
        episode_lookback_horizon: int | ToBeDrawn = 1,
        rollout_fragment_length: int | str | ToBeDrawn = 200,
        batch_mode: str | ToBeDrawn = 'truncate_episodes',
        explore: bool | ToBeDrawn = True,
        exploration_config: Any = ...,
        observation_filter: Any = 'NoFilter',
        **old_names: Any,
    ) -> Self:
        """Say how experience is sampled.

        Args:
            num_env_runners: processes that sample; 0 samples in the main process.
            num_envs_per_env_runner: envs that each runner steps together.
            gym_env_vectorize_mode: "SYNC" steps the envs of a runner one after the other,
                "VECTOR_ENTRY_POINT" in one call of a vector env ([envs](envs.md#vector-envs)),
                "ENVPOOL" by EnvPool ([envs](envs.md#envpool)).
            num_cpus_per_env_runner: CPUs to reserve for each runner in a cluster (engine="ray").
            custom_resources_per_env_runner: other resources to reserve for each runner in the cluster.
            sample_timeout_s: a runner without an env step or reset for so long is replaced; None waits.
            env_to_module_connector: makes connector pieces between env and module.
            module_to_env_connector: makes connector pieces between module and env.
            episode_lookback_horizon: steps of the past kept when a running episode is cut.
            rollout_fragment_length: env steps of each env per sample; "auto" divides the train batch.
            batch_mode: "truncate_episodes" cuts running episodes at the end of a sample,
                "complete_episodes" plays them to their end.
            explore: whether to explore; False takes the most likely action.
            exploration_config: the exploration strategy, `{"type": ..., arguments}` (see
                docs/exploration.md); merged into what is there unless the type changes.
            observation_filter: "MeanStdFilter" normalises observations by the running mean and standard
                deviation over all runners; "NoFilter" does not.
            **old_names: old names of these settings.

        Raises:
            UnknownSettingError: a setting does not exist.
        """


class CallbacksSection(ConfigValues):
    callbacks_class: Setting[Any]
    callbacks_on_algorithm_init: Setting[Callable[..., Any] | list[Callable[..., Any]] | None]
    callbacks_on_train_result: Setting[Callable[..., Any] | list[Callable[..., Any]] | None]
    callbacks_on_evaluate_start: Setting[Callable[..., Any] | list[Callable[..., Any]] | None]
    callbacks_on_evaluate_end: Setting[Callable[..., Any] | list[Callable[..., Any]] | None]
    callbacks_on_env_runners_recreated: Setting[Callable[..., Any] | list[Callable[..., Any]] | None]
    callbacks_on_workers_recreated: Setting[Callable[..., Any] | list[Callable[..., Any]] | None]
    callbacks_on_checkpoint_loaded: Setting[Callable[..., Any] | list[Callable[..., Any]] | None]
    callbacks_on_checkpoint_saved: Setting[Callable[..., Any] | list[Callable[..., Any]] | None]
    callbacks_on_postprocess_trajectory: Setting[Callable[..., Any] | list[Callable[..., Any]] | None]
    callbacks_on_learn_on_batch: Setting[Callable[..., Any] | list[Callable[..., Any]] | None]
    callbacks_on_environment_created: Setting[Callable[..., Any] | list[Callable[..., Any]] | None]
    callbacks_on_sub_environment_created: Setting[Callable[..., Any] | list[Callable[..., Any]] | None]
    callbacks_on_create_policy: Setting[Callable[..., Any] | list[Callable[..., Any]] | None]
    callbacks_on_episode_created: Setting[Callable[..., Any] | list[Callable[..., Any]] | None]
    callbacks_on_episode_start: Setting[Callable[..., Any] | list[Callable[..., Any]] | None]
    callbacks_on_episode_step: Setting[Callable[..., Any] | list[Callable[..., Any]] | None]
    callbacks_on_episode_end: Setting[Callable[..., Any] | list[Callable[..., Any]] | None]
    callbacks_on_sample_end: Setting[Callable[..., Any] | list[Callable[..., Any]] | None]
    def callbacks(
        self,
        callbacks_class: Any = None,
        *,
        on_algorithm_init: Callable[..., Any] | list[Callable[..., Any]] | None | ToBeDrawn = None,
        on_train_result: Callable[..., Any] | list[Callable[..., Any]] | None | ToBeDrawn = None,
        on_evaluate_start: Callable[..., Any] | list[Callable[..., Any]] | None | ToBeDrawn = None,
        on_evaluate_end: Callable[..., Any] | list[Callable[..., Any]] | None | ToBeDrawn = None,
        on_env_runners_recreated: Callable[..., Any] | list[Callable[..., Any]] | None | ToBeDrawn = None,
        on_workers_recreated: Callable[..., Any] | list[Callable[..., Any]] | None | ToBeDrawn = None,
        on_checkpoint_loaded: Callable[..., Any] | list[Callable[..., Any]] | None | ToBeDrawn = None,
        on_checkpoint_saved: Callable[..., Any] | list[Callable[..., Any]] | None | ToBeDrawn = None,
        on_postprocess_trajectory: Callable[..., Any] | list[Callable[..., Any]] | None | ToBeDrawn = None,
        on_learn_on_batch: Callable[..., Any] | list[Callable[..., Any]] | None | ToBeDrawn = None,
        on_environment_created: Callable[..., Any] | list[Callable[..., Any]] | None | ToBeDrawn = None,
        on_sub_environment_created: Callable[..., Any] | list[Callable[..., Any]] | None | ToBeDrawn = None,
        on_create_policy: Callable[..., Any] | list[Callable[..., Any]] | None | ToBeDrawn = None,
        on_episode_created: Callable[..., Any] | list[Callable[..., Any]] | None | ToBeDrawn = None,
        on_episode_start: Callable[..., Any] | list[Callable[..., Any]] | None | ToBeDrawn = None,
        on_episode_step: Callable[..., Any] | list[Callable[..., Any]] | None | ToBeDrawn = None,
        on_episode_end: Callable[..., Any] | list[Callable[..., Any]] | None | ToBeDrawn = None,
        on_sample_end: Callable[..., Any] | list[Callable[..., Any]] | None | ToBeDrawn = None,
        **old_names: Any,
    ) -> Self:
        """Say which of your code is called when: methods of classes first, then functions.

        An event given again in a later call replaces the earlier functions. Arguments left out leave
        what is there. `callbacks.EVENTS` lists the arguments of every event.

        Args:
            callbacks_class: a subclass of `RLlibCallback`, or a list of them in the order they are
                called.
            on_algorithm_init: functions called once, at the end of the construction of an algorithm:
                its runners hold its weights.
            on_train_result: functions called at the end of every `train()`: the iteration is counted
                and the result is complete.
            on_evaluate_start: functions called before every evaluation: its runners hold the weights
                that will be evaluated.
            on_evaluate_end: functions called after every evaluation, before its metrics are returned or
                put into a result.
            on_env_runners_recreated: functions called after lost, failed or interrupted env runners
                were replaced and put back to where they were; after Ctrl-C, with the next request.
            on_workers_recreated: functions called directly after `on_env_runners_recreated`, which is
                its new name.
            on_checkpoint_loaded: functions called after a checkpoint was loaded by any route and all
                runners hold its state.
            on_checkpoint_saved: functions called after a checkpoint is complete at its place.
            on_postprocess_trajectory: functions called per agent and chunk of a training episode: when
                the episode ends (before `on_episode_end`), and when `sample()` ends in the middle of an
                episode, for the steps played so far.
            on_learn_on_batch: functions called per module and update, when its train batch is complete
                and nothing is learnt yet.
            on_environment_created: functions called after an env runner made all its sub-envs, also in
                a runner that replaces a lost one.
            on_sub_environment_created: functions called after each sub-env was made, in order of its
                index, before `on_environment_created`; again when a single one failed and was made anew
                (`restart_failed_sub_environments`).
            on_create_policy: functions called after each module of an env runner was built, before it
                gets its weights.
            on_episode_created: functions called when the object of a new episode was made, always
                before the env is reset for it.
            on_episode_start: functions called after the env was reset and the first observation is in
                the episode.
            on_episode_step: functions called after each env step was added to the episode, the last one
                included.
            on_episode_end: functions called once per episode, after its last step event, before
                conversion to arrays.
            on_sample_end: functions called at the end of every `sample()` of an env runner.
            **old_names: old names of these settings.

        Raises:
            UnknownSettingError: a setting does not exist.
        """


class EvaluationSection(ConfigValues):
    evaluation_interval: Setting[int | None]
    evaluation_duration: Setting[int | str]
    evaluation_duration_unit: Setting[str]
    evaluation_auto_duration_min_env_steps_per_sample: Setting[int]
    evaluation_auto_duration_max_env_steps_per_sample: Setting[int]
    evaluation_sample_timeout_s: Setting[float | None]
    evaluation_parallel_to_training: Setting[bool]
    evaluation_config: Setting[Any]
    evaluation_num_env_runners: Setting[int]
    evaluation_seed: Setting[int | None]
    custom_evaluation_function: Setting[Callable[..., Any] | None]
    always_attach_evaluation_results: Setting[bool]
    enable_async_evaluation: Setting[bool]
    def evaluation(
        self,
        *,
        evaluation_interval: int | None | ToBeDrawn = None,
        evaluation_duration: int | str | ToBeDrawn = 10,
        evaluation_duration_unit: str | ToBeDrawn = 'episodes',
        evaluation_auto_duration_min_env_steps_per_sample: int | ToBeDrawn = 100,
        evaluation_auto_duration_max_env_steps_per_sample: int | ToBeDrawn = 2000,
        evaluation_sample_timeout_s: float | None | ToBeDrawn = 120.0,
        evaluation_parallel_to_training: bool | ToBeDrawn = False,
        evaluation_config: Any = None,
        evaluation_num_env_runners: int | ToBeDrawn = 0,
        evaluation_seed: int | None | ToBeDrawn = None,
        custom_evaluation_function: Callable[..., Any] | None | ToBeDrawn = None,
        always_attach_evaluation_results: bool | ToBeDrawn = True,
        enable_async_evaluation: bool | ToBeDrawn = False,
        **old_names: Any,
    ) -> Self:
        """Say when and how the weights are evaluated.

        Args:
            evaluation_interval: evaluate after every so many iterations; None and 0: never.
            evaluation_duration: how many episodes or env steps; "auto" lasts as long as the training
                step.
            evaluation_duration_unit: "episodes" are played exactly, "timesteps" (env steps) are rounded
                up to a multiple of the evaluation runners.
            evaluation_auto_duration_min_env_steps_per_sample: the least env steps of a runner's chunk,
                with duration "auto".
            evaluation_auto_duration_max_env_steps_per_sample: the most env steps of such a chunk.
            evaluation_sample_timeout_s: a runner that makes no env step in this time is replaced; one
                that ends no episode in it evaluates no further; None waits.
            evaluation_parallel_to_training: evaluate the previous weights while the training step runs;
                needs `evaluation_num_env_runners` ≥ 1.
            evaluation_config: settings that differ in evaluation, e.g. `{"explore": False}`, as a dict
                or a config; merged into earlier values; None removes all.
            evaluation_num_env_runners: processes that evaluate; 0 evaluates in the main process.
            evaluation_seed: the root seed of evaluation episodes, which are then the same at every
                evaluation; None: the `seed` of `evaluation_config`, or else seeds derived from `seed`.
            custom_evaluation_function: called as `fn(algorithm, eval_env_runner_group)` instead of
                playing episodes; gives a dict of metrics, or (dict, env steps, agent steps).
            always_attach_evaluation_results: keep the last evaluation in every later result.
            enable_async_evaluation: training waits for no evaluation; its result comes with the
                iteration in which it is over.
            **old_names: old names of these settings.

        Raises:
            UnknownSettingError: a setting does not exist.
        """


class FaultToleranceSection(ConfigValues):
    restart_failed_env_runners: Setting[bool]
    ignore_env_runner_failures: Setting[bool]
    max_num_env_runner_restarts: Setting[int]
    delay_between_env_runner_restarts_s: Setting[float]
    restart_failed_sub_environments: Setting[bool]
    num_consecutive_env_runner_failures_tolerance: Setting[int]
    env_runner_restore_timeout_s: Setting[float]
    crash_dir: Setting[str | None]
    def fault_tolerance(
        self,
        *,
        restart_failed_env_runners: bool | ToBeDrawn = True,
        ignore_env_runner_failures: bool | ToBeDrawn = False,
        max_num_env_runner_restarts: int | ToBeDrawn = 1000,
        delay_between_env_runner_restarts_s: float | ToBeDrawn = 0.0,
        restart_failed_sub_environments: bool | ToBeDrawn = False,
        num_consecutive_env_runner_failures_tolerance: int | ToBeDrawn = 100,
        env_runner_restore_timeout_s: float | ToBeDrawn = 1800.0,
        crash_dir: str | None | ToBeDrawn = None,
        **old_names: Any,
    ) -> Self:
        """Say what happens when an env runner fails.

        Args:
            restart_failed_env_runners: replace a failed runner, put it back to where it was, and ask
                again.
            ignore_env_runner_failures: go on without a failed runner that is not replaced.
            max_num_env_runner_restarts: replacements of one runner, after which its failure is final.
            delay_between_env_runner_restarts_s: wait before a replacement; grows from the second
                failure without progress on.
            restart_failed_sub_environments: if `reset` or `step` of a single env raises, replace that
                env alone; its runner only if that does not help.
            num_consecutive_env_runner_failures_tolerance: failures of one runner in a row without
                progress, kills from outside included, before `train()` raises; without kills eight
                (docs/fault-tolerance.md). Of a single env: at most 10.
            env_runner_restore_timeout_s: the longest time without progress while a runner is made and
                its episodes are put back.
            crash_dir: directory for files of failed requests, which `local-trainer replay-episode`
                plays again; None keeps none.
            **old_names: old names of these settings.

        Raises:
            UnknownSettingError: a setting does not exist.
        """


class ResourcesSection(ConfigValues):
    engine: Setting[str | Engine]
    strict_cpus: Setting[bool]
    placement_strategy: Setting[str]
    def resources(
        self,
        *,
        engine: str | Engine | ToBeDrawn = 'local',
        strict_cpus: bool | ToBeDrawn = False,
        placement_strategy: str | ToBeDrawn = 'PACK',
        **old_names: Any,
    ) -> Self:
        """Say where env runners run.

        Args:
            engine: "local": processes of this machine; "ray": a Ray cluster (docs/scale-out.md); or an
                engine of your own. Checkpoints do not hold it.
            strict_cpus: with engine="ray", refuse machines with another kind of CPU: their results may
                differ in the last bits.
            placement_strategy: how runners are spread over machines (engine="ray"): "PACK", "SPREAD",
                "STRICT_PACK" or "STRICT_SPREAD".
            **old_names: old names of these settings.

        Raises:
            UnknownSettingError: a setting does not exist.
        """


class ReportingSection(ConfigValues):
    keep_per_episode_custom_metrics: Setting[bool]
    metrics_num_episodes_for_smoothing: Setting[int | None]
    min_time_s_per_iteration: Setting[float | None]
    min_train_timesteps_per_iteration: Setting[int | None]
    min_sample_timesteps_per_iteration: Setting[int | None]
    def reporting(
        self,
        *,
        keep_per_episode_custom_metrics: bool | ToBeDrawn = False,
        metrics_num_episodes_for_smoothing: int | None | ToBeDrawn = 100,
        min_time_s_per_iteration: float | None | ToBeDrawn = None,
        min_train_timesteps_per_iteration: int | None | ToBeDrawn = 0,
        min_sample_timesteps_per_iteration: int | None | ToBeDrawn = 0,
        **old_names: Any,
    ) -> Self:
        """Say what a result holds and how long an iteration lasts.

        Args:
            keep_per_episode_custom_metrics: report lists of custom metrics instead of their mean.
            metrics_num_episodes_for_smoothing: episode means are over the last so many episodes of all
                runners; None: over all since the last result, as in evaluation.
            min_time_s_per_iteration: repeat the training step until an iteration has lasted so long;
                None: once.
            min_train_timesteps_per_iteration: repeat it until so many env steps were trained on.
            min_sample_timesteps_per_iteration: repeat it until so many env steps were sampled.
            **old_names: old names of these settings.

        Raises:
            UnknownSettingError: a setting does not exist.
        """


class DebuggingSection(ConfigValues):
    seed: Setting[int | None]
    def debugging(
        self,
        *,
        seed: int | None | ToBeDrawn = None,
        **old_names: Any,
    ) -> Self:
        """Say what makes a run repeatable and visible.

        Args:
            seed: the root seed: the same seed and settings give the same run; None draws one and
                reports it.
            **old_names: old names of these settings.

        Raises:
            UnknownSettingError: a setting does not exist.
        """


class TrainingSection(ConfigValues):
    learner_class: Setting[type[Any] | None]
    learner_connector: Setting[Callable[..., Any] | None]
    gamma: Setting[float]
    lr: Setting[float | list[list[float]]]
    torch_lr_schedulers: Setting[Sequence[Callable[..., Any]] | None]
    grad_clip: Setting[float | None]
    grad_clip_by: Setting[str]
    adam_epsilon: Setting[float]
    train_batch_size: Setting[int]
    num_epochs: Setting[int]
    minibatch_size: Setting[int | None]
    shuffle_batch_per_epoch: Setting[bool]
    sample_ahead: Setting[bool | int]
    learner_config_dict: Setting[dict[str, Any]]
    def training(
        self,
        *,
        learner_class: type[Any] | None | ToBeDrawn = None,
        learner_connector: Callable[..., Any] | None | ToBeDrawn = None,
        gamma: float | ToBeDrawn = 0.99,
        lr: float | list[list[float]] | ToBeDrawn = 0.001,
        torch_lr_schedulers: Sequence[Callable[..., Any]] | None | ToBeDrawn = None,
        grad_clip: float | None | ToBeDrawn = None,
        grad_clip_by: str | ToBeDrawn = 'global_norm',
        adam_epsilon: float | ToBeDrawn = 1e-08,
        train_batch_size: int | ToBeDrawn = 32,
        num_epochs: int | ToBeDrawn = 1,
        minibatch_size: int | None | ToBeDrawn = None,
        shuffle_batch_per_epoch: bool | ToBeDrawn = False,
        sample_ahead: bool | int | ToBeDrawn = False,
        learner_config_dict: dict[str, Any] | ToBeDrawn = ...,
        model_config: Any = ...,
        train_batch_size_per_learner: Any = ...,
        lr_schedule: Any = ...,
        model: Any = ...,
        vf_share_layers: Any = ...,
        **old_names: Any,
    ) -> Self:
        """Say how the algorithm learns; algorithms add their own arguments.

        Args:
            learner_class: how updates are made: a class derived from the algorithm's own learner; see
                docs/own-algorithm.md.
            learner_connector: makes connector pieces that see the episodes of an update before it
                learns from them (not with replay); see docs/connectors.md.
            gamma: the discount factor.
            lr: the learning rate.
            torch_lr_schedulers: Torch's schedulers, which change `lr` after each update (PPO and PG):
                `[functools.partial(torch.optim.lr_scheduler.ExponentialLR, gamma=0.99)]`.
            grad_clip: the bound that `grad_clip_by` applies to gradients; None does not clip.
            grad_clip_by: "value" clips each number, "norm" each array by its norm, "global_norm" all by
                their norm.
            adam_epsilon: Adam's ε; larger values make steps with small gradients smaller.
            train_batch_size: env steps sampled for one update.
            num_epochs: how often an update passes over its batch.
            minibatch_size: rows per gradient step; None takes the whole batch.
            shuffle_batch_per_epoch: draw a new order of the rows for every epoch.
            sample_ahead: how many samples env runners play ahead while the main process learns, with
                weights as many updates old (PPO, APPO); True is one.
            learner_config_dict: your own data: callbacks find it in `algorithm.config`, a learner of
                yours in `self.config`.
            model_config: settings of the networks, e.g. `{"fcnet_hiddens": [64, 64]}`; merged into
                earlier values.
            train_batch_size_per_learner: `train_batch_size`: there is one learner. None says nothing.
            lr_schedule: old way to give a schedule for `lr`; None says nothing.
            model: old name of `model_config`; merged into earlier values.
            vf_share_layers: whether policy and value function share layers; stored in `model_config`.
            **old_names: old names of these settings.

        Raises:
            UnknownSettingError: a setting does not exist.
        """


class RLModuleSection(ConfigValues):
    model_config: Setting[dict[str, Any]]
    rl_module_spec: Setting[Any]
    algorithm_config_overrides_per_module: Setting[dict[str, Any]]
    def rl_module(
        self,
        *,
        model_config: Any = ...,
        rl_module_spec: Any = None,
        algorithm_config_overrides_per_module: dict[str, Any] | ToBeDrawn = ...,
        **old_names: Any,
    ) -> Self:
        """Say which networks are used.

        Args:
            model_config: settings of the networks, e.g. `{"fcnet_hiddens": [64, 64]}`; merged into
                earlier values.
            rl_module_spec: an `RLModuleSpec` with a module class of your own.
            algorithm_config_overrides_per_module: by module id: settings that are different for it.
            **old_names: old names of these settings.

        Raises:
            UnknownSettingError: a setting does not exist.
        """


class MultiAgentSection(ConfigValues):
    policies: Setting[Any]
    policy_mapping_fn: Setting[Any]
    policies_to_train: Setting[Any]
    count_steps_by: Setting[str]
    rewards_after_end: Setting[str]
    def multi_agent(
        self,
        *,
        algorithm_config_overrides_per_module: dict[str, Any] | ToBeDrawn = ...,
        policies: Any = ...,
        policy_mapping_fn: Any = None,
        policies_to_train: Any = None,
        count_steps_by: str | ToBeDrawn = 'env_steps',
        rewards_after_end: str | ToBeDrawn = 'credit',
        **old_names: Any,
    ) -> Self:
        """Say which modules act for which agents.

        Args:
            algorithm_config_overrides_per_module: by module id: settings that are different for it.
            policies: modules by id (`{id: PolicySpec}`, an `RLModuleSpec` or None), or just ids; by
                default one module serves all agents.
            policy_mapping_fn: `{agent: module id}`, or a function `fn(agent_id, episode)` that gives an
                agent's module, asked once per episode; see docs/multi-agent.md.
            policies_to_train: ids of the modules that learn, or a function `f(module_id, batch)`, asked
                once per update; None trains all.
            count_steps_by: the steps that `train_batch_size`, `rollout_fragment_length` and other
                numbers of steps count: "env_steps", or "agent_steps", the actions of all agents; see
                docs/multi-agent.md.
            rewards_after_end: a reward of an agent after its end: "credit" adds it to the agent's last
                step if this chunk contains it, else to returns only; "error" refuses it.
            **old_names: old names of these settings.

        Raises:
            UnknownSettingError: a setting does not exist.
        """

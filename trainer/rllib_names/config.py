"""Old names of settings, and RLlib's settings that nothing here reads.

Pure data, and section methods without settings. `trainer.config` reads these tables wherever a name
can be written: arguments of section methods, attributes, items, dict configs, `overrides`. An old
name reads and writes the very value of the new one. Nothing is ignored silently: a setting is
either listed in `UNUSED_SETTINGS`, or does what its section says.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeVar

from trainer.config.settings import NotProvided
from trainer.old_names import OldName, UnusedSetting

# ---- names of today

OLD_SETTINGS: Final[Mapping[str, OldName]] = MappingProxyType(
    {
        # Sampling (2.3.1: `rollouts`).
        "num_workers": OldName("num_env_runners"),
        "num_rollout_workers": OldName("num_env_runners"),
        "num_envs_per_worker": OldName("num_envs_per_env_runner"),
        "create_env_on_driver": OldName("create_env_on_local_worker"),
        "validate_workers_after_construction": OldName("validate_env_runners_after_construction"),
        "max_requests_in_flight_per_sampler_worker": OldName(
            "max_requests_in_flight_per_env_runner", sections=("training",)
        ),
        "synchronize_filter": OldName("update_worker_filter_stats"),
        # Failures (2.3.1: `rollouts`).
        "recreate_failed_workers": OldName("restart_failed_env_runners", sections=("env_runners",)),
        "recreate_failed_env_runners": OldName("restart_failed_env_runners"),
        "ignore_worker_failures": OldName("ignore_env_runner_failures", sections=("env_runners",)),
        "max_num_worker_restarts": OldName("max_num_env_runner_restarts"),
        "delay_between_worker_restarts_s": OldName("delay_between_env_runner_restarts_s"),
        "num_consecutive_worker_failures_tolerance": OldName(
            "num_consecutive_env_runner_failures_tolerance"
        ),
        "worker_health_probe_timeout_s": OldName("env_runner_health_probe_timeout_s"),
        "worker_restore_timeout_s": OldName("env_runner_restore_timeout_s"),
        # Training.
        "lambda": OldName("lambda_"),
        "num_sgd_iter": OldName("num_epochs"),
        "sgd_minibatch_size": OldName("minibatch_size"),
        # What RLlib's example of schedulers means; there it has no effect.
        "exploration": OldName("explore"),
        "_torch_lr_scheduler_classes": OldName("torch_lr_schedulers", sections=("experimental",)),
        "shuffle_sequences": OldName("shuffle_batch_per_epoch"),
        "train_batch_size_per_learner": OldName(
            "train_batch_size",
            none_is_silent=True,
            doc="`train_batch_size`: there is one learner. None says nothing.",
        ),
        "lr_schedule": OldName(
            "lr",
            none_is_silent=True,
            beats_number=True,
            doc="old way to give a schedule for `lr`; None says nothing.",
        ),
        "entropy_coeff_schedule": OldName(
            "entropy_coeff",
            none_is_silent=True,
            beats_number=True,
            doc="old way to give a schedule for `entropy_coeff`; None says nothing.",
        ),
        "model": OldName(
            "model_config",
            sections=("training",),
            none_is_silent=True,
            doc="old name of `model_config`; merged into earlier values.",
        ),
        "model_config_dict": OldName("model_config"),
        "vf_share_layers": OldName(
            "model_config",
            sections=("training",),
            key="vf_share_layers",
            doc="whether policy and value function share layers; stored in `model_config`.",
        ),
        "hiddens": OldName("model_config", sections=("training",), key="head_fcnet_hiddens"),
        # Replay.
        "buffer_size": OldName("replay_buffer_config", key="capacity", none_is_silent=True),
        "prioritized_replay_alpha": OldName(
            "replay_buffer_config", key="alpha", none_is_silent=True
        ),
        "prioritized_replay_beta": OldName("replay_buffer_config", key="beta", none_is_silent=True),
        # Our buffers have it in them; `make_replay_buffer` takes this value and no other.
        "prioritized_replay_eps": OldName(
            "replay_buffer_config", key="prioritized_replay_eps", none_is_silent=True
        ),
        "learning_starts": OldName("num_steps_sampled_before_learning_starts", none_is_silent=True),
        # Callbacks and evaluation.
        "callbacks": OldName("callbacks_class"),
        "evaluation_num_workers": OldName("evaluation_num_env_runners"),
        "custom_eval_function": OldName("custom_evaluation_function"),
        "evaluation_num_episodes": OldName(
            "evaluation_duration",
            none_is_silent=True,
            sets={"evaluation_duration_unit": "episodes"},
        ),
        # Resources, framework, stack.
        "framework": OldName("framework_str"),
        "num_cpus_for_driver": OldName("num_cpus_for_main_process"),
        "num_cpus_for_local_worker": OldName("num_cpus_for_main_process"),
        "num_cpus_per_worker": OldName("num_cpus_per_env_runner", sections=("resources",)),
        "num_gpus_per_worker": OldName("num_gpus_per_env_runner", sections=("resources",)),
        "custom_resources_per_worker": OldName(
            "custom_resources_per_env_runner", sections=("resources",)
        ),
        "num_learner_workers": OldName("num_learners", sections=("resources",)),
        "num_cpus_per_learner_worker": OldName("num_cpus_per_learner", sections=("resources",)),
        "num_gpus_per_learner_worker": OldName("num_gpus_per_learner", sections=("resources",)),
        "_enable_rl_module_api": OldName("enable_rl_module_and_learner", sections=("rl_module",)),
        "_enable_learner_api": OldName("enable_rl_module_and_learner", sections=("training",)),
        "_enable_new_api_stack": OldName(
            "enable_rl_module_and_learner", sections=("experimental",)
        ),
        # Reporting.
        "min_time_s_per_reporting": OldName("min_time_s_per_iteration"),
        "min_iter_time_s": OldName("min_time_s_per_iteration"),
        "timesteps_per_iteration": OldName("min_sample_timesteps_per_iteration"),
        "metrics_smoothing_episodes": OldName("metrics_num_episodes_for_smoothing"),
    }
)
"""Every old name that is still understood."""

OLD_REPLAY_ARGUMENTS: Final[Mapping[str, str]] = MappingProxyType(
    {"prioritized_replay_alpha": "alpha", "prioritized_replay_beta": "beta"}
)
"""Old arguments of replay buffers."""

REFUSED_REPLAY_ARGUMENTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "batch_size_B": "`train_batch_size` says how many transitions an update draws.",
        "batch_length_T": "`ReplayBuffer.sample_sequences(length=…)` draws sequences.",
        "replay_sequence_length": "`ReplayBuffer.sample_sequences(length=…)` draws sequences.",
        "learning_starts": "Use the setting `num_steps_sampled_before_learning_starts`.",
        "metrics_num_episodes_for_smoothing": "The setting of the same name in `.reporting()` "
        "holds for all metrics.",
        "prioritized_replay_eps": "It is always 1e-6.",
        "replay_mode": 'Leave it out: modules learn from samples of their own ("independent").',
        "_enable_replay_buffer_api": "Leave it out: there is no other.",
        "storage_unit": "Capacity always counts env steps.",
    }
)
"""Arguments of RLlib's buffers that ours lack, and what there is instead."""
IDLE_REPLAY_ARGUMENTS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "prioritized_replay_eps": 1e-6,
        "replay_mode": "independent",
        "_enable_replay_buffer_api": True,
        "replay_sequence_length": 1,
        "storage_unit": "timesteps",
        "worker_side_prioritization": False,
    }
)
"""Values of such arguments that ask for what our buffers do anyway; RLlib's examples give them."""

_SLATES: Final = (
    "it chooses slates of documents for recommender systems, which no algorithm here does"
)
_BANDITS: Final = "it explores for contextual bandits with models of their own, which are not here"
REFUSED_EXPLORATIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "SlateEpsilonGreedy": _SLATES,
        "SlateSoftQ": _SLATES,
        "ThompsonSampling": _BANDITS,
        "UpperConfidenceBound": _BANDITS,
    }
)
"""Strategies of RLlib that are not here, with the reason."""

OLD_FILTERS: Final[Mapping[str, str]] = MappingProxyType(
    # The same numbers; in RLlib it may be used by several threads at once, as all may here.
    {"ConcurrentMeanStdFilter": "MeanStdFilter"}
)
"""Old values of `observation_filter`: which one each of them means today."""

_OFFLINE: Final = (
    "This config does not learn from recorded data; BC, MARWIL and CQL do: "
    "`BCConfig().offline_data(input_='recordings')`. Remove the setting."
)
_OFFLINE_RESULTS: Final = (
    "Nothing is evaluated on recorded data; `evaluation(...)` plays in the env. Remove the setting."
)
_OUTPUT: Final = (
    "Give the callback `EpisodeRecorder('recordings')`, which records training and evaluation; or "
    "call `local-trainer record RUN`. Remove the setting."
)
_SHIPPED: Final = "Recordings are read from folders of this machine. Remove the setting."
_OWN_RUNNER: Final = (
    "Env runners of your own are not offered: a runner has to give the same answer again after it "
    "was killed. Change what it does in callbacks (`on_sample_end`, `on_episode_step`), in "
    "wrappers of the env, with connectors (`env_to_module_connector`), or with an "
    "`exploration_config` of your own; "
    "`algorithm.env_runner_group.foreach_env_runner(function)` calls runners."
)
_VIDEO: Final = (
    "Record with the callback `VideoRecorder`, or in the env with `gymnasium.wrappers.RecordVideo`."
)
_FRAMEWORK: Final = (
    "Networks run in NumPy, or in Torch as it comes (`TorchRLModule`). Remove the setting."
)
LEARNER_CLASS: Final = "Name the class of your learner with `training(learner_class=...)`."
_STACK: Final = "There is one implementation. Remove the setting."
_CLUSTER: Final = "There is no cluster here. Remove the setting."
_OFFLINE_NAMES: Final = (
    "input input_ input_config input_read_schema dataset_num_iters_per_learner "
    "actions_in_input_normalized "
)
_OUTPUT_NAMES: Final = (
    "output output_config output_compress_columns output_max_file_size output_max_rows_per_file "
    "output_write_method output_write_method_kwargs output_filesystem output_filesystem_kwargs "
    "output_write_episodes output_write_remaining_data "
)
_SHIPPED_NAMES: Final = (
    "offline_data_class prelearner_class input_filesystem input_filesystem_kwargs "
    "input_compress_columns input_read_sample_batches input_read_episodes "
    "prelearner_use_recorded_module_states "
)
_OFFLINE_RESULT_NAMES: Final = (
    "input_evaluation num_offline_eval_runners on_evaluate_offline_start on_evaluate_offline_end "
    "on_offline_eval_runners_recreated offline_evaluation_interval offline_evaluation_duration "
    "offline_evaluation_type offline_eval_batch_size_per_runner offline_eval_runner_class "
    "offline_loss_for_module_fn offline_evaluation_timeout_s "
    "offline_evaluation_parallel_to_training broadcast_offline_eval_runner_states "
    "restart_failed_offline_eval_runners ignore_offline_eval_runner_failures "
    "max_num_offline_eval_runner_restarts "
    "num_consecutive_offline_eval_runner_failures_tolerance "
    "offline_eval_runner_health_probe_timeout_s offline_eval_rl_module_inference_only "
)
_FRAMEWORK_NAMES: Final = (
    "torch_compile_learner_what_to_compile torch_compile_learner_dynamo_mode "
    "torch_compile_learner_dynamo_backend torch_compile_worker_dynamo_backend "
    "torch_compile_worker_dynamo_mode local_tf_session_args tf_session_args "
    "_tf_policy_handles_more_than_one_loss _torch_grad_scaler_class "
)
_STACK_NAMES: Final = (
    "_disable_execution_plan_api _disable_initialize_loss_from_dummy_batch "
    "_run_training_always_in_thread _evaluation_parallel_to_training_wo_thread "
    "uses_new_env_runners sample_collector "
)
_CLUSTER_NAMES: Final = (
    "extra_python_environs_for_driver extra_python_environs_for_worker _fake_gpus "
    "sync_filters_on_rollout_workers_timeout_s memory_per_worker "
    "object_store_memory_per_worker memory object_store_memory timeout_s_sampler_manager "
    "timeout_s_aggregator_manager num_aggregator_workers "
    "max_requests_in_flight_per_aggregator_worker dist_backend "
)

REFUSED_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "horizon": "It was removed from RLlib. End episodes in the env instead: "
        "`gymnasium.wrappers.TimeLimit(env, max_episode_steps)`.",
        "soft_horizon": "It was removed from RLlib. End or reset episodes in the env instead.",
        "no_done_at_end": "It was removed from RLlib. Return `truncated=True` in `env.step`.",
        **dict.fromkeys(_OFFLINE_NAMES.split(), _OFFLINE),
        **dict.fromkeys(_OUTPUT_NAMES.split(), _OUTPUT),
        **dict.fromkeys(_SHIPPED_NAMES.split(), _SHIPPED),
        **dict.fromkeys(_OFFLINE_RESULT_NAMES.split(), _OFFLINE_RESULTS),
        **dict.fromkeys(_FRAMEWORK_NAMES.split(), _FRAMEWORK),
        **dict.fromkeys(_STACK_NAMES.split(), _STACK),
        **dict.fromkeys(_CLUSTER_NAMES.split(), _CLUSTER),
        "env_runner_cls": _OWN_RUNNER,
        "worker_cls": _OWN_RUNNER,
        "_per_module_overrides": "Give them to `multi_agent("
        "algorithm_config_overrides_per_module={module_id: {...}})`.",
        "_learner_class": LEARNER_CLASS,
        "monitor": _VIDEO,
        "record_env": _VIDEO,
        "video_dir": _VIDEO,
        "epsilon_timesteps": "Give a schedule instead: epsilon=[[0, 1.0], [10000, 0.05]].",
        "final_epsilon": "Give a schedule instead: epsilon=[[0, 1.0], [10000, 0.05]].",
        "worker_side_prioritization": "Priorities are set where the buffer is. Remove the setting.",
        "policy_model": "It was renamed in RLlib: give `policy_model_config`.",
        "q_model": "It was renamed in RLlib: give `q_model_config`.",
        **dict.fromkeys(
            ("actor_hiddens", "actor_hidden_activation"),
            "Give `policy_model_config` with `fcnet_hiddens` and `fcnet_activation`.",
        ),
        **dict.fromkeys(
            ("critic_hiddens", "critic_hidden_activation"),
            "Give `q_model_config` with `fcnet_hiddens` and `fcnet_activation`.",
        ),
        "use_huber": 'Give `td_error_loss_fn="huber"`, which bends at 1.',
        "l2_reg": "Nothing draws weights to 0 here. Remove the setting.",
        "add_transition_columns": _STACK,
        "prioritized_replay": "Name the kind of buffer instead: "
        'replay_buffer_config={"type": "PrioritizedEpisodeReplayBuffer"} where it was True, '
        '{"type": "EpisodeReplayBuffer"} where it was False.',
        "replay_mode": "It was removed from RLlib. Remove the setting.",
        "policy_map_cache": "It was removed from RLlib. Remove the setting.",
        "simple_optimizer": "It chose between two implementations. Remove the setting.",
        "num_multi_gpu_tower_stacks": "There are no GPU towers here. Remove the setting.",
    }
)
"""Names without successor, with what to do; refused unless their value asks for nothing."""

REFUSED_SECTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "offline_data": "BC, MARWIL and CQL learn from recorded data: "
        "`BCConfig().offline_data(...)`. Remove the call here; `EpisodeRecorder` records episodes.",
        "python_environment": "Processes get the environment of the main process. Remove the call.",
    }
)
"""Section methods of RLlib that are not here, with what to do."""

OLD_DICTS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        name: MappingProxyType(
            {
                "actor_learning_rate": "actor_lr",
                "critic_learning_rate": "critic_lr",
                "entropy_learning_rate": "alpha_lr",
            }
        )
        for name in ("optimization", "optimization_config")
    }
)
"""Old dicts whose entries are settings of their own today: arguments of `training()`."""

REFUSED_EVEN_IF_FALSE: Final = frozenset({"prioritized_replay"})
"""Names without successor of which False asks for something, so that only None is silent."""

OLD_SECTIONS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"rollouts": ("env_runners", "fault_tolerance"), "exploration": ("env_runners",)}
)
"""Old section methods that were divided: the sections whose arguments they accept."""

# ---- less than in RLlib


_DEFAULT_CONNECTORS: Final = (
    "Leave it out: encoding, and scaling or clipping of actions, belong to the networks here. "
    "`normalize_actions=False` and `clip_actions=False` leave actions as they are."
)
_LEARNER_CONNECTOR: Final = (
    "Leave it out: learners make the batch from episodes themselves. Pieces of "
    "`learner_connector` come before that, and the callback `on_learn_on_batch` changes the batch."
)
_ONE_LEARNER: Final = "Leave it out: learning runs in the main process."
_LOGGERS: Final = (
    "Give callbacks that write results: `CSVLogger`, `JSONLinesLogger`, `TensorBoardLogger` and "
    "others of `callbacks`, or one of your own with `on_train_result`."
)

_NO_CLUSTER: Final = "Nothing is reserved on a single machine."
_DEVICE: Final = (
    'A `TorchRLModule` learns on an accelerator with `model_config={"device": "cuda"}`.'
)
_READ_AS_NEEDED: Final = "Recordings are held in memory up to 1 GiB, and read again beyond."
_NO_TORCH: Final = "Networks run in NumPy; for Torch, see `TorchRLModule`."
_ALWAYS_MERGED: Final = (
    "Statistics of normalisation are always those of all runners, and sent to all of them."
)
_ONE_STACK: Final = "There is one implementation, under the new names and the old."


def _refused(default: Any, advice: str) -> UnusedSetting:
    return UnusedSetting(default, advice, is_refused=True)


_LAG: Final = "Samples are as many updates old as `sample_ahead` says: there is no queue or buffer."

UNUSED_SETTINGS: Final[Mapping[str, UnusedSetting]] = MappingProxyType(
    {
        # Of APPO and IMPALA.
        "broadcast_interval": UnusedSetting(1, _LAG),
        "use_circular_buffer": UnusedSetting(True, _LAG),
        "circular_buffer_num_batches": UnusedSetting(8, _LAG),
        "circular_buffer_iterations_per_batch": UnusedSetting(2, _LAG),
        "simple_queue_size": UnusedSetting(32, _LAG),
        "learner_queue_size": UnusedSetting(3, _LAG),
        "learner_queue_timeout": UnusedSetting(300, _LAG),
        "num_gpu_loader_threads": UnusedSetting(8, _LAG),
        "minibatch_buffer_size": UnusedSetting(1, _LAG),
        "replay_proportion": UnusedSetting(0.0, _LAG),
        "replay_buffer_num_slots": UnusedSetting(100, _LAG),
        "opt_type": UnusedSetting("adam", "Adam with `lr` and `grad_clip` is used."),
        "momentum": UnusedSetting(0.0, "Adam with `lr` and `grad_clip` is used."),
        "decay": UnusedSetting(0.99, "Adam with `lr` and `grad_clip` is used."),
        "target_worker_clipping": UnusedSetting(
            2.0, "V-trace bounds the ratios: `vtrace_clip_rho_threshold`."
        ),
        "is_atari": UnusedSetting(None, "Atari envs get no wrappers of their own."),
        "auto_wrap_old_gym_envs": UnusedSetting(True, "Envs follow gymnasium's API."),
        "create_env_on_local_worker": UnusedSetting(
            False, "The main process makes an env when it needs one."
        ),
        "create_local_env_runner": UnusedSetting(
            True, "The main process plays if no other does: `num_env_runners=0`."
        ),
        "num_gpus_per_env_runner": UnusedSetting(0, _NO_CLUSTER),
        "validate_env_runners_after_construction": UnusedSetting(
            True, "Runners are always checked."
        ),
        "max_requests_in_flight_per_env_runner": UnusedSetting(
            1, "A runner has one request at a time."
        ),
        "merge_env_runner_states": UnusedSetting("training_only", _ALWAYS_MERGED),
        "broadcast_env_runner_states": UnusedSetting(True, _ALWAYS_MERGED),
        "compress_observations": UnusedSetting(False, "Observations stay on the machine."),
        "remote_env_batch_wait_ms": UnusedSetting(0, "Envs run in the process of their runner."),
        "preprocessor_pref": UnusedSetting("deepmind", "Atari envs get no wrappers of their own."),
        "use_worker_filter_stats": UnusedSetting(True, _ALWAYS_MERGED),
        "update_worker_filter_stats": UnusedSetting(True, _ALWAYS_MERGED),
        "enable_connectors": UnusedSetting(True, _ONE_STACK),
        "num_cpus_per_learner": UnusedSetting("auto", _NO_CLUSTER),
        "num_gpus_per_learner": UnusedSetting(0, _DEVICE),
        "max_requests_in_flight_per_aggregator_actor": UnusedSetting(3, _NO_CLUSTER),
        "local_gpu_idx": UnusedSetting(0, _DEVICE),
        "input_read_method": UnusedSetting(
            "read_parquet", "How recordings are read follows from the names of the files."
        ),
        "input_read_method_kwargs": UnusedSetting({}, _READ_AS_NEEDED),
        "input_read_batch_size": UnusedSetting(None, _READ_AS_NEEDED),
        "materialize_data": UnusedSetting(False, _READ_AS_NEEDED),
        "materialize_mapped_data": UnusedSetting(True, _READ_AS_NEEDED),
        "map_batches_kwargs": UnusedSetting({}, _READ_AS_NEEDED),
        "iter_batches_kwargs": UnusedSetting({}, _READ_AS_NEEDED),
        "prelearner_buffer_class": UnusedSetting(None, _READ_AS_NEEDED),
        "prelearner_buffer_kwargs": UnusedSetting({}, _READ_AS_NEEDED),
        "prelearner_module_synch_period": UnusedSetting(10, "Values are always the newest."),
        "offline_sampling": UnusedSetting(False, "It follows from the algorithm."),
        "ignore_final_observation": UnusedSetting(
            False, "An episode without its last observation is learnt from without its value."
        ),
        "postprocess_inputs": UnusedSetting(False, "Returns are computed where they are needed."),
        "shuffle_buffer_size": UnusedSetting(
            0, "Each pass over recordings has an order of its own, drawn from the seed."
        ),
        "max_requests_in_flight_per_learner": UnusedSetting(
            3, "Learning runs in the main process."
        ),
        "evaluation_force_reset_envs_before_iteration": UnusedSetting(
            True, "Evaluations always play fresh episodes."
        ),
        "ope_split_batch_by_episode": UnusedSetting(True, "There is no off-policy evaluation."),
        "env_runner_health_probe_timeout_s": UnusedSetting(
            30.0, "The death of a process is noticed without probing."
        ),
        "metrics_episode_collection_timeout_s": UnusedSetting(
            60.0, "Metrics arrive together with the samples."
        ),
        "log_gradients": UnusedSetting(True, "The global norm of gradients is always reported."),
        "export_native_model_files": UnusedSetting(
            False, "Checkpoints hold the weights as plain arrays."
        ),
        "log_level": UnusedSetting("WARN", 'Use `logging.getLogger("trainer").setLevel(...)`.'),
        "log_sys_usage": UnusedSetting(True, "CPU and memory use are not reported."),
        "policy_map_capacity": UnusedSetting(100, "All modules stay in memory."),
        "policy_states_are_swappable": UnusedSetting(False, "All modules stay in memory."),
        "num_cpus_for_main_process": UnusedSetting(1, _NO_CLUSTER),
        "num_gpus": UnusedSetting(0, _DEVICE),
        "framework_str": UnusedSetting("torch", _NO_TORCH),
        "eager_tracing": UnusedSetting(True, _NO_TORCH),
        "eager_max_retraces": UnusedSetting(20, _NO_TORCH),
        "torch_compile_learner": UnusedSetting(False, _NO_TORCH),
        "torch_compile_worker": UnusedSetting(False, _NO_TORCH),
        "torch_ddp_kwargs": UnusedSetting({}, _NO_TORCH),
        "torch_skip_nan_gradients": UnusedSetting(False, _NO_TORCH),
        "enable_rl_module_and_learner": UnusedSetting(True, _ONE_STACK),
        "enable_env_runner_and_connector_v2": UnusedSetting(True, _ONE_STACK),
        "_use_msgpack_checkpoints": UnusedSetting(False, "Checkpoints never hold pickles."),
        "_disable_preprocessor_api": UnusedSetting(False, _ONE_STACK),
        "_disable_action_flattening": UnusedSetting(False, _ONE_STACK),
        # Refused unless they ask for nothing.
        "render_env": _refused(
            False, "Render in the env, e.g. with `gymnasium.wrappers.RecordVideo`."
        ),
        "add_default_connectors_to_env_to_module_pipeline": _refused(True, _DEFAULT_CONNECTORS),
        "add_default_connectors_to_module_to_env_pipeline": _refused(True, _DEFAULT_CONNECTORS),
        "add_default_connectors_to_learner_pipeline": _refused(True, _LEARNER_CONNECTOR),
        "episodes_to_numpy": _refused(True, "Leave it out: episodes give lists and arrays alike."),
        "remote_worker_envs": _refused(False, "Use more runners: `num_env_runners`."),
        "sample_async": _refused(False, "Use more runners: `num_env_runners`."),
        "optimizer": _refused({}, "Leave it out: Adam with `lr` and `grad_clip` is used."),
        "num_learners": _refused(0, _ONE_LEARNER),
        "num_aggregator_actors_per_learner": _refused(0, _ONE_LEARNER),
        "huber_threshold": _refused(1.0, "Leave it out: the loss bends at 1."),
        "use_state_preprocessor": _refused(False, "Leave it out: give more `fcnet_hiddens`."),
        "observation_fn": _refused(None, "Change observations in a wrapper of the env."),
        "off_policy_estimation_methods": _refused(
            {}, "There is no off-policy evaluation. Leave it out: evaluate in an env."
        ),
        "checkpoint_trainable_policies_only": _refused(False, "Leave it out: everything is saved."),
        "logger_creator": _refused(None, _LOGGERS),
        "logger_config": _refused(None, _LOGGERS),
        "fake_sampler": _refused(False, "Leave it out and give a cheap env."),
        "_validate_config": _refused(True, "Settings are always checked; correct them instead."),
        "noisy": _refused(
            False,
            "Explore with `epsilon`, or with an `exploration_config` such as "
            "ParameterNoise, which perturbs the weights.",
        ),
        "sigma0": _refused(
            0.5,
            "It belongs to noisy networks, which are not offered; leave it out.",
        ),
        "before_learn_on_batch": _refused(
            None,
            "Change batches in the callback `on_learn_on_batch`: "
            "`config.callbacks(on_learn_on_batch=...)`.",
        ),
        "burn_in_len": _refused(
            0,
            "It belongs to recurrent networks, which DQN does not train; leave it out.",
        ),
        "categorical_distribution_temperature": _refused(
            1.0,
            "Actions are chosen by the largest value. For a temperature, use "
            'exploration_config={"type": "SoftQ", "temperature": ...}.',
        ),
        "_use_beta_distribution": _refused(
            False,
            "The policy is a squashed normal distribution; leave it out.",
        ),
        "lagrangian": _refused(
            False, "The weight of CQL's conservative term is a number here: `min_q_weight`."
        ),
        "lagrangian_thresh": UnusedSetting(5.0, "It belongs to `lagrangian`."),
        "bc_logstd_coeff": _refused(0.0, "The loss has no such term; leave it out."),
        "burnin_len": _refused(0, "Each sequence begins with its recorded state; leave it out."),
        "_deterministic_loss": _refused(
            False,
            "The losses need actions drawn from the policy; leave it out. For an exact "
            "rerun, `debugging(seed=...)` is enough.",
        ),
    }
)
"""Settings that nothing here reads: without effect, or refused with what to do instead."""

_MODULE_CLASS: Final = "Name the class in the config: `config.rl_module(rl_module_spec=...)`."

CONFIG_OVERRIDES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "build_learner": LEARNER_CLASS,
        "build_learner_group": LEARNER_CLASS,
        "build_env_to_module_connector": "Give `env_runners(env_to_module_connector=...)`.",
        "build_module_to_env_connector": "Give `env_runners(module_to_env_connector=...)`.",
        "build_learner_connector": "Give `training(learner_connector=...)`.",
    }
)
"""Methods of RLlib's configs that are never called here, with what to write instead."""


# ---- sections


class TakesSections(Protocol):
    """What these methods need of a config."""

    def set_from_section(self, section: str, given: Mapping[str, Any]) -> None:
        """Set what the arguments `given` of the section method `section` name."""


TakerT = TypeVar("TakerT", bound=TakesSections)


class SectionNames:
    """Section methods of RLlib's that were divided, or whose settings nothing here reads."""

    def rollouts(self: TakerT, **settings: Any) -> TakerT:
        """Old name of `env_runners()` and `fault_tolerance()`; takes the arguments of both.

        Raises:
            UnknownSettingError: an argument belongs to neither section.
        """
        self.set_from_section("rollouts", settings)
        return self

    def exploration(self: TakerT, **settings: Any) -> TakerT:
        """Old name of `env_runners()`, for `explore` and `exploration_config`."""
        self.set_from_section("exploration", settings)
        return self

    def learners(self: TakerT, **settings: Any) -> TakerT:
        """Where learning runs: here always in the main process, so that it takes what asks for it.

        Raises:
            UnknownSettingError: an argument does not exist.
        """
        self.set_from_section("learners", settings)
        return self

    def framework(self: TakerT, framework: Any = NotProvided, **settings: Any) -> TakerT:
        """A deep-learning framework and its options, which have no effect here.

        Raises:
            UnknownSettingError: an argument does not exist.
        """
        self.set_from_section("framework", {"framework": framework, **settings})
        return self

    def api_stack(
        self: TakerT,
        enable_rl_module_and_learner: bool = NotProvided,
        enable_env_runner_and_connector_v2: bool = NotProvided,
    ) -> TakerT:
        """One of RLlib's two implementations; here there is one."""
        given = {
            "enable_rl_module_and_learner": enable_rl_module_and_learner,
            "enable_env_runner_and_connector_v2": enable_env_runner_and_connector_v2,
        }
        self.set_from_section("api_stack", given)
        return self

    def checkpointing(
        self: TakerT,
        export_native_model_files: bool = NotProvided,
        checkpoint_trainable_policies_only: bool = NotProvided,
    ) -> TakerT:
        """What checkpoints hold: here always everything, as plain arrays."""
        given = {
            "export_native_model_files": export_native_model_files,
            "checkpoint_trainable_policies_only": checkpoint_trainable_policies_only,
        }
        self.set_from_section("checkpointing", given)
        return self

    def experimental(self: TakerT, **settings: Any) -> TakerT:
        """Switches of RLlib's, which have no effect here.

        Raises:
            UnknownSettingError: an argument does not exist.
        """
        self.set_from_section("experimental", settings)
        return self

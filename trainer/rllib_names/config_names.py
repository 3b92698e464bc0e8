"""Old names of settings: which setting each of them means today.

Pure data. `trainer.config` reads these tables wherever a name can be written: arguments of section
methods, attributes, items, dict configs, `overrides`. An old name reads and writes the very value
of the new one. The file holds no behaviour and could be deleted together with its folder.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final


@dataclasses.dataclass(frozen=True)
class OldName:
    """What an old name of a setting stands for.

    Attributes:
        new: the name of the setting today.
        sections: further section methods that accepted the old name (the section of `new` always
            does).
        key: when not empty, the old name is one entry `key` of the dict-valued setting `new`.
        none_is_silent: None means "not given" and changes nothing.
        beats_number: given together with a plain number for `new`, the old name wins (a schedule
            over a constant).
        sets: further settings that come along, by their present names.
    """

    new: str
    sections: tuple[str, ...] = ()
    key: str = ""
    none_is_silent: bool = False
    beats_number: bool = False
    sets: Mapping[str, Any] = dataclasses.field(default_factory=dict)


OLD_NAMES: Final[Mapping[str, OldName]] = MappingProxyType(
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
        "shuffle_sequences": OldName("shuffle_batch_per_epoch"),
        "train_batch_size_per_learner": OldName("train_batch_size", none_is_silent=True),
        "lr_schedule": OldName("lr", none_is_silent=True, beats_number=True),
        "entropy_coeff_schedule": OldName("entropy_coeff", none_is_silent=True, beats_number=True),
        "model": OldName("model_config", sections=("training",), none_is_silent=True),
        "model_config_dict": OldName("model_config"),
        "vf_share_layers": OldName("model_config", sections=("training",), key="vf_share_layers"),
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

OLD_FILTERS: Final[Mapping[str, str]] = MappingProxyType(
    # The same numbers; in RLlib it may be used by several threads at once, as all may here.
    {"ConcurrentMeanStdFilter": "MeanStdFilter"}
)
"""Old values of `observation_filter`: which one each of them means today."""

_OFFLINE: Final = "Learning from recorded data is not part of this trainer. Remove the setting."

REFUSED_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "horizon": "It was removed from RLlib. End episodes in the env instead: "
        "`gymnasium.wrappers.TimeLimit(env, max_episode_steps)`.",
        "soft_horizon": "It was removed from RLlib. End or reset episodes in the env instead.",
        "no_done_at_end": "It was removed from RLlib. Return `truncated=True` in `env.step`.",
        "input": _OFFLINE,
        "input_": _OFFLINE,
        "input_config": _OFFLINE,
        "input_evaluation": _OFFLINE,
        "output": _OFFLINE,
        "output_config": _OFFLINE,
        "num_offline_eval_runners": _OFFLINE,
        "on_evaluate_offline_start": _OFFLINE,
        "on_evaluate_offline_end": _OFFLINE,
        "on_offline_eval_runners_recreated": _OFFLINE,
        "offline_evaluation_interval": _OFFLINE,
        "offline_evaluation_duration": _OFFLINE,
        "offline_evaluation_type": _OFFLINE,
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

REFUSED_EVEN_IF_FALSE: Final = frozenset({"prioritized_replay"})
"""Names without successor of which False asks for something, so that only None is silent."""

OLD_SECTIONS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"rollouts": ("env_runners", "fault_tolerance")}
)
"""Old section methods that were divided: the sections whose arguments they accept."""

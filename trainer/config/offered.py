"""Settings that are known but do less here than in RLlib: refused for now, or without effect.

Nothing is ignored silently: a setting is either listed in one of these two tables or does what its
section says. When a feature lands, its line in `NOT_OFFERED` is removed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from trainer.config.settings import Problem, Setting, assignment, same_value
from trainer.types import DEFAULT_MODULE_ID


@dataclasses.dataclass(frozen=True)
class NotOffered:
    """A setting that this version accepts only with values that ask for nothing.

    Attributes:
        advice: what to do instead, a sentence.
        allowed: the values that are fine besides the default.
    """

    advice: str
    allowed: Callable[[Any], bool] = lambda _: False


def _asks_for_one_module(value: Any) -> bool:
    return isinstance(value, (dict, list, tuple, set, frozenset)) and (
        list(value) == [DEFAULT_MODULE_ID]
    )


def _trains_one_module(value: Any) -> bool:
    return value is None or _asks_for_one_module(value)


_ONE_AGENT: Final = "Multi-agent training comes later; leave it out and train one agent."
_DEFAULT_CONNECTORS: Final = (
    "Leave it out: encoding, and scaling or clipping of actions, belong to the networks here. "
    "`normalize_actions=False` and `clip_actions=False` leave actions as they are."
)
_LEARNER_CONNECTOR: Final = (
    "Connectors before the learner are not offered: learners read columns, not pieces. Change "
    "rewards and advantages in the callback `on_postprocess_trajectory`, the train batch in "
    "`on_learn_on_batch`, observations with `env_to_module_connector`."
)
_ONE_LEARNER: Final = "Leave it out: learning runs in the main process."
_OWN_LEARNER: Final = "Learners of your own come later; leave it out."
_LOGGERS: Final = "Write results yourself in the callback `on_train_result`."

NOT_OFFERED: Final[Mapping[str, NotOffered]] = MappingProxyType(
    {
        "render_env": NotOffered("Render in the env, e.g. with `gymnasium.wrappers.RecordVideo`."),
        "create_local_env_runner": NotOffered("Leave it out: the main process can always sample."),
        "gym_env_vectorize_mode": NotOffered(
            'Leave it at "SYNC" and use more runners: `num_env_runners`.'
        ),
        "add_default_connectors_to_env_to_module_pipeline": NotOffered(_DEFAULT_CONNECTORS),
        "add_default_connectors_to_module_to_env_pipeline": NotOffered(_DEFAULT_CONNECTORS),
        "learner_connector": NotOffered(_LEARNER_CONNECTOR),
        "add_default_connectors_to_learner_pipeline": NotOffered(_LEARNER_CONNECTOR),
        "episodes_to_numpy": NotOffered("Leave it out: episodes give lists and arrays alike."),
        "remote_worker_envs": NotOffered("Use more runners: `num_env_runners`."),
        "sample_async": NotOffered("Use more runners: `num_env_runners`."),
        "optimizer": NotOffered("Leave it out: Adam with `lr` and `grad_clip` is used."),
        "learner_class": NotOffered(_OWN_LEARNER),
        "num_learners": NotOffered(_ONE_LEARNER),
        "num_aggregator_actors_per_learner": NotOffered(_ONE_LEARNER),
        "algorithm_config_overrides_per_module": NotOffered(_ONE_AGENT),
        "policies": NotOffered(_ONE_AGENT, _asks_for_one_module),
        "policies_to_train": NotOffered(_ONE_AGENT, _trains_one_module),
        "observation_fn": NotOffered(_ONE_AGENT),
        "off_policy_estimation_methods": NotOffered("Learning from recorded data is not offered."),
        "checkpoint_trainable_policies_only": NotOffered("Leave it out: everything is saved."),
        "logger_creator": NotOffered(_LOGGERS),
        "logger_config": NotOffered(_LOGGERS),
        "fake_sampler": NotOffered("Leave it out and give a cheap env."),
        "_validate_config": NotOffered("Settings are always checked; correct them instead."),
    }
)
"""Settings refused unless they ask for nothing, with what to do instead."""

_NO_CLUSTER: Final = "Nothing is reserved on a single machine."
_NO_TORCH: Final = "Networks run in NumPy."
_ALWAYS_MERGED: Final = (
    "Statistics of normalisation are always those of all runners, and sent to all of them."
)
_ONE_STACK: Final = "There is one implementation, under the new names and the old."

NO_EFFECT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "is_atari": "Atari envs get no wrappers of their own.",
        "auto_wrap_old_gym_envs": "Envs follow gymnasium's API.",
        "create_env_on_local_worker": "The main process makes an env when it needs one.",
        "num_cpus_per_env_runner": _NO_CLUSTER,
        "num_gpus_per_env_runner": _NO_CLUSTER,
        "custom_resources_per_env_runner": _NO_CLUSTER,
        "validate_env_runners_after_construction": "Runners are always checked.",
        "max_requests_in_flight_per_env_runner": "A runner has one request at a time.",
        "merge_env_runner_states": _ALWAYS_MERGED,
        "broadcast_env_runner_states": _ALWAYS_MERGED,
        "compress_observations": "Observations stay on the machine.",
        "remote_env_batch_wait_ms": "Envs run in the process of their runner.",
        "preprocessor_pref": "Atari envs get no wrappers of their own.",
        "use_worker_filter_stats": _ALWAYS_MERGED,
        "update_worker_filter_stats": _ALWAYS_MERGED,
        "enable_connectors": _ONE_STACK,
        "learner_config_dict": "It is your own data; nothing here reads it.",
        "num_cpus_per_learner": _NO_CLUSTER,
        "num_gpus_per_learner": _NO_CLUSTER,
        "max_requests_in_flight_per_aggregator_actor": _NO_CLUSTER,
        "local_gpu_idx": _NO_TORCH,
        "max_requests_in_flight_per_learner": "Learning runs in the main process.",
        "evaluation_force_reset_envs_before_iteration": "Evaluations always play fresh episodes.",
        "ope_split_batch_by_episode": "Recorded data is not evaluated.",
        "env_runner_health_probe_timeout_s": "The death of a process is noticed without probing.",
        "metrics_episode_collection_timeout_s": "Metrics arrive together with the samples.",
        "log_gradients": "The global norm of gradients is always reported.",
        "export_native_model_files": "Checkpoints hold the weights as plain arrays.",
        "log_level": 'Use `logging.getLogger("trainer").setLevel(...)`.',
        "log_sys_usage": "CPU and memory use are not reported.",
        "policy_map_capacity": "All modules stay in memory.",
        "policy_mapping_fn": "There is one module, so every agent is mapped to it.",
        "policy_states_are_swappable": "All modules stay in memory.",
        "count_steps_by": "With one agent, env steps are agent steps.",
        "num_cpus_for_main_process": _NO_CLUSTER,
        "num_gpus": _NO_TORCH,
        "placement_strategy": _NO_CLUSTER,
        "framework_str": _NO_TORCH,
        "eager_tracing": _NO_TORCH,
        "eager_max_retraces": _NO_TORCH,
        "torch_compile_learner": _NO_TORCH,
        "torch_compile_worker": _NO_TORCH,
        "torch_ddp_kwargs": _NO_TORCH,
        "torch_skip_nan_gradients": _NO_TORCH,
        "enable_rl_module_and_learner": _ONE_STACK,
        "enable_env_runner_and_connector_v2": _ONE_STACK,
        "_use_msgpack_checkpoints": "Checkpoints never hold pickles.",
        "_disable_preprocessor_api": _ONE_STACK,
        "_disable_action_flattening": _ONE_STACK,
    }
)
"""Settings that are accepted and stored and change nothing here, with the reason."""


def not_offered_problems(
    settings: Mapping[str, Setting[Any]], values: Mapping[str, Any]
) -> Iterator[Problem]:
    """The settings that ask for something that this version does not offer.

    Args:
        settings: the settings of a config class.
        values: the value of each of them.
    """
    for name, limit in NOT_OFFERED.items():
        value = values[name]
        if same_value(value, settings[name].default) or limit.allowed(value):
            continue
        yield Problem(
            assignment(name, value), "not offered in this version.", limit.advice, (name,)
        )

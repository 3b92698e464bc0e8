"""RLlib's names around metrics: old members of `MetricsLogger`, old keys of results, constants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol

from trainer.rllib_names.episodes import SampleBatchNames
from trainer.types import DEFAULT_MODULE_ID

# ---- metrics
#
# Old names of the members of `MetricsLogger`, and where results keep what old keys named. Old
# keys resolve when asked for, `result["episode_reward_mean"]`, but are not listed, printed or
# written.

# ---- loggers


class _MetricsLogger(Protocol):
    def aggregate(self, stats_dicts: Iterable[Mapping[Any, Any]], *, key: Any = None) -> None: ...


class MetricsLoggerNames:
    """Adds the older names to a metrics logger."""

    def merge_and_log_n_dicts(
        self: _MetricsLogger, stats_dicts: Iterable[Mapping[Any, Any]], *, key: Any = None
    ) -> None:
        """Older name of `aggregate`."""
        self.aggregate(stats_dicts, key=key)


# ---- results

OLD_PATHS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "episode_reward_mean": ("env_runners/episode_return_mean",),
        "episode_reward_min": ("env_runners/episode_return_min",),
        "episode_reward_max": ("env_runners/episode_return_max",),
        "episode_return_mean": ("env_runners/episode_return_mean",),
        "episode_return_min": ("env_runners/episode_return_min",),
        "episode_return_max": ("env_runners/episode_return_max",),
        "episode_len_mean": ("env_runners/episode_len_mean",),
        "episodes_this_iter": ("env_runners/num_episodes",),
        "episodes_total": ("env_runners/num_episodes_lifetime",),
        "timesteps_total": (
            "num_env_steps_sampled_lifetime",
            "env_runners/num_env_steps_sampled_lifetime",
        ),
        "num_env_steps_sampled": (
            "num_env_steps_sampled_lifetime",
            "env_runners/num_env_steps_sampled_lifetime",
            "env_runners/num_env_steps_sampled",
        ),
        "num_env_steps_sampled_this_iter": ("env_runners/num_env_steps_sampled",),
        "timesteps_this_iter": ("env_runners/num_env_steps_sampled",),
        "num_env_steps_trained": ("learners/__all_modules__/num_env_steps_trained_lifetime",),
        "num_env_steps_trained_this_iter": ("learners/__all_modules__/num_env_steps_trained",),
        "num_steps_trained_this_iter": ("learners/__all_modules__/num_env_steps_trained",),
        "num_agent_steps_trained": (
            "learners/__all_modules__/num_agent_steps_trained_lifetime",
            "learners/__all_modules__/num_env_steps_trained_lifetime",
        ),
        "num_agent_steps_trained_this_iter": (
            "learners/__all_modules__/num_agent_steps_trained",
            "learners/__all_modules__/num_env_steps_trained",
        ),
        "num_agent_steps_sampled": ("env_runners/num_agent_steps_sampled_lifetime",),
        "num_agent_steps_sampled_lifetime": ("env_runners/num_agent_steps_sampled_lifetime",),
        "num_agent_steps_sampled_this_iter": ("env_runners/num_agent_steps_sampled",),
        "agent_timesteps_total": ("env_runners/num_agent_steps_sampled_lifetime",),
        "policy_reward_mean": (
            "env_runners/module_agent_return_mean",
            "env_runners/module_episode_return_mean",
        ),
        "agent_episode_returns_mean": ("env_runners/agent_episode_return_mean",),
        "module_episode_returns_mean": ("env_runners/module_episode_return_mean",),
        "agent_steps": ("env_runners/agent_episode_len_mean",),
        "custom_metrics": ("env_runners/custom_metrics",),
        "hist_stats": ("env_runners/hist_stats",),
        "episode_media": ("env_runners/episode_media",),
        "sampler_results": ("env_runners",),
        "num_healthy_workers": ("fault_tolerance/num_healthy_workers",),
        "num_remote_worker_restarts": ("fault_tolerance/num_remote_worker_restarts",),
        "num_faulty_episodes": ("fault_tolerance/num_episodes_lost",),
    }
)
"""{old key: paths to look at, in this order}."""

_SUMMED: Final = frozenset(
    {
        "num_agent_steps_sampled",
        "num_agent_steps_sampled_lifetime",
        "num_agent_steps_sampled_this_iter",
        "agent_timesteps_total",
    }
)
_BY_AGENT_STEPS: Final = MappingProxyType(
    {
        "timesteps_total": "agent_timesteps_total",
        "timesteps_this_iter": "num_agent_steps_sampled_this_iter",
        "num_steps_trained_this_iter": "num_agent_steps_trained_this_iter",
    }
)
"""What old keys mean with `count_steps_by="agent_steps"`."""
_MAYBE_EMPTY: Final = frozenset({"custom_metrics", "hist_stats", "episode_media"})
_NOT_MEASURED: Final = frozenset({"perf", "sampler_perf", "connector_metrics"})
_LEARNER_STATS: Final = MappingProxyType(
    {
        "cur_lr": "default_optimizer_learning_rate",
        "cur_kl_coeff": "curr_kl_coeff",
        "entropy_coeff": "curr_entropy_coeff",
        "kl": "mean_kl_loss",
        "grad_gnorm": "gradients_default_optimizer_global_norm",
        "mean_q": "qf_mean",
        "min_q": "qf_min",
        "max_q": "qf_max",
        "mean_td_error": "td_error_mean",
        "critic_loss": "qf_loss",
        "actor_loss": "policy_loss",
        "policy_entropy": "entropy",
    }
)
_COUNTERS: Final = (
    "num_env_steps_sampled",
    "num_env_steps_trained",
    "num_agent_steps_sampled",
    "num_agent_steps_trained",
)
_BY_MODULE: Final = MappingProxyType(
    {"policy_reward_min": "episode_return_min", "policy_reward_max": "episode_return_max"}
)

OLD_KEYS: Final = frozenset({*OLD_PATHS, *_BY_MODULE, *_NOT_MEASURED, "info", "counters"})
"""All old keys."""


def old_value(result: Mapping[str, Any], key: str) -> Any:
    """What an old key means in a result.

    Args:
        result: a result with slash paths; one of its parts (such as `result["evaluation"]`) will
            do.
        key: one of `OLD_KEYS`.

    Raises:
        KeyError: this result has no such value.
    """
    if key == "info":
        return {"learner": _learner_info(result), **_counters(result)}
    if key == "counters":
        return _counters(result)
    if key in _NOT_MEASURED and "env_runners" in result:
        return {}
    if key in _BY_AGENT_STEPS:
        settings = result.get("config", {})
        if settings.get("count_steps_by") == "agent_steps":
            key = _BY_AGENT_STEPS[key]
    if key in _BY_MODULE:
        return _of_the_only_module(result, _BY_MODULE[key])
    for path in OLD_PATHS.get(key, ()):
        for candidate in (path, path.removeprefix("env_runners/")):
            if candidate != key and candidate in result:
                value = result[candidate]
                return sum(value.values()) if key in _SUMMED and isinstance(value, dict) else value
    if key in _MAYBE_EMPTY and "env_runners" in result:
        return {}
    raise KeyError(key)


def _of_the_only_module(result: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A number by module id: of its agents, or of whole episodes, as long as one module plays."""
    runners = result.get("env_runners", result)
    of_agents = f"module_agent_return_{name[-3:]}"
    if of_agents in runners:
        return dict(runners[of_agents])
    module_ids = list(runners["module_episode_return_mean"])
    if len(module_ids) > 1:
        raise KeyError(name)
    return dict.fromkeys(module_ids, runners[name])


def _learner_info(result: Mapping[str, Any]) -> dict[str, Any]:
    learners = result["learners"]
    return {
        module_id: {"learner_stats": _with_old_names(values), "custom_metrics": {}}
        for module_id, values in learners.items()
        if module_id != "__all_modules__"
    }


def _with_old_names(values: Mapping[str, Any]) -> dict[str, Any]:
    old = {name: values[new] for name, new in _LEARNER_STATS.items() if new in values}
    return {**values, **old}


def _counters(result: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in _COUNTERS:
        try:
            found[key] = old_value(result, key)
        except KeyError:  # a part of a result, or an algorithm without this counter
            continue
    return found


# ---- reductions

NEWER_REDUCTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "item_series": "For the list of all values write reduce=None.",
        "lifetime_sum": 'For the sum of all values ever write reduce="sum", without '
        "clear_on_reduce.",
        "lifetime_mean": 'For the mean of all values ever write window=float("inf").',
        "ema": "For a moving average write ema_coeff=0.01, or another weight of a new value.",
        "percentiles": "For percentiles write reduce=None, window=100, percentiles=[5, 95].",
    }
)
"""What newer RLlib versions call reductions, and how they are written here."""


# ---- constants
#
# RLlib's constants: the keys of results, the names of columns, and the default ids. For scripts
# written for RLlib: what they import from `ray.rllib.utils.metrics`, `ray.rllib.core`,
# `ray.rllib.core.columns` and `ray.tune.result` can be imported from `trainer`. Each constant is
# the plain string that stands in results and batches, so both ways to write a key mean the same.

# ---- ids

DEFAULT_POLICY_ID: Final = DEFAULT_MODULE_ID

# ---- sections of a result

ENV_RUNNER_RESULTS: Final = "env_runners"
EVALUATION_RESULTS: Final = "evaluation"
LEARNER_RESULTS: Final = "learners"
REPLAY_BUFFER_RESULTS: Final = "replay_buffer"
FAULT_TOLERANCE_STATS: Final = "fault_tolerance"
TIMERS: Final = "timers"
PERF: Final = "perf"
ALL_MODULES: Final = "__all_modules__"
NUM_TRAINING_STEP_CALLS_PER_ITERATION: Final = "num_training_step_calls_per_iteration"
TRAINING_ITERATION: Final = "training_iteration"
TIME_TOTAL_S: Final = "time_total_s"
DONE: Final = "done"

# ---- episodes

EPISODE_RETURN_MEAN: Final = "episode_return_mean"
EPISODE_RETURN_MIN: Final = "episode_return_min"
EPISODE_RETURN_MAX: Final = "episode_return_max"
EPISODE_LEN_MEAN: Final = "episode_len_mean"
EPISODE_LEN_MIN: Final = "episode_len_min"
EPISODE_LEN_MAX: Final = "episode_len_max"
EPISODE_DURATION_SEC_MEAN: Final = "episode_duration_sec_mean"
NUM_EPISODES: Final = "num_episodes"
NUM_EPISODES_LIFETIME: Final = "num_episodes_lifetime"

# ---- steps sampled and learnt from

NUM_ENV_STEPS_SAMPLED: Final = "num_env_steps_sampled"
NUM_ENV_STEPS_SAMPLED_LIFETIME: Final = "num_env_steps_sampled_lifetime"
NUM_ENV_STEPS_SAMPLED_LIFETIME_THROUGHPUT: Final = "num_env_steps_sampled_lifetime_throughput"
NUM_ENV_STEPS_SAMPLED_THIS_ITER: Final = "num_env_steps_sampled_this_iter"
NUM_AGENT_STEPS_SAMPLED: Final = "num_agent_steps_sampled"
NUM_AGENT_STEPS_SAMPLED_LIFETIME: Final = "num_agent_steps_sampled_lifetime"
NUM_AGENT_STEPS_SAMPLED_THIS_ITER: Final = "num_agent_steps_sampled_this_iter"
NUM_MODULE_STEPS_SAMPLED: Final = "num_module_steps_sampled"
NUM_MODULE_STEPS_SAMPLED_LIFETIME: Final = "num_module_steps_sampled_lifetime"
NUM_ENV_STEPS_TRAINED: Final = "num_env_steps_trained"
NUM_ENV_STEPS_TRAINED_LIFETIME: Final = "num_env_steps_trained_lifetime"
NUM_ENV_STEPS_TRAINED_THIS_ITER: Final = "num_env_steps_trained_this_iter"
NUM_AGENT_STEPS_TRAINED: Final = "num_agent_steps_trained"
NUM_AGENT_STEPS_TRAINED_THIS_ITER: Final = "num_agent_steps_trained_this_iter"
NUM_MODULE_STEPS_TRAINED: Final = "num_module_steps_trained"
NUM_TRAINABLE_PARAMETERS: Final = "num_trainable_parameters"

# ---- learning

LEARNER_STATS_KEY: Final = "learner_stats"
LEARNER_INFO: Final = "learner"
TD_ERROR_KEY: Final = "td_error"
LAST_TARGET_UPDATE_TS: Final = "last_target_update_ts"
NUM_TARGET_UPDATES: Final = "num_target_updates"

# ---- where modules are in RLlib's checkpoints; paths put together from these are understood

COMPONENT_LEARNER_GROUP: Final = "learner_group"
COMPONENT_LEARNER: Final = "learner"
COMPONENT_RL_MODULE: Final = "rl_module"

# ---- timers

TRAINING_ITERATION_TIMER: Final = "training_iteration"
TRAINING_STEP_TIMER: Final = "training_step"
ENV_RUNNER_SAMPLING_TIMER: Final = "env_runner_sampling_timer"
LEARNER_UPDATE_TIMER: Final = "learner_update_timer"
SYNCH_WORKER_WEIGHTS_TIMER: Final = "synch_weights"
EVALUATION_ITERATION_TIMER: Final = "evaluation_iteration"
REPLAY_BUFFER_ADD_DATA_TIMER: Final = "replay_buffer_add_timer"


class Columns(SampleBatchNames):
    """The names of columns: `batch[Columns.OBS]`; those of batches, and others."""

    ACTIONS_FOR_ENV: Final = "actions_for_env"
    AGENT_ID: Final = "agent_id"
    MODULE_ID: Final = "module_id"
    STATE_IN: Final = "state_in"
    STATE_OUT: Final = "state_out"
    LOSS_MASK: Final = "loss_mask"
    EMBEDDINGS: Final = "embeddings"
    VALUES_BOOTSTRAPPED: Final = "values_bootstrapped"
    ADVANTAGES: Final = "advantages"
    VALUE_TARGETS: Final = "value_targets"
    RETURNS_TO_GO: Final = "returns_to_go"
    INTRINSIC_REWARDS: Final = "intrinsic_rewards"

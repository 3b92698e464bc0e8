"""Every standard key of a result: its unit, who writes it, where it always is, what it depends on.

A pattern is a slash path in which `*` stands for one part, such as a module id. The value may be a
number, a list, or a dict by agent or module id; then everything below is the same key. All that is
under `env_runners` may appear under `evaluation/env_runners` as well. Keys that callbacks log are
not listed; they stand beside these. `docs/metrics.md` lists the same keys, which a test compares.

One standard key of a result, as `trainer.metrics.keys` lists them.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Final

# ---- result key

TRAIN: Final = frozenset({"train"})
EVALUATE: Final = frozenset({"evaluate"})
SOMETIMES: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True)
class ResultKey:
    """One standard key.

    Attributes:
        pattern: its slash path.
        unit: what the number counts or measures; "" if it has no unit.
        owner: who writes it.
        always_in: the methods in whose every result it is: "train", "evaluate". There, `evaluate()`
            leaves out the leading `evaluation/`.
        is_wall_clock: it depends on the time of day, or on the speed or name of the machine.
        is_disturbance: it records faults, repairs or restores, which do not change what was learnt.
    """

    pattern: str
    unit: str
    owner: str
    always_in: frozenset[str] = SOMETIMES
    is_wall_clock: bool = False
    is_disturbance: bool = False

    def matches(self, path: str) -> bool:
        """Whether a slash path is this key, or lies below it."""
        own, parts = self.pattern.split("/"), path.split("/")
        return len(own) <= len(parts) and all(
            mine in ("*", part) for mine, part in zip(own, parts, strict=False)
        )


def keys_of(
    owner: str,
    prefix: str,
    always_in: frozenset[str],
    /,
    *,
    clock: bool = False,
    disturbance: bool = False,
    **units: str,
) -> tuple[ResultKey, ...]:
    """Several keys of one owner.

    Args:
        owner: who writes them.
        prefix: what their paths begin with.
        always_in: see `ResultKey`.
        clock: see `ResultKey.is_wall_clock`.
        disturbance: see `ResultKey.is_disturbance`.
        units: name → unit.
    """
    return tuple(
        ResultKey(f"{prefix}{name}", unit, owner, always_in, clock, disturbance)
        for name, unit in units.items()
    )


# ---- keys

ENV_RUNNERS: Final = "env_runners"
LEARNERS: Final = "learners"
REPLAY_BUFFER: Final = "replay_buffer"
EVALUATION: Final = "evaluation"
TIMERS: Final = "timers"
FAULT_TOLERANCE: Final = "fault_tolerance"
ALL_MODULES: Final = "__all_modules__"

EPISODE_RETURN_MEAN: Final = "episode_return_mean"
EPISODE_LEN_MEAN: Final = "episode_len_mean"
EPISODE_DURATION_SEC_MEAN: Final = "episode_duration_sec_mean"
NUM_EPISODES: Final = "num_episodes"
NUM_EPISODES_LIFETIME: Final = "num_episodes_lifetime"
NUM_ENV_STEPS_SAMPLED: Final = "num_env_steps_sampled"
NUM_ENV_STEPS_SAMPLED_LIFETIME: Final = "num_env_steps_sampled_lifetime"
CUSTOM_METRICS: Final = "custom_metrics"
HIST_STATS: Final = "hist_stats"
EPISODE_MEDIA: Final = "episode_media"

_EPISODES: Final = (
    *keys_of(
        "episode statistics",
        f"{ENV_RUNNERS}/",
        TRAIN | EVALUATE,
        episode_return_mean="reward",
        episode_return_min="reward",
        episode_return_max="reward",
        episode_len_mean="env steps",
        episode_len_min="env steps",
        episode_len_max="env steps",
        num_episodes="episodes",
        num_episodes_lifetime="episodes",
        agent_episode_return_mean="reward",
        module_episode_return_mean="reward",
        custom_metrics="",
        hist_stats="",
    ),
    *keys_of("episode statistics", f"{ENV_RUNNERS}/", SOMETIMES, episode_media=""),
    *keys_of(
        "episode statistics",
        f"{ENV_RUNNERS}/task_stats/*/",
        SOMETIMES,
        num_episodes="episodes",
        episode_return_mean="reward",
        episode_len_mean="env steps",
    ),
    *keys_of(
        "episode statistics",
        f"{ENV_RUNNERS}/",
        SOMETIMES,
        rewritten_return_mean="reward",
        rewritten_return_min="reward",
        rewritten_return_max="reward",
    ),
    *keys_of(
        "episode statistics",
        f"{ENV_RUNNERS}/",
        TRAIN | EVALUATE,
        clock=True,
        episode_duration_sec_mean="seconds",
    ),
)

_STEPS: Final = (
    *keys_of("algorithm", f"{ENV_RUNNERS}/", TRAIN | EVALUATE, num_env_steps_sampled="env steps"),
    *keys_of(
        "algorithm",
        f"{ENV_RUNNERS}/",
        TRAIN,
        num_env_steps_sampled_lifetime="env steps",
        num_agent_steps_sampled="agent steps",
        num_agent_steps_sampled_lifetime="agent steps",
        num_module_steps_sampled="agent steps",
        num_module_steps_sampled_lifetime="agent steps",
    ),
    *keys_of(
        "algorithm",
        f"{ENV_RUNNERS}/",
        TRAIN,
        clock=True,
        num_env_steps_sampled_lifetime_throughput="env steps per second",
    ),
    *keys_of(
        "env runner group",
        f"{ENV_RUNNERS}/",
        TRAIN | EVALUATE,
        clock=True,
        env_step_timer="seconds",
        env_reset_timer="seconds",
        rlmodule_inference_timer="seconds",
        callbacks_timer="seconds",
    ),
)

_LEARNING: Final = (
    *keys_of(
        "learner",
        f"{LEARNERS}/*/",
        TRAIN,
        total_loss="",
        gradients_default_optimizer_global_norm="",
        default_optimizer_learning_rate="",
        num_module_steps_trained="agent steps",
        num_trainable_parameters="numbers",
    ),
    *keys_of(
        "policy learner",
        f"{LEARNERS}/*/",
        SOMETIMES,
        policy_loss="",
        entropy="nats",
    ),
    *keys_of("PG learner", f"{LEARNERS}/*/", SOMETIMES, return_to_go_mean="reward"),
    *keys_of(
        "PPO learner",
        f"{LEARNERS}/*/",
        SOMETIMES,
        vf_loss="reward²",
        vf_loss_unclipped="reward²",
        vf_explained_var="at most 1",
        mean_kl_loss="nats",
        curr_kl_coeff="",
        curr_entropy_coeff="",
    ),
    *keys_of(
        "replay learner",
        f"{LEARNERS}/*/",
        SOMETIMES,
        qf_loss="",
        qf_mean="reward",
        qf_min="reward",
        qf_max="reward",
        td_error_mean="reward",
        num_target_updates="updates",
        last_target_update_ts="env steps",
    ),
    *keys_of(
        "SAC learner",
        f"{LEARNERS}/*/",
        SOMETIMES,
        qf_twin_loss="",
        alpha_loss="",
        alpha_value="reward per nat",
        log_alpha_value="",
        target_entropy="nats",
        logps="nats",
        actor_learning_rate="",
        alpha_learning_rate="",
    ),
    *keys_of(
        "replay buffer",
        f"{REPLAY_BUFFER}/",
        SOMETIMES,
        num_env_steps_stored="env steps",
        num_episodes_stored="episodes",
        num_env_steps_added="env steps",
        num_env_steps_added_lifetime="env steps",
        num_env_steps_evicted_lifetime="env steps",
    ),
    *keys_of(
        "algorithm",
        f"{LEARNERS}/{ALL_MODULES}/",
        TRAIN,
        num_env_steps_trained="env steps",
        num_env_steps_trained_lifetime="env steps",
    ),
)

_EVALUATION: Final = (
    *keys_of(
        "evaluation",
        f"{EVALUATION}/",
        EVALUATE,
        evaluated_at_iteration="iterations",
        weights_version="updates",
        num_episodes="episodes",
    ),
    *keys_of(
        "evaluation",
        f"{EVALUATION}/",
        SOMETIMES,
        disturbance=True,
        num_episodes_missing="episodes",
    ),
    *keys_of(
        "asynchronous evaluation",
        f"{EVALUATION}/",
        SOMETIMES,
        disturbance=True,
        num_env_steps_missing="env steps",
        num_evaluations_left_out="evaluations",
    ),
    *keys_of(
        "env runner group",
        f"{EVALUATION}/",
        EVALUATE,
        disturbance=True,
        num_healthy_workers="runners",
        num_remote_worker_restarts="restarts",
        num_sub_environment_restarts="restarts",
    ),
)

_RUN: Final = (
    *keys_of(
        "algorithm",
        "",
        TRAIN,
        training_iteration="iterations",
        num_env_steps_sampled_lifetime="env steps",
        num_training_step_calls_per_iteration="calls",
        done="",
        config="",
    ),
    *keys_of("early stopping", "", SOMETIMES, stop_reason="sentence"),
    *keys_of(
        "task ladder",
        "curriculum/",
        SOMETIMES,
        level="tasks",
        task="",
        num_episodes="episodes",
        episode_return_mean="reward",
    ),
    *keys_of("non-finite guard", "", SOMETIMES, non_finite="places"),
    *keys_of("algorithm", "", TRAIN, clock=True, timers="seconds"),
    *keys_of(
        "algorithm",
        f"{TIMERS}/",
        TRAIN,
        clock=True,
        training_iteration="seconds",
        env_runner_sampling_timer="seconds",
        learner_update_timer="seconds",
        synch_weights="seconds",
    ),
    *keys_of(
        "algorithm",
        f"{TIMERS}/",
        SOMETIMES,
        clock=True,
        evaluation_iteration="seconds",
        replay_buffer_add_timer="seconds",
    ),
    *keys_of(
        "run clock",
        "",
        TRAIN,
        clock=True,
        date="local time",
        timestamp="seconds since 1970",
        time_this_iter_s="seconds",
        time_total_s="seconds",
        pid="process id",
        hostname="name",
    ),
    *keys_of(
        "run clock",
        "",
        TRAIN,
        disturbance=True,
        time_since_restore="seconds",
        iterations_since_restore="iterations",
    ),
    *keys_of("env runner group", "", TRAIN, disturbance=True, fault_tolerance=""),
    *keys_of(
        "env runner group",
        f"{FAULT_TOLERANCE}/",
        TRAIN,
        disturbance=True,
        num_healthy_workers="runners",
        num_remote_worker_restarts="restarts",
        num_sub_environment_restarts="restarts",
        num_episodes_lost="episodes",
        num_env_steps_lost="env steps",
        num_episodes_lost_lifetime="episodes",
        num_env_steps_lost_lifetime="env steps",
        repair_time_s="seconds",
    ),
    *keys_of(
        "checkpoint callbacks",
        f"{FAULT_TOLERANCE}/",
        SOMETIMES,
        disturbance=True,
        num_failed_saves_lifetime="saves",
    ),
    *keys_of(
        "result loggers",
        f"{FAULT_TOLERANCE}/",
        SOMETIMES,
        disturbance=True,
        num_lost_rows_lifetime="results",
    ),
)

STANDARD_KEYS: Final[tuple[ResultKey, ...]] = (
    *_EPISODES,
    *_STEPS,
    *_LEARNING,
    *_EVALUATION,
    *_RUN,
)
"""All standard keys; `describe` looks one up."""

_PATHS_KEPT: Final = 4096


# Results have the same paths again and again, and each look-up compares all keys: 0.1 ms.
@functools.lru_cache(_PATHS_KEPT)
def is_always_written(path: str) -> bool:
    """Whether every result of `train()` has a standard value at exactly that slash path."""
    depth = path.count("/")
    return any(
        key.matches(path) and key.pattern.count("/") == depth
        for key in STANDARD_KEYS
        if "train" in key.always_in and not key.pattern.startswith(f"{EVALUATION}/")
    )


@functools.lru_cache(_PATHS_KEPT)
def describe(path: str) -> ResultKey | None:
    """The standard key that a slash path is, or lies below; None if there is none."""
    exact = [key for key in STANDARD_KEYS if key.matches(path)]
    if exact:
        return max(exact, key=lambda key: key.pattern.count("/"))
    return describe(path.removeprefix("evaluation/")) if path.startswith("evaluation/") else None

"""Every standard key of a result: its unit, who writes it, and whether it depends on the clock.

A pattern is a slash path in which `*` stands for one part, such as a module id. Everything under
`env_runners` appears under `evaluation/env_runners` as well. Keys that callbacks log are not
listed; they stand beside these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ENV_RUNNERS: Final = "env_runners"
LEARNERS: Final = "learners"
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


@dataclass(frozen=True)
class ResultKey:
    """One standard key.

    Attributes:
        pattern: its slash path.
        unit: what the number counts or measures; "" if it has no unit.
        owner: who writes it.
        is_wall_clock: it depends on the time of day, or on the speed or name of the machine.
        is_disturbance: it records faults, repairs or restores, which do not change what was learnt.
    """

    pattern: str
    unit: str
    owner: str
    is_wall_clock: bool = False
    is_disturbance: bool = False

    def matches(self, path: str) -> bool:
        """Whether a slash path is this key, or lies below it."""
        own, parts = self.pattern.split("/"), path.split("/")
        return len(own) <= len(parts) and all(
            mine in ("*", part) for mine, part in zip(own, parts, strict=False)
        )


def _keys(
    owner: str, prefix: str, /, *, clock: bool = False, disturbance: bool = False, **units: str
) -> tuple[ResultKey, ...]:
    return tuple(
        ResultKey(f"{prefix}{name}", unit, owner, clock, disturbance)
        for name, unit in units.items()
    )


STANDARD_KEYS: Final[tuple[ResultKey, ...]] = (
    *_keys(
        "episode statistics",
        f"{ENV_RUNNERS}/",
        episode_return_mean="reward",
        episode_return_min="reward",
        episode_return_max="reward",
        episode_len_mean="env steps",
        episode_len_min="env steps",
        episode_len_max="env steps",
        num_episodes="episodes of this iteration",
        num_episodes_lifetime="episodes",
        agent_episode_return_mean="reward, by agent id",
        module_episode_return_mean="reward, by module id",
        custom_metrics="from episode.custom_metrics",
        hist_stats="lists, from this iteration's episodes",
        episode_media="lists, from episode.media",
    ),
    *_keys(
        "episode statistics", f"{ENV_RUNNERS}/", clock=True, episode_duration_sec_mean="seconds"
    ),
    *_keys(
        "algorithm",
        f"{ENV_RUNNERS}/",
        num_env_steps_sampled="env steps of this iteration",
        num_env_steps_sampled_lifetime="env steps",
        num_agent_steps_sampled="agent steps of this iteration, by agent id",
        num_agent_steps_sampled_lifetime="agent steps, by agent id",
        num_module_steps_sampled="agent steps of this iteration, by module id",
        num_module_steps_sampled_lifetime="agent steps, by module id",
    ),
    *_keys(
        "algorithm",
        f"{ENV_RUNNERS}/",
        clock=True,
        num_env_steps_sampled_lifetime_throughput="env steps per second",
    ),
    *_keys(
        "learner",
        f"{LEARNERS}/*/",
        policy_loss="",
        vf_loss="reward²",
        vf_loss_unclipped="reward²",
        vf_explained_var="at most 1",
        entropy="nats",
        mean_kl_loss="nats",
        curr_kl_coeff="",
        curr_entropy_coeff="",
        total_loss="",
        gradients_default_optimizer_global_norm="",
        default_optimizer_learning_rate="",
        num_module_steps_trained="agent steps of this iteration",
        num_env_steps_trained="env steps of this iteration",
        num_env_steps_trained_lifetime="env steps",
        num_trainable_parameters="numbers",
    ),
    *_keys(
        "evaluation",
        f"{EVALUATION}/",
        evaluated_at_iteration="iterations",
        weights_version="updates",
    ),
    *_keys(
        "algorithm",
        "",
        training_iteration="iterations",
        num_env_steps_sampled_lifetime="env steps",
        num_training_step_calls_per_iteration="calls",
        done="whether training is over",
        config="all settings",
    ),
    *_keys("algorithm", "", clock=True, timers="seconds, by name"),
    *_keys(
        "trainable",
        "",
        clock=True,
        date="year-month-day_hour-minute-second, local time",
        timestamp="seconds since 1970",
        time_this_iter_s="seconds",
        time_total_s="seconds",
        pid="process id",
        hostname="name",
    ),
    *_keys(
        "trainable",
        "",
        disturbance=True,
        time_since_restore="seconds",
        iterations_since_restore="iterations",
    ),
    *_keys("env runner group", "", disturbance=True, fault_tolerance="counts"),
    *_keys(
        "env runner group",
        f"{EVALUATION}/",
        disturbance=True,
        num_healthy_workers="runners",
        num_remote_worker_restarts="restarts",
    ),
)
"""All standard keys; `describe` looks one up."""


def describe(path: str) -> ResultKey | None:
    """The standard key that a slash path is, or lies below; None if there is none."""
    exact = [key for key in STANDARD_KEYS if key.matches(path)]
    if exact:
        return max(exact, key=lambda key: key.pattern.count("/"))
    return describe(path.removeprefix("evaluation/")) if path.startswith("evaluation/") else None

"""RLlib's constants: the keys of results, the names of columns, and the default ids.

For scripts written for RLlib: what they import from `ray.rllib.utils.metrics`,
`ray.rllib.core`, `ray.rllib.core.columns` and `ray.tune.result` can be imported from `trainer`.
Each constant is the plain string that stands in results and batches, so both ways to write a key
mean the same.
"""

from __future__ import annotations

from typing import Final

from trainer.types import DEFAULT_MODULE_ID

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

# ---- timers

TRAINING_ITERATION_TIMER: Final = "training_iteration"
TRAINING_STEP_TIMER: Final = "training_step"
ENV_RUNNER_SAMPLING_TIMER: Final = "env_runner_sampling_timer"
LEARNER_UPDATE_TIMER: Final = "learner_update_timer"
SYNCH_WORKER_WEIGHTS_TIMER: Final = "synch_weights"
EVALUATION_ITERATION_TIMER: Final = "evaluation_iteration"
REPLAY_BUFFER_ADD_DATA_TIMER: Final = "replay_buffer_add_timer"


class Columns:
    """The names of columns: `batch[Columns.OBS]`."""

    OBS: Final = "obs"
    NEXT_OBS: Final = "new_obs"
    ACTIONS: Final = "actions"
    ACTIONS_FOR_ENV: Final = "actions_for_env"
    REWARDS: Final = "rewards"
    TERMINATEDS: Final = "terminateds"
    TRUNCATEDS: Final = "truncateds"
    INFOS: Final = "infos"
    T: Final = "t"
    EPS_ID: Final = "eps_id"
    AGENT_ID: Final = "agent_id"
    MODULE_ID: Final = "module_id"
    STATE_IN: Final = "state_in"
    STATE_OUT: Final = "state_out"
    SEQ_LENS: Final = "seq_lens"
    LOSS_MASK: Final = "loss_mask"
    ACTION_DIST_INPUTS: Final = "action_dist_inputs"
    ACTION_PROB: Final = "action_prob"
    ACTION_LOGP: Final = "action_logp"
    VF_PREDS: Final = "vf_preds"
    EMBEDDINGS: Final = "embeddings"
    VALUES_BOOTSTRAPPED: Final = "values_bootstrapped"
    ADVANTAGES: Final = "advantages"
    VALUE_TARGETS: Final = "value_targets"
    INTRINSIC_REWARDS: Final = "intrinsic_rewards"

"""The names of an episode's columns, and what T, B and A mean in every docstring about arrays.

    T   env steps of an episode or chunk, in order of time
    B   rows of a batch: steps of several episodes one after another, or env slots side by side
    A   numbers that make up one action (the dimensions of a flattened action)

An episode has T actions and rewards but T + 1 observations and infos: the first observation comes
from `env.reset()`. It answers "what was seen before step t" at index t.

| column                | shape and dtype after `to_numpy()`                              |
|-----------------------|-----------------------------------------------------------------|
| `obs`                 | [T + 1, ...], as the env gave it; dicts and tuples stay |
| `actions`             | [T, ...], as the module gave it                                  |
| `rewards`             | float64, [T], so that returns are rounded once |
| `infos`               | a list of T + 1 dicts (never an array)                          |
| any extra output      | [T, ...], e.g. `action_logp` [T] and `action_dist_inputs` [T, K] |
"""

from __future__ import annotations

from typing import Final

OBS: Final = "obs"
"""Observations."""

ACTIONS: Final = "actions"
"""Actions as the module emitted them (before they are scaled to the env's bounds)."""

REWARDS: Final = "rewards"
"""Rewards, one per step."""

INFOS: Final = "infos"
"""The info dicts of `env.reset()` and `env.step()`."""

TERMINATEDS: Final = "terminateds"
"""bool, [T]: the env reached a final state at this step; only the last row can be True."""

TRUNCATEDS: Final = "truncateds"
"""bool, [T]: the episode was cut off by a limit at this step; only the last row can be True."""

TIMESTEPS: Final = "t"
"""int64, [T]: the number of the step in its whole episode, from 0."""

EPISODE_IDS: Final = "eps_id"
"""str, [T]: the id of the episode of each row."""

ACTION_LOGP: Final = "action_logp"
"""float32, [T]: log-probability of the action taken, under the policy that acted."""

ACTION_DIST_INPUTS: Final = "action_dist_inputs"
"""float32, [T, K]: what the module put into its action distribution, e.g. logits."""

NEW_OBS: Final = "new_obs"
"""[T, ...]: the observation after each step; row t is row t + 1 of `obs`."""

ACTION_PROB: Final = "action_prob"
"""float32, [T]: the exponential of `action_logp`."""

AGENT_INDEX: Final = "agent_index"
"""int64, [T]: the number of the agent in its env; 0 for a single one."""

UNROLL_ID: Final = "unroll_id"
"""int64, [T]: tells the chunks of an episode apart: the number of steps before the chunk."""

VF_PREDS: Final = "vf_preds"
"""[T]: the value function's predictions for `obs`."""

ADVANTAGES: Final = "advantages"
"""float64, [T]: how much better each action was than expected."""

VALUE_TARGETS: Final = "value_targets"
"""float64, [T]: what the value function is to predict for `obs`."""

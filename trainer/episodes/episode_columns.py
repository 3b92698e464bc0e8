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

Here stand the data of a chunk, with everything that reads or overwrites them: whole columns that
users hand in are checked and brought into the episode's own form; the invariant, which lengths
columns must have, is checked; and what the episode paid is summed. What an episode *is* (its id,
its end, how it grows and is cut) is in `single_agent_episode.py`.

Sums of rewards are exact (`trainer.metrics.statistic`). So they do not depend on where an episode
was cut, and what a rewrite added can be taken off again without a trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any, Final, TypeVar

import numpy as np

from trainer.episodes import nested
from trainer.episodes.lookback_buffer import Indices, InfoBuffer, LookbackBuffer
from trainer.errors import EpisodeError, EpisodeIndexError, UnknownOutputError
from trainer.metrics.statistic import exact_partials, rounded_sum
from trainer_toolkit.checks import shown
from trainer_toolkit.nearest_names import IN_BRACKETS, did_you_mean

# ---- columns

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

RETURNS_TO_GO: Final = "returns_to_go"
"""float32, [T]: discounted rewards from each step to the end of the chunk."""

ADVANTAGES: Final = "advantages"
"""float64, [T]: how much better each action was than expected."""

VALUE_TARGETS: Final = "value_targets"
"""float64, [T]: what the value function is to predict for `obs`."""

STATE_IN: Final = "state_in"
"""[T, ...], dicts of arrays: the state of a network with memory before each step."""

STATE_OUT: Final = "state_out"
"""[B, ...], dicts of arrays: that state after a step; what such a network returns."""

PREV_ACTIONS: Final = "prev_actions"
"""float32, [T, ...]: codes of the action before each step; zeros at the first one of an episode."""

PREV_REWARDS: Final = "prev_rewards"
"""float32, [T]: the reward before each step; 0 at the first one of an episode."""

SEQ_LENS: Final = "seq_lens"
"""int64, [N]: the rows of each of N sequences that stand one after another."""

LOSS_MASK: Final = "loss_mask"
"""bool, [N, L]: which steps of padded sequences are real."""


# ---- given data


def given_columns(
    given: Mapping[str, Any], outputs: Mapping[str, Any], *, lookback: object
) -> dict[str, Any]:
    """The data as arguments of `EpisodeColumns.fill_columns`; lists are copied, arrays shared.

    Args:
        given: {column: list, batch, `LookbackBuffer` or None}.
        outputs: {name: list, batch, `LookbackBuffer` or None}, the extra outputs.
        lookback: "auto", or the number of steps that are look-back at most.

    Raises:
        EpisodeError: a column is neither a list nor a batch, or the look-back is no number.
    """
    if not isinstance(outputs, Mapping):
        raise EpisodeError(
            f"extra_model_outputs={shown(outputs)} is a {type(outputs).__name__}; expected a dict "
            "{name: one value per env step}. Give it as that."
        )
    infos = given[INFOS]
    return {
        "observations": _column(OBS, given[OBS]),
        "infos": None if infos is None else list(_column(INFOS, infos)),
        "actions": _column(ACTIONS, given[ACTIONS]),
        "rewards": _column(REWARDS, given[REWARDS]),
        "extra_model_outputs": {name: _column(name, data) for name, data in outputs.items()},
        "lookback": _lookback(lookback, given[REWARDS]),
    }


def _column(name: str, data: Any) -> Any:
    if isinstance(data, LookbackBuffer):
        data = data.data
    if data is None:
        return []
    if isinstance(data, list):
        return copied_data(data)
    nested.checked_length(data, name=name)
    return data


def _lookback(wanted: object, rewards: Any) -> int:
    """The number of steps that are look-back."""
    if wanted == "auto" and isinstance(rewards, LookbackBuffer):
        return rewards.lookback
    if isinstance(rewards, LookbackBuffer):
        steps = rewards.total
    else:
        steps = 0 if rewards is None else len(rewards)
    if wanted == "auto":
        return steps
    if not isinstance(wanted, int) or wanted < 0:
        raise EpisodeError(
            f"An episode cannot have {wanted!r} steps of look-back. Look-back is data from before "
            "the chunk. Give a number ≥ 0, or 'auto' if all the given steps are look-back."
        )
    return min(wanted, steps)


def new_output(
    key: str, new_data: Any, *, lookback: int, total: int, is_numpy: bool
) -> LookbackBuffer:
    """A column for a new extra output.

    Without items for the look-back, zeros stand in for them.

    Raises:
        EpisodeIndexError: there are more or fewer items than steps.
    """
    column = LookbackBuffer(_column("new_data", new_data))
    given = column.total
    if given not in (total, total - lookback):
        raise EpisodeIndexError(
            f"The new extra output {key!r} has {given} items, but this episode has "
            f"{total - lookback} steps after {lookback} steps of look-back. A new column needs one "
            "item for every step, with or without the look-back."
        )
    if given < total:
        column.data = column.get(slice(-lookback, None), neg_index_as_lookback=True, fill=0)
    if is_numpy:
        column.to_numpy(name=key)
    else:
        column.to_list()
    column.lookback = lookback
    return column


def copied_data(data: Any) -> Any:
    """A copy of a column: of the list, whose items are shared, or of the arrays."""
    if data is None:
        return None
    return list(data) if isinstance(data, list) else nested.map_leaves(np.array, data)


# ---- alignment


def check_alignment(columns: Mapping[str, LookbackBuffer]) -> None:
    """Checks that T + 1 observations and infos go with T items of every other column.

    Before the reset there is nothing at all. Look-back counts, and is the same in all columns.

    Raises:
        EpisodeError: a column is too short or too long, or has another look-back than the rest;
            names all of them with their lengths.
    """
    found = {
        name: nested.checked_length(column.data, name=name) if column.is_numpy else column.total
        for name, column in columns.items()
    }
    steps = found[REWARDS]
    first = steps + 1 if found[OBS] else 0
    expected = {**dict.fromkeys(columns, steps), OBS: first, INFOS: first}
    if found != expected or (steps and not first):
        raise EpisodeError(
            f"The columns of an episode do not fit together: {found} items each. T steps need "
            "T + 1 observations and infos, and T actions, rewards and extra outputs "
            "(look-back included). Give the missing items."
        )
    lookbacks = {name: column.lookback for name, column in columns.items()}
    if len(set(lookbacks.values())) > 1 or not 0 <= lookbacks[REWARDS] <= steps:
        raise EpisodeError(
            f"The columns of an episode of {steps} steps have the look-backs {lookbacks}. All "
            "columns have the same, and it is a part of the steps. Use the getters and setters, "
            "which keep columns aligned."
        )


# ---- episode returns

Change = list[float] | None
"""Exact partials of what rewriting added to rewards; None if they were not rewritten."""


def joined_changes(first: Change, second: Change) -> Change:
    """The change that both make together."""
    if first is None or second is None:
        return second if first is None else first
    return exact_partials(first + second)


# ---- episode columns

_Columns = TypeVar("_Columns", bound="EpisodeColumns")


class EpisodeColumns:
    """Observations, infos, actions, rewards and extra outputs of T steps and their look-back.

    Attributes:
        observations: T + 1 items; for shapes and dtypes see the head of this file.
        infos: T + 1 dicts.
        actions: T items.
        rewards: T numbers.
        extra_model_outputs: {name: T items}.
    """

    observations: LookbackBuffer
    infos: LookbackBuffer
    actions: LookbackBuffer
    extra_model_outputs: dict[str, LookbackBuffer]
    _growth: object | None
    """None, or which lists steps are added to without a look: the episode is reset, its time runs,
    it is not done, and it is not numpy. Another object stands for other lists."""

    def start_columns(self, observation_space: Any, action_space: Any) -> None:
        """Opens empty columns: what `fill_columns` would do, in a third of the time."""
        self._growth = None
        self.observations = LookbackBuffer()
        self.observations.space = observation_space
        self.infos = InfoBuffer()
        self.actions = LookbackBuffer()
        self.actions.space = action_space
        self.rewards = LookbackBuffer()
        self.earlier_return = []
        self.extra_model_outputs = {}

    def fill_columns(
        self,
        *,
        observations: Any,
        infos: list[Any] | None,
        actions: Any,
        rewards: Any,
        extra_model_outputs: Mapping[str, Any] | None,
        lookback: int,
        observation_space: Any = None,
        action_space: Any = None,
    ) -> None:
        """Takes over data, look-back included: one more observation and info than the rest.

        Args:
            observations: list of items or batch; a list of the caller is used, not copied.
            infos: list of dicts, or None for one empty dict per observation.
            actions: list of items or batch.
            rewards: list of numbers or array.
            extra_model_outputs: {name: list of items or batch}.
            lookback: how many of the steps are look-back.
            observation_space: the space of an observation, if known.
            action_space: the space of an action, if known.

        Raises:
            EpisodeError: `lookback` is negative.
        """
        if lookback < 0:
            raise EpisodeError(
                f"An episode cannot have {lookback} steps of look-back. Look-back is data from "
                "before the chunk. Give 0 or more."
            )
        self._growth = None
        seen = LookbackBuffer(observations, lookback=lookback, space=observation_space)
        self.observations = seen
        infos = [{} for _ in range(seen.total)] if infos is None else infos
        self.infos = InfoBuffer(infos, lookback=lookback)
        self.actions = LookbackBuffer(actions, lookback=lookback, space=action_space)
        self.rewards = LookbackBuffer(rewards, lookback=lookback)
        self.earlier_return = []
        self.extra_model_outputs = {
            key: LookbackBuffer(values, lookback=lookback)
            for key, values in (extra_model_outputs or {}).items()
        }

    @property
    def lookback(self) -> int:
        """The number of steps of look-back."""
        return self.rewards.lookback

    @property
    def is_numpy(self) -> bool:
        """Whether the columns are arrays (infos remain a list)."""
        return not isinstance(self.observations.data, list)

    @property
    def observation_space(self) -> Any:
        """The gymnasium space of the observations (None if not known)."""
        return self.observations.space

    @observation_space.setter
    def observation_space(self, space: Any) -> None:
        self.observations.space = space

    @property
    def action_space(self) -> Any:
        """The gymnasium space of the actions (None if not known)."""
        return self.actions.space

    @action_space.setter
    def action_space(self, space: Any) -> None:
        self.actions.space = space

    def validate(self) -> None:
        """Checks that all columns fit together.

        Raises:
            EpisodeError: a column is too short or too long, or has another look-back than the rest;
                names all of them with their lengths.
        """
        columns = {OBS: self.observations, INFOS: self.infos, ACTIONS: self.actions}
        columns |= {REWARDS: self.rewards, **self.extra_model_outputs}
        check_alignment(columns)

    def to_numpy(self: _Columns) -> _Columns:
        """Turns the columns into arrays, in place (infos stay a list); idempotent.

        Returns:
            The episode itself.

        Raises:
            EpisodeError: the items of a column differ in shape or structure.
        """
        self.stop_growing()
        self.observations.to_numpy(name=OBS)
        self.actions.to_numpy(name=ACTIONS)
        self.rewards.to_numpy(name=REWARDS, dtype=np.float64)
        for key, column in self.extra_model_outputs.items():
            column.to_numpy(name=key)
        return self

    def stop_growing(self) -> None:
        """Makes the next `add_env_step` look whether, and how, a step can be added."""
        self._growth = None

    def drop_lookback(self) -> None:
        """Forgets the look-back of all columns."""
        self.stop_growing()
        columns = (self.observations, self.infos, self.actions, self.rewards)
        for column in (*columns, *self.extra_model_outputs.values()):
            column.drop_lookback()

    def to_lists(self) -> None:
        """Turns all columns into lists."""
        self.stop_growing()
        for column in (self.observations, self.actions, self.rewards):
            column.to_list()
        for column in self.extra_model_outputs.values():
            column.to_list()

    # Getters. All take the indices that `trainer.episodes.lookback_buffer` explains.

    def get_observations(
        self,
        indices: Indices = None,
        *,
        neg_index_as_lookback: bool = False,
        fill: Any = None,
        one_hot_discrete: bool = False,
    ) -> Any:
        """Observations by index; see `LookbackBuffer.get` for arguments, results and errors."""
        return self.observations.get(
            indices,
            neg_index_as_lookback=neg_index_as_lookback,
            fill=fill,
            one_hot_discrete=one_hot_discrete,
        )

    def get_infos(
        self, indices: Indices = None, *, neg_index_as_lookback: bool = False, fill: Any = None
    ) -> Any:
        """Info dicts by index, always as a list or a single dict."""
        return self.infos.get(indices, neg_index_as_lookback=neg_index_as_lookback, fill=fill)

    def get_actions(
        self,
        indices: Indices = None,
        *,
        neg_index_as_lookback: bool = False,
        fill: Any = None,
        one_hot_discrete: bool = False,
    ) -> Any:
        """Actions by index; see `LookbackBuffer.get` for arguments, results and errors."""
        return self.actions.get(
            indices,
            neg_index_as_lookback=neg_index_as_lookback,
            fill=fill,
            one_hot_discrete=one_hot_discrete,
        )

    def get_rewards(
        self, indices: Indices = None, *, neg_index_as_lookback: bool = False, fill: Any = None
    ) -> Any:
        """Rewards by index; see `LookbackBuffer.get` for arguments, results and errors."""
        return self.rewards.get(indices, neg_index_as_lookback=neg_index_as_lookback, fill=fill)

    def get_extra_model_outputs(
        self,
        key: str | None = None,
        indices: Indices = None,
        *,
        neg_index_as_lookback: bool = False,
        fill: Any = None,
    ) -> Any:
        """One extra output by index, or all of them.

        Without a key, {name: items} of all. Indices are as in the other getters.

        Raises:
            UnknownOutputError: there is no output of that name.
            EpisodeIndexError: see `LookbackBuffer.get`.
        """
        options: dict[str, Any] = {"neg_index_as_lookback": neg_index_as_lookback, "fill": fill}
        if key is not None:
            return self._extra_column(key).get(indices, **options)
        return {
            name: column.get(indices, **options)
            for name, column in self.extra_model_outputs.items()
        }

    # Setters. The length of a column never changes.

    def set_observations(
        self, *, new_data: Any, at_indices: Indices = None, neg_index_as_lookback: bool = False
    ) -> None:
        """Overwrites observations; see `LookbackBuffer.set`."""
        self.observations.set(new_data, at_indices, neg_index_as_lookback=neg_index_as_lookback)

    def set_actions(
        self, *, new_data: Any, at_indices: Indices = None, neg_index_as_lookback: bool = False
    ) -> None:
        """Overwrites actions; see `LookbackBuffer.set`."""
        self.actions.set(new_data, at_indices, neg_index_as_lookback=neg_index_as_lookback)

    def set_rewards(
        self, *, new_data: Any, at_indices: Indices = None, neg_index_as_lookback: bool = False
    ) -> None:
        """Overwrites rewards of this chunk; what earlier chunks returned stays as it was."""
        self.rewards.set(new_data, at_indices, neg_index_as_lookback=neg_index_as_lookback)

    def set_extra_model_outputs(
        self,
        *,
        key: str,
        new_data: Any,
        at_indices: Indices = None,
        neg_index_as_lookback: bool = False,
    ) -> None:
        """Overwrites an extra output, or adds a new one for all steps at once.

        Args:
            key: the name; a new name needs `at_indices=None` and one item for every step. Items for
                the look-back may come first; if they are left out, zeros stand in for them.
            new_data: list of items or batch (one item for an int index).
            at_indices: as in the other setters.
            neg_index_as_lookback: as in the other setters.

        Raises:
            UnknownOutputError: a new name with indices.
            EpisodeIndexError: an index lies outside the data, or the number of items is wrong.
        """
        if key in self.extra_model_outputs or at_indices is not None:
            self._extra_column(key).set(
                new_data, at_indices, neg_index_as_lookback=neg_index_as_lookback
            )
        else:
            self.extra_model_outputs[key] = new_output(
                key,
                new_data,
                lookback=self.lookback,
                total=self.rewards.total,
                is_numpy=self.is_numpy,
            )

    def _extra_column(self, key: str) -> LookbackBuffer:
        try:
            return self.extra_model_outputs[key]
        except (KeyError, TypeError) as cause:  # TypeError: what cannot be a key
            known = sorted(self.extra_model_outputs)
            hint = did_you_mean(key, known, IN_BRACKETS)
            raise UnknownOutputError(
                f"This episode has no extra output {key!r}{hint}. It has {known}. Outputs appear "
                "with the first step that brings them, or through `set_extra_model_outputs` with "
                "data for all steps."
            ) from cause

    rewards: LookbackBuffer
    earlier_return: list[float]
    own_change: Change = None
    earlier_change: Change = None

    def chunk_return(self) -> float:
        """The sum of the rewards of this chunk, without look-back and earlier chunks."""
        return rounded_sum(self.rewards_list())

    def get_return(self) -> float:
        """What the env paid in the episode up to the end of this chunk, rounded once.

        It covers the earlier chunks of an episode that was cut, and does not depend on where it was
        cut, nor on what callbacks made of the rewards while the episode was played.
        """
        return rounded_sum(self._paid())

    def get_rewritten_return(self) -> float | None:
        """`get_return()` with the rewards that callbacks wrote; None if they wrote none."""
        change = self.change_partials()
        return None if change is None else rounded_sum(self._paid() + change)

    def return_partials(self) -> list[float]:
        """`get_return()` before rounding, for the chunk that follows."""
        return exact_partials(self._paid())

    def change_partials(self) -> Change:
        """What rewriting added up to the end of this chunk, for the chunk that follows."""
        return joined_changes(self.earlier_change, self.own_change)

    def note_rewrite(self, before: list[float]) -> None:
        """Notes that the rewards of this chunk were others; `get_return()` stays what it was.

        Args:
            before: the rewards that were replaced, [T].
        """
        change = exact_partials([*self.rewards_list(), *(-reward for reward in before)])
        self.own_change = joined_changes(self.own_change, change)

    def rewards_list(self) -> list[float]:
        """The rewards of this chunk, without look-back; not to be changed."""
        rewards: Any = self.rewards.data
        if self.rewards.lookback:
            rewards = rewards[self.rewards.lookback :]
        return rewards if isinstance(rewards, list) else rewards.tolist()

    def _paid(self) -> list[float]:
        """Numbers that add up to what the env paid."""
        rewards = self.rewards_list()
        if not self.earlier_return and not self.own_change:
            return rewards
        return [*self.earlier_return, *rewards, *(-part for part in self.own_change or ())]


def is_number(value: Any) -> bool:
    """Whether a reward is a number: of Python, of NumPy, or an array without dimensions."""
    if isinstance(value, np.ndarray):
        return value.ndim == 0 and value.dtype.kind in "biuf"
    return isinstance(value, (Real, np.number, np.bool_))

"""What sub-envs of a vector env did side by side: one array per column for all of them.

A step of all sub-envs writes one row of each array, so recording costs NumPy's price and not
Python's, sub-env by sub-env. Episodes are views on these arrays. Only the learner looks at most of
them, so their columns are cut out on request.

    rows            0 … L - 1      L, L + 1, …
    what            look-back      steps of this fragment; observation r is seen before step r
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from trainer.episodes import nested
from trainer.episodes.episode_state import USER_DATA
from trainer.episodes.single_agent_episode import SingleAgentEpisode, Stopwatch
from trainer.types import Array, State

# ---- fragment


class RowRange(NamedTuple):
    """Where a chunk is in a fragment.

    Attributes:
        sub_env: whose steps.
        first: row of its first step, look-back included.
        begin: row of its first step behind the look-back.
        stop: row behind its last step.
    """

    sub_env: int
    first: int
    begin: int
    stop: int


class Fragment:
    """Columns of S sub-envs and R rows; rows are written in order.

    Attributes:
        observations: before each step, [S, R + 1, …]. Where an episode ended and the next one began
            with the same row, it is that of the next one; see `last_observations`.
        actions: as the module gave them, [S, R, …]; None before the first step.
        rewards: float64, [S, R].
        outputs: what the module gave with the actions, [S, R, …] each.
        is_recorded: which steps belong to an episode, bool [S, R]: not those that reset a sub-env.
        last_observations: the last ones of episodes, by (sub-env, row), where the row holds
            another one.
        infos, last_infos: infos that are not empty, by (sub-env, row), of observations likewise.
    """

    def __init__(self, observations: Array, *, num_rows: int) -> None:
        """Makes room.

        Args:
            observations: of the sub-envs, [S, …]: what the fragment's will be like.
            num_rows: R at first; it grows by itself.
        """
        count, shape = len(observations), observations.shape[1:]
        self.observations: Array = np.zeros((count, num_rows + 1, *shape), observations.dtype)
        self.actions: Any = None
        self.rewards: Array = np.zeros((count, num_rows))
        self.outputs: dict[str, Array] = {}
        self.is_recorded: Array = np.zeros((count, num_rows), np.bool_)
        self.last_observations: dict[tuple[int, int], Any] = {}
        self.infos: dict[tuple[int, int], dict[str, Any]] = {}
        self.last_infos: dict[tuple[int, int], dict[str, Any]] = {}

    @property
    def num_rows(self) -> int:
        """R."""
        return int(self.rewards.shape[1])

    def make_room(self) -> None:
        """Doubles the rows."""
        more = self.num_rows
        self.observations = _longer(self.observations, more)
        self.rewards, self.is_recorded = (
            _longer(self.rewards, more),
            _longer(self.is_recorded, more),
        )
        if self.actions is not None:
            self.actions = _longer(self.actions, more)
        self.outputs = {name: _longer(column, more) for name, column in self.outputs.items()}

    def open_actions(self, actions: Array, outputs: dict[str, Array]) -> None:
        """Makes room for actions and outputs that are like these, [S, …] each; once."""
        if self.actions is None:
            self.actions = self._room_for(actions)
            self.outputs = {name: self._room_for(column) for name, column in outputs.items()}

    def _room_for(self, rows: Array) -> Array:
        return np.zeros((*self.rewards.shape, *rows.shape[1:]), rows.dtype)

    def write_step(
        self, row: int, actions: Array, rewards: Array, outputs: Mapping[str, Array]
    ) -> None:
        """Writes what all sub-envs did at a row and what they were paid, [S, …] each."""
        self.actions = wide_enough(self.actions, actions)
        self.actions[:, row] = actions
        self.rewards[:, row] = rewards
        for name, values in outputs.items():
            self.outputs[name] = column = wide_enough(self.outputs[name], values)
            column[:, row] = values

    def write_carried(self, sub_env: int, first: int, episode: SingleAgentEpisode) -> None:
        """Writes the steps that a running episode has already, from a row on."""
        where = slice(first, first + episode.rewards.total)
        actions = np.asarray(episode.actions.data)
        self.actions = wide_enough(self.actions, actions)
        self.actions[sub_env, where] = actions
        self.rewards[sub_env, where] = episode.rewards.data
        self.is_recorded[sub_env, where] = True
        for name, column in self.outputs.items():
            values = np.asarray(episode.extra_model_outputs[name].data)
            self.outputs[name] = wider = wide_enough(column, values)
            wider[sub_env, where] = values

    def write_observations(self, row: int, observations: Array) -> None:
        """Writes what all sub-envs see at a row, [S, …]; a wider dtype widens the column."""
        self.observations = wide_enough(self.observations, observations)
        self.observations[:, row] = observations

    def write_observations_of(self, sub_env: int, first: int, observations: Any) -> None:
        """Writes what one sub-env saw from a row on, [T, …]; a wider dtype widens the column."""
        values = np.asarray(observations)
        self.observations = wide_enough(self.observations, values)
        self.observations[sub_env, first : first + len(values)] = values

    def chunk(self, span: RowRange) -> dict[str, Any]:
        """The columns of a chunk as arguments of `fill_columns`: views, but for the infos."""
        sub_env, first, stop = span.sub_env, span.first, span.stop
        observations = self.observations[sub_env, first : stop + 1]
        if (sub_env, stop) in self.last_observations:
            last = self.last_observations[sub_env, stop]
            observations = np.concatenate([observations[:-1], np.asarray(last)[None]])
        steps = slice(first, stop)
        return {
            "observations": observations,
            "infos": self._infos_of(span),
            "actions": self.actions[sub_env, steps],
            "rewards": self.rewards[sub_env, steps],
            "extra_model_outputs": {
                name: column[sub_env, steps] for name, column in self.outputs.items()
            },
            "lookback": span.begin - first,
        }

    def checked_columns(self) -> list[Any]:
        """All that envs gave which has to be finite."""
        return [self.observations, self.rewards, *self.last_observations.values()]

    def _infos_of(self, span: RowRange) -> list[dict[str, Any]]:
        sub_env, stop = span.sub_env, span.stop
        if not self.infos and not self.last_infos:
            return [{} for _ in range(span.first, stop + 1)]
        infos = [self.infos.get((sub_env, row), {}) for row in range(span.first, stop)]
        last = self.infos if (sub_env, stop) not in self.last_observations else self.last_infos
        return [*infos, last.get((sub_env, stop), {})]

    @property
    def is_plain(self) -> bool:
        """Whether rows say all: there are no infos, and no last observations beside them."""
        return not (self.infos or self.last_infos or self.last_observations)

    def flat(self) -> tuple[Array, Array, Array, dict[str, Array]]:
        """Observations, actions, rewards, outputs: the rows of sub-envs one after another."""
        outputs = {name: _flat(column) for name, column in self.outputs.items()}
        return _flat(self.observations), _flat(self.actions), _flat(self.rewards), outputs

    def first_rows(self, spans: Array) -> tuple[Array, Array]:
        """What is added to the rows of spans, [N, 4]: for flat observations, and for the rest."""
        return spans[:, 0] * (self.num_rows + 1), spans[:, 0] * self.num_rows

    def tail(self, stop: int, length: int, *, but: Collection[str] = ()) -> Fragment:
        """The last rows before a row and the observations at it, in memory of their own.

        At most `stop` rows; outputs of `but` are left out.
        """
        rows = slice(stop - length, stop)
        tail = object.__new__(Fragment)
        tail.observations = self.observations[:, stop - length : stop + 1].copy()
        tail.actions = self.actions[:, rows].copy()
        tail.rewards = self.rewards[:, rows].copy()
        tail.is_recorded = self.is_recorded[:, rows].copy()
        kept = {name: column for name, column in self.outputs.items() if name not in but}
        tail.outputs = {name: column[:, rows].copy() for name, column in kept.items()}
        tail.last_observations, tail.infos, tail.last_infos = {}, {}, {}
        return tail

    def write_tail(self, row: int, tail: Fragment, sub_envs: Sequence[int]) -> None:
        """Writes what some sub-envs saw, and were paid for, in the rows before a row."""
        first, rows = row - tail.num_rows, slice(row - tail.num_rows, row)
        self.observations = wide_enough(self.observations, tail.observations)
        self.observations[sub_envs, first : row + 1] = tail.observations[sub_envs]
        self.rewards[sub_envs, rows] = tail.rewards[sub_envs]
        self.is_recorded[sub_envs, rows] = tail.is_recorded[sub_envs]

    def write_tail_actions(self, row: int, tail: Fragment, sub_envs: Sequence[int]) -> None:
        """Writes what some sub-envs did in the rows before a row; after `open_actions`."""
        rows = slice(row - tail.num_rows, row)
        self.actions = wide_enough(self.actions, tail.actions)
        self.actions[sub_envs, rows] = tail.actions[sub_envs]
        for name, column in self.outputs.items():
            self.outputs[name] = wider = wide_enough(column, tail.outputs[name])
            wider[sub_envs, rows] = tail.outputs[name][sub_envs]

    def copied_chunk(self, span: RowRange) -> dict[str, Any]:
        """The same in memory of its own: a chunk that is kept would keep all the fragment."""
        return _each(self.chunk(span), np.array)

    def lists(self, span: RowRange) -> dict[str, Any]:
        """The columns of a chunk as lists with memory of their own, as a growing episode has."""
        return _each(self.chunk(span), _own_rows, np.ndarray.tolist)


def wide_enough(column: Array, values: Array) -> Array:
    """The column itself, or a copy in a dtype that holds these values, too."""
    if values.dtype == column.dtype:
        return column
    return column.astype(np.result_type(column.dtype, values.dtype), copy=False)


def _flat(column: Array) -> Array:
    return column.reshape(-1, *column.shape[2:])


def _longer(column: Array, more: int) -> Array:
    room = np.zeros((len(column), more, *column.shape[2:]), column.dtype)
    return np.concatenate([column, room], axis=1)


def _own_rows(rows: Array) -> list[Any]:
    """Items with memory of their own, as a cut leaves them."""
    return list(rows.copy())


def _each(
    columns: dict[str, Any],
    function: Callable[[Array], Any],
    rewards: Callable[[Array], Any] | None = None,
) -> dict[str, Any]:
    """Arguments of `fill_columns` in which each array went through a function."""
    outputs = columns["extra_model_outputs"]
    return {
        **columns,
        "observations": function(columns["observations"]),
        "actions": function(columns["actions"]),
        "rewards": (rewards or function)(columns["rewards"]),
        "extra_model_outputs": {name: function(column) for name, column in outputs.items()},
    }


# ---- fragment episode


class RowSource(Protocol):
    """Rows that chunks are parts of: a `Fragment`, or an `EpisodeBlock` that has travelled."""

    rewards: Array

    @property
    def is_plain(self) -> bool:
        """Whether rows say all: there are no infos, and no last observations beside them."""

    def chunk(self, span: RowRange) -> dict[str, Any]:
        """The columns of a chunk as arguments of `fill_columns`."""

    def checked_columns(self) -> list[Any]:
        """All that envs gave which has to be finite."""

    def flat(self) -> tuple[Array, Array, Array, dict[str, Array]]:
        """Observations, actions, rewards, outputs: rows one after another."""

    def first_rows(self, spans: Array) -> tuple[Array, Array]:
        """What is added to the rows of spans, [N, 4]: for flat observations, and for the rest."""


_COLUMNS: Final = frozenset(
    {"observations", "infos", "actions", "rewards", "extra_model_outputs", "stopwatch", "_growth"}
)
_FILLED: Final = frozenset({*_COLUMNS, "earlier_return", *USER_DATA})

_BEGINNING: Final = {
    "agent_id": None,
    "module_id": None,
    "multi_agent_episode_id": None,
    "task": None,
    "t_started": 0,
}


class FragmentEpisode(SingleAgentEpisode):
    """An episode of a fragment; filled when one of its columns is asked for.

    It is made in 1 µs; an episode with columns takes 10 µs and more. It is a lazy subclass of
    `SingleAgentEpisode`: methods and attributes answer the same, but `type()` and `vars()` do not,
    not even when it is filled. Test with `isinstance`, and read attributes by their names.

    Until it is filled, it keeps all rows alive that it is a part of. Filling copies its columns if
    they are a small part of these rows (`_MUCH_MORE_ROWS`); otherwise they stay views.
    """

    _fragment: RowSource
    _span: RowRange

    @classmethod
    def of(
        cls,
        fragment: RowSource,
        span: RowRange,
        spaces: Sequence[Any],
        attributes: Mapping[str, Any],
    ) -> FragmentEpisode:
        """An episode that is not filled yet.

        Args:
            fragment: what it is a part of.
            span: where.
            spaces: of observations and of actions.
            attributes: its id, its end, how long it took (`elapsed_s`), who plays it; of a chunk
                that goes on, `t_started` and `earlier_return`.
        """
        episode = cls.__new__(cls)
        state = episode.__dict__ = {
            **_BEGINNING,
            **attributes,
            "_fragment": fragment,
            "_span": span,
            "_spaces": spaces,
        }
        state["t"] = state["t_started"] + span.stop - span.begin
        return episode

    @classmethod
    def resting(
        cls,
        fragment: Fragment,
        span: RowRange,
        spaces: Sequence[Any],
        attributes: Mapping[str, Any],
    ) -> FragmentEpisode:
        """A chunk without a step that goes on after a cut; arguments as of `of`.

        Its columns are lists, to which steps can be added.
        """
        episode = cls.of(fragment, span, spaces, attributes)
        episode.__dict__["_is_resting"] = True
        return episode

    def __getattr__(self, name: str) -> Any:
        if name not in _FILLED or "_fragment" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self._fill()
        return self.__dict__[name]

    def _fill(self) -> None:
        state = self.__dict__
        given = {name: state[name] for name in _FILLED & state.keys()}  # what was set
        observation_space, action_space = state["_spaces"]
        rows, span = state["_fragment"], state["_span"]
        is_resting = "_is_resting" in state
        self._start_empty_user_data()
        self.fill_columns(
            **(_each(rows.chunk(span), _own_rows) if is_resting else _columns(rows, span)),
            observation_space=observation_space,
            action_space=action_space,
        )
        self.stopwatch = Stopwatch(state.get("elapsed_s", 0.0))
        for name in ("_fragment", "_span", "_spaces", "_is_resting", "elapsed_s"):
            state.pop(name, None)
        state.update(given)

    @property
    def fragment(self) -> RowSource | None:
        """What it is a part of; None once it has columns of its own."""
        return self.__dict__.get("_fragment")

    @property
    def span(self) -> RowRange:
        """Where it is in its fragment; only as long as it is a part of one."""
        return self._span

    @property
    def spaces(self) -> Sequence[Any]:
        """Of observations and of actions; only as long as it is a part of a fragment."""
        spaces: Sequence[Any] = self.__dict__["_spaces"]
        return spaces

    @property
    def is_untouched(self) -> bool:
        """Whether all of it is in its fragment: it is not filled, and nothing was set in it."""
        state = self.__dict__
        return (
            "_fragment" in state
            and state["task"] is None
            and state.keys().isdisjoint(_GIVEN_BY_USERS)
        )

    def get_duration_s(self) -> float:
        if "_fragment" not in self.__dict__:
            return super().get_duration_s()
        return self.__dict__.get("elapsed_s", 0.0) if self.t else 0.0

    def get_state(self) -> State:
        """See `SingleAgentEpisode.get_state`; it is not filled by that."""
        if "_fragment" not in self.__dict__:
            return super().get_state()
        twin = FragmentEpisode.__new__(FragmentEpisode)
        twin.__dict__ = dict(self.__dict__)
        twin._fill()
        return twin.get_state()


_MUCH_MORE_ROWS: Final = 4
"""A chunk is copied out of rows that are more than this many times its own."""


def _columns(rows: RowSource, span: RowRange) -> dict[str, Any]:
    """The columns of a chunk, which keep no more than a few times their own memory alive."""
    columns = rows.chunk(span)
    are_few = rows.rewards.size <= _MUCH_MORE_ROWS * (span.stop - span.first)
    return columns if are_few else _each(columns, np.array)


_GIVEN_BY_USERS: Final = frozenset({*_COLUMNS, *USER_DATA, "own_change", "earlier_change"})


def own_memory(episode: SingleAgentEpisode) -> None:
    """Gives the lists of a chunk that goes on items that share no memory with what was before."""
    columns = (episode.observations, episode.actions, *episode.extra_model_outputs.values())
    for column in columns:
        column.data = [nested.copied(item) for item in column.data]

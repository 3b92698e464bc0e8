"""What sub-envs of a vector env did side by side: one array per column for all of them.

A step of all sub-envs writes one row of each array, so recording costs NumPy's price and not
Python's, sub-env by sub-env. Episodes are views on these arrays. Only the learner looks at most of
them, so their columns are cut out on request.

    rows            0 … L - 1      L, L + 1, …
    what            look-back      steps of this fragment; observation r is seen before step r
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from trainer.episodes import nested
from trainer.episodes.single_agent_episode import SingleAgentEpisode, Stopwatch
from trainer.types import Array

# ---- fragment


class Place(NamedTuple):
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

    def chunk(self, place: Place) -> dict[str, Any]:
        """The columns of a chunk as arguments of `fill_columns`: views, but for the infos."""
        sub_env, first, stop = place.sub_env, place.first, place.stop
        observations = self.observations[sub_env, first : stop + 1]
        if (sub_env, stop) in self.last_observations:
            last = self.last_observations[sub_env, stop]
            observations = np.concatenate([observations[:-1], np.asarray(last)[None]])
        steps = slice(first, stop)
        return {
            "observations": observations,
            "infos": self._infos_of(place),
            "actions": self.actions[sub_env, steps],
            "rewards": self.rewards[sub_env, steps],
            "extra_model_outputs": {
                name: column[sub_env, steps] for name, column in self.outputs.items()
            },
            "lookback": place.begin - first,
        }

    def checked_columns(self) -> list[Any]:
        """All that envs gave which has to be finite."""
        return [self.observations, self.rewards, *self.last_observations.values()]

    def _infos_of(self, place: Place) -> list[dict[str, Any]]:
        sub_env, stop = place.sub_env, place.stop
        if not self.infos and not self.last_infos:
            return [{} for _ in range(place.first, stop + 1)]
        infos = [self.infos.get((sub_env, row), {}) for row in range(place.first, stop)]
        last = self.infos if (sub_env, stop) not in self.last_observations else self.last_infos
        return [*infos, last.get((sub_env, stop), {})]

    def copied_chunk(self, place: Place) -> dict[str, Any]:
        """The same in memory of its own: a chunk that is kept would keep all the fragment."""
        columns = self.chunk(place)
        infos = columns.pop("infos")
        return {"infos": infos, **{name: _copied(column) for name, column in columns.items()}}

    def lists(self, place: Place) -> dict[str, Any]:
        """The columns of a chunk as lists with memory of their own, as a growing episode has."""
        columns = self.chunk(place)
        outputs = columns["extra_model_outputs"]
        return {
            **columns,
            "observations": _own_rows(columns["observations"]),
            "actions": _own_rows(columns["actions"]),
            "rewards": columns["rewards"].tolist(),
            "extra_model_outputs": {name: _own_rows(rows) for name, rows in outputs.items()},
        }


def wide_enough(column: Array, values: Array) -> Array:
    """The column itself, or a copy in a dtype that holds these values, too."""
    if values.dtype == column.dtype:
        return column
    return column.astype(np.result_type(column.dtype, values.dtype), copy=False)


def _longer(column: Array, more: int) -> Array:
    room = np.zeros((len(column), more, *column.shape[2:]), column.dtype)
    return np.concatenate([column, room], axis=1)


def _copied(column: Any) -> Any:
    return nested.map_leaves(np.array, column) if not isinstance(column, int) else column


def _own_rows(rows: Array) -> list[Any]:
    return list(rows.copy())


# ---- fragment episode

_FILLED: Final = frozenset(
    {
        *("observations", "infos", "actions", "rewards", "extra_model_outputs"),
        *("earlier_return", "stopwatch", "_growth", "custom_data", "user_data"),
        *("custom_metrics", "hist_data", "media", "temporary_data"),
    }
)


_BEGINNING: Final = {
    "agent_id": None,
    "module_id": None,
    "multi_agent_episode_id": None,
    "task": None,
    "t_started": 0,
}


class FragmentEpisode(SingleAgentEpisode):
    """An episode of a fragment that began within it; filled when one of its columns is asked for.

    It is made in 1 µs; an episode with columns takes 10 µs and more. Nothing tells it from others:
    filled, it is one.
    """

    _fragment: Fragment
    _place: Place

    @classmethod
    def of(
        cls, fragment: Fragment, place: Place, spaces: Sequence[Any], attributes: Mapping[str, Any]
    ) -> FragmentEpisode:
        """An episode that is not filled yet.

        Args:
            fragment: what it is a part of.
            place: where.
            spaces: of observations and of actions.
            attributes: its id, its end, how long it took (`elapsed_s`), who plays it.
        """
        episode = cls.__new__(cls)
        episode.__dict__ = {
            **_BEGINNING,
            **attributes,
            "t": place.stop - place.begin,
            "_fragment": fragment,
            "_place": place,
            "_spaces": spaces,
        }
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
        self._start_empty_user_data()
        self.fill_columns(
            **state["_fragment"].chunk(state["_place"]),
            observation_space=observation_space,
            action_space=action_space,
        )
        self.stopwatch = Stopwatch(state.get("elapsed_s", 0.0))
        for name in ("_fragment", "_place", "_spaces", "elapsed_s"):
            state.pop(name, None)
        state.update(given)

    @property
    def fragment(self) -> Fragment | None:
        """What it is a part of; None once it has columns of its own."""
        return self.__dict__.get("_fragment")


def own_memory(episode: SingleAgentEpisode) -> None:
    """Gives the lists of a chunk that goes on items that share no memory with what was before."""
    columns = (episode.observations, episode.actions, *episode.extra_model_outputs.values())
    for column in columns:
        column.data = [nested.copied(item) for item in column.data]

"""Episodes as plain data, taken apart and put together again."""

from __future__ import annotations

import copy
import weakref
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import numpy as np

from trainer.episodes import nested
from trainer.episodes.episode_columns import (
    ACTIONS,
    EPISODE_IDS,
    INFOS,
    OBS,
    REWARDS,
    TERMINATEDS,
    TIMESTEPS,
    TRUNCATEDS,
    EpisodeColumns,
    copied_data,
    joined_changes,
)
from trainer.episodes.lookback_buffer import LookbackBuffer
from trainer.errors import EpisodeError
from trainer.types import State
from trainer_toolkit import checks
from trainer_toolkit.checks import shown

if TYPE_CHECKING:
    from trainer.episodes.single_agent_episode import SingleAgentEpisode

# ---- episode state
#
# Episodes as plain data: for checkpoints and for the way between processes. Spaces are not part
# of it (they are objects, known where an episode is restored), nor is time (so that two equal
# runs write equal bytes), nor who plays (the runner and its sub-env may be others afterwards).

USER_DATA: Final = (
    "custom_data",
    "user_data",
    "custom_metrics",
    "hist_data",
    "media",
    "temporary_data",
)
"""The attributes of an episode that are free for users."""


_CHANGES: Final = ("own_change", "earlier_change")

MOVED_BY_CUT: Final = USER_DATA[1:]
"""Those that a cut moves to the next chunk; of `custom_data` a copy stays."""

_ATTRIBUTES: Final = (
    "id_",
    "agent_id",
    "module_id",
    "multi_agent_episode_id",
    "t_started",
    "t",
    "is_terminated",
    "is_truncated",
    *USER_DATA,
)
_COLUMNS: Final = (
    "observations",
    "infos",
    "actions",
    "rewards",
    "extra_model_outputs",
    "lookback",
    "earlier_return",
)

_ROWS: Final = checks.of_type(list, tuple, dict, np.ndarray, name="rows")

EPISODE_STATE: Final = checks.fields(
    {
        "id_": checks.TEXT,
        "agent_id": checks.either(checks.TEXT, checks.of_type(int), checks.NOTHING),
        "module_id": checks.either(checks.TEXT, checks.NOTHING),
        "multi_agent_episode_id": checks.either(checks.TEXT, checks.NOTHING),
        "t_started": checks.COUNT,
        "t": checks.COUNT,
        "is_terminated": checks.FLAG,
        "is_truncated": checks.FLAG,
        **{name: checks.of_type(dict) for name in USER_DATA},
        "lookback": checks.COUNT,
        "observations": _ROWS,
        "infos": checks.either(checks.of_type(list), checks.NOTHING),
        "actions": _ROWS,
        "rewards": _ROWS,
        "earlier_return": checks.list_of(checks.ANY_NUMBER),
        **dict.fromkeys(_CHANGES, checks.either(checks.list_of(checks.ANY_NUMBER), checks.NOTHING)),
        "extra_model_outputs": checks.of_type(dict),
    },
    optional={"task": checks.anything()},
)
"""What a state looks like; whether its columns fit together is seen when an episode is made."""


EpisodeT = TypeVar("EpisodeT", bound="Episode")


class Episode:
    """What episodes of one agent and of several have in common: data of users, who plays, parts.

    Attributes:
        id_: the same for all chunks of an episode.
        custom_data: free for users. A cut leaves a deep copy in the finished chunk.
        user_data: free for users, never copied; may hold objects that cannot be copied, as long as
            the episode stays in its process. A cut moves it on.
        custom_metrics: {name: number}, reported when the episode ends. A cut moves it on.
        hist_data: {name: list of numbers}, reported when the episode ends. A cut moves it on.
        media: {name: anything}. A cut moves it on.
        temporary_data: {key: list}, see `add_temporary_timestep_data`. A cut moves it on.
        stopwatch: the time played; its clock can be replaced in tests.
        task: what the env was to do when the first step was made; None for envs without tasks.
        env_id: the index of the sub-env that is played, or None.
    """

    env_id: int | None = None
    _player: weakref.ref[Any] | None = None

    @property
    def is_done(self) -> bool:
        """Whether the episode has ended (terminated or truncated)."""
        raise NotImplementedError

    @property
    def is_reset(self) -> bool:
        """Whether the episode has begun."""
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def __bool__(self) -> bool:
        return True  # an episode without steps is an episode, too

    def env_steps(self) -> int:
        """The number of env steps of this chunk, without look-back."""
        return len(self)

    # Parts.

    def _steps_of(self, slice_: slice) -> tuple[int, int]:
        """The first step of a part of this chunk, and the one behind its last."""
        if slice_.step not in (None, 1):
            raise EpisodeError(
                f"An episode cannot be sliced with step {slice_.step}. Its steps must follow each "
                "other, as each observation belongs to two of them. Slice with step 1."
            )
        start, stop, _ = slice_.indices(len(self))
        return start, max(start, stop)

    def slice(self: EpisodeT, slice_: slice) -> EpisodeT:
        """A part of this chunk."""
        raise NotImplementedError

    def __getitem__(self: EpisodeT, item: Any) -> EpisodeT:
        if isinstance(item, slice):
            return self.slice(item)
        raise NotImplementedError(
            f"episode[{item!r}]: an episode gives parts only, episode[a:b]. A single step has no "
            f"one form. Use the getters, such as `get_observations({item!r})`."
        )

    def _data_that_stays(self) -> dict[Any, Any]:
        """The copy of `custom_data` that a cut leaves; an EpisodeError if there can be none."""
        if self.is_done or not self.is_reset:
            raise EpisodeError(
                f"{self!r} {'is done' if self.is_done else 'was not reset'}, so it cannot be cut. "
                "Only a running episode has a successor. Use `slice()` to get a part of it."
            )
        return deep_copied(self.custom_data)

    def _refuse_next(self, other: Episode, problem: str) -> NoReturn:
        raise EpisodeError(
            f"{other!r} cannot be appended to {self!r}: {problem}. Only the chunk that `cut()` "
            "returned, or the slice behind this one, goes on where this one ends. Concatenate "
            "chunks of one episode in order."
        )

    # Data of users, and who plays.

    def _start_empty_user_data(self) -> None:
        self.custom_data: dict[Any, Any] = {}
        self.user_data: dict[Any, Any] = {}
        self.custom_metrics: dict[str, Any] = {}
        self.hist_data: dict[str, list[Any]] = {}
        self.media: dict[str, Any] = {}
        self.temporary_data: dict[str, list[Any]] = {}

    def _hand_over_user_data(self, successor: Episode, custom_data: dict[Any, Any]) -> None:
        """Moves all of it to the next chunk; of `custom_data` this copy stays."""
        successor.custom_data, self.custom_data = self.custom_data, custom_data
        for name in MOVED_BY_CUT:
            setattr(successor, name, getattr(self, name))
            setattr(self, name, {})

    def _join_user_data(self, other: Episode) -> None:
        for name in USER_DATA:
            getattr(self, name).update(getattr(other, name))

    @property
    def player(self) -> Any:
        """The env runner that plays, in its own process only; None elsewhere."""
        return None if self._player is None else self._player()

    def note_player(self, worker: Any, env_id: int) -> None:
        """Tells the episode who plays it; the runner is not kept alive by that."""
        self._player = weak_player(worker)
        self.env_id = env_id

    def add_temporary_timestep_data(self, key: str, data: Any) -> None:
        """Appends a value to the list of `key`; nothing aligns it with steps."""
        self.temporary_data.setdefault(key, []).append(data)

    def get_temporary_timestep_data(self, key: str) -> list[Any]:
        """All values added under `key` in this episode, [] if there are none."""
        return self.temporary_data.get(key, [])


def shared_state(episode: SingleAgentEpisode) -> State:
    """All there is to know of an episode, with the very objects that it holds.

    Infos that are all empty are None: a list of dicts is dear to send.
    """
    state = {name: getattr(episode, name) for name in _ATTRIBUTES}
    infos = episode.infos.data
    state["observations"] = episode.observations.data
    state["infos"] = infos if any(infos) else None
    state["actions"] = episode.actions.data
    state["rewards"] = episode.rewards.data
    state["extra_model_outputs"] = {
        key: column.data for key, column in episode.extra_model_outputs.items()
    }
    state["lookback"] = episode.lookback
    state["earlier_return"] = episode.earlier_return
    state |= {name: getattr(episode, name) for name in _CHANGES}
    if episode.task is not None:  # envs without tasks have the states that they always had
        state["task"] = episode.task
    return state


def is_bare(episode: SingleAgentEpisode) -> bool:
    """Whether an episode of a single agent is its columns and numbers: users put nothing in it."""
    state = episode.__dict__
    if any(map(state.get, USER_DATA)) or state["task"] is not None:
        return False
    if episode.own_change is not None or episode.earlier_change is not None:
        return False
    named = (episode.agent_id, episode.module_id, episode.multi_agent_episode_id)
    return named == (None, None, None)


def copied_state(state: State) -> State:
    """A state that shares no list, dict or array with the one given, nor with its episode.

    Raises:
        EpisodeError: something is missing in it.
    """
    missing = sorted({*_ATTRIBUTES, *_COLUMNS} - state.keys())
    if missing:
        raise EpisodeError(
            f"The state of an episode lacks {missing}; it has {sorted(state)}. Without them it "
            "cannot be continued. Pass what `episode.get_state()` returned."
        )
    return copied_parts(state)


def copied_parts(state: State) -> State:
    """`copied_state` of a state that lacks nothing."""
    copied = {name: state[name] for name in (*_ATTRIBUTES, "lookback")}
    for name in USER_DATA:
        copied[name] = copied_containers(state[name]) if state[name] else {}
    for name in ("observations", "infos", "actions", "rewards", "earlier_return"):
        copied[name] = copied_data(state[name])
    for name in _CHANGES:
        copied[name] = copied_containers(state[name])
    if "task" in state:
        copied["task"] = copied_containers(state["task"])
    outputs = state["extra_model_outputs"]
    copied["extra_model_outputs"] = {key: copied_data(data) for key, data in outputs.items()}
    return copied


def take_state(
    episode: SingleAgentEpisode, state: State, *, observation_space: Any, action_space: Any
) -> None:
    """Makes the episode the one that `shared_state` described; it keeps the state's objects.

    Raises:
        EpisodeError: columns do not fit together.
    """
    for name in _ATTRIBUTES:
        setattr(episode, name, state[name])
    episode.fill_columns(
        observations=state["observations"],
        infos=state["infos"],
        actions=state["actions"],
        rewards=state["rewards"],
        extra_model_outputs=state["extra_model_outputs"],
        lookback=state["lookback"],
        observation_space=observation_space,
        action_space=action_space,
    )
    for name in ("earlier_return", *_CHANGES):
        setattr(episode, name, state[name])
    episode.task = state.get("task")


def copied_containers(value: Any) -> Any:
    """A copy of nested dicts, lists, sets, tuples and arrays; anything else is shared.

    Unlike `copy.deepcopy` it never fails: objects that cannot be copied are left for the codec to
    name.
    """
    if isinstance(value, dict):
        return {key: copied_containers(item) for key, item in value.items()}
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return type(value)(copied_containers(item) for item in value)
    if isinstance(value, set):
        return set(value)
    return value.copy() if isinstance(value, np.ndarray) else value


def deep_copied(custom_data: dict[Any, Any]) -> dict[Any, Any]:
    """A deep copy of an episode's `custom_data`; an EpisodeError if there can be none."""
    if not custom_data:
        return {}
    try:
        return copy.deepcopy(custom_data)
    except Exception as cause:  # whatever the objects' own copying raises; re-raised here
        raise EpisodeError(
            f"`custom_data` with the keys {sorted(map(str, custom_data))} cannot be copied "
            f"({cause}). The cut chunk keeps a copy, for the learner. Keep objects like files, "
            "locks and envs in the callback instead, such as `self.files[episode.id_]`."
        ) from cause


# ---- parts
#
# Taking chunks apart and putting them together again; functions on columns only.


def window(columns: EpisodeColumns, start: int, stop: int, *, lookback: int) -> dict[str, Any]:
    """The data of the steps at positions start … stop - 1 as arguments of `fill_columns`.

    The look-back is counted; `lookback` of the steps are that of the part.
    """
    return {
        "observations": columns.observations.window(start, stop + 1),
        "infos": columns.infos.window(start, stop + 1),
        "actions": columns.actions.window(start, stop),
        "rewards": columns.rewards.window(start, stop),
        "extra_model_outputs": {
            key: column.window(start, stop) for key, column in columns.extra_model_outputs.items()
        },
        "lookback": lookback,
        "observation_space": columns.observation_space,
        "action_space": columns.action_space,
    }


def tail(columns: EpisodeColumns, length: int) -> dict[str, Any]:
    """The newest observation and `length` steps of look-back, as lists for `fill_columns`."""
    return {
        "observations": columns.observations.tail(length + 1),
        "infos": columns.infos.tail(length + 1),
        "actions": columns.actions.tail(length),
        "rewards": columns.rewards.tail(length),
        "extra_model_outputs": {
            key: column.tail(length) for key, column in columns.extra_model_outputs.items()
        },
        "lookback": length,
        "observation_space": columns.observation_space,
        "action_space": columns.action_space,
    }


def data_rows(episode: SingleAgentEpisode, id_: str) -> dict[str, Any]:
    """One row per step in every column; see `SingleAgentEpisode.get_data_dict`."""
    steps = len(episode)
    terminateds, truncateds = np.zeros(steps, bool), np.zeros(steps, bool)
    if steps:
        terminateds[-1], truncateds[-1] = episode.is_terminated, episode.is_truncated
    return {
        EPISODE_IDS: np.array([id_] * steps, np.str_),
        TIMESTEPS: np.arange(episode.t_started, episode.t),
        OBS: episode.get_observations(slice(0, steps)),
        INFOS: episode.get_infos(slice(0, steps)),
        ACTIONS: episode.get_actions(),
        REWARDS: episode.get_rewards(),
        TERMINATEDS: terminateds,
        TRUNCATEDS: truncateds,
        **episode.get_extra_model_outputs(),
    }


def why_not_following(first: SingleAgentEpisode, other: SingleAgentEpisode) -> str | None:
    """What keeps `other` from being the continuation of `first`, or None if it is."""
    if first.is_done:
        return "the first one is done"
    if other.t_started != first.t:
        return f"the first one ends at step {first.t}, the other begins at {other.t_started}"
    if not (first.is_reset and other.is_reset):
        return "one of them has no observation"
    if not nested.equal(first.get_observations(-1), other.get_observations(0)):
        return "the last observation of the first is not the first observation of the other"
    both_have_steps = first.rewards.total and len(other)
    if both_have_steps and first.extra_model_outputs.keys() != other.extra_model_outputs.keys():
        return "they have different extra outputs"
    return None


def append_columns(first: EpisodeColumns, other: EpisodeColumns) -> None:
    """Appends the steps of `other`, without its look-back, to the lists or arrays of `first`."""
    start, stop = other.lookback, other.rewards.total
    if not first.rewards.total:
        first.extra_model_outputs = {key: LookbackBuffer() for key in other.extra_model_outputs}
    first.observations.extend(_items(other.observations, start + 1, stop + 1))
    first.infos.extend(_items(other.infos, start + 1, stop + 1))
    first.actions.extend(_items(other.actions, start, stop))
    first.rewards.extend(_items(other.rewards, start, stop))
    first.own_change = joined_changes(first.own_change, other.own_change)
    if stop > start:
        for key, column in first.extra_model_outputs.items():
            column.extend(_items(other.extra_model_outputs[key], start, stop))


def _items(column: LookbackBuffer, start: int, stop: int) -> list[Any]:
    data = column.window(start, stop)
    return data if isinstance(data, list) else nested.unstack(data, stop - start)


def weak_player(worker: Any) -> weakref.ref[Any]:
    """A reference to the env runner that plays, which does not keep it alive.

    Raises:
        EpisodeError: it is nothing that can be referred to, such as a string.
    """
    try:
        return weakref.ref(worker)
    except TypeError as cause:
        raise EpisodeError(
            f"note_player() got worker={shown(worker)}; expected the env runner that plays. "
            "Give the runner itself."
        ) from cause

"""From the columns of a recording to an episode of two spaces, or to an error that says why not."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from trainer.connectors.encoding import before_decoding, before_decoding_of
from trainer.episodes import SingleAgentEpisode, nested
from trainer.errors import EpisodeError
from trainer.offline.files import RecordedEpisode
from trainer.types import Array

_INTEGERS: Final = "biu"


@dataclass(frozen=True)
class EpisodeColumns:
    """An episode that fits the spaces; its arrays cannot be written to.

    Attributes:
        observations: [T + 1, ...] of the observation space.
        actions: [T, ...] as a module emits them.
        rewards: float64 [T].
        is_terminated, is_truncated: how it ended; neither if recording stopped before its end.
    """

    name: str
    observations: Any
    actions: Any
    rewards: Array
    is_terminated: bool
    is_truncated: bool

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def num_bytes(self) -> int:
        """What its arrays take."""
        return sum(leaf.nbytes for leaf in self._arrays())

    def _arrays(self) -> list[Array]:
        found: list[Array] = [self.rewards]
        nested.map_leaves(found.append, self.observations)
        nested.map_leaves(found.append, self.actions)
        return found

    def digest(self) -> bytes:
        """32 bytes that follow from its numbers, their types and its end, not from its name."""
        found = hashlib.sha256(f"{self.is_terminated} {self.is_truncated}".encode())
        for leaf in self._arrays():
            found.update(f"{leaf.dtype.str} {leaf.shape}".encode())
            found.update(np.ascontiguousarray(leaf).data)
        return found.digest()

    def episode(self) -> SingleAgentEpisode:
        """A new episode around these arrays."""
        return SingleAgentEpisode(
            self.name,
            observations=self.observations,
            actions=self.actions,
            rewards=self.rewards,
            terminated=self.is_terminated,
            truncated=self.is_truncated,
            len_lookback_buffer=0,
        )


@dataclass(frozen=True)
class RecordingForm:
    """What recordings must look like.

    Attributes:
        observation_space, action_space: of the env.
        normalize_actions: the module chooses bounded actions in [-1, 1].
        are_actions_normalized: the recorded ones are such choices, not what the env was given; None
            is what the kind of file says.
        clips_actions: the module chooses within the bounds of a Box; what is recorded beyond them,
            by a policy that envs clip, is moved onto them.
    """

    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]
    normalize_actions: bool
    are_actions_normalized: bool | None = None
    clips_actions: bool = False

    def columns_of(self, recorded: RecordedEpisode) -> EpisodeColumns:
        """The episode, checked.

        Raises:
            EpisodeError: it does not fit; names file, episode and column.
        """
        reader = _Reader(recorded.name, recorded.read())
        rewards = reader.rewards()
        from_env = recorded.holds_env_actions
        if self.are_actions_normalized is not None:
            from_env = not self.are_actions_normalized
        emitted = before_decoding(self.action_space, normalize_actions=self.normalize_actions)
        of = self.action_space if from_env else emitted
        actions = reader.leaves(of, "actions", len(rewards))
        if from_env:
            actions = before_decoding_of(
                actions, self.action_space, normalize_actions=self.normalize_actions
            )
        if self.clips_actions and isinstance(emitted, spaces.Box):
            actions = np.clip(actions, emitted.low, emitted.high)
        found = EpisodeColumns(
            name=recorded.name,
            observations=reader.leaves(self.observation_space, "observations", len(rewards) + 1),
            actions=nested.map_leaves(_as_policies_emit, actions),
            rewards=rewards,
            is_terminated=reader.flag("terminated"),
            is_truncated=reader.flag("truncated"),
        )
        for leaf in found._arrays():
            leaf.flags.writeable = False
        return found


def _as_policies_emit(actions: Array) -> Array:
    return actions.astype(np.float32 if actions.dtype.kind == "f" else np.int64)


class _Reader:
    """Reads the columns of one episode; all its errors name it."""

    def __init__(self, name: str, columns: Mapping[str, Array]) -> None:
        self._name = name
        self._columns = columns

    def error(self, column: str, why: str) -> EpisodeError:
        return EpisodeError(
            f"The recording {self._name} does not fit: column {column!r} {why}. Give recordings of "
            "the same env, or name that env in environment()."
        )

    def column(self, name: str) -> Array:
        if name not in self._columns:
            there = ", ".join(sorted(self._columns)) or "nothing"
            raise self.error(name, f"is not there; the episode has {there}")
        column = self._columns[name]
        if column.dtype.kind not in "biuf":
            raise self.error(name, f"holds {column.dtype}; expected numbers")
        if column.dtype.kind == "f" and not np.isfinite(column).all():
            raise self.error(name, "holds numbers that are not finite")
        return column

    def rewards(self) -> Array:
        rewards = self.column("rewards")
        if rewards.ndim != 1 or not len(rewards):
            raise self.error("rewards", f"has the shape {rewards.shape}; expected [T], T ≥ 1")
        return rewards.astype(np.float64)

    def flag(self, name: str) -> bool:
        column = self.column(name)
        if column.shape not in ((), (1,)) or not np.isin(column, (0, 1)).all():
            raise self.error(name, f"is {column.tolist()!r:.40}; expected one bool")
        return bool(column)

    def leaves(self, space: gym.Space[Any], name: str, num_rows: int) -> Any:
        """A batch of the space."""
        if isinstance(space, spaces.Dict):
            return {k: self.leaves(part, f"{name}/{k}", num_rows) for k, part in space.items()}
        if isinstance(space, spaces.Tuple):
            pairs = enumerate(space.spaces)
            return tuple(self.leaves(part, f"{name}/{i}", num_rows) for i, part in pairs)
        column, shape = self.column(name), (num_rows, *(space.shape or ()))
        if column.shape != shape:
            raise self.error(name, f"has the shape {column.shape}; expected {shape} of {space}")
        dtype = np.dtype(space.dtype or column.dtype)
        with np.errstate(over="ignore", invalid="ignore"):  # looked for below
            numbers = column.astype(dtype)
        if dtype.kind not in _INTEGERS:
            if not np.isfinite(numbers).all():
                raise self.error(name, f"holds numbers that are too large for {dtype}")
            return numbers
        low, high = _bounds(space)
        is_wrong = (numbers != column) | (column < low) | (column > high)
        if is_wrong.any():
            row = int(np.argwhere(is_wrong)[0][0])
            raise self.error(
                name, f"holds {column[row].tolist()!r:.60} in row {row}, not in {space}"
            )
        return numbers


def _bounds(space: gym.Space[Any]) -> tuple[Any, Any]:
    if isinstance(space, spaces.Discrete):
        return space.start, space.start + space.n - 1
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    return (space.low, space.high) if isinstance(space, spaces.Box) else (0, 1)

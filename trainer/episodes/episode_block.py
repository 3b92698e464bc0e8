"""Chunks that travel to another process together: one array per column for all of them.

Pickled by itself, a chunk of CartPole costs as much on both sides as playing four of its steps; in
a block, a fifth of that. What arrives are episodes that are filled when they are looked at
(`FragmentEpisode`), so that a learner that takes whole columns never makes them.

    rows        first … stop - 1                  of actions, rewards, outputs
    rows        first + number … stop + number    of observations: chunks have one more each
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np

from trainer.episodes.episode_state import is_bare
from trainer.episodes.fragment import FragmentEpisode, RowRange, RowSource
from trainer.episodes.single_agent_episode import SingleAgentEpisode
from trainer.types import Array

# ---- block


class EpisodeBlock:
    """Columns of chunks one after another, look-back included.

    A `RowRange` in it has the number of the chunk in place of that of a sub-env. An episode that is
    not filled keeps all of the block alive; filled, it has columns of its own, unless the block is
    hardly larger than they are (`FragmentEpisode`).

    Attributes:
        observations, actions, rewards, outputs: as of `Fragment`, without the axis of sub-envs.
    """

    def __init__(
        self, observations: Array, actions: Array, rewards: Array, outputs: dict[str, Array]
    ) -> None:
        """Takes over arrays of the rows of all chunks."""
        self.observations, self.actions, self.rewards = observations, actions, rewards
        self.outputs = outputs

    def chunk(self, span: RowRange) -> dict[str, Any]:
        """The columns of a chunk as arguments of `fill_columns`: views, but for the infos."""
        number, first, begin, stop = span
        rows = slice(first, stop)
        return {
            "observations": self.observations[first + number : stop + number + 1],
            "infos": [{} for _ in range(first, stop + 1)],
            "actions": self.actions[rows],
            "rewards": self.rewards[rows],
            "extra_model_outputs": {name: column[rows] for name, column in self.outputs.items()},
            "lookback": begin - first,
        }

    def checked_columns(self) -> list[Any]:
        return [self.observations, self.rewards]

    @property
    def is_plain(self) -> bool:
        return True

    def flat(self) -> tuple[Array, Array, Array, dict[str, Array]]:
        """Observations, actions, rewards, outputs: rows one after another."""
        return self.observations, self.actions, self.rewards, self.outputs

    def first_rows(self, spans: Array) -> tuple[Array, Array]:
        """What is added to the rows of spans, [N, 4]: for flat observations, and for the rest."""
        return spans[:, 0], np.zeros(len(spans), np.int64)


# ---- columns of many chunks


def flat_columns(
    source: RowSource, spans: Sequence[RowRange], *, with_lookback: bool
) -> tuple[EpisodeBlock, list[RowRange]]:
    """The rows of some chunks alone, as a block, and where in it they are."""
    where = np.array(spans)
    stops = where[:, 3]
    starts = where[:, 1] if with_lookback else where[:, 2]
    lengths = stops - starts
    observations, actions, rewards, outputs = source.flat()
    for_observations, for_rest = source.first_rows(where)
    observation_rows = _ranges(starts + for_observations, lengths + 1)
    rows = _ranges(starts + for_rest, lengths)
    block = EpisodeBlock(
        observations[observation_rows],
        actions[rows],
        rewards[rows],
        {name: column[rows] for name, column in outputs.items()},
    )
    borders = np.concatenate([[0], np.cumsum(lengths)]).tolist()
    lookbacks = (where[:, 2] - starts).tolist()
    return block, [
        RowRange(number, first, first + lookback, stop)
        for number, ((first, stop), lookback) in enumerate(
            zip(pairwise(borders), lookbacks, strict=True)
        )
    ]


def _ranges(starts: Array, lengths: Array) -> Array:
    """Row numbers of ranges one after another."""
    ends = np.cumsum(lengths)
    rows: Array = np.arange(ends[-1]) + np.repeat(starts - (ends - lengths), lengths)
    return rows


def row_sources(
    episodes: Sequence[SingleAgentEpisode],
) -> list[tuple[RowSource, list[RowRange]]] | None:
    """What chunks are untouched parts of, in their order; None if one of them is not, or is wide.

    Rows of images are no gain: they would be copied once more.
    """
    found: list[tuple[RowSource, list[RowRange]]] = []
    for episode in episodes:
        if not isinstance(episode, FragmentEpisode) or not episode.is_untouched:
            return None
        source = episode.fragment
        if source is None:
            return None
        if not found or found[-1][0] is not source:
            if not source.is_plain or _is_wide(source.flat()[0]):
                return None
            found.append((source, []))
        found[-1][1].append(episode.span)
    return found


def _is_wide(rows: Array) -> bool:
    return rows[:1].nbytes > _WIDEST_ROW_BYTES


# ---- travelling

_TRAVELLING_ATTRIBUTES: Final = ("id_", "t_started", "is_terminated", "is_truncated", "env_id")
_KINDS: Final = (SingleAgentEpisode, FragmentEpisode)
_FEWEST: Final = 2
_WIDEST_ROW_BYTES: Final = 4096


class TravellingEpisodes(tuple[Any, ...]):
    """Episodes that are packed as a block where that can be; unpacked, a tuple of episodes."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        if len(self) < _FEWEST:
            return tuple, (list(self),)
        packed = _packed_parts(self) or _packed_chunks(self)
        return (tuple, (list(self),)) if packed is None else (_unpacked, packed)


def _packed_parts(episodes: Sequence[Any]) -> tuple[Any, ...] | None:
    """Of episodes that are all parts of one fragment."""
    sources = row_sources(episodes)
    if sources is None or len(sources) > 1:
        return None
    block, spans = flat_columns(*sources[0], with_lookback=True)
    return block, episodes[0].spaces, [_travelling_values(one) for one in episodes], spans


def _packed_chunks(episodes: Sequence[Any]) -> tuple[Any, ...] | None:
    """Of episodes with columns of their own; None if they are not alike, or hold more than that."""
    first = episodes[0]
    if not all(
        type(one) in _KINDS and is_bare(one) and not any(one.infos.data) for one in episodes
    ):
        return None
    names = first.extra_model_outputs.keys()
    if any(one.extra_model_outputs.keys() != names for one in episodes):
        return None
    observations = _joined(one.observations.data for one in episodes)
    actions = _joined(one.actions.data for one in episodes)
    rewards = _joined(one.rewards.data for one in episodes)
    outputs: dict[str, Array] = {}
    for name in names:
        column = _joined(one.extra_model_outputs[name].data for one in episodes)
        if column is None:
            return None
        outputs[name] = column
    if observations is None or actions is None or rewards is None or _is_wide(observations):
        return None
    spans, stop = [], 0
    for number, one in enumerate(episodes):
        begun, stop = stop, stop + len(one.rewards.data)
        spans.append(RowRange(number, begun, begun + one.lookback, stop))
    spaces = (first.observation_space, first.action_space)
    values = [_travelling_values(one) for one in episodes]
    return EpisodeBlock(observations, actions, rewards, outputs), spaces, values, spans


def _joined(columns: Iterable[Any]) -> Array | None:
    """Columns one after another; None if they are no arrays of one kind."""
    parts = list(columns)
    first = parts[0]
    if type(first) is not np.ndarray:
        return None
    kind, shape = first.dtype, first.shape[1:]
    for part in parts:
        if type(part) is not np.ndarray or part.dtype != kind or part.shape[1:] != shape:
            return None
    return np.concatenate(parts)


def _travelling_values(episode: SingleAgentEpisode) -> tuple[Any, ...]:
    """Values of `_TRAVELLING_ATTRIBUTES`, seconds that it took, return of earlier chunks."""
    return (
        episode.id_,
        episode.t_started,
        episode.is_terminated,
        episode.is_truncated,
        episode.env_id,
        episode.get_duration_s(),
        episode.__dict__.get("earlier_return"),
    )


def _unpacked(
    block: EpisodeBlock,
    spaces: Sequence[Any],
    values: Sequence[Any],
    spans: Sequence[RowRange],
) -> tuple[FragmentEpisode, ...]:
    episodes = []
    for (*own, elapsed_s, earlier_return), span in zip(values, spans, strict=True):
        attributes = dict(zip(_TRAVELLING_ATTRIBUTES, own, strict=True))
        attributes["elapsed_s"] = elapsed_s
        if earlier_return:
            attributes["earlier_return"] = earlier_return
        episodes.append(FragmentEpisode.of(block, span, spaces, attributes))
    return tuple(episodes)

"""Writes the steps of episodes into a replay buffer while they grow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from trainer.episodes import SingleAgentEpisode
from trainer.replay.step_ring import (
    ACTIONS,
    NEXT_OBS,
    NO_ROW,
    OBS,
    REWARDS,
    TERMINATEDS,
    StepRing,
    check_layout,
    columns_of,
)
from trainer.types import Array

Running = dict[str, tuple[int, int]]
"""Of each running episode, by id: the position of its newest step that is stored, and how long it
was then; the one that waits longest comes first."""


class EpisodeWriter:
    """Stores steps row by row, with the outcome that adding the episodes' chunks would have.

    Life: `write` after every few steps, `check` at the end. Where rounds of a few steps follow each
    other, to cut chunks, make arrays of them and join those costs several times what it costs to
    write their rows.

    All that is to be overwritten is remembered at the beginning, for who undoes it.
    """

    def __init__(
        self,
        ring: StepRing,
        templates: Mapping[str, Any],
        running: Running,
        *,
        num_rows: int,
        on_added: Callable[[Array], None],
    ) -> None:
        """Nothing is written yet.

        Args:
            ring: holds steps already, which say what a row consists of.
            templates: how observations and actions are nested.
            running: the episodes that may go on; stays as it is.
            num_rows: how many will be written, at most the ring's capacity.
            on_added: told of the rows that `write` has written.
        """
        self.running = dict(running)
        self._ring, self._on_added = ring, on_added
        self._num_written: dict[str, int] = {}
        columns = ring.columns
        self._cells = [
            (columns[name + place], source, path)
            for source, name in enumerate((OBS, NEXT_OBS, ACTIONS))
            for place, path in _paths(templates[ACTIONS if name == ACTIONS else OBS])
            if name == ACTIONS or place not in ring.frame_stores
        ]
        self._framed = [
            (place, path) for place, path in _paths(templates[OBS]) if place in ring.frame_stores
        ]
        self._rewards, self._terminateds = columns[REWARDS], columns[TERMINATEDS]
        tails = [position for position, _ in running.values()]
        ring.remember_rows_to_come(num_rows, tails)

    def write(self, episodes: Iterable[SingleAgentEpisode]) -> None:
        """Stores the steps that were not stored yet, of episodes with lists, in their order."""
        ring, first = self._ring, self._ring.num_added
        for episode in episodes:
            self._write(episode)
        self._on_added(np.arange(first, ring.num_added) % ring.capacity)

    def _write(self, episode: SingleAgentEpisode) -> None:
        ring, id_ = self._ring, episode.id_
        num_written, num_steps = self._num_written.get(id_, 0), len(episode)
        if num_steps == num_written:
            return
        capacity, following = ring.capacity, ring.following
        before, t = self.running.pop(id_, (NO_ROW, NO_ROW))
        if t != episode.t_started + num_written:
            before = NO_ROW
        observations, actions, rewards = (
            _new_items(column, num_written)
            for column in (episode.observations, episode.actions, episode.rewards)
        )
        position = ring.num_added
        for step, reward in enumerate(rewards):
            row = position % capacity
            if position >= capacity and following[row] < 0:
                ring.num_tails -= 1
            for column, source, path in self._cells:
                item = actions[step] if source == 2 else observations[step + source]
                column[row] = _part_of(item, path)
            self._rewards[row] = reward
            self._terminateds[row] = False
            following[row] = NO_ROW
            if before >= 0 and before > position - capacity:
                following[before % capacity] = row
            else:
                ring.num_tails += 1
            for place, path in self._framed:
                pair = _part_of(observations[step], path), _part_of(observations[step + 1], path)
                ring.write_frames(place, position, pair, follows=before)
            before, position = position, position + 1
        ring.num_added = position
        if episode.is_done:
            self._terminateds[before % capacity] = episode.is_terminated
        else:
            self.running[id_] = (before, episode.t)
        self._num_written[id_] = num_steps

    def check(self, chunks: Iterable[SingleAgentEpisode]) -> None:
        """Compares what was written with what a row consists of.

        Args:
            chunks: of all that was written, after `to_numpy()`.

        Raises:
            ReplayError: they differ in names, number types or shapes.
        """
        for chunk in chunks:
            if len(chunk):
                check_layout(columns_of(chunk), self._ring.layout, episode_id=chunk.id_)


def _new_items(column: Any, num_written: int) -> Sequence[Any]:
    items: Sequence[Any] = column.data[column.lookback + num_written :]
    return items


def _part_of(item: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        item = item[key]
    return item


def _paths(template: Any) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The arrays of a template: what the columns' names end with, and the keys to them."""
    if template is None:
        yield "", ()
        return
    parts = template.items() if isinstance(template, dict) else enumerate(template)
    for key, part in parts:
        for place, path in _paths(part):
            yield f"[{key!r}]{place}", (key, *path)

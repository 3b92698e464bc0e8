"""Minibatches: several passes over a batch, in an order that is drawn per update.

The rows of all passes form one endless stream, which is cut into minibatches of exactly the same
size; the last one goes on into one more pass (RLlib's cyclic iterator). So no row is left out, and
memory is used again and again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from trainer.episodes import nested
from trainer.types import Array


def num_minibatches(num_rows: int, *, minibatch_size: int, num_epochs: int) -> int:
    """How many minibatches cover `num_epochs` passes over `num_rows` rows (all ≥ 1)."""
    return -(-num_rows * num_epochs // minibatch_size)


def minibatches(
    columns: Mapping[str, Any],
    *,
    minibatch_size: int,
    num_epochs: int,
    rng: np.random.Generator | None,
) -> Iterator[dict[str, Any]]:
    """Yields minibatches as views that are valid until the next one is taken.

    The rows of an epoch are gathered once, so that a minibatch costs a slice per column (measured
    for six columns of 2048 rows: 34 µs per epoch, 1 µs per minibatch). Rows left over at the end of
    an epoch move to the front of the memory, and the next epoch is gathered behind them.

    Args:
        columns: arrays [B, ...] with the same B ≥ 1, or dicts and tuples of such.
        minibatch_size: rows per minibatch, ≥ 1.
        num_epochs: passes over the data, ≥ 1.
        rng: draws a new order for every pass; None keeps the rows in order.
    """
    num_rows = nested.batch_length(next(iter(columns.values())))
    memory = {
        name: nested.map_leaves(
            lambda leaf: np.empty((num_rows + minibatch_size, *leaf.shape[1:]), leaf.dtype), column
        )
        for name, column in columns.items()
    }
    remaining = num_minibatches(num_rows, minibatch_size=minibatch_size, num_epochs=num_epochs)
    left_over = 0
    while remaining > 0:
        order = None if rng is None else rng.permutation(num_rows)
        _gather(columns, memory, start=left_over, order=order)
        available = left_over + num_rows
        whole = min(available // minibatch_size, remaining)
        for first in range(0, whole * minibatch_size, minibatch_size):
            rows = slice(first, first + minibatch_size)
            yield {name: nested.take(column, rows) for name, column in memory.items()}
        remaining -= whole
        left_over = available - whole * minibatch_size
        if remaining > 0:
            last = slice(available - left_over, available)
            for column in memory.values():
                nested.map_leaves(partial(_move_to_front, rows=last), column)


def _move_to_front(leaf: Array, *, rows: slice) -> None:
    leaf[: rows.stop - rows.start] = leaf[rows].copy()


def _gather(
    columns: Mapping[str, Any], memory: Mapping[str, Any], *, start: int, order: Array | None
) -> None:
    """Writes the rows of one epoch into the memory, from row `start` on."""

    def write(leaf: Array, room: Array) -> None:
        target = room[start : start + len(leaf)]
        if order is None:
            target[:] = leaf
        else:
            # mode="clip": the default first writes into a buffer of its own; no index is out of
            # range here.
            np.take(leaf, order, axis=0, out=target, mode="clip")

    for name, column in columns.items():
        nested.map_leaves(write, column, memory[name])

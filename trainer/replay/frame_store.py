"""Large observations in pieces that rows share: each picture of a replay buffer is stored once.

The observation after a step is the one before the next step, and of stacked pictures all but the
newest were in the stack before. So a row does not hold observations, but the numbers of the
*frames* that they consist of; what is equal, bit by bit, has one number.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple

import numpy as np

from trainer.replay.undo_log import UndoLog
from trainer.types import Array

SMALLEST: Final = 2048
"""Bytes from which on an observation is kept as frames; below, their numbers would save little."""

_MOST_FRAMES: Final = 16
_LONGEST_CHANNELS: Final = 64
"""A last axis of so many is taken for channels, of one picture or several: 16 of 4, say."""

_NUM_PAIRS: Final = 16
"""Steps that are looked at for how pictures are stacked."""

_ZEROS: Final = 0
"""The frame that is all zeros: of rows that hold nothing."""


# ---- split


class Split(NamedTuple):
    """Where an observation falls into frames: so many of equal size, along one axis."""

    axis: int
    num_frames: int

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of observations with the axis in two: frames, and what one has of it."""
        length = shape[self.axis] // self.num_frames
        return (*shape[: self.axis], self.num_frames, length, *shape[self.axis + 1 :])

    def frame_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of one frame of observations of this shape."""
        return (*shape[: self.axis], *self.shape(shape)[self.axis + 1 :])


WHOLE: Final = Split(0, 1)
"""An observation is a single frame."""


def can_be_shared(dtype: np.dtype[Any]) -> bool:
    """Whether numbers of this type are compared bit by bit here."""
    return dtype.kind in "biuf" and dtype.itemsize <= 8


def is_worth_sharing(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bool:
    """Whether observations of this layout are kept as frames."""
    num_bytes = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    return can_be_shared(dtype) and num_bytes >= SMALLEST


def split_of(before: Array, after: Array) -> Split:
    """How the first observations of a run look as if they were stacked.

    A wrong guess costs memory and time, and changes nothing that comes out.

    Args:
        before: observations before steps, [N, …], N ≥ 1.
        after: those after the same steps.
    """
    before, after = before[:_NUM_PAIRS], after[:_NUM_PAIRS]
    for split in _splits(before.shape[1:]):
        inner = Split(split.axis + 1, split.num_frames)
        frames = np.moveaxis(before.reshape(inner.shape(before.shape)), split.axis + 1, 1)
        moved = np.moveaxis(after.reshape(inner.shape(after.shape)), split.axis + 1, 1)
        if np.array_equal(frames[:, 1:], moved[:, :-1]):
            return split
    return WHOLE


def _splits(shape: tuple[int, ...]) -> Iterable[Split]:
    """The ways to stack: along a first axis of its own, among the channels, or flattened."""
    last = len(shape) - 1
    if last > 0 and 2 <= shape[0] <= _MOST_FRAMES:
        yield Split(0, shape[0])
    if last == 0 or shape[last] <= _LONGEST_CHANNELS:
        for num_frames in range(min(shape[last], _MOST_FRAMES), 1, -1):
            if shape[last] % num_frames == 0:
                yield Split(last, num_frames)


# ---- frame store


class FrameStore:
    """The frames of one part of the observations, and how many rows show each.

    A frame that no row shows any more makes room for a new one, the lowest free number first: a
    store that was restored goes on with the same bytes.

    Attributes:
        dtype: of the observations.
        shape: of one observation.
        split: how it falls into frames.
        frame_shape: of one frame.
    """

    def __init__(self, shape: tuple[int, ...], split: Split, slots: Array, log: UndoLog) -> None:
        """A store that holds the frame of zeros.

        Args:
            shape: of one observation.
            split: how it falls into frames.
            slots: room for frames, [N, *frame_shape], N ≥ 1, of the observations' number type; the
                first one is that of zeros. More is made if it is needed.
            log: remembers what frames replace.
        """
        self.dtype, self.shape, self.split = slots.dtype, shape, split
        self.frame_shape = split.frame_shape(shape)
        self._split_shape = split.shape(shape)
        axes = list(range(len(self._split_shape)))
        self._frames_first = [axes.pop(split.axis), *axes]
        # Compared and kept as whole numbers: -0.0 is not 0.0 here, and NaN is itself.
        self._bits = np.dtype(f"u{slots.itemsize}")
        self._slots: Array = slots.reshape(len(slots), -1).view(self._bits)
        self._counts = [1]
        self._free: list[int] = []
        self._log = log

    @property
    def num_used(self) -> int:
        """Frames that have a number."""
        return len(self._counts)

    @property
    def layout(self) -> tuple[np.dtype[Any], tuple[int, ...]]:
        """Number type and shape of an observation."""
        return self.dtype, self.shape

    @property
    def num_bytes(self) -> int:
        """What the frames take."""
        return self.num_used * self._slots[:1].nbytes

    @property
    def frames(self) -> Array:
        """Those that have a number, [num_used, *frame_shape]; a view."""
        used = self._slots[: self.num_used].view(self.dtype)
        frames: Array = used.reshape(self.num_used, *self.frame_shape)
        return frames

    def put(self, observation: Any, ids_before: Array | None) -> Array:
        """The numbers of an observation's frames; what is new is stored.

        Args:
            observation: of the store's shape, or one that can be reshaped to it.
            ids_before: frames among which to look: those of the observation before it.

        Returns:
            int64 [frames]; `hold` them before the next call of `release`.
        """
        split = np.asarray(observation, self.dtype).reshape(self._split_shape)
        frames = np.ascontiguousarray(split.transpose(self._frames_first))
        items = frames.reshape(self.split.num_frames, -1).view(self._bits)
        ids = np.empty(len(items), np.int64)
        num_shared = 0
        if ids_before is not None:
            before = self._slots.take(ids_before, axis=0)
            if np.array_equal(before, items):
                ids[:] = ids_before
                return ids
            if len(items) > 1 and np.array_equal(before[1:], items[:-1]):
                num_shared = len(items) - 1
                ids[:num_shared] = ids_before[1:]
        for index in range(num_shared, len(items)):
            # A stack begins with the same picture, or zeros, several times.
            is_repeated = index > 0 and np.array_equal(items[index], items[index - 1])
            ids[index] = ids[index - 1] if is_repeated else self._store(items[index])
        return ids

    def _store(self, items: Array) -> int:
        slot = heappop(self._free) if self._free else len(self._counts)
        if slot == len(self._counts):
            self._counts.append(0)
            if slot == len(self._slots):
                self._grow()
        elif self._log.is_kept:
            before = self._slots[slot].copy()

            def undo() -> None:
                self._slots[slot] = before

            self._log.add(undo)
        self._slots[slot] = items
        return slot

    def _grow(self) -> None:
        before = self._slots
        self._slots = np.zeros((len(before) + len(before) // 2 + 1, before.shape[1]), self._bits)
        self._slots[: len(before)] = before

    def hold(self, ids: Array) -> None:
        """A row shows these frames from now on."""
        for slot in ids.tolist():
            self._counts[slot] += 1

    def release(self, ids: Array) -> None:
        """A row does not show these frames any more."""
        for slot in ids.tolist():
            self._counts[slot] -= 1
            if not self._counts[slot]:
                heappush(self._free, slot)

    def count(self, num_used: int, ids: Iterable[Array]) -> None:
        """Counts anew who shows what.

        Args:
            num_used: frames that have a number.
            ids: frames of all rows that hold something.
        """
        counts = np.zeros(num_used, np.int64)
        counts[_ZEROS] = 1
        for shown in ids:
            counts += np.bincount(shown.ravel(), minlength=num_used)
        self._counts = counts.tolist()
        self._free = np.flatnonzero(counts == 0).tolist()  # in order, so that it is a heap

    def take(self, ids: Array) -> Array:
        """Observations, as copies.

        Args:
            ids: int64 [S…, frames].

        Returns:
            [S…, …].
        """
        num_rows = ids.size // ids.shape[-1]
        observations = np.empty((num_rows, *self._split_shape), self.dtype)
        frames_first = np.moveaxis(observations, self.split.axis + 1, 0)
        # Frame by frame: to gather all and then bring them into this order takes twice as long.
        for frames, shown in zip(frames_first, ids.reshape(num_rows, -1).T, strict=True):
            taken = self._slots.take(shown, axis=0).view(self.dtype)
            frames[...] = taken.reshape(num_rows, *self.frame_shape)
        return observations.reshape(*ids.shape[:-1], *self.shape)

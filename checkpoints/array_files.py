"""Large arrays in files of their own: raw memory and nothing else, read in pieces or mapped.

Each file is checked as the component's own file is: a regular file of the size and SHA-256 that the
manifest names, and of the size that its dtype and shape ask for. So memory is taken only on the
word of bytes that are there. Filling and hashing go together, piece by piece: the file is read
once, and never whole in memory beside its array.

An array that is given out has memory of its own, unless the caller wants maps. A map takes no
memory, but shows the file: if somebody cuts the file short later, touching the map ends the
process (SIGBUS). So nothing that goes on living is made of maps; restoring never uses them.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from checkpoints.array_format import (
    PIECE_BYTES,
    Array,
    array_memory,
    array_num_bytes,
    new_array,
)
from checkpoints.file_system import CHANGED, opened_regular_file, refused
from checkpoints.hashing import ANY, FEW, StreamedHash
from checkpoints.manifest import FileEntry
from checkpoints.messages import corrupt


class NewArray(Protocol):
    """Makes the arrays into which files are read."""

    def __call__(self, dtype: np.dtype[Any], shape: tuple[int, ...], /) -> Array | None:
        """Return a writable array like that, C-contiguous, of any content; None for no wish."""


class ArrayFiles:
    """The array files of one component, given out as the tree names them."""

    def __init__(
        self,
        directory: Path,
        entry: FileEntry,
        *,
        mapped: bool = False,
        make_array: NewArray | None = None,
    ) -> None:
        """Nothing is opened yet.

        Args:
            directory: of the checkpoint.
            entry: of the component.
            mapped: give out read-only maps of the files.
            make_array: makes the arrays that are to be filled; None for ordinary ones.
        """
        self._directory = directory
        self._entries = entry.arrays
        self._mapped = mapped
        self._make_array = make_array
        self._num_loaded = 0

    def load(
        self, number: Any, *, dtype: np.dtype[Any], shape: tuple[int, ...], order: str
    ) -> Array:
        """Return the next array, verified.

        Raises:
            CheckpointCorruptError: if the number is not the next one, or its file does not fit.
            ValueError: if NumPy cannot make an array of this shape.
        """
        if type(number) is not int or number != self._num_loaded:
            raise corrupt(f"array file {self._num_loaded} was to follow, not {number!r}")
        if number >= len(self._entries):
            raise corrupt(f"the manifest lists no array file {number}")
        self._num_loaded += 1
        entry = self._entries[number]
        if array_num_bytes(dtype, shape) != entry.num_bytes:
            raise corrupt(
                f"an array of {dtype} with shape {list(shape)} does not fit the "
                f"{entry.num_bytes} bytes of {entry.file}"
            )
        if self._mapped:
            return self._map(entry, dtype, shape, order)
        return self._fill(entry, dtype, shape, order)

    def finish(self) -> None:
        """Check that the tree named every file."""
        if self._num_loaded != len(self._entries):
            raise corrupt(f"{self._entries[self._num_loaded].file} belongs to no array")

    def _fill(
        self, entry: FileEntry, dtype: np.dtype[Any], shape: tuple[int, ...], order: str
    ) -> Array:
        path = self._directory / entry.file
        wanted = self._make_array if order == "C" else None
        array = None if wanted is None else wanted(dtype, shape)
        if array is None:
            array = new_array(dtype, shape, order=order)
        memory = array_memory(array)
        with (
            opened_regular_file(path, num_bytes=entry.num_bytes) as file,
            StreamedHash(max_waiting=ANY) as digest,
        ):
            start = 0
            while start < len(memory):
                count = file.readinto(memory[start : start + PIECE_BYTES])
                if not count:
                    raise refused(path, CHANGED)
                digest.update(memory[start : start + count])
                start += count
            if file.read(1):
                raise refused(path, CHANGED)
        check_digest(path, entry, digest.hexdigest())
        return array

    def _map(
        self, entry: FileEntry, dtype: np.dtype[Any], shape: tuple[int, ...], order: str
    ) -> Array:
        path = self._directory / entry.file
        with opened_regular_file(path, num_bytes=entry.num_bytes) as file:
            # Hashed by reading: a file that is cut short meanwhile is an error, not a signal.
            num_read = 0
            with StreamedHash(max_waiting=FEW) as digest:
                # One byte more than is due, to notice one too many.
                while piece := file.read(min(PIECE_BYTES, entry.num_bytes + 1 - num_read)):
                    digest.update(piece)
                    num_read += len(piece)
            if num_read != entry.num_bytes:
                raise refused(path, CHANGED)
            check_digest(path, entry, digest.hexdigest())
            try:
                shown = mmap.mmap(file.fileno(), entry.num_bytes, access=mmap.ACCESS_READ)
            except OSError as error:
                raise refused(path, f"cannot be mapped ({error.strerror})") from error
        return new_array(dtype, shape, order=order, buffer=shown)


def check_digest(path: Path, entry: FileEntry, digest: str) -> None:
    """Raise unless this is the SHA-256 of what was written.

    Raises:
        CheckpointCorruptError: if it is another one.
    """
    if digest != entry.sha256:
        raise refused(
            path,
            f"was altered: its SHA-256 is {digest[:12]}..., and {entry.sha256[:12]}... was written",
        )

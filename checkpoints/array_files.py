"""Large arrays: in files of their own, read in pieces or mapped; shown live by what is saved."""

from __future__ import annotations

import contextvars
import mmap
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from checkpoints.array_format import PIECE_BYTES, Array, array_memory, array_num_bytes, new_array
from checkpoints.codec import corrupt
from checkpoints.file_system import ANY, CHANGED, FEW, StreamedHash, opened_regular_file, refused
from checkpoints.manifest import FileEntry

# ---- array files
#
# Large arrays in files of their own: raw memory and nothing else, read in pieces or mapped. Each
# file is checked as the component's own file is: a regular file of the size and SHA-256 that the
# manifest names, and of the size that its dtype and shape ask for. So memory is taken only on the
# word of bytes that are there. Filling and hashing go together, piece by piece: the file is read
# once, and never whole in memory beside its array.
#
# An array that is given out has memory of its own, unless the caller wants maps. A map takes no
# memory, but shows the file: if somebody cuts the file short later, touching the map ends the
# process (SIGBUS). So nothing that goes on living is made of maps; restoring never uses them.


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


# ---- live arrays
#
# States so large that they must not be in memory twice. Saving: `get_state()` gives out arrays of
# its own, which stay as they are whatever the object does next. Whoever writes them to a file
# before anything can change them does not need that, and a copy of a large replay buffer may not
# fit into memory.
#
# Restoring: an object that keeps its arrays in memory of its own shape lets the reader fill that
# memory itself, and undoes a restore that fails without having been copied before.

_State = TypeVar("_State")
_ARE_SHOWN: Final = ContextVar("_ARE_SHOWN", default=False)


def live_state(get_state: Callable[[], _State]) -> _State:
    """Return what `get_state()` gives, which may show arrays that the object goes on using.

    In a context of its own, so that there is nothing to put back: an interrupt in between that left
    arrays shown from then on would make states change behind everybody's back.
    """
    context = contextvars.copy_context()
    context.run(_ARE_SHOWN.set, True)
    return context.run(get_state)


def state_array(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return what `get_state()` is to give out for an array: a copy; itself in `live_state`."""
    return array if _ARE_SHOWN.get() else np.array(array)


@runtime_checkable
class HasLargeArrays(Protocol):
    """What a part offers besides `get_state` and `set_state` if its arrays must not be copied."""

    def restoring_large_arrays(self) -> AbstractContextManager[NewArray]:
        """Return the block within which `set_state` may be called once.

        An exception that leaves the block undoes what was done in it; nobody else keeps the
        previous state. It gives a function that makes the large arrays of the state, from dtype and
        shape: they are filled before `set_state` gets them, which may keep their memory.
        """

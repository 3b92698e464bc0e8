"""How arrays are laid down in bytes, and which dtypes may be.

Only dtypes whose memory *is* their value can be saved: booleans, numbers, fixed-width text, dates,
raw bytes, and structures of those. Dtypes that hold pointers (object, NumPy's variable-width
strings) are refused in both directions. Nothing here knows of files or of msgpack.

A description is plain data: the dtype's own string (`"<f4"`) or, for structures and subarrays, a
small dict of descriptions. Shapes are tuples of int; sizes are in bytes.
"""

from __future__ import annotations

import math
import mmap
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
"""An array of any dtype."""

PIECE_BYTES: Final = 4 * 2**20
"""How much of a large array is worked on at once: what a step takes of memory beside the array."""

MAX_FREE_ITEMS: Final = 2**21
"""How many items all arrays of one state may have beyond the bytes that their memory has.

Items that take no memory (of fixed-width text of zero characters, of rows of no columns, of fields
that overlap) cost nothing to write down, but something as soon as anybody looks at each. An array
with an item for each of its bytes has none of them.
"""

_KINDS: Final = frozenset("biufcSUVmM")
_SIMPLE: Final = re.compile(
    r"[<>|](?:[biufc][0-9]{1,2}|[bBhHiIlLqQ]|[SUV][0-9]{1,9}|[mM]8(?:\[[0-9A-Za-z]{1,12}\])?)"
)


class UnsupportedDtypeError(Exception):
    """Internal: the dtype cannot be saved or rebuilt exactly; the message is the reason."""


def describe_dtype(dtype: np.dtype[Any]) -> Any:
    """Return the plain-data description from which `build_dtype` makes the same dtype.

    Raises:
        UnsupportedDtypeError: if the dtype holds objects or would not come back exactly.
    """
    if dtype.hasobject:
        raise UnsupportedDtypeError("it holds Python objects")
    description = _describe(dtype)
    try:
        rebuilt = build_dtype(description)
    except UnsupportedDtypeError:
        rebuilt = None
    if rebuilt != dtype or rebuilt is None or rebuilt.type is not dtype.type:
        raise UnsupportedDtypeError("it would come back as another dtype")
    return description


def _describe(dtype: np.dtype[Any]) -> Any:
    if dtype.metadata is not None:
        raise UnsupportedDtypeError("its dtype carries metadata, which would be lost")
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return {"base": _describe(base), "shape": list(shape)}
    if dtype.fields is not None and dtype.names is not None:
        fields = [dtype.fields[name] for name in dtype.names]
        if len(dtype.fields) != len(fields):
            raise UnsupportedDtypeError("its fields have titles, which would be lost")
        return {
            "names": list(dtype.names),
            "formats": [_describe(field[0]) for field in fields],
            "offsets": [field[1] for field in fields],
            "itemsize": dtype.itemsize,
            "align": dtype.isalignedstruct,
        }
    text = dtype.str
    if np.dtype(text).type is not dtype.type and dtype.kind in "iu":
        # `long long` and `long` may have the same size, and so the same string, but are two types.
        return text[0] + dtype.char
    return text


def build_dtype(description: Any) -> np.dtype[Any]:
    """Return the dtype of a description; the description may come from a hostile file.

    Raises:
        UnsupportedDtypeError: if it is not a description, or describes a dtype that holds objects.
    """
    try:
        dtype = _build(description)
    except (TypeError, ValueError, KeyError, OverflowError, RecursionError) as error:
        raise UnsupportedDtypeError(f"NumPy cannot make this dtype here ({error})") from error
    if dtype.hasobject or dtype.kind not in _KINDS:
        raise UnsupportedDtypeError("it holds Python objects")
    if dtype.subdtype is not None:
        raise UnsupportedDtypeError("a subarray can only be a field of a structure")
    return dtype


def _build(description: Any) -> np.dtype[Any]:
    if isinstance(description, str):
        if _SIMPLE.fullmatch(description) is None:
            raise ValueError(f"{description[:40]!r} is not the name of a saveable dtype")
        return np.dtype(description)
    if not isinstance(description, Mapping):
        raise TypeError("a dtype is described by a string or a dict")
    if "base" in description:
        return np.dtype((_build(description["base"]), tuple(description["shape"])))
    return np.dtype(
        {
            "names": list(description["names"]),
            "formats": [_build(field) for field in description["formats"]],
            "offsets": list(description["offsets"]),
            "itemsize": description["itemsize"],
        },
        align=bool(description["align"]),
    )


def memory_order(array: Array) -> str:
    """Return "F" for arrays that lie in Fortran order only, otherwise "C".

    The order is kept because sums and matrix products of the same numbers in another order may
    differ in the last bit, and a resumed run must not.
    """
    return "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"


def is_contiguous(array: Array) -> bool:
    """Return whether the bytes of the array can be shown without a copy."""
    return bool(array.flags.c_contiguous or array.flags.f_contiguous)


def array_memory(array: Array) -> memoryview:
    """Return the bytes of the array in its memory order, without a copy where it is contiguous.

    The view shows the caller's memory: use it before the array changes.
    """
    if array.nbytes == 0:
        return memoryview(b"")
    if array.flags.c_contiguous:
        rows = array
    elif array.flags.f_contiguous:
        rows = array.T
    else:
        rows = np.ascontiguousarray(array)
    return rows.reshape(-1).view(np.uint8).data


def memory_pieces(array: Array, *, max_bytes: int = PIECE_BYTES) -> Iterator[memoryview]:
    """Yield the bytes of `array_memory` in pieces; an array that is not contiguous is never whole.

    They show the caller's memory, or that of a copy of just this piece.
    """
    if is_contiguous(array):
        memory = array_memory(array)
        for start in range(0, len(memory), max_bytes):
            yield memory[start : start + max_bytes]
        return
    for block in blocks(array, max_bytes=max_bytes):
        yield array_memory(np.ascontiguousarray(block))


def blocks(array: Array, *, max_bytes: int = PIECE_BYTES) -> Iterator[Array]:
    """Yield views that follow each other in C order, at most so large unless an item is larger.

    Arrays of one shape and item size are divided at the same places.
    """
    if array.ndim == 0 or array.nbytes <= max_bytes:
        yield array
        return
    row_bytes = array.nbytes // len(array)
    if row_bytes > max_bytes:
        for index in range(len(array)):
            yield from blocks(array[index, ...], max_bytes=max_bytes)
        return
    num_rows = max_bytes // row_bytes
    for start in range(0, len(array), num_rows):
        yield array[start : start + num_rows]


def array_num_bytes(dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
    """Return the size of such an array in bytes, exactly (Python integers do not overflow)."""
    return dtype.itemsize * math.prod(shape)


def num_free_items(dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
    """Return how many items such an array has that its memory does not account for.

    Lengths of 0 count as 1: an array of no columns still has rows. So does the size of an item, if
    there are none, because NumPy may take memory for one.
    """
    num_bytes = array_num_bytes(dtype, shape)
    num_items = math.prod(size for size in shape if size) * _num_leaves(dtype)
    if not num_bytes:
        num_items = max(num_items, dtype.itemsize)
    return max(0, num_items - max(1, num_bytes))


def _num_leaves(dtype: np.dtype[Any]) -> int:
    """Return how many numbers or texts one item consists of."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        num_items: int = math.prod(size for size in shape if size)
        return num_items * _num_leaves(base)
    if dtype.fields is not None and dtype.names is not None:
        return max(1, sum(_num_leaves(dtype.fields[name][0]) for name in dtype.names))
    return 1


class FreeItems:
    """Counts the items of arrays that their memory does not account for, in one state."""

    def __init__(self) -> None:
        self._num_left = MAX_FREE_ITEMS

    def take(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        """Count those of one array; an UnsupportedDtypeError if all together have too many."""
        self._num_left -= num_free_items(dtype, shape)
        if self._num_left < 0:
            raise UnsupportedDtypeError(
                f"with it, arrays have more than {MAX_FREE_ITEMS:,} items beyond the bytes of "
                "their memory, because items take no memory or share it"
            )


def build_array(
    memory: memoryview | bytes, *, dtype: np.dtype[Any], shape: tuple[int, ...], order: str = "C"
) -> Array:
    """Return a new writable array holding a copy of `memory`.

    The caller has compared the size of `memory` with `array_num_bytes` before: nothing is
    allocated on the word of a file.

    Raises:
        ValueError: if NumPy cannot make an array of this shape.
    """
    array = new_array(dtype, shape, order=order)
    if array.nbytes:
        np.asarray(array_memory(array))[:] = np.frombuffer(memory, np.uint8)
    return array


def copied(array: Array) -> Array:
    """Return a copy with the same bytes in the same order."""
    if not is_contiguous(array):
        return np.array(array)
    # Not array.copy(), which leaves out the gaps between the fields of structures.
    memory, order = array_memory(array), memory_order(array)
    return build_array(memory, dtype=array.dtype, shape=array.shape, order=order)


def new_array(
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    *,
    order: str = "C",
    buffer: mmap.mmap | None = None,
) -> Array:
    """Return an array of any content, or one that shows a buffer; see `build_array`."""
    # np.ndarray rather than np.empty: the latter widens text of zero characters to one.
    array: Array = np.ndarray(shape, dtype, buffer, order="F" if order == "F" else "C")
    return array

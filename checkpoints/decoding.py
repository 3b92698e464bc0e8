"""From the bytes of a tree and the memory of its arrays back to the value, trusting neither.

Sizes are compared before anything is allocated, dtypes with objects are refused, and nothing in the
bytes can name a class or a function.
"""

from __future__ import annotations

import struct
from typing import Any, Protocol

import numpy as np

from checkpoints import array_format, wire
from checkpoints.messages import ExtEntry, corrupt, parse_message


class LoadArray(Protocol):
    """Gives an array that lies in a file of its own; refuses it if that file does not fit."""

    def __call__(
        self, number: Any, *, dtype: np.dtype[Any], shape: tuple[int, ...], order: str
    ) -> array_format.Array:
        """Return the array of this number; only dtype, shape and order have been checked."""


class Decoder:
    """Turns the tree of a message back into the value, taking array memory as the tree names it."""

    def __init__(self, memory: memoryview, load_array: LoadArray | None = None) -> None:
        self._memory = memory
        self._offset = 0
        self._load_array = load_array
        self._free_items = array_format.FreeItems()

    def finish(self) -> None:
        """Check that the arrays of the tree used up the memory."""
        if self._offset != len(self._memory):
            raise corrupt(f"{len(self._memory) - self._offset} bytes belong to no array")

    def value(self, tree: Any, depth: int) -> Any:
        """Return the value of one tree; `depth` is 1 for the outermost."""
        kind = type(tree)
        if kind is ExtEntry:
            return self._leaf(tree.tag, tree.payload)
        if kind is not list and kind is not dict:
            return tree
        if depth > wire.MAX_DEPTH:
            raise corrupt("they are nested too deeply")
        if kind is dict:
            return {key: self.value(item, depth + 1) for key, item in tree.items()}
        if tree and type(tree[0]) is ExtEntry and tree[0].tag in wire.CONTAINER_TAGS:
            return self._container(tree[0], self._items(tree[1:], depth + 1))
        return self._items(tree, depth + 1)

    def _items(self, trees: list[Any], depth: int) -> list[Any]:
        if set(map(type, trees)).isdisjoint({list, dict, ExtEntry}):
            return trees
        return [self.value(tree, depth) for tree in trees]

    def _container(self, marker: ExtEntry, items: list[Any]) -> Any:
        if marker.payload:
            raise corrupt("a container marker has content")
        if marker.tag == wire.TUPLE:
            return tuple(items)
        try:
            _check_hashes(items[::2] if marker.tag == wire.MAP else items)
            if marker.tag == wire.MAP:
                pairs = zip(items[::2], items[1::2], strict=True)
                whole: Any = dict(pairs)
                expected = len(items) // 2
            else:
                whole = set(items) if marker.tag == wire.SET else frozenset(items)
                expected = len(items)
        except (TypeError, ValueError) as error:
            raise corrupt(f"a dict or set cannot be built ({error})") from error
        if len(whole) != expected:
            raise corrupt("a dict or set holds the same key twice")
        return whole

    def _leaf(self, tag: int, payload: bytes) -> Any:
        if tag == wire.ARRAY:
            return self._array(payload)
        if tag == wire.ARRAY_FILE and self._load_array is not None:
            description, shape, order, number = _unpack_payload(payload, 4)
            dtype = self._checked_layout(description, shape, order)
            try:
                return self._load_array(number, dtype=dtype, shape=tuple(shape), order=order)
            except ValueError as error:
                raise corrupt(f"an array cannot be built ({error})") from error
        if tag == wire.SCALAR:
            return self._scalar(payload)
        if tag == wire.BIG_INT:
            return int.from_bytes(payload, "little", signed=True)
        if tag == wire.COMPLEX and len(payload) == 16:
            return complex(*struct.unpack("<dd", payload))
        if tag == wire.TEXT:
            return _build_text(payload)
        if tag == wire.NUMPY_TEXT and payload[:1] == b"U":
            return np.str_(_build_text(payload[1:]))
        if tag == wire.NUMPY_TEXT and payload[:1] == b"S":
            return np.bytes_(payload[1:])
        raise corrupt(f"ext type {tag} with {len(payload)} bytes is unknown here")

    def _array(self, payload: bytes) -> array_format.Array:
        description, shape, order = _unpack_payload(payload, 3)
        dtype = self._checked_layout(description, shape, order)
        end = self._offset + array_format.array_num_bytes(dtype, tuple(shape))
        if end > len(self._memory):
            raise corrupt(f"an array of {dtype} with shape {shape} is larger than the data")
        memory = self._memory[self._offset : end]
        self._offset = end
        return _build_array(memory, dtype=dtype, shape=tuple(shape), order=order)

    def _scalar(self, payload: bytes) -> Any:
        description, memory, writable = _unpack_payload(payload, 3)
        dtype = self._checked_layout(description, [], "C")
        if type(memory) is not bytes or len(memory) != dtype.itemsize:
            raise corrupt("a NumPy scalar has the wrong size")
        array = _build_array(memory, dtype=dtype, shape=(), order="C")
        array.flags.writeable = bool(writable)  # a structured scalar is a window into its array
        return array[()]

    def _checked_layout(self, description: Any, shape: Any, order: Any) -> np.dtype[Any]:
        """Return the dtype of an array, if that, the shape and the order are possible."""
        dtype = _build_dtype(description)
        if (
            type(shape) is not list
            or not all(type(size) is int and size >= 0 for size in shape)
            or order not in ("C", "F")
        ):
            raise corrupt("an array has an impossible shape or order")
        try:
            self._free_items.take(dtype, tuple(shape))
        except array_format.UnsupportedDtypeError as error:
            raise corrupt(f"an array of shape {shape!r:.60} is refused: {error}") from error
        return dtype


def _check_hashes(keys: list[Any]) -> None:
    """Raise if many keys share a hash, which numbers can be chosen to do."""
    most = wire.most_of_one_hash(keys)
    if most > wire.MAX_OF_ONE_HASH:
        raise corrupt(f"{most} members of a dict or set share a hash")


def _unpack_payload(payload: bytes, num_items: int) -> list[Any]:
    items = parse_message(payload)
    if type(items) is not list or len(items) != num_items:
        raise corrupt("an ext entry has the wrong number of parts")
    return items


def _build_dtype(description: Any) -> np.dtype[Any]:
    try:
        return array_format.build_dtype(description)
    except array_format.UnsupportedDtypeError as error:
        raise corrupt(f"a dtype is refused: {error}") from error


def _build_array(
    memory: memoryview | bytes, *, dtype: np.dtype[Any], shape: tuple[int, ...], order: str
) -> array_format.Array:
    try:
        return array_format.build_array(memory, dtype=dtype, shape=shape, order=order)
    except ValueError as error:
        raise corrupt(f"an array cannot be built ({error})") from error


def _build_text(payload: bytes) -> str:
    try:
        return payload.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise corrupt("a text is not UTF-8") from error

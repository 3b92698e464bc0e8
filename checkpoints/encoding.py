"""From a plain-data value to a tree that ormsgpack writes natively, and the memory of its arrays.

Types are compared exactly, in Python, before ormsgpack sees anything: its releases differ in what
they take for something else (enums, UUIDs, bytearrays, subclasses), and a checkpoint must not.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import numpy as np
import ormsgpack

from checkpoints import array_format, wire
from checkpoints.refusals import Refusal

_MIN_INT: Final = -(2**63)
_MAX_INT: Final = 2**64 - 1
_UNCHANGED: Final = frozenset({type(None), bool, float, bytes})
_CONTAINERS: Final = frozenset({list, tuple, dict, set, frozenset})
_MARKERS: Final = {tag: ormsgpack.Ext(tag, b"") for tag in wire.CONTAINER_TAGS}


class Encoder:
    """Turns one value into a tree, and gathers its arrays in the order of the tree.

    Attributes:
        memory: that of the arrays which follow the tree.
        large: arrays of at least `large_array_bytes`, which go to files of their own.
    """

    def __init__(self, *, large_array_bytes: float) -> None:
        self.memory: list[memoryview] = []
        self.large: list[array_format.Array] = []
        self._large_array_bytes = large_array_bytes
        self._free_items = array_format.FreeItems()

    def tree(self, value: Any, depth: int) -> Any:
        """Return the tree of one value; `depth` is 1 for the outermost."""
        kind = type(value)
        if kind in _UNCHANGED:
            return value
        if kind is str:
            is_utf8 = value.isascii() or _is_utf8(value)
            return value if is_utf8 else _text_ext(wire.TEXT, value)
        if kind is int:
            return value if _MIN_INT <= value <= _MAX_INT else _big_int_ext(value)
        if kind is np.ndarray:
            return self._array(value)
        if kind in _CONTAINERS:
            if depth > wire.MAX_DEPTH:
                raise Refusal.too_deep(wire.MAX_DEPTH)
            return self._container(value, depth + 1)
        if kind is complex:
            return ormsgpack.Ext(wire.COMPLEX, struct.pack("<dd", value.real, value.imag))
        if isinstance(value, np.generic):
            return self._scalar(value)
        raise Refusal.of(value)

    def _container(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind is list:
            return self._items(value, depth)
        if kind is tuple:
            return [_MARKERS[wire.TUPLE], *self._items(value, depth)]
        if kind is dict:
            return self._dict(value, depth)
        return self._members(value, depth)

    def _items(self, values: Sequence[Any], depth: int) -> Sequence[Any]:
        kinds = set(map(type, values))
        if kinds <= _UNCHANGED:
            return values  # long lists of numbers: no Python per item
        if kinds == {int} and min(values) >= _MIN_INT and max(values) <= _MAX_INT:
            return values
        trees = []
        for index, value in enumerate(values):
            try:
                trees.append(self.tree(value, depth))
            except Refusal as refusal:
                raise refusal.within(f"[{index}]") from None
        return trees

    def _dict(self, values: dict[Any, Any], depth: int) -> Any:
        if set(map(type, values)) <= {str} and _is_utf8("".join(values)):
            return dict(zip(values, self._dict_values(values, depth), strict=True))
        _check_hashes(values)
        pairs = [_MARKERS[wire.MAP]]
        for key, value in zip(values, self._dict_values(values, depth), strict=True):
            try:
                pairs.append(self.tree(key, depth))
            except Refusal as refusal:
                raise refusal.within(f"<key {_short(key)}>") from None
            pairs.append(value)
        return pairs

    def _dict_values(self, values: dict[Any, Any], depth: int) -> Iterable[Any]:
        if set(map(type, values.values())) <= _UNCHANGED:
            return values.values()
        trees = []
        for key, value in values.items():
            try:
                trees.append(self.tree(value, depth))
            except Refusal as refusal:
                raise refusal.within(f"[{_short(key)}]") from None
        return trees

    def _members(self, values: set[Any] | frozenset[Any], depth: int) -> list[Any]:
        _check_hashes(values)
        trees = []
        for value in values:
            try:
                tree = self.tree(value, depth)
            except Refusal as refusal:
                raise refusal.within(f"<member {_short(value)}>") from None
            trees.append((ormsgpack.packb(tree), tree))
        trees.sort(key=lambda pair: pair[0])
        marker = _MARKERS[wire.SET if type(values) is set else wire.FROZENSET]
        return [marker, *(tree for _, tree in trees)]

    def _array(self, array: array_format.Array) -> ormsgpack.Ext:
        description = self._describe(array.dtype, array.shape, f"an array of dtype {array.dtype}")
        order = array_format.memory_order(array)
        if array.nbytes >= self._large_array_bytes:
            entry = [description, list(array.shape), order, len(self.large)]
            self.large.append(array)
            return ormsgpack.Ext(wire.ARRAY_FILE, ormsgpack.packb(entry))
        self.memory.append(array_format.array_memory(array))
        return ormsgpack.Ext(wire.ARRAY, ormsgpack.packb([description, list(array.shape), order]))

    def _scalar(self, value: np.generic) -> ormsgpack.Ext:
        kind = type(value)
        if isinstance(value, np.str_) and kind is np.str_:
            # Not by memory: that would lose characters of value zero at the end.
            return _text_ext(wire.NUMPY_TEXT, value, b"U")
        if isinstance(value, np.bytes_) and kind is np.bytes_:
            return ormsgpack.Ext(wire.NUMPY_TEXT, b"S" + bytes(value))
        description = self._describe(value.dtype, (), f"a NumPy scalar of dtype {value.dtype}")
        if kind is not value.dtype.type:
            raise Refusal.of(value)
        writable = isinstance(value, np.void) and bool(value.flags.writeable)
        return ormsgpack.Ext(wire.SCALAR, ormsgpack.packb([description, value.tobytes(), writable]))

    def _describe(self, dtype: np.dtype[Any], shape: tuple[int, ...], what: str) -> Any:
        try:
            self._free_items.take(dtype, shape)
            return array_format.describe_dtype(dtype)
        except array_format.UnsupportedDtypeError as error:
            raise Refusal.dtype(what, str(error)) from None


def _check_hashes(keys: Collection[Any]) -> None:
    """Refuse keys that no reader takes, because looking them up would be slow."""
    most = wire.most_of_one_hash(keys)
    if most > wire.MAX_OF_ONE_HASH:
        raise Refusal(
            f"{most} members of a dict or set share a hash, so that each is compared with all",
            "In get_state(), save a list of them.",
        )


def _text_ext(tag: int, text: str, prefix: bytes = b"") -> ormsgpack.Ext:
    return ormsgpack.Ext(tag, prefix + text.encode("utf-8", "surrogatepass"))


def _big_int_ext(value: int) -> ormsgpack.Ext:
    num_bytes = value.bit_length() // 8 + 1
    return ormsgpack.Ext(wire.BIG_INT, value.to_bytes(num_bytes, "little", signed=True))


def _is_utf8(text: str) -> bool:
    """Return whether the text has no lone surrogates, which msgpack cannot hold."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _short(key: Any) -> str:
    """Return how a path shows a key; never runs the `__repr__` of foreign classes."""
    if type(key) in (str, int, float, bool, bytes, type(None)):
        text = repr(key)
        return text if len(text) <= 60 else text[:57] + "..."
    return f"a {type(key).__name__}"

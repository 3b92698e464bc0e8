"""Plain data to bytes and back, exactly: by type, order and bit, and without ever running code.

Plain data is None, bool, int (any size), float, complex, str, bytes, list, tuple, dict (any plain
hashable key, order kept), set, frozenset, NumPy arrays and NumPy scalars without objects. Anything
else is a `StateError` that names the place, also what ormsgpack alone would accept and give back as
something else: subclasses of str, int or dict, enums, dataclasses, dates, UUIDs, bytearrays.

Equal states give equal bytes: members of sets are written in the order of their own bytes. Array
memory is written as it is, NaN payloads, -0.0, byte order and Fortran order included. Not kept:
that two places held the same object, strides, read-only flags, the iteration order of a set.

Layout of the bytes (all integers little-endian):

    magic (8) | size of the tree (8) | tree: one msgpack message | memory of all arrays

Arrays stand in the tree as short ext entries (dtype, shape, order) and their memory follows in the
order in which the tree names them, so that a big array is never copied into a message and from
there into a bigger one. In a checkpoint, large arrays lie in files of their own instead
(`encode_split`), and the tree has their numbers. Containers that msgpack lacks are lists that start
with a marker. This module knows nothing of files, names of components or hashes.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import math
import mmap
import pathlib
import struct
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import ormsgpack

from checkpoints import array_format
from checkpoints.array_format import (
    PIECE_BYTES,
    Array,
    array_memory,
    array_num_bytes,
    copied,
    new_array,
)
from checkpoints.errors import CheckpointCorruptError, StateError
from checkpoints.manifest import FileEntry
from checkpoints.strict_files import ANY, CHANGED, FEW, StreamedHash, opened_regular_file, refused
from trainer_toolkit.interrupts import signals_deferred

# ---- wire
#
# The numbers that encoder and decoder must agree on; the layout is drawn in `checkpoints.codec`.
# These never change: a new meaning gets a new tag, a new layout gets another magic.

MAGIC: Final = b"LTstate\x01"
"""The first eight bytes; the last of them counts layouts."""

PREFIX_BYTES: Final = 16
"""Magic and the size of the tree, before the tree begins."""

MAX_DEPTH: Final = 100
"""How deeply containers may be nested; ormsgpack itself stops at 255 in writing."""

MAX_OF_ONE_HASH: Final = 16
"""How many members of a dict or set may share a hash: Python compares each with all others."""

# Ext tags of containers: a list that starts with one of these (empty payload) is not a list.
TUPLE: Final = 1
SET: Final = 2
FROZENSET: Final = 3
MAP: Final = 4

CONTAINER_TAGS: Final = frozenset({TUPLE, SET, FROZENSET, MAP})
"""The tags of markers; `MAP` is followed by key, value, key, value, and so on."""

# Ext tags of values; the payload in brackets.
ARRAY: Final = 5  # message [dtype, shape, order]; the memory follows the tree
SCALAR: Final = 6  # message [dtype, memory, writable]
NUMPY_TEXT: Final = 7  # b"U" and UTF-8, or b"S" and bytes
BIG_INT: Final = 8  # two's complement, little-endian
COMPLEX: Final = 9  # two float64, little-endian
TEXT: Final = 10  # UTF-8 with lone surrogates
ARRAY_FILE: Final = 11  # message [dtype, shape, order, number]; the memory is a file of its own


def most_of_one_hash(keys: Collection[Any]) -> int:
    """Return how many of the keys share a hash; few keys are not looked at."""
    if len(keys) <= MAX_OF_ONE_HASH:
        return len(keys)
    return max(Counter(map(hash, keys)).values())


# ---- refusals
#
# Why a value is not plain data, and what to save instead. Used by the codec only. A refusal is
# raised at the value, collects the path on its way out, and becomes one `StateError`.

_PLAIN: Final = (
    "Checkpoints hold plain data only: None, bool, int, float, complex, str, bytes, list, tuple, "
    "dict, set, frozenset, NumPy arrays and NumPy scalars."
)

_ADVICE: Final[tuple[tuple[type | tuple[type, ...], str], ...]] = (
    (enum.Enum, "save its `.name` and look it up in set_state()"),
    ((dt.date, dt.time), "save its `.isoformat()`"),
    (dt.timedelta, "save its `.total_seconds()`"),
    (uuid.UUID, "save its `.hex`"),
    (pathlib.PurePath, "save `str(path)`"),
    ((bytearray, memoryview), "save `bytes(value)`"),
    (np.ndarray, "save `np.asarray(value)`, and a mask as an array of its own"),
    (np.random.Generator, "save its `.bit_generator.state`"),
    (np.random.BitGenerator, "save its `.state`"),
    (tuple, "save `tuple(value)`"),
    (dict, "save `dict(value)`"),
    (list, "save `list(value)`"),
    ((set, frozenset), "save `set(value)` or `frozenset(value)`"),
    (str, "save `str(value)`"),
    (int, "save `int(value)`"),
    (float, "save `float(value)`"),
    (bytes, "save `bytes(value)`"),
)


class Refusal(Exception):  # noqa: N818 - internal, never reaches a user
    """Internal: this value cannot be saved; the path grows while the exception travels outwards."""

    def __init__(self, problem: str, advice: str) -> None:
        super().__init__(problem)
        self._problem = problem
        self._advice = advice
        self._steps: list[str] = []

    @classmethod
    def of(cls, value: Any) -> Refusal:
        """Refuse a value because of its type."""
        kind = type(value)
        what = f"a value of type {kind.__module__}.{kind.__qualname__} cannot be saved"
        return cls(what, f"In get_state(), {_advice_for(value)}.")

    @classmethod
    def dtype(cls, what: str, reason: str) -> Refusal:
        """Refuse an array or scalar because of its dtype."""
        return cls(
            f"{what} cannot be saved: {reason}",
            "In get_state(), save a list of its items, or an array of numbers.",
        )

    @classmethod
    def too_deep(cls, max_depth: int) -> Refusal:
        """Refuse a value because it is nested too deeply, or holds itself."""
        return cls(
            f"containers are nested more than {max_depth} deep, or one holds itself",
            "In get_state(), flatten it.",
        )

    def within(self, step: str) -> Refusal:
        """Add the step that leads to the value from one container further out."""
        self._steps.append(step)
        return self

    def message(self, name: str) -> str:
        """Return the whole message for a value that is called `name`."""
        steps = self._steps[::-1]
        if len(steps) > 20:
            steps = [*steps[:10], "...", *steps[-10:]]
        return f"{name}{''.join(steps)}: {self._problem}. {_PLAIN} {self._advice}"


def _advice_for(value: Any) -> str:
    if isinstance(value, type) or callable(value):
        return "leave it out: code is supplied by the program that restores"
    for kinds, advice in _ADVICE:
        if isinstance(value, kinds):
            return advice
    if dataclasses.is_dataclass(value):
        return "save `dataclasses.asdict(value)`"
    return "save the data from which set_state() can make it again"


# ---- messages
#
# Reading one msgpack message that may come from a hostile file. ormsgpack up to 1.12 makes room
# for as many items as an array says it has before it sees them, never frees what it had built
# when it then fails, and all releases ignore what follows a message. So the sizes are added up
# first, in Python, and ormsgpack only sees messages that are complete.


class ExtEntry:
    """An ext entry as it stands in the message.

    ormsgpack replaces every error of its hook with one of its own, so entries are only kept by
    the hook and understood later.
    """

    __slots__ = ("payload", "tag")

    def __init__(self, tag: int, payload: bytes) -> None:
        self.tag = tag
        self.payload = payload


def parse_message(message: bytes) -> Any:
    """Return the tree of exactly one msgpack message, with an `ExtEntry` for each ext value.

    Raises:
        CheckpointCorruptError: if it is not msgpack, or something follows the message.
    """
    _check_sizes(message)
    try:
        with signals_deferred():  # what is raised within `ExtEntry` would be a ValueError
            return ormsgpack.unpackb(message, ext_hook=ExtEntry)
    except ValueError as error:
        raise corrupt(f"the tree is not msgpack ({error})") from error


def corrupt(problem: str) -> CheckpointCorruptError:
    """Return the error for bytes that are not a state; `problem` says why."""
    return CheckpointCorruptError(
        f"These bytes are not a saved state: {problem}. Nothing was changed; use an earlier "
        "checkpoint or a fresh copy of this one."
    )


def _check_sizes(message: bytes) -> None:
    """Raise unless the items that the message announces are exactly those that it holds.

    Every item takes at least one byte, so a message that announces more items than bytes are left
    is refused at once: no allocation of the parser can exceed a small multiple of the message.
    """
    end = len(message)
    position = 0
    num_awaited = 1
    while num_awaited:
        if num_awaited > end - position:
            raise corrupt("the tree announces more than it holds")
        kind = message[position]
        width = _LENGTH_BYTES[kind]
        length = int.from_bytes(message[position + 1 : position + 1 + width], "big") if width else 0
        position += _FIXED_BYTES[kind] + width
        num_awaited += _FIXED_ITEMS[kind] - 1
        if length:
            if kind in _ITEMS_PER_LENGTH:
                num_awaited += length * _ITEMS_PER_LENGTH[kind]
            else:
                position += length
    if position != end:
        raise corrupt("the tree ends too early or too late")


def _fixed_bytes(kind: int) -> int:
    """Return how many bytes an item of this kind has, without a length field and what it counts."""
    if 0xA0 <= kind <= 0xBF:  # short text
        return 1 + (kind & 0x1F)
    if 0xC7 <= kind <= 0xC9:  # ext of any size: its tag
        return 2
    sizes = {0xCA: 5, 0xCB: 9, 0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9, 0xD0: 2, 0xD1: 3, 0xD2: 5}
    sizes |= {0xD3: 9, 0xD4: 3, 0xD5: 4, 0xD6: 6, 0xD7: 10, 0xD8: 18}  # ext of fixed size
    return sizes.get(kind, 1)


def _fixed_items(kind: int) -> int:
    """Return how many items follow inside a short map or array."""
    if 0x80 <= kind <= 0x8F:
        return 2 * (kind & 0x0F)
    return kind & 0x0F if 0x90 <= kind <= 0x9F else 0


_FIXED_BYTES: Final = tuple(_fixed_bytes(kind) for kind in range(256))
_FIXED_ITEMS: Final = tuple(_fixed_items(kind) for kind in range(256))

# Width of the length field of bytes, ext, text, arrays and maps.
_LENGTH_FIELDS: Final = (
    ((0xC4, 0xC7, 0xD9), 1),
    ((0xC5, 0xC8, 0xDA, 0xDC, 0xDE), 2),
    ((0xC6, 0xC9, 0xDB, 0xDD, 0xDF), 4),
)
_WIDTHS: Final = {kind: width for kinds, width in _LENGTH_FIELDS for kind in kinds}
_LENGTH_BYTES: Final = tuple(_WIDTHS.get(kind, 0) for kind in range(256))
_ITEMS_PER_LENGTH: Final = {0xDC: 1, 0xDD: 1, 0xDE: 2, 0xDF: 2}


# ---- encoding
#
# From a plain-data value to a tree that ormsgpack writes natively, and the memory of its arrays.
# Types are compared exactly, in Python, before ormsgpack sees anything: its releases differ in
# what they take for something else (enums, UUIDs, bytearrays, subclasses), and a checkpoint must
# not.

_MIN_INT: Final = -(2**63)
_MAX_INT: Final = 2**64 - 1
_UNCHANGED: Final = frozenset({type(None), bool, float, bytes})
_CONTAINERS: Final = frozenset({list, tuple, dict, set, frozenset})
_MARKERS: Final = {tag: ormsgpack.Ext(tag, b"") for tag in CONTAINER_TAGS}


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
            return value if is_utf8 else _text_ext(TEXT, value)
        if kind is int:
            return value if _MIN_INT <= value <= _MAX_INT else _big_int_ext(value)
        if kind is np.ndarray:
            return self._array(value)
        if kind in _CONTAINERS:
            if depth > MAX_DEPTH:
                raise Refusal.too_deep(MAX_DEPTH)
            return self._container(value, depth + 1)
        if kind is complex:
            return ormsgpack.Ext(COMPLEX, struct.pack("<dd", value.real, value.imag))
        if isinstance(value, np.generic):
            return self._scalar(value)
        raise Refusal.of(value)

    def _container(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind is list:
            return self._items(value, depth)
        if kind is tuple:
            return [_MARKERS[TUPLE], *self._items(value, depth)]
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
        pairs = [_MARKERS[MAP]]
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
        marker = _MARKERS[SET if type(values) is set else FROZENSET]
        return [marker, *(tree for _, tree in trees)]

    def _array(self, array: array_format.Array) -> ormsgpack.Ext:
        description = self._describe(array.dtype, array.shape, f"an array of dtype {array.dtype}")
        order = array_format.memory_order(array)
        if array.nbytes >= self._large_array_bytes:
            entry = [description, list(array.shape), order, len(self.large)]
            self.large.append(array)
            return ormsgpack.Ext(ARRAY_FILE, ormsgpack.packb(entry))
        self.memory.append(array_format.array_memory(array))
        return ormsgpack.Ext(ARRAY, ormsgpack.packb([description, list(array.shape), order]))

    def _scalar(self, value: np.generic) -> ormsgpack.Ext:
        kind = type(value)
        if isinstance(value, np.str_) and kind is np.str_:
            # Not by memory: that would lose characters of value zero at the end.
            return _text_ext(NUMPY_TEXT, value, b"U")
        if isinstance(value, np.bytes_) and kind is np.bytes_:
            return ormsgpack.Ext(NUMPY_TEXT, b"S" + bytes(value))
        description = self._describe(value.dtype, (), f"a NumPy scalar of dtype {value.dtype}")
        if kind is not value.dtype.type:
            raise Refusal.of(value)
        writable = isinstance(value, np.void) and bool(value.flags.writeable)
        return ormsgpack.Ext(SCALAR, ormsgpack.packb([description, value.tobytes(), writable]))

    def _describe(self, dtype: np.dtype[Any], shape: tuple[int, ...], what: str) -> Any:
        try:
            self._free_items.take(dtype, shape)
            return array_format.describe_dtype(dtype)
        except array_format.UnsupportedDtypeError as error:
            raise Refusal.dtype(what, str(error)) from None


def _check_hashes(keys: Collection[Any]) -> None:
    """Refuse keys that no reader takes, because looking them up would be slow."""
    most = most_of_one_hash(keys)
    if most > MAX_OF_ONE_HASH:
        raise Refusal(
            f"{most} members of a dict or set share a hash, so that each is compared with all",
            "In get_state(), save a list of them.",
        )


def _text_ext(tag: int, text: str, prefix: bytes = b"") -> ormsgpack.Ext:
    return ormsgpack.Ext(tag, prefix + text.encode("utf-8", "surrogatepass"))


def _big_int_ext(value: int) -> ormsgpack.Ext:
    num_bytes = value.bit_length() // 8 + 1
    return ormsgpack.Ext(BIG_INT, value.to_bytes(num_bytes, "little", signed=True))


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


# ---- decoding
#
# From the bytes of a tree and the memory of its arrays back to the value, trusting neither. Sizes
# are compared before anything is allocated, dtypes with objects are refused, and nothing in the
# bytes can name a class or a function.


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
        if depth > MAX_DEPTH:
            raise corrupt("they are nested too deeply")
        if kind is dict:
            return {key: self.value(item, depth + 1) for key, item in tree.items()}
        if tree and type(tree[0]) is ExtEntry and tree[0].tag in CONTAINER_TAGS:
            return self._container(tree[0], self._items(tree[1:], depth + 1))
        return self._items(tree, depth + 1)

    def _items(self, trees: list[Any], depth: int) -> list[Any]:
        if set(map(type, trees)).isdisjoint({list, dict, ExtEntry}):
            return trees
        return [self.value(tree, depth) for tree in trees]

    def _container(self, marker: ExtEntry, items: list[Any]) -> Any:
        if marker.payload:
            raise corrupt("a container marker has content")
        if marker.tag == TUPLE:
            return tuple(items)
        try:
            _check_read_hashes(items[::2] if marker.tag == MAP else items)
            if marker.tag == MAP:
                pairs = zip(items[::2], items[1::2], strict=True)
                whole: Any = dict(pairs)
                expected = len(items) // 2
            else:
                whole = set(items) if marker.tag == SET else frozenset(items)
                expected = len(items)
        except (TypeError, ValueError) as error:
            raise corrupt(f"a dict or set cannot be built ({error})") from error
        if len(whole) != expected:
            raise corrupt("a dict or set holds the same key twice")
        return whole

    def _leaf(self, tag: int, payload: bytes) -> Any:
        if tag == ARRAY:
            return self._array(payload)
        if tag == ARRAY_FILE and self._load_array is not None:
            description, shape, order, number = _unpack_payload(payload, 4)
            dtype = self._checked_layout(description, shape, order)
            try:
                return self._load_array(number, dtype=dtype, shape=tuple(shape), order=order)
            except ValueError as error:
                raise corrupt(f"an array cannot be built ({error})") from error
        if tag == SCALAR:
            return self._scalar(payload)
        if tag == BIG_INT:
            return int.from_bytes(payload, "little", signed=True)
        if tag == COMPLEX and len(payload) == 16:
            return complex(*struct.unpack("<dd", payload))
        if tag == TEXT:
            return _build_text(payload)
        if tag == NUMPY_TEXT and payload[:1] == b"U":
            return np.str_(_build_text(payload[1:]))
        if tag == NUMPY_TEXT and payload[:1] == b"S":
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


def _check_read_hashes(keys: list[Any]) -> None:
    """Raise if many keys share a hash, which numbers can be chosen to do."""
    most = most_of_one_hash(keys)
    if most > MAX_OF_ONE_HASH:
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


# ---- codec


def encode(value: Any, *, name: str = "state") -> bytes:
    """Return the bytes of a plain-data value.

    Error messages call the value `name`.

    Raises:
        StateError: if something in it is not plain data; the message names the place.
    """
    return b"".join(encode_split(value, name=name).parts)


@dataclass(frozen=True)
class EncodedState:
    """A state as it is written, showing the memory of its arrays: write it before they change.

    Attributes:
        parts: the bytes of its own file, in pieces.
        arrays: those that get files of their own, in the order of their numbers.
    """

    parts: Sequence[bytes | memoryview]
    arrays: Sequence[Array]

    def detached(self) -> EncodedState:
        """Return the same with its own memory."""
        parts = [part if type(part) is bytes else bytes(part) for part in self.parts]
        return EncodedState(parts, [copied(array) for array in self.arrays])


def encode_split(
    value: Any, *, name: str = "state", large_array_bytes: float = math.inf
) -> EncodedState:
    """Return what `encode` would, in pieces, and apart from it arrays of at least so many bytes.

    Raises the same errors as `encode`.
    """
    encoder = Encoder(large_array_bytes=large_array_bytes)
    try:
        tree = ormsgpack.packb(encoder.tree(value, 1))
    except Refusal as refusal:
        raise StateError(refusal.message(name)) from None
    except (ormsgpack.MsgpackEncodeError, RecursionError) as error:
        raise StateError(
            f"{name} cannot be written as msgpack ({error}). One text or bytes value may hold up "
            "to 4 GiB; keep larger ones in a NumPy array."
        ) from error
    head = MAGIC + struct.pack("<Q", len(tree)) + tree
    return EncodedState([head, *encoder.memory], encoder.large)


def decode(data: bytes | bytearray | memoryview, *, load_array: LoadArray | None = None) -> Any:
    """Return the value that `encode` was given; arrays are new and writable.

    Never runs code and never allocates on the word of a size field alone.

    Args:
        data: what `encode` returned.
        load_array: gives the arrays that lie in files of their own; None if there are none.

    Raises:
        CheckpointCorruptError: if these are not exactly the bytes of one value.
    """
    view = memoryview(data)
    if len(view) < PREFIX_BYTES or bytes(view[:8]) != MAGIC:
        raise corrupt("they do not start like an encoded state")
    tree_end = PREFIX_BYTES + struct.unpack("<Q", view[8:PREFIX_BYTES])[0]
    if tree_end > len(view):
        raise corrupt("they end in the middle of the tree")
    decoder = Decoder(view[tree_end:], load_array)
    try:
        value = decoder.value(parse_message(bytes(view[PREFIX_BYTES:tree_end])), 1)
    except RecursionError as error:
        raise corrupt("they are nested too deeply") from error
    decoder.finish()
    return value


# ---- array files
#
# Large arrays in files of their own: raw memory and nothing else, read in pieces or mapped. Each
# file is checked as the component's own file is: a regular file of the size and SHA-256 that the
# manifest names, and of the size that its dtype and shape ask for. So memory is taken only on the
# word of bytes that are there. Filling and hashing go together, piece by piece: the file is read
# once, and never whole in memory beside its array.
#
# An array that is given out has memory of its own, unless the caller wants maps. A map takes no
# memory, but shows the file: if the file is cut short later, touching the map ends the
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
    """Raise a CheckpointCorruptError unless this is the SHA-256 of what was written."""
    if digest != entry.sha256:
        raise refused(
            path,
            f"was altered: its SHA-256 is {digest[:12]}..., and {entry.sha256[:12]}... was written",
        )

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
import math
import struct
from collections.abc import Sequence
from typing import Any

import ormsgpack

from checkpoints import wire
from checkpoints.arguments import checked_arguments
from checkpoints.array_format import Array, copied
from checkpoints.decoding import Decoder, LoadArray
from checkpoints.encoding import Encoder
from checkpoints.errors import StateError
from checkpoints.messages import corrupt, parse_message
from checkpoints.refusals import Refusal


def encode(value: Any, *, name: str = "state") -> bytes:
    """Return the bytes of a plain-data value.

    Args:
        value: plain data, as the module describes it.
        name: what error messages call the value.

    Raises:
        StateError: if something in it is not plain data; the message names the place.
    """
    return b"".join(encode_split(value, name=name).parts)


@dataclasses.dataclass(frozen=True)
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
    head = wire.MAGIC + struct.pack("<Q", len(tree)) + tree
    return EncodedState([head, *encoder.memory], encoder.large)


@checked_arguments
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
    if len(view) < wire.PREFIX_BYTES or bytes(view[:8]) != wire.MAGIC:
        raise corrupt("they do not start like an encoded state")
    tree_end = wire.PREFIX_BYTES + struct.unpack("<Q", view[8 : wire.PREFIX_BYTES])[0]
    if tree_end > len(view):
        raise corrupt("they end in the middle of the tree")
    decoder = Decoder(view[tree_end:], load_array)
    try:
        value = decoder.value(parse_message(bytes(view[wire.PREFIX_BYTES : tree_end])), 1)
    except RecursionError as error:
        raise corrupt("they are nested too deeply") from error
    decoder.finish()
    return value

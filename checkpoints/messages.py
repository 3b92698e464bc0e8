"""Reading one msgpack message that may come from a hostile file.

ormsgpack up to 1.12 makes room for as many items as an array says it has before it sees them, never
frees what it had built when it then fails, and all releases ignore what follows a message. So
the sizes are added up first, in Python, and ormsgpack only sees messages that are complete.
"""

from __future__ import annotations

from typing import Any, Final

import ormsgpack

from checkpoints.errors import CheckpointCorruptError


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

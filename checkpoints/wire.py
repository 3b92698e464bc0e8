"""The numbers that encoder and decoder must agree on; the layout is drawn in `checkpoints.codec`.

These never change: a new meaning gets a new tag, a new layout gets another magic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any, Final

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

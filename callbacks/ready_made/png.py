"""Images as PNG, the form in which TensorBoard takes them."""

from __future__ import annotations

import struct
import zlib
from typing import Any, Final

import numpy as np

_COLOUR_TYPES: Final = {1: 0, 3: 2, 4: 6}
"""Number of channels (grey, RGB, RGB with alpha) to PNG's number for it."""


def is_image(value: Any) -> bool:
    """Whether it is an array uint8 [height, width] or [height, width, 1, 3 or 4 channels]."""
    if not isinstance(value, np.ndarray) or value.dtype != np.uint8 or value.size == 0:
        return False
    return value.ndim == 2 or (value.ndim == 3 and value.shape[2] in _COLOUR_TYPES)


def png_of(image: np.ndarray[Any, np.dtype[np.uint8]]) -> bytes:
    """The image, of which `is_image` is true, as a file (PNG specification, third edition)."""
    height, width, channels = (*image.shape, 1)[:3]
    # Each row begins with the number of its filter: 0 is none.
    rows = np.zeros((height, 1 + width * channels), np.uint8)
    rows[:, 1:] = image.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOUR_TYPES[channels], 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*chunk) for chunk in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

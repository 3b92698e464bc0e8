"""SHA-256 of what is read or written in pieces, computed beside the reading or writing."""

from __future__ import annotations

import hashlib
import queue
import threading
from types import TracebackType
from typing import Final

_SMALL_BYTES: Final = 2**20
"""Below, starting a thread takes longer than hashing."""
FEW: Final = 2
"""Pieces that may wait to be hashed if each has memory of its own: what streaming costs."""
ANY: Final = 0
"""No limit, for pieces whose memory is there anyway: nobody waits for anybody."""


class StreamedHash:
    """The hash of pieces in order. A disk and SHA-256 are about equally fast, and both let go of
    the interpreter's lock, so large pieces are hashed by a thread of their own. Its life:

    `with StreamedHash(max_waiting=FEW) as digest:` `digest.update(piece)` again and again; a piece
    must stay as it is until the block is left. Then `digest.hexdigest()`.
    """  # noqa: D205, D415 - the first lines announce the list

    def __init__(self, *, max_waiting: int) -> None:
        """Nothing is added yet.

        Args:
            max_waiting: `FEW` or `ANY` pieces.
        """
        self._digest = hashlib.sha256()
        self._pieces: queue.Queue[bytes | memoryview | None] = queue.Queue(max_waiting)
        self._thread: threading.Thread | None = None

    def __enter__(self) -> StreamedHash:
        return self

    def update(self, piece: bytes | memoryview) -> None:
        """Add a piece; waits while too many are waiting."""
        if self._thread is None and len(piece) >= _SMALL_BYTES:
            self._thread = self._started_thread()
        if self._thread is None:
            self._digest.update(piece)
        else:
            self._pieces.put(piece)

    def hexdigest(self) -> str:
        """Return the hash of all pieces, as hexadecimal digits; after the block."""
        return self._digest.hexdigest()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._thread is not None:
            self._pieces.put(None)
            self._thread.join()

    def _started_thread(self) -> threading.Thread | None:
        thread = threading.Thread(target=self._work, name="hashing", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return None  # there are too many, or the interpreter ends: it goes without
        return thread

    def _work(self) -> None:
        while (piece := self._pieces.get()) is not None:
            self._digest.update(piece)

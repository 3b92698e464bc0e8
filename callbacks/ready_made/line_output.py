"""Writing lines for people to read, so that nothing that reads them can disturb a run."""

from __future__ import annotations

import logging
import sys
from typing import Final, TextIO

_LOGGER: Final = logging.getLogger(__name__)


def printable(text: str) -> str:
    """Return the text with everything escaped that is no visible character, but ends of lines.

    Texts of files may hold sequences that steer a terminal, and marks that turn the direction of
    writing.
    """
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or character == "\n"
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


class LineOutput:
    """Writes lines to a stream, flushed at once, and falls silent when the stream is gone.

    A pipe that nobody reads any more, a closed file, a full disk: the first failure is logged, and
    further lines are dropped. Characters that the stream cannot encode are replaced, and those that
    could steer a terminal are escaped.

    Args:
        stream: where to write; None is standard output, whatever that is when a line is written.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self.is_silent = False

    def write(self, line: str) -> None:
        """Writes one line; never raises."""
        if self.is_silent:
            return
        line = printable(line)
        stream = sys.stdout if self._stream is None else self._stream
        if stream is None:  # a process without a console
            self.is_silent = True
            return
        try:
            try:
                stream.write(f"{line}\n")
            except UnicodeEncodeError:
                stream.write(f"{line.encode('ascii', 'replace').decode()}\n")
            stream.flush()
        except RuntimeError:
            return  # the handler of a signal, in the middle of another line
        except Exception as error:  # noqa: BLE001  streams of users raise anything; it is logged
            self.is_silent = True
            _LOGGER.warning(
                "Progress is not shown any more, because its stream failed (%s: %s). Training goes "
                "on.",
                type(error).__name__,
                error,
            )

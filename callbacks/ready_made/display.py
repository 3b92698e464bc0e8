"""Where text for people goes: lines, or a block that is redrawn in place.

`LineOutput` writes lines. `live_surface` finds out where people look: a cell of a notebook, or a
terminal that rich can redraw. Without a viewer (a file, a pipe, continuous integration) there is
no surface, and lines are written instead. A failing reader never disturbs a run.
"""

from __future__ import annotations

import importlib
import itertools
import logging
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, TextIO

# ---- lines

_LOGGER: Final = logging.getLogger(__name__)
_GONE: Final = (
    "Progress is not shown any more, because its stream failed (%s: %s). Training goes on."
)


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

    A pipe without a reader, a closed file, a full disk: the first failure is logged, and
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
            _LOGGER.warning(_GONE, type(error).__name__, error)


# ---- surfaces

_REDRAW_S: Final = 0.5
_WIDTH_OF_NOTEBOOKS: Final = 100


class Surface:
    """Where a block of text is drawn, again and again in the same place.

    A terminal or notebook that fails is told once, and nothing is drawn there any more.

    Args:
        draw: shows a text in the place of the one before.
        close: leaves the last text where it is, and gives the terminal back.
        interval_s: seconds between two texts that people can follow; 0: as the caller says.
        is_notebook: whether it is a cell of a notebook, which need not be closed.
    """

    def __init__(
        self,
        draw: Callable[[str], object],
        close: Callable[[], object],
        *,
        interval_s: float = _REDRAW_S,
        is_notebook: bool = False,
    ) -> None:
        self._draw, self._close = draw, close
        self._has_failed = False
        self.interval_s, self.is_notebook = interval_s, is_notebook

    def draw(self, text: str) -> None:
        """Shows a text in the place of the one before; never raises."""
        if not self._has_failed:
            self._tried(lambda: self._draw(printable(text)))

    def close(self) -> None:
        """Leaves the last text where it is, and gives the terminal back; never raises."""
        self._tried(self._close)

    def _tried(self, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001  of a terminal, rich or a notebook; it is logged
            if not self._has_failed:
                _LOGGER.warning(_GONE, type(error).__name__, error)
            self._has_failed = True

    @property
    def width(self) -> int:
        """How many characters a line may have."""
        return _WIDTH_OF_NOTEBOOKS if self.is_notebook else shutil.get_terminal_size().columns - 1


def live_surface(*, at_terminals: bool = True) -> Surface | None:
    """The cell of a notebook, or the terminal if rich is installed; None without a viewer.

    Without `at_terminals` notebooks only.
    """
    display = _notebook_display()
    if display is not None:
        return Surface(
            lambda text: display.update({"text/plain": text}, raw=True),
            lambda: None,
            interval_s=0.0,  # a notebook's process goes on when a run ends without `done`
            is_notebook=True,
        )
    if not at_terminals or sys.stdout is None or not sys.stdout.isatty():
        return None
    try:
        live = importlib.import_module("rich.live").Live(auto_refresh=False, transient=False)
        plain = importlib.import_module("rich.text").Text
    except ImportError:
        return None
    return Surface(_drawing_with(live, plain), live.stop)


def _drawing_with(live: Any, plain: Callable[[str], Any]) -> Callable[[str], object]:
    """Begins with the first text: until then, the terminal is as it was."""

    def draw(text: str) -> None:
        if not live.is_started:
            live.start()
        live.update(plain(text), refresh=True)

    return draw


def _notebook_display() -> Any:
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None or type(shell).__name__ != "ZMQInteractiveShell":
        return None
    display: Any = importlib.import_module("IPython.display")
    return display.display({"text/plain": ""}, raw=True, display_id=True)


# ---- sparklines

_BARS: Final = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], *, width: int = 40) -> str:
    """Finite numbers as a row of bars, from the least (▁) to the greatest (█).

    Args:
        values: in their order. If there are more than `width`, a bar is the mean of several.
        width: bars at most, at least 1.
    """
    if not values:
        return ""
    shares = _means(values, min(width, len(values)))
    low, high = min(shares), max(shares)
    if high == low:
        return _BARS[len(_BARS) // 2] * len(shares)
    scale = (len(_BARS) - 1) / (high - low)
    return "".join(_BARS[round((value - low) * scale)] for value in shares)


def _means(values: Sequence[float], number: int) -> list[float]:
    ends = [len(values) * index // number for index in range(number + 1)]
    return [sum(values[begin:end]) / (end - begin) for begin, end in itertools.pairwise(ends)]

"""What commands print: text that cannot steer a terminal, whatever file it is from."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import traceback
from collections.abc import Iterator
from typing import Any

from gymnasium.error import DependencyNotInstalled

from callbacks import CallbackError
from callbacks.ready_made.display import printable
from trainer.errors import ConfigError


def print_text(text: str) -> None:
    """Print to standard output; everything but visible characters and ends of lines is escaped."""
    _put(printable(text))


def print_json(value: Any) -> None:
    """Print JSON, whose texts are ASCII."""
    _put(json.dumps(value, indent=1, allow_nan=False))


def _put(text: str) -> None:
    with _output_named():
        try:
            print(text)
        except UnicodeEncodeError:  # escaped, as on standard error
            print(text.encode("ascii", "backslashreplace").decode())


def flush_output() -> None:
    """Write what standard output still holds back, if there is one."""
    if sys.stdout is not None and not sys.stdout.closed:
        with _output_named():
            sys.stdout.flush()


@contextlib.contextmanager
def _output_named() -> Iterator[None]:
    """An error of the system names what could not be written, as those of files do."""
    try:
        yield
    except OSError as error:
        error.filename = "standard output"
        raise


def complain(text: str) -> None:
    """Print to standard error, escaped in the same way."""
    print(printable(text), file=sys.stderr)


def complain_with_traceback(error: BaseException) -> None:
    """Print the traceback of an error, escaped in the same way."""
    complain("".join(traceback.format_exception(error)).rstrip("\n"))


class PrintableFormatter(logging.Formatter):
    """Formats log records as text that cannot steer a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def on_one_line(value: Any) -> str:
    """The value as text in which ends of lines are escaped, too."""
    return printable(str(value)).replace("\n", "\\n")


@contextlib.contextmanager
def missing_extras_explained() -> Iterator[None]:
    """Turns the error of a package that only an extra installs into one that commands show.

    Raises:
        ConfigError: such a package is missing; says how to install it.
    """
    try:
        yield
    except (ImportError, DependencyNotInstalled) as error:
        raise ConfigError(str(error)) from error
    except CallbackError as error:  # a recorder renders
        if isinstance(error.original, ImportError | DependencyNotInstalled):
            raise ConfigError(str(error.original)) from error
        raise


@contextlib.contextmanager
def no_warnings_of(name: str) -> Iterator[None]:
    """Keeps a logger from telling what a command knows and means to do."""
    logger = logging.getLogger(name)
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before


class _ToStandardError(logging.Handler):
    """Writes to what is standard error at that moment: above a display that is redrawn."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            print(self.format(record), file=sys.stderr, flush=True)
        except Exception:  # noqa: BLE001 - as the handlers of the standard library do
            self.handleError(record)


def set_up_logging() -> None:
    """Let warnings go to standard error, unless the program has set up logging itself."""
    handler = _ToStandardError()
    handler.setFormatter(PrintableFormatter("%(levelname)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])

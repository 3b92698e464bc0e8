"""The files of recorded episodes in one directory, as one env runner writes them.

What is in a file is the business of the recorder. A file is there whole or not at all; trouble with
the disk is told, and never stops training.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

from callbacks.views import MetricsLoggerView
from checkpoints.moved_paths import moved_path

logger = logging.getLogger(__name__)

_UP: Final = ("", ".", "..")


class RecordingFiles:
    """Writes files by name and keeps the newest ones.

    A name always means the same episode, so there are no two writers: written again by a repaired
    or resumed run, a file is replaced.

    Attributes:
        directory: absolute; made when the first file is written.
        names: of the files written here, oldest first; filled only if their number is limited.

    Args:
        directory: `~` is understood; relative to where the main process runs now.
        recorder: who writes: what messages and metrics are called.
        max_episodes: how many files are kept; None keeps all.
    """

    def __init__(
        self, directory: str | os.PathLike[str], *, recorder: str, max_episodes: int | None
    ) -> None:
        self.directory = Path(directory).expanduser().absolute()
        self.names: list[str] = []
        self._recorder = recorder
        self._max_episodes = max_episodes
        self._has_warned = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, directory=moved_path(state["directory"]))

    def write(
        self,
        name: str,
        write: Callable[[Path], object],
        metrics_logger: MetricsLoggerView,
        *,
        harmless: tuple[type[Exception], ...] = (OSError,),
    ) -> None:
        """Writes one file and deletes what is too many; counts both outcomes as metrics.

        Args:
            name: of the file; characters that file names do not take are escaped.
            write: writes to the path it is given, a temporary one.
            metrics_logger: where `<recorder>/num_written` and `<recorder>/num_failed` are counted.
            harmless: what `write` may raise without stopping training.
        """
        name = quote(name, safe=" ")
        temporary = self.directory / f".{name}.part"
        is_written = False
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            try:
                write(temporary)
                temporary.replace(self.directory / name)
            finally:
                temporary.unlink(missing_ok=True)
            is_written = True
            self._keep_newest(name)
        except harmless as error:
            self._warn_once(name, error)
        metrics_logger.log_value((self._recorder, "num_written"), int(is_written), reduce="sum")
        metrics_logger.log_value((self._recorder, "num_failed"), int(not is_written), reduce="sum")

    def _keep_newest(self, name: str) -> None:
        if self._max_episodes is None:
            return
        self.names = [earlier for earlier in self.names if earlier != name] + [name]
        too_many = len(self.names) - self._max_episodes
        for old in self.names[: max(0, too_many)]:
            (self.directory / old).unlink(missing_ok=True)
            self.names.remove(old)

    def take_names(self, names: Sequence[Any]) -> None:
        """Goes on with the names that a state holds.

        Raises:
            ValueError: one of them is no name that `write` gives, so it may lead out of the
                directory, and what it leads to would be deleted some day.
        """
        for name in names:
            if not isinstance(name, str) or quote(unquote(name), safe=" ") != name or name in _UP:
                raise ValueError(
                    f"{name!r:.80} is no name of a recording. The state was not written by "
                    f"{self._recorder}; nothing was deleted."
                )
        self.names = list(names)

    def _warn_once(self, name: str, error: Exception) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        logger.warning(
            "%s could not write %s: %s: %s. Training goes on without this recording; later "
            "failures are not logged but counted in env_runners/%s/num_failed.",
            self._recorder,
            self.directory / name,
            type(error).__name__,
            error,
            self._recorder,
        )

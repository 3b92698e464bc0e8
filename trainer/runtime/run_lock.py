"""One run per directory: a lock that the operating system gives back when its process ends.

Two processes in one directory would mix their results and remove each other's checkpoints. A crash
cannot leave the lock behind; the file may be, and means nothing then.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from pathlib import Path
from typing import Final

from checkpoints.links import check_links
from trainer.errors import ConfigError
from trainer_toolkit.files import NoLocksError, lock_file, remedy
from trainer_toolkit.interrupts import signals_deferred

LOCK_FILE: Final = "run.lock"

_LOGGER: Final = logging.getLogger(__name__)
_MAX_TRIES: Final = 10


def owner_of(path: Path) -> int | None:
    """The process that holds a run's directory; None if none does. It only looks."""
    try:
        pid = int((path / LOCK_FILE).read_text().strip())
        os.kill(pid, 0)
    except (OSError, ValueError, OverflowError) as error:
        is_of_another_user = isinstance(error, PermissionError) and error.filename is None
        return pid if is_of_another_user else None
    return pid


class RunLock:
    """Holds a run's directory for this process, and makes it if it does not exist.

        with RunLock(path):
            ...                 # no other process writes there

    On leaving, the file is removed, and so are directories that were made for it and are empty.

    Args:
        path: the directory of the run, absolute.
        must_be_new: raise FileExistsError if the directory is there already.
        elsewhere: what to give instead, for errors.
    """

    def __init__(
        self, path: Path, *, must_be_new: bool = False, elsewhere: str = "another --run-dir"
    ) -> None:
        self._path = path
        self._must_be_new = must_be_new
        self._elsewhere = elsewhere
        self._file = path / LOCK_FILE
        self._descriptor = -1
        self._made: list[Path] = []
        self._pid = os.getpid()

    def __enter__(self) -> RunLock:
        """Takes the lock.

        Raises:
            LinkError: a link in the directory leads out of it: writing there would destroy files
                that are no part of the run. Nothing was written.
            ConfigError: another process holds it (names the process), or the directory cannot be
                made or written.
            FileExistsError: the directory is not new, and must be.
        """
        try:
            check_links(self._path)
            with signals_deferred():
                self._take()
        except OSError as error:
            if self._must_be_new and self._path.is_dir():
                raise
            self._remove_made()
            raise ConfigError(
                f"{self._path} cannot be used as the directory of a run: {error}. Results and "
                f"checkpoints go there. {remedy(error)}; or give {self._elsewhere}."
            ) from error
        except BaseException:  # an interrupt has waited; nobody else would let go
            if self._descriptor >= 0:
                self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with signals_deferred():
            if os.getpid() != self._pid:  # a forked copy leaves: the run goes on in the original
                os.close(self._descriptor)
                return
            # Removed while still locked: a process that opened it meanwhile notices and retries.
            self._file.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._remove_made()

    def _take(self) -> None:
        self._made = [path for path in (self._path, *self._path.parents) if not path.exists()]
        self._make_directory()
        self._descriptor = self._locked_file()
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def _make_directory(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._path.mkdir()  # only one of several processes makes it
        except FileExistsError:
            if self._must_be_new or not self._path.is_dir():
                raise

    def _locked_file(self) -> int:
        """The descriptor of the lock file, locked by this process."""
        for _ in range(_MAX_TRIES):
            # No link: where it leads to, a file of this user would be emptied.
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(self._file, flags, 0o644)
            try:
                self._lock(descriptor)
                if self._is_current(descriptor):
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)  # its last owner removed it just now
        raise BlockingIOError(errno.EAGAIN, "its lock changes hands all the time")

    def _lock(self, descriptor: int) -> None:
        try:
            lock_file(descriptor)
        except BlockingIOError as error:
            raise ConfigError(self._in_use_by(descriptor)) from error
        except NoLocksError as error:
            _LOGGER.warning(
                "%s cannot be locked (%s): make sure that no other process trains there.",
                self._path,
                error,
            )

    def _is_current(self, descriptor: int) -> bool:
        """Whether the open file is the one that others would open now."""
        try:
            return os.path.samestat(os.fstat(descriptor), self._file.stat())
        except FileNotFoundError:
            return False

    def _in_use_by(self, descriptor: int) -> str:
        pid = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        owner = f"process {pid}" if pid.isdigit() else "another process"
        end = f" (kill {pid} lets it save first)" if pid.isdigit() else ""
        return (
            f"{self._path} is in use: {owner} trains there. Two in one directory would mix their "
            "results and remove each other's checkpoints. Wait until it has ended, stop it"
            f"{end}, or train in {self._elsewhere}."
        )

    def _remove_made(self) -> None:
        with contextlib.suppress(OSError):  # it is in use now
            for path in self._made:
                path.rmdir()

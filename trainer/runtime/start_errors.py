"""What keeps a process or thread from being started, and what can be done about it."""

from __future__ import annotations

import errno
import os
import resource
from typing import Final

_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - where Linux keeps it, not a place for our files


def describe_start_error(error: Exception) -> str:
    """Why a process or thread could not be started, and what can be done about it."""
    text = f"{type(error).__name__}: {error}"
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EMFILE:
        allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return (
            f"{text}; this process may have {allowed} open files (`ulimit -n`), and each worker "
            "takes some 10: raise the limit, or use fewer runners"
        )
    if number in (errno.EAGAIN, errno.ENOMEM) or "start new thread" in str(error):
        return (
            f"{text}; the limit of processes and threads (`ulimit -u`, or of the container) or the "
            "memory is used up: raise it, or use fewer runners; num_env_runners=0 needs none"
        )
    if number == errno.ENOSPC and getattr(error, "filename", None) is None:
        return (
            f"{text}; the semaphores of processes are files in {_SHARED_MEMORY}, which has "
            f"{_room(_SHARED_MEMORY)}: make it larger (a container has 64 MB: `docker run "
            f"--shm-size=1g`), or remove what was left there (`ls -l {_SHARED_MEMORY}`); "
            "num_env_runners=0 needs none"
        )
    if isinstance(error, FileNotFoundError) and not _has_current_folder():
        return (
            f"{text}; the current folder of this process was removed, and a new process starts "
            "there: change to another one with os.chdir()"
        )
    return text


def _has_current_folder() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - what fails is what is asked for
    except FileNotFoundError:
        return False
    return True


def _room(folder: str) -> str:
    """How much a file system can still hold; "no room" where that is not known."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return "no room"
    size = found.f_frsize / 2**20  # as containers count
    return f"{found.f_bavail * size:.1f} of {found.f_blocks * size:.1f} MB free"

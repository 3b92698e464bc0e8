"""What the code in a worker starts ends with the worker, however that ends.

Simulators are processes that an env starts. A worker that is killed cannot end them, and the kernel
does not: so each worker leads a process group of its own, which all that it starts belongs to.

    worker              `lead_group()`, before any code of the user's
    main process        `guard_group` when a worker has started, `end_group` when it is gone
    reaper              a small process beside the main process. It kills the groups whose leader
                        has died, and all of them when the main process has, however that ended

A process that is meant to outlive its worker leaves the group: `start_new_session=True` in
`subprocess.Popen`. Nothing here knows of workers; a group is the process id of its leader.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import sys
import threading
from multiprocessing import util
from typing import Final

_LOGGER = logging.getLogger(__name__)

# Nothing but Python's own, imported from nowhere else: 10 ms, and nobody waits for them. It ends
# when the pipe does that is its standard input, of which the main process holds the only other end.
_REAPER: Final = """
# The reaper of local-trainer: it ends what the env runners of a killed process leave behind.
import os, select, signal

os.setsid()  # so that what kills the main process' group or terminal leaves it alone
os.chdir("/")
for name in os.listdir("/dev/fd"):
    if int(name) > 2:
        try:
            os.close(int(name))
        except OSError:
            pass
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
groups, folders, rest = set(), set(), b""

def kill(group):
    groups.discard(group)
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass

while True:
    if select.select([0], [], [], 0.5 if groups else None)[0]:
        data = os.read(0, 65536)
        if not data:
            break
        *lines, rest = (rest + data).split(b"\\n")
        for line in lines:
            what, value = line[:1], line[1:]
            if what == b"+":
                groups.add(int(value))
            elif what == b"-" and int(value) in groups:
                kill(int(value))
            elif what == b"/":
                folders.add(value)
    for group in list(groups):
        try:
            os.kill(group, 0)
        except ProcessLookupError:
            kill(group)
        except OSError:
            pass
for group in list(groups):
    kill(group)
for folder in folders:
    import shutil
    shutil.rmtree(folder, ignore_errors=True)
"""
_TEMPORARY_DIRECTORY: Final = "tempdir"


class _Reaper:
    """The reaper of this process, and what it knows; global because it goes with the process."""

    lock = threading.Lock()
    pid: int | None = None
    pipe: int | None = None
    groups: Final[set[int]] = set()
    folder = ""
    is_folder_ours = False
    inherited_folder: str | None = None
    has_failed = False


def lead_group() -> None:
    """Puts this process into a group of its own; what it starts from now on belongs there.

    It is then no longer in the foreground of the terminal. It may write there all the same, and
    reads nothing.
    """
    with contextlib.suppress(PermissionError):  # it leads a session, and so a group, already
        os.setpgid(0, 0)
    for number in (signal.SIGTTOU, signal.SIGTTIN):
        signal.signal(number, signal.SIG_IGN)


def guard_group(group: int) -> None:
    """From now on, what is left of a group is ended when its leader or this process has died.

    Args:
        group: the process id of its leader, which is alive.
    """
    _Reaper.groups.add(group)
    _tell(f"+{group}")


def end_group(group: int, *, is_leader_known: bool) -> None:
    """Kills all processes of a group at once; nothing happens if there are none.

    Args:
        group: the process id of its leader.
        is_leader_known: the leader lives, or has died just now. Otherwise another process may have
            got its number since, and only the reaper knows whether the group is ended already.
    """
    if group not in _Reaper.groups:
        return
    _Reaper.groups.discard(group)
    if is_leader_known:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    _tell(f"-{group}")


def keep_temporary_directory() -> None:
    """Makes multiprocessing's folder for sockets now, and sees to it that it does not stay behind.

    Workers take over where it is; made later, each makes one of its own, which stays when the
    worker is killed.
    """
    if _Reaper.folder:
        return
    settings = getattr(multiprocessing.current_process(), "_config", {})
    before = settings.get(_TEMPORARY_DIRECTORY)
    folder = util.get_temp_dir()
    is_told_by_parent = before is not None and (
        before == _Reaper.inherited_folder or multiprocessing.parent_process() is not None
    )
    _Reaper.folder, _Reaper.is_folder_ours = folder, not is_told_by_parent
    if _Reaper.is_folder_ours and _Reaper.pipe is not None:
        _tell(f"/{folder}")


def reaper_pid() -> int | None:
    """The process id of the reaper; None if there is none yet."""
    return _Reaper.pid


def reaper_pipe() -> int | None:
    """The open file by which the reaper is told, by number; None if there is none yet."""
    return _Reaper.pipe


def _tell(line: str) -> None:
    with _Reaper.lock:
        for _ in range(2):
            if _Reaper.pipe is None and not _start():
                return
            assert _Reaper.pipe is not None  # noqa: S101 - `_start` has made it
            try:
                os.write(_Reaper.pipe, f"{line}\n".encode())
                return
            except OSError:  # it was killed, or is stopped and its pipe is full
                _forget()


def _start() -> bool:
    """Starts a reaper that knows what there is to know; returns whether that was possible."""
    reading, writing = -1, -1
    try:
        reading, writing = os.pipe()
        _Reaper.pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", "-c", _REAPER],
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, reading, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
        )
    except (OSError, ValueError, TypeError) as error:
        if writing >= 0:
            os.close(writing)
        if not _Reaper.has_failed:
            _Reaper.has_failed = True
            _LOGGER.warning(
                "No process could be started that ends what the processes of envs leave behind "
                "(%s: %s). If this process is killed, simulators that envs have started may stay.",
                type(error).__name__,
                error,
            )
        return False
    finally:
        if reading >= 0:
            os.close(reading)
    os.set_blocking(writing, False)
    _Reaper.pipe = writing
    known = [f"+{group}" for group in _Reaper.groups]
    known += [f"/{_Reaper.folder}"] if _Reaper.is_folder_ours else []
    os.write(writing, "".join(f"{line}\n" for line in known).encode())
    return True


def _forget() -> None:
    pid, _Reaper.pid = _Reaper.pid, None
    pipe, _Reaper.pipe = _Reaper.pipe, None
    if pipe is not None:
        os.close(pipe)
    if pid is not None:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.waitpid(pid, 0)


def _after_fork() -> None:
    """In a forked copy: the reaper is the original's, and must see the original's end."""
    _Reaper.lock = threading.Lock()
    pipe, _Reaper.pipe, _Reaper.pid = _Reaper.pipe, None, None
    _Reaper.groups.clear()
    _Reaper.folder, _Reaper.is_folder_ours = "", False
    settings = getattr(multiprocessing.current_process(), "_config", {})
    _Reaper.inherited_folder = settings.get(_TEMPORARY_DIRECTORY)
    if pipe is not None:
        with contextlib.suppress(OSError):
            os.close(pipe)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

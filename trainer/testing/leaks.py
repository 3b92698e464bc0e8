"""Whether a piece of code leaves nothing behind: processes, threads, open files, shared memory."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Final

from trainer.runtime.actor_registry import registry_of_this_process
from trainer.runtime.process_groups import reaper_pid, reaper_pipe
from trainer.testing.waiting import wait_until

_HAS_PROC: Final = Path("/proc/self/fd").is_dir()
_DESCRIPTORS: Final = Path("/proc/self/fd" if _HAS_PROC else "/dev/fd")
_SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - the place of shared memory, not of files


@dataclass(frozen=True)
class Belongings:
    """What a process has, each by a key of its own and with a text that says what it is.

    Attributes:
        processes: its children and theirs, without the helpers that multiprocessing keeps.
        threads: its threads.
        files: its open file descriptors, likewise.
        shared_memory: named blocks of shared memory of this user, on Linux.
    """

    processes: dict[object, str]
    threads: dict[object, str]
    files: dict[object, str]
    shared_memory: dict[object, str]

    @classmethod
    def now(cls) -> Belongings:
        """What this process has now."""
        return cls(
            _descendants(),
            {thread: thread.name for thread in threading.enumerate()},
            _open_files(),
            _shared_blocks(),
        )

    def beyond(self, before: Belongings) -> list[str]:
        """What is here and was not before, a line each."""
        kinds = ("processes", "threads", "files", "shared_memory")
        return [
            f"{kind}: {text}"
            for kind in kinds
            for key, text in getattr(self, kind).items()
            if key not in getattr(before, kind)
        ]


@contextlib.contextmanager
def no_leaks(*, within_s: float = 5.0) -> Iterator[None]:
    """Fails if more is there after the block than before it.

    What a process keeps for the next use is no leak: the fork server, the resource tracker and the
    shared pages of multiprocessing, the reaper (`trainer.runtime.process_groups`), and the folder
    in which actors are found.

    Args:
        within_s: how long after the block things may take to end.

    Raises:
        AssertionError: names every process, thread, file and block of shared memory left behind.
    """
    registry_of_this_process()
    before = Belongings.now()
    yield
    gc.collect()
    if not wait_until(lambda: not Belongings.now().beyond(before), within_s=within_s):
        left = Belongings.now().beyond(before)
        raise AssertionError("Something is left behind:\n  " + "\n  ".join(left))


def _descendants() -> dict[object, str]:
    told = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,stat=,comm="],  # noqa: S607 - its folder differs
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    lines = [line.split(None, 3) for line in told.splitlines()]
    helpers = _helper_pids()
    found: dict[object, str] = {}
    parents = {os.getpid()}
    while parents:
        children = {int(line[0]) for line in lines if int(line[1]) in parents}
        for pid, _, state, name in lines:
            # The `ps` that tells it is a child as well, and has ended by now.
            is_told = int(pid) in children and int(pid) not in helpers and name.strip() != "ps"
            if is_told and not state.startswith("Z"):
                found[int(pid)] = f"{pid} ({name.strip()})"
        parents = children
    return found


def _helper_pids() -> set[int]:
    """The processes that are kept for the next use; multiprocessing has no public way to its."""
    helpers = (
        reaper_pid(),
        getattr(getattr(forkserver, "_forkserver", None), "_forkserver_pid", None),
        getattr(getattr(resource_tracker, "_resource_tracker", None), "_pid", None),
    )
    return {pid for pid in helpers if pid is not None}


def _open_files() -> dict[object, str]:
    helpers = (
        reaper_pipe(),
        getattr(getattr(forkserver, "_forkserver", None), "_forkserver_alive_fd", None),
        getattr(getattr(resource_tracker, "_resource_tracker", None), "_fd", None),
    )
    found: dict[object, str] = {}
    for path in _DESCRIPTORS.iterdir():
        if int(path.name) in helpers:
            continue
        try:
            target = str(path.readlink())
        except OSError:
            if _HAS_PROC:
                continue  # it was open for this listing only
            target = ""  # elsewhere these are no links
        if not Path(target).name.startswith("pym-"):
            found[path.name, target] = f"{path.name} {target}".strip()
    return found


def _shared_blocks() -> dict[object, str]:
    """Blocks that this process has mapped, and those by name that have no owner to be asked."""
    if not (_HAS_PROC and _SHARED_MEMORY.is_dir()):
        return {}
    found: dict[object, str] = {}
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        *_, path = line.split(None, 5)
        if path.startswith(f"{_SHARED_MEMORY}/"):
            found[path] = path
    for file in _SHARED_MEMORY.iterdir():
        with contextlib.suppress(OSError):  # it has gone meanwhile
            # Semaphores of other programs come and go here all the time.
            if file.stat().st_uid == os.getuid() and not file.name.startswith("sem."):
                found[str(file)] = str(file)
    return {key: text for key, text in found.items() if "/pym-" not in text}

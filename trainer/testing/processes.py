"""Processes in tests: killing them, waiting for them, and whether any is left behind."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from trainer.actors.registry import registry_of_this_process
from trainer.runtime.process_start import fork_server_pid, reaper_pid

# ---- killer


@dataclass(frozen=True)
class Kill:
    """One signal that was sent.

    Attributes:
        at_s: when, in seconds since the killer began.
        pid: to which process.
        signal_number: which signal.
    """

    at_s: float
    pid: int
    signal_number: int


class RandomKiller:
    """Sends signals to some of the given processes again and again, while its block lasts.

        pids = lambda: algo.env_runner_group.env_runner_pids().values()
        with RandomKiller(pids, seed=1, most_kills=5) as killer:
            algo.train()
        print(killer.kills)

    The delays and the choices follow from the seed: delays are drawn from an exponential
    distribution, and each time the positions, in what `pids` gives, of one or more processes. What
    they hit depends on how fast the others are, of course; `kills` says what was hit, one that was
    about to end anyway included.

    Attributes:
        kills: what was done so far, in order of time.
    """

    def __init__(
        self,
        pids: Callable[[], Iterable[int]],
        *,
        seed: int,
        mean_delay_s: float = 0.05,
        most_kills: int | None = None,
        most_at_once: int = 1,
        signals: Sequence[int] = (signal.SIGKILL,),
    ) -> None:
        """Prepares a killer; it begins with its block.

        Args:
            pids: gives the processes that live now; called from a thread of the killer.
            seed: of delays and choices.
            mean_delay_s: between two strikes, on average.
            most_kills: it ends after so many signals; None goes on until its block ends, to which
                a busy machine may never come.
            most_at_once: how many processes one strike may hit.
            signals: what to send; one of them is drawn each time.
        """
        self.kills: list[Kill] = []
        self._pids = pids
        self._rng = np.random.default_rng(seed)
        self._mean_delay_s = mean_delay_s
        self._most_kills = most_kills
        self._most_at_once = most_at_once
        self._signals = tuple(signals)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._go_on, name="random-killer", daemon=True)

    def __enter__(self) -> RandomKiller:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _go_on(self) -> None:
        begun = time.monotonic()
        while not self._is_over.wait(self._rng.exponential(self._mean_delay_s)):
            # Drawn before anybody is looked at, so that what happens does not change what follows.
            count = int(self._rng.integers(1, self._most_at_once + 1))
            shares = self._rng.random(count)
            number = self._signals[int(self._rng.integers(len(self._signals)))]
            pids = list(self._pids())
            for pid in {pids[int(share * len(pids))] for share in shares if pids}:
                if self._most_kills is not None and len(self.kills) >= self._most_kills:
                    return
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    continue  # it has ended a moment ago
                self.kills.append(Kill(time.monotonic() - begun, pid, number))


# ---- waiting
#
# Waiting for what other processes do, in tests. By looking again until a deadline, never by
# sleeping and hoping.

_PATIENCE_S: Final = 10.0
_LOOK_AGAIN_S: Final = 0.005
_PROCESSES: Final = Path("/proc")
_NUM_THREADS: Final = 17  # of the fields after the name: proc(5) counts from 1, and two before it


def wait_until(condition: Callable[[], bool], *, within_s: float = _PATIENCE_S) -> bool:
    """Looks again and again until the condition holds.

    Args:
        condition: called about 200 times per second.
        within_s: seconds until it gives up.

    Returns:
        whether the condition held in time.
    """
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_AGAIN_S)
    return True


def is_process_alive(pid: int) -> bool:
    """Whether a process exists and has not ended.

    One that has ended but was not collected by its parent counts as ended.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    state = _state_of(pid)
    return bool(state) and not state.startswith("Z")


def _state_of(pid: int) -> str:
    """The letter of a process' state, or another word for alive; empty if there is none."""
    if (_PROCESSES / "self").exists():  # Linux; a hundredth of the time of `ps`
        try:
            status = (_PROCESSES / f"{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return ""
        # "number (name) state …", and the name may hold anything. The state is that of the first
        # thread; others may still be ending, and hold the files of all of them open.
        fields = status.rpartition(")")[2].split()
        return "alive" if int(fields[_NUM_THREADS]) > 1 else fields[0]
    shown = subprocess.run(  # noqa: S603 - a fixed program and a number
        ["ps", "-o", "stat=", "-p", str(pid)],  # noqa: S607 - its folder differs between systems
        capture_output=True,
        text=True,
        check=False,
    )
    return shown.stdout.strip()[:1]


# ---- leaks

_HAS_PROC: Final = Path("/proc/self/fd").is_dir()
_DESCRIPTORS: Final = Path("/proc/self/fd" if _HAS_PROC else "/dev/fd")
_TRACKER: Final = "multiprocessing.resource_tracker"
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
    shared pages of multiprocessing, the reaper (`trainer.runtime.process_start`), and the folder
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
    output = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,stat=,comm="],  # noqa: S607 - its folder differs
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    lines = [line.split(None, 3) for line in output.splitlines()]
    helpers = _helper_pids()
    found: dict[object, str] = {}
    parents = {os.getpid()}
    while parents:
        children = {int(line[0]) for line in lines if int(line[1]) in parents}
        for pid, _, state, name in lines:
            # The `ps` that tells it is a child as well, and has ended by now.
            is_named = int(pid) in children and int(pid) not in helpers and name.strip() != "ps"
            if is_named and not state.startswith("Z"):
                found[int(pid)] = f"{pid} ({name.strip()})"
        parents = children
    return found


def _helper_pids() -> set[int]:
    """The processes that this one keeps for the next use."""
    output = subprocess.run(
        ["ps", "-A", "-ww", "-o", "pid=,ppid=,args="],  # noqa: S607 - its folder differs
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    lines = [line.split(None, 2) for line in output.splitlines() if _TRACKER in line]
    trackers = {int(pid) for pid, parent, _ in lines if int(parent) == os.getpid()}
    return trackers | {pid for pid in (reaper_pid(), fork_server_pid()) if pid is not None}


def _pipes_to_helpers() -> set[str]:
    found = set()
    for pid in _helper_pids():
        with contextlib.suppress(OSError):  # it has gone meanwhile
            found |= {str(file.readlink()) for file in Path(f"/proc/{pid}/fd").iterdir()}
    return {target for target in found if target.startswith("pipe:")}


def _open_files() -> dict[object, str]:
    pipes = _pipes_to_helpers() if _HAS_PROC else set()
    found: dict[object, str] = {}
    for path in _DESCRIPTORS.iterdir():
        try:
            target = str(path.readlink())
        except OSError:
            if _HAS_PROC or _is_pipe(int(path.name)):
                continue  # it was open for this listing only; or may lead to a helper
            target = ""  # elsewhere these are no links
        if target not in pipes and not Path(target).name.startswith("pym-"):
            found[path.name, target] = f"{path.name} {target}".strip()
    return found


def _is_pipe(descriptor: int) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    except OSError:
        return False


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

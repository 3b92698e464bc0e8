"""Faults on purpose: where something is to fail, in which way, and how often.

    fault = Fault("step", way="sigkill", worker_index=1, at_step=3)

A `Fault` is a value that travels to every process. What makes it happen are `with_faults` (envs),
`FaultyCallback` (events), `faulty_module` (networks) and `Parcel` (replies). The runtime knows
nothing of all this.

How often a fault has happened is kept in a file, because the process that counts is the one that
dies.
"""

from __future__ import annotations

import atexit
import ctypes
import difflib
import faulthandler
import fcntl
import os
import resource
import signal
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, NoReturn

from callbacks import EVENTS
from trainer.errors import ConfigError

PLACES: Final = ("init", "reset", "step", "close", "forward", "pack", "unpack", *EVENTS)
"""Where faults can happen: in an env, in a network, with a reply, or in an event of callbacks."""

SPOILT_ANSWERS: Final = ("nan_observation", "nan_reward", "wrong_shape", "unpicklable_result")
"""Ways in which an env goes on, but with an answer that is no good; at "reset" and "step" only."""

_ALWAYS: Final = -1
_LINE_BYTES: Final = 24
_ROOM_BYTES: Final = 200_000_000


class InjectedFaultError(Exception):
    """What a fault raises."""


class UnpicklableError(InjectedFaultError):
    """An error that cannot be pickled: it holds a lock."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


class HugeError(InjectedFaultError):
    """An error that carries a lot of bytes."""

    payload = b""


def _forget(memory: Path, owner: int) -> None:
    """What the end of the process does, but not that of a forked copy of it."""
    if os.getpid() == owner:
        memory.unlink(missing_ok=True)


@dataclass(frozen=True)
class Fault:
    """Something that fails, at a stated place and in a stated way.

    Of the conditions, those that are None hold always.

    Attributes:
        place: one of `PLACES`. "pack" is the moment when a reply is packed in a runner's process,
            "unpack" when it is unpacked in the main process.
        way: one of `WAYS`.
        worker_index: in this env runner.
        env_index: in this sub-env.
        episode: in this episode of the env or the callback object, counted from 1 by each of them.
        at_step: when so many steps of the episode have been made.
        on_call: from this call on, of those that fulfil the other conditions; counted from 1 by
            each env, callback object and network for itself, so a replacement begins anew.
        in_evaluation: in evaluation runners (True) or training runners (False).
        times: how often it happens, over all processes: a number, "once" or "always".
        memory: the file that remembers how often it has happened; "" makes one, which is removed
            when the process ends that made it.
        seconds: of `way="slow"`.
        num_bytes: of `way="huge_reply"`.

    Raises:
        ConfigError: there is no such place or way, or they do not go together.
    """

    place: str
    _: KW_ONLY
    way: str = "raise"
    worker_index: int | None = None
    env_index: int | None = None
    episode: int | None = None
    at_step: int | None = None
    on_call: int = 1
    in_evaluation: bool | None = None
    times: int | Literal["once", "always"] = "once"
    memory: str = ""
    seconds: float = 0.1
    num_bytes: int = 50_000_000

    def __post_init__(self) -> None:
        _check_known("place", self.place, PLACES)
        _check_known("way", self.way, tuple(WAYS))
        if self.way in SPOILT_ANSWERS and self.place not in ("reset", "step"):
            raise ConfigError(
                f"Fault(place={self.place!r}, way={self.way!r}): only what an env answers can be "
                'spoilt so. Use place="reset" or place="step".'
            )
        if self.times not in ("once", "always") and not (
            isinstance(self.times, int) and self.times > 0
        ):
            raise ConfigError(f'times={self.times!r}: expected "once", "always" or a number from 1')
        if not self.memory:
            made = Path(tempfile.gettempdir(), f"fault-{uuid.uuid4().hex}")
            object.__setattr__(self, "memory", str(made))
            atexit.register(_forget, made, os.getpid())

    # ---- how often

    @property
    def num_fired(self) -> int:
        """How often it has happened, in whichever process."""
        return self._change(lambda left, fired: (left, fired))[1]

    @property
    def is_armed(self) -> bool:
        """Whether it may still happen."""
        return self._change(lambda left, fired: (left, fired))[0] != 0

    def disarm(self) -> None:
        """It will not happen any more, until it is armed."""
        self._change(lambda _, fired: (0, fired))

    def arm(self) -> None:
        """It may happen (again), as often as `times` says."""
        self._change(lambda _, fired: (self._most_times, fired))

    def claim(self) -> bool:
        """Whether it may happen now; if so, that is counted."""
        before = self._change(
            lambda left, fired: (left - 1 if left > 0 else left, fired + bool(left))
        )
        return before[0] != 0

    @property
    def _most_times(self) -> int:
        if self.times == "always":
            return _ALWAYS
        return 1 if self.times == "once" else int(self.times)

    def _change(self, change: Callable[[int, int], tuple[int, int]]) -> tuple[int, int]:
        """Changes (how often it may still happen, how often it has); returns what was before."""
        file = os.open(self.memory, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            line = os.pread(file, _LINE_BYTES, 0)
            left, fired = map(int, line.split()) if line else (self._most_times, 0)
            after = change(left, fired)
            if after != (left, fired) or not line:
                # One call of fixed length: whoever is killed meanwhile leaves no half line.
                os.pwrite(file, b"%11d %11d\n" % after, 0)
            return left, fired
        finally:
            os.close(file)  # gives the lock back, too

    # ---- what happens

    def act(self) -> None:
        """Lets it happen, here and now; returns only after "slow" and where an answer is spoilt."""
        WAYS[self.way](self)


def _check_known(name: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        near = difflib.get_close_matches(given, known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ConfigError(f"Fault({name}={given!r}): expected one of {', '.join(known)}.{hint}")


def _text(fault: Fault) -> str:
    return f"this fails on purpose at {fault.place!r}"


def _raise(fault: Fault) -> NoReturn:
    raise InjectedFaultError(_text(fault))


def _raise_unpicklable(fault: Fault) -> NoReturn:
    raise UnpicklableError(_text(fault))


def _raise_huge(fault: Fault) -> NoReturn:
    error = HugeError(_text(fault))
    error.payload = bytes(fault.num_bytes)
    raise error


def _exit(_: Fault) -> NoReturn:
    os._exit(7)


def _segfault(_: Fault) -> None:
    faulthandler.disable()  # its report would be noise
    ctypes.string_at(0)


def _sigkill(_: Fault) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _sigstop(_: Fault) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _hang(_: Fault) -> NoReturn:
    while True:
        time.sleep(60.0)


def _slow(fault: Fault) -> None:
    time.sleep(fault.seconds)


def _run_out_of_memory(fault: Fault) -> NoReturn:
    """Takes memory until there is none, in bounds: the machine has enough."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    taken: list[bytes] = []
    with suppress(OSError, ValueError):  # not everywhere can a process limit itself
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        limit = pages * resource.getpagesize() + _ROOM_BYTES // 2
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        while sum(map(len, taken)) < _ROOM_BYTES:
            taken.append(bytes(_ROOM_BYTES // 20))
    finally:
        taken.clear()
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    raise MemoryError(_text(fault))


def _nothing(_: Fault) -> None:
    """Whoever gives the answer spoils it."""


WAYS: Final[Mapping[str, Callable[[Fault], None]]] = MappingProxyType(
    {
        "raise": _raise,
        "exit": _exit,
        "segfault": _segfault,
        "sigkill": _sigkill,
        "sigstop": _sigstop,
        "hang": _hang,
        "slow": _slow,
        "out_of_memory": _run_out_of_memory,
        "unpicklable_error": _raise_unpicklable,
        "huge_reply": _raise_huge,
        **dict.fromkeys(SPOILT_ANSWERS, _nothing),
    }
)
"""Ways to fail, by name.

"raise" and "unpicklable_error" raise, "out_of_memory" raises `MemoryError` within bounds (what the
kernel does about a lack of memory is "sigkill"); "exit" is `os._exit`; "hang" goes on for ever,
"slow" for some seconds. "huge_reply" makes the reply large: by the info that an env gives, by a
`Parcel`, and everywhere else by an error that carries so many bytes. The others spoil the answer
of an env.
"""

"""How worker processes start: which way, with what preloaded, without the user's main module."""

from __future__ import annotations

import contextlib
import functools
import importlib.machinery
import logging
import multiprocessing
import os
import signal
import sys
import sysconfig
import threading
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import forkserver, process, util
from multiprocessing.connection import wait
from multiprocessing.context import BaseContext, ForkServerProcess, SpawnProcess
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, ClassVar, Final

from trainer.errors import ConfigError
from trainer.runtime.signals import FOR_MAIN_PROCESS
from trainer_toolkit.interrupts import signals_deferred

# ---- fork server
#
# The fork server, from which workers are copied: it may hang, or belong to another process.
# multiprocessing keeps one per process. It waits without limit for a server that is stopped or
# hangs: where a worker is started, and where the exit code of one is awaited. `ForkServerWatch`
# ends such a server, and its workers end with it: all of that is noticed and repaired like the
# death of any worker, and the next start makes another server.

_LOGGER = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 0.1
"""How often a server that something waits for is looked at."""
STOPPED_LIMIT_S = 1.0
"""How long a stopped server is waited for, in seconds."""
ANSWER_LIMIT_S = 60.0
"""How long one that runs is waited for: a new one imports modules first, which takes some time."""


def _fork_server() -> Any:
    """The one that multiprocessing keeps, of which `ensure_running` is a method."""
    return getattr(forkserver.ensure_running, "__self__", None)


def fork_server_pid() -> int | None:
    """The process id of the fork server that this process started; None if it has none."""
    # Private: nothing else tells which process hangs and has to be ended.
    pid = getattr(_fork_server(), "_forkserver_pid", None)
    return pid if isinstance(pid, int) else None


def end_stopped_fork_server() -> bool:
    """Ends the fork server if it is stopped; returns whether it was."""
    pid = fork_server_pid()
    if pid is None or not _is_stopped(pid):
        return False
    _end(pid, "is stopped (SIGSTOP)")
    return True


class ForkServerWatch:
    """Ends a fork server that does not answer while something waits for it.

        with ForkServerWatch():         # from a thread
            process.start()             # raises EOFError or OSError if the server was ended

    Who waits bit by bit needs no thread, and calls `look` every `LOOK_EVERY_S` instead.
    """

    def __init__(self) -> None:
        self._begun_at = self._stopped_at = time.monotonic()
        self._is_over = threading.Event()
        self._thread = threading.Thread(
            target=self._watch, name="watch of the fork server", daemon=True
        )

    def __enter__(self) -> None:
        # Without a thread (there are too many) the wait has no limit: better than no wait.
        with contextlib.suppress(RuntimeError):
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _watch(self) -> None:
        while not self._is_over.wait(LOOK_EVERY_S):
            self.look()

    def look(self) -> None:
        """Ends the fork server if it has not answered for too long."""
        pid, now = fork_server_pid(), time.monotonic()
        if pid is None:
            return
        if not _is_stopped(pid):
            self._stopped_at = now
        if now - self._stopped_at >= STOPPED_LIMIT_S:
            _end(pid, "is stopped (SIGSTOP)")
        elif now - self._begun_at >= ANSWER_LIMIT_S:
            _end(pid, f"has not answered for {ANSWER_LIMIT_S:g} s")
        else:
            return
        self._begun_at = self._stopped_at = now


def _is_stopped(pid: int) -> bool:
    if not hasattr(os, "waitid"):  # macOS, before Python 3.13
        return False
    try:
        return os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # it has ended
        return False


def _end(pid: int, why: str) -> None:
    _LOGGER.warning(
        "The fork server, from which worker processes are started (process %d), %s. It is ended, "
        "and the workers that it has started with it; another one is started.",
        pid,
        why,
    )
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def forget_fork_server() -> None:
    """The next worker gets another server; this one is not, or no longer, a child of this process.

    So it is in a forked copy of the process that started it: multiprocessing asks for the state of
    the server as of a child.
    """
    if fork_server_pid() is not None:
        _fork_server()._forkserver_pid = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget_fork_server)


# ---- import path
#
# Where worker processes import from: where the main process did, whatever the user's folder
# holds. multiprocessing starts processes as `python -c …`, and such a Python looks into the
# current folder before everything else: a `random.py` there would break it, a `trainer.py` would
# be taken for this library. So a process starts with a path of its own choosing, imports us, and
# only then gets the path of the main process, with which it finds the user's modules.
#
# Python 3.10 always looks into the current folder. There it helps to preload nothing, and what
# still fails is told with the file that is in the way (`describe_shadows`).

PATH_VARIABLES: Final = ("PYTHONPATH", "PYTHONSAFEPATH")
"""Environment variables that decide where a new Python imports from."""

_OUR_PACKAGES: Final = ("trainer", "callbacks", "checkpoints")
_LOOKS_INTO_CURRENT_FOLDER: Final = sys.version_info < (3, 11)
"""Whether `PYTHONSAFEPATH` is not known yet."""


@dataclass(frozen=True)
class ImportPath:
    """What a worker gets back once it has imported this library.

    Attributes:
        entries: of `sys.path`.
        variables: `PATH_VARIABLES` and their values; None where one is not set.
    """

    entries: tuple[str, ...]
    variables: dict[str, str | None]

    @classmethod
    def of_this_process(cls) -> ImportPath:
        """The path of this process, in a form that means the same in another one."""
        # multiprocessing's own rule for the entry '', the folder that is current at any moment.
        start = getattr(process, "ORIGINAL_DIR", None) or ""
        return cls(
            tuple(entry or start for entry in sys.path),
            {name: os.environ.get(name) for name in PATH_VARIABLES},
        )

    def take_over(self) -> None:
        """Makes this process import from here from now on."""
        sys.path[:] = self.entries
        set_variables(self.variables)


def set_variables(variables: Mapping[str, str | None]) -> None:
    """Sets environment variables; removes those that are None."""
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def path_for_starting(entries: Sequence[str]) -> list[str]:
    """The entries without those that would give another `trainer`, `callbacks` or `checkpoints`."""
    return [entry for entry in entries if not any(_hides(name, entry) for name in _OUR_PACKAGES)]


def variables_for_starting(entries: Sequence[str]) -> dict[str, str]:
    """Environment variables with which a new Python imports from these entries.

    Python's own library comes first: while a process starts, nothing may take its place.
    """
    own = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    own |= {str(Path(folder) / "lib-dynload") for folder in own}
    usable = [entry for entry in entries if entry and os.pathsep not in entry]
    ordered = sorted(usable, key=lambda entry: entry not in own)
    return {"PYTHONPATH": os.pathsep.join(ordered), "PYTHONSAFEPATH": "1"}


def may_preload() -> bool:
    """Whether a fork server would import what we import."""
    return next(_shadows(), None) is None


def describe_shadows() -> str:
    """A sentence on files of the current folder that hide modules from new processes, or ''."""
    found = sorted(_shadows())
    if not found:
        return ""
    names = ", ".join(map(repr, found[:5]))
    return (
        f" The current folder {str(Path.cwd())!r} holds {names}, of the same name as modules that "
        "a new process needs, which may be why. Rename them, or start Python from another folder."
    )


def _shadows() -> Iterator[str]:
    """File names in the current folder that hide modules which this process has from elsewhere."""
    if not _LOOKS_INTO_CURRENT_FOLDER:
        return
    try:
        entries = list(Path.cwd().iterdir())
    except OSError:  # the folder was removed
        return
    for entry in entries:
        name = entry.stem if entry.suffix == ".py" else entry.name
        module = sys.modules.get(name)
        origin = getattr(module, "__file__", None)
        if origin and name != "__main__" and _hides(name, str(entry.parent)):
            yield entry.name


def _hides(name: str, folder: str) -> bool:
    """Whether an import from the folder gives another module of that name than we have."""
    spec = importlib.machinery.PathFinder.find_spec(name, [folder])
    ours: str | None = getattr(sys.modules.get(name), "__file__", None)
    # A folder without __init__.py has no origin: it hides nothing.
    if spec is None or spec.origin is None or ours is None:
        return False
    return os.path.realpath(spec.origin) != os.path.realpath(ours)


# ---- process start

START_METHOD_VARIABLE: Final = "LOCAL_TRAINER_START_METHOD"
"""Environment variable that forces "forkserver" or "spawn"."""

_ONE_THREAD_VARIABLES: Final = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
_ABSTRACT_SOCKETS: Final = "abstract_sockets_supported"
_LOCK: Final = threading.RLock()


def choose_start_method() -> str:
    """The way to start workers: "forkserver" or "spawn".

    The environment variable decides, else what the user told multiprocessing, else the best there
    is. `fork` is never used: a forked copy of a process that has threads (BLAS, the user's) can
    hang.

    Raises:
        ConfigError: the environment variable names something else.
    """
    available = multiprocessing.get_all_start_methods()
    allowed = [method for method in ("forkserver", "spawn") if method in available]
    forced = os.environ.get(START_METHOD_VARIABLE)
    if forced:
        if forced not in allowed:
            raise ConfigError(
                f"The environment variable {START_METHOD_VARIABLE} is {forced!r}; env runner "
                f"processes can be started here by {' or '.join(map(repr, allowed))}. Set it to "
                "one of these, or leave it unset."
            )
        return forced
    if multiprocessing.get_start_method(allow_none=True) == "spawn" and sys.platform != "darwin":
        return "spawn"
    return allowed[0]


@contextlib.contextmanager
def _without_main_module() -> Iterator[None]:
    """Hides `__main__` while a process starts: the child must not run the user's script again.

    multiprocessing imports the main module in the child, for the sake of classes pickled by name.
    We send these by value, so the import has no use, and scripts need no
    `if __name__ == "__main__":` guard.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextlib.contextmanager
def starting() -> Iterator[None]:
    """Lets processes that start inside the block find this library, and compute with one thread.

    The variables stand for numeric libraries of any kind and for `runtime.import_path`; the worker
    takes back the latter.
    """
    with _LOCK:
        path_before, path = sys.path, path_for_starting(sys.path)
        variables = {**dict.fromkeys(_ONE_THREAD_VARIABLES, "1"), **variables_for_starting(path)}
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        if path != path_before:
            sys.path = path
        # Ctrl-C and the end of a terminal reach all its processes. A new one takes over what is
        # blocked here, so that it does not die of it before it can ignore it (`worker_main`); the
        # fork server, with which its workers would end, never unblocks SIGHUP.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, FOR_MAIN_PROCESS)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            sys.path = path_before
            set_variables(before)


def _keep_forkserver_private() -> None:
    """Puts the fork server's socket into a folder that only this user can enter.

    Python 3.10.0 to 3.10.8 and 3.11.0 give it a name without a file instead, by which all users of
    the machine can let it run code (CVE-2022-42919). Later ones do not look at this any more.
    """
    if hasattr(util, _ABSTRACT_SOCKETS):
        setattr(util, _ABSTRACT_SOCKETS, False)


_SLOW_IMPORTS: Final = frozenset({"torch"})
"""Modules for which another fork server pays: seconds, in each worker that imports them itself."""


class _Server:
    """What the fork server was told to import; global because a process has one."""

    pid: ClassVar[int | None] = None
    modules: ClassVar[frozenset[str]] = frozenset()
    modules_of_next: ClassVar[frozenset[str]] = frozenset()


def _note_server() -> None:
    """Called when one may have been started."""
    pid = fork_server_pid()
    if pid != _Server.pid:
        _Server.pid, _Server.modules = pid, _Server.modules_of_next


def preload(modules: Sequence[str], start_method: str) -> None:
    """Tells the fork server which modules to import once, for all workers to come.

    One that runs already and has no process to look after is ended if it lacks one that takes
    seconds to import; the next worker starts another. No effect with spawn.
    """
    if start_method != "forkserver":
        return
    names = list(modules) if may_preload() else []
    with signals_deferred(), _LOCK:
        multiprocessing.get_context("forkserver").set_forkserver_preload(names)
        _Server.modules_of_next = frozenset(names)
        lacks_one = not _SLOW_IMPORTS.intersection(names) <= _Server.modules
        is_known = _Server.pid is not None and _Server.pid == fork_server_pid()
        if lacks_one and is_known and not multiprocessing.active_children():
            _end_idle_fork_server()


def _end_idle_fork_server() -> None:
    pid = fork_server_pid()
    if pid is None or not hasattr(os, "waitid"):  # macOS, before Python 3.13
        return
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # its state is left to multiprocessing


@contextlib.contextmanager
def _allowed_to_have_children() -> Iterator[None]:
    """Lets a daemonic process of multiprocessing start processes inside the block.

    multiprocessing forbids it, because a daemon is terminated without an end of its own, and would
    leave its children behind. Ours end with their parent, however that ends.
    """
    this_process = multiprocessing.current_process()
    if not this_process.daemon:
        yield
        return
    this_process.daemon = False
    try:
        yield
    finally:
        this_process.daemon = True


@contextlib.contextmanager
def _start_method_known_to_all() -> Iterator[None]:
    """Hides a default start method that a new process does not know, such as that of loky.

    A new process takes over the default of its parent, whichever way it was started itself.
    """
    before = multiprocessing.get_start_method(allow_none=True)
    if before in (None, *multiprocessing.get_all_start_methods()):
        yield
        return
    multiprocessing.set_start_method("spawn", force=True)
    try:
        yield
    finally:
        multiprocessing.set_start_method(before, force=True)


OnStart = Callable[[BaseProcess, Sequence[Any]], None]
"""Is given a process right after its start, and the arguments that it was sent."""


class _StartedHere(BaseProcess):
    """A process that starts as described in this module.

    The exit code is collected by one thread at a time: multiprocessing looks for those of all its
    processes whenever it starts another one, on whatever thread. Who loses that race against the
    thread that waits for a process notes "the fork server is gone" (255) over the true code, or,
    with spawn, sees none.
    """

    on_start: Callable[[], None]
    starter: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        # What the process is sent of itself.
        return {name: value for name, value in vars(self).items() if name != "on_start"}

    def start(self) -> None:
        with (
            starting(),
            _without_main_module(),
            _start_method_known_to_all(),
            _allowed_to_have_children(),
            ForkServerWatch(),
        ):
            try:
                super().start()
            except (ChildProcessError, FileNotFoundError):
                # The user's os.wait() was told of its end, or its socket was cleared away.
                forget_fork_server()
                folder = Path(util.get_temp_dir())
                folder.mkdir(0o700, parents=True, exist_ok=True)
                super().start()
            self.starter = os.getpid()
            _note_server()
        self.on_start()
        del self.on_start  # with it the queues of an executor, and the names of their semaphores

    def join(self, timeout: float | None = None) -> None:
        if self.starter != os.getpid():
            return  # in a forked copy of its parent, which multiprocessing lets wait at its end
        if timeout is None:
            # An executor waits here, and from Python 3.12 on keeps everybody waiting who has a call
            # for it. A stopped fork server does not tell of the end.
            while not wait([self.sentinel], STOPPED_LIMIT_S):
                end_stopped_fork_server()
        elif not wait([self.sentinel], timeout):
            return
        with _LOCK:
            super().join(timeout)

    def is_alive(self) -> bool:
        with _LOCK:
            return super().is_alive()


class _ForkServerProcess(_StartedHere, ForkServerProcess):
    pass


class _SpawnProcess(_StartedHere, SpawnProcess):
    pass


_KINDS: Final = {"forkserver": _ForkServerProcess, "spawn": _SpawnProcess}


def make_context(start_method: str, on_start: OnStart) -> BaseContext:
    """A multiprocessing context whose processes start as described in this module.

    Args:
        start_method: "forkserver" or "spawn".
        on_start: is given each process' handle right after its start: the handle is how its owner
            kills the process and learns its exit code, without process ids that may be used again.
    """
    _keep_forkserver_private()
    context: Any = type(multiprocessing.get_context(start_method))()

    def make_process(*, args: Sequence[Any] = (), **settings: Any) -> BaseProcess:
        with _LOCK, _allowed_to_have_children():  # a process is a daemon if its maker is one
            process: _StartedHere = _KINDS[start_method](args=tuple(args), **settings)
        process.on_start = functools.partial(on_start, process, args)
        return process

    context.Process = make_process
    return context  # type: ignore[no-any-return]


if hasattr(os, "register_at_fork"):
    # A fork in the middle of `starting` would copy its hidden main module and changed path, and no
    # thread to put them back.
    os.register_at_fork(
        before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release
    )


# ---- process groups
#
# What the code in a worker starts ends with the worker, however that ends. Simulators are
# processes that an env starts. A worker that is killed cannot end them, and the kernel does not:
# so each worker leads a process group of its own, which all that it starts belongs to.
#
#     worker              `lead_group()`, before any code of the user's
#     main process        `guard_group` when a worker has started, `end_group` when it is gone
#     reaper              a small process beside the main process. It kills the groups whose leader
#                         has died, and all of them when the main process has, however that ended
#
# A process that is meant to outlive its worker leaves the group: `start_new_session=True` in
# `subprocess.Popen`. Nothing here knows of workers; a group is the process id of its leader.

# Nothing but Python's own, imported from nowhere else: 10 ms, beside other work. It ends
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


class _Reaper:
    """The reaper of this process, and what it knows; global because it goes with the process."""

    lock = threading.Lock()
    pid: int | None = None
    pipe: int | None = None
    groups: Final[set[int]] = set()
    folder = ""
    is_folder_ours = False
    is_forked_copy = False
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
    _write_line(f"+{group}")


def end_group(group: int, *, is_leader_known: bool) -> None:
    """Kills all processes of a group at once; nothing happens if there are none.

    Args:
        group: the process id of its leader.
        is_leader_known: the leader lives, or has died just now. Otherwise another process may have
            got its number since, and only the reaper knows whether the group is ended already.
    """
    if group not in _Reaper.groups:
        return
    if is_leader_known:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    _write_line(
        f"-{group}"
    )  # before it is forgotten: a reaper that is started just now must know it
    _Reaper.groups.discard(group)


def keep_temporary_directory() -> None:
    """Makes multiprocessing's folder for sockets now, and sees to it that it does not stay behind.

    Workers take over where it is; made later, each makes one of its own, which stays when the
    worker is killed.
    """
    if _Reaper.folder:
        return
    _Reaper.folder = util.get_temp_dir()
    # Else it may be that of the parent, which made it and has told where it is.
    _Reaper.is_folder_ours = not _Reaper.is_forked_copy and multiprocessing.parent_process() is None
    if _Reaper.is_folder_ours and _Reaper.pipe is not None:
        _write_line(f"/{_Reaper.folder}")


def reaper_pid() -> int | None:
    """The process id of the reaper; None if there is none yet."""
    return _Reaper.pid


def _write_line(line: str) -> None:
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


def _keep_groups_after_fork() -> None:
    """In a forked copy: the reaper is the original's, and must see the original's end."""
    _Reaper.lock = threading.Lock()
    pipe, _Reaper.pipe, _Reaper.pid = _Reaper.pipe, None, None
    _Reaper.groups.clear()
    _Reaper.folder, _Reaper.is_folder_ours = "", False
    _Reaper.is_forked_copy = True
    if pipe is not None:
        with contextlib.suppress(OSError):
            os.close(pipe)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_keep_groups_after_fork)

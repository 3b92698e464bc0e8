"""Where actors are found: a private folder with their sockets and names.

    registry = ActorRegistry.make()     a folder that only this user can enter
    with registry.locked():             one process at a time gives names away
        registry.write(address, name)   from now on `registry.find(…)` answers
    registry.note_end(address.actor_id, Ending(…))     why it is gone, for everyone who asks

A living actor listens on a socket in the folder. The kernel refuses connections as soon as its
process has ended, however it ended; so no list of the living has to be kept, and no process id
that may be used again is trusted. This file starts no process and sends no call.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import pickle
import re
import secrets
import socket
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from multiprocessing import util
from pathlib import Path
from typing import IO, ClassVar, Final

from trainer.errors import ActorError, ActorNameError
from trainer.runtime.messages import Failure
from trainer.runtime.private_folder import (
    NotPrivateError,
    PrivateFolder,
    check_peer,
    is_draft,
    is_own_folder,
)
from trainer_toolkit.files import lock_file

# ---- actor address
#
# What is known of one actor: how to reach it, whether it lives, why it is gone.


@dataclass(frozen=True)
class ActorAddress:
    """All that is needed to reach an actor.

    Attributes:
        directory: its registry.
        actor_id: differs between all actors of a registry, the dead ones included.
        class_name: the name of its class, for messages.
        name: what it was called; None if it has no name.
        namespace: where the name holds.
        methods: what can be called.
        pid: its process.
        is_detached: it outlives the process that made it.
        is_checkpointable: its state belongs into checkpoints.
    """

    directory: str
    actor_id: str
    class_name: str
    name: str | None
    namespace: str
    methods: tuple[str, ...]
    pid: int
    is_detached: bool
    is_checkpointable: bool

    @property
    def socket_path(self) -> str:
        """Where it listens."""
        return os.path.join(self.directory, self.actor_id)  # noqa: PTH118 - sockets want text

    def describe(self) -> str:
        """What messages call it."""
        return (
            f"actor {self.name!r} ({self.class_name})" if self.name else f"actor {self.class_name}"
        )

    def connect(self, joined: socket.socket) -> None:
        """Connects a socket to the actor; an OSError unless the process there is of this user."""
        joined.connect(self.socket_path)
        check_peer(joined)

    def is_alive(self) -> bool:
        """Whether its process exists; it may be busy."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            try:
                self.connect(probe)
            except BlockingIOError:
                return True  # so many are waiting that no more may queue
            except OSError:
                return False
        return True

    def wait_for_end(self, timeout_s: float) -> bool:
        """Sleeps until its process has ended; False if it has not within the time."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                self.connect(probe)
                probe.settimeout(timeout_s)
                while probe.recv(4096):
                    pass  # we only want to see the connection end
            except TimeoutError:
                return False
            except OSError:
                return True
        return True


@dataclass(frozen=True)
class Ending:
    """Why an actor is gone.

    Attributes:
        exit_code: as the operating system gave it; None if it is not known.
        was_killed: by `kill()`, so that no cause needs to be looked for.
        failure: what its constructor raised.
    """

    exit_code: int | None = None
    was_killed: bool = False
    failure: Failure | None = None


# ---- actor registry

REGISTRY_VARIABLE: Final = "LOCAL_TRAINER_ACTORS"
"""Environment variable with the folder in which this process and its children meet."""

NAMESPACE_VARIABLE: Final = "LOCAL_TRAINER_ACTORS_NAMESPACE"
"""Environment variable with the namespace of this process: that of the process that made it."""

OUTER_VARIABLE: Final = "LOCAL_TRAINER_OUTER_ACTORS"
"""Environment variable, in a trial: the folder with the actors of the tuner that runs it."""

ELSEWHERE_VARIABLE: Final = "LOCAL_TRAINER_ACTORS_ELSEWHERE"
"""Environment variable: the machine with the actors, in a process on another one."""

DETACHED_REGISTRY_VARIABLE: Final = "LOCAL_TRAINER_DETACHED_ACTORS"
"""Environment variable with another folder for detached actors than the user's own."""

_LOGGER: Final = logging.getLogger(__name__)
_LONGEST_SOCKET_PATH: Final = 100  # of 104 bytes on macOS, 108 on Linux
_LOCK_FILE: Final = "lock"
_OWNER_FILE: Final = "owner"
_ENDINGS_FILE: Final = "endings"
_MOST_ENDINGS_BYTES: Final = 2**20
_ID: Final = re.compile(r"[0-9a-f]{12}")
_STALE_S: Final = 3600.0
_LOG_KEPT_S: Final = 7 * 24 * 3600.0


@dataclass(frozen=True)
class ActorRegistry:
    """A folder in which actors are found; only its user can enter it.

    Attributes:
        directory: the folder.
        namespace: where names hold that are given or asked for without one.
        outer: the folder where names are looked for that are not here; empty for none.
    """

    directory: str
    namespace: str = ""
    outer: str = ""

    @classmethod
    def make(cls) -> ActorRegistry:
        """A new registry, in the user's private run directory or the folder for temporary files.

        Where neither can hold a private folder (a file system without modes), `ensure` says so as
        soon as there is to be an actor.
        """
        *preferred, last = _run_folders()
        for place in preferred:
            with contextlib.suppress(OSError):
                return cls(tempfile.mkdtemp(prefix=_prefix(), dir=place))
        return cls(tempfile.mkdtemp(prefix=_prefix(), dir=last))

    @classmethod
    def for_detached(cls) -> ActorRegistry:
        """The user's registry for new actors that belong to no process; makes it.

        Raises:
            ActorError: none of the folders where it may be can be used; says why.
        """
        problems = []
        for directory in _detached_folders():
            registry = cls(directory)
            try:
                registry.ensure()
                registry._check_sockets()
            except (ActorError, OSError) as error:
                problems.append(str(error))
            else:
                return registry
        raise ActorError(
            f"Detached actors have nowhere to meet: {' '.join(problems)} Set "
            f"{DETACHED_REGISTRY_VARIABLE} to a folder that only you can enter, of a short path."
        )

    @classmethod
    def all_detached(cls) -> list[ActorRegistry]:
        """All registries in which this user's detached actors may be, those that are there."""
        found = map(cls, _detached_folders())
        return [registry for registry in found if registry._is_usable()]

    @property
    def _folder(self) -> PrivateFolder:
        return PrivateFolder(self.directory)

    def _is_usable(self) -> bool:
        try:
            self._folder.check()
        except FileNotFoundError:
            return False
        except NotPrivateError as error:
            _log_once(error)
            return False
        return True

    def ensure(self) -> None:
        """Makes the folder if it is not there.

        Raises:
            ActorError: it belongs to another user, or its path is too long for sockets.
            OSError: it cannot be made.
        """
        if len(os.fsencode(self.directory)) + 14 > _LONGEST_SOCKET_PATH:
            raise ActorError(
                f"Actors cannot meet in {self.directory!r}: the path is too long for a socket in "
                f"it ({_LONGEST_SOCKET_PATH} bytes). Set TMPDIR to a folder with a shorter path."
            )
        try:
            self._folder.make()
        except NotPrivateError as error:
            raise ActorError(
                f"Actors cannot meet in {self.directory!r}: {_text(error)}. Remove it, or set "
                f"{DETACHED_REGISTRY_VARIABLE} to a folder of your own."
            ) from error

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Inside the block no other process gives names away here."""
        with self._folder.locked(_LOCK_FILE):
            yield

    def _check_sockets(self) -> None:
        """Raises unless the file system can hold sockets; some of other machines cannot."""
        actor_id, listener = self.new_listener()
        listener.close()
        self._folder.unlink(actor_id)

    def new_listener(self) -> tuple[str, socket.socket]:
        """An id not used here before, and a socket that already lets callers queue."""
        actor_id = secrets.token_hex(6)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(os.path.join(self.directory, actor_id))  # noqa: PTH118
            listener.listen(128)
        except OSError:
            listener.close()
            raise
        return actor_id, listener

    def log_file(self, actor_id: str) -> Path:
        """The file for what an actor prints."""
        return self._folder.file(_log_file(actor_id))

    def find(self, name: str, namespace: str) -> ActorAddress | None:
        """The living actor of that name; None if there is none."""
        address = self._record(_name_file(name, namespace))
        return address if address is not None and address.is_alive() else None

    def write(self, address: ActorAddress, name: str) -> None:
        """Gives the actor its name."""
        text = json.dumps(asdict(address))
        self._folder.write(_name_file(name, address.namespace), text.encode("utf-8"))

    def names(self) -> list[tuple[str, str]]:
        """The living actors that have one: name and namespace."""
        found = []
        for file in self._files():
            address = self._record(file) if file.endswith(".name") else None
            if address is not None and address.name is not None and address.is_alive():
                found.append((address.name, address.namespace))
        return sorted(found)

    def _files(self) -> list[str]:
        try:
            return self._folder.names()
        except FileNotFoundError:
            return []

    def _record(self, file: str) -> ActorAddress | None:
        """What a file says of the actor that got a name; None if it says nothing to be used."""
        try:
            record = json.loads(self._folder.file(file).read_text(encoding="utf-8"))
            return ActorAddress(**record | {"methods": tuple(record["methods"])})
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError) as error:  # the machine went down then
            _log_once(f"{self.directory}/{file} is damaged ({type(error).__name__}: {error})")
            return None

    def forget(self, address: ActorAddress) -> None:
        """Takes the traces of a dead actor away, except for why it is gone."""
        with contextlib.suppress(FileNotFoundError), self.locked():
            self._forget(address.actor_id)
            if address.name is not None:
                file = _name_file(address.name, address.namespace)
                found = self._record(file)
                if found is not None and found.actor_id == address.actor_id:
                    self._folder.unlink(file)

    def _forget(self, actor_id: str) -> None:
        names = [actor_id, _watch_file(actor_id)]
        ending = self._endings().get(actor_id)
        if (ending is not None and ending.was_killed) or self._is_empty(_log_file(actor_id)):
            names.append(_log_file(actor_id))  # else it may say why the actor died
        self._folder.unlink(*names)

    def _is_empty(self, file: str) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return self._folder.file(file).stat().st_size == 0
        return False

    def sweep(self, *, living: Collection[str] = ()) -> None:
        """Takes away what actors left that were not watched when they died; only while locked.

        Args:
            living: ids of actors that are known to be watched.
        """
        files = self._folder.names()
        sockets = {name for name in files if _ID.fullmatch(name)}
        dead = {name for name in sockets.difference(living) if self._has_died(name)}
        for actor_id in dead:
            self._forget(actor_id)
        sockets -= dead
        names = [name for name in files if name.endswith(".name")]
        # Each has to be read: only if there is one too many.
        for name in names if dead or len(names) > len(sockets) else []:
            record = self._record(name)
            if record is not None and record.actor_id not in sockets:
                self._folder.unlink(name)
        for name in files:
            actor_id, _, kind = name.partition(".")
            is_unused = kind in ("watched", "log") and actor_id not in sockets
            kept_s = _LOG_KEPT_S if kind == "log" else 0.0
            if is_draft(name):
                is_unused, kept_s = True, _STALE_S
            if is_unused and self._is_older(name, kept_s):
                self._folder.unlink(name)

    def _has_died(self, actor_id: str) -> bool:
        try:
            with self._folder.locked(_watch_file(actor_id), wait=False, shared=True):
                pass  # its watcher is gone, or has done its work
        except BlockingIOError:
            return False
        except FileNotFoundError:
            pass
        return not _address_of(self.directory, actor_id).is_alive()

    def _is_older(self, file: str, seconds: float) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return time.time() - self._folder.file(file).stat().st_mtime > seconds
        return False

    def note_end(self, actor_id: str, ending: Ending) -> None:
        """Says why an actor is gone; the first to say so is believed."""
        try:
            with self.locked():
                self._add_ending(actor_id, ending)
        except FileNotFoundError:
            return  # the folder: its owner has ended, and no process asks any more
        except OSError as error:
            _LOGGER.warning(
                "Why the actor %s ended cannot be noted in %s (%s); who asks will not be told. "
                "Check that there is room.",
                actor_id,
                self.directory,
                error,
            )

    def _add_ending(self, actor_id: str, ending: Ending) -> None:
        endings = self._endings()
        if actor_id in endings:
            return
        endings[actor_id] = ending
        packed = {known: pickle.dumps(value) for known, value in endings.items()}
        if len(packed[actor_id]) > _MOST_ENDINGS_BYTES and ending.failure is not None:
            # Its text is enough, if the error itself is that large.
            failure = replace(ending.failure, packed_error=None)
            packed[actor_id] = pickle.dumps(replace(ending, failure=failure))
        num_bytes = sum(map(len, packed.values()))
        for known in list(packed)[:-1]:
            if num_bytes <= _MOST_ENDINGS_BYTES:
                break
            num_bytes -= len(packed.pop(known))
        self._folder.write(_ENDINGS_FILE, pickle.dumps(packed))

    def watch(self, actor_id: str) -> IO[bytes]:
        """To be closed by who will note the end of an actor, once that is done."""
        file = self._folder.file(_watch_file(actor_id)).open("ab", buffering=0)
        lock_file(file.fileno(), wait=True)
        return file

    def ending_of(self, actor_id: str) -> Ending | None:
        """Why an actor is gone; None if it is not known. Sleeps while its watcher finds out."""
        try:
            with self._folder.locked(_watch_file(actor_id), shared=True):
                pass  # the kernel opens it, too, if the watcher dies
        except FileNotFoundError:
            pass
        return self._endings().get(actor_id)

    def known_ending_of(self, actor_id: str) -> Ending | None:
        """Why an actor is gone, as far as it was noted; does not wait."""
        return self._endings().get(actor_id)

    def _endings(self) -> dict[str, Ending]:
        """How the latest actors ended, by id, in the order in which they did."""
        try:
            packed = pickle.loads(self._folder.file(_ENDINGS_FILE).read_bytes())  # noqa: S301
        except (FileNotFoundError, EOFError):  # none yet, or the machine went down
            return {}
        return {actor_id: pickle.loads(data) for actor_id, data in packed.items()}  # noqa: S301


def _watch_file(actor_id: str) -> str:
    return f"{actor_id}.watched"


def _log_file(actor_id: str) -> str:
    return f"{actor_id}.log"


def _name_file(name: str, namespace: str) -> str:
    digest = hashlib.sha256(f"{namespace}\0{name}".encode()).hexdigest()[:32]
    return f"{digest}.name"


def _address_of(directory: str, actor_id: str) -> ActorAddress:
    return ActorAddress(directory, actor_id, "", None, "", (), 0, True, False)


def _text(error: OSError) -> str:
    return str(error.args[0]) if error.args else str(error)


def _log_once(problem: OSError | str) -> None:
    text = problem if isinstance(problem, str) else _text(problem)
    if text not in _Process.logged:
        _Process.logged.add(text)
        _LOGGER.warning("%s. It is ignored when actors are looked for; remove it.", text)


def _run_folders() -> list[str]:
    """Where registries with an owner are made, the preferred place first.

    Their names cannot be foreseen, so the folder for temporary files is safe, too.
    """
    return [*_runtime_folder(), tempfile.gettempdir()]


def _runtime_folder() -> Sequence[str]:
    """The folder that the login gives to this user alone, if there is one."""
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    if not os.path.isabs(given) or len(os.fsencode(given)) > _LONGEST_SOCKET_PATH // 2:  # noqa: PTH117
        return ()
    try:
        PrivateFolder(given).check()
    except OSError:
        return ()  # of the user who logged in, before `su` or `sudo`; or gone
    return (given,)


def _detached_folders() -> list[str]:
    """Where the user's detached actors are, the preferred one first."""
    given = os.environ.get(DETACHED_REGISTRY_VARIABLE)
    if given:
        return [given]
    folders = [f"{folder}/local-trainer-detached" for folder in _runtime_folder()]
    home, cache = os.path.expanduser("~"), os.environ.get("XDG_CACHE_HOME", "")  # noqa: PTH111
    if not (os.path.isabs(cache) and is_own_folder(cache)):  # noqa: PTH117
        # Of another user after `sudo`, which keeps the variable HOME.
        is_own = os.path.isabs(home) and is_own_folder(home)  # noqa: PTH117
        cache = f"{home}/.cache" if is_own else ""
    if cache:
        # Several machines may share a home: sockets of another one lead nowhere.
        machine = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]
        folders.append(f"{cache}/local-trainer/actors-{machine}")
    return [*folders, f"{tempfile.gettempdir()}/local-trainer-detached-{os.geteuid()}"]


class OwnedRegistry:
    """A registry that goes with its owner: at once if that closes it, else with the next owner.

    The owner holds a lock that the kernel takes away with the process.
    """

    def __init__(self) -> None:
        """Makes a new registry, and removes those of owners that were killed."""
        sweep()
        self.registry = ActorRegistry.make()
        # It gets its name when it is locked: no process can take it for one without an owner.
        draft = Path(self.registry.directory) / f"{_OWNER_FILE}.draft"
        self._lock = draft.open("w")
        draft.chmod(0o600)
        lock_file(self._lock.fileno(), wait=True)
        draft.rename(draft.with_name(_OWNER_FILE))
        self._pid = os.getpid()

    def close(self) -> None:
        """Removes the folder; idempotent. Does nothing in a forked copy of the owner."""
        if os.getpid() != self._pid:
            return
        folder = Path(self.registry.directory)
        _remove(PrivateFolder(str(folder)))
        with contextlib.suppress(OSError):  # where no folder is private, this is all there is
            (folder / _OWNER_FILE).unlink(missing_ok=True)
            folder.rmdir()
        self._lock.close()


def sweep() -> None:
    """Removes the registries whose owners are gone; those of other users are not touched."""
    for place in _run_folders():
        try:
            names = [path.name for path in Path(place).iterdir()]
        except OSError:
            continue  # making one there says what is wrong
        for name in names:
            if name.startswith(_prefix()):
                _sweep_registry(PrivateFolder(f"{place}/{name}"))


def _sweep_registry(folder: PrivateFolder) -> None:
    try:
        folder.check()
        if _OWNER_FILE in folder.names():
            with folder.locked(_OWNER_FILE, wait=False):
                _remove(folder)
        elif time.time() - Path(folder.path).lstat().st_mtime > _STALE_S:
            _remove(folder)  # its owner was killed while it made it
    except OSError:
        return  # it has an owner, is being made or removed now, or is not ours


def _remove(folder: PrivateFolder) -> None:
    with contextlib.suppress(OSError):  # it is gone, or is not ours any more
        folder.remove()


def _prefix() -> str:
    return f"local-trainer-{os.geteuid()}-"


class _Process:
    """What this process knows of registries; global because a process has one."""

    owned: OwnedRegistry | None = None
    is_initialized = False
    namespace = ""
    logged: ClassVar[set[str]] = set()


def registry_of_this_process() -> ActorRegistry:
    """Where this process finds actors: where its parent told it to look, else one of its own.

    One of its own lasts until the interpreter exits.

    Raises:
        ActorNameError: this process is on another machine than the one with the actors.
    """
    refuse_elsewhere()
    given, outer = os.environ.get(REGISTRY_VARIABLE), os.environ.get(OUTER_VARIABLE, "")
    namespace = _Process.namespace or os.environ.get(NAMESPACE_VARIABLE, "")
    if given:
        return ActorRegistry(given, namespace, outer)
    if _Process.owned is None or not Path(_Process.owned.registry.directory).is_dir():
        _Process.owned = OwnedRegistry()
        # After actors were ended (`handles`), which are known by their sockets in the folder.
        util.Finalize(None, _Process.owned.close, exitpriority=90)
    return replace(_Process.owned.registry, namespace=namespace, outer=outer)


def registries_to_search() -> list[ActorRegistry]:
    """Where this process looks for names, in this order: its own, the tuner's, detached ones."""
    own = registry_of_this_process()
    outer = [ActorRegistry(own.outer)] if own.outer else []
    return [own, *outer, *ActorRegistry.all_detached()]


def registry_to_inherit() -> Callable[[], None]:
    """What a new worker calls first, so that it finds the same actors; see `WorkerPool`."""
    return partial(join_registry, registry_of_this_process(), machine=socket.gethostname())


def join_registry(registry: ActorRegistry, machine: str = "") -> None:
    """In a process of ours: where its parent finds actors, there it shall look, too.

    Args:
        registry: the parent's.
        machine: the host that it is on; empty for this one. On any other, actors are refused.
    """
    if machine and machine != socket.gethostname():
        os.environ[ELSEWHERE_VARIABLE] = machine
        return
    os.environ[REGISTRY_VARIABLE] = registry.directory
    os.environ[NAMESPACE_VARIABLE] = registry.namespace
    os.environ[OUTER_VARIABLE] = registry.outer


def outer_registry_to_inherit() -> Callable[[], None]:
    """What the process of a trial calls first: it finds these actors, and makes its own apart."""
    return partial(_join_registry_of_tuner, registry_of_this_process(), socket.gethostname())


def _join_registry_of_tuner(registry: ActorRegistry, machine: str) -> None:
    if machine == socket.gethostname():
        os.environ[OUTER_VARIABLE] = registry.directory
        os.environ[NAMESPACE_VARIABLE] = registry.namespace


def refuse_elsewhere() -> None:
    """Raises an ActorNameError unless this process is on the machine with the actors."""
    machine = os.environ.get(ELSEWHERE_VARIABLE)
    if machine:
        raise ActorNameError(
            f"Actors are processes of the machine {machine}, where the main process runs; this "
            f"process runs on {socket.gethostname()}, and their names and handles do not reach it "
            '(engine="ray"). Use them in the main process and in callbacks that run there; send '
            "what runners need with foreach_env_runner or env_config; or keep runners on that "
            "machine, with a resource that only it has (custom_resources_per_env_runner)."
        )


def initialize(namespace: str | None = None) -> None:
    """Prepares this process for actors; may be done again.

    Args:
        namespace: where names hold that are given or asked for without one.

    Raises:
        ActorError: there is another namespace already.
    """
    now = registry_of_this_process().namespace
    if _Process.is_initialized and namespace is not None and namespace != now:
        raise ActorError(
            f"This process uses the namespace {now!r} already, and actors may have names in it, so "
            f"it cannot change to {namespace!r}. Call `actors.init(namespace=…)` before everything "
            "else, or `actors.shutdown()` before it."
        )
    _Process.is_initialized = True
    if namespace is not None:
        _Process.namespace = namespace
    registry_of_this_process().ensure()


def is_initialized() -> bool:
    """Whether this process was prepared, or is one of ours, which always are."""
    return _Process.is_initialized or REGISTRY_VARIABLE in os.environ


def forget_initialization() -> None:
    """As if `initialize` had not been called; the registry stays, for those who know it."""
    _Process.is_initialized = False
    _Process.namespace = ""

"""Where actors are found: a private folder with their sockets and names, and a key that opens them.

    registry = ActorRegistry.make()     a folder that only this user can enter
    with registry.locked():             one process at a time gives names away
        registry.write(address, name)   from now on `registry.find(…)` answers
    registry.note_end(address.actor_id, Ending(…))     why it is gone, for everyone who asks

A living actor listens on a socket in the folder. The kernel refuses connections as soon as its
process has ended, however it ended; so nobody has to keep a list of the living, and no process id
that may be used again is trusted. This file starts no process and sends no call.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import json
import os
import pickle
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Final

from trainer.errors import ActorError
from trainer.runtime.actor_address import ActorAddress, Ending

REGISTRY_VARIABLE: Final = "LOCAL_TRAINER_ACTORS"
"""Environment variable with the folder in which this process and its children meet."""

NAMESPACE_VARIABLE: Final = "LOCAL_TRAINER_ACTORS_NAMESPACE"
"""Environment variable with the namespace of this process: that of the process that made it."""

DETACHED_REGISTRY_VARIABLE: Final = "LOCAL_TRAINER_DETACHED_ACTORS"
"""Environment variable with another folder for detached actors than the user's own."""

_LONGEST_SOCKET_PATH: Final = 100  # of 104 bytes on macOS, 108 on Linux
_KEY_BYTES: Final = 32
_OWNER_FILE: Final = "owner"


@dataclass(frozen=True)
class ActorRegistry:
    """A folder in which actors are found; only its user can enter it.

    Attributes:
        directory: the folder.
        namespace: where names hold that are given or asked for without one.
    """

    directory: str
    namespace: str = ""

    @classmethod
    def make(cls) -> ActorRegistry:
        """A new registry, in the folder for temporary files."""
        registry = cls(tempfile.mkdtemp(prefix=_prefix()))
        registry._write_key()
        return registry

    @classmethod
    def for_detached(cls) -> ActorRegistry:
        """The user's registry for actors that belong to no process."""
        default = Path(tempfile.gettempdir()) / f"local-trainer-detached-{os.getuid()}"
        return cls(os.environ.get(DETACHED_REGISTRY_VARIABLE) or str(default))

    def ensure(self) -> None:
        """Makes the folder if it is not there.

        Raises:
            ActorError: it belongs to somebody else, or its path is too long for sockets.
        """
        folder = Path(self.directory)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat(follow_symlinks=False)
        if found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise ActorError(
                f"Actors cannot meet in {self.directory!r}: the folder can be entered by other "
                f"users. Remove it, or set {DETACHED_REGISTRY_VARIABLE} to a folder of your own."
            )
        if len(os.fsencode(self.directory)) + 14 > _LONGEST_SOCKET_PATH:
            raise ActorError(
                f"Actors cannot meet in {self.directory!r}: the path is too long for a socket in "
                f"it ({_LONGEST_SOCKET_PATH} bytes). Set TMPDIR to a folder with a shorter path."
            )
        if not (folder / "key").exists():
            self._write_key()

    def _write_key(self) -> None:
        draft = Path(self.directory) / f"key.{secrets.token_hex(6)}"
        draft.touch(mode=0o600)
        draft.write_bytes(secrets.token_bytes(_KEY_BYTES))
        # Two processes may come at once: the first key stays.
        with contextlib.suppress(FileExistsError):
            os.link(draft, Path(self.directory) / "key")
        draft.unlink()

    def key(self) -> bytes:
        """What both sides of a connection must know."""
        return (Path(self.directory) / "key").read_bytes()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Inside the block no other process gives names away here."""
        with (Path(self.directory) / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def new_listener(self) -> tuple[str, socket.socket]:
        """An id nobody had here, and a socket that already lets callers queue."""
        actor_id = secrets.token_hex(6)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(os.path.join(self.directory, actor_id))  # noqa: PTH118
        listener.listen(128)
        return actor_id, listener

    def find(self, name: str, namespace: str) -> ActorAddress | None:
        """The living actor of that name; None if there is none."""
        try:
            record = json.loads(self._name_file(name, namespace).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        address = ActorAddress(**{**record, "methods": tuple(record["methods"])})
        return address if address.is_alive() else None

    def write(self, address: ActorAddress, name: str) -> None:
        """Gives the actor its name."""
        draft = Path(self.directory) / f"{address.actor_id}.draft"
        draft.write_text(json.dumps(asdict(address)), encoding="utf-8")
        draft.replace(self._name_file(name, address.namespace))

    def names(self) -> list[tuple[str, str]]:
        """The living actors that have one: name and namespace."""
        found = []
        for file in Path(self.directory).glob("*.name"):
            with contextlib.suppress(FileNotFoundError):
                record = json.loads(file.read_text(encoding="utf-8"))
                found.append((record["name"], record["namespace"]))
        return sorted(place for place in found if self.find(*place))

    def forget(self, address: ActorAddress) -> None:
        """Takes the traces of a dead actor away, except for why it is gone."""
        if not Path(self.directory).is_dir():
            return
        with self.locked():
            Path(address.socket_path).unlink(missing_ok=True)
            self._watch_file(address.actor_id).unlink(missing_ok=True)
            if address.name is None:
                return
            file = self._name_file(address.name, address.namespace)
            with contextlib.suppress(FileNotFoundError):
                if json.loads(file.read_text("utf-8"))["actor_id"] == address.actor_id:
                    file.unlink()

    def note_end(self, actor_id: str, ending: Ending) -> None:
        """Says why an actor is gone; the first to say so is believed."""
        folder = Path(self.directory)
        draft = folder / f"{actor_id}.{secrets.token_hex(4)}"
        # The folder is gone if its owner has ended: then nobody asks any more.
        with contextlib.suppress(FileNotFoundError):
            draft.write_bytes(pickle.dumps(ending))
            with contextlib.suppress(FileExistsError):
                os.link(draft, folder / f"{actor_id}.end")
            draft.unlink()

    def watch(self, actor_id: str) -> IO[str]:
        """To be closed by who will note the end of an actor, once that is done."""
        file = self._watch_file(actor_id).open("w")
        fcntl.flock(file, fcntl.LOCK_EX)
        return file

    def ending_of(self, actor_id: str) -> Ending | None:
        """Why an actor is gone; None if nobody knows. Sleeps while its watcher finds out."""
        with contextlib.suppress(FileNotFoundError), self._watch_file(actor_id).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH)  # the kernel opens it, too, if the watcher dies
        try:
            data = (Path(self.directory) / f"{actor_id}.end").read_bytes()
        except FileNotFoundError:
            return None
        ending: Ending = pickle.loads(data)  # noqa: S301 - only this user can write here
        return ending

    def _watch_file(self, actor_id: str) -> Path:
        return Path(self.directory) / f"{actor_id}.watched"

    def _name_file(self, name: str, namespace: str) -> Path:
        digest = hashlib.sha256(f"{namespace}\0{name}".encode()).hexdigest()[:32]
        return Path(self.directory) / f"{digest}.name"


class OwnedRegistry:
    """A registry that goes with its owner: at once if that closes it, else with the next owner.

    The owner holds a lock that the kernel takes away with the process.
    """

    def __init__(self) -> None:
        """Makes a new registry, and removes those of owners that were killed."""
        sweep()
        self.registry = ActorRegistry.make()
        # It gets its name when it is locked: nobody can take it for one without an owner.
        draft = Path(self.registry.directory) / f"{_OWNER_FILE}.draft"
        self._lock = draft.open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        draft.rename(draft.with_name(_OWNER_FILE))
        self._pid = os.getpid()

    def close(self) -> None:
        """Removes the folder; idempotent. Does nothing in a forked copy of the owner."""
        if os.getpid() == self._pid:
            shutil.rmtree(self.registry.directory, ignore_errors=True)
            self._lock.close()


def sweep() -> None:
    """Removes the registries whose owners are gone."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_prefix()}*"):
        try:
            with (folder / _OWNER_FILE).open("r+") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue  # it has an owner, or is being made or removed now


def _prefix() -> str:
    return f"local-trainer-{os.getuid()}-"


class _Process:
    """What this process knows of registries; global because a process has one."""

    owned: OwnedRegistry | None = None
    is_initialized = False
    namespace = ""


def registry_of_this_process() -> ActorRegistry:
    """Where this process finds actors: where its parent told it to look, else one of its own.

    One of its own lasts until the interpreter exits.
    """
    told = os.environ.get(REGISTRY_VARIABLE)
    if told:
        own_namespace = _Process.namespace or os.environ.get(NAMESPACE_VARIABLE, "")
        return ActorRegistry(told, own_namespace)
    if _Process.owned is None or not Path(_Process.owned.registry.directory).is_dir():
        _Process.owned = OwnedRegistry()
        atexit.register(_Process.owned.close)
    return replace(_Process.owned.registry, namespace=_Process.namespace)


def tell_this_process(registry: ActorRegistry) -> None:
    """In a process of ours: where its parent finds actors, there it shall look, too."""
    os.environ[REGISTRY_VARIABLE] = registry.directory
    os.environ[NAMESPACE_VARIABLE] = registry.namespace


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

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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from trainer.errors import ActorError
from trainer.runtime.messages import Failure

REGISTRY_VARIABLE: Final = "LOCAL_TRAINER_ACTORS"
"""Environment variable with the folder in which this process and its children meet."""

DETACHED_REGISTRY_VARIABLE: Final = "LOCAL_TRAINER_DETACHED_ACTORS"
"""Environment variable with another folder for detached actors than the user's own."""

_LONGEST_SOCKET_PATH: Final = 100  # of 104 bytes on macOS, 108 on Linux
_KEY_BYTES: Final = 32
_OWNER_FILE: Final = "owner"


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
    """

    directory: str
    actor_id: str
    class_name: str
    name: str | None
    namespace: str
    methods: tuple[str, ...]
    pid: int
    is_detached: bool

    @property
    def socket_path(self) -> str:
        """Where it listens."""
        return os.path.join(self.directory, self.actor_id)  # noqa: PTH118 - sockets want text

    def describe(self) -> str:
        """What messages call it."""
        return (
            f"actor {self.name!r} ({self.class_name})" if self.name else f"actor {self.class_name}"
        )

    def is_alive(self) -> bool:
        """Whether its process exists; it may be busy."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            try:
                probe.connect(self.socket_path)
            except BlockingIOError:
                return True  # so many are waiting that no more may queue
            except OSError:
                return False
        return True


@dataclass(frozen=True)
class Ending:
    """Why an actor is gone.

    Attributes:
        exit_code: as the operating system gave it; None if it is not known.
        was_killed: by `kill()`, so that nobody needs to look for a cause.
        failure: what its constructor raised.
    """

    exit_code: int | None = None
    was_killed: bool = False
    failure: Failure | None = None


@dataclass(frozen=True)
class ActorRegistry:
    """A folder in which actors are found; only its user can enter it."""

    directory: str

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

    def names(self) -> list[str]:
        """The names of the living actors."""
        found = []
        for file in Path(self.directory).glob("*.name"):
            with contextlib.suppress(FileNotFoundError):
                record = json.loads(file.read_text(encoding="utf-8"))
                found.append((record["name"], record["namespace"]))
        return sorted(name for name, namespace in found if self.find(name, namespace))

    def forget(self, address: ActorAddress) -> None:
        """Takes the traces of a dead actor away, except for why it is gone."""
        if not Path(self.directory).is_dir():
            return
        with self.locked():
            Path(address.socket_path).unlink(missing_ok=True)
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

    def ending_of(self, actor_id: str) -> Ending | None:
        """Why an actor is gone; None if nobody has said so yet."""
        try:
            data = (Path(self.directory) / f"{actor_id}.end").read_bytes()
        except FileNotFoundError:
            return None
        ending: Ending = pickle.loads(data)  # noqa: S301 - only this user can write here
        return ending

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
    """The registry that this process made; global because a process has one."""

    owned: OwnedRegistry | None = None


def registry_of_this_process() -> ActorRegistry:
    """Where this process finds actors: where its parent told it to look, else one of its own.

    One of its own lasts until the interpreter exits.
    """
    told = os.environ.get(REGISTRY_VARIABLE)
    if told:
        return ActorRegistry(told)
    if _Process.owned is None or not Path(_Process.owned.registry.directory).is_dir():
        _Process.owned = OwnedRegistry()
        atexit.register(_Process.owned.close)
    return _Process.owned.registry

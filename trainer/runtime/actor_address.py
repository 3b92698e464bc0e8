"""What is known of one actor: how to reach it, whether it lives, why it is gone."""

from __future__ import annotations

import os
import socket
import struct
import sys
from dataclasses import dataclass
from typing import Final

from trainer.runtime.messages import Failure
from trainer.runtime.private_folder import NotPrivateError, PrivateFolder

_PEER_OF_LINUX: Final = struct.Struct("iII")  # struct ucred: pid, uid, gid
_PEER_OF_MACOS: Final = (0, 1, struct.Struct("II68x"))  # SOL_LOCAL, LOCAL_PEERCRED, struct xucred


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
        """Connects a socket to the actor, if the folder and the process are of this user.

        Raises:
            OSError: nobody is there, or somebody else.
        """
        PrivateFolder(self.directory).check()
        joined.connect(self.socket_path)
        uid = _peer_uid(joined)
        if uid is not None and uid != os.geteuid():
            raise NotPrivateError(f"{self.socket_path} is listened to by the user with id {uid}")

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
                    pass  # it asks for the key; we only want to see the connection end
            except TimeoutError:
                return False
            except OSError:
                return True
        return True


def _peer_uid(joined: socket.socket) -> int | None:
    """The user who listens at the other end; None where the system does not tell."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is not None:  # Linux
        data = joined.getsockopt(socket.SOL_SOCKET, option, _PEER_OF_LINUX.size)
        return int(_PEER_OF_LINUX.unpack(data)[1])
    if sys.platform == "darwin":
        level, option, layout = _PEER_OF_MACOS
        return int(layout.unpack(joined.getsockopt(level, option, layout.size))[1])
    return None


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

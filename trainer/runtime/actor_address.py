"""What is known of one actor: how to reach it, whether it lives, why it is gone."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from trainer.runtime.messages import Failure


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

    def wait_for_end(self, timeout_s: float) -> bool:
        """Sleeps until its process has ended; False if it has not within the time."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(self.socket_path)
                probe.settimeout(timeout_s)
                while probe.recv(4096):
                    pass  # it asks for the key; we only want to see the connection end
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
        was_killed: by `kill()`, so that nobody needs to look for a cause.
        failure: what its constructor raised.
    """

    exit_code: int | None = None
    was_killed: bool = False
    failure: Failure | None = None

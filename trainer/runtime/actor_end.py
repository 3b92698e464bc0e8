"""The errors for calls to an actor that cannot be reached (any more)."""

from __future__ import annotations

from typing import Final

from trainer.errors import ActorDiedError, ActorError
from trainer.runtime.actor_address import ActorAddress, Ending
from trainer.runtime.actor_answer import unpack_failure
from trainer.runtime.actor_registry import ActorRegistry
from trainer.runtime.outcomes import Lost

_ENDING_TIMEOUT_S: Final = 2.0


def lost_connection(address: ActorAddress) -> ActorError:
    """The error for calls through a connection that was closed on this side."""
    return ActorError(f"The connection to the {address.describe()} was ended. Call it again.")


def describe_end(address: ActorAddress) -> ActorError:
    """The error for calls to an actor whose connection has ended: why it is gone."""
    # Its sockets are closed one after the other.
    if not address.wait_for_end(_ENDING_TIMEOUT_S):
        return lost_connection(address)
    registry = ActorRegistry(address.directory)
    ending = registry.ending_of(address.actor_id) or Ending()
    advice = (
        "Its state is lost. Make it again (`options(name=…, get_if_exists=True)` makes it where "
        "there is none), or let it save what must not be lost."
    )
    subject = f"The {address.describe()}, process {address.pid},"
    if ending.failure is not None:
        error = ActorDiedError(
            f"{subject} could not be made: its constructor raised {ending.failure.type_name}: "
            f"{ending.failure.message}"
        )
        error.__cause__ = unpack_failure(ending.failure)
        return error
    if ending.was_killed:
        return ActorDiedError(f"{subject} was ended by kill(). {advice}")
    return ActorDiedError(f"{subject} {Lost(ending.exit_code).describe()}. {advice}")

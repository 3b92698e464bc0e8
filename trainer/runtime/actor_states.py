"""The states of actors in checkpoints: those whose class is `Checkpointable`.

A state is taken like any other call: after all calls that this process made before, and between
those of other processes. Actors are found again by their names; none is made or ended here.
"""

from __future__ import annotations

import concurrent.futures
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from trainer.errors import ActorDiedError
from trainer.runtime.actor_address import ActorAddress
from trainer.runtime.actor_answer import Answer
from trainer.runtime.actor_end import describe_end
from trainer.runtime.actor_link import link_to
from trainer.runtime.actor_registry import registry_of_this_process
from trainer.runtime.actor_start import checkpointable_actors, lost_actors

_LOGGER: Final = logging.getLogger(__name__)
_PATIENCE_S: Final = 10.0

ActorStates = dict[str, dict[str, Any]]
"""Namespace -> name -> state; the namespace of this process is called ""."""


def get_actor_states(*, may_miss_some: bool = False) -> ActorStates:
    """The states of the named actors that this process made and whose class says so.

    Args:
        may_miss_some: whether those that are gone are left out.

    Raises:
        ActorDiedError: one is gone, was not ended by `kill()`, and was not made again; or one dies
            meanwhile.
        Exception: what its `get_state` raises.
    """
    lost = [] if may_miss_some else lost_actors()
    if lost:
        raise ActorDiedError(
            " ".join(str(describe_end(address)) for address in lost) + " "
            "Nobody can go on from a state without it. Go on from the newest checkpoint: start the "
            "program again, or make the actor again under its name and call "
            "`algo.restore_from_path(newest)`; training from there ends with the same bytes as if "
            "nothing had happened. If the actor is no longer wanted, say so by "
            "`actors.kill(handle)`, and its state is left out."
        )
    found = _by_place()
    values = _all_values([link_to(address).call("get_state", (), {}) for address in found.values()])
    states: ActorStates = {}
    for (namespace, name), value in zip(found, values, strict=True):
        states.setdefault(namespace, {})[name] = value
    return states


def with_kept(states: ActorStates, kept: Mapping[str, Mapping[str, Any]]) -> ActorStates:
    """States together with those that nobody took; a registered actor has its own."""
    return {
        namespace: {**kept.get(namespace, {}), **states.get(namespace, {})}
        for namespace in {**kept, **states}
    }


def set_actor_states(states: Mapping[str, Mapping[str, Any]]) -> ActorStates:
    """Gives living actors their states back; those that are missing are named in a warning.

    Returns:
        the states that nobody took.

    Raises:
        ActorDiedError: one dies meanwhile.
        Exception: what its `set_state` raises.
    """
    found = _by_place()
    answers, missing = [], []
    kept: ActorStates = {}
    for namespace, by_name in states.items():
        for name, state in by_name.items():
            address = found.get((namespace, name))
            if address is None:
                kept.setdefault(namespace, {})[name] = state
                missing.append(f"{name!r}" + (f" in namespace {namespace!r}" if namespace else ""))
            else:
                answers.append(link_to(address).call("set_state", (state,), {}))
    _all_values(answers)
    if missing:
        _LOGGER.warning(
            "The checkpoint holds the state of the actors %s, but this process has no living actor "
            "of that name whose class is Checkpointable. The state is kept, and goes into the next "
            "checkpoints as it is. Make them before you restore, or restore the component 'actors' "
            "once more when they are there.",
            ", ".join(missing),
        )
    return kept


def _by_place() -> dict[tuple[str, str], ActorAddress]:
    own = registry_of_this_process().namespace
    return {
        ("" if address.namespace == own else address.namespace, address.name or ""): address
        for address in checkpointable_actors()
    }


def _all_values(answers: Sequence[Answer]) -> list[Any]:
    _, late = concurrent.futures.wait([answer.arrival for answer in answers], _PATIENCE_S)
    if late:
        labels = [answer.label for answer in answers if answer.arrival in late]
        _LOGGER.warning("Still waiting for %s, after %g s.", ", ".join(labels), _PATIENCE_S)
    return [answer.value() for answer in answers]

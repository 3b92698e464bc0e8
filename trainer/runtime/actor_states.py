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
from trainer.runtime.actor_start import actors_to_save

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
    found = _by_place()
    gone = _gone_among(found)
    if gone and not may_miss_some:
        raise _missed(gone)
    # From here on nobody is left out for being dead: who dies meanwhile has to be missed.
    found = {place: address for place, address in found.items() if address not in gone}
    try:
        values = _all_values([link_to(each).call("get_state", (), {}) for each in found.values()])
    except ActorDiedError as error:
        gone = _gone_among(found)
        if gone:
            raise _missed(gone) from error
        raise  # one that an actor called
    states: ActorStates = {}
    for (namespace, name), value in zip(found, values, strict=True):
        states.setdefault(namespace, {})[name] = value
    return states


def _missed(gone: Sequence[ActorAddress]) -> ActorDiedError:
    return ActorDiedError(
        " ".join(str(describe_end(address)) for address in gone) + " "
        "Nobody can go on from a state without it. Go on from the newest checkpoint: start the "
        "program again, or make the actor again under its name and call "
        "`algo.restore_from_path(newest)`; training from there ends with the same bytes as if "
        "nothing had happened. If the actor is no longer wanted, say so by "
        "`actors.kill(handle)`, and its state is left out."
    )


def with_kept(states: ActorStates, kept: Mapping[str, Mapping[str, Any]]) -> ActorStates:
    """States together with those that nobody took; a registered actor has its own."""
    return {
        namespace: {**kept.get(namespace, {}), **states.get(namespace, {})}
        for namespace in {**kept, **states}
    }


def set_actor_states(states: Mapping[str, Mapping[str, Any]]) -> ActorStates:
    """Gives living actors their states back.

    Warnings name the states that nobody took, and the living actors that there is no state for.

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
            if address is None or not address.is_alive():
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
    stateless = [name for namespace, name in found if name not in states.get(namespace, {})]
    if stateless:
        _LOGGER.warning(
            "The checkpoint holds states of actors, but none of the actors %s, which this process "
            "has made: they keep theirs. That is right if they were made after it was saved.",
            ", ".join(map(repr, stateless)),
        )
    return kept


def _by_place() -> dict[tuple[str, str], ActorAddress]:
    own = registry_of_this_process().namespace
    return {
        ("" if address.namespace == own else address.namespace, address.name or ""): address
        for address in actors_to_save()
    }


def _gone_among(found: Mapping[tuple[str, str], ActorAddress]) -> list[ActorAddress]:
    return [address for address in found.values() if not address.is_alive()]


def _all_values(answers: Sequence[Answer]) -> list[Any]:
    _, late = concurrent.futures.wait([answer.arrival for answer in answers], _PATIENCE_S)
    if late:
        labels = [answer.label for answer in answers if answer.arrival in late]
        _LOGGER.warning("Still waiting for %s, after %g s.", ", ".join(labels), _PATIENCE_S)
    return [answer.value() for answer in answers]

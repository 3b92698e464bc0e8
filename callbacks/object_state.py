"""The state of one callback object, by the default or as its class says itself."""

from __future__ import annotations

import copy
from typing import Any

from callbacks.callback import RLlibCallback
from callbacks.state import NotPlainError, plain_attributes, plain_copy, restore_attributes


def has_own_state(cls: type) -> bool:
    """Whether a class says itself what its state is, instead of inheriting the default."""
    method = getattr(cls, "get_state", None)
    return method is not None and method is not RLlibCallback.get_state


def object_state(instance: Any) -> Any:
    """The state of a callback object, which need not inherit from RLlibCallback.

    It shares nothing with the object: one that hands out its own list goes on filling that list,
    and an iteration could not be undone.
    """
    if not hasattr(instance, "get_state"):
        return plain_attributes(instance)
    state = instance.get_state()
    return _copied(state) if has_own_state(type(instance)) else state  # the default is a copy


def set_object_state(instance: Any, state: Any) -> None:
    """Give a callback object its state back; it may keep what it is given."""
    if hasattr(instance, "set_state"):
        instance.set_state(_copied(state))
    else:
        restore_attributes(instance, state)


def _copied(state: Any) -> Any:
    try:
        return plain_copy(state)
    except NotPlainError:  # only a checkpoint refuses it
        return copy.deepcopy(state)

"""The state of one callback object, by the default or as its class says itself."""

from __future__ import annotations

from typing import Any

from callbacks.callback import RLlibCallback
from callbacks.state import plain_attributes, restore_attributes


def has_own_state(cls: type) -> bool:
    """Whether a class says itself what its state is, instead of inheriting the default."""
    method = getattr(cls, "get_state", None)
    return method is not None and method is not RLlibCallback.get_state


def object_state(instance: Any) -> Any:
    """The state of a callback object, which need not inherit from RLlibCallback."""
    if hasattr(instance, "get_state"):
        return instance.get_state()
    return plain_attributes(instance)


def set_object_state(instance: Any, state: Any) -> None:
    """Give a callback object its state back."""
    if hasattr(instance, "set_state"):
        instance.set_state(state)
    else:
        restore_attributes(instance, state)

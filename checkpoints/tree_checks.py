"""What is wrong with an object that is to be saved, before anything is asked of it or written.

Each of these would give a checkpoint that is complete and verified, and that brings nothing back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from checkpoints.component_tree import HasParts, HasState, joined
from checkpoints.constructors import CONSTRUCTORS
from checkpoints.errors import StateError

_METHODS: Final = ("get_state", "set_state")


def check_tree(owner: HasState, base: type, path: str = "") -> None:
    """Raise unless an object and its parts can give and take states.

    Args:
        owner: the object that is to be saved.
        base: the class whose inherited methods only gather and hand out the states of parts.
        path: of the object among the parts of the one that is saved.

    Raises:
        StateError: names the class and what is wrong with it.
    """
    if isinstance(owner, base):
        _check_overridden(owner, base)
    else:
        _check_methods(owner, path)
    if not isinstance(owner, HasParts):
        return
    seen: dict[str, HasState] = {}
    for name, part in owner.get_checkpointable_components():
        if name in seen:
            raise StateError(
                f"{type(owner).__name__}.get_checkpointable_components() names two parts {name!r} "
                f"(a {type(seen[name]).__name__} and a {type(part).__name__}): only one of them "
                "would be saved. Nothing was saved. Give each part a name of its own."
            )
        seen[name] = part
        check_tree(part, base, joined(path, name))


def check_own_keys(owner: HasState, base: type, state: Any) -> None:
    """Raise if a state holds more than the parts, and the class has no method that takes it."""
    if type(owner).set_state is not getattr(base, "set_state", None):
        return
    parts = dict(owner.get_checkpointable_components()) if isinstance(owner, HasParts) else {}
    own = [name for name in state if name not in parts] if isinstance(state, Mapping) else [state]
    if own:
        shown = ", ".join(map(repr, own))
        raise _lacks(owner, "set_state", f"its state holds {shown:.200}, which nobody would take")


def refuse_reserved(owner: HasState, components: Collection[str]) -> None:
    """Raise if a component is called like what the arguments of the constructors are saved as."""
    for name in components:
        if name.split("/")[0] == CONSTRUCTORS:
            raise StateError(
                f"{type(owner).__name__} has a component {CONSTRUCTORS!r}, which is what the "
                "arguments of get_ctor_args_and_kwargs() are saved as. Rename the component."
            )


def _check_overridden(owner: HasState, base: type) -> None:
    """Raise if a class without parts overrides one of the two methods and inherits the other."""
    cls = type(owner)
    if cls.get_checkpointable_components is not base.get_checkpointable_components:  # type: ignore[attr-defined]
        return
    gives = any(getattr(cls, n) is not getattr(base, n) for n in ("get_state", "_own_state"))
    takes = getattr(cls, "set_state") is not getattr(base, "set_state")  # noqa: B009
    if gives and not takes:
        raise _lacks(owner, "set_state", "what is saved could never be restored")
    if takes and not gives:
        raise _lacks(owner, "get_state", "nothing would be saved")


def _check_methods(part: HasState, path: str) -> None:
    missing = [name for name in _METHODS if not callable(getattr(part, name, None))]
    if missing:
        raise _lacks(part, " and ".join(missing), f"the part {path!r} cannot be saved and restored")


def _lacks(owner: object, method: str, consequence: str) -> StateError:
    return StateError(
        f"{type(owner).__name__} lacks {method}: {consequence}. Nothing was saved. Write "
        f"{method}, or correct its name: get_state() returns plain data and set_state(state) "
        "takes it back."
    )

"""The table of events: what fires, where, with which arguments, and when it does not.

Events are declared by the methods of `RLlibCallback` (`callbacks.callback`). Everything else that
knows events (the settings of `config.callbacks()`, the checks of a configuration, the chain, what a
runner notes that it does, the pages of the documentation) reads this table. The engine fires each
event with exactly `arguments`, by keyword. The table fires nothing itself.

Arguments have the names of RLlib's new API. Of the events that only RLlib's old API had, every
`worker` is an `env_runner` here as well; what has no other meaning in the new API keeps its name
(`policy`, `policies`, `policy_id`, `worker_set`, `worker_ids`), and the new word is the other one.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal

from trainer_toolkit.nearest_names import nearest

Derivation = Callable[[Mapping[str, Any]], Any]
"""A function from the keyword arguments of one firing to the value of one more argument."""

OLD_ARGUMENTS: Final[dict[str, Mapping[str, Derivation]]] = {}
"""By event, other names of its arguments; empty until filled from outside (`rllib_names.py`)."""

FOREIGN_EVENTS: Final[dict[str, str]] = {
    "on_train_epoch_end": "an event of Lightning; write `on_train_result`, after every iteration",
    "on_validation_epoch_end": "an event of Lightning; write `on_evaluate_end`",
}
"""Events of others that do not exist here, with what to say; RLlib's are filled from outside."""

_NONE: Final[Mapping[str, Derivation]] = {}

Scope = Literal["algorithm", "env_runner"]
"""Whose callback objects hear an event: those of the algorithm or those of one env runner."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """One event.

    Attributes:
        name: The name of the method, and of the keyword of `config.callbacks(...)`.
        scope: Whose callback objects hear it.
        arguments: The exact keyword arguments it fires with, in the order of documentation.
        fired: When it fires.
        not_fired: When one could expect it, but it does not fire.
    """

    name: str
    scope: Scope
    arguments: tuple[str, ...]
    fired: str
    not_fired: str

    @property
    def old_arguments(self) -> Mapping[str, Derivation]:
        """Other name -> function that derives its value from the arguments of one firing.

        Given only to callables that name it.
        """
        return OLD_ARGUMENTS.get(self.name, _NONE)

    @property
    def process(self) -> str:
        """The process it fires in, as text."""
        if self.scope == "algorithm":
            return "the main process"
        return "the process of the env runner (the main process for the local env runner)"


_EVENTS: Final[dict[str, Event]] = {}

EVENTS: Final[Mapping[str, Event]] = MappingProxyType(_EVENTS)
"""Every event by name, in the order of declaration: see `callbacks.callback`."""


def event(
    scope: Scope, *, fired: str, not_fired: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Declares an event by a documented method whose keyword-only parameters are its arguments.

    The method that comes out looks like the one given and does nothing, whatever it is given. For
    type checkers it takes anything, too: so an override may be annotated with RLlib's classes, name
    only what it needs, and leave `**kwargs` out. It may call
    `super().on_episode_end(episode=episode, **kwargs)` with the arguments it happens to have, under
    their old names too. For the arguments see `Event`.
    """

    def declare(method: Callable[..., None]) -> Callable[..., None]:
        parameters = inspect.signature(method).parameters.values()
        name = method.__name__
        _EVENTS[name] = Event(
            name=name,
            scope=scope,
            arguments=tuple(each.name for each in parameters if each.kind is each.KEYWORD_ONLY),
            fired=fired,
            not_fired=not_fired,
        )

        @functools.wraps(method)
        def nothing(*_: Any, **__: Any) -> None:
            return None

        return nothing

    return declare


def signature_text(event: str) -> str:
    """The arguments of an event for an error message, on one line."""
    entry = EVENTS[event]
    text = f"{event}(*, {', '.join(entry.arguments)})"
    if entry.old_arguments:
        text += f"; also, when named: {', '.join(entry.old_arguments)}"
    return text


def unknown_event_text(name: str) -> str:
    """Why `name` is no event and what to write instead: the second half of an error message."""
    if name in FOREIGN_EVENTS:
        return FOREIGN_EVENTS[name]
    near = nearest(name, EVENTS)
    if near:
        return f"not an event; did you mean `{near}`?"
    return f"not an event; the events are {', '.join(EVENTS)}"

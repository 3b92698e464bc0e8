"""RLlibCallback: the class users inherit from, with one documented no-op per event and a state.

The events themselves are documented in `callbacks.algorithm_events` and
`callbacks.env_runner_events`. This class decides nothing: which events exist is in
`callbacks.events`, who is called in which order in `callbacks.chain`. Every event fires by keyword;
an override names what it needs and takes the rest as `**kwargs` (or leaves `**kwargs` out: it then
gets just what it names).
"""

from __future__ import annotations

from typing import Any

from callbacks.algorithm_events import AlgorithmEvents
from callbacks.env_runner_events import EnvRunnerEvents
from callbacks.state import plain_attributes, restore_attributes


class RLlibCallback(AlgorithmEvents, EnvRunnerEvents):
    """Base class of callbacks that keep something between events; override the methods you need.

    Life of a callback object:
        1. The algorithm makes one object per class, without arguments; every env runner makes its
           own. An *instance* given to the configuration is a pattern: each of them gets a copy.
        2. Events call its methods: objects in the order given, then the functions of the event.
        3. `get_state()` is taken with every answer of a runner and with every checkpoint.
        4. A replaced runner makes a new object and gives it the last state; so does a loaded
           checkpoint.

    `__init__` needs no `super().__init__()`. Attributes of plain data are the state: None, bool,
    int, float, str, bytes, list, tuple, dict, set, frozenset, NumPy arrays and scalars. Other
    attributes (open files, networks) are not saved; the first time, a warning names them. Override
    `get_state` and `set_state` to save them in your own way.
    """

    def get_state(self) -> dict[str, Any]:
        """What this object needs to continue: by default its plain-data attributes."""
        return plain_attributes(self)

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue from what `get_state` gave.

        Args:
            state: The answer of `get_state`; by default each entry becomes an attribute.
        """
        restore_attributes(self, state)

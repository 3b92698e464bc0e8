"""States that a user gives to an algorithm, checked before anything is changed."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from checkpoints import CheckpointMismatchError
from checkpoints.component_paths import nearest
from checkpoints.components import failed_component
from trainer.algorithms.algorithm_saving import AlgorithmSaving
from trainer.algorithms.state import ACTORS
from trainer.types import State

_DECIDED_BY: Final = MappingProxyType(
    {
        "connectors": ("observation_filter", "normalize_rewards"),
        "exploration": ("exploration_config",),
    }
)
"""Components that are not always there, and the settings that decide it."""


class GivenStates(AlgorithmSaving):
    """What `set_state` of an algorithm asks first, unless it was asked already."""

    _takes_checked_states: bool = False

    @contextlib.contextmanager
    def _states_checked(self) -> Iterator[None]:
        """Within it `set_state` checks nothing: the state was checked, or is one of our own."""
        before, self._takes_checked_states = self._takes_checked_states, True
        try:
            yield
        finally:
            self._takes_checked_states = before

    def _check_given(self, state: State) -> None:
        """Raises unless a state from the user, whole or in part, is one of this algorithm."""
        name = type(self).__name__
        if not isinstance(state, Mapping):
            raise CheckpointMismatchError(
                f"{name}.set_state() was given a {type(state).__name__}. Nothing was changed. Give "
                "what get_state() returned: a dict by name of component."
            )
        known = [ACTORS, *dict(self.get_checkpointable_components())]
        if not {*state} <= {*known}:
            known += [own for own in self.get_state() if own not in known]  # those of a subclass
        if unknown := [f"{key!r}{nearest(str(key), known)}" for key in state if key not in known]:
            raise CheckpointMismatchError(
                f"{name}.set_state() was given the unknown {', '.join(unknown)}; the components of "
                f"this {name} are {', '.join(known)}. Nothing was changed. Give what get_state() "
                f"returned.{self._settings_behind([str(key) for key in state])}"
            )
        try:
            self.check_state(state)
        except Exception as error:
            raise CheckpointMismatchError(
                f"{name}.set_state() was given a state whose component "
                f"{failed_component(error) or list(state)!r} does not fit: {error}. Nothing was "
                "changed. Give what get_state() of an algorithm with the same settings returned."
            ) from error

    def _settings_behind(self, components: Collection[str]) -> str:
        """Names the settings that decide whether there are these components, with their values."""
        settings = [
            f"{name}={self.config[name]!r}"
            for component in sorted(components)
            for name in _DECIDED_BY.get(component, ())
        ]
        return f" Whether they are there depends on: {', '.join(settings)}." if settings else ""

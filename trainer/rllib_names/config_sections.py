"""Section methods of configs that RLlib renamed: they hand their arguments to today's sections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar


class TakesSections(Protocol):
    """What these methods need of a config."""

    def set_from_section(self, section: str, given: Mapping[str, Any]) -> None:
        """Set what the arguments `given` of the section method `section` name."""


ConfigT = TypeVar("ConfigT", bound=TakesSections)


class OldSections:
    """`rollouts()` of RLlib before 2.10."""

    def rollouts(self: ConfigT, **settings: Any) -> ConfigT:
        """Old name of `env_runners()` and `fault_tolerance()`; takes the arguments of both.

        Raises:
            UnknownSettingError: an argument belongs to neither section.
        """
        self.set_from_section("rollouts", settings)
        return self

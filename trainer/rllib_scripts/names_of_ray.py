"""Looks up what becomes of a name of `ray`: where it is here, or why it is not.

The table is that of `trainer.old_names`. Algorithms and parts of tuning that are not here have
tables of their own, which are asked here, too.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from trainer.name_resolution import PROGRAM, imported, imported_module
from trainer.old_names import OLD_NAMES
from trainer_toolkit.nearest_names import did_you_mean

RAY: Final = "ray"
EXAMPLES: Final = "ray.rllib.examples"
"""Files of RLlib that are its users' own: taken from an installed Ray, and run as they are."""


@dataclass(frozen=True)
class Home:
    """What becomes of one name of Ray.

    Attributes:
        place: where it is here, "module:name" or "module"; empty if it is not.
        advice: of what is not here, why, and what to write instead; without a full stop.
        has_other: of what is not here: something small can be written instead.
        is_module: it is a module of Ray that holds names or modules which are here.
    """

    place: str = ""
    advice: str = ""
    has_other: bool = False
    is_module: bool = False

    @property
    def is_here(self) -> bool:
        """Whether the hook answers it."""
        return bool(self.place) or self.is_module

    @property
    def sentence(self) -> str:
        """The advice with what ends a sentence."""
        return self.advice if self.advice.endswith("?") else f"{self.advice}."


@functools.cache
def modules() -> Mapping[str, Mapping[str, str]]:
    """Of each module of Ray that holds names which are here: their places ("module:name").

    The keys "*module" and "?" stand for all public names of a module, and for every name.
    """
    found: dict[str, dict[str, str]] = {}
    for of_ray, ours, names in OLD_NAMES.homes:
        for module in of_ray.split():
            for word in names.split():
                name, _, other = word.partition("=")
                key = f"*{ours}" if name == "*" else name
                whole = other == "."
                found.setdefault(module, {})[key] = ours if whole else f"{ours}:{other or name}"
    return MappingProxyType({name: MappingProxyType(places) for name, places in found.items()})


def is_example(module: str) -> bool:
    """Whether a module of Ray is one of RLlib's example files, taken as it is."""
    return module not in modules() and f"{module}.".startswith(f"{EXAMPLES}.")


@functools.cache
def _packages() -> frozenset[str]:
    """The modules that hold other modules, their names in Ray."""
    names = [name.split(".") for name in (*modules(), EXAMPLES)]
    return frozenset(".".join(parts[:n]) for parts in names for n in range(1, len(parts) + 1))


def home_of_module(module: str) -> Home:
    """What becomes of a module of Ray, by its full name."""
    return Home(is_module=True) if module in _packages() else _home_of_other(module)


def home(module: str, name: str) -> Home:
    """What becomes of a name that a module of Ray holds."""
    places = modules().get(module, {})
    if places and name == "*":
        return Home(is_module=True)
    if name in places:
        return Home(places[name])
    if "?" in places:
        return Home(places["?"])
    for ours in (key[1:] for key in places if key.startswith("*")):
        if name in public_names(ours):
            return Home(f"{ours}:{name}")
    if f"{module}.{name}" in _packages():
        return Home(is_module=True)
    return _home_of_other(f"{module}.{name}")


@functools.cache
def public_names(ours: str) -> frozenset[str]:
    """The public names of a module of ours: `__all__`, or its constants."""
    module = imported_module(ours, source=PROGRAM, place="the table of Ray's names")
    constants = [name for name in vars(module) if name.isupper()]
    return frozenset(getattr(module, "__all__", constants))


def _home_of_other(dotted: str) -> Home:
    """Why something of Ray is not here."""
    parts = dotted.split(".")
    if dotted.startswith("ray.tune."):
        not_offered = imported("trainer.tune.naming:not_offered", source=PROGRAM, place="a table")
        if advice := not_offered(parts[-1]):
            return Home(advice=advice.rstrip("."), has_other=True)
    if dotted.startswith(("ray.rllib.algorithms.", "ray.rllib.agents.")):
        for part in parts[3:]:
            ours = OLD_NAMES.algorithms.get(part.upper().removesuffix("CONFIG").replace("_", ""))
            if ours:
                return Home(advice=f"{part.upper()} is not here; {ours} solves such tasks")
    for length in range(len(parts), 1, -1):
        inside = ".".join(parts[:length])
        if inside in OLD_NAMES.other_ways:
            return Home(advice=OLD_NAMES.other_ways[inside], has_other=True)
        if inside in OLD_NAMES.not_here:
            return Home(advice=OLD_NAMES.not_here[inside])
    module, _, name = dotted.rpartition(".")
    known = [key for key in modules().get(module, {}) if key[0] not in "*?"]
    hint = did_you_mean(name, known).strip()
    return Home(advice=f"nothing here has this name{f'. {hint}' if hint else ''}")

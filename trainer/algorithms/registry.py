"""Algorithms by name.

Names in checkpoints and on the command line resolve here and nowhere else.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

from trainer.errors import ConfigError

if TYPE_CHECKING:
    from trainer.algorithms.algorithm import Algorithm

# Filled by `Algorithm.__init_subclass__`: to define an algorithm is to register it.
_ALGORITHMS: Final[dict[str, type[Algorithm]]] = {}


def register_algorithm(cls: type[Algorithm]) -> None:
    """Gives an algorithm its class' name; a later class of the same name takes it over."""
    _ALGORITHMS[cls.__name__] = cls


def algorithm_class(name: str) -> type[Algorithm]:
    """The algorithm of that name.

    Raises:
        ConfigError: there is none; names the nearest.
    """
    if name in _ALGORITHMS:
        return _ALGORITHMS[name]
    near = difflib.get_close_matches(name.upper(), _ALGORITHMS, n=1, cutoff=0.3)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ConfigError(
        f"There is no algorithm {name!r}.{hint} There are: {', '.join(sorted(_ALGORITHMS))}."
    )

"""Algorithms by name.

Names in checkpoints and on the command line resolve here and nowhere else.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Final

from checkpoints.arguments import checked_arguments
from trainer.errors import ConfigError
from trainer.old_names import OLD_NAMES

if TYPE_CHECKING:
    from trainer.algorithms.algorithm import Algorithm

# Filled by `Algorithm.__init_subclass__`: to define an algorithm is to register it.
_ALGORITHMS: Final[dict[str, type[Algorithm]]] = {}


def register_algorithm(cls: type[Algorithm]) -> None:
    """Gives an algorithm its class' name; a later class of the same name takes it over."""
    _ALGORITHMS[cls.__name__] = cls


def is_registered(name: str) -> bool:
    """Whether there is an algorithm of exactly that name."""
    return name in _ALGORITHMS


@checked_arguments
def algorithm_class(name: str) -> type[Algorithm]:
    """The algorithm of that name.

    Raises:
        ConfigError: there is none; names the nearest.
    """
    if name in _ALGORITHMS:
        return _ALGORITHMS[name]
    plain = re.sub("[-_]", "", name.upper())
    by_plain_name = {known.upper(): known for known in _ALGORITHMS}
    near = difflib.get_close_matches(plain, by_plain_name, n=1, cutoff=0.5)
    if plain in OLD_NAMES.algorithms:
        hint = (
            " It is one of RLlib's that are not offered; "
            f"{OLD_NAMES.algorithms[plain]} solves such tasks."
        )
    else:
        hint = f" Did you mean {by_plain_name[near[0]]!r}?" if near else ""
    raise ConfigError(
        f"There is no algorithm {name!r}.{hint} There are: {', '.join(sorted(_ALGORITHMS))}."
    )


get_trainable_cls = algorithm_class
"""RLlib's name of `algorithm_class`."""

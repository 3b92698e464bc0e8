"""What a rule about several settings is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from trainer.config.problems import Problem


@dataclasses.dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes:
        settings: the settings it reads.
        find: gives its problems with a config.
    """

    settings: tuple[str, ...]
    find: Callable[[Any], Iterator[Problem]]

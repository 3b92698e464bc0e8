"""One standard key of a result, as `trainer.metrics.keys` lists them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

TRAIN: Final = frozenset({"train"})
EVALUATE: Final = frozenset({"evaluate"})
SOMETIMES: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True)
class ResultKey:
    """One standard key.

    Attributes:
        pattern: its slash path.
        unit: what the number counts or measures; "" if it has no unit.
        owner: who writes it.
        always_in: the methods in whose every result it is: "train", "evaluate". There, `evaluate()`
            leaves out the leading `evaluation/`.
        is_wall_clock: it depends on the time of day, or on the speed or name of the machine.
        is_disturbance: it records faults, repairs or restores, which do not change what was learnt.
    """

    pattern: str
    unit: str
    owner: str
    always_in: frozenset[str] = SOMETIMES
    is_wall_clock: bool = False
    is_disturbance: bool = False

    def matches(self, path: str) -> bool:
        """Whether a slash path is this key, or lies below it."""
        own, parts = self.pattern.split("/"), path.split("/")
        return len(own) <= len(parts) and all(
            mine in ("*", part) for mine, part in zip(own, parts, strict=False)
        )


def keys_of(
    owner: str,
    prefix: str,
    always_in: frozenset[str],
    /,
    *,
    clock: bool = False,
    disturbance: bool = False,
    **units: str,
) -> tuple[ResultKey, ...]:
    """Several keys of one owner.

    Args:
        owner: who writes them.
        prefix: what their paths begin with.
        always_in: see `ResultKey`.
        clock: see `ResultKey.is_wall_clock`.
        disturbance: see `ResultKey.is_disturbance`.
        units: name → unit.
    """
    return tuple(
        ResultKey(f"{prefix}{name}", unit, owner, always_in, clock, disturbance)
        for name, unit in units.items()
    )

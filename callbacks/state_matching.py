"""Which saved callback state belongs to which callback object, decided by class and order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_MAIN = "__main__."


@dataclass(frozen=True, kw_only=True)
class Matches:
    """The outcome of matching.

    Attributes:
        pairs: Index of the object -> its saved state.
        states_without_object: Class names of saved states that nobody took.
        objects_without_state: Class names of objects that got none.
    """

    pairs: dict[int, Any]
    states_without_object: tuple[str, ...]
    objects_without_state: tuple[str, ...]

    @property
    def text(self) -> str:
        """What did not match, as a sentence; empty when everything did."""
        parts = []
        if self.states_without_object:
            names = ", ".join(self.states_without_object)
            parts.append(f"no callback object takes the saved state of {names}")
        if self.objects_without_state:
            names = ", ".join(self.objects_without_state)
            parts.append(f"no state was saved for {names}, which starts as `__init__` made it")
        return "; ".join(parts)


def matched_states(saved: Sequence[dict[str, Any]], classes: Sequence[str]) -> Matches:
    """Match the k-th saved state of a class with the k-th object of that class.

    A callback that was added, removed or moved thus leaves the states of all other classes in
    place. A class that was defined in the script itself (`__main__`) when saved matches the class
    of the same name in a module.

    Args:
        saved: Entries `{"class": dotted name, "state": ...}` in the order they were saved.
        classes: The dotted class name of each object, in order.
    """
    waiting = list(saved)
    pairs: dict[int, Any] = {}
    for same in (_same_name, _same_name_in_script):
        for index, name in enumerate(classes):
            if index in pairs:
                continue
            found = next((entry for entry in waiting if same(entry["class"], name)), None)
            if found is not None:
                pairs[index] = found["state"]
                # By identity: two entries may be equal.
                waiting = [entry for entry in waiting if entry is not found]
    return Matches(
        pairs=pairs,
        states_without_object=tuple(entry["class"] for entry in waiting),
        objects_without_state=tuple(
            name for index, name in enumerate(classes) if index not in pairs
        ),
    )


def _same_name(saved: str, current: str) -> bool:
    return saved == current


def _same_name_in_script(saved: str, current: str) -> bool:
    """`__main__.Counter` and `my_run.Counter` are one class, met as a script and as a module."""
    if saved.startswith(_MAIN):
        return current.endswith("." + saved.removeprefix(_MAIN))
    return current.startswith(_MAIN) and saved.endswith("." + current.removeprefix(_MAIN))

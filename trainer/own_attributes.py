"""Attributes that a class derived from one of ours adds: plain data, which becomes state.

Whoever derives an algorithm or a learner forgets to save what it counts: the next run restored from
a checkpoint would be another one. So what is plain data is saved, and what is not is named.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence
from typing import Final

from callbacks.callback import attribute_names, plain_attributes, restore_attributes
from callbacks.chain import LeftOut
from checkpoints import Checkpointable, CheckpointMismatchError, check_shape
from trainer.types import State
from trainer_toolkit.checks import anything, dict_of

_OWN_WAYS: Final = frozenset({"get_state", "set_state", "_own_state"})


class OwnAttributes:
    """What an object of a derived class keeps in attributes, as of callbacks.

    A class that says itself what its state is has none here.

    Attributes:
        is_derived: whether its class is one of the user's.
        are_saved: whether its attributes are saved here.
    """

    def __init__(
        self, owner: Checkpointable, *, kind: str, ways: Sequence[str] = ("get_state", "set_state")
    ) -> None:
        """Looks at the class only.

        Args:
            owner: whose attributes these are; annotations of our classes name those of ours.
            kind: such as "algorithm", for warnings.
            ways: methods by which a class says itself what its state is.
        """
        cls, self._owner, self._kind = type(owner), owner, kind
        ours = next(one for one in cls.__mro__ if one.__module__.startswith("trainer."))
        theirs = set(cls.__mro__).difference(ours.__mro__)
        own_ways = {*ways, *_OWN_WAYS}
        has_own_way = any(not own_ways.isdisjoint(vars(one)) for one in theirs)
        self.is_derived = bool(theirs)
        self.are_saved = self.is_derived and not has_own_way
        declared = [inspect.get_annotations(one) for one in ours.__mro__]
        self._of_ours = frozenset(dir(ours)).union(*declared)
        self._ways, self._left_out = " and ".join(ways), LeftOut()

    def get_state(self) -> State:
        """The attributes, by name; a warning names those that cannot be saved, once."""
        state = plain_attributes(self._owner, besides=self._of_ours)
        parts = [part for _, part in self._owner.get_checkpointable_components()]
        saved = [name for name, one in vars(self._owner).items() if _is_any_of(one, parts)]
        besides = self._of_ours.union(saved)
        self._left_out.name(self._owner, state, kind=self._kind, besides=besides, ways=self._ways)
        return state

    def check_state(self, state: State) -> None:
        """Raises a CheckpointMismatchError unless `set_state` will take it."""
        check_shape(state, dict_of(anything()))
        if wrong := sorted(name for name in state if not self._may_be_set(name)):
            raise CheckpointMismatchError(
                f"The state gives {type(self._owner).__name__} the attributes {wrong}, which are "
                "methods or properties of its class, or no names at all. Nothing was changed. Give "
                "what get_state() returned."
            )
        if taken := sorted(self._of_ours.intersection(state)):
            raise CheckpointMismatchError(
                f"The state gives attributes to a {type(self._owner).__name__} that belong to "
                f"the class that it is derived from: {', '.join(taken)}. Nothing was changed. Give "
                "what get_state() returned."
            )

    def _may_be_set(self, name: str) -> bool:
        found = inspect.getattr_static(type(self._owner), name, None)
        is_code = callable(found) or isinstance(found, property | classmethod | staticmethod)
        return name.isidentifier() and (not is_code or name in self._of_ours)

    def names(self) -> frozenset[str]:
        """Those that there are now, plain data or not."""
        return frozenset(attribute_names(self._owner, besides=self._of_ours))

    def remove_all_but(self, names: Collection[str]) -> None:
        """Deletes those that have come since; a class that says itself what it is keeps them."""
        if self.are_saved:
            for name in self.names().difference(names):
                delattr(self._owner, name)

    def set_state(self, state: State) -> None:
        """Sets the attributes; those that the state does not name stay."""
        restore_attributes(self._owner, state)


def _is_any_of(value: object, parts: Sequence[object]) -> bool:
    return any(value is part for part in parts)

"""Something in a reply that fails while the reply travels."""

from __future__ import annotations

import multiprocessing
from typing import Any

from trainer.testing.faults import Fault


class Parcel:
    """Put anywhere into a reply: nothing happens to it until it is packed, or unpacked.

    It arrives as None. (On the way to a runner it travels as it is, so functions may hold one.)
    With `place="pack"` the fault happens in the runner's process, with "unpack" in the process that
    unpacks the reply: the main process. With any other place the reply is spoilt at once
    ("huge_reply", "unpicklable_result").
    """

    def __init__(self, fault: Fault) -> None:
        self.fault = fault

    def __deepcopy__(self, memo: dict[int, Any]) -> Parcel:
        return self  # a copy made on the way is no packing

    def __reduce__(self) -> tuple[Any, ...]:
        fault = self.fault
        if multiprocessing.parent_process() is None:
            return Parcel, (fault,)
        if fault.place == "unpack":
            return _unpacked, (fault,)
        if fault.place == "pack" and not fault.claim():
            return _nothing, ()
        if fault.way == "huge_reply":
            return _nothing, (bytes(fault.num_bytes),)
        if fault.way == "unpicklable_result":
            raise TypeError("this result cannot be pickled, on purpose")
        fault.act()
        return _nothing, ()

    def __repr__(self) -> str:
        return f"Parcel({self.fault!r})"


def _unpacked(fault: Fault) -> None:
    if fault.claim():
        fault.act()


def _nothing(*_: Any) -> None:
    return None

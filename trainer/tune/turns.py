"""The order of decisions: who is next, and who waits for whom.

An experiment has lanes 0 … C-1; a lane is free or holds one trial. In turns, an order that no clock
influences, free lanes are filled in ascending order, then the next row, or the end, of each lane's
trial is decided on in ascending order, waited for if need be; then lanes are filled again. By
arrival, what comes first is decided on first, and lanes are filled whenever one is free.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Literal

from trainer.tune.journal_entries import Reported, TrialOver

FILL: Final = "fill"
"""Free lanes are to be filled now."""


class Turns:
    """Lanes, and what processes delivered and no decision was taken on.

    Attributes:
        lanes: number of the trial in each lane; None: it is free.
    """

    def __init__(self, num_lanes: int, *, is_by_arrival: bool) -> None:
        self.lanes: list[int | None] = [None] * num_lanes
        self._is_by_arrival = is_by_arrival
        self._inboxes: dict[int, deque[Reported | TrialOver]] = {}  # by trial, in turns
        self._arrivals: deque[Reported | TrialOver] = deque()  # of all, by arrival
        self._lane: int | None = None  # whose row is next; None: lanes are to be filled

    def next(self) -> Reported | TrialOver | Literal["fill"] | None:
        """What is to be decided on, or `FILL`; None: it has not come yet."""
        if self._lane is None:
            return FILL
        return self._next_arrival() if self._is_by_arrival else self._next_in_turn(self._lane)

    def _next_arrival(self) -> Reported | TrialOver | None:
        if not self._arrivals:
            return None
        self._lane = None
        return self._arrivals.popleft()

    def _next_in_turn(self, lane: int) -> Reported | TrialOver | Literal["fill"] | None:
        for place in range(lane, len(self.lanes)):
            holder = self.lanes[place]
            if holder is None:
                continue
            self._lane = place
            if not self._inboxes.get(holder):
                return None
            event = self._inboxes[holder].popleft()
            self._go_on_from(place + 1)
            return event
        self._go_on_from(len(self.lanes))
        return self.next()

    def _go_on_from(self, lane: int) -> None:
        self._lane = lane if lane < len(self.lanes) else None

    # ---- lanes

    @property
    def holders(self) -> list[int]:
        """The trials that hold lanes, by lane."""
        return [each for each in self.lanes if each is not None]

    @property
    def awaited(self) -> int | None:
        """The trial that all others wait for; None: there is no such one."""
        if self._is_by_arrival or self._lane is None:
            return None
        return self.lanes[self._lane]

    def free(self, trial: int) -> None:
        """Takes a trial out of its lane; what it delivered belongs to nothing any more."""
        self.lanes = [None if each == trial else each for each in self.lanes]
        self._inboxes.pop(trial, None)
        self._arrivals = deque(each for each in self._arrivals if each.trial != trial)

    # ---- events

    def deliver(self, event: Reported | TrialOver) -> None:
        """Takes what a process delivered; those of one trial come in their order."""
        if self._is_by_arrival:
            self._arrivals.append(event)
        else:
            self._inboxes.setdefault(event.trial, deque()).append(event)

    def num_rows_waiting(self, trial: int) -> int:
        """Rows of a trial that no decision was taken on."""
        waiting = self._arrivals if self._is_by_arrival else self._inboxes.get(trial, ())
        return sum(isinstance(each, Reported) and each.trial == trial for each in waiting)

    def fill_again(self) -> None:
        """Lets lanes be filled though nothing was decided: there are more trials than before."""
        if self._is_by_arrival:
            self._lane = None

    def begin(self) -> None:
        """Begins a turn: lanes are being filled."""
        self._lane = 0

    def pass_by(self, trial: int) -> None:
        """Goes behind the lane of a trial, as the journal has it: it was the trial's turn."""
        if self._is_by_arrival:
            self._lane = None
        else:
            self._go_on_from(self.lanes.index(trial) + 1)

"""What is kept of finished episodes until it is reported."""

from __future__ import annotations

import bisect

from trainer.metrics import EpisodeRecord


class FinishedRecords:
    """Records ordered by slot, then time.

    So windows over episodes hold the same ones however slots are spread over runners.

    Attributes:
        records: of the finished episodes.
        numbers: their episode numbers.
    """

    def __init__(self) -> None:
        self.records: list[EpisodeRecord] = []
        self.numbers: list[int] = []
        self._slots: list[int] = []
        self._new: list[EpisodeRecord] = []

    def __len__(self) -> int:
        return len(self.records)

    def add(self, slot_index: int, number: int, record: EpisodeRecord) -> None:
        """Adds the newest episode of a slot."""
        place = bisect.bisect(self._slots, slot_index)
        self._slots.insert(place, slot_index)
        self.records.insert(place, record)
        self.numbers.insert(place, number)
        self._new.append(record)

    def take_new(self) -> list[EpisodeRecord]:
        """The records that were added since this was last called, in order of time."""
        new, self._new = self._new, []
        return new

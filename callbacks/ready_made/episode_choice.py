"""Which episodes a recorder records: a function of the episode's id, never of a counter.

So a repaired, resumed or differently distributed run records the same episodes.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

from callbacks.ready_made.choices import count_problems


@dataclass(frozen=True)
class EpisodeChoice:
    """Every n-th episode of training, of evaluation, or of both.

    Attributes:
        every: 1 chooses all. n chooses the episodes whose number, the last part of the id, is a
            multiple of n: in training the 1st, (n+1)-th, … of every sub-env, in evaluation those
            tickets of every evaluation. Ids that end with no number are chosen by a checksum, one
            in n.
        evaluation: True: evaluation only; False: training only; None: both.
    """

    every: int = 1
    evaluation: bool | None = None

    def includes_role(self, *, in_evaluation: bool) -> bool:
        """Whether a runner of this role plays episodes that may be chosen."""
        return self.evaluation is None or self.evaluation == in_evaluation

    def includes(self, episode_id: str, *, in_evaluation: bool) -> bool:
        """Whether an episode is chosen."""
        if not self.includes_role(in_evaluation=in_evaluation):
            return False
        number = episode_id.rpartition("-")[2]
        # isdecimal() is true for digits of other scripts, which int() reads as well.
        index = int(number) if number.isdecimal() else zlib.crc32(episode_id.encode())
        return index % self.every == 0

    @staticmethod
    def problems(every: Any, evaluation: Any) -> list[str]:
        """What is wrong with the arguments, one sentence each."""
        found = count_problems("every", every)
        if evaluation is not None and not isinstance(evaluation, bool):
            found.append(
                f"`evaluation={evaluation!r}` must be True for evaluation episodes only, False for "
                "training episodes only, or None for both"
            )
        return found

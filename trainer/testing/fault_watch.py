"""Watches calls go by, and lets faults happen when their conditions hold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from trainer.env_runners import EnvRunner
from trainer.env_runners.global_worker import get_global_worker
from trainer.testing.faults import Fault


@dataclass(frozen=True)
class RunnerOfCall:
    """The env runner in which a call is made; all None outside of runners.

    Attributes:
        worker_index: its number.
        in_evaluation: whether it is an evaluation runner.
    """

    worker_index: int | None = None
    in_evaluation: bool | None = None

    @classmethod
    def of(cls, runner: EnvRunner | None) -> RunnerOfCall:
        """What is asked of a runner."""
        return cls() if runner is None else cls(runner.worker_index, runner.spec.in_evaluation)

    @classmethod
    def at_work(cls) -> RunnerOfCall:
        """The runner that is at work in this process."""
        return cls.of(get_global_worker())


class FaultWatch:
    """The faults that one env, callback object or network is to suffer, and its calls so far."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        self._num_calls = [0] * len(self.faults)

    def due(
        self,
        place: str,
        runner: RunnerOfCall,
        *,
        env_index: int | None = None,
        episode: int | None = None,
        step: int | None = None,
        claims: bool = True,
    ) -> Fault | None:
        """The fault that is to happen in this call.

        Args:
            place: what is called.
            runner: in which runner.
            env_index: for which sub-env; None if it is not known, and likewise below.
            episode: in which of its episodes, counted from 1.
            step: how many steps of the episode have been made.
            claims: it happens now, and is counted as having happened; False where that is only
                known later.
        """
        found = (runner.worker_index, runner.in_evaluation, env_index, episode, step)
        for number, fault in enumerate(self.faults):
            wanted = (
                fault.worker_index,
                fault.in_evaluation,
                fault.env_index,
                fault.episode,
                fault.at_step,
            )
            pairs = zip(wanted, found, strict=True)
            if fault.place != place or any(want not in (None, have) for want, have in pairs):
                continue
            self._num_calls[number] += 1
            is_due = self._num_calls[number] >= fault.on_call
            if is_due and (fault.claim() if claims else fault.is_armed):
                return fault
        return None

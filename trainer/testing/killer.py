"""Kills processes from outside, at moments that follow from a seed."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType

import numpy as np


@dataclass(frozen=True)
class Kill:
    """One signal that was sent.

    Attributes:
        at_s: when, in seconds since the killer began.
        pid: to which process.
        signal_number: which signal.
    """

    at_s: float
    pid: int
    signal_number: int


class RandomKiller:
    """Sends signals to some of the given processes again and again, while its block lasts.

        pids = lambda: algo.env_runner_group.env_runner_pids().values()
        with RandomKiller(pids, seed=1, mean_delay_s=0.05) as killer:
            algo.train()
        print(killer.kills)

    The delays and the choices follow from the seed: delays are drawn from an exponential
    distribution, and each time the positions, in what `pids` gives, of one or more processes. What
    they hit depends on how fast the others are, of course; `kills` says what was hit, one that was
    about to end anyway included.

    Attributes:
        kills: what was done so far, in order of time.
    """

    def __init__(
        self,
        pids: Callable[[], Iterable[int]],
        *,
        seed: int,
        mean_delay_s: float = 0.05,
        most_kills: int | None = None,
        most_at_once: int = 1,
        signals: Sequence[int] = (signal.SIGKILL,),
    ) -> None:
        """Prepares a killer; it begins with its block.

        Args:
            pids: gives the processes that live now; called from a thread of the killer.
            seed: of delays and choices.
            mean_delay_s: between two strikes, on average.
            most_kills: it ends after so many signals; None goes on until its block ends.
            most_at_once: how many processes one strike may hit.
            signals: what to send; one of them is drawn each time.
        """
        self.kills: list[Kill] = []
        self._pids = pids
        self._rng = np.random.default_rng(seed)
        self._mean_delay_s = mean_delay_s
        self._most_kills = most_kills
        self._most_at_once = most_at_once
        self._signals = tuple(signals)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._go_on, name="random-killer", daemon=True)

    def __enter__(self) -> RandomKiller:
        self._thread.start()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join()

    def _go_on(self) -> None:
        begun = time.monotonic()
        while not self._is_over.wait(self._rng.exponential(self._mean_delay_s)):
            # Drawn before anybody is looked at, so that what happens does not change what follows.
            count = int(self._rng.integers(1, self._most_at_once + 1))
            shares = self._rng.random(count)
            number = self._signals[int(self._rng.integers(len(self._signals)))]
            pids = list(self._pids())
            for pid in {pids[int(share * len(pids))] for share in shares if pids}:
                if self._most_kills is not None and len(self.kills) >= self._most_kills:
                    return
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    continue  # it has ended a moment ago
                self.kills.append(Kill(time.monotonic() - begun, pid, number))

"""Calls of users' functions in env runners that the main process does not wait for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from trainer.env_runners.rounds import Ask, Round, RoundResult

_LOOK_EVERY_S: Final = 0.5

OnAnswers = Callable[[Mapping[int, Any], Collection[int]], None]
"""Told the answers by runner number, as they come in, and which of them somebody will fetch."""


class AsyncCalls:
    """One call at most under way per runner; what comes in is kept until it is fetched."""

    def __init__(
        self,
        round_: Round,
        on_answers: OnAnswers,
        on_over: Callable[[RoundResult, Collection[int]], None],
    ) -> None:
        """Begins without a call.

        Args:
            round_: the round in which they are made.
            on_answers: told the answers.
            on_over: told what came out of the round, once nobody owes an answer, and whose last
                answer somebody will fetch.
        """
        self._round = round_
        self._on_answers = on_answers
        self._on_over = on_over
        self._under_way: set[int] = set()
        self._to_be_fetched: set[int] = set()
        self._is_over = False
        round_.begin({})

    @property
    def num_under_way(self) -> int:
        """Calls without an answer so far."""
        return len(self._under_way)

    def is_busy(self, indices: Collection[int]) -> bool:
        """Whether one of these runners has a call under way."""
        return not self._under_way.isdisjoint(indices)

    def ask(self, asks: Mapping[int, Ask], *, keeps_answers: bool) -> int:
        """Makes calls in those runners that have none under way.

        Args:
            asks: the calls, by runner number.
            keeps_answers: somebody will fetch them.

        Returns:
            how many were made.
        """
        accepted = [index for index in asks if index not in self._under_way]
        for index in accepted:
            self._under_way.add(index)
            (self._to_be_fetched.add if keeps_answers else self._to_be_fetched.discard)(index)
            self._round.ask(index, asks[index])
        return len(accepted)

    def advance(self, timeout_s: float) -> bool:
        """Takes the answers that are there.

        Args:
            timeout_s: how long to wait if there is none.

        Returns:
            whether no call is under way any more.
        """
        if self._is_over:
            return True
        is_idle = self._round.advance(timeout_s)
        answers = self._round.take_answers()
        self._under_way -= answers.keys()
        self._on_answers(answers, self._to_be_fetched)
        if is_idle:
            self._under_way.clear()  # who was given up will not answer
            self._is_over = True
            self._on_over(self._round.end(), self._to_be_fetched)
        return is_idle

    def finish(self) -> None:
        """Waits until no call is under way; an interrupt ends them."""
        try:
            while not self.advance(_LOOK_EVERY_S):
                pass
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        """Ends whoever is still at work."""
        self._is_over = True
        self._under_way.clear()
        self._round.abandon()

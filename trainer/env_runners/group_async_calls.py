"""Asking env runners without waiting for their answers."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from callbacks import PackingError
from callbacks.packing import pack_object
from trainer.env_runners.async_calls import AsyncCalls
from trainer.env_runners.group_parts import GroupParts
from trainer.env_runners.rounds import Ask, RoundResult
from trainer.env_runners.servant import ApplyReply
from trainer.errors import SerializationError

_LOGGER = logging.getLogger(__name__)
_LOOK_EVERY_S: Final = 0.5


class GroupAsyncCalls(GroupParts):
    """Adds `foreach_env_runner_async` and its relatives to a group.

    Whatever else the group is asked waits until such calls have been answered; their answers stay
    until they are fetched.
    """

    def foreach_env_runner_async(
        self,
        func: Callable[..., Any] | str | Sequence[Callable[..., Any]],
        *,
        kwargs: Mapping[str, Any] | None = None,
        healthy_only: bool = True,  # noqa: ARG002 - RLlib's signature; the others cannot be asked
        remote_worker_ids: Sequence[int] | None = None,
    ) -> int:
        """Lets every remote runner call a function, and waits for none of them.

        A runner has one such call at a time: one that is still at work is left out. In a group
        without remote runners the local one is called when the answers are fetched.

        Args:
            func: as in `foreach_env_runner`.
            kwargs: keyword arguments of the call.
            healthy_only: no effect.
            remote_worker_ids: numbers of the remote runners to ask; None asks all.

        Returns:
            how many runners took the call.
        """
        chosen = self._chosen(local_env_runner=True, remote_worker_ids=remote_worker_ids)
        return self._ask_without_waiting(self._asks(func, kwargs, chosen), keeps_answers=True)

    def fetch_ready_async_reqs(
        self,
        *,
        timeout_seconds: float | None = 0.0,
        return_obj_refs: bool = False,  # noqa: ARG002 - answers are values here
        mark_healthy: bool = False,  # noqa: ARG002 - whoever answers is healthy
    ) -> list[tuple[int, Any]]:
        """The answers to `foreach_env_runner_async` that have come in and were not fetched.

        Args:
            timeout_seconds: how long to wait until all calls are answered; None waits for all.
            return_obj_refs: no effect.
            mark_healthy: no effect.

        Returns:
            (runner number, what the function returned) in the order in which they came.

        Raises:
            Exception: what a function raised, with the runner's number as cause; once, when all
                calls have ended. The answers of the others can be fetched afterwards.
        """
        until = time.monotonic() + (math.inf if timeout_seconds is None else timeout_seconds)
        while not self._take_calls(min(_LOOK_EVERY_S, max(0.0, until - time.monotonic()))):
            if time.monotonic() >= until:
                break
        self._tell_recreated()
        failed, self._failed_calls = self._failed_calls, RoundResult()
        failed.raise_first_failure(doing="ran the function given to foreach_env_runner_async()")
        ready, self._ready = self._ready, []
        return ready

    def num_in_flight_async_reqs(self) -> int:
        """How many calls of `foreach_env_runner_async` have no answer yet."""
        return self._open.num_under_way if isinstance(self._open, AsyncCalls) else 0

    def _take_calls(self, timeout_s: float) -> bool:
        """Takes what has come in; whether no call is under way."""
        calls = self._open
        if not isinstance(calls, AsyncCalls):
            return True
        try:
            is_over = calls.advance(timeout_s)
        except BaseException:
            self._abandon_open()
            raise
        if is_over:
            self._open = None
        return is_over

    def _ask_without_waiting(self, asks: Mapping[int, Ask], *, keeps_answers: bool) -> int:
        for ask in asks.values() if self._pool is not None else ():
            _require_that_it_travels(ask)
        self._take_calls(0.0)
        if not keeps_answers and isinstance(self._open, AsyncCalls) and self._open.is_busy(asks):
            self._finish_open()  # nobody would hear that a runner had no time
        if not isinstance(self._open, AsyncCalls):
            self._open = AsyncCalls(self._new_round(), self._take_ready, self._end_calls)
        healthy = self.healthy_env_runner_ids()
        wanted = {index: ask for index, ask in asks.items() if index in healthy}
        return self._open.ask(wanted, keeps_answers=keeps_answers)

    def _take_ready(
        self, answers: Mapping[int, ApplyReply], to_be_fetched: Collection[int]
    ) -> None:
        self._commit_applied(answers)
        self._ready += [
            (index, reply.value) for index, reply in answers.items() if index in to_be_fetched
        ]

    def _end_calls(self, result: RoundResult, to_be_fetched: Collection[int]) -> None:
        self._take_over(result)
        for index, outcome in sorted(result.failures.items()):
            if index in to_be_fetched:
                self._failed_calls.failures.setdefault(index, outcome)
            else:
                _LOGGER.warning(
                    "Env runner %d %s in a function that nobody waits for.",
                    index,
                    outcome.describe(),
                )


def _require_that_it_travels(ask: Ask) -> None:
    """Refuses a call before it is made: one that fails ends all others that are under way."""
    try:
        pack_object(ask.arguments, name="the arguments of a call")
    except PackingError as error:
        raise SerializationError(f"No env runner was asked: {error}") from error

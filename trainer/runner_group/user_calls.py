"""The user's own code in env runners: functions called where the runners live, at once or later.

The user's own code in env runners: functions that are called where the runners live.

Asking env runners without waiting for their answers.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from callbacks import PackingError
from callbacks.packing import pack_object
from trainer.env_runners.worker_service import ApplyReply
from trainer.errors import ConfigError, SerializationError
from trainer.metrics import EpisodeRecord
from trainer.runner_group.parts import AsyncCalls, GroupParts
from trainer.runner_group.rounds import Ask, RoundResult
from trainer.runtime.messages import Failed, Lost

# ---- group functions

_LOGGER = logging.getLogger(__name__)

OnMetrics = Callable[[list[Any]], None]
"""Told what users' functions logged in the runners, in the order of the runners."""


class GroupFunctions(GroupParts):
    """Adds `foreach_env_runner` and its relatives to a group."""

    _on_metrics: OnMetrics

    def take_records(self) -> list[EpisodeRecord]:
        """The episodes that users' functions let evaluation runners play, since last asked.

        They are ordered by call, then runner, then slot, then time.
        """
        local = self._places.get(0)
        if local is not None and local.runner is not None and local.runner.has_played:
            self.foreach_env_runner("ping")  # it was called itself: fetches what it has played
        records, self._records = self._records, []
        return records

    def foreach_env_runner(
        self,
        func: Callable[..., Any] | str | Sequence[Callable[..., Any]],
        *,
        kwargs: Mapping[str, Any] | None = None,
        local_env_runner: bool = True,
        healthy_only: bool = True,  # noqa: ARG002 - RLlib's signature; the others cannot be asked
        remote_worker_ids: Sequence[int] | None = None,
        timeout_seconds: float | None = None,
        return_obj_refs: bool = False,
        mark_healthy: bool = False,  # noqa: ARG002 - whoever answers is healthy
    ) -> list[Any]:
        """Calls a function with every runner, in the process where the runner lives.

        What it logs in `env_runner.metrics` is reported at once, also if it raises in another
        runner.

        Args:
            func: `func(env_runner, **kwargs)`; or the name of a runner's method; or a list, one
                function per runner.
            kwargs: keyword arguments of the call.
            local_env_runner: include the runner of the main process, if there is one.
            healthy_only: no effect.
            remote_worker_ids: numbers of the remote runners to ask; None asks all, an empty list
                none.
            timeout_seconds: a remote runner that makes no env step for so long is replaced, and its
                result is None. 0 waits for no answer of remote runners, except to calls before
                this one: what they return is dropped. None waits.
            return_obj_refs: must be False; `foreach_env_runner_async` is there for answers to come.
            mark_healthy: no effect.

        Returns:
            the results in the order of the runners' numbers; a runner that was given up or did not
            answer in time holds its place with None.

        Raises:
            Exception: what the function raised in the first runner in which it did, with the
                runner's number as cause. It has run in all the others; no runner is replaced.
            RunnerLostError: a process died twice while it ran the function.
            ConfigError: a runner number does not exist, or a list of functions has another length.
        """
        if return_obj_refs:
            raise ConfigError(
                "foreach_env_runner(return_obj_refs=True): there are no references to answers "
                "here. Use foreach_env_runner_async() and fetch_ready_async_reqs()."
            )
        indices = self._chosen(
            local_env_runner=local_env_runner, remote_worker_ids=remote_worker_ids
        )
        asks = self._asks(func, kwargs, indices, stall_limit_s=timeout_seconds or None)
        if timeout_seconds == 0 and self._pool is not None:
            self._ask_without_waiting(asks, keeps_answers=False)
            return []
        result = self._run(asks)
        self._commit_applied(result.answers)
        self._tell_recreated()
        self._tell_timeouts(result.failures, timeout_seconds)
        result.raise_first_failure(doing="ran the function given to foreach_env_runner()")
        return [
            result.answers[index].value if index in result.answers else None for index in indices
        ]

    def _asks(
        self,
        func: Callable[..., Any] | str | Sequence[Callable[..., Any]],
        kwargs: Mapping[str, Any] | None,
        indices: Sequence[int],
        *,
        stall_limit_s: float | None = None,
    ) -> dict[int, Ask]:
        functions = [func] * len(indices) if callable(func) or isinstance(func, str) else list(func)
        if len(functions) != len(indices):
            raise ConfigError(
                f"foreach_env_runner() got {len(functions)} functions for {len(indices)} env "
                f"runners {list(indices)}; expected one for each, or one for all."
            )
        return {
            index: Ask(
                "apply",
                (function, dict(kwargs or {})),
                is_repeatable=False,
                stall_limit_s=stall_limit_s,
                limited_by="timeout_seconds",
            )
            for index, function in zip(indices, functions, strict=True)
        }

    def _commit_applied(self, answers: Mapping[int, ApplyReply]) -> None:
        """Takes over what users' functions changed, and reports what they logged."""
        metrics = []
        for index, reply in sorted(answers.items()):
            place = self._places[index]
            place.commit(reply.positions or place.positions, reply.callbacks)
            self._records += reply.records
            self.num_recorded += len(reply.records)
            if reply.metrics:
                metrics.append(reply.metrics)
        if metrics:
            self._on_metrics(metrics)

    @staticmethod
    def _tell_timeouts(failures: dict[int, Failed | Lost], limit_s: float | None) -> None:
        """Leaves out who did not answer in time, and says so."""
        for index, outcome in list(failures.items()):
            if isinstance(outcome, Lost) and outcome.stalled_s is not None:
                del failures[index]
                _LOGGER.warning(
                    "Env runner %d did not answer foreach_env_runner() within timeout_seconds=%s; "
                    "it is replaced, and its result is None.",
                    index,
                    limit_s,
                )

    def foreach_env_runner_with_id(
        self, func: Callable[[int, Any], Any], **options: Any
    ) -> list[Any]:
        """Like `foreach_env_runner`, with `func(number, env_runner)`."""
        indices = self._chosen(
            local_env_runner=options.get("local_env_runner", True),
            remote_worker_ids=options.get("remote_worker_ids"),
        )
        return self.foreach_env_runner([_WithNumber(func, index) for index in indices], **options)

    def _chosen(
        self, *, local_env_runner: bool, remote_worker_ids: Sequence[int] | None
    ) -> list[int]:
        remote = [] if self._pool is None else list(self._places)
        local = [0] if self._pool is None and local_env_runner else []
        if remote_worker_ids is None:
            return local + remote
        unknown = sorted(set(remote_worker_ids) - set(remote))
        if unknown:
            there_are = f"there are 1 … {len(remote)}" if remote else "all runs in the main process"
            raise ConfigError(
                f"remote_worker_ids={list(remote_worker_ids)}: there is no {unknown}; {there_are}."
            )
        return local + list(remote_worker_ids)


@dataclass(frozen=True)
class _WithNumber:
    """Calls the user's function with the runner's number in front."""

    function: Callable[[int, Any], Any]
    number: int

    def __call__(self, env_runner: Any) -> Any:
        return self.function(self.number, env_runner)


# ---- group async calls

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

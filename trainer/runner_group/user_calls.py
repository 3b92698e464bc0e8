"""The user's own code in env runners: functions called where the runners live, at once or later."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from trainer.errors import ConfigError, RunnerLostError
from trainer.metrics import EpisodeRecord
from trainer.runner_group.env_tasks import require_that_it_travels
from trainer.runner_group.pending import Ask, Pending, answers
from trainer.runner_group.records import RunnerRecords
from trainer.runner_group.repair import raise_original
from trainer.runner_group.runners import Runners
from trainer.runtime.engine import StallLimit
from trainer.runtime.messages import Failed, Lost
from trainer_toolkit.undo import undone_on_error

_LOGGER = logging.getLogger(__name__)
_LOOK_EVERY_S: Final = 0.5

OnMetrics = Callable[[list[Any]], None]
"""Called with what users' functions logged in the runners, in the order of the runners."""

Function = Callable[..., Any] | str | Sequence[Callable[..., Any]]
"""What runners are to call: a function, a method's name, or one function for each runner."""


class UserCalls:
    """Calls of users' functions in a group's runners, and what they leave behind.

    Attributes:
        num_recorded: episodes that the functions let evaluation runners play to the end, since the
            evaluation began.
    """

    def __init__(self, records: RunnerRecords, runners: Runners, on_metrics: OnMetrics) -> None:
        self.num_recorded = 0
        self._records = records
        self._runners = runners
        self._on_metrics = on_metrics
        # Episodes that evaluation runners were let play, until they are taken.
        self._episodes: list[EpisodeRecord] = []
        # Calls that are not waited for, by runner, and whether their answer will be fetched.
        self._in_flight: dict[int, bool] = {}
        # Answers that were not fetched yet, and calls that failed.
        self._ready: list[tuple[int, Any]] = []
        self._failures: dict[int, Failed | Lost] = {}

    def begin_evaluation(self) -> None:
        """Forgets the episodes of the last evaluation."""
        self.take_episodes()
        self.num_recorded = 0

    def take_episodes(self) -> list[EpisodeRecord]:
        """The episodes that functions let evaluation runners play; see `take_records`."""
        local = self._runners.local
        if local is not None and local.has_played:
            self.run("ping", list(self._records.by_index))  # fetches what it has played
        episodes, self._episodes = self._episodes, []
        return episodes

    # ---- calls that are waited for

    def run(
        self,
        func: Function,
        indices: Sequence[int],
        *,
        kwargs: Mapping[str, Any] | None = None,
        doing: str = "ran the function given to foreach_env_runner()",
        timeout_s: float | None = None,
    ) -> list[Any]:
        """Calls a function in some runners and waits for all answers.

        A runner may go for `timeout_s` without an env step; None is for ever. `doing` says what the
        runners do, for messages.
        """
        pendings = self._runners.run(asks_for(func, kwargs, indices, stall_limit_s=timeout_s))
        self._take(pendings)
        self._runners.fire_recreated()
        failures = failures_of(pendings)
        _warn_of_timeouts(failures, timeout_s)
        raise_first(failures, doing=doing)
        found = answers(pendings)
        return [found[index].value if index in found else None for index in indices]

    def bring_up_to_date(self, indices: Collection[int]) -> None:
        """Lets runners hold at once what they are to hold: weights, normalisation, positions."""
        ask = Ask("apply", ("ping", {}), is_repeatable=False, limit=self._runners.limit)
        self._take(self._runners.run(dict.fromkeys(indices, ask)))
        self._runners.fire_recreated()

    def _take(self, pendings: Collection[Pending]) -> None:
        """Takes over what users' functions changed, and reports what they logged."""
        self._runners.note(pendings)
        metrics = []
        for index, reply in answers(pendings).items():
            record = self._records.by_index[index]
            record.commit(reply.positions or record.positions, reply.callbacks)
            self._episodes += reply.records
            self.num_recorded += len(reply.records)
            if reply.metrics:
                metrics.append(reply.metrics)
        if metrics:
            self._on_metrics(metrics)

    def chosen(
        self, *, local_env_runner: bool, remote_worker_ids: Sequence[int] | None
    ) -> list[int]:
        """The numbers of the runners that a user means; a ConfigError if one does not exist."""
        is_remote = self._records.is_remote
        remote = list(self._records.by_index) if is_remote else []
        local = [0] if not is_remote and local_env_runner else []
        if remote_worker_ids is None:
            return local + remote
        unknown = sorted(set(remote_worker_ids) - set(remote))
        if unknown:
            there_are = f"there are 1 … {len(remote)}" if remote else "all runs in the main process"
            raise ConfigError(
                f"remote_worker_ids={list(remote_worker_ids)}: there is no {unknown}; {there_are}."
            )
        return local + list(remote_worker_ids)

    # ---- calls that are not waited for

    @property
    def num_in_flight(self) -> int:
        """Calls that are not over."""
        return len(self._in_flight)

    def begin(
        self,
        func: Function,
        indices: Sequence[int],
        *,
        kwargs: Mapping[str, Any] | None = None,
        keeps_answers: bool = True,
    ) -> int:
        """Lets runners call a function, and waits for none of them; how many took the call.

        Answers that are not kept (`keeps_answers`) are dropped.
        """
        asks = asks_for(func, kwargs, indices)
        for ask in asks.values() if self._records.is_remote else ():
            undone = "No env runner was asked"
            require_that_it_travels(ask.arguments, name="the arguments of a call", undone=undone)
        self._advance(0.0)
        if not keeps_answers and not self._in_flight.keys().isdisjoint(asks):
            self._runners.finish()  # else the message that a runner had no time is lost
        if not self._in_flight:
            self._runners.begin(self)
        accepted = [
            index
            for index in asks
            if index not in self._in_flight and not self._records.by_index[index].is_given_up
        ]
        with undone_on_error() as undo:
            undo(self._runners.abandon)
            for index in accepted:
                self._in_flight[index] = keeps_answers
                self._runners.ask(index, asks[index])
        return len(accepted)

    def fetch(self, timeout_s: float | None) -> list[tuple[int, Any]]:
        """The answers that came in and were not fetched; waits for all, or for `timeout_s`."""
        now_s = self._runners.now_s
        until = now_s() + (math.inf if timeout_s is None else timeout_s)
        while not self._advance(min(_LOOK_EVERY_S, max(0.0, until - now_s()))):
            if now_s() >= until:
                break
        self._runners.fire_recreated()
        if not self._in_flight:
            failures, self._failures = self._failures, {}
            raise_first(failures, doing="ran the function given to foreach_env_runner_async()")
        ready, self._ready = self._ready, []
        return ready

    def finish(self) -> None:
        """Waits for all calls."""
        while not self._advance(_LOOK_EVERY_S):
            pass

    def dropped(self) -> None:
        """Nothing will come of the calls in flight."""
        self._in_flight.clear()

    def _advance(self, timeout_s: float) -> bool:
        """Takes what has come in; whether no call is in flight."""
        if not self._in_flight:
            return True
        with undone_on_error() as undo:
            undo(self._runners.abandon)
            ended = self._runners.advance(timeout_s)
            self._take(ended)
            for pending in ended:
                self._sort(pending, is_kept=self._in_flight.pop(pending.index))
        return not self._in_flight

    def _sort(self, pending: Pending, *, is_kept: bool) -> None:
        """Keeps an answer or a failure until it is fetched."""
        if pending.failure is not None and is_kept:
            self._failures.setdefault(pending.index, pending.failure)
        elif pending.failure is not None:
            _LOGGER.warning(
                "Env runner %d %s in a function called without waiting.",
                pending.index,
                pending.failure.describe(),
            )
        elif pending.answer is not None and is_kept:
            self._ready.append((pending.index, pending.answer.value))


def asks_for(
    func: Function,
    kwargs: Mapping[str, Any] | None,
    indices: Sequence[int],
    *,
    stall_limit_s: float | None = None,
) -> dict[int, Ask]:
    """The calls of a user's function in some runners.

    Raises:
        ConfigError: a list of functions has another length.
    """
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
            limit=StallLimit(stall_limit_s, "timeout_seconds"),
        )
        for index, function in zip(indices, functions, strict=True)
    }


@dataclass(frozen=True)
class WithNumber:
    """Calls the user's function with the runner's number in front."""

    function: Callable[[int, Any], Any]
    number: int

    def __call__(self, env_runner: Any) -> Any:
        """What the function gives."""
        return self.function(self.number, env_runner)


@dataclass(frozen=True)
class OfEnvs:
    """Calls the user's function with each sub-env of a runner."""

    function: Callable[..., Any]
    with_context: bool

    def __call__(self, env_runner: Any) -> Any:
        """What the function gives, a list."""
        if self.with_context:
            return env_runner.foreach_env_with_context(self.function)
        return env_runner.foreach_env(self.function)


def failures_of(pendings: Collection[Pending]) -> dict[int, Failed | Lost]:
    """Why calls failed that are not repeated, by runner number."""
    return {each.index: each.failure for each in pendings if each.failure is not None}


def raise_first(failures: Mapping[int, Failed | Lost], *, doing: str) -> None:
    """Raises the failure of the first runner that has one; `doing` says what the runners did."""
    for index, outcome in sorted(failures.items()):
        summary = f"Env runner {index} {outcome.describe()} while it {doing}."
        if isinstance(outcome, Lost):
            raise RunnerLostError(
                f"{summary} That happened twice without env steps in between; the runner is "
                "replaced, and the function not called again."
            )
        raise_original(outcome, summary)


def _warn_of_timeouts(failures: dict[int, Failed | Lost], limit_s: float | None) -> None:
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

"""What runners of a group play: requests ahead, and evaluation tickets on their way through them.

shares   of a runner: tickets k, k + n, … ; its sub-envs take them in turn
taken    by the first who answers; a ticket fixes its episodes, so it makes no difference who
handed   on if a runner is given up, and, in rounds that do not wait, if it is stuck
divided  into single tickets if runners fail again and again, so that what was played stays
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from trainer.env_runners.messages import (
    Assignment,
    PlayCounts,
    PolicySnapshot,
    SampleReply,
    SampleRequest,
    SlotPosition,
)
from trainer.episodes import SingleAgentEpisode
from trainer.metrics import EpisodeRecord
from trainer.runner_group.records import RunnerRecord
from trainer.runner_group.rounds import Ask, RequestRound, Round, RoundResult, wait_for_end
from trainer.runtime.engine import StallLimit
from trainer.runtime.restart_policy import Attempts

# ---- group sample


@dataclass(frozen=True)
class GroupSample:
    """What a group of runners played, in the order of the runners and never of their arrival.

    Attributes:
        episodes: finished episodes and chunks, ordered by env slot, then time.
        records: of finished episodes, ordered by slot, then time.
        numbers: the episode numbers of the records.
        metrics: what callbacks logged, one entry per runner.
        counts: what was played, in numbers.
    """

    episodes: list[SingleAgentEpisode]
    records: list[EpisodeRecord]
    numbers: list[int]
    metrics: list[Any]
    counts: PlayCounts

    @property
    def num_env_steps(self) -> int:
        """Env steps made."""
        return self.counts.num_env_steps

    @classmethod
    def of(cls, replies: Sequence[SampleReply], *, repair_s: float) -> GroupSample:
        """The sample that some replies make up, in that order."""
        return cls(
            episodes=[episode for reply in replies for episode in reply.episodes],
            records=[record for reply in replies for record in reply.records],
            numbers=[number for reply in replies for number in reply.numbers],
            metrics=[reply.metrics for reply in replies],
            counts=sum((reply.counts for reply in replies), PlayCounts(repair_s=repair_s)),
        )


# ---- request ahead
#
# What the next sample is made of, asked for before it is needed. Nothing of it counts until it is
# taken: positions are committed then, and not if the runners are asked for something else first.
# So whether there was time for it makes no difference but to the clock.

_LOGGER = logging.getLogger(__name__)
_LOOK_EVERY_S: Final = 0.1

OnOver = Callable[[RoundResult], None]
"""Called once with what came out of a round."""

OnDropped = Callable[[RoundResult, Exception | None], None]
"""Called once with what came out of a round whose answers are dropped, and what it failed with."""


class RequestAhead:
    """Requests that runners answer while the main process learns.

    Its life: made, which asks; then either `take`, or `finish` or `abandon`, which drop it.
    """

    def __init__(
        self,
        round_: Round,
        records: Mapping[int, RunnerRecord],
        on_dropped: OnDropped,
        *,
        requests: Mapping[int, SampleRequest],
        asks: Mapping[int, Ask],
    ) -> None:
        """Asks every runner, and does not wait.

        `asks` has the requests of runners that can be asked; `on_dropped` is told what came out of
        the round if it is not taken, and why it failed.
        """
        self._round = round_
        self._records = records
        self._on_dropped = on_dropped
        self._requests = dict(requests)
        self._positions = {index: record.positions for index, record in records.items()}
        round_.begin(asks)

    def answers(self, requests: Mapping[int, SampleRequest], policy: PolicySnapshot) -> bool:
        """Whether it is what is asked for now, and runners act as they are to act."""
        return self._requests == requests and all(
            record.is_given_up or record.sent is policy for record in self._records.values()
        )

    def take(self) -> RoundResult:
        """Waits for the answers; its caller commits them."""
        while not self._round.advance(math.inf):
            pass
        return self._round.end()

    def finish(self) -> None:
        """Waits for the answers and drops them: runners are to be asked for something else.

        What the user's code raised is not raised here: it will be when it is asked for again.
        """
        self._round.forgo()
        failure: Exception | None = None
        try:
            while not self._round.advance(_LOOK_EVERY_S):
                pass
        except Exception as error:  # noqa: BLE001 - told; asked for again, the runners raise it again
            failure = error
        result = self._round.end()  # of a round that failed: what had come out of it by then
        self._put_back()
        # Episodes that were given up in it were put back.
        self._on_dropped(replace(result, num_episodes_lost=0, num_env_steps_lost=0), failure)

    def wait(self, timeout_s: float, now_s: Callable[[], float]) -> None:
        """Waits for a while, so that runners have time to end in good order."""
        until = now_s() + timeout_s
        with contextlib.suppress(Exception):  # nothing comes of it any more
            while not self._round.advance(max(0.0, until - now_s())) and now_s() < until:
                pass

    def abandon(self) -> None:
        """Kills workers still busy with it; nothing comes of it."""
        self._round.forgo()
        self._round.abandon()
        self._put_back()

    def _put_back(self) -> None:
        for index, record in self._records.items():
            record.positions, record.is_ahead = self._positions[index], True


# ---- ticket play

_STUCK_AFTER_S: Final = 1.0
_STUCK_AT_THE_END_S: Final = 5.0
_MOST_HOLDERS: Final = 2
_TRIES_WITHOUT_PROGRESS: Final = 2
_MOST_FAILURES: Final = 20

# Single tickets find what all together find, but for callbacks: those hear of them one by one.
_FAILURES_BEFORE_DIVIDING: Final = 3
_FAILURES_BEFORE_DIVIDING_FOR_CALLBACKS: Final = 10

Healthy = Callable[[], list[int]]
"""The numbers of the runners that can be asked; raises if there are none."""


@dataclass(eq=False)
class _Share:
    """Tickets that one request asks for.

    Attributes:
        tickets: at least one.
        tries: how often they were asked for.
        failed: the attempts that failed.
        num_holders: runners that play them now.
        is_done: a runner has answered.
    """

    tickets: tuple[Assignment, ...]
    tries: int = 0
    failed: Attempts = field(default_factory=Attempts)
    num_holders: int = 0
    is_done: bool = False

    @property
    def may_be_tried_again(self) -> bool:
        """Whether it is worth another try in rounds that do not wait."""
        failed = self.failed
        return (
            failed.num_without_progress < _TRIES_WITHOUT_PROGRESS
            and failed.num_failures < _MOST_FAILURES
        )


class TicketPlay:
    """Plays tickets until each has an answer, at once (`finish`) or bit by bit (`advance`).

    Attributes:
        tickets: all of them.
        missing: tickets that no runner could play; only where not all are waited for.
        is_abandoned: it was ended, or an error ended it; there is no outcome.
    """

    def __init__(
        self,
        round_: Round,
        records: Mapping[int, RunnerRecord],
        healthy: Healthy,
        on_over: OnOver,
        *,
        tickets: Sequence[Assignment],
        request: SampleRequest,
        limit: StallLimit,
        waits_for_all: bool,
    ) -> None:
        """Asks every runner for its share of the tickets.

        With `waits_for_all`, every ticket is played, whatever it takes, or an error is raised. Else
        the share of a runner that is stuck or has failed is handed to an idle one, and a ticket
        that fails there as well is missing. `on_over` is called at the end.
        """
        self.tickets = tuple(tickets)
        self.missing: list[Assignment] = []
        self.is_abandoned = False
        self._is_end_requested = False
        self._round = round_
        self._records = records
        self._healthy = healthy
        self._on_over = on_over
        self._request = request
        self._limit = limit
        self._waits_for_all = waits_for_all
        self._waiting: deque[_Share] = deque()
        self._hands: dict[int, _Share] = {}
        # By runner and first ticket, in the order in which they came.
        self._replies: list[tuple[int, int, SampleReply]] = []
        self._creation_metrics: dict[int, list[Any]] = {}
        self._result: RoundResult | None = None
        indices = healthy()
        if request.steps_per_chunk is not None:  # a ticket for each sub-env that there is
            tickets = tickets[: sum(records[index].spec.num_envs for index in indices)]
        shares = [tuple(tickets[number :: len(indices)]) for number in range(len(indices))]
        self._waiting.extend(_Share(share) for share in shares if share)
        round_.begin({})
        try:
            self._hand_out()
        except BaseException:
            self.abandon()
            raise

    # ---- playing

    def finish(self) -> None:
        """Waits until it is over; an interrupt ends it."""
        wait_for_end(self, look_every_s=_LOOK_EVERY_S)

    def advance(self, timeout_s: float = 0.0) -> bool:
        """Takes the answers that are there and hands out what is left to play.

        Returns:
            whether it is over.
        """
        if self._result is not None or self.is_abandoned:
            return True
        try:
            self._round.advance(timeout_s)
            self._take_answers()
            self._take_failures()
            self._drop_who_does_not_end()
            self._hand_out()
        except BaseException:
            self.abandon()
            raise
        if self._waiting or any(not share.is_done for share in self._hands.values()):
            return False
        if self._hands:
            self._round.abandon()  # kills runners still playing what others have answered
        self._result = self._round.end()
        self._on_over(self._result)
        return True

    def request_end(self) -> None:
        """Tells requests that go on until they are told that it is time."""
        self._is_end_requested = True
        if isinstance(self._round, RequestRound):
            self._round.request_end()

    @property
    def num_answers(self) -> int:
        """How many requests were answered."""
        return len(self._replies)

    def commit_again(self, *, since: int) -> None:
        """Takes over where runners stood after answers, when the records were put back to before.

        Those answers are there, whatever else is undone: these tickets are never played again.
        """
        if self.is_abandoned:
            return
        for index, _, reply in self._replies[since:]:
            record = self._records[index]
            record.commit(reply.positions, reply.callbacks)
            record.has_answered = record.is_continued = record.is_ahead = True

    def abandon(self) -> None:
        """Kills workers that still play; nothing more will come of it."""
        self.is_abandoned = True
        self._round.abandon()

    # ---- handing out

    def _hand_out(self) -> None:
        for index in self._healthy():
            if index in self._hands:
                continue
            share = self._next_share()
            if share is None:
                return
            self._ask(index, share)

    def _next_share(self) -> _Share | None:
        if self._waiting:
            return self._waiting.popleft()
        if self._waits_for_all or not isinstance(self._round, RequestRound):
            return None
        for index, share in self._hands.items():
            is_free = not share.is_done and share.num_holders == 1 and share.tries < _MOST_HOLDERS
            if is_free and self._round.is_stuck(index, for_s=_STUCK_AFTER_S):
                return share
        return None

    def _ask(self, index: int, share: _Share) -> None:
        record = self._records[index]
        record.positions = tuple(
            SlotPosition(tasks=position.task_now) for position in record.positions
        )
        share.tries += 1
        share.num_holders += 1
        self._hands[index] = share
        self._round.ask(
            index,
            Ask(
                "sample",
                (replace(self._request, assignments=share.tickets),),
                limit=self._limit,
                must_be_played=self._waits_for_all,
                handed_back_after=self._failures_before_hand_back(record, share),
            ),
        )

    def _failures_before_hand_back(self, record: RunnerRecord, share: _Share) -> int | None:
        if not self._waits_for_all:
            return 1
        if len(share.tickets) == 1 or self._request.steps_per_chunk is not None:
            return None
        callbacks = record.spec.callbacks
        if callbacks.classes or callbacks.functions:
            return _FAILURES_BEFORE_DIVIDING_FOR_CALLBACKS
        return _FAILURES_BEFORE_DIVIDING

    # ---- taking

    def _take_answers(self) -> None:
        for index, reply in self._round.take_answers().items():
            share = self._hands.pop(index)
            share.num_holders -= 1
            if share.is_done:
                continue  # not committed: the runner is put back before it is asked again
            share.is_done = True
            record = self._records[index]
            self._creation_metrics.setdefault(index, record.take_creation_metrics())
            record.commit_reply(reply)
            self._replies.append((index, share.tickets[0].ticket or 0, reply))

    def _take_failures(self) -> None:
        for index, attempt in self._round.take_handed_back().items():
            share = self._hands.pop(index)
            share.failed.add(attempt)
            self._give_back(share)
        for index in [index for index in self._hands if self._records[index].is_given_up]:
            share = self._hands.pop(index)
            if self._waits_for_all:
                self._waiting.append(share)
            else:
                self._give_back(share)

    def _drop_who_does_not_end(self) -> None:
        """Kills hanging workers when an evaluation without fixed length is to end."""
        if not self._is_end_requested or not isinstance(self._round, RequestRound):
            return
        for index, share in self._hands.items():
            if not share.is_done and self._round.is_stuck(index, for_s=_STUCK_AT_THE_END_S):
                share.is_done = True
                self.missing += share.tickets
                _LOGGER.warning(
                    "%s hangs at the end of an evaluation; what it played is left out.",
                    self._records[index].name.capitalize(),
                )

    def _give_back(self, share: _Share) -> None:
        """Lets others try what a runner could not play, ticket by ticket."""
        share.num_holders -= 1
        if share.is_done or share.num_holders:
            return
        if self._request.steps_per_chunk is not None:
            self.missing += share.tickets  # it is not owed
        elif len(share.tickets) > 1:
            # One of them is to blame: the others get as many tries as they need.
            self._waiting.extend(_Share((ticket,)) for ticket in share.tickets)
        elif share.may_be_tried_again:
            self._waiting.append(share)
        else:
            self.missing.append(share.tickets[0])

    # ---- what came out

    def replies(self) -> list[tuple[int, SampleReply]]:
        """Who answered what, in the order of the answers."""
        return [(index, reply) for index, _, reply in self._replies]

    def sample(self) -> GroupSample:
        """What was played, in the order of the tickets."""
        if self._result is None:
            raise RuntimeError("The tickets are still being played.")
        replies = [reply for *_, reply in sorted(self._replies, key=lambda answer: answer[1])]
        sample = GroupSample.of(replies, repair_s=self._result.repair_s)
        created = [
            metrics for _, made in sorted(self._creation_metrics.items()) for metrics in made
        ]
        return replace(sample, metrics=created + sample.metrics)

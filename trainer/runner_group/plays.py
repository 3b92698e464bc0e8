"""Evaluation tickets on their way through the runners of a group.

shares   of a runner: tickets k, k + n, … ; its sub-envs take them in turn
taken    by the first who answers; a ticket fixes its episodes, so it makes no difference who
handed   on if a runner is given up, and, in plays that do not wait, if it is stuck
divided  into single tickets if runners fail again and again, so that what was played stays
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from trainer.env_runners.messages import Assignment, SampleReply, SampleRequest, SlotPosition
from trainer.runner_group.pending import Ask, Pending
from trainer.runner_group.records import RunnerRecord, RunnerRecords
from trainer.runner_group.runners import Runners
from trainer.runner_group.sampling import GroupSample
from trainer.runtime.restart_policy import Attempts
from trainer_toolkit.undo import undone_on_error

_LOGGER = logging.getLogger(__name__)
_LOOK_EVERY_S: Final = 0.1

_STUCK_AFTER_S: Final = 1.0
_STUCK_AT_THE_END_S: Final = 5.0
_MOST_HOLDERS: Final = 2
_TRIES_WITHOUT_PROGRESS: Final = 2
_MOST_FAILURES: Final = 20

# Single tickets find what all together find, but for callbacks: those hear of them one by one.
_FAILURES_BEFORE_DIVIDING: Final = 3
_FAILURES_BEFORE_DIVIDING_FOR_CALLBACKS: Final = 10


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
        """Whether it is worth another try in a play that does not wait for all."""
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
        runners: Runners,
        records: RunnerRecords,
        *,
        tickets: Sequence[Assignment],
        request: SampleRequest,
        waits_for_all: bool,
    ) -> None:
        """Asks every runner for its share of the tickets.

        With `waits_for_all`, every ticket is played, whatever it takes, or an error is raised. Else
        the share of a runner that is stuck or has failed is handed to an idle one, and a ticket
        that fails there as well is missing.
        """
        self.tickets = tuple(tickets)
        self.missing: list[Assignment] = []
        self.is_abandoned = False
        self._is_end_requested = False
        self._runners = runners
        self._records = records
        self._policy = records.policy
        self._request = request
        self._waits_for_all = waits_for_all
        self._waiting: deque[_Share] = deque()
        self._hands: dict[int, _Share] = {}
        self._over: list[Pending] = []
        # By runner and first ticket, in the order in which they came.
        self._replies: list[tuple[int, int, SampleReply]] = []
        self._creation_metrics: dict[int, list[Any]] = {}
        self._is_over = False
        self._repair_s = 0.0
        runners.begin(self)
        indices = records.healthy_or_raise()
        if request.steps_per_chunk is not None:  # a ticket for each sub-env that there is
            tickets = tickets[: sum(records.by_index[index].spec.num_envs for index in indices)]
        shares = [tuple(tickets[number :: len(indices)]) for number in range(len(indices))]
        self._waiting.extend(_Share(share) for share in shares if share)
        with undone_on_error() as undo:
            undo(self._end)
            self._hand_out()

    # ---- playing

    def finish(self) -> None:
        """Waits until it is over; an interrupt ends it."""
        with undone_on_error() as undo:
            undo(self._end)
            while not self.advance(_LOOK_EVERY_S):
                pass

    def advance(self, timeout_s: float = 0.0) -> bool:
        """Takes the answers that are there and hands out what is left to play.

        Returns:
            whether it is over.
        """
        if self._is_over or self.is_abandoned:
            return True
        with undone_on_error() as undo:
            undo(self._end)
            for pending in self._runners.advance(timeout_s):
                self._over.append(pending)
                self._take(pending)
            self._drop_who_does_not_end()
            self._hand_out()
        if self._waiting or any(not share.is_done for share in self._hands.values()):
            return False
        if self._hands:
            self._runners.drop()  # kills runners still playing what others have answered
        self._is_over = True
        self._repair_s = self._runners.note(self._over)
        return True

    def _end(self) -> None:
        """Ends what it has in flight."""
        if self._runners.owner is self:
            self._runners.abandon()

    def request_end(self) -> None:
        """Lets requests that go on until they are told come to their end."""
        self._is_end_requested = True
        if self._runners.owner is self:
            self._runners.request_end()

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
            record = self._records.by_index[index]
            record.commit(reply.positions, reply.callbacks)
            record.has_answered = record.is_continued = record.must_be_put_back = True

    def dropped(self) -> None:
        """Nothing more will come of it."""
        self.is_abandoned = True

    # ---- handing out

    def _hand_out(self) -> None:
        for index in self._records.healthy_or_raise():
            if index in self._hands:
                continue
            share = self._next_share()
            if share is None:
                return
            self._ask(index, share)

    def _next_share(self) -> _Share | None:
        if self._waiting:
            return self._waiting.popleft()
        if self._waits_for_all:
            return None
        for index, share in self._hands.items():
            is_free = not share.is_done and share.num_holders == 1 and share.tries < _MOST_HOLDERS
            if is_free and self._runners.is_stuck(index, for_s=_STUCK_AFTER_S):
                return share
        return None

    def _ask(self, index: int, share: _Share) -> None:
        record = self._records.by_index[index]
        record.positions = tuple(
            SlotPosition(tasks=position.task_now) for position in record.positions
        )
        share.tries += 1
        share.num_holders += 1
        self._hands[index] = share
        ask = Ask(
            "sample",
            (replace(self._request, assignments=share.tickets),),
            limit=self._runners.limit,
            must_be_played=self._waits_for_all,
            handed_back_after=self._failures_before_hand_back(record, share),
        )
        self._runners.ask(index, ask, policy=self._policy)
        if self._is_end_requested:
            self._runners.request_end()

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

    def _take(self, pending: Pending) -> None:
        """Takes an answer, or gives the share back; a runner that was made again has none."""
        share = self._hands.pop(pending.index, None)
        if share is None:
            return
        share.num_holders -= 1
        if pending.answer is None:
            if pending.attempt is not None:
                share.failed.add(pending.attempt)
            self._give_back(share, is_owed=pending.attempt is None and self._waits_for_all)
        elif not share.is_done:  # else not committed: the runner is put back before it is asked
            share.is_done = True
            record = pending.record
            self._creation_metrics.setdefault(pending.index, record.take_creation_metrics())
            record.commit_reply(pending.answer)
            self._replies.append((pending.index, share.tickets[0].ticket or 0, pending.answer))

    def _give_back(self, share: _Share, *, is_owed: bool) -> None:
        """Lets others try what a runner could not play, ticket by ticket."""
        if share.is_done or share.num_holders:
            return
        if is_owed:
            self._waiting.append(share)
        elif self._request.steps_per_chunk is not None:
            self.missing += share.tickets
        elif len(share.tickets) > 1:
            # One of them is to blame: the others get as many tries as they need.
            self._waiting.extend(_Share((ticket,)) for ticket in share.tickets)
        elif share.may_be_tried_again:
            self._waiting.append(share)
        else:
            self.missing.append(share.tickets[0])

    def _drop_who_does_not_end(self) -> None:
        """Kills hanging workers when an evaluation without fixed length is to end."""
        if not self._is_end_requested:
            return
        for index, share in self._hands.items():
            if not share.is_done and self._runners.is_stuck(index, for_s=_STUCK_AT_THE_END_S):
                share.is_done = True
                self.missing += share.tickets
                _LOGGER.warning(
                    "%s hangs at the end of an evaluation; what it played is left out.",
                    self._records.by_index[index].name.capitalize(),
                )

    # ---- what came out

    def replies(self) -> list[tuple[int, SampleReply]]:
        """Who answered what, in the order of the answers."""
        return [(index, reply) for index, _, reply in self._replies]

    def sample(self) -> GroupSample:
        """What was played, in the order of the tickets."""
        if not self._is_over:
            raise RuntimeError("The tickets are still being played.")
        replies = [reply for *_, reply in sorted(self._replies, key=lambda answer: answer[1])]
        sample = GroupSample.of(replies, repair_s=self._repair_s)
        created = [
            metrics for _, made in sorted(self._creation_metrics.items()) for metrics in made
        ]
        return replace(sample, metrics=created + sample.metrics)

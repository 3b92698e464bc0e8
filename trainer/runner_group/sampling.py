"""Samples of a group's runners: one request to each, also ahead of when they are needed.

Samples ahead are asked for while the main process learns. A runner that has answered one begins the
next, and waits for no other runner: it is asked while the main process waits for a sample. (Looking
after runners between gradient steps, too, gained nothing: 0.965 of the time in their envs, with
updates of half a round.) Nothing of them counts until it is taken: slots are put back
if the runners are asked for something else first. So whether there was time for them makes no
difference but to the clock.

    begin()        asks for one more sample, behind those asked for so far
    sample()       waits for the first of them, if that is what is wanted
    finish()       drops all of them: runners are to be asked for something else
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import operator
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from trainer.env_runners.messages import (
    Assignment,
    PlayCounts,
    PolicySnapshot,
    SampleReply,
    SampleRequest,
    share_out,
)
from trainer.episodes import SingleAgentEpisode
from trainer.metrics import EpisodeRecord
from trainer.runner_group.crash_files import CrashFiles
from trainer.runner_group.pending import Ask, Pending, answers
from trainer.runner_group.records import RunnerRecord, RunnerRecords
from trainer.runner_group.runners import Runners
from trainer.runner_group.slot_states import SlotStates

_LOGGER = logging.getLogger(__name__)

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
        counts = [reply.counts for reply in replies]
        if repair_s or not counts:
            counts.append(PlayCounts(repair_s=repair_s))
        return cls(
            episodes=[episode for reply in replies for episode in reply.episodes],
            records=[record for reply in replies for record in reply.records],
            numbers=[number for reply in replies for number in reply.numbers],
            metrics=[reply.metrics for reply in replies],
            counts=functools.reduce(operator.add, counts),
        )


# ---- what is asked


def _of_runner(slots: Sequence[Assignment], record: RunnerRecord) -> tuple[Assignment, ...]:
    first = record.spec.first_slot
    return tuple(slots[first : first + record.spec.num_envs])


@dataclass
class _Ahead:
    """A sample that was asked for before it is needed.

    Attributes:
        asks: by runner number.
        policy: with which it is played.
        pendings: the calls, of those runners that have begun with it.
        is_wanted: it is waited for.
        creation_metrics: what runners logged while they were made, by runner number.
    """

    asks: Mapping[int, Ask]
    policy: PolicySnapshot
    pendings: dict[int, Pending] = field(default_factory=dict)
    is_wanted: bool = False
    creation_metrics: dict[int, list[Any]] = field(default_factory=dict)

    def is_over(self, index: int) -> bool:
        """Whether nothing more is to come of a runner."""
        pending = self.pendings.get(index)
        return pending is not None and pending.is_over


# ---- sampler


class Sampler:
    """Asks a group's runners for samples and commits the answers, all of them or none.

    Attributes:
        num_dropped_ahead: samples that were asked for ahead and dropped so far.
        num_sub_env_restarts: sub-envs that were made anew alone so far.
    """

    def __init__(
        self,
        records: RunnerRecords,
        runners: Runners,
        slot_states: SlotStates,
        crash_files: CrashFiles,
    ) -> None:
        self.num_dropped_ahead = self.num_sub_env_restarts = 0
        self._records = records
        self._runners = runners
        self._slot_states = slot_states
        self._crash_files = crash_files
        self._ahead: deque[_Ahead] = deque()
        self._has_logged_failure = False
        self._unreported_repair_s = 0.0  # of samples that were dropped

    def sample(self, num_steps: int, **options: Any) -> GroupSample:
        """Plays steps, shared out over all slots; arguments as of `asks_for`."""
        asks = self.asks_for(num_steps, **options)
        ahead = self._ahead_for(asks)
        if ahead is not None:
            sample = self._taken(ahead)
        else:
            pendings = self._runners.run(asks)
            sample = self._committed(asks, pendings)
        self._records.healthy_or_raise()
        return sample

    def asks_for(
        self, num_steps: int, *, by_agent: bool, whole_episodes: bool = False, **options: Any
    ) -> dict[int, Ask]:
        """Requests that share steps out over all slots, by runner number.

        Args:
            num_steps: of all slots together.
            by_agent: count agent steps, if there are several agents.
            whole_episodes: every slot ends its last episode.
            options: of `SampleRequest`.
        """
        is_by_agent = by_agent and self._runners.agreement.agents is not None
        unit = "num_agent_steps" if is_by_agent else "num_env_steps"
        shares = share_out(num_steps, self._records.num_slots)
        slots = [
            Assignment(slot, whole_episodes=whole_episodes, **dict[str, Any]({unit: share}))
            for slot, share in enumerate(shares)
        ]
        return {
            index: Ask(
                "sample",
                (SampleRequest(_of_runner(slots, record), **options),),
                max_new_episodes=shares[0],  # of the most steps: no episode is shorter than one
                limit=self._runners.limit,
            )
            for index, record in self._records.by_index.items()
        }

    def _committed(self, asks: Mapping[int, Ask], pendings: Sequence[Pending]) -> GroupSample:
        """Takes over where all slots stand after the answers to requests."""
        repair_s, replies = self._runners.note(pendings), answers(pendings)
        for index, reply in replies.items():
            self._runners.agreement.check_fingerprint(index, reply.mapping_fingerprint)
        policy, created = self._records.policy, []
        for index, reply in replies.items():
            created += self._commit(self._records.by_index[index], asks[index], policy, reply)
        return self._sample_of([*replies.values()], created, repair_s=repair_s)

    def _commit(
        self, record: RunnerRecord, ask: Ask, policy: PolicySnapshot, reply: SampleReply
    ) -> list[Any]:
        """Takes over where a runner's slots stand; what was logged while it was made."""
        if reply.restarts.num_episodes_lost:
            self._keep_lost(record, ask, policy, reply)
        created = record.take_creation_metrics()
        record.commit_reply(reply)
        if ask.arguments[0].rounds is not None and record.sent is not None:
            # It acts with weights that it got between rounds, which nobody sent.
            record.sent = replace(record.sent, weights=None)
        return created

    def _sample_of(
        self, replies: Sequence[SampleReply], created: Sequence[Any], *, repair_s: float
    ) -> GroupSample:
        repair_s, self._unreported_repair_s = repair_s + self._unreported_repair_s, 0.0
        sample = GroupSample.of(replies, repair_s=repair_s)
        self._runners.fire_recreated()
        if created:
            sample = replace(sample, metrics=[*created, *sample.metrics])
        return self.with_losses(sample)

    def _keep_lost(
        self, record: RunnerRecord, ask: Ask, policy: PolicySnapshot, reply: SampleReply
    ) -> None:
        """Keeps a request in which episodes were given up with their sub-env."""
        why = "\n".join(reply.restarts.texts)
        kept = self._crash_files.write(record, policy, *ask.arguments, why=why)
        if kept:
            _LOGGER.warning("%s gave episodes up.%s", record.name.capitalize(), kept)

    def with_losses(self, sample: GroupSample) -> GroupSample:
        """The sample, with what was lost since the last one."""
        self.num_sub_env_restarts += sample.counts.num_sub_env_restarts
        num_episodes, num_env_steps = self._records.take_losses()
        self._slot_states.log_drop()
        if not num_episodes and not num_env_steps:
            return sample
        lost = PlayCounts(num_episodes_lost=num_episodes, num_env_steps_lost=num_env_steps)
        return replace(sample, counts=sample.counts + lost)

    # ---- ahead

    @property
    def num_ahead(self) -> int:
        """Samples that were asked for ahead and are neither taken nor dropped."""
        return len(self._ahead)

    def begin(self, num_steps: int, *, policy: PolicySnapshot | None, **options: Any) -> None:
        """Asks for a sample behind those asked for so far, and does not wait.

        Arguments as of `EnvRunnerGroup.begin_sample` and `asks_for`.
        """
        if not self._ahead:
            self._runners.begin(self)
        now = self._records.policy
        acting = now if policy is None else now.followed_by(policy)
        self._ahead.append(_Ahead(self.asks_for(num_steps, **options), acting))
        self._ask_idle_runners()

    def _advance(self) -> None:
        """Waits for an answer, takes it, and asks its runner for the next sample."""
        for pending in self._runners.advance(math.inf):
            if pending.answer is not None:
                self._take_answer(pending)
        self._ask_idle_runners()

    def _take_answer(self, pending: Pending) -> None:
        index = pending.index
        (ahead,) = [one for one in self._ahead if one.pendings.get(index) is pending]
        self._runners.agreement.check_fingerprint(index, pending.answer.mapping_fingerprint)
        ahead.creation_metrics[index] = self._commit(
            pending.record, ahead.asks[index], ahead.policy, pending.answer
        )

    def _ask_idle_runners(self) -> None:
        for index in self._records.healthy():
            ahead = next((one for one in self._ahead if index not in one.pendings), None)
            if ahead is None or self._runners.is_asked(index):
                continue
            record = self._records.by_index[index]
            record.before_ahead.append(record.stand)
            ahead.pendings[index] = self._runners.ask(
                index, ahead.asks[index], policy=ahead.policy, is_wanted=ahead.is_wanted
            )

    def _ahead_for(self, asks: Mapping[int, Ask]) -> _Ahead | None:
        """The next sample that was asked for ahead, if that is what is wanted now."""
        ahead = self._ahead[0] if self._ahead else None
        if ahead is None or ahead.asks != asks or not ahead.policy.acts_as(self._records.policy):
            return None
        return ahead

    def _taken(self, ahead: _Ahead) -> GroupSample:
        """Waits for the first sample ahead; the later ones are played on."""
        ahead.is_wanted = True
        for pending in ahead.pendings.values():
            pending.is_wanted = True
        while not all(map(ahead.is_over, self._records.healthy())):
            self._advance()
        self._ahead.popleft()
        for index in ahead.pendings:
            del self._records.by_index[index].before_ahead[0]
        pendings, created = [*ahead.pendings.values()], sorted(ahead.creation_metrics.items())
        repair_s = self._runners.note(pendings)
        return self._sample_of(
            [*answers(pendings).values()],
            [metrics for _, logged in created for metrics in logged],
            repair_s=repair_s,
        )

    def wait_for_ahead(self, timeout_s: float) -> None:
        """Waits a while for samples ahead, so that runners have time to end in good order."""
        if self._ahead:
            with contextlib.suppress(Exception):  # nothing comes of it any more
                self._runners.wait(timeout_s)

    def finish(self) -> None:
        """Waits for what runners are at and drops it: they are to be asked for something else.

        What the user's code raised is not raised here: it will be when it is asked for again.
        """
        dropped, failure = [*self._ahead], None
        if not dropped:
            return
        try:
            self._runners.wait()
        except Exception as error:  # noqa: BLE001 - logged; asked for again, the runners raise it again
            failure = error
        self.dropped()
        self._note_dropped(dropped, failure)

    def dropped(self) -> None:
        """Puts the slots back to before the samples ahead."""
        self._ahead.clear()
        for record in self._records:
            record.drop_ahead()

    def _note_dropped(self, dropped: Sequence[_Ahead], failure: Exception | None) -> None:
        if not self.num_dropped_ahead:
            _LOGGER.warning(
                "The env runners were asked for something else (foreach_env_runner(), a new task) "
                "while they sampled ahead. That sample is dropped, and the same steps are played "
                "again. In every iteration this costs more than sample_ahead=True gains. Said "
                "once; fault_tolerance/num_samples_dropped counts them."
            )
        if failure is not None and not self._has_logged_failure:
            self._has_logged_failure = True
            _LOGGER.warning(
                "An env runner failed while it sampled ahead, before that sample was dropped. It "
                "is asked for the same steps again: what its failure follows from is raised then. "
                "Said once.",
                exc_info=failure,
            )
        self.num_dropped_ahead += len(dropped)
        pendings = [pending for ahead in dropped for pending in ahead.pendings.values()]
        self._unreported_repair_s += self._runners.note(pendings, are_dropped=True)

"""Samples of a group's runners: one request to each, also ahead of when they are needed.

A sample ahead is asked for while the main process learns. Nothing of it counts until it is taken:
positions are committed then, and put back if the runners are asked for something else first. So
whether there was time for it makes no difference but to the clock.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
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
from trainer_toolkit.undo import Undo

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


@dataclass(frozen=True)
class _Ahead:
    """A sample that was asked for before it is needed.

    Attributes:
        asks: by runner number.
        policy: with which it is played.
        pendings: the calls.
        undo: puts the slots back to before it.
    """

    asks: Mapping[int, Ask]
    policy: PolicySnapshot
    pendings: Sequence[Pending]
    undo: Undo


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
        self._ahead: _Ahead | None = None
        self._has_logged_failure = False
        self._unreported_repair_s = 0.0  # of samples that were dropped

    def sample(self, num_steps: int, **options: Any) -> GroupSample:
        """Plays steps, shared out over all slots; arguments as of `asks_for`."""
        asks = self.asks_for(num_steps, **options)
        pendings = self._taken_ahead(asks)
        if pendings is None:
            pendings = self._runners.run(asks)
        repair_s = self._runners.note(pendings)
        sample = self._committed(asks, answers(pendings), repair_s=repair_s)
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

    def _committed(
        self,
        asks: Mapping[int, Ask],
        replies: Mapping[int, SampleReply],
        *,
        repair_s: float,
    ) -> GroupSample:
        """Takes over where all slots stand after the answers to requests."""
        creation_metrics = []
        for index, reply in replies.items():
            self._runners.agreement.check_fingerprint(index, reply.mapping_fingerprint)
        for index, reply in replies.items():
            record = self._records.by_index[index]
            if reply.restarts.num_episodes_lost:
                self._keep_lost(record, asks[index], reply)
            creation_metrics += record.take_creation_metrics()
            record.commit_reply(reply)
            if asks[index].arguments[0].rounds is not None and record.sent is not None:
                # It acts with weights that it got between rounds, which nobody sent.
                record.sent = replace(record.sent, weights=None)
        repair_s, self._unreported_repair_s = repair_s + self._unreported_repair_s, 0.0
        sample = GroupSample.of([*replies.values()], repair_s=repair_s)
        self._runners.fire_recreated()
        if creation_metrics:
            sample = replace(sample, metrics=creation_metrics + sample.metrics)
        return self.with_losses(sample)

    def _keep_lost(self, record: RunnerRecord, ask: Ask, reply: SampleReply) -> None:
        """Keeps a request in which episodes were given up with their sub-env."""
        why = "\n".join(reply.restarts.texts)
        kept = self._crash_files.write(record, self._records.policy, *ask.arguments, why=why)
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

    def begin(self, num_steps: int, **options: Any) -> None:
        """Asks for the next sample, and does not wait; arguments as of `asks_for`."""
        self._runners.begin(self)
        asks, undo = self.asks_for(num_steps, **options), self._slot_states.mark()
        pendings = [
            self._runners.ask(index, asks[index], is_wanted=False)
            for index in self._records.healthy()
        ]
        self._ahead = _Ahead(asks, self._records.policy, pendings, undo)

    def _taken_ahead(self, asks: Mapping[int, Ask]) -> Sequence[Pending] | None:
        """The calls of the sample that was asked for ahead, if that is what is wanted now."""
        ahead = self._ahead
        if ahead is None or ahead.asks != asks or ahead.policy is not self._records.policy:
            return None
        self._ahead = None
        for pending in ahead.pendings:
            pending.is_wanted = True
        self._runners.wait()
        return ahead.pendings

    def wait_for_ahead(self, timeout_s: float) -> None:
        """Waits a while for the sample ahead, so that runners have time to end in good order."""
        if self._ahead is not None:
            with contextlib.suppress(Exception):  # nothing comes of it any more
                self._runners.wait(timeout_s)

    def finish(self) -> None:
        """Waits for the sample ahead and drops it: runners are to be asked for something else.

        What the user's code raised is not raised here: it will be when it is asked for again.
        """
        ahead, failure = self._ahead, None
        if ahead is None:
            return
        try:
            self._runners.wait()
        except Exception as error:  # noqa: BLE001 - logged; asked for again, the runners raise it again
            failure = error
        self.dropped()
        self._note_dropped(ahead.pendings, failure)

    def dropped(self) -> None:
        """Puts the slots back to before the sample ahead."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.undo()

    def _note_dropped(self, pendings: Collection[Pending], failure: Exception | None) -> None:
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
        self.num_dropped_ahead += 1
        self._unreported_repair_s += self._runners.note(pendings, are_dropped=True)

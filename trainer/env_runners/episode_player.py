"""Plays assignments in the slots of one runner: begins and ends episodes, fires their events.

What one slot experiences does not depend on its neighbours: its seeds and noise come from its own
position, and the module's acting forward computes each row with the same bits whatever the other
rows are. So it makes no difference how slots are spread over runners.

Here is what episodes of one agent and of several have in common. How a step is made and recorded
is in `single_agent_player` and in `multi_agent_player`, and neither knows the other.
"""

from __future__ import annotations

import abc
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final, Protocol

import gymnasium

from trainer.connectors import Normalization
from trainer.env_runners.acting import Policy
from trainer.env_runners.env_slot import EnvSlot
from trainer.env_runners.messages import (
    PUTTING_BACK,
    STEPPING,
    ActivityNotes,
    Assignment,
    EnvRunnerSpec,
    PlayTimes,
    Rounds,
    RunnerParts,
    SampleRequest,
    SlotPosition,
    share_out,
)
from trainer.env_runners.sub_env_repair import SubEnvRepair
from trainer.env_runners.trajectories import TRAJECTORY_EVENT, note_rewrites_of, rewards_of
from trainer.episodes import SingleAgentEpisode
from trainer.episodes.single_agent_episode import ActingRequest
from trainer.metrics import EpisodeRecord
from trainer.modules import ByModule, RLModule
from trainer.runtime.engine import Signals
from trainer.seeding import EnvSeeds, Role, evaluation_index, training_index
from trainer.types import ModuleId

# ---- episode events

_BEGINS: Final = ("on_episode_created", "on_episode_start")
_EVENTS: Final = ("on_episode_created", "on_episode_start", "on_episode_step", "on_episode_end")


class EpisodeEvents:
    """Fires what concerns a running episode; events without a listener cost nothing.

    Attributes:
        listens_to_begins, listens_to_steps, listens_to_ends: whether callbacks do.
        seconds: spent in callbacks so far.
    """

    def __init__(
        self, runner: RunnerParts, slots: Sequence[EnvSlot], activity: ActivityNotes
    ) -> None:
        self.seconds = 0.0
        self._runner = runner
        self._activity = activity
        self._slots_with_tasks = [slot for slot in slots if slot.tasks is not None]
        emitters = {event: runner.callbacks.emitter(event) for event in _EVENTS}
        self._emitters = {event: emit for event, emit in emitters.items() if emit is not None}
        self.listens_to_begins = not self._emitters.keys().isdisjoint(_BEGINS)
        self.listens_to_steps = "on_episode_step" in self._emitters
        self.listens_to_ends = "on_episode_end" in self._emitters

    def fire(self, event: str, slot: EnvSlot, **more: Any) -> None:
        """Fires an event for the running episode of a slot."""
        emit = self._emitters.get(event)
        if emit is None:
            return
        runner, begun = self._runner, time.perf_counter()
        self._activity.doing(event)
        emit(
            episode=slot.episode,
            env_runner=runner,
            metrics_logger=runner.metrics,
            env=runner.env,
            rl_module=runner.module,
            env_index=slot.index,
            **more,
        )
        self.notice_tasks()
        self.seconds += time.perf_counter() - begun

    def notice_tasks(self) -> None:
        """Notes tasks that user code changed: a callback may reach every sub-env of its runner."""
        for slot in self._slots_with_tasks:
            slot.notice_task()


# ---- endless episodes
#
# Says so when whole episodes were asked for and none comes to its end; ends an evaluation then.
# An env whose episodes never end makes such a request run for ever, without a sign of what it
# waits for. It may also just have long episodes, so the request goes on; that of an evaluation
# only as long as `evaluation_sample_timeout_s` says.

_LOGGER = logging.getLogger(__name__)

PATIENCE_S: Final = 60.0
"""Seconds without the end of an episode …"""
PATIENCE_STEPS: Final = 1000
"""… and steps of one, after which it is said."""


class EndlessEpisodes:
    """Watches one request.

    watch = EndlessEpisodes.of(spec, request)     None: the request counts steps
    if watch.look(slots, num_ended=…):     after each step of all slots
        end the request
    """

    @classmethod
    def of(cls, spec: EnvRunnerSpec, request: SampleRequest) -> EndlessEpisodes | None:
        """None if no end of an episode is waited for."""
        is_needed = any(one.whole_episodes or one.num_episodes for one in request.assignments)
        return cls(spec) if is_needed else None

    def __init__(self, spec: EnvRunnerSpec, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._spec = spec
        self._clock = clock
        self._num_ended = 0
        self._ended_at = clock()
        self._limit_s = spec.episode_limit_s
        self._is_silent = False

    def look(self, slots: Sequence[EnvSlot], *, num_ended: int) -> bool:
        """Logs a warning, once, when no episode has ended for too long.

        Returns:
            whether the request is to end as it is.
        """
        if num_ended != self._num_ended:
            self._num_ended, self._ended_at = num_ended, self._clock()
            return False
        waited_s = self._clock() - self._ended_at
        if self._limit_s is not None and waited_s >= self._limit_s:
            return True
        if waited_s >= PATIENCE_S and not self._is_silent:
            longest = max(slots, key=lambda slot: slot.num_steps_played)
            if longest.num_steps_played >= PATIENCE_STEPS:
                self._is_silent = True
                self._warn_of_endless_episode(longest)
        return False

    def _warn_of_endless_episode(self, slot: EnvSlot) -> None:
        setting = (
            'evaluation(evaluation_duration_unit="timesteps")'
            if self._spec.in_evaluation
            else 'env_runners(batch_mode="truncate_episodes")'
        )
        _LOGGER.warning(
            "Env %r: no episode has ended for %.0f s; the one of sub-env %d of env runner %d has "
            "%d steps so far. Whole episodes were asked for, so this goes on until %s. If "
            "they never do, limit them with gymnasium.wrappers.TimeLimit(env, max_episode_steps=…) "
            "or ask for steps: %s.",
            self._spec.env_factory.name,
            self._clock() - self._ended_at,
            slot.index,
            self._spec.worker_index,
            slot.num_steps_played,
            "they end"
            if self._limit_s is None
            else f"they end, or none does within evaluation_sample_timeout_s={self._limit_s}",
            setting,
        )


# ---- rounds


class RoundsInTurn:
    """Says when a round of a request is over, and what was played in it."""

    def __init__(self, rounds: Rounds, slots: Sequence[EnvSlot]) -> None:
        """The first one begins."""
        self._rounds, self._slots = rounds, slots
        self._steps_left = rounds.steps_per_slot
        self._num_ended = [0] * len(slots)  # of which earlier rounds have heard

    def is_over_after_step(self) -> bool:
        """Counts a step of every slot; whether it was the last one of a round."""
        self._steps_left -= 1
        return self._steps_left == 0

    def end(self, samples: Sequence[Sequence[Any]], module: RLModule) -> int:
        """Ends the round; see `Rounds.end_round`.

        Args:
            samples: the episodes of the request that have ended, by slot.
            module: what acts.
        """
        played: list[Any] = []
        for slot, ended in zip(self._slots, samples, strict=True):
            played += ended[self._num_ended[slot.index] :]
            self._num_ended[slot.index] = len(ended)
            if slot.episode is not None:
                played.append(slot.episode)
        self._steps_left = self._rounds.steps_per_slot
        return self._rounds.end_round(played, module)


# ---- finished records


class FinishedRecords:
    """Records ordered by round, then slot, then time; a request without rounds is one round.

    So windows over episodes hold the same ones however slots are spread over runners, and however
    many rounds are asked for at once.
    """

    def __init__(self) -> None:
        self._records: list[EpisodeRecord] = []
        self._numbers: list[int] = []
        self._slots: list[tuple[int, int]] = []  # of each the round and the slot
        self._new: list[EpisodeRecord] = []
        self._num_rounds = 0
        self._is_ordered = True

    def __len__(self) -> int:
        return len(self._records)

    @property
    def records(self) -> list[EpisodeRecord]:
        """Of the finished episodes."""
        self._put_in_order()
        return self._records

    @property
    def numbers(self) -> list[int]:
        """Their episode numbers."""
        self._put_in_order()
        return self._numbers

    def add(self, slot_index: int, number: int, record: EpisodeRecord) -> None:
        """Adds the newest episode of a slot."""
        self._slots.append((self._num_rounds, slot_index))
        self._records.append(record)
        self._numbers.append(number)
        self._new.append(record)
        self._is_ordered = False

    def end_round(self) -> None:
        """What is added from now on comes after what there is."""
        self._num_rounds += 1

    def _put_in_order(self) -> None:
        """Orders by round and slot; those of one slot stay in order of time."""
        if self._is_ordered:
            return
        order = sorted(range(len(self._slots)), key=self._slots.__getitem__)
        self._slots = [self._slots[place] for place in order]
        self._records = [self._records[place] for place in order]
        self._numbers = [self._numbers[place] for place in order]
        self._is_ordered = True

    def note_rewrites(self, rewritten: Mapping[str, Any]) -> None:
        """Gives the records of episodes, by id, whose rewards were rewritten that return."""
        for place, record in enumerate(self._records):
            if record.id_ in rewritten:
                amount = rewritten[record.id_].get_rewritten_return()
                self._records[place] = replace(record, rewritten_return=amount)

    def take_new(self) -> list[EpisodeRecord]:
        """The records that were added since this was last called, in order of time."""
        new, self._new = self._new, []
        return new


# ---- episode player


class Trajectories(Protocol):
    """Shows chunks to `on_postprocess_trajectory`."""

    def normalize_with(self, normalization: ByModule[Normalization]) -> None:
        """Shows columns that follow from observations and rewards as these make them."""

    def fire(self, episode: Any) -> ChunkRewrite | None:
        """Fires the event; what is to be written into the chunk."""


class ChunkRewrite(Protocol):
    """What callbacks changed in a chunk."""

    def write_to(self, chunk: Any) -> None:
        """Writes the changes into the chunk; `get_return()` stays what the env paid."""


class EpisodePlayer(abc.ABC):
    """Steps the sub-envs of a runner side by side: one forward pass for all of them per step.

    Order of events per vector step: all sub-envs step; then, slot by slot: `on_episode_step`, and
    if the episode is over `on_postprocess_trajectory` and `on_episode_end`, and
    `on_episode_created` and `on_episode_start` of the next one if the slot still has to play. When
    all has been played: `on_postprocess_trajectory` of the running episodes, slot by slot.

    Attributes:
        slots: one per sub-env.
        policies: what acts, by module.
        num_env_steps: steps made.
        resetting_s: seconds spent in resets so far.
        repair: makes sub-envs that failed anew.
        activity: what it is doing.
        finished: what remains of the finished episodes.
        evaluation: evaluation runners: the stream of randomness of the slots' own episodes.
        episode_class: of the episodes that it hands out.
    """

    episode_class: ClassVar[type] = SingleAgentEpisode

    def __init__(self, runner: RunnerParts, *, signals: Signals | None) -> None:
        """Prepares the slots.

        The signals are shared with the main process, which sees there that the runner makes
        progress.
        """
        spec = runner.spec
        self.num_env_steps, self.resetting_s = 0, 0.0
        self._runner, self._spec = runner, spec
        self._role_name = spec.role.name.lower()
        self._signals = signals
        self.policies = self._make_policies()
        self.slots = [self._make_slot(index, env) for index, env in enumerate(runner.env.envs)]
        self.activity = ActivityNotes(signals)
        self.repair = SubEnvRepair(runner, self.activity, to_env=self.to_env, on_step=self.tick)
        self._slot_at_work: EnvSlot | None = None
        self._must_check_step = True
        # Who listens to steps may write into the running episode: only its record changes then.
        self._keeps_apart = runner.callbacks.emitter("on_episode_step") is not None
        self.finished = FinishedRecords()
        self.evaluation = 0
        self._inference_s = self._stepping_s = self._callbacks_s = 0.0
        self._seeds = EnvSeeds(runner.spec.root_seed)
        self._events = EpisodeEvents(runner, self.slots, self.activity)
        self._fire, self.notice_tasks = self._events.fire, self._events.notice_tasks
        self._listens_to_steps = self._events.listens_to_steps
        self._keeps_chunks = self._events.listens_to_ends
        self._trajectories = self._make_trajectories()

    # ---- what each kind does its own way

    @abc.abstractmethod
    def _make_policies(self) -> ByModule[Policy]:
        """What acts, by module."""

    @abc.abstractmethod
    def _make_slot(self, index: int, env: gymnasium.Env[Any, Any]) -> EnvSlot:
        """The slot of a sub-env."""

    @abc.abstractmethod
    def _make_trajectories(self) -> Trajectories | None:
        """Shows chunks to callbacks; None without a listener."""

    @property
    @abc.abstractmethod
    def to_env(self) -> Callable[[Any], Any]:
        """Turns what is to be done into what the env takes."""

    @abc.abstractmethod
    def steps_by_id(self) -> dict[str, Any]:
        """`num_agent_steps` and `num_module_steps` since they were last reported."""

    @abc.abstractmethod
    def _make_episode(self, slot: EnvSlot, id_: str, index: int) -> Any:
        """A new episode, the `index`-th of its role."""

    @abc.abstractmethod
    def _take_reset(self, slot: Any, episode: Any, answer: Any) -> None:
        """Takes what the env answered to the reset into the episode."""

    @abc.abstractmethod
    def _go_on(self, slot: Any, episode: Any) -> None:
        """Goes on with the running episode of a slot."""

    @abc.abstractmethod
    def _act(self, active: list[Any], request: ActingRequest) -> tuple[list[Any], list[Any]]:
        """What to do in each slot, and the extra outputs that come with it, by slot."""

    @abc.abstractmethod
    def _draw_uniformly(self, active: list[Any]) -> tuple[list[Any], list[Any] | None]:
        """Actions drawn uniformly, not chosen by modules, and their outputs, if there are any."""

    @abc.abstractmethod
    def _add_logp(self, episodes: Sequence[Any]) -> None:
        """Adds the log-likelihoods of the episodes' actions as an extra output."""

    @abc.abstractmethod
    def _step(self, active: list[Any], actions: list[Any], outputs: list[Any] | None) -> bool:
        """One step of every active sub-env; whether some episode or assignment came to its end."""

    @abc.abstractmethod
    def _finish_columns(self, episodes: Sequence[Any]) -> None:
        """Checks the columns of what is handed out, and makes arrays of them."""

    @abc.abstractmethod
    def _record_of(self, episode: Any) -> EpisodeRecord:
        """What remains of an episode that has ended."""

    def chunks_of(self, episode: Any) -> Sequence[Any]:
        """The chunks of an episode that hold rewards; of one agent it is that itself."""
        return [episode]

    # ---- between two requests

    def set_exploration(self, module_id: ModuleId, state: Mapping[str, Any]) -> None:
        """Takes over what the main process' strategy of a module knows."""
        self.policies[module_id].set_state(state)

    def normalize_with(self, normalization: ByModule[Normalization]) -> None:
        """Plays with observations as these make them."""
        for id_, policy in self.policies.items():
            policy.normalize_with(normalization[id_])
        if self._trajectories is not None:
            self._trajectories.normalize_with(normalization)

    def replace_envs_that_cannot_go_back(self, positions: Sequence[SlotPosition]) -> None:
        """Makes those sub-envs anew that are to stand as they were made and cannot otherwise."""
        for slot, position in zip(self.slots, positions, strict=True):
            if slot.needs_other_env(position):
                self.repair.make_again(slot)

    def put_back(self, slot: EnvSlot, position: SlotPosition) -> bool:
        """Brings a slot to where it stood; see `EnvSlot.put_back`."""
        stream = self._stream_of(slot)
        self.activity.doing(PUTTING_BACK)
        return self.repair.put_back(
            slot,
            position,
            lambda on_step: slot.put_back(position, stream, self.to_env, on_step=on_step),
        )

    def _stream_of(self, slot: EnvSlot) -> int:
        spec = self._spec
        return self.evaluation if spec.in_evaluation else spec.first_slot + slot.index

    def own_assignments(self) -> list[Assignment]:
        """For every slot, the one that goes on with its own episodes, without an end."""
        # The slots of an evaluation have one stream in common, so their numbers step over others.
        stride = self._spec.num_slots if self._spec.in_evaluation else 1
        return [Assignment(self._stream_of(slot), stride=stride) for slot in self.slots]

    def forget_unreported(self) -> None:
        """Forgets what was played since it was last reported."""
        self.finished = FinishedRecords()
        self.num_env_steps = 0

    def take_times(self) -> PlayTimes:
        """Where the time went since this was last called."""
        events = self._events
        times = PlayTimes(
            env_step=self._stepping_s,
            env_reset=self.resetting_s,
            inference=self._inference_s,
            callbacks=self._callbacks_s + events.seconds,
        )
        self._inference_s = self._stepping_s = self._callbacks_s = 0.0
        self.resetting_s = events.seconds = 0.0
        return times

    @contextlib.contextmanager
    def timing_callbacks(self) -> Iterator[None]:
        """Counts the seconds of the block as time of callbacks."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self._callbacks_s += time.perf_counter() - begun

    def play(self, request: SampleRequest) -> list[Any]:
        """Plays what is asked.

        Returns:
            finished episodes and chunks of running ones, ordered by slot, then time.
        """
        self.tick()  # what fails from now on fails in this request
        if request.force_reset:
            self._give_up_episodes()
        explore = self._spec.explore if request.explore is None else request.explore
        acting = ActingRequest(request.timestep, explore)
        for policy in self.policies.values():
            policy.refresh()
        samples: list[list[Any]] = [[] for _ in self.slots]
        waiting = deque(request.assignments)
        active = self._take_up(self.slots, waiting)
        watch = EndlessEpisodes.of(self._spec, request)
        rounds = None if request.rounds is None else RoundsInTurn(request.rounds, self.slots)
        clock = time.perf_counter
        while active:
            begun = clock()
            actions, outputs = (
                self._draw_uniformly(active)
                if request.random_actions
                else self._act(active, acting)
            )
            acted = clock()
            needs_attention = self._step(active, actions, outputs)
            self._inference_s += acted - begun
            self._stepping_s += clock() - acted
            if needs_attention or self._listens_to_steps:
                active = self._after_step(active, waiting, samples)
            if rounds is not None and rounds.is_over_after_step():
                acting = ActingRequest(rounds.end(samples, self._runner.module), explore)
                self.finished.end_round()
                for policy in self.policies.values():
                    policy.refresh()
            if watch is not None and watch.look(active, num_ended=len(self.finished)):
                self._give_up_episodes()  # those that have ended are handed out
                break
        return self._hand_out(samples)

    def _hand_out(self, samples: list[list[Any]]) -> list[Any]:
        """Cuts the running episodes and brings all that was played into its final form."""
        rewrites = [self._postprocess(slot) for slot in self.slots]
        self.notice_tasks()
        self._slot_at_work = None
        for slot in self.slots:
            slot.note_steps_ahead()
        chunks = [(slot, slot.cut(self._spec.lookback)) for slot in self.slots]
        for slot, chunk in chunks:
            if chunk is not None:
                samples[slot.index].append(chunk)
        episodes = [episode for of_slot in samples for episode in of_slot]
        self._finish_columns(episodes)
        for (slot, chunk), rewrite in zip(chunks, rewrites, strict=True):
            if chunk is not None:
                slot.remember(chunk, keep_chunk=self._keeps_chunks)
                if rewrite is not None:
                    rewrite.write_to(chunk)
                    slot.follow(chunk)
        self._add_logp(episodes)  # last, so that it is that of rewritten actions
        return episodes

    def _postprocess(self, slot: EnvSlot) -> ChunkRewrite | None:
        """Shows the running chunk to callbacks; what they rewrote in it."""
        episode = slot.episode
        if self._trajectories is None or episode is None or len(episode) == 0:
            return None
        self._slot_at_work = slot
        self.activity.doing(TRAJECTORY_EVENT)
        with self.timing_callbacks():
            return self._trajectories.fire(episode)

    # ---- between two steps

    def _after_step(
        self, active: list[EnvSlot], waiting: deque[Assignment], samples: list[list[Any]]
    ) -> list[EnvSlot]:
        """Fires a step's events, ends and starts episodes; returns the slots that play on."""
        still_active = []
        for slot in active:
            self._slot_at_work = slot
            if self._listens_to_steps and slot.episode is not None:
                self._fire("on_episode_step", slot)
            if slot.episode is not None and slot.episode.is_done:
                samples[slot.index].append(self._end_episode(slot, slot.episode))
            if slot.has_finished:
                if waiting:
                    slot.drop()
                still_active += self._take_up([slot], waiting)
                continue
            if slot.episode is None and not self._starts(slot):
                continue
            still_active.append(slot)
        self._slot_at_work = None
        self.activity.doing(STEPPING)
        return still_active

    # ---- episodes

    def _take_up(self, slots: Sequence[EnvSlot], waiting: deque[Assignment]) -> list[EnvSlot]:
        """Gives slots their next assignments and starts their episodes; returns those that play."""
        active = []
        for slot in slots:
            if not waiting:
                break
            slot.assign(waiting.popleft())
            if slot.has_finished:
                continue
            if slot.episode is not None:
                self._go_on(slot, slot.episode)
            elif not self._starts(slot):
                continue
            active.append(slot)
        self.activity.doing(STEPPING)
        return active

    def _starts(self, slot: EnvSlot) -> bool:
        """Begins the slot's next episode; False: not yet, its env is not ready for another one."""
        self._start_episode(slot)
        return True

    def _start_episode(self, slot: EnvSlot) -> None:
        while not self._has_started_episode(slot):
            pass  # it was given up; see `SubEnvRepair`

    def _has_started_episode(self, slot: EnvSlot) -> bool:
        """Begins the slot's next episode; whether its reset succeeded."""
        self._slot_at_work = slot
        spec = self._spec
        stream, number = slot.assignment.stream, slot.episode_number
        if spec.role is Role.EVALUATION:
            index = evaluation_index(stream, number)
        else:
            index = training_index(stream, number, spec.num_slots)
        seed = self._seeds.seed(spec.role, index)
        id_ = f"{self._role_name}-{stream}-{number}"
        slot.begin(self._make_episode(slot, id_, index), seed)
        self._fire("on_episode_created", slot)
        self.activity.episode_begins(slot.index, stream=stream, number=number, seed=seed)
        answer = self._reset(slot)
        if slot.episode is None:
            return False
        self._take_reset(slot, slot.episode, answer)
        self.tick()
        slot.notice_task()
        self._fire("on_episode_start", slot)
        return True

    def _end_episode(self, slot: EnvSlot, episode: Any) -> Any:
        rewrite = self._postprocess(slot)
        if rewrite is not None:
            rewrite.write_to(episode)
        if self._keeps_chunks:
            self._add_logp([episode])
            paid = rewards_of(self.chunks_of(episode))
            self._fire("on_episode_end", slot, prev_episode_chunks=slot.earlier_chunks)
            note_rewrites_of(self.chunks_of(episode), paid)
        # Made after the events, so that what they store in the episode is reported, and before
        # `on_sample_end`, so that rewards rewritten there do not change the reported return.
        record = self._record_of(episode)
        self.finished.add(slot.index, slot.episode_number, record)
        self.repair.note_progress(slot)
        slot.finish()
        return episode

    def _give_up_episodes(self) -> None:
        for slot in self.slots:
            if slot.episode is not None:
                slot.drop()
                slot.episode_number += slot.assignment.stride

    # ---- the loop over env steps

    def _step_on(
        self,
        first: int,
        error: Exception,
        active: list[EnvSlot],
        actions: list[Any],
        outputs: list[Any] | None,
    ) -> bool:
        """Goes on with a step that a sub-env failed in, sub-env by sub-env; see `_step`."""
        must_check, needs_attention = self._must_check_step, False
        self.num_env_steps += first
        for row in range(first, len(active)):
            slot, this = active[row], slice(row, row + 1)
            if row == first and not self._repair(slot, error):
                needs_attention = True  # it begins another episode
                continue
            self._must_check_step = must_check
            needs_attention |= self._step(
                active[this], actions[this], None if outputs is None else outputs[this]
            )
            if row == first and slot.episode is not None:
                self.repair.note_progress(slot)
        self._slot_at_work = None
        return needs_attention

    def _repair(self, slot: EnvSlot, error: Exception) -> bool:
        """Makes a sub-env anew; whether its episode goes on. If not, its steps are not counted."""
        is_back = self.repair.repair_slot(slot, error)
        if not is_back:
            self.num_env_steps -= slot.give_up()
        self.activity.doing(STEPPING)
        return is_back

    def tick(self) -> None:
        """Shows that the runner makes progress."""
        if self._signals is not None:
            self._signals.num_heartbeats += 1

    def _reset(self, slot: EnvSlot) -> Any:
        """What the env answers to the reset of the slot's episode, which may be given up."""
        while slot.episode is not None:
            begun = time.perf_counter()
            try:
                return slot.reset()
            except Exception as error:  # noqa: BLE001 - raised again unless repaired
                failure = error
            finally:
                self.resetting_s += time.perf_counter() - begun
            self._repair(slot, failure)
        return None

    def failure_context(self) -> dict[str, Any]:
        """Where an error happened: what a user needs to play that episode again."""
        context = {} if self._slot_at_work is None else self._slot_at_work.failure_context()
        return {**context, "during": self.activity.last} if self.activity.last else context


# ---- chunks until told
#
# Requests without an end of their own: chunk after chunk, until the main process says so. An
# evaluation that lasts as long as a training step (`evaluation_duration="auto"`) cannot know how
# long that is. The flag is in shared memory, so the main process need not look after its runners
# while it learns.

_CHUNK_S: Final = 0.05
"""How long a chunk should take: what training waits for at most, if the env is fast enough."""


def chunks_until_end(
    request: SampleRequest, *, num_envs: int, signals: Signals | None
) -> Iterator[SampleRequest]:
    """The chunks of a request; at least one.

    Without signals, the end is told already.

    Yields:
        requests with env steps, which the same episodes run through.
    """
    least, most = request.steps_per_chunk or (1, 1)
    num_steps, assignments = least, request.assignments
    force_reset = request.force_reset
    while True:
        shares = share_out(max(num_steps, num_envs), num_envs)
        started_at = time.perf_counter()
        yield replace(
            request,
            assignments=tuple(
                replace(slot, num_env_steps=share)
                for slot, share in zip(assignments, shares, strict=True)
            ),
            force_reset=force_reset,
        )
        if signals is None or signals.must_end:
            return
        took_s = max(time.perf_counter() - started_at, 1e-6)
        num_steps = min(max(int(num_steps * _CHUNK_S / took_s), least), max(most, least))
        assignments = tuple(replace(slot, ticket=None) for slot in assignments)
        force_reset = False

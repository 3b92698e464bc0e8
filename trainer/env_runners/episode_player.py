"""Plays assignments in the slots of one runner: begins and ends episodes, fires their events.

What one slot experiences does not depend on its neighbours: its seeds and noise come from its own
position, and the module's acting forward computes each row with the same bits whatever the other
rows are. So it makes no difference how slots are spread over runners.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterator, Sequence

from trainer.connectors import Normalization
from trainer.env_runners.endless_episodes import EndlessEpisodes
from trainer.env_runners.env_slot import EnvSlot
from trainer.env_runners.episode_events import EpisodeEvents
from trainer.env_runners.finished_records import FinishedRecords
from trainer.env_runners.misshapen_answers import parts_of_reset
from trainer.env_runners.observations import copied, copied_info
from trainer.env_runners.runner_parts import RunnerParts
from trainer.env_runners.spec import Assignment, PlayTimes, SampleRequest, SlotPosition
from trainer.env_runners.step_loop import StepLoop
from trainer.env_runners.trajectories import Rewrite
from trainer.env_runners.trajectory_event import EVENT as TRAJECTORY_EVENT
from trainer.env_runners.trajectory_event import TrajectoryEvent
from trainer.env_runners.whereabouts import PUTTING_BACK, STEPPING
from trainer.envs.env_checks import check_reset
from trainer.envs.episode_checks import check_rewards
from trainer.episodes import SingleAgentEpisode
from trainer.episodes.conversion import to_numpy_together
from trainer.metrics import EpisodeRecord
from trainer.runtime.worker_main import CallSignals
from trainer.seeding import EnvSeeds, Role, evaluation_index, training_index


class EpisodePlayer(StepLoop):
    """Steps the sub-envs of a runner side by side: one forward pass for all of them per step.

    Order of events per vector step: all sub-envs step; then, slot by slot: `on_episode_step`, and
    if the episode is over `on_postprocess_trajectory` and `on_episode_end`, and
    `on_episode_created` and `on_episode_start` of the next one if the slot still has to play. When
    all has been played: `on_postprocess_trajectory` of the running episodes, slot by slot.

    Attributes:
        finished: what remains of the finished episodes.
        evaluation: evaluation runners: the stream of randomness of the slots' own episodes.
    """

    def __init__(self, runner: RunnerParts, *, signals: CallSignals | None) -> None:
        """Prepares the slots.

        Args:
            runner: whose envs, module and callbacks to play with; it is what callbacks see.
            signals: shared with the main process, which sees there that the runner makes progress.
        """
        super().__init__(runner, signals=signals)
        self.finished = FinishedRecords()
        self.evaluation = 0
        self._inference_s = self._stepping_s = self._callbacks_s = 0.0
        self._seeds = EnvSeeds(runner.spec.root_seed)
        self._events = EpisodeEvents(runner, self.slots, self.whereabouts)
        self._fire, self.notice_tasks = self._events.fire, self._events.notice_tasks
        self._listens_to_steps = self._events.listens_to_steps
        self._keeps_chunks = self._events.listens_to_ends
        self._trajectories = TrajectoryEvent.of(runner, logp=self.actions.logp)
        self._must_check_reset = runner.spec.checks_env

    def put_back(self, slot: EnvSlot, position: SlotPosition) -> bool:
        """Brings a slot to where it stood; see `EnvSlot.put_back`."""
        stream = self._stream_of(slot)
        self.whereabouts.doing(PUTTING_BACK)
        is_back = self.repair.put_back(
            slot,
            position,
            lambda on_step: slot.put_back(position, stream, self.to_env, on_step=on_step),
        )
        if slot.episode is not None and self.actions.exploring is not None:
            slot.noise.start(stream, slot.episode_number)
            self.actions.begin_episode(slot, stream, played=position.num_steps)
        return is_back

    def _stream_of(self, slot: EnvSlot) -> int:
        spec = self._spec
        return self.evaluation if spec.in_evaluation else spec.first_slot + slot.index

    def own_assignments(self) -> list[Assignment]:
        """For every slot, the one that goes on with its own episodes, without an end."""
        # The slots of an evaluation have one stream in common, so their numbers step over others.
        stride = self._spec.num_slots if self._spec.in_evaluation else 1
        return [Assignment(self._stream_of(slot), stride=stride) for slot in self.slots]

    def normalize_with(self, normalization: Normalization) -> None:
        """Plays with observations as these make them."""
        self._acting.normalize_with(normalization)
        if self._trajectories is not None:
            self._trajectories.normalize_with(normalization)

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

    def play(self, request: SampleRequest) -> list[SingleAgentEpisode]:
        """Plays what is asked.

        Returns:
            finished episodes and chunks of running ones, ordered by slot, then time.
        """
        self.tick()  # what fails from now on fails in this request
        if request.force_reset:
            self._give_up_episodes()
        explore = self._spec.explore if request.explore is None else request.explore
        source = self.actions
        source.refresh()
        samples: list[list[SingleAgentEpisode]] = [[] for _ in self.slots]
        waiting = deque(request.assignments)
        active = self._take_up(self.slots, waiting)
        watch = EndlessEpisodes(self._spec, request)
        clock = time.perf_counter
        while active:
            begun = clock()
            actions, outputs = (
                source.draw_uniformly(active)
                if request.random_actions
                else source.act(active, explore=explore, timestep=request.timestep)
            )
            acted = clock()
            needs_attention = self._step(active, actions, outputs)
            self._inference_s += acted - begun
            self._stepping_s += clock() - acted
            if needs_attention or self._listens_to_steps:
                active = self._after_step(active, waiting, samples)
            if watch.look(active, num_ended=len(self.finished)):
                self._give_up_episodes()  # those that have ended are handed out
                break
        return self._hand_out(samples)

    def _hand_out(self, samples: list[list[SingleAgentEpisode]]) -> list[SingleAgentEpisode]:
        """Cuts the running episodes and brings all that was played into its final form."""
        rewrites = [self._postprocess(slot) for slot in self.slots]
        self.notice_tasks()
        self._slot_at_work = None
        chunks = [(slot, slot.cut(self._spec.lookback)) for slot in self.slots]
        for slot, chunk in chunks:
            if chunk is not None:
                samples[slot.index].append(chunk)
        episodes = [episode for of_slot in samples for episode in of_slot]
        check_rewards(episodes, name=self._spec.env_factory.name)
        if self._spec.episodes_to_numpy:
            to_numpy_together(episodes)
        for (slot, chunk), rewrite in zip(chunks, rewrites, strict=True):
            if chunk is not None:
                slot.remember(chunk, keep_chunk=self._keeps_chunks)
                if rewrite is not None:
                    rewrite.write_to(chunk)
                    slot.follow(chunk)
        self.actions.add_logp(episodes)  # last, so that it is that of rewritten actions
        return episodes

    def _postprocess(self, slot: EnvSlot) -> Rewrite | None:
        """Shows the running chunk to callbacks; what they rewrote in it."""
        episode = slot.episode
        if self._trajectories is None or episode is None or len(episode) == 0:
            return None
        self._slot_at_work = slot
        self.whereabouts.doing(TRAJECTORY_EVENT)
        with self.timing_callbacks():
            return self._trajectories.fire(episode)

    # ---- between two steps

    def _after_step(
        self,
        active: list[EnvSlot],
        waiting: deque[Assignment],
        samples: list[list[SingleAgentEpisode]],
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
            if slot.episode is None:
                self._start_episode(slot)
            still_active.append(slot)
        self._slot_at_work = None
        self.whereabouts.doing(STEPPING)
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
            active.append(slot)
            if slot.episode is None:
                self._start_episode(slot)
            else:
                slot.episode.note_player(self._runner, slot.index)  # another one after a restore
                slot.record = slot.episode.step_recorder(*self.actions.outputs)
        self.whereabouts.doing(STEPPING)
        return active

    def _start_episode(self, slot: EnvSlot) -> None:
        while not self._has_started_episode(slot):
            pass  # it was given up; see `SubEnvRepair`

    def _has_started_episode(self, slot: EnvSlot) -> bool:
        """Begins the slot's next episode; whether its reset succeeded."""
        self._slot_at_work = slot
        spec, env = self._spec, self._runner.env
        stream, number = slot.assignment.stream, slot.episode_number
        if spec.role is Role.EVALUATION:
            index = evaluation_index(stream, number)
        else:
            index = training_index(stream, number, spec.num_slots)
        seed = self._seeds.seed(spec.role, index)
        episode = SingleAgentEpisode(
            id_=f"{spec.role.name.lower()}-{stream}-{number}",
            observation_space=env.single_observation_space,
            action_space=env.single_action_space,
        )
        episode.note_player(self._runner, slot.index)
        slot.begin(episode, seed)
        self.actions.begin_episode(slot, stream)
        self._fire("on_episode_created", slot)
        self.whereabouts.episode_begins(slot.index, stream=stream, number=number, seed=seed)
        answer = self._reset(slot)
        if slot.episode is None:
            return False
        if self._must_check_reset:
            check_reset(answer, env.single_observation_space, name=spec.env_factory.name)
            self._must_check_reset = False
        observation, infos = parts_of_reset(answer, slot, name=spec.env_factory.name)
        slot.observation = copied(observation)
        # Another copy: listeners may write into what is recorded.
        episode.add_env_reset(copied(observation), copied_info(infos))
        slot.record = episode.step_recorder(*self.actions.outputs)
        self.tick()
        slot.notice_task()
        self._fire("on_episode_start", slot)
        return True

    def _end_episode(self, slot: EnvSlot, episode: SingleAgentEpisode) -> SingleAgentEpisode:
        rewrite = self._postprocess(slot)
        if rewrite is not None:
            rewrite.write_to(episode)
        if self._keeps_chunks:
            self.actions.add_logp([episode])
            self._fire("on_episode_end", slot, prev_episode_chunks=slot.earlier_chunks)
        # Made after the events, so that what they store in the episode is reported, and before
        # `on_sample_end`, so that rewards rewritten there do not change the reported return.
        record = EpisodeRecord.from_episode(episode)
        self.finished.add(slot.index, slot.episode_number, record)
        self.repair.note_progress(slot)
        slot.finish()
        return episode

    def _give_up_episodes(self) -> None:
        for slot in self.slots:
            if slot.episode is not None:
                slot.drop()
                slot.episode_number += slot.assignment.stride

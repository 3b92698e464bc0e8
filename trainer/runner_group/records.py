"""What the main process knows of each env runner of a group.

It is enough to make any runner again at any moment, exactly as it was.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from trainer.connectors import Normalization
from trainer.env_runners.messages import (
    EnvRunnerSpec,
    RunnerReport,
    SampleReply,
    SlotPosition,
    Sync,
    Weights,
)
from trainer.env_runners.playing_env_runner import PlayingEnvRunner
from trainer.env_runners.worker_service import RunnerBootstrap
from trainer.envs.tasks import TaskInForce, same_task
from trainer.errors import RunnerLostError
from trainer.modules import ByModule
from trainer.runtime.messages import describe_failure, warn_of_close
from trainer.types import State

_LOGGER = logging.getLogger(__name__)


@dataclass
class RunnerPlace:
    """The place of one env runner, and the committed values that its runner starts from.

    Attributes:
        spec: what the runner is made from.
        positions: where its slots stand, as of the last answer that was committed.
        callbacks: state of its callback objects as of then; None before the first answer or if they
            have none.
        runner: the runner itself if it lives in this process; None before it is made, and for
            remote ones.
        weights: what was last sent to the live runner; None if nothing was.
        normalization: what is in force for observations and rewards; None if nothing ever was.
        sent_normalization: what was last sent to the live runner.
        evaluation: evaluation runners: the stream of randomness of what they play on their own.
        is_ahead: the live runner stands elsewhere than `positions` say, and must be put back first.
        has_answered: some runner in this place has answered a request.
        has_progressed: some runner in this place made some env steps in one go.
        is_continued: what runners log while they are made was reported already.
        creation_metrics: what the first runner logged while it was made.
        num_starts: how often a runner was made here.
        num_restarts: how often it was made again after a failure.
        num_excess_failures: failures without progress that no answer has made good; an answer does
            so for one.
        is_given_up: it failed and may not be replaced.
        is_busy: the runner of this process is being made or asked.
        had_runner: a runner was complete here; who comes after it replaces it.
        is_replacement_untold: it was replaced since a round last told who was.
        first_callbacks: state of the callback objects of the first runner made here.
        first_tasks: of the sub-envs of the first runner made here; empty if they have none.
        why_no_tasks: what its envs lack to be given tasks; empty before it was made.
        untold_tasks: sub-env → task that was set here since the live runner was last asked.
        told_env_states: names of the envs of which it was said that their state is not used;
            shared by all places of a group.
        silent_wrappers: see `RunnerReport`.
    """

    spec: EnvRunnerSpec
    positions: tuple[SlotPosition, ...] = ()
    callbacks: State | None = None
    runner: PlayingEnvRunner | None = None
    weights: Weights | None = None
    normalization: ByModule[Normalization] | None = None
    sent_normalization: ByModule[Normalization] | None = None
    evaluation: int = 0
    is_ahead: bool = False
    has_answered: bool = False
    has_progressed: bool = False
    is_continued: bool = False
    creation_metrics: Any = None
    num_starts: int = 0
    num_restarts: int = 0
    num_excess_failures: int = 0
    is_given_up: bool = False
    is_busy: bool = False
    had_runner: bool = False
    is_replacement_untold: bool = False
    first_callbacks: State | None = None
    first_tasks: tuple[TaskInForce, ...] = ()
    why_no_tasks: str = ""
    untold_tasks: dict[int, Any] = field(default_factory=dict)
    told_env_states: set[str] = field(default_factory=set)
    silent_wrappers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.positions:
            self.positions = (SlotPosition(),) * self.spec.num_envs

    @property
    def name(self) -> str:
        """What messages call it."""
        return (
            f"{'evaluation ' if self.spec.in_evaluation else ''}env runner {self.spec.worker_index}"
        )

    @property
    def has_running_episodes(self) -> bool:
        """Whether a runner made here has to put an episode back."""
        return any(position.env_seed is not None for position in self.positions)

    def lacks_something(self, weights: Weights | None) -> bool:
        """Whether the runner of this process waits for its next request to get what it is to hold.

        Never before it was first made, nor while it is made or asked.
        """
        if self.num_starts == 0 or self.is_busy:
            return False
        is_current = self.weights is weights and self.sent_normalization is self.normalization
        return self.runner is None or self.is_ahead or not is_current

    def bootstrap(self, weights: Weights | None) -> RunnerBootstrap:
        """Everything that makes this runner as it stood at its last committed answer."""
        sync = Sync(weights, self.positions, self.callbacks, self.normalization, self.evaluation)
        bootstrap = RunnerBootstrap(
            self.spec,
            sync,
            is_recreated=self.num_restarts > 0 or self.had_runner,
            number=self.num_starts,
        )
        self.num_starts += 1
        self.weights = weights
        self.sent_normalization = self.normalization
        self.is_ahead = False
        self.untold_tasks = {}
        return bootstrap

    def sync(self, weights: Weights | None) -> Sync:
        """What the live runner lacks.

        After this it is up to date, and ahead of the committed position once it plays.
        """
        # By identity: weights can be replaced by others of the same version (set_weights, restore).
        sync = Sync(
            weights if weights is not self.weights else None,
            self.positions if self.is_ahead else None,
            self.callbacks if self.is_ahead else None,
            self.normalization if self.normalization is not self.sent_normalization else None,
            self.evaluation,
            self._tasks_to_tell(),
        )
        self.weights = weights
        self.sent_normalization = self.normalization
        self.is_ahead = True
        return sync

    def _tasks_to_tell(self) -> tuple[TaskInForce | None, ...] | None:
        untold, self.untold_tasks = self.untold_tasks, {}
        if self.is_ahead or not untold:
            return None  # positions, which are sent then, hold the tasks
        return tuple(
            position.tasks[-1] if index in untold else None
            for index, position in enumerate(self.positions)
        )

    def set_task(self, index: int, task: Any) -> None:
        """Sets the task of a sub-env; the runner is told with the next request."""
        position = self.positions[index]
        if position.tasks and same_task(position.tasks[-1].task, task):
            return
        positions = list(self.positions)
        positions[index] = position.with_task(task)
        self.positions = tuple(positions)
        self.untold_tasks[index] = task

    def _warn_of_half_tasks(self) -> None:
        if self.why_no_tasks.endswith("no get_task"):
            _LOGGER.warning(
                "The env %r cannot be given tasks for good: %s. Tasks that a function of yours "
                "sets are lost when its runner is replaced or restored. Add get_task(), which "
                "returns what set_task() was last given.",
                self.spec.env_factory.name,
                self.why_no_tasks,
            )

    def _told(self, position: SlotPosition) -> SlotPosition:
        """The position, after it was said once for all why there is no state of its env."""
        if not position.env_state_trouble:
            return position
        self._tell_no_env_state(logging.WARNING, position.env_state_trouble)
        return replace(position, env_state_trouble="")

    def _tell_no_env_state(self, level: int, why: str) -> None:
        name = self.spec.env_factory.name
        if not why or name in self.told_env_states:
            return
        self.told_env_states.add(name)
        _LOGGER.log(
            level,
            "The state of the env %r is not used: %s. Its running episodes are put back by playing "
            "them again, as without get_state and set_state; see docs/env-state.md.",
            name,
            why,
        )

    def fill_in_tasks(self) -> None:
        """Slots of which no task is known have the first one of their env."""
        if not self.first_tasks:
            return
        pairs = zip(self.positions, self.first_tasks, strict=True)
        self.positions = tuple(
            position if position.tasks else replace(position, tasks=(first,))
            for position, first in pairs
        )

    def stop_runner(self) -> None:
        """Closes and forgets a runner of this process; the next round makes another."""
        runner, self.runner = self.runner, None
        if runner is None:
            return
        try:
            runner.stop()
        except Exception as error:  # noqa: BLE001 - told; nothing depends on it any more
            warn_of_close(self.name, describe_failure(error))

    def take_report(self, report: RunnerReport) -> None:
        """Notes that a runner is complete.

        What it tells counts only from the first one in a place: later ones repeat it.
        """
        self.had_runner = True
        self.silent_wrappers = report.silent_wrappers
        self._tell_no_env_state(logging.INFO, report.why_no_env_state)
        if self.callbacks is None:
            self.callbacks = self.first_callbacks = report.callbacks
        if self.creation_metrics is None:
            self.creation_metrics = report.metrics
        if not self.first_tasks:
            self.first_tasks, self.why_no_tasks = report.tasks or (), report.why_no_tasks
            if self.spec.worker_index <= 1:  # once, not for each runner
                self._warn_of_half_tasks()
        self.fill_in_tasks()

    def take_creation_metrics(self) -> list[Any]:
        """What was logged while the runner was made, as long as it was not reported."""
        return [] if self.is_continued or not self.creation_metrics else [self.creation_metrics]

    def commit(self, positions: tuple[SlotPosition, ...], callbacks: State | None) -> None:
        """Takes over where the runner stands after an answer."""
        pairs = zip(map(self._told, positions), self.positions, strict=True)
        self.positions = tuple(position.following(before) for position, before in pairs)
        untold, self.untold_tasks = self.untold_tasks, {}
        for index, task in untold.items():  # set while the runner was at work
            self.set_task(index, task)
        self.callbacks = callbacks
        self.is_ahead = False

    def commit_reply(self, reply: SampleReply) -> None:
        """Takes over an answer to a request."""
        sent = 0 if self.weights is None else self.weights.version
        if reply.weights_version != sent:  # what it played belongs to another policy
            raise RuntimeError(
                f"{self.name} acted with weights of version {reply.weights_version}, but was sent "
                f"version {sent}. Its answer was not taken. Leave `weights_version` of runners "
                "alone; if nobody changed it, this is a mistake of ours."
            )
        for text in reply.restarts.texts:
            _LOGGER.warning("%s: %s", self.name.capitalize(), text)
        num_lost = reply.num_episodes_lost - reply.restarts.num_episodes_lost
        if num_lost:  # the others were told above
            self.warn_of_lost_episodes(num_lost)
        self.commit(reply.positions, reply.callbacks)
        self.has_answered = self.is_continued = True

    def warn_of_lost_episodes(self, count: int) -> None:
        """Says that running episodes could not be put back."""
        _LOGGER.warning(
            "Env %r does not repeat an episode from its seed and actions: %d running episode(s) of "
            "%s start anew (counted in num_episodes_lost). %sake reset(seed=…) determine "
            "everything, or see docs/fault-tolerance.md. If it was restored with another "
            "env_config, that is why.",
            self.spec.env_factory.name,
            count,
            self.name,
            self._suspicion(),
        )

    def _suspicion(self) -> str:
        if not self.silent_wrappers:
            return "M"
        names = " and ".join(self.silent_wrappers)
        return (
            f"Nothing is known of what {names} around it may carry from one episode to the "
            "next, such as running statistics: give such a wrapper env_state_attributes "
            "(docs/env-state.md), or m"
        )

    def give_up_episodes(self, skip: int) -> tuple[int, int]:
        """Abandons the running episodes and goes on `skip` numbers further.

        Returns:
            the number of episodes lost, and of their env steps.
        """
        running = [position for position in self.positions if position.env_seed is not None]
        self.positions = tuple(position.restarted(skip) for position in self.positions)
        self.is_ahead = True
        return len(running), sum(position.num_steps for position in running)


class RunnerRecords:
    """The records of a group's runners, by number: 0 is the runner of this process, 1 … remote.

    Attributes:
        places: the records, by runner number.
        is_remote: the runners live in processes of their own.
        num_episodes_lost, num_env_steps_lost: of running episodes that were given up, until the
            next sample reports them.
    """

    def __init__(self, spec: EnvRunnerSpec, num_env_runners: int) -> None:
        """Makes empty records.

        Args:
            spec: of any runner; indices and slots are filled in for each.
            num_env_runners: remote runners; with 0 there is the one of this process.
        """
        self.num_episodes_lost = self.num_env_steps_lost = 0
        self._told_env_states: set[str] = set()
        self.make_anew(spec, num_env_runners)

    def make_anew(self, spec: EnvRunnerSpec, num_env_runners: int) -> None:
        """Puts empty records in the place of all that there are."""
        indices = range(1, num_env_runners + 1) if num_env_runners else range(1)
        self.is_remote = num_env_runners > 0
        self.places = {
            index: RunnerPlace(
                spec.at_place(index, num_env_runners), told_env_states=self._told_env_states
            )
            for index in indices
        }

    def __iter__(self) -> Iterator[RunnerPlace]:
        return iter(self.places.values())

    @property
    def spec(self) -> EnvRunnerSpec:
        """The spec of the first runner: what all have in common."""
        return next(iter(self)).spec

    @property
    def num_slots(self) -> int:
        """Sub-envs of all runners together."""
        return sum(place.spec.num_envs for place in self)

    def positions(self) -> list[SlotPosition]:
        """Where all slots stand, in their order."""
        return [position for place in self for position in place.positions]

    def healthy(self) -> list[int]:
        """Numbers of the runners that can be asked."""
        return [index for index, place in self.places.items() if not place.is_given_up]

    def healthy_or_raise(self) -> list[int]:
        """The same.

        Raises:
            RunnerLostError: there are none.
        """
        indices = self.healthy()
        if not indices:
            what = "evaluation env runners" if self.spec.in_evaluation else "env runners"
            raise RunnerLostError(
                f"All {len(self.places)} {what} failed and may not be replaced, so there is "
                "nobody left to play. The log has the failures. Correct the env, or let runners "
                "be replaced: config.fault_tolerance(restart_failed_env_runners=True)."
            )
        return indices

    def begin_evaluation(self, stream: int) -> None:
        """Puts all slots to fresh episodes of an evaluation; see `EnvRunnerGroup`."""
        for place in self:
            first = place.spec.first_slot
            numbers = range(first, first + place.spec.num_envs)
            place.positions = tuple(
                SlotPosition(number, tasks=position.task_now)
                for number, position in zip(numbers, place.positions, strict=True)
            )
            place.evaluation, place.is_ahead = stream, True

    def add_losses(self, num_episodes: int, num_env_steps: int) -> None:
        """Counts running episodes that were given up."""
        self.num_episodes_lost += num_episodes
        self.num_env_steps_lost += num_env_steps

    def take_losses(self) -> tuple[int, int]:
        """The episodes and env steps lost since this was last called."""
        lost = (self.num_episodes_lost, self.num_env_steps_lost)
        self.num_episodes_lost = self.num_env_steps_lost = 0
        return lost

    def stop_runners(self) -> None:
        """Closes and forgets the runner of this process, if there is one."""
        for place in self:
            place.stop_runner()

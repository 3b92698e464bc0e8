"""What the main process knows of each env runner of a group.

It is enough to make any runner again at any moment, exactly as it was.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from trainer.env_runners.messages import (
    EnvRunnerSpec,
    PolicySnapshot,
    RunnerReport,
    SampleReply,
    SlotPosition,
    Sync,
)
from trainer.env_runners.worker_service import RunnerBootstrap
from trainer.envs.tasks import TaskInForce
from trainer.episodes.multi_agent_state import modules_in_state
from trainer.errors import RunnerLostError
from trainer.modules import ModuleTable
from trainer.types import ModuleId, State
from trainer_toolkit.trees import same
from trainer_toolkit.undo import Undo

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stand:
    """Where the slots and callbacks of a runner stand between two requests.

    Attributes:
        positions, callbacks, known_modules, is_continued: see `RunnerRecord`.
    """

    positions: tuple[SlotPosition, ...]
    callbacks: State | None
    known_modules: frozenset[ModuleId] | None
    is_continued: bool


@dataclass
class RunnerRecord:
    """What the main process knows of one env runner, and the committed values it starts from.

    Attributes:
        spec: what the runner is made from.
        positions: where its slots stand, as of its last answer.
        callbacks: state of its callback objects as of then; None before the first answer or if they
            have none.
        sent: what the live runner was told last of how to act; None if nothing was.
        known_modules: ids of the modules that the callbacks know of, as of `callbacks`; None before
            the first runner was made.
        evaluation: evaluation runners: the stream of randomness of what they play on their own.
        must_be_put_back: the live runner stands elsewhere than `positions` say.
        has_answered: some runner in this place has answered a request.
        has_progressed: some runner in this place made some env steps in one go.
        is_continued: what runners log while they are made was reported already.
        creation_metrics: what the first runner logged while it was made.
        num_starts: how often a runner was made here.
        num_restarts: how often it was made again after a failure.
        num_excess_failures: failures without progress that no answer has made good; an answer does
            so for one.
        is_given_up: it failed and may not be replaced.
        had_runner: a runner was complete here; who comes after it replaces it.
        is_recreated: what the newest runner here was told: whether it replaces another.
        first_callbacks: state of the callback objects of the first runner made here.
        first_tasks: of the sub-envs of the first runner made here; empty if they have none.
        first_env_states: likewise; empty before it was made.
        why_no_tasks: what its envs lack to be given tasks; empty before it was made.
        unsent_tasks: sub-env → task that was set here since the live runner was last asked.
        logged_env_states: names of the envs of which it was said that their state is not used;
            shared by all records of a group.
        silent_wrappers: see `RunnerReport`.
        before_ahead: where it stood before each sample that it was asked for ahead and that is not
            taken yet, oldest first.
    """

    spec: EnvRunnerSpec
    positions: tuple[SlotPosition, ...] = ()
    callbacks: State | None = None
    sent: PolicySnapshot | None = None
    known_modules: frozenset[ModuleId] | None = None
    evaluation: int = 0
    must_be_put_back: bool = False
    has_answered: bool = False
    has_progressed: bool = False
    is_continued: bool = False
    creation_metrics: Any = None
    num_starts: int = 0
    num_restarts: int = 0
    num_excess_failures: int = 0
    is_given_up: bool = False
    had_runner: bool = False
    is_recreated: bool = False
    first_callbacks: State | None = None
    first_tasks: tuple[TaskInForce, ...] = ()
    first_env_states: tuple[bytes | None, ...] = ()
    why_no_tasks: str = ""
    unsent_tasks: dict[int, Any] = field(default_factory=dict)
    logged_env_states: set[str] = field(default_factory=set)
    silent_wrappers: tuple[str, ...] = ()
    before_ahead: list[Stand] = field(default_factory=list)

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
    def stand(self) -> Stand:
        """Where it stands, as of its last answer: what it is made from if its process dies."""
        return Stand(self.positions, self.callbacks, self.known_modules, self.is_continued)

    @property
    def taken(self) -> Stand:
        """Where it stood after the last sample that was taken: what a checkpoint holds."""
        return self.before_ahead[0] if self.before_ahead else self.stand

    @property
    def has_running_episodes(self) -> bool:
        """Whether a runner made here has to put an episode back."""
        return any(position.env_seed is not None for position in self.positions)

    def bootstrap(self, policy: PolicySnapshot) -> RunnerBootstrap:
        """Everything that makes this runner as it stood at its last committed answer."""
        table = policy.whole_table
        self.is_recreated = self.num_restarts > 0 or self.had_runner
        bootstrap = RunnerBootstrap(
            replace(self.spec, table=table),
            Sync(
                replace(policy, table=None),  # it is made with it
                self.positions,
                self.callbacks,
                self.evaluation,
                new_modules=self._new_modules(table),
            ),
            is_recreated=self.is_recreated,
            number=self.num_starts,
        )
        self.num_starts += 1
        self.sent = policy
        self.must_be_put_back = False
        self.unsent_tasks = {}
        return bootstrap

    def _new_modules(self, table: ModuleTable) -> tuple[ModuleId, ...]:
        known, there = self.known_modules, table.specs
        if known is None or known.issuperset(there.keys()):
            return ()
        return tuple(id_ for id_ in there if id_ not in known)

    def sync(self, policy: PolicySnapshot) -> Sync:
        """What the live runner lacks.

        After this it is up to date, and ahead of the committed position once it plays.
        """
        sync = Sync(
            policy.since(self.sent),
            self.positions if self.must_be_put_back else None,
            self.callbacks if self.must_be_put_back else None,
            self.evaluation,
            self._tasks_to_send(),
            self._new_modules(policy.whole_table),
        )
        self.sent = policy
        self.must_be_put_back = True
        return sync

    def _tasks_to_send(self) -> tuple[TaskInForce | None, ...] | None:
        unsent, self.unsent_tasks = self.unsent_tasks, {}
        if self.must_be_put_back or not unsent:
            return None  # positions, which are sent then, hold the tasks
        return tuple(
            position.tasks[-1] if index in unsent else None
            for index, position in enumerate(self.positions)
        )

    def set_task(self, index: int, task: Any) -> None:
        """Sets the task of a sub-env; the runner is told with the next request."""
        position = self.positions[index]
        if position.tasks and same(position.tasks[-1].task, task):
            return
        positions = list(self.positions)
        positions[index] = position.with_task(task)
        self.positions = tuple(positions)
        self.unsent_tasks[index] = task

    def _warn_of_half_tasks(self) -> None:
        if self.why_no_tasks.endswith("no get_task"):
            _LOGGER.warning(
                "The env %r cannot be given tasks for good: %s. Tasks that a function of yours "
                "sets are lost when its runner is replaced or restored. Add get_task(), which "
                "returns what set_task() was last given.",
                self.spec.env_factory.name,
                self.why_no_tasks,
            )

    def _confirmed(self, position: SlotPosition) -> SlotPosition:
        """The position, after it was said once for all why there is no state of its env."""
        if not position.env_state_trouble:
            return position
        self._log_no_env_state(logging.WARNING, position.env_state_trouble)
        return replace(position, env_state_trouble="")

    def _log_no_env_state(self, level: int, why: str) -> None:
        name = self.spec.env_factory.name
        if not why or name in self.logged_env_states:
            return
        self.logged_env_states.add(name)
        _LOGGER.log(
            level,
            "The state of the env %r is not used: %s. Its running episodes are put back by playing "
            "them again, as without get_state and set_state; see docs/envs.md.",
            name,
            why,
        )

    def fill_in_firsts(self) -> None:
        """Slots of which no task or env state is known have the first one of their env."""
        if self.first_tasks:
            pairs = zip(self.positions, self.first_tasks, strict=True)
            self.positions = tuple(
                position if position.tasks else replace(position, tasks=(first,))
                for position, first in pairs
            )
        if any(self.first_env_states):
            states = zip(self.positions, self.first_env_states, strict=True)
            self.positions = tuple(
                replace(position, env_state=position.env_state or first)
                if position.env_seed is None
                else position
                for position, first in states
            )

    def take_report(self, report: RunnerReport) -> tuple[int, int]:
        """Notes that a runner is complete.

        What it tells counts only from the first one with a number: later ones repeat it.

        Returns:
            the number of episodes that it could not put back, and of their env steps.
        """
        self.had_runner = True
        if self.known_modules is None:
            self.known_modules = frozenset(report.module_specs)
        self.silent_wrappers = report.silent_wrappers
        self._log_no_env_state(logging.INFO, report.why_no_env_state)
        if self.callbacks is None:
            self.callbacks = self.first_callbacks = report.callbacks
        if self.creation_metrics is None:
            self.creation_metrics = report.metrics
        if not self.first_tasks:
            self.first_tasks, self.why_no_tasks = report.tasks or (), report.why_no_tasks
            if self.spec.worker_index <= 1:  # once, not for each runner
                self._warn_of_half_tasks()
        self.first_env_states = self.first_env_states or report.env_states
        self.fill_in_firsts()
        if report.lost:
            self.positions = tuple(
                position.restarted() if env_index in report.lost else position
                for env_index, position in enumerate(self.positions)
            )
            self.warn_of_lost_episodes(len(report.lost))
        return len(report.lost), sum(report.lost.values())

    def take_creation_metrics(self) -> list[Any]:
        """What was logged while the runner was made, as long as it was not reported."""
        return [] if self.is_continued or not self.creation_metrics else [self.creation_metrics]

    def commit(self, positions: tuple[SlotPosition, ...], callbacks: State | None) -> None:
        """Takes over where the runner stands after an answer."""
        pairs = zip(map(self._confirmed, positions), self.positions, strict=True)
        self.positions = tuple(position.following(before) for position, before in pairs)
        unsent, self.unsent_tasks = self.unsent_tasks, {}
        for index, task in unsent.items():  # set while the runner was at work
            self.set_task(index, task)
        self.callbacks = callbacks
        if self.sent is not None:
            self.known_modules = frozenset(self.sent.whole_table.specs)
        self.must_be_put_back = False

    def commit_reply(self, reply: SampleReply) -> None:
        """Takes over an answer to a request."""
        sent = 0 if self.sent is None else self.sent.version
        if reply.weights_version != sent:  # what it played belongs to another policy
            raise RuntimeError(
                f"{self.name} acted with weights of version {reply.weights_version}, but was sent "
                f"version {sent}. Its answer was not taken. Leave `weights_version` of runners "
                "alone; if it was not changed, this is a mistake of ours."
            )
        table = None if self.sent is None else self.sent.table
        if table is not None and reply.table_version != table.version:
            raise RuntimeError(
                f"{self.name} acted with modules of version {reply.table_version}, but was sent "
                f"version {table.version}. Its answer was not taken. This is a mistake of ours."
            )
        for text in reply.restarts.texts:
            _LOGGER.warning("%s: %s", self.name.capitalize(), text)
        num_lost = reply.counts.num_episodes_lost - reply.restarts.num_episodes_lost
        if num_lost:  # the others were logged above
            self.warn_of_lost_episodes(num_lost)
        self.commit(reply.positions, reply.callbacks)
        self.has_answered = self.is_continued = True

    def warn_of_lost_episodes(self, count: int) -> None:
        """Says that running episodes could not be put back."""
        if self.spec.has_vector_env:
            _LOGGER.warning(
                "Vector env %r does not go on from where it stood: %d running episode(s) of %s "
                "start anew (counted in num_episodes_lost). It needs get_state() and set_state() "
                "for that, and as many sub-envs as before; see docs/envs.md.",
                self.spec.env_factory.name,
                count,
                self.name,
            )
            return
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
            "(docs/envs.md), or m"
        )

    def mark(self) -> Undo:
        """What puts its slots and callbacks back to where they stand now, but for samples ahead."""
        return functools.partial(self._go_back_to, self.taken)

    def drop_ahead(self) -> None:
        """Goes back to before the samples that it was asked for ahead."""
        taken = self.taken
        self.before_ahead.clear()
        self._go_back_to(taken)

    def _go_back_to(self, stand: Stand) -> None:
        if self.positions is stand.positions and self.callbacks is stand.callbacks:
            return
        self.go_to(stand.positions, stand.callbacks, is_continued=stand.is_continued)
        if stand.known_modules is not None:  # else it was made since then, and knows those of now
            self.known_modules = stand.known_modules

    def go_to(
        self,
        positions: tuple[SlotPosition, ...],
        callbacks: State | None,
        *,
        is_continued: bool,
    ) -> None:
        """Has slots and callbacks go on from there, with the next request; None: as at first."""
        self.positions = positions
        self.unsent_tasks = {}  # positions hold the tasks
        self.fill_in_firsts()
        self.callbacks = self.first_callbacks if callbacks is None else callbacks
        self.must_be_put_back = True
        self.is_continued = is_continued

    def give_up_episodes(self, skip: int) -> tuple[int, int]:
        """Abandons the running episodes and goes on `skip` numbers further.

        Returns:
            the number of episodes lost, and of their env steps.
        """
        running = [position for position in self.positions if position.env_seed is not None]
        self.positions = tuple(position.restarted(skip) for position in self.positions)
        self.must_be_put_back = True
        self.fill_in_firsts()  # the envs that come after them begin there
        return len(running), sum(position.num_steps for position in running)

    def keep_modules(self, there: frozenset[ModuleId]) -> tuple[int, int]:
        """Abandons the running episodes of which an agent has a module that is not among these.

        Returns:
            the number of episodes lost, and of their env steps.
        """
        if self.known_modules is not None:
            self.known_modules &= there
        before = self.positions
        self.positions = tuple(
            position
            if there >= _modules_of(position)
            # The env itself is not to blame: it is reset where it stood.
            else replace(position.restarted(), env_state=position.env_state)
            for position in before
        )
        pairs = zip(before, self.positions, strict=True)
        lost = [position for position, after in pairs if after is not position]
        self.must_be_put_back = self.must_be_put_back or bool(lost)
        return len(lost), sum(position.num_steps for position in lost)


def _modules_of(position: SlotPosition) -> set[ModuleId]:
    """The modules that act in the running episode of several agents; none if there is none."""
    episode = position.episode
    return set() if episode is None or "modules" not in episode else modules_in_state(episode)


class RunnerRecords:
    """The records of a group's runners, by number: 0 is the runner of this process, 1 … remote.

    Attributes:
        by_index: the records, by runner number.
        is_remote: the runners live in processes of their own.
        policy: what all runners act with from the next request on; it always has a table.
        num_episodes_lost, num_env_steps_lost: of running episodes that were given up, until the
            next sample reports them.
    """

    def __init__(self, spec: EnvRunnerSpec, num_env_runners: int) -> None:
        """Makes empty records.

        With 0 remote runners there is the one of this process.
        """
        self.num_episodes_lost = self.num_env_steps_lost = 0
        self._logged_env_states: set[str] = set()
        self.policy = PolicySnapshot(table=spec.table)
        self.make_anew(spec, num_env_runners)

    def make_anew(self, spec: EnvRunnerSpec, num_env_runners: int) -> None:
        """Replaces all records by empty ones."""
        indices = range(1, num_env_runners + 1) if num_env_runners else range(1)
        self.is_remote = num_env_runners > 0
        self.by_index = {
            index: RunnerRecord(
                spec.at_place(index, num_env_runners), logged_env_states=self._logged_env_states
            )
            for index in indices
        }

    def __iter__(self) -> Iterator[RunnerRecord]:
        return iter(self.by_index.values())

    @property
    def spec(self) -> EnvRunnerSpec:
        """The spec of the first runner: what all have in common."""
        return next(iter(self)).spec

    @property
    def table(self) -> ModuleTable:
        """Which modules there are, and for whom they act, from the next request on."""
        return self.policy.whole_table

    def act_with(self, policy: PolicySnapshot) -> None:
        """Lets all runners act with this; gives up running episodes that lack a module then."""
        if policy.table is not self.policy.table:
            there = frozenset(policy.whole_table.specs)
            for record in self:
                self.add_losses(*record.keep_modules(there))
        self.policy = policy

    @property
    def num_slots(self) -> int:
        """Sub-envs of all runners together."""
        return sum(record.spec.num_envs for record in self)

    def positions(self) -> list[SlotPosition]:
        """Where all slots stood after the last sample that was taken, in their order."""
        return [position for record in self for position in record.taken.positions]

    def healthy(self) -> list[int]:
        """Numbers of the runners that can be asked."""
        return [index for index, record in self.by_index.items() if not record.is_given_up]

    def healthy_or_raise(self) -> list[int]:
        """The same; a RunnerLostError if there are none."""
        indices = self.healthy()
        if not indices:
            what = "evaluation env runners" if self.spec.in_evaluation else "env runners"
            raise RunnerLostError(
                f"All {len(self.by_index)} {what} failed and were given up, so there is none left "
                "to play. The log has the failures, and says of each runner why it was not "
                "replaced. Correct the env, or what decided: settings of fault_tolerance()."
            )
        return indices

    def begin_evaluation(self, stream: int) -> None:
        """Puts all slots to fresh episodes of an evaluation; see `EnvRunnerGroup`."""
        for record in self:
            first = record.spec.first_slot
            numbers = range(first, first + record.spec.num_envs)
            record.positions = tuple(
                SlotPosition(number, tasks=position.task_now)
                for number, position in zip(numbers, record.positions, strict=True)
            )
            record.evaluation, record.must_be_put_back = stream, True

    def add_losses(self, num_episodes: int, num_env_steps: int) -> None:
        """Counts running episodes that were given up."""
        self.num_episodes_lost += num_episodes
        self.num_env_steps_lost += num_env_steps

    def take_losses(self) -> tuple[int, int]:
        """The episodes and env steps lost since this was last called."""
        lost = (self.num_episodes_lost, self.num_env_steps_lost)
        self.num_episodes_lost = self.num_env_steps_lost = 0
        return lost

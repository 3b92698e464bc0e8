"""What the main process knows of each env runner of a group, and where its slots stand."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from callbacks.chain import CHAIN_STATE
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
from trainer.episodes import MultiAgentEpisode, SingleAgentEpisode, nested
from trainer.episodes.episode_columns import is_number
from trainer.episodes.episode_state import EPISODE_STATE
from trainer.episodes.multi_agent_state import modules_in_state, why_not_of_agents
from trainer.errors import EpisodeError, RunnerLostError
from trainer.modules import ByModule, ModuleTable, RLModuleSpec
from trainer.types import AgentId, Array, ModuleId, State
from trainer_toolkit import checks
from trainer_toolkit.plain_classes import check_of, from_plain, to_plain
from trainer_toolkit.trees import same
from trainer_toolkit.undo import Undo

# ---- records
#
# What the main process knows of each env runner of a group. It is enough to make any runner again
# at any moment, exactly as it was.

_LOGGER = logging.getLogger(__name__)


@dataclass
class RunnerRecord:
    """What the main process knows of one env runner, and the committed values it starts from.

    Attributes:
        spec: what the runner is made from.
        positions: where its slots stand, as of the last answer that was committed.
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
            "them again, as without get_state and set_state; see docs/env-state.md.",
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
            "(docs/env-state.md), or m"
        )

    def mark(self) -> Undo:
        """What puts its slots and callbacks back to where they stand now."""
        positions, callbacks = self.positions, self.callbacks
        known_modules, is_continued = self.known_modules, self.is_continued

        def undo() -> None:
            if self.positions is positions and self.callbacks is callbacks:
                return
            self.go_to(positions, callbacks, is_continued=is_continued)
            if known_modules is not None:  # else it was made since then, and knows those of now
                self.known_modules = known_modules

        return undo

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
        """Where all slots stand, in their order."""
        return [position for record in self for position in record.positions]

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


# ---- slot states
#
# Where the slots of a group stand, for checkpoints and for undoing.

# ---- position shape
#
# What the saved positions of env slots look like, to be compared before they are taken. A runner
# takes a position with its next request, possibly in another process: too late to refuse it. What
# runners take from an env (`trainer.envs.env_checks`) is taken here, too: a user who could train
# with an env, however loosely it keeps to its spaces, must be able to go on with it.


CALLBACK_STATES: Final = checks.dict_of(CHAIN_STATE)
"""Of the callbacks of runners, by the runner's number."""


def group_state(
    module_specs: ByModule[RLModuleSpec], *, agents: Collection[AgentId] | None = None
) -> checks.Check:
    """The check for the state of an `EnvRunnerGroup`; the specs know the spaces of the envs."""
    return checks.fields(
        {
            "slots": slots_of(module_specs, agents=agents),
            "callbacks": CALLBACK_STATES,
            "is_continued": checks.FLAG,
        },
        optional={
            "lost": checks.list_of(checks.COUNT, length=2),
            "known_modules": checks.list_of(checks.TEXT),
        },
    )


def slots_of(
    module_specs: ByModule[RLModuleSpec], *, agents: Collection[AgentId] | None = None
) -> checks.Check:
    """The check for the positions of env slots; arguments as in `group_state`."""
    if agents is not None:
        return checks.list_of(_slot_of_agents(agents))
    module_spec = module_specs.only

    def slot(value: Any, place: str) -> Iterator[str]:
        problems = list(check_of(SlotPosition)(value, place))
        problems = problems or [
            problem
            for chunk, inside in _chunks(value, place)
            for problem in EPISODE_STATE(chunk, inside)
        ]
        yield from problems or _slot_problems(value, place, module_spec)

    def slots(value: Any, place: str) -> Iterator[str]:
        problems = list(of_slots(value, place))
        yield from problems or _unlike_each_other(value, place)

    of_slots = checks.list_of(checks.by_place("a slot", slot))
    return checks.by_place("a list of slots", slots)


def _slot_of_agents(agents: Collection[AgentId]) -> checks.Check:
    """The check for the position of a slot in which several agents play."""

    def slot(value: Any, place: str) -> Iterator[str]:
        problems = list(check_of(SlotPosition)(value, place))
        yield from problems or _joint_problems(value, place, agents)

    return checks.by_place("a slot", slot)


def _joint_problems(slot: dict[str, Any], place: str, agents: Collection[AgentId]) -> Iterator[str]:
    parts = [slot["env_seed"], slot["episode"], slot["observation"]]
    if all(part is None for part in parts):
        if slot["actions"]:
            yield f"{place}['actions'] is of an episode, but none runs"
        return
    if any(part is None for part in parts):
        yield f"{place} has only a part of 'env_seed', 'observation' and 'episode': all or none"
        return
    for chunk, inside in _chunks(slot, place):
        try:
            episode = MultiAgentEpisode.from_state(chunk)
        except EpisodeError as error:
            yield f"{inside} is no episode of several agents: {error}"
            return
        if list(episode.possible_agents or ()) != list(agents):
            yield f"{inside} is of the agents {episode.possible_agents}, expected {list(agents)}"
            return
        if problem := why_not_of_agents(chunk, agents):
            yield f"{inside}{problem}"
            return
    joint = [("observation", slot["observation"])]
    joint += [(f"actions'][{index}", chunk) for index, chunk in enumerate(slot["actions"])]
    for name, value in joint:
        is_fit = isinstance(value, tuple) and len(value) == len(agents)
        if not is_fit or not all(isinstance(part, tuple) and len(part) <= 2 for part in value):
            yield f"{place}['{name}'] is {checks.described(value)}, expected a part for each agent"
            return
    steps = sum(nested.batch_length(chunk) for chunk in slot["actions"])
    if steps != slot["episode"]["env_t"]:
        yield (
            f"{place}['actions'] are of {steps} env steps, but the episode has "
            f"{slot['episode']['env_t']}"
        )


def _slot_problems(slot: dict[str, Any], place: str, spec: RLModuleSpec) -> Iterator[str]:
    running = [slot["env_seed"], slot["episode"], slot["observation"]]
    if all(value is None for value in running):
        if slot["actions"]:
            yield f"{place}['actions'] is of an episode, but none runs"
        return
    if slot["env_seed"] is None or slot["episode"] is None:
        yield f"{place} has only a part of 'env_seed', 'observation' and 'episode': all or none"
        return
    episode = slot["episode"]
    yield from _element(spec.observation_space)(slot["observation"], f"{place}['observation']")
    for chunk, inside in _chunks(slot, place):
        yield from _chunk_problems(chunk, inside, spec)
    yield from _action_problems(slot["actions"], f"{place}['actions']", spec, steps=episode["t"])


def _unlike_each_other(slots: list[dict[str, Any]], place: str) -> Iterator[str]:
    """Whether the module's outputs look the same in all running episodes."""
    example: dict[str, Any] = {}
    for index, slot in enumerate(slots):
        rows, inside = _newest_outputs(slot), f"{place}[{index}]['episode']['extra_model_outputs']"
        example = example or rows
        for name, row in rows.items():
            if not isinstance(row, np.ndarray | np.generic | int | float | dict):
                yield f"{inside}[{name!r}] holds {checks.described(row)}, expected numbers"
            # They may be missing where random actions were played; they are not learnt from.
            elif name in example:
                yield from checks.like(example[name])(row, f"{inside}[{name!r}]")


def _newest_outputs(slot: dict[str, Any]) -> dict[str, Any]:
    """What the module gave beside the last action, by name; {} if no step was made."""
    outputs = (slot["episode"] or {}).get("extra_model_outputs", {})
    rows = {name: column for name, column in outputs.items() if isinstance(column, list)}
    return {name: column[-1] for name, column in rows.items() if column}


def _chunks(slot: dict[str, Any], place: str) -> Iterator[tuple[dict[str, Any], str]]:
    if slot["episode"] is not None:
        yield slot["episode"], f"{place}['episode']"
    for index, chunk in enumerate(slot["earlier_chunks"]):
        yield chunk, f"{place}['earlier_chunks'][{index}]"


def _chunk_problems(chunk: dict[str, Any], place: str, spec: RLModuleSpec) -> Iterator[str]:
    """Whether an episode can be made of it, and its rows are of the spaces."""
    try:
        SingleAgentEpisode.from_state(chunk)
    except Exception as error:  # noqa: BLE001 - whatever it is, no episode can be made of that
        yield f"{place} is no episode: {type(error).__name__}: {error}"
        return
    if isinstance(chunk["observations"], list):  # else arrays, of a chunk that is finished
        for index, row in enumerate(chunk["observations"]):
            yield from _element(spec.observation_space)(row, f"{place}['observations'][{index}]")
    if isinstance(chunk["actions"], list):
        for index, row in enumerate(chunk["actions"]):
            yield from _element(spec.action_space)(row, f"{place}['actions'][{index}]")
    for name in ("rewards", "earlier_return"):
        values = chunk[name]
        if isinstance(values, list):
            yield from checks.list_of(_REWARD)(values, f"{place}[{name!r}]")
    for name, rows in chunk["extra_model_outputs"].items():
        if isinstance(rows, list):
            for index, row in enumerate(rows):
                yield from checks.like(rows[0])(
                    row, f"{place}['extra_model_outputs'][{name!r}][{index}]"
                )


_REWARD: Final = checks.Check("a number", is_number)


def _action_problems(
    chunks: list[Any], place: str, spec: RLModuleSpec, *, steps: int
) -> Iterator[str]:
    problems = []
    total = 0
    for index, chunk in enumerate(chunks):
        problems += list(_element(spec.action_space, rows=True)(chunk, f"{place}[{index}]"))
        if not problems:
            total += nested.batch_length(chunk)
    if not problems and total != steps:
        problems.append(f"{place} are of {total} steps, but the episode has {steps}")
    yield from problems


def _element(space: gym.Space[Any] | None, *, rows: bool = False) -> checks.Check:
    """The check for an element of a space, or for an array with a row for each of several."""
    if isinstance(space, spaces.Dict):
        return checks.fields({key: _element(part, rows=rows) for key, part in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return _tuple_of([_element(part, rows=rows) for part in space.spaces])
    if space is None or space.shape is None:
        return checks.anything()
    shape, is_float = space.shape, np.issubdtype(space.dtype or np.float64, np.floating)
    kinds = "fiub" if is_float or isinstance(space, spaces.MultiBinary) else "iub"

    def problems(value: Any, place: str) -> Iterator[str]:
        found = _as_array(value)
        if found is None:
            yield f"{place} is {checks.described(value)}, expected an element of {space}"
        elif found.shape[rows:] != shape or (rows and not found.ndim):
            expected = ("n", *shape) if rows else shape
            yield f"{place} has shape {found.shape}, expected {expected}"
        elif found.dtype.kind not in kinds:
            yield f"{place} has dtype {found.dtype}, expected {space.dtype}"

    return checks.by_place(f"an element of {space}", problems)


def _as_array(value: Any) -> Array | None:
    """The array that a leaf of an observation or action is or becomes; None if it becomes none."""
    if not isinstance(value, np.ndarray | np.generic | int | float | list):
        return None
    try:
        return np.asarray(value)
    except (ValueError, OverflowError):  # rows of different lengths
        return None


def _tuple_of(parts: list[checks.Check]) -> checks.Check:
    def problems(value: Any, place: str) -> Iterator[str]:
        if type(value) is not tuple or len(value) != len(parts):
            yield f"{place} is {checks.described(value)}, expected a tuple of {len(parts)}"
            return
        for index, (part, entry) in enumerate(zip(parts, value, strict=True)):
            yield from part(entry, f"{place}[{index}]")

    return checks.by_place(f"a tuple of {len(parts)}", problems)


# ---- group state


def _in_one_chunk(position: SlotPosition) -> SlotPosition:
    """The position with its actions in one batch, however many requests it took to play them.

    Those of several agents, who act in other steps in every chunk, stay as they are.
    """
    if len(position.actions) < 2 or "modules" in (position.episode or {}):
        return position
    return replace(position, actions=(nested.concatenate(*position.actions),))


class SlotStates:
    """The state of a group: where its slots stand, and the callbacks of its runners."""

    def __init__(self, records: RunnerRecords) -> None:
        self._records = records
        self._keeps_known_modules = False
        # What the next sample says about slots of a restored state; empty for nothing.
        self._drop_to_log = ""

    def get_state(self) -> State:
        """Where all slots stand, and the state of every runner's callbacks: plain data."""
        records = self._records
        lost = [records.num_episodes_lost, records.num_env_steps_lost]
        return {
            "slots": [to_plain(_in_one_chunk(position)) for position in records.positions()],
            "callbacks": self.get_callback_states(),
            "is_continued": any(record.is_continued for record in records),
            **({"lost": lost} if any(lost) else {}),
            **self.known_modules(),
        }

    def mark(self) -> Undo:
        """What puts all slots back to where they stand now, with the next request."""
        records, marks = self._records, [record.mark() for record in self._records]
        lost = records.num_episodes_lost, records.num_env_steps_lost
        drop_to_log, keeps_known_modules = self._drop_to_log, self._keeps_known_modules

        def undo() -> None:
            for mark in marks:
                mark()
            records.num_episodes_lost, records.num_env_steps_lost = lost
            self._drop_to_log, self._keeps_known_modules = drop_to_log, keeps_known_modules

        return undo

    def known_modules(self) -> State:
        """The modules that callbacks were told of, where they have changed in the run."""
        known = [
            record.known_modules for record in self._records if record.known_modules is not None
        ]
        has_changed = self._records.table.version or self._keeps_known_modules
        if not has_changed or not known:
            return {}
        return {"known_modules": sorted(frozenset.intersection(*known))}

    def set_known_modules(self, state: State) -> None:
        """Takes back what `known_modules` gave; without it, callbacks know of all modules."""
        # An evaluation takes the changed modules over when it begins.
        self._keeps_known_modules = "known_modules" in state
        there = frozenset(self._records.table.specs)
        for record in self._records:
            record.known_modules = frozenset(state.get("known_modules", there))

    def ways_back(self) -> list[str | None]:
        """How each slot's running episode would be put back; None where none runs."""
        without_state = "lost" if self._records.spec.has_vector_env else "replay"
        return [
            None
            if position.env_seed is None
            else (without_state if position.env_state is None else "env_state")
            for position in self._records.positions()
        ]

    def get_callback_states(self) -> State:
        """The state of every runner's callbacks, by the runner's number; 1 for a local one."""
        states = {
            str(max(1, index)): record.callbacks for index, record in self._records.by_index.items()
        }
        return {index: state for index, state in states.items() if state is not None}

    def set_state(self, state: State) -> None:
        """Puts all slots where they stood, with the next request.

        The slots are taken in order, however many runners there were. If there were fewer slots
        than there are now, the rest begins with fresh episodes, of unused numbers; if
        there were more, the rest of them is dropped: with the next sample, a warning says so, and
        their running episodes are counted as lost. Fresh slots have the task of all others if that
        is one, else the first one of their env. Callback state goes to the runner of the same
        number; a warning names the numbers that there is no runner for.
        """
        records = self._records
        positions = [from_plain(SlotPosition, slot) for slot in state["slots"]]
        self.set_known_modules(state)
        self._warn_of_dropped_callbacks(state["callbacks"])
        records.num_episodes_lost, records.num_env_steps_lost = state.get("lost", (0, 0))
        self._give_up_without_slot(positions[records.num_slots :])
        fresh = max((position.episode_number + 1 for position in positions), default=0)
        positions = self._without_unknown_tasks(positions)
        tasks = tasks_for_fresh_slots(positions)
        positions += [SlotPosition(fresh, tasks=tasks)] * (records.num_slots - len(positions))
        for index, record in records.by_index.items():
            first = record.spec.first_slot
            record.go_to(
                tuple(positions[first : first + record.spec.num_envs]),
                # 0 runners are the same program as 1: the runner of the main process has the state
                # of the first one of a group of processes.
                state["callbacks"].get(str(max(1, index))),
                is_continued=state["is_continued"],
            )

    def _give_up_without_slot(self, dropped: Sequence[SlotPosition]) -> None:
        """Counts the running episodes of slots that there is no room for.

        The next sample tells it: who restores only to evaluate or to act drops nothing.
        """
        self._drop_to_log = ""
        num_slots = self._records.num_slots
        if (
            not dropped or self._records.spec.in_evaluation
        ):  # evaluations begin with fresh episodes anyway
            return
        running = [position for position in dropped if position.env_seed is not None]
        num_steps = sum(position.num_steps for position in running)
        self._records.add_losses(len(running), num_steps)
        self._drop_to_log = (
            f"The restored state has {num_slots + len(dropped)} env slots, and there are only "
            f"{num_slots} here: the last {len(dropped)} are dropped, with {len(running)} "
            f"running episode(s) of {num_steps} env steps so far (counted in num_episodes_lost and "
            "num_env_steps_lost). To go on exactly, restore with as many slots: "
            f"num_env_runners * num_envs_per_env_runner = {num_slots + len(dropped)}."
        )

    def log_drop(self) -> None:
        """Logs once which slots of a restored state were dropped."""
        if self._drop_to_log:
            _LOGGER.warning(self._drop_to_log)
            self._drop_to_log = ""

    def _warn_of_dropped_callbacks(self, callbacks: State) -> None:
        dropped = sorted(
            callbacks.keys() - {str(max(1, index)) for index in self._records.by_index}, key=int
        )
        if dropped:
            _LOGGER.warning(
                "The callback state of env runner(s) %s is dropped: there are only %d now. See "
                "docs/callbacks.md, State.",
                ", ".join(dropped),
                len(self._records.by_index),
            )

    def _without_unknown_tasks(self, positions: list[SlotPosition]) -> list[SlotPosition]:
        """The positions as the envs can take them: without tasks, if the envs know none."""
        lacks = self._records.by_index[min(self._records.by_index)].why_no_tasks
        if not lacks or not any(position.tasks for position in positions):
            return positions
        _LOGGER.warning(
            "The tasks of the saved envs are dropped: the env %r cannot be given any: %s.",
            self._records.spec.env_factory.name,
            lacks,
        )
        return [replace(position, tasks=()) for position in positions]


def tasks_for_fresh_slots(positions: Sequence[SlotPosition]) -> tuple[TaskInForce, ...]:
    """What slots begin with that a state does not know: the task of all others, if it is one.

    Returns:
        the task as `SlotPosition.tasks`; empty for the env's first one.
    """
    known = [position.task_now for position in positions]
    if not known or not all(known):
        return ()
    is_one = all(same(task[0].task, known[0][0].task) for task in known)
    return known[0] if is_one else ()

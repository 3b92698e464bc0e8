"""What env runners are told, what they answer, and where they are while at work."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, Final, Literal, Protocol, TypeVar

import gymnasium

from callbacks import EVENTS, CallbackChain, CallbackSpec
from checkpoints import decode, encode
from trainer.connectors import ConnectedLayer, ConnectorFactories, Normalization, SampleBatch
from trainer.envs import EnvFactory, VectorEnv
from trainer.envs.multi_agent_env import EnvAgents
from trainer.envs.tasks import TaskInForce, followed_by
from trainer.episodes import SingleAgentEpisode, nested
from trainer.exploration import ExplorationSpec
from trainer.metrics import EpisodeRecord, MetricsLogger
from trainer.modules import ByModule, ModuleTable, RLModule, RLModuleSpec
from trainer.modules.module_table import table_from_record, table_record
from trainer.runtime.engine import Signals
from trainer.seeding import Role
from trainer.types import AgentId, Array, FloatArray, ModuleId, State
from trainer_toolkit import checks
from trainer_toolkit.plain_classes import NOT_KEPT, RARE, Plain, from_plain, itself, to_plain

# ---- messages
#
# All are frozen values, for they cross the process boundary.


# ---- env restarts


@dataclass(frozen=True)
class EnvRestarts:
    """Sub-envs that were made anew since the last answer, and what that cost.

    Attributes:
        count: how often one was made anew.
        num_episodes_lost, num_env_steps_lost: of their running episodes that were given up.
        repair_s: seconds spent on making envs and playing episodes again.
        texts: one line per repair, and the traceback below it.
    """

    count: int = 0
    num_episodes_lost: int = 0
    num_env_steps_lost: int = 0
    repair_s: float = 0.0
    texts: tuple[str, ...] = ()


# ---- trajectory postprocessing


class TrajectoryPostprocessing(Protocol):
    """What an algorithm adds to a trajectory before `on_postprocess_trajectory` shows it.

    A small frozen value, for it travels to the runners. It is there for callbacks alone: the
    learner computes what it learns from itself, except for what they rewrote.
    """

    @property
    def needs_whole_module(self) -> bool:
        """Whether runners need the parts of the module that acting does without."""

    def add_columns(self, batch: SampleBatch, *, module: RLModule, obs: FloatArray) -> None:
        """Adds columns, [T, ...] each; a function of its arguments alone.

        Args:
            batch: the T steps of one chunk.
            module: the runner's module.
            obs: encoded observations, [T + 1, D]: the last one follows the chunk.
        """


# ---- spec


@dataclass(frozen=True)
class EnvRunnerSpec:
    """Everything that makes an env runner, except what changes while training (see `Sync`).

    Attributes:
        env_factory: makes the sub-envs.
        table: the modules that it is made with, and the agents that they act for.
        callbacks: classes and functions; each process makes its own objects of them.
        config: the settings as plain mapping, for callbacks to read (`env_runner.config`).
        root_seed: the seed of the run.
        role: TRAINING or EVALUATION: which streams of randomness are used.
        worker_index: 0 in the main process, 1 … n in processes.
        num_workers: number of env runner processes of this group.
        num_envs: sub-envs of this runner.
        first_slot: number of the first sub-env among all of the group.
        num_slots: number of sub-envs of the group.
        explore: draw actions from the distribution; else take the most likely one.
        normalize_actions, clip_actions: how actions become what the env gets
            (`connectors.actions`).
        lookback: steps kept in front of a continued chunk (`episode_lookback_horizon`).
        checks_env: check the first answers of the env against the gymnasium contract.
        exploration: the strategy that chooses actions.
        postprocessing: what trajectories get before callbacks see them; None if the algorithm adds
            nothing, or no callback, listens.
        connectors: what makes the connector pieces beside each sub-env; None if there are none.
        sub_env_tolerance: a sub-env that fails is made anew alone, after so many failures in a row
            at most; None leaves it to the repair of its runner.
        episode_limit_s: a request for whole episodes ends early, with those that have ended, when
            none ended for so long; None waits.
        rewards_after_end: with several agents: "credit" or "error"; see `MultiAgentEpisode`.
        max_empty_steps: with several agents: env steps in a row in which no agent is observed.
        has_vector_env: the env is a vector env, which steps all sub-envs in one call.
    """

    env_factory: EnvFactory
    table: ModuleTable
    callbacks: CallbackSpec
    config: Mapping[str, Any]
    root_seed: int
    role: Role
    worker_index: int
    num_workers: int
    num_envs: int
    first_slot: int
    num_slots: int
    explore: bool = True
    normalize_actions: bool = True
    clip_actions: bool = False
    lookback: int = 1
    checks_env: bool = True
    exploration: ExplorationSpec = field(default_factory=ExplorationSpec)
    postprocessing: TrajectoryPostprocessing | None = None
    sub_env_tolerance: int | None = None
    connectors: ConnectorFactories | None = None
    episode_limit_s: float | None = None
    rewards_after_end: Literal["credit", "error"] = "credit"
    max_empty_steps: int = 1000
    has_vector_env: bool = False

    @property
    def module_specs(self) -> ByModule[RLModuleSpec]:
        """What makes the networks."""
        return self.table.specs

    @property
    def title(self) -> str:
        """Which runner of which env it is, for messages."""
        return f"env runner {self.worker_index} (env {self.env_factory.name!r})"

    @property
    def in_evaluation(self) -> bool:
        """Whether this runner plays evaluation episodes."""
        return self.role is Role.EVALUATION

    def at_place(self, index: int, num_env_runners: int) -> EnvRunnerSpec:
        """The spec of one runner of a group: 0 if there are no others, or 1 … n."""
        return replace(
            self,
            worker_index=index,
            num_workers=num_env_runners,
            first_slot=max(0, index - 1) * self.num_envs,
            num_slots=max(1, num_env_runners) * self.num_envs,
        )


_DECODED: Final = Plain(check=checks.anything(), to=decode, back=encode, is_rare=True)
"""Of what is kept as bytes, and is looked into in a checkpoint."""


@dataclass(frozen=True)
class SlotPosition:
    """Where an env slot stands between two requests.

    Together with the seed and the weights it is all that the slot's future depends on.

    Attributes:
        episode_number: of the episode that runs, or else of the one to be started next.
        env_seed: the seed of the running episode; None if none runs.
        actions: the running episode's actions so far as its module gave them, a chunk each.
        observation: its newest observation, to compare with after a replay.
        episode: state of the chunk that continues it, with `custom_data` and everything else a
            callback stored.
        earlier_chunks: states of its finished chunks; kept only if a callback listens to
            `on_episode_end`.
        continues: in answers: `actions` and `earlier_chunks` hold only what came after the position
            before, so that long episodes are not sent again and again.
        tasks: which tasks were in force, in order: the first one before the episode's reset, the
            last one now. If no episode runs, the one in force now. Empty if the env has no tasks,
            or they are unknown.
        env_state: of the env, encoded, to go on from without a replay; also between two episodes,
            for what an env carries over. None if it cannot be had, or the env was never reset.
        carried_state: where the state of the env as a whole is not known: what its wrappers carried
            over into the running episode, or carry if none runs, encoded. None if they carry
            nothing yet.
        connectors: what the connector pieces beside the env remembered before the running episode,
            or now if none runs; None for nothing.
        memory: of a network with memory: its state after the running episode's last action, as
            plain arrays; None before the first one.
        env_state_trouble: in answers: why the state of the env is used no longer; else empty.
        steps_ahead: agent steps made beyond what was asked for: the next request that counts agent
            steps asks for so many fewer.
    """

    episode_number: int = 0
    env_seed: int | None = None
    actions: tuple[Any, ...] = ()
    observation: Any = None
    episode: State | None = None
    earlier_chunks: tuple[State, ...] = ()
    continues: Annotated[bool, NOT_KEPT] = False
    tasks: Annotated[tuple[TaskInForce, ...], RARE] = ()
    env_state: Annotated[bytes | None, _DECODED] = None
    carried_state: Annotated[bytes | None, _DECODED] = None
    env_state_trouble: Annotated[str, NOT_KEPT] = ""
    connectors: Annotated[State | None, RARE] = None
    memory: Annotated[Any, RARE] = None
    steps_ahead: Annotated[int, RARE] = 0

    def following(self, before: SlotPosition) -> SlotPosition:
        """This position with all that it leaves out because `before` holds it."""
        if not self.continues:
            return self
        # For every slot in every request: `replace` takes 3 µs.
        whole = object.__new__(SlotPosition)
        vars(whole).update(
            vars(self),
            actions=before.actions + self.actions,
            earlier_chunks=before.earlier_chunks + self.earlier_chunks,
            continues=False,
        )
        return whole

    @property
    def num_steps(self) -> int:
        """Steps of the running episode so far."""
        return sum(nested.batch_length(chunk) for chunk in self.actions)

    def restarted(self, skip: int = 1) -> SlotPosition:
        """The position after giving up the running episode; the next number is larger by `skip`."""
        return SlotPosition(
            self.episode_number + skip,
            tasks=self.task_now,
            carried_state=self.carried_state,
            connectors=self.connectors,
            steps_ahead=self.steps_ahead,
        )

    @property
    def task_now(self) -> tuple[TaskInForce, ...]:
        """The task in force now, for an episode to come; empty if it is unknown."""
        return tuple(replace(entry, step=0) for entry in self.tasks[-1:])

    def with_task(self, task: Any) -> SlotPosition:
        """The position after another task was set there."""
        if self.env_seed is None:
            return replace(self, tasks=(TaskInForce(0, task),))
        return replace(self, tasks=followed_by(self.tasks, task, step=self.num_steps))


@dataclass(frozen=True)
class ModuleWeights:
    """One module's weights and their version, as they are sent to runners.

    Attributes:
        version: number of updates made; 0 is the first weights.
        state: the module's arrays by name.
        exploration: what the runners' strategies must know of that of the main process.
    """

    version: int
    state: Mapping[str, Array]
    exploration: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Weights:
    """The weights of all modules, as they are sent to runners.

    Attributes:
        modules: of each module.
        timestep: env steps sampled in the whole run when they were sent.
        connectors: what the connector pieces of the first training slot remember, for evaluation.
    """

    modules: ByModule[ModuleWeights]
    timestep: int = 0
    connectors: Annotated[State | None, RARE] = None

    @cached_property
    def version(self) -> int:
        """Updates made of all modules."""
        return sum(weights.version for weights in self.modules.values())


@dataclass(frozen=True, eq=False)
class PolicySnapshot:
    """How runners act at some moment: all that changes while training and is the same for them.

    It stays as it is; what follows is another one. What a runner lacks of it is a snapshot as well:
    a part that is None stays as it was.

    Attributes:
        weights: of all modules.
        normalization: what is done to observations and rewards, by module.
        table: the modules, and whom they act for; weights and normalisation are of these.
    """

    weights: Weights | None = None
    normalization: ByModule[Normalization] | None = None
    table: Annotated[ModuleTable | None, NOT_KEPT] = None  # its record is, see `to_state`

    def since(self, sent: PolicySnapshot | None) -> PolicySnapshot:
        """What of it a runner lacks that was sent another one last; parts are told by identity.

        Weights may be replaced by others of the same version. With another table everything is new.
        """
        if sent is self:
            return NOTHING_NEW
        if sent is None or sent.table is not self.table:
            return self
        return PolicySnapshot(
            None if self.weights is sent.weights else self.weights,
            None if self.normalization is sent.normalization else self.normalization,
        )

    def followed_by(self, newer: PolicySnapshot) -> PolicySnapshot:
        """The same with the parts that a newer one has; itself if these are its own."""
        weights, table = newer.weights or self.weights, newer.table or self.table
        normalization = newer.normalization
        if normalization is None or _is_same(self.normalization, normalization):
            normalization = self.normalization
        is_own = weights is self.weights and normalization is self.normalization
        if is_own and table is self.table:
            return self
        return PolicySnapshot(weights, normalization, table)

    def acts_as(self, other: PolicySnapshot) -> bool:
        """Whether another one has the same parts, told by identity as in `since`."""
        known, others = self.normalization, other.normalization
        return (
            self.weights is other.weights
            and self.table is other.table
            and (known is others or (others is not None and _is_same(known, others)))
        )

    def to_state(self, array: Callable[[Array], Any] = itself) -> State:
        """Plain data; `array` says how arrays are kept. The table is left out if there is none."""
        record = {} if self.table is None else {"table": table_record(self.table)}
        return {**to_plain(self, array=array), **record}

    @property
    def ids(self) -> tuple[ModuleId, ...]:
        """Of the modules."""
        return self.whole_table.specs.ids if self.weights is None else self.weights.modules.ids

    @property
    def whole_table(self) -> ModuleTable:
        """The table, of a snapshot that must have one: what a group acts with always does."""
        assert self.table is not None  # noqa: S101 - see above
        return self.table

    @property
    def version(self) -> int:
        """Updates behind the weights, of all modules; 0 if there are none."""
        return 0 if self.weights is None else self.weights.version

    @classmethod
    def from_state(cls, state: State, now: PolicySnapshot) -> PolicySnapshot:
        """The snapshot that `to_state` was called on.

        Args:
            state: what it gave.
            now: the policy of now: of the same modules, or with a table whose code the other has.
        """
        saved = from_plain(cls, {name: state[name] for name in ("weights", "normalization")})
        if "table" in state and now.table is not None:
            return replace(saved, table=table_from_record(state["table"], now=now.table))
        return saved.called(now.ids)

    def called(self, ids: Sequence[ModuleId]) -> PolicySnapshot:
        """The same of an only module that has another id here; of several, itself."""
        weights, normalization = self.weights, self.normalization
        if len(ids) > 1 or weights is None or len(weights.modules) > 1:
            return self
        modules = ByModule({ids[0]: weights.modules.only})
        if normalization is not None:
            normalization = ByModule({ids[0]: normalization.only})
        return replace(self, weights=replace(weights, modules=modules), normalization=normalization)


NOTHING_NEW: Final = PolicySnapshot()
"""What a runner lacks that acts as it should."""


def _is_same(known: ByModule[Normalization] | None, given: ByModule[Normalization]) -> bool:
    return (
        known is not None
        and known.ids == given.ids
        and all(known[id_] is one for id_, one in given.items())
    )


@dataclass(frozen=True)
class Sync:
    """What a runner is brought up to date with, before it does what it is asked.

    None leaves a part as it is. The same value starts a runner and puts one back: there is no
    second way to set a part.

    Attributes:
        policy: what is new about how it acts.
        positions: one per sub-env; running episodes are played again up to there.
        callbacks: state of the callback objects.
        evaluation: the stream of randomness of what evaluation runners play on their own.
        tasks: one per sub-env, to be set where the sub-env stands; None leaves its task. Positions
            hold their tasks already, so they never come together.
        new_modules: ids of modules that the callbacks were not told of yet. They are with a
            request; the making of a runner leaves it to the next one.
    """

    policy: PolicySnapshot = NOTHING_NEW
    positions: tuple[SlotPosition, ...] | None = None
    callbacks: State | None = None
    evaluation: int = 0
    tasks: tuple[TaskInForce | None, ...] | None = None
    new_modules: tuple[ModuleId, ...] = ()


@dataclass(frozen=True)
class Assignment:
    """What one slot is to play.

    Attributes:
        stream: first half of the episodes' position: the slot (training) or the number of the
            evaluation.
        ticket: evaluation: number of the first episode; None goes on with the slot's own numbers.
        stride: what is added to an episode's number for the next one, so that tickets do not meet.
        num_env_steps: play so many steps; None if something else is counted.
        num_episodes: play so many episodes; None if steps are counted.
        whole_episodes: after so many steps, go on to the end of the running episode.
        num_agent_steps: play env steps until so many agent steps are made; None if something else
            is counted. What is made beyond that counts for the slot's next assignment of this
            kind, unless it plays whole episodes or a ticket.
    """

    stream: int
    ticket: int | None = None
    stride: int = 1
    num_env_steps: int | None = None
    num_episodes: int | None = None
    whole_episodes: bool = False
    num_agent_steps: int | None = None

    @property
    def num_steps(self) -> int | None:
        """Env steps or agent steps to play; None if episodes are counted."""
        return self.num_agent_steps if self.num_env_steps is None else self.num_env_steps

    @property
    def settles_steps(self) -> bool:
        """Whether agent steps made beyond it count for the next such assignment."""
        counts = self.num_agent_steps is not None
        return counts and not self.whole_episodes and self.ticket is None


class Rounds(Protocol):
    """What happens between the rounds of a request to the runner of the main process.

    Attributes:
        steps_per_slot: env steps of a round, in each slot.
    """

    steps_per_slot: int

    def end_round(self, played: Sequence[SingleAgentEpisode], module: RLModule) -> int:
        """Takes what was played, and gives the module the weights of the next round.

        Args:
            played: episodes that may have made steps in this round, by slot, then time; growing
                ones as they are, with lists for columns.
            module: what acts.

        Returns:
            the `timestep` of the next round.
        """


@dataclass(frozen=True)
class SampleRequest:
    """One request to one runner.

    Attributes:
        assignments: training: one per slot, in order; evaluation: tickets that free slots take in
            order.
        explore: overrides the runner's setting; None keeps it.
        random_actions: draw actions uniformly, without the network.
        force_reset: give up running episodes first.
        timestep: env steps sampled in the whole run before; what schedules of exploration follow.
        steps_per_chunk: play the assignments in chunks of so many env steps over all slots, least
            and most, one after the other until the main process tells it to end.
        returns_episodes: hand the episodes out; without, their records alone.
        rounds: the main process learns in between, after as many steps of each slot; None plays
            without a break.
    """

    assignments: tuple[Assignment, ...]
    explore: bool | None = None
    random_actions: bool = False
    force_reset: bool = False
    timestep: int = 0
    steps_per_chunk: Annotated[tuple[int, int] | None, NOT_KEPT] = None
    returns_episodes: bool = True
    rounds: Annotated[Rounds | None, NOT_KEPT] = None


@dataclass(frozen=True)
class PlayTimes:
    """Where the time of a request went, in seconds.

    Attributes:
        env_step: in steps of the sub-envs, recording them included.
        env_reset: in their resets.
        inference: in choosing actions: the network's forward pass and what is around it.
        callbacks: in events of the runner.
    """

    env_step: float = 0.0
    env_reset: float = 0.0
    inference: float = 0.0
    callbacks: float = 0.0

    def __add__(self, other: PlayTimes) -> PlayTimes:
        return PlayTimes(
            self.env_step + other.env_step,
            self.env_reset + other.env_reset,
            self.inference + other.inference,
            self.callbacks + other.callbacks,
        )

    def entries(self) -> dict[str, float]:
        """The entries of a result, under RLlib's names where it has them."""
        return {
            "env_step_timer": self.env_step,
            "env_reset_timer": self.env_reset,
            "rlmodule_inference_timer": self.inference,
            "callbacks_timer": self.callbacks,
        }


_Id = TypeVar("_Id", bound=Hashable)


@dataclass(frozen=True)
class PlayCounts:
    """What was played, in numbers: in an answer, a sample, an iteration, or a run.

    Attributes:
        num_env_steps: env steps made.
        num_episodes: episodes that ended.
        num_episodes_lost, num_env_steps_lost: of running episodes that had to be given up.
        num_agent_steps, num_module_steps: actions of which the outcome is known, by agent and by
            module.
        agent_counts: with several agents: what happened to them, by name.
        num_sub_env_restarts: sub-envs that were made anew because they failed.
        repair_s: seconds spent on replacing runners and sub-envs.
        times: where the time of the runners went, summed over them.
    """

    num_env_steps: int = 0
    num_episodes: int = 0
    num_episodes_lost: int = 0
    num_env_steps_lost: int = 0
    num_agent_steps: Mapping[AgentId, int] = field(default_factory=dict)
    num_module_steps: Mapping[ModuleId, int] = field(default_factory=dict)
    agent_counts: Mapping[str, int] = field(default_factory=dict)
    num_sub_env_restarts: int = 0
    repair_s: float = 0.0
    times: PlayTimes = field(default_factory=PlayTimes)

    def __add__(self, more: PlayCounts) -> PlayCounts:
        return PlayCounts(
            self.num_env_steps + more.num_env_steps,
            self.num_episodes + more.num_episodes,
            self.num_episodes_lost + more.num_episodes_lost,
            self.num_env_steps_lost + more.num_env_steps_lost,
            added_by_id(self.num_agent_steps, more.num_agent_steps),
            added_by_id(self.num_module_steps, more.num_module_steps),
            added_by_id(self.agent_counts, more.agent_counts),
            self.num_sub_env_restarts + more.num_sub_env_restarts,
            self.repair_s + more.repair_s,
            self.times + more.times,
        )

    def num_steps(self, count_by: str) -> int:
        """Steps played, counted by "env_steps" or by "agent_steps"."""
        by_agent = count_by == "agent_steps"
        return sum(self.num_agent_steps.values()) if by_agent else self.num_env_steps


def added_by_id(counts: Mapping[_Id, int], more: Mapping[_Id, int]) -> Mapping[_Id, int]:
    """Counts by id, added up; ids in the order in which they came."""
    if not more:
        return counts
    return {**counts, **{id_: counts.get(id_, 0) + count for id_, count in more.items()}}


@dataclass(frozen=True)
class SampleReply:
    """The answer: what the main process commits when it has arrived, and nothing it had before.

    Attributes:
        episodes: finished episodes and chunks, ordered by slot, then time.
        records: one per finished episode, ordered by slot, then time.
        numbers: the episode numbers of the records.
        metrics: what was logged since the last answer, for `MetricsLogger.aggregate`.
        positions: where the slots stand now.
        callbacks: state of the callback objects; None if they have none.
        counts: what was played; losses are those since the last answer, of episodes that could not
            be put back or were given up with their sub-env.
        weights_version: of the weights that acted.
        table_version: of the modules and the mapping of agents that were in force.
        mapping_fingerprint: of this mapping; see `PolicyMapping`.
        restarts: what was done about sub-envs that failed since then.
    """

    episodes: tuple[SingleAgentEpisode, ...]
    records: tuple[EpisodeRecord, ...]
    numbers: tuple[int, ...]
    metrics: Any
    positions: tuple[SlotPosition, ...]
    callbacks: State | None
    counts: PlayCounts
    weights_version: int
    table_version: int = 0
    mapping_fingerprint: str = ""
    restarts: EnvRestarts = field(default_factory=EnvRestarts)


@dataclass(frozen=True)
class RunnerReport:
    """What a runner says after it was made.

    Attributes:
        module_specs: what its modules were made from, with the spaces of its envs filled in.
        lost: sub-envs (index in the runner → steps) whose running episode could not be put back.
        callbacks: state of its callback objects; None if they have none.
        metrics: what was logged while it was made.
        tasks: of its sub-envs as they were made, before anything was put back; None if they cannot
            be given tasks.
        env_states: of its sub-envs, likewise; None where there is none before the first reset.
        why_no_tasks: what they lack for it.
        silent_wrappers: of its sub-envs: those of which it is unknown what they carry from episode
            to episode.
        why_no_env_state: what keeps the state of its sub-envs from being used; empty if it is used,
            or if they say nothing about it.
        agents: all possible agents and their spaces; None for an env of one agent.
        mapping_answers: which modules its `policy_mapping_fn` gave the agents of some episodes that
            it was asked about; see `PolicyMapping.answers`.
    """

    module_specs: ByModule[RLModuleSpec]
    metrics: Any
    lost: Mapping[int, int] = field(default_factory=dict)
    callbacks: State | None = None
    tasks: tuple[TaskInForce, ...] | None = None
    env_states: tuple[bytes | None, ...] = ()
    why_no_tasks: str = ""
    why_no_env_state: str = ""
    silent_wrappers: tuple[str, ...] = ()
    agents: EnvAgents | None = None
    mapping_answers: tuple[Mapping[AgentId, ModuleId], ...] = ()


# ---- shares
#
# The one remainder rule: slots of a runner, slots of a group and evaluation tickets follow it.


def share_out(total: int, num_shares: int) -> list[int]:
    """Splits a number of steps or episodes as evenly as whole numbers allow.

    Everyone gets the whole part, the first ones one of the remainder each: 10 in 4 shares is [3, 3,
    2, 2]. At least one share, of a total of at least 0.
    """
    whole, remainder = divmod(total, num_shares)
    return [whole + (index < remainder) for index in range(num_shares)]


# ---- activity notes
#
# Where a runner was: noted in shared memory, so that it is known even if its process dies.
#
#     runner    `episode_begins` per episode, `doing` per reset and event; nothing per env step
#     main      `post_mortem` of a process that was lost

NOTHING: Final = ""
STEPPING: Final = "step()"
RESETTING: Final = "reset()"
MAKING: Final = "making its envs"
PUTTING_BACK: Final = "putting its episodes back"
REPAIRING: Final = "making a sub-env anew"

DOINGS: Final = (
    NOTHING,
    STEPPING,
    RESETTING,
    MAKING,
    PUTTING_BACK,
    REPAIRING,
    *(name for name, event in EVENTS.items() if event.scope == "env_runner"),
)
_CODES: Final = {doing: code for code, doing in enumerate(DOINGS)}

# What the numbers in `Signals.notes` mean.
DOING, ENV_INDEX, STREAM, EPISODE, SEED, HEARTBEATS = range(6)


def is_putting_back(notes: Sequence[int]) -> bool:
    """Whether a runner was last putting its episodes back, as `Signals.notes` say."""
    return notes[DOING] == _CODES[PUTTING_BACK]


class ActivityNotes:
    """Notes what a runner does.

    Attributes:
        last: what it did last, for the errors that it raises itself.
    """

    def __init__(self, signals: Signals | None) -> None:
        """Nothing is noted yet; signals are shared with the main process, None in itself."""
        self._signals = signals
        self.last = ""

    def doing(self, what: str) -> None:
        """Notes what begins now, one of the names above or of an event."""
        self.last = what
        if self._signals is not None:
            self._signals.notes[DOING] = _CODES[what]

    def episode_begins(self, env_index: int, *, stream: int, number: int, seed: int) -> None:
        """Notes the episode that a sub-env is about to be reset for."""
        signals = self._signals
        if signals is not None:
            notes = signals.notes
            # One more, because 0 is what is there before anything is noted.
            notes[ENV_INDEX] = env_index + 1
            notes[STREAM], notes[EPISODE], notes[SEED] = stream, number, seed
            notes[HEARTBEATS] = signals.num_heartbeats
        self.doing(RESETTING)


# ---- runner parts


class RunnerParts(Protocol):
    """The parts of a runner that its loop works with."""

    spec: EnvRunnerSpec
    env: VectorEnv
    module: RLModule
    modules: ByModule[RLModule]
    metrics: MetricsLogger
    callbacks: CallbackChain

    def connected(
        self, env: gymnasium.Env[Any, Any], connectors: ConnectorFactories
    ) -> ConnectedLayer:
        """A sub-env with new connector pieces beside it."""

    def explain(self, error: Exception, episodes: Sequence[Any]) -> None:
        """Raises what is behind an error of an env, if its running episodes show it."""

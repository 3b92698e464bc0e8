"""What several agents saw, did and got in one env: the cases of a step, and every reward counted.

An episode of several agents is one `SingleAgentEpisode` per agent and a *clock*: the env steps at
which the agent was observed. Between two of its observations an agent may wait for many env steps;
what it did and earned in the meantime stands in an *open row*. `docs/multi-agent.md` has the table
of all cases; reading is in `agent_columns.py`, cutting and joining in `agent_parts.py`.

The ledger changes in `add_reset` and `add_step` only. Both look at everything before they change
anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, NoReturn, TypeVar

from trainer.agent_ids import (
    ALL_AGENTS,
    COMMON_INFOS,
    AgentIds,
    canonical_order,
    listed,
    plain_id,
    why_no_agent_id,
)
from trainer.episodes.episode_columns import Change, is_number, joined_changes
from trainer.episodes.single_agent_episode import ActingRequest, SingleAgentEpisode
from trainer.errors import EnvContractError, EpisodeError
from trainer.metrics.statistic import exact_partials, rounded_sum
from trainer.types import AgentId, ModuleId
from trainer_toolkit.nearest_names import did_you_mean

RewardsAfterEnd = Literal["credit", "error"]
"""What becomes of rewards for agents that have ended."""

_Sum = TypeVar("_Sum")
_NO_OUTPUTS: Final[Mapping[str, Any]] = {}
_PLAIN_KINDS: Final = frozenset((int, str))


class AgentEnd(NamedTuple):
    """How an agent ended.

    Attributes:
        env_t: the env step of its end.
        terminated: it reached a final state.
        truncated: a limit ended it.
        appeared: whether it was ever observed. One that was not is only no longer waited for.
        steps: its own steps in the whole episode.
    """

    env_t: int
    terminated: bool
    truncated: bool
    appeared: bool = True
    steps: int = 0


@dataclass(slots=True)
class OpenRow:
    """What an agent did that has not been observed since.

    Attributes:
        env_t: the env step at which it acted, which is that of its newest observation.
        action: as the module emitted it.
        parts: exact partials of what it earned since.
        outputs: the extra outputs of its module, {name: item}.
        request: in which it acted, if that is over and the log-likelihood of the action follows
            from it.
    """

    env_t: int
    action: Any
    parts: list[float]
    outputs: Mapping[str, Any]
    request: ActingRequest | None = None

    @property
    def reward(self) -> float:
        """What it earned since it acted, rounded once."""
        return self.parts[0] if self.parts else 0.0

    def copied(self) -> OpenRow:
        """A row of its own for the chunk that goes on."""
        return OpenRow(self.env_t, self.action, list(self.parts), self.outputs, self.request)


class AgentLine:
    """One agent in one chunk.

    Attributes:
        episode: its completed rows.
        clock: the env step of each observation of `episode`, look-back included.
        open: what it did since its newest observation; None if it owes an action, or has ended.
    """

    __slots__ = ("_name", "_record", "clock", "episode", "open")

    def __init__(
        self, episode: SingleAgentEpisode, clock: list[int], open_row: OpenRow | None = None
    ) -> None:
        self.episode = episode
        self.clock = clock
        self.open = open_row
        self._name = ""  # of the only extra output, as soon as there is one
        self._record: Callable[..., None] | None = None

    def takes(self, outputs: Mapping[str, Any] | None) -> bool:
        """Whether a row with these extra outputs fits to the rows before."""
        columns = self.episode.extra_model_outputs
        return (outputs or _NO_OUTPUTS).keys() == columns.keys() or not len(self.episode.rewards)

    def adder(self, outputs: Mapping[str, Any] | None) -> tuple[Callable[..., None] | None, Any]:
        """What adds a row with these extra outputs to `episode`; None if a look at both is needed.

        It takes observation, action, reward and info, and as last what comes with it here.
        """
        episode = self.episode
        columns = episode.extra_model_outputs
        if outputs and episode.is_growing and outputs.keys() == columns.keys():
            # Looked at: nothing of `add_env_step` is needed any more.
            if self._record is not None:
                return self._record, outputs[self._name]
            if len(columns) == 1:
                (self._name,) = columns
                self._record = episode.step_recorder(self._name)
            return self._append, outputs
        self._record = None  # of lists that steps are no longer added to
        is_fit = not episode.is_numpy and self.takes(outputs)
        return (self._add_with_checks if is_fit else None), outputs

    def _append(self, observation: Any, action: Any, reward: Any, info: Any, outputs: Any) -> None:
        self.episode.append_step(observation, action, reward, info, False, False, outputs)

    def _add_with_checks(
        self, observation: Any, action: Any, reward: Any, info: Any, outputs: Any
    ) -> None:
        self.episode.add_env_step(observation, action, reward, info, extra_model_outputs=outputs)

    def add_row(
        self,
        env_t: int,
        observation: Any,
        action: Any,
        reward: Any,
        info: dict[str, Any] | None,
        outputs: Mapping[str, Any] | None,
    ) -> None:
        """Adds a completed row whose observation came at `env_t`."""
        self.episode.add_env_step(observation, action, reward, info, extra_model_outputs=outputs)
        self.clock.append(env_t)


class _EpisodesByAgent(Mapping[AgentId, SingleAgentEpisode]):
    """The episodes of a ledger's agents, canonical order."""

    __slots__ = ("_ledger",)

    def __init__(self, ledger: AgentLedger) -> None:
        self._ledger = ledger

    def __getitem__(self, agent: AgentId) -> SingleAgentEpisode:
        return self._ledger.lines[agent].episode

    def __iter__(self) -> Iterator[AgentId]:
        return iter(self._ledger.agents())

    def __len__(self) -> int:
        return len(self._ledger.lines)

    def __repr__(self) -> str:
        return repr(dict(self))


class _Step(NamedTuple):
    """An env step as it was given, with ids in the form that the ledger uses."""

    observations: Mapping[AgentId, Any]
    actions: Mapping[AgentId, Any]
    rewards: Mapping[AgentId, Any]
    infos: Mapping[AgentId, Any]
    terminateds: Mapping[AgentId, Any]
    truncateds: Mapping[AgentId, Any]
    outputs: Mapping[AgentId, Any]
    all_terminated: bool
    all_truncated: bool

    def flags(self, agent: AgentId) -> tuple[bool, bool]:
        """Whether an agent was terminated and truncated, itself or with all."""
        own = bool(self.terminateds.get(agent)), bool(self.truncateds.get(agent))
        return own if any(own) else (self.all_terminated, self.all_truncated)


class AgentLedger:
    """The agents of one chunk, and what is known of the whole episode.

    Attributes:
        id_: of the episode.
        possible: all agents that can ever appear, canonical order; None if that is not known, and
            then only `__all__` ends the episode.
        rewards_after_end: "credit" adds a reward for an agent that has ended to its last row, if
            this chunk has it; "error" refuses.
        observation_spaces: by agent, as far as they are known.
        action_spaces: by agent, as far as they are known.
        modules: {agent: module id}, as far as assigned.
        episode_ids: {agent: id of its single-agent episode}; others get `<id_>/<agent>`.
        env_t_started: env steps before this chunk.
        env_t: env steps up to now.
        lookback: env steps before `env_t_started` that are shown.
        is_reset: whether the env was reset.
        is_terminated: see the table of ends in docs/multi-agent.md.
        is_truncated: see the table of ends in docs/multi-agent.md.
        lines: the agents of this chunk.
        ends: of the agents that have ended, in this chunk or before.
        appeared: {agent: env step of its first observation}, whole episode.
        infos: {env step: {agent or "__common__": info}} of those without an observation.
        before: {agent: exact partials of its rewards before its first observation}.
        late: {agent: its rewards after its end in this chunk that no row has}.
        late_earlier: {agent: exact partials of those of earlier chunks}.
        rounding: {agent: exact partials of what rounding took off rows of this chunk that have
            several rewards}.
        rounding_earlier: {agent: exact partials of what rounding took off rows of earlier chunks}.
        gone: {agent: exact partials of its rows}, for agents that ended in an earlier chunk.
        gone_change: what rewriting added to those rows.
        recent: rewards by agent of the env step before the newest one, and of the newest.
        num_rewards_after_end: in this chunk.
        num_truncations_without_observation: in this chunk.
        num_empty_steps: env steps without action and observation since the last one with either.
        num_rows_added: completed rows that steps added to this ledger.
    """

    def __init__(
        self,
        id_: str,
        *,
        possible: Iterable[AgentId] | None = None,
        rewards_after_end: RewardsAfterEnd = "credit",
        observation_spaces: Mapping[AgentId, Any] | None = None,
        action_spaces: Mapping[AgentId, Any] | None = None,
        modules: Mapping[AgentId, ModuleId] | None = None,
        episode_ids: Mapping[AgentId, str] | None = None,
        env_t: int = 0,
    ) -> None:
        if rewards_after_end not in ("credit", "error"):
            raise EpisodeError(
                f"Episode {id_!r} got rewards_after_end={rewards_after_end!r:.80}; expected "
                '"credit" or "error". Leave it out to add such rewards to the last row.'
            )
        self.id_ = id_
        self.possible = None if possible is None else tuple(canonical_order(possible))
        self._ids = {agent: agent for agent in self.possible or ()}
        self.rewards_after_end: RewardsAfterEnd = rewards_after_end
        self.observation_spaces = dict(observation_spaces or {})
        self.action_spaces = dict(action_spaces or {})
        self.modules: dict[AgentId, ModuleId] = dict(modules or {})
        self.episode_ids: dict[AgentId, str] = dict(episode_ids or {})
        self.env_t_started = self.env_t = env_t
        self.lookback = 0
        self.is_reset = self.is_terminated = self.is_truncated = False
        self.lines: dict[AgentId, AgentLine] = {}
        self.ends: dict[AgentId, AgentEnd] = {}
        self.appeared: dict[AgentId, int] = {}
        self.infos: dict[int, dict[AgentId, Any]] = {}
        self.before: dict[AgentId, list[float]] = {}
        self.late: dict[AgentId, list[float]] = {}
        self.late_earlier: dict[AgentId, list[float]] = {}
        self.rounding: dict[AgentId, list[float]] = {}
        self.rounding_earlier: dict[AgentId, list[float]] = {}
        self.gone: dict[AgentId, list[float]] = {}
        self.gone_change: Change = None
        self.recent: tuple[Mapping[AgentId, Any], Mapping[AgentId, Any]] = ({}, {})
        self.num_rewards_after_end = 0
        self.num_truncations_without_observation = 0
        self.num_empty_steps = 0
        self.num_rows_added = 0
        self._owing: list[tuple[AgentId, AgentLine]] = []
        self._owing_ids: AgentIds | None = None
        self._agents = AgentIds()

    @property
    def is_done(self) -> bool:
        """Whether the episode has ended."""
        return self.is_terminated or self.is_truncated

    # Who is there.

    def agents(self) -> AgentIds:
        """The agents of this chunk; the same object until one more comes, for none ever leaves."""
        if len(self._agents) != len(self.lines):
            self._agents = AgentIds(self.lines)
        return self._agents

    def episodes(self) -> Mapping[AgentId, SingleAgentEpisode]:
        """{agent: its episode}, canonical order; a view, as one of many agents is asked for."""
        return _EpisodesByAgent(self)

    def owing(self) -> AgentIds:
        """The agents that have to act in the next env step; the same object until they change."""
        if self._owing_ids is None:
            self._owing_ids = AgentIds(agent for agent, _ in self._owing)
        return self._owing_ids

    def running(self) -> list[AgentId]:
        """The agents between their first observation and their end, canonical order."""
        return canonical_order(self.lines.keys() - self.ends.keys())

    def known(self) -> set[AgentId]:
        """All agents that the episode knows of."""
        return {*(self.possible or ()), *self.lines, *self.ends, *self.appeared, *self.modules}

    def known_id(self, agent: Any) -> AgentId | None:
        """The id of an agent that the episode knows, in the ledger's form; None for others."""
        own = self._ids.get(agent)
        if own is not None:
            return own
        own = plain_id(agent)
        places: tuple[Mapping[AgentId, Any], ...]
        places = (self.lines, self.ends, self.appeared, self.modules)
        return own if any(own in by_agent for by_agent in places) else None

    def own_id(self, agent: Any, where: str) -> AgentId:
        """The id in the form that the ledger uses; an EnvContractError if there is no such one."""
        own = plain_id(agent) if self.possible is None else self._ids.get(agent)
        if own is None or type(agent) is bool or why_no_agent_id(own) is not None:
            self._refuse_id(agent, where)
        return own

    def _refuse_id(self, agent: Any, where: str) -> NoReturn:
        if self.possible is None:
            problem = f"{why_no_agent_id(plain_id(agent))}. Give every agent an id of its own."
        else:
            near = did_you_mean(agent, self.possible, similarity=0.5)
            problem = (
                f"the possible agents are {listed(self.possible)}.{near} List every agent that can "
                "ever appear in `possible_agents`."
            )
        raise EnvContractError(f"There is no agent {agent!r:.80} in {where}: {problem}")

    def _where(self, what: str, env_t: int) -> str:
        return f"`{what}` of episode {self.id_!r} at env step {env_t}"

    def find_owing(self) -> None:
        """Finds out anew who owes an action; a step tells it without looking at all agents."""
        self._owe([agent for agent in self.running() if self.lines[agent].open is None])

    def _owe(self, agents: Iterable[AgentId]) -> None:
        """Notes who owes an action: of these, in canonical order, those that have not ended."""
        self._owing_ids = None
        self._owing = [
            (agent, self.lines[agent])
            for agent in (() if self.is_done else agents)
            if agent not in self.ends
        ]

    # The reset.

    def add_reset(
        self, observations: Mapping[Any, Any], infos: Mapping[Any, Any] | None = None
    ) -> None:
        """Adds what `env.reset()` returned.

        Raises:
            EpisodeError: the episode was reset already.
            EnvContractError: an agent is not possible.
        """
        t = self.env_t
        if self.is_reset or self.is_done or self.lines:
            raise EpisodeError(
                f"Episode {self.id_!r} was reset already. An episode is reset once, before its "
                "first step. Make a new MultiAgentEpisode for the next episode."
            )
        seen = self._own_keys(observations, "observations", t)
        given = dict(self._own_keys(infos or {}, "infos", t, but=(COMMON_INFOS,)))
        self.is_reset = True
        for agent in canonical_order(seen):
            self._start(agent, seen[agent], given.pop(agent, None))
        if given:
            self.infos[t] = given
        self.find_owing()

    def _start(self, agent: AgentId, observation: Any, info: dict[str, Any] | None) -> None:
        self.ends.pop(agent, None)  # it was flagged before anybody saw it
        episode = self.new_episode(agent)
        episode.add_env_reset(observation, info)
        self.lines[agent] = AgentLine(episode, [self.env_t])
        self.appeared[agent] = self.env_t

    def new_episode(self, agent: AgentId) -> SingleAgentEpisode:
        """An empty episode of one agent."""
        return SingleAgentEpisode(
            self.episode_id(agent),
            observation_space=self.observation_spaces.get(agent),
            action_space=self.action_spaces.get(agent),
            agent_id=agent,
            module_id=self.modules.get(agent),
            multi_agent_episode_id=self.id_,
        )

    def episode_id(self, agent: AgentId) -> str:
        """The id of the episode of one agent."""
        return self.episode_ids.get(agent, f"{self.id_}/{agent}")

    # A step.

    def add_step(
        self,
        observations: Mapping[Any, Any],
        actions: Mapping[Any, Any],
        rewards: Mapping[Any, Any],
        infos: Mapping[Any, Any],
        terminateds: Mapping[Any, Any],
        truncateds: Mapping[Any, Any],
        outputs: Mapping[Any, Any],
    ) -> None:
        """Adds the actions of one env step and what `env.step(actions)` returned.

        Raises:
            EpisodeError: it is over or not reset; who owes an action and who acted differ; the
                extra outputs differ from those of earlier rows.
            EnvContractError: an agent is not possible, was observed after its end, or got a reward
                that is no number or (with "error") came after its end.
        """
        flags = None
        if any(terminateds.values()) or any(truncateds.values()):
            flags = terminateds, truncateds
        if self._add_usual_step(observations, actions, rewards, infos, outputs, flags):
            return
        t = self.env_t + 1
        if self.is_done or not self.is_reset:
            state = "is done" if self.is_done else "was not reset"
            raise EpisodeError(
                f"Episode {self.id_!r} {state}, so no step can be added. An episode begins with "
                "`add_env_reset()` and takes steps until it ends. Make a new MultiAgentEpisode for "
                "the next episode."
            )
        step = _Step(
            self._own_keys(observations, "observations", t),
            self._own_keys(actions, "actions", t, error=EpisodeError),
            self._own_keys(rewards, "rewards", t),
            self._own_keys(infos, "infos", t, but=(COMMON_INFOS,)),
            self._own_keys(terminateds, "terminateds", t, but=(ALL_AGENTS,)),
            self._own_keys(truncateds, "truncateds", t, but=(ALL_AGENTS,)),
            self._own_keys(outputs, "extra_model_outputs", t, error=EpisodeError),
            bool(terminateds.get(ALL_AGENTS)),
            bool(truncateds.get(ALL_AGENTS)),
        )
        self._check_actors(step)
        self._check_answers(step)
        self._check_forms(step)
        self._apply(step)

    def _add_usual_step(
        self,
        observations: Mapping[Any, Any],
        actions: Mapping[Any, Any],
        rewards: Mapping[Any, Any],
        infos: Mapping[Any, Any],
        outputs: Mapping[Any, Any],
        flags: tuple[Mapping[Any, Any], Mapping[Any, Any]] | None,
    ) -> bool:
        """Adds a step in which all that act are observed and get a reward, and no other is.

        That is nearly every step of most envs: nothing else can apply, so nothing else is looked
        at. Measured: 1 µs per agent. Arguments as of `add_step`; `flags` are `terminateds` and
        `truncateds`, if any is set.

        Returns:
            False, with nothing changed, if it is another kind of step.
        """
        owing = self._owing
        if not owing or not len(observations) == len(actions) == len(rewards) == len(owing):
            return False
        if infos and not infos.keys() <= observations.keys():
            return False
        if flags and not (flags[0].keys() | flags[1].keys()) <= observations.keys():
            return False  # of all, or of others
        rows = []
        try:
            for agent, line in owing:
                reward = rewards[agent]
                add, given = line.adder(outputs.get(agent))
                if add is None or not (type(reward) is float or is_number(reward)):
                    return False
                info = infos.get(agent)
                info = {} if info is None else info
                rows.append((line, add, observations[agent], actions[agent], reward, info, given))
        except KeyError:
            return False
        self.env_t = t = self.env_t + 1
        for line, add, observation, action, reward, info, given in rows:
            add(observation, action, reward, info, given)
            line.clock.append(t)
        self.recent = self.recent[1], dict(rewards)
        self.num_empty_steps = 0
        self.num_rows_added += len(rows)
        if flags:
            for agent, line in owing:
                self._end_agent(agent, line, *(bool(by_agent.get(agent)) for by_agent in flags))
            self._note_end(all_terminated=False, all_truncated=False)
            self._owe([agent for agent, _ in owing])
        return True

    def _end_agent(
        self, agent: AgentId, line: AgentLine, terminated: bool, truncated: bool
    ) -> None:
        """Notes that the newest row of an agent was its last one, if either flag is set."""
        if terminated or truncated:
            line.episode.end(terminated=terminated, truncated=truncated)
            self.ends[agent] = AgentEnd(self.env_t, terminated, truncated, steps=line.episode.t)

    def _own_keys(
        self,
        given: Mapping[Any, Any],
        what: str,
        env_t: int,
        *,
        but: tuple[str, ...] = (),
        error: type[Exception] = EnvContractError,
    ) -> Mapping[AgentId, Any]:
        """A dict of the env by the ledger's own ids; itself if it has these."""
        ids = self._ids
        if given.keys() <= ids.keys():
            kinds = {*map(type, given)}
            if kinds <= _PLAIN_KINDS:
                return given
            if bool not in kinds:
                return {ids[agent]: value for agent, value in given.items()}
        own = {}
        for agent, value in given.items():
            if agent in but:
                if agent == COMMON_INFOS:
                    own[agent] = value
                continue
            try:
                own[self.own_id(agent, self._where(what, env_t))] = value
            except EnvContractError as cause:
                if error is EnvContractError:
                    raise
                raise error(str(cause)) from cause
        return own

    def _check_actors(self, step: _Step) -> None:
        """Compares who acted with who owed an action."""
        owing = dict(self._owing)
        t = self.env_t
        for agent in canonical_order(owing.keys() - step.actions.keys()):
            raise EpisodeError(
                f"Agent {agent!r} of episode {self.id_!r} was observed at env step {t}, and the "
                f"next step has no action of it; there are actions of {listed(step.actions)}. Who "
                "is observed acts in the next env step. Ask `get_agents_to_act()` who owes one."
            )
        for agent in canonical_order(step.actions.keys() - owing.keys()):
            raise EpisodeError(
                f"Agent {agent!r} of episode {self.id_!r} acted at env step {t}, but owed no "
                f"action: {self._why_not_owing(agent)}. Ask `get_agents_to_act()` who owes one: "
                f"{listed(owing)}."
            )
        for agent, line in self._owing:
            if not line.takes(step.outputs.get(agent)):
                raise EpisodeError(
                    f"Agent {agent!r} of episode {self.id_!r} has the extra outputs "
                    f"{sorted(step.outputs.get(agent) or {})} at env step {t}, and had "
                    f"{sorted(line.episode.extra_model_outputs)} before. Columns have one item per "
                    "row. Give the same outputs with every action."
                )

    def _why_not_owing(self, agent: AgentId) -> str:
        if agent in self.ends:
            return f"it ended at env step {self.ends[agent].env_t}"
        if agent not in self.lines:
            return "it was never observed"
        return f"it acted at env step {self.lines[agent].clock[-1]} and was not observed since"

    def _check_answers(self, step: _Step) -> None:
        """Looks for what an env may not answer."""
        t = self.env_t + 1
        for agent, reward in step.rewards.items():
            if not is_number(reward):
                raise EnvContractError(
                    f"Agent {agent!r} got the reward {reward!r:.80} at env step {t} of episode "
                    f"{self.id_!r}; expected a number. Leave an agent without reward out, or give "
                    "0.0."
                )
        mentioned = step.observations.keys() | step.rewards.keys()
        for agent in canonical_order(mentioned & self.ends.keys()):
            end = self.ends[agent]
            if not end.appeared:
                continue
            if agent in step.observations:
                raise EnvContractError(
                    f"Agent {agent!r} of episode {self.id_!r} ended at env step {end.env_t} and "
                    f"was observed again at {t}. Who has ended does not come back within an "
                    "episode. Give the new one another id, or end it later."
                )
            if self.rewards_after_end == "error" and step.rewards.get(agent):
                raise EnvContractError(
                    f"Agent {agent!r} of episode {self.id_!r} ended at env step {end.env_t} and "
                    f"got the reward {step.rewards[agent]!r} at {t}, which "
                    '`rewards_after_end="error"` forbids. Pay it with its last observation, or set '
                    'multi_agent(rewards_after_end="credit").'
                )

    def _check_forms(self, step: _Step) -> None:
        """Checks that new rows fit to columns that are arrays already."""
        for agent in canonical_order(step.observations.keys() & self.lines.keys()):
            line = self.lines[agent]
            if not line.episode.is_numpy:
                continue  # a list takes everything
            row = line.open
            action = step.actions[agent] if row is None else row.action
            outputs = (step.outputs.get(agent) or _NO_OUTPUTS) if row is None else row.outputs
            items = {"observation": (line.episode.observations, step.observations[agent])}
            items["action"] = line.episode.actions, action
            columns = line.episode.extra_model_outputs
            items |= {name: (columns[name], outputs[name]) for name in columns if name in outputs}
            for name, (column, item) in items.items():
                if not column.fits(item):
                    raise EpisodeError(
                        f"The {name} of agent {agent!r} at env step {self.env_t + 1} of episode "
                        f"{self.id_!r} has another form than those before: {item!r:.100}. All rows "
                        "of an array have one. Check what the env or the module returned."
                    )

    def _apply(self, step: _Step) -> None:
        """Adds a step that was looked at; what follows cannot fail."""
        for agent, line in self._owing:
            given = step.outputs.get(agent) or _NO_OUTPUTS
            line.open = OpenRow(self.env_t, step.actions[agent], [], given)
        self.env_t += 1
        self.recent = self.recent[1], dict(step.rewards)
        is_empty = not (self._owing or step.observations)
        self.num_empty_steps = self.num_empty_steps + 1 if is_empty else 0
        given = dict(step.infos)
        mentioned = {*step.observations, *step.rewards, *step.terminateds, *step.truncateds}
        if step.all_terminated or step.all_truncated:
            mentioned |= self.lines.keys()
        for agent in canonical_order(mentioned):
            if agent in self.ends and self.ends[agent].appeared:
                self._add_late_reward(agent, step.rewards.get(agent, 0.0))
            elif agent in self.lines:
                self._add_to_running(agent, step, given)
            else:
                self._add_to_absent(agent, step, given)
        if given:
            self.infos[self.env_t] = given
        self._note_end(all_terminated=step.all_terminated, all_truncated=step.all_truncated)
        self._owe(canonical_order(step.observations))

    def _add_to_running(self, agent: AgentId, step: _Step, given: dict[AgentId, Any]) -> None:
        """Cases a to d, and g to i, of an agent that has acted."""
        line, (terminated, truncated) = self.lines[agent], step.flags(agent)
        row = line.open
        if row is None:
            return  # cannot be: an agent observed before has acted since
        is_whole = agent in step.observations
        acted_now = row.env_t == self.env_t - 1
        reward = step.rewards.get(agent, 0.0)
        if not (is_whole and acted_now):  # a row of a single step keeps its reward as it came
            row.parts = exact_partials([*row.parts, float(reward)])
        if not (is_whole or terminated or truncated):
            return
        if not acted_now or not is_whole:
            reward = row.reward
            self._note_rounding(agent, row.parts)
        seen = step.observations[agent] if is_whole else line.episode.get_observations(-1)
        line.open = None
        line.add_row(self.env_t, seen, row.action, reward, given.pop(agent, None), row.outputs)
        self.num_rows_added += 1
        if row.request is not None:
            line.episode.carried_request = row.request
        self._end_agent(agent, line, terminated, truncated)
        self.num_truncations_without_observation += truncated and not (is_whole or terminated)

    def _add_to_absent(self, agent: AgentId, step: _Step, given: dict[AgentId, Any]) -> None:
        """Cases e, f, j and k, of an agent that was not observed before this step."""
        if agent in step.rewards:
            self._add_partials(self.before, agent, [float(step.rewards[agent])])
        if agent in step.observations:
            self._start(agent, step.observations[agent], given.pop(agent, None))
            terminated, truncated = step.flags(agent)
            if terminated or truncated:
                self.lines[agent].episode.end(terminated=terminated, truncated=truncated)
                self.ends[agent] = AgentEnd(self.env_t, terminated, truncated)
            return
        own = bool(step.terminateds.get(agent)), bool(step.truncateds.get(agent))
        if any(own):
            self.ends[agent] = AgentEnd(self.env_t, *own, appeared=False)

    def _add_late_reward(self, agent: AgentId, reward: Any) -> None:
        """Case n: a reward for an agent that has ended."""
        if reward == 0:
            return
        self.num_rewards_after_end += 1
        if not self.credit(agent, float(reward)):
            self.late.setdefault(agent, []).append(float(reward))

    def credit(self, agent: AgentId, reward: float) -> bool:
        """Adds a reward to the last row of an agent that has ended, if this chunk has one."""
        line = self.lines.get(agent)
        if line is None or not len(line.episode.rewards):
            return False
        rewards = line.episode.rewards.data
        total = exact_partials([float(rewards[-1]), reward])
        rewards[-1] = total[0] if total else 0.0
        self._note_rounding(agent, total)
        return True

    def _note_rounding(self, agent: AgentId, parts: list[float]) -> None:
        """Keeps what a row lacks whose reward is the rounded sum of these partials."""
        if len(parts) > 1:
            self._add_partials(self.rounding, agent, parts[1:])

    @staticmethod
    def _add_partials(
        account: dict[AgentId, list[float]], agent: AgentId, more: list[float]
    ) -> None:
        total = exact_partials([*account.get(agent, ()), *more])
        if total:
            account[agent] = total
        else:
            account.pop(agent, None)

    def _note_end(self, *, all_terminated: bool, all_truncated: bool) -> None:
        """Whether the episode has ended, and how: see the table in docs/multi-agent.md."""
        if all_terminated or all_truncated:
            self.is_terminated, self.is_truncated = all_terminated, all_truncated
        elif self.possible is not None and len(self.ends) == len(self.possible):
            ends = [end for end in self.ends.values() if end.appeared] or self.ends.values()
            self.is_truncated = any(end.truncated and not end.terminated for end in ends)
            self.is_terminated = not self.is_truncated

    # What was earned.

    def earned(self, agent: AgentId, *, with_open: bool = True) -> list[float]:
        """Numbers that add up to all that the env gave an agent in the episode.

        `with_open=False` counts completed rows only.
        """
        line = self.lines.get(agent)
        parts: list[float] = []
        for account in (self.gone, self.rounding_earlier, self.rounding):
            parts += account.get(agent, ())
        if line is not None:
            parts += line.episode.return_partials()
        if not with_open:
            return parts
        if line is not None and line.open is not None:
            parts += line.open.parts
        for account in (self.before, self.late_earlier, self.late):
            parts += account.get(agent, ())
        return parts

    def earners(self) -> list[AgentId]:
        """The agents that appeared or earned anything, canonical order."""
        return canonical_order({*self.appeared, *self.before})

    def earned_by_all(self, *, with_open: bool = True) -> list[float]:
        """Numbers that add up to all that the env gave; see `earned`."""
        return [part for a in self.earners() for part in self.earned(a, with_open=with_open)]

    def returns(self) -> tuple[float, dict[AgentId, float]]:
        """What the env gave to all, and {agent: what it gave to this one}."""
        earned = {agent: self.earned(agent) for agent in self.earners()}
        total = rounded_sum([part for parts in earned.values() for part in parts])
        return total, {agent: rounded_sum(parts) for agent, parts in earned.items()}

    def change(self) -> Change:
        """What rewriting added to rows of the whole episode; None if none were rewritten."""
        total = self.gone_change
        for agent in canonical_order(self.lines):
            total = joined_changes(total, self.lines[agent].episode.change_partials())
        return total


def added_by_agent(
    add: Callable[[list[float]], _Sum], *accounts: Mapping[AgentId, list[float]]
) -> dict[AgentId, _Sum]:
    """{agent: what `add` makes of all its entries}, canonical order, without what is nothing."""
    agents = canonical_order({agent for account in accounts for agent in account})
    sums = {
        agent: add([part for each in accounts for part in each.get(agent, ())]) for agent in agents
    }
    return {agent: total for agent, total in sums.items() if total}

"""The record of an episode of several agents, or of one chunk of it.

The cases of a step and every sum are in `agent_ledger.py`, reading in `agent_columns.py`, cutting
and joining in `agent_parts.py`, plain data in `multi_agent_state.py`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal

import numpy as np

from trainer.agent_ids import ALL_AGENTS, COMMON_INFOS, AgentIds, canonical_order
from trainer.episodes import agent_parts, multi_agent_state
from trainer.episodes.agent_columns import AgentColumns, Question
from trainer.episodes.agent_ledger import AgentLedger, RewardsAfterEnd, added_by_agent
from trainer.episodes.agent_table import (
    STEP_PARTS,
    AgentTable,
    check_dicts,
    given_agents,
    given_lookback,
    make_lookback,
)
from trainer.episodes.episode_state import (
    USER_DATA,
    Episode,
    copied_containers,
    copied_state,
    shared_state,
)
from trainer.episodes.lookback_buffer import Indices, InfoBuffer
from trainer.episodes.single_agent_episode import ActingRequest, SingleAgentEpisode, Stopwatch
from trainer.errors import EpisodeError
from trainer.metrics.statistic import rounded_sum
from trainer.types import AgentId, Array, ModuleId, State

MappingFunction = Callable[[AgentId, "MultiAgentEpisode"], ModuleId]


class MultiAgentEpisode(Episode):
    """What several agents saw, did and got in one env, in one episode or in one chunk of it.

    It is made of one `SingleAgentEpisode` per agent that was observed, and of a clock: the env
    steps of each agent's observations. docs/multi-agent.md has the table of all cases of a step.

    Life: `add_env_reset()` once, `add_env_step()` per env step until `is_done`; a running episode
    may be `cut()`, which ends this chunk and returns the chunk that goes on; `to_numpy()` when
    nothing more is added.

    Of the whole episode, earlier chunks included, are: all returns, `env_t`, `ended_agents`,
    `get_duration_s()`, all data of users. Of this chunk only are: the columns, `len()` (which is
    `env_t - env_t_started`), the counts, `chunk_return()`.

    Attributes, besides those of `Episode` (data of users, `stopwatch`, `task`, `env_id`):
        number: one int per episode of a run, the same in every process and after a restore; None
            outside a run.
        is_numpy: whether the columns of the agents are arrays.
        agent_to_module_mapping_fn: gives the module of an agent that has none yet, called as
            `fn(agent_id, episode)`; no part of the state.
        SKIP_ENV_TS_TAG: stands in `env_t_to_agent_t` for env steps at which an agent was not
            observed.
    """

    SKIP_ENV_TS_TAG: Final = "S"

    def __init__(
        self,
        id_: str | None = None,
        *,
        observations: Sequence[Mapping[Any, Any]] | None = None,
        observation_space: Mapping[Any, Any] | None = None,
        infos: Sequence[Mapping[Any, Any]] | None = None,
        actions: Sequence[Mapping[Any, Any]] | None = None,
        action_space: Mapping[Any, Any] | None = None,
        rewards: Sequence[Mapping[Any, Any]] | None = None,
        terminateds: bool | Mapping[Any, bool] = False,
        truncateds: bool | Mapping[Any, bool] = False,
        extra_model_outputs: Sequence[Mapping[Any, Any]] | None = None,
        env_t_started: int | None = None,
        agent_t_started: Mapping[Any, int] | None = None,
        len_lookback_buffer: int | Literal["auto"] = "auto",
        agent_episode_ids: Mapping[Any, str] | None = None,
        agent_module_ids: Mapping[Any, ModuleId] | None = None,
        agent_to_module_mapping_fn: MappingFunction | None = None,
        possible_agents: Iterable[AgentId] | None = None,
        rewards_after_end: RewardsAfterEnd = "credit",
        number: int | None = None,
    ) -> None:
        """An empty episode, or one with data, which is checked as if it were played.

        Args:
            id_: None draws a random one.
            observations: {agent: observation} per env step, one more than actions.
            observation_space: {agent: space}; enables `fill` and one-hot codes.
            infos: {agent: info} per observation; None means none.
            actions: {agent: action} per env step.
            action_space: {agent: space}; enables `fill` and one-hot codes.
            rewards: {agent: reward} per env step.
            terminateds: True for all; or {agent: whether it reached a final state}, which takes
                effect with the agent's last observation, or, if it acted upon that, with the last
                env step.
            truncateds: the same for ends by a limit.
            extra_model_outputs: {agent: {name: item}} per env step.
            env_t_started: the number of env steps before the first one that is not look-back; None
                means 0, also if there is look-back.
            agent_t_started: {agent: own steps before this chunk}; of others 0.
            len_lookback_buffer: how many of the given env steps are look-back, at most all; "auto"
                means all.
            agent_episode_ids: {agent: id of its episode}; others get `<id_>/<agent>`.
            agent_module_ids: {agent: module id}, as far as known.
            agent_to_module_mapping_fn: see the class.
            possible_agents: all that can ever appear; the episode ends when all of them have ended.
                None takes those of `observation_space`. If these are not given either, only
                `__all__` ends the episode.
            rewards_after_end: what becomes of rewards for agents that have ended: "credit" adds
                them to the agent's last row if this chunk has it; "error" refuses them.
            number: see the class.

        Raises:
            EpisodeError: the data do not fit together.
            EnvContractError: the data are none that an env may give.
        """
        id_ = uuid.uuid4().hex if id_ is None else id_
        possible = given_agents(possible_agents, observation_space, agent_module_ids, id_)
        lookback = given_lookback(len_lookback_buffer, len(actions or rewards or ()), id_)
        self.number = number
        self.agent_to_module_mapping_fn = agent_to_module_mapping_fn
        self.task: Any = None
        self.stopwatch = Stopwatch()
        self._start_empty_user_data()
        self._take_ledger(
            AgentLedger(
                id_,
                possible=possible,
                rewards_after_end=rewards_after_end,
                observation_spaces=observation_space,
                action_spaces=action_space,
                modules=agent_module_ids,
                episode_ids=agent_episode_ids,
                env_t=(env_t_started or 0) - lookback,
            )
        )
        if observations is None and actions is None and rewards is None and infos is None:
            return
        table = AgentTable(observations, infos, actions, rewards, extra_model_outputs, id_=id_)
        table.set_flags(terminateds, truncateds)
        table.play(self, self._ledger, lookback=lookback)
        make_lookback(self._ledger, lookback, agent_t_started or {})
        self.stopwatch.stop()

    def _take_ledger(self, ledger: AgentLedger) -> None:
        self._ledger = ledger
        self._columns = AgentColumns(ledger)

    def __repr__(self) -> str:
        return (
            f"MultiAgentEpisode(id_={self.id_!r}, env_t={self.env_t_started}..{self.env_t}, "
            f"agents={self.agent_ids!r}, is_done={self.is_done}, "
            f"get_return()={self.get_return():g})"
        )

    def __len__(self) -> int:
        return self.env_t - self.env_t_started

    # What it is.

    @property
    def id_(self) -> str:
        """The id of the episode, the same for all its chunks."""
        return self._ledger.id_

    @property
    def env_t(self) -> int:
        """Env steps since the reset, earlier chunks included."""
        return self._ledger.env_t

    @property
    def env_t_started(self) -> int:
        """Env steps before this chunk."""
        return self._ledger.env_t_started

    @property
    def is_reset(self) -> bool:
        """Whether the env was reset, also if it observed no agent then."""
        return self._ledger.is_reset

    @property
    def is_terminated(self) -> bool:
        """Whether the episode ended, and not by a limit."""
        return self._ledger.is_terminated

    @property
    def is_truncated(self) -> bool:
        """Whether a limit ended the episode, or at least one of its agents."""
        return self._ledger.is_truncated

    @property
    def is_done(self) -> bool:
        """Whether the episode has ended."""
        return self._ledger.is_done

    @property
    def is_numpy(self) -> bool:
        """Whether the columns of the agents are arrays."""
        return agent_parts.is_numpy(self._ledger)

    @property
    def rewards_after_end(self) -> Mapping[AgentId, float]:
        """{agent: what it got after its end and no row has}, whole episode."""
        ledger = self._ledger
        return MappingProxyType(added_by_agent(rounded_sum, ledger.late_earlier, ledger.late))

    @property
    def reward_before_start(self) -> Mapping[AgentId, float]:
        """{agent: what it got up to its first observation}, whole episode; in returns only."""
        return MappingProxyType(added_by_agent(rounded_sum, self._ledger.before))

    @property
    def hanging(self) -> Mapping[AgentId, tuple[int, Any, float, Mapping[str, Any]]]:
        """{agent: (env step, action, reward so far, outputs)} of those not observed since."""
        found = {}
        for agent in self.agent_ids:
            row = self._ledger.lines[agent].open
            if row is not None:
                found[agent] = (row.env_t, row.action, row.reward, MappingProxyType(row.outputs))
        return MappingProxyType(found)

    @property
    def observation_space(self) -> dict[AgentId, Any]:
        """{agent: space of its observations}, as far as known."""
        return self._ledger.observation_spaces

    @property
    def action_space(self) -> dict[AgentId, Any]:
        """{agent: space of its actions}, as far as known."""
        return self._ledger.action_spaces

    @property
    def possible_agents(self) -> AgentIds | None:
        """All agents that can ever appear; None if that is not known."""
        possible = self._ledger.possible
        return None if possible is None else AgentIds(possible)

    @property
    def agent_ids(self) -> AgentIds:
        """The agents with a `SingleAgentEpisode` in this chunk, canonical order."""
        return self._ledger.agents()

    @property
    def agent_episodes(self) -> Mapping[AgentId, SingleAgentEpisode]:
        """{agent: its episode}, canonical order; not to be changed."""
        return self._ledger.episodes()

    @property
    def agent_episode_ids(self) -> dict[AgentId, str]:
        """{agent: the id of its episode}, of all that appeared; equal in all chunks."""
        agents = canonical_order(self._ledger.appeared)
        return {agent: self._ledger.episode_id(agent) for agent in agents}

    @property
    def agent_t_started(self) -> dict[AgentId, int]:
        """{agent: its own steps before this chunk}."""
        return {agent: episode.t_started for agent, episode in self.agent_episodes.items()}

    @property
    def env_t_to_agent_t(self) -> dict[AgentId, list[int | str]]:
        """{agent: its own index at each env step of this chunk, "S" where it has none}; a copy."""
        steps = range(self.env_t_started, self.env_t + 1)
        answer: dict[AgentId, list[int | str]] = {}
        for agent in self.agent_ids:
            line = self._ledger.lines[agent]
            clock = line.clock[line.episode.lookback :]
            own = {env_t: index for index, env_t in enumerate(clock)}
            answer[agent] = [own.get(env_t, self.SKIP_ENV_TS_TAG) for env_t in steps]
        return answer

    def agent_t_to_env_t(self, agent_id: AgentId) -> Array:
        """The env step of each own observation of this chunk, int64; empty if it has none.

        Raises:
            EpisodeError: there is no such agent.
        """
        line = self._ledger.lines.get(self._columns.known_id(agent_id))
        clock = [] if line is None else line.clock[line.episode.lookback :]
        return np.array(clock, np.int64)

    @property
    def ended_agents(self) -> dict[AgentId, int]:
        """{agent: env step of its end}, of the whole episode."""
        ends = self._ledger.ends
        return {agent: ends[agent].env_t for agent in canonical_order(ends) if ends[agent].appeared}

    def get_agents_to_act(self) -> AgentIds:
        """The agents whose action the next env step needs; the same object until they change."""
        return self._ledger.owing()

    def get_agents_that_stepped(self) -> AgentIds:
        """The agents with an observation at the newest env step."""
        lines = self._ledger.lines
        return AgentIds(agent for agent in lines if lines[agent].clock[-1] == self.env_t)

    def get_terminateds(self) -> dict[AgentId, bool]:
        """{agent: whether it reached a final state, "__all__": `is_terminated`}."""
        return {**self._flags(1), ALL_AGENTS: self.is_terminated}

    def get_truncateds(self) -> dict[AgentId, bool]:
        """{agent: whether a limit ended it, "__all__": `is_truncated`}."""
        return {**self._flags(2), ALL_AGENTS: self.is_truncated}

    def _flags(self, field: int) -> dict[AgentId, bool]:
        ends = self._ledger.ends
        appeared = canonical_order(self._ledger.appeared)
        return {agent: agent in ends and bool(ends[agent][field]) for agent in appeared}

    def note_requests(self, requests: Mapping[ModuleId, ActingRequest | None]) -> None:
        """Notes in which request the actions that wait for an observation were chosen.

        Args:
            requests: by module: the one at work; None if nothing follows from it.
        """
        for agent, line in self._ledger.lines.items():
            if line.open is not None and line.open.request is None:
                line.open.request = requests.get(self._ledger.modules.get(agent, ""))

    # Modules.

    def module_for(self, agent_id: AgentId) -> ModuleId | None:
        """The module that acts for an agent; None before one was assigned.

        Raises:
            EpisodeError: there is no such agent.
        """
        agent = self._columns.known_id(agent_id)
        if not self._ledger.is_reset:
            self._map_agents()  # who asks early lets the function be asked early
        return self._ledger.modules.get(agent)

    def assign_modules(self, modules: Mapping[Any, ModuleId]) -> None:
        """Notes which module acts for which agent, for good.

        Raises:
            EpisodeError: there is no such agent, or it is served by another module already.
        """
        given = {self._columns.known_id(agent): module for agent, module in modules.items()}
        for agent, module in given.items():
            present = self._ledger.modules.get(agent, module)
            if module != present:
                raise EpisodeError(
                    f"Agent {agent!r} of episode {self.id_!r} is served by the module {present!r}, "
                    f"so it cannot get {module!r}. An assignment holds for the whole episode. "
                    "Change the mapping for episodes to come."
                )
        self._ledger.modules.update(given)
        for agent in given.keys() & self._ledger.lines.keys():
            self._ledger.lines[agent].episode.module_id = given[agent]

    def _map_agents(self) -> None:
        """Asks the mapping function for the agents that have no module yet."""
        function = self.agent_to_module_mapping_fn
        if function is None:
            return
        agents = canonical_order(self._ledger.possible or self._ledger.appeared)
        new = [agent for agent in agents if agent not in self._ledger.modules]
        self.assign_modules({agent: function(agent, self) for agent in new})

    def add_env_reset(
        self,
        observations: Mapping[Any, Any],
        infos: Mapping[Any, Any] | None = None,
    ) -> None:
        """Adds what `env.reset()` returned.

        Args:
            observations: {agent: observation}; who is in it acts in the first env step. May be
                empty.
            infos: {agent: info} of anybody, and "__common__".

        Raises:
            EpisodeError: the episode has begun already.
            EnvContractError: an agent is not possible.
        """
        check_dicts(self.id_, observations=observations, infos=infos)
        self._ledger.add_reset(observations, infos)
        self._map_agents()
        self.stopwatch.start()

    def add_env_step(
        self,
        observations: Mapping[Any, Any],
        actions: Mapping[Any, Any],
        rewards: Mapping[Any, Any],
        infos: Mapping[Any, Any] | None = None,
        *,
        terminateds: Mapping[Any, bool] | None = None,
        truncateds: Mapping[Any, bool] | None = None,
        extra_model_outputs: Mapping[Any, Mapping[str, Any]] | None = None,
    ) -> None:
        """Adds one env step: the actions, and what `env.step(actions)` returned.

        Args:
            observations: {agent: what it saw afterwards}.
            actions: {agent: action as its module emitted it}, of exactly those that owed one.
            rewards: {agent: number}; a missing one is 0.
            infos: {agent: info} of anybody, and "__common__".
            terminateds: {agent or "__all__": whether a final state was reached}.
            truncateds: {agent or "__all__": whether a limit was}.
            extra_model_outputs: {agent: {name: item}}; the same names with every action.

        Raises:
            EpisodeError: it is over or not reset; who acted is not who owed an action; the extra
                outputs differ from the earlier ones.
            EnvContractError: an agent is not possible, or came back after its end, or got a reward
                that is no number or not allowed.
        """
        step = (observations, actions, rewards, infos or {}, terminateds or {}, truncateds or {})
        try:
            self._ledger.add_step(*step, extra_model_outputs or {})
        except (AttributeError, TypeError):
            # Looked at only now: what is no dict is found before anything is changed.
            check_dicts(self.id_, **dict(zip(STEP_PARTS, step, strict=True)))
            raise
        if self._ledger.possible is None:
            self._map_agents()
        if self._ledger.is_done:
            self.stopwatch.stop()
        else:
            self.stopwatch.start()

    def to_numpy(self) -> MultiAgentEpisode:
        """Turns the columns of all agents into arrays, in place; open rows stay as they are.

        Raises:
            EpisodeError: the items of a column differ in shape or structure.
        """
        for agent in self.agent_ids:
            self._ledger.lines[agent].episode.to_numpy()
        self._ledger.find_owing()
        return self

    def validate(self) -> None:
        """Checks that the columns of every agent fit together and to the clock.

        Raises:
            EpisodeError: they do not; says what was found.
        """
        for agent in self.agent_ids:
            line = self._ledger.lines[agent]
            line.episode.validate()
            seen = line.episode.observations.total
            if len(line.clock) != seen or line.clock != sorted(set(line.clock)):
                raise EpisodeError(
                    f"Agent {agent!r} of {self!r} has {seen} observations, and its clock shows "
                    f"{line.clock!r:.200}. Every observation has an env step of its own. Add steps "
                    "with `add_env_step()` only."
                )

    def agent_steps(self) -> int:
        """Completed rows of this chunk, over all agents, without look-back."""
        return sum(len(line.episode) for line in self._ledger.lines.values())

    def agent_steps_of(self, agent_id: AgentId) -> int:
        """Completed rows of one agent in this chunk.

        Raises:
            EpisodeError: there is no such agent.
        """
        line = self._ledger.lines.get(self._columns.known_id(agent_id))
        return 0 if line is None else len(line.episode)

    def agent_lengths(self) -> dict[AgentId, int]:
        """{agent: its own steps in the whole episode}, of all that appeared."""
        ledger = self._ledger
        lengths = {agent: line.episode.t for agent, line in ledger.lines.items()}
        return lengths | {a: end.steps for a, end in ledger.ends.items() if end.appeared}

    @property
    def num_rewards_after_end(self) -> int:
        """Rewards of this chunk that came after their agent's end."""
        return self._ledger.num_rewards_after_end

    @property
    def num_rewards_after_end_unlearnt(self) -> int:
        """Those of them that are in no row of this chunk."""
        return sum(map(len, self._ledger.late.values()))

    @property
    def num_truncations_without_observation(self) -> int:
        """Agents that a limit ended in this chunk without showing them a last observation."""
        return self._ledger.num_truncations_without_observation

    @property
    def num_agent_steps_carried_over(self) -> int:
        """Open rows at the end of this chunk; the next one completes them."""
        lines = self._ledger.lines.values()
        return 0 if self.is_done else sum(line.open is not None for line in lines)

    @property
    def num_rows_added(self) -> int:
        """Completed rows that `add_env_step()` added to this object; to be compared over time."""
        return self._ledger.num_rows_added

    @property
    def num_empty_steps(self) -> int:
        """The newest env steps in a row in which no agent acted or was observed."""
        return self._ledger.num_empty_steps

    def get_return(self, include_hanging_rewards: bool = True) -> float:
        """What the env paid in the episode up to now, over all agents, rounded once.

        Args:
            include_hanging_rewards: False counts completed rows only, of the whole episode; not
                what open rows have earned so far, nor rewards outside of any row.
        """
        return rounded_sum(self._ledger.earned_by_all(with_open=include_hanging_rewards))

    def get_agent_returns(self) -> dict[AgentId, float]:
        """{agent: what the env paid it in the episode up to now}; they add up to `get_return()`."""
        return self.get_all_returns()[1]

    def get_all_returns(self) -> tuple[float, dict[AgentId, float]]:
        """`get_return()` and `get_agent_returns()`, for the price of one of them."""
        return self._ledger.returns()

    def get_rewritten_return(self) -> float | None:
        """`get_return()` with the rewards that callbacks wrote; None if they wrote none."""
        change = self._ledger.change()
        if change is None:
            return None
        return rounded_sum([*self._ledger.earned_by_all(), *change])

    def chunk_return(self) -> float:
        """The sum of the rewards of this chunk's completed rows."""
        lines = self._ledger.lines.values()
        return rounded_sum([r for line in lines for r in line.episode.rewards_list()])

    def get_duration_s(self) -> float:
        """Seconds played so far, earlier chunks included; 0 before the first env step."""
        return self.stopwatch.elapsed_s if self.env_t else 0.0

    def get_observations(
        self,
        indices: Indices = None,
        agent_ids: Any = None,
        *,
        env_steps: bool = True,
        neg_index_as_lookback: bool = False,
        fill: Any = None,
        one_hot_discrete: bool = False,
        return_list: bool = False,
    ) -> Any:
        """Observations by env step, or by each agent's own steps.

        Args:
            indices: an int, a list of ints, a slice, or None for all of this chunk; 0 is its first
                env step (or own step), negative ones count from the end.
            agent_ids: one id or several; None means all of this chunk.
            env_steps: False counts each agent's own steps.
            neg_index_as_lookback: count negative indices backwards from the first step.
            fill: what stands in for an agent asked for where nothing of it is recorded: outside,
                and by env step also in its gaps. Without it, the agent is left out there.
            one_hot_discrete: code discrete values as float32 vectors.
            return_list: a list over env steps, {agent: item} each.

        Returns:
            {agent: item} for an int, {agent: batch} otherwise. Agents that have nothing there are
            left out.

        Raises:
            EpisodeError: an agent is not known; a list over own steps was asked for.
            EpisodeIndexError: an index lies outside and there is no `fill`; by own steps only for
                agents that were named.
        """
        question = Question(
            indices,
            agent_ids,
            env_steps,
            neg_index_as_lookback,
            fill,
            return_list,
            one_hot_discrete,
        )
        return self._columns.read("observations", question)

    def get_infos(
        self,
        indices: Indices = None,
        agent_ids: Any = None,
        *,
        env_steps: bool = True,
        neg_index_as_lookback: bool = False,
        fill: Any = None,
        return_list: bool = False,
    ) -> Any:
        """Info dicts; as `get_observations`. By env step also those without an observation."""
        question = Question(indices, agent_ids, env_steps, neg_index_as_lookback, fill, return_list)
        return self._columns.read("infos", question)

    def get_actions(
        self,
        indices: Indices = None,
        agent_ids: Any = None,
        *,
        env_steps: bool = True,
        neg_index_as_lookback: bool = False,
        fill: Any = None,
        one_hot_discrete: bool = False,
        return_list: bool = False,
    ) -> Any:
        """Actions at the env steps at which they were made; as `get_observations`."""
        question = Question(
            indices,
            agent_ids,
            env_steps,
            neg_index_as_lookback,
            fill,
            return_list,
            one_hot_discrete,
        )
        return self._columns.read("actions", question)

    def get_rewards(
        self,
        indices: Indices = None,
        agent_ids: Any = None,
        *,
        env_steps: bool = True,
        neg_index_as_lookback: bool = False,
        fill: Any = None,
        return_list: bool = False,
    ) -> Any:
        """Rewards at the env steps of the actions that led to them; as `get_observations`."""
        question = Question(indices, agent_ids, env_steps, neg_index_as_lookback, fill, return_list)
        return self._columns.read("rewards", question)

    def get_extra_model_outputs(
        self,
        key: str | None = None,
        indices: Indices = None,
        agent_ids: Any = None,
        *,
        env_steps: bool = True,
        neg_index_as_lookback: bool = False,
        fill: Any = None,
        return_list: bool = False,
    ) -> Any:
        """One extra output at the env steps of the actions; as `get_observations`.

        Without a key, {agent: {name: …}} of all of them.

        Raises:
            UnknownOutputError: no agent has an output of that name.
        """
        question = Question(indices, agent_ids, env_steps, neg_index_as_lookback, fill, return_list)
        return self._columns.outputs(question, key=key)

    def get_common_infos(self, indices: Indices = None) -> Any:
        """The "__common__" infos by env step, {} where there is none; as a list, or one for an int.

        Raises:
            EpisodeIndexError: an index lies outside.
        """
        lookback = self._ledger.lookback
        steps = range(self.env_t_started - lookback, self.env_t + 1)
        infos = [self._ledger.infos.get(env_t, {}).get(COMMON_INFOS, {}) for env_t in steps]
        return InfoBuffer(infos, lookback=lookback).get(indices)

    # Chunks and parts.

    def follow(self, before: MultiAgentEpisode) -> None:
        """Takes over that rewards of the chunk before this one were rewritten."""
        agent_parts.follow(self._ledger, before._ledger)

    def cut(
        self, len_lookback_buffer: int = 0, *, with_last_step_of: Collection[ModuleId] = ()
    ) -> MultiAgentEpisode:
        """Ends this chunk of a running episode and returns the chunk that goes on.

        Every row is in the chunk in which it is completed: an agent that waits for an observation
        begins, in the successor, with the one that it acted upon.

        Args:
            len_lookback_buffer: how many env steps of this chunk the successor sees as look-back;
                each agent takes over its rows that lie in them.
            with_last_step_of: modules whose agents take over their last row in any case.

        Raises:
            EpisodeError: the episode is done or not reset, or `custom_data` cannot be copied.
        """
        if len_lookback_buffer < 0:
            raise EpisodeError(
                f"cut() got len_lookback_buffer={len_lookback_buffer}. Look-back is data from "
                "before the chunk. Give 0 or more."
            )
        snapshot = self._data_that_stays()
        successor = self._part(
            agent_parts.cut(self._ledger, len_lookback_buffer, with_last_step_of)
        )
        self.stopwatch.stop()
        successor.stopwatch = self.stopwatch.successor()
        self._hand_over_user_data(successor, snapshot)
        return successor

    def _part(self, ledger: AgentLedger) -> MultiAgentEpisode:
        """An episode around the ledger of a part of this one."""
        part = MultiAgentEpisode(self.id_, number=self.number)
        part._take_ledger(ledger)
        part.agent_to_module_mapping_fn = self.agent_to_module_mapping_fn
        part.task = self.task
        part._player, part.env_id = self._player, self.env_id
        return part

    def slice(self, slice_: slice, *, len_lookback_buffer: int | None = None) -> MultiAgentEpisode:
        """A part of this chunk by env steps, with the agents that are observed in it.

        It has the same ids and is done only if it reaches the end. It has no data of users, and its
        returns are those of its own rows. A row that began before it and is completed in it is left
        out; one that began in it and is completed behind it is open.

        Args:
            slice_: env steps of this chunk, counted from its first one; negative numbers count from
                the end.
            len_lookback_buffer: env steps before the part to include as look-back, as far as there
                are any; None means as many as this chunk has.

        Raises:
            EpisodeError: the slice has a step other than 1.
        """
        start, stop = self._steps_of(slice_)
        lookback = self._ledger.lookback if len_lookback_buffer is None else len_lookback_buffer
        return self._part(agent_parts.sliced(self._ledger, start, stop, max(0, lookback)))

    def concat_episode(self, other: MultiAgentEpisode) -> None:
        """Appends the chunk or slice that follows this one, in place: the inverse of `cut()`.

        Rewards that came after an agent's end join its last row, as if there had been no cut. A row
        that is open in a slice is completed with the agent's next observation.

        Args:
            other: a chunk or slice of the same episode that begins where this one ends.

        Raises:
            EpisodeError: it is not the following chunk.
        """
        problem = agent_parts.why_not_next(self._ledger, other._ledger)
        if problem is not None:
            self._refuse_next(other, problem)
        agent_parts.join(self._ledger, other._ledger)
        self.stopwatch = other.stopwatch
        self._join_user_data(other)

    # Data out.

    def get_state(self) -> State:
        """A snapshot of everything but the spaces, the time and the mapping function.

        It is plain data if users put plain data in.
        """
        state = multi_agent_state.ledger_state(
            self._ledger, lambda episode: copied_state(shared_state(episode))
        )
        for name in USER_DATA:
            state[name] = copied_containers(getattr(self, name))
        return {**state, "number": self.number, "task": copied_containers(self.task)}

    @classmethod
    def from_state(
        cls,
        state: State,
        *,
        observation_space: Mapping[Any, Any] | None = None,
        action_space: Mapping[Any, Any] | None = None,
    ) -> MultiAgentEpisode:
        """The episode that `get_state()` described.

        Args:
            state: what `get_state()` returned.
            observation_space: {agent: space}; the state holds no spaces.
            action_space: {agent: space}; the state holds no spaces.

        Raises:
            EpisodeError: the state is not one, or its parts do not fit together; names the place.
        """
        multi_agent_state.check_state(state)
        episode = cls(state["id_"], number=state["number"])
        ledger = multi_agent_state.ledger_from_state(
            state,
            observation_spaces=observation_space,
            action_spaces=action_space,
            make_episode=lambda one, seen, acted: SingleAgentEpisode.from_state(
                one, observation_space=seen, action_space=acted
            ),
        )
        episode._take_ledger(ledger)
        for name in USER_DATA:
            setattr(episode, name, copied_containers(state[name]))
        episode.task = copied_containers(state["task"])
        return episode

    def __getstate__(self) -> tuple[Any, ...]:
        state = multi_agent_state.ledger_state(self._ledger, shared_state)
        user = {name: getattr(self, name) for name in (*USER_DATA, "number", "task")}
        spaces = self._ledger.observation_spaces, self._ledger.action_spaces
        return state, user, *spaces, self.get_duration_s(), self.env_id

    def __setstate__(self, pickled: tuple[Any, ...]) -> None:
        state, user, seen, acted, elapsed_s, self.env_id = pickled
        self._take_ledger(
            multi_agent_state.ledger_from_state(
                state,
                observation_spaces=seen,
                action_spaces=acted,
                make_episode=multi_agent_state.episode_around,
            )
        )
        self.__dict__.update(user)
        self.agent_to_module_mapping_fn = None
        self.stopwatch = Stopwatch(elapsed_s)

    def print(self) -> None:
        """Prints one line per env step of this chunk: actions, observations, rewards, ends."""
        print(self.table())  # noqa: T201 - what it is for

    def table(self) -> str:
        """What `print()` prints."""
        return f"{self!r}\n{self._columns.table()}"

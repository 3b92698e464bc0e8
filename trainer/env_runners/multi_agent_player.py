"""Plays envs of several agents: the same life of episodes as with one agent, another step.

    who owes an action     one forward pass per module over all agents of all sub-envs
    the env's answer       taken apart by agent (`AnswerChecks`), recorded by `MultiAgentEpisode`
    a position             the actions of all agents by env step, and the episode's state

What an agent draws follows from its own position: the root seed, the env slot, the number of the
episode, its id and how often it has acted. So it makes no difference who else is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import gymnasium
import numpy as np

from trainer.agent_ids import ALL_AGENTS
from trainer.connectors import ActionDecoder, Normalization
from trainer.env_runners.acting import ActionSource
from trainer.env_runners.env_slot import EnvSlot
from trainer.env_runners.episode_player import EpisodePlayer
from trainer.env_runners.messages import EnvRunnerSpec
from trainer.env_runners.policy_mapping import PolicyMapping
from trainer.env_runners.remembering import action_source
from trainer.env_runners.slot_env_state import Replay, copied
from trainer.envs.multi_agent_checks import AnswerChecks
from trainer.envs.multi_agent_env import EnvAgents
from trainer.episodes import MultiAgentEpisode, SingleAgentEpisode, nested
from trainer.episodes.conversion import to_numpy_together
from trainer.episodes.episode_columns import ACTIONS
from trainer.errors import ConfigError
from trainer.metrics import AgentRecord, EpisodeRecord
from trainer.modules import ByModule, RLModule
from trainer.seeding import NoiseStream, agent_position
from trainer.types import AgentId, ModuleId, State

Joint = tuple[tuple[Any, ...], ...]
"""A part per possible agent, canonical order: empty where there is nothing."""


def joint_of(by_agent: Mapping[AgentId, Any], agents: EnvAgents) -> Joint:
    """What is there of each possible agent, as plain data in canonical order."""
    return tuple((by_agent[id_],) if id_ in by_agent else () for id_ in agents.ids)


# ---- actions


class Seat:
    """One agent in one env slot, as a row of its module.

    Attributes:
        index: a number that no other seat of the runner has.
        noise: the random numbers of its actions.
        episode_number: of the slot's running episode.
        agent_position: see `agent_position`.
        observation: upon which it acts next.
        episode: the agent's own.
    """

    __slots__ = (
        *("agent_position", "episode", "episode_number", "index", "noise", "observation"),
        *("_agent", "_memories"),
    )

    def __init__(
        self, index: int, noise: NoiseStream, number: int, agent: AgentId, *, seats: Seats
    ) -> None:
        self.index = index
        self.noise = noise
        self.episode_number = number
        self.agent_position = agent_position(agent)
        self.observation: Any = None
        self.episode: SingleAgentEpisode | None = None
        self._agent, self._memories = agent, seats.memories

    @property
    def memory(self) -> Any:
        """See `EnvSlot.memory`; it goes on with the agent's own steps."""
        return self._memories.get(self._agent)

    @memory.setter
    def memory(self, state: Any) -> None:
        self._memories[self._agent] = state


class Seats:
    """The seats of one env slot; takes the place of the noise of a slot with one agent.

    Attributes:
        memories: the states of networks with memory after the last actions, by agent.
    """

    def __init__(self, slot_index: int, agents: EnvAgents, sources: ByModule[ActionSource]) -> None:
        """Args: slot_index: of the slot; agents: of the env; sources: of actions, by module."""
        self._sources = sources
        first = slot_index * len(agents.ids)
        self._indices = {agent: first + rank for rank, agent in enumerate(agents.ids)}
        self._streams: dict[tuple[AgentId, ModuleId], NoiseStream] = {}
        self.memories: dict[AgentId, Any] = {}
        self.start(0, 0)

    def start(self, stream: int, number: int) -> None:
        """Goes to the beginning of an episode."""
        self._stream, self._number = stream, number
        self._seats: dict[AgentId, Seat] = {}

    def skip(self, rows: int) -> None:
        """Nothing: every agent's numbers go on by how often it has acted."""

    def of(self, agent: AgentId, episode: MultiAgentEpisode) -> Seat:
        """The seat of an agent that is about to act."""
        seat = self._seats.get(agent)
        return self._taken(agent, episode) if seat is None else seat

    def _taken(self, agent: AgentId, episode: MultiAgentEpisode) -> Seat:
        module_id = episode.module_for(agent) or ""
        source = self._sources[module_id]
        noise = self._streams.get((agent, module_id))
        if noise is None:
            noise = source.noise_stream(agent=agent_position(agent))
            self._streams[agent, module_id] = noise
        noise.start(self._stream, self._number)
        seat = Seat(self._indices[agent], noise, self._number, agent, seats=self)
        self._seats[agent] = seat
        acted = episode.agent_episodes[agent].t
        if source.exploring is None:
            noise.skip(acted)
        else:
            row: Any = seat  # it has what a source asks of a slot
            source.begin_episode(row, self._stream, played=acted)
        return seat


class JointActions:
    """Gives the actions of all agents; takes the place of the source of one module.

    Attributes:
        sources: by module.
    """

    def __init__(
        self, modules: Mapping[ModuleId, RLModule], spec: EnvRunnerSpec, agents: EnvAgents
    ) -> None:
        self.sources = ByModule(
            {
                id_: action_source(module, spec, where=self._place_of_row)
                for id_, module in modules.items()
            }
        )
        self._rows: dict[ModuleId, list[tuple[int, AgentId, Any]]] = {}
        self._decoders = {
            agent: ActionDecoder(
                agents.action_spaces[agent],
                normalize_actions=spec.normalize_actions,
                clip_actions=spec.clip_actions,
            )
            for agent in agents.ids
        }

    def _place_of_row(self, seats: list[Any], row: int) -> str:
        seat = seats[row]
        for rows in self._rows.values():
            for _, agent, slot in rows:
                if slot.noise.of(agent, slot.episode) is seat:
                    return f"the observation of agent {agent!r} at {slot.place()}"
        return "an observation"

    def begin_episode(self, slot: EnvSlot, stream: int, *, played: int = 0) -> None:
        """Nothing: seats are taken when agents act first."""

    def refresh(self) -> None:
        """Takes over what may have changed between two requests."""
        for source in self.sources.values():
            source.refresh()

    def act(
        self, active: list[Any], *, explore: bool, timestep: int
    ) -> tuple[list[dict[AgentId, Any]], list[dict[AgentId, Any]]]:
        """{agent: action} for each slot, and {agent: extra outputs}, in canonical order."""
        rows: dict[ModuleId, list[tuple[int, AgentId, Any]]] = {id_: [] for id_ in self.sources}
        self._rows = rows
        for number, slot in enumerate(active):
            episode = slot.episode
            for agent in episode.get_agents_to_act():
                rows[episode.module_for(agent)].append((number, agent, slot))
        actions: list[dict[AgentId, Any]] = [{} for _ in active]
        outputs: list[dict[AgentId, Any]] = [{} for _ in active]
        for id_, of_module in rows.items():
            if of_module:
                self._act(id_, of_module, actions, outputs, explore=explore, timestep=timestep)
        if len(rows) > 1:
            actions = [
                _in_order(slot, chosen) for slot, chosen in zip(active, actions, strict=True)
            ]
        return actions, outputs

    def _act(
        self,
        module_id: ModuleId,
        rows: list[tuple[int, AgentId, Any]],
        actions: list[dict[AgentId, Any]],
        outputs: list[dict[AgentId, Any]],
        *,
        explore: bool,
        timestep: int,
    ) -> None:
        source, seats = self.sources[module_id], []
        for _, agent, slot in rows:
            seat = slot.noise.of(agent, slot.episode)
            seat.observation = slot.newest[agent]
            seat.episode = slot.episode.agent_episodes[agent]
            seats.append(seat)
        chosen, given = source.act(seats, explore=explore, timestep=timestep)
        names = source.outputs
        for (number, agent, _), action, values in zip(rows, chosen, given, strict=True):
            actions[number][agent] = action
            own = (values,) if len(names) == 1 else values
            outputs[number][agent] = dict(zip(names, own, strict=True))

    def to_env(self, actions: Mapping[AgentId, Any]) -> dict[AgentId, Any]:
        """The actions as the env takes them."""
        return {agent: self._decoders[agent].to_env(action) for agent, action in actions.items()}

    def draw_uniformly(self, active: list[Any]) -> NoReturn:
        """Refused: modules that draw uniformly are there for it.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(
            f"sample(random_actions=True) was asked of {len(active)} env(s) of several agents. Map "
            'the agents to a module that plays at random: multi_agent(policies={"random": '
            'PolicySpec("random")}).'
        )

    def add_logp(self, episodes: Sequence[Any]) -> None:
        """Adds the log-likelihoods of all agents' actions; see `ActionSource.add_logp`."""
        for id_, source in self.sources.items():
            source.add_logp([one for one in chunks_of(episodes) if one.module_id == id_])


def _in_order(slot: Any, chosen: dict[AgentId, Any]) -> dict[AgentId, Any]:
    return {agent: chosen[agent] for agent in slot.episode.get_agents_to_act()}


def chunks_of(episodes: Sequence[Any]) -> list[SingleAgentEpisode]:
    """The agents' chunks with at least one step, in order of episode, then agent."""
    return [
        chunk for episode in episodes for chunk in episode.agent_episodes.values() if len(chunk)
    ]


# ---- slot


class JointEnv:
    """An env of several agents as `Replay` plays it: joint observations, one flag for the end."""

    def __init__(self, env: gymnasium.Env[Any, Any], agents: EnvAgents) -> None:
        self._env, self._agents = env, agents
        self._ended: set[AgentId] = set()

    def reset(self, *, seed: int | None = None) -> tuple[Joint, dict[str, Any]]:
        """Resets the env."""
        self._ended = set()
        observations, _ = self._env.reset(seed=seed)
        return joint_of(observations, self._agents), {}

    def step(self, actions: Any) -> tuple[Joint, float, bool, bool, dict[str, Any]]:
        """Steps the env."""
        observations, _, terminateds, truncateds, _ = self._env.step(actions)
        flags: list[Any] = [terminateds, truncateds]
        self._ended |= {agent for by_agent in flags for agent in by_agent if by_agent[agent]}
        is_over = ALL_AGENTS in self._ended or self._ended >= {*self._agents.ids}
        return joint_of(observations, self._agents), 0.0, is_over, False, {}


class MultiAgentSlot(EnvSlot):
    """A sub-env of several agents and the episode that runs in it.

    Attributes:
        newest: the newest observations by agent.
        checks: of what the env answers.
    """

    episode: Any

    def __init__(
        self,
        index: int,
        env: gymnasium.Env[Any, Any],
        seats: Seats,
        agents: EnvAgents,
        *,
        spec: EnvRunnerSpec,
    ) -> None:
        super().__init__(
            index,
            env,
            seats,  # type: ignore[arg-type]  # it has what a slot asks of its noise
            runner=spec.title,
            keeps_actions=spec.sub_env_tolerance is not None,
        )
        self._agents = agents
        self.newest: Mapping[AgentId, Any] = {}
        self.checks = AnswerChecks(
            agents,
            name=spec.env_factory.name,
            max_empty_steps=spec.max_empty_steps,
            copied=copied,
        )

    @property
    def memory(self) -> Joint | None:
        """A part per possible agent; None if no network remembers anything."""
        memories = self.noise.memories  # type: ignore[attr-defined]  # see `__init__`
        return joint_of(memories, self._agents) if memories else None

    @memory.setter
    def memory(self, memory: Joint | None) -> None:
        memories = self.noise.memories  # type: ignore[attr-defined]
        memories.clear()
        if memory is not None:
            pairs = zip(self._agents.ids, memory, strict=True)
            memories.update({agent: part[0] for agent, part in pairs if part})

    @property
    def num_steps_played(self) -> int:
        """Env steps of the running episode, over all its chunks."""
        return 0 if self.episode is None else int(self.episode.env_t)

    def place(self) -> str:
        """Where the running episode stands, for messages."""
        return f"env step {self.num_steps_played} of episode {self.episode.id_}"

    def note(self, observations: Mapping[AgentId, Any], actions: Mapping[AgentId, Any]) -> None:
        """Keeps copies of what was done and seen, for callbacks may write into what is recorded."""
        self.see(observations)
        self._actions_apart.append({agent: copied(action) for agent, action in actions.items()})

    def see(self, observations: Mapping[AgentId, Any]) -> None:
        """Takes the newest observations."""
        self.newest = {agent: copied(one) for agent, one in observations.items()}
        self.observation = joint_of(self.newest, self._agents)

    def _played_in(self, chunk: Any) -> Joint:
        del chunk
        return tuple(_column(agent, self._actions_apart) for agent in self._agents.ids)

    def follow(self, chunk: Any) -> None:
        """Nothing: rewards of several agents are not rewritten."""

    def _replay(self, to_env: Callable[[Any], Any], on_step: Callable[[], None]) -> Replay:
        def by_agent(row: Joint) -> Any:
            pairs = zip(self._agents.ids, row, strict=True)
            return to_env({agent: part[1] for agent, part in pairs if part[0]})

        env: Any = JointEnv(self.env, self._agents)
        return Replay(env, self.tasks, by_agent, on_step)

    def put_back(self, position: Any, *arguments: Any, **options: Any) -> bool:
        """See `EnvSlot`."""
        is_back = super().put_back(position, *arguments, **options)
        if self.episode is not None:
            pairs = zip(self._agents.ids, position.observation, strict=True)
            self.newest = {agent: part[0] for agent, part in pairs if part}
        return is_back

    def _episode_from(self, state: State) -> Any:
        return MultiAgentEpisode.from_state(
            state,
            observation_space=self._agents.observation_spaces,
            action_space=self._agents.action_spaces,
        )


def _column(agent: AgentId, steps: Sequence[Mapping[AgentId, Any]]) -> tuple[Any, ...]:
    """In which env steps an agent acted, bool [T], and its actions there, [T, …]."""
    acted = np.array([agent in actions for actions in steps], bool)
    if not acted.any():
        return (acted,)
    rows = nested.stack([actions[agent] for actions in steps if agent in actions], name=ACTIONS)

    def spread(leaf: Any) -> Any:
        column = np.zeros((len(acted), *leaf.shape[1:]), leaf.dtype)
        column[acted] = leaf
        return column

    return acted, nested.map_leaves(spread, rows)


# ---- player


class MultiAgentPlayer(EpisodePlayer):
    """Steps the sub-envs of a runner with several agents side by side; see `EpisodePlayer`.

    Attributes:
        num_agent_steps: completed rows by agent, since they were last reported.
        num_module_steps: the same by module.
    """

    actions: Any
    slots: Any

    def __init__(self, runner: Any, *, mapping: PolicyMapping, signals: Any) -> None:
        """Prepares the slots.

        Args:
            runner: whose envs, modules and callbacks to play with.
            mapping: says which module acts for which agent.
            signals: see `EpisodePlayer`.
        """
        self._agents: EnvAgents = runner.agents
        self._mapping = mapping
        self.num_agent_steps: Counter[AgentId] = Counter()
        self.num_module_steps: Counter[ModuleId] = Counter()
        super().__init__(runner, signals=signals)

    def _make_actions(self) -> Any:
        runner: Any = self._runner
        return JointActions(runner.modules, self._spec, self._agents)

    def _make_slot(self, index: int, env: gymnasium.Env[Any, Any]) -> EnvSlot:
        seats = Seats(index, self._agents, self.actions.sources)
        return MultiAgentSlot(index, env, seats, self._agents, spec=self._spec)

    @property
    def to_env(self) -> Callable[[Any], Any]:
        """Turns {agent: action of its module} into what the env takes."""
        return self.actions.to_env  # type: ignore[no-any-return]

    def _make_trajectories(self) -> None:
        """None: chunks of several agents are not rewritten."""

    def set_exploration(self, module_id: ModuleId, state: Mapping[str, Any]) -> None:
        """Takes over what the main process' strategy of a module knows."""
        self.actions.sources[module_id].set_state(state)

    def steps_by_id(self) -> dict[str, Any]:
        """`num_agent_steps` and `num_module_steps` since they were last reported."""
        return {
            "num_agent_steps": dict(self.num_agent_steps),
            "num_module_steps": dict(self.num_module_steps),
        }

    def _resume_exploring(self, slot: EnvSlot, stream: int, *, num_steps: int) -> None:
        """Nothing: a seat is brought to where its agent stood when that acts."""

    def normalize_with(self, normalization: ByModule[Normalization]) -> None:
        """Plays with observations as these make them."""
        for id_, source in self.actions.sources.items():
            source.acting.normalize_with(normalization[id_])

    def forget_unreported(self) -> None:
        """Forgets what was played since it was last reported."""
        super().forget_unreported()
        self.num_agent_steps.clear()
        self.num_module_steps.clear()

    def _go_on(self, slot: EnvSlot, episode: Any) -> None:
        """Nothing: agents take their seats when they act."""

    def _make_episode(self, slot: EnvSlot, id_: str, index: int) -> Any:
        """A new episode with its modules."""
        del slot
        episode = MultiAgentEpisode(
            id_,
            number=index,
            observation_space=self._agents.observation_spaces,
            action_space=self._agents.action_spaces,
            possible_agents=self._agents.ids,
            rewards_after_end=self._spec.rewards_after_end,
        )
        episode.assign_modules(self._mapping.assignment(episode))
        return episode

    def _take_reset(self, slot: Any, episode: Any, answer: Any) -> None:
        observations, infos = slot.checks.reset(answer)
        slot.see(observations)
        episode.add_env_reset(observations, infos)

    def _step(self, active: list[Any], actions: list[Any], outputs: list[Any] | None) -> bool:
        """One step of every active sub-env; whether some episode or assignment came to its end."""
        needs_attention, failure = False, None
        try:
            for row, slot in enumerate(active):
                self._slot_at_work = slot
                needs_attention |= self._step_one(
                    slot, actions[row], {} if outputs is None else outputs[row]
                )
        except Exception as error:
            if not self.repair.is_on:
                raise
            failure = error
        if failure is not None:
            return self._step_on(row, failure, active, actions, outputs) or needs_attention
        self._slot_at_work = None
        self.num_env_steps += len(active)
        self.tick()
        return needs_attention

    def _step_one(self, slot: Any, actions: dict[AgentId, Any], outputs: Any) -> bool:
        """One step of a sub-env; whether its episode or assignment came to its end."""
        episode, checks = slot.episode, slot.checks
        answer = slot.env.step(self.actions.to_env(actions))
        observations, rewards, terminateds, truncateds, infos = checks.step(
            answer, env_t=episode.env_t + 1
        )
        episode.add_env_step(
            observations,
            actions,
            rewards,
            infos,
            terminateds=terminateds,
            truncateds=truncateds,
            extra_model_outputs=outputs,
        )
        checks.check_progress(episode)
        slot.note(observations, actions)
        slot.steps_left -= 1
        return bool(episode.is_done or slot.steps_left <= 0)

    def _finish_columns(self, episodes: Sequence[Any]) -> None:
        """Makes arrays of the columns of what is handed out, and counts its rows."""
        for chunk in chunks_of(episodes):
            self.num_agent_steps[chunk.agent_id] += len(chunk)
            self.num_module_steps[chunk.module_id] += len(chunk)
        if self._spec.episodes_to_numpy:
            for id_ in self.actions.sources:
                to_numpy_together([one for one in chunks_of(episodes) if one.module_id == id_])
            for episode in episodes:
                episode.to_numpy()

    def _record_of(self, episode: Any) -> EpisodeRecord:
        agents = [
            AgentRecord(agent, episode.module_for(agent), paid)
            for agent, paid in episode.get_agent_returns().items()
        ]
        return EpisodeRecord.from_agents(episode, agents)

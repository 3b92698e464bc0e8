"""Plays envs of several agents: the same life of episodes as with one agent, another step.

    who owes an action     one forward pass per module over all agents of all sub-envs
    the env's answer       taken apart by agent (`AnswerChecks`), recorded by `MultiAgentEpisode`
    a position             the actions of all agents by env step, and the episode's state

What an agent draws follows from its own position: the root seed, the env slot, the number of the
episode, its id and how often it has acted. So it makes no difference who else is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import gymnasium
import numpy as np

from trainer.agent_ids import ALL_AGENTS, AgentIds
from trainer.connectors import ActionDecoder
from trainer.env_runners.acting import Policy, Seat, act, policy_in_runner
from trainer.env_runners.env_slot import EnvSlot, Replay
from trainer.env_runners.episode_player import EpisodePlayer
from trainer.env_runners.messages import EnvRunnerSpec
from trainer.env_runners.multi_agent_trajectories import JointTrajectories, chunks_of
from trainer.env_runners.policy_mapping import PolicyMapping
from trainer.envs.multi_agent_checks import AnswerChecks
from trainer.envs.multi_agent_env import EnvAgents
from trainer.episodes import MultiAgentEpisode, SingleAgentEpisode, nested
from trainer.episodes.agent_parts import is_to_learn_from
from trainer.episodes.conversion import to_numpy_together
from trainer.episodes.episode_columns import ACTION_DIST_INPUTS, ACTION_LOGP, ACTIONS
from trainer.episodes.nested import copied
from trainer.episodes.single_agent_episode import ActingRequest
from trainer.errors import ConfigError
from trainer.metrics import AgentRecord, EpisodeRecord
from trainer.modules import ByModule, RLModule
from trainer.types import AgentId, ModuleId, State

Joint = tuple[tuple[Any, ...], ...]
"""A part per possible agent, canonical order: empty where there is nothing."""


def joint_of(by_agent: Mapping[AgentId, Any], agents: EnvAgents) -> Joint:
    """What is there of each possible agent, as plain data in canonical order."""
    return tuple((by_agent[id_],) if id_ in by_agent else () for id_ in agents.ids)


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
        policies: what acts, by module.
        checks: of what the env answers.
        seated_ids: the agents that `seated` found last.
    """

    episode: Any

    def __init__(
        self,
        index: int,
        env: gymnasium.Env[Any, Any],
        policies: ByModule[Policy],
        agents: EnvAgents,
        *,
        spec: EnvRunnerSpec,
    ) -> None:
        self._agents = agents
        self.newest: Mapping[AgentId, Any] = {}
        first, root_seed = index * len(agents.ids), spec.root_seed
        super().__init__(
            index,
            env,
            *(
                Seat(number, root_seed=root_seed, role=spec.role, agent=agent)
                for number, agent in enumerate(agents.ids, start=first)
            ),
            runner=spec.title,
            keeps_actions=spec.sub_env_tolerance is not None,
        )
        self._seat_of = dict(zip(agents.ids, self.seats, strict=True))
        self._begun = (0, 0)
        self.take_policies(policies)
        self.seated_ids: tuple[AgentId, ...] = ()
        self._seated: list[Seat] = []
        self.checks = AnswerChecks(
            agents,
            name=spec.env_factory.name,
            max_empty_steps=spec.max_empty_steps,
            copied=copied,
        )

    @property
    def memory(self) -> Joint | None:
        """A part per possible agent; None if no network remembers anything."""
        memories = {seat.agent: seat.memory for seat in self.seats if seat.memory is not None}
        return joint_of(memories, self._agents) if memories else None

    @memory.setter
    def memory(self, memory: Joint | None) -> None:
        for seat, part in zip(self.seats, memory or [()] * len(self.seats), strict=True):
            seat.memory = part[0] if part else None

    def _begin_acting(self, stream: int, *, played: int = 0) -> None:
        """Nothing yet: agents take their seats when they act first, each where it stands."""
        del played
        self._begun = (stream, self.episode_number)
        self.take_policies(self.policies)

    def take_policies(self, policies: ByModule[Policy]) -> None:
        """Lets agents take their seats again, each with the policy of its module."""
        self.policies = policies
        self._taken: set[AgentId] = set()
        self._owing: AgentIds | None = None

    def _successor(self, chunk: Any, lookback: int) -> Any:
        modules = [id_ for id_, policy in self.policies.items() if policy.previous_steps.names]
        return chunk.cut(len_lookback_buffer=lookback, with_last_step_of=modules)

    @property
    def counts_agent_steps(self) -> bool:
        """Whether the assignment counts completed rows, and not env steps."""
        return self.assignment.num_agent_steps is not None

    @property
    def num_steps_counted(self) -> int:
        """See `EnvSlot`: completed rows of the running chunk, or its env steps."""
        if self.episode is None or not self.counts_agent_steps:
            return super().num_steps_counted
        return int(self.episode.agent_steps())

    @property
    def num_steps_played(self) -> int:
        """Env steps of the running episode, over all its chunks."""
        return 0 if self.episode is None else int(self.episode.env_t)

    def place(self) -> str:
        """Where the running episode stands, for messages."""
        return f"env step {self.num_steps_played} of episode {self.episode.id_}"

    def seated(self) -> list[Seat]:
        """The seats of those who owe an action, canonical order."""
        owing = self.episode.get_agents_to_act()
        if owing is not self._owing:  # the same object while nothing changes
            self._owing, self.seated_ids = owing, tuple(owing)
            self._seated = [self._seat_taken_by(agent) for agent in owing]
        return self._seated

    def _seat_taken_by(self, agent: AgentId) -> Seat:
        seat = self._seat_of[agent]
        if agent not in self._taken:
            self._taken.add(agent)
            seat.take(self.policies[self.episode.module_for(agent) or ""])
            seat.begin(*self._begun, played=self.episode.agent_episodes[agent].t)
        return seat

    def note(
        self,
        observations: Mapping[AgentId, Any],
        actions: Mapping[AgentId, Any],
        *,
        keeps_apart: bool,
    ) -> None:
        """Keeps what was done and seen.

        By agent; as copies, if callbacks may write into what is recorded (`keeps_apart`).
        """
        if keeps_apart:
            observations = {agent: copied(one) for agent, one in observations.items()}
            actions = {agent: copied(action) for agent, action in actions.items()}
        self.newest = observations
        self._actions_apart.append(actions)

    def see(self, observations: Mapping[AgentId, Any]) -> None:
        """Takes copies of the newest observations."""
        self.newest = {agent: copied(one) for agent, one in observations.items()}

    @property
    def observation(self) -> Joint:
        """The newest observations as a position has them."""
        return joint_of(self.newest, self._agents)

    @observation.setter
    def observation(self, joint: Joint | None) -> None:
        pairs = zip(self._agents.ids, joint or (), strict=joint is not None)
        self.newest = {agent: part[0] for agent, part in pairs if part}

    def _played_in(self, chunk: Any) -> Joint:
        del chunk
        acted = {agent for actions in self._actions_apart for agent in actions}
        columns = {agent: _column(agent, self._actions_apart) for agent in acted}
        nothing = (np.zeros(len(self._actions_apart), bool),)
        return tuple(columns.get(agent, nothing) for agent in self._agents.ids)

    def follow(self, chunk: Any) -> None:
        """Takes over that rewards of the chunk before the running one were rewritten."""
        if self.episode is not None:
            self.episode.follow(chunk)

    def _replay(self, to_env: Callable[[Any], Any], on_step: Callable[[], None]) -> Replay:
        def by_agent(row: Joint) -> Any:
            pairs = zip(self._agents.ids, row, strict=True)
            return to_env({agent: part[1] for agent, part in pairs if part[0]})

        env: Any = JointEnv(self.env, self._agents)
        return Replay(env, self.tasks, by_agent, on_step)

    def _episode_from(self, state: State) -> Any:
        return MultiAgentEpisode.from_state(
            state,
            observation_space=self._agents.observation_spaces,
            action_space=self._agents.action_spaces,
        )


def _column(agent: AgentId, steps: Sequence[Mapping[AgentId, Any]]) -> tuple[Any, ...]:
    """In which env steps an agent acted, bool [T], and its actions there, [T, …]."""
    acted = np.array([agent in actions for actions in steps], bool)
    rows = nested.stack([actions[agent] for actions in steps if agent in actions], name=ACTIONS)

    def spread(leaf: Any) -> Any:
        column = np.zeros((len(acted), *leaf.shape[1:]), leaf.dtype)
        column[acted] = leaf
        return column

    return acted, nested.map_leaves(spread, rows)


# ---- player

AGENT_COUNTS: Final = (
    "num_agent_steps_carried_over",
    "num_rewards_after_end",
    "num_rewards_after_end_unlearnt",
    "num_truncations_without_observation",
)
"""What is counted of the chunks that are handed out; see `MultiAgentEpisode`."""

_NOT_LEARNT: Final = "num_agent_steps_not_to_learn"
"""Completed rows of agents whose info says `training_enabled: False`."""


def check_serves(module_id: ModuleId, module: RLModule, agent: AgentId, agents: EnvAgents) -> None:
    """Raises a ConfigError unless a module can act for an agent: both have the same spaces."""
    for kind in ("observation_space", "action_space"):
        own, its = getattr(agents, f"{kind}s")[agent], getattr(module, kind)
        if own != its:
            raise ConfigError(
                f"policy_mapping_fn gives agent {agent!r} the module {module_id!r}, which has "
                f"{kind}={its}; the agent has {own}. Map it to a module of its own, or give both "
                "the same space."
            )


class MultiAgentPlayer(EpisodePlayer):
    """Steps the sub-envs of a runner with several agents side by side; see `EpisodePlayer`.

    Attributes:
        num_agent_steps: completed rows by agent, since they were last reported.
        num_module_steps: the same by module.
        agent_counts: what happened to agents, `AGENT_COUNTS`, since it was last reported.
    """

    episode_class = MultiAgentEpisode
    slots: Any
    _trajectories: JointTrajectories | None

    def __init__(self, runner: Any, *, mapping: PolicyMapping, signals: Any) -> None:
        self._agents: EnvAgents = runner.agents
        self._mapping = mapping
        self._fitting: set[tuple[AgentId, ModuleId]] = set()
        self.num_agent_steps: Counter[AgentId] = Counter()
        self.num_module_steps: Counter[ModuleId] = Counter()
        self.agent_counts: Counter[str] = Counter()
        spec, agents = runner.spec, self._agents
        decoders = {
            agent: ActionDecoder(
                agents.action_spaces[agent],
                normalize_actions=spec.normalize_actions,
                clip_actions=spec.clip_actions,
            )
            for agent in agents.ids
        }
        # What is handed on unchanged needs no call.
        is_needed = not all(decoder.is_identity for decoder in decoders.values())
        self._decoders = decoders if is_needed else {}
        super().__init__(runner, signals=signals)

    def _make_policies(self) -> ByModule[Policy]:
        runner, policies = self._runner, {}
        self._greedy = set()
        for id_, module in runner.modules.items():
            spec, own = runner.spec, runner.spec.table.acting.get(id_)
            if own is not None and own.exploration is not None:
                spec = replace(spec, exploration=own.exploration)
            policies[id_] = policy_in_runner(module, spec, where=self._place_of)
            if own is not None and own.is_greedy:
                self._greedy.add(id_)
        return ByModule(policies)

    def _make_slot(self, index: int, env: gymnasium.Env[Any, Any]) -> EnvSlot:
        return MultiAgentSlot(index, env, self.policies, self._agents, spec=self._spec)

    def take_modules(self, mapping: PolicyMapping) -> None:
        """Plays with the runner's modules of now.

        Running episodes go on with the modules that they began with; new ones follow the mapping.
        None of the policies is normalised for yet.
        """
        self._mapping = mapping
        self._fitting.clear()
        self.policies = self._make_policies()
        self._trajectories = self._make_trajectories()
        for slot in self.slots:
            slot.take_policies(self.policies)

    def to_env(self, actions: Mapping[AgentId, Any]) -> dict[AgentId, Any]:
        """The actions of modules, by agent, as the env takes them."""
        decoders = self._decoders
        if not decoders:
            return dict(actions)
        return {agent: decoders[agent].to_env(action) for agent, action in actions.items()}

    def _make_trajectories(self) -> JointTrajectories | None:
        runner = self._runner
        return JointTrajectories.of(runner, lambda: runner.modules, lambda: self.policies)

    def steps_by_id(self) -> dict[str, Any]:
        """`num_agent_steps` and `num_module_steps` since they were last reported."""
        return {
            "num_agent_steps": dict(self.num_agent_steps),
            "num_module_steps": dict(self.num_module_steps),
            "agent_counts": {
                name: self.agent_counts[name] for name in (*AGENT_COUNTS, _NOT_LEARNT)
            },
        }

    def forget_unreported(self) -> None:
        """Forgets what was played since it was last reported."""
        super().forget_unreported()
        self.num_agent_steps.clear()
        self.num_module_steps.clear()
        self.agent_counts.clear()

    def _hand_out(self, samples: list[list[Any]]) -> list[Any]:
        """See `EpisodePlayer`: actions that wait for an observation say how they were chosen."""
        requests = {id_: policy.newest_request for id_, policy in self.policies.items()}
        for slot in self.slots:
            if slot.episode is not None:
                slot.episode.note_requests(requests)
        return super()._hand_out(samples)

    def chunks_of(self, episode: Any) -> Sequence[Any]:
        """See `EpisodePlayer`: those of its agents."""
        return chunks_of([episode])

    def _go_on(self, slot: EnvSlot, episode: Any) -> None:
        episode.note_player(self._runner, slot.index)  # another one after a restore

    def _make_episode(self, slot: EnvSlot, id_: str, index: int) -> Any:
        """A new episode; its agents get their modules when the env was reset."""
        episode = MultiAgentEpisode(
            id_,
            number=index,
            observation_space=self._agents.observation_spaces,
            action_space=self._agents.action_spaces,
            possible_agents=self._agents.ids,
            rewards_after_end=self._spec.rewards_after_end,
            agent_to_module_mapping_fn=self._module_of,
        )
        episode.note_player(self._runner, slot.index)
        return episode

    def _module_of(self, agent: AgentId, episode: MultiAgentEpisode) -> ModuleId:
        """The module that acts for an agent; a ConfigError unless its spaces are the agent's."""
        module_id = self._mapping.module_of(agent, episode)
        if (agent, module_id) not in self._fitting:
            module = self.policies[module_id].module
            check_serves(module_id, module, agent, self._agents)
            self._fitting.add((agent, module_id))
        return module_id

    def _take_reset(self, slot: Any, episode: Any, answer: Any) -> None:
        observations, infos = slot.checks.reset(answer)
        slot.see(observations)
        episode.add_env_reset(observations, infos)

    # ---- acting

    def _act(
        self, active: list[Any], request: ActingRequest
    ) -> tuple[list[dict[AgentId, Any]], list[dict[AgentId, Any]]]:
        """{agent: action} for each slot, and {agent: extra outputs}, in canonical order."""
        asked: dict[Policy, tuple[list[Seat], list[Any]]]
        asked = {policy: ([], []) for policy in self.policies.values()}
        seated = [slot.seated() for slot in active]
        for slot, of_slot in zip(active, seated, strict=True):
            newest = slot.newest
            for seat in of_slot:
                seats, observations = asked[seat.policy]
                seats.append(seat)
                observations.append(newest[seat.agent])
        answers = {}
        for id_, policy in self.policies.items():
            seats, observations = asked[policy]
            if seats:
                own = request._replace(explore=False) if id_ in self._greedy else request
                answers[policy] = self._answers(policy, seats, observations, own)
        actions: list[dict[AgentId, Any]] = []
        outputs: list[dict[AgentId, Any]] = []
        if len(answers) == 1:  # whose turn it is needs no asking
            ((all_chosen, all_given),) = answers.values()
            for slot in active:
                ids = slot.seated_ids
                actions.append(dict(zip(ids, all_chosen)))  # noqa: B905 - takes what it needs
                outputs.append(dict(zip(ids, all_given)))  # noqa: B905
            return actions, outputs
        for of_slot in seated:
            chosen, given = {}, {}
            for seat in of_slot:
                of_policy, outputs_of_policy = answers[seat.policy]
                chosen[seat.agent], given[seat.agent] = next(of_policy), next(outputs_of_policy)
            actions.append(chosen)
            outputs.append(given)
        return actions, outputs

    def _answers(
        self, policy: Policy, seats: list[Seat], observations: list[Any], request: ActingRequest
    ) -> tuple[Iterator[Any], Iterator[dict[str, Any]]]:
        """The action of each seat, in order, and the extra outputs."""
        episodes: list[SingleAgentEpisode] = []
        if policy.previous_steps.names:
            episodes = [self._slot_of(one).episode.agent_episodes[one.agent] for one in seats]
        choice, count = act(policy, seats, observations, request, episodes=episodes), len(seats)
        columns = [nested.unstack(column, count) for column in choice.outputs.values()]
        names = policy.outputs
        if len(names) == 1:
            (name,) = names
            outputs = [{name: value} for value in columns[0]]
        else:
            outputs = [
                dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)
            ]
        return iter(nested.unstack(choice.actions, count)), iter(outputs)

    def _draw_uniformly(
        self, active: list[Any]
    ) -> tuple[list[dict[AgentId, Any]], list[dict[AgentId, Any]]]:
        """Uniform actions of all agents; the modules act, too, but only their outputs are kept.

        So every row has the same outputs, however the action was chosen: an open row may be
        completed in a request in which the modules choose.
        """
        _, outputs = self._act(active, ActingRequest(0, explore=False))
        actions = []
        for slot, given in zip(active, outputs, strict=True):
            drawn = {}
            for seat in slot.seated():
                agent, policy, own = seat.agent, seat.policy, given[seat.agent]
                acted = slot.episode.agent_episodes[agent].t
                rng = seat.uniform_rng(slot.assignment.stream, slot.episode_number, acted)
                action = policy.draw_uniformly(slot.newest[agent], rng, slot=seat.index)
                drawn[agent] = action
                if ACTION_LOGP in own:
                    batch = nested.stack([action], name=ACTIONS)
                    own[ACTION_LOGP] = policy.logp(own[ACTION_DIST_INPUTS][None], batch)[0]
            actions.append(drawn)
        return actions, outputs

    def _slot_of(self, seat: Seat) -> Any:
        return self.slots[seat.index // len(self._agents.ids)]

    def _place_of(self, index: int) -> str:
        slot, rank = divmod(index, len(self._agents.ids))
        agent = self._agents.ids[rank]
        return f"the observation of agent {agent!r} at {self.slots[slot].place()}"

    def _add_logp(self, episodes: Sequence[Any]) -> None:
        chunks = chunks_of(episodes)
        for id_, policy in self.policies.items():
            policy.add_logp([one for one in chunks if one.module_id == id_])

    # ---- the loop over env steps

    def _step(self, active: list[Any], actions: list[Any], outputs: list[Any] | None) -> bool:
        """One step of every active sub-env; whether some episode or assignment came to its end."""
        needs_attention, failure, step_one = False, None, self._step_one
        given: Sequence[Any] = [{}] * len(active) if outputs is None else outputs
        try:
            for row, slot in enumerate(active):
                self._slot_at_work = slot
                if step_one(slot, actions[row], given[row]):
                    needs_attention = True
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
        """One step of a sub-env; whether its episode or assignment came to its end.

        The hot loop of several agents.
        """
        episode, checks = slot.episode, slot.checks
        rows_before = episode.num_rows_added
        answer = slot.env.step(self.to_env(actions))
        observations, rewards, terminateds, truncateds, infos = checks.step(answer, episode)
        episode.add_env_step(
            observations,
            actions,
            rewards,
            infos,
            terminateds=terminateds,
            truncateds=truncateds,
            extra_model_outputs=outputs,
        )
        if not observations:
            checks.check_progress(episode)
        slot.note(observations, actions, keeps_apart=self._keeps_apart)
        slot.steps_left -= episode.num_rows_added - rows_before if slot.counts_agent_steps else 1
        return bool(slot.steps_left <= 0 or episode.is_done)

    def _finish_columns(self, episodes: Sequence[Any]) -> None:
        """Makes arrays of the columns of what is handed out, and counts its rows."""
        for episode in episodes:
            self.agent_counts.update({name: getattr(episode, name) for name in AGENT_COUNTS})
        chunks: dict[ModuleId, list[SingleAgentEpisode]] = {id_: [] for id_ in self.policies}
        for chunk in chunks_of(episodes):
            num_steps = len(chunk)
            if not is_to_learn_from(chunk):
                self.agent_counts[_NOT_LEARNT] += num_steps
            self.num_agent_steps[chunk.agent_id] += num_steps
            self.num_module_steps[chunk.module_id] += num_steps
            chunks[chunk.module_id].append(chunk)
        for of_module in chunks.values():
            to_numpy_together(of_module)
        for episode in episodes:
            episode.to_numpy()

    def _record_of(self, episode: Any) -> EpisodeRecord:
        lengths, (total, by_agent) = episode.agent_lengths(), episode.get_all_returns()
        agents = [
            AgentRecord(agent, episode.module_for(agent), paid, lengths.get(agent))
            for agent, paid in by_agent.items()
        ]
        return EpisodeRecord.from_agents(episode, agents, episode_return=total)

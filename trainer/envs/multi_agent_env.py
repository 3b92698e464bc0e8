"""Envs in which several agents act: the class to derive from, what it says of them, and groups.

What such an env answers is checked in `multi_agent_checks.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import gymnasium

from trainer.agent_ids import canonical_order, listed, same_texts, why_no_agent_id
from trainer.errors import ConfigError, EnvContractError
from trainer.types import AgentId
from trainer_toolkit.arguments import takes
from trainer_toolkit.checks import instance
from trainer_toolkit.nearest_names import did_you_mean

_WAYS: Final = (
    "Set `self.observation_spaces` and `self.action_spaces` to {agent: space}, or "
    "`self.observation_space` and `self.action_space` to one space for all (or a Dict by agent), "
    "or write get_observation_space(agent_id) and get_action_space(agent_id)"
)


class MultiAgentEnv(gymnasium.Env[Any, Any]):
    """An env in which several agents act: everything goes in and comes out as dicts by agent.

        class Meeting(MultiAgentEnv):
            def __init__(self, env_config):
                self.possible_agents = ["left", "right"]
                self.observation_space = Box(-1.0, 1.0, (1,))  # one for all, or {agent: space} …
                self.action_space = Discrete(2)                # in the plural attributes

            def reset(self, *, seed=None, options=None):
                super().reset(seed=seed)
                return {"left": …, "right": …}, {}

            def step(self, actions):
                …
                return observations, rewards, terminateds, truncateds, infos

    Who is in the observations acts in the next step; who is not, waits. An agent ends by its entry
    in `terminateds` or `truncateds`; "__all__" there ends the episode, and so does the end of every
    possible agent. docs/multi-agent.md has the table of all cases.

    Attributes:
        possible_agents: the ids of all agents that can ever appear, texts or ints; fixed.
        agents: who runs now; for the env's own use. `()` where `super().__init__()` was called and
            the env says nothing.
        observation_spaces: {agent: space}.
        action_spaces: {agent: space}.
    """

    possible_agents: Sequence[AgentId]
    agents: Sequence[AgentId]
    observation_spaces: Mapping[AgentId, gymnasium.Space[Any]]
    action_spaces: Mapping[AgentId, gymnasium.Space[Any]]

    def __init__(self) -> None:
        """A subclass need not call it."""
        if not hasattr(self, "agents"):
            self.agents = ()

    if TYPE_CHECKING:

        def step(self, actions: Any, /) -> Any:
            """Steps the env: see above.

            For type checkers alone: a subclass may call the actions as it likes, and answers with
            dicts, which `gymnasium.Env` does not.
            """

    @property
    def num_agents(self) -> int:
        """How many agents run now, as far as the env says; else how many are possible."""
        agents = getattr(self, "agents", None)
        return len(self.possible_agents if agents in (None, ()) else agents)

    @property
    def max_num_agents(self) -> int:
        """How many agents can ever appear."""
        return len(self.possible_agents)

    def get_observation_space(self, agent_id: AgentId) -> gymnasium.Space[Any]:
        """The space of what an agent observes; may be overridden.

        Raises:
            EnvContractError: the env does not say.
        """
        return _declared_space(self, agent_id, "observation_space")

    def get_action_space(self, agent_id: AgentId) -> gymnasium.Space[Any]:
        """The space of an agent's actions; may be overridden.

        Raises:
            EnvContractError: the env does not say.
        """
        return _declared_space(self, agent_id, "action_space")

    def with_agent_groups(
        self,
        groups: Mapping[AgentId, Sequence[AgentId]],
        obs_space: gymnasium.Space[Any] | None = None,
        act_space: gymnasium.Space[Any] | None = None,
    ) -> GroupedAgents:
        """This env with several agents as one: see `GroupedAgents`.

        Args:
            groups: {id of a group: its members in order}; agents in no group stay as they are.
            obs_space: of every group; None makes a Tuple of the members' spaces.
            act_space: of every group; None makes a Tuple of the members' spaces.

        Raises:
            EnvContractError: a member is not possible, or is in two groups.
        """
        return GroupedAgents(self, groups, obs_space=obs_space, act_space=act_space)


def _declared_space(
    env: gymnasium.Env[Any, Any], agent_id: AgentId, name: str
) -> gymnasium.Space[Any]:
    """The space that an env declares for one agent in its attributes."""
    by_agent = getattr(env, f"{name}s", None)
    space: Any = getattr(env, name, None)
    if isinstance(by_agent, Mapping) and agent_id in by_agent:
        space = by_agent[agent_id]
    elif _has_keys(space) and set(space) == set(_possible_agents(env)):
        space = space[agent_id]
    if isinstance(space, gymnasium.Space):
        return space
    raise EnvContractError(
        f"Env {type(env.unwrapped).__name__} says nothing of the {name} of agent {agent_id!r}; "
        f"{name}s={by_agent!r:.200}, {name}={space!r:.200}. Expected a gymnasium space. {_WAYS}."
    )


def _has_keys(spaces: Any) -> bool:
    return isinstance(spaces, gymnasium.spaces.Dict | Mapping) and len(spaces) > 0


def _possible_agents(env: Any) -> Any:
    """What an env says of its agents, in any of the ways that there are; None if nothing."""
    possible = getattr(env, "possible_agents", None)
    if possible:
        return possible
    for name in ("observation_spaces", "action_spaces", "observation_space", "action_space"):
        spaces: Any = getattr(env, name, None)
        if _has_keys(spaces):
            return list(spaces)
    for name in ("_agent_ids", "agents"):
        named = getattr(env, name, None)
        if named:
            return list(named)
    return possible


def has_several_agents(env: gymnasium.Env[Any, Any]) -> bool:
    """Whether an env, or what is inside of its layers, is played by several agents."""
    return isinstance(env, MultiAgentEnv) or isinstance(env.unwrapped, MultiAgentEnv)


@dataclass(frozen=True)
class EnvAgents:
    """The agents of an env, read once when it is made.

    Attributes:
        ids: all that can ever appear, canonical order.
        observation_spaces: {agent: space}, in that order.
        action_spaces: {agent: space}, in that order.
    """

    ids: tuple[AgentId, ...]
    observation_spaces: Mapping[AgentId, gymnasium.Space[Any]]
    action_spaces: Mapping[AgentId, gymnasium.Space[Any]]

    @classmethod
    def of(cls, env: gymnasium.Env[Any, Any], *, name: str) -> EnvAgents:
        """Asks an env, or a wrapper with its attributes, for its agents and their spaces.

        An EnvContractError names the remedy if it does not say, or says what cannot be.
        """
        ids = _checked_ids(_possible_agents(env), name)
        return cls(
            ids,
            {agent: _asked(env, "get_observation_space", agent, name) for agent in ids},
            {agent: _asked(env, "get_action_space", agent, name) for agent in ids},
        )

    def groups(self) -> list[tuple[AgentId, ...]]:
        """The agents in groups of equal spaces, each in canonical order."""
        found: list[tuple[Any, list[AgentId]]] = []
        for agent in self.ids:
            spaces = self.observation_spaces[agent], self.action_spaces[agent]
            for known, members in found:
                if known == spaces:
                    members.append(agent)
                    break
            else:
                found.append((spaces, [agent]))
        return [tuple(members) for _, members in found]

    def check_shared(self, *, name: str) -> None:
        """Checks that one module can serve all agents: they have equal spaces.

        Raises:
            ConfigError: they have not; proposes a module for each group of equal ones.
        """
        groups = self.groups()
        if len(groups) == 1:
            return
        listing = "; ".join(
            f"{listed(members)}: {self.observation_spaces[members[0]]}, "
            f"{self.action_spaces[members[0]]}"
            for members in groups
        )
        modules = {f"module_{number}": group for number, group in enumerate(groups)}
        mapping = {agent: module for module, members in modules.items() for agent in members}
        raise ConfigError(
            f"The agents of env {name!r} have different spaces ({listing:.600}), so one module "
            f"cannot serve them all. Write multi_agent(policies={list(modules)}, "
            f"policy_mapping_fn={mapping!r:.400})."
        )

    def check_same(self, other: EnvAgents, *, first: str, second: str) -> None:
        """Raises an EnvContractError unless another env has the same agents and spaces.

        It names what differs; `first` and `second` are what it calls this env and the
        other.
        """
        if self.ids != other.ids:
            problem = f"agents: {listed(self.ids)} and {listed(other.ids)}"
        else:
            problem = _differing_space(self, other)
        if problem:
            raise EnvContractError(
                f"{first} and {second} have different {problem}. All envs of a run have the same "
                "possible agents with the same spaces, in every process. List every agent that can "
                "ever appear in `possible_agents`, whatever the env's settings are."
            )


def _differing_space(one: EnvAgents, other: EnvAgents) -> str:
    for agent in one.ids:
        for kind in ("observation_spaces", "action_spaces"):
            ours, theirs = getattr(one, kind)[agent], getattr(other, kind)[agent]
            if ours != theirs:
                return f"{kind} for agent {agent!r}: {ours} and {theirs}"
    return ""


def _checked_ids(possible: Any, name: str) -> tuple[AgentId, ...]:
    remedy = 'Set self.possible_agents = ["agent_0", "agent_1"] in __init__, a list of all ids'
    if possible is None or isinstance(possible, str) or not isinstance(possible, Sequence | Set):
        raise EnvContractError(
            f"Env {name!r} has possible_agents={possible!r:.80} and no spaces by agent; expected a "
            f"list of the ids of all agents that can ever appear. {remedy}."
        )
    if isinstance(possible, Set):
        raise EnvContractError(
            f"Env {name!r} has the set possible_agents={set(possible)!r:.200}; expected a list. "
            f"The order of a set of texts differs from process to process. {remedy}."
        )
    problems = [problem for problem in map(why_no_agent_id, possible) if problem is not None]
    alike = None if problems else same_texts(possible)
    if alike is not None:
        problems.append(f"{alike[0]!r} and {alike[1]!r} are written alike")
    if not problems and len(set(possible)) != len(possible):
        problems.append("an id is listed twice")
    if not possible:
        problems.append("it is empty")
    if problems:
        raise EnvContractError(
            f"Env {name!r} has possible_agents={list(possible)!r:.200}: {'; '.join(problems)}. "
            "Give every agent a text or an int of its own as its id."
        )
    return tuple(canonical_order(possible))


def _asked(env: Any, method: str, agent: AgentId, name: str) -> gymnasium.Space[Any]:
    space = getattr(env, method)(agent)
    if not isinstance(space, gymnasium.Space):
        raise EnvContractError(
            f"{method}({agent!r}) of env {name!r} gave {space!r:.80}; expected a gymnasium space. "
            f"{_WAYS}."
        )
    return space


def unknown_agent(agent: Any, agents: EnvAgents, *, where: str) -> EnvContractError:
    """The error that an env speaks of an agent that it does not have."""
    near = did_you_mean(agent, agents.ids, similarity=0.5)
    return EnvContractError(
        f"There is no agent {agent!r:.80} in {where}: the possible agents are "
        f"{listed(agents.ids)}.{near} List every agent that can ever appear in `possible_agents`."
    )


# ---- several agents as one


class MultiAgentWrapper(gymnasium.Wrapper[Any, Any, Any, Any], MultiAgentEnv):
    """A layer around an env of several agents; answers what it does not change as the env does.

    Attributes:
        env: the env, or the layer, inside.
    """

    env: Any
    env_state_attributes: tuple[str, ...] = ()

    @takes(env=instance(gymnasium.Env, "an env of several agents"))
    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        agents = EnvAgents.of(env, name=type(env.unwrapped).__name__)
        self.possible_agents = list(agents.ids)
        self.observation_spaces = dict(agents.observation_spaces)
        self.action_spaces = dict(agents.action_spaces)


class GroupedAgents(MultiAgentWrapper):
    """An env in which groups of agents act as one agent each, with Tuple spaces.

    A group observes the tuple of its members' observations, acts with the tuple of their actions
    and gets the sum of their rewards. It has ended when all members have: by termination if all of
    them terminated. Its info holds "_group_rewards" and "_group_info", lists by member.

    Attributes:
        groups: {id of a group: its members in order}.
        observation_space, action_space: of every group, as far as they were given.
    """

    env_state_attributes = ("_ended",)

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        groups: Mapping[AgentId, Sequence[AgentId]],
        *,
        obs_space: gymnasium.Space[Any] | None = None,
        act_space: gymnasium.Space[Any] | None = None,
    ) -> None:
        super().__init__(env)
        self.groups = {group: tuple(members) for group, members in groups.items()}
        inner = EnvAgents.of(env, name=type(env.unwrapped).__name__)
        self._group_of = _checked_groups(self.groups, inner)
        self._ended: dict[AgentId, list[bool]] = {}
        alone = [agent for agent in inner.ids if agent not in self._group_of]
        self.possible_agents = [*self.groups, *alone]
        for given, own, inside in (
            (obs_space, "observation_spaces", inner.observation_spaces),
            (act_space, "action_spaces", inner.action_spaces),
        ):
            spaces = {agent: inside[agent] for agent in alone}
            for group, members in self.groups.items():
                made = gymnasium.spaces.Tuple([inside[member] for member in members])
                spaces[group] = made if given is None else given
            setattr(self, own, spaces)
            if given is not None:
                setattr(self, own.removesuffix("s"), given)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, Any]:
        """Resets the env; a group observes what all of its members do."""
        observations, infos = self.env.reset(seed=seed, options=options)
        self._ended = {}
        return self._grouped_observations(observations), self._grouped_infos(infos, {})

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Steps the env; an EnvContractError if only some members of a group are observed."""
        own: dict[AgentId, Any] = {}
        for agent, action in actions.items():
            own.update(
                zip(self.groups[agent], action, strict=True)
                if agent in self.groups
                else [(agent, action)]
            )
        observations, rewards, terminateds, truncateds, infos = self.env.step(own)
        flags = self._grouped_flags(terminateds, truncateds)
        return (
            self._grouped_observations(observations),
            self._grouped_rewards(rewards),
            *flags,
            self._grouped_infos(infos, rewards),
        )

    def _grouped_observations(self, observations: Mapping[AgentId, Any]) -> dict[AgentId, Any]:
        grouped = {a: seen for a, seen in observations.items() if a not in self._group_of}
        for group, members in self.groups.items():
            missing = [member for member in members if member not in observations]
            if len(missing) == len(members):
                continue
            if missing:
                raise EnvContractError(
                    f"The members {listed(missing)} of the group {group!r} are not observed, the "
                    "others are. A group acts when all of its members do. Let the env observe all "
                    "of them together, or leave some of them out of the group."
                )
            grouped[group] = tuple(observations[member] for member in members)
        return grouped

    def _grouped_rewards(self, rewards: Mapping[AgentId, Any]) -> dict[AgentId, Any]:
        grouped = {a: reward for a, reward in rewards.items() if a not in self._group_of}
        for group, members in self.groups.items():
            paid = [rewards[member] for member in members if member in rewards]
            if paid:
                grouped[group] = sum(paid)
        return grouped

    def _grouped_flags(
        self, terminateds: Mapping[AgentId, bool], truncateds: Mapping[AgentId, bool]
    ) -> tuple[dict[AgentId, bool], dict[AgentId, bool]]:
        own = [
            {agent: flag for agent, flag in flags.items() if agent not in self._group_of}
            for flags in (terminateds, truncateds)
        ]
        for agent in self._group_of:
            flags = bool(terminateds.get(agent)), bool(truncateds.get(agent))
            if any(flags):
                self._ended[agent] = list(flags)
        for group, members in self.groups.items():
            if all(member in self._ended for member in members):
                is_terminated = all(self._ended[member][0] for member in members)
                own[0][group] = is_terminated
                own[1][group] = not is_terminated
        return own[0], own[1]

    def _grouped_infos(
        self, infos: Mapping[AgentId, Any] | None, rewards: Mapping[AgentId, Any]
    ) -> dict[AgentId, Any]:
        infos = infos or {}
        grouped = {a: info for a, info in infos.items() if a not in self._group_of}
        for group, members in self.groups.items():
            info: dict[str, Any] = {}
            if any(member in infos for member in members):
                info["_group_info"] = [infos.get(member, {}) for member in members]
            if any(member in rewards for member in members):
                info["_group_rewards"] = [rewards.get(member, 0.0) for member in members]
            if info:
                grouped[group] = info
        return grouped


def _checked_groups(
    groups: Mapping[AgentId, Sequence[AgentId]], agents: EnvAgents
) -> dict[AgentId, AgentId]:
    """{member: its group}."""
    group_of: dict[AgentId, AgentId] = {}
    for group, members in groups.items():
        problem = why_no_agent_id(group)
        if problem is None and group in agents.ids and tuple(members) != (group,):
            problem = f"{group!r} is the id of an agent, too"
        if problem is None and not members:
            problem = "it has no members"
        if problem is not None:
            raise EnvContractError(
                f"The group {group!r} cannot be made: {problem}. Give {{id of a group: [members]}}."
            )
        for member in members:
            if member not in agents.ids:
                raise unknown_agent(member, agents, where=f"the group {group!r}")
            if member in group_of:
                raise EnvContractError(
                    f"Agent {member!r} is in the groups {group_of[member]!r} and {group!r}; an "
                    "agent is in one group at most. Take it out of one of them."
                )
            group_of[member] = group
    return group_of

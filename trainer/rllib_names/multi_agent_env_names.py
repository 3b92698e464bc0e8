"""Older members of RLlib's `MultiAgentEnv`, on top of the present ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


class MultiAgentEnvNames:
    """Adds the older members to an env of several agents."""

    possible_agents: Any

    def get_agent_ids(self) -> set[Any]:
        """Older form of `possible_agents`."""
        return set(self.possible_agents)

    def observation_space_contains(self, x: Any) -> bool:
        """Whether {agent: observation} holds observations of the agents' spaces."""
        return _contains(self, "get_observation_space", x)

    def action_space_contains(self, x: Any) -> bool:
        """Whether {agent: action} holds actions of the agents' spaces."""
        return _contains(self, "get_action_space", x)

    def observation_space_sample(self, agent_ids: Iterable[Any] | None = None) -> dict[Any, Any]:
        """{agent: an observation drawn by its space}; None means all agents."""
        return _drawn(self, "get_observation_space", agent_ids)

    def action_space_sample(self, agent_ids: Iterable[Any] | None = None) -> dict[Any, Any]:
        """{agent: an action drawn by its space}; None means all agents."""
        return _drawn(self, "get_action_space", agent_ids)


def _contains(env: Any, method: str, given: Any) -> bool:
    possible = set(env.possible_agents)
    return isinstance(given, Mapping) and all(
        agent in possible and getattr(env, method)(agent).contains(value)
        for agent, value in given.items()
    )


def _drawn(env: Any, method: str, agent_ids: Iterable[Any] | None) -> dict[Any, Any]:
    agents = env.possible_agents if agent_ids is None else agent_ids
    return {agent: getattr(env, method)(agent).sample() for agent in agents}

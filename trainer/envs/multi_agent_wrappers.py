"""Small layers around envs of several agents: one size of observations, who one is, one reward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict

from trainer.agent_ids import canonical_order, listed
from trainer.envs.multi_agent_env import EnvAgents, MultiAgentWrapper
from trainer.errors import ConfigError, UnsupportedSpaceError
from trainer.types import AgentId, Array

PADDED_MASK: Final = "padding_mask"
"""The key of `PadObservations` that says which numbers the agent really sees."""


class _ObservationLayer(MultiAgentWrapper):
    """A layer that changes every observation by itself."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, Any]:
        """Resets the env and changes what it shows."""
        observations, infos = self.env.reset(seed=seed, options=options)
        return self._changed(observations), infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Steps the env and changes what it shows."""
        observations, *rest = self.env.step(actions)
        return (self._changed(observations), *rest)

    def _changed(self, observations: Mapping[AgentId, Any]) -> dict[AgentId, Any]:
        return {agent: self.changed(agent, seen) for agent, seen in observations.items()}

    def changed(self, agent: AgentId, observation: Any) -> Any:
        """What an agent is shown instead."""
        raise NotImplementedError


class PadObservations(_ObservationLayer):
    """Gives all agents vectors of one length, so that one module can serve them.

    Shorter ones get zeros behind their numbers.

    Args:
        env: of agents with Box observations, of any shapes.
        with_mask: makes observations {"obs": vector, "padding_mask": 1 where a number is real}.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], *, with_mask: bool = False) -> None:
        super().__init__(env)
        boxes = _boxes(self, "PadObservations")
        self._length = max(int(np.prod(box.shape)) for box in boxes.values())
        self._with_mask = with_mask
        low = np.full(self._length, np.inf, np.float32)
        high = -low
        for box in boxes.values():
            size = int(np.prod(box.shape))
            low[:size] = np.minimum(low[:size], box.low.ravel())
            high[:size] = np.maximum(high[:size], box.high.ravel())
        # Zeros stand in for what is not there, so they lie within the bounds.
        seen: Any = Box(np.minimum(low, 0.0), np.maximum(high, 0.0), dtype=np.float32)
        if with_mask:
            seen = Dict({"obs": seen, PADDED_MASK: Box(0.0, 1.0, (self._length,), np.float32)})
        self.observation_spaces = dict.fromkeys(self.possible_agents, seen)

    def changed(self, agent: AgentId, observation: Any) -> Any:
        """The numbers of an observation, with zeros behind them."""
        del agent  # all are treated alike
        numbers = np.asarray(observation, np.float32).ravel()
        padded: Array = np.zeros(self._length, np.float32)
        padded[: len(numbers)] = numbers
        if not self._with_mask:
            return padded
        return {
            "obs": padded,
            PADDED_MASK: (np.arange(self._length) < len(numbers)) * np.float32(1),
        }


class AgentIndicator(_ObservationLayer):
    """Tells every agent who it is: a one-hot code of its place in canonical order.

    A module that is shared by all can so act differently for each.

    Args:
        env: of agents with Box observations of one dimension.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        agents = canonical_order(self.possible_agents)
        codes = np.eye(len(agents), dtype=np.float32)
        self._codes = {agent: codes[place] for place, agent in enumerate(agents)}
        self.observation_spaces = {
            agent: Box(
                np.concatenate([box.low.ravel(), np.zeros(len(agents))]).astype(np.float32),
                np.concatenate([box.high.ravel(), np.ones(len(agents))]).astype(np.float32),
                dtype=np.float32,
            )
            for agent, box in _boxes(self, "AgentIndicator").items()
        }

    def changed(self, agent: AgentId, observation: Any) -> Any:
        """The observation with the agent's code behind it."""
        numbers = np.asarray(observation, np.float32).ravel()
        return np.concatenate([numbers, self._codes[agent]])


class CommonReward(MultiAgentWrapper):
    """Pays every agent that acted or was observed the same: the sum or the mean of all rewards.

    Args:
        env: whose rewards are shared.
        how: "sum" or "mean" (over the agents that are paid).
    """

    def __init__(self, env: gymnasium.Env[Any, Any], how: str = "sum") -> None:
        super().__init__(env)
        if how not in ("sum", "mean"):
            raise ConfigError(
                f'CommonReward got how={how!r:.80}; expected "sum" or "mean". Choose one of them.'
            )
        self._how = how

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Steps the env and shares the rewards."""
        observations, rewards, *rest = self.env.step(actions)
        paid = {*actions, *observations, *rewards}
        total = sum(float(rewards[agent]) for agent in canonical_order(rewards))
        share = total / len(paid) if self._how == "mean" and paid else total
        return (observations, dict.fromkeys(canonical_order(paid), share), *rest)


def _boxes(env: MultiAgentWrapper, layer: str) -> dict[AgentId, Box]:
    agents = EnvAgents.of(env, name=type(env.unwrapped).__name__)
    others = [a for a, space in agents.observation_spaces.items() if not isinstance(space, Box)]
    if others:
        raise UnsupportedSpaceError(
            f"{layer} needs Box observations; the agents {listed(others)} of "
            f"{type(env.unwrapped).__name__} have others. Turn them into arrays in the env first."
        )
    return {agent: agents.observation_spaces[agent] for agent in agents.ids}  # type: ignore[misc]

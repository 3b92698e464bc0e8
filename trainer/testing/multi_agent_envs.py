"""Envs of several agents with known answers, for tests: yours and ours.

ScriptedMultiAgentEnv   plays a table: who is observed when, what is paid, who ends
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gymnasium import spaces

from trainer.envs import MultiAgentEnv
from trainer.types import AgentId

_MOST_OBSERVATIONS: Final = 64
_NUM_ACTIONS: Final = 64


@dataclass(frozen=True)
class ScriptedStep:
    """What a scripted env answers at one env step; the first one is the answer of `reset`.

    Attributes:
        observations: {agent: an int in [0, 64)}.
        rewards: {agent: number}.
        terminateds: {agent or "__all__": flag}.
        truncateds: {agent or "__all__": flag}.
        infos: {agent or "__common__": info}.
    """

    observations: Mapping[AgentId, int]
    rewards: Mapping[AgentId, float] = field(default_factory=dict)
    terminateds: Mapping[AgentId, bool] = field(default_factory=dict)
    truncateds: Mapping[AgentId, bool] = field(default_factory=dict)
    infos: Mapping[AgentId, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class AgentScript:
    """An episode as a table.

    Attributes:
        agents: all possible agents.
        steps: the answers of the env, in order.
    """

    agents: Sequence[AgentId]
    steps: Sequence[ScriptedStep]


class ScriptedMultiAgentEnv(MultiAgentEnv):
    """Plays a table, whatever the actions are.

    Settings (`env_config`):
        script: an `AgentScript`.

    Observation: Discrete(64). Action: Discrete(64).

    Attributes:
        actions: the actions of the running episode, one dict per env step, as they came.
    """

    def __init__(self, env_config: Mapping[str, Any]) -> None:
        self._script: AgentScript = env_config["script"]
        self.possible_agents = list(self._script.agents)
        self.observation_space = spaces.Discrete(_MOST_OBSERVATIONS)
        self.action_space = spaces.Discrete(_NUM_ACTIONS)
        self.actions: list[dict[AgentId, Any]] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, Any]:
        """The first answer of the script."""
        super().reset(seed=seed, options=options)
        self.actions = []
        first = self._script.steps[0]
        return dict(first.observations), dict(first.infos)

    def step(self, actions: dict[AgentId, Any]) -> tuple[Any, Any, Any, Any, Any]:
        """The next answer of the script."""
        self.actions.append(dict(actions))
        now = self._script.steps[len(self.actions)]
        return (
            dict(now.observations),
            dict(now.rewards),
            dict(now.terminateds),
            dict(now.truncateds),
            dict(now.infos),
        )

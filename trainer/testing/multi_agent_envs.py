"""Envs of several agents with known answers, for tests: yours and ours.

ScriptedMultiAgentEnv   plays a table: who is observed when, what is paid, who ends
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from gymnasium import spaces

from trainer.envs import CopiedAgents, MultiAgentEnv
from trainer.types import AgentId

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
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


class MultiAgentCartPole(CopiedAgents):
    """Copies of CartPole-v1, an agent each (`env_config={"num_agents": n}`)."""

    sub_env = "CartPole-v1"


class MultiAgentPendulum(CopiedAgents):
    """Copies of Pendulum-v1, an agent each (`env_config={"num_agents": n}`)."""

    sub_env = "Pendulum-v1"


class RepeatAfterMe(MultiAgentEnv):
    """Every agent says the number that it was shown one step before; pays 1 if it does.

    Settings (`env_config`):
        num_agents: agents 0, 1, …; 2.
        num_values: numbers to choose from; 2.
        num_steps: steps of an episode; 10. The best return is (num_steps - 1) per agent: in the
            first step there is no number before.

    Observation: float32, [2, num_values]: one-hot codes of the number shown now and of the one
    before (zeros at the reset). Action: Discrete(num_values).
    """

    def __init__(self, env_config: Mapping[str, Any] = _NOTHING) -> None:
        self.possible_agents = list(range(env_config.get("num_agents", 2)))
        self._num_values: int = env_config.get("num_values", 2)
        self._num_steps: int = env_config.get("num_steps", 10)
        self.observation_space = spaces.Box(0.0, 1.0, (2, self._num_values), np.float32)
        self.action_space = spaces.Discrete(self._num_values)
        self._shown: dict[AgentId, tuple[int | None, int]] = {}
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, Any]:
        """Shows the first numbers."""
        super().reset(seed=seed, options=options)
        self._steps = 0
        self._shown = {agent: (None, self._number()) for agent in self.possible_agents}
        return self._observations(), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Pays those who said the number before, and shows the next ones."""
        rewards = {agent: float(actions[agent] == self._shown[agent][0]) for agent in actions}
        self._shown = {agent: (now, self._number()) for agent, (_, now) in self._shown.items()}
        self._steps += 1
        is_over = self._steps >= self._num_steps
        return self._observations(), rewards, {"__all__": is_over}, {"__all__": False}, {}

    def _number(self) -> int:
        return int(self.np_random.integers(self._num_values))

    def _observations(self) -> dict[AgentId, Any]:
        codes = np.eye(self._num_values, dtype=np.float32)
        nothing = np.zeros(self._num_values, np.float32)
        return {
            agent: np.stack([codes[now], nothing if before is None else codes[before]])
            for agent, (before, now) in self._shown.items()
        }


class RockPaperScissors(MultiAgentEnv):
    """Two players choose at once: 0 rock, 1 paper, 2 scissors; the winner gets 1, the loser -1.

    Settings (`env_config`):
        num_rounds: of an episode; 15.

    Observation: float32, [4]: one-hot code of what the other one chose last; the last place stands
    for nothing yet. Action: Discrete(3).
    """

    def __init__(self, env_config: Mapping[str, Any] = _NOTHING) -> None:
        self.possible_agents = ["player_0", "player_1"]
        self._num_rounds: int = env_config.get("num_rounds", 15)
        self.observation_space = spaces.Box(0.0, 1.0, (4,), np.float32)
        self.action_space = spaces.Discrete(3)
        self._rounds = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, Any]:
        """No agent has chosen yet."""
        super().reset(seed=seed, options=options)
        self._rounds = 0
        return {agent: np.eye(4, dtype=np.float32)[3] for agent in self.possible_agents}, {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Compares the choices: each beats the one before it, cyclically."""
        mine, yours = (int(actions[agent]) for agent in self.possible_agents)
        won = (0.0, 1.0, -1.0)[(mine - yours) % 3]
        self._rounds += 1
        codes = np.eye(4, dtype=np.float32)
        first, second = self.possible_agents
        is_over = self._rounds >= self._num_rounds
        return (
            {first: codes[yours], second: codes[mine]},
            {first: won, second: -won},
            {"__all__": is_over},
            {"__all__": False},
            {},
        )


class TwoStepGame(MultiAgentEnv):
    """Two players, two steps, one reward for both together; each gets half of it.

    In the first step the first player chooses a table: 0 pays 7 whatever comes; 1 pays 8 if both
    choose 1 in the second step, 1 if one of them does, and 0 otherwise.

    Source: Rashid et al. 2018, "QMIX: monotonic value function factorisation for deep multi-agent
    reinforcement learning", section 5.

    Observation: float32, [3]: one-hot code of where the game stands. Action: Discrete(2).
    """

    def __init__(self, env_config: Mapping[str, Any] = _NOTHING) -> None:
        del env_config
        self.possible_agents = ["player_0", "player_1"]
        self.observation_space = spaces.Box(0.0, 1.0, (3,), np.float32)
        self.action_space = spaces.Discrete(2)
        self._place = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, Any]:
        """Both are at the beginning."""
        super().reset(seed=seed, options=options)
        self._place = 0
        return self._observations(), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Goes to a table, or pays."""
        first, second = (int(actions[agent]) for agent in self.possible_agents)
        is_over = self._place > 0
        paid = 0.0
        if is_over:
            paid = 7.0 if self._place == 1 else (0.0, 1.0, 8.0)[first + second]
        else:
            self._place = 1 + first
        rewards = dict.fromkeys(self.possible_agents, paid / 2)
        return self._observations(), rewards, {"__all__": is_over}, {"__all__": False}, {}

    def _observations(self) -> dict[AgentId, Any]:
        return {a: np.eye(3, dtype=np.float32)[self._place] for a in self.possible_agents}

"""PettingZoo's two kinds of envs as `MultiAgentEnv`: all agents at once, or one after the other.

PettingZoo is optional and is never imported here: what an env is, is asked of its classes, which
are there if an env is.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

import gymnasium
import numpy as np
from gymnasium import spaces

from trainer.agent_ids import ALL_AGENTS, COMMON_INFOS
from trainer.envs.multi_agent_env import EnvAgents, MultiAgentEnv
from trainer.errors import EnvContractError, EnvCreationError
from trainer.spaces import ACTION_MASK_KEY
from trainer.types import AgentId

_OBSERVATION_KEY: Final = "observation"
_CLASSES: Final = "pettingzoo.utils.env"
_VECTOR_CONVERSIONS: Final = "supersuit.vector"

_Flags = tuple[dict[AgentId, bool], dict[AgentId, bool]]


def _kind(env: object) -> type[_PettingZooLayer] | None:
    classes = sys.modules.get(_CLASSES)
    if classes is None:
        return None
    if isinstance(env, classes.ParallelEnv):
        return ParallelPettingZooEnv
    return PettingZooEnv if isinstance(env, classes.AECEnv) else None


def as_multi_agent_env(env: Any) -> Any:
    """An env of PettingZoo in the layer that makes it a `MultiAgentEnv`; anything else as it is.

    Raises:
        EnvCreationError: it is one of SuperSuit's vector conversions, or does not know its agents
            beforehand.
    """
    if type(env).__module__.startswith(_VECTOR_CONVERSIONS):
        raise EnvCreationError(
            f"{type(env).__name__} hides agents as sub-envs, needs equal spaces and takes it that "
            "no agent ends before the others. Leave SuperSuit's vector conversion out and give the "
            "PettingZoo env itself; its other wrappers work."
        )
    kind = _kind(env)
    return env if kind is None else kind(env)


class _PettingZooLayer(MultiAgentEnv):
    """What both kinds have in common.

    Attributes:
        env: the PettingZoo env.
    """

    def __init__(self, env: Any, *, mask_from_infos: bool = False) -> None:
        self.env = env
        self._masks_from_infos = mask_from_infos
        possible = getattr(env, "possible_agents", None)
        if not possible:
            raise EnvCreationError(
                f"{_named(env)} has no possible_agents, so its agents are made up on the way. "
                "Networks and random numbers belong to agents, which have to be known beforehand. "
                "Use an env that sets possible_agents."
            )
        self.possible_agents = list(possible)
        self.observation_spaces = {a: self._seen(env.observation_space(a), a) for a in possible}
        self.action_spaces = {agent: env.action_space(agent) for agent in possible}
        self.agents = list(possible)
        self.metadata = dict(getattr(env, "metadata", None) or {})
        self.render_mode = getattr(env, "render_mode", None)
        self._agents = EnvAgents.of(self, name=_named(env))
        self._ended: dict[AgentId, bool] = {}

    @property
    def get_sub_environments(self) -> Any:
        """The PettingZoo env without any of its wrappers."""
        return self.env.unwrapped

    def render(self) -> Any:
        """What the env draws."""
        return self.env.render()

    def close(self) -> None:
        """Closes the env."""
        self.env.close()

    # ---- state

    @property
    def has_env_state(self) -> bool:
        """Whether the env says what its state is."""
        inner = self.env.unwrapped
        return all(callable(getattr(inner, name, None)) for name in ("get_state", "set_state"))

    def get_state(self) -> Any:
        """The state of the env, and who has ended."""
        ended = [[agent, flag] for agent, flag in self._ended.items()]
        return {"env": self.env.unwrapped.get_state(), "ended": ended}

    def set_state(self, state: Any) -> None:
        """Goes on from where `get_state` gave this."""
        self.env.unwrapped.set_state(state["env"])
        self._ended = dict(state["ended"])

    # ---- what both kinds report

    def _all_flags(self, terminateds: Mapping[Any, Any], truncateds: Mapping[Any, Any]) -> _Flags:
        """The flags of a step, with "__all__" once no agent is left."""
        flags: _Flags = (
            {agent: bool(flag) for agent, flag in terminateds.items()},
            {agent: bool(flag) for agent, flag in truncateds.items()},
        )
        for agent in flags[0].keys() | flags[1].keys():
            if flags[0].get(agent) or flags[1].get(agent):
                self._ended[agent] = bool(flags[0].get(agent))
        self.agents = list(self.env.agents)
        is_over = not self.agents
        is_terminated = all(self._ended.values())
        flags[0][ALL_AGENTS] = is_over and is_terminated
        flags[1][ALL_AGENTS] = is_over and not is_terminated
        return flags

    def _own_infos(self, infos: Mapping[Any, Any] | None) -> dict[Any, Any]:
        """Infos by agent; what belongs to none of them is common to all."""
        own: dict[Any, Any] = {}
        for key, info in (infos or {}).items():
            if key in self.observation_spaces:
                own[key] = info or {}
            else:
                own.setdefault(COMMON_INFOS, {})[key] = info
        return own

    def _seen(self, space: gymnasium.Space[Any], agent: AgentId) -> gymnasium.Space[Any]:
        """The space of an agent's observations, with its mask if that comes from infos."""
        if not self._masks_from_infos:
            return space
        actions = self.env.action_space(agent)
        if not isinstance(actions, spaces.Discrete):
            raise EnvCreationError(
                f"mask_from_infos=True: agent {agent!r} of {_named(self.env)} acts in {actions}, "
                "and masks are for Discrete actions. Leave the option out."
            )
        mask = spaces.Box(0, 1, (int(actions.n),), np.int8)
        parts = dict(space.spaces) if isinstance(space, spaces.Dict) else {_OBSERVATION_KEY: space}
        return spaces.Dict({**parts, ACTION_MASK_KEY: mask})

    def _observed(self, agent: AgentId, observation: Any, info: Mapping[str, Any] | None) -> Any:
        """An observation, with its mask if that comes from infos."""
        if not self._masks_from_infos:
            return observation
        space: Any = self.observation_spaces[agent]
        size = space[ACTION_MASK_KEY].shape
        mask = np.ones(size, np.int8) if info is None else info.get(ACTION_MASK_KEY)
        mask = np.ones(size, np.int8) if mask is None else np.asarray(mask, np.int8)
        parts = observation if isinstance(observation, dict) else {_OBSERVATION_KEY: observation}
        return {**parts, ACTION_MASK_KEY: mask}


class ParallelPettingZooEnv(_PettingZooLayer):
    """A `ParallelEnv` of PettingZoo, in which all agents act at once.

    Who is observed and has not ended acts. An agent that ends has a last observation, which is
    recorded. The episode is over when no agent is left; by termination if all of them terminated.

    Args:
        env: the PettingZoo env, with any of its wrappers.
        mask_from_infos: puts `infos[agent]["action_mask"]` beside each observation, under
            "action_mask"; the observation itself is then under "observation".
    """

    @property
    def par_env(self) -> Any:
        """RLlib's name of `env`."""
        return self.env

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, Any]:
        """Resets the env."""
        observations, infos = self.env.reset(seed=seed, options=options)
        self._ended = {}
        self.agents = list(self.env.agents)
        infos = infos or {}
        seen = {a: self._observed(a, each, infos.get(a)) for a, each in observations.items()}
        return seen, self._own_infos(infos)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Steps the env with the actions of those that live."""
        observations, rewards, terminateds, truncateds, infos = self.env.step(actions)
        flags = self._all_flags(terminateds, truncateds)
        infos = infos or {}
        seen = {a: self._observed(a, each, infos.get(a)) for a, each in observations.items()}
        return seen, dict(rewards), *flags, self._own_infos(infos)


class PettingZooEnv(_PettingZooLayer):
    """An `AECEnv` of PettingZoo, in which agents take turns.

    Exactly the agent whose turn it is acts and is observed; what others would see is never asked.
    Its reward is what it earned since its own last step, so nothing is lost and nothing counted
    twice. Agents that have ended are passed over at once: their last observation, reward and flags
    are reported with the step that leads to the next living one.

    Args:
        env: the PettingZoo env, with any of its wrappers.
        mask_from_infos: puts `infos[agent]["action_mask"]` beside each observation, under
            "action_mask"; the observation itself is then under "observation".
    """

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, Any]:
        """Resets the env; the first agent observes."""
        self.env.reset(seed=seed, options=options)
        self._ended = {}
        report = _Report()
        self._pass_turns(report)
        self._all_flags(report.terminateds, report.truncateds)
        return report.observations, self._own_infos(report.infos)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Makes the move of the agent whose turn it is.

        Raises:
            EnvContractError: another one, or none, or several acted.
        """
        if not self.env.agents:
            raise EnvContractError(
                f"{_named(self.env)} was stepped when no agent was left. The episode is over. "
                "Reset it first."
            )
        turn = self.env.agent_selection
        if set(actions) != {turn}:
            raise EnvContractError(
                f"{_named(self.env)} got the actions {dict(actions)!r:.100}; expected one of "
                f"{turn!r}, whose turn it is. Act for who was observed."
            )
        self.env.step(actions[turn])
        report = _Report()
        self._pass_turns(report)
        flags = self._all_flags(report.terminateds, report.truncateds)
        return report.observations, report.rewards, *flags, self._own_infos(report.infos)

    def _pass_turns(self, report: _Report) -> None:
        """Reports agents that have ended, one after the other, and then the next living one."""
        while self.env.agents:
            agent = self.env.agent_selection
            observation, reward, terminated, truncated, info = self.env.last()
            report.observations[agent] = self._observed(agent, observation, info)
            report.rewards[agent] = reward
            report.infos[agent] = dict(info or {})
            if not (terminated or truncated):
                return
            report.terminateds[agent] = bool(terminated)
            report.truncateds[agent] = bool(truncated)
            self.env.step(None)


class _Report:
    """What a step of turns leads to, by agent."""

    def __init__(self) -> None:
        self.observations: dict[AgentId, Any] = {}
        self.rewards: dict[AgentId, Any] = {}
        self.terminateds: dict[AgentId, bool] = {}
        self.truncateds: dict[AgentId, bool] = {}
        self.infos: dict[AgentId, Any] = {}


def _named(env: Any) -> str:
    """The env as messages call it."""
    name = (getattr(env, "metadata", None) or {}).get("name")
    return f"The PettingZoo env {name or type(getattr(env, 'unwrapped', env)).__name__}"

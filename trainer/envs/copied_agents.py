"""Several copies of a single-agent env as one env of several agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import gymnasium
import numpy as np

from trainer.envs.env_factory import EnvContext, make_env_factory
from trainer.envs.env_state import EnvState
from trainer.envs.multi_agent_env import MultiAgentEnv
from trainer.errors import EnvContractError, EnvCreationError
from trainer.name_resolution import PROGRAM
from trainer.seeding import EnvSeeds, Role
from trainer.types import AgentId


class CopiedAgents(MultiAgentEnv):
    """Copies of one env, an agent each; they know nothing of each other.

    Each copy gets a seed of its own, which follows from the seed of the reset. One that has ended
    is not stepped any more; the episode is over when all have ended.

    Settings (`env_config`):
        num_agents: how many copies, ≥ 1; their agents are 0, 1, …; 1.
        everything else: settings of the copies.

    Attributes:
        sub_env: what the copies are: a name, a class or a creator, as in `environment(env=…)`.
        envs: the copies.
    """

    sub_env: ClassVar[Any]

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        """Makes the copies; `config` is the `env_config`, under the name that it has in RLlib."""
        settings = dict(config or {})
        num_agents = settings.pop("num_agents", 1)
        if type(num_agents) is not int or num_agents < 1:
            raise EnvCreationError(
                f"{type(self).__name__} got env_config={{'num_agents': {num_agents!r:.80}}}; "
                "expected a whole number of at least 1. Say how many copies act side by side."
            )
        factory = make_env_factory(vars(_found(type(self)))["sub_env"], settings, source=PROGRAM)
        place: dict[str, Any] = {"worker_index": 0, "vector_index": 0}
        if isinstance(config, EnvContext):
            place = config.copy_with_overrides()._place()
        self.envs = [factory.make(**place)[0] for _ in range(num_agents)]
        self.possible_agents = list(range(num_agents))
        self.agents = list(self.possible_agents)
        self.observation_spaces = {k: env.observation_space for k, env in enumerate(self.envs)}
        self.action_spaces = {k: env.action_space for k, env in enumerate(self.envs)}
        self.metadata = self.envs[0].metadata
        self.render_mode = self.envs[0].render_mode
        self._ended: set[AgentId] = set()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, Any]:
        """Resets all copies, each with a seed of its own."""
        seeds = None if seed is None else EnvSeeds(seed)
        observations, infos = {}, {}
        for agent, env in enumerate(self.envs):
            # A keyed permutation of the agent's number: no two copies share a seed.
            own = None if seeds is None else seeds.seed(Role.TRAINING, agent)
            observations[agent], infos[agent] = env.reset(seed=own, options=options)
        self._ended = set()
        self.agents = list(self.possible_agents)
        return observations, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Any]:
        """Steps the copies that have an action and have not ended."""
        seen: dict[AgentId, Any] = {}
        rewards: dict[AgentId, Any] = {}
        terminateds: dict[AgentId, bool] = {}
        truncateds: dict[AgentId, bool] = {}
        infos: dict[AgentId, Any] = {}
        envs, ended = self.envs, self._ended
        for agent, action in actions.items():
            if agent in ended:
                continue
            answer = envs[agent].step(action)
            seen[agent], rewards[agent], terminated, truncated, infos[agent] = answer
            terminateds[agent], truncateds[agent] = terminated, truncated
            if terminated or truncated:
                ended.add(agent)
                self.agents = [each for each in self.possible_agents if each not in self._ended]
        return seen, rewards, terminateds, truncateds, infos

    @property
    def has_env_state(self) -> bool:
        """Whether all copies can say what their state is."""
        return all(EnvState.of(env) is not None for env in self.envs)

    def get_state(self) -> Any:
        """The states of all copies, and which have ended; an EnvContractError if one gives none."""
        return {"copies": [_taken(env) for env in self.envs], "ended": sorted(self._ended)}

    def set_state(self, state: Any) -> None:
        """Lets all copies go on from there; an EnvContractError if one does not take its state."""
        for env, saved in zip(self.envs, state["copies"], strict=True):
            own = EnvState.of(env)
            if own is None or not own.give_back(saved):
                raise _no_state(env, own)
        self._ended = set(state["ended"])
        self.agents = [agent for agent in self.possible_agents if agent not in self._ended]

    def render(self) -> Any:
        """The frames of all copies side by side; None if they give none."""
        frames: list[Any] = [env.render() for env in self.envs]
        if all(isinstance(frame, np.ndarray) for frame in frames):
            return np.concatenate(frames, axis=1)
        return None

    def close(self) -> None:
        """Closes all copies."""
        for env in self.envs:
            env.close()


def _found(cls: type[CopiedAgents]) -> type:
    """The class that says what the copies are."""
    for each in cls.__mro__:
        if "sub_env" in vars(each):
            return each
    raise EnvCreationError(
        f"{cls.__name__} does not say what its copies are. Set `sub_env` in the class, or use "
        'make_multi_agent("CartPole-v1").'
    )


def _taken(env: gymnasium.Env[Any, Any]) -> bytes:
    own = EnvState.of(env)
    taken = None if own is None else own.take()
    if taken is None:
        raise _no_state(env, own)
    return taken


def _no_state(env: gymnasium.Env[Any, Any], own: EnvState | None) -> EnvContractError:
    why = "nothing is known of its state" if own is None else own.trouble
    return EnvContractError(
        f"A copy of {type(env.unwrapped).__name__} cannot go on from a state: {why}. Give the env "
        "get_state() and set_state(state), or leave both out; then its steps are repeated."
    )


def make_multi_agent(
    env_name_or_creator: str | type[gymnasium.Env[Any, Any]] | Callable[..., Any],
) -> type[CopiedAgents]:
    """The class of envs in which several agents play a single-agent env side by side.

        config.environment(make_multi_agent("CartPole-v1"), env_config={"num_agents": 2})

    Args:
        env_name_or_creator: what the copies are, as in `environment(env=…)`.

    Raises:
        EnvCreationError: it means nothing; names the nearest.
    """
    name = make_env_factory(env_name_or_creator, {}, source=PROGRAM).name
    members = {"sub_env": env_name_or_creator, "__doc__": f"Copies of {name}, an agent each."}
    plain = "".join(letter if letter.isalnum() else "_" for letter in name)
    return type(f"Copied_{plain}", (CopiedAgents,), members)

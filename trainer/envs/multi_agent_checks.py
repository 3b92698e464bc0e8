"""Checks what an env of several agents answers, and says what is wrong with it.

The form of every answer is looked at, because what fails later would name neither env nor agent.
Observations are compared with their spaces where an agent's first ones come in; whether all numbers
are finite is looked at when they have been played. What an answer means for each agent (who came
back, who was paid after its end) is judged by the episode.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import gymnasium
import numpy as np

from trainer.agent_ids import ALL_AGENTS, COMMON_INFOS, listed
from trainer.envs.env_checks import (
    described_answer,
    is_all_finite,
    is_finite,
    is_inside,
    items_of,
)
from trainer.envs.multi_agent_env import EnvAgents, unknown_agent
from trainer.episodes import MultiAgentEpisode, SingleAgentEpisode
from trainer.errors import EnvContractError

MAX_EMPTY_STEPS: Final = 1000
"""After so many env steps in a row without action and observation, no agent will ever come."""

_LOOKS: Final = 2
"""How many observations of each agent are compared with its space: of a reset, and of a step."""

Answer = tuple[dict[Any, Any], dict[Any, Any], dict[Any, Any], dict[Any, Any], dict[Any, Any]]
_STEP_PARTS: Final = ("observations", "rewards", "terminateds", "truncateds", "infos")


class AnswerChecks:
    """The checks of one sub-env's answers.

    Life: made with the sub-env; `reset` and `step` take each answer and give its parts back as
    dicts of their own with copies in them, so that an env may use its memory again;
    `check_progress` after the step was added to the episode.

    Attributes:
        agents: of the env.
        name: of the env, for messages.
        max_empty_steps: see `MAX_EMPTY_STEPS`.
    """

    def __init__(
        self,
        agents: EnvAgents,
        *,
        name: str,
        max_empty_steps: int = MAX_EMPTY_STEPS,
        copied: Callable[[Any], Any] = copy.deepcopy,
    ) -> None:
        """Takes what never changes.

        Args:
            agents: of the env.
            name: of the env.
            max_empty_steps: see the class.
            copied: gives an observation or an info with memory of its own.
        """
        self.agents = agents
        self.name = name
        self.max_empty_steps = max_empty_steps
        self._copied = copied
        self._looks = dict.fromkeys(agents.ids, _LOOKS)

    def reset(self, answer: Any) -> tuple[dict[Any, Any], dict[Any, Any]]:
        """The observations and infos that `reset` returned, in dicts of their own.

        Raises:
            EnvContractError: it returned something else, or an observation lies outside its space.
        """
        if not (isinstance(answer, tuple) and len(answer) == 2):
            raise EnvContractError(
                f"reset() of env {self.name!r} returned {described_answer(answer)}; expected the "
                "tuple (observations, infos), two dicts by agent."
            )
        observations, infos = answer
        seen = self._own_dict(observations, "observations", "reset()")
        own_infos = {} if infos is None else self._own_dict(infos, "infos", "reset()")
        if self._looks:
            self._look(seen, "at the reset")
        copied = self._copied
        return (
            {agent: copied(one) for agent, one in seen.items()},
            {agent: self._own_info(agent, one, "at the reset") for agent, one in own_infos.items()},
        )

    def _own_info(self, agent: Any, info: Any, when: str) -> Any:
        """A copy of an info, which is a dict; what is of all together may be anything."""
        if info is None:
            return {}
        if not (isinstance(info, Mapping) or agent == COMMON_INFOS):
            raise EnvContractError(
                f"Env {self.name!r} gave agent {agent!r} the info {info!r:.80} {when}, a "
                f"{type(info).__name__}; expected a dict. Write {{name: value}}, or leave the "
                "agent out where there is nothing to say."
            )
        return self._copied(info)

    def step(self, answer: Any, episode: MultiAgentEpisode) -> Answer:
        """The five dicts that `step` returned, copied.

        Args:
            answer: what it returned.
            episode: that it belongs to; says the env step, for messages.

        Raises:
            EnvContractError: it returned something else, or an observation lies outside its space.
        """
        if not (isinstance(answer, tuple) and len(answer) == 5):
            env_t = episode.env_t + 1
            raise EnvContractError(
                f"step() of env {self.name!r} returned {described_answer(answer)} at env step "
                f"{env_t}; expected the tuple (observations, rewards, terminateds, truncateds, "
                "infos), five dicts by agent."
            )
        observations, rewards, terminateds, truncateds, infos = answer
        if not (
            type(observations) is type(rewards) is type(infos) is dict
            and type(terminateds) is type(truncateds) is dict
        ):
            observations, rewards, terminateds, truncateds, infos = (
                self._own_dict(part, label, "step()", episode.env_t + 1)
                for part, label in zip(answer, _STEP_PARTS, strict=True)
            )
        if self._looks:
            env_t = episode.env_t + 1
            self._look(observations, f"at env step {env_t}")
            self._look_at_flags(terminateds, "terminateds", env_t)
            self._look_at_flags(truncateds, "truncateds", env_t)
        # The usual kinds first, as everywhere in the loop over env steps.
        copied = self._copied
        seen = {
            agent: one.copy() if type(one) is np.ndarray else copied(one)
            for agent, one in observations.items()
        }
        own_infos = {
            agent: (copied(info) if info else {})
            if type(info) is dict
            else self._own_info(agent, info, f"at env step {episode.env_t + 1}")
            for agent, info in infos.items()
        }
        return seen, dict(rewards), terminateds, truncateds, own_infos

    def _own_dict(
        self, part: Any, label: str, method: str, env_t: int | None = None
    ) -> dict[Any, Any]:
        if part is None and label == "infos":
            return {}
        if not isinstance(part, Mapping):
            when = "" if env_t is None else f" at env step {env_t}"
            hint = (
                f' Write {{"{ALL_AGENTS}": {part}}} for all agents.'
                if isinstance(part, bool | np.bool_)
                else " Give {agent: value, …}, an empty dict where there is nothing."
            )
            raise EnvContractError(
                f"{method} of env {self.name!r} returned {label}={part!r:.80}{when}, a "
                f"{type(part).__name__}; expected a dict by agent.{hint}"
            )
        return dict(part)

    def _look(self, observations: Mapping[Any, Any], when: str) -> None:
        for agent, observation in observations.items():
            space = self.agents.observation_spaces.get(agent)
            if space is None:
                where = f"the observations of env {self.name!r} {when}"
                raise unknown_agent(agent, self.agents, where=where)
            if agent not in self._looks:
                continue
            found = _why_outside(observation, space)
            if found:
                raise EnvContractError(
                    f"Env {self.name!r} gave agent {agent!r} an observation outside its space "
                    f"{when}: {found}. Correct the observation, or the agent's observation space."
                )
            self._looks[agent] -= 1
            if not self._looks[agent]:
                del self._looks[agent]

    def _look_at_flags(self, flags: Mapping[Any, Any], label: str, env_t: int) -> None:
        for agent, flag in flags.items():
            if not isinstance(flag, bool | np.bool_):
                raise EnvContractError(
                    f"step() of env {self.name!r} returned {label}[{agent!r}]={flag!r:.80} at env "
                    f"step {env_t}; expected True or False. Convert it with bool()."
                )

    def check_progress(self, episode: MultiAgentEpisode) -> None:
        """Raises an EnvContractError if an episode stands still in which no agent acts."""
        if episode.num_empty_steps <= self.max_empty_steps or episode.is_done:
            return
        ended = episode.ended_agents
        absent = [agent for agent in self.agents.ids if agent not in episode.get_terminateds()]
        waiting = list(episode.hanging)
        parts = [
            f"ended: {listed(ended)}" if ended else "",
            f"never observed: {listed(absent)}" if absent else "",
            f"waiting for an observation: {listed(waiting)}" if waiting else "",
        ]
        raise EnvContractError(
            f"Env {self.name!r} observed no agent in {episode.num_empty_steps} env steps in a row, "
            f"up to env step {episode.env_t} of episode {episode.id_!r}, and did not set "
            f'"{ALL_AGENTS}" in terminateds or truncateds ({"; ".join(filter(None, parts))}). '
            f"Set it when the episode is over, or raise environment(max_empty_steps="
            f"{self.max_empty_steps}) for an env that needs more."
        )


def _why_outside(observation: Any, space: gymnasium.Space[Any], place: str = "") -> str:
    """What of an observation lies outside its space; empty if nothing does."""
    at = f"key {place} " if place else ""
    if isinstance(space, gymnasium.spaces.Dict):
        if not isinstance(observation, dict) or observation.keys() != set(space):
            keys = sorted(map(str, observation)) if isinstance(observation, dict) else observation
            return f"{at}has {keys!r:.100}, expected a dict with {sorted(map(str, space))}"
        parts: Iterable[tuple[Any, Any]] = [(key, space[key]) for key in space]
    elif isinstance(space, gymnasium.spaces.Tuple) and isinstance(observation, tuple):
        if len(observation) != len(space):
            return f"{at}has {len(observation)} items, expected {len(space)}"
        parts = enumerate(space)
    else:
        return (
            "" if is_inside(observation, space) else f"{at}{_leaf(observation)}, expected {space}"
        )
    for key, part in parts:
        found = _why_outside(observation[key], part, f"{place}[{key!r}]")
        if found:
            return found
    return ""


def _leaf(observation: Any) -> str:
    if isinstance(observation, np.ndarray):
        return f"is {observation.dtype} of shape {observation.shape}"
    return f"is {observation!r:.80}, a {type(observation).__name__}"


# ---- checks of what was played


def check_agents_finite(episodes: Iterable[MultiAgentEpisode], *, name: str) -> None:
    """Raises an EnvContractError if observations or rewards hold NaN or infinity.

    It names agent, key, episode and env step.
    """
    for episode in episodes:
        for agent, own in episode.agent_episodes.items():
            if not (is_all_finite(own.observations.data) and is_all_finite(own.rewards.data)):
                _raise_first(episode, agent, own, name)
        paid = {**episode.reward_before_start, **episode.rewards_after_end}
        paid |= {agent: row[2] for agent, row in episode.hanging.items()}
        for agent, reward in paid.items():
            if not np.isfinite(reward):
                _raise(
                    f"the reward {float(reward)!r}",
                    agent,
                    f"up to env step {episode.env_t}",
                    episode,
                    name,
                )


def _raise_first(
    episode: MultiAgentEpisode, agent: Any, own: SingleAgentEpisode, name: str
) -> None:
    clock = episode.agent_t_to_env_t(agent).tolist()
    for env_t, observation in zip(clock, items_of(own.get_observations()), strict=True):
        for place, leaf in _leaves_with_places(observation, ""):
            if not is_finite(leaf):
                key = f"{place} of " if place else ""
                what = f"{key}the observation {leaf!r:.80}"
                _raise(what, agent, f"at env step {env_t}", episode, name)
    for env_t, reward in zip(clock[1:], items_of(own.get_rewards()), strict=True):
        if not np.isfinite(reward):
            _raise(f"the reward {float(reward)!r}", agent, f"at env step {env_t}", episode, name)


def _leaves_with_places(item: Any, place: str) -> Iterator[tuple[str, Any]]:
    if isinstance(item, dict | tuple):
        pairs = item.items() if isinstance(item, dict) else enumerate(item)
        for key, part in pairs:
            yield from _leaves_with_places(part, f"{place}[{key!r}]")
    else:
        yield place, item


def _raise(what: str, agent: Any, when: str, episode: MultiAgentEpisode, name: str) -> None:
    raise EnvContractError(
        f"Env {name!r} gave agent {agent!r} {what} {when} of episode {episode.id_!r}; expected "
        "finite numbers. A single value like this would spoil all weights. Look for a missing "
        "value, a division by zero or a logarithm of 0 in the env."
    )

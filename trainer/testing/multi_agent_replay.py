"""Whether an env of several agents plays an episode again from its seed and its actions.

Repairs and resumes rest on that where an env has no `get_state` and `set_state`.
docs/multi-agent.md lists what was found for well-known envs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from trainer.agent_ids import canonical_order, listed
from trainer.envs import AnswerChecks, EnvAgents, as_multi_agent_env
from trainer.episodes import MultiAgentEpisode
from trainer.episodes.nested import copied
from trainer.spaces import ACTION_MASK_KEY
from trainer.types import AgentId
from trainer_toolkit.trees import same


@dataclass(frozen=True)
class ReplayReport:
    """What came of playing episodes again.

    Attributes:
        num_episodes: how many were played, and played again.
        num_env_steps: env steps of them, once.
        differences: what did not come out the same; empty for an env that replays exactly.
    """

    num_episodes: int
    num_env_steps: int
    differences: tuple[str, ...]

    @property
    def is_exact(self) -> bool:
        """Whether everything came out the same, bit by bit."""
        return not self.differences


def check_replay(
    create: Callable[[], Any], *, seeds: Sequence[int] = (0, 1, 2), num_steps: int = 200
) -> ReplayReport:
    """Plays episodes with random actions, and again in the same and in another env.

    Compared are, at every env step: who is observed, every observation bit by bit, rewards, flags.

    Args:
        create: makes the env, a `MultiAgentEnv` or one of PettingZoo.
        seeds: of the episodes, one after the other in one env.
        num_steps: env steps of an episode at most.

    Raises:
        EnvContractError: the env's answers are none.
    """
    first, other = as_multi_agent_env(create()), as_multi_agent_env(create())
    played = [_play(first, seed, num_steps, None) for seed in seeds]
    differences = []
    for what, env, order in (
        ("in the same env", first, reversed(range(len(seeds)))),
        ("in another env", other, range(len(seeds))),
    ):
        for number in order:
            actions, answers = played[number]
            _, again = _play(env, seeds[number], num_steps, actions)
            found = _difference(answers, again)
            if found:
                differences.append(f"seed {seeds[number]}, {what}: {found}")
    first.close()
    other.close()
    steps = sum(len(actions) for actions, _ in played)
    return ReplayReport(len(seeds), steps, tuple(differences))


def random_action(space: gymnasium.Space[Any], observation: Any, rng: np.random.Generator) -> Any:
    """A possible action: drawn from the mask of the observation, if it has one.

    Args:
        space: of the agent's actions.
        observation: what the agent sees.
        rng: draws.
    """
    mask = observation.get(ACTION_MASK_KEY) if isinstance(observation, Mapping) else None
    if mask is not None and isinstance(space, spaces.Discrete) and np.any(mask):
        return int(space.start) + int(rng.choice(np.flatnonzero(mask)))
    drawn_from = copy.deepcopy(space)
    drawn_from.seed(int(rng.integers(2**31)))
    return drawn_from.sample()


_Played = tuple[list[dict[AgentId, Any]], list[tuple[Any, ...]]]


def _play(
    env: Any, seed: int, num_steps: int, given: Sequence[Mapping[AgentId, Any]] | None
) -> _Played:
    """The actions of an episode, and what the env answered, reset included."""
    agents = EnvAgents.of(env, name=type(env).__name__)
    checks = AnswerChecks(agents, name=type(env).__name__, copied=copied)
    episode = MultiAgentEpisode("replay", possible_agents=agents.ids)
    rng = np.random.default_rng(seed)
    observations, infos = checks.reset(env.reset(seed=seed))
    episode.add_env_reset(observations, infos)
    actions: list[dict[AgentId, Any]] = []
    answers: list[tuple[Any, ...]] = [(observations,)]
    while not episode.is_done and len(actions) < (num_steps if given is None else len(given)):
        if given is None:
            chosen = {
                agent: random_action(agents.action_spaces[agent], observations[agent], rng)
                for agent in episode.get_agents_to_act()
            }
        else:
            chosen = dict(given[len(actions)])
            if episode.get_agents_to_act() != set(chosen):
                break  # others are observed: the comparison shows it
        handed = {agent: copied(action) for agent, action in chosen.items()}
        answer = checks.step(env.step(handed), episode)
        observations, rewards, terminateds, truncateds, infos = answer
        episode.add_env_step(
            observations, chosen, rewards, infos, terminateds=terminateds, truncateds=truncateds
        )
        checks.check_progress(episode)
        actions.append(chosen)
        answers.append((observations, rewards, terminateds, truncateds))
    return actions, answers


def _difference(answers: list[tuple[Any, ...]], again: list[tuple[Any, ...]]) -> str:
    """The first thing that is not the same; empty if all is."""
    names = ("observations", "rewards", "terminateds", "truncateds")
    for env_t, (before, after) in enumerate(zip(answers, again, strict=False)):
        for name, left, right in zip(names, before, after, strict=False):
            found = _different_part(left, right)
            if found:
                return f"{name} of env step {env_t}{found}"
    if len(answers) != len(again):
        return f"the episode had {len(answers) - 1} env steps, then {len(again) - 1}"
    return ""


def _different_part(left: dict[AgentId, Any], right: dict[AgentId, Any]) -> str:
    if left.keys() != right.keys():
        return f" are of {listed(list(left))}, then of {listed(list(right))}"
    for agent in canonical_order(left):
        if not same(left[agent], right[agent]):
            return f" differ for agent {agent!r}"
    return ""

"""An episode of several agents that is written down as a whole: one dict per env step and column.

It is played into an empty episode step by step, so it is checked as if an env had given it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from trainer.agent_ids import ALL_AGENTS, why_no_agent_id
from trainer.episodes.agent_ledger import AgentLedger
from trainer.errors import EnvContractError, EpisodeError
from trainer.types import AgentId

if TYPE_CHECKING:
    from trainer.episodes.multi_agent_episode import MultiAgentEpisode

STEP_PARTS: Final = (
    "observations",
    "actions",
    "rewards",
    "infos",
    "terminateds",
    "truncateds",
)
"""What an env step consists of, in the order of `AgentLedger.add_step`."""


class AgentTable:
    """An episode as a user wrote it down: what happened in each env step."""

    def __init__(
        self,
        observations: Any,
        infos: Any,
        actions: Any,
        rewards: Any,
        outputs: Any,
        *,
        id_: str,
    ) -> None:
        """Takes the lists as `MultiAgentEpisode` does; an EpisodeError unless their lengths fit."""
        self._observations = list(observations or ())
        self._actions = list(actions or ())
        steps = max(0, len(self._observations) - 1)
        self._rewards = [{} for _ in range(steps)] if rewards is None else list(rewards)
        self._infos = [{} for _ in range(steps + 1)] if infos is None else list(infos)
        self._outputs = [{} for _ in range(steps)] if outputs is None else list(outputs)
        self._terminateds: list[dict[Any, bool]] = [{} for _ in range(steps)]
        self._truncateds: list[dict[Any, bool]] = [{} for _ in range(steps)]
        self._id = id_
        lengths = {
            "observations": len(self._observations),
            "infos": len(self._infos),
            "actions": len(self._actions) + 1,
            "rewards": len(self._rewards) + 1,
            "extra_model_outputs": len(self._outputs) + 1,
        }
        if set(lengths.values()) != {steps + 1} or not self._observations:
            found = {
                name: n - (name not in ("observations", "infos")) for name, n in lengths.items()
            }
            raise EpisodeError(
                f"The data of episode {id_!r} do not fit together: they have {found} entries. T "
                "env steps have T + 1 observations and infos, and T of all others. Give one dict "
                "per env step, an empty one where no agent is."
            )

    def set_flags(self, terminateds: Any, truncateds: Any) -> None:
        """Finds out at which env step each flag takes effect."""
        for given, by_step in (
            (terminateds, self._terminateds),
            (truncateds, self._truncateds),
        ):
            flags = given if isinstance(given, Mapping) else {ALL_AGENTS: bool(given)}
            for agent, flag in flags.items():
                if flag:
                    self._flag_step(agent, by_step)[agent] = True

    def _flag_step(self, agent: Any, by_step: list[dict[Any, bool]]) -> dict[Any, bool]:
        if not by_step:
            raise EpisodeError(
                f"Episode {self._id!r} without env steps was given an end for {agent!r}. An end "
                "belongs to an env step. Give the data of at least one, or no end."
            )
        last_acted = max((t for t, acted in enumerate(self._actions) if agent in acted), default=-1)
        last_seen = max(
            (t for t, seen in enumerate(self._observations) if agent in seen), default=0
        )
        if agent == ALL_AGENTS or last_acted >= last_seen or not last_seen:
            return by_step[-1]
        return by_step[last_seen - 1]

    def play(self, episode: MultiAgentEpisode, ledger: AgentLedger, *, lookback: int) -> None:
        """Adds all env steps; what was earned in the look-back counts in no return."""
        episode.add_env_reset(self._observations[0], self._infos[0])
        for step, acted in enumerate(self._actions):
            if step == lookback:
                _forget_earnings(ledger)
            episode.add_env_step(
                self._observations[step + 1],
                acted,
                self._rewards[step],
                self._infos[step + 1],
                terminateds=self._terminateds[step],
                truncateds=self._truncateds[step],
                extra_model_outputs=self._outputs[step],
            )
        if lookback == len(self._actions):
            _forget_earnings(ledger)


def _forget_earnings(ledger: AgentLedger) -> None:
    for account in (ledger.before, ledger.late, ledger.rounding):
        account.clear()
    ledger.num_rewards_after_end = ledger.num_truncations_without_observation = 0


def make_lookback(
    ledger: AgentLedger, lookback: int, agent_t_started: Mapping[AgentId, int]
) -> None:
    """Makes the first env steps of a ledger look-back."""
    ledger.lookback = lookback
    ledger.env_t_started += lookback
    for agent, line in ledger.lines.items():
        episode = line.episode
        own = sum(env_t <= ledger.env_t_started for env_t in line.clock[1:])
        columns = (episode.observations, episode.infos, episode.actions, episode.rewards)
        for column in (*columns, *episode.extra_model_outputs.values()):
            column.lookback = own
        episode.t_started = agent_t_started.get(agent, 0)
        episode.t = episode.t_started + len(episode.rewards)


def given_agents(
    possible: Iterable[Any] | None, spaces: Any, modules: Any, id_: str
) -> list[AgentId] | None:
    """All agents that can ever appear; None if unknown. An EnvContractError for other things."""
    if possible is None and spaces:
        possible = spaces.keys()
    agents = None if possible is None else list(possible)
    _check_ids([*(agents or ()), *(modules or ())], id_)
    return agents


def given_lookback(lookback: int | Literal["auto"], steps: int, id_: str) -> int:
    """How many of the given env steps are look-back; an EpisodeError for fewer than none."""
    if lookback == "auto":
        return steps
    if lookback < 0:
        raise EpisodeError(
            f"Episode {id_!r} cannot have {lookback} env steps of look-back. Look-back is data "
            "from before the chunk. Give 0 or more."
        )
    return min(lookback, steps)


def _check_ids(agents: Iterable[Any], id_: str) -> None:
    for agent in agents:
        problem = why_no_agent_id(agent)
        if problem is not None:
            raise EnvContractError(
                f"Episode {id_!r} was given an agent that cannot be one: {problem}. Give every "
                "agent a text or an int as its id."
            )


def check_dicts(id_: str, **given: Any) -> None:
    """Raises an EnvContractError unless all that an env gave are dicts by agent."""
    for name, value in given.items():
        if value is not None and not isinstance(value, Mapping):
            raise EnvContractError(
                f"Episode {id_!r} got {name}={value!r:.80}, a {type(value).__name__}; expected a "
                "dict with an entry for each agent concerned. Give {agent: value, …}."
            )

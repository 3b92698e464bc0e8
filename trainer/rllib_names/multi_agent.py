"""Old names of what several agents have: members of their episodes and envs.

For code written for RLlib's old API stack, whose callbacks read `episode.agent_rewards`,
`episode.last_info_for(agent)` and so on.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from trainer.agent_ids import COMMON_INFOS, canonical_order, listed
from trainer.connectors import SampleBatch
from trainer.envs.multi_agent_env import GroupedAgents
from trainer.episodes import nested
from trainer.episodes.agent_columns import AgentColumns, ColumnName
from trainer.episodes.agent_ledger import AgentLedger
from trainer.episodes.agent_parts import newest_common_info
from trainer.episodes.episode_columns import STATE_IN
from trainer.errors import EpisodeError
from trainer.rllib_names.installing import renamed
from trainer.rllib_names.runners import batch_of
from trainer.types import DEFAULT_MODULE_ID, AgentId
from trainer_toolkit.arguments import takes
from trainer_toolkit.checks import integer


class EpisodeNumberText(str):
    """The id of an episode, with which one can count: `episode.episode_id % 2`.

    Attributes:
        number: of the episode in its run; None outside a run.
    """

    number: int | None

    __slots__ = ("number",)

    def __new__(cls, id_: str, number: int | None) -> EpisodeNumberText:
        """The text with its number."""
        made = super().__new__(cls, id_)
        made.number = number
        return made

    def __int__(self) -> int:
        if self.number is None:
            raise EpisodeError(
                f"Episode {str(self)!r} has no number, as it belongs to no run. Give it one: "
                "MultiAgentEpisode(id_, number=0)."
            )
        return self.number

    __index__ = __int__

    def __mod__(self, other: Any) -> Any:
        return int(self) % other


class MultiAgentBatch:
    """The rows of several agents, by module: RLlib's old form of a sample.

    It is made by `MultiAgentEpisode.get_sample_batch()` and `concat_samples()`.

    Attributes:
        policy_batches: {module id: `SampleBatch` of its rows}; column `env_t` has the env step.
        count: env steps.
    """

    def __init__(self, policy_batches: Mapping[str, SampleBatch], env_steps: int) -> None:
        """Copies the dict, not the batches.

        Args:
            policy_batches: {module id: `SampleBatch` of its rows}.
            env_steps: that they are from.
        """
        self.policy_batches = dict(policy_batches)
        self.count = int(env_steps)

    def __len__(self) -> int:
        return self.count

    def __bool__(self) -> bool:
        return True  # without rows it is a batch, too

    def __getitem__(self, module_id: str) -> SampleBatch:
        return self.policy_batches[module_id]

    def env_steps(self) -> int:
        """Env steps."""
        return self.count

    def agent_steps(self) -> int:
        """Rows of all modules."""
        return sum(map(len, self.policy_batches.values()))

    def as_multi_agent(self) -> MultiAgentBatch:
        """Itself."""
        return self

    def copy(self) -> MultiAgentBatch:
        """Another one with copies of all columns."""
        copies = {id_: batch.copy() for id_, batch in self.policy_batches.items()}
        return MultiAgentBatch(copies, self.count)

    @staticmethod
    def wrap_as_needed(policy_batches: Mapping[str, SampleBatch], env_steps: int) -> Any:
        """The only batch if there is just that of the default module; else a `MultiAgentBatch`."""
        if list(policy_batches) == [DEFAULT_MODULE_ID]:
            return policy_batches[DEFAULT_MODULE_ID]
        return MultiAgentBatch(policy_batches, env_steps)

    @staticmethod
    def concat_samples(samples: Iterable[MultiAgentBatch]) -> MultiAgentBatch:
        """The rows of several batches, one after another.

        Raises:
            EpisodeError: batches of one module do not have the same columns.
        """
        batches = list(samples)
        ids = sorted({id_ for batch in batches for id_ in batch.policy_batches})
        joined = {
            id_: SampleBatch.concat_samples(
                [batch[id_] for batch in batches if id_ in batch.policy_batches]
            )
            for id_ in ids
        }
        return MultiAgentBatch(joined, sum(batch.count for batch in batches))

    @takes(k=integer(1))
    def timeslices(self, k: int) -> list[MultiAgentBatch]:
        """Parts of `k` env steps each; the last may have fewer."""
        first = min((int(b["env_t"].min()) for b in self.policy_batches.values() if b), default=0)
        parts = []
        for start in range(first, first + self.count, k):
            rows = {
                id_: np.flatnonzero((batch["env_t"] >= start) & (batch["env_t"] < start + k))
                for id_, batch in self.policy_batches.items()
            }
            batches = {
                id_: SampleBatch({name: _rows(self[id_][name], own) for name in self[id_]})
                for id_, own in rows.items()
                if len(own)
            }
            parts.append(MultiAgentBatch(batches, min(k, first + self.count - start)))
        return parts


def concat_samples(samples: Iterable[Any]) -> Any:
    """The rows of several batches one after another: `SampleBatch`es, or some of several modules.

    Raises:
        EpisodeError: batches of one module do not have the same columns.
    """
    batches = list(samples)
    if any(isinstance(batch, MultiAgentBatch) for batch in batches):
        return MultiAgentBatch.concat_samples(batches)
    return SampleBatch.concat_samples(batches)


class GroupAgentsWrapper(GroupedAgents):
    """RLlib's name of what `env.with_agent_groups(groups, obs_space, act_space)` makes."""

    def __init__(
        self,
        env: Any,
        groups: Mapping[AgentId, Sequence[AgentId]],
        obs_space: Any = None,
        act_space: Any = None,
    ) -> None:
        super().__init__(env, groups, obs_space=obs_space, act_space=act_space)


def _rows(column: Any, rows: Any) -> Any:
    if isinstance(column, list):
        return [column[row] for row in rows]
    return nested.map_leaves(lambda leaf: leaf[rows], column)


class MultiAgentEpisodeNames:
    """Adds the old names to an episode of several agents, each one line on top of the new ones."""

    number: int | None
    get_return: Callable[[], float]
    get_agent_returns: Callable[[], dict[AgentId, float]]
    _ledger: AgentLedger
    _columns: AgentColumns

    worker = renamed("player")
    policy_mapping_fn = renamed("agent_to_module_mapping_fn")

    @property
    def episode_id(self) -> EpisodeNumberText:
        """Old name of `id_`; counts like `number`."""
        return EpisodeNumberText(self._ledger.id_, self.number)

    @property
    def length(self) -> int:
        """Env steps of the whole episode so far; -1 before the reset."""
        return self._ledger.env_t if self._ledger.is_reset else -1

    @property
    def started(self) -> bool:
        """Whether the env was reset."""
        return self._ledger.is_reset

    @property
    def total_reward(self) -> float:
        """Old name of `get_return()`."""
        return self.get_return()

    @property
    def agent_rewards(self) -> dict[tuple[AgentId, Any], float]:
        """{(agent id, module id): return}."""
        returns = self.get_agent_returns()
        return {(agent, self.policy_for(agent)): total for agent, total in returns.items()}

    def get_sample_batch(self) -> MultiAgentBatch:
        """The completed rows of this chunk by module, agents in canonical order."""
        episode: Any = self
        ranks = list(episode.possible_agents or episode.agent_ids)
        chunks: dict[str, list[SampleBatch]] = {}
        for agent, chunk in episode.agent_episodes.items():
            if len(chunk):
                batch = batch_of([copy.deepcopy(chunk).to_numpy()])
                batch["env_t"] = episode.agent_t_to_env_t(agent)[:-1]
                batch["agent_index"] = np.full(len(chunk), ranks.index(agent))
                chunks.setdefault(self.policy_for(agent), []).append(batch)
        joined = {id_: SampleBatch.concat_samples(chunks[id_]) for id_ in sorted(chunks)}
        return MultiAgentBatch(joined, len(episode))

    def get_agents(self) -> list[AgentId]:
        """The agents in the order in which they appeared; ties in canonical order."""
        appeared = self._ledger.appeared
        return sorted(canonical_order(appeared), key=lambda agent: appeared[agent])

    def policy_for(self, agent_id: Any = None) -> Any:
        """The id of the module that acts for the agent."""
        return self._ledger.modules.get(_one(self, agent_id), DEFAULT_MODULE_ID)

    def last_observation_for(self, agent_id: Any = None) -> Any:
        """The newest observation (None before the agent's first)."""
        return _newest(self, "observations", agent_id)

    def last_raw_obs_for(self, agent_id: Any = None) -> Any:
        """The newest observation as the env gave it."""
        return _newest(self, "observations", agent_id)

    def last_info_for(self, agent_id: Any = None) -> Any:
        """The newest info of the agent, or with "__common__" of all together (None: none yet)."""
        if agent_id == COMMON_INFOS:
            return newest_common_info(self._ledger)
        agent = _one(self, agent_id)
        steps = [t for t in self._ledger.infos if agent in self._ledger.infos[t]]
        line = self._ledger.lines.get(agent)
        if steps and (line is None or max(steps) > line.clock[-1]):
            return self._ledger.infos[max(steps)][agent]
        return _newest(self, "infos", agent_id)

    def last_action_for(self, agent_id: Any = None) -> Any:
        """The newest action, also while its row is open (zeros before the first)."""
        return _newest(self, "actions", agent_id, fill=0)

    def prev_action_for(self, agent_id: Any = None) -> Any:
        """The action before the newest one (zeros if there is none)."""
        return _newest(self, "actions", agent_id, back=2, fill=0)

    def last_reward_for(self, agent_id: Any = None) -> float:
        """What the newest env step paid the agent, also while its row is open."""
        return float(self._ledger.recent[1].get(_one(self, agent_id), 0.0))

    def prev_reward_for(self, agent_id: Any = None) -> float:
        """What the env step before the newest one paid the agent."""
        return float(self._ledger.recent[0].get(_one(self, agent_id), 0.0))

    def last_extra_action_outs_for(self, agent_id: Any = None) -> Mapping[str, Any]:
        """The newest extra outputs of the agent's module, {name: item}."""
        line = self._ledger.lines.get(_one(self, agent_id))
        if line is None:
            return {}
        if line.open is not None:
            return dict(line.open.outputs)
        columns = line.episode.extra_model_outputs
        return {name: column.get(-1) for name, column in columns.items() if column.total}

    def rnn_state_for(self, agent_id: Any = None) -> list[Any]:
        """The arrays of a module's state before the newest step; empty without memory."""
        arrays: list[Any] = []
        outputs = self.last_extra_action_outs_for(_one(self, agent_id))
        if outputs.get(STATE_IN) is not None:
            nested.map_leaves(arrays.append, outputs[STATE_IN])
        return arrays


def _newest(
    episode: Any, column: ColumnName, agent_id: Any, *, back: int = 1, fill: Any = None
) -> Any:
    items = episode._columns.items(_one(episode, agent_id), column)
    return items.get(-back, fill=fill) if items.total >= back or fill is not None else None


def _one(episode: Any, agent_id: Any) -> AgentId:
    """The agent that is meant, which is the only one if none is named."""
    if agent_id is not None:
        named: AgentId = episode._columns.known_id(agent_id)
        return named
    known = canonical_order(episode._ledger.known())
    if len(known) != 1:
        raise EpisodeError(
            f"Episode {episode.id_!r} has the agents {listed(known)}, and none was named. Name "
            "one: episode.last_info_for(agent_id)."
        )
    return known[0]


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

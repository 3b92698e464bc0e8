"""What RLlib's old episodes called things, for several agents; adds no behaviour.

For code written for RLlib's old API stack, whose callbacks read `episode.agent_rewards`,
`episode.last_info_for(agent)` and so on.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

from checkpoints.arguments import shown
from trainer.agent_ids import COMMON_INFOS, canonical_order, listed
from trainer.episodes.agent_columns import AgentColumns
from trainer.episodes.agent_ledger import AgentLedger
from trainer.episodes.agent_parts import newest_common_info
from trainer.errors import EpisodeError
from trainer.types import DEFAULT_MODULE_ID, AgentId


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


class RllibMultiAgentNames:
    """The old names, each one line on top of the new ones.

    Attributes:
        env_id: the index of the sub-env that is played, or None.
    """

    env_id: int | None = None
    number: int | None
    temporary_data: dict[str, list[Any]]
    agent_to_module_mapping_fn: Any
    _worker: weakref.ref[Any] | None = None
    _ledger: AgentLedger
    _columns: AgentColumns

    @property
    def episode_id(self) -> EpisodeNumberText:
        """Old name of `id_`; counts like `number`."""
        return EpisodeNumberText(self._ledger.id_, self.number)

    @property
    def worker(self) -> Any:
        """The env runner that plays, in its own process only; None elsewhere."""
        return None if self._worker is None else self._worker()

    def note_player(self, worker: Any, env_id: int) -> None:
        """Tells the episode who plays it; the runner is not kept alive by that."""
        try:
            self._worker = weakref.ref(worker)
        except TypeError as cause:  # a string, a list, ...
            raise EpisodeError(
                f"note_player() got worker={shown(worker)}; expected the env runner that plays. "
                "Give the runner itself."
            ) from cause
        self.env_id = env_id

    def share_player(self, other: RllibMultiAgentNames) -> None:
        """Tells another chunk of this episode who plays it."""
        other._worker, other.env_id = self._worker, self.env_id

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
        return self.get_return()  # type: ignore[attr-defined, no-any-return]

    @property
    def agent_rewards(self) -> dict[tuple[AgentId, Any], float]:
        """{(agent id, module id): return}."""
        returns = self.get_agent_returns()  # type: ignore[attr-defined]
        return {(agent, self.policy_for(agent)): total for agent, total in returns.items()}

    @property
    def policy_mapping_fn(self) -> Any:
        """The mapping function that was given to the episode, or None."""
        return self.agent_to_module_mapping_fn

    def add_temporary_timestep_data(self, key: str, data: Any) -> None:
        """Appends a value to the list of `key`; nothing aligns it with steps."""
        self.temporary_data.setdefault(key, []).append(data)

    def get_temporary_timestep_data(self, key: str) -> list[Any]:
        """All values added under `key` in this episode, [] if there are none."""
        return self.temporary_data.get(key, [])

    def get_agents(self) -> list[AgentId]:
        """The agents in the order in which they appeared; ties in canonical order."""
        appeared = self._ledger.appeared
        return sorted(canonical_order(appeared), key=lambda agent: appeared[agent])

    def policy_for(self, agent_id: Any = None) -> Any:
        """The id of the module that acts for the agent."""
        return self._ledger.modules.get(self._one(agent_id), DEFAULT_MODULE_ID)

    def last_observation_for(self, agent_id: Any = None) -> Any:
        """The newest observation (None before the agent's first)."""
        return self._newest("observations", agent_id)

    def last_raw_obs_for(self, agent_id: Any = None) -> Any:
        """The newest observation as the env gave it."""
        return self._newest("observations", agent_id)

    def last_info_for(self, agent_id: Any = None) -> Any:
        """The newest info of the agent, or with "__common__" of all together (None: none yet)."""
        if agent_id == COMMON_INFOS:
            return newest_common_info(self._ledger)
        agent = self._one(agent_id)
        told = [t for t in self._ledger.infos if agent in self._ledger.infos[t]]
        line = self._ledger.lines.get(agent)
        if told and (line is None or max(told) > line.clock[-1]):
            return self._ledger.infos[max(told)][agent]
        return self._newest("infos", agent_id)

    def last_action_for(self, agent_id: Any = None) -> Any:
        """The newest action, also while its row is open (zeros before the first)."""
        return self._newest("actions", agent_id, fill=0)

    def prev_action_for(self, agent_id: Any = None) -> Any:
        """The action before the newest one (zeros if there is none)."""
        return self._newest("actions", agent_id, back=2, fill=0)

    def last_reward_for(self, agent_id: Any = None) -> float:
        """What the newest env step paid the agent, also while its row is open."""
        return float(self._ledger.recent[1].get(self._one(agent_id), 0.0))

    def prev_reward_for(self, agent_id: Any = None) -> float:
        """What the env step before the newest one paid the agent."""
        return float(self._ledger.recent[0].get(self._one(agent_id), 0.0))

    def last_extra_action_outs_for(self, agent_id: Any = None) -> Mapping[str, Any]:
        """The newest extra outputs of the agent's module, {name: item}."""
        line = self._ledger.lines.get(self._one(agent_id))
        if line is None:
            return {}
        if line.open is not None:
            return dict(line.open.outputs)
        columns = line.episode.extra_model_outputs
        return {name: column.get(-1) for name, column in columns.items() if column.total}

    def rnn_state_for(self, agent_id: Any = None) -> list[Any]:
        """The state of a recurrent module: always empty, there are none."""
        self._one(agent_id)
        return []

    def _newest(self, column: Any, agent_id: Any, *, back: int = 1, fill: Any = None) -> Any:
        items = self._columns.items(self._one(agent_id), column)
        return items.get(-back, fill=fill) if items.total >= back or fill is not None else None

    def _one(self, agent_id: Any) -> AgentId:
        """The agent that is meant, which is the only one if none is named."""
        if agent_id is not None:
            return self._columns.known_id(agent_id)
        known = canonical_order(self._ledger.known())
        if len(known) != 1:
            raise EpisodeError(
                f"Episode {self._ledger.id_!r} has the agents {listed(known)}, and none was named. "
                "Name one: episode.last_info_for(agent_id)."
            )
        return known[0]

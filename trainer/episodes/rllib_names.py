"""What RLlib's old episodes called things; adds no behaviour and could be deleted.

For code written for RLlib's old API stack, whose callbacks read `episode.total_reward`,
`episode.last_info_for()` and so on.
"""

from __future__ import annotations

import weakref
from typing import Any, Final

from checkpoints.arguments import shown
from trainer.episodes.episode_columns import EpisodeColumns
from trainer.episodes.lookback_buffer import LookbackBuffer
from trainer.errors import EpisodeError
from trainer.types import DEFAULT_AGENT_ID, DEFAULT_MODULE_ID

_OLD_DEFAULT_AGENT_ID: Final = "agent0"


class RllibEpisodeNames(EpisodeColumns):
    """The old names, each one line on top of the new ones.

    Attributes:
        env_id: the index of the sub-env that is played, or None.
    """

    env_id: int | None = None
    _worker: weakref.ref[Any] | None = None
    id_: str
    t: int
    agent_id: Any
    module_id: Any
    temporary_data: dict[str, list[Any]]

    @property
    def episode_id(self) -> str:
        """Old name of `id_`."""
        return self.id_

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

    def share_player(self, other: RllibEpisodeNames) -> None:
        """Tells another chunk of this episode who plays it."""
        other._worker, other.env_id = self._worker, self.env_id

    @property
    def length(self) -> int:
        """Env steps of the whole episode so far; -1 before the reset."""
        return self.t if self.started else -1

    @property
    def started(self) -> bool:
        """Whether the env was reset."""
        return bool(self.observations.total)

    @property
    def total_reward(self) -> float:
        """Old name of `get_return()`."""
        return self.get_return()

    @property
    def agent_rewards(self) -> dict[tuple[Any, Any], float]:
        """{(agent id, module id): return}; one entry for a single-agent episode."""
        return {(self.get_agents()[0], self.policy_for()): self.get_return()}

    @property
    def is_finalized(self) -> bool:
        """Old name of `is_numpy`."""
        return self.is_numpy

    def finalize(self) -> None:
        """Old name of `to_numpy()`."""
        self.to_numpy()

    def add_temporary_timestep_data(self, key: str, data: Any) -> None:
        """Appends a value to the list of `key`; nothing aligns it with steps."""
        self.temporary_data.setdefault(key, []).append(data)

    def get_temporary_timestep_data(self, key: str) -> list[Any]:
        """All values added under `key` in this episode, [] if there are none."""
        return self.temporary_data.get(key, [])

    def get_agents(self) -> list[Any]:
        """The ids of the agents that play."""
        return [DEFAULT_AGENT_ID if self.agent_id is None else self.agent_id]

    def policy_for(self, agent_id: Any = None) -> Any:
        """The id of the module that acts for the agent."""
        self._check_agent(agent_id)
        return DEFAULT_MODULE_ID if self.module_id is None else self.module_id

    def last_observation_for(self, agent_id: Any = None) -> Any:
        """The newest observation (None before the reset)."""
        return self._newest(self.observations, agent_id)

    def last_raw_obs_for(self, agent_id: Any = None) -> Any:
        """The newest observation as the env gave it."""
        return self._newest(self.observations, agent_id)

    def last_info_for(self, agent_id: Any = None) -> Any:
        """The newest info dict (None before the reset)."""
        return self._newest(self.infos, agent_id)

    def last_action_for(self, agent_id: Any = None) -> Any:
        """The newest action (zeros before the first step)."""
        return self._newest(self.actions, agent_id, fill=0)

    def prev_action_for(self, agent_id: Any = None) -> Any:
        """The action before the newest one (zeros if there is none)."""
        return self._newest(self.actions, agent_id, back=2, fill=0)

    def last_reward_for(self, agent_id: Any = None) -> float:
        """The newest reward (0 before the first step)."""
        return float(self._newest(self.rewards, agent_id, fill=0.0))

    def prev_reward_for(self, agent_id: Any = None) -> float:
        """The reward before the newest one (0 if there is none)."""
        return float(self._newest(self.rewards, agent_id, back=2, fill=0.0))

    def last_extra_action_outs_for(self, agent_id: Any = None) -> dict[str, Any]:
        """The newest extra outputs of the module, {name: item}."""
        return {
            key: self._newest(column, agent_id) for key, column in self.extra_model_outputs.items()
        }

    def rnn_state_for(self, agent_id: Any = None) -> list[Any]:
        """The state of a recurrent module: always empty, there are none."""
        self._check_agent(agent_id)
        return []

    def _newest(
        self, column: LookbackBuffer, agent_id: Any, *, back: int = 1, fill: Any = None
    ) -> Any:
        self._check_agent(agent_id)
        return column.get(-back, fill=fill) if column.total >= back or fill is not None else None

    def _check_agent(self, agent_id: Any) -> None:
        known = {None, self.agent_id, DEFAULT_AGENT_ID, _OLD_DEFAULT_AGENT_ID}
        if not isinstance(agent_id, str | None) or agent_id not in known:
            raise EpisodeError(
                f"There is no agent {agent_id!r} in this episode. It is a single-agent episode of "
                f"the agent {self.get_agents()[0]!r}. Leave the agent id out, or write "
                f"{self.get_agents()[0]!r}."
            )

"""What RLlib's old episodes called things, and its constants for the columns of batches.

For code written for RLlib's old API stack, whose callbacks read `episode.total_reward`,
`episode.last_info_for()` and so on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from trainer.episodes import nested
from trainer.episodes.episode_columns import STATE_IN
from trainer.episodes.lookback_buffer import LookbackBuffer
from trainer.errors import EpisodeError
from trainer.rllib_names.installing import renamed
from trainer.types import DEFAULT_AGENT_ID, DEFAULT_MODULE_ID

_OLD_DEFAULT_AGENT_ID: Final = "agent0"


class EpisodeNames:
    """Adds the old names to an episode, each one line on top of the new ones."""

    t: int
    agent_id: Any
    module_id: Any
    observations: LookbackBuffer
    infos: LookbackBuffer
    actions: LookbackBuffer
    rewards: LookbackBuffer
    extra_model_outputs: dict[str, LookbackBuffer]
    get_return: Callable[[], float]

    episode_id = renamed("id_")
    worker = renamed("player")
    is_finalized = renamed("is_numpy")
    finalize = renamed("to_numpy")

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
        """The arrays of a module's state before the newest step; empty without memory."""
        self._check_agent(agent_id)
        column = self.extra_model_outputs.get(STATE_IN)
        arrays: list[Any] = []
        if column is not None and column.total:
            nested.map_leaves(arrays.append, column.get(-1))
        return arrays

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


class SampleBatchNames:
    """Adds the constants to a batch; the names are those of `trainer.episodes.episode_columns`."""

    OBS: Final = "obs"
    CUR_OBS: Final = "obs"
    NEXT_OBS: Final = "new_obs"
    ACTIONS: Final = "actions"
    REWARDS: Final = "rewards"
    TERMINATEDS: Final = "terminateds"
    TRUNCATEDS: Final = "truncateds"
    INFOS: Final = "infos"
    EPS_ID: Final = "eps_id"
    UNROLL_ID: Final = "unroll_id"
    AGENT_INDEX: Final = "agent_index"
    T: Final = "t"
    VF_PREDS: Final = "vf_preds"
    ACTION_DIST_INPUTS: Final = "action_dist_inputs"
    ACTION_PROB: Final = "action_prob"
    ACTION_LOGP: Final = "action_logp"
    SEQ_LENS: Final = "seq_lens"

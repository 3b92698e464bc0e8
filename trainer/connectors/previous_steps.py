"""The action and the reward before each step, for networks with memory that read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from trainer.connectors.encoding import ObservationEncoder
from trainer.episodes import SingleAgentEpisode, nested
from trainer.episodes.episode_columns import PREV_ACTIONS, PREV_REWARDS
from trainer.episodes.lookback_buffer import LookbackBuffer
from trainer.types import Array


class PreviousSteps:
    """Makes the columns `prev_actions` and `prev_rewards`, as far as a network reads them.

    Attributes:
        names: of the columns that are read.
    """

    def __init__(self, action_space: gym.Space[Any], model_config: Mapping[str, Any]) -> None:
        """Reads `lstm_use_prev_action` and `lstm_use_prev_reward` of a module's config."""
        reads = {PREV_ACTIONS: "lstm_use_prev_action", PREV_REWARDS: "lstm_use_prev_reward"}
        self.names = tuple(name for name, key in reads.items() if model_config.get(key))
        reads_actions = PREV_ACTIONS in self.names
        self._encoder = ObservationEncoder(_from_zero(action_space)) if reads_actions else None

    def columns(self, actions: Sequence[Any], rewards: Sequence[float]) -> dict[str, Array]:
        """The columns of some rows.

        Args:
            actions: as the module gave them; None before the first step of an episode.
            rewards: as the env gave them; 0 there.

        Returns:
            `prev_actions` float32 [B, A], codes as of observations, and `prev_rewards` float32 [B].
        """
        columns: dict[str, Array] = {}
        if self._encoder is not None:
            codes = np.zeros((len(actions), self._encoder.size), np.float32)
            having = [row for row, action in enumerate(actions) if action is not None]
            if having:
                codes[having] = self._encoder.encode([actions[row] for row in having])
            columns[PREV_ACTIONS] = codes
        if PREV_REWARDS in self.names:
            columns[PREV_REWARDS] = np.array(rewards, np.float32)
        return columns

    def after(self, episodes: Sequence[SingleAgentEpisode]) -> dict[str, Array]:
        """The columns of the steps that come next in episodes, or after chunks."""
        if not self.names:
            return {}
        actions = [_newest(episode.actions) for episode in episodes]
        rewards = [_newest(episode.rewards) or 0.0 for episode in episodes]
        return self.columns(actions, rewards)


def _from_zero(space: gym.Space[Any]) -> gym.Space[Any]:
    """The space with choices as modules give them: counted from 0, whatever the env calls them."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: _from_zero(part) for key, part in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([_from_zero(part) for part in space.spaces])
    if isinstance(space, spaces.Discrete):
        return spaces.Discrete(space.n)
    return spaces.MultiDiscrete(space.nvec) if isinstance(space, spaces.MultiDiscrete) else space


def _newest(column: LookbackBuffer) -> Any:
    """The newest item of a column, look-back included; None if there is none."""
    if column.total == 0:
        return None
    data = column.data
    return data[-1] if isinstance(data, list) else nested.take(data, -1)

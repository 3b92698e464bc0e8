"""The actions and rewards before each step: for networks with memory that read them; a piece."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from trainer.connectors.encoding import ObservationEncoder
from trainer.connectors.pieces import ConnectorV2, replace_newest
from trainer.episodes import SingleAgentEpisode, nested
from trainer.episodes.episode_columns import PREV_ACTIONS, PREV_REWARDS
from trainer.episodes.lookback_buffer import LookbackBuffer
from trainer.types import Array
from trainer_toolkit.arguments import takes
from trainer_toolkit.checks import integer


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


class PrevActionsPrevRewards(ConnectorV2):
    """Shows the last few actions and rewards of the episode beside each observation.

    What it gives is {"_orig_obs": the observation, "prev_n_actions": float32 [n · A],
    "prev_n_rewards": float32 [n]}, oldest first, zeros before the first step; Discrete actions are
    one-hot codes. Actions are those that the env got.
    """

    ORIG_OBS_KEY = "_orig_obs"
    PREV_ACTIONS_KEY = "prev_n_actions"
    PREV_REWARDS_KEY = "prev_n_rewards"

    @takes(n_prev_actions=integer(0), n_prev_rewards=integer(0))
    def __init__(
        self, *spaces_: Any, n_prev_actions: int = 1, n_prev_rewards: int = 1, **kwargs: Any
    ) -> None:
        """Takes how many there are to show.

        Args:
            spaces_: of observations and actions; pipelines give them.
            n_prev_actions: 0 shows none.
            n_prev_rewards: 0 shows none.
            kwargs: RLlib's further arguments, which mean nothing here.
        """
        super().__init__(*spaces_, **kwargs)
        self.n_prev_actions = n_prev_actions
        self.n_prev_rewards = n_prev_rewards

    def recompute_output_observation_space(
        self, input_observation_space: Any, input_action_space: Any
    ) -> Any:
        """A Dict of the observation, the actions and the rewards."""
        parts = {self.ORIG_OBS_KEY: input_observation_space}
        if self.n_prev_actions:
            self._encoder = ObservationEncoder(input_action_space)
            size = self.n_prev_actions * self._encoder.size
            parts[self.PREV_ACTIONS_KEY] = spaces.Box(-np.inf, np.inf, (size,), np.float32)
        if self.n_prev_rewards:
            shape = (self.n_prev_rewards,)
            parts[self.PREV_REWARDS_KEY] = spaces.Box(-np.inf, np.inf, shape, np.float32)
        return spaces.Dict(parts)

    def __call__(
        self, *, batch: dict[str, Any], episodes: list[SingleAgentEpisode], **_: Any
    ) -> Any:
        """Writes the dict into the episode."""
        space = self.observation_space
        for episode in self.single_agent_episode_iterator(episodes):
            shown = {self.ORIG_OBS_KEY: episode.get_observations(-1)}
            if self.n_prev_actions:
                shown[self.PREV_ACTIONS_KEY] = self._newest_actions(episode)
            if self.n_prev_rewards:
                missing, steps = _missing_and_there(episode, self.n_prev_rewards)
                rewards = [0.0] * missing + [episode.get_rewards(-back) for back in steps]
                shown[self.PREV_REWARDS_KEY] = np.array(rewards, np.float32)
            replace_newest(episode, shown, space)
        return batch

    def _newest_actions(self, episode: SingleAgentEpisode) -> Array:
        missing, steps = _missing_and_there(episode, self.n_prev_actions)
        codes = np.zeros((self.n_prev_actions, self._encoder.size), np.float32)
        if steps:
            codes[missing:] = self._encoder.encode([episode.get_actions(-back) for back in steps])
        return codes.reshape(-1)


def _missing_and_there(episode: SingleAgentEpisode, wanted: int) -> tuple[int, range]:
    """How many of the wanted steps there are not yet, and how far back the others lie."""
    there = min(wanted, len(episode))
    return wanted - there, range(there, 0, -1)

"""Ready-made connector pieces, and one to derive from."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from gymnasium import spaces

from trainer.connectors.encoding import ObservationEncoder
from trainer.connectors.pieces import (
    ConnectorV2,
    SingleAgentObservationPreprocessor,
    replace_newest,
)
from trainer.episodes import SingleAgentEpisode
from trainer.errors import ConfigError, UnsupportedSpaceError
from trainer.types import AgentId, Array, State
from trainer_toolkit.arguments import takes
from trainer_toolkit.checks import integer


class MultiAgentObservationPreprocessor(ConnectorV2):
    """Changes the observations of all agents of a step together; a subclass writes `preprocess`.

    There is one for a sub-env, before the pieces of each agent; its spaces are Dicts by agent.
    """

    _is_joint = True

    @abstractmethod
    def preprocess(self, observations: dict[AgentId, Any], episode: Any) -> dict[AgentId, Any]:
        """The observations in their changed form, {agent: observation}, of the same agents.

        Args:
            observations: {agent: observation} as the env, or the piece before, gave them.
            episode: None; what is to be known of the episode so far, a piece remembers itself.
        """

    def __call__(self, *, batch: dict[str, Any], **_: Any) -> Any:
        """Nothing: `preprocess` is called with the observations of all agents."""
        return batch


class FlattenObservations(SingleAgentObservationPreprocessor):
    """Makes one vector of float32 numbers of an observation of any kind.

    The parts of Dict and Tuple stand side by side in the space's own order, Discrete ones as
    one-hot codes: as the networks here read observations anyway. So it changes what episodes hold.
    """

    def recompute_output_observation_space(
        self, input_observation_space: Any, input_action_space: Any
    ) -> Any:
        """A Box of so many numbers."""
        del input_action_space
        self._encoder = ObservationEncoder(input_observation_space)
        low, high = -np.inf, np.inf
        if isinstance(input_observation_space, spaces.Discrete | spaces.MultiDiscrete):
            low, high = 0.0, 1.0
        return spaces.Box(low, high, (self._encoder.size,), np.float32)

    def preprocess(self, observation: Any, episode: SingleAgentEpisode) -> Any:
        """The vector."""
        del episode
        return self._encoder.encode([observation])[0].copy()


class FrameStacking(ConnectorV2):
    """Shows the last few observations together, stacked along the last axis (oldest first).

    Before an episode has as many, zeros stand for the missing ones. What episodes hold is stacked,
    too. RLlib's name is `FrameStackingEnvToModule`.
    """

    @takes(num_frames=integer())
    def __init__(self, *spaces_: Any, num_frames: int = 4, **kwargs: Any) -> None:
        super().__init__(*spaces_, **kwargs)
        if num_frames < 1:
            raise ConfigError(f"FrameStacking(num_frames={num_frames}): expected a number ≥ 1.")
        self.num_frames = num_frames
        self._frames: list[Any] = []

    def recompute_output_observation_space(
        self, input_observation_space: Any, input_action_space: Any
    ) -> Any:
        """The Box with a last axis that is `num_frames` times as long."""
        del input_action_space
        space = input_observation_space
        if not isinstance(space, spaces.Box) or not space.shape:
            raise UnsupportedSpaceError(
                f"FrameStacking stacks observations of a Box; this env has {space}. Put "
                "FlattenObservations before it."
            )
        low, high = (np.concatenate([a] * self.num_frames, -1) for a in (space.low, space.high))
        zero = np.zeros((), space.dtype)
        return spaces.Box(np.minimum(low, zero), np.maximum(high, zero), dtype=space.dtype.type)

    def __call__(
        self, *, batch: dict[str, Any], episodes: list[SingleAgentEpisode], **_: Any
    ) -> Any:
        """Writes the stack into the episode."""
        for episode in self.single_agent_episode_iterator(episodes):
            newest = np.asarray(episode.get_observations(-1))
            if len(episode) == 0:
                self._frames = [np.zeros_like(newest)] * self.num_frames
            self._frames = [*self._frames[1:], newest]
            replace_newest(episode, np.concatenate(self._frames, -1), self.observation_space)
        return batch

    def get_state(self, *_: Any, **__: Any) -> State:
        """The frames, for an env that goes on from its state."""
        return {"frames": list(self._frames)}

    def set_state(self, state: State) -> None:
        """Goes on with these frames."""
        self._frames = list(state["frames"])


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

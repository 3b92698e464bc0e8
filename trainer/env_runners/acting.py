"""From observations to actions, with a module: one forward pass for all rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from trainer.connectors import ActionDecoder, ObservationEncoder
from trainer.episodes import SingleAgentEpisode
from trainer.episodes.columns import ACTION_DIST_INPUTS, ACTION_LOGP, OBS
from trainer.episodes.conversion import add_output
from trainer.modules import RLModule
from trainer.types import Array


class Acting:
    """Encodes observations, asks the module, draws or chooses actions.

    Attributes:
        noise_kind, noise_width: the random numbers that one drawn action takes.
        needs_decoding: whether the env gets another action than the module gives (`to_env`).
        space: the action space as it is before `to_env`: to draw from without the module.
    """

    def __init__(self, module: RLModule, *, normalize_actions: bool, clip_actions: bool) -> None:
        self._module = module
        self._distribution = module.action_distribution
        self._encoder = ObservationEncoder(module.observation_space)
        self._decoder = ActionDecoder(
            module.action_space, normalize_actions=normalize_actions, clip_actions=clip_actions
        )
        self.noise_kind = self._distribution.noise_kind
        self.noise_width = self._distribution.noise_width
        self.needs_decoding = not self._decoder.is_identity
        self.space = _before_decoding(module.action_space, normalize_actions=normalize_actions)

    def act(self, observations: list[Any], noise: Array | None) -> tuple[list[Any], list[Any]]:
        """One action per observation.

        Args:
            observations: B elements of the observation space.
            noise: float64 [B, noise_width] to draw with; None takes the most likely actions.

        Returns:
            B actions as the module gives them, and the distribution's inputs that they come from,
            B rows of float32 [K].
        """
        batch = {OBS: self._encoder.encode(observations)}
        if noise is not None:
            inputs = self._module.forward_exploration(batch)[ACTION_DIST_INPUTS]
            actions = self._distribution.sample(inputs, noise)
        else:
            inputs = self._module.forward_inference(batch)[ACTION_DIST_INPUTS]
            actions = self._distribution.deterministic(inputs)
        return list(actions), list(inputs)

    def add_logp(self, episodes: Sequence[SingleAgentEpisode]) -> None:
        """Adds the log-likelihoods of the episodes' actions as an extra output of all their steps.

        Done once per request: for all steps together it costs little more than for a single one.
        """
        add_output(
            episodes,
            ACTION_LOGP,
            source=ACTION_DIST_INPUTS,
            compute=self._distribution.logp,
        )

    def to_env(self, action: Any) -> Any:
        """An action of the module as the env takes it."""
        return self._decoder.to_env(action)


def _before_decoding(space: spaces.Space[Any], *, normalize_actions: bool) -> spaces.Space[Any]:
    """The space whose uniform draws become uniform draws of `space` by `to_env`."""
    if isinstance(space, spaces.Discrete):
        return spaces.Discrete(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return spaces.MultiDiscrete(space.nvec)
    if not (normalize_actions and isinstance(space, spaces.Box)):
        return space
    is_bounded = space.bounded_below & space.bounded_above
    return spaces.Box(
        np.where(is_bounded, -1.0, space.low).astype(space.dtype),
        np.where(is_bounded, 1.0, space.high).astype(space.dtype),
        dtype=space.dtype,
    )

"""From observations to actions, with a module: one forward pass for all rows."""

from __future__ import annotations

from typing import Any

from trainer.connectors import ActionDecoder, ObservationEncoder
from trainer.episodes.columns import ACTION_DIST_INPUTS, ACTION_LOGP, OBS
from trainer.modules import RLModule
from trainer.types import Array


class Acting:
    """Encodes observations, asks the module, draws or chooses actions.

    Attributes:
        noise_kind, noise_width: the random numbers that one drawn action takes.
        needs_decoding: whether the env gets another action than the module gives (`to_env`).
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

    def act(
        self, observations: list[Any], noise: Array | None
    ) -> tuple[list[Any], list[dict[str, Any]]]:
        """One action per observation.

        Args:
            observations: B elements of the observation space.
            noise: float64 [B, noise_width] to draw with; None takes the most likely actions.

        Returns:
            B actions as the module gives them, and B dicts with what goes into the episode beside
            them: their log-likelihood and the distribution's inputs.
        """
        batch = {OBS: self._encoder.encode(observations)}
        if noise is not None:
            inputs = self._module.forward_exploration(batch)[ACTION_DIST_INPUTS]
            actions, logps = self._distribution.sample_with_logp(inputs, noise)
        else:
            inputs = self._module.forward_inference(batch)[ACTION_DIST_INPUTS]
            actions = self._distribution.deterministic(inputs)
            logps = self._distribution.logp(inputs, actions)
        outputs = [
            {ACTION_LOGP: logp, ACTION_DIST_INPUTS: row}
            for logp, row in zip(logps, inputs, strict=True)
        ]
        # Python integers: a scalar of NumPy costs several times as much wherever it is used.
        return actions.tolist() if actions.ndim == 1 else list(actions), outputs

    def to_env(self, action: Any) -> Any:
        """An action of the module as the env takes it."""
        return self._decoder.to_env(action)

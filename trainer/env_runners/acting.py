"""From observations to actions, with a module: one forward pass for all rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from trainer.connectors import ActionDecoder, Normalization, ObservationEncoder, before_decoding
from trainer.episodes import nested
from trainer.episodes.columns import ACTION_DIST_INPUTS, OBS
from trainer.errors import EnvContractError, ModuleError
from trainer.modules import RLModule
from trainer.types import Array, FloatArray


class Acting:
    """Encodes observations, asks the module, draws or chooses actions.

    Attributes:
        module: what is asked.
        distribution: its action distribution.
        noise_kind, noise_width: the random numbers that one drawn action takes.
        needs_decoding: whether the env gets another action than the module gives (`to_env`).
        space: the action space as it is before `to_env`: to draw from without the module.
    """

    def __init__(self, module: RLModule, *, normalize_actions: bool, clip_actions: bool) -> None:
        self.module = module
        self.distribution = module.action_distribution
        self._encoder = ObservationEncoder(
            module.observation_space, action_mask_key=module.action_mask_key
        )
        self._masks = module.action_masks
        self._decoder = ActionDecoder(
            module.action_space, normalize_actions=normalize_actions, clip_actions=clip_actions
        )
        self.noise_kind = self.distribution.noise_kind
        self.noise_width = self.distribution.noise_width
        self._is_nested = isinstance(module.action_space, spaces.Dict | spaces.Tuple)
        self.needs_decoding = not self._decoder.is_identity
        self.space = before_decoding(module.action_space, normalize_actions=normalize_actions)
        self._check_shape()

    def _check_shape(self) -> None:
        """Lets the module act once, to find a network of the wrong size before it plays.

        Raises:
            ModuleError: its outputs do not fit the action distribution.
        """
        module, expected = self.module, (1, self.distribution.num_inputs)
        obs = np.zeros((1, self._encoder.size), np.float32)
        outputs = module.forward_inference({OBS: obs}).get(ACTION_DIST_INPUTS)
        found = () if outputs is None else outputs.shape
        if found != expected:
            raise ModuleError(
                f"{type(module).__name__}.forward_acting gives an array of shape {list(found)} for "
                f"1 observation; {module.action_space} needs {list(expected)}: K = "
                "`self.action_distribution.num_inputs` numbers per row. Correct it, and check the "
                "whole network with `trainer.testing.modules.check_module`."
            )

    def normalize_with(self, normalization: Normalization) -> None:
        """Acts upon observations as these make them, from now on."""
        self._encoder.normalizer = normalization.observations

    def act(
        self,
        observations: list[Any],
        noise: Array | None,
        *,
        where: Callable[[int], str] = lambda row: f"observation {row} of the batch",
    ) -> tuple[list[Any], list[Any]]:
        """One action per observation.

        Args:
            observations: B elements of the observation space.
            noise: float64 [B, noise_width] to draw with; None takes the most likely actions.
            where: says which observation a row is, for an error text.

        Returns:
            B actions as the module gives them, and the distribution's inputs that they come from,
            B rows of float32 [K].

        Raises:
            EnvContractError: an observation does not belong to its space, or its action mask leaves
                nothing to choose.
        """
        batch = {OBS: self._encoder.encode(observations)}
        self._check_masks(batch[OBS], where)
        if noise is not None:
            inputs = self.module.forward_exploration(batch)[ACTION_DIST_INPUTS]
            actions = self.distribution.sample(inputs, noise)
        else:
            inputs = self.module.forward_inference(batch)[ACTION_DIST_INPUTS]
            actions = self.distribution.deterministic(inputs)
        # A copy: a module of the user's may write its outputs into the same memory again.
        return self.rows(actions, len(inputs)), list(inputs.copy())

    def encoded(
        self, observations: list[Any], where: Callable[[int], str]
    ) -> dict[str, FloatArray]:
        """The batch that the module reads; its memory is reused by the next call.

        Raises:
            EnvContractError: see `act`.
        """
        batch = {OBS: self._encoder.encode(observations)}
        self._check_masks(batch[OBS], where)
        return batch

    def inputs(self, batch: Mapping[str, Array], *, explore: bool) -> Array:
        """The module's distribution inputs for an encoded batch, float32 [B, K]."""
        forward = self.module.forward_exploration if explore else self.module.forward_inference
        return forward(batch)[ACTION_DIST_INPUTS]

    def rows(self, actions: Any, count: int) -> list[Any]:
        """A batch of actions one by one."""
        return nested.unstack(actions, count) if self._is_nested else list(actions)

    def draw_uniformly(
        self, observation: Any, rng: np.random.Generator, *, where: Callable[[int], str]
    ) -> Any:
        """An action as the module gives them, uniform over those that are possible.

        Args:
            observation: an element of the observation space, for its action mask.
            rng: draws it.
            where: says where row 0 is, for an error text.
        """
        if self._masks is None:
            self.space.seed(int(rng.integers(2**31)))
            return self.space.sample()
        row = self._encoder.encode([observation])
        self._check_masks(row, where)
        mask = self._masks.given(row)[0]
        chosen = [rng.choice(np.flatnonzero(mask[choice])) for choice in self._masks.choices]
        return np.array(chosen, np.int64).reshape(self.space.shape)[()]

    def _check_masks(self, rows: Array, where: Callable[[int], str]) -> None:
        """Every mask must leave something to choose."""
        if self._masks is None:
            return
        blocked = self._masks.leaves_nothing(rows)
        if blocked.any():
            raise EnvContractError(
                f"The action mask of {where(int(np.argmax(blocked)))} allows no action, so none "
                "can be chosen. A mask has a 1 for every action that is possible, at least one for "
                "every choice. Let the env end the episode where nothing can be done, or allow an "
                "action that does nothing."
            )

    def to_env(self, action: Any) -> Any:
        """An action of the module as the env takes it."""
        return self._decoder.to_env(action)

"""A module without weights that draws its actions uniformly: an opponent to measure others by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NoReturn

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from trainer.errors import ModuleError
from trainer.exploration.strategies import UniformActions
from trainer.modules.rl_module import RLModule
from trainer.modules.spaces import distribution_for
from trainer.nn.distributions import ActionDistribution, DistributionTerms
from trainer.nn.product import ProductDistribution
from trainer.seeding import NoiseKind
from trainer.spaces import is_float_box
from trainer.types import Array


class UniformBox(ActionDistribution):
    """Uniform over a Box; its one input says nothing.

    A dimension without bounds is standard normal, one with a single bound exponential from there,
    as in gymnasium's `Box.sample`.
    """

    num_inputs = 1
    noise_kind: NoiseKind = "uniform"

    def __init__(self, box: spaces.Box, *, is_normalized: bool) -> None:
        """Plans the drawing.

        Args:
            box: the actions of the env.
            is_normalized: whether [-1, 1] stands for the bounds, where there are both.
        """
        if is_normalized:
            both = np.asarray(box.bounded_below & box.bounded_above)
            low, high = np.where(both, -1.0, box.low), np.where(both, 1.0, box.high)
            box = spaces.Box(low.astype(box.dtype), high.astype(box.dtype), dtype=box.dtype)
        self._uniform = UniformActions(box)
        self._shape = box.shape
        self._dtype: Any = box.dtype
        self.noise_width = self._uniform.width

    def sample(self, inputs: Array, noise: Array) -> Array:
        """Where the noise says."""
        del inputs
        return self._uniform.draw(noise)

    def deterministic(self, inputs: Array) -> Array:
        """The middle of each dimension: what half of all noise gives."""
        return self._uniform.draw(np.full((len(inputs), self.noise_width), 0.5))

    def canonical(self, inputs: Array) -> Array:
        """The inputs themselves."""
        copied: Array = inputs.copy()
        return copied

    def evaluate(
        self, inputs: Array, actions: Array, *, reference: Array | None = None
    ) -> DistributionTerms:
        """Raises a ModuleError: nothing is learnt."""
        del inputs, actions, reference
        raise _learns_nothing()

    def logp(self, inputs: Array, actions: Array) -> Array:
        """The log-densities, [B]."""
        del inputs
        return self._uniform.logp(actions)

    def entropy(self, inputs: Array) -> Array:
        """Raises a ModuleError: nothing is learnt."""
        del inputs
        raise _learns_nothing()

    def kl(self, p_inputs: Array, q_inputs: Array) -> Array:
        """0: there is one such distribution only."""
        del q_inputs
        divergence: Array = np.zeros(len(p_inputs), p_inputs.dtype)
        return divergence


class RandomRLModule(RLModule):
    """Draws every action uniformly from those that are possible; has no weights and never learns.

    Settings (`model_config`):
        normalize_actions: whether actions are scaled from [-1, 1] to the bounds of a Box, as
            `environment(normalize_actions=…)` says; True.
        others: those of networks, which are given to all modules, mean nothing here.

    Attributes:
        always_explores: it has no best action, so `explore=False` does not concern it.
    """

    always_explores: ClassVar[bool] = True

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """None."""
        return {}

    def initialize(self, rng: np.random.Generator) -> None:
        """Draws nothing."""
        del rng

    def make_action_distribution(self) -> ActionDistribution:
        """Uniform over the action space, if the inputs are 0."""
        is_normalized = bool(self.model_config.get("normalize_actions", True))
        return _uniform(self.action_space, is_normalized=is_normalized)

    def forward_acting(self, obs: Array) -> Array:
        """Zeros: all possible actions are equally good."""
        inputs: Array = np.zeros((len(obs), self.action_distribution.num_inputs), np.float32)
        return inputs

    def forward_train(self, batch: Mapping[str, Array]) -> NoReturn:
        """Refused: nothing is learnt.

        Raises:
            ModuleError: always.
        """
        del batch
        raise _learns_nothing()

    def backward(self, *, d_action_dist_inputs: Array, d_vf_preds: Array) -> NoReturn:
        """Refused: nothing is learnt.

        Raises:
            ModuleError: always.
        """
        del d_action_dist_inputs, d_vf_preds
        raise _learns_nothing()


def _uniform(space: gym.Space[Any], *, is_normalized: bool) -> ActionDistribution:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return ProductDistribution(_parts(space, is_normalized=is_normalized))
    if isinstance(space, spaces.Box) and is_float_box(space):
        return UniformBox(space, is_normalized=is_normalized)
    return distribution_for(space)  # of the logits 0, which is uniform


def _parts(space: Any, *, is_normalized: bool) -> Any:
    """The distributions of a nested space, nested as the space is."""
    if isinstance(space, spaces.Dict):
        return {key: _parts(part, is_normalized=is_normalized) for key, part in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_parts(part, is_normalized=is_normalized) for part in space.spaces)
    return _uniform(space, is_normalized=is_normalized)


def _learns_nothing() -> ModuleError:
    return ModuleError(
        "A RandomRLModule has no weights and learns nothing. Leave its id out of "
        "multi_agent(policies_to_train=[…])."
    )

"""What spaces ask of networks: inputs, outputs, and which actions are possible."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise, starmap
from typing import Any, Final

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from trainer.episodes.episode_columns import ACTION_DIST_INPUTS, OBS
from trainer.errors import UnsupportedSpaceError
from trainer.nn import (
    ActionDistribution,
    Bernoulli,
    Categorical,
    DiagGaussian,
    MultiCategorical,
    ProductDistribution,
)
from trainer.spaces import (
    ACTION_SPACES,
    OBSERVATION_SPACES,
    alternatives_of_integer_box,
    is_float_box,
    is_integer_box,
)
from trainer.types import Array

# ---- spaces


def observation_size(space: gym.Space[Any]) -> int:
    """The numbers that make up one encoded observation (see `trainer.connectors`).

    Args:
        space: Box, Discrete, MultiDiscrete, MultiBinary, or Dict and Tuple of these.

    Raises:
        UnsupportedSpaceError: it is, or holds, another space, or there is nothing in it.
    """
    try:
        size = int(spaces.flatdim(space))
    except (NotImplementedError, ValueError) as cause:
        raise UnsupportedSpaceError(
            f"There is no network for the observation space {space}: its observations have no "
            f"fixed number of values. Networks here read {OBSERVATION_SPACES}. Change it with an "
            "observation wrapper around the env."
        ) from cause
    if size == 0:
        raise UnsupportedSpaceError(
            f"The observation space {space} holds no number, so a network would have nothing to "
            "read. Let the env show at least one, if only a constant: Box(0.0, 1.0, (1,))."
        )
    return size


def distribution_for(space: gym.Space[Any], *, log_std_clip: float = 20.0) -> ActionDistribution:
    """The distribution over the actions of a space.

    Args:
        space: Discrete, MultiDiscrete, MultiBinary, Box of floats, Box of integers with few values,
            or Dict and Tuple of these.
        log_std_clip: for Box: the log standard deviation stays within ± this, > 0.

    Raises:
        UnsupportedSpaceError: it is another space, or there is nothing in it.
    """
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return ProductDistribution(_parts(space, log_std_clip=log_std_clip))
    distribution = _distribution(space, log_std_clip=log_std_clip)
    if distribution is None or distribution.num_inputs == 0:
        raise UnsupportedSpaceError(
            f"There is no action distribution for the action space {space}: a policy here chooses "
            f"in {ACTION_SPACES}. Change it with an action wrapper around the env, or let your own "
            "`RLModule` override `make_action_distribution`."
        )
    return distribution


def _distribution(space: gym.Space[Any], *, log_std_clip: float) -> ActionDistribution | None:
    """Of a space that is not nested; None if there is none."""
    if isinstance(space, spaces.Discrete):
        return Categorical(int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        sizes: Array = space.nvec
        return MultiCategorical(sizes.ravel().tolist(), shape=sizes.shape)
    if isinstance(space, spaces.MultiBinary):
        return Bernoulli(space.shape)
    if isinstance(space, spaces.Box) and is_integer_box(space):
        sizes = alternatives_of_integer_box(space)
        return MultiCategorical(sizes.ravel().tolist(), shape=sizes.shape)
    if is_float_box(space) and space.shape is not None:
        return DiagGaussian(space.shape, log_std_clip=log_std_clip)
    return None


def _parts(space: spaces.Dict | spaces.Tuple[Any], *, log_std_clip: float) -> Any:
    """The distributions of a nested space, nested as the space is."""
    if not space.spaces:
        raise UnsupportedSpaceError(
            f"The action space holds {space}, in which there is nothing to choose. Leave it out."
        )
    pairs: Any = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
    parts = {
        key: _parts(part, log_std_clip=log_std_clip)
        if isinstance(part, spaces.Dict | spaces.Tuple)
        else distribution_for(part, log_std_clip=log_std_clip)
        for key, part in pairs
    }
    return parts if isinstance(space, spaces.Dict) else tuple(parts.values())


def sizes_of_choices(space: gym.Space[Any]) -> list[int] | None:
    """The number of alternatives of each choice of a space; None if it is not made of choices."""
    if isinstance(space, spaces.Discrete):
        return [int(space.n)]
    if isinstance(space, spaces.MultiDiscrete):
        return [int(size) for size in np.ravel(space.nvec)]
    return None


# ---- action masks
#
# Action masks: what an observation says about which actions are possible. The encoder lays a mask
# out as the last columns of an encoded observation, [B, D + M]. `RLModule` takes them off again
# around the methods of its subclasses, which therefore see [B, D] and need not know of masks: the
# outputs that belong to impossible actions become `INVALID` afterwards, and their gradients 0.

INVALID: Final = -1e30
"""The logit or value of an impossible action: its probability is exactly 0.

Not minus infinity, nor the lowest float: 0 · -∞ has no value, and entropies, divergences and
coefficients multiply what is here.
"""

_SURELY_INVALID: Final = 0.5 * INVALID


@dataclass(frozen=True)
class ActionMasks:
    """Where masks stand in encoded observations.

    Attributes:
        start: D, the columns before.
        choices: the columns of the mask that belong to each choice.
    """

    start: int
    choices: tuple[slice, ...]

    @property
    def width(self) -> int:
        """M, the alternatives of all choices together."""
        width: int = self.choices[-1].stop
        return width

    def given(self, obs: Array) -> Array:
        """The masks as the env gave them: bool [B, M], True where an action is possible."""
        given: Array = obs[:, self.start :] != 0
        return given

    def effective(self, obs: Array) -> Array:
        """The masks in force: bool [B, M]; a choice without any possible alternative is free.

        That happens in observations without an action, such as the last one of an episode.
        """
        mask = self.given(obs)
        for choice in self.choices:
            part = mask[:, choice]
            part[~part.any(axis=1)] = True
        return mask

    def leaves_nothing(self, obs: Array) -> Array:
        """Which rows have a choice without any possible alternative, bool [B]."""
        mask = self.given(obs)
        has_any = [mask[:, choice].any(axis=1) for choice in self.choices]
        blocked: Array = ~np.logical_and.reduce(has_any)
        return blocked


def action_masks(
    mask: gym.Space[Any] | None, action_space: gym.Space[Any], *, obs_size: int, key: str
) -> ActionMasks | None:
    """The masks of an env; None if its observations have none.

    Args:
        mask: the space of the mask, if there is one.
        action_space: what is masked.
        obs_size: D.
        key: of the mask in the observation, for error texts.

    Raises:
        UnsupportedSpaceError: the mask does not fit the actions.
    """
    if mask is None:
        return None
    sizes = sizes_of_choices(action_space)
    otherwise = (
        f"If the observation's {key!r} is no mask, name another key with "
        "`environment(action_mask_key=...)`."
    )
    if sizes is None:
        raise UnsupportedSpaceError(
            f"The observations hold an action mask, but the action space is {action_space}: masks "
            "are for Discrete and MultiDiscrete actions (a MultiBinary space is a MultiDiscrete "
            f"one with 2 alternatives each). {otherwise}"
        )
    given = int(np.prod(mask.shape or ()))
    if given != sum(sizes):
        raise UnsupportedSpaceError(
            f"The action mask has {given} entries, but the action space {action_space} has "
            f"{sum(sizes)} alternatives: one entry each is needed, choice after choice. {otherwise}"
        )
    borders = accumulate(sizes, initial=0)
    return ActionMasks(obs_size, tuple(starmap(slice, pairwise(borders))))


def is_invalid(values: Array) -> Array:
    """Which numbers stand for impossible actions, elementwise."""
    invalid: Array = values < _SURELY_INVALID
    return invalid


class MaskingCalls:
    """Calls a module's own methods with the masks taken off, and masks what they return.

    Rows without mask columns pass through as they are: a module's methods may call each other.
    """

    def __init__(self, module: Any, masks: ActionMasks) -> None:
        """Goes around an `RLModule`'s methods: its attributes of these names are now ours."""
        self._masks = masks
        self._forward_acting: Callable[[Array], Array] = module.forward_acting
        self._forward_train: Callable[[Any], dict[str, Array]] = module.forward_train
        self._backward: Callable[..., None] = module.backward
        self._checked_rows: Callable[[Mapping[str, Any]], Array] = module.checked_rows
        self._mask: Array | None = None
        module.forward_acting = self.forward_acting
        module.forward_train = self.forward_train
        module.backward = self.backward

    def forward_acting(self, obs: Array) -> Array:
        obs = obs if obs.ndim == 2 else self._checked_rows({OBS: obs})
        if obs.shape[1] == self._masks.start:
            return self._forward_acting(obs)
        outputs = self._forward_acting(obs[:, : self._masks.start])
        return masked_outputs(outputs, self._masks.effective(obs))

    def forward_train(self, batch: Mapping[str, Array]) -> dict[str, Array]:
        obs = self._checked_rows(batch)
        if obs.shape[1] == self._masks.start:
            self._mask = None
            return self._forward_train(batch)
        self._mask = self._masks.effective(obs)
        outputs = dict(self._forward_train({**batch, OBS: obs[:, : self._masks.start]}))
        outputs[ACTION_DIST_INPUTS] = masked_outputs(outputs[ACTION_DIST_INPUTS], self._mask)
        return outputs

    def backward(self, *, d_action_dist_inputs: Array, **other: Array) -> None:
        if self._mask is not None:
            d_action_dist_inputs = masked_gradient(d_action_dist_inputs, self._mask)
        self._backward(d_action_dist_inputs=d_action_dist_inputs, **other)


def masked_outputs(outputs: Array, mask: Array) -> Array:
    """The outputs with `INVALID` in place of those of impossible actions, a new array."""
    masked: Array = np.where(_for_each_output(mask, outputs), outputs, outputs.dtype.type(INVALID))
    return masked


def masked_gradient(gradient: Array, mask: Array) -> Array:
    """The gradient of outputs with 0 in place of those of impossible actions, a new array."""
    masked: Array = np.where(_for_each_output(mask, gradient), gradient, 0)
    return masked.astype(gradient.dtype, copy=False)


def _for_each_output(mask: Array, outputs: Array) -> Array:
    """The mask with as many columns as the outputs: an action may have several (atoms)."""
    repeats = outputs.shape[1] // mask.shape[1]
    return mask if repeats == 1 else np.repeat(mask, repeats, axis=1)

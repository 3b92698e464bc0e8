"""Older names of a module's members: what RLlib's `Policy` offers beside its weights.

As in RLlib, a policy reads observations that are ready for its network: rows of numbers, one-hot
codes for Discrete ones, not yet filtered. `Algorithm.compute_single_action` takes them as the env
gives them, and explores as the config says.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from checkpoints.arguments import argument_error, mapping, numeric, require_keys, takes
from trainer.episodes import nested
from trainer.episodes.episode_columns import (
    ACTION_DIST_INPUTS,
    ACTION_LOGP,
    ACTION_PROB,
    ACTIONS,
    OBS,
)
from trainer.errors import ModuleError
from trainer.seeding import NOISE_DRAWS, Role, position_rng
from trainer.types import Array

if TYPE_CHECKING:
    from trainer.modules.rl_module import RLModule


class _Itself:
    """Gives the object itself, unless it has an attribute of its own under that name."""

    def __get__(self, owner: Any, owner_class: type) -> Any:
        return self if owner is None else owner


class PolicyNames:
    """Adds the older names to a module.

    Modules of users may have attributes of the same names, which win.

    Attributes:
        model: the network: the module itself.
        framework: what networks are computed with.
    """

    _num_policy_draws = 0
    model = _Itself()
    framework = "numpy"

    @functools.cached_property
    def dist_class(self) -> type:
        """The class of its action distribution."""
        return type(_module(self).action_distribution)

    def is_recurrent(self) -> bool:
        """Whether it remembers: never."""
        return False

    def get_initial_state(self) -> list[Any]:
        """What it remembers when an episode begins: nothing."""
        return []

    def num_state_tensors(self) -> int:
        """How much it remembers: nothing."""
        return 0

    @takes(obs=numeric())
    def compute_single_action(
        self, obs: Any, state: Sequence[Any] | None = None, *, explore: bool | None = None, **_: Any
    ) -> tuple[Any, list[Any], dict[str, Any]]:
        """One action for one observation that is ready for the network.

        Args:
            obs: the numbers that it reads, of any shape, [D] in all.
            state: of recurrent networks, which are not here.
            explore: see `compute_actions`.

        Returns:
            The action as the module gives it, no state, and what it comes from.
        """
        del state
        actions, _state, extra = self.compute_actions(np.asarray(obs)[None], explore=explore)
        return nested.take(actions, 0), [], {name: rows[0] for name, rows in extra.items()}

    @takes(obs_batch=numeric())
    def compute_actions(
        self,
        obs_batch: Any,
        state_batches: Sequence[Any] | None = None,
        *,
        explore: bool | None = None,
        **_: Any,
    ) -> tuple[Any, list[Any], dict[str, Array]]:
        """Actions for observations that are ready for the network.

        Args:
            obs_batch: one row per observation, [B, ...].
            state_batches: of recurrent networks, which are not here.
            explore: draw actions from the distribution; the draws of one module object follow from
                how often it was asked. False takes the most likely ones. None draws.

        Returns:
            The actions as the module gives them, no states, and {"action_dist_inputs",
            "action_logp", "action_prob"}.
        """
        del state_batches
        module, obs = _module(self), _rows(_module(self), obs_batch)
        distribution = module.action_distribution
        if explore is False:
            inputs = module.forward_inference({OBS: obs})[ACTION_DIST_INPUTS]
            actions = distribution.deterministic(inputs)
        else:
            inputs = module.forward_exploration({OBS: obs})[ACTION_DIST_INPUTS]
            rng = position_rng(0, Role.EXPLORATION, self._num_policy_draws)
            self._num_policy_draws += 1
            shape = (len(obs), distribution.noise_width)
            noise = NOISE_DRAWS[distribution.noise_kind](rng, shape)
            actions = distribution.sample(inputs, noise)
        logp = distribution.logp(inputs, actions)
        extra = {ACTION_DIST_INPUTS: inputs, ACTION_LOGP: logp, ACTION_PROB: np.exp(logp)}
        return actions, [], extra

    @takes(input_dict=mapping())
    def compute_actions_from_input_dict(
        self, input_dict: Any, explore: bool | None = None, **_: Any
    ) -> tuple[Any, list[Any], dict[str, Array]]:
        """`compute_actions` for the column "obs" of a batch."""
        require_keys("compute_actions_from_input_dict()", "input_dict", input_dict, (OBS,))
        return self.compute_actions(input_dict[OBS], explore=explore)

    @takes(obs_batch=numeric())
    def compute_log_likelihoods(self, actions: Any, obs_batch: Any, **_: Any) -> Array:
        """The log-likelihoods of actions, as the module gives them, [B]."""
        module, obs = _module(self), _rows(_module(self), obs_batch)
        inputs = module.forward_exploration({OBS: obs})[ACTION_DIST_INPUTS]
        try:
            batch = nested.batch_copy(actions, name=ACTIONS)
            logp: Array = module.action_distribution.logp(inputs, batch)
        except (TypeError, ValueError, LookupError) as cause:
            raise argument_error(
                "compute_log_likelihoods()",
                "actions",
                actions,
                f"{len(obs)} actions of {module.action_space} as the module gives them, a row each",
            ) from cause
        return logp


def _rows(module: RLModule, obs_batch: Any) -> Array:
    rows = np.asarray(obs_batch, np.float32)
    rows = rows.reshape(len(rows), math.prod(rows.shape[1:])) if rows.ndim else rows
    masks = module.action_masks
    expected = module.obs_size + (0 if masks is None else masks.width)
    if rows.ndim != 2 or rows.shape[1] != expected:
        raise ModuleError(
            f"A policy was given observations of the shape {np.shape(obs_batch)}; its network "
            f"reads {expected} numbers per row, ready for it: one-hot codes for Discrete "
            "observations, everything in one row. `algorithm.compute_single_action(obs)` takes "
            "observations as the env gives them."
        )
    return rows


def _module(names: Any) -> RLModule:
    module: RLModule = names
    return module

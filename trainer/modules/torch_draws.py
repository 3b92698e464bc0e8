"""What a module in Torch draws: while it learns, and actions, such as one given another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from trainer.episodes import nested
from trainer.episodes.episode_columns import ACTION_LOGP, ACTIONS
from trainer.errors import ModuleError
from trainer.seeding import PositionStream, Role
from trainer.types import Array

# ---- while learning


class Draws:
    """The seeds of dropout and other draws: a function of the update and the minibatch."""

    def __init__(self) -> None:
        self._of: tuple[int, ...] = ()
        self._rng: np.random.Generator | None = None

    def begin_update(self, root_seed: int, number: int, *, of: tuple[int, ...]) -> None:
        """Goes to the first minibatch of an update."""
        if (root_seed, *of) != self._of:
            self._of = (root_seed, *of)
            self._stream = PositionStream(root_seed, Role.MODULE, of=of)
        self._rng = self._stream.at(number)

    def next_seed(self) -> int:
        """The seed of the next forward pass; always the same outside an update."""
        return 0 if self._rng is None else int(self._rng.integers(2**63))


# ---- actions

DRAW_SEEDS: Final = "draw_seeds"
"""uint64, [B]: what the draws of each row follow from, of a module that draws actions itself."""


def draw_seeds(noise: Array) -> Array:
    """Seeds [B], in [0, 2**63), that follow from the random numbers of rows, float64 [B, W]."""
    if not noise.shape[1]:
        return np.zeros(len(noise), np.uint64)
    seeds: Array = np.ascontiguousarray(noise[:, 0], np.float64).view(np.uint64) >> np.uint64(1)
    return seeds


def drawn_actions(
    module: Any, forward: Callable[..., Any], outputs: Mapping[str, Any], inputs: Any
) -> Any:
    """The actions among the outputs for one row, as the module's distribution would give them.

    Raises:
        ModuleError: there are none, or they are of another form.
    """
    like = module.action_distribution.deterministic(inputs.detach().numpy())
    where = f"{type(module).__name__}.{forward.__name__}"
    if ACTIONS not in outputs:
        raise ModuleError(
            f"{where} returned no {ACTIONS!r}, but `_forward_exploration` does. Return them in "
            "both: drawn while exploring, the most likely ones else."
        )
    found: list[Array] = []
    nested.map_leaves(lambda leaf: found.append(_array_of(leaf)), outputs[ACTIONS])
    expected: list[Array] = []
    nested.map_leaves(expected.append, like)
    if [one.shape for one in found] != [one.shape for one in expected]:
        raise ModuleError(
            f"{where} returned {ACTIONS!r} with the shapes {[list(one.shape) for one in found]} "
            f"for 1 observation; {module.action_space} has {[list(o.shape) for o in expected]}. "
            "Return one action per row, nested as the space is."
        )
    parts = iter(found)
    return nested.map_leaves(lambda leaf: next(parts).astype(leaf.dtype), like)


def check_drawing(
    module: Any, forward: Callable[..., Any], outputs: Mapping[str, Any], inputs: Any
) -> None:
    """Raises a ModuleError unless what is drawn is distributed as losses take it to be."""
    actions = drawn_actions(module, forward, outputs, inputs)
    name = f"{type(module).__name__}.{forward.__name__}"
    if module.action_masks is not None:
        raise ModuleError(
            f"{name} draws actions itself, so masks of the env would not reach them. Return the "
            "inputs of a distribution alone, which masks are applied to."
        )
    given = outputs.get(ACTION_LOGP)
    if given is None:
        return
    own = module.action_distribution.logp(inputs.detach().numpy(), actions)
    if not np.allclose(_array_of(given), own, rtol=1e-3, atol=1e-3):
        raise ModuleError(
            f"{name} returned {ACTION_LOGP!r}={_array_of(given).tolist()} for its actions; with "
            f"its inputs, the distribution of {module.action_space} gives {own.tolist()}, which "
            "losses compute with. Return the inputs of that distribution, or override "
            "`make_action_distribution`."
        )


def _array_of(value: Any) -> Array:
    return value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)

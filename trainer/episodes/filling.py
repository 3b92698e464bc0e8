"""Stand-in items and one-hot codes: what a getter returns beyond the data, or instead of integers.

Pure functions of a gymnasium space (or None) and a value.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium import spaces

from trainer.episodes import nested
from trainer.errors import EpisodeError
from trainer.types import Array


def filled_item(space: Any, fill: Any, *, one_hot: bool, example: Any) -> Any:
    """An item whose every number is `fill`, in the form that real items have.

    Args:
        space: the space of the items, or None if it is not known.
        fill: the value; returned as it is where the form of an item is a plain number. A dict or
            tuple is taken for a whole item.
        one_hot: whether discrete leaves are coded; their stand-in is then the all-zero vector.
        example: an item, whose form is used where there is no space; None if there is none.
    """
    if isinstance(fill, dict | tuple):
        return fill
    if isinstance(space, spaces.Dict):
        children = example if isinstance(example, dict) else dict.fromkeys(space.keys())
        return {
            key: filled_item(child, fill, one_hot=one_hot, example=children.get(key))
            for key, child in space.items()
        }
    if isinstance(space, spaces.Tuple):
        items = example if isinstance(example, tuple) else (None,) * len(space)
        pairs = zip(space, items, strict=True)
        return tuple(
            filled_item(child, fill, one_hot=one_hot, example=item) for child, item in pairs
        )
    if one_hot and isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return np.zeros(one_hot_size(space), np.float32)
    if isinstance(space, spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary):
        return _full(space.shape, fill, space.dtype)
    if space is None and example is not None:
        return nested.map_leaves(lambda leaf: _like(leaf, fill), example)
    return fill


def one_hot_size(space: spaces.Discrete | spaces.MultiDiscrete) -> int:
    """The length of the code: n for Discrete, the sum of all n for MultiDiscrete."""
    return int(space.n) if isinstance(space, spaces.Discrete) else int(space.nvec.sum())


def one_hot(space: Any, items: Any, *, batched: bool) -> Any:
    """Codes the discrete leaves of an item, or of a batch of items, and leaves the others alone.

    Args:
        space: the space of an item.
        items: an item, or a batch with a leading dimension.
        batched: whether `items` is a batch.

    Returns:
        The same structure; discrete leaves are float32, [n] or [T, n] (see `one_hot_size`).
    """
    if isinstance(space, spaces.Dict):
        return {key: one_hot(child, items[key], batched=batched) for key, child in space.items()}
    if isinstance(space, spaces.Tuple):
        pairs = zip(space, items, strict=True)
        return tuple(one_hot(child, item, batched=batched) for child, item in pairs)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return _coded(space, np.asarray(items), batched=batched)
    if space is None:
        raise EpisodeError(
            "`one_hot_discrete=True` needs to know how many values there are, and this episode "
            "does not know the space of these items. Set `episode.observation_space` or "
            "`episode.action_space` first."
        )
    return items


def _coded(space: spaces.Discrete | spaces.MultiDiscrete, values: Array, *, batched: bool) -> Array:
    start = np.ravel(np.asarray(getattr(space, "start", 0)))
    sizes = np.ravel([space.n] if isinstance(space, spaces.Discrete) else space.nvec)
    rows = values.shape[0] if batched else 1
    columns = values.reshape(rows, len(sizes)).astype(np.int64) - start
    if np.any(columns < 0) or np.any(columns >= sizes):
        raise EpisodeError(
            f"A value lies outside its space {space}: {values.tolist()!r:.200}. It has no one-hot "
            "code. Check what the env or the module returned."
        )
    code = np.zeros((rows, int(sizes.sum())), np.float32)
    offsets = np.cumsum(sizes) - sizes
    code[np.arange(rows)[:, None], columns + offsets] = 1.0
    return code if batched else code[0]


def scatter(batch: Any, filler: Any, present: Array) -> Any:
    """Puts the rows of a batch where `present` is True and `filler` elsewhere.

    Args:
        batch: as many rows as `present` has True entries.
        filler: an item from `filled_item`.
        present: bool, [N].
    """

    def spread(leaf: Array, fill: Any) -> Array:
        dtype = np.result_type(leaf.dtype, _dtype_for(fill, leaf.dtype))
        rows = np.empty((len(present), *leaf.shape[1:]), dtype)
        rows[present] = leaf
        rows[~present] = fill
        return rows

    return nested.map_leaves(spread, batch, filler)


def _like(leaf: Any, fill: Any) -> Any:
    if isinstance(leaf, np.ndarray) and leaf.ndim:
        return _full(leaf.shape, fill, leaf.dtype)
    return fill


def _full(shape: tuple[int, ...], fill: Any, dtype: Any) -> Array:
    return np.full(shape, fill, _dtype_for(fill, np.dtype(dtype)))


def _dtype_for(fill: Any, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The items' own dtype if it can hold `fill` (so -1 in uint8 data gives a wider one)."""
    own = np.asarray(fill)
    if dtype.kind not in "biufc" or own.dtype.kind not in "biufc":
        return np.result_type(dtype, own.dtype)
    if dtype.kind in "fc":
        return dtype
    if dtype.kind == "b" or not np.all(np.isfinite(own)) or np.any(own != np.trunc(own)):
        return np.result_type(dtype, own.dtype)
    limits = np.iinfo(dtype)
    low, high = math.floor(own.min()), math.floor(own.max())
    return dtype if limits.min <= low and high <= limits.max else np.result_type(dtype, own.dtype)

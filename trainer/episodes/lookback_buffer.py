"""One column of an episode: a growing list or an array, the front part of which may be look-back.

It does not know what the column means; lengths across columns are checked by the episode.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from trainer.episodes import nested
from trainer.errors import EpisodeError, EpisodeIndexError
from trainer.types import Array

# ---- filling
#
# Stand-in items and one-hot codes: what a getter returns beyond the data, or instead of integers.
# Pure functions of a gymnasium space (or None) and a value.


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


def one_hot_code(space: Any, items: Any, *, batched: bool) -> Any:
    """Codes the discrete leaves of an item, or of a batch of items, and leaves the others alone.

    Args:
        space: the space of an item.
        items: an item, or a batch with a leading dimension.
        batched: whether `items` is a batch.

    Returns:
        The same structure; discrete leaves are float32, [n] or [T, n] (see `one_hot_size`).
    """
    if isinstance(space, spaces.Dict):
        return {
            key: one_hot_code(child, items[key], batched=batched) for key, child in space.items()
        }
    if isinstance(space, spaces.Tuple):
        pairs = zip(space, items, strict=True)
        return tuple(one_hot_code(child, item, batched=batched) for child, item in pairs)
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
        dtype = np.result_type(leaf.dtype, _dtype_that_holds(fill, leaf.dtype))
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
    return np.full(shape, fill, _dtype_that_holds(fill, np.dtype(dtype)))


def _dtype_that_holds(fill: Any, dtype: np.dtype[Any]) -> np.dtype[Any]:
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


# ---- indexing
#
# What the indices of the getters and setters mean, as positions in the stored data, which is the
# look-back followed by the steps of the chunk:
#
#     look-back   [4, 5, 6 | 7, 8, 9]   steps
#     positions    0  1  2   3  4  5
#     index                  0  1  2    counts from the first step
#     index       -6 -5 -4  -3 -2 -1    negative: counts from the end, may reach into the look-back
#     index       -3 -2 -1   0  1  2    with `neg_index_as_lookback=True`
#
# Positions below 0 or beyond the end are possible here; it is up to the caller to refuse, clip or
# fill them.

Indices = int | slice | Sequence[int] | None
"""One index, a slice, a list of indices, or None for all steps without the look-back."""


def position(index: int, *, total: int, lookback: int, neg_index_as_lookback: bool) -> int:
    """The position that an index means.

    Args:
        index: the index, counted from the first step after the look-back.
        total: the number of items stored, look-back included.
        lookback: how many of them are look-back.
        neg_index_as_lookback: whether -1 is the last item of the look-back rather than the newest
            item.
    """
    number = whole_number(index)
    if number < 0 and not neg_index_as_lookback:
        return total + number
    return lookback + number


def positions(
    indices: slice | Sequence[int], *, total: int, lookback: int, neg_index_as_lookback: bool
) -> range | list[int]:
    """The positions that a slice (as a range) or a list of indices (as a list) means.

    Raises:
        EpisodeIndexError: there is something else than whole numbers, or a step of 0.
    """

    def place(index: int) -> int:
        return position(
            index, total=total, lookback=lookback, neg_index_as_lookback=neg_index_as_lookback
        )

    if not isinstance(indices, slice):
        if not np.iterable(indices):
            raise _no_index(indices)
        return [place(index) for index in indices]
    step = 1 if indices.step is None else whole_number(indices.step)
    if step == 0:
        raise _no_index(indices)
    first, end = (lookback, total) if step > 0 else (total - 1, lookback - 1)
    start = first if indices.start is None else place(indices.start)
    stop = end if indices.stop is None else place(indices.stop)
    return range(start, stop, step)


def clipped(where: range, total: int) -> range:
    """The part of a range of positions that exists; same step."""
    if where.step == 1:
        start = max(where.start, 0)
        return range(start, max(start, min(where.stop, total)))
    inside = [p for p in where if 0 <= p < total]
    return (
        range(inside[0], inside[-1] + (1 if where.step > 0 else -1), where.step)
        if inside
        else range(0)
    )


def as_slice(where: range) -> slice:
    """The slice that picks a range of existing positions."""
    if not where:
        return slice(0, 0)
    stop = where.stop if where.stop >= 0 else None
    return slice(where.start, stop, where.step)


def is_one_index(indices: object) -> bool:
    """Whether `indices` is a single number (Python's or NumPy's)."""
    return isinstance(indices, int | np.integer)


def whole_number(index: Any) -> int:
    """The index as Python's int.

    Raises:
        EpisodeIndexError: it is not a whole number. Truth values are refused as well: a mask would
            otherwise pick the items 0 and 1 again and again.
    """
    if type(index) is int:
        return index
    if isinstance(index, bool | np.bool_):
        raise _no_index(index)
    try:
        return operator.index(index)
    except TypeError as cause:
        raise _no_index(index) from cause


def _no_index(index: Any) -> EpisodeIndexError:
    return EpisodeIndexError(
        f"{index!r} is not an index into an episode. Items are picked by whole numbers. Give an "
        "int, a list of ints, a slice of ints with a step other than 0, or None for all steps."
    )


# ---- overwriting
#
# Putting new items in the place of old ones, in lists and in arrays. Pure functions, except that
# arrays which can hold the new items are written in place. Before and after `to_numpy()` the same
# items are read back; an array never cuts a number down to its own dtype without a word.


def num_items(items: Any) -> int:
    """How many items a list or a batch holds; an EpisodeError if it is neither."""
    return len(items) if isinstance(items, list) else nested.checked_length(items, name="new_data")


def overwritten(data: Any, places: Sequence[int], new_items: Any, *, total: int) -> Any:
    """The column with new items at some places.

    Raises:
        EpisodeError: `data` is a batch, and the new items have another form than those that stay.
    """
    if isinstance(data, list):
        items = new_items
        if not isinstance(items, list):
            items = nested.unstack(items, len(places))
        for place, item in zip(places, items, strict=True):
            data[place] = item
        return data
    batch = new_items
    if isinstance(batch, list):
        batch = nested.stack(batch, name="new_data")
    if nested.form(batch) != nested.form(data):
        if len(set(places)) < total:
            raise EpisodeError(
                f"New items of the form {nested.form(batch)} cannot stand beside items of the form "
                f"{nested.form(data)}. All items of a column have one form after `to_numpy()`. "
                "Give items of the same shape, or replace all of them."
            )
        data = nested.map_leaves(np.empty_like, batch)
    where = np.array(places, np.intp)

    def write(old: Array, new: Any) -> Array:
        rows = np.asarray(new)
        dtype = _dtype_for(rows, old.dtype)
        leaf = old if dtype == old.dtype and old.flags.writeable else old.astype(dtype)
        leaf[where] = rows
        return leaf

    return nested.map_leaves(write, data, batch)


def _dtype_for(new: Array, own: np.dtype[Any]) -> np.dtype[Any]:
    """The array's own dtype if it can hold the new numbers, rounded to its precision at most."""
    if new.dtype == own:
        return own
    if own.kind in "fc" and np.can_cast(new.dtype, own, "same_kind"):
        return own
    if own.kind in "iu" and new.dtype.kind in "biu":
        limits = np.iinfo(own)
        if limits.min <= int(new.min()) and int(new.max()) <= limits.max:
            return own
    return np.result_type(own, new.dtype)


# ---- lookback buffer


class LookbackBuffer:
    """Items in order of time; the first `lookback` of them belong to the time before this chunk.

    Life: items are appended to `data` as a list; `to_numpy()` turns the list into one array (or a
    dict or tuple of arrays). The getters give the same answers before and after. `len()` leaves the
    look-back out.

    Attributes:
        data: list of items, or a batch with a leading dimension, look-back included.
        lookback: the number of leading items that are look-back, ≥ 0.
        space: the gymnasium space of an item, or None if not known; used by `fill` and one-hot
            only.
    """

    __slots__ = ("data", "lookback", "space")

    def __init__(self, data: Any = None, *, lookback: int = 0, space: Any = None) -> None:
        self.data: Any = [] if data is None else data
        self.lookback = lookback
        self.space = space

    @property
    def is_numpy(self) -> bool:
        """Whether the data is an array (or a nested structure of arrays)."""
        return not isinstance(self.data, list)

    @property
    def total(self) -> int:
        """The number of items, look-back included."""
        data = self.data
        return len(data) if isinstance(data, list) else nested.batch_length(data)

    def __len__(self) -> int:
        return self.total - self.lookback

    def __iter__(self) -> Iterator[Any]:
        return (self.get(index) for index in range(len(self)))

    def __getitem__(self, indices: Any) -> Any:
        return self.get(indices)

    def __setitem__(self, indices: Any, new_data: Any) -> None:
        self.set(new_data, indices)

    def __repr__(self) -> str:
        kind = "arrays" if self.is_numpy else "list"
        return f"LookbackBuffer({kind}, {self.lookback} look-back + {len(self)} items)"

    def append(self, item: Any) -> None:
        """Adds an item; in array mode this copies the whole array."""
        if isinstance(self.data, list):
            self.data.append(item)
        else:
            self.data = nested.concatenate(self.data, nested.stack([item], name="items"))

    def extend(self, items: list[Any]) -> None:
        """Adds several items; in array mode this copies the whole array once."""
        if isinstance(self.data, list):
            self.data.extend(items)
        elif items:
            self.data = nested.concatenate(self.data, nested.stack(items, name="items"))

    def fits(self, item: Any) -> bool:
        """Whether an item could be appended: in list mode every one, else those of one form."""
        if isinstance(self.data, list) or not self.total:
            return True
        try:
            nested.concatenate(
                nested.take(self.data, slice(0, 0)), nested.stack([item], name="items")
            )
        except (EpisodeError, ValueError, TypeError, KeyError, AttributeError):
            return False
        return True

    def to_numpy(self, *, name: str, dtype: Any = None) -> None:
        """Turns a list into arrays; does nothing the second time.

        Args:
            name: the column's name, for error texts.
            dtype: the dtype of a column of plain numbers; None takes what the items have.
        """
        if not isinstance(self.data, list):
            return
        if dtype is not None:
            self.data = np.array(self.data, dtype)
        elif self.data:
            self.data = nested.stack(self.data, name=name)
        else:
            item = filled_item(self.space, 0, one_hot=False, example=None)
            self.data = nested.take(nested.stack([item], name=name), slice(0, 0))

    def to_list(self) -> None:
        """Turns arrays into a list of their rows (which share the array's memory)."""
        if self.is_numpy:
            self.data = nested.unstack(self.data, self.total)

    def tail(self, length: int) -> list[Any]:
        """The newest `length` items as a list."""
        if isinstance(self.data, list):
            return self.data[-length:] if length else []
        total = self.total
        return nested.unstack(nested.take(self.data, slice(total - length, total)), length)

    def window(self, start: int, stop: int) -> Any:
        """The items at positions start … stop - 1, look-back counted, in the present mode."""
        return (
            self.data[start:stop]
            if isinstance(self.data, list)
            else nested.take(self.data, slice(start, stop))
        )

    def drop_lookback(self) -> None:
        """Forgets the look-back."""
        self.data = self.window(self.lookback, self.total)
        self.lookback = 0

    # Reading.

    def get(
        self,
        indices: Indices = None,
        *,
        neg_index_as_lookback: bool = False,
        fill: Any = None,
        one_hot_discrete: bool = False,
    ) -> Any:
        """Items by index; `trainer.episodes.lookback_buffer` shows what indices mean.

        Args:
            indices: an int gives one item; a list or slice several; None all steps after the
                look-back.
            neg_index_as_lookback: count negative indices backwards from the first step.
            fill: what stands in for items that do not exist; None refuses (int, list) or clips
                (slice).
            one_hot_discrete: code discrete leaves as float32 vectors.

        Returns:
            An item, or several: a list in list mode, a batch in array mode.

        Raises:
            EpisodeIndexError: an index is none, or lies outside the data and there is no `fill`.
        """
        if indices is None and not one_hot_discrete:
            data, start = self.data, self.lookback
            steps = slice(start, None)
            return data[start:] if isinstance(data, list) else nested.take(data, steps)
        total = self.total
        if is_one_index(indices):
            where = position(
                int(indices),  # type: ignore[arg-type]
                total=total,
                lookback=self.lookback,
                neg_index_as_lookback=neg_index_as_lookback,
            )
            if not 0 <= where < total:
                if fill is None:
                    raise self._out_of_range(indices, neg_index_as_lookback=neg_index_as_lookback)
                return self._filler(fill, one_hot=one_hot_discrete)
            return self._item(where, one_hot=one_hot_discrete)
        several: Any = slice(None) if indices is None else indices
        places = positions(
            several,
            total=total,
            lookback=self.lookback,
            neg_index_as_lookback=neg_index_as_lookback,
        )
        if fill is not None and any(not 0 <= place < total for place in places):
            return self._filled(places, fill=fill, one_hot=one_hot_discrete)
        if isinstance(places, range):
            chosen = self._range(clipped(places, total))
        else:
            flag = neg_index_as_lookback
            chosen = self._picked(self._checked(places, several, neg_index_as_lookback=flag))
        return self._coded(chosen) if one_hot_discrete else chosen

    def _item(self, where: int, *, one_hot: bool) -> Any:
        item = self.data[where] if isinstance(self.data, list) else nested.take(self.data, where)
        return one_hot_code(self.space, item, batched=False) if one_hot else item

    def _range(self, where: range) -> Any:
        chosen = as_slice(where)
        return self.data[chosen] if isinstance(self.data, list) else nested.take(self.data, chosen)

    def _picked(self, where: Sequence[int]) -> Any:
        if isinstance(self.data, list):
            return [self.data[place] for place in where]
        return nested.take(self.data, np.array(where, np.intp))

    def _coded(self, chosen: Any) -> Any:
        if isinstance(chosen, list):
            return [one_hot_code(self.space, item, batched=False) for item in chosen]
        return one_hot_code(self.space, chosen, batched=True)

    def _filled(self, places: Sequence[int], *, fill: Any, one_hot: bool) -> Any:
        total = self.total
        filler = self._filler(fill, one_hot=one_hot)
        present = [0 <= place < total for place in places]
        chosen = self._picked([place for place in places if 0 <= place < total])
        if one_hot:
            chosen = self._coded(chosen)
        if not isinstance(chosen, list):
            return scatter(chosen, filler, np.array(present))
        items = iter(chosen)
        return [next(items) if here else filler for here in present]

    def _filler(self, fill: Any, *, one_hot: bool) -> Any:
        example = None
        if self.total:
            example = self.data[0] if isinstance(self.data, list) else nested.take(self.data, 0)
        if one_hot and self.space is None:
            one_hot_code(None, example, batched=False)  # raises: says what is missing
        return filled_item(self.space, fill, one_hot=one_hot, example=example)

    # Writing.

    def set(
        self, new_data: Any, at_indices: Indices = None, *, neg_index_as_lookback: bool = False
    ) -> None:
        """Overwrites items; index rules as in `get`, but slices are clipped and there is no `fill`.

        Args:
            new_data: one item for an int, otherwise as many items (list or batch) as there are
                indices. Numbers that an array's dtype cannot hold give it a wider one.
            at_indices: where; None means all steps after the look-back.
            neg_index_as_lookback: count negative indices backwards from the first step.

        Raises:
            EpisodeIndexError: an index lies outside the data, or the number of items is wrong.
            EpisodeError: the items have another form than those that stay in the array.
        """
        several: Any = slice(None) if at_indices is None else at_indices
        one = is_one_index(several)
        places = positions(
            [several] if one else several,
            total=self.total,
            lookback=self.lookback,
            neg_index_as_lookback=neg_index_as_lookback,
        )
        if isinstance(places, range):
            places = clipped(places, self.total)
        self._checked(places, at_indices, neg_index_as_lookback=neg_index_as_lookback)
        new_items = [new_data] if one else new_data
        count = num_items(new_items)
        if count != len(places):
            raise EpisodeIndexError(
                f"{count} new items were given for {len(places)} places ({at_indices!r} in "
                f"{self!r}). Setters replace items one by one and never change the length. Give "
                f"exactly {len(places)} items."
            )
        if count:
            self.data = overwritten(self.data, places, new_items, total=self.total)

    def _checked(
        self, places: Sequence[int], indices: Any, *, neg_index_as_lookback: bool
    ) -> Sequence[int]:
        total = self.total
        for number, place in enumerate(places):
            if not 0 <= place < total:
                index = indices if is_one_index(indices) else indices[number]
                raise self._out_of_range(index, neg_index_as_lookback=neg_index_as_lookback)
        return places

    def _out_of_range(self, index: Any, *, neg_index_as_lookback: bool) -> EpisodeIndexError:
        first = -(self.lookback if neg_index_as_lookback else self.total)
        known = f"{first} to {len(self) - 1}" if self.total else "none"
        return EpisodeIndexError(
            f"Index {index!r} lies outside the data: {self.lookback} items of look-back and "
            f"{len(self)} from step 0 on; indices that exist: {known}. Use one of them, or let a "
            "getter give a stand-in with `fill=`."
        )


class InfoBuffer(LookbackBuffer):
    """Info dicts: a list that never becomes an array.

    Their keys differ from step to step, so there is no form to fill: `fill` stands in as it is.
    """

    __slots__ = ()

    def _filler(self, fill: Any, **_: bool) -> Any:
        return fill

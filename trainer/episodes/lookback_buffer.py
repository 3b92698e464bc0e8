"""One column of an episode: a growing list or an array, the front part of which may be look-back.

It does not know what the column means; lengths across columns are checked by the episode.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from checkpoints.arguments import argument_error, boolean
from trainer.episodes import filling, nested, overwriting
from trainer.episodes.indexing import (
    Indices,
    as_slice,
    clipped,
    is_one_index,
    position,
    positions,
)
from trainer.errors import EpisodeIndexError


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
            item = filling.filled_item(self.space, 0, one_hot=False, example=None)
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
        """Items by index; `trainer.episodes.indexing` shows what indices mean.

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
        if one_hot_discrete is not False and not boolean().accepts(one_hot_discrete):
            raise argument_error("get()", "one_hot_discrete", one_hot_discrete, "True or False")
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
        return filling.one_hot(self.space, item, batched=False) if one_hot else item

    def _range(self, where: range) -> Any:
        chosen = as_slice(where)
        return self.data[chosen] if isinstance(self.data, list) else nested.take(self.data, chosen)

    def _picked(self, where: Sequence[int]) -> Any:
        if isinstance(self.data, list):
            return [self.data[place] for place in where]
        return nested.take(self.data, np.array(where, np.intp))

    def _coded(self, chosen: Any) -> Any:
        if isinstance(chosen, list):
            return [filling.one_hot(self.space, item, batched=False) for item in chosen]
        return filling.one_hot(self.space, chosen, batched=True)

    def _filled(self, places: Sequence[int], *, fill: Any, one_hot: bool) -> Any:
        total = self.total
        filler = self._filler(fill, one_hot=one_hot)
        present = [0 <= place < total for place in places]
        chosen = self._picked([place for place in places if 0 <= place < total])
        if one_hot:
            chosen = self._coded(chosen)
        if not isinstance(chosen, list):
            return filling.scatter(chosen, filler, np.array(present))
        items = iter(chosen)
        return [next(items) if here else filler for here in present]

    def _filler(self, fill: Any, *, one_hot: bool) -> Any:
        example = None
        if self.total:
            example = self.data[0] if isinstance(self.data, list) else nested.take(self.data, 0)
        if one_hot and self.space is None:
            filling.one_hot(None, example, batched=False)  # raises: says what is missing
        return filling.filled_item(self.space, fill, one_hot=one_hot, example=example)

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
        count = overwriting.num_items(new_items)
        if count != len(places):
            raise EpisodeIndexError(
                f"{count} new items were given for {len(places)} places ({at_indices!r} in "
                f"{self!r}). Setters replace items one by one and never change the length. Give "
                f"exactly {len(places)} items."
            )
        if count:
            self.data = overwriting.overwritten(self.data, places, new_items, total=self.total)

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

"""SampleBatch: columns with one row per env step, as callbacks get them and may rewrite them.

It knows nothing of episodes or losses: who makes a batch also decides what becomes of it.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Final, NoReturn

import numpy as np

from trainer.episodes import nested
from trainer.episodes.episode_columns import TERMINATEDS, TRUNCATEDS
from trainer.errors import EpisodeError
from trainer.types import Array
from trainer_toolkit.arguments import argument_error
from trainer_toolkit.nearest_names import did_you_mean

_NUMBERS = "biuf"
_DONES: Final = "dones"
_EPS_ID: Final = "eps_id"
SEQ_LENS: Final = "seq_lens"
"""The one column that has a row per sequence instead of one per env step."""


class SampleBatch(dict[str, Any]):
    """{column: one row per env step}; the names are those of `trainer.episodes.episode_columns`.

    Columns are arrays, or dicts and tuples of arrays where a space is one. As in RLlib, `len()` and
    `count` are the number of rows, not of columns.
    """

    def __init__(self, *columns: Any, **more: Any) -> None:
        """Takes columns as a dict does; lists of numbers become arrays.

        Raises:
            EpisodeError: the columns differ in their number of rows.
        """
        try:
            super().__init__(*columns, **more)
        except (TypeError, ValueError) as cause:
            expected = "a dict of columns: {name: one row per env step}"
            raise argument_error("SampleBatch()", "columns", columns, expected) from cause
        for name in [name for name in self.keys() if isinstance(dict.get(self, name), list)]:
            self[name] = _as_column(self[name])
        lengths = {
            name: len(column)
            for name, column in self.items()
            if isinstance(column, np.ndarray) and column.ndim and name != SEQ_LENS
        }
        if len(set(lengths.values())) > 1:
            raise EpisodeError(
                f"The columns of a SampleBatch have different numbers of rows: {lengths}. Every "
                "column has one row per env step."
            )

    def __getitem__(self, name: Any) -> Any:
        return (
            self.slice(name.start, name.stop) if type(name) is slice else super().__getitem__(name)
        )

    @property
    def count(self) -> int:
        """The number of rows (env steps)."""
        return nested.batch_length(next(iter(self.values()))) if self.keys() else 0

    def __len__(self) -> int:
        return self.count

    def __missing__(self, name: str) -> NoReturn:
        hint = did_you_mean(name, self, "; did you mean {}?")
        if name == "dones":
            hint = "; it became two: 'terminateds' and 'truncateds'"
        raise KeyError(f"there is no column {name!r}{hint}; expected one of {', '.join(self)}")

    def copy(self, shallow: bool = False) -> SampleBatch:
        """Another batch with the same columns.

        Args:
            shallow: share the arrays instead of copying them.
        """
        if shallow:
            return SampleBatch(self)
        return SampleBatch({name: nested.map_leaves(np.array, self[name]) for name in self})

    # ---- RLlib's methods for rows

    @staticmethod
    def concat_samples(samples: Iterable[SampleBatch]) -> SampleBatch:
        """The rows of several batches, one after another.

        Raises:
            EpisodeError: they do not have the same columns.
        """
        batches = [batch for batch in samples if batch.count]
        if not batches:
            return SampleBatch()
        for batch in batches[1:]:
            if batch.keys() != batches[0].keys():
                raise EpisodeError(
                    f"Batches with the columns {sorted(batches[0].keys())} and "
                    f"{sorted(batch.keys())} cannot be joined. Give all of them the same columns."
                )
        return SampleBatch(
            {name: _joined([batch[name] for batch in batches]) for name in batches[0]}
        )

    def concat(self, other: SampleBatch) -> SampleBatch:
        """The rows of this batch and of another one after them."""
        return SampleBatch.concat_samples([self, other])

    def rows(self) -> Iterator[dict[str, Any]]:
        """Each row as {column: value}."""
        for index in range(self.count):
            yield {name: _taken(self[name], index) for name in self.keys() if name != SEQ_LENS}

    def columns(self, keys: Iterable[str]) -> list[Any]:
        """Some columns, in the order asked for."""
        return [self[key] for key in keys]

    def shuffle(self, rng: np.random.Generator | None = None) -> SampleBatch:
        """Brings the rows into another order, in place; the order is the same in all columns.

        Args:
            rng: draws it; None lets it follow from the rows themselves, so that a run that is
                repeated repeats it.

        Returns:
            This batch.

        Raises:
            EpisodeError: the batch holds sequences, whose rows have to stay together.
        """
        if SEQ_LENS in self:
            raise EpisodeError(
                "A batch with `seq_lens` holds sequences, whose rows have to stay together. "
                "Shuffle before sequences are made."
            )
        if rng is None:
            leaves = [nested.first_leaf(column) for column in self.values()]
            rng = np.random.default_rng([zlib.crc32(np.asarray(leaf).tobytes()) for leaf in leaves])
        order = rng.permutation(self.count)
        for name in self.keys():
            self[name] = _taken(self[name], order)
        return self

    def slice(self, start: int | None, end: int | None) -> SampleBatch:
        """The rows from `start` up to `end`; views."""
        where = slice(start, end)
        names = [name for name in self.keys() if name != SEQ_LENS]
        return SampleBatch({name: _taken(self[name], where) for name in names})

    def split_by_episode(self, key: str | None = None) -> list[SampleBatch]:
        """A batch for each episode, in their order.

        Args:
            key: the column whose change tells a new episode; None: `eps_id`, or without it what
                follows `terminateds` or `truncateds`.

        Raises:
            EpisodeError: nothing tells the episodes apart.
        """
        key = key or (_EPS_ID if _EPS_ID in self else None)
        if key is not None:
            ids = np.asarray(self[key])
            starts = np.flatnonzero(ids[1:] != ids[:-1]) + 1
        else:
            names = [n for n in (TERMINATEDS, TRUNCATEDS, _DONES) if n in self]
            if not names:
                raise EpisodeError(
                    f"The columns {sorted(self.keys())} do not tell episodes apart. There must be "
                    "`eps_id`, or `terminateds` and `truncateds`."
                )
            ends = np.logical_or.reduce([np.asarray(self[name], bool) for name in names])
            starts = np.flatnonzero(ends[:-1]) + 1
        bounds = [0, *starts.tolist(), self.count]
        return [self.slice(*pair) for pair in itertools.pairwise(bounds) if pair[0] < pair[1]]

    def timeslices(
        self, size: int | None = None, num_slices: int | None = None, k: int | None = None
    ) -> list[SampleBatch]:
        """Batches of `size` rows each (the last one may be shorter), or `num_slices` batches.

        Args:
            size: rows of each.
            num_slices: how many, as equal as can be.
            k: older name of `size`.

        Raises:
            EpisodeError: both are given, or none, or a number below 1.
        """
        size = k if size is None else size
        given = [number for number in (size, num_slices) if number is not None]
        if len(given) != 1 or given[0] < 1:
            raise EpisodeError(
                f"timeslices(size={size}, num_slices={num_slices}): expected one of them, ≥ 1."
            )
        if size is None:
            edges = np.linspace(0, self.count, (num_slices or 1) + 1).astype(int).tolist()
        else:
            edges = [*range(0, self.count, size), self.count]
        return [self.slice(*pair) for pair in itertools.pairwise(edges)]

    def env_steps(self) -> int:
        """The number of rows."""
        return self.count

    def agent_steps(self) -> int:
        """The number of rows."""
        return self.count

    def size_bytes(self) -> int:
        """The memory of the columns that are arrays, in bytes."""
        sizes: list[int] = []
        for column in self.values():
            nested.map_leaves(lambda leaf: sizes.append(np.asarray(leaf).nbytes), column)
        return sum(sizes)

    def is_single_trajectory(self) -> bool:
        """Whether all rows belong to one episode."""
        return len(self.split_by_episode()) <= 1

    def is_terminated_or_truncated(self) -> bool:
        """Whether the last row ends its episode."""
        names = [name for name in (TERMINATEDS, TRUNCATEDS) if name in self]
        return any(bool(np.asarray(self[name])[-1]) for name in names)


def concat_samples(samples: Iterable[SampleBatch]) -> SampleBatch:
    """The rows of several batches, one after another; see `SampleBatch.concat_samples`."""
    return SampleBatch.concat_samples(samples)


def _as_column(values: list[Any]) -> Any:
    """A list as an array, if it is one of numbers, bits or text of one shape."""
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        return values
    return array if array.dtype.kind in "biufUS" else values


def _taken(column: Any, where: Any) -> Any:
    """Rows of a column: arrays, dicts and tuples of arrays, or a list of anything."""
    if not isinstance(column, list):
        return nested.take(column, where)
    if isinstance(where, np.ndarray):
        return [column[index] for index in where.tolist()]
    return column[where]


def _joined(columns: list[Any]) -> Any:
    if isinstance(columns[0], list):
        return [value for column in columns for value in column]
    return nested.concatenate(*columns)


def read_only(column: Any) -> Any:
    """A view of a column that cannot be written to: a mistake shows where it is made."""

    def seal(leaf: Array) -> Array:
        view: Array = leaf.view()
        view.flags.writeable = False
        return view

    return nested.map_leaves(seal, column)


def fitted_column(name: str, given: Any, *, like: Any, num_rows: int) -> Any:
    """A column that was rewritten, checked, in the form it had before.

    Args:
        name: of the column.
        given: what it is now: arrays or lists.
        like: the column before: dtypes, shapes of a row, and structure. Where it held numbers that
            are not finite itself, no callback is blamed for them.
        num_rows: how many rows it must have.

    Raises:
        EpisodeError: structure, number of rows, shape or dtype do not fit, or a number is not
            finite.
    """
    if isinstance(like, dict | tuple):
        parts = like.items() if isinstance(like, dict) else enumerate(like)
        _check_structure(name, given, like)
        fitted = {
            key: fitted_column(f"{name}[{key!r}]", given[key], like=part, num_rows=num_rows)
            for key, part in parts
        }
        return fitted if isinstance(like, dict) else tuple(fitted.values())
    array = _numbers(name, given, num_rows=num_rows)
    if array.shape[1:] != like.shape[1:]:
        raise EpisodeError(
            f"The rows of the column {name!r} have the shape {array.shape[1:]} now, but had "
            f"{like.shape[1:]}. Give every row the shape it had."
        )
    if array.dtype != like.dtype and not np.can_cast(array.dtype, like.dtype, "same_kind"):
        raise EpisodeError(
            f"The column {name!r} holds {array.dtype} now, which {like.dtype} cannot hold. Convert "
            f"it: `batch[{name!r}] = values.astype({str(like.dtype)!r})`."
        )
    _check_finite(name, array, before=like)
    fitted_array: Array = array.astype(like.dtype, copy=False)
    return fitted_array


def new_column(name: str, given: Any, *, num_rows: int) -> Array:
    """A column that was added; an EpisodeError unless it has a finite number per row."""
    array = _numbers(name, given, num_rows=num_rows)
    _check_finite(name, array)
    return array


def _numbers(name: str, given: Any, *, num_rows: int) -> Array:
    try:
        array = np.asarray(given)
    except ValueError:  # rows of different lengths
        array = np.asarray(None)
    if array.ndim == 0 or array.dtype.kind not in _NUMBERS:
        raise EpisodeError(
            f"The column {name!r} is {nested.describe(given)} now; a column is an array of numbers "
            "with one row per env step. Assign such an array, or remove what was added."
        )
    if len(array) != num_rows:
        raise EpisodeError(
            f"The column {name!r} has {len(array)} rows now, but the others have {num_rows}. Every "
            "column has one row per env step. Change rows in place, or assign as many rows."
        )
    return array


def _check_structure(name: str, given: Any, like: Any) -> None:
    keys = set(like) if isinstance(like, dict) else len(like)
    found: Any = None
    if isinstance(given, dict) and isinstance(like, dict):
        found = set(given)
    elif isinstance(given, tuple) and isinstance(like, tuple):
        found = len(given)
    if found != keys:
        raise EpisodeError(
            f"The column {name!r} is {nested.describe(given)} now, but was {type(like).__name__} "
            f"with {len(like)} parts. Keep its structure and change the arrays in it."
        )


def _check_finite(name: str, array: Array, *, before: Array | None = None) -> None:
    if array.dtype.kind != "f" or np.isfinite(array).all():
        return
    if before is not None and not np.isfinite(before).all():
        return
    row = int(np.argwhere(~np.isfinite(array))[0, 0])
    raise EpisodeError(
        f"The column {name!r} holds {array[row]} in row {row} now; nothing can be learnt from "
        "numbers that are not finite. Look for a division by zero or a logarithm of zero in what "
        "was assigned."
    )

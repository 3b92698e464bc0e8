"""The train batch as callbacks see and may change it before a module learns from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from trainer.connectors import SampleBatch
from trainer.connectors.sample_batch import fitted_column, new_column, read_only
from trainer.episodes import SingleAgentEpisode, nested
from trainer.episodes.columns import EPISODE_IDS, REWARDS, TERMINATEDS, TIMESTEPS, TRUNCATEDS
from trainer.errors import EpisodeError
from trainer.modules import RLModule
from trainer.types import Array


class TrainBatch(SampleBatch):
    """All rows of one update: the columns of the loss, and others to read.

    Columns of the loss may be changed in place or replaced, also by fewer or more rows if all of
    them get the same number. Columns may be added; a loss that knows them finds them in its
    minibatches. The other columns (rewards, ends, ids) have done their work: they are read-only.
    """

    def __init__(
        self,
        rows: Mapping[str, Any],
        readable: Mapping[str, Array],
        *,
        keeps_rows: bool = False,
    ) -> None:
        """Lays out the batch.

        Args:
            rows: the columns of the loss, [B, ...] each; changed in place by whoever changes them.
            readable: further columns.
            keeps_rows: the number of rows must stay what it is: each belongs to a replayed step.
        """
        super().__init__(rows)
        self._num_rows = nested.batch_length(next(iter(rows.values()))) if keeps_rows else None
        self._forms = {name: _form(column) for name, column in rows.items()}
        self._readable = {name: read_only(column) for name, column in readable.items()}
        for name, column in self._readable.items():
            self.setdefault(name, column)

    def learnable_rows(self) -> dict[str, Any]:
        """The columns of the loss as they are now, checked; and those that were added.

        Raises:
            EpisodeError: a column is missing, or columns differ in length, or one holds what cannot
                be learnt from.
        """
        num_rows = self._check_lengths()
        rows: dict[str, Any] = {}
        for name, like in self._forms.items():
            rows[name] = fitted_column(name, self[name], like=like, num_rows=num_rows)
        for name in [name for name in self if name not in rows and name not in self._readable]:
            rows[name] = new_column(name, self[name], num_rows=num_rows)
        return rows

    def _check_lengths(self) -> int:
        missing = [name for name in self._forms if name not in self]
        if missing:
            raise EpisodeError(
                f"The column {missing[0]!r} was removed, but the loss needs it. Leave "
                f"{', '.join(self._forms)} in the train batch."
            )
        lengths = {name: _num_rows(self[name]) for name in self._forms}
        first = next(iter(lengths))
        different = [name for name in lengths if lengths[name] != lengths[first]]
        if different or lengths[first] in ((), (0,)):
            found = ", ".join(f"{name} {length}" for name, length in lengths.items())
            raise EpisodeError(
                f"The columns of the train batch have different numbers of rows now, or none: "
                f"{found}. Every column has one row per env step. Change rows in place, or give "
                "all columns as many rows."
            )
        num_rows: int = lengths[first][0]
        if self._num_rows not in (None, num_rows):
            raise EpisodeError(
                f"The train batch has {num_rows} rows now instead of {self._num_rows}, but every "
                "row belongs to a step in the replay buffer. Leave the number of rows as it is, "
                "and give those that are not to count the weight 0: "
                '`train_batch["weights"][i] = 0`.'
            )
        for name, column in self._readable.items():
            if len(column) == num_rows and not nested.equal(self.get(name, column), column):
                raise EpisodeError(
                    f"The column {name!r} of the train batch was changed, but advantages were "
                    "computed from it before, so that nothing would come of it. Change advantages "
                    "here, or rewards in `on_postprocess_trajectory`."
                )
        return num_rows


Blame = Callable[[Exception], Exception]
"""Makes the error to raise from what is wrong with the batch: it names those who changed it."""

BatchListener = Callable[[RLModule, TrainBatch, dict[str, Any]], "Blame | None"]
"""Is told the module that will learn, the batch, and a dict for metrics.

It may return whom to blame for a batch that cannot be learnt from.
"""


class TrainBatchEvent:
    """Shows the complete train batch of one update to a listener, if there is one.

    Attributes:
        result: what the listener wants to see among the learner's metrics.
    """

    def __init__(
        self,
        module: RLModule,
        episodes: Sequence[SingleAgentEpisode],
        listener: BatchListener | None,
        *,
        keeps_rows: bool = False,
    ) -> None:
        """Prepares the event.

        Args:
            module: that will learn.
            episodes: what the batch is made of, in order; none if it comes from replay.
            listener: None if nobody listens; then the event costs nothing.
            keeps_rows: see `TrainBatch`.
        """
        self.result: dict[str, Any] = {}
        self._module = module
        self._chunks = [episode for episode in episodes if len(episode) > 0]
        self._listener = listener
        self._keeps_rows = keeps_rows

    def fire(self, rows: dict[str, Any], **readable: Array) -> dict[str, Any]:
        """Shows the batch; a learner calls it once per update, when all columns are there.

        Args:
            rows: the columns of the loss, [B, ...] each.
            readable: further columns to read, [B, ...] each.

        Returns:
            The columns to learn from.

        Raises:
            EpisodeError: the listener left what cannot be learnt from; or what its `Blame` makes of
                that.
        """
        if self._listener is None:
            return rows
        readable = {**_columns_to_read(self._chunks), **readable}
        batch = TrainBatch(rows, readable, keeps_rows=self._keeps_rows)
        # The update runs with warnings switched off; those of a listener's own numbers are wanted.
        with np.errstate(over="warn", invalid="warn", divide="warn"):
            blame = self._listener(self._module, batch, self.result)
        try:
            return batch.learnable_rows()
        except EpisodeError as error:
            if blame is None:
                raise
            raise blame(error) from error


def _columns_to_read(chunks: Sequence[SingleAgentEpisode]) -> dict[str, Array]:
    if not chunks:
        return {}
    names = (REWARDS, TERMINATEDS, TRUNCATEDS, EPISODE_IDS, TIMESTEPS)
    columns = [chunk.get_data_dict() for chunk in chunks]
    return {name: np.concatenate([column[name] for column in columns]) for name in names}


def _form(column: Any) -> Any:
    """Dtype, shape of a row, and whether all is finite, without holding on to the rows."""

    def form(leaf: Array) -> Array:
        if leaf.dtype.kind != "f" or np.isfinite(leaf).all():
            leaf, filler = leaf[:0], 0.0
        else:
            leaf, filler = leaf[:1], np.nan
        formed: Array = np.full_like(leaf, filler)
        return formed

    return nested.map_leaves(form, column)


def _num_rows(column: Any) -> tuple[int, ...]:
    """The rows of a column as somebody left it: (number,), or () if it has none."""
    shape: tuple[int, ...] = np.shape(nested.first_leaf(column))
    return shape[:1]

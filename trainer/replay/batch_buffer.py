"""RLlib's old replay buffers, which store batches: for code that uses one by itself.

    buffer = ReplayBuffer(capacity=1000, storage_unit="timesteps")
    buffer.add(SampleBatch({"obs": [...], "actions": [...]}))
    batch = buffer.sample(32)

Algorithms here learn from a `ReplayBuffer` without `storage_unit`, which stores steps of episodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from trainer.errors import ReplayError
from trainer.types import Array, State

STORAGE_UNITS: Final = ("timesteps", "sequences", "episodes", "fragments")
"""What one item of a buffer may be."""

_DRAWS: Final = 0xBA7C4
_SEQ_LENS: Final = "seq_lens"


def storage_unit_of(given: Any) -> str:
    """The name of a storage unit, of RLlib's constants too; a ReplayError if there is none."""
    name = str(getattr(given, "value", given)).lower()
    if name not in STORAGE_UNITS:
        raise ReplayError(
            f"storage_unit={given!r}: expected one of {', '.join(STORAGE_UNITS)}. Without it, "
            "ReplayBuffer stores the steps of episodes, as algorithms do."
        )
    return name


# One of two kinds: uniform, and prioritized below.
class BatchReplayBuffer:
    """The last items of the batches that were added, drawn uniformly with replacement.

    An item is one row ("timesteps"), one of the sequences that `seq_lens` counts ("sequences"), one
    whole episode ("episodes"; what does not begin and end within its batch is left out), or a batch
    as it was added ("fragments"). When `capacity` rows were added, the oldest items are
    overwritten.

    Attributes:
        capacity: in rows.
        storage_unit: what an item is.
    """

    def __init__(
        self, capacity: int = 10_000, storage_unit: Any = "timesteps", **no_effect: Any
    ) -> None:
        """An empty buffer.

        Args:
            capacity: in rows, ≥ 1.
            storage_unit: one of `STORAGE_UNITS`.
            no_effect: further arguments of RLlib's.

        Raises:
            ReplayError: a value is wrong.
        """
        del no_effect
        if not isinstance(capacity, int) or capacity < 1:
            raise ReplayError(f"capacity={capacity!r}: expected a number of rows, ≥ 1.")
        self.capacity = capacity
        self.storage_unit = storage_unit_of(storage_unit)
        self._items: list[Any] = []
        self._next = self._num_added = self._added_since_wrap = self._num_sampled = 0
        self._num_draws = 0

    def __len__(self) -> int:
        """The number of items."""
        return len(self._items)

    def add(self, batch: Any, **kwargs: Any) -> None:
        """Stores the items of a `SampleBatch`.

        Args:
            batch: with `timeslices`, `split_by_episode` and `slice`.
            kwargs: for subclasses.

        Raises:
            ReplayError: it is no batch.
        """
        if not hasattr(batch, "timeslices"):
            raise ReplayError(
                f"A {type(batch).__name__} was added to a buffer of {self.storage_unit}; expected "
                "a SampleBatch. Episodes are stored by a ReplayBuffer without `storage_unit`."
            )
        for item in self._items_of(batch):
            self._put(item, **kwargs)

    def _items_of(self, batch: Any) -> Iterator[Any]:
        if self.storage_unit == "timesteps":
            yield from batch.timeslices(1)
        elif self.storage_unit == "fragments" or not batch.count:
            yield from [batch] if batch.count else []
        elif self.storage_unit == "episodes":
            for episode in batch.split_by_episode():
                if np.asarray(episode["t"])[0] == 0 and _has_ended(episode):
                    yield episode
        else:
            yield from self._sequences_of(batch)

    @staticmethod
    def _sequences_of(batch: Any) -> Iterator[Any]:
        lengths = np.asarray(batch.get(_SEQ_LENS, [batch.count]))
        if lengths.sum() != batch.count:
            raise ReplayError(
                f"`seq_lens` counts {lengths.sum()} rows, but the batch has {batch.count}. They "
                "must be the same."
            )
        start = 0
        for length in lengths.tolist():
            item = batch.slice(start, start + length)
            item[_SEQ_LENS] = np.array([length])
            yield item
            start += length

    def _put(self, item: Any, **kwargs: Any) -> None:
        del kwargs
        if self._next < len(self._items):
            self._items[self._next] = item
        else:
            self._items.append(item)
        self._num_added += item.count
        self._added_since_wrap += item.count
        self._next += 1
        if self._added_since_wrap >= self.capacity:
            self._next = self._added_since_wrap = 0

    def sample(
        self, num_items: int, *, rng: np.random.Generator | None = None, **kwargs: Any
    ) -> Any:
        """Items drawn with replacement, as one batch; an empty buffer gives None.

        Args:
            num_items: how many, ≥ 1.
            rng: draws them; None: the numbers follow from how often was drawn before.
            kwargs: for subclasses.
        """
        if not self._items:
            return None
        if rng is None:
            rng = np.random.default_rng([_DRAWS, self._num_draws])
        self._num_draws += 1
        batch = self._drawn(num_items, rng, **kwargs)
        self._num_sampled += batch.count
        return batch

    def _drawn(self, num_items: int, rng: np.random.Generator, **kwargs: Any) -> Any:
        del kwargs
        return self._joined(rng.integers(len(self._items), size=num_items))

    def _joined(self, indices: Array) -> Any:
        items = [self._items[index] for index in indices.tolist()]
        return type(items[0]).concat_samples(items)

    def stats(self, debug: bool = False) -> dict[str, Any]:
        """How much was added, sampled and is stored."""
        del debug
        return {
            "added_count": self._num_added,
            "num_entries": len(self._items),
            "sampled_count": self._num_sampled,
            "est_size_bytes": sum(item.size_bytes() for item in self._items),
            "eviction_started": self._num_added >= self.capacity,
        }

    def get_state(self) -> State:
        """Everything, as dicts of arrays; the buffer goes on exactly from it."""
        return {
            "items": [dict(item) for item in self._items],
            "numbers": [
                self._next,
                self._num_added,
                self._added_since_wrap,
                self._num_sampled,
                self._num_draws,
            ],
            "batch_class": type(self._items[0]) if self._items else None,
        }

    def set_state(self, state: State) -> None:
        """Goes on where `get_state` was called."""
        make = state["batch_class"] or dict
        self._items = [make(item) for item in state["items"]]
        (
            self._next,
            self._num_added,
            self._added_since_wrap,
            self._num_sampled,
            self._num_draws,
        ) = state["numbers"]


class PrioritizedBatchReplayBuffer(BatchReplayBuffer):
    """Items drawn by their priorities (Schaul et al. 2016); new ones have the largest so far.

    Samples have the columns `weights` and `batch_indexes`, by which `update_priorities` is told.
    """

    def __init__(
        self,
        capacity: int = 10_000,
        storage_unit: Any = "timesteps",
        alpha: float = 1.0,
        **no_effect: Any,
    ) -> None:
        """An empty buffer; `alpha` ≥ 0 is the exponent of the priorities, see `ReplayError`."""
        super().__init__(capacity, storage_unit, **no_effect)
        if not alpha >= 0:
            raise ReplayError(f"alpha={alpha!r}: expected a number ≥ 0; 0 draws uniformly.")
        self._alpha, self._largest = float(alpha), 1.0
        self._priorities: list[float] = []

    def _put(self, item: Any, *, weight: float | None = None, **kwargs: Any) -> None:
        index = self._next
        super()._put(item, **kwargs)
        priority = self._largest if weight is None else float(weight)
        self._priorities[index : index + 1] = [priority**self._alpha]

    def _drawn(
        self, num_items: int, rng: np.random.Generator, *, beta: float = 0.4, **kwargs: Any
    ) -> Any:
        del kwargs
        shares = np.array(self._priorities) / sum(self._priorities)
        indices = rng.choice(len(self._items), size=num_items, p=shares)
        weights = (len(self._items) * shares) ** -beta
        weights /= weights.max()
        batch = self._joined(indices)
        counts = [self._items[index].count for index in indices.tolist()]
        batch["weights"] = np.repeat(weights[indices], counts)
        batch["batch_indexes"] = np.repeat(indices, counts)
        return batch

    def update_priorities(self, batch_indexes: Any, priorities: Any) -> None:
        """Says how much items are worth: > 0 each.

        Raises:
            ReplayError: an index does not exist, or a priority is not above 0.
        """
        pairs = list(zip(np.ravel(batch_indexes), np.ravel(priorities), strict=True))
        for index, priority in pairs:
            if not (0 <= index < len(self._items) and priority > 0):
                raise ReplayError(
                    f"The priority {priority} of item {index}: expected a number above 0, and one "
                    f"of {len(self._items)} items."
                )
        for index, priority in pairs:
            self._priorities[int(index)] = float(priority) ** self._alpha
            self._largest = max(self._largest, float(priority))

    def get_state(self) -> State:
        return {
            **super().get_state(),
            "priorities": list(self._priorities),
            "largest": self._largest,
        }

    def set_state(self, state: State) -> None:
        super().set_state(state)
        self._priorities, self._largest = list(state["priorities"]), state["largest"]


def _has_ended(episode: Any) -> bool:
    """Whether the last row ends its episode; `dones` is the old name of it."""
    if "dones" in episode:
        return bool(np.asarray(episode["dones"])[-1])
    return bool(episode.is_terminated_or_truncated())

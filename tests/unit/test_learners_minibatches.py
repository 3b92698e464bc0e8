"""The order of rows in minibatches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.learners import minibatches, num_minibatches
from trainer.seeding import learner_rng


def rows_of(
    num_rows: int, size: int, epochs: int, rng: np.random.Generator | None = None
) -> list[list[int]]:
    pairs = np.arange(2 * num_rows).reshape(num_rows, 2)
    wide = np.repeat(np.arange(num_rows)[:, None], 1024, axis=1)
    columns = {"number": np.arange(num_rows), "pair": pairs, "nested": {"wide": wide}}
    taken = []
    for batch in minibatches(columns, minibatch_size=size, num_epochs=epochs, rng=rng):
        assert (batch["pair"][:, 0] == 2 * batch["number"]).all()
        assert (batch["nested"]["wide"] == batch["number"][:, None]).all()
        taken.append(batch["number"].tolist())
    return taken


@pytest.mark.parametrize(
    ("num_rows", "size", "epochs", "expected"),
    [
        (4, 2, 1, [[0, 1], [2, 3]]),
        (5, 2, 1, [[0, 1], [2, 3], [4, 0]]),
        (5, 2, 2, [[0, 1], [2, 3], [4, 0], [1, 2], [3, 4]]),
        (3, 3, 2, [[0, 1, 2], [0, 1, 2]]),
        (2, 5, 1, [[0, 1, 0, 1, 0]]),
        (2, 3, 4, [[0, 1, 0], [1, 0, 1], [0, 1, 0]]),
    ],
)
def test_last_minibatch_goes_on_at_the_beginning(
    num_rows: int, size: int, epochs: int, expected: list[list[int]]
) -> None:
    assert rows_of(num_rows, size, epochs) == expected


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 30), st.integers(1, 40), st.integers(1, 5), st.integers(0, 99))
def test_every_pass_holds_every_row_once(num_rows: int, size: int, epochs: int, seed: int) -> None:
    taken = rows_of(num_rows, size, epochs, learner_rng(seed, 0))
    assert len(taken) == num_minibatches(num_rows, minibatch_size=size, num_epochs=epochs)
    assert all(len(batch) == size for batch in taken)
    stream = [row for batch in taken for row in batch]
    assert len(stream) >= num_rows * epochs > len(stream) - size
    for epoch in range(epochs):
        once = stream[epoch * num_rows : (epoch + 1) * num_rows]
        assert sorted(once) == list(range(num_rows))


def test_every_pass_has_another_order() -> None:
    first, second = rows_of(50, 50, 2, learner_rng(0, 0))
    assert first != second
    assert first != sorted(first)


def test_order_is_a_function_of_seed_and_update() -> None:
    assert rows_of(20, 6, 3, learner_rng(7, 2)) == rows_of(20, 6, 3, learner_rng(7, 2))
    assert rows_of(20, 6, 3, learner_rng(7, 2)) != rows_of(20, 6, 3, learner_rng(7, 3))
    assert rows_of(20, 6, 3, learner_rng(7, 2)) != rows_of(20, 6, 3, learner_rng(8, 2))


def test_columns_are_not_changed() -> None:
    column = np.arange(10)
    for batch in minibatches({"a": column}, minibatch_size=3, num_epochs=2, rng=learner_rng(0, 0)):
        batch["a"][:] = -1
    assert column.tolist() == list(range(10))

"""Encoded observations."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.connectors import ObservationEncoder
from trainer.errors import EnvContractError, UnsupportedSpaceError

SPACES: list[gym.Space[Any]] = [
    spaces.Box(-1.0, 1.0, (4,)),
    spaces.Box(-1.0, 1.0, (2, 3), np.float64),
    spaces.Box(0, 255, (5,), np.uint8),
    spaces.Discrete(3),
    spaces.MultiDiscrete([2, 3]),
    spaces.MultiBinary(4),
    spaces.Dict(
        {"b": spaces.Discrete(3), "a": spaces.Tuple([spaces.Box(-1, 1, (2,)), spaces.Discrete(2)])}
    ),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**31), count=st.integers(1, 9))
def test_encoding_is_gymnasiums_flattening(space: gym.Space[Any], seed: int, count: int) -> None:
    space.seed(seed)
    observations = [space.sample() for _ in range(count)]
    rows = ObservationEncoder(space).encode(observations)
    expected = np.stack([np.asarray(spaces.flatten(space, obs)) for obs in observations])
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(rows, expected.astype(np.float32))


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_batch_of_arrays_is_encoded_like_a_list(space: gym.Space[Any]) -> None:
    space.seed(0)
    observations = [space.sample() for _ in range(5)]

    def batched(items: list[Any]) -> Any:
        if isinstance(items[0], dict):
            return {key: batched([item[key] for item in items]) for key in items[0]}
        if isinstance(items[0], tuple):
            return tuple(batched([item[i] for item in items]) for i in range(len(items[0])))
        return np.array(items)

    encoder = ObservationEncoder(space)
    rows = encoder.encode(observations).copy()
    batch_rows = encoder.encode(batched(observations))
    np.testing.assert_array_equal(batch_rows, rows)
    encoder.encode(observations[::-1])
    np.testing.assert_array_equal(batch_rows, rows)  # a batch has memory of its own


def test_discrete_space_with_another_start() -> None:
    rows = ObservationEncoder(spaces.Discrete(3, start=-1)).encode([-1, 1])
    assert rows.tolist() == [[1, 0, 0], [0, 0, 1]]


def test_no_observation_gives_no_row() -> None:
    assert ObservationEncoder(SPACES[0]).encode([]).shape == (0, 4)


def test_observations_outside_the_space_are_shown() -> None:
    good = np.zeros(4, np.float32)
    with pytest.raises(EnvContractError, match=r"\[9\., 9\., 9\.\]"):
        ObservationEncoder(SPACES[0]).encode([good, np.full(3, 9.0)])
    for bad in (3, -1):
        with pytest.raises(EnvContractError, match=rf": {bad}\."):
            ObservationEncoder(spaces.Discrete(3)).encode([1, bad])
    with pytest.raises(EnvContractError, match="does not belong"):
        ObservationEncoder(SPACES[-1]).encode([{"b": 1}])


def test_space_that_cannot_be_encoded_says_what_can() -> None:
    with pytest.raises(UnsupportedSpaceError, match="Possible are Box"):
        ObservationEncoder(spaces.Dict({"text": spaces.Text(5)}))

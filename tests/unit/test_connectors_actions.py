"""Actions on their way to the env."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from trainer.connectors import ActionDecoder
from trainer.errors import UnsupportedSpaceError

BOUNDED = spaces.Box(np.array([0.0, -10.0], np.float32), np.array([4.0, 10.0], np.float32))
MIXED = spaces.Box(
    np.array([0.0, -np.inf, -1.0], np.float32), np.array([4.0, np.inf, np.inf], np.float32)
)


def test_normalized_actions_are_scaled_to_the_bounds_and_clipped() -> None:
    decoder = ActionDecoder(BOUNDED, normalize_actions=True)
    for action, expected in (
        ([-1.0, -1.0], [0.0, -10.0]),
        ([0.0, 0.0], [2.0, 0.0]),
        ([1.0, 0.5], [4.0, 5.0]),
        ([3.0, -3.0], [4.0, -10.0]),
    ):
        decoded = decoder.to_env(np.array(action, np.float32))
        assert decoded.tolist() == expected
        assert decoded.dtype == np.float32
        assert BOUNDED.contains(decoded)


def test_dimensions_without_bounds_stay_unchanged() -> None:
    decoder = ActionDecoder(MIXED, normalize_actions=True)
    decoded = decoder.to_env(np.array([0.5, 77.0, -5.0], np.float32))
    assert decoded.tolist() == [3.0, 77.0, -1.0]


def test_clip_actions_only_clips() -> None:
    decoder = ActionDecoder(BOUNDED, normalize_actions=False, clip_actions=True)
    assert decoder.to_env(np.array([0.5, 77.0], np.float32)).tolist() == [0.5, 10.0]


def test_rows_are_decoded_by_themselves() -> None:
    decoder = ActionDecoder(MIXED)
    rows = np.random.default_rng(0).standard_normal((7, 3)).astype(np.float32)
    together = decoder.to_env(rows)
    for index, row in enumerate(rows):
        assert decoder.to_env(row).tobytes() == together[index].tobytes()


def test_env_space_in_float64_gets_float64() -> None:
    space = spaces.Box(-2.0, 2.0, (1,), np.float64)
    decoded = ActionDecoder(space).to_env(np.array([0.25], np.float32))
    assert decoded.dtype == np.float64
    assert decoded.tolist() == [0.5]


def test_start_of_discrete_spaces_is_added() -> None:
    assert ActionDecoder(spaces.Discrete(3, start=5)).to_env(2) == 7
    decoder = ActionDecoder(spaces.MultiDiscrete([2, 3], start=[1, 0]))
    assert decoder.to_env(np.array([0, 2])).tolist() == [1, 2]


def test_identity_is_known_and_returns_the_same_object() -> None:
    unbounded = spaces.Box(-np.inf, np.inf, (2,))
    for decoder in (
        ActionDecoder(spaces.Discrete(3)),
        ActionDecoder(spaces.MultiDiscrete([2, 3])),
        ActionDecoder(unbounded, normalize_actions=True, clip_actions=True),
        ActionDecoder(BOUNDED, normalize_actions=False, clip_actions=False),
    ):
        action = np.array([9.0, 9.0], np.float32)
        assert decoder.is_identity
        assert decoder.to_env(action) is action
    assert not ActionDecoder(BOUNDED).is_identity
    assert not ActionDecoder(spaces.Discrete(3, start=1)).is_identity


def test_other_spaces_are_refused() -> None:
    with pytest.raises(UnsupportedSpaceError, match="possible are"):
        ActionDecoder(spaces.Box(0, 9, (2,), np.int64))

"""Nested values: rebuilt, walked, compared."""

from __future__ import annotations

from collections import namedtuple
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from checkpoints.trees import leaves, mapped, named_leaves, same

Pair = namedtuple("Pair", "left right")
NAN = float("nan")


class Plain:
    def __init__(self, size: int) -> None:
        self.size = size


class Raising:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")

    __hash__ = None  # type: ignore[assignment]


def test_a_copy_has_containers_of_its_own_and_changed_leaves() -> None:
    value = {"a": [1, (2, Pair(3, [4]))], "b": {}}
    made = mapped(lambda leaf: leaf * 10, value)
    assert made == {"a": [10, (20, Pair(30, [40]))], "b": {}}
    assert isinstance(made["a"][1][1], Pair)
    made["a"][1][1].right.append(5)
    assert value == {"a": [1, (2, Pair(3, [4]))], "b": {}}


def test_spaces_are_leaves_though_they_are_mappings() -> None:
    space = spaces.Dict({"a": spaces.Discrete(2)})
    assert mapped(lambda leaf: leaf, {"space": space})["space"] is space


def test_leaves_come_with_their_paths() -> None:
    tree = {"a": {"b": 1, "c": {}}, 2: {"d": [3]}, "e": MappingProxyType({"f": 4})}
    assert list(leaves(tree)) == [(("a", "b"), 1), ((2, "d"), [3]), (("e", "f"), 4)]
    assert dict(named_leaves(tree, keep_empty=True)) == {"a/b": 1, "a/c": {}, "2/d": [3], "e/f": 4}


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (1, 1.0, True),
        (True, 1, False),
        (np.bool_(True), True, True),
        (0.0, -0.0, False),
        (NAN, NAN, True),
        (np.float32(NAN), NAN, True),
        (np.zeros(2), np.zeros(2), True),
        (np.zeros(2), np.zeros(2, np.float32), False),
        (np.zeros(2), -np.zeros(2), False),
        (np.array([NAN]), np.array([NAN]), True),
        (np.zeros(1), 0.0, False),
        (np.array([[1], None], object), np.array([[1], None], object), True),
        ([1], (1,), False),
        ({"a": [1, {"b": NAN}]}, {"a": [1, {"b": NAN}]}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        (Plain(1), Plain(1), True),
        (Plain(1), Plain(2), False),
        (Raising(), Raising(), False),
        (spaces.Discrete(2), spaces.Discrete(2), True),
        (spaces.Dict({"a": spaces.Discrete(2)}), {"a": spaces.Discrete(2)}, False),
        (None, 0, False),
    ],
)
def test_what_is_the_same(left: Any, right: Any, expected: bool) -> None:
    assert same(left, right) is expected
    assert same(right, left) is expected

"""Nested values: rebuilt, walked, compared."""

import copy
import threading
from collections import namedtuple
from functools import partial
from types import MappingProxyType

import numpy as np
import pytest
from gymnasium import spaces

from trainer_toolkit.trees import leaves, mapped, named_leaves, same

Pair = namedtuple("Pair", "left right")
NAN = float("nan")


class Plain:
    def __init__(self, size):
        self.size = size


class Slotted:
    __slots__ = ("__dict__", "hidden")

    def __init__(self, hidden):
        self.hidden = hidden


class Reduced:
    """Its state is not in its attributes, as `__reduce__` says."""

    def __reduce__(self):
        return (Reduced, ())


class Called(Plain):
    def __call__(self):
        return self.size

    def other(self):
        return -self.size


CALLED = Called(1)


def one(number=1, **_):
    return number


def other(number=1):
    return -number


class Raising:
    def __eq__(self, other):
        raise RuntimeError("no")

    __hash__ = None


def test_a_copy_has_containers_of_its_own_and_changed_leaves():
    value = {"a": [1, (2, Pair(3, [4]))], "b": {}}
    made = mapped(lambda leaf: leaf * 10, value)
    assert made == {"a": [10, (20, Pair(30, [40]))], "b": {}}
    assert isinstance(made["a"][1][1], Pair)
    made["a"][1][1].right.append(5)
    assert value == {"a": [1, (2, Pair(3, [4]))], "b": {}}


def test_spaces_are_leaves_though_they_are_mappings():
    space = spaces.Dict({"a": spaces.Discrete(2)})
    assert mapped(lambda leaf: leaf, {"space": space})["space"] is space


def test_leaves_come_with_their_paths():
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
        (one, one, True),
        (one, other, False),
        (lambda: 1, lambda: 2, False),
        (Plain, Called, False),
        (partial(one, 1, more=[2]), partial(one, 1, more=[2]), True),
        (partial(one), partial(other), False),
        (partial(one, 1), partial(one, 2), False),
        (partial(one, number=1), partial(one, number=2), False),
        (partial(one, number=1), one, False),
        (Called(1), Called(1), True),
        (Called(1), Called(2), False),
        (CALLED.other, CALLED.other, True),
        (CALLED.other, CALLED.__call__, False),
        (CALLED.other, Called(2).other, False),
        (ValueError("a"), ValueError("b"), False),
        (threading.Lock(), threading.Lock(), False),
        (Slotted(1), Slotted(2), False),
        (Reduced(), Reduced(), False),
        (np.sin, np.cos, False),
        (threading, copy, False),
        (spaces.Discrete(2), spaces.Discrete(2), True),
        (spaces.Dict({"a": spaces.Discrete(2)}), {"a": spaces.Discrete(2)}, False),
        (None, 0, False),
    ],
)
def test_what_is_the_same(left, right, expected):
    assert same(left, right) is expected
    assert same(right, left) is expected


class Itself:
    def __init__(self):
        self.me = self


def test_what_contains_itself_is_compared_without_an_error():
    left = []
    right = []
    left.append(left)
    right.append(right)
    for one_of_them, another in [(left, right), (Itself(), Itself())]:
        assert same(one_of_them, one_of_them)
        assert not same(one_of_them, another)
        assert not same({"a": [one_of_them]}, {"a": [another]})


def test_what_cannot_be_read_is_not_known_to_be_the_same():
    class Unreadable:
        def __array__(self, *_, **__):
            raise RuntimeError("no")

    assert not same(Unreadable(), Unreadable())
    assert not same(np.zeros(1), Unreadable())


def test_tensors_are_compared_like_arrays_whether_they_have_gradients_or_not():
    torch = pytest.importorskip("torch")
    ones, zeros = torch.ones(2, requires_grad=True), torch.zeros(2, requires_grad=True)
    assert same(ones, torch.ones(2, requires_grad=True))
    assert not same(ones, zeros)
    assert not same(ones, None)
    assert same(torch.ones(2), torch.ones(2))

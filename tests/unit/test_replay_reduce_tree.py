"""Trees of sums and minima, compared with the whole array."""

import copy
import math
import pickle

import numpy as np
import pytest

from trainer.replay.replay_buffer import BRANCHES, TOP, ReduceTree, SumTree

SIZES = (1, 2, BRANCHES - 1, BRANCHES, BRANCHES + 1, TOP - 1, TOP, TOP + 1, 32 * TOP, 32 * TOP + 1)


def sums(size):
    return SumTree(size)


def minima(size):
    return ReduceTree(size, reduction=np.minimum, identity=math.inf)


def updated(tree, size):
    """Changes a tree many times, and gives what its leaves must be."""
    rng = np.random.default_rng(size)
    leaves = tree.leaves.copy()
    for _ in range(60):
        places = rng.integers(0, size, rng.integers(1, 40))
        values = 10.0 ** rng.uniform(-6, 6, len(places))
        values[rng.random(len(places)) < 0.2] = 0.0
        tree.set(places, values)
        for place, value in zip(places, values, strict=True):
            leaves[place] = value
    return leaves


def copied(size):
    return copy.deepcopy(sums(size))


def unpickled(size):
    return pickle.loads(pickle.dumps(sums(size)))


@pytest.mark.parametrize("make", [sums, minima, copied, unpickled])
@pytest.mark.parametrize("size", SIZES)
def test_an_updated_tree_has_the_bits_of_a_new_one(make, size):
    tree, fresh = make(size), minima(size) if make is minima else sums(size)
    leaves = updated(tree, size)
    fresh.set(np.arange(size), leaves)
    assert tree.leaves.tobytes() == leaves.tobytes()
    assert tree.root() == fresh.root()
    ours, theirs = tree.__dict__["_above"], fresh.__dict__["_above"]
    assert [level.tobytes() for level in ours] == [level.tobytes() for level in theirs]


@pytest.mark.parametrize("size", SIZES)
def test_roots_are_the_sum_and_the_minimum(size):
    tree, smallest = sums(size), minima(size)
    assert (tree.root(), smallest.root()) == (0.0, math.inf)
    assert math.isclose(float(updated(tree, size).sum()), tree.root(), rel_tol=1e-12)
    assert updated(smallest, size).min() == smallest.root()


@pytest.mark.parametrize("size", SIZES)
def test_places_are_found_where_the_running_sum_passes_the_share(size):
    tree = SumTree(size)
    rng = np.random.default_rng(size)
    # Whole numbers, so that running sums are exact and the answer is beyond doubt.
    leaves = rng.integers(0, 4, size).astype(np.float64)
    leaves[rng.integers(0, size)] = 7.0
    tree.set(np.arange(size), leaves)
    total = leaves.sum()
    shares = np.concatenate([rng.random(500), [0.0, 0.5, math.nextafter(1.0, 0.0)]])
    expected = np.cumsum(leaves).searchsorted(shares * total, side="right")
    assert tree.find(shares).tolist() == expected.tolist()


@pytest.mark.parametrize("size", SIZES)
def test_places_of_weight_0_are_never_found(size):
    tree = SumTree(size)
    rng = np.random.default_rng(size)
    some = rng.integers(0, size, max(1, size // 50))
    tree.set(some, 10.0 ** rng.uniform(-12, 12, len(some)))
    shares = np.concatenate([np.linspace(0, 1, 2000), [math.nextafter(1.0, 0.0)]])
    assert (tree.leaves[tree.find(shares)] > 0).all()


def test_of_a_place_named_twice_the_last_value_counts():
    tree = SumTree(2000)
    tree.set(np.array([5, 5, 1999]), np.array([1.0, 2.0, 4.0]))
    assert (tree.leaves[5], tree.root()) == (2.0, 6.0)


def test_a_share_beyond_the_running_sum_of_a_family_finds_a_place_with_weight():
    # Added one by one, the small numbers vanish beside the 1; a node adds them in another order.
    leaves = np.full(BRANCHES, 1e-16)
    leaves[:2] = 0.0, 1.0
    tree = SumTree(TOP + 1)
    tree.set(np.arange(BRANCHES), leaves)
    assert tree.root() > np.add.accumulate(leaves)[-1]
    assert tree.find(np.array([math.nextafter(1.0, 0.0)])).tolist() == [1]

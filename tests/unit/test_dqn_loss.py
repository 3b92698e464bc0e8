"""The losses of DQN against known answers and central differences."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.algorithms.dqn.dqn import (
    distributional_loss,
    projected_distribution,
    softmax,
    td_loss,
    td_targets,
)
from trainer.testing.checks import gradient_check
from trainer.types import Array

ACTIONS = np.array([0, 2, 1, 2])
WEIGHTS = np.array([1.0, 0.25, 0.5, 0.0])


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def test_targets_are_rewards_and_discounted_values() -> None:
    targets = td_targets(np.array([1.0, 1.0]), np.array([0.5, 0.0]), np.array([4.0, 4.0]))
    assert targets.tolist() == [3.0, 1.0]


@pytest.mark.parametrize(
    ("kind", "losses", "slopes"),
    [
        # Errors of 0.5, 3 and -2.
        ("huber", [0.125, 2.5, 1.5], [0.5, 1.0, -1.0]),
        ("mse", [0.25, 9.0, 4.0], [1.0, 6.0, -4.0]),
    ],
)
def test_the_loss_of_single_errors_is_known(
    kind: str, losses: list[float], slopes: list[float]
) -> None:
    q_values = np.array([[0.5, 9.0], [9.0, 3.0], [-2.0, 9.0]])
    actions, targets = np.array([0, 1, 0]), np.zeros(3)
    for row in range(3):
        weights = np.eye(3)[row]
        loss = td_loss(q_values, actions, targets, weights, kind=kind)
        assert loss.total_loss == pytest.approx(losses[row] / 3)
        expected = np.zeros((3, 2))
        expected[row, actions[row]] = slopes[row] / 3
        np.testing.assert_allclose(loss.d_outputs, expected)
    assert loss.td_errors.tolist() == loss.q_selected.tolist() == [0.5, 3.0, -2.0]


@pytest.mark.parametrize("kind", ["huber", "mse"])
def test_the_gradient_of_values_agrees_with_differences(kind: str) -> None:
    q_values, targets = 3.0 * numbers(4, 3), numbers(4, seed=1)

    def total(q: Array) -> float:
        return td_loss(q, ACTIONS, targets, WEIGHTS, kind=kind).total_loss

    loss = td_loss(q_values, ACTIONS, targets, WEIGHTS, kind=kind)
    assert np.abs(loss.td_errors[:3]).min() < 1 < np.abs(loss.td_errors[:3]).max()
    gradient_check(total, loss.d_outputs, q_values)
    with pytest.raises(AssertionError, match="central differences give"):
        gradient_check(total, 1.001 * loss.d_outputs, q_values)


def test_the_gradient_of_distributions_agrees_with_differences() -> None:
    atoms = np.linspace(-1.0, 1.0, 5)
    logits, target = numbers(4, 3, 5), softmax(numbers(4, 5, seed=1))

    def total(flat: Array) -> float:
        return distributional_loss(flat, ACTIONS, target, WEIGHTS, atoms=atoms).total_loss

    loss = distributional_loss(logits, ACTIONS, target, WEIGHTS, atoms=atoms)
    gradient_check(total, loss.d_outputs.reshape(logits.shape), logits)


def test_the_cross_entropy_is_that_of_the_action_taken() -> None:
    logits = np.log(np.array([[[0.5, 0.5], [0.25, 0.75]]]))
    target = np.array([[0.0, 1.0]])
    loss = distributional_loss(
        logits, np.array([1]), target, np.ones(1), atoms=np.array([0.0, 4.0])
    )
    assert loss.total_loss == pytest.approx(-np.log(0.75))
    assert loss.td_errors == pytest.approx(-np.log(0.75))
    assert loss.q_selected == pytest.approx(3.0)
    np.testing.assert_allclose(loss.d_outputs, [[0.0, 0.0, 0.25, -0.25]])


def test_a_shift_of_the_logits_changes_no_distribution() -> None:
    logits = numbers(2, 3)
    np.testing.assert_allclose(softmax(logits + 1e4), softmax(logits), rtol=1e-9)
    assert np.isfinite(softmax(np.array([[-1e30, 0.0, 1e30]]))).all()


ATOMS = np.array([0.0, 1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("reward", "discount", "probs", "expected"),
    [
        # Between two atoms, shared out by distance.
        (0.25, 1.0, [0, 1, 0, 0], [0, 0.75, 0.25, 0]),
        # On an atom, and on the last one.
        (1.0, 1.0, [0, 1, 0, 0], [0, 0, 1, 0]),
        (0.0, 1.0, [0, 0, 0, 1], [0, 0, 0, 1]),
        # Clipped at both ends.
        (-9.0, 1.0, [0.5, 0.5, 0, 0], [1, 0, 0, 0]),
        (9.0, 1.0, [0.5, 0.5, 0, 0], [0, 0, 0, 1]),
        # After the end of an episode only the reward counts.
        (1.5, 0.0, [0.1, 0.2, 0.3, 0.4], [0, 0.5, 0.5, 0]),
        # Discounted: 0.5 z is 0, 0.5, 1, 1.5.
        (0.0, 0.5, [0.25] * 4, [0.375, 0.5, 0.125, 0]),
    ],
)
def test_the_projection_onto_atoms_by_hand(
    reward: float, discount: float, probs: list[float], expected: list[float]
) -> None:
    projected = projected_distribution(
        np.array([reward]), np.array([discount]), np.array([probs], float), ATOMS
    )
    np.testing.assert_allclose(projected, [expected])


_FINITE = st.floats(-50.0, 50.0)


@settings(deadline=None, max_examples=60)
@given(
    reward=_FINITE,
    discount=st.floats(0.0, 1.0),
    weights=st.lists(st.floats(0.01, 1.0), min_size=7, max_size=7),
    low=st.floats(-20.0, 0.0),
    width=st.floats(0.1, 40.0),
)
def test_the_projection_keeps_mass_and_inside_the_range_the_mean(
    reward: float, discount: float, weights: list[float], low: float, width: float
) -> None:
    atoms = np.linspace(low, low + width, 7)
    probs = np.array([weights]) / sum(weights)
    projected = projected_distribution(np.array([reward]), np.array([discount]), probs, atoms)
    assert (projected >= -1e-12).all()
    assert projected.sum() == pytest.approx(1.0)
    clipped = np.clip(reward + discount * atoms, atoms[0], atoms[-1])
    assert float(projected[0] @ atoms) == pytest.approx(float(probs[0] @ clipped), abs=1e-9)


def test_float32_stays_float32() -> None:
    q_values = numbers(4, 3).astype(np.float32)
    ones = np.ones(4, np.float32)
    loss = td_loss(q_values, ACTIONS, td_targets(ones, ones, ones), ones, kind="huber")
    assert loss.td_errors.dtype == loss.d_outputs.dtype == np.float32
    atoms, probs = ATOMS.astype(np.float32), np.full((4, 4), 0.25, np.float32)
    projected = projected_distribution(ones, ones, probs, atoms)
    logits = numbers(4, 3, 4).astype(np.float32)
    atom_loss = distributional_loss(logits, ACTIONS, projected, ones, atoms=atoms)
    assert atom_loss.d_outputs.dtype == projected.dtype == np.float32

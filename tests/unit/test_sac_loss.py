"""SAC's losses on arrays: known answers, fixed points, gradients."""

import numpy as np
import pytest

from trainer.algorithms.sac.sac import discrete_policy_loss, temperature_loss
from trainer.learners import critic_loss, td_targets
from trainer.nn import Categorical

RNG = np.random.default_rng(5)


def test_targets_are_rewards_plus_discounted_values():
    rewards, discounts, values = np.array([1.0, 2.0]), np.array([0.5, 0.0]), np.array([4.0, 9.0])
    assert td_targets(rewards, discounts, values).tolist() == [3.0, 2.0]


def test_huber_is_a_parabola_near_0_and_straight_beyond_1():
    loss = critic_loss(
        np.array([0.5, 3.0]), np.array([0.0, 0.0]), np.array([1.0, 1.0]), kind="huber"
    )
    # 0.5² / 2 = 0.125 and 3 - 1/2 = 2.5, half each.
    assert loss.loss == pytest.approx(0.5 * (0.125 + 2.5))
    assert loss.d_q.tolist() == [0.25, 0.5]
    assert loss.td_errors.tolist() == [0.5, 3.0]


def test_squared_errors_count_in_full():
    loss = critic_loss(np.array([0.5, 3.0]), np.zeros(2), np.ones(2), kind="mse")
    assert loss.loss == 0.5 * (0.25 + 9.0)
    assert loss.d_q.tolist() == [0.5, 3.0]


def test_weights_count_rows():
    once = critic_loss(np.array([0.5, 3.0]), np.zeros(2), np.array([2.0, 0.0]), kind="huber")
    assert once.loss == pytest.approx(0.125)
    assert once.d_q.tolist() == [0.5, 0.0]


def test_the_best_discrete_policy_is_the_softmax_of_values_over_temperature():
    q, alpha = np.array([[1.0, 2.0, -0.5]]), 0.7
    best = Categorical(3).canonical(q / alpha)
    loss = discrete_policy_loss(best, q, alpha=alpha)
    np.testing.assert_allclose(loss.d_logits, 0.0, atol=1e-15)
    # The minimum is minus the soft value α log Σ exp(Q/α).
    assert loss.loss == pytest.approx(-alpha * np.log(np.exp(q / alpha).sum()))
    assert loss.logp[0] == pytest.approx(float((np.exp(best) * best).sum()))


def test_an_impossible_action_has_no_gradient_and_no_influence():
    q = np.array([[1.0, 2.0, 50.0]])
    masked = discrete_policy_loss(
        Categorical(3).canonical(np.array([[0.3, 0.1, -1e30]])), q, alpha=0.5
    )
    without = discrete_policy_loss(
        Categorical(2).canonical(np.array([[0.3, 0.1]])), q[:, :2], alpha=0.5
    )
    assert masked.loss == pytest.approx(without.loss)
    np.testing.assert_allclose(masked.d_logits, [[*without.d_logits[0], 0.0]])


def test_the_temperature_rises_while_entropy_is_too_small():
    logp = np.array([1.0, 2.0])  # entropy -1.5
    loss, gradient = temperature_loss(logp, log_alpha=0.4, target_entropy=-1.0)
    assert gradient == pytest.approx(-0.5)  # descending along it raises log α
    assert loss == pytest.approx(0.4 * -0.5)
    assert temperature_loss(logp, log_alpha=0.4, target_entropy=-2.0)[1] == pytest.approx(0.5)
    assert temperature_loss(logp, log_alpha=0.4, target_entropy=-1.5)[1] == 0.0

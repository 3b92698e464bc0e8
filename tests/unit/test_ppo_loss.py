"""The PPO loss: values computed by hand, gradients against central differences."""

import dataclasses
import math

import numpy as np
import pytest

from trainer.algorithms.ppo.ppo import PPOCoefficients, PPOTargets, ppo_loss
from trainer.nn import Categorical, DiagGaussian
from trainer.seeding import NOISE_DRAWS
from trainer.testing.checks import gradient_check

NOTHING = PPOCoefficients(
    clip_param=0.2, vf_clip_param=math.inf, vf_loss_coeff=0.0, entropy_coeff=0.0, kl_coeff=0.0
)


def two_actions(probabilities):
    """Logits of policies that choose action 1 with these probabilities."""
    p = np.array(probabilities)
    return np.log(np.stack([1.0 - p, p], axis=1))


def loss_of(now, before, advantages, coefficients):
    """Action 1 was chosen everywhere; values are 1, 2, 3 ... and targets 0."""
    categorical = Categorical(2)
    reference = categorical.canonical(two_actions(before))
    terms = categorical.evaluate(two_actions(now), np.ones(len(now), np.int64), reference=reference)
    values = np.arange(1.0, len(now) + 1.0)
    targets = PPOTargets(np.log(np.array(before)), np.array(advantages), np.zeros(len(now)))
    return ppo_loss(targets, terms=terms, values=values, coefficients=coefficients)


def test_surrogate_takes_the_pessimistic_side():
    # ratios 1.1 (inside), 2 and .5 (outside) with advantages of both signs, clip at 0.8 and 1.2
    loss = loss_of(
        [0.55, 0.8, 0.8, 0.2, 0.2], [0.5, 0.4, 0.4, 0.4, 0.4], [1.0, 1.0, -1.0, 1.0, -1.0], NOTHING
    )
    expected = [1.1, 1.2, -2.0, 0.5, -0.8]
    assert loss.policy_loss == pytest.approx(-sum(expected) / 5)
    assert loss.total_loss == loss.policy_loss
    has_gradient = (loss.d_action_dist_inputs != 0.0).any(axis=1)
    assert has_gradient.tolist() == [True, False, True, True, False]


def test_value_loss_is_clipped_and_its_gradient_gone():
    coefficients = dataclasses.replace(NOTHING, vf_loss_coeff=0.5, vf_clip_param=5.0)
    loss = loss_of([0.5] * 3, [0.5] * 3, [0.0] * 3, coefficients)
    assert loss.vf_loss == pytest.approx((1.0 + 4.0 + 5.0) / 3)
    assert loss.vf_loss_unclipped == pytest.approx((1.0 + 4.0 + 9.0) / 3)
    assert loss.total_loss == pytest.approx(0.5 * loss.vf_loss)
    np.testing.assert_allclose(loss.d_vf_preds, [1.0 / 3, 2.0 / 3, 0.0])


def test_entropy_and_divergence_have_their_closed_forms():
    coefficients = dataclasses.replace(NOTHING, entropy_coeff=0.1, kl_coeff=0.3)
    loss = loss_of([0.75], [0.5], [0.0], coefficients)
    entropy = -0.25 * math.log(0.25) - 0.75 * math.log(0.75)
    divergence = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    assert loss.entropy == pytest.approx(entropy)
    assert loss.mean_kl_loss == pytest.approx(divergence)
    assert loss.total_loss == pytest.approx(-0.1 * entropy + 0.3 * divergence)


def test_clipped_infinite_ratio_has_no_gradient_and_an_unclipped_one_is_seen():
    categorical = Categorical(2)
    terms = categorical.evaluate(two_actions([0.5]), np.array([1]))
    with np.errstate(over="ignore", invalid="ignore"):
        for advantage, is_finite in ((1.0, True), (-1.0, False)):
            targets = PPOTargets(np.array([-1e5]), np.array([advantage]), np.zeros(1))
            loss = ppo_loss(targets, terms=terms, values=np.zeros(1), coefficients=NOTHING)
            assert math.isfinite(loss.total_loss) is is_finite
            assert np.isfinite(loss.d_action_dist_inputs).all() == is_finite


def test_nan_advantage_reaches_the_loss():
    assert math.isnan(loss_of([0.5], [0.5], [math.nan], NOTHING).total_loss)


COEFFICIENTS = {
    "policy": NOTHING,
    "value": dataclasses.replace(NOTHING, vf_loss_coeff=0.7, vf_clip_param=0.5),
    "entropy": dataclasses.replace(NOTHING, entropy_coeff=0.3),
    "kl": dataclasses.replace(NOTHING, kl_coeff=0.4),
    "all": PPOCoefficients(0.2, 0.5, 0.7, 0.3, 0.4),
}


def example(distribution):
    """Inputs, values, actions, reference, targets; many ratios and value errors are clipped."""
    rng = np.random.default_rng(6)
    before = 0.5 * rng.standard_normal((12, distribution.num_inputs))
    inputs = before + 0.3 * rng.standard_normal(before.shape)
    noise = NOISE_DRAWS[distribution.noise_kind](rng, (12, distribution.noise_width))
    actions = distribution.sample(before, noise)
    logp = distribution.logp(before, actions)
    targets = PPOTargets(logp, rng.standard_normal(12), rng.standard_normal(12))
    return inputs, rng.standard_normal(12), actions, distribution.canonical(before), targets


@pytest.mark.parametrize("distribution", [Categorical(3), DiagGaussian((2,))])
@pytest.mark.parametrize("part", COEFFICIENTS)
def test_gradients_agree_with_differences(distribution, part):
    coefficients = COEFFICIENTS[part]
    inputs, values, actions, reference, targets = example(distribution)

    def loss_at(x, v):
        terms = distribution.evaluate(x, actions, reference=reference)
        return ppo_loss(targets, terms=terms, values=v, coefficients=coefficients)

    loss = loss_at(inputs, values)
    if part != "value":
        gradient_check(lambda x: loss_at(x, values).total_loss, loss.d_action_dist_inputs, inputs)
    if part in ("value", "all"):
        gradient_check(lambda v: loss_at(inputs, v).total_loss, loss.d_vf_preds, values)
    ratio = np.exp(distribution.logp(inputs, actions) - targets.action_logp)
    assert 0 < (np.abs(ratio - 1.0) > 0.2).sum() < 12, "both regions are tested"
    assert 0 < ((values - targets.value_targets) ** 2 > 0.5).sum() < 12, "both regions are tested"


def test_float32_in_gives_float32_gradients():
    inputs, values, actions, reference, targets = example(Categorical(3))
    inputs, values, reference = (part.astype(np.float32) for part in (inputs, values, reference))
    narrow = PPOTargets(*(part.astype(np.float32) for part in vars(targets).values()))
    terms = Categorical(3).evaluate(inputs, actions, reference=reference)
    loss = ppo_loss(narrow, terms=terms, values=values, coefficients=COEFFICIENTS["all"])
    assert loss.d_action_dist_inputs.dtype == loss.d_vf_preds.dtype == np.float32

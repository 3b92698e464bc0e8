"""Distributions against closed forms, frequencies and central differences."""

from __future__ import annotations

import math

import numpy as np
import pytest

from trainer.nn import ActionDistribution, Categorical, DiagGaussian, MultiCategorical
from trainer.seeding import NOISE_DRAWS
from trainer.testing.checks import gradient_check
from trainer.types import Array

QUARTER = np.array([[0.0, math.log(3.0)]])  # probabilities 1/4 and 3/4
HALF = np.array([[5.0, 5.0]])


def test_categorical_has_the_values_of_its_formulas() -> None:
    categorical = Categorical(2)
    assert categorical.logp(QUARTER, np.array([1]))[0] == pytest.approx(math.log(0.75), rel=1e-14)
    entropy = -0.25 * math.log(0.25) - 0.75 * math.log(0.75)
    assert categorical.entropy(QUARTER)[0] == pytest.approx(entropy, rel=1e-14)
    kl = 0.25 * math.log(0.25 / 0.5) + 0.75 * math.log(0.75 / 0.5)
    assert categorical.kl(QUARTER, HALF)[0] == pytest.approx(kl, rel=1e-14)
    assert categorical.deterministic(QUARTER).tolist() == [1]


def test_categorical_is_finite_for_extreme_logits() -> None:
    categorical = Categorical(3)
    logits = np.array([[1e4, -1e4, 0.0]], np.float32)
    actions = categorical.sample(logits, np.array([[-2.0, 9.0, 9.0]]))
    assert actions.tolist() == [0]
    assert categorical.logp(logits, actions).tolist() == [0.0]
    assert categorical.entropy(logits).tolist() == [0.0]


def test_action_of_probability_zero_is_never_drawn() -> None:
    logits = np.array([[-np.inf, 0.0, -1e30]], np.float32)
    for noise in NOISE_DRAWS["gumbel"](np.random.default_rng(0), (500, 1, 3)):
        assert Categorical(3).sample(logits, noise).tolist() == [1]


def test_categorical_samples_have_their_probabilities() -> None:
    probs = np.array([0.1, 0.2, 0.7])
    logits = np.tile(np.log(probs) + 5.0, (20_000, 1)).astype(np.float32)
    noise = NOISE_DRAWS["gumbel"](np.random.default_rng(0), (20_000, 3))
    actions = Categorical(3).sample(logits, noise)
    # Four standard deviations of a frequency of 20,000 draws.
    tolerance = 4.0 * np.sqrt(probs * (1.0 - probs) / 20_000)
    assert (np.abs(np.bincount(actions) / 20_000 - probs) < tolerance).all()
    # The negative control: other noise does not give these probabilities.
    wrong = Categorical(3).sample(logits, np.random.default_rng(0).random((20_000, 3)))
    assert (np.abs(np.bincount(wrong, minlength=3) / 20_000 - probs) > tolerance).any()


def test_gaussian_has_the_values_of_its_formulas() -> None:
    gaussian = DiagGaussian((1,))
    p, q = np.array([[0.5, math.log(2.0)]]), np.array([[-1.0, math.log(3.0)]])
    logp = -0.5 * 0.5**2 - math.log(2.0) - 0.5 * math.log(2.0 * math.pi)
    assert gaussian.logp(p, np.array([[1.5]]))[0] == pytest.approx(logp, rel=1e-14)
    entropy = math.log(2.0) + 0.5 * (1.0 + math.log(2.0 * math.pi))
    assert gaussian.entropy(p)[0] == pytest.approx(entropy, rel=1e-14)
    kl = math.log(3.0 / 2.0) + (4.0 + 1.5**2) / (2.0 * 9.0) - 0.5
    assert gaussian.kl(p, q)[0] == pytest.approx(kl, rel=1e-14)
    assert gaussian.deterministic(p).tolist() == [[0.5]]


def test_gaussian_samples_have_mean_and_standard_deviation() -> None:
    inputs = np.tile([1.0, -2.0, math.log(0.5), math.log(3.0)], (20_000, 1)).astype(np.float32)
    noise = np.random.default_rng(0).standard_normal((20_000, 2))
    gaussian = DiagGaussian((2,))
    actions = gaussian.sample(inputs, noise)
    assert actions.dtype == np.float32
    np.testing.assert_allclose(actions.mean(axis=0), [1.0, -2.0], atol=0.1)
    np.testing.assert_allclose(actions.std(axis=0), [0.5, 3.0], rtol=0.03)
    density = -0.5 * noise**2 - np.log([0.5, 3.0]) - 0.5 * math.log(2.0 * math.pi)
    np.testing.assert_allclose(gaussian.logp(inputs, actions), density.sum(axis=1), atol=1e-4)


def test_gaussian_actions_have_the_shape_of_the_space() -> None:
    gaussian = DiagGaussian((2, 3))
    inputs = np.zeros((5, 12), np.float32)
    actions = gaussian.sample(inputs, np.ones((5, 6)))
    assert actions.shape == gaussian.deterministic(inputs).shape == (5, 2, 3)
    np.testing.assert_allclose(actions, 1.0)


def test_extreme_log_std_is_clipped_and_gets_no_gradient() -> None:
    gaussian = DiagGaussian((1,), log_std_clip=2.0)
    inputs = np.array([[0.0, 50.0], [0.0, 1.0]])
    terms = gaussian.evaluate(inputs, np.array([[1.0], [1.0]]))
    assert terms.entropy[0] == pytest.approx(2.0 + 0.5 * (1.0 + math.log(2.0 * math.pi)))
    gradient = terms.backward(d_logp=np.ones(2), d_entropy=1.0)
    assert gradient[0, 1] == 0.0
    assert gradient[1, 1] != 0.0


def test_independent_choices_add_up() -> None:
    multi = MultiCategorical([2, 3])
    parts = Categorical(2), Categorical(3)
    rng = np.random.default_rng(0)
    p, q = rng.standard_normal((4, 5)), rng.standard_normal((4, 5))
    actions = multi.sample(p, np.array([[0.0, 9.0, 0.0, 0.0, 9.0]] * 4))
    assert actions.tolist() == [[1, 2]] * 4
    both = [parts[0].logp(p[:, :2], actions[:, 0]), parts[1].logp(p[:, 2:], actions[:, 1])]
    np.testing.assert_allclose(multi.logp(p, actions), both[0] + both[1], rtol=1e-12)
    entropy = parts[0].entropy(p[:, :2]) + parts[1].entropy(p[:, 2:])
    np.testing.assert_allclose(multi.entropy(p), entropy, rtol=1e-12)
    kl = parts[0].kl(p[:, :2], q[:, :2]) + parts[1].kl(p[:, 2:], q[:, 2:])
    np.testing.assert_allclose(multi.kl(p, q), kl, rtol=1e-12)
    assert multi.deterministic(p)[:, 1].tolist() == p[:, 2:].argmax(axis=1).tolist()


CASES: dict[str, ActionDistribution] = {
    "categorical": Categorical(4),
    "gaussian": DiagGaussian((3,), log_std_clip=1.5),
    "multi": MultiCategorical([2, 3]),
}


def example(name: str) -> tuple[ActionDistribution, Array, Array, Array]:
    """A distribution, inputs, actions, canonical reference; some log_std are clipped."""
    distribution = CASES[name]
    rng = np.random.default_rng(3)
    inputs = 1.2 * rng.standard_normal((6, distribution.num_inputs))
    noise = NOISE_DRAWS[distribution.noise_kind](rng, (6, distribution.noise_width))
    other = inputs + 0.5 * rng.standard_normal(inputs.shape)
    actions = distribution.sample(other, noise)
    return distribution, inputs, actions, distribution.canonical(other)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("part", ["logp", "entropy", "kl", "all"])
def test_gradients_agree_with_differences(name: str, part: str) -> None:
    distribution, inputs, actions, reference = example(name)
    rng = np.random.default_rng(4)
    scale = {key: float(part in (key, "all")) for key in ("logp", "entropy", "kl")}
    d_logp, d_entropy = scale["logp"] * rng.standard_normal(6), scale["entropy"] * 0.7
    d_kl = scale["kl"] * rng.standard_normal(6)

    def weighted_sum(x: Array) -> float:
        terms = distribution.evaluate(x, actions, reference=reference)
        assert terms.kl is not None
        return float((d_logp * terms.logp + d_entropy * terms.entropy + d_kl * terms.kl).sum())

    terms = distribution.evaluate(inputs, actions, reference=reference)
    gradient = terms.backward(d_logp=d_logp, d_entropy=d_entropy, d_kl=d_kl)
    gradient_check(weighted_sum, gradient, inputs)


@pytest.mark.parametrize("name", CASES)
def test_evaluate_agrees_with_the_single_functions(name: str) -> None:
    distribution, inputs, actions, reference = example(name)
    terms = distribution.evaluate(inputs, actions, reference=reference)
    np.testing.assert_allclose(terms.logp, distribution.logp(inputs, actions), rtol=1e-12)
    np.testing.assert_allclose(terms.entropy, distribution.entropy(inputs), rtol=1e-12)
    assert terms.kl is not None
    np.testing.assert_allclose(terms.kl, distribution.kl(reference, inputs), rtol=1e-9)
    assert distribution.evaluate(inputs, actions).kl is None
    np.testing.assert_allclose(distribution.canonical(reference), reference, atol=1e-14)


@pytest.mark.parametrize("name", CASES)
def test_divergence_from_itself_is_zero_and_otherwise_positive(name: str) -> None:
    distribution, inputs, _, reference = example(name)
    np.testing.assert_allclose(distribution.kl(inputs, inputs), 0.0, atol=1e-14)
    assert (distribution.kl(reference, inputs) > 0.0).all()

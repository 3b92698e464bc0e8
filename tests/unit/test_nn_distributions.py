"""Distributions against closed forms, frequencies and central differences."""

import math

import numpy as np
import pytest

from trainer.errors import EpisodeError
from trainer.nn import (
    Bernoulli,
    Categorical,
    DiagGaussian,
    MultiCategorical,
    ProductDistribution,
    from_uniform,
    uniform_width,
)
from trainer.nn.distributions import of_rows
from trainer.seeding import NOISE_DRAWS
from trainer.testing.checks import gradient_check

QUARTER = np.array([[0.0, math.log(3.0)]])  # probabilities 1/4 and 3/4
HALF = np.array([[5.0, 5.0]])


def test_categorical_has_the_values_of_its_formulas():
    categorical = Categorical(2)
    assert categorical.logp(QUARTER, np.array([1]))[0] == pytest.approx(math.log(0.75), rel=1e-14)
    entropy = -0.25 * math.log(0.25) - 0.75 * math.log(0.75)
    assert categorical.entropy(QUARTER)[0] == pytest.approx(entropy, rel=1e-14)
    kl = 0.25 * math.log(0.25 / 0.5) + 0.75 * math.log(0.75 / 0.5)
    assert categorical.kl(QUARTER, HALF)[0] == pytest.approx(kl, rel=1e-14)
    assert categorical.deterministic(QUARTER).tolist() == [1]


def test_categorical_is_finite_for_extreme_logits():
    categorical = Categorical(3)
    logits = np.array([[1e4, -1e4, 0.0]], np.float32)
    actions = categorical.sample(logits, np.array([[-2.0, 9.0, 9.0]]))
    assert actions.tolist() == [0]
    assert categorical.logp(logits, actions).tolist() == [0.0]
    assert categorical.entropy(logits).tolist() == [0.0]


def test_action_of_probability_zero_is_never_drawn():
    logits = np.array([[-np.inf, 0.0, -1e30]], np.float32)
    for noise in NOISE_DRAWS["gumbel"](np.random.default_rng(0), (500, 1, 3)):
        assert Categorical(3).sample(logits, noise).tolist() == [1]


def test_categorical_samples_have_their_probabilities():
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


def test_gaussian_has_the_values_of_its_formulas():
    gaussian = DiagGaussian((1,))
    p, q = np.array([[0.5, math.log(2.0)]]), np.array([[-1.0, math.log(3.0)]])
    logp = -0.5 * 0.5**2 - math.log(2.0) - 0.5 * math.log(2.0 * math.pi)
    assert gaussian.logp(p, np.array([[1.5]]))[0] == pytest.approx(logp, rel=1e-14)
    entropy = math.log(2.0) + 0.5 * (1.0 + math.log(2.0 * math.pi))
    assert gaussian.entropy(p)[0] == pytest.approx(entropy, rel=1e-14)
    kl = math.log(3.0 / 2.0) + (4.0 + 1.5**2) / (2.0 * 9.0) - 0.5
    assert gaussian.kl(p, q)[0] == pytest.approx(kl, rel=1e-14)
    assert gaussian.deterministic(p).tolist() == [[0.5]]


def test_gaussian_samples_have_mean_and_standard_deviation():
    inputs = np.tile([1.0, -2.0, math.log(0.5), math.log(3.0)], (20_000, 1)).astype(np.float32)
    noise = np.random.default_rng(0).standard_normal((20_000, 2))
    gaussian = DiagGaussian((2,))
    actions = gaussian.sample(inputs, noise)
    assert actions.dtype == np.float32
    np.testing.assert_allclose(actions.mean(axis=0), [1.0, -2.0], atol=0.1)
    np.testing.assert_allclose(actions.std(axis=0), [0.5, 3.0], rtol=0.03)
    density = -0.5 * noise**2 - np.log([0.5, 3.0]) - 0.5 * math.log(2.0 * math.pi)
    np.testing.assert_allclose(gaussian.logp(inputs, actions), density.sum(axis=1), atol=1e-4)


def test_gaussian_actions_have_the_shape_of_the_space():
    gaussian = DiagGaussian((2, 3))
    inputs = np.zeros((5, 12), np.float32)
    actions = gaussian.sample(inputs, np.ones((5, 6)))
    assert actions.shape == gaussian.deterministic(inputs).shape == (5, 2, 3)
    np.testing.assert_allclose(actions, 1.0)


def test_extreme_log_std_is_clipped_and_gets_no_gradient():
    gaussian = DiagGaussian((1,), log_std_clip=2.0)
    inputs = np.array([[0.0, 50.0], [0.0, 1.0]])
    terms = gaussian.evaluate(inputs, np.array([[1.0], [1.0]]))
    assert terms.entropy[0] == pytest.approx(2.0 + 0.5 * (1.0 + math.log(2.0 * math.pi)))
    gradient = terms.backward(d_logp=np.ones(2), d_entropy=1.0)
    assert gradient[0, 1] == 0.0
    assert gradient[1, 1] != 0.0


def test_independent_choices_add_up():
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


MIXED = {
    "arm": DiagGaussian((2,)),
    "hand": (Categorical(3), Bernoulli((2, 2))),
    "mode": MultiCategorical([2, 3, 2, 2], shape=(2, 2)),
}
CASES = {
    "categorical": Categorical(4),
    "gaussian": DiagGaussian((3,), log_std_clip=1.5),
    "multi": MultiCategorical([2, 3]),
    "bits": Bernoulli((3,)),
    "nested": ProductDistribution(MIXED),
    "gumbel only": ProductDistribution((Categorical(3), {"a": Categorical(2)})),
}


def example(name):
    """A distribution, inputs, actions, canonical reference; some log_std are clipped."""
    distribution = CASES[name]
    rng = np.random.default_rng(3)
    inputs = 1.2 * rng.standard_normal((6, distribution.num_inputs))
    noise = NOISE_DRAWS[distribution.noise_kind](rng, (6, distribution.noise_width))
    other = inputs + 0.5 * rng.standard_normal(inputs.shape)
    actions = distribution.sample(other, noise)
    distribution.check_actions(actions)
    return distribution, inputs, actions, distribution.canonical(other)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("part", ["logp", "entropy", "kl", "all"])
def test_gradients_agree_with_differences(name, part):
    distribution, inputs, actions, reference = example(name)
    rng = np.random.default_rng(4)
    scale = {key: float(part in (key, "all")) for key in ("logp", "entropy", "kl")}
    d_logp, d_entropy = scale["logp"] * rng.standard_normal(6), scale["entropy"] * 0.7
    d_kl = scale["kl"] * rng.standard_normal(6)

    def weighted_sum(x):
        terms = distribution.evaluate(x, actions, reference=reference)
        return float((d_logp * terms.logp + d_entropy * terms.entropy + d_kl * terms.kl).sum())

    terms = distribution.evaluate(inputs, actions, reference=reference)
    gradient = terms.backward(d_logp=d_logp, d_entropy=d_entropy, d_kl=d_kl)
    gradient_check(weighted_sum, gradient, inputs)


@pytest.mark.parametrize("name", CASES)
def test_evaluate_agrees_with_the_single_functions(name):
    distribution, inputs, actions, reference = example(name)
    terms = distribution.evaluate(inputs, actions, reference=reference)
    np.testing.assert_allclose(terms.logp, distribution.logp(inputs, actions), rtol=1e-12)
    np.testing.assert_allclose(terms.entropy, distribution.entropy(inputs), rtol=1e-12)
    np.testing.assert_allclose(terms.kl, distribution.kl(reference, inputs), rtol=1e-9)
    assert distribution.evaluate(inputs, actions).kl is None
    np.testing.assert_allclose(distribution.canonical(reference), reference, atol=1e-14)

    np.testing.assert_allclose(distribution.kl(inputs, inputs), 0.0, atol=1e-14)
    assert (distribution.kl(reference, inputs) > 0.0).all()


# ---- bits, nested actions and converted noise


def test_what_is_no_choice_is_refused():
    product = ProductDistribution({"hand": Categorical(2), "legs": MultiCategorical([2, 3])})
    legs = np.array([[1, 2], [0, 0]])
    for hand in ([0, 2], [-1, 0], [0.0, 1.0], [[0], [1]]):
        with pytest.raises(EpisodeError, match="expected integers from 0 to 1:"):
            product.check_actions({"hand": np.array(hand), "legs": legs})
    with pytest.raises(EpisodeError, match=r"hold \[2, 1\] in row 1; .* to \[1, 2\]:"):
        product.check_actions({"hand": np.array([0, 1]), "legs": legs[::-1, ::-1]})


def test_bits_have_the_values_of_their_formulas():
    bits = Bernoulli((2,))
    logits = np.array([[math.log(3.0), 0.0]])  # probabilities of a 1: 3/4 and 1/2
    logp = bits.logp(logits, np.array([[1, 0]]))
    assert logp[0] == pytest.approx(math.log(0.75) + math.log(0.5), rel=1e-14)
    entropy = -0.75 * math.log(0.75) - 0.25 * math.log(0.25) + math.log(2.0)
    assert bits.entropy(logits)[0] == pytest.approx(entropy, rel=1e-14)
    kl = 0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5)
    assert bits.kl(logits, np.zeros((1, 2)))[0] == pytest.approx(kl, rel=1e-13)
    assert bits.deterministic(logits).tolist() == [[1, 0]]
    assert bits.deterministic(logits).dtype == np.int8


def test_bits_are_finite_for_extreme_logits():
    bits = Bernoulli((2,))
    logits = np.array([[1e4, -1e4]], np.float32)
    actions = bits.sample(logits, np.array([[0.999, 0.0]]))
    assert actions.tolist() == [[1, 0]]
    assert bits.logp(logits, actions).tolist() == [0.0]
    assert bits.entropy(logits).tolist() == [0.0]
    assert bits.logp(logits, 1 - actions).tolist() == [-2e4]


def test_parts_of_a_product_add_up_and_keep_their_structure():
    product = ProductDistribution({"b": Categorical(2), "a": (DiagGaussian((1,)),)})
    assert (product.num_inputs, product.noise_width) == (4, 4)  # two uniforms for a normal number
    inputs = np.array([[0.3, -0.2, 0.5, 0.1]])
    actions = product.deterministic(inputs)
    assert list(actions) == ["b", "a"]
    assert actions["b"].tolist() == [0]
    assert actions["a"][0].tolist() == [[0.5]]
    parts = Categorical(2), DiagGaussian((1,))
    expected = parts[0].logp(inputs[:, :2], actions["b"])
    expected = expected + parts[1].logp(inputs[:, 2:], actions["a"][0])
    np.testing.assert_allclose(product.logp(inputs, actions), expected, rtol=1e-14)


def test_a_product_of_one_kind_draws_what_its_parts_draw():
    product = ProductDistribution((Categorical(3), Categorical(2)))
    assert product.noise_kind == "gumbel"
    rng = np.random.default_rng(0)
    inputs, noise = rng.standard_normal((50, 5)), NOISE_DRAWS["gumbel"](rng, (50, 5))
    first, second = product.sample(inputs, noise)
    assert first.tolist() == Categorical(3).sample(inputs[:, :3], noise[:, :3]).tolist()
    assert second.tolist() == Categorical(2).sample(inputs[:, 3:], noise[:, 3:]).tolist()


def test_a_mixed_product_draws_with_the_right_frequencies_and_moments():
    product = ProductDistribution((Categorical(3), DiagGaussian((3,)), Bernoulli((1,))))
    assert product.noise_kind == "uniform"
    row = [0.0, 1.0, -1.0, 1.0, -2.0, 0.0, 0.0, math.log(2.0), -1.0, math.log(3.0)]
    inputs = np.tile(row, (20_000, 1))
    noise = np.random.default_rng(0).random((20_000, product.noise_width))
    choice, number, bit = product.sample(inputs, noise)
    probs = np.exp(row[:3]) / np.exp(row[:3]).sum()
    np.testing.assert_allclose(np.bincount(choice) / 20_000, probs, atol=0.015)
    np.testing.assert_allclose(number.mean(axis=0), [1.0, -2.0, 0.0], atol=0.06)
    np.testing.assert_allclose(number.std(axis=0), [1.0, 2.0, math.exp(-1.0)], rtol=0.03)
    assert bit.mean() == pytest.approx(0.75, abs=0.015)
    correlations = np.corrcoef(np.stack([choice, *number.T, bit[:, 0]]))
    assert np.abs(correlations - np.eye(5)).max() < 0.03


@pytest.mark.parametrize(("kind", "mean", "std"), [("gumbel", 0.5772, 1.2825), ("normal", 0, 1)])
def test_converted_noise_has_the_moments_of_its_kind(kind, mean, std):
    uniform = np.random.default_rng(0).random((20_000, uniform_width(kind, 3)))
    noise = from_uniform(uniform, kind=kind, width=3)
    assert noise.shape == (20_000, 3)
    np.testing.assert_allclose(noise.mean(axis=0), mean, atol=0.04)
    np.testing.assert_allclose(noise.std(axis=0), std, rtol=0.03)
    # A drawn sample of that kind has the same quantiles.
    drawn = NOISE_DRAWS[kind](np.random.default_rng(1), (20_000, 3))
    levels = np.linspace(0.01, 0.99, 25)
    quantiles = np.quantile(noise, levels), np.quantile(drawn, levels)
    np.testing.assert_allclose(*quantiles, atol=0.06)


@pytest.mark.parametrize("kind", ["gumbel", "normal", "uniform"])
def test_converted_noise_is_finite_at_the_ends(kind):
    ends = np.array([[0.0, 1.0 - 2.0**-53], [1.0 - 2.0**-53, 0.0]])
    assert np.isfinite(from_uniform(ends, kind=kind, width=2)).all()
    assert from_uniform(ends[:0], kind=kind, width=2).shape == (0, 2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", range(1, 12))
def test_rows_are_reduced_with_the_bits_of_numpy(dtype, width):
    draw = np.random.default_rng(width)
    for num_rows in (1, 255, 256, 5000):
        values = (10 * draw.normal(size=(num_rows, width))).astype(dtype)
        values[:: num_rows // 7 + 1, 0] = -np.inf
        for one in (values, np.exp(values), np.asfortranarray(values), values[::-1]):
            for reduction in (np.add, np.maximum):
                wanted = reduction.reduce(one, axis=1, keepdims=True)
                assert of_rows(reduction, one).tobytes() == wanted.tobytes()

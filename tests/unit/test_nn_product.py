"""Bits, nested actions and converted noise, against closed forms and frequencies."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from trainer.nn import (
    ActionDistribution,
    Bernoulli,
    Categorical,
    DiagGaussian,
    MultiCategorical,
    ProductDistribution,
    from_uniform,
    uniform_width,
)
from trainer.seeding import NOISE_DRAWS, NoiseKind
from trainer.testing.checks import gradient_check
from trainer.types import Array

MIXED: dict[str, Any] = {
    "arm": DiagGaussian((2,)),
    "hand": (Categorical(3), Bernoulli((2, 2))),
    "mode": MultiCategorical([2, 3, 2, 2], shape=(2, 2)),
}
CASES: dict[str, ActionDistribution] = {
    "bits": Bernoulli((3,)),
    "nested": ProductDistribution(MIXED),
    "gumbel only": ProductDistribution((Categorical(3), {"a": Categorical(2)})),
}


def random_case(distribution: ActionDistribution, count: int) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(0)
    p, q = rng.standard_normal((2, count, distribution.num_inputs))
    noise = NOISE_DRAWS[distribution.noise_kind](rng, (count, distribution.noise_width))
    return p, q, noise


def rows_of(actions: Any, rows: slice) -> Any:
    if isinstance(actions, dict):
        return {key: rows_of(part, rows) for key, part in actions.items()}
    if isinstance(actions, tuple):
        return tuple(rows_of(part, rows) for part in actions)
    return actions[rows]


def bytes_of(actions: Any) -> Any:
    if isinstance(actions, dict):
        return {key: bytes_of(part) for key, part in actions.items()}
    if isinstance(actions, tuple):
        return tuple(bytes_of(part) for part in actions)
    return actions.tobytes()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("part", ["logp", "entropy", "kl"])
def test_gradients_agree_with_differences(name: str, part: str) -> None:
    distribution = CASES[name]
    inputs, other, noise = random_case(distribution, 4)
    actions = distribution.sample(inputs, noise)
    reference = distribution.canonical(other)
    weights = np.random.default_rng(1).standard_normal(4)

    def weighted(x: Array) -> float:
        terms = distribution.evaluate(x, actions, reference=reference)
        return float((getattr(terms, part) * weights).sum())

    factors: dict[str, Any] = {"d_logp": np.zeros(4), f"d_{part}": weights}
    terms = distribution.evaluate(inputs, actions, reference=reference)
    gradient_check(weighted, terms.backward(**factors), inputs)


@pytest.mark.parametrize("name", CASES)
def test_terms_agree_with_the_single_functions(name: str) -> None:
    distribution = CASES[name]
    inputs, other, noise = random_case(distribution, 5)
    actions = distribution.sample(inputs, noise)
    reference = distribution.canonical(other)
    terms = distribution.evaluate(inputs, actions, reference=reference)
    np.testing.assert_allclose(terms.logp, distribution.logp(inputs, actions), rtol=1e-12)
    np.testing.assert_allclose(terms.entropy, distribution.entropy(inputs), rtol=1e-12)
    assert terms.kl is not None
    np.testing.assert_allclose(terms.kl, distribution.kl(other, inputs), rtol=1e-10)
    np.testing.assert_allclose(distribution.canonical(reference), reference, rtol=1e-12)
    assert distribution.evaluate(inputs, actions).kl is None


@pytest.mark.parametrize("name", CASES)
def test_what_a_row_draws_does_not_depend_on_the_others(name: str) -> None:
    distribution = CASES[name]
    inputs, _, noise = random_case(distribution, 13)
    inputs = inputs.astype(np.float32)
    together = distribution.sample(inputs, noise)
    for index in range(13):
        row = slice(index, index + 1)
        alone = distribution.sample(inputs[row], noise[row])
        assert bytes_of(alone) == bytes_of(rows_of(together, row))


def test_bits_have_the_values_of_their_formulas() -> None:
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


def test_bits_are_finite_for_extreme_logits() -> None:
    bits = Bernoulli((2,))
    logits = np.array([[1e4, -1e4]], np.float32)
    actions = bits.sample(logits, np.array([[0.999, 0.0]]))
    assert actions.tolist() == [[1, 0]]
    assert bits.logp(logits, actions).tolist() == [0.0]
    assert bits.entropy(logits).tolist() == [0.0]
    assert bits.logp(logits, 1 - actions).tolist() == [-2e4]


def test_bits_are_drawn_with_their_probabilities() -> None:
    logits = np.tile([math.log(3.0), -1.0], (20_000, 1)).astype(np.float32)
    noise = np.random.default_rng(0).random((20_000, 2))
    frequencies = Bernoulli((2,)).sample(logits, noise).mean(axis=0)
    np.testing.assert_allclose(frequencies, [0.75, 1.0 / (1.0 + math.e)], atol=0.015)


def test_parts_of_a_product_add_up_and_keep_their_structure() -> None:
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


def test_a_product_of_one_kind_draws_what_its_parts_draw() -> None:
    product = ProductDistribution((Categorical(3), Categorical(2)))
    assert product.noise_kind == "gumbel"
    inputs, _, noise = random_case(product, 50)
    first, second = product.sample(inputs, noise)
    assert first.tolist() == Categorical(3).sample(inputs[:, :3], noise[:, :3]).tolist()
    assert second.tolist() == Categorical(2).sample(inputs[:, 3:], noise[:, 3:]).tolist()


def test_a_mixed_product_draws_with_the_right_frequencies_and_moments() -> None:
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
def test_converted_noise_has_the_moments_of_its_kind(
    kind: NoiseKind, mean: float, std: float
) -> None:
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
def test_converted_noise_is_finite_at_the_ends(kind: NoiseKind) -> None:
    ends = np.array([[0.0, 1.0 - 2.0**-53], [1.0 - 2.0**-53, 0.0]])
    assert np.isfinite(from_uniform(ends, kind=kind, width=2)).all()
    assert from_uniform(ends[:0], kind=kind, width=2).shape == (0, 2)

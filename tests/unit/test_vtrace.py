"""V-trace: by hand, by its definition, and as generalized advantages of what is not old."""

import numpy as np
import pytest

from trainer.algorithms.appo.vtrace import VTraceSettings, vtrace
from trainer.connectors import Chunks
from trainer.connectors.advantages import generalized_advantages


def chunks_of(rng, lengths):
    num_rows = sum(lengths)
    return Chunks(
        rewards=rng.standard_normal(num_rows),
        values=rng.standard_normal(num_rows),
        lengths=np.array(lengths),
        bootstrap_values=rng.standard_normal(len(lengths)),
    )


def settings(gamma=0.9, lambda_=1.0, clip_rho=1.0):
    return VTraceSettings(gamma=gamma, lambda_=lambda_, clip_rho=clip_rho)


def test_two_steps_by_hand():
    chunks = Chunks(
        rewards=np.array([1.0, 2.0]),
        values=np.array([3.0, 4.0]),
        lengths=np.array([2]),
        bootstrap_values=np.array([10.0]),
    )
    # γ = 0.5: errors are 1 + 0.5 * 4 - 3 = 0 and 2 + 0.5 * 10 - 4 = 3. The second action is half as
    # likely now; the first one is four times as likely, which counts as once.
    found = vtrace(chunks, np.array([4.0, 0.5]), settings(gamma=0.5))
    np.testing.assert_allclose(found.value_targets, [3.0 + 0.5 * 1.5, 4.0 + 1.5])
    np.testing.assert_allclose(found.advantages, [0.0 + 0.5 * 1.5, 3.0])


def test_a_larger_bound_lets_a_step_weigh_more_but_not_its_trace():
    chunks = Chunks(
        rewards=np.array([1.0, 2.0]),
        values=np.array([0.0, 0.0]),
        lengths=np.array([2]),
        bootstrap_values=np.array([0.0]),
    )
    found = vtrace(chunks, np.array([4.0, 1.0]), settings(gamma=0.5, clip_rho=3.0))
    np.testing.assert_allclose(found.value_targets, [3.0 * 1.0 + 0.5 * 1.0 * 2.0, 2.0])


def targets_by_definition(rewards, values, last_value, ratios, gamma, lambda_, clip_rho):
    """Equation 1 of Espeholt et al. 2018, as it stands there, of one chunk."""
    values = np.append(values, last_value)
    found = []
    for start in range(len(rewards)):
        target, trace = values[start], 1.0
        for t in range(start, len(rewards)):
            error = rewards[t] + gamma * values[t + 1] - values[t]
            target += gamma ** (t - start) * trace * min(clip_rho, ratios[t]) * error
            trace *= lambda_ * min(1.0, ratios[t])
        found.append(target)
    return np.array(found)


@pytest.mark.parametrize("lambda_", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("clip_rho", [0.6, 1.0, np.inf])
def test_value_targets_are_those_of_the_definition(lambda_, clip_rho):
    rng = np.random.default_rng(1)
    lengths = [1, 7, 3, 1, 12]
    chunks, ratios = chunks_of(rng, lengths), np.exp(rng.standard_normal(sum(lengths)))
    found = vtrace(chunks, ratios, settings(lambda_=lambda_, clip_rho=clip_rho))
    starts = np.cumsum(lengths) - lengths
    for number, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        rows = slice(start, start + length)
        expected = targets_by_definition(
            chunks.rewards[rows], chunks.values[rows], chunks.bootstrap_values[number],
            ratios[rows], 0.9, lambda_, clip_rho,
        )  # fmt: skip
        np.testing.assert_allclose(found.value_targets[rows], expected, rtol=1e-12)


def test_advantages_are_those_of_the_paper_with_a_lambda_of_1():
    rng = np.random.default_rng(2)
    chunks, ratios = chunks_of(rng, [5]), np.exp(rng.standard_normal(5))
    found = vtrace(chunks, ratios, settings())
    next_targets = np.append(found.value_targets[1:], chunks.bootstrap_values)
    expected = chunks.rewards + 0.9 * next_targets - chunks.values
    np.testing.assert_allclose(found.advantages, expected, rtol=1e-12)


@pytest.mark.parametrize("lambda_", [0.0, 0.5, 0.95, 1.0])
def test_what_is_not_old_has_generalized_advantages(lambda_):
    chunks = chunks_of(np.random.default_rng(3), [4, 1, 9])
    found = vtrace(chunks, np.ones(14), settings(lambda_=lambda_))
    expected = generalized_advantages(chunks, gamma=0.9, lambda_=lambda_)
    np.testing.assert_allclose(found.advantages, expected.advantages, rtol=1e-12)
    np.testing.assert_allclose(found.value_targets, expected.value_targets, rtol=1e-12)
    old = vtrace(chunks, np.full(14, 0.5), settings(lambda_=lambda_))
    assert not np.allclose(old.value_targets, expected.value_targets)

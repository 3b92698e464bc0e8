"""Strategies for continuous actions, against the moments of the noise that they are defined by."""

import numpy as np
import pytest
from gymnasium import spaces

from tests.exploration_cases import choice_for, likelihoods, made, same_rows
from trainer.exploration import normal_numbers
from trainer.nn.distributions import from_uniform

_ROWS = 40_000
_BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)
_MEANS = [0.1, -0.2, 0.0, 0.0]


def _box(low, high):
    return spaces.Box(np.array(low, np.float32), np.array(high, np.float32))


def test_uniform_numbers_become_normal_and_gumbel_ones():
    uniforms = np.random.default_rng(0).random((100_000, 2))
    normal = normal_numbers(uniforms)[:, 0]
    assert abs(normal.mean()) < 0.01
    assert abs(normal.var() - 1.0) < 0.02
    assert abs((normal**4).mean() - 3.0) < 0.1
    gumbel = from_uniform(uniforms[:, :1], kind="gumbel", width=1)
    assert abs(gumbel.mean() - np.euler_gamma) < 0.02
    assert abs(gumbel.var() - np.pi**2 / 6) < 0.03


def test_the_ends_of_the_uniform_numbers_stay_finite():
    ends = np.array([[0.0, 0.0], [np.nextafter(1.0, 0.0), 0.5]])
    assert np.isfinite(normal_numbers(ends)).all()
    assert np.isfinite(from_uniform(ends, kind="gumbel", width=2)).all()


def test_gaussian_noise_has_its_deviation_around_the_best_action():
    strategy = made({"type": "GaussianNoise", "random_timesteps": 0}, _BOX)
    choice = choice_for(strategy, same_rows(_MEANS, _ROWS))
    actions, _ = strategy.get_exploration_action(action_distribution=choice, timestep=0)
    assert actions.dtype == np.float32
    np.testing.assert_allclose(actions.mean(axis=0), _MEANS[:2], atol=0.003)
    np.testing.assert_allclose(actions.std(axis=0), 0.1, rtol=0.02)
    assert abs(np.corrcoef(actions.T)[0, 1]) < 0.02
    later, _ = strategy.get_exploration_action(action_distribution=choice, timestep=20_000)
    np.testing.assert_allclose(later.std(axis=0), 0.1 * 0.02, rtol=0.02)


@pytest.mark.parametrize("name", ["GaussianNoise", "OrnsteinUhlenbeckNoise"])
def test_continuous_strategies_are_uniform_at_first(name):
    space = _box([-1.0, 0.0], [1.0, 4.0])
    strategy = made({"type": name}, space)
    choice = choice_for(strategy, same_rows(_MEANS, _ROWS))
    actions, _ = strategy.get_exploration_action(action_distribution=choice, timestep=999)
    np.testing.assert_allclose(actions.mean(axis=0), [0.0, 2.0], atol=0.02)
    np.testing.assert_allclose(actions.var(axis=0), [4 / 12, 16 / 12], rtol=0.02)
    logp = likelihoods(strategy, choice, actions, timestep=999)
    np.testing.assert_allclose(logp, -np.log(8.0), rtol=1e-5)


def test_a_dimension_with_a_single_value_changes_no_likelihood():
    strategy = made("Random", _box([3.0, 0.0], [3.0, 4.0]))
    choice = choice_for(strategy, same_rows(_MEANS, 5))
    actions, _ = strategy.get_exploration_action(action_distribution=choice, timestep=0)
    assert (actions[:, 0] == 3.0).all()
    logp = likelihoods(strategy, choice, actions, timestep=0)
    np.testing.assert_allclose(logp, -np.log(4.0), rtol=1e-6)


def test_scales_follow_the_ramp_that_begins_after_the_random_phase():
    strategy = made({"type": "GaussianNoise"}, _BOX)
    found = [strategy.scale(t) for t in (0, 1000, 6000, 11_000, 10**6)]
    assert found == pytest.approx([1.0, 1.0, 0.51, 0.02, 0.02])


def test_dimensions_without_bounds_are_drawn_as_gymnasium_does():
    space = _box([-np.inf, 2.0], [np.inf, np.inf])
    strategy = made("Random", space)
    choice = choice_for(strategy, same_rows(_MEANS, _ROWS))
    actions, _ = strategy.get_exploration_action(action_distribution=choice, timestep=0)
    np.testing.assert_allclose(actions.mean(axis=0), [0.0, 3.0], atol=0.03)
    np.testing.assert_allclose(actions.std(axis=0), [1.0, 1.0], rtol=0.03)
    densities = -0.5 * actions[:, 0] ** 2 - 0.5 * np.log(2 * np.pi) - (actions[:, 1] - 2.0)
    logp = likelihoods(strategy, choice, actions, timestep=0)
    np.testing.assert_allclose(logp, densities, atol=1e-4)


def test_the_process_is_the_recursion_of_its_definition():
    strategy = made(
        {"type": "OrnsteinUhlenbeckNoise", "random_timesteps": 0, "scale_schedule": 0.5}, _BOX
    )
    expected = np.zeros(2)
    strategy.begin_episode(0)
    for step in range(20):
        choice = choice_for(strategy, same_rows(_MEANS, 1), seed=step)
        expected = expected - 0.15 * expected + 0.2 * normal_numbers(choice.noise)[0]
        actions, _ = strategy.get_exploration_action(action_distribution=choice, timestep=0)
        noise = 0.5 * 0.1 * expected * 2.0  # scale · base scale · x · (high - low)
        np.testing.assert_allclose(actions[0], np.array(_MEANS[:2]) + noise, atol=1e-6)


@pytest.mark.parametrize("kind", ["PerWorkerGaussianNoise", "PerWorkerOrnsteinUhlenbeckNoise"])
@pytest.mark.parametrize(
    ("num_workers", "worker_index", "scale"),
    [(3, 0, 0.0), (3, 1, 0.4**4.5), (3, 2, 0.4**8), (0, 0, 1.0)],
)
def test_each_worker_has_its_own_constant_scale(kind, num_workers, worker_index, scale):
    """RLlib's PerWorkerGaussianNoise loses the index of its worker on the way to its base."""
    strategy = made({"type": kind}, _BOX, num_workers=num_workers, worker_index=worker_index)
    assert strategy.scale(0) == pytest.approx(scale)
    assert strategy.worker_index == worker_index

"""ParameterNoise: its distances and adaptation, against their closed forms."""

import numpy as np
import pytest
from gymnasium import spaces

from tests.exploration_cases import made
from trainer.errors import ConfigError, UnsupportedSpaceError
from trainer.exploration import ExplorationSpec, ExploredChunk, ExploredSample
from trainer.name_resolution import PROGRAM
from trainer.nn import Categorical

_THREE = spaces.Discrete(3)
_BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)


def noisy(space=_THREE, **settings):
    return made({"type": "ParameterNoise", **settings}, space)


def sample_of(*pairs, timestep=0):
    """Chunks whose module gives the first inputs unperturbed, and the second ones perturbed."""
    chunks, clean = [], iter([np.array(pair[0], np.float32) for pair in pairs])
    for _, perturbed in pairs:
        inputs = np.array(perturbed, np.float32)
        steps = len(inputs)
        obs, actions = np.zeros((steps + 1, 4), np.float32), np.zeros(steps, np.int64)
        chunks.append(ExploredChunk(obs, actions, np.zeros(steps), inputs))
    return ExploredSample(chunks, timestep, 0, lambda _: next(clean))


def test_distance_of_counted_actions_is_the_mean_divergence():
    clean = np.array([[0.0, 1.0, 2.0], [3.0, 0.0, 0.0]])
    perturbed = np.array([[1.0, 1.0, 1.0], [3.0, 0.0, 0.0]])
    p = np.exp(clean[0]) / np.exp(clean[0]).sum()
    expected = 0.5 * (p * np.log(p * 3)).sum()
    assert noisy().distance(clean, perturbed) == pytest.approx(expected)


def test_distance_of_continuous_actions_is_the_root_mean_square_of_the_best():
    clean, perturbed = np.zeros((2, 4)), np.zeros((2, 4))
    perturbed[0, :2] = [0.3, -0.1]
    perturbed[:, 2:] = 5.0  # deviations do not count
    expected = np.sqrt((0.09 + 0.01) / 4)
    assert noisy(_BOX).distance(clean, perturbed) == pytest.approx(expected)


def test_stddev_grows_while_the_policies_are_closer_than_the_threshold_else_shrinks():
    near, far = [[0.0, 0.0, 0.0]], [[60.0, 0.0, 0.0]]
    strategy = noisy(sub_exploration={"type": "EpsilonGreedy", "epsilon_schedule": 0.3})
    strategy.observe_sample(sample_of((near, near), (near, far), (near, far)))
    assert strategy.current_stddev == pytest.approx(1.01 / 1.01 / 1.01)


@pytest.mark.parametrize(("gap", "factor"), [(0.999, 1.01), (1.001, 1 / 1.01)])
def test_threshold_of_counted_actions_follows_from_epsilon(gap, factor):
    """δ = -log(1 - ε + ε/n): here two policies at KL = gap · δ."""
    epsilon = 0.3
    delta = -np.log(1 - epsilon + epsilon / 3)
    low, high = 0.0, 50.0
    for _ in range(200):  # bisection for the logit at that divergence from the uniform policy
        middle = 0.5 * (low + high)
        logits = np.array([middle, 0.0, 0.0])
        p = np.exp(logits - logits.max())
        p /= p.sum()
        low, high = (middle, high) if -np.log(3 * p).mean() < gap * delta else (low, middle)
    strategy = noisy(sub_exploration={"type": "EpsilonGreedy", "epsilon_schedule": epsilon})
    strategy.observe_sample(sample_of(([[0.0, 0.0, 0.0]], [[low, 0.0, 0.0]])))
    assert strategy.current_stddev == pytest.approx(factor)


@pytest.mark.parametrize(("shift", "factor"), [(0.099, 1.01), (0.101, 1 / 1.01)])
def test_threshold_of_continuous_actions_is_the_noise_of_the_sub_exploration(shift, factor):
    sub = {"type": "OrnsteinUhlenbeckNoise", "ou_sigma": 0.2, "scale_schedule": 0.5}
    strategy = noisy(_BOX, sub_exploration=sub)
    strategy.observe_sample(sample_of(([[0.0] * 4], [[shift, -shift, 0.0, 0.0]])))
    assert strategy.current_stddev == pytest.approx(factor)


def test_perturbations_are_standard_normal_numbers_of_the_given_generator():
    shapes = {"pi/kernel": (200, 50), "pi/bias": (50,)}
    drawn = noisy().perturbation(shapes, np.random.default_rng(0))
    again = noisy().perturbation(shapes, np.random.default_rng(0))
    assert drawn.shape == (10_050,)
    assert drawn.tobytes() == again.tobytes()
    assert abs(drawn.mean()) < 0.03
    assert abs(drawn.std() - 1.0) < 0.02


def test_default_sub_explorations_are_random_at_first_and_careful_afterwards():
    discrete = noisy(random_timesteps=100).sub_exploration
    assert [discrete.epsilon(t) for t in (0, 101, 102, 5000)] == [1.0, 1.0, 0.01, 0.01]
    box = noisy(_BOX, random_timesteps=100).sub_exploration
    assert type(box).__name__ == "OrnsteinUhlenbeckNoise"
    assert box.random_timesteps == 100


def test_a_sub_exploration_without_a_threshold_is_refused():
    expected = "(?s)ParameterNoise adapts.*SoftQ does not say.*EpsilonGreedy for.*GaussianNoise"
    with pytest.raises(ConfigError, match=expected):
        noisy(sub_exploration={"type": "SoftQ"})


def test_a_space_that_it_cannot_serve_is_not_blamed_on_the_sub_exploration():
    with pytest.raises(UnsupportedSpaceError, match=r"^ParameterNoise explores .*MultiBinary\(3\)"):
        ExplorationSpec.from_config("ParameterNoise", source=PROGRAM).make(
            spaces.MultiBinary(3), distribution=Categorical(3)
        )


def test_a_sub_exploration_that_does_not_fit_the_space_is_named_as_such():
    with pytest.raises(
        UnsupportedSpaceError, match=r"^sub_exploration of ParameterNoise: EpsilonGreedy explores"
    ):
        noisy(_BOX, sub_exploration={"type": "EpsilonGreedy"})

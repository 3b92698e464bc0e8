"""Strategies for counted actions, against the distributions that they are defined by."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from tests.exploration_cases import chi_square, choice_for, likelihoods, made, same_rows
from trainer.exploration import MASKED
from trainer.exploration.strategies import EpsilonGreedy

_ROWS = 20_000
_FOUR = spaces.Discrete(4)
_VALUES = [0.5, 0.0, 2.0, -1.0]
# 99.9 % quantiles of chi-square: the seeds are fixed, so a right strategy never fails.
_LIMIT_3, _LIMIT_2, _LIMIT_5 = 16.27, 13.82, 20.52


def softmax(values: list[float]) -> Any:
    exponentials = np.exp(np.array(values) - max(values))
    return exponentials / exponentials.sum()


def test_stochastic_sampling_draws_from_the_softmax() -> None:
    strategy = made({"type": "StochasticSampling"}, _FOUR)
    choice = choice_for(strategy, same_rows(_VALUES, _ROWS))
    actions, logp = strategy.get_exploration_action(action_distribution=choice, timestep=0)
    assert chi_square(actions, softmax(_VALUES)) < _LIMIT_3
    assert logp is None, "the trainer computes those of the distribution for all steps at once"


def test_stochastic_sampling_is_uniform_at_first_and_says_so_in_its_likelihoods() -> None:
    strategy = made({"type": "StochasticSampling", "random_timesteps": 100}, _FOUR)
    choice = choice_for(strategy, same_rows(_VALUES, _ROWS))
    actions, logp = strategy.get_exploration_action(action_distribution=choice, timestep=99)
    assert chi_square(actions, np.full(4, 0.25)) < _LIMIT_3
    logp = likelihoods(strategy, choice, actions, timestep=99)
    np.testing.assert_allclose(logp, np.log(0.25), rtol=1e-6)
    later, _ = strategy.get_exploration_action(action_distribution=choice, timestep=100)
    assert chi_square(later, softmax(_VALUES)) < _LIMIT_3
    logp = likelihoods(strategy, choice, later, timestep=100)
    np.testing.assert_allclose(logp, np.log(softmax(_VALUES))[later], rtol=1e-5)


def test_random_is_uniform_whatever_the_values_and_over_allowed_actions_only() -> None:
    strategy = made("Random", _FOUR)
    choice = choice_for(strategy, same_rows(_VALUES, _ROWS))
    actions, logp = strategy.get_exploration_action(action_distribution=choice, timestep=5)
    assert chi_square(actions, np.full(4, 0.25)) < _LIMIT_3
    masked = choice_for(strategy, same_rows([0.0, MASKED, 3.0, 0.0], _ROWS))
    actions, logp = strategy.get_exploration_action(action_distribution=masked, timestep=5)
    assert chi_square(actions, np.array([1, 0, 1, 1]) / 3) < _LIMIT_2
    logp = likelihoods(strategy, masked, actions, timestep=5)
    np.testing.assert_allclose(logp, -np.log(3), rtol=1e-6)


@pytest.mark.parametrize(
    ("timestep", "epsilon"), [(0, 1.0), (100, 1.0), (350, 0.55), (600, 0.1), (10**9, 0.1)]
)
def test_epsilon_follows_the_ramp(timestep: int, epsilon: float) -> None:
    strategy = made(
        {
            "type": "EpsilonGreedy",
            "final_epsilon": 0.1,
            "warmup_timesteps": 100,
            "epsilon_timesteps": 500,
        },
        _FOUR,
    )
    assert isinstance(strategy, EpsilonGreedy)
    assert strategy.epsilon(timestep) == pytest.approx(epsilon, abs=1e-12)


def test_epsilon_has_rllibs_defaults() -> None:
    strategy = made({"type": "EpsilonGreedy"}, _FOUR)
    assert isinstance(strategy, EpsilonGreedy)
    found = [strategy.epsilon(t) for t in (0, 50_000, 100_000, 200_000)]
    assert found == pytest.approx([1.0, 0.525, 0.05, 0.05])


def test_epsilon_greedy_mixes_the_best_action_with_uniform_ones() -> None:
    strategy = made({"type": "EpsilonGreedy", "epsilon_schedule": 0.4}, _FOUR)
    choice = choice_for(strategy, same_rows(_VALUES, _ROWS))
    actions, logp = strategy.get_exploration_action(action_distribution=choice, timestep=7)
    expected = np.array([0.1, 0.1, 0.7, 0.1])
    assert chi_square(actions, expected) < _LIMIT_3
    logp = likelihoods(strategy, choice, actions, timestep=7)
    np.testing.assert_allclose(logp, np.log(expected)[actions], rtol=1e-5)


def test_a_value_of_zero_is_no_mask_and_all_zero_values_are_explored() -> None:
    """RLlib's new DQN takes Q itself as the mask, which rules out Q = 0 and crashes if all are."""
    strategy = made({"type": "EpsilonGreedy", "epsilon_schedule": 1.0}, _FOUR)
    choice = choice_for(strategy, same_rows([0.0, 0.0, 0.0, 0.0], _ROWS))
    actions, _ = strategy.get_exploration_action(action_distribution=choice, timestep=0)
    assert chi_square(actions, np.full(4, 0.25)) < _LIMIT_3


@pytest.mark.parametrize("hidden", [MASKED, float(np.finfo(np.float32).min)])
def test_epsilon_greedy_never_chooses_what_is_masked_by_its_value(hidden: float) -> None:
    strategy = made({"type": "EpsilonGreedy", "epsilon_schedule": 0.6}, _FOUR)
    choice = choice_for(strategy, same_rows([hidden, -3.0, hidden, -1.0], _ROWS))
    actions, _ = strategy.get_exploration_action(action_distribution=choice, timestep=0)
    assert chi_square(actions, np.array([0.0, 0.3, 0.0, 0.7])) < 10.83


def test_a_mask_beside_the_values_rules_out_the_best_of_them() -> None:
    strategy = made({"type": "EpsilonGreedy", "epsilon_schedule": 0.6}, _FOUR)
    mask = np.tile([True, True, False, True], (_ROWS, 1))
    choice = choice_for(strategy, same_rows(_VALUES, _ROWS), mask=mask)
    actions, _ = strategy.get_exploration_action(action_distribution=choice, timestep=0)
    assert chi_square(actions, np.array([0.6, 0.2, 0.0, 0.2])) < _LIMIT_2
    best, _ = strategy.get_exploration_action(action_distribution=choice, timestep=0, explore=False)
    assert set(best) == {0}


def test_several_choices_are_random_together_or_not_at_all() -> None:
    space = spaces.MultiDiscrete([3, 2])
    strategy = made({"type": "EpsilonGreedy", "epsilon_schedule": 0.3}, space)
    choice = choice_for(strategy, same_rows([0.0, 1.0, 0.0, 5.0, 4.0], _ROWS))
    actions, logp = strategy.get_exploration_action(action_distribution=choice, timestep=0)
    expected = np.full(6, 0.05)
    expected[2] += 0.7  # (1, 0)
    numbers = actions[:, 0] * 2 + actions[:, 1]
    assert chi_square(numbers, expected) < _LIMIT_5
    logp = likelihoods(strategy, choice, actions, timestep=0)
    np.testing.assert_allclose(logp, np.log(expected)[numbers], rtol=1e-5)


def test_masks_of_several_choices_hold_for_each() -> None:
    strategy = made("Random", spaces.MultiDiscrete([3, 2]))
    choice = choice_for(strategy, same_rows([MASKED, 1.0, 0.0, 5.0, MASKED], _ROWS))
    actions, logp = strategy.get_exploration_action(action_distribution=choice, timestep=0)
    assert chi_square(actions[:, 0], np.array([0.0, 0.5, 0.5])) < 10.83
    assert not actions[:, 1].any()
    logp = likelihoods(strategy, choice, actions, timestep=0)
    np.testing.assert_allclose(logp, np.log(0.5), rtol=1e-6)


@pytest.mark.parametrize("temperature", [0.25, 1.0, 4.0])
def test_soft_q_draws_from_the_boltzmann_distribution(temperature: float) -> None:
    strategy = made({"type": "SoftQ", "temperature": temperature}, _FOUR)
    choice = choice_for(strategy, same_rows(_VALUES, _ROWS))
    actions, logp = strategy.get_exploration_action(action_distribution=choice, timestep=0)
    expected = softmax([value / temperature for value in _VALUES])
    assert chi_square(actions, expected) < _LIMIT_3
    logp = likelihoods(strategy, choice, actions, timestep=0)
    np.testing.assert_allclose(logp, np.log(expected)[actions], rtol=1e-4, atol=1e-5)


def test_soft_q_keeps_masks_at_any_temperature() -> None:
    strategy = made({"type": "SoftQ", "temperature": 1e-3}, _FOUR)
    choice = choice_for(strategy, same_rows([MASKED, 0.0, 0.0, -1.0], 2000))
    actions, logp = strategy.get_exploration_action(action_distribution=choice, timestep=0)
    assert chi_square(actions, np.array([0.0, 0.5, 0.5, 0.0])) < 10.83
    logp = likelihoods(strategy, choice, actions, timestep=0)
    assert np.isfinite(logp).all()


@pytest.mark.parametrize("name", ["EpsilonGreedy", "PerWorkerEpsilonGreedy", "SoftQ", "Random"])
def test_without_exploration_the_best_action_is_taken_whatever_the_noise(name: str) -> None:
    strategy = made({"type": name}, _FOUR)
    inputs = np.random.default_rng(1).normal(size=(50, 4))
    for seed in (0, 1):
        choice = choice_for(strategy, inputs, seed=seed)
        actions, _ = strategy.get_exploration_action(
            action_distribution=choice, timestep=0, explore=False
        )
        np.testing.assert_array_equal(actions, inputs.astype(np.float32).argmax(axis=1))


@pytest.mark.parametrize(
    ("num_workers", "worker_index", "epsilon"),
    [
        (4, 0, 0.0),
        (4, 1, 0.4),
        (4, 2, 0.4 ** (1 + 7 / 3)),
        (4, 4, 0.4**8),
        (1, 1, 0.4),
        (0, 0, 1.0),
    ],
)
def test_each_worker_has_its_own_constant_epsilon(
    num_workers: int, worker_index: int, epsilon: float
) -> None:
    strategy = made(
        {"type": "PerWorkerEpsilonGreedy"},
        _FOUR,
        num_workers=num_workers,
        worker_index=worker_index,
    )
    assert isinstance(strategy, EpsilonGreedy)
    assert strategy.epsilon(0) == pytest.approx(epsilon)
    if num_workers:
        assert strategy.epsilon(10**6) == strategy.epsilon(0)


def test_a_row_does_not_depend_on_the_rows_around_it() -> None:
    for config in (
        {"type": "EpsilonGreedy", "epsilon_schedule": 0.5},
        {"type": "StochasticSampling", "random_timesteps": 1},
        {"type": "SoftQ", "temperature": 0.7},
    ):
        strategy = made(config, _FOUR)
        values = np.random.default_rng(3).normal(size=(33, 4))
        values[7, 2] = MASKED
        whole = choice_for(strategy, values)
        together, _ = strategy.get_exploration_action(action_distribution=whole, timestep=3)
        logp = likelihoods(strategy, whole, together, timestep=3)
        for row in range(33):
            alone = type(whole)(
                whole.distribution,
                whole.inputs[row : row + 1],
                whole.noise[row : row + 1],
                whole.noise_kind,
                [row],
            )
            action, _ = strategy.get_exploration_action(action_distribution=alone, timestep=3)
            assert action.tobytes() == together[row : row + 1].tobytes()
            own = likelihoods(strategy, alone, action, timestep=3)
            assert own.tobytes() == logp[row : row + 1].tobytes()


def test_epsilon_is_told_and_comes_back() -> None:
    strategy = made({"type": "EpsilonGreedy", "epsilon_timesteps": 1000}, _FOUR)
    choice = choice_for(strategy, same_rows(_VALUES, 2))
    strategy.get_exploration_action(action_distribution=choice, timestep=500)
    state = strategy.get_state()
    assert state == {"cur_epsilon": pytest.approx(0.525), "last_timestep": 500}
    other = made({"type": "EpsilonGreedy", "epsilon_timesteps": 1000}, _FOUR)
    other.set_state(state)
    assert other.get_state() == state


class PerRow(EpsilonGreedy):
    """Its ε depends on more than the timestep."""

    share = 0.0

    def epsilon(self, timestep: int) -> float:
        return self.share


def test_a_subclass_whose_epsilon_changes_within_a_timestep_is_asked_each_time() -> None:
    strategy = made({"type": PerRow}, _FOUR)
    assert isinstance(strategy, PerRow)
    choice = choice_for(strategy, same_rows(_VALUES, _ROWS))
    for share in (0.0, 1.0):
        strategy.share = share
        actions, _ = strategy.get_exploration_action(action_distribution=choice, timestep=7)
        expected = [share / 4, share / 4, 1 - share + share / 4, share / 4]
        np.testing.assert_allclose(np.bincount(actions, minlength=4) / _ROWS, expected, atol=0.02)

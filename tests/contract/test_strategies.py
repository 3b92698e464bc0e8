"""What every exploration strategy must keep to, one test per property; each runs over a table.

A class that the table does not name is found: `test_every_strategy_is_in_the_table`. What single
strategies are defined by (schedules, noise, rewards) stands in `tests/unit/test_exploration_*`.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
import pytest
from gymnasium import spaces

from checkpoints import CheckpointMismatchError, decode, encode
from tests.exploration_cases import (
    chi_square,
    choice_for,
    distribution_of,
    likelihoods,
    made,
    same_rows,
)
from tests.mutated_states import mutated, mutations
from trainer.exploration import (
    EXPLORATIONS,
    MASKED,
    Exploration,
    ExplorationSpec,
    ExploredChunk,
    ExploredSample,
)
from trainer.exploration.exploration import WithSubExploration
from trainer.name_resolution import PROGRAM

FOUR = spaces.Discrete(4)
MULTI = spaces.MultiDiscrete([3, 2])
BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)
TIMESTEP = 500
NUM_ROWS = 33

_FEATURES = {"feature_dim": 4, "feature_net_config": {"fcnet_hiddens": [6]}}
_ENCODER = {"embeds_dim": 4, "encoder_net_config": {"fcnet_hiddens": [6]}, "k_nn": 3}
_AT_FIRST = {"random_timesteps": 1000}
_HALF_WAY = {"random_timesteps": 0, "scale_timesteps": 1000}


class Case(NamedTuple):
    """A strategy of the table.

    Attributes:
        config: how it is made.
        space: the action space.
        worker: of its runner; nothing for the main process alone.
    """

    config: Mapping[str, Any]
    space: spaces.Space[Any] = FOUR
    worker: Mapping[str, int] = {}

    @property
    def type(self):
        return str(self.config["type"])

    def make(self, root_seed=0):
        strategy = made(self.config, self.space, **self.worker)
        if type(strategy).observe_sample is not Exploration.observe_sample:
            strategy.prepare(obs_size=3, root_seed=root_seed)
        for slot in range(NUM_ROWS):
            strategy.begin_episode(slot)
        return strategy

    def inputs(self):
        """Distribution inputs, with a masked alternative in some rows where actions are counted."""
        width = distribution_of(self.space).num_inputs
        inputs = np.random.default_rng(3).normal(size=(NUM_ROWS, width)).astype(np.float32)
        if not isinstance(self.space, spaces.Box):
            inputs[::3, 1] = MASKED
        return inputs


_FIRST = {"num_workers": 3, "worker_index": 1}
_SUB = {"sub_exploration": {"type": "EpsilonGreedy", "epsilon_timesteps": 1000}}
_CORRELATED = {"sub_exploration": {"type": "OrnsteinUhlenbeckNoise", **_HALF_WAY}}

CASES = {
    "StochasticSampling": Case({"type": "StochasticSampling"}),
    "StochasticSampling, choices": Case({"type": "StochasticSampling"}, MULTI),
    "StochasticSampling, Box": Case({"type": "StochasticSampling"}, BOX),
    "random at first": Case({"type": "StochasticSampling", **_AT_FIRST}),
    "random at first, choices": Case({"type": "StochasticSampling", **_AT_FIRST}, MULTI),
    "random at first, Box": Case({"type": "StochasticSampling", **_AT_FIRST}, BOX),
    "Random": Case({"type": "Random"}),
    "Random, choices": Case({"type": "Random"}, MULTI),
    "Random, Box": Case({"type": "Random"}, BOX),
    "EpsilonGreedy": Case({"type": "EpsilonGreedy", "epsilon_timesteps": 1000}),
    "EpsilonGreedy, choices": Case({"type": "EpsilonGreedy", "epsilon_timesteps": 1000}, MULTI),
    "PerWorkerEpsilonGreedy": Case({"type": "PerWorkerEpsilonGreedy"}, FOUR, _FIRST),
    "SoftQ": Case({"type": "SoftQ", "temperature": 0.7}),
    "SoftQ, choices": Case({"type": "SoftQ", "temperature": 0.7}, MULTI),
    "GaussianNoise": Case({"type": "GaussianNoise", **_HALF_WAY}, BOX),
    "GaussianNoise, random at first": Case({"type": "GaussianNoise"}, BOX),
    "PerWorkerGaussianNoise": Case({"type": "PerWorkerGaussianNoise", **_HALF_WAY}, BOX, _FIRST),
    "OrnsteinUhlenbeckNoise": Case({"type": "OrnsteinUhlenbeckNoise", **_HALF_WAY}, BOX),
    "OrnsteinUhlenbeckNoise, random at first": Case({"type": "OrnsteinUhlenbeckNoise"}, BOX),
    "PerWorkerOrnsteinUhlenbeckNoise": Case(
        {"type": "PerWorkerOrnsteinUhlenbeckNoise", **_HALF_WAY}, BOX, _FIRST
    ),
    "StateDependentNoise": Case({"type": "StateDependentNoise"}, BOX),
    "StateDependentNoise, every 2 steps": Case(
        {"type": "StateDependentNoise", "sample_freq": 2}, BOX
    ),
    "ParameterNoise": Case({"type": "ParameterNoise", **_SUB}),
    "ParameterNoise, Box": Case({"type": "ParameterNoise", **_CORRELATED}, BOX),
    "ParameterNoise, random at first": Case({"type": "ParameterNoise", **_AT_FIRST}, BOX),
    "Curiosity": Case({"type": "Curiosity", **_SUB, **_FEATURES}),
    "Curiosity, choices": Case({"type": "Curiosity", **_SUB, **_FEATURES}, MULTI),
    "RE3": Case({"type": "RE3", **_AT_FIRST, **_ENCODER}),
    "RE3, Box": Case({"type": "RE3", **_CORRELATED, **_ENCODER}, BOX),
}
UNCLIPPED = ("StochasticSampling", "StateDependentNoise")
"""Types that draw from a distribution without bounds."""
STATELESS = ("StochasticSampling", "Random", "SoftQ", "StateDependentNoise")
"""Types of which checkpoints hold nothing."""
OBSERVING = ("ParameterNoise", "Curiosity", "RE3")
"""Types that learn in the main process from what was sampled."""

over_all = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
over_counted = pytest.mark.parametrize(
    "name", [name for name, case in CASES.items() if case.space is not BOX]
)
over_observing = pytest.mark.parametrize(
    "name", [name for name, case in CASES.items() if case.type in OBSERVING]
)


def derived(base):
    for one in base.__subclasses__():
        yield one
        yield from derived(one)


def test_every_strategy_is_in_the_table():
    ours = {
        kind for kind in derived(Exploration) if kind.__module__.startswith("trainer.exploration.")
    }
    assert ours - {WithSubExploration} == set(EXPLORATIONS.values())
    assert {case.type for case in CASES.values()} == set(EXPLORATIONS)


def choose(strategy, choice, **options):
    actions, _ = strategy.get_exploration_action(
        action_distribution=choice, **{"timestep": TIMESTEP, **options}
    )
    return actions


# ---- what is chosen


@over_all
def test_actions_follow_from_inputs_and_noise_and_are_of_the_space(case):
    inputs = case.inputs()
    first, again = (choose(s, choice_for(s, inputs)) for s in (case.make(), case.make()))
    assert first.tobytes() == again.tobytes()
    strategy = case.make()
    assert choose(strategy, choice_for(strategy, inputs, seed=1)).tobytes() != first.tobytes()
    is_clipped = isinstance(case.space, spaces.Box) and case.type not in UNCLIPPED
    if is_clipped or not isinstance(case.space, spaces.Box):
        assert all(case.space.contains(np.asarray(row)) for row in first)


@over_all
def test_a_row_does_not_depend_on_the_rows_around_it(case):
    strategy, single = case.make(), case.make()
    whole = choice_for(strategy, case.inputs())
    together = choose(strategy, whole)
    logp = likelihoods(strategy, whole, together, timestep=TIMESTEP)
    for row in range(NUM_ROWS):
        one = slice(row, row + 1)
        alone = dataclasses.replace(
            whole, inputs=whole.inputs[one], noise=whole.noise[one], slots=[row]
        )
        if whole.loadings is not None:
            alone = dataclasses.replace(alone, loadings=whole.loadings[one])
        action = choose(single, alone)
        assert action.tobytes() == together[one].tobytes()
        own = likelihoods(single, alone, action, timestep=TIMESTEP)
        assert own.tobytes() == logp[one].tobytes()


@over_all
def test_without_exploration_the_best_action_is_taken_whatever_the_noise(case):
    strategy, inputs = case.make(), case.inputs()
    best = strategy.distribution.deterministic(inputs)
    for seed in (0, 1):
        found = choose(strategy, choice_for(strategy, inputs, seed=seed), explore=False)
        assert found.tobytes() == best.tobytes()


@over_all
def test_a_slot_that_is_put_back_goes_on_as_if_it_had_played(case):
    played, again = case.make(), case.make()
    choices = [choice_for(played, case.inputs(), seed=step) for step in range(4)]
    expected = [choose(played, choice) for choice in choices]
    again.begin_episode(0)
    for choice in choices[:-1]:
        again.advance(choice.slots, choice.noise)
    assert choose(again, choices[-1]).tobytes() == expected[-1].tobytes()


@over_all
def test_a_new_episode_at_another_time_knows_nothing_of_the_one_before(case):
    strategy, fresh = case.make(), case.make()
    for timestep in (0, 1100):
        choose(strategy, choice_for(strategy, case.inputs(), seed=1), timestep=timestep)
    for slot in range(NUM_ROWS):
        strategy.begin_episode(slot)
    choice = choice_for(strategy, case.inputs())
    actions = choose(strategy, choice)
    assert actions.tobytes() == choose(fresh, choice).tobytes()
    later, expected = (likelihoods(s, choice, actions, timestep=1100) for s in (strategy, fresh))
    assert later.tobytes() == expected.tobytes()


@over_counted
def test_what_is_masked_is_never_chosen(name):
    case = CASES[name]
    strategy, inputs = case.make(), case.inputs()
    for seed in range(20):
        choice = choice_for(strategy, inputs, seed=seed)
        actions = choose(strategy, choice).reshape(NUM_ROWS, -1)
        assert (actions[::3, 0] != 1).all()
        assert np.isfinite(likelihoods(strategy, choice, choose(strategy, choice))).all()
    mask = np.ones(inputs.shape, bool)
    mask[:, 0] = False
    for explore in (True, False):
        choice = choice_for(strategy, np.abs(inputs), mask=mask)
        actions = choose(strategy, choice, explore=explore).reshape(NUM_ROWS, -1)
        assert (actions[:, 0] != 0).all()


@pytest.mark.parametrize(
    "name",
    [name for name, case in CASES.items() if case.space is FOUR],
)
def test_likelihoods_add_up_to_one_over_all_actions(name):
    case = CASES[name]
    strategy, inputs = case.make(), case.inputs()
    inputs[::3, 1] = 0.0
    total = sum(
        np.exp(strategy.logp(inputs, np.full(NUM_ROWS, action), timestep=TIMESTEP))
        for action in range(4)
    )
    np.testing.assert_allclose(total, 1.0, rtol=1e-5)


# ---- the distributions that strategies for counted actions are defined by


def softmax(values):
    exponentials = np.exp(np.array(values) - max(values))
    return exponentials / exponentials.sum()


VALUES = [0.5, 0.0, 2.0, -1.0]
_CHOICES = [0.0, 1.0, 0.0, 5.0, 4.0]
_LEAST = float(np.finfo(np.float32).min)
_FIFTHS = np.full(6, 0.05) + 0.7 * (np.arange(6) == 2)  # the best is (1, 0)


def greedy(epsilon, **more):
    return {"type": "EpsilonGreedy", "epsilon_schedule": epsilon, **more}


@pytest.mark.parametrize(
    ("config", "timestep", "inputs", "expected"),
    [
        ({"type": "StochasticSampling"}, 0, VALUES, softmax(VALUES)),
        ({"type": "StochasticSampling", "random_timesteps": 100}, 99, VALUES, [0.25] * 4),
        ({"type": "StochasticSampling", "random_timesteps": 100}, 100, VALUES, softmax(VALUES)),
        ({"type": "Random"}, 5, VALUES, [0.25] * 4),
        ({"type": "Random"}, 5, [0.0, MASKED, 3.0, 0.0], [1 / 3, 0.0, 1 / 3, 1 / 3]),
        (greedy(0.4), 7, VALUES, [0.1, 0.1, 0.7, 0.1]),
        # RLlib's new DQN takes Q itself as the mask: rules out Q = 0, and fails if all are.
        (greedy(1.0), 0, [0.0] * 4, [0.25] * 4),
        (greedy(0.6), 0, [MASKED, -3.0, MASKED, -1.0], [0.0, 0.3, 0.0, 0.7]),
        (greedy(0.6), 0, [_LEAST, -3.0, _LEAST, -1.0], [0.0, 0.3, 0.0, 0.7]),
        (greedy([(0, 0.0), (10, 1.0)]), 4, VALUES, [0.1, 0.1, 0.7, 0.1]),
        ({"type": "RE3", "sub_exploration": greedy(0.4)}, 7, VALUES, [0.1, 0.1, 0.7, 0.1]),
        (greedy(0.3), 0, _CHOICES, _FIFTHS),
        ({"type": "Random"}, 0, [MASKED, 1.0, 0.0, 5.0, MASKED], [0, 0, 0.5, 0, 0.5, 0]),
        ({"type": "SoftQ", "temperature": 0.25}, 0, VALUES, softmax(np.array(VALUES) * 4)),
        ({"type": "SoftQ", "temperature": 4.0}, 0, VALUES, softmax(np.array(VALUES) / 4)),
        ({"type": "SoftQ", "temperature": 1e-3}, 0, [MASKED, 0.0, 0.0, -1.0], [0, 0.5, 0.5, 0]),
    ],
    ids=str,
)
def test_actions_are_drawn_as_defined_and_their_likelihoods_say_so(
    config, timestep, inputs, expected
):
    probabilities = np.array(expected)
    strategy = made(config, FOUR if len(inputs) == 4 else MULTI)
    choice = choice_for(strategy, same_rows(inputs, 20_000))
    actions, logp = strategy.get_exploration_action(action_distribution=choice, timestep=timestep)
    numbers = actions if actions.ndim == 1 else actions[:, 0] * 2 + actions[:, 1]
    # 99.9 % quantiles of chi-square: the seed is fixed, so a right strategy never fails.
    limits = {2: 10.83, 3: 13.82, 4: 16.27, 6: 20.52}
    assert chi_square(numbers, probabilities) < limits[int((probabilities > 0).sum())]
    assert logp is None, "those of all steps are computed at once"
    found = likelihoods(strategy, choice, actions, timestep=timestep)
    np.testing.assert_allclose(np.exp(found), probabilities[numbers], rtol=1e-4)


# ---- states


def sample(strategy, *, seed=0):
    rng = np.random.default_rng(seed)
    width = strategy.distribution.num_inputs
    inputs = rng.normal(size=(12, width)).astype(np.float32)
    obs = rng.normal(size=(13, 3)).astype(np.float32)
    actions = strategy.distribution.deterministic(inputs)
    chunk = ExploredChunk(obs, actions, rng.normal(size=12), inputs)
    return ExploredSample([chunk, chunk], TIMESTEP, 2, lambda rows: np.zeros((len(rows), width)))


def used(case, root_seed=0):
    """A strategy that has acted, and learnt if it does."""
    strategy = case.make(root_seed)
    choose(strategy, choice_for(strategy, case.inputs()))
    strategy.observe_sample(sample(strategy))
    return strategy


def rewards_of(strategy, *, seed):
    rewards = strategy.observe_sample(sample(strategy, seed=seed))
    return encode([*rewards] if rewards is not None else None)


@over_all
def test_a_state_is_plain_data_and_what_is_set_is_got(case):
    strategy, other = used(case), case.make(root_seed=1)
    known = encode(strategy.get_state())
    other.check_state(decode(known))
    other.set_state(decode(known))
    assert encode(other.get_state()) == known
    rewards = [rewards_of(one, seed=5) for one in (strategy, other)]
    assert rewards[0] == rewards[1]
    assert encode(strategy.get_state()) == encode(other.get_state())


@over_all
def test_what_does_not_fit_is_refused_before_anything_changes(case):
    strategy = used(case)
    known = encode(strategy.get_state())
    assert strategy.get_state() or case.type in STATELESS
    for mutation in mutations(decode(known)) if strategy.get_state() else ():
        what, path = mutation
        if path[:1] == ("memory",) and what == "row added":
            continue  # it grows
        with pytest.raises(CheckpointMismatchError) as refused:
            strategy.check_state(mutated(decode(known), mutation))
        where = path[-1:] if what != "key added" else ("of another release",)
        assert all(repr(key) in str(refused.value) for key in where), mutation
        assert encode(strategy.get_state()) == known


@over_observing
def test_what_is_learnt_follows_from_the_seed_and_the_sample(name):
    case = CASES[name]
    first, again = used(case), used(case)
    assert encode(first.get_state()) == encode(again.get_state())
    assert encode(first.get_state()) != encode(case.make().get_state()), "it has learnt"
    if case.type != "ParameterNoise":
        assert rewards_of(used(case, root_seed=1), seed=5) != rewards_of(first, seed=5)


@pytest.mark.parametrize(
    "name", [name for name, case in CASES.items() if case.type == "ParameterNoise"]
)
def test_runners_are_told_what_they_act_by(name):
    strategy, runner = used(CASES[name]), CASES[name].make()
    assert encode(runner.runner_state()) != encode(strategy.runner_state()), "it has learnt"
    runner.set_state(strategy.runner_state())
    assert encode(runner.runner_state()) == encode(strategy.runner_state())
    assert runner.current_stddev == strategy.current_stddev


@over_all
def test_a_strategy_is_made_the_same_in_every_process(case):
    spec = ExplorationSpec.from_config(case.config, source=PROGRAM)
    there = cloudpickle.loads(cloudpickle.dumps(spec))
    assert there == spec == ExplorationSpec.from_config(spec.to_config(), source=PROGRAM)
    distribution = distribution_of(case.space)
    one, other = (each.make(case.space, distribution=distribution) for each in (spec, there))
    assert type(one) is type(other)
    assert one is not spec.make(case.space, distribution=distribution)
    assert (one.noise_kind, one.noise_width) == (other.noise_kind, other.noise_width)

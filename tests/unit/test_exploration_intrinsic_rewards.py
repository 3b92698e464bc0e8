"""Curiosity and RE3: gradients, rewards against their formulas, learning, state."""

import numpy as np
import pytest
from gymnasium import spaces

from checkpoints import encode
from tests.exploration_cases import made
from trainer.errors import ConfigError, ModuleError, UnsupportedSpaceError
from trainer.exploration import ExploredChunk, ExploredSample
from trainer.exploration.intrinsic_rewards import neighbour_distances

_SUB = {"type": "StochasticSampling"}
_TINY = {
    "feature_dim": 5,
    "feature_net_config": {"fcnet_hiddens": [6]},
    "inverse_net_hiddens": [7],
    "forward_net_hiddens": [6],
    "inverse_net_activation": "tanh",
    "forward_net_activation": "tanh",
}


def curious(space=None, **settings):
    config = {"type": "Curiosity", "sub_exploration": _SUB, **_TINY, **settings}
    strategy = made(config, spaces.Discrete(3) if space is None else space)
    strategy.prepare(obs_size=4, root_seed=0)
    return strategy


def re3(**settings):
    encoder = {"fcnet_hiddens": [16]}
    config = {"type": "RE3", "sub_exploration": _SUB, "embeds_dim": 8, **settings}
    strategy = made({"encoder_net_config": encoder, **config}, spaces.Discrete(3))
    strategy.prepare(obs_size=4, root_seed=0)
    return strategy


def steps(count, *, seed=0, width=1):
    rng = np.random.default_rng(seed)
    obs = rng.normal(size=(count + 1, 4)).astype(np.float32)
    actions = rng.integers(0, 2, (count, width))
    return obs[:-1], (actions[:, 0] if width == 1 else actions), obs[1:]


def chunk(count, *, seed=0):
    obs, actions, new_obs = steps(count, seed=seed)
    everything = np.concatenate([obs, new_obs[-1:]])
    return ExploredChunk(everything, actions, np.arange(count, dtype=np.float64), None)


def sample_of(chunks, *, iteration=0):
    def never(obs):
        raise AssertionError(obs)

    return ExploredSample(chunks, 0, iteration, never)


@pytest.mark.parametrize(
    ("space", "width"), [(spaces.Discrete(3), 1), (spaces.MultiDiscrete([3, 2]), 2)]
)
@pytest.mark.parametrize("beta", [0.0, 0.2, 1.0])
def test_curiosity_has_the_gradient_of_its_loss(space, width, beta):
    strategy = curious(space, beta=beta)
    networks = strategy._made_networks()
    batch = steps(6, width=width)
    strategy.loss(*batch)
    gradient = networks.gradients.flat.astype(np.float64)
    flat = networks.parameters.flat
    rng = np.random.default_rng(1)
    for _ in range(5):
        # float32: along a direction of all parameters, where the difference is well above rounding
        direction = rng.normal(size=flat.size)
        direction /= np.linalg.norm(direction)
        start = flat.copy()
        ends = []
        for sign in (1.0, -1.0):
            flat[:] = start + np.float32(0.02 * sign) * direction.astype(np.float32)
            ends.append(strategy.loss(*batch)[1])
        flat[:] = start
        measured = (ends[0] - ends[1]) / 0.04
        assert measured == pytest.approx(gradient @ direction, rel=0.02, abs=2e-3)


@pytest.mark.parametrize(("nvec", "shape"), [([[2], [2]], (2, 1)), (np.array(2), ())])
def test_curiosity_takes_choices_of_any_shape_as_choices_in_a_row(nvec, shape):
    flat = curious(spaces.MultiDiscrete(np.ravel(nvec)))
    shaped = curious(spaces.MultiDiscrete(nvec))
    obs, actions, new_obs = steps(6, width=2)
    actions = actions[:, : np.ravel(nvec).size]
    expected = flat.learn(obs, actions, new_obs)
    given = shaped.learn(obs, actions.reshape(6, *shape), new_obs)
    assert given.tobytes() == expected.tobytes()


def test_intrinsic_reward_is_half_the_squared_error_of_the_forward_model():
    strategy, same = curious(eta=2.0), curious()
    part = chunk(9)
    error, _ = same.loss(part.obs[:-1], part.actions, part.obs[1:])
    rewards = strategy.observe_sample(sample_of([part]))[0]
    expected = part.rewards + 2.0 * 0.5 * (error.astype(np.float64) ** 2).sum(axis=0)
    np.testing.assert_allclose(rewards, expected, rtol=1e-6)


def test_curiosity_gets_used_to_what_it_has_seen_and_is_surprised_by_what_is_new():
    strategy = curious(lr=5e-3)
    known = chunk(40)
    bonuses = [
        float((strategy.observe_sample(sample_of([known]))[0] - known.rewards).mean())
        for _ in range(150)
    ]
    part = chunk(40, seed=9)
    new = ExploredChunk(3.0 * part.obs, part.actions, part.rewards, None)
    surprise = float((strategy.observe_sample(sample_of([new]))[0] - new.rewards).mean())
    assert bonuses[-1] < 0.5 * bonuses[0]
    assert surprise > 2.0 * bonuses[-1]


def test_how_steps_are_cut_into_chunks_changes_nothing_about_curiosity():
    whole = chunk(20)
    first = ExploredChunk(whole.obs[:9], whole.actions[:8], whole.rewards[:8], None)
    second = ExploredChunk(whole.obs[8:], whole.actions[8:], whole.rewards[8:], None)
    together = curious().observe_sample(sample_of([whole]))[0]
    apart = np.concatenate(curious().observe_sample(sample_of([first, second])))
    assert together.tobytes() == apart.tobytes()


def test_features_that_are_not_finite_are_named_and_change_nothing():
    strategy = curious()
    before = strategy.get_state()
    part = chunk(4)
    part.obs[1] = np.nan
    with pytest.raises(ModuleError, match=r"not finite.*observations"):
        strategy.observe_sample(sample_of([part]))
    assert encode(strategy.get_state()) == encode(before)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"sub_exploration": None}, "needs `sub_exploration`"),
        ({"feature_net_config": {"fcnet_hidden": [3]}}, "Did you mean 'fcnet_hiddens'"),
        ({"inverse_net_activation": "rellu"}, "there is no activation 'rellu'"),
        ({"sub_exploration": {"type": "ParameterNoise"}}, "does more than to choose actions"),
    ],
)
def test_curiosity_names_what_is_missing_or_misspelt(settings, told):
    with pytest.raises(ConfigError, match=told):
        curious(**settings)


def test_curiosity_is_of_counted_actions():
    with pytest.raises(UnsupportedSpaceError, match="explores Discrete or MultiDiscrete"):
        curious(spaces.Box(-1.0, 1.0, (1,)))


def test_neighbour_distances_are_those_of_a_plain_search():
    known = np.random.default_rng(0).normal(size=(700, 3)).astype(np.float32)
    rows = known[-600:]
    found = neighbour_distances(rows, known, k=4)
    points = known.astype(np.float64)
    for index in (0, 17, 300, 599):
        distances = np.sort(np.linalg.norm(points - points[100 + index], axis=1))
        assert found[index] == pytest.approx(distances[4], rel=1e-9)


def test_with_few_states_the_farthest_neighbour_counts():
    known = np.array([[0.0], [1.0], [5.0]], np.float32)
    np.testing.assert_allclose(neighbour_distances(known, known, k=50), [5.0, 4.0, 5.0])
    assert neighbour_distances(known[:1], known[:1], k=50) == [0.0]


def test_re3_adds_the_logarithm_of_the_distance_over_its_running_deviation():
    strategy = re3(k_nn=3, beta=0.5)
    parts = [chunk(30, seed=seed) for seed in (0, 1)]
    memory = np.empty((0, 8), np.float32)
    seen = []
    for part in parts:
        embedded = re3().embed(part.obs[:-1])
        memory = np.concatenate([memory, embedded])
        entropies = np.log1p(neighbour_distances(embedded, memory, k=3))
        seen += entropies.tolist()
        rewards = strategy.observe_sample(sample_of([part]))[0]
        expected = part.rewards + 0.5 * entropies / np.std(seen)
        np.testing.assert_allclose(rewards, expected, rtol=1e-6)


def test_the_weight_of_re3_decays_with_iterations():
    constant, decaying = re3(beta=0.4), re3(beta=0.4, beta_schedule="linear_decay", rho=0.1)
    assert [constant.beta_at(t) for t in (0, 10)] == [0.4, 0.4]
    assert [decaying.beta_at(t) for t in (0, 1, 3)] == pytest.approx([0.4, 0.36, 0.2916])
    with pytest.raises(ConfigError, match="'constant' or 'linear_decay'"):
        re3(beta_schedule="linear")

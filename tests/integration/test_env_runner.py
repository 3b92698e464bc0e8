"""What `env_runner.sample()` plays: how much, with which actions, and what comes back."""

from contextlib import contextmanager

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from checkpoints import encode
from tests.small_runs import small_ppo
from trainer import ConfigError
from trainer.seeding import EnvSeeds, NoiseStream, Role, training_index
from trainer.testing.envs import ContinuousEnv, CorridorEnv, CountdownEnv


def config(env=CountdownEnv, *, num_envs=3, **settings):
    return small_ppo(env=env, num_slots=num_envs, seed=7).update_from_dict(settings)


@contextmanager
def runner(env=CountdownEnv, **settings):
    with config(env, **settings).build_algo() as algo:
        assert algo.env_runner is not None
        yield algo.env_runner


def as_bytes(episodes):
    return encode([episode.get_state() for episode in episodes])


def by_slot(episodes):
    """Episode ids are `training-<slot>-<number>`."""
    slots = {}
    for episode in episodes:
        slots.setdefault(episode.id_.split("-")[1], []).append(episode)
    return slots


@pytest.mark.parametrize("num_timesteps", [1, 2, 3, 31, 50])
@pytest.mark.parametrize("num_envs", [1, 3])
def test_num_timesteps_is_exact_over_all_sub_envs(num_timesteps, num_envs):
    with runner(num_envs=num_envs) as env_runner:
        for _ in range(3):
            episodes = env_runner.sample(num_timesteps=num_timesteps)
            assert sum(len(episode) for episode in episodes) == num_timesteps
            assert all(len(episode) > 0 for episode in episodes)


def test_running_episodes_go_on_in_the_next_call_and_chunks_fit_together():
    with runner(num_envs=2) as env_runner:
        cut = [episode for _ in range(10) for episode in env_runner.sample(num_timesteps=6)]
    with runner(num_envs=2) as env_runner:
        whole = env_runner.sample(num_timesteps=60)
    joined = {}
    for chunk in cut:
        if chunk.id_ in joined:
            joined[chunk.id_].concat_episode(chunk)
        else:
            joined[chunk.id_] = chunk
    assert len(cut) > len(joined)
    assert {e.id_: (e.get_return(), e.t, e.is_done) for e in joined.values()} == {
        e.id_: (e.get_return(), e.t, e.is_done) for e in whole
    }
    for episode in whole:
        assert np.array_equal(joined[episode.id_].get_observations(), episode.get_observations())
        assert np.array_equal(joined[episode.id_].get_actions(), episode.get_actions())


def test_episodes_come_ordered_by_sub_env_then_time():
    with runner(num_envs=3) as env_runner:
        ids = [tuple(map(int, e.id_.split("-")[1:])) for e in env_runner.sample(num_timesteps=90)]
    assert ids == sorted(ids)
    assert {slot for slot, _ in ids} == {0, 1, 2}


def test_num_episodes_gives_whole_episodes_and_gives_up_running_ones():
    with runner(num_envs=2) as env_runner:
        first = env_runner.sample(num_timesteps=3)
        assert any(not episode.is_done for episode in first)
        episodes = env_runner.sample(num_episodes=5)
        after = env_runner.sample(num_timesteps=1)
    assert [len(of_slot) for of_slot in by_slot(episodes).values()] == [3, 2]
    assert all(episode.is_done and episode.t_started == 0 for episode in episodes)
    assert {e.id_ for e in first}.isdisjoint(e.id_ for e in episodes), "numbers are never reused"
    assert after[0].t_started == 0


def test_num_episodes_counts_the_first_starts_not_the_first_finishes():
    """Taking the first n that finish prefers short episodes: the negative control does."""
    lengths = {"min_length": 1, "max_length": 40}
    with runner(num_envs=16, env_config=lengths) as env_runner:
        sampled = env_runner.sample(num_episodes=16)
    with runner(num_envs=16, env_config=lengths) as env_runner:
        played = by_slot(env_runner.sample(num_episodes=16 * 8))
    assert [episode.id_ for episode in sampled] == [f"training-{slot}-0" for slot in range(16)]
    finishes = sorted(
        (sum(len(episode) for episode in of_slot[: number + 1]), len(of_slot[number]))
        for of_slot in played.values()
        for number in range(len(of_slot))
    )
    mean = np.mean([len(episode) for episode in sampled])
    mean_of_first_finishes = np.mean([length for _, length in finishes[:16]])
    assert 16.0 < mean < 25.0, "lengths are uniform in 1 … 40"
    assert mean_of_first_finishes < 0.7 * mean


def test_nothing_is_played_for_a_zero():
    with runner() as env_runner:
        assert env_runner.sample(num_timesteps=0) == []
        assert env_runner.sample(num_episodes=0) == []


def test_without_numbers_the_configured_fragment_is_played():
    with runner(num_envs=3) as env_runner:
        assert sum(map(len, env_runner.sample())) == 60
    with runner(num_envs=3, batch_mode="complete_episodes") as env_runner:
        assert [episode.is_done for episode in env_runner.sample()] == [True] * 3


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ({"num_timesteps": 3, "num_episodes": 1}, "how much to play is given twice"),
        ({"num_timesteps": -1}, "asked to play -1; expected a number from 0 on"),
        ({"num_episodes": -2}, "asked to play -2"),
    ],
)
def test_impossible_amounts_are_refused(numbers, expected):
    with runner() as env_runner, pytest.raises(ConfigError, match=expected):
        env_runner.sample(**numbers)


def test_force_reset_begins_fresh_episodes():
    with runner(num_envs=2, env_config={"min_length": 9}) as env_runner:
        env_runner.sample(num_timesteps=4)
        going_on = env_runner.sample(num_timesteps=2)
        fresh = env_runner.sample(num_timesteps=2, force_reset=True)
    assert [(e.id_, e.t_started) for e in going_on] == [("training-0-0", 2), ("training-1-0", 2)]
    assert [(e.id_, e.t_started) for e in fresh] == [("training-0-1", 0), ("training-1-1", 0)]


def test_without_exploration_the_most_likely_actions_are_taken():
    with runner() as env_runner:
        episodes = env_runner.sample(num_timesteps=60, explore=False)
        for episode in episodes:
            inputs = episode.get_extra_model_outputs("action_dist_inputs")
            assert np.array_equal(episode.get_actions(), np.argmax(inputs, axis=1))
    with runner(explore=False) as env_runner:
        assert as_bytes(env_runner.sample(num_timesteps=60)) == as_bytes(episodes)
    with runner() as env_runner:
        explored = env_runner.sample(num_timesteps=60)
    assert any(
        not np.array_equal(
            episode.get_actions(),
            np.argmax(episode.get_extra_model_outputs("action_dist_inputs"), axis=1),
        )
        for episode in explored
    )


def test_random_actions_do_not_ask_the_module_and_are_uniform():
    with runner() as env_runner:
        env_runner.module = None
        episodes = env_runner.sample(num_timesteps=600, random_actions=True)
        again = env_runner.sample(num_timesteps=30, random_actions=True)
    actions = np.concatenate([episode.get_actions() for episode in episodes])
    assert 250 < np.sum(actions) < 350
    assert "action_logp" not in episodes[0].get_extra_model_outputs()
    assert sum(map(len, again)) == 30


class CountsFromFive(CountdownEnv):
    def __init__(self, env_config):
        super().__init__(env_config)
        self.action_space = spaces.Discrete(2, start=5)
        self.received = []

    def step(self, action):
        self.received.append(int(action))
        return super().step(action - 5)


@pytest.mark.parametrize("random_actions", [False, True])
def test_the_env_gets_discrete_actions_of_its_own_space(random_actions):
    with runner(CountsFromFive, num_envs=1) as env_runner:
        episodes = env_runner.sample(num_timesteps=40, random_actions=random_actions)
        received = env_runner.env.envs[0].unwrapped.received
    assert set(received) == {5, 6}
    actions = np.concatenate([episode.get_actions() for episode in episodes])
    assert (actions + 5).tolist() == received


@pytest.mark.parametrize("explore", [True, False])
def test_box_actions_are_stored_as_the_module_gave_them_and_scaled_for_the_env(explore):
    with runner(ContinuousEnv, num_envs=1, env_config={"num_steps": 30}) as env_runner:
        (episode,) = env_runner.sample(num_timesteps=29, explore=explore)
        received = np.array(env_runner.env.envs[0].unwrapped.received)
    actions = episode.get_actions()
    assert np.allclose(received, np.clip(2.0 * actions, -2.0, 2.0), atol=1e-6)
    if explore:
        assert np.abs(actions).max() > 1.0, "no action was clipped, so nothing was shown"


def test_random_box_actions_are_uniform_over_the_envs_own_bounds():
    with runner(ContinuousEnv, num_envs=1, env_config={"num_steps": 900}) as env_runner:
        env_runner.sample(num_timesteps=800, random_actions=True)
        received = np.array(env_runner.env.envs[0].unwrapped.received)
    counts, _ = np.histogram(received, bins=4, range=(-2.0, 2.0))
    assert counts.sum() == 800
    assert counts.min() > 150, "a quarter of the interval should get about 200 of the 800"


def test_discrete_observations_are_played_and_kept_as_they_are():
    with runner(CorridorEnv, num_envs=2) as env_runner:
        episodes = env_runner.sample(num_episodes=3)
    for episode in episodes:
        places = np.asarray(episode.get_observations())
        assert places.dtype.kind == "i"
        moves = np.where(np.asarray(episode.get_actions()) == 1, 1, -1)
        assert np.array_equal(places[1:], np.maximum(0, places[:-1] + moves))


def test_the_truncation_of_a_wrapper_ends_an_episode():
    def create(context):
        return gymnasium.wrappers.TimeLimit(CountdownEnv({"min_length": 9}), 4)

    with runner(create) as env_runner:
        episodes = env_runner.sample(num_episodes=3)
    assert [(e.is_truncated, e.is_terminated, len(e)) for e in episodes] == [(True, False, 4)] * 3


def test_an_episode_can_be_played_again_alone_from_its_position():
    with runner(num_envs=2) as env_runner:
        episode = env_runner.sample(num_episodes=4)[-1]
        distribution = env_runner.module.action_distribution
    assert episode.id_ == "training-1-1"
    kind, width = distribution.noise_kind, distribution.noise_width
    noise = NoiseStream(7, Role.TRAINING, kind=kind, width=width)
    noise.start(1, 1)
    rows = np.array([noise.next_row() for _ in range(len(episode))])
    inputs = np.asarray(episode.get_extra_model_outputs("action_dist_inputs"))
    assert np.array_equal(distribution.sample(inputs, rows), episode.get_actions())
    env = CountdownEnv()
    seed = EnvSeeds(7).seed(Role.TRAINING, training_index(1, 1, num_slots=2))
    observations = [env.reset(seed=seed)[0]]
    observations += [env.step(action)[0] for action in np.asarray(episode.get_actions())]
    assert np.array_equal(observations, episode.get_observations())


def test_a_runner_tells_its_place_and_gives_copies_of_its_weights():
    with runner() as env_runner:
        assert (env_runner.worker_index, env_runner.num_workers, env_runner.num_envs) == (0, 0, 3)
        assert env_runner.ping() == "pong"
        assert env_runner.config.in_evaluation is False
        weights = env_runner.get_weights()
        env_runner.set_weights({name: 0 * array for name, array in weights.items()})
        assert not any(array.any() for array in env_runner.get_weights().values())
        assert any(array.any() for array in weights.values())

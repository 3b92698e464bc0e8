"""EnvPool behind `gym_env_vectorize_mode`: seeds, ends and infos, with a library that plays it.

What needs the real one is skipped without the extra.
"""

import sys
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from checkpoints import encode
from tests.multi_agent_runs import everything
from trainer import Algorithm, ConfigError, PPOConfig, register_env
from trainer.envs.envpool_envs import EnvPoolVectorEnv
from trainer.errors import EnvCreationError


class Pool:
    """Steps as EnvPool does: the step after an episode's end is the reset.

    Sub-env i shows its number, seed % 1,000 + i, and the steps so far; its episodes have 2 + number
    % 3 steps and pay 1.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(2)
    render_mode = None
    made: list[int] = []

    def __init__(self, num_envs, seed, batch_size=0, max_num_players=1, length=0):
        self.config = {"batch_size": batch_size, "max_num_players": max_num_players}
        self._numbers = seed % 1000 + np.arange(num_envs)
        self._lengths = length or 2 + self._numbers % 3
        self._is_closed = False
        type(self).made.append(seed)

    def _answer(self):
        shown = np.stack([self._numbers, self._steps], axis=1).astype(np.float32)
        ids = np.arange(len(self._steps))
        infos = {"env_id": ids, "players": {"env_id": ids}, "lives": self._numbers % 5}
        return shown, infos

    def reset(self):
        assert not self._is_closed
        self._steps = np.zeros(len(self._numbers), np.int64)
        self._ended = np.zeros(len(self._numbers), bool)
        return self._answer()

    def step(self, actions):
        assert actions.shape == self._steps.shape
        rewards = np.where(self._ended, 0.0, 1.0).astype(np.float32)
        self._steps = np.where(self._ended, 0, self._steps + 1)
        self._ended = self._steps >= self._lengths
        shown, infos = self._answer()
        return shown, rewards, self._ended.copy(), np.zeros(len(shown), bool), infos

    def close(self):
        self._is_closed = True


@pytest.fixture(autouse=True)
def library(monkeypatch):
    Pool.made = []

    def make(task, kind, *, num_envs, seed, **options):
        assert (task, kind) == ("Counting-v0", "gymnasium")
        return Pool(num_envs, seed, **options)

    fake = SimpleNamespace(make=make, list_all_envs=lambda: ["Counting-v0", "Pong-v5"])
    monkeypatch.setitem(sys.modules, "envpool", fake)


def counting(num_envs=6, **options):
    return (
        PPOConfig()
        .environment("Counting-v0", env_config=options)
        .env_runners(
            num_env_runners=0,
            num_envs_per_env_runner=num_envs,
            gym_env_vectorize_mode="envpool",
        )
        .training(
            train_batch_size=60, minibatch_size=30, num_epochs=1, model={"fcnet_hiddens": [4]}
        )
        .debugging(seed=4)
    )


def test_a_seed_at_reset_is_that_of_another_pool():
    env = EnvPoolVectorEnv("Counting-v0", 3, {})
    first, infos = env.reset(seed=7)
    assert first[:, 0].tolist() == [7.0, 8.0, 9.0]
    assert env.reset()[0].tolist() == first.tolist(), "the same pool goes on"
    assert env.reset(seed=2**31 + 5)[0][0, 0] == 8.0, "within 31 bits, for each of the sub-envs"
    assert Pool.made == [0, 7, 8]
    assert sorted(infos) == ["_lives", "lives"]
    assert infos["_lives"].all()
    assert env.observation_space.shape == (3, 2)
    assert env.action_space.shape == (3,)


def test_episodes_are_those_of_the_pool_without_its_resets():
    with counting().build_algo() as algo:
        episodes = algo.env_runner.sample(num_timesteps=60)
        (seed,) = Pool.made[1:]
        ended = [episode for episode in episodes if episode.is_done]
        assert len(ended) > 10
        for episode in ended:
            observations = episode.get_observations()
            number = int(observations[0, 0])
            assert number - seed % 1000 in range(6)
            assert len(episode) == 2 + number % 3 == episode.get_return()
            assert observations[:, 1].tolist() == list(range(len(episode) + 1))
            assert {info["lives"] for info in episode.get_infos()} == {number % 5}


def test_the_same_seed_gives_the_same_bytes_and_another_one_does_not():
    first = everything(counting())
    assert everything(counting()) == first
    assert everything(counting().debugging(seed=5)) != first


@pytest.mark.parametrize(
    ("batch_mode", "is_exact"), [("complete_episodes", True), ("truncate_episodes", False)]
)
def test_a_restored_run_of_whole_episodes_ends_with_the_same_bytes(tmp_path, batch_mode, is_exact):
    config = counting().env_runners(batch_mode=batch_mode)
    with config.build_algo() as algo:
        algo.train()
        algo.save_to_path(tmp_path / "saved")
        algo.train()
        undisturbed = algo.get_module().get_state()
    with Algorithm.from_checkpoint(tmp_path / "saved") as algo:
        algo.train()
        restored = algo.get_module().get_state()
    assert (encode(restored) == encode(undisturbed)) is is_exact


def test_the_smallest_and_largest_numbers_of_a_pool_are_no_bounds(monkeypatch):
    limits = np.finfo(np.float64)
    space = spaces.Box(limits.tiny, limits.max, (2,), np.float64)
    monkeypatch.setattr(Pool, "observation_space", {"a": space, "b": spaces.Discrete(3)})
    found = EnvPoolVectorEnv("Counting-v0", 3, {}).single_observation_space
    assert found == spaces.Dict(
        {"a": spaces.Box(-np.inf, np.inf, (2,), np.float64), "b": spaces.Discrete(3)}
    )


def test_options_are_those_of_the_library():
    with counting(length=3).build_algo() as algo:
        result = algo.train()["env_runners"]
    assert result["episode_len_min"] == result["episode_len_max"] == 3


def registered(config):
    register_env("a-pool", lambda _: Pool(1, 0))
    return config.environment("a-pool")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: c.environment("Count-v0"), "Did you mean 'Counting-v0'"),
        (lambda c: c.environment(Pool), "EnvPool makes its own tasks, by name"),
        (lambda c: c.environment(env_config={"batch_size": 2}), "batch_size=2"),
        (lambda c: c.environment(env_config={"max_num_players": 2}), "max_num_players=2"),
        (lambda c: c.environment(env_config={"seed": 2}), r"'seed' of EnvPool.*debugging\(seed"),
        (
            lambda c: c.environment(env_config={"num_threads": -1}),
            "num_threads=-1: expected an int",
        ),
        (registered, "what is registered are not asked"),
    ],
)
def test_what_cannot_be_played_is_refused(change, said):
    with pytest.raises(EnvCreationError, match=said):
        change(counting()).build_algo()


@pytest.mark.parametrize("wrap", [lambda pool: pool, gymnasium.vector.VectorWrapper])
def test_a_pool_that_a_creator_returns_is_refused_with_what_to_write(wrap):
    kind = type("Mixin", (), {"__module__": "envpool.python.gymnasium_envpool"})
    pool = type("CartPoleGymnasiumEnvPool", (kind, gymnasium.vector.VectorEnv), {})
    config = counting().environment(lambda _: wrap(pool()))
    config.env_runners(gym_env_vectorize_mode="vector_entry_point")
    with pytest.raises(EnvCreationError, match='gym_env_vectorize_mode="envpool"'):
        config.build_algo()


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(EnvCreationError, match=r"pip install \"local-trainer\[envpool\]\""):
        counting().build_algo()


def test_what_single_envs_alone_can_do_is_refused():
    config = counting().fault_tolerance(restart_failed_sub_environments=True)
    with pytest.raises(ConfigError, match="restart_failed_sub_environments"):
        config.validate()


def test_cartpole_is_learnt_and_repeated(monkeypatch):
    monkeypatch.delitem(sys.modules, "envpool")
    pytest.importorskip("envpool")

    def config(num_threads=1):
        options = {"num_threads": num_threads}
        made = counting(16).environment("CartPole-v1", env_config=options)
        return made.training(train_batch_size=1024, minibatch_size=256, num_epochs=8, lr=2e-3)

    learnt = [everything(config(num_threads), 2) for num_threads in (1, 1, 2)]
    assert learnt[0] == learnt[1] == learnt[2]
    with config().build_algo() as algo:
        returns = [algo.train()["env_runners"]["episode_return_mean"] for _ in range(12)]
    assert returns[-1] > 3 * returns[0]

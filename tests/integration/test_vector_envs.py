"""Vector envs that step all their sub-envs in one call: episodes, exactness, losses, refusals."""

import logging
import pickle
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from callbacks import CallbackError
from checkpoints import encode
from tests.small_runs import killing
from tests.vector_walks import Roaming, Walks
from trainer import DQNConfig, PPOConfig
from trainer.cli.checkpoint_commands import inspection
from trainer.env_runners.vector_player import VectorPlayer
from trainer.envs import native_vector_env
from trainer.episodes.fragment import FragmentEpisode
from trainer.episodes.single_agent_episode import ActingRequest
from trainer.errors import ConfigError, EnvContractError, EnvCreationError
from trainer.metrics import comparable

MODES = list(AutoresetMode)


class Counter(gym.Env[Any, Any]):
    """Shows [number of the episode, step]; the episode of sub-env i has 2 + i steps.

    It is truncated in odd episodes, and pays the number of the step.
    """

    def __init__(self, index):
        self.observation_space = spaces.Box(-1.0, 1000.0, (2,), np.float32)
        self.action_space = spaces.Discrete(3)
        self.length, self.number = 2 + index, -1

    def seen(self):
        return np.array([self.number, self.steps], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.number, self.steps = self.number + 1, 0
        return self.seen(), {"begins": self.number}

    def step(self, action):
        self.steps += 1
        is_over, is_odd = self.steps >= self.length, self.number % 2 == 1
        infos = {"step": self.steps} if self.steps % 2 else {}
        return self.seen(), float(self.steps), is_over and not is_odd, is_over and is_odd, infos


def counters(config):
    """Three of them, in the autoreset mode that the config names."""
    makers = [lambda index=index: Counter(index) for index in range(3)]
    return SyncVectorEnv(makers, autoreset_mode=AutoresetMode(config["mode"]))


def ppo(env="CartPole-v1", num_env_runners=0, num_envs=4):
    config = PPOConfig().environment(env).debugging(seed=3)
    config.env_runners(
        num_env_runners=num_env_runners,
        num_envs_per_env_runner=num_envs,
        gym_env_vectorize_mode="vector_entry_point",
    )
    config.training(train_batch_size=120, minibatch_size=30, num_epochs=2)
    return config.rl_module(model_config={"fcnet_hiddens": [8]})


def counting(mode):
    return ppo(counters, num_envs=3).environment(counters, env_config={"mode": mode.value})


def learnt(config, iterations=3):
    with config.build_algo() as algo:
        results = [comparable(algo.train())["env_runners"] for _ in range(iterations)]
        return encode([algo.get_state(["learner", "counters"]), results])


# ---- episodes


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("num_timesteps", [7, 50])
def test_episodes_are_those_of_the_sub_envs_in_every_autoreset_mode(mode, num_timesteps):
    with counting(mode).build_algo() as algo:
        runner = algo.env_runner
        chunks = [c for _ in range(4) for c in runner.sample(num_timesteps=num_timesteps)]
    by_id = {}
    for chunk in chunks:
        by_id.setdefault(chunk.id_, []).append(chunk)
    seen = {}
    for id_, parts in by_id.items():
        whole = parts[0]
        for part in parts[1:]:
            whole.concat_episode(part)
        slot = int(id_.split("-")[1])
        observations, rewards = whole.get_observations(), whole.get_rewards()
        assert observations[:, 1].tolist() == list(range(len(whole) + 1))
        assert len(set(observations[:, 0])) == 1
        assert rewards.tolist() == [float(step + 1) for step in range(len(whole))]
        infos = whole.get_infos()
        assert [info.get("step") for info in infos[1:]] == [
            step if step % 2 else None for step in range(1, len(whole) + 1)
        ]
        number = int(observations[0, 0])
        if whole.is_done:
            assert len(whole) == 2 + slot
            assert whole.is_truncated is (number % 2 == 1)
            assert whole.is_terminated is (number % 2 == 0)
        seen.setdefault(slot, []).append(number)
    # Every episode that the vector env began was recorded, in order.
    assert all(numbers == list(range(len(numbers))) for numbers in seen.values())
    assert set(seen) == {0, 1, 2}


@pytest.mark.parametrize("mode", MODES)
def test_whole_episodes_are_as_many_as_were_asked_for(mode):
    with counting(mode).build_algo() as algo:
        for count in (5, 2):
            episodes = algo.env_runner.sample(num_episodes=count)
            assert len(episodes) == count
            assert all(episode.is_done for episode in episodes)
            assert all(episode.get_observations()[0, 1] == 0.0 for episode in episodes)


def test_env_steps_are_counted_over_all_sub_envs():
    with ppo(num_envs=8).build_algo() as algo:
        for steps, expected in ((80, 80), (10, 16), (1, 8)):
            chunks = algo.env_runner.sample(num_timesteps=steps, force_reset=True)
            found = sum(map(len, chunks))
            assert expected - 8 < found <= expected + 8
            assert found >= steps


def test_env_runner_env_is_a_vector_env_of_gymnasium():
    made = []
    config = ppo(num_envs=5).callbacks(on_environment_created=lambda *, env, **_: made.append(env))
    with config.build_algo() as algo:
        algo.train()
        env = algo.env_runner.env
        assert made[0] is env
        assert (env.num_envs, len(env.envs)) == (5, 5)
        assert env.get_attr("gravity") == (9.8,) * 5
        env.set_attr("gravity", 9.9)
        assert env.native.gravity == 9.9
        assert env.single_action_space == spaces.Discrete(2)
        assert env.observation_space.shape == (5, 4)
        assert isinstance(env, gym.vector.VectorEnv)


def test_callbacks_and_metrics_are_those_of_single_envs():
    counts = {"created": 0, "start": 0, "step": 0, "end": 0}

    def count(name):
        def listener(*, episode, env_index, **_):
            assert 0 <= env_index < 4
            counts[name] += 1
            if name == "end":
                assert episode.is_done

        return listener

    config = ppo().callbacks(**{f"on_episode_{name}": count(name) for name in counts})
    with config.build_algo() as algo:
        result = algo.train()["env_runners"]
    assert counts["step"] == result["num_env_steps_sampled"] >= 120
    assert counts["end"] <= counts["created"] == counts["start"] <= counts["end"] + 4
    assert result["num_episodes"] == counts["end"] > 0
    assert result["episode_return_mean"] == result["episode_len_mean"]


def test_dqn_and_an_evaluation_run_and_are_repeatable():
    def outcome():
        config = DQNConfig().environment("CartPole-v1").debugging(seed=3)
        config.env_runners(num_envs_per_env_runner=4, gym_env_vectorize_mode="vector_entry_point")
        config.training(num_steps_sampled_before_learning_starts=20, train_batch_size=16)
        config.reporting(min_sample_timesteps_per_iteration=40)
        config.evaluation(evaluation_interval=1, evaluation_duration=5)
        with config.build_algo() as algo:
            results = [comparable(algo.train()) for _ in range(2)]
            assert results[0]["evaluation"]["env_runners"]["num_episodes"] == 5
            return encode([result["evaluation"]["env_runners"] for result in results])

    assert outcome() == outcome()


# ---- exactness


def test_equal_seeds_give_equal_bytes():
    assert learnt(ppo()) == learnt(ppo())
    assert learnt(ppo()) != learnt(ppo().debugging(seed=4))


def restored(config, path, *, iterations=2):
    """What an undisturbed run learns, what a restored one learns, and its last result."""
    undisturbed = learnt_state(config.copy(), 1 + iterations)
    with config.copy().build_algo() as algo:
        algo.train()
        algo.save_to_path(path)
    with config.copy().build_algo() as algo:
        algo.restore_from_path(path)
        for _ in range(iterations):
            result = algo.train()
        return undisturbed, encode(algo.get_state(["learner"])), result


def learnt_state(config, iterations):
    with config.build_algo() as algo:
        for _ in range(iterations):
            algo.train()
        return encode(algo.get_state(["learner"]))


@pytest.mark.parametrize("num_envs", [4, 1])
def test_a_restored_run_goes_on_with_the_same_bytes(num_envs, tmp_path):
    undisturbed, again, _ = restored(ppo(num_envs=num_envs), tmp_path / "c")
    assert again == undisturbed


def test_a_forgotten_part_of_the_state_is_found(tmp_path, monkeypatch):
    names = [name for name in native_vector_env._CART_POLE if name != "state"]
    monkeypatch.setattr(native_vector_env, "_CART_POLE", tuple(names))
    undisturbed, again, _ = restored(ppo(), tmp_path / "c")
    assert again != undisturbed


def test_an_iteration_that_failed_is_undone():
    raises = {"at": -1}

    def on_train_result(**_):
        raises["at"] += 1
        if raises["at"] == 1:
            raise ValueError("on purpose")

    undisturbed = learnt_state(ppo(), 3)
    with ppo().callbacks(on_train_result=on_train_result).build_algo() as algo:
        algo.train()
        with pytest.raises(Exception, match="on purpose"):
            algo.train()
        for _ in range(2):
            algo.train()
        assert encode(algo.get_state(["learner"])) == undisturbed


@pytest.mark.process
def test_a_runner_that_is_killed_gives_the_same_bytes(tmp_path):
    file = tmp_path / "kills"
    file.touch()
    killed = learnt_state(
        ppo(num_env_runners=2, num_envs=2).callbacks(on_episode_step=killing(file, at_step=9)), 2
    )
    assert not file.exists()
    assert killed == learnt_state(ppo(num_env_runners=2, num_envs=2), 2)


@pytest.mark.parametrize("mode", MODES)
def test_without_a_state_running_episodes_are_lost_counted_and_told(mode, tmp_path, caplog):
    with counting(mode).build_algo() as algo:
        algo.train()
        algo.save_to_path(tmp_path / "c")
    report = inspection(tmp_path / "c")
    assert {episode["restored_by"] for episode in report["running_episodes"]} == {"nothing"}
    with counting(mode).build_algo() as algo, caplog.at_level(logging.WARNING):
        algo.restore_from_path(tmp_path / "c")
        result = algo.train()
    assert 1 <= result["fault_tolerance/num_episodes_lost"] <= 3
    told = [record.getMessage() for record in caplog.records if "counters" in record.getMessage()]
    assert len(told) == 1
    assert "needs get_state() and set_state()" in told[0]


def test_an_env_with_a_state_of_its_own_is_gone_on_with(tmp_path):
    undisturbed, again, result = restored(ppo(Walks, num_envs=3), tmp_path / "c")
    assert again == undisturbed
    assert result["fault_tolerance/num_episodes_lost"] == 0


def test_what_a_vector_env_carries_over_is_undone_with_the_first_iteration():
    errors = [ValueError("on purpose")]

    def on_train_result(**_):
        if errors:
            raise errors.pop()

    undisturbed = learnt_state(ppo(Roaming, num_envs=3), 2)
    with ppo(Roaming, num_envs=3).callbacks(on_train_result=on_train_result).build_algo() as algo:
        with pytest.raises(CallbackError, match="on purpose"):
            algo.train()
        for _ in range(2):
            algo.train()
        assert encode(algo.get_state(["learner"])) == undisturbed


def test_tasks_reach_the_vector_env_and_last(tmp_path):
    with ppo(Walks, num_envs=3).build_algo() as algo:
        algo.train()
        algo.env_runner_group.set_task(9)
        assert algo.env_runner.env.native.distance == 9
        algo.train()
        algo.save_to_path(tmp_path / "c")
        expected = algo.train()["env_runners"]["episode_len_mean"]
    with ppo(Walks, num_envs=3).build_algo() as algo:
        algo.restore_from_path(tmp_path / "c")
        assert algo.env_runner.env.native.distance == 9
        assert algo.train()["env_runners"]["episode_len_mean"] == expected


def test_a_task_function_is_asked_once_for_all_sub_envs_of_a_vector_env():
    made = ppo(Walks, num_envs=3)
    made.environment(env_task_fn=lambda results, env, context: env.get_task() + 1)
    with made.build_algo() as algo:
        algo.train()
        assert algo.env_runner_group.get_tasks() == [5, 5, 5]


def test_a_state_of_other_sub_envs_is_not_taken(tmp_path):
    with ppo(num_env_runners=0, num_envs=4).build_algo() as algo:
        algo.train()
        algo.save_to_path(tmp_path / "c")
    with ppo(num_env_runners=0, num_envs=2).build_algo() as algo:
        algo.restore_from_path(tmp_path / "c")
        result = algo.train()
    assert result["fault_tolerance/num_episodes_lost"] >= 2


# ---- recorded as columns, and one by one


class Drifting(gym.vector.VectorEnv[Any, Any, Any]):
    """Box actions that are scaled; resets take a step; infos, now and then, of some sub-envs."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, config):
        self.num_envs = 5
        self.single_observation_space = spaces.Box(-99.0, 99.0, (2, 2), np.float32)
        self.single_action_space = spaces.Box(-3.0, 3.0, (2,), np.float32)
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, 5)
        self.action_space = gym.vector.utils.batch_space(self.single_action_space, 5)
        self.places = np.zeros((5, 2, 2), np.float32)
        self.ended = np.zeros(5, np.bool_)
        self.fails_at, self.count = config.get("fails_at", -1), 0

    def get_state(self):
        return {"places": self.places.copy(), "ended": self.ended.copy()}

    def set_state(self, state):
        self.places, self.ended = np.array(state["places"]), np.array(state["ended"])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.places[:] = np.arange(20).reshape(5, 2, 2) % 7
        self.ended[:] = False
        return self.places, {}

    def step(self, actions):
        self.count += 1
        if self.count == self.fails_at:
            raise RuntimeError("on purpose")
        assert np.abs(actions).max() <= 3.0
        self.places[:, 0] += actions
        self.places[self.ended] = 0.5
        rewards = np.where(self.ended, 0.0, self.places[:, 0, 1]).astype(np.float32)
        has = self.places[:, 0, 0] > 3.0
        infos = {"far": self.places[:, 0, 0].copy(), "_far": has} if has.any() else {}
        self.ended = np.abs(self.places[:, 0]).sum(axis=1) > 8.0
        return self.places, rewards, self.ended.copy(), np.zeros(5, np.bool_), infos


def scaled(env):
    return ppo(env, num_envs=5)


def dqn(exploration):
    config = DQNConfig().environment("CartPole-v1").debugging(seed=3)
    config.env_runners(
        num_envs_per_env_runner=5,
        gym_env_vectorize_mode="vector_entry_point",
        rollout_fragment_length=7,
        exploration_config={"type": exploration},
    )
    config.training(num_steps_sampled_before_learning_starts=20, train_batch_size=16)
    return config.reporting(min_sample_timesteps_per_iteration=70)


def begins_and_ends(config):
    def on_episode_start(*, episode, metrics_logger, **_):
        episode.user_data["begun"] = episode.get_observations(-1).sum()
        metrics_logger.log_value("begun", float(episode.user_data["begun"]))

    def on_episode_end(*, episode, prev_episode_chunks, metrics_logger, **_):
        assert "begun" in episode.user_data
        seen = [chunk.get_rewards() for chunk in (*prev_episode_chunks, episode)]
        assert isinstance(episode.get_actions(), list)
        metrics_logger.log_value("total", float(sum(map(sum, seen))))
        metrics_logger.log_value("logp", float(sum(episode.get_extra_model_outputs("action_logp"))))

    return config.callbacks(on_episode_start=on_episode_start, on_episode_end=on_episode_end)


def ends(config):
    def on_episode_end(*, episode, prev_episode_chunks, metrics_logger, **_):
        seen = sum(map(len, (*prev_episode_chunks, episode)))
        metrics_logger.log_value("steps_of_ends", seen, reduce="sum")
        metrics_logger.log_value("ends", 1, reduce="sum")

    return config.callbacks(on_episode_end=on_episode_end)


def edited_samples(config):
    def on_sample_end(*, samples, **_):
        for episode in samples:
            episode.set_rewards(new_data=episode.get_rewards() * 2.0)

    return config.callbacks(on_sample_end=on_sample_end)


def equally_long(config):
    """Two sub-envs whose episodes always end in the same step."""
    config.environment(lambda _: SyncVectorEnv([lambda: Counter(1)] * 2))
    return config.env_runners(num_envs_per_env_runner=2)


RECORDED = {
    "CartPole": ppo,
    "next step": lambda: counting(AutoresetMode.NEXT_STEP),
    "same step": lambda: counting(AutoresetMode.SAME_STEP),
    "disabled": lambda: counting(AutoresetMode.DISABLED),
    "Box": lambda: scaled(Drifting),
    "look-back of 3": lambda: ppo().env_runners(episode_lookback_horizon=3),
    "no look-back": lambda: scaled(Drifting).env_runners(episode_lookback_horizon=0),
    "greedy": lambda: ppo().env_runners(explore=False),
    "begins and ends heard": lambda: begins_and_ends(counting(AutoresetMode.SAME_STEP)),
    "the same of CartPole": lambda: begins_and_ends(ppo()),
    "ends heard": lambda: ends(ppo()),
    "samples edited": lambda: edited_samples(ppo()),
    "epsilon-greedy": lambda: dqn("EpsilonGreedy"),
    "soft Q": lambda: dqn("SoftQ"),
    "noise that goes on": lambda: scaled(Drifting).env_runners(
        exploration_config={"type": "OrnsteinUhlenbeckNoise", "random_timesteps": 9}
    ),
    "noise of features": lambda: (
        scaled(Drifting)
        .env_runners(exploration_config={"type": "StateDependentNoise", "sample_freq": 3})
        .training(model={"fcnet_hiddens": [8], "free_log_std": True, "log_std_by_feature": True})
    ),
    "younger than the look-back": lambda: ppo(num_envs=1).env_runners(episode_lookback_horizon=40),
    "all end at once": lambda: equally_long(dqn("EpsilonGreedy")),
}


def recorded(config, *, as_columns, monkeypatch):
    """All that is learnt and reported, all that is sampled, and where the slots stand."""
    used = []
    can_be = VectorPlayer._can_be_columns

    def chosen(player, request):
        used.append(can_be(player, request) and as_columns)
        return used[-1]

    monkeypatch.setattr(VectorPlayer, "_can_be_columns", chosen)
    with config.build_algo() as algo:
        results = [comparable(algo.train()) for _ in range(2)]
        state = algo.get_state(["learner", "counters", "env_runners"])
        for episode in (slot["episode"] for slot in state["env_runners"]["slots"]):
            if episode is not None:  # a reward out of a column is a float of NumPy
                episode["rewards"] = [float(reward) for reward in episode["rewards"]]
        chunks = [
            chunk.get_state()
            for count in (1, 33, 64)
            for chunk in algo.env_runner.sample(num_timesteps=count)
        ]
        forced = [
            chunk.get_state() for chunk in algo.env_runner.sample(num_timesteps=9, force_reset=True)
        ]
    monkeypatch.undo()
    assert any(used) is as_columns
    return encode(results), encode(state), encode(chunks), encode(forced)


@pytest.mark.parametrize("name", RECORDED)
def test_columns_record_the_bytes_that_sub_envs_one_by_one_do(name, monkeypatch):
    make = RECORDED[name]
    one_by_one = recorded(make(), as_columns=False, monkeypatch=monkeypatch)
    together = recorded(make(), as_columns=True, monkeypatch=monkeypatch)
    assert together == one_by_one


@pytest.mark.parametrize("lookback", [1, 3])
def test_episodes_go_on_after_random_actions(lookback, monkeypatch):
    def played():
        with ppo().env_runners(episode_lookback_horizon=lookback).build_algo() as algo:
            requests = ((9, True), (4, False), (8, False), (20, False))
            return encode(
                [
                    chunk.get_state()
                    for count, is_random in requests
                    for chunk in algo.env_runner.sample(
                        num_timesteps=count, random_actions=is_random
                    )
                ]
            )

    together = played()
    monkeypatch.setattr(VectorPlayer, "_can_be_columns", lambda *_: False)
    assert played() == together


def after_an_error(env):
    config = scaled(env).environment(env, env_config={"fails_at": 12})
    with config.build_algo() as algo:
        runner = algo.env_runner
        runner.sample(num_timesteps=25)
        with pytest.raises(RuntimeError, match="on purpose"):
            runner.sample(num_timesteps=100)
        context = runner.failure_context()
        assert 1 <= context["step"] <= 11
        assert context["episode"].startswith("training-")
        slots = [slot for slot in runner._player.slots if slot.episode is not None]
        where = [(s.index, s.env_seed, s.observation, s.episode.get_state()) for s in slots]
        lengths = {slot.episode.id_: len(slot.episode) for slot in slots}
        later = {chunk.id_: chunk for chunk in runner.sample(num_timesteps=40)}
        assert all(len(later[id_]) >= length for id_, length in lengths.items())
        for chunk in later.values():
            chunk.validate()
        return context, encode(where)


def test_after_an_error_slots_know_where_they_stand(monkeypatch):
    context, where = after_an_error(Drifting)
    monkeypatch.setattr(VectorPlayer, "_can_be_columns", lambda *_: False)
    assert after_an_error(Drifting) == (context, where)


def test_running_episodes_stay_where_the_log_likelihoods_of_a_request_cannot_be_computed():
    with ppo().build_algo() as algo:
        runner = algo.env_runner
        first = runner.sample(num_timesteps=12)
        compute, fails = runner._player.policy.logp, [True]

        def logp(*given, **named):
            if fails.pop() if fails else False:
                raise RuntimeError("on purpose")
            return compute(*given, **named)

        runner._player.policy.logp = logp
        with pytest.raises(RuntimeError, match="on purpose"):
            runner.sample(num_timesteps=12)
        lengths = [(slot.episode.id_, slot.episode.t) for slot in runner._player.slots]
        assert lengths == [(chunk.id_, 6) for chunk in first]
        later = [runner.sample(num_timesteps=12) for _ in range(2)]
        steps = [
            (chunk.id_, step)
            for chunk in [*first, *later[0], *later[1]]
            for step in range(chunk.t_started, chunk.t)
        ]
        assert len(set(steps)) == len(steps), "each step is handed out once"
        assert {(chunk.t_started, chunk.t) for chunk in later[0]} == {(3, 9)}
        for chunk in [*later[0], *later[1]]:
            chunk.validate()
            assert np.isfinite(chunk.get_extra_model_outputs("action_logp")).all()


@pytest.mark.parametrize("index", [0, 2])
def test_what_was_changed_in_a_running_episode_stays_whatever_its_slot(index):
    with ppo(num_envs=3).env_runners(episode_lookback_horizon=2).build_algo() as algo:
        runner = algo.env_runner
        runner.sample(num_timesteps=12)
        before = runner.sample(num_timesteps=12)
        untouched = {chunk.id_: chunk.observations.data[-3:].copy() for chunk in before}
        episode = runner._player.slots[index].episode
        changed = np.full(4, 0.5, np.float32)
        episode.observations.data[0] = changed
        for chunk in runner.sample(num_timesteps=9):
            expected = untouched[chunk.id_]
            if chunk.id_ == episode.id_:
                expected[0] = changed
            assert chunk.observations.data[:3].tobytes() == expected.tobytes()


def after_a_callback_raised(mode):
    """Where slots stand after the first of two episodes that ended together was told of."""
    makers = [lambda: Counter(1), lambda: Counter(1), lambda: Counter(3)]

    def env(_):
        return SyncVectorEnv(makers, autoreset_mode=mode)

    def on_episode_end(**_):
        raise RuntimeError("on purpose")

    config = ppo(env, num_envs=3).callbacks(on_episode_end=on_episode_end)
    with config.build_algo() as algo:
        runner = algo.env_runner
        with pytest.raises(Exception, match="on purpose"):
            runner.sample(num_timesteps=60)
        slots = [slot for slot in runner._player.slots if slot.episode is not None]
        assert [slot.episode.is_terminated for slot in slots] == [True, True, False]
        return encode(
            [
                (slot.episode.get_state(), slot.observation, slot.seat.noise.next_row().tolist())
                for slot in slots
            ]
        )


@pytest.mark.parametrize("mode", MODES)
def test_all_episodes_that_ended_are_marked_where_the_callback_of_one_raises(mode, monkeypatch):
    together = after_a_callback_raised(mode)
    monkeypatch.setattr(VectorPlayer, "_can_be_columns", lambda *_: False)
    assert after_a_callback_raised(mode) == together


@pytest.mark.parametrize("listener", ["on_episode_step", "on_postprocess_trajectory"])
def test_who_sees_running_episodes_has_them_recorded_one_by_one(listener, caplog):
    with (
        caplog.at_level(logging.INFO),
        ppo().callbacks(**{listener: lambda **_: None}).build_algo() as algo,
    ):
        algo.train()
        algo.train()
        assert not any(
            isinstance(chunk, FragmentEpisode) for chunk in algo.env_runner.sample(num_timesteps=99)
        )
    told = [text for text in caplog.messages if "recorded one by one" in text]
    assert len(told) == 1
    assert listener in told[0]


def test_episodes_of_columns_are_filled_when_they_are_looked_at_and_travel():
    with ppo().build_algo() as algo:
        chunks = algo.env_runner.sample(num_timesteps=200)
        unseen = next(c for c in chunks if isinstance(c, FragmentEpisode) and c.is_done)
        assert (len(unseen), unseen.t_started) == (unseen.t, 0)
        assert unseen.fragment is not None
        again = pickle.loads(pickle.dumps(unseen))
        assert unseen.fragment is None
        assert again.get_return() == unseen.get_return() == len(unseen)
        assert again.get_duration_s() == unseen.get_duration_s() > 0.0
        assert encode(again.get_state()) == encode(unseen.get_state())
        unseen.validate()
        other = next(c for c in chunks if isinstance(c, FragmentEpisode) and c.fragment)
        other.custom_metrics = {"set": 1.0}
        assert (len(other.get_rewards()), other.custom_metrics) == (len(other), {"set": 1.0})
        with pytest.raises(AttributeError, match="nothing_like_this"):
            unseen.nothing_like_this  # noqa: B018


# ---- what is refused


def test_what_cannot_be_done_with_a_vector_env_is_named():
    config = ppo().fault_tolerance(restart_failed_sub_environments=True)
    with pytest.raises(ConfigError, match="cannot be made anew one by one"):
        config.build_algo()
    config = ppo().env_runners(env_to_module_connector=lambda *_: [])
    with pytest.raises(ConfigError, match="connector pieces stand beside single sub-envs"):
        config.build_algo()
    with pytest.raises(EnvCreationError, match="no `vector_entry_point` for 'Pendulum-v1'"):
        ppo("Pendulum-v1").build_algo()
    with pytest.raises(EnvCreationError, match=r"(?s)3 sub-envs.*num_envs_per_env_runner=4"):
        counting(AutoresetMode.NEXT_STEP).env_runners(num_envs_per_env_runner=4).build_algo()
    with pytest.raises(EnvCreationError, match="which is a vector env"):
        counting(AutoresetMode.NEXT_STEP).env_runners(gym_env_vectorize_mode="SYNC").build_algo()
    with pytest.raises(EnvCreationError, match=r"expected a gymnasium\.vector\.VectorEnv"):
        ppo(lambda _: gym.make("CartPole-v1")).build_algo()
    with pytest.raises(ConfigError, match="use more runners"):
        ppo().env_runners(gym_env_vectorize_mode="ASYNC").build_algo()


class Malformed(SyncVectorEnv):
    def step(self, actions):
        observations, rewards, *rest = super().step(actions)
        return observations, rewards[:-1], *rest


class Unpaid(SyncVectorEnv):
    def step(self, actions):
        observations, rewards, *rest = super().step(actions)
        return observations, [None, *rewards[1:]], *rest


class Endless(SyncVectorEnv):
    """Tells the last observations as gymnasium did before 1.0."""

    def step(self, actions):
        *answer, infos = super().step(actions)
        return *answer, {key.replace("final_obs", "old"): infos[key] for key in infos}


class LastOf(SyncVectorEnv):
    """Gives other last observations than it should."""

    given = None

    def step(self, actions):
        *answer, infos = super().step(actions)
        return *answer, {**infos, "final_obs": self.given} if "final_obs" in infos else infos


class Listing(SyncVectorEnv):
    def step(self, actions):
        *answer, _ = super().step(actions)
        return *answer, [{}, {}, {}]


class Short(SyncVectorEnv):
    def reset(self, **options):
        observations, infos = super().reset(**options)
        return observations[:2], infos


class Bare(SyncVectorEnv):
    def reset(self, **options):
        return super().reset(**options)[0]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (
            Endless,
            r"Endless.* SAME_STEP, .*sub-env 0 without.*'_old', .*expected infos\[\"final_",
        ),
        (
            type("Flat", (LastOf,), {"given": np.zeros((3, 2, 2))}),
            r"(?s)Flat ended .*sub-env 0 with infos\[\"final_obs\"\]\[0\]=arr.* shape \(2, 2\); e",
        ),
        (
            type("Ragged", (LastOf,), {"given": [[1.0, [2.0]]] * 3}),
            r", \[2.0\]\], of shape none: its rows",
        ),
        (
            type("Ended", (LastOf,), {"given": np.zeros((0, 2))}),
            "Ended, whose .* 0 without its last",
        ),
        (Listing, r"Listing returned the infos \[\{\}.*expected a dict of arrays"),
        (Short, "Short returned 2 observations; expected 3"),
        (Bare, r"'Bare' returned a ndarray; expected the tuple \(observation, info"),
    ],
)
def test_answers_that_lack_something_are_named(kind, text):
    makers = [lambda index=index: Counter(index) for index in range(3)]
    with pytest.raises(EnvContractError, match=text):
        ppo(
            lambda _: kind(makers, autoreset_mode=AutoresetMode.SAME_STEP), num_envs=3
        ).build_algo().train()


def test_answers_of_another_shape_are_named():
    makers = [lambda index=index: Counter(index) for index in range(3)]
    with pytest.raises(EnvContractError, match=r"(?s)Malformed returned 3 .* expected 3 of each"):
        ppo(lambda _: Malformed(makers), num_envs=3).build_algo().train()
    with pytest.raises(EnvContractError, match=r"Unpaid returned the rewards \[None,"):
        ppo(lambda _: Unpaid(makers), num_envs=3).build_algo().train()


def lakes(_):
    """Four frozen lakes, whose observations are numbers below 16."""
    return SyncVectorEnv([lambda: gym.make("FrozenLake-v1")] * 4)


def test_an_observation_outside_its_space_is_named_with_its_sub_env():
    seen = np.array([3, 99, 5, 6])
    with ppo(lakes).build_algo() as algo:
        player = algo.env_runner._player
        noise = np.full((4, player.policy.noise_width), 0.5)
        for plays in (None, np.array([True, True, False, False])):
            with pytest.raises(EnvContractError, match=r"Sub-env 1 .*Discrete\(16\): .*99"):
                player._choose(seen, noise, plays, ActingRequest(0, explore=True))


@pytest.mark.parametrize("explores_otherwise", [False, True])
def test_sub_envs_in_which_no_agent_plays_may_show_anything(explores_otherwise):
    config = ppo(lakes)
    if explores_otherwise:
        config = dqn("EpsilonGreedy").environment(lakes).env_runners(num_envs_per_env_runner=4)
    with config.build_algo() as algo:
        player = algo.env_runner._player
        noise = np.full((4, player.policy.noise_width), 0.5)

        def act(last):
            seen, plays = np.array([1, 2, 3, last]), np.array([True, True, True, False])
            return player._choose(seen, noise, plays, ActingRequest(0, explore=True)).actions

        assert act(99)[:3].tolist() == act(0)[:3].tolist()

"""DQN as a whole: how much it learns when, callbacks on its batches, and all or nothing."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from checkpoints import encode
from tests.small_runs import known
from trainer import CallbackError, DQNConfig, ModuleError, RLModuleSpec, UnsupportedSpaceError
from trainer.metrics import comparable
from trainer.modules import QModule
from trainer.testing.envs import ContinuousEnv, CountdownEnv

CAPACITY = 100


def config(env=CountdownEnv, **settings):
    made = (
        DQNConfig()
        .environment(env)
        .env_runners(num_envs_per_env_runner=2)
        .training(
            train_batch_size=8,
            num_steps_sampled_before_learning_starts=20,
            target_network_update_freq=10,
            replay_buffer_config={"capacity": CAPACITY},
            model={"fcnet_hiddens": [8]},
        )
        .reporting(min_sample_timesteps_per_iteration=40)
        .debugging(seed=3)
    )
    return made.update_from_dict(settings)


# ---- how much is learnt when


def test_learning_starts_after_enough_steps_with_one_update_per_round():
    with config(min_sample_timesteps_per_iteration=2).build_algo() as algo:
        updates = []
        for _ in range(13):
            algo.train()
            updates.append(algo.learner.num_updates)
    # A round is one step in each of two envs; the tenth makes 20.
    assert updates == [0] * 9 + [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("intensity", "expected"),
    # 2 steps per round, 8 rows per update.
    [(4, [1, 2, 3, 4]), (8, [2, 4, 6, 8]), (3, [0, 1, 2, 3]), (0.5, [0] * 4), (1, [0, 0, 0, 1])],
)
def test_training_intensity_is_rows_learnt_per_step_sampled(intensity, expected):
    settings = {"training_intensity": intensity, "num_steps_sampled_before_learning_starts": 0}
    with config(min_sample_timesteps_per_iteration=2, **settings).build_algo() as algo:
        updates = []
        for _ in range(4):
            result = algo.train()
            updates.append(algo.learner.num_updates)
        trained = result["learners"]["__all_modules__"]["num_env_steps_trained_lifetime"]
        assert trained == 8 * updates[-1]
    assert updates == expected


def test_what_is_left_over_is_carried_on_without_loss():
    with config(training_intensity=0.3, train_batch_size=7).build_algo() as algo:
        for _ in range(5):
            algo.train()
        # From the tenth round on, of 100.
        paid = 0.3 * (200 - 18)
        assert algo.learner.num_updates == int(paid / 7)
        assert algo.counters.num_rows_owed == pytest.approx(paid % 7)


def test_a_buffer_smaller_than_the_start_of_learning_is_learnt_from_when_it_is_full():
    settings = {"replay_buffer_config": {"capacity": 10}}
    with config(min_sample_timesteps_per_iteration=2, **settings).build_algo() as algo:
        for _ in range(10):
            algo.train()
        assert algo.learner.num_updates == 1
        assert len(algo.local_replay_buffer) == 10


def test_results_tell_of_the_buffer_and_of_learning():
    with config().build_algo() as algo:
        for _ in range(3):
            result = algo.train()
        stored = algo.local_replay_buffer.get_num_episodes()
    assert result["replay_buffer"] == {
        "num_env_steps_stored": CAPACITY,
        "num_episodes_stored": stored,
        "num_env_steps_added": 40,
        "num_env_steps_added_lifetime": 120,
        "num_env_steps_evicted_lifetime": 20,
    }
    metrics = result["learners"]["default_policy"]
    assert metrics["qf_loss"] == metrics["total_loss"]
    assert metrics["qf_min"] <= metrics["qf_mean"] <= metrics["qf_max"]
    assert metrics["td_error_mean"] >= 0
    # Learning starts at 20, so the target network follows at 20, 30, …, 120.
    assert (metrics["num_target_updates"], metrics["last_target_update_ts"]) == (11, 120)


# ---- spaces and networks


class Shifted(gymnasium.Env[Any, Any]):
    """One step; the observation names the action that pays 1. Actions count from 5."""

    def __init__(self, env_config=None):
        self.observation_space = spaces.Dict(
            {"which": spaces.Discrete(3), "noise": spaces.Box(-1.0, 1.0, (2,))}
        )
        self.action_space = spaces.Discrete(3, start=5)
        self._obs = None

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        noise = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        self._obs = {"which": np.int64(self.np_random.integers(3)), "noise": noise}
        return self._obs, {}

    def step(self, action):
        return self._obs, float(action == 5 + self._obs["which"]), True, False, {}


def test_nested_observations_and_actions_that_do_not_count_from_0():
    settings = {"lr": 0.02, "min_sample_timesteps_per_iteration": 500, "epsilon": 0.2}
    made = config(Shifted, **settings)
    made.evaluation(evaluation_duration=30, evaluation_config={"explore": False})
    with made.build_algo() as algo:
        algo.train()
        assert algo.evaluate()["env_runners"]["episode_return_mean"] == 1.0
        actions = algo.local_replay_buffer.get_state()["columns"]["actions"]
        assert set(np.unique(actions)) == {0, 1, 2}


class OwnModule(QModule):
    """A network of the user's own, derived from the ready-made one."""


@pytest.mark.parametrize("own", [None, QModule, OwnModule])
def test_the_settings_of_the_network_reach_it_and_those_derived_from_it(own):
    made = config(dueling=False, num_atoms=3, v_min=0.0, v_max=8.0)
    made.rl_module(rl_module_spec=RLModuleSpec(module_class=own, model_config={}))
    with made.build_algo() as algo:
        assert isinstance(algo.learner.module, own or QModule)
        assert algo.learner.module.atoms.tolist() == [0.0, 4.0, 8.0]
        assert not any(name.startswith("vf/") for name in algo.get_weights()["default_policy"])
        algo.train()


def test_actions_that_have_no_values_are_refused():
    with pytest.raises(UnsupportedSpaceError, match=r"needs a Discrete action space.*Use PPO"):
        config(ContinuousEnv).build_algo()


# ---- callbacks


def test_every_update_shows_its_batch_and_takes_what_was_changed():
    shown = []

    def no_reward(policy, train_batch, result):
        shown.append(train_batch.count)
        train_batch["rewards"][:] = 0.0
        train_batch["discounts"][:] = 0.0
        result["shown"] = len(shown)

    outcomes = []
    for callbacks in ({}, {"on_learn_on_batch": no_reward}):
        made = config(lr=0.01, training_intensity=8).callbacks(**callbacks)
        with made.build_algo() as algo:
            for _ in range(5):
                result = algo.train()
            outcomes.append(abs(result["learners"]["default_policy"]["qf_mean"]))
            num_updates = algo.learner.num_updates
    assert shown == [8] * num_updates
    assert result["learners"]["default_policy"]["custom_metrics"] == {"shown": num_updates}
    assert outcomes[1] < 0.2 < outcomes[0]


# ---- all or nothing


class Overflowing(CountdownEnv):
    """Pays more than float32 can square once it is told to."""

    pays_too_much = False

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, 1e30 if type(self).pays_too_much else reward, *rest


@pytest.mark.parametrize(
    ("event", "error"),
    [
        ("on_learn_on_batch", KeyboardInterrupt()),
        ("on_train_result", ValueError("no")),
        ("on_episode_end", KeyboardInterrupt()),
    ],
)
def test_an_iteration_that_fails_is_undone_and_made_again(event, error):
    armed = {"left": 0}

    def fail(**_):
        armed["left"] -= 1
        if armed["left"] == 0:
            raise error

    made = config(n_step=2).callbacks(**{event: fail})
    with made.build_algo() as algo:  # nothing is armed
        expected = [comparable(algo.train()) for _ in range(3)]
        expected_end = known(algo)
    with made.build_algo() as algo:
        results = []
        for iteration in range(3):
            before = known(algo)
            armed["left"] = 1 if event == "on_train_result" else 3
            if event == "on_learn_on_batch" and iteration == 0:
                armed["left"] = 1
            with pytest.raises((CallbackError, KeyboardInterrupt)):
                algo.train()
            assert known(algo) == before
            result = algo.train()
            assert result["iterations_since_restore"] == iteration + 1  # the clock is put back
            results.append(comparable(result))
        assert known(algo) == expected_end
    for mine, other in zip(results, expected, strict=True):
        assert encode({**mine, "config": 0}) == encode({**other, "config": 0})


def test_a_loss_that_is_no_number_is_an_error_that_changes_nothing():
    made = config(Overflowing, td_error_loss_fn="mse")
    with made.build_algo() as algo:
        algo.train()
        algo.train()
        algo.train()  # the ring is full: what fails overwrites
        before = known(algo)
        try:
            Overflowing.pays_too_much = True
            with pytest.raises(ModuleError, match=r"not finite appeared in the loss \(inf\)"):
                algo.train()
        finally:
            Overflowing.pays_too_much = False
        assert known(algo) == before
        assert np.isfinite(algo.train()["learners"]["default_policy"]["total_loss"])


def test_an_evaluation_within_an_iteration_does_not_make_it_forget_what_to_undo():
    fails = {"now": False}

    def evaluate_then_fail(algorithm, **_):
        algorithm.evaluate()
        if fails["now"]:
            raise ValueError("no")

    made = config().callbacks(on_train_result=evaluate_then_fail)
    made.evaluation(evaluation_duration=1)
    with made.build_algo() as algo:
        for _ in range(3):
            algo.train()
        before = encode(algo.local_replay_buffer.get_state())
        fails["now"] = True
        with pytest.raises(CallbackError):
            algo.train()
        assert encode(algo.local_replay_buffer.get_state()) == before

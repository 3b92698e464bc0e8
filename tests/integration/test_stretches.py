"""Many rounds in one request: the same bytes as one by one, and what happens where one fails."""

import importlib.util
import logging
import threading

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from tests.small_runs import known, learnt, told_and_known, trained
from trainer import DQN, DQNConfig, RLModuleSpec, SACConfig, TD3Config
from trainer.algorithms import on_and_off_policy
from trainer.algorithms.on_and_off_policy import OffPolicyAlgorithm
from trainer.algorithms.stretch import Stretch
from trainer.errors import AlgorithmStoppedError, EnvContractError, ModuleError
from trainer.replay import ReplayBuffer
from trainer.runner_group.crash_files import read_crash
from trainer.testing.envs import ContinuousEnv, CountdownEnv, FailingEnv, TaskCountdownEnv
from trainer.testing.faults import InjectedFaultError

SETTINGS = {
    "train_batch_size": 8,
    "num_steps_sampled_before_learning_starts": 30,
    "min_sample_timesteps_per_iteration": 48,
    "rollout_fragment_length": 2,
    "training_intensity": 3,
    "target_network_update_freq": 20,
    "replay_buffer_config": {"type": "EpisodeReplayBuffer", "capacity": 500},
    "model_config": {"fcnet_hiddens": [8], "head_fcnet_hiddens": []},
}
RAINBOW = {
    "double_q": True,
    "dueling": True,
    "num_atoms": 5,
    "v_min": -5.0,
    "v_max": 20.0,
    "n_step": (1, 3),
    "rollout_fragment_length": 3,
    # The oldest steps are overwritten in the middle of stretches and episodes.
    "replay_buffer_config": {"type": "PrioritizedEpisodeReplayBuffer", "capacity": 70},
}


def dqn(env="CartPole-v1", **settings):
    return _config(DQNConfig(), env, settings)


def sac(env="Pendulum-v1", **settings):
    return _config(SACConfig(), env, {"tau": 0.1, **settings})


def td3(env="Pendulum-v1", **settings):
    return _config(TD3Config(), env, {"tau": 0.1, "target_network_update_freq": 0, **settings})


def _config(config, env, settings):
    made = config.environment(env).env_runners(num_env_runners=0).debugging(seed=5)
    return made.update_from_dict({**SETTINGS, **settings})


class Counting(gymnasium.Env):
    """Counts the steps of an episode."""

    def __init__(self, _=None):
        self.t = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._observation(), {}


class Nested(Counting):
    """Observations in parts, of several number types; episodes of 7 steps."""

    observation_space = spaces.Dict(
        {
            "camera": spaces.Box(0, 255, (3,), np.uint8),
            "arm": spaces.Tuple([spaces.Discrete(4), spaces.Box(-1.0, 1.0, (2,))]),
        }
    )
    action_space = spaces.Discrete(3)

    def step(self, action):
        self.t += 1
        return self._observation(), float(action), self.t == 7, False, {}

    def _observation(self):
        position = self.np_random.uniform(-1.0, 1.0, 2).astype(np.float32)
        return {"camera": np.full(3, self.t, np.uint8), "arm": (self.t % 4, position)}


class Masked(Counting):
    """One of three actions is possible, another one at each step."""

    observation_space = spaces.Dict(
        {
            "observations": spaces.Box(0.0, 9.0, (1,)),
            "action_mask": spaces.Box(0, 1, (3,), np.int8),
        }
    )
    action_space = spaces.Discrete(3)

    def step(self, action):
        assert action == self.t % 3
        self.t += 1
        return self._observation(), 1.0, False, self.t == 9, {}

    def _observation(self):
        mask = (np.arange(3) == self.t % 3).astype(np.int8)
        return {"observations": np.array([self.t], np.float32), "action_mask": mask}


def beside_an_evaluation():
    config = dqn(evaluation_interval=1, evaluation_duration=2)
    return config.evaluation(evaluation_num_env_runners=1, evaluation_parallel_to_training=True)


def with_torch():
    from tests.torch_modules import NoisyDense  # with running statistics

    return dqn().rl_module(rl_module_spec=RLModuleSpec(module_class=NoisyDense))


RUNS = {
    "DQN": dqn,
    "DQN, 3 envs": lambda: dqn(num_envs_per_env_runner=3),
    "DQN, one update per round": lambda: dqn(training_intensity=None, rollout_fragment_length=1),
    "DQN, all extensions, a full buffer": lambda: dqn(num_envs_per_env_runner=2, **RAINBOW),
    "DQN, nested observations": lambda: dqn(Nested),
    "DQN, action masks": lambda: dqn(Masked),
    "DQN, an env with a state": lambda: dqn(CountdownEnv, n_step=2),
    "DQN, whose exploration decays": lambda: dqn(epsilon=[[0, 1.0], [150, 0.0]]),
    "DQN, trained until enough": lambda: dqn(min_train_timesteps_per_iteration=200),
    "SAC": sac,
    "SAC, 2 envs": lambda: sac(num_envs_per_env_runner=2, n_step=2),
    "SAC, Discrete": lambda: sac("CartPole-v1"),
    "SAC, a Box in two dimensions": lambda: sac(ContinuousEnv),
    "TD3": td3,
    "TD3, 2 envs": lambda: td3(num_envs_per_env_runner=2, n_step=2, policy_delay=3),
}


@pytest.fixture
def stretches(monkeypatch):
    """The stretches that are made."""
    made = []
    make = Stretch.__init__

    def noted(self, **settings):
        made.append(self)
        make(self, **settings)

    monkeypatch.setattr(Stretch, "__init__", noted)
    return made


def outcome(config, *, num_iterations=4):
    """Everything that a run shows and knows."""
    with config.build_algo() as algo:
        results = [algo.train() for _ in range(num_iterations)]
        assert algo.learner.num_updates > 0
        return told_and_known(algo, results)


def in_single_rounds(monkeypatch):
    monkeypatch.setattr(OffPolicyAlgorithm, "_makes_single_rounds", True)


# ---- the same bytes


@pytest.mark.parametrize("name", RUNS)
def test_a_stretch_gives_the_bytes_of_single_rounds(name, stretches, monkeypatch):
    found = outcome(RUNS[name]())
    assert len(stretches) >= 2
    num_stretches = len(stretches)
    in_single_rounds(monkeypatch)
    assert outcome(RUNS[name]()) == found
    assert len(stretches) == num_stretches


@pytest.mark.parametrize("num_env_runners", [1, 2])
def test_a_stretch_gives_the_bytes_of_remote_runners(num_env_runners, stretches):
    both = []
    for number in (0, num_env_runners):
        config = dqn(num_envs_per_env_runner=2 // max(1, number))
        with config.env_runners(num_env_runners=number).build_algo() as algo:
            for _ in range(3):
                algo.train()
            both.append(learnt(algo))
    assert both[0] == both[1]
    assert stretches


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs Torch")
def test_a_network_in_torch_is_handed_over_after_every_round(stretches, monkeypatch):
    found = outcome(with_torch())
    assert stretches
    in_single_rounds(monkeypatch)
    assert outcome(with_torch()) == found


def test_an_evaluation_beside_a_stretch_is_the_same(stretches, monkeypatch):
    found = outcome(beside_an_evaluation())
    assert stretches
    in_single_rounds(monkeypatch)
    assert outcome(beside_an_evaluation()) == found


@pytest.mark.parametrize("part", ["_hand_over", "_learn"])
def test_what_a_stretch_does_in_each_round_shows_in_the_bytes(part, monkeypatch):
    expected = outcome(sac())
    real = getattr(Stretch, part)

    def missed(self, *arguments):
        if 60 <= self._num_sampled <= 90:
            return self.make_metrics if part == "_learn" else None
        return real(self, *arguments)

    monkeypatch.setattr(Stretch, part, missed)
    assert outcome(sac()) != expected


def test_a_run_goes_on_from_a_checkpoint_between_stretches(tmp_path, stretches):
    with dqn(**RAINBOW).build_algo() as algo:
        for _ in range(2):
            algo.train()
        path = algo.save_to_path(tmp_path / "checkpoint")
        algo.train()
        expected = known(algo)
    with DQN.from_checkpoint(path) as restored:
        restored.train()
        assert known(restored) == expected
    assert stretches


@pytest.mark.parametrize("make", [lambda: dqn(**RAINBOW), sac, td3], ids=["DQN", "SAC", "TD3"])
def test_an_iteration_that_fails_after_its_stretch_is_undone(make, stretches):
    fails = [2]

    def on_train_result(*, algorithm, **_):
        if algorithm.training_iteration in fails:
            fails.clear()
            raise InterruptedError("once")

    expected = outcome(make(), num_iterations=3)
    with make().callbacks(on_train_result=on_train_result).build_algo() as algo:
        results = [algo.train()]
        before = known(algo)
        with pytest.raises(Exception, match="once"):
            algo.train()
        assert known(algo) == before
        results += [algo.train() for _ in range(2)]
        assert told_and_known(algo, results) == expected
    assert len(stretches) > 3


def test_a_stretch_is_shorter_where_its_steps_are_large(stretches, monkeypatch):
    found = outcome(dqn())
    lengths = []
    writing = ReplayBuffer.writing

    def noted(self, num_rows):
        lengths.append(num_rows)
        return writing(self, num_rows)

    monkeypatch.setattr(ReplayBuffer, "writing", noted)
    monkeypatch.setattr(on_and_off_policy, "_MOST_BYTES", 10 * 45)
    assert outcome(dqn()) == found
    assert max(lengths) == 10


# ---- where single rounds are looked at


class TwoStepped(DQN):
    """Makes two rounds per training step."""

    def training_step(self):
        super().training_step()
        super().training_step()


class OwnBuffer(ReplayBuffer):
    """A buffer of the user's, which may do anything when steps are added."""


OBSERVED = {
    "a callback that sees episodes": lambda: dqn().callbacks(on_episode_end=lambda **_: None),
    "a callback that sees samples": lambda: dqn().callbacks(on_sample_end=lambda **_: None),
    "a callback that sees batches": lambda: dqn().callbacks(on_learn_on_batch=lambda **_: None),
    "a remote runner": lambda: dqn().env_runners(num_env_runners=1),
    "observations normalised": lambda: dqn(observation_filter="MeanStdFilter"),
    "rewards clipped": lambda: dqn(clip_rewards=True),
    "exploration that learns": lambda: dqn(exploration_config={"type": "ParameterNoise"}),
    "envs repaired alone": lambda: dqn().fault_tolerance(restart_failed_sub_environments=True),
    "envs with tasks": lambda: dqn(TaskCountdownEnv),
    "whole episodes": lambda: dqn(batch_mode="complete_episodes"),
    "a training step of the user's": lambda: dqn().copy(copy_frozen=False),
    "a buffer of the user's": lambda: dqn(
        replay_buffer_config={"type": OwnBuffer, "capacity": 500}
    ),
    "nothing that learns": lambda: dqn().multi_agent(policies_to_train=[]),
}


@pytest.mark.parametrize("name", OBSERVED)
def test_single_rounds_are_made_where_somebody_looks_at_them(name, stretches):
    kind = TwoStepped if "training step" in name else None
    config = OBSERVED[name]()
    with kind(config) if kind else config.build_algo() as algo:
        for _ in range(2):
            result = algo.train()
    assert result["num_training_step_calls_per_iteration"] > 1
    assert stretches == []


# ---- failures


class FailsLate(CountdownEnv):
    """Raises at a step of the whole run that nothing else shows."""

    fails_at = None
    num_made = 0

    def step(self, action):
        FailsLate.num_made += 1
        if FailsLate.num_made == FailsLate.fails_at:
            raise InterruptedError("it was another process")
        return super().step(action)


def test_the_crash_file_of_a_failing_env_is_that_of_its_round(tmp_path, stretches):
    config = dqn(FailingEnv, env_config={"where": "step", "at_step": 9, "min_length": 9})
    config.environment(env_config={"max_length": 30}).fault_tolerance(crash_dir=str(tmp_path))
    with config.build_algo() as algo:
        before = known(algo)
        with pytest.raises(InjectedFaultError, match="step"):
            algo.train()
        assert known(algo) == before
        (file,) = tmp_path.iterdir()
        request = read_crash(file)["request"]
        assert [slot["num_env_steps"] for slot in request["assignments"]] == [2]
        with pytest.raises(InjectedFaultError, match="step"):
            algo.replay_episode(file)


def test_a_failure_that_does_not_come_again_is_told_and_changes_nothing(
    stretches, caplog, monkeypatch
):
    expected = outcome(dqn(FailsLate))
    monkeypatch.setattr(FailsLate, "num_made", 0)
    monkeypatch.setattr(FailsLate, "fails_at", 130)
    with caplog.at_level(logging.WARNING, logger="trainer"):
        assert outcome(dqn(FailsLate)) == expected
    assert "did not fail when the iteration was made again" in caplog.text
    assert "it was another process" in caplog.text
    assert stretches


def test_what_a_learner_raises_is_raised_at_once_and_undone(stretches, monkeypatch):
    with dqn().build_algo() as algo:
        algo.train()
        before, made = known(algo), len(stretches)

        def failing(batch, **_):
            raise InterruptedError("in an update")

        monkeypatch.setattr(algo.learner, "learn", failing)
        with pytest.raises(InterruptedError, match="in an update"):
            algo.train()
        monkeypatch.undo()
        assert known(algo) == before
        assert len(stretches) <= made + 1


def test_a_loss_that_is_no_number_is_looked_at_in_single_rounds(stretches, monkeypatch):
    made = []

    def failing(batch, **_):
        made.append(len(stretches))
        raise ModuleError("the loss is NaN")

    with dqn().build_algo() as algo:
        algo.train()
        before = known(algo)
        monkeypatch.setattr(algo.learner, "learn", failing)
        with pytest.raises(ModuleError, match="NaN"):
            algo.train()
        monkeypatch.undo()
        assert known(algo) == before
    assert made == [made[0], made[0]], "once in a stretch, and once without another one"


def test_observations_that_are_no_numbers_are_told_as_in_single_rounds(stretches):
    class Spoilt(CountdownEnv):
        def step(self, action):
            observation, *rest = super().step(action)
            if self.steps == 6:
                observation = np.full_like(observation, np.nan)
            return observation, *rest

    texts = []
    for is_single in (True, False):
        config = dqn(Spoilt, env_config={"min_length": 8, "max_length": 9})
        with config.build_algo() as algo:
            algo._makes_single_rounds = is_single
            with pytest.raises(EnvContractError, match="expected finite") as caught:
                trained(algo, 3)
            texts.append(str(caught.value))
    assert texts[0] == texts[1]


def test_stop_in_another_thread_ends_a_stretch(monkeypatch):
    begun, real = threading.Event(), Stretch.end_round

    def end_round(self, played, module):
        if self._num_sampled > 400:
            begun.set()
        return real(self, played, module)

    monkeypatch.setattr(Stretch, "end_round", end_round)
    algo = dqn(min_sample_timesteps_per_iteration=10**7).build_algo()
    stopper = threading.Thread(target=lambda: (begun.wait(60), algo.stop()))
    stopper.start()
    with pytest.raises(AlgorithmStoppedError):
        algo.train()
    stopper.join()
    assert algo.counters.training_iteration == 0

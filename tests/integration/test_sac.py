"""SAC as a whole: bounds of actions, masks, results, and the promise of the same bytes."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from tests.small_runs import known
from trainer import ModuleError, RLlibCallback, SACConfig, UnsupportedSpaceError
from trainer.testing.envs import ContinuousEnv, CountdownEnv

NUM_SLOTS = 4


class CountingEpisodes(RLlibCallback):
    """Callback state on runners and driver."""

    def __init__(self):
        self.episodes = 0

    def on_episode_end(self, **kwargs):
        self.episodes += 1


def config(num_env_runners=0, *, env=ContinuousEnv, **settings):
    made = (
        SACConfig()
        .environment(env)
        .env_runners(
            num_env_runners=num_env_runners,
            num_envs_per_env_runner=NUM_SLOTS // max(1, num_env_runners),
        )
        .training(
            train_batch_size=16,
            actor_lr=[[0, 1e-2], [2000, 1e-3]],
            critic_lr=1e-2,
            alpha_lr=1e-2,
            n_step=(1, 3),
            # 12 steps per round pay for 2.25 updates.
            training_intensity=3,
            num_steps_sampled_before_learning_starts=50,
            # The oldest steps are overwritten, in the middle of iterations and episodes.
            replay_buffer_config={"capacity": 150},
            model={"fcnet_hiddens": [8]},
        )
        .reporting(min_sample_timesteps_per_iteration=80)
        .callbacks(CountingEpisodes)
        .debugging(seed=11)
    )
    return made.update_from_dict(settings)


# ---- what it does


def test_actions_reach_the_env_within_its_bounds_and_are_learnt_from_as_chosen():
    received = []

    class Watching(ContinuousEnv):
        def step(self, action):
            assert self.action_space.contains(action)
            received.append(float(action[0]))
            return super().step(action)

    with config(env=Watching).build_algo() as algo:
        algo.train()
        stored = algo.local_replay_buffer.get_state()["columns"]["actions"]
    assert np.abs(stored).max() <= 1.0
    np.testing.assert_allclose(sorted(received), np.sort(2.0 * stored[:, 0]), rtol=1e-5)
    assert max(received) > 1.0
    assert min(received) < -1.0


def test_results_tell_of_learning():
    with config().build_algo() as algo:
        for _ in range(2):
            result = algo.train()
        assert algo.compute_single_action(np.zeros(1, np.float32), explore=False).shape == (1,)
    metrics = result["learners"]["default_policy"]
    for name in ("policy_loss", "qf_loss", "qf_twin_loss", "alpha_loss", "alpha_value", "logps"):
        assert np.isfinite(metrics[name])
    assert metrics["target_entropy"] == -1.0
    assert metrics["alpha_value"] == pytest.approx(np.exp(metrics["log_alpha_value"]))
    assert metrics["num_target_updates"] == algo.learner.num_updates > 0


def test_evaluation_takes_the_middle_of_the_policy():
    with config().build_algo() as algo:
        obs = np.array([0.3], np.float32)
        inputs = algo.learner.module.forward_acting(obs[None])
        assert algo.compute_single_action(obs, explore=False)[0] == pytest.approx(
            2.0 * np.tanh(inputs[0, 0]), rel=1e-3
        )


class Masked(gymnasium.Env[Any, Any]):
    """One step: the observation names the action that pays 1, and rules another one out."""

    def __init__(self, env_config=None):
        self.observation_space = spaces.Dict(
            {"action_mask": spaces.MultiBinary(3), "which": spaces.Discrete(3)}
        )
        self.action_space = spaces.Discrete(3)
        self._obs = {}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        which = int(self.np_random.integers(3))
        mask = np.ones(3, np.int8)
        mask[(which + self.np_random.integers(1, 3)) % 3] = 0
        self._obs = {"action_mask": mask, "which": np.int64(which)}
        return self._obs, {}

    def step(self, action):
        assert self._obs["action_mask"][action], "an impossible action was chosen"
        return self._obs, float(action == self._obs["which"]), True, False, {}


def test_discrete_actions_with_masks_are_learnt():
    settings = {
        "n_step": 1,
        "target_entropy": 0.2,
        "min_sample_timesteps_per_iteration": 800,
    }
    made = config(env=Masked, **settings).evaluation(evaluation_duration=30)
    with made.build_algo() as algo:
        result = algo.train()
        assert algo.evaluate()["env_runners"]["episode_return_mean"] == 1.0
    # Two actions are possible, so this is what entropy can be.
    assert 0.0 < -result["learners/default_policy"]["logps"] <= np.log(2)


def test_an_unbounded_action_space_is_refused_when_building():
    class Unbounded(ContinuousEnv):
        def __init__(self, env_config=None):
            super().__init__(env_config or {})
            self.action_space = spaces.Box(-np.inf, np.inf, (1,))

    def bounded(env_config):
        box = spaces.Box(-1.0, 1.0, (1,))
        return gymnasium.wrappers.TransformAction(Unbounded(), lambda action: action, box)

    with pytest.raises(UnsupportedSpaceError, match="TransformAction"):
        config(env=Unbounded).build_algo()
    config(env=bounded).build_algo().stop()  # the advice is good


class BadReward(CountdownEnv):
    """Pays infinity at last."""

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, float("inf") if terminated else reward, terminated, truncated, info


def test_a_reward_that_cannot_be_learnt_from_is_named_and_undone():
    settings = {"disable_env_checking": True, "num_steps_sampled_before_learning_starts": 0}
    with config(env=BadReward, **settings).build_algo() as algo:
        before = known(algo)
        with pytest.raises(ModuleError, match="not finite"):
            algo.train()
        assert known(algo) == before

"""RLlib's wrappers of Atari games."""

import gymnasium as gym
import numpy as np
import pytest

from trainer.rllib_names.atari import _FireFirst, _stacked, wrap_atari_for_new_api_stack


class Screens(gym.Env):
    """Shows the number of its step; ends when fire is pressed at once, if it is told to."""

    observation_space = gym.spaces.Box(0, 255, (3, 2, 1), np.uint8)
    action_space = gym.spaces.Discrete(3)

    def __init__(self, *, ends_at_once=False):
        self.ends_at_once = ends_at_once
        self.num_resets = 0

    def get_action_meanings(self):
        return ["NOOP", "RIGHT", "FIRE"]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.num_resets += 1
        self.actions = []
        return self._screen(), {}

    def step(self, action):
        self.actions.append(action)
        return self._screen(), 1.0, self.ends_at_once, False, {"fired": action == 2}

    def _screen(self):
        return np.full((3, 2, 1), len(self.actions), np.uint8)


def test_an_episode_begins_with_fire():
    env = _FireFirst(Screens())
    observation, info = env.reset(seed=3)
    assert env.unwrapped.actions == [2]
    assert observation.max() == 1
    assert info == {"fired": True}


def test_an_episode_that_fire_ends_begins_again():
    env = _FireFirst(Screens(ends_at_once=True))
    observation, _ = env.reset()
    assert env.unwrapped.num_resets == 2
    assert observation.max() == 0


def test_observations_stand_beside_each_other_the_newest_last():
    env = _stacked(Screens(), 3)
    assert env.observation_space == gym.spaces.Box(0, 255, (3, 2, 3), np.uint8)
    first, _ = env.reset()
    assert env.observation_space.contains(first)
    env.step(0)
    last = env.step(0)[0]
    assert last[0, 0].tolist() == [0, 1, 2]


@pytest.mark.parametrize(("how", "shape"), [({}, (64, 64, 1)), ({"framestack": 4}, (64, 64, 4))])
def test_a_game_is_played(how, shape):
    ale_py = pytest.importorskip("ale_py")
    pytest.importorskip("cv2")
    gym.register_envs(ale_py)
    env = wrap_atari_for_new_api_stack(gym.make("ALE/Breakout-v5", frameskip=1), **how)
    assert env.observation_space == gym.spaces.Box(0, 255, shape, np.uint8)
    assert env.observation_space.contains(env.reset(seed=1)[0])
    assert env.observation_space.contains(env.step(0)[0])

"""Vector envs that step all their sub-envs in one call, and whose state can be taken."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Walks(gym.vector.VectorEnv[Any, Any, Any]):
    """Sub-envs walk by what they do; has a state, tasks (the distance), no autoreset of its own."""

    metadata = {"autoreset_mode": "Disabled"}  # gymnasium 1.0 has no name for it

    def __init__(self, config):
        self.num_envs, self.distance = 3, 4
        self.single_observation_space = spaces.Box(-99.0, 99.0, (2,), np.float32)
        self.single_action_space = spaces.Discrete(2)
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, 3)
        self.action_space = gym.vector.utils.batch_space(self.single_action_space, 3)
        self.places = np.zeros((3, 2), np.float32)

    def get_task(self):
        return self.distance

    def set_task(self, task):
        self.distance = task

    def get_state(self):
        return {"places": self.places.copy(), "np_random": self.np_random.bit_generator.state}

    def set_state(self, state):
        self.places = np.array(state["places"])
        self.np_random.bit_generator.state = state["np_random"]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        mask = np.ones(3, np.bool_) if options is None else options["reset_mask"]
        self.places[mask] = 0.0
        self.places[mask, 1] = self.np_random.uniform(size=mask.sum())
        return self.places, {}

    def step(self, actions):
        self.places[:, 0] += actions + self.np_random.integers(0, 2, 3)
        is_over = self.places[:, 0] >= self.distance
        return self.places, actions.astype(np.float32), is_over, np.zeros(3, np.bool_), {}


class Roaming(Walks):
    """Goes where a generator of its own says, which no reset seeds."""

    def __init__(self, config):
        super().__init__(config)
        self.generator = np.random.default_rng(7)

    def get_state(self):
        return {**super().get_state(), "generator": self.generator.bit_generator.state}

    def set_state(self, state):
        super().set_state(state)
        self.generator.bit_generator.state = state["generator"]

    def step(self, actions):
        return super().step(actions + self.generator.integers(0, 2, 3))

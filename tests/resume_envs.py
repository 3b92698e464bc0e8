"""Envs whose running episodes can be brought back in every way that there is, or in none."""

from types import MappingProxyType
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from trainer.types import Array

_NOTHING = MappingProxyType({})


class Walk(gymnasium.Env[Array, Any]):
    """A random walk that actions push; its randomness follows from the seed of its episode.

    Settings: `continuous`: actions are numbers instead of left and right; `push`: how far they go.
    """

    def __init__(self, env_config=_NOTHING):
        is_continuous = env_config.get("continuous", False)
        self.observation_space = spaces.Box(-100.0, 100.0, (2,), np.float32)
        self.action_space = (
            spaces.Box(-1.0, 1.0, (1,), np.float32) if is_continuous else spaces.Discrete(2)
        )
        self.push = float(env_config.get("push", 0.5))
        self.place = self.noise = 0.0
        self.steps = self.length = 0

    def randomness(self):
        return self.np_random

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self.place, self.steps = 0.0, 0
        self.length = int(self.randomness().integers(5, 40))
        return self._observation(), {}

    def step(self, action):
        self.steps += 1
        is_right = isinstance(self.action_space, spaces.Discrete)
        way = 2.0 * int(action) - 1.0 if is_right else float(np.asarray(action)[0])
        self.place += self.push * way + float(self.randomness().normal())
        reward = -abs(self.place) / 10.0
        return self._observation(), reward, self.steps >= self.length, False, {}

    def _observation(self):
        self.noise = float(self.randomness().random())
        return np.array([self.place, self.noise], np.float32)


class StatefulWalk(Walk):
    """Its state can be taken and given back; its episodes can be played again as well."""

    def get_state(self):
        return {
            "place": self.place,
            "noise": self.noise,
            "steps": self.steps,
            "length": self.length,
            "randomness": self.randomness().bit_generator.state,
        }

    def set_state(self, state):
        self.place, self.noise = state["place"], state["noise"]
        self.steps, self.length = state["steps"], state["length"]
        self.randomness().bit_generator.state = state["randomness"]


class OwnWalk(Walk):
    """Its randomness is its own: no seed determines it."""

    def __init__(self, env_config=_NOTHING):
        super().__init__(env_config)
        self._own = np.random.default_rng()

    def randomness(self):
        return self._own


class KeptWalk(OwnWalk, StatefulWalk):
    """Its own randomness is in its state."""


class LateWalk(StatefulWalk):
    """Has a generator that only its settings seed, and no state before its first reset.

    Settings: `num_envs_per_env_runner`, so that sub-envs of a run begin with seeds of their own.
    """

    def __init__(self, env_config=_NOTHING):
        super().__init__(env_config)
        per_runner = env_config.get("num_envs_per_env_runner", 0)
        runner = max(0, getattr(env_config, "worker_index", 0) - 1)
        slot = runner * per_runner + getattr(env_config, "vector_index", 0)
        self._own = np.random.default_rng(slot)
        del self.place

    def randomness(self):
        return self._own

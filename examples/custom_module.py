"""Two networks of your own in plain NumPy: a small convolution, and recurrence over a window.

Both are used by PPO and by DQN as they are. Run this file; it checks both modules, trains a little,
and prints what was reached. docs/modules.md explains the rules that it keeps to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import FrameStackObservation

from trainer import DQNConfig, PPOConfig, RLModule, RLModuleSpec
from trainer.nn import matmul_rows
from trainer.testing import TargetEnv, check_module


class SmallConvolution(RLModule):
    """One convolution of 3 x 3 pixels, tanh, and linear heads for actions and values.

    `model_config`: "channels" of the convolution, 8 if left out.
    """

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        height, width, colours = self.observation_space.shape
        channels = self.model_config.get("channels", 8)
        num_features = (height - 2) * (width - 2) * channels
        return {
            "conv/kernel": (9 * colours, channels),
            "pi/kernel": (num_features, self.action_distribution.num_inputs),
            "vf/kernel": (num_features,),  # "vf/": not needed for acting
        }

    def initialize(self, rng: np.random.Generator) -> None:
        for name, tensor in self.parameters.views.items():
            scale = 0.01 if name == "pi/kernel" else len(tensor) ** -0.5
            tensor[...] = scale * rng.standard_normal(tensor.shape)

    def patches_of(self, obs: np.ndarray) -> np.ndarray:
        """The 3 x 3 pixels around every place, one row each: [B * places, 9 * colours]."""
        images = obs.reshape(len(obs), *self.observation_space.shape) / 255.0
        windows = np.lib.stride_tricks.sliding_window_view(images, (3, 3), axis=(1, 2))
        rows = windows.reshape(-1, self.parameters.shapes["conv/kernel"][0])
        return rows.astype(self.parameters.dtype)

    def forward_acting(self, obs: np.ndarray) -> np.ndarray:
        # matmul_rows and not @: every row must get the same bits, whatever the other rows are.
        w = self.parameters.views
        features = np.tanh(matmul_rows(self.patches_of(obs), w["conv/kernel"]))
        return matmul_rows(features.reshape(len(obs), -1), w["pi/kernel"])

    def forward_train(self, batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        w, obs = self.parameters.views, batch["obs"]
        self._patches = self.patches_of(obs)
        features = np.tanh(self._patches @ w["conv/kernel"])
        self._features = features.reshape(len(obs), -1)
        return {
            "action_dist_inputs": self._features @ w["pi/kernel"],
            "vf_preds": self._features @ w["vf/kernel"],
        }

    def backward(self, *, d_action_dist_inputs: np.ndarray, d_vf_preds: np.ndarray) -> None:
        w, g = self.parameters.views, self.gradients.views
        g["pi/kernel"][:] = self._features.T @ d_action_dist_inputs
        g["vf/kernel"][:] = self._features.T @ d_vf_preds
        d_features = d_action_dist_inputs @ w["pi/kernel"].T + d_vf_preds[:, None] * w["vf/kernel"]
        d_features *= 1.0 - self._features**2  # the derivative of tanh
        by_place = d_features.reshape(len(self._patches), -1)
        g["conv/kernel"][:] = self._patches.T @ by_place


class WindowRecurrence(RLModule):
    """A recurrent network that runs over the last observations, oldest first.

    Observations are windows [W, d], as gymnasium's FrameStackObservation makes them; h is 0 before
    the first of them, and h_t = tanh(x_t U + h_(t-1) V). The last h decides.
    `model_config`: "units" of h, 16 if left out.
    """

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        self._window, self._width = self.observation_space.shape
        units = self.model_config.get("units", 16)
        return {
            "rnn/inputs": (self._width, units),
            "rnn/state": (units, units),
            "pi/kernel": (units, self.action_distribution.num_inputs),
            "vf/kernel": (units,),
        }

    def initialize(self, rng: np.random.Generator) -> None:
        for name, tensor in self.parameters.views.items():
            scale = 0.01 if name == "pi/kernel" else len(tensor) ** -0.5
            tensor[...] = scale * rng.standard_normal(tensor.shape)

    def steps_of(self, obs: np.ndarray) -> np.ndarray:
        """The observations of the window one after another, [W, B, d]."""
        windows = obs.reshape(len(obs), self._window, self._width)
        steps: np.ndarray = windows.swapaxes(0, 1)
        return steps

    def forward_acting(self, obs: np.ndarray) -> np.ndarray:
        w = self.parameters.views
        state = np.zeros((len(obs), len(w["rnn/state"])), obs.dtype)
        for x in self.steps_of(obs):
            state = np.tanh(matmul_rows(x, w["rnn/inputs"]) + matmul_rows(state, w["rnn/state"]))
        return matmul_rows(state, w["pi/kernel"])

    def forward_train(self, batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        w = self.parameters.views
        self._steps = self.steps_of(batch["obs"])
        self._states = [np.zeros((len(batch["obs"]), len(w["rnn/state"])), self.parameters.dtype)]
        for x in self._steps:
            self._states.append(np.tanh(x @ w["rnn/inputs"] + self._states[-1] @ w["rnn/state"]))
        return {
            "action_dist_inputs": self._states[-1] @ w["pi/kernel"],
            "vf_preds": self._states[-1] @ w["vf/kernel"],
        }

    def backward(self, *, d_action_dist_inputs: np.ndarray, d_vf_preds: np.ndarray) -> None:
        w, g = self.parameters.views, self.gradients.views
        g["pi/kernel"][:] = self._states[-1].T @ d_action_dist_inputs
        g["vf/kernel"][:] = self._states[-1].T @ d_vf_preds
        g["rnn/inputs"][:] = 0.0
        g["rnn/state"][:] = 0.0
        d_state = d_action_dist_inputs @ w["pi/kernel"].T + d_vf_preds[:, None] * w["vf/kernel"]
        for t in range(self._window - 1, -1, -1):  # backwards through the window
            d_sum = d_state * (1.0 - self._states[t + 1] ** 2)
            g["rnn/inputs"] += self._steps[t].T @ d_sum
            g["rnn/state"] += self._states[t].T @ d_sum
            d_state = d_sum @ w["rnn/state"].T


class RecallEnv(gymnasium.Env[np.ndarray, Any]):
    """The first observation shows +1 or -1; the action of the fourth step must say which it was."""

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.steps, self.sign = 0, int(self.np_random.choice([-1, 1]))
        return np.array([self.sign, 1.0], np.float32), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        is_over = self.steps == 4
        reward = float(is_over and (action == 1) == (self.sign == 1))
        return np.array([0.0, 1.0], np.float32), reward, is_over, False, {}


def windowed_recall_env(env_config: Any) -> gymnasium.Env[Any, Any]:
    """The last four observations at every step, zeros before the first one."""
    del env_config
    return FrameStackObservation(RecallEnv(), 4, padding_type="zero")


def main() -> None:
    tiny = TargetEnv({"size": 4})
    check_module(
        SmallConvolution,
        observation_space=tiny.observation_space,
        action_space=tiny.action_space,
        model_config={"channels": 2},
    )
    recall = windowed_recall_env({})
    check_module(
        WindowRecurrence,
        observation_space=recall.observation_space,
        action_space=recall.action_space,
        model_config={"units": 3},
    )

    ppo = (
        PPOConfig()
        .environment(TargetEnv, env_config={"size": 5})
        .env_runners(num_env_runners=0, num_envs_per_env_runner=8)
        .rl_module(rl_module_spec=RLModuleSpec(module_class=SmallConvolution))
        .training(train_batch_size=500, minibatch_size=125, num_epochs=8, lr=3e-3, gamma=0.5)
        .debugging(seed=0)
    )
    with ppo.build_algo() as algo:
        results = [algo.train() for _ in range(10)]
        print("PPO, convolution: return", round(results[-1]["env_runners/episode_return_mean"], 2))

    dqn = (
        DQNConfig()
        .environment(windowed_recall_env)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=4)
        .rl_module(rl_module_spec=RLModuleSpec(module_class=WindowRecurrence))
        .training(lr=5e-3, num_steps_sampled_before_learning_starts=200, gamma=0.9)
        .evaluation(evaluation_duration=50, evaluation_config={"explore": False})
        .debugging(seed=0)
    )
    with dqn.build_algo() as algo:
        for _ in range(3):
            algo.train()
        result = algo.evaluate()
        print("DQN, recurrence: return", round(result["env_runners/episode_return_mean"], 2))


if __name__ == "__main__":
    main()

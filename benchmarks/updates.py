"""PPO at the sizes of real tasks: env steps per second, against Stable-Baselines3 with the same.

The env gives random vectors and costs next to nothing, so that learning is what is measured: large
minibatches (where the peer's products use all cores, and we compute policy and values side by
side), observations as wide as Humanoid's, and networks with memory against our own without.
"""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from benchmarks.figures import Figure, alternate, ratio, report
from trainer import PPOConfig

REPEATS = 5
NUM_ENVS = 16
NUM_STEPS = 2048


class RandomVectors(gymnasium.Env[Any, Any]):
    """Random observations and rewards; episodes of 200 steps."""

    def __init__(self, env_config: Any = None, *, obs: int = 17, actions: int = 6) -> None:
        given = dict(env_config or {})
        self.observation_space = spaces.Box(-9.0, 9.0, (given.get("obs", obs),), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (given.get("actions", actions),), np.float32)
        self._rows = np.random.default_rng(0).standard_normal((256, *self.observation_space.shape))
        self._rows = self._rows.astype(np.float32)
        self._t = 0

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        self._t = 0
        return self._rows[0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._t += 1
        return self._rows[self._t % 256], float(action[0]), False, self._t == 200, {}


@dataclass(frozen=True)
class Size:
    """What is learnt.

    Attributes:
        obs, actions: numbers of an observation and of an action.
        hidden: units of each of two layers.
        minibatch: rows.
        num_epochs: passes over the sample.
        num_envs: in one process.
        memory: "lstm", or empty.
    """

    obs: int = 17
    actions: int = 6
    hidden: int = 256
    minibatch: int = 2048
    num_epochs: int = 10
    num_envs: int = NUM_ENVS
    memory: str = ""

    def config(self) -> PPOConfig:
        """Ours."""
        model: dict[str, Any] = {"fcnet_hiddens": [self.hidden] * 2, "fcnet_activation": "tanh"}
        if self.memory:
            model |= {f"use_{self.memory}": True, "lstm_cell_size": 64, "max_seq_len": 20}
        return (
            PPOConfig()
            .environment(RandomVectors, env_config={"obs": self.obs, "actions": self.actions})
            .env_runners(num_env_runners=0, num_envs_per_env_runner=self.num_envs)
            .training(
                train_batch_size=NUM_STEPS,
                minibatch_size=self.minibatch,
                num_epochs=self.num_epochs,
                lr=3e-4,
                use_kl_loss=False,
                grad_clip=0.5,
                vf_clip_param=float("inf"),
                model=model,
            )
            .debugging(seed=0)
        )

    def ours(self) -> Callable[[], float]:
        """What measures our env steps per second."""
        algo = self.config().build_algo()
        algo.train()

        def rate() -> float:
            started_at = time.perf_counter()
            algo.train()
            return NUM_STEPS / (time.perf_counter() - started_at)

        return rate

    def theirs(self) -> Callable[[], float]:
        """What measures Stable-Baselines3's, which uses all cores."""
        import torch
        from stable_baselines3 import PPO
        from stable_baselines3.common.env_util import make_vec_env

        torch.set_num_threads(os.cpu_count() or 1)
        size = {"obs": self.obs, "actions": self.actions}
        model = PPO(
            "MlpPolicy",
            make_vec_env(RandomVectors, n_envs=self.num_envs, seed=0, env_kwargs=size),
            n_steps=NUM_STEPS // self.num_envs,
            batch_size=self.minibatch,
            n_epochs=self.num_epochs,
            policy_kwargs={"net_arch": [self.hidden] * 2},
            seed=0,
            device="cpu",
        )
        model.learn(NUM_STEPS)

        def rate() -> float:
            started_at = time.perf_counter()
            model.learn(NUM_STEPS, reset_num_timesteps=False)
            return NUM_STEPS / (time.perf_counter() - started_at)

        return rate


LARGE_MINIBATCHES = Size()
AS_HUMANOID = Size(obs=376, actions=17, minibatch=64, num_envs=8)
PLAIN = Size(hidden=64, minibatch=256, num_epochs=4, num_envs=8)
LSTM = Size(hidden=64, minibatch=256, num_epochs=4, num_envs=8, memory="lstm")


def rates(size: Size, repeats: int = REPEATS) -> tuple[Figure, Figure | None]:
    """Env steps per second of ours and of the peer, in turn; without a peer of ours alone."""
    if importlib.util.find_spec("stable_baselines3") is None:
        ours = size.ours()
        return Figure([ours() for _ in range(repeats)], "steps/s"), None
    return alternate(size.ours(), size.theirs(), unit="steps/s", repeats=repeats)


def price_of_memory(repeats: int = REPEATS) -> tuple[Figure, Figure]:
    """Seconds per iteration of our LSTM(64) and of our networks without memory, in turn."""
    with_memory, without = LSTM.ours(), PLAIN.ours()
    return alternate(
        lambda: NUM_STEPS / with_memory(),
        lambda: NUM_STEPS / without(),
        unit="s",
        repeats=repeats,
    )


def main() -> None:
    """Prints the rates and their ratios."""
    for name, size, target in (
        ("PPO, 256×256, 16 envs, minibatches of 2,048", LARGE_MINIBATCHES, "≥ 1.6"),
        ("PPO, as wide as Humanoid: 376 numbers, minibatches of 64", AS_HUMANOID, "≥ 3"),
    ):
        print(name)
        ours, theirs = rates(size)
        report("local-trainer", ours)
        if theirs is not None:
            report("Stable-Baselines3, all cores", theirs)
            report("ratio", ratio(ours, theirs), target=target)
        print()
    print("PPO, LSTM(64) against 64×64 without memory, seconds per iteration")
    report("ratio", ratio(*price_of_memory()), target="≤ 4")


if __name__ == "__main__":
    main()

"""What is saved, restored in a new process and continued: algorithms, envs, and their digests.

A cell is an algorithm in an env with a number of runners. Its outcome are digests of everything a
run shows and knows, by name, so that a difference says where it is.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import gymnasium
import numpy as np
from gymnasium import spaces

from callbacks import RLlibCallback
from checkpoints import encode
from trainer import Algorithm, AlgorithmConfig, DQNConfig, PGConfig, PPOConfig, SACConfig
from trainer.metrics import comparable
from trainer.types import Array

NUM_SLOTS: Final = 4
_ROOT: Final = Path(__file__).parents[1]
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class Walk(gymnasium.Env[Array, Any]):
    """A random walk that actions push; its randomness follows from the seed of its episode.

    Settings: `continuous`: actions are numbers instead of left and right; `push`: how far they go.
    """

    def __init__(self, env_config: Mapping[str, Any] = _NOTHING) -> None:
        is_continuous = env_config.get("continuous", False)
        self.observation_space = spaces.Box(-100.0, 100.0, (2,), np.float32)
        self.action_space: spaces.Space[Any] = (
            spaces.Box(-1.0, 1.0, (1,), np.float32) if is_continuous else spaces.Discrete(2)
        )
        self.push = float(env_config.get("push", 0.5))
        self.place = self.noise = 0.0
        self.steps = self.length = 0

    def randomness(self) -> np.random.Generator:
        return self.np_random

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.place, self.steps = 0.0, 0
        self.length = int(self.randomness().integers(5, 40))
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        is_right = isinstance(self.action_space, spaces.Discrete)
        way = 2.0 * int(action) - 1.0 if is_right else float(np.asarray(action)[0])
        self.place += self.push * way + float(self.randomness().normal())
        reward = -abs(self.place) / 10.0
        return self._observation(), reward, self.steps >= self.length, False, {}

    def _observation(self) -> Array:
        self.noise = float(self.randomness().random())
        return np.array([self.place, self.noise], np.float32)


class StatefulWalk(Walk):
    """Its state can be taken and given back; its episodes can be played again as well."""

    def get_state(self) -> dict[str, Any]:
        return {
            "place": self.place,
            "noise": self.noise,
            "steps": self.steps,
            "length": self.length,
            "randomness": self.randomness().bit_generator.state,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        self.place, self.noise = state["place"], state["noise"]
        self.steps, self.length = state["steps"], state["length"]
        self.randomness().bit_generator.state = state["randomness"]


class OwnWalk(Walk):
    """Its randomness is its own: no seed determines it."""

    def __init__(self, env_config: Mapping[str, Any] = _NOTHING) -> None:
        super().__init__(env_config)
        self._own = np.random.default_rng()

    def randomness(self) -> np.random.Generator:
        return self._own


class KeptWalk(OwnWalk, StatefulWalk):
    """Its own randomness is in its state."""


class Remembering(RLlibCallback):
    """Has state in the main process and in the runners, which shows in results."""

    def __init__(self) -> None:
        self.num_episodes = 0
        self.last_returns: list[float] = []

    def on_environment_created(self, *, metrics_logger: Any, **_: Any) -> None:
        metrics_logger.log_value("envs_made", 1, reduce="sum")

    def on_episode_created(self, *, episode: Any, **_: Any) -> None:
        episode.custom_data["steps"] = 0

    def on_episode_step(self, *, episode: Any, **_: Any) -> None:
        episode.custom_data["steps"] += 1

    def on_episode_end(
        self, *, episode: Any, prev_episode_chunks: Any, metrics_logger: Any, **_: Any
    ) -> None:
        self.num_episodes += 1
        self.last_returns = [*self.last_returns[-3:], float(episode.get_return())]
        metrics_logger.log_value("chunks", sum(map(len, prev_episode_chunks)), window=5)
        metrics_logger.log_value("steps", episode.custom_data["steps"], window=7)
        metrics_logger.log_value("of_runner", self.num_episodes, reduce="max")
        metrics_logger.log_value("lately", sum(self.last_returns), ema_coeff=0.1)

    def on_train_result(self, *, result: Any, metrics_logger: Any, **_: Any) -> None:
        self.num_episodes += result["env_runners"]["num_episodes"]
        metrics_logger.log_value("episodes_seen", self.num_episodes, reduce="sum")


ENVS: Final[dict[str, Any]] = {
    "CartPole": "CartPole-v1",
    "Acrobot": "Acrobot-v1",
    "Pendulum": "Pendulum-v1",
    "get_state": StatefulWalk,
    "own np_random": Walk,
    "own generator, get_state": KeptWalk,
    "own generator": OwnWalk,
}
BOX_ONLY: Final = ("Pendulum",)
"""Envs that DQN cannot act in."""

_MODEL: Final[dict[str, Any]] = {"fcnet_hiddens": [8]}
_REPLAY: Final[dict[str, Any]] = {
    "train_batch_size": 16,
    "num_steps_sampled_before_learning_starts": 50,
    # The oldest steps are overwritten, in the middle of iterations and episodes.
    "replay_buffer_config": {"capacity": 150},
    "n_step": (1, 3),
    "training_intensity": 3,
}


def _ppo() -> PPOConfig:
    # 61 steps on 4 slots leave a remainder, and episodes are cut wherever they stand.
    return PPOConfig().training(
        train_batch_size=61,
        minibatch_size=32,
        num_epochs=2,
        lr=[[0, 1e-2], [2000, 1e-4]],
        entropy_coeff=[[0, 0.02], [1500, 0.0]],
    )


def _pg() -> AlgorithmConfig:
    made = PGConfig().training(train_batch_size=61, lr=[[0, 1e-2], [2000, 1e-4]])
    return made.env_runners(batch_mode="truncate_episodes")


def _dqn() -> AlgorithmConfig:
    made = DQNConfig().training(
        lr=[[0, 1e-2], [2000, 1e-3]],
        epsilon=[[0, 1.0], [1500, 0.05]],
        target_network_update_freq=30,
        **_REPLAY,
    )
    return made.reporting(min_sample_timesteps_per_iteration=50)


def _sac() -> AlgorithmConfig:
    made = SACConfig().training(
        actor_lr=[[0, 1e-2], [2000, 1e-3]], critic_lr=1e-2, alpha_lr=1e-2, **_REPLAY
    )
    return made.reporting(min_sample_timesteps_per_iteration=50)


ALGORITHMS: Final = {"PPO": _ppo, "PG": _pg, "DQN": _dqn, "SAC": _sac}


@dataclass(frozen=True)
class Cell:
    """An algorithm in an env with a number of runners."""

    algorithm: str
    env: str
    num_env_runners: int

    @property
    def name(self) -> str:
        return f"{self.algorithm}, {self.env}, {self.num_env_runners}"

    @classmethod
    def of(cls, name: str) -> Cell:
        algorithm, *env, runners = name.split(", ")
        return cls(algorithm, ", ".join(env), int(runners))

    def config(self, **settings: Any) -> AlgorithmConfig:
        made = (
            ALGORITHMS[self.algorithm]()
            .environment(
                ENVS[self.env],
                # SAC and PG meet continuous actions in the walks, too.
                env_config={"continuous": self.algorithm in {"SAC", "PG"}}
                if isinstance(ENVS[self.env], type)
                else {},
            )
            .env_runners(
                num_env_runners=self.num_env_runners,
                num_envs_per_env_runner=NUM_SLOTS // max(1, self.num_env_runners),
            )
            .rl_module(model_config=_MODEL)
            .callbacks(Remembering)
            .debugging(seed=7)
        )
        return made.update_from_dict(settings)


def digests(algo: Algorithm, num_iterations: int) -> dict[str, str]:
    """Digests of what some more iterations show, and of all that is known then, by name."""
    found = {}
    for _ in range(num_iterations):
        result = comparable(algo.train())
        found[f"result {algo.training_iteration}"] = _digest(result)
    for name, part in algo.get_state(not_components="config").items():
        for key, value in part.items():
            found[f"{name}/{key}"] = _digest(value)
    return found


def _digest(value: Any) -> str:
    return hashlib.sha256(encode(value)).hexdigest()[:16]


def different(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """The names of the digests that differ."""
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


# ---- a new process


def continued_elsewhere(
    paths: Mapping[str, str], num_iterations: int, *, overrides: Mapping[str, Any] = _NOTHING
) -> dict[str, dict[str, str]]:
    """What a new process finds that restores checkpoints, by name of their cells, and trains."""
    task = json.dumps([dict(paths), num_iterations, dict(overrides)])
    program = "from tests.resume_cells import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, task], capture_output=True, check=False, cwd=_ROOT
    )
    assert done.returncode == 0, done.stderr.decode()
    found: dict[str, dict[str, str]] = json.loads(done.stdout)
    return found


def restored(path: str, cell: Cell, **overrides: Any) -> Algorithm:
    """The algorithm of a checkpoint; what is code in its config is given anew."""
    env = ENVS[cell.env]
    given: dict[str, Any] = {"env": env} if isinstance(env, type) else {}
    return Algorithm.from_checkpoint(path, callbacks_class=Remembering, **given, **overrides)


def main() -> None:
    """The program of the new process."""
    paths, num_iterations, overrides = json.loads(sys.argv[1])
    found = {}
    for name, path in paths.items():
        with restored(path, Cell.of(name), **overrides) as algo:
            found[name] = digests(algo, num_iterations)
    sys.stdout.write(json.dumps(found))


def all_cells(envs: Collection[str] = tuple(ENVS)) -> list[Cell]:
    """Every algorithm in every env that it can act in, with 0, 1 and 2 runners."""
    return [
        Cell(algorithm, env, num_env_runners)
        for algorithm in ALGORITHMS
        for env in envs
        for num_env_runners in (0, 1, 2)
        if not (algorithm == "DQN" and env in BOX_ONLY)
    ]

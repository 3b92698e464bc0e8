"""The tasks: envs, budgets, and settings in the words of RL Baselines3 Zoo.

Settings are those of `hyperparams/*.yml` in DLR-RM/rl-baselines3-zoo at commit 22e3ff2; what they
leave open are Stable-Baselines3's defaults, which `DEFAULTS` spells out, so that both sides are
told everything. Differences from the Zoo:

- MuJoCo's envs are those of version 5; the Zoo tuned for version 4.
- What the Zoo has no entry for has that of the plain algorithm, or of the nearest env.
- The Zoo has Pendulum with gSDE (`use_sde`) only; here it is also run without. Where the peer
  draws gSDE's noise anew with each rollout, ours does after as many steps of an episode.
- Budgets are smaller where the Zoo gives millions of steps.
- Games of several agents have the settings of `benchmarks/multi_agent_tasks.py`, which are those of
  RLlib's tuned examples where there are such, and no peer; returns are sums over agents.
- HalfCheetah, Hopper and Walker2d stand there with tuned settings for 10⁶ steps, whose learning
  rates are too small for a budget of 300,000. The tasks "… defaults" have what the Zoo calls its
  defaults for MuJoCo: normalised observations and rewards, else Stable-Baselines3's own.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import gymnasium
import numpy as np

from benchmarks.multi_agent_tasks import TASKS as GAMES
from benchmarks.tasks import Task as GameTask
from trainer import AlgorithmConfig
from trainer.testing import MultiAgentCartPole, MultiAgentPendulum
from trainer.testing.envs import StatelessCartPole

Settings = Mapping[str, Any]
Env = gymnasium.Env[Any, Any]

_OF_PPO: Final = {
    "n_envs": 1,
    "n_steps": 2048,
    "batch_size": 64,
    "n_epochs": 10,
    "learning_rate": 3e-4,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "clip_range": 0.2,
    "ent_coef": 0.0,
    "vf_coef": 0.5,
    "max_grad_norm": 0.5,
    "normalize": False,
    "net_arch": [64, 64],
    "activation": "tanh",
    "ortho_init": True,
    "log_std_init": 0.0,
    "use_sde": False,
    "sde_sample_freq": -1,
}
DEFAULTS: Final[Mapping[str, Settings]] = MappingProxyType(
    {
        "PPO": _OF_PPO,
        "APPO": {**_OF_PPO, "sample_ahead": 2},
        "DQN": {
            "learning_rate": 1e-4,
            "buffer_size": 1_000_000,
            "learning_starts": 100,
            "batch_size": 32,
            "gamma": 0.99,
            "train_freq": 4,
            "gradient_steps": 1,
            "target_update_interval": 10_000,
            "exploration_fraction": 0.1,
            "exploration_final_eps": 0.05,
            "max_grad_norm": 10.0,
            "n_steps": 1,
            "net_arch": [64, 64],
            "double_q": False,
            "prioritized": False,
        },
        "SAC": {
            "learning_rate": 3e-4,
            "buffer_size": 1_000_000,
            "learning_starts": 100,
            "batch_size": 256,
            "tau": 0.005,
            "gamma": 0.99,
            "train_freq": 1,
            "gradient_steps": 1,
            "net_arch": [256, 256],
        },
        "TD3": {
            "learning_rate": 1e-3,
            "buffer_size": 1_000_000,
            "learning_starts": 100,
            "batch_size": 256,
            "tau": 0.005,
            "gamma": 0.99,
            "train_freq": 1,
            "gradient_steps": 1,
            "policy_delay": 2,
            "target_policy_noise": 0.2,
            "target_noise_clip": 0.5,
            "noise_std": 0.0,
            "net_arch": [400, 300],
        },
    }
)
"""Stable-Baselines3's defaults, by algorithm; it has no APPO, `double_q` or `prioritized`."""

_MEMORY: Final = {"lstm_hidden_size": 64, "net_arch": [64], "activation": "relu"}
"""`RecurrentPPO` with a memory for the policy and one for the values."""


@dataclass(frozen=True)
class Task:
    """An env to learn, and how.

    Attributes:
        name: what it is called on the command line.
        algorithm: a key of `DEFAULTS`.
        make_env: makes the env.
        num_env_steps: the budget.
        wanted_return: what counts as learnt, for the mean of 20 episodes of training in a row.
        settings: in the Zoo's words, without defaults.
        needs: the module that the env is in; empty if it is always there.
        env_name: gymnasium's; empty for an env that has none.
        source: where the settings stand.
        is_continuous: whether actions are numbers, and not one of several.
        game: of several agents: makes the config, which has all settings.
    """

    name: str
    algorithm: str
    make_env: Callable[[], Env]
    num_env_steps: int
    wanted_return: float
    settings: Settings
    needs: str = ""
    env_name: str = ""
    source: str = ""
    is_continuous: bool = False
    game: Callable[[], AlgorithmConfig] | None = None

    def learns_as(self, other: Task) -> bool:
        """Whether it has the same settings."""
        mine, others = ((task.algorithm, task.whole_settings, task.game) for task in (self, other))
        return mine == others

    @property
    def whole_settings(self) -> dict[str, Any]:
        """With the defaults."""
        return {**DEFAULTS[self.algorithm], **self.settings}

    @property
    def has_memory(self) -> bool:
        """Whether the networks remember."""
        return "lstm_hidden_size" in self.settings

    @property
    def has_peer(self) -> bool:
        """Whether the peer has what is needed."""
        settings = self.whole_settings
        of_ours = ("double_q", "prioritized", "sample_ahead")
        return not (self.game or any(settings.get(name) for name in of_ours))

    @property
    def is_possible(self) -> bool:
        """Whether the env is installed."""
        return not self.needs or importlib.util.find_spec(self.needs) is not None


class WithoutVelocity(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Pendulum whose angular velocity reads 0, as the Zoo's `MaskVelocityWrapper` shows it."""

    def observation(self, observation: Any) -> Any:
        return observation * np.array([1.0, 1.0, 0.0], np.float32)


def _pendulum_without_velocity() -> Env:
    return WithoutVelocity(gymnasium.make("Pendulum-v1"))


class AsImage(gymnasium.ObservationWrapper[Any, Any, Any]):
    """MinAtar's planes of bits as an image of bytes, which both sides scale to [0, 1]."""

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.observation_space = gymnasium.spaces.Box(0, 255, env.observation_space.shape, np.uint8)

    def observation(self, observation: Any) -> Any:
        return observation.astype(np.uint8) * 255


def _atari(name: str) -> Env:
    import ale_py
    from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation, TransformReward

    gymnasium.register_envs(ale_py)
    env = AtariPreprocessing(gymnasium.make(name, frameskip=1), terminal_on_life_loss=True)
    return TransformReward(FrameStackObservation(env, 4), lambda reward: np.sign(float(reward)))


def _minigrid(name: str) -> Env:
    import minigrid
    from minigrid.wrappers import FlatObsWrapper

    gymnasium.register_envs(minigrid)
    env = FlatObsWrapper(gymnasium.make(name))
    # The peer keeps normalised observations in the numbers of the env, which must not be bytes.
    space = gymnasium.spaces.Box(0.0, 255.0, env.observation_space.shape, np.float32)
    return gymnasium.wrappers.TransformObservation(env, lambda obs: obs.astype(np.float32), space)


def _minatar(game: str) -> Env:
    from minatar.gym import BaseEnv

    # Episodes have no limit of their own; 10⁸ frames are the package's for people who play.
    return AsImage(gymnasium.wrappers.TimeLimit(BaseEnv(game=game), 10_000))


def _game(what: str, of: GameTask, make_env: Callable[[], Env]) -> Task:
    """A game of several agents, with settings of `benchmarks/multi_agent_tasks.py`."""
    return Task(
        what,
        "PPO",
        make_env,
        of.max_env_steps,
        of.wanted_return,
        {},
        source="benchmarks/multi_agent_tasks.py",
        game=of.config,
    )


def _task(
    algorithm: str,
    env: str,
    num_env_steps: int,
    wanted_return: float,
    *,
    how: str = "",
    needs: str = "",
    is_continuous: bool = False,
    **settings: Any,
) -> Task:
    file = {"APPO": "PPO"}.get(algorithm, algorithm)
    entry = {"defaults": "its defaults for MuJoCo"}.get(how, f"{env.rpartition('-')[0]}-v*")
    return Task(
        f"{algorithm} {env}{how and f' {how}'}",
        algorithm,
        partial(gymnasium.make, env),
        num_env_steps,
        wanted_return,
        settings,
        needs,
        env,
        f"RL Baselines3 Zoo 22e3ff2, hyperparams/{file.lower()}.yml: {entry}",
        is_continuous,
    )


def _mujoco(env: str, num_env_steps: int, wanted_return: float, **settings: Any) -> Task:
    how = "defaults" if not settings else ""
    return _task(
        "PPO",
        env,
        num_env_steps,
        wanted_return,
        how=how,
        needs="mujoco",
        is_continuous=True,
        normalize=True,
        **settings,
    )


_WIDE: Final = {
    "log_std_init": -2.0,
    "ortho_init": False,
    "activation": "relu",
    "net_arch": [256, 256],
}
"""Networks of the Zoo's tuned settings for MuJoCo."""

_OF_IMAGES: Final = {
    "n_envs": 8,
    "n_steps": 128,
    "n_epochs": 4,
    "batch_size": 256,
    "learning_rate": "lin_2.5e-4",
    "clip_range": "lin_0.1",
    "vf_coef": 0.5,
    "ent_coef": 0.01,
    "activation": "relu",
}
"""What the Zoo has for Atari games."""

TASKS: Final = (
    *(
        _task(
            algorithm,
            "CartPole-v1",
            100_000,
            475.0,
            n_envs=8,
            n_steps=32,
            batch_size=256,
            gae_lambda=0.8,
            gamma=0.98,
            n_epochs=20,
            learning_rate="lin_0.001",
            clip_range="lin_0.2",
        )
        for algorithm in ("PPO", "APPO")
    ),
    _task(
        "PPO",
        "Acrobot-v1",
        200_000,
        -100.0,
        normalize=True,
        n_envs=16,
        n_steps=256,
        gae_lambda=0.94,
        n_epochs=4,
    ),
    _task(
        "PPO",
        "MountainCar-v0",
        300_000,
        -110.0,
        normalize=True,
        n_envs=16,
        n_steps=16,
        gae_lambda=0.98,
        n_epochs=4,
    ),
    _task(
        "PPO",
        "Pendulum-v1",
        100_000,
        -250.0,
        is_continuous=True,
        n_envs=4,
        n_steps=1024,
        gamma=0.9,
        learning_rate=1e-3,
    ),
    _task(
        "PPO",
        "Pendulum-v1",
        100_000,
        -250.0,
        how="gSDE",
        is_continuous=True,
        n_envs=4,
        n_steps=1024,
        gamma=0.9,
        learning_rate=1e-3,
        use_sde=True,
        sde_sample_freq=4,
    ),
    _task(
        "PPO",
        "MountainCarContinuous-v0",
        20_000,
        90.0,
        is_continuous=True,
        normalize=True,
        n_steps=8,
        batch_size=8,  # 256 there, of rollouts of 8 steps
        gae_lambda=0.9,
        gamma=0.9999,
        learning_rate=7.77e-5,
        clip_range=0.1,
        ent_coef=0.00429,
        vf_coef=0.19,
        max_grad_norm=5.0,
        use_sde=True,
        log_std_init=-3.29,
        ortho_init=False,
    ),
    *(
        _task(
            "PPO",
            env,
            1_000_000,
            200.0,
            needs="Box2D",
            is_continuous=is_continuous,
            n_envs=16,
            n_steps=1024,
            gae_lambda=0.98,
            gamma=0.999,
            n_epochs=4,
            ent_coef=0.01,
        )
        for env, is_continuous in (
            ("LunarLander-v3", False),
            ("LunarLanderContinuous-v3", True),
        )
    ),
    _task(
        "PPO",
        "BipedalWalker-v3",
        500_000,
        200.0,
        needs="Box2D",
        is_continuous=True,
        normalize=True,
        n_envs=8,
        n_steps=2048,
        gamma=0.999,
        clip_range=0.18,
    ),
    _mujoco("HalfCheetah-v5", 300_000, 1500.0),
    _mujoco("Hopper-v5", 300_000, 1000.0),
    _mujoco("Walker2d-v5", 300_000, 1000.0),
    _mujoco("Ant-v5", 300_000, 500.0),
    _mujoco("InvertedDoublePendulum-v5", 150_000, 5000.0),
    _mujoco(
        "HalfCheetah-v5",
        300_000,
        1500.0,
        n_steps=512,
        batch_size=64,
        gamma=0.98,
        learning_rate=2.0633e-05,
        ent_coef=0.000401762,
        clip_range=0.1,
        n_epochs=20,
        gae_lambda=0.92,
        max_grad_norm=0.8,
        vf_coef=0.58096,
        **_WIDE,
    ),
    _mujoco(
        "Hopper-v5",
        300_000,
        1000.0,
        n_steps=512,
        batch_size=32,
        gamma=0.999,
        learning_rate=9.80828e-05,
        ent_coef=0.00229519,
        clip_range=0.2,
        n_epochs=5,
        gae_lambda=0.99,
        max_grad_norm=0.7,
        vf_coef=0.835671,
        **_WIDE,
    ),
    Task(
        "PPO MinAtar Breakout",
        "PPO",
        partial(_minatar, "breakout"),
        300_000,
        5.0,
        {**_OF_IMAGES, "conv_filters": [[16, 3, 1]], "net_arch": [128]},
        "minatar",
        source="RL Baselines3 Zoo 22e3ff2, hyperparams/ppo.yml: atari; the network of Young and "
        "Tian 2019, MinAtar",
    ),
    Task(
        "PPO ALE/Pong-v5",
        "PPO",
        partial(_atari, "ALE/Pong-v5"),
        10_000_000,
        15.0,
        {
            **_OF_IMAGES,
            "conv_filters": [[32, 8, 4], [64, 4, 2], [64, 3, 1]],
            "net_arch": [512],
        },
        "ale_py",
        "ALE/Pong-v5",
        "RL Baselines3 Zoo 22e3ff2, hyperparams/ppo.yml: atari; for envs in AtariPreprocessing "
        "and FrameStackObservation(env, 4)",
    ),
    Task(
        "PPO MiniGrid-DoorKey-5x5-v0",
        "PPO",
        partial(_minigrid, "MiniGrid-DoorKey-5x5-v0"),
        100_000,
        0.9,
        {
            "normalize": True,
            "n_envs": 8,
            "n_steps": 128,
            "batch_size": 64,
            "learning_rate": 2.5e-4,
        },
        "minigrid",
        "MiniGrid-DoorKey-5x5-v0",
        "RL Baselines3 Zoo 22e3ff2, hyperparams/ppo.yml: MiniGrid; for envs in FlatObsWrapper",
    ),
    Task(
        "PPO CartPole without velocities",
        "PPO",
        StatelessCartPole,
        150_000,
        450.0,
        {
            **_MEMORY,
            "normalize": True,
            "n_envs": 8,
            "n_steps": 32,
            "batch_size": 256,
            "gae_lambda": 0.8,
            "gamma": 0.98,
            "n_epochs": 20,
            "learning_rate": "lin_0.001",
            "clip_range": "lin_0.2",
            "ortho_init": False,
        },
    ),
    Task(
        "PPO Pendulum without velocity",
        "PPO",
        _pendulum_without_velocity,
        100_000,
        -300.0,
        {
            **_MEMORY,
            "normalize": True,
            "n_envs": 4,
            "n_steps": 1024,
            "batch_size": 128,
            "gamma": 0.9,
            "learning_rate": 1e-3,
            "ortho_init": False,
        },
        is_continuous=True,
    ),
    _game("PPO 2 CartPoles", GAMES["L1"], partial(MultiAgentCartPole, {"num_agents": 2})),
    _game("PPO 2 Pendulums", GAMES["L3"], partial(MultiAgentPendulum, {"num_agents": 2})),
    *(
        _task(
            "DQN",
            "CartPole-v1",
            50_000,
            475.0,
            how=how,
            learning_rate=2.3e-3,
            batch_size=64,
            buffer_size=100_000,
            learning_starts=1000,
            target_update_interval=10,
            train_freq=256,
            gradient_steps=128,
            exploration_fraction=0.16,
            exploration_final_eps=0.04,
            net_arch=[256, 256],
            **more,
        )
        for how, more in (
            ("", {}),
            ("double", {"double_q": True}),
            ("prioritized", {"prioritized": True}),
            ("3 steps", {"n_steps": 3}),
        )
    ),
    _task(
        "DQN",
        "MountainCar-v0",
        120_000,
        -110.0,
        learning_rate=4e-3,
        batch_size=128,
        buffer_size=10_000,
        learning_starts=1000,
        gamma=0.98,
        target_update_interval=600,
        train_freq=16,
        gradient_steps=8,
        exploration_fraction=0.2,
        exploration_final_eps=0.07,
        net_arch=[256, 256],
    ),
    *(
        _task(
            "DQN",
            env,
            100_000,
            wanted_return,
            needs=needs,
            learning_rate=6.3e-4,
            batch_size=128,
            buffer_size=50_000,
            learning_starts=0,
            target_update_interval=250,
            train_freq=4,
            gradient_steps=4,
            exploration_fraction=0.12,
            exploration_final_eps=0.1,
            net_arch=[256, 256],
        )
        for env, wanted_return, needs in (
            ("Acrobot-v1", -100.0, ""),
            ("LunarLander-v3", 100.0, "Box2D"),
        )
    ),
    _task("SAC", "Pendulum-v1", 20_000, -200.0, is_continuous=True, learning_rate=1e-3),
    _task(
        "SAC",
        "LunarLanderContinuous-v3",
        100_000,
        200.0,
        needs="Box2D",
        is_continuous=True,
        learning_rate="lin_7.3e-4",
        tau=0.01,
        learning_starts=10_000,
        net_arch=[400, 300],
    ),
    _task(
        "SAC",
        "Hopper-v5",
        100_000,
        1000.0,
        needs="mujoco",
        is_continuous=True,
        learning_starts=10_000,
    ),
    _task(
        "SAC",
        "HalfCheetah-v5",
        100_000,
        3000.0,
        needs="mujoco",
        is_continuous=True,
        learning_starts=10_000,
    ),
    _task(
        "TD3",
        "Pendulum-v1",
        20_000,
        -200.0,
        is_continuous=True,
        gamma=0.98,
        buffer_size=200_000,
        learning_starts=10_000,
        noise_std=0.1,
    ),
    _task(
        "TD3",
        "Hopper-v5",
        100_000,
        1000.0,
        needs="mujoco",
        is_continuous=True,
        learning_starts=10_000,
        noise_std=0.1,
    ),
)
"""Every task."""

BY_NAME: Final[Mapping[str, Task]] = MappingProxyType({task.name: task for task in TASKS})
"""Every task by its name."""

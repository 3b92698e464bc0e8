"""Envs that people use, with settings that get far: `python popular_envs.py minigrid`.

Each needs a package, which the table names. What was reached is in docs/popular-envs.md.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import gymnasium
from gymnasium.wrappers import FlattenObservation

from trainer import AlgorithmConfig, PPOConfig


def minigrid(_: Any) -> gymnasium.Env[Any, Any]:
    """A grid that is seen through a window of 7 x 7 cells: pip install minigrid."""
    from minigrid.wrappers import ImgObsWrapper

    return FlattenObservation(ImgObsWrapper(gymnasium.make("MiniGrid-Empty-5x5-v0")))


def lunar_lander(_: Any) -> gymnasium.Env[Any, Any]:
    """Box2D: pip install "gymnasium[box2d]"."""
    return gymnasium.make("LunarLander-v3")


def inverted_pendulum(_: Any) -> gymnasium.Env[Any, Any]:
    """MuJoCo: pip install mujoco."""
    return gymnasium.make("InvertedPendulum-v5")


def boxing(_: Any) -> gymnasium.Env[Any, Any]:
    """Atari, from its 128 bytes of memory: pip install ale-py."""
    import ale_py

    gymnasium.register_envs(ale_py)
    return gymnasium.make("ALE/Boxing-v5", obs_type="ram")


class PlainInfo(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Without the step type of dm_env, an object that no checkpoint can hold."""

    def reset(self, **settings: Any) -> Any:
        observation, info = super().reset(**settings)
        info.pop("timestep.step_type")
        return observation, info

    def step(self, action: Any) -> Any:
        *made, info = super().step(action)
        info.pop("timestep.step_type")
        return *made, info


def cartpole_balance(_: Any) -> gymnasium.Env[Any, Any]:
    """dm_control: pip install "shimmy[dm-control]"."""
    import shimmy

    gymnasium.register_envs(shimmy)
    return PlainInfo(FlattenObservation(gymnasium.make("dm_control/cartpole-balance-v0")))


ENVS = {
    make.__name__: make
    for make in (minigrid, lunar_lander, inverted_pendulum, boxing, cartpole_balance)
}
SETTINGS: dict[str, dict[str, Any]] = {
    "minigrid": {"entropy_coeff": 0.01, "observation_filter": "MeanStdFilter"},
    "lunar_lander": {"gamma": 0.999, "lambda_": 0.98, "entropy_coeff": 0.01},
    "inverted_pendulum": {"observation_filter": "MeanStdFilter"},
    "boxing": {"observation_filter": "MeanStdFilter", "entropy_coeff": 0.01},
    "cartpole_balance": {"observation_filter": "MeanStdFilter", "normalize_rewards": True},
}


def config(name: str) -> AlgorithmConfig:
    ppo = {"clip_param": 0.2, "use_kl_loss": False, "vf_clip_param": float("inf")}
    ppo |= {"lr": 3e-4, "lambda_": 0.95, "grad_clip": 0.5, "vf_loss_coeff": 0.5}
    return (
        PPOConfig()
        .environment(ENVS[name])
        .env_runners(num_env_runners=0, num_envs_per_env_runner=8)
        .training(train_batch_size=2048, minibatch_size=64, num_epochs=10)
        .training(model={"fcnet_hiddens": [64, 64]})
        .debugging(seed=0)
        .update_from_dict({**ppo, **SETTINGS[name]})
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("env", choices=ENVS)
    parser.add_argument("--iterations", type=int, default=50)
    parser.add_argument("--num-env-runners", type=int, default=0)
    arguments = parser.parse_args()
    began_at = time.monotonic()
    chosen = config(arguments.env).env_runners(num_env_runners=arguments.num_env_runners)
    with chosen.build_algo() as algo:
        for _ in range(arguments.iterations):
            result = algo.train()
            mean = result["env_runners/episode_return_mean"]
            steps = result["num_env_steps_sampled_lifetime"]
            print(f"{steps:,} env steps: return {mean:.2f}, {time.monotonic() - began_at:.0f} s")


if __name__ == "__main__":
    main()

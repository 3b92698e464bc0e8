"""Envs that people use, with settings that get far: `python popular_envs.py minigrid`.

Each needs a package, which the function that makes it names. What was reached, with how many env
steps and in which time, is in benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import gymnasium
from gymnasium.wrappers import FlattenObservation

from trainer import AlgorithmConfig, DQNConfig, PPOConfig


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
    "minigrid": minigrid,
    "lunar_lander": lunar_lander,
    "lunar_lander_dqn": lunar_lander,
    "inverted_pendulum": inverted_pendulum,
    "boxing": boxing,
    "cartpole_balance": cartpole_balance,
}
SETTINGS: dict[str, dict[str, Any]] = {
    "minigrid": {"entropy_coeff": 0.01, "observation_filter": "MeanStdFilter"},
    # Those of RL Baselines3 Zoo, as far as the names have a counterpart.
    "lunar_lander": {
        "num_envs_per_env_runner": 16,
        "train_batch_size": 16_384,
        "num_epochs": 4,
        "gamma": 0.999,
        "lambda_": 0.98,
        "entropy_coeff": 0.01,
    },
    "lunar_lander_dqn": {
        "lr": 6.3e-4,
        "train_batch_size": 128,
        "rollout_fragment_length": 4,
        "training_intensity": 128,  # one update per env step
        "num_steps_sampled_before_learning_starts": 128,
        "target_network_update_freq": 250,
        "epsilon": [[0, 1.0], [12_000, 0.1]],
        "replay_buffer_config": {"type": "EpisodeReplayBuffer", "capacity": 50_000},
        "double_q": False,
        "dueling": False,
        "grad_clip": 10.0,
        "model": {"fcnet_hiddens": [256, 256], "fcnet_activation": "relu"},
    },
    "inverted_pendulum": {"observation_filter": "MeanStdFilter"},
    "boxing": {"observation_filter": "MeanStdFilter", "entropy_coeff": 0.01},
    "cartpole_balance": {"observation_filter": "MeanStdFilter", "normalize_rewards": True},
}
PPO_SETTINGS: dict[str, Any] = {
    "num_envs_per_env_runner": 8,
    "train_batch_size": 2048,
    "minibatch_size": 64,
    "num_epochs": 10,
    "lr": 3e-4,
    "lambda_": 0.95,
    "clip_param": 0.2,
    "use_kl_loss": False,
    "vf_clip_param": float("inf"),
    "vf_loss_coeff": 0.5,
    "grad_clip": 0.5,
    "model": {"fcnet_hiddens": [64, 64]},
}


def config(name: str, *, seed: int = 0) -> AlgorithmConfig:
    if name.endswith("_dqn"):
        chosen: AlgorithmConfig = DQNConfig()
    else:
        chosen = PPOConfig().update_from_dict(PPO_SETTINGS)
    return (
        chosen.environment(ENVS[name])
        .evaluation(evaluation_duration=20, evaluation_config={"explore": False})
        .debugging(seed=seed)
        .update_from_dict(SETTINGS[name])
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("env", choices=ENVS)
    parser.add_argument("--iterations", type=int, default=50)
    parser.add_argument("--stop-return", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--num-env-runners", type=int, default=0)
    arguments = parser.parse_args()
    began_at, used_before = time.monotonic(), time.process_time()
    chosen = config(arguments.env, seed=arguments.seed)
    chosen.env_runners(num_env_runners=arguments.num_env_runners)
    with chosen.build_algo() as algo:
        for _ in range(arguments.iterations):
            result = algo.train()
            mean = result["env_runners/episode_return_mean"]
            steps = result["num_env_steps_sampled_lifetime"]
            took, used = time.monotonic() - began_at, time.process_time() - used_before
            print(
                f"{steps:,} env steps: return {mean:.2f}, {took:.0f} s, "
                f"{used:.0f} s of this processor",
                flush=True,
            )
            if mean >= arguments.stop_return:
                break
        evaluated = algo.evaluate()["env_runners/episode_return_mean"]
        print(f"without exploring: return {evaluated:.2f}, the mean of 20 episodes")


if __name__ == "__main__":
    main()

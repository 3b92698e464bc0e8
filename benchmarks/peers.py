"""The same task for other trainers; each is imported only when it is measured."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

MAX_STEPS = 200_000


@dataclass(frozen=True)
class Solved:
    """How a run ended.

    Attributes:
        seconds: from building to the end.
        env_steps: env steps made.
        mean_return: of the last 100 episodes.
    """

    seconds: float
    env_steps: int
    mean_return: float


def sb3_solves(seed: int) -> Solved:
    """Stable-Baselines3 with its own defaults: the hyper-parameters of this comparison."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env

    class StopAt450(BaseCallback):  # type: ignore[misc]  # peers are not type-checked
        mean_return = 0.0

        def _on_rollout_end(self) -> None:
            returns = [info["r"] for info in self.model.ep_info_buffer]
            self.mean_return = sum(returns) / max(1, len(returns))

        def _on_step(self) -> bool:
            return self.mean_return < 450

    started_at = time.perf_counter()
    env = make_vec_env("CartPole-v1", n_envs=8, seed=seed)
    model = PPO(
        "MlpPolicy",
        env,
        n_steps=256,
        batch_size=64,
        n_epochs=10,
        learning_rate=3e-4,
        clip_range=0.2,
        seed=seed,
        device="cpu",
    )
    stop = StopAt450()
    model.learn(MAX_STEPS, callback=stop)
    return Solved(time.perf_counter() - started_at, model.num_timesteps, stop.mean_return)


def rllib_solves(seed: int) -> Solved:
    """RLlib's new stack with two env runners of four envs.

    The time that `ray.init` takes is not counted.
    """
    import ray
    from ray.rllib.algorithms.ppo import PPOConfig

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, ignore_reinit_error=True)
    config: Any = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=2, num_envs_per_env_runner=4)
        .training(
            train_batch_size=2048,
            minibatch_size=64,
            num_epochs=10,
            lr=3e-4,
            clip_param=0.2,
            lambda_=0.95,
            use_kl_loss=False,
            vf_loss_coeff=0.5,
            vf_clip_param=float("inf"),
            grad_clip=0.5,
        )
        .rl_module(
            model_config={
                "fcnet_hiddens": [64, 64],
                "fcnet_activation": "tanh",
                "vf_share_layers": False,
            }
        )
        .debugging(seed=seed)
    )
    started_at = time.perf_counter()
    algo = config.build_algo()
    mean, steps = 0.0, 0
    while not mean >= 450 and steps < MAX_STEPS:
        result = algo.train()
        mean = result["env_runners"].get("episode_return_mean", 0.0)
        steps = result["env_runners"]["num_env_steps_sampled_lifetime"]
    seconds = time.perf_counter() - started_at
    algo.stop()
    ray.shutdown()
    return Solved(seconds, int(steps), mean)

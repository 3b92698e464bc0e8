"""The same task for other trainers; each is imported only when it is measured."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

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


SAME_PPO: Final[Mapping[str, Any]] = {
    "train_batch_size": 2048,
    "minibatch_size": 64,
    "num_epochs": 10,
    "lr": 3e-4,
    "clip_param": 0.2,
    "lambda_": 0.95,
    "use_kl_loss": False,
    "vf_loss_coeff": 0.5,
    "vf_clip_param": float("inf"),
    "grad_clip": 0.5,
}
"""Settings of the comparison on CartPole-v1, for RLlib and for us."""


def _stop_at_450() -> Any:
    """A callback of Stable-Baselines3 that ends at the wanted mean return of recent episodes."""
    from stable_baselines3.common.callbacks import BaseCallback

    class StopAt450(BaseCallback):  # type: ignore[misc]  # peers are not type-checked
        mean_return = 0.0

        def _on_rollout_end(self) -> None:
            returns = [info["r"] for info in self.model.ep_info_buffer]
            self.mean_return = sum(returns) / max(1, len(returns))

        def _on_step(self) -> bool:
            return self.mean_return < 450

    return StopAt450()


def sb3_solves(seed: int) -> Solved:
    """Stable-Baselines3 with its own defaults: the hyper-parameters of this comparison."""
    return _sb3_until_solved(
        seed,
        most_env_steps=MAX_STEPS,
        n_steps=256,
        batch_size=64,
        n_epochs=10,
        learning_rate=3e-4,
        clip_range=0.2,
    )


def sb3_tuned_solves(seed: int) -> Solved:
    """Stable-Baselines3 with the settings that RL Baselines3 Zoo tuned for this task.

    CartPole-v1 in `hyperparams/ppo.yml`: learning rate and clipping fall to 0 over 100,000 steps.
    """
    return _sb3_until_solved(
        seed,
        most_env_steps=100_000,
        n_steps=32,
        batch_size=256,
        n_epochs=20,
        gamma=0.98,
        gae_lambda=0.8,
        learning_rate=lambda left: 1e-3 * left,
        clip_range=lambda left: 0.2 * left,
    )


def _sb3_until_solved(seed: int, *, most_env_steps: int, **settings: Any) -> Solved:
    """Trains PPO with eight envs to a mean return of 450, or for so many env steps."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    started_at = time.perf_counter()
    env = make_vec_env("CartPole-v1", n_envs=8, seed=seed)
    model = PPO("MlpPolicy", env, seed=seed, device="cpu", **settings)
    stop = _stop_at_450()
    model.learn(most_env_steps, callback=stop)
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
        .training(**SAME_PPO)
        .rl_module(
            model_config={
                "fcnet_hiddens": [64, 64],
                "fcnet_activation": "tanh",
                "vf_share_layers": False,
            }
        )
        .debugging(seed=seed)
    )
    return _rllib_until_solved(config, most_env_steps=MAX_STEPS)


def rllib_tuned_solves(seed: int) -> Solved:
    """RLlib's new stack with the settings of its tuned example for CartPole, two env runners.

    `rllib/tuned_examples/ppo/cartpole_ppo.py`. The time that `ray.init` takes is not counted.
    """
    import ray
    from ray.rllib.algorithms.ppo import PPOConfig

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, ignore_reinit_error=True)
    config: Any = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=2)
        .training(lr=3e-4, num_epochs=6, vf_loss_coeff=0.01)
        .rl_module(
            model_config={
                "fcnet_hiddens": [32],
                "fcnet_activation": "linear",
                "vf_share_layers": True,
            }
        )
        .debugging(seed=seed)
    )
    return _rllib_until_solved(config, most_env_steps=MAX_STEPS)


def _rllib_until_solved(
    config: Any, *, most_env_steps: int, returns: deque[float] | None = None
) -> Solved:
    """Trains to a mean return of 450, and ends the cluster that was started.

    Args:
        config: of RLlib.
        most_env_steps: where to give up.
        returns: of the last 100 episodes, of which the mean is taken; None takes RLlib's mean,
            which may be that of the episodes that ended in one iteration.
    """
    import ray

    started_at = time.perf_counter()
    algo = config.build_algo()
    mean, steps = 0.0, 0
    while not mean >= 450 and steps < most_env_steps:
        result = algo.train()
        mean = result["env_runners"].get("episode_return_mean", 0.0)
        if returns is not None:
            mean = sum(returns) / max(1, len(returns))
        steps = result["env_runners"]["num_env_steps_sampled_lifetime"]
    seconds = time.perf_counter() - started_at
    algo.stop()
    ray.shutdown()
    return Solved(seconds, int(steps), mean)


def sb3_recurrent_solves(seed: int, *, most_env_steps: int) -> Solved:
    """sb3-contrib's `RecurrentPPO` on CartPole without velocities.

    Its hyper-parameters are those that RL Baselines3 Zoo tuned for this task (CartPoleNoVel-v1 in
    `hyperparams/ppo_lstm.yml`).
    """
    from sb3_contrib import RecurrentPPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize
    from torch import nn

    from trainer.testing.envs import StatelessCartPole

    def falling(start: float) -> Callable[[float], float]:
        return lambda left: start * left

    started_at = time.perf_counter()
    env = VecNormalize(make_vec_env(StatelessCartPole, n_envs=8, seed=seed), gamma=0.98)
    model = RecurrentPPO(
        "MlpLstmPolicy",
        env,
        n_steps=32,
        batch_size=256,
        n_epochs=20,
        gamma=0.98,
        gae_lambda=0.8,
        learning_rate=falling(1e-3),
        clip_range=falling(0.2),
        policy_kwargs={
            "ortho_init": False,
            "activation_fn": nn.ReLU,
            "lstm_hidden_size": 64,
            "enable_critic_lstm": True,
            "net_arch": {"pi": [64], "vf": [64]},
        },
        seed=seed,
        device="cpu",
    )
    stop = _stop_at_450()
    model.learn(most_env_steps, callback=stop)
    return Solved(time.perf_counter() - started_at, model.num_timesteps, stop.mean_return)


def rllib_lstm_solves(seed: int, *, most_env_steps: int) -> Solved:
    """RLlib's new stack with `use_lstm` on CartPole without velocities, in the main process.

    Settings are ours as far as it has them: observations are normalised, rewards are not. The time
    that `ray.init` takes is not counted.
    """
    import ray
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.connectors.env_to_module import MeanStdFilter

    from trainer.testing.envs import StatelessCartPole

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, ignore_reinit_error=True)
    config: Any = (
        PPOConfig()
        .environment(StatelessCartPole)
        .env_runners(
            num_env_runners=0,
            num_envs_per_env_runner=8,
            env_to_module_connector=lambda *_, **__: MeanStdFilter(),
        )
        .training(
            train_batch_size=1024,
            minibatch_size=256,
            num_epochs=10,
            lr=[[0, 1e-3], [most_env_steps, 1e-5]],
            gamma=0.98,
            lambda_=0.9,
            clip_param=0.2,
            use_kl_loss=False,
            vf_clip_param=float("inf"),
            grad_clip=0.5,
        )
        .rl_module(
            model_config={
                "fcnet_hiddens": [64],
                "use_lstm": True,
                "lstm_cell_size": 64,
                "max_seq_len": 32,
                "vf_share_layers": False,
            }
        )
        .debugging(seed=seed)
    )
    returns: deque[float] = deque(maxlen=100)
    # Episodes come in chunks: all steps so far, each of which pays 1, and not the chunk's return.
    config.callbacks(on_episode_end=lambda *, episode, **_: returns.append(float(episode.t)))
    return _rllib_until_solved(config, most_env_steps=most_env_steps, returns=returns)


def sb3_dqn_rate(*, num_envs: int, steps_per_env: int, num_steps: int) -> Callable[[], float]:
    """Env steps per second of Stable-Baselines3's DQN, one update per 4 steps; see `off_policy`.

    Args:
        num_envs: in one process.
        steps_per_env: of a round.
        num_steps: env steps per call of the function that is returned.
    """
    import torch
    from stable_baselines3 import DQN
    from stable_baselines3.common.env_util import make_vec_env

    torch.set_num_threads(1)  # as on our side; networks of this size gain nothing from more
    model = DQN(
        "MlpPolicy",
        make_vec_env("CartPole-v1", n_envs=num_envs, seed=0),
        learning_rate=1e-4,
        buffer_size=50_000,
        learning_starts=1000,
        batch_size=64,
        gamma=0.99,
        train_freq=steps_per_env,
        gradient_steps=num_envs * steps_per_env // 4,
        target_update_interval=500,
        exploration_fraction=0.05,
        exploration_final_eps=0.05,
        max_grad_norm=10.0,
        policy_kwargs={"net_arch": [64, 64]},
        seed=0,
        device="cpu",
    )
    model.learn(2 * 1024)

    def rate() -> float:
        started_at, before = time.perf_counter(), model.num_timesteps
        model.learn(num_steps, reset_num_timesteps=False)
        return float(model.num_timesteps - before) / (time.perf_counter() - started_at)

    return rate


def sb3_sac_rate(*, num_steps: int) -> Callable[[], float]:
    """Env steps per second of Stable-Baselines3's SAC, one update per step; see `off_policy`.

    Args:
        num_steps: env steps per call of the function that is returned.
    """
    import torch
    from stable_baselines3 import SAC

    torch.set_num_threads(os.cpu_count() or 1)  # Torch's default, which another peer changed
    return _rate_of(
        SAC("MlpPolicy", "Pendulum-v1", learning_rate=1e-3, seed=0, device="cpu"), num_steps
    )


def sbx_sac_rate(*, num_steps: int) -> Callable[[], float]:
    """The same of SBX's SAC, Stable-Baselines3 in Jax; what it compiles first is not counted.

    Args:
        num_steps: env steps per call of the function that is returned.
    """
    from sbx import SAC

    return _rate_of(SAC("MlpPolicy", "Pendulum-v1", learning_rate=1e-3, seed=0), num_steps)


def _rate_of(model: Any, num_steps: int) -> Callable[[], float]:
    """Env steps per second of a model that has learnt for a while."""
    model.learn(num_steps)

    def rate() -> float:
        started_at, before = time.perf_counter(), model.num_timesteps
        model.learn(num_steps, reset_num_timesteps=False)
        return float(model.num_timesteps - before) / (time.perf_counter() - started_at)

    return rate


def rllib_tunes(
    *, lr: tuple[float, float], num_trials: int, num_iterations: int, steps: int
) -> float:
    """Seconds that Ray Tune takes for trials of RLlib's PPO, one core each, two at a time.

    The time that `ray.init` takes is not counted.
    """
    from ray import tune
    from ray.rllib.algorithms.ppo import PPO, PPOConfig

    config: Any = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=4)
        .learners(num_learners=0)
        .training(
            train_batch_size=steps,
            minibatch_size=64,
            num_epochs=10,
            lr=tune.loguniform(*lr),
        )
        .rl_module(model_config={"fcnet_hiddens": [64, 64]})
        .debugging(seed=0)
    )
    return _ray_tunes(PPO, config, num_trials, num_iterations)


def ray_tunes_ours(
    make_config: Callable[[], Any],
    *,
    lr: tuple[float, float],
    num_trials: int,
    num_iterations: int,
    steps: int,
) -> float:
    """Seconds that Ray Tune takes for trials of our PPO, one core each, two at a time."""
    del steps  # in the config
    from ray import tune

    packed = make_config()

    class Ours(tune.Trainable):  # type: ignore[misc]  # peers are not type-checked
        def setup(self, config: Any) -> None:
            self.algo = packed.copy(copy_frozen=False).training(lr=config["lr"]).build_algo()

        def step(self) -> Any:
            result = self.algo.train()
            return {"score": float(result["env_runners/episode_return_mean"])}

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            self.algo.save_to_path(checkpoint_dir)

        def cleanup(self) -> None:
            self.algo.stop()

    return _ray_tunes(Ours, {"lr": tune.loguniform(*lr)}, num_trials, num_iterations)


def _ray_tunes(trainable: Any, space: Any, num_trials: int, num_iterations: int) -> float:
    import tempfile

    import ray
    from ray import tune

    os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
    # A cluster of its own, whatever runs on this machine.
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        with tempfile.TemporaryDirectory() as folder:
            tuner = tune.Tuner(
                trainable,
                param_space=space,
                tune_config=tune.TuneConfig(num_samples=num_trials, max_concurrent_trials=2),
                run_config=tune.RunConfig(
                    storage_path=folder,
                    verbose=0,
                    stop={"training_iteration": num_iterations},
                    checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=True),
                ),
            )
            started_at = time.perf_counter()
            grid = tuner.fit()
            seconds = time.perf_counter() - started_at
            assert not grid.errors, grid.errors
            return seconds
    finally:
        ray.shutdown()

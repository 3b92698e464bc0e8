"""The settings of a task for Stable-Baselines3 and sb3-contrib, and a run of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from benchmarks.quality.runs import NUM_EPISODES, Recorded, Recorder
from benchmarks.quality.tasks import Task


def learn(task: Task, seed: int, recorder: Recorder) -> tuple[float, float]:
    """Trains for the budget; processor seconds, and the return at the end."""
    import torch
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    torch.set_num_threads(1)  # networks of this size gain nothing from more
    settings = task.whole_settings
    started_s = time.process_time()
    env: Any = DummyVecEnv(
        [lambda: Recorded(task.make_env(), recorder)] * settings.get("n_envs", 1)
    )
    if settings.get("normalize"):
        env = VecNormalize(env, gamma=settings["gamma"])
    model = {"PPO": _ppo, "DQN": _dqn, "SAC": _sac}[task.algorithm](settings, env, seed)
    model.learn(task.num_env_steps)
    processor_s = time.process_time() - started_s
    fresh: Any = DummyVecEnv([task.make_env])
    fresh.seed(seed + 10_000)
    if settings.get("normalize"):
        fresh = VecNormalize(fresh, training=False, norm_reward=False)
        fresh.obs_rms = env.obs_rms
    mean, _ = evaluate_policy(model, fresh, n_eval_episodes=NUM_EPISODES, warn=False)
    return processor_s, float(mean)


def _ppo(s: dict[str, Any], env: Any, seed: int) -> Any:
    from stable_baselines3 import PPO
    from torch import nn

    activation = {"tanh": nn.Tanh, "relu": nn.ReLU}[s["activation"]]
    policy_kwargs = {
        "net_arch": {"pi": s["net_arch"], "vf": s["net_arch"]},
        "activation_fn": activation,
        "ortho_init": s["ortho_init"],
        "log_std_init": s["log_std_init"],
    }
    make, policy = PPO, "MlpPolicy"
    if "lstm_hidden_size" in s:
        from sb3_contrib import RecurrentPPO

        make, policy = RecurrentPPO, "MlpLstmPolicy"
        policy_kwargs |= {"lstm_hidden_size": s["lstm_hidden_size"], "enable_critic_lstm": True}
    return make(
        policy,
        env,
        n_steps=s["n_steps"],
        batch_size=s["batch_size"],
        n_epochs=s["n_epochs"],
        learning_rate=_falling(s["learning_rate"]),
        gamma=s["gamma"],
        gae_lambda=s["gae_lambda"],
        clip_range=_falling(s["clip_range"]),
        ent_coef=s["ent_coef"],
        vf_coef=s["vf_coef"],
        max_grad_norm=s["max_grad_norm"],
        policy_kwargs=policy_kwargs,
        seed=seed,
        device="cpu",
    )


def _dqn(s: dict[str, Any], env: Any, seed: int) -> Any:
    from stable_baselines3 import DQN

    return DQN(
        "MlpPolicy",
        env,
        learning_rate=_falling(s["learning_rate"]),
        buffer_size=s["buffer_size"],
        learning_starts=s["learning_starts"],
        batch_size=s["batch_size"],
        gamma=s["gamma"],
        train_freq=s["train_freq"],
        gradient_steps=s["gradient_steps"],
        target_update_interval=s["target_update_interval"],
        exploration_fraction=s["exploration_fraction"],
        exploration_final_eps=s["exploration_final_eps"],
        max_grad_norm=s["max_grad_norm"],
        n_steps=s["n_steps"],
        policy_kwargs={"net_arch": s["net_arch"]},
        seed=seed,
        device="cpu",
    )


def _sac(s: dict[str, Any], env: Any, seed: int) -> Any:
    from stable_baselines3 import SAC

    return SAC(
        "MlpPolicy",
        env,
        learning_rate=_falling(s["learning_rate"]),
        buffer_size=s["buffer_size"],
        learning_starts=s["learning_starts"],
        batch_size=s["batch_size"],
        tau=s["tau"],
        gamma=s["gamma"],
        train_freq=s["train_freq"],
        gradient_steps=s["gradient_steps"],
        policy_kwargs={"net_arch": s["net_arch"]},
        seed=seed,
        device="cpu",
    )


def _falling(value: float | str) -> float | Callable[[float], float]:
    """A number of the Zoo's; `lin_x` falls from x to 0 over the budget."""
    if not isinstance(value, str):
        return value
    start = float(value.removeprefix("lin_"))
    return lambda left: start * left

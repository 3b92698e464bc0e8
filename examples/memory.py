"""A task that nothing can be done in without memory: name the number that was shown before.

A GRU learns it, and then plays one episode on its own: its state is handed on by hand. The same
task without memory shows what guessing pays. docs/modules.md explains the rules.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium as gym

from trainer import Algorithm, PPOConfig
from trainer.testing import RepeatPreviousEnv

ENV_CONFIG = {"delay": 1, "num_symbols": 3, "length": 32}  # the best return is 31
WITH_MEMORY = {"fcnet_hiddens": [], "use_gru": True, "lstm_cell_size": 16, "max_seq_len": 16}
WITHOUT: dict[str, Any] = {"fcnet_hiddens": [16]}


def make_config(model_config: dict[str, Any], num_env_runners: int) -> PPOConfig:
    """PPO with a short horizon: what is paid now follows from one step before."""
    return (
        PPOConfig()
        .environment(RepeatPreviousEnv, env_config=ENV_CONFIG)
        .env_runners(
            num_env_runners=num_env_runners,
            num_envs_per_env_runner=8 // max(1, num_env_runners),
        )
        .training(train_batch_size=512, minibatch_size=128, num_epochs=10, lr=0.01)
        .training(gamma=0.5, lambda_=0.5, use_kl_loss=False, vf_clip_param=None)
        .rl_module(model_config={"vf_share_layers": True, **model_config})
        .debugging(seed=0)
    )


def play(algo: Algorithm, env: gym.Env[Any, Any]) -> float:
    """The return of one episode; the state goes from call to call, and starts anew with it."""
    state = algo.get_module().get_initial_state()
    observation, _ = env.reset(seed=1)
    total, is_over = 0.0, False
    while not is_over:
        action, state, _ = algo.compute_single_action(observation, state=state, explore=False)
        observation, reward, terminated, truncated, _ = env.step(action)
        total, is_over = total + float(reward), terminated or truncated
    return total


def main() -> None:
    """Trains with and without memory, and plays."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-env-runners", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=12)
    arguments = parser.parse_args()
    for name, model_config in {"without memory": WITHOUT, "GRU": WITH_MEMORY}.items():
        with make_config(model_config, arguments.num_env_runners).build_algo() as algo:
            results = [algo.train() for _ in range(arguments.iterations)]
            print(f"{name}: return {results[-1]['env_runners']['episode_return_mean']:.1f} of 31")
            if algo.get_module().is_stateful():
                print(f"on its own: return {play(algo, RepeatPreviousEnv(ENV_CONFIG)):.1f}")


if __name__ == "__main__":
    main()

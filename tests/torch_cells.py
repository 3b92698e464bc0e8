"""Runs with networks in Torch, in the middle of episodes, and what their outcome is as bytes."""

from __future__ import annotations

import sys
from typing import Any

from tests.memory_cells import outcome
from tests.torch_modules import NoisyConvolution, NoisyDense
from trainer import Algorithm, DQNConfig, PPOConfig, RLModuleSpec
from trainer.testing.envs import TargetEnv

CELLS: dict[str, tuple[Any, dict[str, Any], Any]] = {
    "dense": ("CartPole-v1", {}, NoisyDense),
    "convolution": (TargetEnv, {"size": 6}, NoisyConvolution),
}
"""Env, its settings and network. Both have batch normalisation and dropout."""


def config(name: str, num_env_runners: int = 0, *, algorithm: str = "PPO") -> Any:
    """The config of a cell: 4 slots, 61 steps, which cut episodes wherever they stand."""
    env, env_config, module_class = CELLS[name]
    if algorithm == "PPO":
        made: Any = PPOConfig().training(
            train_batch_size=61, minibatch_size=32, num_epochs=2, lr=3e-3
        )
    else:
        made = DQNConfig().training(
            train_batch_size=16,
            num_steps_sampled_before_learning_starts=50,
            replay_buffer_config={"capacity": 150},
            target_network_update_freq=30,
            training_intensity=3,
        )
        made.reporting(min_sample_timesteps_per_iteration=50)
    return (
        made.environment(env, env_config=env_config)
        .env_runners(
            num_env_runners=num_env_runners,
            num_envs_per_env_runner=4 // max(1, num_env_runners),
        )
        .rl_module(rl_module_spec=RLModuleSpec(module_class=module_class))
        .debugging(seed=7)
    )


def main() -> None:
    """Restores a checkpoint in this new process, goes on, and prints the outcome."""
    path, name, num_iterations = sys.argv[1:]
    spec = RLModuleSpec(module_class=CELLS[name][2])
    env = CELLS[name][0]
    given = {} if isinstance(env, str) else {"env": env}
    with Algorithm.from_checkpoint(path, rl_module_spec=spec, **given) as algo:
        found = outcome(algo, int(num_iterations))
    sys.stdout.write(repr(found))

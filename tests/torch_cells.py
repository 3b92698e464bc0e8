"""Runs with networks in Torch, in the middle of episodes, and what their outcome is as bytes."""

import os
import signal
import sys
from pathlib import Path

from checkpoints import encode
from tests.small_runs import learnt
from tests.torch_modules import NoisyConvolution, NoisyDense, Remembering
from trainer import Algorithm, DQNConfig, PPOConfig, RLModuleSpec
from trainer.metrics import comparable
from trainer.testing.envs import TargetEnv

CELLS = {
    "dense": ("CartPole-v1", {}, RLModuleSpec(module_class=NoisyDense)),
    "convolution": (TargetEnv, {"size": 6}, RLModuleSpec(module_class=NoisyConvolution)),
    "memory": (
        "CartPole-v1",
        {},
        RLModuleSpec(module_class=Remembering, model_config={"max_seq_len": 5, "cell_size": 16}),
    ),
}
"""Env, its settings and network. The first two have batch normalisation and dropout."""


def config(name, num_env_runners=0, *, algorithm="PPO"):
    """The config of a cell: 4 slots, 61 steps, which cut episodes wherever they stand."""
    env, env_config, spec = CELLS[name]
    if algorithm == "PPO":
        made = PPOConfig().training(train_batch_size=61, minibatch_size=32, num_epochs=2, lr=3e-3)
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
        .rl_module(rl_module_spec=spec)
        .debugging(seed=7)
    )


def dying(folder):
    """A callback that kills the runner that finds its file, in the middle of an episode."""

    def on_episode_step(*, episode, env_runner, **_):
        if episode.t != 5:
            return
        try:
            Path(folder, str(env_runner.worker_index)).unlink()
        except FileNotFoundError:
            return
        os.kill(os.getpid(), signal.SIGKILL)

    return on_episode_step


def outcome(algo, num_iterations):
    """What some more iterations show, and what is known then."""
    results = [encode(comparable(algo.train())) for _ in range(num_iterations)]
    return [*results, encode(algo.get_state(not_components="config"))]


def spread(made, folder=None):
    """What a run learns in three iterations; with a folder, its runners are killed in them."""
    if folder is not None:
        made.callbacks(on_episode_step=dying(str(folder)))
    with made.build_algo() as algo:
        algo.train()
        if folder is not None:  # from now on: other slots are in the middle of episodes
            for index in range(1, made.num_env_runners + 1):
                (folder / str(index)).touch()
        algo.train()
        algo.train()
        return learnt(algo)


def restored(path, name):
    """The algorithm of a checkpoint of that cell."""
    env, _, spec = CELLS[name]
    given = {} if isinstance(env, str) else {"env": env}
    return Algorithm.from_checkpoint(path, rl_module_spec=spec, **given)


def main():
    """Restores a checkpoint in this new process, goes on, and prints the outcome."""
    path, name, num_iterations = sys.argv[1:]
    with restored(path, name) as algo:
        found = outcome(algo, int(num_iterations))
    sys.stdout.write(repr(found))

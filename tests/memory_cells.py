"""Runs of networks with memory, in the middle of episodes, and what their outcome is as bytes."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from checkpoints import encode
from tests.small_runs import learnt
from trainer import Algorithm, PGConfig, PPOConfig, RLModuleSpec
from trainer.metrics import comparable

_SMALL = {"fcnet_hiddens": [8], "lstm_cell_size": 8, "max_seq_len": 5}
MODELS: dict[str, dict[str, Any]] = {
    "gru": {**_SMALL, "use_gru": True, "vf_share_layers": True},
    "lstm": {
        **_SMALL,
        "use_lstm": True,
        "lstm_use_prev_action": True,
        "lstm_use_prev_reward": True,
    },
}
"""The ready-made cells; "lstm" has two towers. The third one, "torch", is a `TorchRLModule`."""
CELLS = (*MODELS, "torch")


def dying(folder: str) -> Callable[..., None]:
    """A callback that kills the runner that finds its file, in the middle of an episode."""

    def on_episode_step(*, episode: Any, env_runner: Any, **_: Any) -> None:
        if episode.t != 5:
            return
        try:
            Path(folder, str(env_runner.worker_index)).unlink()
        except FileNotFoundError:
            return
        os.kill(os.getpid(), signal.SIGKILL)

    return on_episode_step


def torch_spec() -> RLModuleSpec:
    """The network of the cell "torch"."""
    from tests.torch_modules import Remembering

    return RLModuleSpec(module_class=Remembering, model_config={"max_seq_len": 5, "cell_size": 16})


def config(name: str, num_env_runners: int = 0, *, algorithm: str = "PPO") -> Any:
    """The config of a cell: 4 slots, 61 steps, which cut episodes wherever they stand."""
    if algorithm == "PPO":
        made: Any = PPOConfig().training(
            train_batch_size=61, minibatch_size=24, num_epochs=2, lr=3e-3
        )
    else:
        made = PGConfig().training(train_batch_size=61, lr=3e-3)
        made.env_runners(batch_mode="truncate_episodes")
    if name == "torch":
        made.rl_module(rl_module_spec=torch_spec())
    else:
        made.rl_module(model_config=MODELS[name])
    return (
        made.environment("CartPole-v1")
        .env_runners(
            num_env_runners=num_env_runners,
            num_envs_per_env_runner=4 // max(1, num_env_runners),
        )
        .evaluation(evaluation_interval=2, evaluation_duration=3)
        .debugging(seed=7)
    )


def outcome(algo: Algorithm, num_iterations: int) -> list[bytes]:
    """What some more iterations show, and what is known then."""
    results = [encode(comparable(algo.train())) for _ in range(num_iterations)]
    return [*results, encode(algo.get_state(not_components="config"))]


def spread(made: Any, folder: Path | None = None) -> bytes:
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


def restored(path: str, name: str) -> Algorithm:
    """The algorithm of a checkpoint of that cell."""
    given: Any = {"rl_module_spec": torch_spec()} if name == "torch" else {}
    return Algorithm.from_checkpoint(path, **given)


def main() -> None:
    """Restores a checkpoint in this new process, goes on, and prints the outcome."""
    path, name, num_iterations = sys.argv[1:]
    with restored(path, name) as algo:
        found = outcome(algo, int(num_iterations))
    sys.stdout.write(repr(found))

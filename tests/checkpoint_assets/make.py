"""Writes golden checkpoints of this release: `python -m tests.checkpoint_assets.make 0.2.0`.

Run it once for each release, before it is tagged, and commit what it wrote. Releases that are here
are never written again: their checkpoints are what users have on their disks.

For each algorithm there is a checkpoint and a file `<algorithm>.json` that says what must come out
of it: how far training was, and what the network answers to some observations. Two more hold
pickled code, and an env that is named by a dotted path.

`going_on.json` says how each of them goes on: digests of the results and the weights of the next
iterations, as the release itself made them. It holds for the arithmetic of one machine, as the
fingerprints do. `python -m tests.checkpoint_assets.make VERSION` writes it anew, for all releases:
where a digest of an earlier one changes, something else than a new release happened.
"""

from __future__ import annotations

import json
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any, Final
from unittest import mock

import numpy as np

from checkpoints import read_checkpoint, write_checkpoint
from tests.checkpoint_assets.golden_code import CountingEpisodes, harder_task
from tests.fingerprints import arithmetic, digest
from trainer import Algorithm, DQNConfig, PGConfig, PPOConfig, SACConfig
from trainer.config import AlgorithmConfig
from trainer.metrics import comparable
from trainer.testing.envs import TaskCountdownEnv

ASSETS: Final = Path(__file__).parent
_NET: Final = {"fcnet_hiddens": [4], "head_fcnet_hiddens": []}
_REPLAY: Final = {"capacity": 60}
_LARGE_ARRAY_BYTES: Final = {"dqn": 200, "sac": 400}
"""From which size on arrays get files of their own here, so that small checkpoints have some."""

NAMED_ENV: Final = "trainer.testing.debug_envs.CountdownEnv"
"""A dotted path as 0.1.0 knew it; the module has moved since."""

NEEDS_CODE: Final = frozenset({"ppo_with_code"})
"""The checkpoints that are restored with `allow_code=True` only."""

GOING_ON: Final = ASSETS / "going_on.json"
_ITERATIONS: Final = 3


def golden_configs() -> dict[str, AlgorithmConfig]:
    """Small runs that put something into every component."""
    ppo = PPOConfig().training(train_batch_size=32, minibatch_size=16, num_epochs=1)
    ppo.update_from_dict({"observation_filter": "MeanStdFilter", "normalize_rewards": True})
    off_policy = {
        "num_steps_sampled_before_learning_starts": 8,
        "rollout_fragment_length": 4,
        "train_batch_size": 8,
        "replay_buffer_config": {"type": "PrioritizedReplayBuffer", **_REPLAY},
        "min_sample_timesteps_per_iteration": 24,
    }
    configs: dict[str, AlgorithmConfig] = {
        "ppo": ppo.environment("CartPole-v1"),
        "dqn": DQNConfig().environment("CartPole-v1").update_from_dict(off_policy),
        "sac": SACConfig().environment("Pendulum-v1").update_from_dict(off_policy),
        "pg": PGConfig().environment("CartPole-v1").training(train_batch_size=32),
    }
    for config in configs.values():
        config.env_runners(num_env_runners=0, num_envs_per_env_runner=2).debugging(seed=7)
        config.training(model=_NET)
    return configs


def golden_configs_with_code() -> dict[str, AlgorithmConfig]:
    """Runs whose checkpoints name classes and functions: callbacks, an env, a curriculum."""
    with_code = golden_configs()["ppo"]
    with_code.environment(TaskCountdownEnv, env_task_fn=harder_task).callbacks(CountingEpisodes)
    return {
        "ppo_with_code": with_code,
        "ppo_with_named_env": golden_configs()["ppo"].environment(NAMED_ENV),
    }


def golden_observations(obs_size: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """What the networks are asked, float32 [3, D]."""
    return np.linspace(-1.0, 1.0, 3 * obs_size, dtype=np.float32).reshape(3, obs_size)


def make(folder: Path) -> None:
    """Writes all golden checkpoints into a folder that must not exist yet.

    Raises:
        FileExistsError: it exists; a release is never written twice.
    """
    folder.mkdir()
    for name, config in (golden_configs() | golden_configs_with_code()).items():
        # Whose machine it was belongs into no repository.
        with mock.patch.object(platform, "platform", return_value="some machine"):
            _make_one(folder, name, config)


def _make_one(folder: Path, name: str, config: AlgorithmConfig) -> None:
    with config.build_algo() as algo:
        for _ in range(2):
            algo.train()
        _save(algo, folder / name, _LARGE_ARRAY_BYTES.get(name))
        module = algo.learner.module
        obs = golden_observations(module.obs_size)
        expected = {
            "training_iteration": algo.training_iteration,
            "num_env_steps_sampled": algo.counters.num_env_steps_sampled,
            "action_dist_inputs": module.forward_acting(obs).tolist(),
        }
    text = json.dumps(expected, indent=1) + "\n"
    (folder / f"{name}.json").write_text(text, encoding="utf-8")


def _save(algo: Algorithm, path: Path, large_array_bytes: int | None) -> None:
    if large_array_bytes is None:
        algo.save_to_path(path)
        return
    with tempfile.TemporaryDirectory() as temporary:
        saved = read_checkpoint(algo.save_to_path(Path(temporary) / "c"))
    write_checkpoint(
        path,
        components=saved.components,
        metadata=saved.manifest.metadata,
        state_versions={
            name: entry.state_version for name, entry in saved.manifest.components.items()
        },
        large_array_bytes=large_array_bytes,
    )


def going_on(path: Path) -> dict[str, str]:
    """Digests of the results and the weights of what a restored checkpoint does next."""
    found: dict[str, str] = {}
    with Algorithm.from_checkpoint(path, allow_code=path.name in NEEDS_CODE) as algo:
        for _ in range(_ITERATIONS):
            result = comparable(algo.train())
            found[f"result {algo.training_iteration}"] = digest(result)
        found["weights"] = digest(algo.learner.module.get_state())
    return found


def record_going_on() -> None:
    """Writes how all golden checkpoints go on."""
    golden = sorted(path.parent for path in ASSETS.glob("*/*/manifest.json"))
    found = {f"{path.parent.name}/{path.name}": going_on(path) for path in golden}
    record = {"arithmetic": arithmetic(), "checkpoints": found}
    GOING_ON.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    make(ASSETS / sys.argv[1])
    record_going_on()

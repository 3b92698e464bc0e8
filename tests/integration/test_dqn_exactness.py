"""The promise for DQN, beyond `tests/contract`: the buffer, and parts that are forgotten."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoints import encode, read_manifest
from tests.integration.test_exactness import (
    Counting,
    fingerprint,
    result_without_settings,
    run,
)
from trainer import DQN, DQNConfig

pytestmark = pytest.mark.process

NUM_SLOTS = 4


def config(num_env_runners: int = 0, **settings: Any) -> DQNConfig:
    made = (
        DQNConfig()
        .environment("CartPole-v1")
        .env_runners(
            num_env_runners=num_env_runners,
            num_envs_per_env_runner=NUM_SLOTS // max(1, num_env_runners),
        )
        .training(
            train_batch_size=16,
            lr=[[0, 1e-2], [2000, 1e-3]],
            n_step=(1, 3),
            # 12 steps per round pay for 2.25 updates.
            training_intensity=3,
            num_steps_sampled_before_learning_starts=50,
            target_network_update_freq=30,
            # The oldest steps are overwritten, in the middle of iterations and episodes.
            replay_buffer_config={"capacity": 150},
            model={"fcnet_hiddens": [8]},
        )
        .reporting(min_sample_timesteps_per_iteration=80)
        .callbacks(Counting)
        .debugging(seed=11)
    )
    return made.update_from_dict(settings)


# ---- leaving the buffer out of checkpoints


def test_a_checkpoint_without_buffer_says_so_and_the_run_fills_a_new_one_before_it_learns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with config(store_buffer_in_checkpoints=False).build_algo() as algo:
        run(algo, 3)
        path = algo.save_to_path(tmp_path / "checkpoint")
        weights = encode(algo.get_weights())
        assert "replay_buffer" not in algo.get_state()
    manifest = read_manifest(path)
    assert manifest.metadata["holds_replay_buffer"] is False
    assert not any("replay_buffer" in name for name in manifest.components)
    restored = [DQN.from_checkpoint(path, callbacks_class=Counting)]
    restored.append(config(store_buffer_in_checkpoints=False).build_algo())
    run(restored[1], 2)  # a buffer of another run must not be learnt from
    with caplog.at_level(logging.WARNING, logger="trainer"):
        restored[1].restore_from_path(path)
    assert "holds no replay buffer" in caplog.text
    outcomes = []
    for algo in restored:
        with algo:
            assert len(algo.local_replay_buffer) == 0
            outcomes.append(_rounds_until_learning(algo, weights))
    assert outcomes[0] == outcomes[1]
    # 12 steps per round, and learning starts at 50.
    assert outcomes[0][0] == 60


def _rounds_until_learning(algo: DQN, weights: bytes) -> tuple[int, bytes]:
    """Steps in the buffer when the first update was made, and all that is known afterwards."""
    algo.__dict__["config"] = algo.config.copy(copy_frozen=False).reporting(
        min_sample_timesteps_per_iteration=1
    )
    while encode(algo.get_weights()) == weights:
        algo.train()
    return len(algo.local_replay_buffer), fingerprint(algo)


def test_a_checkpoint_with_buffer_says_so_and_is_taken_by_who_would_not_store_it(
    tmp_path: Path,
) -> None:
    with config().build_algo() as algo:
        run(algo, 2)
        path = algo.save_to_path(tmp_path / "checkpoint")
        buffer = encode(algo.local_replay_buffer.get_state())
        expected = run(algo, 1)
    assert read_manifest(path).metadata["holds_replay_buffer"] is True
    with config(store_buffer_in_checkpoints=False).build_algo() as other:
        other.restore_from_path(path)
        assert encode(other.local_replay_buffer.get_state()) == buffer
        assert run(other, 1) == expected


def test_the_buffer_can_be_restored_alone(tmp_path: Path) -> None:
    with config().build_algo() as algo:
        run(algo, 2)
        path = algo.save_to_path(tmp_path / "checkpoint")
        buffer = encode(algo.local_replay_buffer.get_state())
    for stores in (True, False):
        with config(seed=5, store_buffer_in_checkpoints=stores).build_algo() as other:
            weights = encode(other.get_weights())
            other.restore_from_path(path, component="replay_buffer")
            assert encode(other.local_replay_buffer.get_state()) == buffer
            assert encode(other.get_weights()) == weights


def test_the_weights_can_be_restored_alone(tmp_path: Path) -> None:
    with config().build_algo() as algo:
        run(algo, 2)
        path = algo.save_to_path(tmp_path / "checkpoint")
        weights = encode(algo.get_weights())
    with config(seed=5).build_algo() as other:
        run(other, 1)
        stored = len(other.local_replay_buffer)
        other.restore_from_path(path, component="learner/rl_module")
        assert encode(other.get_weights()) == weights
        assert len(other.local_replay_buffer) == stored


def test_the_results_are_those_of_the_documented_keys() -> None:
    with config().build_algo() as algo:
        result = result_without_settings(algo.train())
    assert np.isfinite(result["learners"]["default_policy"]["total_loss"])

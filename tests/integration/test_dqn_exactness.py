"""The promise for DQN, beyond `tests/contract`: the buffer, and parts that are forgotten."""

import logging

import pytest

from checkpoints import encode, read_manifest
from tests.resume_cells import Cell, Remembering
from tests.small_runs import known, trained
from trainer import DQN

pytestmark = pytest.mark.process


def config(**settings):
    return Cell("DQN", "CartPole", 0).config(**settings)


# ---- leaving the buffer out of checkpoints


def test_a_checkpoint_without_buffer_says_so_and_the_run_fills_a_new_one_before_it_learns(
    tmp_path, caplog
):
    with config(store_buffer_in_checkpoints=False).build_algo() as algo:
        trained(algo, 3)
        path = algo.save_to_path(tmp_path / "checkpoint")
        weights = encode(algo.get_weights())
        assert "replay_buffer" not in algo.get_state()
    manifest = read_manifest(path)
    assert manifest.metadata["holds_replay_buffer"] is False
    assert not any("replay_buffer" in name for name in manifest.components)
    restored = [DQN.from_checkpoint(path, callbacks_class=Remembering)]
    restored.append(config(store_buffer_in_checkpoints=False).build_algo())
    trained(restored[1], 2)  # a buffer of another run must not be learnt from
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


def _rounds_until_learning(algo, weights):
    """Steps in the buffer when the first update was made, and all that is known afterwards."""
    algo.__dict__["config"] = algo.config.copy(copy_frozen=False).reporting(
        min_sample_timesteps_per_iteration=1
    )
    while encode(algo.get_weights()) == weights:
        algo.train()
    return len(algo.local_replay_buffer), known(algo)


def test_a_checkpoint_with_buffer_says_so_and_is_taken_by_who_would_not_store_it(tmp_path):
    with config().build_algo() as algo:
        trained(algo, 2)
        path = algo.save_to_path(tmp_path / "checkpoint")
        buffer = encode(algo.local_replay_buffer.get_state())
        expected = trained(algo, 1)
    assert read_manifest(path).metadata["holds_replay_buffer"] is True
    with config(store_buffer_in_checkpoints=False).build_algo() as other:
        other.restore_from_path(path)
        assert encode(other.local_replay_buffer.get_state()) == buffer
        assert trained(other, 1) == expected

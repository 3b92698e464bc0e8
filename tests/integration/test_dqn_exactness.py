"""DQN keeps the promise, too: same seed, same bytes, the contents of the replay buffer included."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoints import encode, read_manifest
from tests.integration.test_exactness import (
    Counting,
    fingerprint,
    kills_on_demand,
    result_without_settings,
    run,
)
from trainer import DQN, DQNConfig

pytestmark = pytest.mark.process

NUM_SLOTS = 4
UNIFORM = {"type": "EpisodeReplayBuffer", "capacity": 150}


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


def learnt(algo: DQN) -> bytes:
    """What was learnt, and what from: independent of how envs are spread over processes."""
    state = algo.get_state()
    return encode([state["learner"], state["replay_buffer"], state["counters"]])


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"replay_buffer_config": UNIFORM, "double_q": False, "dueling": False, "n_step": 1},
        {"num_atoms": 5, "v_min": 0.0, "v_max": 30.0, "tau": 0.1},
    ],
)
def test_same_seed_gives_the_same_bytes(settings: dict[str, Any]) -> None:
    outcomes = []
    for _ in range(2):
        with config(**settings).build_algo() as algo:
            outcomes.append((run(algo, 4), fingerprint(algo)))
    assert outcomes[0] == outcomes[1]


def test_another_seed_gives_other_bytes() -> None:
    outcomes = []
    for seed in (0, 1):
        with config(seed=seed).build_algo() as algo:
            outcomes.append((run(algo, 1), learnt(algo)))
    assert outcomes[0] != outcomes[1]


def test_it_makes_no_difference_how_envs_are_spread_over_processes() -> None:
    outcomes = []
    for num_env_runners in (0, 1, 2):
        with config(num_env_runners).build_algo() as algo:
            run(algo, 4)
            outcomes.append((learnt(algo), encode(algo.get_state()["env_runners"]["slots"])))
    assert outcomes[0] == outcomes[1] == outcomes[2]


@pytest.mark.parametrize("num_env_runners", [0, 2])
def test_a_restored_run_goes_on_with_the_same_bytes(num_env_runners: int, tmp_path: Path) -> None:
    with config(num_env_runners).build_algo() as algo:
        first = run(algo, 3)
        slots = algo.get_state()["env_runners"]["slots"]
        assert any(slot["env_seed"] is not None for slot in slots), "no episode is running"
        algo.save_to_path(tmp_path / "checkpoint")
        rest = run(algo, 3)
        expected = (rest, fingerprint(algo))
    with config(num_env_runners, seed=None).build_algo() as other:
        run(other, 2)  # whatever it did before must not matter
        other.restore_from_path(tmp_path / "checkpoint")
        assert (run(other, 3), fingerprint(other)) == expected
    assert first[-1] != rest[0]


_RESUME_SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
from tests.integration.test_exactness import Counting, fingerprint, run
from trainer import DQN
algo = DQN.from_checkpoint({path!r}, callbacks_class=Counting)
results = run(algo, 3)
sys.stdout.buffer.write(b"".join(results) + fingerprint(algo))
algo.stop()
"""


def test_a_new_process_goes_on_with_the_same_bytes(tmp_path: Path) -> None:
    with config(2).build_algo() as algo:
        run(algo, 3)
        path = algo.save_to_path(tmp_path / "checkpoint")
        expected = b"".join(run(algo, 3)) + fingerprint(algo)
    script = _RESUME_SCRIPT.format(folder=str(Path(__file__).parents[2]), path=path)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout == expected


def test_runners_killed_in_every_iteration_make_no_difference(tmp_path: Path) -> None:
    armed = tmp_path / "armed"
    outcomes = []
    for should_kill in (False, True):
        with config(2).callbacks(kills_on_demand(armed)).build_algo() as algo:
            results = []
            for _ in range(3):
                if should_kill:
                    armed.touch()
                results += run(algo, 1)
                assert not armed.exists()
            outcomes.append((results, fingerprint(algo)))
            assert algo.env_runner_group.num_remote_worker_restarts() == 3 * should_kill
    assert outcomes[0] == outcomes[1]


# ---- negative controls


def _forget_target(state: dict[str, Any]) -> None:
    state["learner"]["target"] = state["learner"]["rl_module"]


def _forget_target_time(state: dict[str, Any]) -> None:
    state["learner"]["learner"]["last_target_update_ts"] = 0


def _forget_optimizer(state: dict[str, Any]) -> None:
    for moment in state["learner"]["optimizer"]["first_moment"].values():
        moment[:] = 0


def _forget_num_updates(state: dict[str, Any]) -> None:
    state["learner"]["learner"]["num_updates"] = 0


def _forget_priorities(state: dict[str, Any]) -> None:
    state["replay_buffer"]["priorities"][:] = 1.0


def _forget_largest_priority(state: dict[str, Any]) -> None:
    state["replay_buffer"]["largest_priority"] *= 2.0


def _forget_which_steps_follow(state: dict[str, Any]) -> None:
    state["replay_buffer"]["following"][:] = -1


def _forget_running_episodes(state: dict[str, Any]) -> None:
    state["replay_buffer"]["running_episodes"] = []


def _forget_where_the_buffer_stands(state: dict[str, Any]) -> None:
    state["replay_buffer"]["num_added"] += 1


def _forget_owed_rows(state: dict[str, Any]) -> None:
    state["counters"]["num_rows_owed"] += 8.0


@pytest.mark.parametrize(
    "forget",
    [
        _forget_target,
        _forget_target_time,
        _forget_optimizer,
        _forget_num_updates,
        _forget_priorities,
        _forget_largest_priority,
        _forget_which_steps_follow,
        _forget_running_episodes,
        _forget_where_the_buffer_stands,
        _forget_owed_rows,
    ],
)
def test_every_part_of_the_state_is_needed(forget: Callable[[dict[str, Any]], None]) -> None:
    def after_two_more(algo: DQN, state: dict[str, Any]) -> bytes:
        algo.set_state(state)
        run(algo, 2)
        return encode(algo.get_state()["learner"]["rl_module"])

    with config(target_network_update_freq=200).build_algo() as algo:
        run(algo, 3)
        state = encode(algo.get_state()["replay_buffer"])
        assert algo.counters.num_rows_owed > 0
        whole = algo.get_state()
        run(algo, 2)
        expected = encode(algo.get_state()["learner"]["rl_module"])
        assert after_two_more(algo, whole) == expected
        assert encode(whole["replay_buffer"]) == state, "the state shares arrays with the buffer"
        forget(whole)
        assert after_two_more(algo, whole) != expected


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

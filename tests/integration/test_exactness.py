"""The promise: same seed, same bytes — rerun, resumed, repaired, or spread over other processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from callbacks import RLlibCallback
from checkpoints import encode
from trainer import Algorithm, PPOConfig
from trainer.metrics import comparable

pytestmark = pytest.mark.process


class Counting(RLlibCallback):
    """Callback state on runners and driver, which has to survive everything, too."""

    def __init__(self) -> None:
        self.episodes = 0
        self.returns: list[float] = []

    def on_episode_created(self, *, episode: Any, **kwargs: Any) -> None:
        episode.custom_data["steps"] = 0

    def on_episode_step(self, *, episode: Any, **kwargs: Any) -> None:
        episode.custom_data["steps"] += 1

    def on_episode_end(self, *, episode: Any, metrics_logger: Any, **kwargs: Any) -> None:
        self.episodes += 1
        self.returns = [*self.returns[-5:], float(episode.get_return())]
        assert episode.custom_data["steps"] == episode.get_return(), "CartPole pays 1 per step"
        metrics_logger.log_value("steps_by_callback", episode.custom_data["steps"], window=20)
        metrics_logger.log_value("runner_episodes", self.episodes, reduce="max")

    def on_train_result(self, *, result: Any, **kwargs: Any) -> None:
        self.episodes += result["env_runners"]["num_episodes"]


def config(
    num_env_runners: int, *, env: Any = "CartPole-v1", num_envs: int = 4, **settings: Any
) -> PPOConfig:
    made = (
        PPOConfig()
        .environment(env)
        .env_runners(
            num_env_runners=num_env_runners,
            num_envs_per_env_runner=num_envs // max(1, num_env_runners),
        )
        .training(
            # 202 steps on 4 slots leave a remainder, and episodes are cut wherever they stand.
            train_batch_size=202,
            minibatch_size=64,
            num_epochs=2,
            lr=[[0, 1e-3], [2000, 1e-4]],
            entropy_coeff=0.01,
            model={"fcnet_hiddens": [16, 16]},
        )
        .callbacks(Counting)
        .debugging(seed=11)
    )
    made.update_from_dict(settings)
    return made


def fingerprint(algo: Algorithm) -> bytes:
    """Everything an algorithm knows, as bytes."""
    return encode(without_settings(algo.get_state()))


def without_settings(state: dict[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in state.items() if name != "config"}


def run(algo: Algorithm, iterations: int) -> list[bytes]:
    return [encode(result_without_settings(algo.train())) for _ in range(iterations)]


def result_without_settings(result: Any) -> dict[str, Any]:
    return {key: value for key, value in comparable(result).items() if key != "config"}


def learnt(algo: Algorithm) -> bytes:
    return encode(algo.get_state()["learner"])


@pytest.mark.parametrize("num_env_runners", [0, 1, 2])
def test_same_seed_gives_the_same_bytes(num_env_runners: int) -> None:
    outcomes = []
    for _ in range(2):
        with config(num_env_runners).build_algo() as algo:
            outcomes.append((run(algo, 4), fingerprint(algo)))
    assert outcomes[0] == outcomes[1]


def test_another_seed_gives_other_bytes() -> None:
    outcomes = []
    for seed in (0, 1):
        with config(0, seed=seed).build_algo() as algo:
            outcomes.append((run(algo, 1), learnt(algo)))
    assert outcomes[0] != outcomes[1]


def test_it_makes_no_difference_how_envs_are_spread_over_processes() -> None:
    outcomes = []
    for num_env_runners in (0, 1, 2, 4):
        with config(num_env_runners).build_algo() as algo:
            run(algo, 4)
            state = algo.get_state()
            outcomes.append(
                encode([state["learner"], state["env_runners"]["slots"], state["counters"]])
            )
    assert outcomes[0] == outcomes[1] == outcomes[2] == outcomes[3]


def test_episode_statistics_are_those_of_the_same_episodes_however_envs_are_spread() -> None:
    outcomes = []
    for num_env_runners in (0, 1, 2, 4):
        # A full window, so that it matters which episodes are the last ones.
        settings: dict[str, Any] = {"metrics_num_episodes_for_smoothing": 3}
        with config(num_env_runners, **settings).build_algo() as algo:
            results = [algo.train()["env_runners"] for _ in range(3)]
        names = ("episode_return_mean", "episode_len_mean", "episode_return_max", "hist_stats")
        outcomes.append([[result[name] for name in names] for result in results])
        assert results[-1]["num_episodes"] > 3
    assert outcomes[0] == outcomes[1] == outcomes[2] == outcomes[3]


def test_no_runner_and_one_runner_give_the_same_results() -> None:
    outcomes = []
    for num_env_runners in (0, 1):
        with config(num_env_runners).build_algo() as algo:
            outcomes.append((run(algo, 4), fingerprint(algo)))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("batch_mode", ["truncate_episodes", "complete_episodes"])
@pytest.mark.parametrize("num_env_runners", [0, pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_restored_run_goes_on_with_the_same_bytes(
    num_env_runners: int, batch_mode: str, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"batch_mode": batch_mode}
    with config(num_env_runners, **settings).build_algo() as algo:
        first = run(algo, 3)
        algo.save_to_path(tmp_path / "checkpoint")
        rest = run(algo, 3)
        expected = (rest, fingerprint(algo))
    with config(num_env_runners, **settings, seed=None).build_algo() as other:
        run(other, 1)  # whatever it did before must not matter
        other.restore_from_path(tmp_path / "checkpoint")
        resumed = (run(other, 3), fingerprint(other))
    assert resumed == expected
    assert first[-1] != rest[0]


_RESUME_SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
from {module} import Counting, fingerprint, run
from trainer import PPO
algo = PPO.from_checkpoint({path!r}, callbacks_class=Counting)
results = run(algo, 3)
sys.stdout.buffer.write(b"".join(results) + fingerprint(algo))
algo.stop()
"""


@pytest.mark.parametrize("num_env_runners", [0, 2])
def test_a_new_process_goes_on_with_the_same_bytes(num_env_runners: int, tmp_path: Path) -> None:
    with config(num_env_runners).build_algo() as algo:
        run(algo, 3)
        path = algo.save_to_path(tmp_path / "checkpoint")
        expected = b"".join(run(algo, 3)) + fingerprint(algo)
    script = _RESUME_SCRIPT.format(
        folder=str(Path(__file__).parents[2]), module=__name__, path=path
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout == expected


def test_a_run_goes_on_exactly_with_another_number_of_runners(tmp_path: Path) -> None:
    with config(2).build_algo() as algo:
        run(algo, 3)
        algo.save_to_path(tmp_path / "checkpoint")
        run(algo, 3)
        expected = learnt(algo)
    for num_env_runners in (0, 1, 4):
        with config(num_env_runners).build_algo() as other:
            other.restore_from_path(tmp_path / "checkpoint")
            run(other, 3)
            assert learnt(other) == expected, f"with {num_env_runners} runners"


def test_episodes_are_really_running_when_the_state_is_saved(tmp_path: Path) -> None:
    with config(2).build_algo() as algo:
        run(algo, 3)
        slots = algo.get_state()["env_runners"]["slots"]
    assert sum(slot["env_seed"] is not None for slot in slots) >= 3
    assert all(
        len(np.concatenate(slot["actions"])) > 0 for slot in slots if slot["env_seed"] is not None
    )


def _forget_optimizer(state: dict[str, Any]) -> None:
    for moment in state["learner"]["optimizer"]["first_moment"].values():
        moment[:] = 0


def _forget_episodes(state: dict[str, Any]) -> None:
    for slot in state["env_runners"]["slots"]:
        slot.update(env_seed=None, actions=[], observation=None, episode=None)


def _forget_episode_numbers(state: dict[str, Any]) -> None:
    for slot in state["env_runners"]["slots"]:
        slot["episode_number"] += 1


def _forget_num_updates(state: dict[str, Any]) -> None:
    state["learner"]["learner"]["num_updates"] = 0


def _forget_counters(state: dict[str, Any]) -> None:
    state["counters"]["num_env_steps_sampled"] = 0


def _forget_kl(state: dict[str, Any]) -> None:
    state["learner"]["learner"]["kl_coeff"] *= 1.5


def _change_seed(state: dict[str, Any]) -> None:
    state["config"]["root_seed"] += 1


@pytest.mark.parametrize(
    "forget",
    [
        _forget_optimizer,
        _forget_episodes,
        _forget_episode_numbers,
        _forget_num_updates,
        _forget_counters,
        _forget_kl,
        _change_seed,
    ],
)
def test_every_part_of_the_state_is_needed(forget: Callable[[dict[str, Any]], None]) -> None:
    # Negative controls: whatever is forgotten, the learnt weights come out differently.
    with config(0).build_algo() as algo:
        run(algo, 3)
        state = algo.get_state()
        run(algo, 2)
        expected = learnt(algo)
        algo.set_state(state)
        run(algo, 2)
        assert learnt(algo) == expected
        algo.set_state(state)
        damaged = algo.get_state()
        forget(damaged)
        algo.set_state(damaged)
        run(algo, 2)
        assert learnt(algo) != expected


def kills_on_demand(armed: Path) -> type[Counting]:
    """A callback that kills its process in mid-episode, once each time `armed` exists."""

    class KillsOnDemand(Counting):
        def on_episode_step(self, *, episode: Any, **kwargs: Any) -> None:
            super().on_episode_step(episode=episode, **kwargs)
            if episode.t != 5:
                return
            try:
                armed.unlink()  # of two runners, one succeeds
            except FileNotFoundError:
                return
            os.kill(os.getpid(), signal.SIGKILL)

    return KillsOnDemand


@pytest.mark.parametrize("num_env_runners", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_runners_killed_in_every_iteration_make_no_difference(
    num_env_runners: int, tmp_path: Path
) -> None:
    armed = tmp_path / "armed"
    recreated: list[tuple[list[int], bool]] = []

    def note(env_runner_indices: list[int], is_evaluation: bool) -> None:
        recreated.append((env_runner_indices, is_evaluation))

    outcomes = []
    for should_kill in (False, True):
        made = config(num_env_runners).callbacks(
            kills_on_demand(armed), on_env_runners_recreated=note
        )
        with made.build_algo() as algo:
            results = []
            for _ in range(4):
                if should_kill:
                    armed.touch()
                results += run(algo, 1)
                assert not armed.exists() or not should_kill
            outcomes.append((results, fingerprint(algo)))
            restarts = algo.env_runner_group.num_remote_worker_restarts()
            assert restarts == (4 if should_kill else 0)
    assert outcomes[0] == outcomes[1]
    assert len(recreated) == 4
    assert all(len(indices) == 1 and not is_evaluation for indices, is_evaluation in recreated)

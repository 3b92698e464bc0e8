"""Networks with memory keep the promise: resumed, repaired, spread runs give equal bytes."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.memory_cells import CELLS, config, outcome, restored, spread
from trainer.env_runners.messages import SlotPosition

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=CELLS)
def name(request: pytest.FixtureRequest) -> str:
    """Every cell; that in Torch only where it is installed."""
    if request.param == "torch":
        pytest.importorskip("torch")
    return str(request.param)


def saved_run(name: str, folder: Path, *, algorithm: str = "PPO") -> tuple[str, list[bytes]]:
    """A checkpoint in the middle of a run, and what the undisturbed run shows afterwards."""
    with config(name, algorithm=algorithm).build_algo() as algo:
        outcome(algo, 2)
        path = algo.save_to_path(str(folder / "saved"))
        return path, outcome(algo, 2)


# ---- resume


def test_a_restored_run_gives_the_same_bytes(name: str, tmp_path: Path) -> None:
    path, expected = saved_run(name, tmp_path)
    with restored(path, name) as algo:
        assert outcome(algo, 2) == expected


def test_pg_goes_on_with_its_states(tmp_path: Path) -> None:
    path, expected = saved_run("gru", tmp_path, algorithm="PG")
    with restored(path, "gru") as algo:
        assert outcome(algo, 2) == expected


@pytest.mark.process
@pytest.mark.slow
def test_a_new_process_gives_the_same_bytes(name: str, tmp_path: Path) -> None:
    path, expected = saved_run(name, tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", "from tests.memory_cells import main; main()", path, name, "2"],
        capture_output=True,
        check=False,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    assert ast.literal_eval(done.stdout) == expected


def test_a_state_forgotten_in_positions_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, expected = saved_run("gru", tmp_path)
    to_state = SlotPosition.to_state

    def forgetting(self: SlotPosition) -> dict[str, Any]:
        return {key: value for key, value in to_state(self).items() if key != "memory"}

    with restored(path, "gru") as algo:
        assert outcome(algo, 2) == expected
    monkeypatch.setattr(SlotPosition, "to_state", forgetting)
    path, expected = saved_run("gru", tmp_path / "forgetting")
    with restored(path, "gru") as algo:
        assert outcome(algo, 2) != expected


# ---- processes


@pytest.mark.process
def test_killed_and_spread_runs_give_the_same_bytes(tmp_path: Path) -> None:
    assert spread(config("gru", 2), tmp_path) == spread(config("gru"))
    assert not list(tmp_path.iterdir()), "a runner was not killed"


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("num_env_runners", [1, 2, 4])
def test_it_makes_no_difference_how_envs_are_spread(
    name: str, num_env_runners: int, tmp_path: Path
) -> None:
    assert spread(config(name, num_env_runners), tmp_path) == spread(config(name))
    assert not list(tmp_path.iterdir()), "a runner was not killed"


@pytest.mark.process
def test_a_state_forgotten_at_repair_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    following = SlotPosition.following

    def forgetting(self: SlotPosition, before: SlotPosition) -> SlotPosition:
        return replace(following(self, before), memory=None)

    expected = spread(config("gru"))
    monkeypatch.setattr(SlotPosition, "following", forgetting)
    assert spread(config("gru", 1), tmp_path) != expected
    assert not list(tmp_path.iterdir()), "the runner was not killed"

"""Networks in Torch keep the promise: resumed, undone, repaired, spread runs give equal bytes."""

import ast
import itertools
import subprocess
import sys
from multiprocessing import forkserver
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from tests.integration.test_torch_multi_agent import outcome as outcome_of_agents
from tests.integration.test_torch_multi_agent import ppo, two
from tests.small_runs import killing
from tests.torch_cells import config, outcome, restored, spread
from trainer.modules import torch_layers
from trainer.runtime import process_start

ROOT = Path(__file__).parents[2]


def saved_run(name, folder, *, algorithm="PPO"):
    """A checkpoint in the middle of a run, and what the undisturbed run shows afterwards."""
    with config(name, algorithm=algorithm).build_algo() as algo:
        outcome(algo, 2)
        path = algo.save_to_path(str(folder / "saved"))
        return path, outcome(algo, 2)


# ---- resume


@pytest.mark.parametrize(
    ("name", "algorithm"),
    [("dense", "PPO"), ("dense", "DQN"), ("convolution", "PPO"), ("memory", "PPO")],
)
def test_a_restored_run_gives_the_same_bytes(name, algorithm, tmp_path):
    path, expected = saved_run(name, tmp_path, algorithm=algorithm)
    with restored(path, name) as algo:
        assert outcome(algo, 2) == expected


@pytest.mark.process
@pytest.mark.slow  # importing Torch takes longer than all the rest
def test_a_new_process_gives_the_same_bytes(tmp_path):
    path, expected = saved_run("dense", tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", "from tests.torch_cells import main; main()", path, "dense", "2"],
        capture_output=True,
        check=False,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    assert ast.literal_eval(done.stdout) == expected


def test_forgotten_buffers_are_found(tmp_path):
    path, expected = saved_run("dense", tmp_path)
    with restored(path, "dense") as algo:
        module = algo.learner.module
        for array in module._torch_layers.buffers().values():
            array[...] = 0
        assert outcome(algo, 2) != expected


def test_draws_by_history_are_found(tmp_path, monkeypatch):
    count = itertools.count()
    monkeypatch.setattr(torch_layers.Draws, "next_seed", lambda _: next(count))
    path, expected = saved_run("dense", tmp_path)
    with restored(path, "dense") as algo:
        assert outcome(algo, 2) != expected


# ---- undone updates


@pytest.mark.parametrize("algorithm", ["PPO", "DQN"])
def test_an_update_that_fails_half_way_is_undone_with_its_buffers(algorithm, monkeypatch):
    outcomes = []
    for fails in (False, True):
        with config("dense", algorithm=algorithm).build_algo() as algo:
            outcome(algo, 2)
            before = algo.get_state()["learner"]["rl_module"]
            if fails:
                _fail_in_the_second_step(algo, monkeypatch)
            after = algo.get_state()["learner"]["rl_module"]
            assert all(np.array_equal(before[key], after[key]) for key in before)
            outcomes.append(outcome(algo, 1))
    assert outcomes[0] == outcomes[1]


def _fail_in_the_second_step(algo, monkeypatch):
    step = type(algo.learner).apply_gradients
    calls = itertools.count()

    def failing(self, **arguments):
        if next(calls) == 1:
            raise InterruptedError("in the middle of an update")
        return step(self, **arguments)

    with monkeypatch.context() as patch:
        patch.setattr(type(algo.learner), "apply_gradients", failing)
        with pytest.raises(InterruptedError):
            algo.train()


# ---- processes


@pytest.fixture(scope="module")
def fork_server_with_torch():
    """One import of Torch, which takes 2 s, instead of one in each runner."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process_start, "_SLOW_IMPORTS", frozenset({"torch"}))
        yield
    process_start.preload((), "forkserver")
    # The servers of other tests are not to have it: a worker of theirs starts faster without.
    forkserver._forkserver._stop()


@pytest.mark.process
@pytest.mark.usefixtures("fork_server_with_torch")
def test_several_agents_are_the_same_however_they_are_spread_and_killed(tmp_path):
    file = tmp_path / "kills"
    file.touch()
    made = two(ppo(), num_env_runners=2).callbacks(on_episode_step=killing(file, at_step=5))
    assert outcome_of_agents(made) == outcome_of_agents(two(ppo()))
    assert not file.exists(), "no runner was killed"


@pytest.mark.slow  # the network of one of several agents, above, draws and counts as "dense" does
@pytest.mark.process
@pytest.mark.usefixtures("fork_server_with_torch")
@pytest.mark.parametrize(
    ("name", "num_env_runners"),
    [
        ("dense", 2),
        ("convolution", 2),
        ("memory", 4),
    ],
)
def test_killed_and_spread_runs_give_the_same_bytes(name, num_env_runners, tmp_path):
    assert spread(config(name, num_env_runners), tmp_path) == spread(config(name))
    assert not list(tmp_path.iterdir()), "a runner was not killed"

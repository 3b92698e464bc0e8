"""What else may happen while an asynchronous evaluation is under way: it keeps to its weights.

The evaluation runners wait at a gate, so that it is under way for as long as a test wants.
"""

import os
import signal
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.envs.classic_control import PendulumEnv

from callbacks import RLlibCallback
from checkpoints import encode, read_manifest
from tests.integration.test_evaluation_modes import next_evaluation, numbers
from tests.small_runs import small_ppo
from trainer import AlgorithmStoppedError, CallbackError
from trainer.testing.processes import wait_until

pytestmark = pytest.mark.process


class Gated(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Steps wait while the gate is closed: those of one runner, if it is named."""

    def __init__(self, config):
        # Its rewards follow from actions to the last digit.
        super().__init__(gymnasium.wrappers.TimeLimit(PendulumEnv(), 20))
        self.gate = Path(config.get("gate", "no gate"))
        self.task = 0
        self.is_gated = config.get("only", config.worker_index) == config.worker_index

    def get_task(self):
        return self.task

    def set_task(self, task):
        self.task = task

    def step(self, action):
        if self.is_gated and self.gate.exists():
            assert wait_until(lambda: not self.gate.exists(), within_s=60)
        return super().step(action)


class Counting(RLlibCallback):
    """Counts the episodes of its runner."""

    def __init__(self):
        self.num_episodes = 0

    def on_episode_end(self, **kwargs):
        self.num_episodes += 1


@pytest.fixture
def gate(tmp_path):
    path = tmp_path / "gate"
    path.touch()
    return path


def config(gate, *, seed=5, only=None, **settings):
    env_config = {"gate": str(gate), **({} if only is None else {"only": only})}
    made = small_ppo(
        env=Gated, num_slots=1, batch=40, observation_filter="MeanStdFilter", seed=seed
    )
    made.evaluation(
        evaluation_interval=1,
        evaluation_num_env_runners=2,
        evaluation_duration=4,
        enable_async_evaluation=True,
        evaluation_config={"env_config": env_config, "callbacks_class": Counting},
    )
    return made.update_from_dict(settings)


def test_an_evaluation_by_hand_leaves_it_its_weights_and_statistics(gate, tmp_path):
    with config(tmp_path / "open", enable_async_evaluation=False).build_algo() as algo:
        expected = numbers(algo.train()["evaluation"])
    found = []
    with (
        config(gate)
        .callbacks(on_evaluate_end=lambda evaluation_metrics: found.append(evaluation_metrics))
        .build_algo() as algo
    ):
        for _ in range(3):
            algo.train()
        for pid in algo.eval_env_runner_group.env_runner_pids().values():
            os.kill(pid, signal.SIGKILL)  # who is made again needs the statistics of then
        gate.unlink()
        assert algo.evaluate()["evaluated_at_iteration"] == 3
        algo.train()
    by_hand, begun_first = found[:2]
    assert by_hand["evaluated_at_iteration"] == 3
    assert begun_first["evaluated_at_iteration"] == 1
    assert begun_first["num_remote_worker_restarts"] >= 2
    assert numbers(begun_first) == expected


def test_a_restore_ends_it_and_begins_what_was_under_way_then(gate, tmp_path):
    seed = 6  # not that of the run that it is restored into
    with config(tmp_path / "open", seed=seed).build_algo() as algo:
        algo.train()
        path = algo.save_to_path(tmp_path / "checkpoint")
    with config(gate, evaluation_interval=2).build_algo() as algo:
        algo.train()
        algo.train()
        algo.restore_from_path(path)
        assert algo.training_iteration == 1
        gate.unlink()
        evaluation = next_evaluation(algo)
        assert evaluation["evaluated_at_iteration"] == 1, "what was under way when it was saved"
        assert evaluation["weights_version"] == 1
    with config(tmp_path / "open", seed=seed, enable_async_evaluation=False).build_algo() as algo:
        assert numbers(algo.train()["evaluation"]) == numbers(evaluation)


@pytest.mark.parametrize("is_parallel", [False, True])
def test_one_of_earlier_weights_begins_again_after_a_restore(is_parallel, gate, tmp_path):
    class CountingStarts(RLlibCallback):
        num_starts = 0

        def on_evaluate_start(self, **kwargs):
            self.num_starts += 1

    def made(**settings):
        settings = {"evaluation_parallel_to_training": is_parallel, **settings}
        return config(gate, evaluation_interval=3, **settings).callbacks(CountingStarts)

    iteration = 2 if is_parallel else 3
    with made().build_algo() as algo:
        for _ in range(3 if is_parallel else 4):
            algo.train()
        weights = encode(algo.get_weights())
        state = algo.get_state()
        path = algo.save_to_path(tmp_path / "checkpoint")
        gate.unlink()
        expected = next_evaluation(algo)
    assert state["evaluation"]["running"]["iteration"] == iteration
    running = state["evaluation"]["running"]["weights"]["modules"]
    assert encode({name: module["state"] for name, module in running.items()}) != weights
    with made(seed=6).build_algo() as other:
        other.restore_from_path(path)
        again = other.save_to_path(tmp_path / "again")
        first_result = other.train()
        starts = other.get_state(components="callbacks")["callbacks"]
        resumed = first_result.get("evaluation") or next_evaluation(other)
    first, second = read_manifest(path).components, read_manifest(again).components
    assert {name: entry.sha256 for name, entry in first.items() if name != "config"} == {
        name: entry.sha256 for name, entry in second.items() if name != "config"
    }
    assert resumed["evaluated_at_iteration"] == iteration
    assert resumed["weights_version"] == expected["weights_version"] == iteration
    assert numbers(resumed) == numbers(expected)
    assert starts == state["callbacks"], "the event was told before"


def _counted(algo):
    states = algo.eval_env_runner_group.slot_states.get_callback_states()
    return [state["objects"][0]["state"]["num_episodes"] for _, state in sorted(states.items())]


def test_what_it_has_found_out_outlives_an_iteration_that_is_undone(gate):
    """Only runner 2 waits: what runner 1 has played arrives in the iteration that fails."""
    evaluations = []
    undone = []

    def fail_when_half_is_there(algorithm):
        if algorithm.training_iteration == 2 and not undone:
            group = algorithm.eval_env_runner_group

            def has_answered():
                algorithm._evaluations.look_after()
                return bool(group._records.by_index[1].has_answered)

            assert wait_until(has_answered)
            undone.append(2)
            raise ValueError("at the worst moment")

    made = config(gate, only=2).callbacks(on_train_result=fail_when_half_is_there)
    with made.build_algo() as algo:
        algo.train()
        with pytest.raises(CallbackError):
            algo.train()
        algo.train()
        assert _counted(algo) == [2, 0]
        gate.unlink()
        evaluations.append(next_evaluation(algo))
        assert _counted(algo) == [2, 2]
    with config(gate, enable_async_evaluation=False).build_algo() as algo:
        assert numbers(algo.train()["evaluation"]) == numbers(evaluations[0])


def test_what_half_of_it_has_counted_is_not_counted_again_after_a_restore(gate, tmp_path):
    """Only runner 2 waits: runner 1 has counted its episodes when the checkpoint is saved."""
    with config(gate, only=2, evaluation_interval=2).build_algo() as algo:
        algo.train()
        algo.train()

        def has_answered():
            algo._evaluations.look_after()
            return _counted(algo) == [2, 0]

        assert wait_until(has_answered)
        path = algo.save_to_path(tmp_path / "checkpoint")
    gate.unlink()
    with config(gate, evaluation_interval=2).build_algo() as other:
        other.restore_from_path(path)
        next_evaluation(other)
        state = other.get_state(components="evaluation")["evaluation"]["evaluator"]["callbacks"]
    assert [state[index]["objects"][0]["state"]["num_episodes"] for index in "12"] == [2, 2]


def test_what_was_asked_of_its_runners_afterwards_outlives_it_as_well(gate):
    def fail_once(algorithm):
        if algorithm.training_iteration == 2 and not failed:
            failed.append(2)
            raise ValueError("in the second")

    failed = []
    with config(gate).callbacks(on_train_result=fail_once).build_algo() as algo:
        algo.train()
        gate.unlink()
        group = algo.eval_env_runner_group
        group.foreach_env(lambda env: env.set_task(5))
        with pytest.raises(CallbackError):
            algo.train()
        assert group.get_tasks() == [5, 5]
        next_evaluation(algo)
        assert group.get_tasks() == [5, 5]


def test_an_undone_iteration_leaves_the_last_evaluation_as_it_was(tmp_path):
    def fail(algorithm):
        if algorithm.training_iteration == 3 and not failed:
            failed.append(3)
            raise ValueError("in the third")

    failed = []
    made = config(tmp_path / "open", enable_async_evaluation=False, evaluation_interval=2)
    with made.callbacks(on_train_result=fail).build_algo() as algo:
        algo.train()
        before = algo.train()["evaluation"]
        with pytest.raises(CallbackError):
            algo.train()
        assert algo.train()["evaluation"] == before
        assert "num_healthy_workers" in before


@pytest.mark.parametrize(
    "ask",
    [
        lambda group: group.foreach_env_runner(len),
        lambda group: group.add_workers(1),
        lambda group: group.sync_weights(),
    ],
)
def test_after_a_stop_nobody_waits_for_it(ask, gate):
    algo = config(gate).build_algo()
    algo.train()
    group = algo.eval_env_runner_group
    algo.stop()
    with pytest.raises(AlgorithmStoppedError):
        ask(group)

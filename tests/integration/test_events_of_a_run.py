"""All events of a small run in order, written down by hand, for one process and for two."""

import os
import signal
from pathlib import Path

import pytest

from callbacks import EVENTS
from tests.small_runs import small_ppo
from trainer import PPO
from trainer.testing.envs import FailingEnv
from trainer.testing.faults import InjectedFaultError

pytestmark = pytest.mark.process

MADE = ["on_sub_environment_created", "on_environment_created", "on_create_policy"]
BEGUN = ["on_episode_created", "on_episode_start"]
STEP = ["on_episode_step"]
TRAJECTORY = ["on_postprocess_trajectory"]
ENDED = [*TRAJECTORY, "on_episode_end"]
EPISODE = [*BEGUN, *STEP * 3, *ENDED]
SAMPLED = ["on_sample_end"]
LEARNT = ["on_learn_on_batch"]
EVALUATED = [
    "on_evaluate_start",
    *BEGUN,
    *STEP * 3,
    "on_episode_end",
    *SAMPLED,
    "on_evaluate_end",
]
RESULT = ["on_train_result"]
RECREATED = ["on_env_runners_recreated", "on_workers_recreated"]
ITERATION = [*EPISODE, *EPISODE, *SAMPLED, *LEARNT, *RESULT]


class Journal:
    """A file to which every process appends the events it fires.

    With one runner at most the order of the lines is that in which things happened, because the
    main process waits for the runner.
    """

    def __init__(self, path):
        self.path = path
        path.touch()
        self._num_read = 0

    def config(self, num_env_runners, **settings):
        """Episodes of 3 steps, iterations of 6."""
        made = small_ppo(num_env_runners, num_slots=1, batch=6, minibatch_size=6)
        made.environment(env_config={"min_length": 3, "max_length": 3})
        made.callbacks(**{event: self._listener(event) for event in EVENTS})
        return made.update_from_dict(settings)

    def _listener(self, event):
        path = str(self.path)

        def note(**arguments):
            assert arguments.keys() == set(EVENTS[event].arguments)
            with Path(path).open("a") as file:
                file.write(f"{event}\n")

        return note

    def new(self):
        """What was written since the last call."""
        lines = self.path.read_text().splitlines()
        new, self._num_read = lines[self._num_read :], len(lines)
        return new


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path / "journal")


@pytest.mark.parametrize("num_env_runners", [0, 1])
def test_building_training_evaluating_saving_restoring_stopping(num_env_runners, journal, tmp_path):
    made = journal.config(num_env_runners, evaluation_interval=2, evaluation_duration=1)
    with made.build_algo() as algo:
        assert journal.new() == [*MADE, *MADE, "on_algorithm_init"], "training's and evaluation's"
        algo.train()
        assert journal.new() == ITERATION
        algo.train()
        assert journal.new() == [*ITERATION[:-1], *EVALUATED, *RESULT]
        algo.evaluate()
        assert journal.new() == EVALUATED
        path = algo.save_to_path(tmp_path / "checkpoint")
        assert journal.new() == ["on_checkpoint_saved"]
        algo.restore_from_path(path)
        assert journal.new() == ["on_checkpoint_loaded"]
        algo.restore_from_path(path, component="learner")
        algo.get_state()
        assert journal.new() == []
        algo.train()
        assert journal.new() == ITERATION
    assert journal.new() == [], "after stop()"
    with PPO.from_checkpoint(path, config=made):
        assert journal.new() == [*MADE, *MADE, "on_algorithm_init", "on_checkpoint_loaded"]


@pytest.mark.parametrize("num_env_runners", [0, 1])
def test_a_cut_in_the_middle_of_an_episode(num_env_runners, journal):
    made = journal.config(num_env_runners, train_batch_size=4, minibatch_size=4)
    with made.build_algo() as algo:
        journal.new()
        algo.train()
        first = [*EPISODE, *BEGUN, *STEP, *TRAJECTORY, *SAMPLED, *LEARNT, *RESULT]
        assert journal.new() == first
        algo.train()
        second = [*STEP * 2, *ENDED, *BEGUN, *STEP * 2, *TRAJECTORY, *SAMPLED, *LEARNT, *RESULT]
        assert journal.new() == second


def test_a_runner_that_was_killed_between_two_iterations(journal):
    with journal.config(1).build_algo() as algo:
        algo.train()
        journal.new()
        os.kill(algo.env_runner_group.env_runner_pids()[1], signal.SIGKILL)
        algo.train()
        played = [*EPISODE, *EPISODE, *SAMPLED]
        assert journal.new() == [*MADE, *played, *RECREATED, *LEARNT, *RESULT]


@pytest.mark.parametrize("how", ["raise", "kill"])
def test_a_runner_that_fails_in_the_middle_of_a_request(how, journal, tmp_path):
    armed = tmp_path / "armed"
    made = journal.config(1)
    fault = {"where": "step", "how": how, "armed_file": str(armed)}
    made.environment(FailingEnv, env_config={**made.env_config, **fault})
    with made.build_algo() as algo:
        algo.train()
        journal.new()
        armed.touch()
        algo.train()
        lost = [*BEGUN, *STEP * 2]
        played = [*EPISODE, *EPISODE, *SAMPLED]
        assert journal.new() == [*lost, *MADE, *played, *RECREATED, *LEARNT, *RESULT]


@pytest.mark.parametrize("num_env_runners", [0, 1])
def test_an_iteration_that_raises_is_made_again_with_the_same_events(
    num_env_runners, journal, tmp_path
):
    armed = tmp_path / "armed"
    made = journal.config(num_env_runners, restart_failed_env_runners=False)
    fault = {"where": "reset", "armed_file": str(armed)}
    made.environment(FailingEnv, env_config={**made.env_config, **fault})
    with made.build_algo() as algo:
        algo.train()
        journal.new()
        armed.touch()
        with pytest.raises(InjectedFaultError):
            algo.train()
        assert journal.new() == ["on_episode_created"]
        algo.train()
        assert journal.new() == ITERATION

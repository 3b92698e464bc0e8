"""What the user is told when runners are replaced, and what the new ones know."""

import os
import signal
import threading

import pytest

from callbacks import CallbackError, RLlibCallback
from tests.small_runs import kill, small_ppo
from trainer import RunnerLostError
from trainer.testing.envs import CountdownEnv, FailingEnv
from trainer.testing.processes import wait_until

pytestmark = pytest.mark.process


class Telling(CountdownEnv):
    """Keeps what it was told about its place."""

    def __init__(self, env_config):
        super().__init__(env_config)
        self.context = env_config


class Counting(RLlibCallback):
    def __init__(self):
        self.num_steps = 0
        self.num_envs_made = 0

    def on_sub_environment_created(self, **kwargs):
        self.num_envs_made += 1

    def on_episode_step(self, **kwargs):
        self.num_steps += 1


def config(env=CountdownEnv, num_env_runners=2, **settings):
    return small_ppo(num_env_runners, env=env, num_envs_per_env_runner=2, **settings)


def counts(env_runner):
    counting = env_runner.callbacks.objects[0]
    return counting.num_steps, counting.num_envs_made


@pytest.mark.parametrize("killed", [(1,), (2,), (1, 2)])
def test_the_events_tell_which_runners_are_new(killed):
    told = []

    class Noting(RLlibCallback):
        def on_env_runners_recreated(
            self, *, algorithm, env_runner_group, env_runner_indices,
            is_evaluation, **kwargs):  # fmt: skip
            assert not kwargs
            told.append(("new", algorithm, env_runner_group, env_runner_indices, is_evaluation))

        def on_workers_recreated(
            self, *, algorithm, worker_set, worker_ids, is_evaluation,
            **kwargs):  # fmt: skip
            assert not kwargs
            told.append(("old", algorithm, worker_set, worker_ids, is_evaluation))

    with config().callbacks(Noting).build_algo() as algo:
        algo.train()
        assert told == []
        kill(algo.env_runner_group, *killed)
        algo.train()
        group = algo.env_runner_group
        assert told == [
            ("new", algo, group, list(killed), False),
            ("old", algo, group, list(killed), False),
        ]
        algo.train()
        assert len(told) == 2, "an undisturbed iteration tells nothing"


def noting(told):
    return lambda env_runner_indices: told.append(env_runner_indices)


def test_runners_that_an_interrupt_ended_are_told_when_they_were_replaced():
    told = []

    def recreated(env_runner):
        context = env_runner.env.envs[0].unwrapped.context
        return context.recreated_worker

    def interrupt(env_runner):
        def step(action):
            os.kill(main, signal.SIGINT)
            return threading.Event().wait()

        env_runner.env.envs[0].step = step

    main = os.getpid()
    made = config(Telling).callbacks(on_env_runners_recreated=noting(told))
    with made.build_algo() as algo:
        algo.train()
        algo.env_runner_group.foreach_env_runner(interrupt, remote_worker_ids=[2])
        with pytest.raises(KeyboardInterrupt):
            algo.train()
        assert told == []
        algo.train()
        assert told in ([[2]], [[1, 2]]), "the other one may have been busy as well"
        assert algo.env_runner_group.foreach_env_runner(recreated)[1]
        algo.train()
        assert len(told) == 1


def test_a_lost_runner_that_train_may_not_replace_is_told_when_the_next_one_does():
    told = []
    made = config(restart_failed_env_runners=False)
    with made.callbacks(on_env_runners_recreated=noting(told)).build_algo() as algo:
        algo.train()
        kill(algo.env_runner_group, 2)
        with pytest.raises(RunnerLostError):
            algo.train()
        assert told == []
        algo.train()
        assert told in ([[2]], [[1, 2]]), "the other one was ended if it was busy still"


def test_a_replacement_in_a_request_that_raised_is_told_with_the_next_one(tmp_path):
    told = []
    failures = tmp_path / "failures"

    def fail_late(env_runner, samples):
        if env_runner.worker_index == 2 and failures.exists():
            wait_until(lambda: (tmp_path / "is back").exists())
            failures.unlink()
            raise ValueError("once")

    def note_return(env_runner, samples):
        if env_runner.worker_index == 1 and failures.exists():
            (tmp_path / "is back").touch()

    made = config().callbacks(
        on_env_runners_recreated=noting(told), on_sample_end=[note_return, fail_late]
    )
    with made.build_algo() as algo:
        algo.train()
        failures.touch()
        kill(algo.env_runner_group, 1)
        with pytest.raises(CallbackError, match="once"):
            algo.train()
        assert told == []
        algo.train()
        assert told == [[1]]


def test_runners_that_another_seed_makes_anew_replace_nobody():
    told = []
    with config().callbacks(on_env_runners_recreated=noting(told)).build_algo() as algo:
        algo.train()
        algo.env_runner_group.set_root_seed(77)
        algo.train()
    assert told == []


def test_a_killed_evaluation_runner_is_told_as_such():
    told = []

    def note(algorithm, env_runner_group, env_runner_indices, is_evaluation):
        own = algorithm.eval_env_runner_group
        told.append((env_runner_indices, is_evaluation, env_runner_group is own))

    made = config(num_env_runners=0, evaluation_num_env_runners=1, evaluation_duration=2)
    with made.callbacks(on_env_runners_recreated=note).build_algo() as algo:
        algo.evaluate()
        os.kill(algo.eval_env_runner_group.env_runner_pids()[1], signal.SIGKILL)
        algo.evaluate()
    assert told == [([1], True, True)]


def test_the_new_runners_can_be_prepared_from_within_the_event():
    def task_of(env_runner):
        return getattr(env_runner, "task", None)

    def set_task(env_runner):
        env_runner.task = "set again"
        return env_runner.worker_index

    asked = []

    def prepare(env_runner_group, env_runner_indices):
        asked.append(
            env_runner_group.foreach_env_runner(
                set_task, remote_worker_ids=env_runner_indices, local_env_runner=False
            )
        )

    with config().callbacks(on_env_runners_recreated=prepare).build_algo() as algo:
        algo.train()
        kill(algo.env_runner_group, 2)
        algo.train()
        assert asked == [[2]]
        assert algo.env_runner_group.foreach_env_runner(task_of) == [None, "set again"]


def test_an_error_in_the_event_is_raised_and_the_iteration_can_be_made_again():
    failures = [ValueError("first time")]

    def fails_once(**kwargs):
        if failures:
            raise failures.pop()

    with config().callbacks(on_env_runners_recreated=fails_once).build_algo() as algo:
        expected = algo.train()["training_iteration"] + 1
        kill(algo.env_runner_group, 1)
        with pytest.raises(CallbackError, match=r"fails_once.*on_env_runners_recreated"):
            algo.train()
        assert algo.train()["training_iteration"] == expected


def test_callback_state_goes_back_also_to_where_no_answer_was_given_yet(tmp_path):
    with config().callbacks(Counting).build_algo() as algo:
        at_start = algo.env_runner_group.foreach_env_runner(counts)
        path = algo.save_to_path(tmp_path / "checkpoint")
        algo.train()
        algo.restore_from_path(path)
        assert algo.env_runner_group.foreach_env_runner(counts) == at_start == [(0, 2), (0, 2)]


def test_the_context_tells_an_env_that_its_runner_is_a_replacement(tmp_path):
    armed = tmp_path / "armed"

    class Telling(FailingEnv):
        def __init__(self, env_config):
            super().__init__(env_config)
            self.is_recreated = env_config.recreated_worker

    fault = {"where": "step", "how": "kill", "armed_file": str(armed), "worker_index": 2}

    def recreated(algo):
        return algo.env_runner_group.foreach_env(lambda env: env.unwrapped.is_recreated)

    with config(Telling, env_config=fault).build_algo() as algo:
        assert recreated(algo) == [[False, False], [False, False]]
        armed.touch()
        algo.train()
        assert recreated(algo) == [[False, False], [True, True]]


def test_the_numbers_of_a_result_tell_health_and_restarts():
    with config().build_algo() as algo:
        first = algo.train()["fault_tolerance"]
        kill(algo.env_runner_group, 1, 2)
        second = algo.train()["fault_tolerance"]
    assert (first["num_healthy_workers"], first["num_remote_worker_restarts"]) == (2, 0)
    assert (second["num_healthy_workers"], second["num_remote_worker_restarts"]) == (2, 2)
    assert first["repair_time_s"] == 0.0
    assert second["repair_time_s"] > 0.0
    assert second["num_episodes_lost"] == 0

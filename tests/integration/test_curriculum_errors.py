"""Curricula that go wrong: one clear error each, and nothing is half done."""

import threading

import pytest
from gymnasium.wrappers import TimeLimit

from callbacks import CallbackError, TaskLadder
from checkpoints import StateError
from tests.small_runs import known, small_ppo
from trainer import ConfigError, SerializationError, TaskError
from trainer.testing.envs import CountdownEnv, TaskCountdownEnv

pytestmark = pytest.mark.process


class HalfEnv(CountdownEnv):
    task = 0

    def set_task(self, task):
        self.task = task


def wrapped_env(env_config):
    return TimeLimit(TaskCountdownEnv(env_config), 9)


def config(num_env_runners=0, env=wrapped_env, **settings):
    return small_ppo(num_env_runners, env=env, env_config={"refuses": 3}, **settings)


def gives(task):
    return lambda results, env, ctx: task if ctx.worker_index == 2 else 0


def fails(results, env, ctx):
    raise KeyError("no such metric")


@pytest.mark.parametrize("num_env_runners", [0, 2])
def test_an_env_without_tasks_is_told_of_when_the_algorithm_is_built(num_env_runners):
    with pytest.raises(
        TaskError, match=r"env_task_fn needs an env .* 'CountdownEnv' cannot: .*has"
    ):
        config(num_env_runners, CountdownEnv, env_task_fn=gives(1)).build_algo()


def test_a_ladder_beside_a_task_function_is_refused_when_the_algorithm_is_built():
    ladder = TaskLadder([0, 1], promote_at=1.0)
    made = config(env_task_fn=gives(1)).callbacks([ladder])
    with pytest.raises(CallbackError, match=r"`env_task_fn=.* configure one of the two"):
        made.build_algo()


@pytest.mark.parametrize("num_env_runners", [0, 2])
def test_an_env_without_tasks_cannot_be_given_one(num_env_runners):
    with config(num_env_runners, CountdownEnv).build_algo() as algo:
        with pytest.raises(TaskError, match=r"set_task\(\) needs an env that can be given tasks"):
            algo.env_runner_group.set_task(1)
        with pytest.raises(TaskError, match="CountdownEnv was asked for set_task"):
            algo.env_runner_group.foreach_env(lambda env: env.set_task(1))
        assert algo.env_runner_group.get_tasks() == [None] * 4
        result = algo.train()
        assert "task_stats" not in result["env_runners"]


def test_an_env_that_cannot_tell_its_task_is_warned_of_once(caplog):
    with config(2, HalfEnv).build_algo() as algo:
        algo.env_runner_group.foreach_env(lambda env: env.set_task(1))
        algo.train()
        assert algo.env_runner_group.foreach_env(lambda env: env.task) == [[1, 1], [1, 1]]
    warnings = [record.message for record in caplog.records if "get_task" in record.message]
    assert len(warnings) == 1
    assert (
        "has set_task, but no get_task. Tasks that a function of yours sets are lost" in warnings[0]
    )


@pytest.mark.parametrize("num_env_runners", [0, 2])
@pytest.mark.parametrize(
    ("function", "message"),
    [
        (fails, r"env_task_fn raised KeyError: 'no such metric', for sub-env 0 of env runner"),
        (lambda *_: 3, r"set_task\(3\) raised ValueError: there is no way to do 3, for sub-env 0"),
    ],
)
def test_what_a_curriculum_raises_comes_out_of_train_which_is_undone(
    function, message, num_env_runners
):
    with config(num_env_runners, env_task_fn=function).build_algo() as algo:
        before = known(algo)
        with pytest.raises(TaskError, match=message) as caught:
            algo.train()
        assert f"env runner {min(1, num_env_runners)}" in str(caught.value)
        assert known(algo) == before
        assert algo.env_runner_group.num_remote_worker_restarts() == 0


def test_a_task_function_without_a_return_is_told():
    with config(0, env_task_fn=lambda results, env, ctx: None).build_algo() as algo:
        with pytest.raises(TaskError, match=r"returned None for sub-env 0.*is a `return` missing"):
            algo.train()
        assert algo.training_iteration == 0


class PickyEnv(TaskCountdownEnv):
    def reset(self, **options):
        if self.get_task() == 7:
            raise IndexError("no such level")
        return super().reset(**options)


def test_an_env_that_fails_because_of_its_task_says_which(caplog):
    made = config(2, env=PickyEnv, num_consecutive_env_runner_failures_tolerance=1)
    with made.build_algo() as algo:
        algo.train()
        algo.env_runner_group.set_task(7)
        with pytest.raises(IndexError, match="no such level") as raised:
            algo.train()
    assert "task 7" in str(raised.value.__cause__)


def test_the_runner_whose_env_refuses_is_named_and_all_others_are_put_back():
    with config(2, env_task_fn=gives(3)).build_algo() as algo:
        with pytest.raises(TaskError, match="for sub-env 0 of env runner 2"):
            algo.train()
        assert algo.env_runner_group.get_tasks() == [0] * 4


@pytest.mark.parametrize("num_env_runners", [0, 2])
def test_a_broadcast_task_that_envs_refuse_is_an_error_until_another_one_is_set(num_env_runners):
    with config(num_env_runners).build_algo() as algo:
        algo.train()
        algo.env_runner_group.set_task(3)
        for _ in range(2):
            with pytest.raises(TaskError, match=r"set_task\(3\) raised ValueError.*for sub-env 0"):
                algo.train()
        algo.env_runner_group.set_task(2)
        algo.train()
        played = algo.env_runner_group.foreach_env(lambda env: env.task)
        assert [task for of_runner in played for task in of_runner] == [2] * 4


def test_tasks_that_cannot_be_set_are_refused_at_once():
    with config(2).build_algo() as algo:
        with pytest.raises(ConfigError, match="got 3 tasks for 4 sub-envs of 2 env runner"):
            algo.env_runner_group.set_tasks([1, 2, 4])
        with pytest.raises(SerializationError, match="was not set: the task"):
            algo.env_runner_group.set_task(threading.Lock())
        algo.train()
        assert algo.env_runner_group.get_tasks() == [0] * 4


class Level:
    """A task that is no plain data."""

    def __float__(self):
        return 1.0


@pytest.mark.parametrize("num_env_runners", [0, 1])
def test_a_task_that_is_no_plain_data_can_be_played_but_not_saved(num_env_runners, tmp_path):
    with config(num_env_runners).build_algo() as algo:
        algo.env_runner_group.set_task(Level())
        algo.train()
        with pytest.raises(
            StateError, match=r"The task <.*Level.*of sub-env 0 of env runner .*plain"
        ):
            algo.save_to_path(tmp_path / "checkpoint")
        assert not (tmp_path / "checkpoint").exists()


def test_saved_tasks_are_dropped_with_a_warning_if_the_env_knows_none(caplog):
    with config().build_algo() as algo:
        state = algo.get_state()
    with config(env=CountdownEnv).build_algo() as other:
        other.set_state(state)
        other.train()
        assert other.env_runner_group.get_tasks() == [None] * 4
    assert "The tasks of the saved envs are dropped" in caplog.text

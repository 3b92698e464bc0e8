"""Tasks: which layer of an env takes them, when two are the same, what is in force when."""

import threading
from typing import Any

import gymnasium
import pytest
from gymnasium.wrappers import OrderEnforcing, TimeLimit
from hypothesis import given
from hypothesis import strategies as st

from trainer.env_runners.env_slot import SlotTasks
from trainer.env_runners.messages import SlotPosition
from trainer.envs import EnvContext, VectorEnv
from trainer.envs.tasks import (
    TaskFunction,
    TaskInForce,
    TaskSettableEnv,
    followed_by,
    task_layer,
    user_layer,
    why_no_tasks,
)
from trainer.errors import TaskError
from trainer.testing.envs import CountdownEnv, TaskCountdownEnv
from trainer_toolkit.plain_classes import from_plain, to_plain


class PlainWrapper(gymnasium.Wrapper[Any, Any, Any, Any]):
    pass


class TaskWrapper(PlainWrapper):
    task = 0

    def get_task(self):
        return self.task

    def set_task(self, task):
        self.task = task


class OwnTimeLimit(TimeLimit):
    """The user's own, although it derives from one of gymnasium's."""


def gymnasium_layers(env):
    return OrderEnforcing(TimeLimit(env, 9))


class HalfEnv(CountdownEnv):
    def set_task(self, task):
        """Takes it, and never tells."""


class Unfinished(TaskSettableEnv[Any, Any]):
    pass


@pytest.mark.parametrize(
    ("wrap", "users", "takes_tasks"),
    [
        (TaskCountdownEnv, TaskCountdownEnv, TaskCountdownEnv),
        (lambda: gymnasium_layers(TaskCountdownEnv()), TaskCountdownEnv, TaskCountdownEnv),
        (lambda: gymnasium_layers(TaskWrapper(CountdownEnv())), TaskWrapper, TaskWrapper),
        (lambda: TaskWrapper(TaskCountdownEnv()), TaskWrapper, TaskWrapper),
        (lambda: PlainWrapper(TaskCountdownEnv()), PlainWrapper, TaskCountdownEnv),
        (lambda: OwnTimeLimit(TaskCountdownEnv(), 9), OwnTimeLimit, TaskCountdownEnv),
        (lambda: gymnasium.make("CartPole-v1"), None, None),
    ],
)
def test_the_users_own_object_and_the_layer_with_the_tasks_are_found(wrap, users, takes_tasks):
    env = wrap()
    expected = type(env.unwrapped) if users is None else users
    assert type(user_layer(env)) is expected
    assert VectorEnv([env], [EnvContext({}, 0)]).foreach_env(type) == [expected]
    found = task_layer(env)
    assert (None if found is None else type(found)) is takes_tasks
    assert (why_no_tasks(env) == "") is (takes_tasks is not None)


@pytest.mark.parametrize(
    ("env", "lacks"),
    [
        (CountdownEnv(), "neither set_task nor get_task"),
        (HalfEnv(), "has set_task, but no get_task"),
        (Unfinished(), "neither set_task nor get_task"),
        (PlainWrapper(HalfEnv()), "(PlainWrapper in HalfEnv) has set_task, but no get_task"),
    ],
)
def test_it_is_said_what_an_env_lacks_that_cannot_be_given_tasks(env, lacks):
    assert task_layer(env) is None
    assert lacks in why_no_tasks(env)


@pytest.mark.parametrize(
    ("method", "arguments"), [("set_task", (1,)), ("get_task", ()), ("sample_tasks", (3,))]
)
def test_a_task_settable_env_without_methods_of_its_own_says_what_to_write(method, arguments):
    with pytest.raises(
        NotImplementedError, match=rf"TaskSettableEnv without a {method}\(\).*Write"
    ):
        getattr(Unfinished(), method)(*arguments)


@pytest.mark.parametrize(
    ("wrap", "message"),
    [
        (CountdownEnv, "CountdownEnv was asked for set_task, .*needs set_task.task. and get_task"),
        (lambda: PlainWrapper(TaskCountdownEnv()), "TaskCountdownEnv, which it wraps, does. Write"),
    ],
)
def test_a_function_that_asks_an_env_for_set_task_in_vain_is_told(wrap, message):
    env = VectorEnv([wrap()], [EnvContext({}, 0)])
    with pytest.raises(TaskError, match=message):
        env.foreach_env(lambda one: one.set_task(1))
    with pytest.raises(TaskError, match=message):
        env.foreach_env_with_context(lambda one, context: one.set_task(context.vector_index))


def test_other_missing_attributes_are_left_alone():
    env = VectorEnv([TaskCountdownEnv()], [EnvContext({}, 0)])
    with pytest.raises(AttributeError, match="nonsense") as caught:
        env.foreach_env(lambda one: one.nonsense)
    assert not isinstance(caught.value, TaskError)


def tasks_at(*pairs):
    return tuple(TaskInForce(step, task) for step, task in pairs)


def test_a_task_under_which_no_step_was_made_is_left_out_but_for_that_of_the_reset():
    tasks = tasks_at((0, "first"))
    for task, step in (("a", 0), ("b", 0), ("c", 4), ("d", 4), ("e", 5)):
        tasks = followed_by(tasks, task, step=step)
    assert tasks == tasks_at((0, "first"), (0, "b"), (4, "d"), (5, "e"))


def test_what_was_set_is_noted_by_asking_and_not_noted_twice():
    env = TaskCountdownEnv()
    tasks = SlotTasks(env, where="here")
    tasks.begin_episode()
    tasks.notice(0)
    env.set_task(1)
    tasks.notice(3)
    tasks.notice(4)
    tasks.set(2, 5)
    tasks.set(2, 6)
    assert tasks.in_force == tasks_at((0, 0), (3, 1), (5, 2), (6, 2))
    tasks.end_episode()
    assert tasks.in_force == tasks_at((0, 2))
    assert env.task == 2


def test_a_task_that_the_env_changes_in_place_is_noted():
    env = TaskCountdownEnv({"task": {"size": 1}})
    tasks = SlotTasks(env, where="here")
    env.task["size"] = 2
    tasks.notice(7)
    assert tasks.in_force == tasks_at((0, {"size": 1}), (7, {"size": 2}))
    given_task = {"size": 3}
    tasks.set(given_task, 8)
    env.task["size"] = 4
    assert given_task == {"size": 3}, "the env has a copy"


def test_a_task_that_cannot_be_copied_is_played_as_it_is():
    lock = threading.Lock()
    tasks = SlotTasks(TaskCountdownEnv({"task": lock}), where="here")
    tasks.notice(1)
    assert tasks.in_force == tasks_at((0, lock))


def test_an_env_that_makes_something_else_of_a_task_is_believed():
    class Bounded(TaskCountdownEnv):
        def set_task(self, task):
            super().set_task(min(task, 5))

    live = SlotTasks(Bounded(), where="here")
    live.set(10, 2)
    assert live.now == 5
    replacement = SlotTasks(Bounded(), where="there")
    replacement.put_back(tasks_at((0, 0), (2, 10)), step=2)
    assert replacement.in_force == live.in_force


def test_putting_back_sets_a_task_only_if_it_is_another_one():
    calls = []

    class Counting(TaskCountdownEnv):
        def set_task(self, task):
            calls.append(task)
            super().set_task(task)

    tasks = SlotTasks(Counting(), where="here")
    tasks.put_back(tasks_at((0, 0)), step=0)
    tasks.put_back((), step=0)
    tasks.put_back(tasks_at((0, 3)), step=0)
    assert calls == [3]


def test_errors_of_set_task_and_get_task_say_where_and_what_to_do():
    env = TaskCountdownEnv({"refuses": 4})
    tasks = SlotTasks(env, where="sub-env 2 of env runner 1")
    with pytest.raises(TaskError, match=r"set_task\(4\) raised ValueError: there is no way .*"):
        tasks.set(4, 0)
    assert tasks.in_force == tasks_at((0, 0))
    del env.task
    with pytest.raises(TaskError, match=r"get_task\(\) raised AttributeError.*sub-env 2 of env"):
        tasks.notice(1)


_tasks = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), max_size=5).map(sorted)


@given(_tasks, st.booleans(), st.integers(0, 3))
def test_positions_with_tasks_survive_saving_and_keep_the_task_of_now(pairs, is_running, new_task):
    position = SlotPosition(4, 17 if is_running else None, tasks=tasks_at(*pairs))
    assert from_plain(SlotPosition, to_plain(position)) == position
    assert ("tasks" in to_plain(position)) is bool(pairs)
    assert position.restarted(2) == SlotPosition(6, tasks=position.task_now)
    changed = position.with_task(new_task)
    assert changed.tasks[-1].task == new_task
    assert changed.task_now == tasks_at((0, new_task))
    assert is_running or len(changed.tasks) == 1


@pytest.mark.parametrize(
    ("function", "is_fine"),
    [
        (lambda results, env, ctx: 1, True),
        (lambda *arguments: 1, True),
        (lambda results, env, ctx, more=None: 1, True),
        (lambda results, env: 1, False),
        (lambda a, b, c, d: 1, False),
        (lambda results, *, env, ctx: 1, False),
        (print, True),
    ],
)
def test_a_task_function_must_take_three_arguments(function, is_fine):
    assert TaskFunction.takes_its_arguments(function) is is_fine

"""Curricula: every way to set tasks, undisturbed, killed, restored, and spread over processes."""

import os
import runpy
import signal
from pathlib import Path

import pytest

from callbacks import RLlibCallback
from checkpoints import encode
from tests.exact_runs import task_env
from tests.small_runs import kill, killing, learnt, small_ppo
from trainer.metrics import comparable
from trainer.testing.envs import TaskCountdownEnv

pytestmark = pytest.mark.process


class Watching(RLlibCallback):
    """Reports under which tasks the steps of a sample were made."""

    def on_sample_end(self, *, samples, metrics_logger, **kwargs):
        for chunk in samples:
            for info in chunk.get_infos()[1:]:
                metrics_logger.log_value(
                    "tasks_played", info["task"], reduce=None, clear_on_reduce=True
                )

    def on_episode_end(self, *, episode, prev_episode_chunks, **kwargs):
        # In the middle of its life an episode may have got another task, and it says which it had
        # at first.
        first = [*prev_episode_chunks, episode][0]
        assert first.get_infos()[1]["task"] == episode.task == first.task
        episode.hist_data["first_task"] = [episode.task]


def task_of_iteration(train_results, env, env_ctx):
    assert env_ctx.worker_index in (0, 1, 2)
    assert train_results["episode_reward_mean"] > 0  # an old key
    assert train_results["env_runners/num_episodes"] > 0
    return train_results["training_iteration"]


class Steering(RLlibCallback):
    """The third way of the documents: a task for all envs, after every result."""

    def on_train_result(self, *, algorithm, result, **kwargs):
        task = result["training_iteration"]
        algorithm.workers.foreach_worker(lambda ev: ev.foreach_env(lambda env: env.set_task(task)))


class Broadcasting(RLlibCallback):
    def on_train_result(self, *, algorithm, result, **kwargs):
        algorithm.env_runner_group.set_task(result["training_iteration"])


class Drawing(RLlibCallback):
    """A task for each episode, and another one in the middle of it."""

    def on_episode_created(self, *, episode, env, env_index, **kwargs):
        number = int(episode.id_.rpartition("-")[2])
        env.envs[env_index].unwrapped.set_task(number % 3)

    def on_episode_step(self, *, episode, env, env_index, **kwargs):
        if episode.t == 2:
            env.envs[env_index].unwrapped.set_task(7)


def by_hand(algo):
    """The second way of the documents: between two iterations."""
    task = algo.training_iteration
    algo.workers.foreach_worker(lambda ev: ev.foreach_env(lambda env: env.set_task(task)))


WAYS = {
    "env_task_fn": {"env_task_fn": task_of_iteration},
    "foreach_worker": {},
    "on_train_result": {"callbacks": Steering},
    "set_task": {"callbacks": Broadcasting},
    "per episode": {"callbacks": Drawing},
}


def config(way, num_env_runners, *, armed=None, **more):
    settings = {**WAYS[way], **more}
    # 85 steps leave a remainder, so episodes are cut wherever they stand.
    made = small_ppo(num_env_runners, env=task_env, num_slots=8, batch=85, minibatch_size=40)
    made.environment(env_config={"min_length": 6, "max_length": 20})
    made.callbacks([Watching, *([settings.pop("callbacks")] if "callbacks" in settings else [])])
    if armed is not None:
        made.callbacks(on_episode_step=killing(armed, at_step=3))
    return made.update_from_dict(settings)


def iterate(algo, way, iterations):
    results = []
    for _ in range(iterations):
        results.append(algo.train())
        if way == "foreach_worker":
            by_hand(algo)
    return results


def as_bytes(results):
    return encode([{k: v for k, v in comparable(r).items() if k != "config"} for r in results])


def episodes_of(results):
    """Which tasks were played, by step and by episode, however envs are spread."""
    return encode(
        [
            (sorted(result["env_runners/tasks_played"]), dict(result["env_runners/hist_stats"]))
            for result in results
        ]
    )


class TaskAsDict(TaskCountdownEnv):
    """Its task is a dict; what it plays follows from `set_task` alone."""

    def __init__(self, env_config=None):
        super().__init__(env_config)
        self.settings = {"level": 0}

    def get_task(self):
        return self.settings

    def set_task(self, task):
        self.settings = task
        super().set_task(task["level"])


def test_a_task_that_is_changed_in_place_is_set_like_a_new_one():
    def next_level(results, env, context):
        task = env.get_task()
        task["level"] += 1
        return task

    made = small_ppo(0, env=TaskAsDict, num_slots=2, env_task_fn=next_level)
    with made.build_algo() as algo:
        algo.train()
        algo.train()
        group = algo.env_runner_group
        assert group.foreach_env(lambda env: env.task) == [[2, 2]]
        mine = group.get_tasks()
        assert mine == [{"level": 2}, {"level": 2}]
        mine[0]["level"] = 9
        assert group.get_tasks() == [{"level": 2}, {"level": 2}], "what was given out is a copy"


@pytest.mark.parametrize("way", WAYS)
def test_every_step_has_the_right_task_wherever_envs_live(way):
    outcomes = []
    for num_env_runners in (0, 2):
        with config(way, num_env_runners).build_algo() as algo:
            results = iterate(algo, way, 3)
            outcomes.append((episodes_of(results), learnt(algo)))
            if way != "per episode":
                for iteration, result in enumerate(results):
                    assert set(result["env_runners/tasks_played"]) == {iteration}
                assert algo.env_runner_group.get_tasks() == [3] * 8
            else:
                played = [result["env_runners/tasks_played"] for result in results]
                assert set().union(*played) == {0, 1, 2, 7}
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize(
    "way",
    [
        "env_task_fn",
        pytest.param("foreach_worker", marks=pytest.mark.slow),
        pytest.param("per episode", marks=pytest.mark.slow),
        pytest.param("on_train_result", marks=pytest.mark.slow),
        pytest.param("set_task", marks=pytest.mark.slow),
    ],
)
def test_killed_and_restored_in_between_every_episode_has_the_right_task(way, tmp_path):
    armed = tmp_path / "armed"
    made = config(way, 2, armed=armed)
    with made.build_algo() as algo:
        first, rest = iterate(algo, way, 2), iterate(algo, way, 2)
        expected = (as_bytes(first), as_bytes(rest), learnt(algo))
        assert sum(slot["env_seed"] is not None for slot in slots(algo)) >= 5
        assert any(len(slot["tasks"]) > 1 for slot in slots(algo)), "tasks change in mid-episode"
    with made.build_algo() as algo:
        first = iterate(algo, way, 1)
        kill(algo.env_runner_group, 2)  # idle, in mid-episode
        armed.touch()  # and the other one while it plays
        first += iterate(algo, way, 1)
        assert not armed.exists()
        assert algo.env_runner_group.num_remote_worker_restarts() == 2
        algo.save_to_path(tmp_path / "checkpoint")
    with made.build_algo() as other:
        iterate(other, way, 1)  # whatever it did before must not matter
        other.restore_from_path(tmp_path / "checkpoint")
        rest = iterate(other, way, 1)
        armed.touch()
        rest += iterate(other, way, 1)
        assert (as_bytes(first), as_bytes(rest), learnt(other)) == expected


def slots(algo):
    return algo.get_state()["env_runners"]["slots"]


def test_a_runner_that_is_killed_while_it_asks_for_tasks_makes_no_difference(tmp_path):
    armed = tmp_path / "armed"

    def deadly(train_results, env, env_ctx):
        if (env_ctx.worker_index, env_ctx.vector_index) == (2, 3) and armed.exists():
            armed.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return env_ctx.vector_index + task_of_iteration(train_results, env, env_ctx)

    outcomes = []
    for should_kill in (False, True):
        with config("foreach_worker", 2, env_task_fn=deadly).build_algo() as algo:
            armed.touch() if should_kill else None
            results = [algo.train() for _ in range(2)]
            assert algo.env_runner_group.num_remote_worker_restarts() == int(should_kill)
            assert algo.env_runner_group.get_tasks() == [2, 3, 4, 5] * 2
            outcomes.append((as_bytes(results), learnt(algo)))
    assert outcomes[0] == outcomes[1]


def _forget_tasks(slot):
    del slot["tasks"]


def _forget_changes(slot):
    slot["tasks"] = [{**slot["tasks"][-1], "step": 0}]


def _forget_when(slot):
    slot["tasks"] = [{**entry, "step": 0} for entry in slot["tasks"]]


@pytest.mark.parametrize("forget", [_forget_tasks, _forget_changes, _forget_when])
def test_negative_control_without_its_tasks_an_episode_cannot_be_played_again(forget):
    way = "env_task_fn"
    with config(way, 0).build_algo() as algo:
        iterate(algo, way, 2)
        state = algo.get_state()
        assert any(len(slot["tasks"]) > 1 for slot in state["env_runners"]["slots"])
        with config(way, 0).build_algo() as other:
            other.set_state(state)
            assert other.train()["fault_tolerance/num_episodes_lost"] == 0
            for slot in state["env_runners"]["slots"]:
                forget(slot)
            other.set_state(state)
            assert other.train()["fault_tolerance/num_episodes_lost"] >= 3


def test_tasks_go_with_the_slots_into_another_number_of_runners(tmp_path):
    with config("foreach_worker", 2).build_algo() as algo:
        algo.train()
        algo.env_runner_group.set_tasks([1, 2, 3, 4, 5, 6, 7, 8])
        algo.save_to_path(tmp_path / "checkpoint")
        algo.train()
        expected = learnt(algo)
    for num_env_runners in (0, 1):
        with config("foreach_worker", num_env_runners).build_algo() as other:
            other.restore_from_path(tmp_path / "checkpoint")
            assert other.env_runner_group.get_tasks() == [1, 2, 3, 4, 5, 6, 7, 8]
            asked = other.env_runner_group.foreach_env(lambda env: env.unwrapped.get_task())
            assert asked == [[1, 2, 3, 4, 5, 6, 7, 8]]
            other.train()
            assert learnt(other) == expected


@pytest.mark.parametrize(("tasks", "of_fresh_slots"), [([4, 4], 4), ([4, 5], 0)])
def test_fresh_slots_have_the_task_of_all_others_or_else_the_first_one(tasks, of_fresh_slots):
    def sized(num_envs):
        return config("foreach_worker", 0).env_runners(num_envs_per_env_runner=num_envs)

    with sized(2).build_algo() as algo:
        algo.train()
        algo.env_runner_group.set_tasks(tasks)
        state = algo.get_state()
    with sized(3).build_algo() as other:
        other.env_runner_group.set_task(9)
        other.set_state(state)
        result = other.train()
        assert other.env_runner_group.get_tasks() == [*tasks, of_fresh_slots]
        assert set(result["env_runners/tasks_played"]) == {*tasks, of_fresh_slots}


def test_a_state_from_before_there_were_tasks_can_be_restored():
    with config("foreach_worker", 0).callbacks(None).build_algo() as algo:
        algo.train()
        state = algo.get_state()
        algo.train()
        expected = encode(algo.get_state()["learner"])
        for slot in state["env_runners"]["slots"]:
            del slot["tasks"]
            (slot["episode"] or {}).pop("task", None)
        for record in state["metrics"]["episodes"]["records"]:
            del record["task"]
        algo.env_runner_group.set_task(3)
        algo.set_state(state)
        assert algo.env_runner_group.get_tasks() == [0] * 8
        algo.train()
        assert encode(algo.get_state()["learner"]) == expected


def after_evaluation(train_results, env, env_ctx):
    evaluated_at = train_results["evaluation/evaluated_at_iteration"]
    assert evaluated_at == train_results["training_iteration"]
    assert "config" not in train_results
    return evaluated_at


def test_evaluation_comes_before_the_task_function_and_keeps_its_own_tasks(tmp_path):
    heard = []

    def hear(algorithm, result, **kwargs):
        heard.append(algorithm.env_runner_group.get_tasks())

    made = config("foreach_worker", 2, env_task_fn=after_evaluation).evaluation(
        evaluation_interval=1,
        evaluation_duration=3,
        evaluation_num_env_runners=1,
        evaluation_config={"env_config": {"task": 0.5}},
    )
    made.callbacks(on_train_result=hear)
    with made.build_algo() as algo:
        for iteration in range(2):
            result = algo.train()
            assert heard[-1] == [iteration + 1] * 8, "tasks are set before on_train_result"
            algo.env_runner_group.set_task(100 + iteration)
            assert set(result["evaluation/env_runners/tasks_played"]) == {0.5}
            assert result["evaluation/env_runners/task_stats/0.5/num_episodes"] == 3
        evaluation = algo.eval_env_runner_group
        evaluation.set_task(0.25)
        kill(evaluation, 1)
        assert set(algo.train()["evaluation/env_runners/tasks_played"]) == {0.25}
        algo.save_to_path(tmp_path / "checkpoint")
    with made.copy(copy_frozen=False).build_algo() as other:
        other.restore_from_path(tmp_path / "checkpoint")
        assert set(other.train()["evaluation/env_runners/tasks_played"]) == {0.25}


def test_a_task_that_is_set_while_the_runner_samples_is_not_lost():
    def set_task(**_):
        algo.env_runner_group.set_task(9)

    made = config("foreach_worker", 0).callbacks(Watching, on_sample_end=set_task)
    with made.build_algo() as algo:
        assert 9 not in algo.train()["env_runners/tasks_played"]
        assert algo.env_runner_group.get_tasks() == [9] * 8
        assert set(algo.train()["env_runners/tasks_played"]) == {9}


def test_an_iteration_that_is_undone_takes_its_tasks_back():
    def raises_later(algorithm, result, **kwargs):
        by_hand(algorithm)
        if result["training_iteration"] == 2 and not tried:
            tried.append(True)
            raise ValueError("not yet")

    tried = []
    outcomes = []
    for num_env_runners in (0, 2):
        for skip in ([True], []):
            tried[:] = skip
            made = config("env_task_fn", num_env_runners)
            with made.callbacks(Watching, on_train_result=raises_later).build_algo() as algo:
                algo.train()
                if not skip:
                    with pytest.raises(Exception, match="not yet"):
                        algo.train()
                    assert algo.env_runner_group.get_tasks() == [1] * 8
                algo.train()
                outcomes.append(learnt(algo))
    assert len(set(outcomes)) == 1


def test_the_example_reaches_the_longest_corridor(capsys):
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "curriculum.py"))
    levels = example["main"](iterations=12, num_env_runners=0)
    assert levels[0] == 0
    assert levels[-1] == 3
    assert "length 12" in capsys.readouterr().out

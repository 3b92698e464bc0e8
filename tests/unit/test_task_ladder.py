"""`TaskLadder` and the statistics by task: known answers."""

import copy
import math
from types import SimpleNamespace

import numpy as np
import pytest

from callbacks import CallbackConfigError, TaskLadder
from callbacks.ready_made.metric_values import task_name
from trainer import ResultDict
from trainer.metrics import EpisodeRecord, EpisodeStatistics


class Group:
    """What a ladder touches of an env runner group."""

    def __init__(self):
        self.set = []

    def set_task(self, task):
        if self.set[-1:] != [task]:
            self.set.append(task)


class Run:
    """Iterations whose episodes are given: (task, number, mean return) of each."""

    def __init__(self, ladder):
        self.ladder = ladder
        self.group = Group()
        self.algorithm = SimpleNamespace(
            env_runner_group=self.group, config=SimpleNamespace(env_task_fn=None)
        )
        ladder.on_algorithm_init(algorithm=self.algorithm)

    def iterate(self, *episodes):
        stats = {
            name: {"num_episodes": count, "episode_return_mean": mean}
            for name, count, mean in episodes
        }
        result = ResultDict({"env_runners": {"task_stats": stats} if stats else {}})
        self.ladder.on_train_result(algorithm=self.algorithm, result=result)
        return dict(result["curriculum"])


def ladder(**settings):
    given = {"promote_at": 1.0, "demote_below": 0.25, "min_episodes": 10, **settings}
    return TaskLadder(["easy", "middle", "hard"], **given)


def test_enough_good_episodes_lead_up_and_enough_bad_ones_down():
    run = Run(ladder())
    run.iterate(("easy", 9, 2.0))
    assert run.ladder.level == 0, "too few episodes"
    judged = run.iterate(("easy", 1, 2.0))
    assert judged == {"level": 0, "task": "easy", "num_episodes": 10, "episode_return_mean": 2.0}
    assert run.ladder.level == 1
    judged = run.iterate(("easy", 30, 2.0), ("middle", 4, 0.0))
    assert judged == {"level": 1, "task": "middle", "num_episodes": 4, "episode_return_mean": 0.0}
    assert run.ladder.level == 1, "episodes of the task before do not count"
    run.iterate(("middle", 6, 0.5))
    assert run.ladder.level == 1, "(4·0 + 6·0.5) / 10 = 0.3 lies within the margin"
    run.iterate(("middle", 10, 0.1))
    assert run.ladder.level == 0, "the oldest iterations are left out: 0.1"
    assert run.group.set == ["easy", "middle", "easy"]


@pytest.mark.parametrize(
    ("mean", "level"), [(1.0, 2), (0.999, 1), (0.25, 1), (0.249, 0), (math.nan, 1)]
)
def test_the_bounds_are_at_least_and_below(mean, level):
    run = Run(ladder())
    run.iterate(("easy", 10, 1.0))
    run.iterate(("middle", 10, mean))
    assert run.ladder.level == level


def test_the_ends_of_the_ladder_are_the_end():
    run = Run(ladder(min_episodes=1))
    run.iterate(("easy", 1, -9.0))
    assert run.ladder.level == 0
    for task in ("easy", "middle", "hard", "hard"):
        run.iterate((task, 1, 9.0))
    assert run.ladder.level == 2
    assert run.ladder.task == "hard"


def test_bounds_may_differ_by_task_and_demotion_is_optional():
    run = Run(ladder(promote_at=[1.0, 5.0], demote_below=None, min_episodes=1))
    for episodes in (("easy", 1, 1.0), ("middle", 1, 4.0), ("middle", 1, -4.0)):
        run.iterate(episodes)
    assert run.ladder.level == 1
    run.iterate(("middle", 1, 5.0))
    assert run.ladder.level == 2


def test_an_iteration_without_episodes_decides_nothing():
    run = Run(ladder(min_episodes=1))
    judged = run.iterate()
    assert judged["num_episodes"] == 0
    assert math.isnan(judged["episode_return_mean"])
    assert run.ladder.level == 0


def test_a_restored_ladder_goes_on_where_it_stood():
    run = Run(ladder())
    run.iterate(("easy", 10, 2.0))
    run.iterate(("middle", 6, 2.0))
    other = Run(ladder())
    other.ladder.set_state(copy.deepcopy(run.ladder.get_state()))
    other.ladder.on_checkpoint_loaded(algorithm=other.algorithm)
    assert other.group.set == ["easy", "middle"]
    for one in (run, other):
        one.iterate(("middle", 4, 2.0))
        assert one.ladder.level == 2


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"tasks": "abc"}, "a list of at least two tasks"),
        ({"tasks": [1, "1"]}, "cannot tell two of them apart"),
        ({"tasks": [None, 1, 2]}, "None is no task"),
        ({"min_episodes": 0}, "`min_episodes=0` must be an int of at least 1"),
        ({"promote_at": "much"}, "`promote_at='much'` must be a finite number"),
        ({"promote_at": [1.0]}, "has 1 bounds; 3 tasks need 2"),
        ({"demote_below": 1.0}, "so that there is a margin"),
        ({"promote_at": [1, 3], "demote_below": [3, 1]}, "so that there is a margin"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, problem):
    given = {"tasks": [1, 2, 3], "promote_at": 1.0, "demote_below": 0.5, **settings}
    with pytest.raises(CallbackConfigError) as caught:
        TaskLadder(given.pop("tasks"), **given)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("easy", "easy"),
        ("a/b", "a|b"),
        ("", "''"),
        (3, "3"),
        (np.float64(0.5), "0.5"),
        (np.array([1, 2]), "[1, 2]"),
        ({"size": 4}, "{'size': 4}"),
        ("x" * 99, "x" * 60 + "…"),
        (Group(), f"<{__name__}.Group object>"),  # an address differs from process to process
    ],
)
def test_tasks_have_short_names_without_slashes(task, name):
    assert task_name(task) == name


def test_statistics_by_task_are_those_of_this_iterations_episodes():
    statistics = EpisodeStatistics(smoothing=100)
    statistics.add([EpisodeRecord("a", 5.0, 3, task=9)])
    statistics.begin_iteration()
    assert "task_stats" not in statistics.result()
    records = [(1, 1.0, 2), (2, 7.0, 4), (1, 2.0, 5), (None, 99.0, 9)]
    statistics.add(
        [
            EpisodeRecord(f"e{n}", value, length, task=t)
            for n, (t, value, length) in enumerate(records)
        ]
    )
    expected = {
        "1": {"num_episodes": 2, "episode_return_mean": 1.5, "episode_len_mean": 3.5},
        "2": {"num_episodes": 1, "episode_return_mean": 7.0, "episode_len_mean": 4.0},
    }
    assert statistics.result()["task_stats"] == expected
    restored = EpisodeStatistics(smoothing=100)
    restored.set_state(statistics.get_state())
    assert restored.result()["task_stats"] == expected

"""Where the time of an iteration went."""

from types import SimpleNamespace

import pytest

from tests.small_runs import small_ppo
from trainer.algorithms import time_split
from trainer.algorithms.time_split import CALLBACKS, PARTS, SAVING, TimeBetween, split_of
from trainer.algorithms.training_iteration import Counters, IterationResult
from trainer.env_runners.messages import PlayTimes


def test_parts_are_those_of_the_timers_and_add_up():
    timers = {
        "env_runner_sampling_timer": 6.0,
        "learner_update_timer": 2.0,
        "synch_weights": 0.25,
        "replay_buffer_add_timer": 0.5,
        "evaluation_iteration": 1.0,
    }
    times = PlayTimes(env_step=4.0, env_reset=1.0, inference=2.0, callbacks=1.0)
    parts = split_of(11.0, timers, times, num_runners=2, since={CALLBACKS: 0.25, SAVING: 3.0})
    assert parts == {
        "env": 2.5,
        "acting": 1.0,
        "callbacks": 0.5 + 0.25,
        "transport": 2.0,
        "learning": 2.75,
        "evaluation": 1.0,
        "saving": 3.0,
        "other": 1.25,
    }
    assert list(parts) == list(PARTS)
    assert sum(parts.values()) == 11.0 + 0.25 + 3.0


def test_parts_add_up_where_runners_play_while_training_does_something_else():
    timers = {"env_runner_sampling_timer": 2.0, "learner_update_timer": 6.0}
    times = PlayTimes(env_step=8.0, env_reset=2.0, inference=5.0, callbacks=5.0)
    parts = split_of(9.0, timers, times, num_runners=2, since={})
    assert [parts[name] for name in ("env", "acting", "callbacks")] == [1.0, 0.5, 0.5]
    assert parts["transport"] == 0.0
    assert sum(parts.values()) == 9.0


def test_lost_runners_do_not_make_the_parts_of_the_others_smaller():
    result = IterationResult(Counters(("m",)), ("m",), has_several=False)
    group = SimpleNamespace(
        num_remote_env_runners=lambda: 4,
        num_healthy_remote_workers=lambda: 2,
        num_remote_worker_restarts=lambda: 0,
        num_sub_environment_restarts=lambda: 0,
        num_dropped_ahead=0,
        num_cpu_kinds=lambda: 1,
    )
    result.add_group(group)
    assert result._num_runners == 2


def test_saving_within_a_callback_counts_once(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time_split, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    between = TimeBetween()
    with between.spent_on(CALLBACKS):
        now[0] += 1.0
        with between.spent_on(SAVING):
            now[0] += 5.0
    with between.spent_on(SAVING):
        now[0] += 2.0
    assert between.take() == {CALLBACKS: 1.0, SAVING: 7.0}
    assert between.take() == {CALLBACKS: 0.0, SAVING: 0.0}


def test_results_show_where_the_time_went(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time_split, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def on_train_result(*, algorithm, **_):
        now[0] += 100.0
        algorithm.after_train_result(lambda _: None)

    with small_ppo().callbacks(on_train_result=on_train_result).build_algo() as algo:
        first = algo.train()["timers"]
        algo.save_to_path(tmp_path / "c")
        second = algo.train()["timers"]
    assert set(first["split"]) == set(PARTS)
    assert first["split"]["callbacks"] < 100.0 <= second["split"]["callbacks"]
    assert sum(first["split"].values()) == pytest.approx(first["training_iteration"])
    assert all(seconds >= 0.0 for seconds in second["split"].values())

"""Callbacks of experiments: what they are told, their states, and loggers that talk to services."""

import json
import logging
import sys
import threading
import types

import pytest

from trainer import tune
from trainer.tune import callbacks as tune_callbacks
from trainer.tune.callbacks import _GIVEN, CallbackCaller
from trainer.tune.logger import (
    MLflowLoggerCallback,
    TrackioLoggerCallback,
    WandbLoggerCallback,
)


def reports(config):
    for step in range(3):
        tune.report({"loss": config["x"] + step, "name": "text", "inner": {"n": step}})


def run(folder, *callbacks, num_samples=2):
    """An experiment, begun or gone on with and extended."""
    tune_config = tune.TuneConfig(num_samples=num_samples, in_process=True, seed=0)
    run_config = tune.RunConfig(storage_path=folder, name="x", verbose=0, callbacks=list(callbacks))
    space = {"x": tune.choice([1, 2])}
    if tune.Tuner.can_restore(folder / "x"):
        restored = tune.Tuner.restore(
            folder / "x", reports, param_space=space, tune_config=tune_config,
            run_config=run_config,
        )  # fmt: skip
        return restored.fit()
    return tune.Tuner(
        reports, param_space=space, tune_config=tune_config, run_config=run_config
    ).fit()


class Counting(tune.Callback):
    """Has a state, and notes the order in which it is given things."""

    def __init__(self):
        self.count, self.told = 0, []

    def setup(self, num_samples, total_num_samples, **info):
        self.told.append(("setup", num_samples, total_num_samples))

    def on_trial_result(self, **info):
        self.count += 1

    def get_state(self):
        return {"count": self.count}

    def set_state(self, state):
        self.told.append(("state", state["count"]))
        self.count = state["count"]


def test_states_of_callbacks_go_on_with_a_restored_experiment(tmp_path):
    first, second = Counting(), Counting()
    run(tmp_path, first)
    assert (first.count, first.told) == (6, [("setup", 2, 2)])
    run(tmp_path, second, num_samples=3)
    assert second.told[-1] == ("state", 6)
    assert second.count == 9


def test_states_that_cannot_be_written_leave_what_was_there_and_no_draft(tmp_path):
    (tmp_path / "callbacks.msgpack").mkdir()
    with pytest.raises(OSError, match="callbacks"):
        CallbackCaller([Counting()]).save(tmp_path, num_delivered=0, iteration=0)
    assert [path.name for path in tmp_path.iterdir()] == ["callbacks.msgpack"]


def test_a_callback_without_a_state_costs_no_file(tmp_path):
    run(tmp_path, tune.Callback())
    assert not (tmp_path / "x" / "callbacks.msgpack").exists()


def test_events_are_given_what_their_table_says(tmp_path):
    told = {}

    def note(name):
        return lambda self, **info: told.setdefault(name, {*info})

    listener = type("Listener", (tune.Callback,), {name: note(name) for name in _GIVEN})
    run(tmp_path, listener())
    assert len(told) >= 7
    assert told == {name: {*_GIVEN[name]} for name in told}


# ---- services


class Service(types.ModuleType):
    """Stands for wandb or trackio: notes what it is told."""

    def __init__(self, name):
        super().__init__(name)
        self.inits = []
        self.rows = []
        self.ends = []

    def init(self, **given):
        self.inits.append(given)
        run_id = given.get("id", given["name"])
        return types.SimpleNamespace(
            log=lambda row, step: self.rows.append((run_id, row, step)),
            finish=lambda **how: self.ends.append((run_id, how)),
        )


@pytest.mark.parametrize(
    ("name", "logger", "end"),
    [("wandb", WandbLoggerCallback, {"exit_code": 0}), ("trackio", TrackioLoggerCallback, {})],
)
def test_every_trial_is_a_run_of_the_service(tmp_path, monkeypatch, name, logger, end):
    service = Service(name)
    monkeypatch.setitem(sys.modules, name, service)
    grid = run(tmp_path, logger(project="p"))
    # Each trial is sent by a thread of its own: between two of them there is no order.
    inits = sorted(service.inits, key=lambda given: given["name"])
    assert [given["config"] for given in inits] == [dict(r.params) for r in grid]
    assert [given["group"] for given in inits] == ["x", "x"]
    sent = sorted(service.rows, key=lambda each: each[0])
    rows = [(run_id, row["loss"], row["inner/n"], step) for run_id, row, step in sent]
    x = [result.params["x"] for result in grid]
    assert rows == [
        (f"x-{n:05d}", x[n] + step, step, step + 1) for n in range(2) for step in range(3)
    ]
    assert all("name" not in row for _, row, _ in service.rows)
    assert sorted(service.ends) == [("x-00000", end), ("x-00001", end)]


def test_a_service_that_hangs_or_fails_delays_nothing(tmp_path, monkeypatch, caplog):
    hanging, failing, release = Service("wandb"), Service("trackio"), threading.Event()
    begun = threading.Event()

    def hang(**given):
        begun.set()
        release.wait(30)
        return Service("wandb").init(**given)

    hanging.init = hang
    failing.init = lambda **given: 1 / 0
    monkeypatch.setitem(sys.modules, "wandb", hanging)
    monkeypatch.setitem(sys.modules, "trackio", failing)
    monkeypatch.setattr(tune_callbacks, "_PATIENCE_S", 0.05)
    loggers = [TrackioLoggerCallback(), WandbLoggerCallback()]
    with caplog.at_level(logging.WARNING):
        grid = run(tmp_path, *loggers)
        assert begun.is_set()
        release.set()
        assert all(logger._thread.flush(30) for logger in loggers)
    assert [len(result.rows()) for result in grid] == [3, 3]
    assert caplog.text.count("TrackioService could not be brought up to date") == 1
    assert "ZeroDivisionError" in caplog.text
    assert "WandbService" not in caplog.text
    loggers[0]._thread.abandon()


def read_back(folder):
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.glob("x/trials/*/progress.csv"))
    }


def test_trials_that_ended_before_a_kill_get_what_they_lack_after_it(tmp_path, monkeypatch):
    service = Service("wandb")
    monkeypatch.setitem(sys.modules, "wandb", service)
    run(tmp_path, tune.logger.CSVLoggerCallback(), WandbLoggerCallback())
    tables, rows = read_back(tmp_path), list(service.rows)
    assert [text.count("\n") for text in tables.values()] == [4, 4]
    for bookmark in tmp_path.glob("x/trials/*/*.bookmark"):
        known = json.loads(bookmark.read_text())
        known["bookmarks"] = known["bookmarks"][:1]  # as if it had been killed behind the first row
        known |= {"sent": 1} if "sent" in known else {}
        bookmark.write_text(json.dumps(known))
    service.rows.clear()
    run(tmp_path, tune.logger.CSVLoggerCallback(), WandbLoggerCallback(), num_samples=2)
    assert read_back(tmp_path) == tables
    assert sorted(service.rows, key=str) == sorted((row for row in rows if row[2] > 1), key=str)


def test_loggers_of_one_class_have_bookmarks_of_their_own(tmp_path, monkeypatch):
    service = Service("wandb")
    monkeypatch.setitem(sys.modules, "wandb", service)
    run(tmp_path, WandbLoggerCallback(project="a"), WandbLoggerCallback(project="b"))
    assert sorted(given["project"] for given in service.inits) == ["a", "a", "b", "b"]
    assert len(service.rows) == 12


def test_a_missing_package_is_told_when_the_logger_is_made(monkeypatch):
    for name, logger in (
        ("wandb", WandbLoggerCallback), ("trackio", TrackioLoggerCallback),
        ("mlflow", MLflowLoggerCallback),
    ):  # fmt: skip
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(ImportError, match=rf"local-trainer\[{name}\]"):
            logger()

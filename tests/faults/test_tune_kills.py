"""Kill a trial, the tuner or both at any moment and restore: the same experiment comes of it."""

import contextlib
import functools
import hashlib
import logging
import os
import random
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from checkpoints import decode
from trainer import tune
from trainer.errors import ConfigError, JournalError
from trainer.metrics import comparable
from trainer.testing import wait_until
from trainer.tune import journal_file, trial_handler
from trainer.tune.callbacks import CallbackCaller
from trainer.tune.journal_file import JournalFile, line_of, read_journal
from trainer.tune.lanes import Deaths, Lane, Patience

SEED = 20261122


class Walk(tune.Trainable):
    """Its state is a sum of random numbers of the global generator."""

    def setup(self, config):
        self.x, self.sum = config["x"], 0.0

    def step(self):
        self.sum += self.x + float(np.random.rand())  # noqa: NPY002 - what users do
        return {"loss": self.sum}

    def save_checkpoint(self, checkpoint_dir):
        del checkpoint_dir
        return {"sum": self.sum}

    def load_checkpoint(self, checkpoint):
        self.sum = checkpoint["sum"]


def walk_function(config):
    """The same as a function that reports checkpoints with every other row."""
    found = tune.get_checkpoint()
    at, total = (0, 0.0) if found is None else (found.data()["at"], found.data()["sum"])
    for step in range(at + 1, 9):
        total += config["x"] + float(np.random.rand())  # noqa: NPY002
        checkpoint = tune.Checkpoint.from_data({"at": step, "sum": total}) if step % 2 else None
        tune.report({"loss": total}, checkpoint=checkpoint)


def saving_function(config):
    """A function that reports a checkpoint with every row.

    In an experiment named "killed", trial 1 is killed at row 4; trial 0 makes its first row, before
    which nothing is decided, when trial 1 has made its rows again.
    """
    context, found = tune.get_context(), tune.get_checkpoint()
    folder = Path(context.trial_dir)
    killed = context.trial_number if context.experiment_name == "killed" else None
    if killed == 0:
        wait_until(lambda: len(list(folder.with_name("00001").glob("at-4-*"))) == 2)
    at, total = (0, 0.0) if found is None else (found.data()["at"], found.data()["sum"])
    while True:
        at, total = at + 1, total + config["x"] + float(np.random.rand())  # noqa: NPY002
        (folder / f"at-{at}-{os.getpid()}").touch()
        if killed == 1 and at == 4 and len(list(folder.glob("at-4-*"))) == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        checkpoint = tune.Checkpoint.from_data({"at": at, "sum": total})
        tune.report({"loss": total}, checkpoint=checkpoint)


SCHEDULERS = {
    "fifo": lambda: None,
    "asha": lambda: tune.ASHAScheduler(max_t=9, grace_period=1, reduction_factor=2),
    "hyperband": lambda: tune.HyperBandScheduler(max_t=9),
    "pbt": lambda: tune.PopulationBasedTraining(
        perturbation_interval=2, hyperparam_mutations={"x": tune.uniform(0, 10)}
    ),
}


@pytest.fixture(autouse=True)
def quick_and_quiet(monkeypatch):
    """A kill of a process loses nothing that was written: no disk need be waited for."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    for name in ("journal_file", "trial_records", "experiment", "tuner"):
        monkeypatch.setattr(logging.getLogger(f"trainer.tune.{name}"), "disabled", True)


def tuner(folder, trainable=Walk, *, kind="fifo", **more):
    """A tuner in a folder, new or restored."""
    if tune.Tuner.can_restore(folder):
        return tune.Tuner.restore(folder, trainable)
    return tune.Tuner(
        trainable,
        param_space={"x": tune.uniform(0, 10)},
        tune_config=tune.TuneConfig(
            num_samples=6,
            metric="loss",
            mode="min",
            seed=0,
            in_process=more.get("in_process", True),
            max_concurrent_trials=more.get("num_lanes", 3),
            scheduler=more["scheduler"] if "scheduler" in more else SCHEDULERS[kind](),
            max_run_ahead=more.get("max_run_ahead"),
        ),
        run_config=tune.RunConfig(
            storage_path=folder.parent,
            name=folder.name,
            verbose=0,
            recovery_interval_s=more.get("recovery_interval_s", 0.0),
            stop={"training_iteration": more.get("stop_at", 8)},
            checkpoint_config=more.get("checkpoint_config"),
        ),
    )


def outcome(grid):
    """What the promise is about: trials, configs, rows without clocks, files of checkpoints."""
    assert grid.is_exact, grid.inexact_reasons
    return [
        (
            result.number,
            result.config,
            result.status,
            result.stop_reason,
            [comparable(row, also_drop=("node_ip",)) for row in result.rows()],
            {
                saved.name: sorted(
                    (file.name, hashlib.sha256(file.read_bytes()).hexdigest())
                    for file in (Path(result.path) / "checkpoints" / saved.name).iterdir()
                )
                for saved in result.saved
            },
        )
        for result in grid
    ]


def die_at_write(number, *, is_before):
    """Ends this process at a write to the journal."""
    append, count = JournalFile.append, [0]

    def dying(self, entries):
        entries = list(entries)
        count[0] += bool(entries)
        if is_before and count[0] == number:
            os._exit(9)
        append(self, entries)
        if entries and count[0] == number:
            os._exit(9)

    journal_file.JournalFile.append = dying  # in a forked copy


def killed_run(make, number, *, is_before):
    """Runs a tuner in a process that dies at a write; returns whether it came so far."""
    pid = os.fork()
    if pid == 0:
        try:
            die_at_write(number, is_before=is_before)
            make().fit()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9


def check_kill(tmp_path, trainable, kind, number, expected):
    """Kills before and after a write, once more after the restore, and compares."""
    for is_before in (True, False):
        folder = tmp_path / f"{kind}-{number}-{is_before}"
        make = functools.partial(tuner, folder, trainable, kind=kind)
        if not killed_run(make, number, is_before=is_before):
            return False
        killed_run(make, max(2, number // 2), is_before=not is_before)
        assert outcome(make().fit()) == expected, (kind, number, is_before)
    return True


@pytest.mark.parametrize("kind", SCHEDULERS)
def test_a_tuner_killed_at_some_writes_ends_with_the_same_experiment(tmp_path, kind):
    expected = outcome(tuner(tmp_path / "undisturbed", kind=kind).fit())
    number = random.Random(f"{SEED} {kind}").randrange(2, 50)
    assert check_kill(tmp_path, Walk, kind, number, expected)


@pytest.mark.slow
@pytest.mark.parametrize("trainable", [Walk, walk_function])
@pytest.mark.parametrize("kind", SCHEDULERS)
def test_a_tuner_killed_at_any_write_ends_with_the_same_experiment(tmp_path, kind, trainable):
    if kind in ("pbt", "hyperband") and trainable is walk_function:
        pytest.skip("such schedulers need a checkpoint with each row that they pause after")
    expected = outcome(tuner(tmp_path / "undisturbed", trainable, kind=kind).fit())
    numbers = random.Random(f"{SEED} {kind} all").sample(range(1, 60), 25)
    num_kills = sum(check_kill(tmp_path, trainable, kind, each, expected) for each in numbers)
    assert num_kills > 10


def test_a_function_killed_at_some_writes_ends_with_the_same_experiment(tmp_path):
    expected = outcome(tuner(tmp_path / "undisturbed", walk_function).fit())
    for number in random.Random(SEED).sample(range(2, 40), 1):
        check_kill(tmp_path, walk_function, "fifo", number, expected)


@pytest.mark.parametrize("number", [50, 80])
def test_copies_outlive_the_checkpoints_that_they_were_made_of(tmp_path, number):
    def make(name):
        scheduler = tune.PopulationBasedTraining(
            perturbation_interval=2, hyperparam_mutations={"x": tune.uniform(0, 10)}, synch=False
        )
        keeping = tune.CheckpointConfig(checkpoint_frequency=1, num_to_keep=1)
        return tuner(tmp_path / name, scheduler=scheduler, checkpoint_config=keeping)

    expected = outcome(make("undisturbed").fit())
    assert killed_run(functools.partial(make, "killed"), number, is_before=False)
    clones = {
        entry["trial"]: f"trials/{entry['donor']:05d}/checkpoints/{entry['donor_row']:06d}"
        for move in lines_of(tmp_path / "killed")
        for entry in move.get("then", [])
        if entry["event"] == "clone"
    }
    assert not all((tmp_path / "killed" / source).is_dir() for source in clones.values())
    assert outcome(make("killed").fit()) == expected


@pytest.mark.process
def test_what_a_function_reported_before_it_was_decided_on_outlives_its_process(tmp_path):
    def make(name):
        return tuner(tmp_path / name, saving_function, kind="asha", in_process=False, num_lanes=2,
                     max_run_ahead=3, stop_at=4)  # fmt: skip

    assert outcome(make("killed").fit()) == outcome(make("undisturbed").fit())


@pytest.mark.parametrize(("kind", "number"), [("fifo", 17), ("hyperband", 9)])
def test_what_a_function_reported_and_lost_is_made_again(tmp_path, kind, number):
    """As if all had been killed while a function made a row once more that was decided on."""
    expected = outcome(tuner(tmp_path / "undisturbed", saving_function, kind=kind).fit())
    make = functools.partial(tuner, tmp_path / "experiment", saving_function, kind=kind)
    assert killed_run(make, number, is_before=False)  # at the end of a trial, at a pause
    reported = list((tmp_path / "experiment").glob("trials/*/checkpoints/.pending-*"))
    for folder in reported:
        shutil.rmtree(folder)
    assert reported
    assert outcome(make().fit()) == expected


def run_with_kills(monkeypatch, tuner, seed):
    """The outcome of an experiment whose trials' processes are killed; and how often.

    Whether a call is survived is drawn when it is made, not when a clock says so: a machine under
    load neither ends before the first kill, nor kills a row so often that it is given up.
    """
    rng, kills = random.Random(seed), [0]

    def deadly(method):
        @functools.wraps(method)
        def called(lane, *given):
            method(lane, *given)
            identity = lane.place.identity
            pid = None if identity is None else identity.pid
            if pid is not None and rng.random() < 0.2:
                time.sleep(rng.random() * 0.01)  # at the beginning of the call, or in its midst
                with contextlib.suppress(ProcessLookupError):  # its end has not been heard of
                    os.kill(pid, signal.SIGKILL)
                    kills[0] += 1

        return called

    with monkeypatch.context() as patch:
        for name in ("_ask", "_start_process"):
            patch.setattr(Lane, name, deadly(getattr(Lane, name)))
        return outcome(tuner.fit()), kills[0]


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("kind", ["asha", "pbt"])
def test_killed_trials_change_nothing(tmp_path, monkeypatch, kind):
    expected = outcome(tuner(tmp_path / "undisturbed", kind=kind).fit())
    killed = tuner(tmp_path / "killed", kind=kind, in_process=False, recovery_interval_s=0.1)
    found, num_kills = run_with_kills(monkeypatch, killed, SEED)
    assert found == expected
    assert num_kills > 3


# ---- lanes and delays


@pytest.mark.parametrize("num_lanes", [1, 2, 4])
def test_trials_are_the_same_with_any_number_of_lanes_where_none_is_compared(tmp_path, num_lanes):
    expected = outcome(tuner(tmp_path / "three").fit())
    assert outcome(tuner(tmp_path / "others", num_lanes=num_lanes).fit()) == expected


class Delayed(Walk):
    """Takes its time with some rows, otherwise in every run."""

    def step(self):
        time.sleep(random.SystemRandom().choice([0, 0, 0.002, 0.05]))
        return super().step()


@pytest.mark.process
@pytest.mark.parametrize(
    "kind", ["asha", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("pbt", "hyperband"))]
)
def test_turns_make_an_experiment_the_same_however_long_trials_take(tmp_path, kind):
    expected = outcome(tuner(tmp_path / "undisturbed", kind=kind).fit())
    found = outcome(tuner(tmp_path / "delayed", Delayed, kind=kind, in_process=False).fit())
    assert found == expected


# ---- negative controls


def test_without_seeds_by_position_a_kill_shows(tmp_path, monkeypatch):
    monkeypatch.setattr(trial_handler.TrialHandler, "_seed_globals", lambda *_: None)
    first = outcome(tuner(tmp_path / "one", kind="asha").fit())
    make = functools.partial(tuner, tmp_path / "two", kind="asha")
    assert killed_run(make, 40, is_before=False)
    grid = make().fit()
    assert not grid.is_exact or outcome(grid) != first


def lines_of(folder):
    return read_journal(folder / "journal.jsonl")[0]


def test_an_entry_that_is_missing_in_the_journal_is_found(tmp_path):
    folder = tmp_path / "experiment"
    tuner(folder, kind="asha").fit()
    lines = lines_of(folder)
    reports = [index for index, move in enumerate(lines) if "row" in move.get("cause", {})]
    del lines[reports[3]]
    (folder / "journal.jsonl").write_bytes(b"".join(map(line_of, lines)))
    restored = tuner(folder)
    with pytest.raises(JournalError):
        restored.get_results()


def ends_a_trial(move):
    return any(each["event"] == "end" for each in move.get("then", []))


def test_a_journal_that_is_refused_is_left_as_it_is(tmp_path):
    """Also where its last rows were lost, so that it would be cut."""
    folder = tmp_path / "experiment"
    tuner(folder, kind="asha").fit()
    lines = lines_of(folder)
    reports = [index for index, move in enumerate(lines) if "row" in move.get("cause", {})]
    last = next(index for index in reports[4:] if not ends_a_trial(lines[index]))
    kept = lines[: last + 1]
    del kept[reports[1]]
    (folder / "journal.jsonl").write_bytes(b"".join(map(line_of, kept)))
    trial = f"{lines[last]['cause']['trial']:05d}"
    (folder / "trials" / trial / "results.jsonl").write_bytes(b"")
    before = (folder / "journal.jsonl").read_bytes()
    with pytest.raises(JournalError, match="cannot be followed, move"):
        tuner(folder).fit()
    assert (folder / "journal.jsonl").read_bytes() == before


# ---- damage


def test_a_torn_line_is_told_when_it_was_dropped(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger(JournalFile.__module__), "disabled", False)
    path = tmp_path / "journal.jsonl"
    path.write_bytes(line_of({"event": "header"}) + line_of({"then": []})[:-9])
    assert read_journal(path)[0] == [{"event": "header"}]
    assert caplog.messages == []
    assert JournalFile(path).read() == [{"event": "header"}]
    assert path.read_bytes() == line_of({"event": "header"})
    (message,) = caplog.messages
    assert "was dropped" in message


def test_a_journal_that_is_cut_anywhere_goes_on_to_the_same_end(tmp_path):
    folder = tmp_path / "experiment"
    expected = outcome(tuner(folder, kind="asha", recovery_interval_s=None).fit())
    whole = (folder / "journal.jsonl").read_bytes()
    header = whole.index(b"\n") + 1
    for size in random.Random(SEED).sample(range(header, len(whole)), 6):
        (folder / "journal.jsonl").write_bytes(whole[:size])
        assert outcome(tuner(folder).fit()) == expected, size


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.slow), 97])
def test_a_journal_cut_at_any_byte_holds_the_entries_before_it(tmp_path, every):
    folder = tmp_path / "experiment"
    tuner(folder, stop_at=2).fit()
    whole = (folder / "journal.jsonl").read_bytes()
    lines, ends = whole.splitlines(keepends=True), [0]
    for line in lines:
        ends.append(ends[-1] + len(line))
    entries = lines_of(folder)
    cut = tmp_path / "cut.jsonl"
    for size in sorted({*range(0, len(whole), every), *ends[:-1]}):
        cut.write_bytes(whole[:size])
        number = sum(end <= size for end in ends) - 1
        assert read_journal(cut) == (entries[:number], ends[number]), size


def test_a_journal_cut_in_its_header_holds_no_experiment(tmp_path):
    folder = tmp_path / "experiment"
    expected = outcome(tuner(folder).fit())
    whole = (folder / "journal.jsonl").read_bytes()
    (folder / "journal.jsonl").write_bytes(whole[:100])
    assert not tune.Tuner.can_restore(folder)
    assert outcome(tuner(folder).fit()) == expected


def test_a_changed_byte_in_the_middle_is_an_error_that_names_the_line(tmp_path):
    folder = tmp_path / "experiment"
    tuner(folder).fit()
    lines = (folder / "journal.jsonl").read_bytes().splitlines(keepends=True)
    lines[4] = lines[4].replace(b'"trial"', b'"trail"')
    (folder / "journal.jsonl").write_bytes(b"".join(lines))
    with pytest.raises(JournalError, match="Line 5"):
        tune.Tuner.restore(folder, Walk)


def test_two_tuners_in_one_folder_are_refused(tmp_path):
    folder = tmp_path / "experiment"
    errors = []

    class Second(tune.Callback):
        def on_trial_result(self, **info):
            if not errors:
                try:
                    tuner(folder).fit()
                except ConfigError as error:
                    errors.append(str(error))

    first = tuner(folder)
    first._setup.run_config = tune.RunConfig(
        storage_path=tmp_path, name="experiment", verbose=0, callbacks=[Second()],
        stop={"training_iteration": 2},
    )  # fmt: skip
    first.fit()
    assert "in use" in errors[0]


def test_a_full_disk_stops_the_experiment_which_goes_on_later(tmp_path, monkeypatch):
    expected = outcome(tuner(tmp_path / "undisturbed", kind="asha").fit())
    folder, write = tmp_path / "experiment", os.write
    left = [3000]

    def full(descriptor, data):
        left[0] -= len(data)
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        return write(descriptor, data)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(JournalError, match="No space left"):
            tuner(folder, kind="asha").fit()
    assert outcome(tuner(folder).fit()) == expected


def test_checkpoints_that_are_damaged_are_made_again(tmp_path):
    folder = tmp_path / "experiment"
    make = functools.partial(tuner, folder)
    assert killed_run(make, 40, is_before=False)
    for file in folder.glob("trials/*/checkpoints/*/tune_data.msgpack"):
        file.write_bytes(b"damaged")
    expected = outcome(tuner(tmp_path / "undisturbed").fit())
    found = outcome(make().fit())
    assert [entry[:5] for entry in found] == [entry[:5] for entry in expected]


# ---- processes that die again and again


class Lost:
    """As of a process that ended."""

    def __init__(self, *, was_killed, stalled_s=None):
        self.was_killed, self.stalled_s = was_killed, stalled_s

    def describe(self):
        return "was lost"


@pytest.mark.parametrize(
    ("was_killed", "was_starting", "expected"),
    [(False, False, 3), (False, True, 3), (True, False, 10)],
)
def test_a_process_that_dies_too_often_is_given_up(was_killed, was_starting, expected):
    deaths = Deaths(Patience(crashes=3, kills=10))
    num_deaths = 1
    while not deaths.add(Lost(was_killed=was_killed), row_number=3, was_starting=was_starting):
        num_deaths += 1
    assert num_deaths == expected


def test_a_row_makes_good_what_died_before():
    deaths = Deaths(Patience())
    for _ in range(5):
        assert not deaths.add(Lost(was_killed=False), row_number=3, was_starting=False)
        assert not deaths.add(Lost(was_killed=False), row_number=3, was_starting=False)
        deaths.row_made()


class Crashing(Walk):
    """Ends its process in row 3 if x is large."""

    def step(self):
        if self.iteration == 2 and self.x > 5:
            os._exit(3)
        return super().step()


@pytest.mark.process
def test_a_trial_that_ends_its_process_fails_and_others_are_unharmed(tmp_path):
    grid = tuner(tmp_path / "experiment", Crashing, in_process=False).fit()
    for result in grid:
        assert len(result.rows()) == (2 if result.config["x"] > 5 else 8)
        assert (result.error is None) == (result.config["x"] <= 5)
    assert "died 3 times at report 3" in str(grid.errors[0])
    assert "exit code 3" in str(grid.errors[0])


class Remembers(tune.Callback):
    """Its state is all that it was told, in order; what a kill adds is not a part of it."""

    def __init__(self):
        self.told = []
        self.saves = []

    def on_trial_start(self, trial, **info):
        self.told.append(["start", trial.number])

    def on_trial_result(self, trial, result, **info):
        row = [result["training_iteration"], result["loss"]]
        self.told.append(["result", trial.number, *row])

    def on_trial_complete(self, trial, **info):
        self.told.append(["complete", trial.number, trial.status])

    def on_checkpoint(self, trial, checkpoint, **info):
        self.saves.append(f"{trial.number} {Path(checkpoint.path).name}")

    def get_state(self):
        # When a checkpoint is there follows the clock; how many there are does not.
        return {"told": list(self.told), "saves": sorted(self.saves)}

    def set_state(self, state):
        self.told, self.saves = list(state["told"]), list(state["saves"])


def remembering(folder, kind):
    running = tune.RunConfig(
        storage_path=folder.parent,
        name=folder.name,
        verbose=0,
        stop={"training_iteration": 5},
        callbacks=[Remembers()],
    )
    if tune.Tuner.can_restore(folder):
        again = tune.RunConfig(callbacks=[Remembers()])
        return tune.Tuner.restore(folder, Walk, run_config=again)
    tuning = tune.TuneConfig(
        num_samples=4,
        metric="loss",
        mode="min",
        seed=0,
        in_process=True,
        max_concurrent_trials=2,
        scheduler=SCHEDULERS[kind](),
    )
    space = {"x": tune.uniform(0, 10)}
    return tune.Tuner(Walk, param_space=space, tune_config=tuning, run_config=running)


def remembered(folder):
    return decode((folder / "callbacks.msgpack").read_bytes())["states"]


def die_while_telling(number):
    """Ends this process at a moment around journal, callbacks and their states: the number-th."""
    count = [0]

    def dying_at(owner, name):
        method = getattr(owner, name)

        def dying(*given, **named):
            for is_after in (False, True):
                found = method(*given, **named) if is_after else None
                count[0] += 1
                if count[0] == number:
                    os._exit(9)
            return found

        setattr(owner, name, dying)

    dying_at(JournalFile, "append")
    dying_at(CallbackCaller, "save")
    for event in ("on_trial_result", "on_trial_complete", "on_checkpoint"):
        dying_at(Remembers, event)


def dies_while_telling(make, number):
    pid = os.fork()
    if pid == 0:
        try:
            die_while_telling(number)
            make().fit()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9


@pytest.mark.parametrize("num_runs", [1, pytest.param(12, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", SCHEDULERS)
def test_callbacks_of_a_tuner_killed_again_and_again_remember_what_undisturbed_ones_do(
    tmp_path, kind, num_runs
):
    remembering(tmp_path / "undisturbed", kind).fit()
    expected = remembered(tmp_path / "undisturbed")
    rng = random.Random(f"{SEED} {kind} told")
    for first in rng.sample(range(1, 90), num_runs):
        folder = tmp_path / str(first)
        make = functools.partial(remembering, folder, kind)
        number, num_kills = first, 0
        while dies_while_telling(make, number):
            num_kills += 1
            number = rng.randrange(2, 40)
        assert remembered(folder) == expected, (kind, first, num_kills)
        assert num_kills

"""A run is killed at every step that its files take, and goes on: its rows and sinks are as if not.

A step is one change of the disk: a line, or half of it, a file that gets another name or is cut,
and the moments before and after a checkpoint. The process is not really killed: a `Killed` comes
out of the step, and everything that it had in memory is dropped. `test_killed_runs.py` kills real
ones.
"""

import json
import os
import shutil
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from callbacks import CSVLogger, JSONLinesLogger, ResultLogger, RLlibCallback, TrackerLogger
from callbacks.ready_made import followers, result_files, result_loggers, rows_file
from callbacks.ready_made.followers import Follower, Sink
from callbacks.ready_made.result_files import CSVResults
from callbacks.ready_made.result_loggers import TensorBoardLogger
from callbacks.ready_made.rows_file import RowsFile
from tests.event_files import curves
from tests.steered_algorithm import SteeredAlgorithm, result_of

pytestmark = pytest.mark.skipif(os.name != "posix", reason="cuts files that are open")

NUM_ITERATIONS = 5
LATE = 3
"""A metric appears in this iteration, so the table is written anew."""


class Killed(BaseException):
    """The process ends here."""


class Disk:
    """Counts the steps, and kills in one of them.

    Attributes:
        kill_at: the number of the step that is killed, from 0; None: none is.
        num_steps: made so far.
    """

    def __init__(self, kill_at=None):
        self.kill_at, self.num_steps = kill_at, 0

    def step(self):
        self.num_steps += 1
        if self.kill_at == self.num_steps - 1:
            raise Killed

    def append_to(self, path, data):
        try:
            self.step()
        except Killed:
            with path.open("ab") as file:
                file.write(data[: len(data) // 2])
            raise
        with path.open("ab") as file:
            file.write(data)
        self.step()

    @contextmanager
    def in_force(self):
        """Has all changes of files by loggers go through it; sinks follow at once."""

        def counted(function):
            def act(*given, **more):
                self.step()
                return function(*given, **more)

            return act

        changes = ((Path, "replace"), (Path, "rename"), (Path, "unlink"), (Path, "touch"))
        with pytest.MonkeyPatch.context() as patch:
            for module in (rows_file, result_files):
                patch.setattr(module, "append_to", self.append_to)
            for owner, name in (*changes, (os, "truncate")):
                patch.setattr(owner, name, counted(getattr(owner, name)))
            patch.setattr(os, "fsync", lambda descriptor: None)
            patch.setattr(Follower, "wake", lambda follower: follower.catch_up())
            yield


class Store:
    """What a service and a place of the user's have: it outlives the process."""

    def __init__(self):
        self.runs = {}
        self.rows = {}

    def __deepcopy__(self, memo):
        return self

    def open_run(self, run_id, facts):
        return self.runs.setdefault(run_id, [])

    def log_row(self, run, row, step):
        run.append(row["training_iteration"])

    def close_run(self, run, *, failed):
        """Nothing is to be ended."""

    def append(self, row):
        number = row["training_iteration"]
        self.rows = {known: each for known, each in self.rows.items() if known < number}
        self.rows[number] = row

    def start_anew(self, row):
        self.rows = {}


class Saving(RLlibCallback):
    """Saves a checkpoint of every iteration, between the decisions and the report."""

    def __init__(self, run):
        self.run = run

    def __deepcopy__(self, memo):
        return self

    def get_state(self):
        return {}

    def on_train_result(self, *, algorithm, **_):
        algorithm.after_train_result(lambda _: self.run.save(algorithm), phase="save")


class Run:
    """A run whose lives each end with a kill, but for the last.

    Attributes:
        folder: of its files.
        saved: the iteration of the newest checkpoint; 0 before the first.
        changes: rows that are made again are others, as with clocks.
        num_lives: so far.
        num_begun: lives that had no checkpoint to go on from.
    """

    def __init__(self, folder, *, changes=False):
        self.folder, self.changes = folder, changes
        self.saved = self.num_lives = self.num_begun = 0
        self.store, self.disk = Store(), Disk()

    def save(self, algorithm):
        self.disk.step()
        algorithm.callbacks.get_state()
        self.disk.step()
        self.saved = algorithm.training_iteration
        self.disk.step()

    def live(self, *, kill_at=None, back=0):
        """Goes on from the newest checkpoint, or some before it; returns whether it was killed.

        Each life has an iteration to make: sinks catch up when there is a row.
        """
        self.disk = Disk(kill_at)
        self.num_lives += 1
        self.saved = min(max(0, self.saved - back), NUM_ITERATIONS - 1)
        algorithm = SteeredAlgorithm(
            Saving(self),
            JSONLinesLogger(self.folder / "results.jsonl"),
            CSVLogger(self.folder / "results.csv"),
            TensorBoardLogger(self.folder / "curves"),
            TrackerLogger(self.store, self.folder / "tracker"),
            ResultLogger(self.store, rows=self.folder / "own.jsonl"),
        )
        algorithm.training_iteration = self.saved
        self.num_begun += not self.saved
        if self.saved:
            algorithm.callbacks.fire(
                "on_checkpoint_loaded", algorithm=algorithm, metrics_logger=None
            )
        try:
            with self.disk.in_force():
                while algorithm.training_iteration < NUM_ITERATIONS:
                    algorithm.tell(self.result(algorithm.training_iteration + 1))
        except Killed:
            return True
        finally:
            algorithm.is_stopped = True
        return False

    def result(self, iteration):
        more = {"timestamp": 1_700_000_000 + iteration}
        if iteration >= LATE:
            more["late"] = 0.5
        if self.changes:
            more["life"] = self.num_lives
        return result_of(iteration, **more)

    def outcome(self):
        """What people find, but for what is of an older run; event files are read back."""
        files = {
            str(path.relative_to(self.folder)): path.read_bytes()
            for path in sorted(self.folder.rglob("*"))
            if path.suffix in (".jsonl", ".csv", ".tmp") and "curves." not in str(path.parent)
        }
        return {**files, "curves": curves(self.folder / "curves"), "own": self.store.rows}

    def check(self):
        """Rows are there once, and everything else is what they give."""
        found = self.outcome()
        rows = [json.loads(line) for line in found["results.jsonl"].splitlines()]
        numbers = [*range(1, NUM_ITERATIONS + 1)]
        assert [row["training_iteration"] for row in rows] == numbers
        for name in ("own.jsonl", "curves/rows.jsonl", "tracker/rows.jsonl"):
            assert found[name] == found["results.jsonl"]
        assert found["own"] == {row["training_iteration"]: row for row in rows}
        table = CSVResults(self.folder / "again.csv")
        table.begin(1)
        for row in rows:
            table.append(row["training_iteration"], row)
        assert found["results.csv"] == table.path.read_bytes()
        table.path.unlink()
        for name in ("life", "late"):
            steps = [(row["num_env_steps_sampled_lifetime"], row.get(name)) for row in rows]
            points = [point for point in steps if point[1] is not None]
            assert found["curves"].get(name, []) == points
        sent = list(self.store.runs.values())[-1]
        assert sorted(set(sent)) == numbers
        # A kill between a row and the note that it was sent sends it twice.
        assert len(sent) < NUM_ITERATIONS + self.num_lives
        assert len(self.store.runs) <= self.num_begun


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The files of a run that is not killed, and how many steps it takes."""
    pytest.importorskip("tensorboardX")
    run = Run(tmp_path_factory.mktemp("undisturbed"))
    assert not run.live()
    run.check()
    return run.outcome(), run.disk.num_steps


def checked(run, undisturbed):
    run.check()
    if not run.changes:
        assert run.outcome() == undisturbed


KINDS = [(back, changes) for back in (0, 2) for changes in (False, True)]


@pytest.mark.parametrize(
    "num_kinds", [1, pytest.param(len(KINDS), marks=pytest.mark.slow)], ids=["in turn", "all"]
)
def test_a_kill_at_any_step_makes_no_difference(num_kinds, undisturbed, tmp_path):
    expected, num_steps = undisturbed
    assert num_steps > 100
    for kill_at in range(num_steps):
        for kind in range(kill_at, kill_at + num_kinds):
            back, changes = KINDS[kind % len(KINDS)]
            run = Run(tmp_path / str(kill_at), changes=changes)
            assert run.live(kill_at=kill_at)
            assert not run.live(back=back)
            checked(run, expected)
            shutil.rmtree(run.folder)


def killed_often(folder, seed, expected, num_steps):
    """Up to six kills anywhere, each followed by a restore, sometimes of an older checkpoint.

    Sometimes the folder is copied, and the run goes on in the copy.
    """
    rng = np.random.default_rng(seed)
    run = Run(folder / "0", changes=bool(rng.integers(2)))
    for life in range(1, int(rng.integers(2, 8))):
        if not run.live(kill_at=int(rng.integers(num_steps)), back=int(rng.integers(3))):
            break
        if rng.random() < 0.3 and run.folder.exists():
            shutil.copytree(run.folder, folder / str(life))
            run.folder = folder / str(life)
    run.live()
    checked(run, expected)
    return run


@pytest.mark.parametrize("seed", range(6))
def test_kills_after_kills_make_no_difference(seed, undisturbed, tmp_path):
    killed_often(tmp_path, seed, *undisturbed)


@pytest.mark.slow
def test_thousands_of_kills_make_no_difference(undisturbed, tmp_path):
    num_lives = 0
    for seed in range(100, 1100):
        num_lives += killed_often(tmp_path / str(seed), seed, *undisturbed).num_lives
        shutil.rmtree(tmp_path / str(seed))
    print(num_lives)
    assert num_lives > 3000


# ---- with the mechanisms switched off, the matrix notices


def without_cutting(patch):
    for kind in (CSVResults, result_files.TensorBoardResults):
        patch.setattr(kind, "begin", Sink.begin)


def without_comparing(patch):
    patch.setattr(RowsFile, "agreed", lambda rows, bookmarks, since=None: bookmarks)


def without_early_rows(patch):
    patch.setattr(result_loggers.RunRows, "write_expected", lambda rows: None)


def without_dropping_torn_lines(patch):
    patch.setattr(rows_file, "_has_end", lambda line: True)


def without_bookmarks(patch):
    patch.setattr(followers, "read_bookmark", lambda file: {})


@pytest.mark.parametrize(
    "switch_off",
    [
        without_cutting,
        without_comparing,
        without_early_rows,
        without_dropping_torn_lines,
        without_bookmarks,
    ],
)
def test_the_matrix_notices_a_mechanism_that_is_missing(
    switch_off, undisturbed, tmp_path, monkeypatch
):
    expected, num_steps = undisturbed
    switch_off(monkeypatch)
    for kill_at in range(num_steps):
        run = Run(tmp_path / str(kill_at), changes=True)
        run.live(kill_at=kill_at)
        try:
            run.live(back=kill_at % 2)
            checked(run, expected)
        except (AssertionError, LookupError, ValueError, OSError):
            return
    pytest.fail("nothing was noticed")

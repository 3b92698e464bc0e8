"""The power fails at any moment: what was not synced is lost, and the same experiment comes of it.

What may be on the disk then is worked out from what was synced: of each file any part from its
synced beginning to what was written, of folders those that were synced, and maybe the others.
"""

import logging
import os
import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from tests.faults.test_tune_kills import SCHEDULERS, Walk, outcome, walk_function
from trainer import tune
from trainer.tune.experiment import Experiment
from trainer.tune.journal_file import JournalFile

SEED = 20261122


def plain_function(config):
    """Has no checkpoints: what is lost of a trial is made again from its beginning."""
    total = 0.0
    for _ in range(5):
        total += config["x"] + float(np.random.rand())  # noqa: NPY002 - what users do
        tune.report({"loss": total})


def tuner(folder, trainable, kind):
    """A tuner in a folder, new or restored, that saves the states of classes at times."""
    if tune.Tuner.can_restore(folder):
        return tune.Tuner.restore(folder, trainable)
    saving = {} if trainable is not Walk else {"checkpoint_frequency": 4, "num_to_keep": 1}
    return tune.Tuner(
        trainable,
        param_space={"x": tune.uniform(0, 10)},
        tune_config=tune.TuneConfig(
            num_samples=4, metric="loss", mode="min", seed=0, in_process=True,
            max_concurrent_trials=2, scheduler=SCHEDULERS[kind](),
        ),
        run_config=tune.RunConfig(
            storage_path=folder.parent, name=folder.name, verbose=0, recovery_interval_s=None,
            stop={"training_iteration": 5},
            checkpoint_config=tune.CheckpointConfig(
                checkpoint_at_end=False if trainable is Walk else None, **saving
            ),
        ),
    )  # fmt: skip


# ---- a disk


@dataclass
class Disk:
    """What of an experiment's folder is synced, and copies of it at some moments.

    Attributes:
        folder: of the experiment.
        files: synced contents by path.
        listings: synced names by folder.
    """

    folder: Path
    files: dict[str, bytes] = field(default_factory=dict)
    listings: dict[str, set[str]] = field(default_factory=dict)

    def sync(self, descriptor):
        """Stands for `os.fsync`."""
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.is_dir():
            self.listings[str(path)] = {entry.name for entry in path.iterdir()}
            for name in self.listings[str(path)]:  # a synced file that has got its name since
                if (data := self.files.pop(str(path / f".{name}.tmp"), None)) is not None:
                    self.files[str(path / name)] = data
        elif path.exists():
            self.files[str(path)] = path.read_bytes()

    def image(self):
        """What is written and what is synced now."""
        written = {
            str(path.relative_to(self.folder)): path.read_bytes()
            for path in self.folder.rglob("*")
            if path.is_file()
        }
        own = self._own
        return Image(written, own(self.files), own(self.listings))

    def _own(self, synced):
        inside = [Path(path) for path in synced if Path(path).is_relative_to(self.folder)]
        return {str(path.relative_to(self.folder)): synced[str(path)] for path in inside}


@dataclass
class Image:
    """What is written at one moment, and what of it a power failure leaves for certain."""

    written: dict[str, bytes]
    synced: dict[str, bytes]
    listings: dict[str, set[str]]

    def left(self, journal, others):
        """Files after a power failure; parts are 0 for what is synced, 1 for all that is written.

        Args:
            journal: how much of the journal is there.
            others: the same of each other file.
        """
        found = {}
        checkpoints = {}
        for path, data in self.written.items():
            *_, parent, name, _ = ("", "", *Path(path).parts)
            if parent == "checkpoints":
                # A checkpoint's files are synced before it gets its name; only that may be lost.
                is_certain = name in self.listings.get(str(Path(path).parent.parent), set())
                key = str(Path(path).parent)
                if is_certain or checkpoints.setdefault(key, others() > 0.5):
                    found[path] = data
                continue
            part = journal if path == "journal.jsonl" else others()
            synced = self.synced.get(path)
            least = 0 if synced is None or not data.startswith(synced) else len(synced)
            size = least + int(part * (len(data) - least))
            if size or path in self.synced or part > 0.5:
                found[path] = data[:size]
        return found


def images(monkeypatch, folder, trainable, kind):
    """The outcome of an undisturbed experiment, and an image after each write to its journal."""
    disk, append, found = Disk(folder), JournalFile.append, []

    def appended(self, entries):
        append(self, entries)
        found.append(disk.image())

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", disk.sync)
        patch.setattr(JournalFile, "append", appended)
        return outcome(tuner(folder, trainable, kind).fit()), found[1:]


def restored(folder, files, trainable, kind):
    """What comes of an experiment that goes on with these files."""
    if folder.exists():
        shutil.rmtree(folder)
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return outcome(tuner(folder, trainable, kind).fit())


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """The disk of the tests need not be waited for, and lost rows are told of."""
    for name in ("journal_file", "trial_records", "experiment", "tuner"):
        monkeypatch.setattr(logging.getLogger(f"trainer.tune.{name}"), "disabled", True)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


EXPERIMENTS = [
    (plain_function, "asha"),
    (walk_function, "fifo"),
    (Walk, "asha"),
    (Walk, "pbt"),
    (Walk, "hyperband"),
]


def parts(number, rng):
    """How much is left: the journal without what belongs to it, the reverse, or anything."""
    if number % 3 == 0:
        return 1.0, lambda: 0.0
    if number % 3 == 1:
        return 0.0, lambda: 1.0
    return rng.random(), rng.random


def check_cuts(monkeypatch, folder, trainable, kind, number):
    """Cuts the power at so many moments and compares what comes of each restore."""
    expected, found = images(monkeypatch, folder / "undisturbed", trainable, kind)
    rng = random.Random(f"{SEED} {kind} {trainable.__name__}")
    for index in range(number):
        moment = rng.randrange(len(found))
        journal, others = parts(index, rng)
        files = found[moment].left(journal, others)
        again = restored(folder / "restored", files, trainable, kind)
        assert again == expected, (kind, moment, journal, index)


@pytest.mark.parametrize(("trainable", "kind"), EXPERIMENTS)
def test_an_experiment_goes_on_to_the_same_end_after_a_power_failure(
    tmp_path, monkeypatch, trainable, kind
):
    check_cuts(monkeypatch, tmp_path, trainable, kind, 3)


@pytest.mark.slow
@pytest.mark.parametrize(("trainable", "kind"), EXPERIMENTS)
def test_an_experiment_goes_on_to_the_same_end_after_any_power_failure(
    tmp_path, monkeypatch, trainable, kind
):
    check_cuts(monkeypatch, tmp_path, trainable, kind, 60)


def test_rows_of_ended_trials_that_are_not_synced_would_be_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(Experiment, "_sync_rows", lambda *_: None)
    folder = tmp_path / "undisturbed"
    expected, found = images(monkeypatch, folder, plain_function, "asha")
    files = found[-1].left(1.0, lambda: 0.0)
    assert restored(tmp_path / "restored", files, plain_function, "asha") != expected


def test_folders_with_names_of_the_users_are_found_again(tmp_path, monkeypatch):
    def make(folder, trainable, kind):
        del kind
        running = {"storage_path": folder.parent, "name": folder.name, "verbose": 0}
        tuning = tune.TuneConfig(
            num_samples=3, seed=0, in_process=True, max_concurrent_trials=2,
            trial_dirname_creator=lambda trial: f"x={trial.params['x']:.3f}",
        )  # fmt: skip
        if tune.Tuner.can_restore(folder):
            return tune.Tuner.restore(folder, trainable, tune_config=tuning)
        return tune.Tuner(
            trainable, param_space={"x": tune.uniform(0, 10)}, tune_config=tuning,
            run_config=tune.RunConfig(**running),
        )  # fmt: skip

    monkeypatch.setattr("tests.faults.test_tune_power_cuts.tuner", make)
    expected, found = images(monkeypatch, tmp_path / "undisturbed", plain_function, "fifo")
    for image in found[::3]:
        files = image.left(1.0, lambda: 0.0)
        assert restored(tmp_path / "restored", files, plain_function, "fifo") == expected


def test_what_is_said_of_ended_trials_is_written_again(tmp_path, monkeypatch):
    folder = tmp_path / "undisturbed"
    _, found = images(monkeypatch, folder, plain_function, "asha")
    restored(tmp_path / "restored", found[-1].left(1.0, lambda: 0.0), plain_function, "asha")
    names = sorted(path.name for path in (folder / "trials").iterdir())
    for name in names:
        assert tune.Result.from_path(tmp_path / "restored" / "trials" / name).status == "TERMINATED"

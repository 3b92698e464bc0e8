"""What a trial costs besides its work: counts of calls, files and bytes, which no load changes."""

import gc
import math
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from trainer import tune
from trainer.metrics import result as result_keys
from trainer.tune import experiment
from trainer.tune.journal_file import JournalFile

PROJECT = Path(__file__).parents[2]


def trivial(config):
    tune.report({"loss": config["x"]})


def run(folder, num_samples, **more):
    return tune.Tuner(
        trivial,
        param_space={"x": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(
            num_samples=num_samples, seed=0, in_process=True, max_concurrent_trials=2
        ),
        run_config=tune.RunConfig(storage_path=folder, name=f"of-{num_samples}", verbose=0),
        **more,
    ).fit()


@pytest.fixture
def counts(monkeypatch):
    """Calls and bytes by name, counted while the test runs."""
    found = Counter()

    def count(owner, name, bytes_of=None):
        original = getattr(owner, name)

        def counted(*given, **named):
            found[name] += 1
            if bytes_of is not None:
                found[f"bytes of {name}"] += bytes_of(*given)
            return original(*given, **named)

        monkeypatch.setattr(owner, name, counted)

    monkeypatch.setattr(experiment, "_SYNC_EVERY_S", math.inf)
    count(os, "fsync")
    count(os, "write", lambda _, data: len(data))
    count(JournalFile, "append")
    count(result_keys, "describe")
    return found


def per_trial(counts, tmp_path):
    """What one trial more costs, on average."""
    run(tmp_path, 10)
    few = Counter(counts)
    counts.clear()
    run(tmp_path, 30)
    return {name: (counts[name] - few[name]) / 20 for name in {*few, *counts}}


def test_a_trial_costs_few_writes_and_one_wait_for_the_disk(counts, tmp_path):
    cost = per_trial(counts, tmp_path)
    assert cost["append"] <= 4, "what was suggested and started, the row, the end"
    assert cost["fsync"] <= 1.1, "the rows of a trial, before its end"
    assert cost["write"] <= 6
    assert cost["bytes of write"] <= 1800, "of these, 83 for the signature of each line"
    assert cost.get("describe", 0) <= 0, "what a key means is found out once, not for each row"


def num_objects():
    """Objects that Python's collector looks at, once their number is settled.

    A collection lets go of tuples that hold no such objects: the innermost ones first.
    """
    before, now = -1, 0
    while now != before:
        gc.collect()
        before, now = now, len(gc.get_objects())
    return now


def print_objects_left(folder):
    """Prints by how many objects 10 and then 50 trials let the process grow."""
    run(Path(folder), 3)  # what is made once
    at_first = num_objects()
    few = run(Path(folder), 10)
    of_few = num_objects() - at_first
    many = run(Path(folder), 50)
    assert (len(few), len(many)) == (10, 50)
    print(of_few, num_objects() - at_first - of_few)


@pytest.mark.process
def test_a_trial_that_is_over_leaves_few_objects(tmp_path):
    # In a process of its own: objects that other tests left may go at any time.
    script = f"from {__name__} import print_objects_left as left; left({str(tmp_path)!r})"
    told = subprocess.run(
        [sys.executable, "-c", script], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    of_few, of_many = map(int, told.stdout.split()[-2:])
    assert 0 < (of_many - of_few) / 40 <= 8

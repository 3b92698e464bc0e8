"""Damaged journals, and forged ones with checksums that fit: restored, or refused by their errors.

Damage that a checksum does not see is a forgery; a journal that is damaged is refused by its line.
A forgery may tell whatever it likes of an experiment: no code runs, nothing outside of the folder
changes, and what cannot have happened is a `TuneError`.
"""

import copy
import json
import shutil
import sys
import zlib
from collections import Counter

import pytest

from callbacks import CallbackError
from checkpoints import CheckpointError
from tests.forgeries import (
    MAX_BYTES,
    MAX_SECONDS,
    MODULE,
    PROOF,
    Cost,
    Rng,
    Watch,
    damaged_bytes,
    hostile_json,
    leaves,
    plant,
    write_canary,
)
from tests.mutated_states import mutated, mutations
from trainer import TrainerError, tune
from trainer.cli import main
from trainer.tune.experiment import Experiment
from trainer.tune.journal_file import JOURNAL_FILE, line_of

CLEAR = (TrainerError, CheckpointError, CallbackError)


def climb(config):
    before = tune.get_checkpoint()
    first = 1 if before is None else before.to_dict()["step"] + 1
    for step in range(first, 5):
        saved = tune.Checkpoint.from_data({"step": step})
        tune.report({"loss": config["x"] * step}, checkpoint=saved)


SPACE = {"x": tune.uniform(0.0, 1.0), "kind": tune.choice(["a", "b"])}
PARTS = {
    "random": {},
    "asha": {"scheduler": tune.ASHAScheduler(grace_period=1, max_t=4)},
    "pbt": {
        "scheduler": tune.PopulationBasedTraining(
            perturbation_interval=1, hyperparam_mutations={"x": tune.uniform(0.0, 1.0)}
        )
    },
}


class Campaign:
    """Experiments that have ended, and one folder for each forgery."""

    def __init__(self, folder):
        self.folder = folder
        self.watch = Watch(folder)
        self.journals = {}
        for name, parts in PARTS.items():
            tune.Tuner(
                climb,
                param_space=SPACE,
                tune_config=tune.TuneConfig(
                    in_process=True, seed=0, num_samples=3, metric="loss", mode="min", **parts
                ),
                run_config=tune.RunConfig(
                    name=name, storage_path=folder, verbose=0, stop={"loss": 2.5}
                ),
            ).fit()
            lines = (folder / name / JOURNAL_FILE).read_text().splitlines()
            self.journals[name] = [json.loads(line)["entry"] for line in lines]
        sys.addaudithook(self.watch)

    def forged(self, name, rng):
        entries = copy.deepcopy(self.journals[name])
        kind = rng.randrange(5)
        at = rng.randrange(len(entries)) if rng.random() < 0.7 else 0
        if kind == 0:
            entries[at] = mutated(entries[at], rng.choice(list(mutations(entries[at]))))
        elif kind == 1:
            del entries[at : at + rng.choice([1, 1, 3])]
        elif kind == 2:
            entries.insert(rng.randrange(len(entries)), copy.deepcopy(entries[at]))
        else:
            for _ in range(rng.randrange(1, 4)):
                plant(entries[at], rng.choice(list(leaves(entries[at]))), rng, hostile_json)
        data = b"".join(map(line_of, entries))
        if kind == 4 and rng.random() < 0.2:
            data = data.replace(b"loss", rng.choice([b"[" * 50_000, b"9" * 5_000, b"\\ud800"]))
            data = b"".join(line_of_text(line) for line in data.splitlines())
        return data

    def copy_of(self, name):
        """The folder of an experiment as it was, to be forged."""
        target = self.folder / "forged" / name
        shutil.rmtree(target.parent, ignore_errors=True)
        shutil.copytree(self.folder / name, target)
        return target

    def play(self, name, data, *, goes_on):
        """Restores, looks at the results, and goes on to where trials would begin."""
        target = self.copy_of(name)
        (target / JOURNAL_FILE).write_bytes(data)
        self.watch.is_on = True
        try:
            tuner = tune.Tuner.restore(target, climb)
            grid = tuner.get_results()
            grid.rows()
            if goes_on:
                tuner.fit()
        finally:
            self.watch.is_on = False

    def look(self, name, data, command):
        target = self.copy_of(name)
        (target / JOURNAL_FILE).write_bytes(data)
        assert main([command, str(target)]) in (0, 1)


def line_of_text(line):
    """The line with a checksum that fits, whatever its entry is."""
    text = line.partition(b'"entry": ')[2][:-1]
    head = b'{"length": %d, "crc32": "%08x", "entry": ' % (len(text), zlib.crc32(text))
    return head + text + b"}\n"


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    folder = tmp_path_factory.mktemp("journals")
    write_canary(folder)
    return Campaign(folder)


SLOW = [pytest.param(seed, 250, marks=pytest.mark.slow) for seed in (41, 42, 43, 44)]


@pytest.mark.parametrize(("seed", "num_journals"), [(1, 60), *SLOW])
def test_a_forged_journal_is_followed_or_refused_by_its_own_error(
    seed, num_journals, campaign, monkeypatch, caplog, capsys
):
    monkeypatch.syspath_prepend(campaign.folder)
    monkeypatch.chdir(campaign.folder)
    monkeypatch.setattr(Experiment, "run", lambda self: "")
    caplog.set_level("CRITICAL")
    outcomes = Counter()
    raw, costly = [], []
    for number in range(num_journals):
        rng = Rng(f"{seed}-{number}")
        name = rng.choice(sorted(PARTS))
        data = campaign.forged(name, rng)
        if rng.random() < 0.1:
            data = damaged_bytes(data, rng)
        with Cost() as cost:
            try:
                if rng.random() < 0.2:
                    campaign.look(name, data, rng.choice(["trials", "best"]))
                    outcomes["shown"] += 1
                else:
                    campaign.play(name, data, goes_on=True)
                    outcomes["restored"] += 1
            except CLEAR as error:
                outcomes[type(error).__name__] += 1
            except Exception as error:  # noqa: BLE001 - counted
                raw.append(f"{seed}-{number}: {type(error).__name__}: {error!s:.200}")
        if cost.seconds > MAX_SECONDS or cost.num_bytes > MAX_BYTES:
            costly.append(f"{seed}-{number}: {cost.seconds:.1f} s, {cost.num_bytes:,} bytes")
    capsys.readouterr()
    assert raw == [], "\n".join(raw)
    assert costly == []
    assert campaign.watch.seen == []
    assert MODULE not in sys.modules
    assert not (campaign.folder / PROOF).exists()
    assert outcomes["restored"] > 0
    assert outcomes["JournalError"] > 0


LOOKS = (["trials"], ["trials", "--json"], ["best"], ["runs"], ["plot"], ["report"])


@pytest.mark.parametrize(
    ("seed", "num_files"),
    [(2, 60), *[pytest.param(seed, 250, marks=pytest.mark.slow) for seed in (51, 52)]],
)
def test_forged_rows_and_facts_of_trials_are_shown_or_refused(
    seed, num_files, campaign, monkeypatch, caplog, capsys
):
    monkeypatch.syspath_prepend(campaign.folder)
    monkeypatch.chdir(campaign.folder)
    caplog.set_level("CRITICAL")
    raw, costly = [], []
    codes = Counter()
    for number in range(num_files):
        rng = Rng(f"{seed}-{number}")
        name = rng.choice(sorted(PARTS))
        target = campaign.copy_of(name) / "trials" / "00001"
        file = target / rng.choice(["results.jsonl", "trial.json"])
        forge_lines(file, rng)
        words = rng.choice(LOOKS)
        path = target if words[0] in ("plot", "report") else target.parent.parent
        output = ["-o", str(campaign.folder / "forged" / "out.html")]
        more = output if words == ["report"] else []
        more = ["-o", str(campaign.folder / "forged" / "out.png")] if words == ["plot"] else more
        with Cost() as cost:
            campaign.watch.is_on = words != ["plot"]  # which writes its caches elsewhere
            try:
                codes[main([*words, str(path), *more])] += 1
            except Exception as error:  # noqa: BLE001 - counted
                raw.append(f"{seed}-{number} {words}: {type(error).__name__}: {error!s:.200}")
            finally:
                campaign.watch.is_on = False
        if cost.seconds > MAX_SECONDS or cost.num_bytes > MAX_BYTES:
            costly.append(f"{seed}-{number}: {cost.seconds:.1f} s, {cost.num_bytes:,} bytes")
    capsys.readouterr()
    assert raw == [], "\n".join(raw)
    assert costly == []
    assert campaign.watch.seen == []
    assert MODULE not in sys.modules
    assert codes[0] > num_files // 4


def forge_lines(file, rng):
    """Puts hostile values into a file of JSON, a row per line or one value."""
    text = file.read_text()
    if rng.random() < 0.2:
        file.write_bytes(damaged_bytes(text.encode(), rng))
        return
    rows = [json.loads(line) for line in text.splitlines()] if "jsonl" in file.name else None
    for _ in range(rng.randrange(1, 4)):
        row = json.loads(text) if rows is None else rng.choice(rows)
        if rng.random() < 0.2:
            row["_exact"] = rng.choice([[[["loss"], "nan"]], [[["a", 1], "x"]], 3, [[1]]])
        plant(row, rng.choice(list(leaves(row))), rng, hostile_json)
        text = json.dumps(row)
    lines = [text] if rows is None else [json.dumps(row) for row in rows]
    deep = "[" * 50_000 if rng.random() < 0.1 else ""
    file.write_text(deep + "\n".join(lines) + "\n")

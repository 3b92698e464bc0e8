"""The long campaigns behind the claims of docs/evidence.md: runs them, and keeps what came of them.

    python -m tests.campaigns                     lists them
    python -m tests.campaigns exactness files     runs these, one after another; for hours
    python docs/make_evidence.py                  puts the figures into the page

Each is a command that anybody can run. What it prints goes to build/campaigns/NAME.log; how many
tries it made and how many of them failed goes to tests/campaigns.json, with the commit.
"""

from __future__ import annotations

import datetime as dt
import json
import platform
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parents[1]
RECORDS = Path(__file__).with_suffix(".json")
LOGS = ROOT / "build" / "campaigns"
_SHORT_AND_LONG = "--hypothesis-profile=many -m '(slow or not slow) and not ray'"


@dataclass(frozen=True)
class Campaign:
    """What is claimed, and the command that would show it wrong.

    Attributes:
        claim: a sentence.
        command: behind `python -m`; of pytest or of `tests.random_runs`, whose counts are known.
    """

    claim: str
    command: str


def _tests(claim: str, *files: str, options: str = _SHORT_AND_LONG) -> Campaign:
    return Campaign(claim, f"pytest {options} {' '.join(files)}")


CAMPAIGNS: Mapping[str, Campaign] = {
    "exactness": Campaign(
        "Random combinations of features, with kills and errors in every iteration, end with the "
        "bytes of an undisturbed run",
        "tests.random_runs 1000 2000",
    ),
    "contracts": _tests(
        "Every algorithm, engine and kind of network gives the same bytes with the same seed: "
        "after a restore, in another process, with more env runners, after kills",
        "tests/contract",
        "tests/integration/test_resume_table.py",
        "tests/integration/test_scripted_engine.py",
        "tests/integration/test_env_state_exactness.py",
        "tests/integration/test_appo.py",
    ),
    "faults": _tests(
        "Env runners, sub-envs, callbacks and actors that die, hang or raise are repaired, or an "
        "error names them",
        *("tests/faults/test_random_faults.py", "tests/faults/test_more_faults.py"),
        *("tests/faults/test_fault_matrix.py", "tests/faults/test_runner_faults.py"),
        *("tests/faults/test_random_sub_env_faults.py", "tests/faults/test_actor_faults.py"),
        *("tests/faults/test_unstable_simulators.py", "tests/faults/test_worker_processes.py"),
    ),
    "kills": _tests(
        "Whole runs whose processes are killed or interrupted at random moments end with the same "
        "bytes, and leave no process",
        *("tests/faults/test_killed_runs.py", "tests/faults/test_random_interrupts.py"),
        *("tests/faults/test_interrupted_training.py", "tests/faults/test_command_line_ends.py"),
        *("tests/faults/test_end_of_the_main_process.py", "tests/faults/test_ways_to_run.py"),
    ),
    "tuning": _tests(
        "Experiments of a tuner, each killed at 25 moments and resumed, have the same results",
        *("tests/faults/test_killed_experiments.py", "tests/faults/test_tune_kills.py"),
        *("tests/faults/test_tune_interrupts.py", "tests/faults/test_tune_trial_processes.py"),
    ),
    "leagues": _tests(
        "Self-play that adds and removes modules, killed and resumed, ends with the same bytes",
        *(
            "tests/integration/test_changing_modules.py",
            "tests/integration/test_states_of_modules.py",
        ),
    ),
    "files": _tests(
        "Checkpoints, result files and journals are whole or absent after crashes and disk errors",
        *("tests/faults/test_background_crashes.py", "tests/faults/test_checkpoint_crashes.py"),
        *("tests/faults/test_crash_files.py", "tests/faults/test_disks_that_refuse.py"),
        *("tests/faults/test_savers_beside_each_other.py", "tests/faults/test_sinks_killed.py"),
        *("tests/faults/test_tune_power_cuts.py",),
    ),
    "forged": _tests(
        "Damaged and forged files are refused or have no effect; none runs code, and memory is "
        "bounded by the file size",
        *("tests/faults/test_mutated_checkpoints.py", "tests/faults/test_hostile_checkpoints.py"),
        *("tests/faults/test_forged_policy_files.py", "tests/faults/test_forged_journals.py"),
        "tests/integration/test_spoilt_states.py",
    ),
    "leaks": _tests(
        "2,000 iterations of every algorithm and 1,000 replaced env runners leak no memory, open "
        "files or threads",
        *("tests/faults/test_long_runs.py", "tests/faults/test_many_restarts.py"),
    ),
    "ray": _tests(
        "On a Ray cluster that loses nodes, training and tuning end with the same bytes",
        *("tests/contract/test_engines.py", "tests/integration/test_ray_engine.py"),
        "tests/integration/test_ray_tune.py",
        options="-m ray",
    ),
    "learning": _tests("Every algorithm learns what its tests ask for", "tests/learning"),
}


@dataclass(frozen=True)
class Record:
    """What came of a campaign.

    Attributes:
        command: that was run.
        num_tries: tests or runs that were made.
        num_failures: of these.
        num_skipped: besides, for what is not installed.
        minutes: it took.
        commit: of the source.
        date: of its end.
        machine: Python and system.
    """

    command: str
    num_tries: int
    num_failures: int
    num_skipped: int
    minutes: float
    commit: str
    date: str
    machine: str


def records() -> dict[str, Record]:
    """What is known, by the names of campaigns."""
    if not RECORDS.is_file():
        return {}
    known = json.loads(RECORDS.read_text(encoding="utf-8"))
    return {name: Record(**known[name]) for name in CAMPAIGNS if name in known}


def run(name: str) -> Record:
    """Runs a campaign to its end and keeps its record."""
    campaign = CAMPAIGNS[name]
    LOGS.mkdir(parents=True, exist_ok=True)
    log, xml = LOGS / f"{name}.log", LOGS / f"{name}.xml"
    more = [f"--junitxml={xml}"] if campaign.command.startswith("pytest") else []
    begin = time.monotonic()
    with log.open("wb") as file:
        subprocess.run(
            [sys.executable, "-m", *shlex.split(campaign.command), *more],
            cwd=ROOT, stdout=file, stderr=file, check=False,
        )  # fmt: skip
    counts = _counts_of_tests(xml) if more else _counts_of_runs(log)
    record = Record(
        f"python -m {campaign.command}",
        *counts,
        minutes=round((time.monotonic() - begin) / 60, 1),
        commit=_commit(),
        date=dt.datetime.now(dt.timezone.utc).date().isoformat(),
        machine=f"Python {platform.python_version()}, {platform.system()}",
    )
    kept = {**records(), name: record}
    text = json.dumps({known: asdict(kept[known]) for known in sorted(kept)}, indent=1)
    RECORDS.write_text(text + "\n", encoding="utf-8")
    return record


def _counts_of_tests(xml: Path) -> tuple[int, int, int]:
    """(tries, failures, skipped) of a file that pytest wrote."""
    suites = list(ET.parse(xml).getroot().iter("testsuite"))
    total, failures, errors, skipped = (
        sum(int(suite.get(of, 0)) for suite in suites)
        for of in ("tests", "failures", "errors", "skipped")
    )
    return total - skipped, failures + errors, skipped


def _counts_of_runs(log: Path) -> tuple[int, int, int]:
    """(tries, failures, 0) of what `tests.random_runs` printed."""
    last = log.read_text(encoding="utf-8").splitlines()[-1]
    found = re.fullmatch(r"(\d+) runs, .*: (\d+) differ", last)
    if found is None:
        raise ValueError(f"{log} ends with {last!r} and not with the counts of runs")
    return int(found[1]), int(found[2]), 0


def _commit() -> str:
    """The commit of the source; "-dirty" behind it if anything but the records has changed."""
    changed = _git("status", "--porcelain", "--", ".", f":!*/{RECORDS.name}")
    return _git("describe", "--always") + ("-dirty" if changed else "")


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def main(names: Sequence[str]) -> int:
    """Runs campaigns by their names, or lists all; the exit code is 1 if something failed."""
    if unknown := sorted(set(names) - set(CAMPAIGNS)):
        print(f"no campaign is called {unknown}; there are: {', '.join(CAMPAIGNS)}")
        return 2
    if not names:
        for name, campaign in CAMPAIGNS.items():
            print(f"{name:<12} {campaign.claim}\n{'':<12} python -m {campaign.command}")
        return 0
    num_failures = 0
    for name in names:
        record = run(name)
        num_failures += record.num_failures
        print(
            f"{name}: {record.num_failures} of {record.num_tries} failed, "
            f"{record.num_skipped} skipped, {record.minutes} minutes",
            flush=True,
        )
    return int(num_failures > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`rllib-check`: says what becomes of scripts written for RLlib, and runs one of them here."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import logging
import runpy
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from trainer.cli.output import complain, print_json, print_text
from trainer.errors import ConfigError
from trainer.rllib_scripts.import_hook import ray_answered
from trainer.rllib_scripts.script_check import (
    Fate,
    ScriptFinding,
    ScriptReport,
    check_script,
)

_MARKS: Final = {Fate.HERE: " ", Fate.NOTE: "?", Fate.CHANGE: "~", Fate.STOP: "!"}
_COUNTED: Final = {
    Fate.HERE: "as they are",
    Fate.CHANGE: "after changes",
    Fate.STOP: "do not run",
}


def rllib_check(arguments: argparse.Namespace) -> int:
    """Checks scripts; 3 if one of them does not run as it is. With `--run`, runs it."""
    paths, words = arguments.scripts, arguments.words_of_script
    if arguments.run and (len(paths) > 1 or arguments.json):
        raise ConfigError("--run takes one script, and no --json: the output is the script's own.")
    if words and not arguments.run:
        raise ConfigError(f"Words behind -- are for a script that runs: add --run. {words}")
    reports = [check_script(path) for path in paths]
    if arguments.run:
        _show(reports[0], complain, shown=[Fate.NOTE, Fate.CHANGE, Fate.STOP])
        _run(paths[0], words)
        return 0
    if arguments.json:
        print_json([_as_json(report) for report in reports])
    else:
        for report in reports:
            _show(report, print_text, shown=list(Fate))
        if len(reports) > 1:
            _show_counts(reports)
    return 3 if any(report.fate is not Fate.HERE for report in reports) else 0


def _show(report: ScriptReport, show: Callable[[str], None], *, shown: Sequence[Fate]) -> None:
    findings = [finding for finding in report.findings if finding.fate in shown]
    show(report.path)
    for finding in findings:
        show(f"{_MARKS[finding.fate]} {_place(report, finding)} {finding.what}: {finding.told}")
    show(f"= {report.verdict}\n")


def _place(report: ScriptReport, finding: ScriptFinding) -> str:
    is_own = finding.path == report.path
    return f"line {finding.line}" if is_own else f"{finding.path}, line {finding.line}"


def _show_counts(reports: Sequence[ScriptReport]) -> None:
    counts = Counter(report.fate for report in reports)
    told = ", ".join(f"{counts[fate]} {words}" for fate, words in _COUNTED.items())
    print_text(f"{len(reports)} scripts: {told}.")


def _as_json(report: ScriptReport) -> dict[str, Any]:
    findings = [
        {**dataclasses.asdict(finding), "fate": finding.fate.value} for finding in report.findings
    ]
    of_script = {"path": report.path, "fate": report.fate.value, "verdict": report.verdict}
    return {**of_script, "findings": findings}


def _run(path: str, words: Sequence[str]) -> None:
    """Runs a script as `python SCRIPT.py WORDS` does, under the hook."""
    with ray_answered(), _program(path, words):
        runpy.run_path(path, run_name="__main__")


@contextlib.contextmanager
def _program(path: str, words: Sequence[str]) -> Iterator[None]:
    """What a program finds when it begins: its words, its folder, and no logging set up."""
    arguments, entries, handlers = sys.argv, list(sys.path), list(logging.root.handlers)
    sys.argv = [path, *words]
    sys.path.insert(0, str(Path(path).resolve().parent))
    logging.root.handlers.clear()
    try:
        yield
    finally:
        sys.argv, sys.path[:], logging.root.handlers[:] = arguments, entries, handlers

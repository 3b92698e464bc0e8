"""The table of standard keys and the one in the docs are the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from trainer.metrics.result import STANDARD_KEYS, ResultKey, describe
from trainer.rllib_names.metrics import OLD_KEYS, OLD_PATHS

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
ROW = re.compile(r"^\| (`.*`) \| (.*?) ?\| (.*?) ?\|")


def section(text: str, title: str) -> str:
    return re.split(r"(?m)^## ", text.partition(f"## {title}\n")[2])[0]


def documented(text: str) -> list[tuple[str, str, str]]:
    """(pattern, unit, owner) of every key in the tables of the section on standard keys."""
    found = []
    for line in section(text, "Standard keys").splitlines():
        match = ROW.match(line)
        if match:
            keys, unit, owner = match.groups()
            for key in re.findall("`([^`]+)`", keys):
                found.append((key.removesuffix("/*"), unit, owner))
    return found


def test_the_docs_list_every_standard_key_once_with_unit_and_owner() -> None:
    rows = documented(PAGE.read_text(encoding="utf-8"))
    assert len(rows) == len(set(rows))
    assert set(rows) == {(key.pattern, key.unit, key.owner) for key in STANDARD_KEYS}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("| `training_iteration` | iterations | algorithm |", "| `training_iteration` | s | me |"),
        ("| `pid` | process id | run clock | |\n", ""),
        ("`learners/*/vf_loss`", "`learners/*/value_loss`"),
    ],
)
def test_negative_control_a_changed_page_differs(old: str, new: str) -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert old in text
    rows = documented(text.replace(old, new))
    assert set(rows) != {(key.pattern, key.unit, key.owner) for key in STANDARD_KEYS}


def test_the_docs_list_every_old_key_with_its_place() -> None:
    text = section(PAGE.read_text(encoding="utf-8"), "Old keys")
    rows = dict(re.findall(r"(?m)^\| (`.*?`) \| (.*) \|$", text))
    cells = re.findall(r"(?m)^\| (`[^|]*`) \|", text)
    listed = {key for cell in cells for key in re.findall("`([^`]+)`", cell)}
    assert listed == OLD_KEYS
    for key, paths in OLD_PATHS.items():
        assert rows[f"`{key}`"] == f"`{paths[0]}`"


def test_a_key_is_described_by_its_most_exact_pattern() -> None:
    def found(path: str) -> ResultKey:
        key = describe(path)
        assert key is not None
        return key

    assert found("timers/training_iteration").pattern == "timers/training_iteration"
    assert found("timers/another").pattern == "timers"
    assert found("env_runners/custom_metrics/x_mean").pattern == "env_runners/custom_metrics"
    assert found("evaluation/env_runners/num_episodes").always_in == {"train", "evaluate"}
    assert found("config/lr").owner == "algorithm"
    assert describe("env_runners/speed") is None
    assert describe("evaluation/speed") is None

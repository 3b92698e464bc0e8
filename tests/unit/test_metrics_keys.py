"""The table of standard keys and the one in the docs are the same."""

import re
from pathlib import Path

import pytest

from trainer.metrics.result import STANDARD_KEYS, describe
from trainer.rllib_names.metrics import OLD_KEYS, OLD_PATHS

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
ROW = re.compile(r"^\| (`.*`) \| (.*?) ?\|")


def section(text, title):
    return re.split(r"(?m)^## ", text.partition(f"## {title}\n")[2])[0]


def documented(text):
    """(pattern, unit) of every key in the tables of the section on standard keys."""
    found = []
    for line in section(text, "Standard keys").splitlines():
        match = ROW.match(line)
        if match:
            keys, unit = match.groups()
            for key in re.findall("`([^`]+)`", keys):
                found.append((key.removesuffix("/*"), unit))
    return found


def test_the_docs_list_every_standard_key_once_with_its_unit():
    rows = documented(PAGE.read_text(encoding="utf-8"))
    assert len(rows) == len(set(rows))
    assert len({key.pattern for key in STANDARD_KEYS}) == len(STANDARD_KEYS)
    assert set(rows) == {(key.pattern, key.unit) for key in STANDARD_KEYS}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("| `training_iteration` | iterations |", "| `training_iteration` | s |"),
        ("| `pid` | process id | |\n", ""),
        ("`learners/*/vf_loss`,", "`learners/*/value_loss`,"),
    ],
)
def test_negative_control_a_changed_page_differs(old, new):
    text = PAGE.read_text(encoding="utf-8")
    assert old in text
    rows = documented(text.replace(old, new))
    assert set(rows) != {(key.pattern, key.unit) for key in STANDARD_KEYS}


def test_the_docs_list_every_old_key_with_its_place():
    text = section(PAGE.read_text(encoding="utf-8"), "Old keys")
    rows = dict(re.findall(r"(?m)^\| (`.*?`) \| (.*) \|$", text))
    cells = re.findall(r"(?m)^\| (`[^|]*`) \|", text)
    listed = {key for cell in cells for key in re.findall("`([^`]+)`", cell)}
    assert listed == OLD_KEYS
    for key, paths in OLD_PATHS.items():
        assert rows[f"`{key}`"] == f"`{paths[0]}`"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("timers/training_iteration", {"pattern": "timers/training_iteration"}),
        ("timers/another", {"pattern": "timers", "is_wall_clock": True}),
        ("env_runners/custom_metrics/x_mean", {"pattern": "env_runners/custom_metrics"}),
        (
            "evaluation/env_runners/num_env_steps_sampled",
            {"unit": "env steps", "always_in": {"train", "evaluate"}},
        ),
        ("learners/my_policy/policy_loss", {"owner": "policy learner"}),
        ("config/lr", {"owner": "algorithm"}),
    ],
)
def test_a_key_is_described_by_its_most_exact_pattern(path, expected):
    found = describe(path)
    assert {name: getattr(found, name) for name in expected} == expected


def test_other_keys_are_described_by_none():
    assert describe("env_runners/speed") is describe("evaluation/speed") is None

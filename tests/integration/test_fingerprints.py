"""The fixed runs whose fingerprints show that a change of the code changed no byte."""

import dataclasses
import json

import pytest

from tests import fingerprints
from tests.fingerprints import (
    arithmetic,
    broken_promises,
    differences,
    fingerprints_of,
    plans,
    recorded,
    run_main,
)
from trainer.nn import kernels

pytestmark = pytest.mark.process

SAMPLE = [
    "PPO, 2 runners",
    "PPO, 2 runners, killed",
    "SAC, no runners",
    "DQN, no runners",
]

same_arithmetic = pytest.mark.skipif(
    json.loads(fingerprints.RECORD.read_text())["arithmetic"] != arithmetic(),
    reason="recorded where numbers come out differently; compare with a commit (--base) instead",
)


@same_arithmetic
@pytest.mark.parametrize("computes", ["kernels", "numpy"])
def test_the_recorded_fingerprints_come_out_again(computes, monkeypatch):
    if computes == "kernels" and kernels.why_not():
        pytest.skip(f"no kernels here: {kernels.why_not()}")
    monkeypatch.setenv(kernels.SWITCH, "1" if computes == "kernels" else "0")
    found = run_main(["print", *SAMPLE])
    expected = {name: recorded()[name] for name in SAMPLE}
    assert len(found[SAMPLE[0]]) > 30
    assert differences(found, expected) == []
    assert broken_promises(found) == []


@pytest.mark.slow
@same_arithmetic
@pytest.mark.parametrize("switch", ["1", "0"])
def test_all_recorded_fingerprints_come_out_again(switch, monkeypatch):
    monkeypatch.setenv(kernels.SWITCH, switch)
    found = run_main(["print"])
    assert differences(found, recorded()) == []
    assert broken_promises(found) == []


def test_one_changed_number_shows_in_weights_results_and_files(tmp_path, monkeypatch):
    monkeypatch.setenv(fingerprints.KILLS, str(tmp_path))
    plan = plans()["PPO, no runners"]
    changed = dataclasses.replace(plan, settings={"gamma": 0.99 + 1e-6})
    one, again, other = (
        {"run": fingerprints_of(each, tmp_path / str(number))}
        for number, each in enumerate([plan, plan, changed])
    )
    assert differences(one, again) == []
    found = differences(one, other)
    assert {"run: state learner/rl_module", "run: result 2", "run: file learner/optimizer"} <= {
        *found
    }


def test_a_kill_that_changes_something_is_a_broken_promise():
    run = {"result 1": "a", "result 2": "b"}
    found = {"x": run, "x, killed": run, "x, new process": {**run, "result 2": "c"}}
    assert broken_promises(found) == ["x, new process: result 2 differs from x"]


def test_kills_that_are_armed_and_do_not_happen_are_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv(fingerprints.KILLS, str(tmp_path))
    plan = dataclasses.replace(plans()["PG, no runners"], is_killed=True)
    with pytest.raises(AssertionError, match="kills that did not happen"):
        fingerprints_of(plan, tmp_path / "run")


def test_a_file_of_another_arithmetic_is_refused(tmp_path, monkeypatch):
    other = tmp_path / "fingerprints.json"
    other.write_text(json.dumps({"arithmetic": "another", "runs": {}}))
    monkeypatch.setattr(fingerprints, "RECORD", other)
    with pytest.raises(RuntimeError, match="--base"):
        recorded()

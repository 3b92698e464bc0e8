"""What clocks counted before a tuner was killed still counts after a restore."""

import json
import os
import signal
import subprocess
import time

import pytest

from tests.scripts import run_script
from trainer import tune

_KILLED_AT, _NUM_ROWS, _ROW_S = 30, 45, 0.05


class KillsTheTuner(tune.Callback):
    def on_trial_result(self, *, result, **_):
        if result["number"] == _KILLED_AT:
            os.kill(os.getpid(), signal.SIGKILL)


def counts(config):
    for number in range(1, config["rows"] + 1):
        until = time.monotonic() + _ROW_S
        while time.monotonic() < until:
            pass
        tune.report({"number": number})


def fit(storage):
    stop, callbacks = tune.TimeoutStopper(1000), [KillsTheTuner()]
    run = tune.RunConfig(name="e", storage_path=storage, stop=stop, callbacks=callbacks, verbose=0)
    tune.Tuner(counts, param_space={"rows": _NUM_ROWS}, run_config=run).fit()


def test_a_killed_tuner_gives_no_time_back(tmp_path):
    code = f"import sys; from {__name__} import fit; fit(sys.argv[1])"
    with pytest.raises(subprocess.CalledProcessError, match="SIGKILL"):
        run_script(code, tmp_path)
    elapsed_s = json.loads((tmp_path / "e" / "experiment.json").read_text())["elapsed_s"]
    assert elapsed_s > _KILLED_AT * _ROW_S - 1.1, "noted every second"
    (rows,) = (tmp_path / "e").rglob("results.jsonl")
    run = tune.RunConfig(stop=tune.TimeoutStopper(1000), verbose=0)
    tune.Tuner.restore(tmp_path / "e", counts, run_config=run).fit()
    seconds = [json.loads(row)["time_total_s"] for row in rows.read_text().splitlines()]
    assert len(seconds) == _NUM_ROWS
    assert seconds == sorted(seconds)
    after = json.loads((tmp_path / "e" / "experiment.json").read_text())["elapsed_s"]
    assert after > elapsed_s + _ROW_S * (_NUM_ROWS - _KILLED_AT)

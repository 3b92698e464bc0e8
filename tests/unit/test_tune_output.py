"""What people see of an experiment: few lines without a viewer, and who is waited for."""

import pytest

from trainer import tune
from trainer.tune.output import CLIReporter, Progress


class Lines:
    """Takes lines instead of a terminal."""

    def __init__(self):
        self.texts = []

    def write(self, text):
        self.texts.append(text)


def train(config):
    for step in range(3):
        tune.report({"loss": config["x"] + step})


@pytest.mark.parametrize(("verbose", "num_lines"), [(0, 0), (1, 34), (2, 34 + 16 * 3)])
def test_where_nobody_looks_an_experiment_prints_two_lines_per_trial(
    verbose, num_lines, tmp_path, capsys
):
    tune.Tuner(
        train,
        param_space={"x": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(
            num_samples=16, seed=0, in_process=True, metric="loss", mode="min"
        ),
        run_config=tune.RunConfig(storage_path=tmp_path, verbose=verbose),
    ).fit()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == num_lines
    assert not lines or lines[0].startswith("Experiment ")


def test_the_title_comes_before_a_trial_that_fails_at_once(tmp_path, capsys):
    def fail(config):
        raise ValueError

    tune.Tuner(
        fail,
        tune_config=tune.TuneConfig(in_process=True),
        run_config=tune.RunConfig(storage_path=tmp_path),
    ).fit()
    assert capsys.readouterr().out.startswith("Experiment ")


def test_a_trial_that_is_long_at_a_row_is_named_again_and_again(monkeypatch):
    now, lines = [100.0], Lines()
    monkeypatch.setattr("trainer.tune.output.time.monotonic", lambda: now[0])
    progress = Progress(1, CLIReporter(), title="", output=lines)

    def look(running, *, at):
        now[0], lines.texts = at, []
        progress.log_silent(running, after_s=30)
        return lines.texts

    assert look({0: 1, 1: 4}, at=100) == []
    assert look({0: 1, 1: 5}, at=129) == []
    assert look({0: 1}, at=131) == ["waiting for report 1 of trial 00000, 31 s"]
    assert look({0: 1, 1: 5}, at=140) == []
    assert look({0: 1, 1: 5}, at=162) == ["waiting for report 1 of trial 00000, 62 s"]
    assert look({1: 5}, at=171) == ["waiting for report 5 of trial 00001, 31 s"]

"""`--track` and `--track-artifacts`: what a service gets from a run of the command line."""

import json

import pytest

from tests.command_line import run, train
from tests.small_runs import small_ppo
from trainer import TrackerLogger
from trainer.cli import commands, run_trackers


class Service:
    """Notes what it is sent, and reads a checkpoint while it is there."""

    def __init__(self):
        self.iterations = []
        self.files = []
        self.manifests = []

    def open_run(self, run_id, facts):
        return run_id

    def log_row(self, run, row, step):
        self.iterations.append(row["training_iteration"])

    def log_artifact(self, run, artifact, step):
        self.files.append((artifact.kind, artifact.name))
        self.manifests.append(json.loads((artifact.path / "manifest.json").read_text()))

    def close_run(self, run, *, failed):
        """Nothing is to be ended."""


def sent_to(service, monkeypatch):
    """Lets `--track mlflow` send there."""
    for module in (commands, run_trackers):
        monkeypatch.setattr(module, "tracker_service", lambda name: service)
    return service


@pytest.fixture
def service(monkeypatch):
    return sent_to(Service(), monkeypatch)


def test_checkpoints_are_sent_by_choice_and_after_a_resume_too(service, tmp_path):
    saving = ["--checkpoint-every", 1, "--keep", 9]
    chosen = ["--track", "mlflow", "--track-artifacts", "checkpoints"]
    train(tmp_path, "--stop-iterations", 2, *saving, *chosen)
    run("resume", "run", "--stop-iterations", 3, folder=tmp_path)
    assert service.iterations == [1, 2, 3]
    assert service.files == [("checkpoints", f"checkpoints-00000{number}") for number in (1, 2, 3)]
    assert all(manifest["components"] for manifest in service.manifests)


def test_without_a_choice_numbers_alone_are_sent(service, tmp_path):
    train(tmp_path, "--stop-iterations", 2, "--track", "mlflow")
    assert service.iterations == [1, 2]
    assert service.files == []


def test_artefacts_for_no_tracker_are_refused_before_anything_is_made(tmp_path):
    words = ["train", "--env", "CartPole-v1", "--run-dir", "run"]
    words += ["--track-artifacts", "checkpoints"]
    told = run(*words, folder=tmp_path, code=1).stderr
    assert "this run has none. Name one: --track" in told
    assert not list(tmp_path.iterdir())


def test_videos_of_a_run_that_records_none_are_told(service, tmp_path, caplog):
    chosen = ["--track", "mlflow", "--track-artifacts", "videos"]
    train(tmp_path, "--stop-iterations", 1, *chosen)
    assert "no VideoRecorder among its callbacks" in caplog.text


class Hanging(Service):
    """Was never started; then it answers."""

    is_there = False

    def open_run(self, run_id, facts):
        if not self.is_there:
            raise ConnectionError("it is starting")
        self.facts = facts
        return run_id


@pytest.fixture
def late(monkeypatch):
    return sent_to(Hanging(), monkeypatch)


def test_what_a_tracker_did_not_get_is_sent_later(late, tmp_path, caplog):
    train(tmp_path, "--stop-iterations", 3, "--track", "mlflow:sqlite:///runs.db")
    assert "Hanging did not get everything. Rows are kept in" in caplog.text
    assert "local-trainer track sends it" in caplog.text
    known = json.loads((tmp_path / "run/trackers/mlflow/run.json").read_text())
    assert (late.iterations, known["sent"]) == ([], 0)
    assert "0 of 3 missing rows sent" in run("track", "run", folder=tmp_path, code=1).stdout
    late.is_there = True
    told = run("track", "run", folder=tmp_path).stdout
    assert (
        told == f"mlflow:sqlite:///runs.db: 3 of 3 missing rows sent, to its run {known['run']}\n"
    )
    assert late.iterations == [1, 2, 3]
    assert late.facts["name"] == "run"
    assert late.facts["params"]["train_batch_size"] == 40
    assert "0 of 0 missing rows sent" in run("track", "run", folder=tmp_path).stdout
    assert late.iterations == [1, 2, 3]
    told = run("track", "run", "--anew", folder=tmp_path).stdout
    assert "3 of 3 missing rows sent" in told
    assert known["run"] not in told
    assert late.iterations == [1, 2, 3, 1, 2, 3]
    run("resume", "run", "--stop-iterations", 4, folder=tmp_path)
    assert late.iterations == [1, 2, 3, 1, 2, 3, 4]


def test_a_run_that_was_not_tracked_is_sent_where_it_is_said(service, tmp_path):
    train(tmp_path, "--stop-iterations", 2)
    told = run("track", "run", folder=tmp_path, code=1).stderr
    assert "it was begun without --track. Say so now: --track mlflow:URI" in told
    run("track", "run", "--track", "wandb", folder=tmp_path)
    assert service.iterations == [1, 2]
    known = json.loads((tmp_path / "run/trackers/wandb/run.json").read_text())
    assert known["sent"] == 2
    assert known["facts"]["experiment"].startswith("PPO-")


def test_rows_of_a_callback_are_sent_later_too(late, tmp_path):
    logger = TrackerLogger(late, tmp_path / "t")
    with small_ppo(callbacks=[logger]).build_algo() as algo:
        algo.train()
        assert algo.callbacks.objects[0].flush(30)
    told = run("track", "t", folder=tmp_path, code=1).stderr
    assert "it is the folder of a callback. Say so now" in told
    late.is_there = True
    run("track", "t", "--track", "mlflow", folder=tmp_path)
    assert late.iterations == [1]
    assert (
        late.facts["experiment"]
        == json.loads((tmp_path / "t/run.json").read_text())["facts"]["experiment"]
    )


def test_what_holds_no_rows_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    told = run("track", "empty", "--track", "mlflow", folder=tmp_path, code=1).stderr
    assert "has no rows that could be sent" in told
    assert not list((tmp_path / "empty").iterdir())

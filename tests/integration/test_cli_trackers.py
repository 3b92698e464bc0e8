"""`--track` and `--track-artifacts`: what a service gets from a run of the command line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from callbacks.ready_made.tracker_services import Artifact
from callbacks.ready_made.trackers import ServiceSender
from tests.command_line import run, train
from trainer.cli import commands, run_trackers


class Service:
    """Notes what it is sent, and reads a checkpoint while it is there."""

    def __init__(self) -> None:
        self.iterations: list[float] = []
        self.files: list[tuple[str, str]] = []
        self.manifests: list[dict[str, Any]] = []

    def open_run(self, run_id: str, facts: Mapping[str, Any]) -> str:
        return run_id

    def log_row(self, run: str, row: Mapping[str, float], step: int) -> None:
        self.iterations.append(row["training_iteration"])

    def log_artifact(self, run: str, artifact: Artifact, step: int) -> None:
        self.files.append((artifact.kind, artifact.name))
        self.manifests.append(json.loads((artifact.path / "manifest.json").read_text()))

    def close_run(self, run: str, *, failed: bool) -> None:
        """Nothing is to be ended."""


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    """What `--track mlflow` sends to; a run of the command line waits until it has everything."""
    made = Service()
    close = ServiceSender.close

    def close_and_wait(self: ServiceSender) -> None:
        close(self)
        assert self.flush(30)
        assert self.num_lost == 0

    monkeypatch.setattr(ServiceSender, "close", close_and_wait)
    for module in (commands, run_trackers):
        monkeypatch.setattr(module, "tracker_service", lambda name: made)
    return made


def test_checkpoints_are_sent_by_choice_and_after_a_resume_too(
    service: Service, tmp_path: Path
) -> None:
    saving = ["--checkpoint-every", 1, "--keep", 9]
    chosen = ["--track", "mlflow", "--track-artifacts", "checkpoints"]
    train(tmp_path, "--stop-iterations", 2, *saving, *chosen)
    run("resume", "run", "--stop-iterations", 3, folder=tmp_path)
    assert service.iterations == [1, 2, 3]
    assert service.files == [("checkpoints", f"checkpoints-00000{number}") for number in (1, 2, 3)]
    assert all(manifest["components"] for manifest in service.manifests)


def test_without_a_choice_numbers_alone_are_sent(service: Service, tmp_path: Path) -> None:
    train(tmp_path, "--stop-iterations", 2, "--track", "mlflow")
    assert service.iterations == [1, 2]
    assert service.files == []


def test_artefacts_for_no_tracker_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    words = ["train", "--env", "CartPole-v1", "--run-dir", "run"]
    words += ["--track-artifacts", "checkpoints"]
    told = run(*words, folder=tmp_path, code=1).stderr
    assert "this run has none. Name one: --track" in told
    assert not list(tmp_path.iterdir())


def test_videos_of_a_run_that_records_none_are_told(
    service: Service, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chosen = ["--track", "mlflow", "--track-artifacts", "videos"]
    train(tmp_path, "--stop-iterations", 1, *chosen)
    assert "no VideoRecorder among its callbacks" in caplog.text

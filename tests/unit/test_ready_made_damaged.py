"""A damaged checkpoint where one is to be saved makes room for it, and is not lost."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from callbacks import BestCheckpoint, PeriodicCheckpoint
from checkpoints import CheckpointWriteError, find_checkpoints, verify
from tests.steered_algorithm import SteeredAlgorithm


def saver(kind: Any, folder: Path) -> SteeredAlgorithm:
    every = {"every": 1} if kind is PeriodicCheckpoint else {"keep": 9}
    algorithm = SteeredAlgorithm(kind(folder, **every))
    algorithm.callbacks.fire("on_checkpoint_loaded", algorithm=algorithm, metrics_logger=None)
    return algorithm


def damage(checkpoint: Path, manifest: bytes | None) -> dict[str, bytes]:
    """Replaces the manifest, or removes it; returns the files that are there then."""
    if manifest is None:
        (checkpoint / "manifest.json").unlink()
    else:
        (checkpoint / "manifest.json").write_bytes(manifest)
    return {file.name: file.read_bytes() for file in checkpoint.iterdir()}


@pytest.mark.parametrize("kind", [PeriodicCheckpoint, BestCheckpoint])
@pytest.mark.parametrize(
    "manifest", [None, b"", b"{", b'{"format": "x"}', b'{"format": "local-trainer-checkpoint"}']
)
def test_a_damaged_one_is_renamed_and_the_new_one_saved(
    kind: Any, manifest: bytes | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saver(kind, tmp_path).tell()
    for number in (1, 2):
        held = damage(tmp_path / "000001", manifest)
        caplog.clear()
        saver(kind, tmp_path).tell()
        verify(tmp_path / "000001")
        aside = tmp_path / f"000001-damaged-{number}"
        assert {file.name: file.read_bytes() for file in aside.iterdir()} == held
        told = [text for text in caplog.messages if str(aside) in text]
        assert len(told) == 1
    caplog.clear()
    assert [found.path.name for found in find_checkpoints(tmp_path)] == ["000001"]
    assert caplog.messages == []


def test_what_is_set_aside_neither_counts_nor_goes(tmp_path: Path) -> None:
    saver(PeriodicCheckpoint, tmp_path).tell()
    damage(tmp_path / "000001", None)
    algorithm = SteeredAlgorithm(PeriodicCheckpoint(tmp_path, every=1, keep_last=1))
    algorithm.tell_returns([1.0] * 3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000001-damaged-1", "000003"]


@pytest.mark.parametrize("name", ["notes.txt", "000001"])
def test_files_of_others_are_refused_and_stay(name: str, tmp_path: Path) -> None:
    saver(PeriodicCheckpoint, tmp_path).tell()
    damage(tmp_path / "000001", b"")
    (tmp_path / "000001" / name).mkdir()
    with pytest.raises(CheckpointWriteError, match="not empty and not a checkpoint"):
        saver(PeriodicCheckpoint, tmp_path).tell()
    assert [path.name for path in tmp_path.iterdir()] == ["000001"]
    assert (tmp_path / "000001" / name).is_dir()


def test_one_that_cannot_be_renamed_stays_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver(PeriodicCheckpoint, tmp_path).tell()
    held = damage(tmp_path / "000001", b"")

    def refuse(self: Path, target: Any) -> None:
        raise PermissionError(13, "refused", str(target))

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(CheckpointWriteError, match="cannot be renamed to make room"):
        saver(PeriodicCheckpoint, tmp_path).tell()
    assert {f.name: f.read_bytes() for f in (tmp_path / "000001").iterdir()} == held


def test_the_list_says_what_is_wrong_with_a_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saver(PeriodicCheckpoint, tmp_path).tell()
    file = next((tmp_path / "000001").glob("*.state"))
    size = len(file.read_bytes())
    file.write_bytes(b"0123456789")
    with caplog.at_level(logging.WARNING):
        assert find_checkpoints(tmp_path) == []
    assert f"{file} has 10 of {size:,} bytes" in caplog.text
    file.unlink()
    find_checkpoints(tmp_path)
    assert f"lacks {file.name}" in caplog.text

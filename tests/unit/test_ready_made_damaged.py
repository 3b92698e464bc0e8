"""A damaged checkpoint where one is to be saved is replaced; files of others never are."""

import pytest

from callbacks import BestCheckpoint, PeriodicCheckpoint
from checkpoints import find_checkpoints, verify
from tests.saved_files import files_of
from tests.steered_algorithm import SteeredAlgorithm


def saver(kind, folder):
    every = {"every": 1} if kind is PeriodicCheckpoint else {"keep": 9}
    return SteeredAlgorithm(kind(folder, **every)).go_on(0)


@pytest.mark.parametrize("kind", [PeriodicCheckpoint, BestCheckpoint])
@pytest.mark.parametrize(
    "manifest", [None, b"", b"{", b'{"format": "x"}', b'{"format": "local-trainer-checkpoint"}']
)
def test_a_damaged_one_is_replaced(kind, manifest, tmp_path, caplog):
    saver(kind, tmp_path).tell()
    file = tmp_path / "000001" / "manifest.json"
    file.unlink() if manifest is None else file.write_bytes(manifest)
    caplog.clear()
    saver(kind, tmp_path).tell()
    verify(tmp_path / "000001")
    assert [found.path.name for found in find_checkpoints(tmp_path)] == ["000001"]
    assert len(list((tmp_path / "000001").iterdir())) == 2
    assert [text for text in caplog.messages if "Left out" not in text] == []


def test_the_list_says_what_is_wrong_with_a_file(tmp_path, caplog):
    saver(PeriodicCheckpoint, tmp_path).tell()
    file = next(files_of(tmp_path / "000001").glob("*.state"))
    size = len(file.read_bytes())
    file.write_bytes(b"0123456789")
    assert find_checkpoints(tmp_path) == []
    assert f"{file} has 10 of {size:,} bytes" in caplog.text
    file.unlink()
    find_checkpoints(tmp_path)
    assert f"lacks {file.name}" in caplog.text

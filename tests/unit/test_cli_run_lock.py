"""One run per directory: held by one, given back at the end or by the system, refused by name."""

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from checkpoints import LinkError
from trainer import ConfigError
from trainer.runtime.run_lock import LOCK_FILE, RunLock


def test_a_second_owner_is_refused_and_told_who_holds_it(tmp_path):
    with RunLock(tmp_path):
        for _ in range(2):  # the refused one does not remove the owner's file
            with (
                pytest.raises(ConfigError, match=f"in use: process {os.getpid()} trains there"),
                RunLock(tmp_path),
            ):
                pytest.fail("two owners")


def test_it_is_given_back_and_leaves_nothing(tmp_path):
    for _ in range(2):
        with RunLock(tmp_path / "a" / "b"):
            assert (tmp_path / "a" / "b" / LOCK_FILE).exists()
        assert list(tmp_path.iterdir()) == []


def test_directories_in_use_stay(tmp_path):
    with RunLock(tmp_path / "a" / "b"):
        (tmp_path / "a" / "b" / "results.jsonl").touch()
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["results.jsonl"]


def test_a_new_directory_is_of_one_process_alone(tmp_path):
    with RunLock(tmp_path / "a" / "b", must_be_new=True):
        assert (tmp_path / "a" / "b" / LOCK_FILE).exists()
        with pytest.raises(FileExistsError), RunLock(tmp_path / "a" / "b", must_be_new=True):
            pytest.fail("two owners")
        assert (tmp_path / "a" / "b" / LOCK_FILE).exists()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "a").touch()
    with pytest.raises(ConfigError), RunLock(tmp_path / "a" / "b", must_be_new=True):
        pytest.fail("a directory within a file")


def test_a_file_left_by_a_crash_means_nothing(tmp_path):
    (tmp_path / LOCK_FILE).write_text("1\n")
    with RunLock(tmp_path):
        assert (tmp_path / LOCK_FILE).read_text() == f"{os.getpid()}\n"


def test_a_link_in_its_place_empties_no_other_file(tmp_path):
    """In a folder of another user, who has put it there."""
    precious, run = tmp_path / "precious", tmp_path / "run"
    precious.write_text("text")
    run.mkdir()
    (run / LOCK_FILE).symlink_to(precious)
    with pytest.raises(LinkError, match="a link that leads out of"), RunLock(run):
        pytest.fail("an owner")
    assert precious.read_text() == "text"


@pytest.mark.process
def test_the_system_gives_it_back_when_the_owner_is_killed(tmp_path):
    code = (
        "import sys; from pathlib import Path; from trainer.runtime.run_lock import RunLock\n"
        "with RunLock(Path(sys.argv[1])): print('locked', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    ) as owner:
        assert owner.stdout.readline() == "locked\n"
        with pytest.raises(ConfigError, match=f"process {owner.pid} "), RunLock(tmp_path):
            pytest.fail("two owners")
        owner.kill()
    with RunLock(tmp_path):
        pass


@pytest.mark.parametrize("name", ["file", "file/x", "x" * 300])
def test_a_path_that_cannot_be_a_directory_is_one_clear_error(name, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be used as the directory of a run"):
        RunLock(tmp_path / name).__enter__()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_lock_file_removed_while_waiting_is_made_anew(tmp_path, monkeypatch):
    flock = fcntl.flock
    removed = []

    def remove_first(descriptor, operation):
        if not removed:  # its owner ends between opening and locking
            removed.append(descriptor)
            (tmp_path / LOCK_FILE).unlink()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    with RunLock(tmp_path), pytest.raises(ConfigError), RunLock(tmp_path):
        pytest.fail("two owners")


def test_where_files_cannot_be_locked_a_warning_says_so(tmp_path, monkeypatch, caplog):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with RunLock(tmp_path):
        pass
    assert "make sure that no other process trains there" in caplog.text


def test_another_error_of_its_own_file_is_no_missing_lock(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EBADF, "bad file")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(ConfigError, match="bad file"), RunLock(tmp_path):
        pytest.fail("not locked")

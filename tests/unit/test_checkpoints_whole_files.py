"""One way to replace a file whole, and one lock."""

import errno
import os

import pytest

from trainer_toolkit.files import NoLocksError, PathLock, lock_file, replacing, unlock_file


def test_the_old_content_is_there_until_all_of_the_new_is(tmp_path):
    target, draft = tmp_path / "a.json", tmp_path / ".a.json.tmp"
    target.write_bytes(b"old")
    with replacing(target, draft) as file:
        file.write(b"new")
        file.flush()
        assert (target.read_bytes(), draft.read_bytes()) == (b"old", b"new")
    assert target.read_bytes() == b"new"
    assert not draft.exists()


@pytest.mark.parametrize("error", [OSError(28, "no space left"), KeyboardInterrupt()])
def test_what_fails_leaves_the_old_content_and_no_draft(tmp_path, error):
    target, draft = tmp_path / "a.json", tmp_path / ".a.json.tmp"
    target.write_bytes(b"old")

    def fail():
        with replacing(target, draft) as file:
            file.write(b"half")
            raise error

    with pytest.raises(type(error)):
        fail()
    assert os.listdir(tmp_path) == ["a.json"]  # noqa: PTH208
    assert target.read_bytes() == b"old"


def test_a_lock_keeps_others_away_unless_both_share_it(tmp_path):
    path = tmp_path / "lock"
    path.touch()
    with path.open() as first, path.open() as second:
        lock_file(first.fileno(), shared=True)
        lock_file(second.fileno(), shared=True)
        with pytest.raises(BlockingIOError):
            lock_file(second.fileno())
        unlock_file(first.fileno())
        lock_file(second.fileno(), wait=True)
        with pytest.raises(BlockingIOError):
            lock_file(first.fileno(), shared=True)
    with path.open() as third:
        lock_file(third.fileno())  # closing gives it back


def test_where_there_are_no_locks_it_says_so(monkeypatch):
    def refuse(descriptor, operation):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(NoLocksError, match="not supported"):
        lock_file(0)


@pytest.mark.parametrize("code", [errno.EBADF, errno.EINVAL])
def test_what_means_no_locks_for_a_directory_is_an_error_for_a_file(tmp_path, monkeypatch, code):
    def refuse(descriptor, operation):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(OSError, match=os.strerror(code)) as caught:
        lock_file(0)
    assert not isinstance(caught.value, NoLocksError)
    with PathLock(tmp_path) as lock:
        assert not lock.is_real

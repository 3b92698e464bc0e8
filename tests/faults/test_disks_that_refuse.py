"""Disks that are full, read-only or gone: a clear error, nothing half-written, training goes on.

Real refusals of the operating system, as far as the machine lets a test make them; injected ones
for every number that a disk may give. What each file operation does is in
`test_checkpoint_crashes.py`.
"""

import errno
import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from checkpoints import (
    CheckpointError,
    CheckpointWriteError,
    FileSystem,
    find_checkpoints,
    latest_checkpoint,
    read_checkpoint,
    verify,
    write_checkpoint,
)
from tests.faults.test_checkpoint_crashes import Recording

pytestmark = pytest.mark.skipif(os.name != "posix", reason="limits and rights of POSIX")

PROJECT = Path(__file__).parents[2]
COUNT = "num_failed_saves_lifetime"
LARGE = {"w": np.arange(30_000.0)}
"""240 kB: more than the limits below."""


def save(path, value, state=None, **options):
    components = {"a": state, "c": value}
    return write_checkpoint(
        path, components=components, metadata={"training_iteration": value}, **options
    )


def names(folder):
    return sorted(path.name for path in folder.iterdir())


# ---- every number at every operation


def make_files_refuse(error, operation):
    """Files of which one operation fails the first time that it comes."""

    class Refusing(Recording):
        has_failed = False

        def step(self, name, path, act, half=None):
            if name == operation and not self.has_failed:
                self.has_failed = True
                if half is not None:
                    half()  # a disk that fills up takes what still fits
                raise OSError(error, os.strerror(error), str(path))
            return super().step(name, path, act, half)

    return Refusing()


BEFORE_IT_IS_IN_PLACE = ["make_directory", "create", "write", "sync", "sync_directory", "replace"]
AFTERWARDS = ["remove", "remove_directory"]
NUMBERS = [
    errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.EFBIG,
    errno.EMFILE, errno.ENFILE, errno.ENAMETOOLONG, errno.ENOENT, errno.ESTALE,
]  # fmt: skip
REMEDIES = {
    errno.ENOSPC: "Free space on its disk", errno.EDQUOT: "Your share", errno.EFBIG: "ulimit -f",
    errno.EROFS: "can only be read", errno.EACCES: "the owner and the permissions",
    errno.EPERM: "the owner and the permissions", errno.EIO: "dmesg", errno.EMFILE: "ulimit -n",
    errno.ENFILE: "fs.file-max", errno.ENAMETOOLONG: "Give a shorter path",
}  # fmt: skip


REFUSED = [
    (operation, error)
    for operation in BEFORE_IT_IS_IN_PLACE
    for error in NUMBERS
    # Another process took the directory for abandoned: see test_checkpoint_crashes.py.
    if (operation, error) != ("make_directory", errno.ENOENT)
]


@pytest.mark.parametrize(
    ("operation", "error"), REFUSED, ids=[f"{name}-{errno.errorcode[no]}" for name, no in REFUSED]
)
def test_a_save_that_is_refused_says_why_and_leaves_what_was_there(operation, error, tmp_path):
    path = save(tmp_path / "c", 1)
    with pytest.raises(CheckpointWriteError) as caught:
        save(path, 2, file_system=make_files_refuse(error, operation))
    assert os.strerror(error) in str(caught.value)
    assert str(path) in str(caught.value)
    assert "What was there before is still complete" in str(caught.value)
    assert REMEDIES.get(error, "Check the path, the permissions and the disk") in str(caught.value)
    assert ("Free space" in str(caught.value)) is (error == errno.ENOSPC)
    assert isinstance(caught.value.__cause__, OSError)
    assert names(tmp_path) == ["c"]
    assert verify(path).training_iteration == 1
    assert save(path, 3) == path
    assert read_checkpoint(path).components["c"] == 3


@pytest.mark.parametrize("operation", AFTERWARDS)
@pytest.mark.parametrize("error", NUMBERS, ids=lambda number: errno.errorcode[number])
def test_what_cannot_be_removed_goes_with_the_next_save(operation, error, tmp_path):
    path = save(tmp_path / "c", 1)
    save(path, 2, file_system=make_files_refuse(error, operation))
    assert verify(path).training_iteration == 2
    assert [found.path for found in find_checkpoints(tmp_path)] == [path]
    save(path, 3)
    assert names(tmp_path) == ["c"]


# ---- the operating system itself refuses

IN_A_CHILD = """
import signal, sys
from pathlib import Path
import numpy as np
from checkpoints import CheckpointWriteError, latest_checkpoint, verify, write_checkpoint

def save(number, size):
    return write_checkpoint(
        FOLDER / "c", components={"w": np.zeros(size), "c": number},
        metadata={"training_iteration": number},
    )

def refused(number, size=30_000):
    try:
        save(number, size)
    except CheckpointWriteError as error:
        print(error)
        return True
    return False

def names():
    return sorted(path.name for path in FOLDER.iterdir())

FOLDER = Path(sys.argv[1])
"""


def in_a_child(folder, code, *before):
    done = subprocess.run(
        [*before, sys.executable, "-c", IN_A_CHILD + code, str(folder)],
        cwd=PROJECT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def skip_unless(*command):
    """Skips a test on a machine that does not let us."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {command[0]} here")
    done = subprocess.run([*command, "true"], capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"{command[0]} is not allowed here")


@pytest.mark.slow
def test_a_limit_on_the_size_of_files(tmp_path):
    code = """
import resource
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
save(1, 10)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
assert refused(2)
assert names() == ["c"], names()
assert verify(latest_checkpoint(FOLDER)).training_iteration == 1
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
save(3, 30_000)
assert verify(latest_checkpoint(FOLDER)).training_iteration == 3
"""
    assert "File too large" in in_a_child(tmp_path, code)


@pytest.mark.slow
def test_a_limit_on_open_files(tmp_path):
    code = """
import os, resource
save(1, 10)
limit = len(os.listdir("/proc/self/fd")) - 1 if os.path.exists("/proc/self/fd") else 4
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
for more in (0, 1):
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit + more, most))
    assert refused(2)
resource.setrlimit(resource.RLIMIT_NOFILE, (100, most))
assert names() == ["c"], names()
save(3, 10)
assert verify(latest_checkpoint(FOLDER)).training_iteration == 3
"""
    assert "Too many open files" in in_a_child(tmp_path, code)


def test_a_full_disk(tmp_path):
    skip_unless("unshare", "--mount")
    code = """
import subprocess
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "none", FOLDER], check=True)
save(1, 10)
assert refused(2)
assert names() == ["c"], names()
(FOLDER / "filler").write_bytes(bytes(100_000))
while not refused(4, 10):  # until not even a small one fits
    with (FOLDER / "filler").open("ab") as filler:
        filler.write(bytes(4096))
assert names() == ["c", "filler"], names()
verify(latest_checkpoint(FOLDER))
(FOLDER / "filler").unlink()
save(5, 100)
assert verify(latest_checkpoint(FOLDER)).training_iteration == 5
"""
    assert "No space left on device" in in_a_child(tmp_path, code, "unshare", "--mount")


@pytest.mark.slow
def test_a_disk_that_becomes_read_only(tmp_path):
    skip_unless("unshare", "--mount")
    code = """
import subprocess
subprocess.run(["mount", "-t", "tmpfs", "none", FOLDER], check=True)
save(1, 10)
subprocess.run(["mount", "-o", "remount,ro", FOLDER], check=True)
assert refused(2)
assert names() == ["c"], names()
assert verify(latest_checkpoint(FOLDER)).training_iteration == 1
subprocess.run(["mount", "-o", "remount,rw", FOLDER], check=True)
save(3, 10)
assert verify(latest_checkpoint(FOLDER)).training_iteration == 3
"""
    assert "Read-only file system" in in_a_child(tmp_path, code, "unshare", "--mount")


def test_a_directory_without_the_right_to_write(tmp_path):
    root = ()
    if os.geteuid() == 0:  # whom rights do not stop otherwise
        root = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
        skip_unless(*root)
    code = """
save(1, 10)
(FOLDER / "c").chmod(0o555)
assert refused(2)
assert names() == ["c"], names()
assert verify(latest_checkpoint(FOLDER)).training_iteration == 1
(FOLDER / "c").chmod(0o000)
assert latest_checkpoint(FOLDER) is None  # which is told, not raised
(FOLDER / "c").chmod(0o755)
save(3, 10)
(FOLDER / "lost+found").mkdir(mode=0o000)  # as on the root of a disk
assert verify(latest_checkpoint(FOLDER)).training_iteration == 3
"""
    assert "Permission denied" in in_a_child(tmp_path, code, *root)


# ---- paths


@pytest.mark.parametrize(
    ("make_path", "text"),
    [
        (lambda folder: folder / ("x" * 300), "File name too long"),
        (lambda folder: folder.joinpath(*["deep" * 50] * 30), "File name too long"),
        (lambda folder: folder / "file" / "c", "Not a directory|File exists"),
        (lambda folder: folder / "file" / "deep" / "c", "Not a directory|File exists"),
        (lambda folder: folder / "file", "is a file"),
        (lambda folder: folder / "loop" / "c", "loop|Too many levels"),
        (lambda folder: Path("/dev/full"), "is a file"),
        (lambda folder: Path("/dev/null/c"), "Not a directory|File exists"),
        (lambda folder: Path("/proc/c"), "No such file|Permission denied|Read-only"),
    ],
)  # fmt: skip
def test_impossible_paths_are_told(make_path, text, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    path = make_path(tmp_path)
    with pytest.raises(CheckpointError, match=text):
        save(path, 1)
    with pytest.raises(CheckpointError):
        read_checkpoint(path)
    assert [name for name in names(tmp_path) if name.startswith(".")] == []
    assert (tmp_path / "file").read_bytes() == b""


@pytest.mark.parametrize("name", [b"caf\xe9", "naïve", "line\nend", "files-1", "%2E", "-rf"])
def test_odd_names_are_possible_and_survive_a_crash(name, tmp_path):
    path = tmp_path / os.fsdecode(name)
    try:
        save(path, 1)
    except CheckpointWriteError:
        pytest.skip("this file system refuses the name")

    class Dying(Recording):
        def replace(self, source, target):
            os._exit(0)  # just before the new one is there

    pid = os.fork()
    if pid == 0:
        try:
            save(path, 2, file_system=Dying())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert read_checkpoint(path).components["c"] in (1, 2)
    assert latest_checkpoint(tmp_path) is not None
    save(path, 3)
    assert [os.fsencode(entry) for entry in tmp_path.iterdir()] == [os.fsencode(path)]


# ---- files that take little


class Reluctant(io.FileIO):
    """Takes few bytes at a time, as pipes and some network file systems do."""

    def write(self, data):
        return super().write(memoryview(data)[:1000])


@pytest.mark.parametrize("is_buffered", [True, False])
def test_files_that_take_little_at_a_time_get_everything(is_buffered, tmp_path):
    class InPieces(FileSystem):
        def create_file(self, path):
            raw = Reluctant(path, "xb")
            return io.BufferedWriter(raw) if is_buffered else raw

    path = save(tmp_path / "c", 1, LARGE, file_system=InPieces())
    verify(path)
    assert np.array_equal(read_checkpoint(path).components["a"]["w"], LARGE["w"])


class FullInTheMiddle(FileSystem):
    def write(self, file, data):
        super().write(file, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_negative_control_a_half_written_file_is_never_a_checkpoint(tmp_path):
    class NeverTidy(FullInTheMiddle):
        def remove_file(self, path):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.raises(CheckpointWriteError, match="No space left"):
        save(tmp_path / "c", 1, LARGE, file_system=NeverTidy())
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.glob("*/*")] == ["c/files-1"]
    assert find_checkpoints(tmp_path) == []
    save(tmp_path / "c", 2, LARGE)
    assert names(tmp_path) == ["c"]

"""Folders that another user has made where ours are looked for, and what our calls make of them.

    python -m tests.faults.squatted_folders USER [WAY …]      a line of JSON for each way

USER is the id of the user whose calls are made: 0 makes processes, too.

Needs root: a child becomes the user who squats, another one the user whose calls are counted. Both
are forked, because the interpreter need not be readable for other users.
"""

# mypy: disable-error-code="attr-defined"
# Type checkers take a decorated class for the class itself.

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import json
import multiprocessing.connection as connections
import os
import pickle
import shutil
import signal
import socket
import stat
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from trainer import PPOConfig, actors
from trainer.actors.process import HEADER, VALUE
from trainer.testing.processes import wait_until

SQUATTER: Final = 65534
ROOT: Final = 0
ORDINARY: Final = 61234
NAME: Final = "global_counter"
KEY: Final = b"k" * 32
ACTOR_ID: Final = "0123456789ab"
DEPTH: Final = 3000
PATIENCE_S: Final = 60.0


@dataclass
class Report:
    """What happened to one victim.

    Attributes:
        num_calls: how many calls were made.
        broken: those that ended in another way than without a squatter.
    """

    num_calls: int = 0
    broken: list[str] = field(default_factory=list)

    def make(self, call: Callable[[], Any], *expected: type[Exception]) -> None:
        self.num_calls += 1
        try:
            call()
        except expected:
            return
        except BaseException as error:  # noqa: BLE001 - that is what is counted
            where = traceback.extract_tb(error.__traceback__)[-1]
            self.broken.append(f"{type(error).__name__}: {error} ({where.filename}:{where.lineno})")


class Payload:
    """Unpickled, it makes a file."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> Any:
        return os.open, (str(self.canary), os.O_CREAT | os.O_WRONLY, 0o666)


@actors.remote
class Counter:
    def __init__(self) -> None:
        self.count = 0

    def inc(self) -> int:
        self.count += 1
        return self.count


# ---- the squatter


def detached(place: Path, victim: int) -> Path:
    return place / f"local-trainer-detached-{victim}"


def own(place: Path, victim: int) -> Path:
    return place / f"local-trainer-{victim}-abcdefgh"


def registry_with_actor(folder: Path, canary: Path, innocent: int, mode: int = 0o777) -> None:
    """A registry with a living actor whose answers are pickled code, and whose pid is another's."""
    folder.mkdir()
    record = {
        "directory": str(folder),
        "actor_id": ACTOR_ID,
        "class_name": "Counter",
        "name": NAME,
        "namespace": "",
        "methods": ["inc"],
        "pid": innocent,
        "is_detached": True,
        "is_checkpointable": False,
    }
    digest = hashlib.sha256(f"\0{NAME}".encode()).hexdigest()[:32]
    (folder / f"{digest}.name").write_text(json.dumps(record))
    (folder / "key").write_bytes(KEY)
    (folder / "lock").touch()
    payload = pickle.dumps(Payload(canary))
    (folder / f"{ACTOR_ID}.end").write_bytes(payload)
    (folder / "endings").write_bytes(payload)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(folder / ACTOR_ID))
    listener.listen(128)
    for path in folder.iterdir():
        path.chmod(0o777)
    threading.Thread(target=answer, args=(listener, payload), daemon=True).start()
    folder.chmod(mode)


def answer(listener: socket.socket, payload: bytes) -> None:
    while True:
        joined, _ = listener.accept()
        connection: connections.Connection[Any, Any] = connections.Connection(joined.detach())
        with contextlib.suppress(Exception):
            connections.deliver_challenge(connection, KEY)
            connections.answer_challenge(connection, KEY)
            number, _ = HEADER.unpack_from(connection.recv_bytes())
            connection.send_bytes(HEADER.pack(number, VALUE) + payload)


def deep_tree(folder: Path) -> None:
    folder.mkdir()
    (folder / "owner").touch()
    (folder / "owner").chmod(0o666)
    folder.chmod(0o777)
    descriptor = os.open(folder, os.O_RDONLY)
    for _ in range(DEPTH):
        os.mkdir("d", 0o777, dir_fd=descriptor)
        below = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)


def remove_deep_tree(folder: Path) -> None:
    """Without recursion: what is below is moved up, level by level."""
    while (folder / "d").exists():
        with contextlib.suppress(FileNotFoundError):
            (folder / "d" / "d").rename(folder / "e")
        (folder / "d").rmdir()
        with contextlib.suppress(FileNotFoundError):
            (folder / "e").rename(folder / "d")


def unreadable(folder: Path) -> None:
    folder.mkdir()
    (folder / "owner").touch()
    folder.chmod(0)


def fifos(folder: Path) -> None:
    folder.mkdir()
    digest = hashlib.sha256(f"\0{NAME}".encode()).hexdigest()[:32]
    for name in ("key", "lock", "owner", "endings", f"{digest}.name"):
        os.mkfifo(folder / name, 0o666)
        (folder / name).chmod(0o666)
    folder.chmod(0o777)


def held_locks(folder: Path) -> None:
    """Locks that are never given back."""
    folder.mkdir()
    for name in ("lock", f"{ACTOR_ID}.watched"):
        file = (folder / name).open("w")
        (folder / name).chmod(0o666)
        fcntl.flock(file, fcntl.LOCK_EX)
        KEPT.append(file)
    folder.chmod(0o777)


KEPT: Final[list[Any]] = []


def link_to_registry(folder: Path, canary: Path, innocent: int) -> None:
    elsewhere = folder.with_name("elsewhere")
    registry_with_actor(elsewhere, canary, innocent)
    folder.symlink_to(elsewhere)


def damaged(folder: Path) -> None:
    folder.mkdir()
    digest = hashlib.sha256(f"\0{NAME}".encode()).hexdigest()[:32]
    (folder / f"{digest}.name").write_text("[" * 100_000)
    folder.chmod(0o777)


WAYS: Final[dict[str, Callable[[Path, int, Path, int], None]]] = {
    "actor": lambda p, v, c, i: registry_with_actor(detached(p, v), c, i),
    "actor, private": lambda p, v, c, i: registry_with_actor(detached(p, v), c, i, mode=0o700),
    "actor behind a link": lambda p, v, c, i: link_to_registry(detached(p, v), c, i),
    "unreadable": lambda p, v, c, i: unreadable(detached(p, v)),
    "file": lambda p, v, c, i: detached(p, v).touch(),
    "fifos": lambda p, v, c, i: fifos(detached(p, v)),
    "fifo": lambda p, v, c, i: os.mkfifo(detached(p, v)),
    "dangling link": lambda p, v, c, i: detached(p, v).symlink_to("nowhere"),
    "link to itself": lambda p, v, c, i: detached(p, v).symlink_to(detached(p, v)),
    "held locks": lambda p, v, c, i: held_locks(detached(p, v)),
    "damaged": lambda p, v, c, i: damaged(detached(p, v)),
    "deep tree": lambda p, v, c, i: deep_tree(detached(p, v)),
    "own: unreadable": lambda p, v, c, i: unreadable(own(p, v)),
    "own: deep tree": lambda p, v, c, i: deep_tree(own(p, v)),
    "own: fifos": lambda p, v, c, i: fifos(own(p, v)),
    "own: file": lambda p, v, c, i: own(p, v).touch(),
    "own: link": lambda p, v, c, i: own(p, v).symlink_to("/etc"),
}
"""What the squatter does: (place, victim's user id, canary, another process of the victim)."""


# ---- the victim


def find() -> None:
    """What is found belongs to no user we know: asking it is what would run its code."""
    handle = actors.get_actor(NAME)
    actors.get(handle.inc.remote(), timeout=5)
    raise AssertionError("an actor was found")


def find_and_kill() -> None:
    actors.kill(actors.get_actor(NAME))
    raise AssertionError("an actor was found")


def count() -> None:
    assert actors.get(Counter.options(name=NAME).remote().inc.remote(), timeout=30) == 1
    actors.shutdown()


def make_detached() -> None:
    handle = Counter.options(name=NAME, lifetime="detached", get_if_exists=True).remote()
    try:
        assert actors.get(handle.inc.remote(), timeout=30) == 1
    finally:
        actors.kill(handle)
        actors.shutdown()


def build() -> None:
    config = PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=0)
    config = config.training(train_batch_size=20, minibatch_size=20, num_epochs=1)
    with config.build_algo() as algorithm:
        algorithm.train()


def be_victim(victim: int, home: Path) -> Report:
    """All kinds of calls; a user who may not start the interpreter makes no processes."""
    os.environ["HOME"] = str(home)
    report = Report()
    report.make(find, actors.ActorNameError)
    report.make(find_and_kill, actors.ActorNameError)
    report.make(find, actors.ActorNameError)
    report.make(build)
    if victim == ROOT:
        report.make(count)
        report.make(make_detached)
        os.environ["HOME"] = "/nonexistent"  # the folder that is squatted is the last one left
        report.make(find, actors.ActorNameError)
        report.make(make_detached, actors.ActorError)
    return report


# ---- a case


def forked(user: int, work: Callable[[], object]) -> tuple[int, int]:
    """A child of another user that works; its process id, and where its answer is read."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setpgid(0, 0)
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            os.umask(0)
            answer = pickle.dumps(work())
            atexit._run_exitfuncs()  # what the end of an interpreter does, but for its exit
            os.write(writing, answer)
            os.close(writing)
            code = 0
        except BaseException:  # noqa: BLE001 - a child must not go on with its parent's work
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writing)
    return pid, reading


def tried(way: str, victim: int) -> dict[str, Any]:
    """One way of squatting against one victim."""
    base = Path(tempfile.mkdtemp(prefix="lt-"))  # no object: a forked victim would remove it
    place, home, spool = base / "tmp", base / "home", base / "spool"
    for folder, mode in ((base, 0o755), (place, 0o1777), (home, 0o700), (spool, 0o777)):
        folder.mkdir(exist_ok=True)
        folder.chmod(mode)
    os.chown(home, victim, victim)
    before = dict(os.environ), tempfile.tempdir
    os.environ["TMPDIR"] = tempfile.tempdir = str(place)
    for name in ("XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "LOCAL_TRAINER_DETACHED_ACTORS"):
        os.environ.pop(name, None)
    children = []
    try:
        innocent, _ = forked(victim, signal.pause)
        children.append(innocent)

        def squat() -> None:
            WAYS[way](place, victim, spool / "canary", innocent)
            (spool / "ready").touch()
            signal.pause()

        children.append(forked(SQUATTER, squat)[0])
        assert wait_until((spool / "ready").exists), "the squatter did not succeed"
        return {"way": way, "victim": victim, **outcome(victim, place, home, spool, innocent)}
    finally:
        os.environ.clear()
        os.environ.update(before[0])
        tempfile.tempdir = before[1]
        for pid in children:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        for squatted in (detached(place, victim), own(place, victim)):
            if squatted.is_dir():
                squatted.chmod(0o700)
                remove_deep_tree(squatted)
        shutil.rmtree(base)


def outcome(victim: int, place: Path, home: Path, spool: Path, innocent: int) -> dict[str, Any]:
    before, began = files_of(place), time.monotonic()
    report = run_victim(victim, home)
    # Of multiprocessing: it goes when the fork server has seen the end of its owner.
    wait_until(lambda: not list(place.glob("pymp-*")))
    after = files_of(place)
    return {
        "calls": report.num_calls,
        "broken": report.broken,
        "code_run": (spool / "canary").exists(),
        "killed": os.waitpid(innocent, os.WNOHANG) != (0, 0),
        "removed": sorted(before - after),
        "left": sorted(after - before),
        "seconds": round(time.monotonic() - began, 1),
    }


def run_victim(victim: int, home: Path) -> Report:
    pid, reading = forked(victim, lambda: be_victim(victim, home))
    watchdog = threading.Timer(PATIENCE_S, lambda: os.killpg(pid, signal.SIGKILL))
    watchdog.start()
    try:
        with os.fdopen(reading, "rb") as answer:
            data = answer.read()
        os.waitpid(pid, 0)
    finally:
        watchdog.cancel()
    return pickle.loads(data) if data else Report(1, ["it hung, or died"])


def files_of(place: Path) -> set[str]:
    """What is there, to the first level."""
    found = set()
    for path in place.iterdir():
        found.add(path.name)
        with contextlib.suppress(FileNotFoundError):  # removed just now
            if stat.S_ISDIR(path.lstat().st_mode):
                found |= {f"{path.name}/{inner.name}" for inner in path.iterdir()}
    return found


def main(words: Sequence[str]) -> None:
    """Prints a line for each way of squatting."""
    victim, *ways = words
    for way in ways or WAYS:
        print(json.dumps(tried(way, int(victim))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Where actors are found: only in folders that are this user's alone; nothing is left."""

import dataclasses
import os
import queue
import shutil
import socket
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from trainer.actors import process
from trainer.actors import registry as actor_registry
from trainer.actors.registry import (
    DETACHED_REGISTRY_VARIABLE,
    ActorAddress,
    ActorRegistry,
    Ending,
    OwnedRegistry,
    sweep,
)
from trainer.errors import ActorError
from trainer.runtime import private_folder
from trainer.runtime.messages import Failure
from trainer.runtime.private_folder import NotPrivateError, PrivateFolder
from trainer_toolkit.interrupts import signals_deferred


@pytest.fixture(autouse=True)
def place(monkeypatch):
    """A folder for temporary files of its own, of a path short enough for sockets."""
    made = Path(tempfile.mkdtemp(prefix="lt-"))
    monkeypatch.setattr(tempfile, "tempdir", str(made))
    for name in ("XDG_RUNTIME_DIR", "XDG_CACHE_HOME", DETACHED_REGISTRY_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/nonexistent")
    yield made
    shutil.rmtree(made)


@pytest.fixture
def registry(place):
    made = ActorRegistry(str(place / "registry"))
    made.ensure()
    return made


def living(registry, name="counter"):
    actor_id, listener = registry.new_listener()
    address = ActorAddress(
        registry.directory, actor_id, "Counter", name, "", ("inc",), os.getpid(), True, False
    )
    registry.write(address, name)
    return address, listener


def files(registry):
    return {path.name for path in Path(registry.directory).iterdir()}


def name_file(registry):
    return next(Path(registry.directory).glob("*.name"))


@pytest.mark.parametrize(
    "text", ["", '{"actor_id": ', "{}", '{"methods": 3}', '{"methods": [], "more": 1}']
)
def test_a_damaged_record_is_ignored_and_logged(registry, text, caplog):
    """As when the machine went down while it was written."""
    _, listener = living(registry)
    name_file(registry).write_text(text)
    with listener:
        assert registry.find("counter", "") is None
        assert registry.names() == []
    assert caplog.text.count("is damaged") == 1


def test_detached_actors_meet_in_the_most_private_folder_there_is(place, monkeypatch, caplog):
    runtime, home = place / "runtime", place / "home"
    runtime.mkdir(mode=0o700)
    home.mkdir()
    last = ActorRegistry.for_detached().directory
    assert last == str(place / f"local-trainer-detached-{os.geteuid()}")
    monkeypatch.setenv("HOME", str(home))
    cached = ActorRegistry.for_detached().directory
    assert cached.startswith(f"{home}/.cache/local-trainer/actors-")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    preferred = ActorRegistry.for_detached().directory
    assert preferred == f"{runtime}/local-trainer-detached"
    # Found everywhere: another process of this user may have had other variables.
    assert [found.directory for found in ActorRegistry.all_detached()] == [preferred, cached, last]
    runtime.chmod(0o755)
    assert ActorRegistry.for_detached().directory == cached
    far = place / ("long" * 20)
    far.mkdir()
    monkeypatch.setenv("HOME", str(far))
    assert ActorRegistry.for_detached().directory == last, "too long a path for sockets"
    assert list(far.iterdir()) == []
    Path(last).chmod(0o755)
    with pytest.raises(ActorError, match=rf"nowhere to meet.*0755.*{DETACHED_REGISTRY_VARIABLE}"):
        ActorRegistry.for_detached()
    assert ActorRegistry.all_detached() == []
    assert "its mode is 0755" in caplog.text


@pytest.mark.parametrize("kind", ["open", "link", "file", "of another user"])
def test_a_folder_that_is_not_this_users_alone_is_refused_with_the_reason(kind, place, monkeypatch):
    folder = PrivateFolder(str(place / "above" / "folder"))
    folder.make()
    folder.make()  # the control: it is there
    path = Path(folder.path)
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o700, 0o700)
    if kind == "open":
        path.chmod(0o710)
    elif kind == "of another user":
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    else:
        path.rename(path.with_name("elsewhere"))
        (path.touch if kind == "file" else lambda: path.symlink_to("elsewhere"))()
    expected = {"open": "its mode is 0710", "of another user": "not to you"}.get(kind, "no folder")
    for use in (folder.check, ActorRegistry(folder.path).ensure):
        with pytest.raises((NotPrivateError, ActorError), match=expected):
            use()


def test_callers_and_actors_of_another_user_are_refused(registry, monkeypatch):
    address, listener = living(registry)
    with listener, socket.socket(socket.AF_UNIX) as caller:
        caller.connect(address.socket_path)
        with listener.accept()[0] as accepted:
            assert private_folder.peer_uid(accepted) in (os.geteuid(), None)
            private_folder.check_peer(accepted)
        assert address.is_alive()
        monkeypatch.setattr(private_folder, "peer_uid", lambda _: os.geteuid() + 1)
        with pytest.raises(NotPrivateError, match=f"id {os.geteuid() + 1} is at the other end"):
            private_folder.check_peer(caller)
        assert not address.is_alive()


def test_an_actor_closes_the_connection_of_another_users_process(monkeypatch):
    calls = queue.SimpleQueue()
    ours, theirs = socket.socketpair()
    with signals_deferred():
        process._let_in(theirs, calls)
    with Connection(ours.detach()) as caller:
        caller.send_bytes(b"a call")
        assert calls.get(timeout=20)[1] == b"a call"  # the control
    monkeypatch.setattr(private_folder, "peer_uid", lambda _: os.geteuid() + 1)
    ours, theirs = socket.socketpair()
    process._let_in(theirs, calls)
    with ours:
        assert ours.recv(1) == b""


def test_a_registry_with_an_owner_lies_in_the_runtime_folder_and_goes_with_it(place, monkeypatch):
    runtime = place / "runtime"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    owned = OwnedRegistry()
    assert Path(owned.registry.directory).parent == runtime
    sweep()
    assert Path(owned.registry.directory).is_dir()
    owned.close()
    assert list(runtime.iterdir()) == []


def test_where_no_folder_can_be_private_only_actors_are_refused(place, monkeypatch):
    """A file system without modes: processes that use no actors are made all the same."""
    make = tempfile.mkdtemp

    def make_open(**options):
        made = str(make(**options))
        Path(made).chmod(0o777)
        return made

    monkeypatch.setattr(tempfile, "mkdtemp", make_open)
    owned = OwnedRegistry()
    with pytest.raises(ActorError, match="its mode is 0777"):
        owned.registry.ensure()
    owned.close()
    assert list(place.iterdir()) == []


def test_sweeping_enters_no_folder_in_a_registry(place):
    prefix = actor_registry._prefix()
    for name in ("gone", "kept", "open", "begun", "new"):
        folder = place / f"{prefix}{name}"
        folder.mkdir(mode=0o755 if name == "open" else 0o700)
        if name not in ("begun", "new"):
            (folder / "owner").touch(mode=0o600)
            (folder / "lock").touch(mode=0o600)
    (place / f"{prefix}kept" / "inner").mkdir()
    (place / f"{prefix}kept" / "inner" / "file").touch()
    an_hour_ago = time.time() - 2 * 3600
    os.utime(place / f"{prefix}begun", (an_hour_ago, an_hour_ago))
    sweep()
    left = {path.name.removeprefix(prefix) for path in place.iterdir()}
    assert left == {"kept", "open", "new"}
    assert (place / f"{prefix}kept" / "inner" / "file").exists()
    assert (place / f"{prefix}open" / "lock").exists()


def test_dead_actors_leave_one_file_for_all_of_them(registry):
    for _ in range(20):
        address, listener = living(registry)
        watch = registry.watch(address.actor_id)
        listener.close()
        registry.note_end(address.actor_id, Ending(7))
        registry.note_end(address.actor_id, Ending(8))
        watch.close()
        registry.forget(address)
        assert registry.ending_of(address.actor_id) == Ending(7)
    assert files(registry) == {"lock", "endings"}


def test_the_latest_endings_are_kept_in_bounded_room(registry):
    failure = Failure("LookupError", "no such", "", bytes(300_000), {})
    for number in range(10):
        registry.note_end(f"{number:012x}", Ending(1, failure=failure))
    registry.note_end(
        "a" * 12, Ending(1, failure=dataclasses.replace(failure, packed_error=bytes(2**21)))
    )
    size = (Path(registry.directory) / "endings").stat().st_size
    assert size < 1.2 * 2**20
    assert registry.ending_of(f"{0:012x}") is None
    assert registry.ending_of(f"{9:012x}") == Ending(1, failure=failure)
    told = registry.ending_of("a" * 12)
    assert told.failure == dataclasses.replace(failure, packed_error=None)


def test_what_dead_actors_left_without_a_watcher_is_swept(registry):
    kept, listener = living(registry, "kept")
    for name in ("killed", "crashed", "silent"):
        address, dead = living(registry, name)
        registry.watch(address.actor_id).close()  # its maker is gone
        registry.log_file(address.actor_id).write_bytes(b"" if name == "silent" else b"a line")
        if name == "killed":
            registry.note_end(address.actor_id, Ending(was_killed=True))
        if name == "crashed":
            crashed = address
        dead.close()
    (Path(registry.directory) / "x.name.0123.draft").touch(mode=0o600)
    folder = Path(registry.directory)
    os.utime(folder / "x.name.0123.draft", (0, 0))
    with listener, registry.locked():
        registry.sweep()
        name = name_file(registry).name
        log_file = f"{crashed.actor_id}.log"
        # What it printed may say why it died; that goes a week later.
        expected = {"lock", "endings", kept.actor_id, name}
        assert files(registry) == {*expected, log_file}
        os.utime(folder / log_file, (0, 0))
        registry.sweep()
        assert files(registry) == expected
        assert registry.find("kept", "") == kept

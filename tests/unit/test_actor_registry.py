"""Where actors are found: only in folders and files that are this user's alone; nothing is left."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

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
from trainer.runtime.messages import Failure
from trainer.runtime.private_folder import NotPrivateError, PrivateFolder


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files of its own, of a path short enough for sockets."""
    made = Path(tempfile.mkdtemp(prefix="lt-"))
    monkeypatch.setattr(tempfile, "tempdir", str(made))
    for name in ("XDG_RUNTIME_DIR", "XDG_CACHE_HOME", DETACHED_REGISTRY_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/nonexistent")
    yield made
    shutil.rmtree(made)


@pytest.fixture
def registry(place: Path) -> ActorRegistry:
    made = ActorRegistry(str(place / "registry"))
    made.ensure()
    return made


def living(registry: ActorRegistry, name: str = "counter") -> tuple[ActorAddress, socket.socket]:
    actor_id, listener = registry.new_listener()
    address = ActorAddress(
        registry.directory, actor_id, "Counter", name, "", ("inc",), os.getpid(), True, False
    )
    registry.write(address, name)
    return address, listener


def files(registry: ActorRegistry) -> set[str]:
    return {path.name for path in Path(registry.directory).iterdir()}


def name_file(registry: ActorRegistry) -> Path:
    return next(Path(registry.directory).glob("*.name"))


def test_what_others_could_have_written_is_not_read_and_told_once(
    registry: ActorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    address, listener = living(registry)
    with listener:
        assert registry.find("counter", "") == address  # the control
        for path, mode in [(Path(registry.directory), 0o750), (name_file(registry), 0o620)]:
            before = path.stat().st_mode
            path.chmod(mode)
            for _ in range(3):
                assert registry.find("counter", "") is None
            path.chmod(before)
            assert registry.find("counter", "") == address
            assert registry.names() == [("counter", "")]
    assert len(caplog.records) == 2
    assert "its mode is 0750" in caplog.text
    assert "It is ignored when actors are looked for" in caplog.text


@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_what_is_no_file_is_not_read(registry: ActorRegistry, kind: str) -> None:
    address, listener = living(registry)
    file = name_file(registry)
    elsewhere = file.rename(file.with_suffix(".elsewhere"))
    if kind == "link":
        file.symlink_to(elsewhere)
    elif kind == "fifo":
        os.mkfifo(file)
    else:
        file.mkdir()
    with listener:
        assert registry.find("counter", "") is None
    with pytest.raises(NotPrivateError):
        PrivateFolder(registry.directory).read(file.name)
    assert address.is_alive() is False


def test_a_link_to_a_folder_of_ours_is_not_entered(registry: ActorRegistry, place: Path) -> None:
    (place / "link").symlink_to(registry.directory)
    _, listener = living(registry)
    with listener:
        assert ActorRegistry(str(place / "link")).find("counter", "") is None
        with pytest.raises(ActorError, match="cannot be opened"):
            ActorRegistry(str(place / "link")).ensure()


@pytest.mark.parametrize(
    "change", [{"actor_id": "../x"}, {"pid": 1}, {"pid": "1"}, {"methods": 3}, {"more": 1}, None]
)
def test_a_damaged_record_is_ignored_and_told(
    registry: ActorRegistry, change: dict[str, object] | None, caplog: pytest.LogCaptureFixture
) -> None:
    address, listener = living(registry)
    record = dataclasses.asdict(address) | (change or {})
    name_file(registry).write_text("[" * 50_000 if change is None else json.dumps(record))
    with listener:
        assert registry.find("counter", "") is None
        assert registry.names() == []
    assert caplog.text.count("is damaged") == 1


def test_an_actor_is_where_its_record_was_found(registry: ActorRegistry) -> None:
    address, listener = living(registry)
    record = dataclasses.asdict(address) | {"directory": "/of/another/user"}
    name_file(registry).write_text(json.dumps(record))
    with listener:
        assert registry.find("counter", "") == address


def test_detached_actors_meet_in_the_most_private_folder_there_is(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
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
    monkeypatch.setenv("HOME", str(place / ("long" * 20)))
    assert ActorRegistry.for_detached().directory == last
    Path(last).chmod(0o755)
    with pytest.raises(ActorError, match=rf"nowhere to meet.*0755.*{DETACHED_REGISTRY_VARIABLE}"):
        ActorRegistry.for_detached()
    assert ActorRegistry.all_detached() == []
    assert "its mode is 0755" in caplog.text


def test_a_home_of_a_path_too_long_for_sockets_is_passed_over(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = place / ("long" * 20)
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    assert "local-trainer-detached-" in ActorRegistry.for_detached().directory
    assert not list(home.iterdir())


def test_a_registry_with_an_owner_lies_in_the_runtime_folder_and_goes_with_it(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = place / "runtime"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    owned = OwnedRegistry()
    assert Path(owned.registry.directory).parent == runtime
    sweep()
    assert Path(owned.registry.directory).is_dir()
    owned.close()
    assert list(runtime.iterdir()) == []


def test_where_no_folder_can_be_private_only_actors_are_refused(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system without modes: processes that use no actors are made all the same."""
    make = tempfile.mkdtemp

    def make_open(**options: Any) -> str:
        made = str(make(**options))
        Path(made).chmod(0o777)
        return made

    monkeypatch.setattr(tempfile, "mkdtemp", make_open)
    owned = OwnedRegistry()
    with pytest.raises(ActorError, match="its mode is 0777"):
        owned.registry.ensure()
    owned.close()
    assert list(place.iterdir()) == []


def test_sweeping_enters_no_folder_in_a_registry(place: Path) -> None:
    prefix = actor_registry._prefix()
    for name in ("gone", "kept", "open", "begun", "new"):
        folder = place / f"{prefix}{name}"
        folder.mkdir(mode=0o755 if name == "open" else 0o700)
        if name not in ("begun", "new"):
            (folder / "owner").touch(mode=0o600)
            (folder / "key").touch(mode=0o600)
    (place / f"{prefix}kept" / "inner").mkdir()
    (place / f"{prefix}kept" / "inner" / "file").touch()
    an_hour_ago = time.time() - 2 * 3600
    os.utime(place / f"{prefix}begun", (an_hour_ago, an_hour_ago))
    sweep()
    left = {path.name.removeprefix(prefix) for path in place.iterdir()}
    assert left == {"kept", "open", "new"}
    assert (place / f"{prefix}kept" / "inner" / "file").exists()
    assert (place / f"{prefix}open" / "key").exists()


def test_dead_actors_leave_one_file_for_all_of_them(registry: ActorRegistry) -> None:
    for _ in range(20):
        address, listener = living(registry)
        watch = registry.watch(address.actor_id)
        listener.close()
        registry.note_end(address.actor_id, Ending(7))
        registry.note_end(address.actor_id, Ending(8))
        watch.close()
        registry.forget(address)
        assert registry.ending_of(address.actor_id) == Ending(7)
    assert files(registry) == {"key", "lock", "endings"}


def test_the_latest_endings_are_kept_in_bounded_room(registry: ActorRegistry) -> None:
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
    assert told is not None
    assert told.failure == dataclasses.replace(failure, packed_error=None)


def test_what_dead_actors_left_without_a_watcher_is_swept(registry: ActorRegistry) -> None:
    kept, listener = living(registry, "kept")
    for name in ("killed", "crashed", "silent"):
        address, dead = living(registry, name)
        registry.watch(address.actor_id).close()  # its maker is gone
        with registry.opened_log(address.actor_id) as log:
            os.write(log, b"" if name == "silent" else b"a line")
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
        expected = {"key", "lock", "endings", kept.actor_id, name}
        assert files(registry) == {*expected, log_file}
        os.utime(folder / log_file, (0, 0))
        registry.sweep()
        assert files(registry) == expected
        assert registry.find("kept", "") == kept

"""Writing, reading and verifying: what is saved returns, and every damage is a named error."""

import contextlib
import hashlib
import json
import os
import pathlib
import pickle
import threading

import numpy as np
import pytest

from checkpoints import (
    CheckpointCorruptError,
    CheckpointError,
    CheckpointMismatchError,
    CheckpointNotFoundError,
    CheckpointVersionError,
    CheckpointWriteError,
    CodeNotAllowedError,
    StateError,
    latest_checkpoint,
    listing,
    pack_code,
    read_checkpoint,
    read_code,
    read_manifest,
    verify,
    write_checkpoint,
)
from checkpoints.component_paths import file_name
from checkpoints.listing import load_manifest
from checkpoints.manifest import parse_manifest
from checkpoints.writer import BackgroundSave, encode_checkpoint
from tests.saved_files import files_of

STATES = {
    "learner/rl_module": {"w": np.arange(6, dtype=np.float32), "b": np.zeros(2)},
    "learner/optimizer": {"step": 3, "moments": (1.0, float("nan"))},
    "counters": {"env_steps": 2**70},
}


def save(path, **options):
    arguments = {"components": STATES, "metadata": {"training_iteration": 4}, "code": None}
    return write_checkpoint(path, **{**arguments, **options})


def rewrite_manifest(path, change):
    """Change the manifest as an attacker would: with a checksum that fits."""
    file = path / "manifest.json"
    fields = json.loads(file.read_text())
    fields.pop("checksum")
    change(fields)
    text = json.dumps(fields, indent=1) + "\n"
    fields["checksum"] = hashlib.sha256(text.encode()).hexdigest()
    file.write_text(json.dumps(fields, indent=1) + "\n")


class Bomb:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, marker):
        self._marker = marker

    def __reduce__(self):
        return (pathlib.Path.touch, (self._marker,))


# --- what is saved returns -----------------------------------------------------------------------


def test_components_return_in_order_with_types_and_bytes(tmp_path):
    contents = read_checkpoint(save(tmp_path / "c"))
    assert list(contents.components) == list(STATES)
    assert contents.components["counters"] == STATES["counters"]
    array = contents.components["learner/rl_module"]["w"]
    assert array.dtype == np.float32
    assert array.tolist() == [0, 1, 2, 3, 4, 5]
    assert contents.manifest.metadata == {"training_iteration": 4}
    assert verify(tmp_path / "c") == contents.manifest == read_manifest(tmp_path / "c")


def test_manifest_names_versions_time_sizes_and_hashes(tmp_path):
    path = save(tmp_path / "c", code=b"x")
    fields = json.loads((path / "manifest.json").read_text())
    assert fields["format"] == "local-trainer-checkpoint"
    assert fields["format_version"] == 1
    assert fields["created_at"].endswith("+00:00")
    assert set(fields["versions"]) == {"python", "numpy", "ormsgpack"}
    assert fields["code"]["num_bytes"] == 1
    for entry in fields["components"].values():
        assert (files_of(path) / entry["file"]).stat().st_size == entry["num_bytes"]


def test_partial_read_selects_by_prefix_and_names_what_is_unknown(tmp_path):
    path = save(tmp_path / "c")
    module, optimizer, counters = STATES
    assert list(read_checkpoint(path, {counters, optimizer}).components) == [optimizer, counters]
    (files_of(path) / "counters.state").unlink()  # the files of others are not looked at
    assert list(read_checkpoint(path, "learner").components) == [module, optimizer]
    with pytest.raises(CheckpointMismatchError, match="did you mean 'learner'"):
        read_checkpoint(path, "lerner")
    with pytest.raises(CheckpointMismatchError, match="no component 'learn'"):
        read_checkpoint(path, "learn")


def test_paths_may_be_text_relative_or_in_the_home_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert save("~/deep/er/a") == (tmp_path / "deep/er/a").resolve()
    assert read_manifest("deep/er/a") == read_manifest(tmp_path / "deep" / "er" / "a")
    with pytest.raises(CheckpointError, match="empty"):
        save("")


@pytest.mark.parametrize(
    "names", [("a/b", "a.b", "a%2Eb", "a/b.c"), ("ü", "%C3%BC"), ("..", "../x", "/x"), ("~", "a b")]
)
def test_different_names_have_different_harmless_files(names):
    files = {file_name(name) for name in names}
    assert len(files) == len(names)
    for file in files:
        assert "/" not in file
        assert not file.startswith((".state", "..", "~"))


def test_names_with_strange_characters_round_trip(tmp_path):
    states = {"modules/my policy.v2~ü|1": 1, "a": 2, "a/..": 3}
    assert read_checkpoint(save(tmp_path / "c", components=states)).components == states


def test_metadata_that_is_not_finite_becomes_null(tmp_path):
    metadata = {"nan": float("nan"), "inf": [float("-inf")], "one": np.float32(1), "t": (1, "é")}
    path = save(tmp_path / "c", metadata=metadata)
    assert read_manifest(path).metadata == {"nan": None, "inf": [None], "one": 1.0, "t": [1, "é"]}
    assert "NaN" not in (path / "manifest.json").read_text()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"components": {"": 1}}, "Use text"),
        ({"components": {"/a": 1}}, "Rename"),
        ({"components": {"a//b": 1}}, "Rename"),
        ({"components": {"a\nb": 1}}, "Rename"),
        ({"components": {3: 1}}, "Use text"),
        ({"components": {"learner/x": {"f": print}}}, r"^components\['learner/x'\]\['f'\]: "),
        ({"metadata": {"a": {"b": print}}}, "metadata"),
        ({"metadata": {1: 2}}, "metadata"),
        ({"metadata": {"a": 2**2000}}, "metadata"),
    ],
)
def test_what_cannot_be_saved_is_refused_before_writing(tmp_path, options, words):
    with pytest.raises(StateError, match=words):
        save(tmp_path / "new" / "c", **options)
    assert list(tmp_path.iterdir()) == []


# --- damage --------------------------------------------------------------------------------------


def test_every_flipped_bit_of_every_file_is_noticed(tmp_path):
    path = save(tmp_path / "c", components={"a": {"w": np.arange(3)}, "b": 1}, code=b"code")
    for file in [path / "manifest.json", *sorted(files_of(path).iterdir())]:
        data = bytearray(file.read_bytes())
        for position in range(len(data)):
            data[position] ^= 1 << (position % 8)
            file.write_bytes(data)
            with pytest.raises(CheckpointError):
                read_checkpoint(path)
            data[position] ^= 1 << (position % 8)
        file.write_bytes(data)
    verify(path)


DAMAGES = ("missing", "cut", "longer", "empty", "folder", "link", "fifo")


def spoil(file, damage):
    """Damages a file in one of the ways of `DAMAGES`."""
    data = file.read_bytes()
    file.unlink()
    if damage == "folder":
        file.mkdir()
    elif damage == "link":
        elsewhere = file.parent.with_name("elsewhere")
        elsewhere.write_bytes(data)
        file.symlink_to(elsewhere)
    elif damage == "fifo":
        os.mkfifo(file)
    elif damage != "missing":
        file.write_bytes({"cut": data[:-1], "longer": data + b"x", "empty": b""}[damage])


@pytest.mark.parametrize("name", ["learner.rl_module.state", "code.pkl"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_file_is_named(tmp_path, name, damage):
    path = save(tmp_path / "c", code=pack_code(1))
    spoil(files_of(path) / name, damage)
    for read in (read_checkpoint, verify):
        with pytest.raises(CheckpointCorruptError, match=name):
            read(path)


def counters_with(**changes):
    return lambda fields: fields["components"]["counters"].update(changes)


MANIFEST_CHANGES = {
    "another folder": lambda m: m.update(folder=".."),
    "no folder": lambda m: m.update(folder=None),
    "parent": counters_with(file="../counters.state"),
    "hidden": counters_with(file=".x.state"),
    "backslash": counters_with(file="..\\x.state"),
    "no text": counters_with(file=1),
    "code as component": counters_with(file="code.pkl"),
    "shared file": counters_with(file="learner.optimizer.state"),
    "other code file": lambda m: m.update(code={**m["components"]["counters"]}),
    "negative size": counters_with(num_bytes=-1),
    "float size": counters_with(num_bytes=1.5),
    "huge size": counters_with(num_bytes=2**80),
    "short hash": counters_with(sha256="00"),
    "wrong hash": counters_with(sha256="0" * 64),
    "extra entry": counters_with(mode=1),
    "no entry": lambda m: m["components"].update(counters=None),
    "bad name": lambda m: m["components"].update({"a//b": m["components"].pop("counters")}),
    "no components": lambda m: m.pop("components"),
    "extra field": lambda m: m.update(later=1),
    "time": lambda m: m.update(created_at="yesterday"),
    "local time": lambda m: m.update(created_at="2025-01-01T00:00:00+02:00"),
    "versions": lambda m: m.update(versions=[1]),
    "metadata": lambda m: m.update(metadata=[1]),
    "format": lambda m: m.update(format="other"),
    "version 0": lambda m: m.update(format_version=0),
    "version text": lambda m: m.update(format_version="1"),
}


@pytest.mark.parametrize("change", MANIFEST_CHANGES.values(), ids=MANIFEST_CHANGES.keys())
def test_hostile_manifest_is_refused_although_its_checksum_fits(tmp_path, change):
    path = save(tmp_path / "c")
    rewrite_manifest(path, change)
    with pytest.raises(CheckpointCorruptError):
        read_checkpoint(path)


def test_rewriting_without_a_change_is_accepted(tmp_path):
    """Negative control of the table above."""
    path = save(tmp_path / "c")
    rewrite_manifest(path, lambda fields: None)
    assert read_checkpoint(path).components["counters"] == STATES["counters"]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "1", '{"format": NaN}', '{"a": 1, "a": 2}', "[" * 100_000, "\ud800"],
    ids=range(9),
)
def test_text_that_is_no_manifest_is_refused(text):
    with pytest.raises(CheckpointCorruptError, match=r"^here"):
        parse_manifest(text.encode("utf-8", "surrogatepass"), source="here")


def test_newer_format_is_named_before_any_payload_is_read(tmp_path):
    path = save(tmp_path / "c")
    file = path / "manifest.json"
    file.write_text(file.read_text().replace('"format_version": 1', '"format_version": 2'))
    for file in files_of(path).glob("*.state"):
        file.write_bytes(b"something from the future")
    for read in (read_checkpoint, read_manifest, verify):
        with pytest.raises(CheckpointVersionError, match=r"format_version 2.*reads up to 1"):
            read(path)


def test_one_that_is_replaced_while_it_is_read_is_read_again(tmp_path, monkeypatch):
    path, saves = save(tmp_path / "c", components={"a": 1}), iter(range(2, 5))

    def load(directory):
        manifest = load_manifest(directory)
        with contextlib.suppress(StopIteration):
            save(path, components={"a": next(saves)})
        return manifest

    monkeypatch.setattr(listing, "load_manifest", load)
    assert read_checkpoint(path).components == {"a": 4}


# --- what is not there ---------------------------------------------------------------------------


def test_message_says_what_was_found_instead(tmp_path):
    path = save(tmp_path / "runs" / "c")
    (tmp_path / "file").touch()
    (tmp_path / "agent.zip").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "model.pt").touch()
    expected = {
        "absent": "does not exist",
        "file": "is a file",
        "agent.zip": "load_sb3_policy",
        "empty": "it holds nothing",
        "other": "it holds model.pt",
        "runs": f"the latest is '{path}'",
        "runs/c/learner/rl_module": "component='learner/rl_module'",
    }
    for name, message in expected.items():
        with pytest.raises(CheckpointNotFoundError) as caught:
            read_checkpoint(tmp_path / name)
        assert message in str(caught.value)
        assert isinstance(caught.value, FileNotFoundError)


def test_directory_that_lost_its_manifest_is_not_a_checkpoint(tmp_path):
    path = save(tmp_path / "c")
    (path / "manifest.json").unlink()
    with pytest.raises(CheckpointNotFoundError, match=r"without manifest\.json"):
        read_checkpoint(path)
    assert latest_checkpoint(tmp_path) is None


@pytest.mark.parametrize("content", ["file", "foreign", "foreign manifest", "foreign in a folder"])
def test_saving_over_what_is_not_ours_is_refused(tmp_path, content):
    target = tmp_path / "target"
    if content == "file":
        target.write_text("mine")
    elif content == "foreign in a folder":
        (target / "files-1").mkdir(parents=True)
        (target / "files-1" / "thesis.txt").write_text("mine")
    else:
        target.mkdir()
        name = "manifest.json" if content == "foreign manifest" else "thesis.txt"
        (target / name).write_text("{}")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(CheckpointWriteError):
        save(target)
    assert sorted(tmp_path.rglob("*")) == before


def test_replacing_keeps_files_that_somebody_put_into_the_checkpoint(tmp_path):
    path = save(tmp_path / "c")
    (path / "notes.txt").write_text("good run")
    (path / "plots").mkdir()
    (path / "plots" / "curve.txt").write_text("up")
    for iteration in (5, 6):
        save(path, metadata={"training_iteration": iteration})
    assert (path / "notes.txt").read_text() == "good run"
    assert (path / "plots" / "curve.txt").read_text() == "up"
    assert [entry.name for entry in tmp_path.iterdir()] == ["c"]
    assert read_manifest(path).training_iteration == 6
    assert read_checkpoint(path).manifest.training_iteration == 6


def test_a_foreign_folder_in_the_way_of_a_component_stays_beside_the_checkpoint(tmp_path, caplog):
    path = save(tmp_path / "c")
    name = next(files_of(path).glob("*.state")).name
    (files_of(path) / name).unlink()
    (files_of(path) / name).mkdir()
    save(path)
    assert [entry.name for entry in path.glob("files-1/*")] == [name]
    assert "files-1 could not be removed completely" in caplog.text


def test_saving_through_a_link_replaces_what_it_leads_to(tmp_path):
    path = save(tmp_path / "real")
    (tmp_path / "link").symlink_to(path)
    assert save(tmp_path / "link", metadata={"training_iteration": 9}) == path
    assert (tmp_path / "link").is_symlink()
    assert read_manifest(path).training_iteration == 9


def test_a_link_that_leads_nowhere_is_no_place_for_a_checkpoint(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "away" / "real")
    with pytest.raises(CheckpointWriteError, match=r"is a link to .*real, which does not exist"):
        save(tmp_path / "link")
    with pytest.raises(CheckpointWriteError, match="Remove the link"):
        BackgroundSave(tmp_path / "link", encode_checkpoint(components={}, metadata={}))
    assert not (tmp_path / "away").exists()


# --- code ----------------------------------------------------------------------------------------


def test_code_is_loaded_only_when_allowed(tmp_path):
    path = save(tmp_path / "c", code=pack_code(lambda: 42))
    with pytest.raises(CodeNotAllowedError, match=r"`allow_code=True`"):
        read_code(path)
    assert read_code(path, allow_code=True)() == 42
    with pytest.raises(CheckpointMismatchError, match="without code"):
        read_code(save(tmp_path / "d"), allow_code=True)


def test_planted_pickle_never_runs(tmp_path):
    marker = tmp_path / "marker"
    bomb = pickle.dumps(Bomb(marker))
    path = save(tmp_path / "c", code=bomb)
    read_checkpoint(path)
    verify(path)
    with pytest.raises(CodeNotAllowedError):
        read_code(path)
    for file in files_of(path).glob("*.state"):
        file.write_bytes(bomb)

    def fit(manifest):
        digest = hashlib.sha256(bomb).hexdigest()
        for entry in manifest["components"].values():
            entry.update(num_bytes=len(bomb), sha256=digest)

    rewrite_manifest(path, fit)
    with pytest.raises(CheckpointCorruptError, match="not a saved state"):
        read_checkpoint(path)
    (files_of(path) / "code.pkl").write_bytes(bomb[:-1] + b"!")
    with pytest.raises(CheckpointCorruptError, match="altered"):
        read_code(path, allow_code=True)
    assert not marker.exists()


def test_bomb_explodes_when_code_is_allowed(tmp_path):
    """Negative control: the marker of the test above appears if something unpickles."""
    marker = tmp_path / "marker"
    read_code(save(tmp_path / "c", code=pickle.dumps(Bomb(marker))), allow_code=True)
    assert marker.exists()


def test_code_of_another_python_is_refused_before_it_runs(tmp_path):
    marker = tmp_path / "marker"
    path = save(tmp_path / "c", code=pickle.dumps(Bomb(marker)))
    rewrite_manifest(path, lambda fields: fields["versions"].update(python="3.1.0"))
    with pytest.raises(CheckpointVersionError, match=r"Python 3\.1\.0"):
        read_code(path, allow_code=True)
    assert not marker.exists()


def test_code_that_cannot_be_pickled_or_loaded_is_named(tmp_path):
    with pytest.raises(StateError, match="cannot be saved as code"):
        pack_code(threading.Lock())
    broken = b"cno_such_module\nthing\n."
    with pytest.raises(CheckpointMismatchError, match="no_such_module"):
        read_code(save(tmp_path / "c", code=broken), allow_code=True)
    with pytest.raises(StateError, match="pack_code"):
        save(tmp_path / "d", code=print)

"""Checkpoints of earlier versions are brought up to the present, those of later ones refused."""

import pytest

from checkpoints import (
    Checkpointable,
    CheckpointCorruptError,
    CheckpointMismatchError,
    CheckpointVersionError,
    read_checkpoint,
    read_manifest,
    version_differences,
    write_checkpoint,
)
from checkpoints import manifest as manifest_module
from checkpoints.manifest import FORMAT_MIGRATIONS
from tests.saved_files import files_of
from tests.unit.test_checkpoints_files import rewrite_manifest


class Counter(Checkpointable):
    """Version 1 of its state: {"n": 3}. Version 2: {"count": 3}. Version 3: with a name."""

    def __init__(self):
        self.count, self.name = 0, "new"

    def get_state(self, components=None, *, not_components=None):
        return {"count": self.count, "name": self.name}

    def set_state(self, state):
        self.count, self.name = state["count"], state["name"]

    state_migrations = {
        "state": (
            lambda state: {"count": state["n"]},
            lambda state: {**state, "name": "unnamed"},
        )
    }


class Pair(Checkpointable):
    """Two counters, and a key of its own with one migration."""

    def __init__(self):
        self.left, self.right, self.total = Counter(), Counter(), 0

    state_migrations = {"total": (lambda total: total["value"],)}

    def get_checkpointable_components(self):
        return [("left", self.left), ("right", self.right)]

    def get_state(self, components=None, *, not_components=None):
        return {**super().get_state(components, not_components=not_components), "total": self.total}

    def set_state(self, state):
        super().set_state(state)
        self.total = state.get("total", self.total)


def saved(path, components, **versions):
    names = {name.replace("_", "/"): version for name, version in versions.items()}
    return write_checkpoint(path, components=components, metadata={}, state_versions=names)


@pytest.mark.parametrize(
    ("state", "version", "expected"),
    [
        ({"n": 3}, 1, (3, "unnamed")),
        ({"count": 4}, 2, (4, "unnamed")),
        ({"count": 5, "name": "x"}, 3, (5, "x")),
    ],
)
def test_states_of_all_versions_are_restored(state, version, expected, tmp_path):
    path = saved(tmp_path / "c", {"state": state}, state=version)
    restored = Counter.from_checkpoint(path)
    assert (restored.count, restored.name) == expected
    assert read_checkpoint(path).components == {"state": state}  # as written, unless asked


def test_parts_bring_their_own_migrations(tmp_path):
    old = {"left": {"n": 1}, "right": {"count": 2, "name": "r"}, "total": {"value": 3}}
    pair = Pair.from_checkpoint(saved(tmp_path / "old", old, right=3))
    assert (pair.left.count, pair.right.name, pair.total) == (1, "r", 3)
    entries = read_manifest(pair.save_to_path(tmp_path / "new")).components
    versions = {name: entry.state_version for name, entry in entries.items()}
    assert versions == {"left": 3, "right": 3, "total": 2}
    again = Pair.from_checkpoint(tmp_path / "new")
    assert again.get_state() == pair.get_state()
    again.left.count = 9
    again.restore_from_path(tmp_path / "old", component="left")
    assert again.left.count == 1


def test_a_newer_state_is_refused_before_any_payload_is_read(tmp_path):
    state = {"count": 1, "name": "x"}
    path = saved(tmp_path / "c", {"state": state}, state=4)
    (files_of(path) / "state.state").write_bytes(b"never looked at")
    counter = Counter()
    with pytest.raises(
        CheckpointVersionError, match=r"'state' has state version 4 \(known up to 3"
    ):
        counter.restore_from_path(path)
    assert counter.count == 0


def test_a_migration_that_fails_is_named_and_changes_nothing(tmp_path):
    path = saved(tmp_path / "c", {"state": {"other": 3}})
    counter = Counter()
    with pytest.raises(CheckpointVersionError, match=r"version 1 .* to version 2: KeyError: 'n'"):
        counter.restore_from_path(path)
    assert counter.get_state() == {"count": 0, "name": "new"}


@pytest.mark.parametrize("version", [1, True, "2", 2.0])
def test_impossible_state_versions_are_refused(version, tmp_path):
    path = saved(tmp_path / "c", {"state": 1}, state=2)
    rewrite_manifest(path, lambda m: m["components"]["state"].update(state_version=version))
    with pytest.raises(CheckpointCorruptError, match="state_version"):
        read_manifest(path)


def in_format_2(fields):
    """An imagined format 2: `software` instead of `versions`... and back, as readers want it."""
    fields["versions"] = fields.pop("software")
    fields["metadata"]["migrated"] = True
    return fields


def test_an_earlier_format_is_migrated_and_a_later_one_refused(tmp_path, monkeypatch):
    path = saved(tmp_path / "c", {"state": {"count": 7}}, state=2)

    def with_older_fields(fields):
        fields["software"] = fields.pop("versions")

    rewrite_manifest(path, with_older_fields)
    with pytest.raises(CheckpointCorruptError, match="software"):
        read_manifest(path)
    monkeypatch.setattr(manifest_module, "FORMAT_MIGRATIONS", (*FORMAT_MIGRATIONS, in_format_2))
    monkeypatch.setattr(manifest_module, "FORMAT_VERSION", 2)
    manifest = read_manifest(path)
    assert (manifest.format_version, manifest.metadata) == (1, {"migrated": True})
    assert Counter.from_checkpoint(path).count == 7
    rewrite_manifest(path, lambda m: m.update(format_version=2, versions=m.pop("software")))
    assert read_manifest(path).metadata == {}
    monkeypatch.undo()
    with pytest.raises(CheckpointVersionError, match=r"format_version 2.*reads up to 1"):
        Counter.from_checkpoint(path)


def test_other_versions_are_named_before_reading_and_in_errors(tmp_path, caplog):
    path = saved(tmp_path / "c", {"state": {"wrong": 1}}, state=3)
    rewrite_manifest(path, lambda fields: fields["versions"].update(numpy="1.2.3"))
    (told,) = version_differences(read_manifest(path))
    assert told.startswith("numpy 1.2.3 (here")
    with pytest.raises(CheckpointMismatchError, match=r"written by other versions: numpy 1\.2\.3"):
        Counter.from_checkpoint(path)
    assert "was written by numpy 1.2.3 (here" in caplog.text
    (files_of(path) / "state.state").unlink()
    caplog.clear()
    with pytest.raises(CheckpointCorruptError):
        Counter.from_checkpoint(path)
    assert "was written by numpy 1.2.3" in caplog.text  # although no payload could be read


def test_the_same_versions_are_not_worth_a_word(tmp_path, caplog):
    counter = Counter()
    Counter.from_checkpoint(counter.save_to_path(tmp_path / "c"))
    assert caplog.text == ""

"""`manifest.json`, what a checkpoint says of itself; and states of earlier versions brought up."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import math
import platform
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import ormsgpack

from checkpoints import component_paths
from checkpoints.errors import (
    CheckpointCorruptError,
    CheckpointNotFoundError,
    CheckpointVersionError,
    StateError,
)
from checkpoints.signatures import is_own as is_own_signature
from checkpoints.signatures import sign

# ---- migrations
#
# States of earlier versions, brought up to the present by pure functions, one version at a time.
# Two things have versions. The *format* is what stands in `manifest.json`; its migrations take
# the fields of one version (plain JSON) and return those of the next. The *state version* of a
# component is what its state says: which keys there are, and what they mean. Its migrations
# belong to the object that is saved (`Checkpointable.state_migrations`); this module only applies
# them.
#
# A version is 1 + the number of its migrations, so it cannot be raised without the function.
# The layout of a component file has no migrations: `checkpoints.codec` never changes a meaning.

Migration = Callable[[Any], Any]
"""From plain data of one version to that of the next; may change what it is given."""

StateMigrations = Mapping[str, Sequence[Migration]]
"""Path of a component to its migrations, oldest first."""

NO_MIGRATIONS: Final[StateMigrations] = MappingProxyType({})
"""Of an object whose states are still what they were at first."""


FORMAT_MIGRATIONS: Final[tuple[Migration, ...]] = ()
"""Of the manifest's fields, without `format`, `format_version` and `checksum`; oldest first.

A checkpoint of an earlier format keeps its own checksum, which is compared before.
"""


def newest_version(migrations: Sequence[Migration]) -> int:
    """Return the version that these migrations lead to."""
    return 1 + len(migrations)


def migrated(data: Any, migrations: Sequence[Migration], *, version: int, source: str) -> Any:
    """Return data of some version as data of the newest one.

    Raises:
        CheckpointVersionError: if a migration fails, or returns None; names it.
    """
    for number, migrate in enumerate(migrations[version - 1 :], start=version):
        try:
            data = migrate(data)
            if data is None:
                raise ValueError("it returned None; is a `return` missing?")
        except Exception as error:  # code of others; raised as our own
            raise CheckpointVersionError(
                f"{source} is of version {number} and the migration {_name(migrate)!r} could not "
                f"bring it to version {number + 1}: {type(error).__name__}: {error}. "
                "Nothing was loaded. Use the version of the program that wrote it, and report this "
                "with the checkpoint's manifest.json."
            ) from error
    return data


def checked_migrations(migrations: Any, *, where: str) -> StateMigrations:
    """Return the migrations of an object, if each component has a list or tuple of functions.

    Raises:
        StateError: says what they are instead.
    """
    advice = 'Write state_migrations = {"state": [oldest, ..., newest]}.'
    if not isinstance(migrations, Mapping):
        raise StateError(
            f"{where} is a {type(migrations).__name__}: it has to be a dict from the path of a "
            f"component to its migrations. {advice}"
        )
    for name, steps in migrations.items():
        if not isinstance(steps, (list, tuple)):
            raise StateError(
                f"{where}[{name!r}] is a {type(steps).__name__}: it has to be a list or tuple of "
                f"functions, also if there is only one. {advice}"
            )
        for step in steps:
            if not callable(step):
                raise StateError(
                    f"{where}[{name!r}] holds a {type(step).__name__}, {step!r:.80}: each "
                    f"migration is a function from a state to that of the next version. {advice}"
                )
    return migrations


def _name(migrate: Migration) -> str:
    return str(getattr(migrate, "__qualname__", None) or repr(migrate))


@dataclass(frozen=True)
class ComponentMigrations:
    """What a reader knows of the states that it reads.

    Attributes:
        steps: path of a component to its migrations; a component without any has version 1.
    """

    steps: StateMigrations

    def newest(self, component: str) -> int:
        """Return the newest version of that component that can be read."""
        return newest_version(self.steps.get(component, ()))

    def refuse_newer(self, versions: Iterable[tuple[str, int]], *, source: str) -> None:
        """Raise if a component is newer than this program knows; before its payload is read.

        Raises:
            CheckpointVersionError: lists all that are too new.
        """
        newer = [
            f"{component!r} has state version {version} (known up to {self.newest(component)})"
            for component, version in versions
            if version > self.newest(component)
        ]
        if newer:
            raise CheckpointVersionError(
                f"{source} holds states of a newer program: {'; '.join(newer)}. Nothing was "
                "loaded. Install the version that wrote it, or a newer one."
            )

    def migrated(self, component: str, state: Any, *, version: int) -> Any:
        """Return the state of a component as the newest version writes it; see `migrated`."""
        steps = self.steps.get(component, ())
        return migrated(state, steps, version=version, source=f"The component {component!r}")


# ---- manifest
#
# What a checkpoint says of itself: `manifest.json`, the last file written and the first one read.
# A directory without a manifest is not a checkpoint. The manifest names every file with size and
# SHA-256, and carries a checksum over itself, so that each bit of a checkpoint is covered. It is
# strict JSON: numbers that are not finite are written as null.

FORMAT: Final = "local-trainer-checkpoint"
FORMAT_VERSION: Final = newest_version(FORMAT_MIGRATIONS)
MANIFEST_FILE: Final = "manifest.json"
MAX_MANIFEST_BYTES: Final = 64 * 2**20
CODE_FILE: Final = "code.pkl"
FOLDER_NAME: Final = re.compile(r"files-[1-9][0-9]{0,17}")

_ENTRY_FIELDS: Final = ("file", "num_bytes", "sha256")
_FIELDS: Final = ("created_at", "versions", "metadata", "folder", "components", "code")
_OF_OURS: Final = frozenset({"format", "components", "checksum"})
_MAX_INT_BITS: Final = 1024  # seeds have 128; Python refuses to print much longer ones
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9_%-][A-Za-z0-9_.%-]*")


@dataclass(frozen=True)
class FileEntry:
    """One file of a checkpoint.

    Attributes:
        file: name within the folder that the manifest names; never a path.
        num_bytes: its size.
        sha256: hexadecimal SHA-256 of its content.
        state_version: of a component's state (`checkpoints.manifest`); written if above 1.
        arrays: files of the component's large arrays, in order; written if there are any.
    """

    file: str
    num_bytes: int
    sha256: str
    state_version: int = 1
    arrays: tuple[FileEntry, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as the manifest has them."""
        fields: dict[str, Any] = {name: getattr(self, name) for name in _ENTRY_FIELDS}
        if self.state_version > 1:
            fields["state_version"] = self.state_version
        if self.arrays:
            fields["arrays"] = [entry.to_dict() for entry in self.arrays]
        return fields

    @property
    def files(self) -> tuple[FileEntry, ...]:
        """This file and those of the large arrays."""
        return (self, *self.arrays)

    @property
    def digests(self) -> tuple[str, ...]:
        """The SHA-256 of all its files."""
        return tuple(entry.sha256 for entry in self.files)

    @property
    def total_bytes(self) -> int:
        """Size of all its files."""
        return sum(entry.num_bytes for entry in self.files)


@dataclass(frozen=True)
class Manifest:
    """What is in a checkpoint, without its payload.

    Attributes:
        created_at: UTC, ISO 8601 with microseconds.
        versions: of `python`, `numpy` and `ormsgpack` that wrote it.
        metadata: plain JSON data from the writer, such as `training_iteration`.
        components: name (slash path) to file, in the order in which they were given.
        folder: in which the files are, in the directory of the manifest: `files-1`.
        code: the file with pickled code, or None.
        format_version: in which it was written; what an older one said is here in today's terms.
        is_own: this user saved it on this machine, with code that was trusted: it is signed.
    """

    created_at: str
    versions: Mapping[str, str]
    metadata: Mapping[str, Any]
    components: Mapping[str, FileEntry]
    folder: str
    code: FileEntry | None = None
    format_version: int = FORMAT_VERSION
    is_own: bool = False

    @property
    def training_iteration(self) -> int:
        """The metadata's `training_iteration`, or -1 if it has none."""
        value = self.metadata.get("training_iteration")
        return value if type(value) is int else -1

    @property
    def files(self) -> tuple[FileEntry, ...]:
        """Every file that must be there besides the manifest."""
        code = () if self.code is None else (self.code,)
        return (*(file for entry in self.components.values() for file in entry.files), *code)

    def to_json(self) -> str:
        """Return the text of `manifest.json`."""
        fields = {"format": FORMAT, "format_version": self.format_version}
        fields |= {name: getattr(self, name) for name in _FIELDS}
        fields["components"] = {name: entry.to_dict() for name, entry in self.components.items()}
        fields["code"] = None if self.code is None else self.code.to_dict()
        checksum = _checksum(fields)
        fields["checksum"] = checksum
        if self.is_own and (signature := sign(checksum.encode())) is not None:
            fields["signature"] = signature  # the checksum covers the hashes of all files
        return _dump(fields)


def new_manifest(
    *,
    versions: Mapping[str, str],
    metadata: Mapping[str, Any],
    folder: str,
    components: Mapping[str, FileEntry],
    code: FileEntry | None,
    created_at: dt.datetime,
    is_own: bool = False,
) -> Manifest:
    """Return the manifest for files that have just been written; see `plain_metadata`."""
    return Manifest(
        created_at=created_at.astimezone(dt.timezone.utc).isoformat(timespec="microseconds"),
        versions=dict(versions),
        metadata=plain_metadata(metadata),
        components=dict(components),
        folder=folder,
        code=code,
        is_own=is_own,
    )


def plain_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata as JSON will give it back: tuples as lists, NaN and infinities as None.

    Raises:
        StateError: if something in it is not JSON data; names the place.
    """
    try:
        plain = _plain(metadata, "metadata")
    except RecursionError as error:
        raise StateError("metadata is nested too deeply, or holds itself; flatten it.") from error
    if not isinstance(plain, dict):
        raise StateError(
            f"metadata is a {type(metadata).__name__}; it must be a dict with text keys."
        )
    return plain


def _plain(value: Any, path: str) -> Any:
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        value = value.item()
    if value is None or type(value) in (bool, str):
        return value
    if type(value) is int and value.bit_length() <= _MAX_INT_BITS:
        return value
    if type(value) is float:
        return value if math.isfinite(value) else None
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{path}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, Mapping):
        for key in value:
            if type(key) is not str:
                raise StateError(
                    f"{path} has a key of type {type(key).__name__}; metadata is written as JSON, "
                    "whose keys are texts. Use `str(key)`."
                )
        return {key: _plain(item, f"{path}[{key!r}]") for key, item in value.items()}
    raise StateError(
        f"{path} is a {type(value).__module__}.{type(value).__qualname__}; metadata is written as "
        "JSON and holds only None, bool, int, float, str, lists and dicts. Move it into a "
        "component, or convert it."
    )


def parse_manifest(data: bytes, *, source: str) -> Manifest:
    """Return the manifest of a file's content.

    Raises:
        CheckpointNotFoundError: if it is the file of another program.
        CheckpointCorruptError: if it was changed after writing, or by whom it was written is not
            what it says.
        CheckpointVersionError: if it has a newer format; nothing else is looked at then.
    """
    fields = _parse_json(data, source)
    if isinstance(fields, dict) and fields and not _OF_OURS & fields.keys():
        raise CheckpointNotFoundError(
            f"{source} is no manifest of a checkpoint: it holds no format, no components and "
            "no checksum. Pass the directory that save_to_path() returned."
        )
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        raise CheckpointCorruptError(
            f'{source} does not say `"format": "{FORMAT}"`: this is not a checkpoint of '
            "local-trainer. Pass the directory that save_to_path() returned."
        )
    _check_version(fields, source)
    try:
        checksum, signature = fields.pop("checksum", None), fields.pop("signature", None)
        if checksum != _checksum(fields):
            raise ValueError("it was changed after it was written (its checksum does not fit)")
        version = fields.pop("format_version")
        fields.pop("format")
        fields = migrated(fields, FORMAT_MIGRATIONS, version=version, source=source)
        return _build(fields, version, is_own=is_own_signature(checksum.encode(), signature))
    except (TypeError, ValueError, KeyError, AttributeError, RecursionError, StateError) as error:
        raise CheckpointCorruptError(
            f"{source} is not a valid manifest: {error}. Nothing was loaded; use another "
            "checkpoint."
        ) from error


def names_our_format(data: bytes) -> bool:
    """Return whether this is a manifest of ours, of any version, whole or not in its details."""
    try:
        fields = _parse_json(data, "")
    except CheckpointCorruptError:
        return False
    return isinstance(fields, dict) and fields.get("format") == FORMAT


def _check_version(fields: dict[str, Any], source: str) -> None:
    version = fields.get("format_version")
    if type(version) is not int or version < 1:
        raise CheckpointCorruptError(
            f"{source} has the format_version {version!r}; versions are 1, 2, and so on. "
            "Use another checkpoint."
        )
    if version > FORMAT_VERSION:
        written_by = fields.get("versions")
        raise CheckpointVersionError(
            f"{source} has format_version {version}, and this local-trainer reads up to "
            f"{FORMAT_VERSION} (it was written with {written_by}). Nothing was loaded. Install the "
            "version of local-trainer that wrote it, or a newer one."
        )


def _parse_json(data: bytes, source: str) -> Any:
    try:
        return json.loads(
            data.decode("utf-8"), parse_constant=_refuse_constant, object_pairs_hook=_unique_keys
        )
    except (ValueError, RecursionError) as error:
        raise CheckpointCorruptError(
            f"{source} is not JSON ({error}); a checkpoint starts with an intact manifest. "
            "Use an earlier checkpoint or a fresh copy of this one."
        ) from error


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a key appears twice")
    return fields


def _build(fields: dict[str, Any], format_version: int, *, is_own: bool) -> Manifest:
    if set(fields) != set(_FIELDS):
        different = sorted(set(fields) ^ set(_FIELDS))
        raise ValueError(f"its fields differ from the expected by {different}")
    versions = fields["versions"]
    if not all(type(value) is str for value in versions.values()):
        raise TypeError("a version is not a text")
    created_at = dt.datetime.fromisoformat(fields["created_at"])
    if created_at.utcoffset() != dt.timedelta(0):
        raise ValueError("created_at is not in UTC")
    components = {
        component_paths.check_name(name): _build_entry(entry)
        for name, entry in fields["components"].items()
    }
    code = None if fields["code"] is None else _build_entry(fields["code"])
    folder = fields["folder"]
    if FOLDER_NAME.fullmatch(folder) is None:
        raise ValueError(f"{folder[:80]!r} is not the name of a folder of files")
    _check_files(components, code)
    return Manifest(
        created_at=fields["created_at"],
        versions=versions,
        metadata=plain_metadata(fields["metadata"]),
        components=components,
        folder=folder,
        code=code,
        format_version=format_version,
        is_own=is_own,
    )


def _check_files(components: Mapping[str, FileEntry], code: FileEntry | None) -> None:
    files = [entry.file for entry in components.values()]
    if len(set(files)) != len(files):
        raise ValueError("two components share a file")
    if not all(name.endswith(component_paths.COMPONENT_SUFFIX) for name in files):
        raise ValueError(f"a component file does not end with {component_paths.COMPONENT_SUFFIX}")
    if code is not None and (code.file != CODE_FILE or code.state_version != 1 or code.arrays):
        raise ValueError(f"the code file is not called {CODE_FILE}, or has a version or arrays")
    for entry in components.values():
        _check_arrays(entry)


def _check_arrays(entry: FileEntry) -> None:
    for number, array in enumerate(entry.arrays):
        if array.file != component_paths.array_file_name(entry.file, number):
            raise ValueError(f"{array.file} is not called like array file {number} of {entry.file}")
        if array.num_bytes == 0 or array.state_version != 1 or array.arrays:
            raise ValueError(f"{array.file} is empty, or has a version or arrays")


def _build_entry(fields: dict[str, Any]) -> FileEntry:
    arrays = fields.get("arrays", [None])  # an empty list is never written
    if type(arrays) is not list or not arrays:
        raise ValueError("a list of array files is empty, or no list")
    if "arrays" in fields:
        fields = {**fields, "arrays": tuple(_build_entry(array) for array in arrays)}
    entry = FileEntry(**fields)
    if type(entry.file) is not str or _FILE_NAME.fullmatch(entry.file) is None:
        raise ValueError(f"{str(entry.file)[:80]!r} is not the plain name of a file")
    if type(entry.num_bytes) is not int or entry.num_bytes < 0:
        raise ValueError(f"{entry.file} has the impossible size {entry.num_bytes!r}")
    if type(entry.sha256) is not str or _SHA256.fullmatch(entry.sha256) is None:
        raise ValueError(f"{entry.file} has no SHA-256")
    version = fields.get("state_version", 2)  # 1 is never written
    if type(version) is not int or version < 2:
        raise ValueError(f"{entry.file} has the impossible state_version {version!r}")
    return entry


def _dump(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, indent=1, allow_nan=False) + "\n"


def _checksum(fields: Mapping[str, Any]) -> str:
    return hashlib.sha256(_dump(fields).encode("ascii")).hexdigest()


# ---- versions


def current_versions() -> dict[str, str]:
    """Return the versions that every checkpoint names: of `python`, `numpy` and `ormsgpack`."""
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "ormsgpack": ormsgpack.__version__,
    }


def version_differences(
    manifest: Manifest, here: Mapping[str, str] | None = None, *, only_minor: bool = False
) -> list[str]:
    """Return what was written by other versions than those here: `numpy 1.26.4 (here 2.4.0)`.

    Args:
        manifest: says what wrote the checkpoint, in its versions and in its metadata.
        here: further versions of here, by their names in the metadata.
        only_minor: leave out those that differ in less than major and minor number.
    """
    written = {**manifest.metadata, **manifest.versions}
    found = []
    for name, version in {**current_versions(), **(here or {})}.items():
        before = written.get(name)
        if not isinstance(before, str) or before == version:
            continue
        if not only_minor or before.split(".")[:2] != version.split(".")[:2]:
            found.append(f"{name} {before} (here {version})")
    return found


def written_by_others(manifest: Manifest, here: Mapping[str, str] | None = None) -> str:
    """Return a sentence for error messages that names other versions, or nothing."""
    found = version_differences(manifest, here)
    return f" It was written by other versions: {', '.join(found)}." if found else ""

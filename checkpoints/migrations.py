"""States of earlier versions, brought up to the present by pure functions, one version at a time.

Two things have versions. The *format* is what stands in `manifest.json`; its migrations take the
fields of one version (plain JSON) and return those of the next. The *state version* of a component
is what its state says: which keys there are, and what they mean. Its migrations belong to the
object that is saved (`Checkpointable.state_migrations`); this module only applies them.

A version is 1 + the number of its migrations, so nobody can raise one and forget the function. The
layout of a component file has no migrations: `checkpoints.codec` never changes a meaning.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from checkpoints.errors import CheckpointVersionError, StateError

Migration = Callable[[Any], Any]
"""From plain data of one version to that of the next; may change what it is given."""

StateMigrations = Mapping[str, Sequence[Migration]]
"""Path of a component to its migrations, oldest first."""

NO_MIGRATIONS: Final[StateMigrations] = MappingProxyType({})
"""Of an object whose states are still what they were at first."""


def _without_array_files(fields: dict[str, Any]) -> dict[str, Any]:
    """To format 2, in which large arrays may lie in files of their own; before, none did."""
    if any("arrays" in entry for entry in fields["components"].values()):
        raise ValueError("a component of format 1 lists array files")
    return fields


FORMAT_MIGRATIONS: Final[tuple[Migration, ...]] = (_without_array_files,)
"""Of the manifest's fields, without `format`, `format_version` and `checksum`; oldest first.

A checkpoint of an earlier format keeps its own checksum, which is compared before.
"""


def newest_version(migrations: Sequence[Migration]) -> int:
    """Return the version that these migrations lead to."""
    return 1 + len(migrations)


def migrated(data: Any, migrations: Sequence[Migration], *, version: int, source: str) -> Any:
    """Return data of some version as data of the newest one.

    Args:
        data: plain data that belongs to the caller.
        migrations: all there are, oldest first.
        version: of the data, from 1 to the newest.
        source: how error messages call the data.

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

    Args:
        migrations: what a class has as `state_migrations`.
        where: how error messages call it.

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


@dataclasses.dataclass(frozen=True)
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

        Args:
            versions: (component, its state version).
            source: how the message calls the checkpoint; says who wrote it, too.

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
        """Return the state of a component as the newest version would have written it.

        Raises:
            CheckpointVersionError: if a migration fails.
        """
        steps = self.steps.get(component, ())
        return migrated(state, steps, version=version, source=f"The component {component!r}")

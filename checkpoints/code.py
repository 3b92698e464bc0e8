"""The one place that pickles: the optional `code.pkl` of a checkpoint, and the paths inside it.

Checkpoints restore without it whenever the program supplies the code, that is the config.
Unpickling can do anything that a program can, so it happens only when the caller says so, and only
after the bytes have been compared with the hash in the manifest. The hash shows damage, not malice:
who can replace the file can replace the manifest.
"""

from __future__ import annotations

import contextlib
import logging
import platform
import sys
import types
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import cloudpickle

from checkpoints.errors import (
    CheckpointMismatchError,
    CheckpointVersionError,
    CodeNotAllowedError,
    StateError,
)
from checkpoints.listing import PathLike, resolve_path
from checkpoints.manifest import CODE_FILE, Manifest
from checkpoints.reader import read_code_bytes
from trainer_toolkit.arguments import takes
from trainer_toolkit.checks import boolean

# ---- moved paths
#
# Paths inside saved code, which follow the checkpoint when its project is copied or moved.
# Objects that write files, such as callbacks, are pickled with absolute paths. If the checkpoint
# is found elsewhere than it was saved, those paths are of another run, whose files are not ours
# to replace or remove. So an object that owns a path asks `moved_path` for it while it is
# unpickled:
#
#     def __setstate__(self, state):
#         self.__dict__.update(state, path=moved_path(state["path"]))
#
# The manifest says where a checkpoint with code was saved (`SAVED_AT`). What the two places have
# in common at their end is what was copied along: `/a/proj/saves/000005` that is found as
# `/b/copy/saves/000005` takes all of `/a/proj` to `/b/copy`.

SAVED_AT: Final = "saved_at"
"""The key of the manifest's metadata; only checkpoints with code have it."""


@dataclass(frozen=True)
class _Move:
    """From where a checkpoint was saved to where it is now; both are its own directory."""

    source: Path
    target: Path

    def apply(self, path: Path) -> Path:
        """Where that path of the run is now."""
        path = path.resolve()
        if path.is_relative_to(self.target.parent):
            return path  # a copy within the run's own directory, such as `best` beside `saves`
        old_root, new_root = self._roots()
        if path.is_relative_to(old_root):
            return new_root / path.relative_to(old_root)
        if not self.source.parent.exists():
            return path  # moved, not copied: no other run writes there
        moved = new_root / path.name
        _LOGGER.warning(
            "The checkpoint %s is a copy of %s, whose run writes to %s, outside of what was "
            "copied. This run writes to %s instead. Give the callbacks anew "
            "(from_checkpoint(path, callbacks=[...])) for another place.",
            self.target,
            self.source,
            path,
            moved,
        )
        return moved

    def _roots(self) -> tuple[Path, Path]:
        """The directories that correspond: without what both paths have in common at the end."""
        old, new = self.source, self.target
        while old.name == new.name and old != old.parent and new != new.parent:
            old, new = old.parent, new.parent
        if old == self.source:  # renamed: what was beside it is beside it
            return old.parent, new.parent
        return old, new


_LOGGER: Final = logging.getLogger(__name__)
_MOVE: Final[ContextVar[_Move | None]] = ContextVar("_MOVE", default=None)


@contextlib.contextmanager
def paths_following(saved_at: object, path: PathLike) -> Iterator[None]:
    """Lets `moved_path` take paths to where a checkpoint is now."""
    target = resolve_path(path)
    is_known = isinstance(saved_at, str) and Path(saved_at).is_absolute()
    move = _Move(Path(str(saved_at)), target) if is_known else None
    if move is not None and _is_same(move.source, target):
        move = None
    token = _MOVE.set(move)
    try:
        yield
    finally:
        _MOVE.reset(token)


def moved_path(path: Path) -> Path:
    """Where a path of a saved object is, inside `paths_following`; elsewhere the path itself."""
    move = _MOVE.get()
    return path if move is None else move.apply(path)


def _is_same(first: Path, second: Path) -> bool:
    if first == second:
        return True
    try:
        return first.samefile(second)  # one place with two names, such as a mount
    except (OSError, ValueError):
        return False


# ---- code

_MOST_VISITED: Final = 10_000


def pack_code(value: Any) -> bytes:
    """Return the bytes to pass as `code` to `write_checkpoint`.

    Raises:
        StateError: if the value cannot be pickled.
    """
    try:
        packed: bytes = cloudpickle.dumps(value)
    except Exception as error:  # pickling runs methods of foreign classes; raised as our own
        raise StateError(
            f"A {type(value).__name__} cannot be saved as code: {type(error).__name__}: {error}. "
            "Save without code and supply it again when restoring."
        ) from error
    return packed


def large_globals(value: Any, *, at_least_bytes: int) -> dict[str, int]:
    """Return name → size of large data that functions and classes carry into their pickle.

    A function of the script itself is pickled with the globals that it reads, whatever their size.

    Args:
        value: functions, classes, objects of classes, or dicts and lists of these.
        at_least_bytes: smaller ones are left out.
    """
    found: dict[str, int] = {}
    for function in _functions_of(value, seen=set()):
        for name in _names_read(function.__code__):
            data = function.__globals__.get(name)
            if name in found or isinstance(data, type | types.ModuleType) or callable(data):
                continue
            size = _size_of(data)
            if size >= at_least_bytes:
                found[name] = size
    return found


def _functions_of(value: Any, *, seen: set[int]) -> Iterator[types.FunctionType]:
    """The functions that are pickled by value with a value."""
    if id(value) in seen or len(seen) > _MOST_VISITED:
        return
    seen.add(id(value))
    if isinstance(value, Mapping):
        inside: list[Any] = list(value.values())
    elif isinstance(value, list | tuple):
        inside = list(value)
    elif isinstance(value, types.FunctionType):
        if not _is_pickled_by_name(value):
            yield value
        inside = [value.__wrapped__] if hasattr(value, "__wrapped__") else []
    elif isinstance(value, type):
        own = [cls for cls in value.__mro__ if not _is_pickled_by_name(cls)]
        inside = [member for cls in own for member in vars(cls).values()]
        inside = [getattr(member, "__func__", member) for member in inside]
        inside = [member for member in inside if isinstance(member, types.FunctionType)]
    else:
        inside = [type(value)]
    for part in inside:
        yield from _functions_of(part, seen=seen)


def _is_pickled_by_name(thing: Any) -> bool:
    module = sys.modules.get(getattr(thing, "__module__", None) or "")
    return module is not None and module.__name__ != "__main__"


def _names_read(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_read(constant)


def _size_of(data: Any) -> int:
    size = getattr(data, "nbytes", None)
    if isinstance(size, int):
        return size
    try:
        return len(cloudpickle.dumps(data))
    except Exception:  # noqa: BLE001  what cannot be pickled is told by `pack_code`
        return 0


@takes(allow_code=boolean())
def read_code(path: PathLike, *, allow_code: bool = False) -> Any:
    """Return the value that was saved as code; this runs code from the checkpoint.

    Paths that ready-made callbacks write to follow a checkpoint that was copied or moved.

    Args:
        path: the directory of the checkpoint.
        allow_code: say True only for checkpoints from a source that you trust like a program.

    Raises:
        ArgumentError: if `allow_code` is neither True nor False; nothing is read then.
        CodeNotAllowedError: unless `allow_code=True`, or this user saved it on this machine.
        CheckpointMismatchError: if it has no code, or the code does not load in this program.
        CheckpointVersionError: if it was pickled by another minor version of Python.
        CheckpointCorruptError: if the code file was altered; it is not run then.
    """
    saved_at: object = None

    def check(manifest: Manifest) -> None:
        nonlocal saved_at
        _check_may_load(manifest, path=path, allow_code=allow_code)
        saved_at = manifest.metadata.get(SAVED_AT)

    data = read_code_bytes(path, check_manifest=check)
    if data is None:  # checked above; another process may have replaced the checkpoint since
        raise CheckpointMismatchError(_no_code(path))
    try:
        with paths_following(saved_at, path):
            return cloudpickle.loads(data)
    except Exception as error:  # unpickling runs foreign code; raised as our own
        raise CheckpointMismatchError(
            f"The code in {path} does not load here: {type(error).__name__}: {error}. It refers to "
            "modules that this program does not have. Make them importable, or pass the config "
            "yourself instead of loading code."
        ) from error


def _check_may_load(manifest: Manifest, *, path: PathLike, allow_code: bool) -> None:
    if manifest.code is None:
        raise CheckpointMismatchError(_no_code(path))
    if not (allow_code or manifest.is_own):
        raise CodeNotAllowedError(
            f"{path} holds pickled code ({CODE_FILE}), and unpickling it can run anything. "
            "Pass the config yourself (`config=...`), which needs no code from the checkpoint; or, "
            "if you trust its source like a program, pass `allow_code=True`."
        )
    written, here = manifest.versions.get("python", ""), platform.python_version()
    if written.split(".")[:2] != here.split(".")[:2]:
        raise CheckpointVersionError(
            f"The code in {path} was pickled by Python {written} and this is Python {here}; "
            "compiled functions do not carry over and may crash. Pass the config yourself "
            "(`config=...`), or use that Python."
        )


def _no_code(path: PathLike) -> str:
    return (
        f"{path} was saved without code. The state restores without it: pass the config yourself "
        "(`config=...`)."
    )

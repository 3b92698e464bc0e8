"""Paths that lead into a checkpoint: `<checkpoint>/learner/rl_module` is a component of it."""

from __future__ import annotations

from pathlib import Path

from checkpoints.component_tree import WHOLE, joined
from checkpoints.errors import CheckpointError
from checkpoints.file_system import regular_file_size
from checkpoints.listing import PathLike, resolve_path
from checkpoints.manifest import MANIFEST_FILE
from checkpoints.reader import read_manifest


def checkpoint_and_component(path: PathLike) -> tuple[Path, str | None]:
    """Return the checkpoint that a path leads to or into, and the component that it names.

    A component is named by its path in the checkpoint or by its file; None is the whole. That it
    exists is not checked.
    """
    target = resolve_path(path)
    if not target.is_dir():
        for parent in target.parents:
            if regular_file_size(parent / MANIFEST_FILE) is not None:
                inside = target.relative_to(parent).as_posix()
                components = read_manifest(parent).components
                files = {entry.file: name for name, entry in components.items()}
                return parent, files.get(inside, inside)
    return target, None


def checkpoint_and_root(path: PathLike, component: str | None) -> tuple[Path, str]:
    """Return the checkpoint and where in it the state of the object stands ("" for the top).

    A path that leads into a checkpoint leads to the object's own state, or, as RLlib wants it, to
    that of the one component that is asked for.
    """
    checkpoint, inside = checkpoint_and_component(path)
    if inside is None or inside == component:
        return checkpoint, ""
    if component and inside.endswith("/" + component):
        return checkpoint, inside[: -len(component) - 1]
    return checkpoint, inside


def below_root(name: str, root: str) -> str:
    """Return what a component is called by the object whose state stands at `root`."""
    if not root:
        return name
    return WHOLE if name == root else name[len(root) + 1 :]


def at_root(name: str, root: str) -> str:
    """Return what a component of an object is called in a checkpoint that has it at `root`."""
    if not root:
        return name
    return root if name == WHOLE else joined(root, name)


def has_component(checkpoint: Path, name: str) -> bool:
    """Return whether a checkpoint has that very component; False if there is no checkpoint."""
    try:
        return name in read_manifest(checkpoint).components
    except CheckpointError:
        return False

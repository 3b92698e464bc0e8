"""Arrays of a checkpoint by name, for those who want the numbers and nothing else.

Neither the classes nor the env that a checkpoint belongs to are needed, and none is imported.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from checkpoints.array_format import Array
from checkpoints.components import CONSTRUCTORS, checkpoint_and_component
from checkpoints.errors import CheckpointMismatchError
from checkpoints.listing import PathLike
from checkpoints.reader import read_checkpoint, read_manifest
from checkpoints.writer import write_whole_file
from trainer_toolkit.arguments import takes
from trainer_toolkit.checks import boolean

_WEIGHTS: Final = "rl_module"
"""Last step of the path of components that hold weights."""
_WHOLE: Final = "state"
"""What an array is called that is a whole component by itself."""


def load_weights(
    path: PathLike, *, component: str | None = None, mapped: bool = False
) -> dict[str, Array]:
    """Return the arrays of a checkpoint by name, such as `pi/0/kernel`, verified.

    States are read as they were written, so a checkpoint of an earlier release has its names.

    Args:
        path: a checkpoint; or a component in it, as a path (`<checkpoint>/learner/rl_module`) or as
            its file (`<checkpoint>/learner.rl_module.state`).
        component: which component; None means the weights (`learner/rl_module`), or the only
            component there is. Names in a folder (`learner`) begin with the component.

        mapped: whether arrays that have files of their own are given as read-only maps of these
            files; see `read_checkpoint` for what that asks of you.

    Returns:
        New writable arrays, unless they are mapped. The keys of nested dicts are joined with
        slashes, items of lists are counted from 0, NumPy scalars become arrays of no dimension.
        Everything else is left out.

    Raises:
        CheckpointNotFoundError: if there is no checkpoint.
        CheckpointCorruptError: if a file is missing, cut, or altered.
        CheckpointMismatchError: if there is no such component, or no array in it.
    """
    checkpoint, inside = checkpoint_and_component(path)
    chosen = component or inside or _weights_component(checkpoint)
    states = read_checkpoint(checkpoint, chosen, mapped=mapped).components
    weights: dict[str, Array] = {}
    for name, state in states.items():
        prefix = name[len(chosen) + 1 :]
        for place, array in _arrays(state, prefix):
            if place in weights:
                raise CheckpointMismatchError(
                    f"{name!r} of {checkpoint} holds two arrays that would both be called "
                    f"{place!r}. Read it with read_checkpoint()."
                )
            weights[place] = array
    if not weights:
        raise CheckpointMismatchError(
            f"The component {chosen!r} of {checkpoint} holds no arrays. Choose another one; "
            f"{_known(checkpoint)}."
        )
    return weights


@takes(overwrite=boolean())
def export_weights(
    path: PathLike, file: PathLike, *, component: str | None = None, overwrite: bool = False
) -> Path:
    """Write the arrays of `load_weights` to an `.npz` file, and return its absolute path.

    `numpy.load(file)` gives them back by the same names. Equal arrays give equal bytes.

    Args:
        path: see `load_weights`.
        file: where to; it appears whole or not at all.
        component: see `load_weights`.
        overwrite: replace a file that is there already.

    Raises:
        CheckpointWriteError: if the file is there already, or cannot be written.
        CheckpointError: see `load_weights`.
    """
    weights = load_weights(path, component=component, mapped=True)
    return write_whole_file(
        file, lambda opened: _write_archive(opened, weights), overwrite=overwrite
    )


def _write_archive(opened: BinaryIO, weights: dict[str, Array]) -> None:
    # numpy.savez takes names as keywords beside its own, so that no array could be called "file".
    with zipfile.ZipFile(opened, "w") as archive:
        for key, array in weights.items():
            with archive.open(zipfile.ZipInfo(f"{key}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _weights_component(checkpoint: Path) -> str:
    names = [name for name in read_manifest(checkpoint).components if name != CONSTRUCTORS]
    found = [name for name in names if name.split("/")[-1] == _WEIGHTS] or names
    if len(found) == 1:
        return found[0]
    raise CheckpointMismatchError(
        f"{checkpoint} does not say which of its components are weights; {_known(checkpoint)}. "
        "Name one with `component=...`."
    )


def _known(checkpoint: Path) -> str:
    return "it holds " + (", ".join(read_manifest(checkpoint).components) or "nothing")


def _arrays(state: Any, path: str) -> Iterator[tuple[str, Array]]:
    if isinstance(state, np.ndarray | np.generic):
        yield path or _WHOLE, np.asarray(state)
        return
    pairs: Any = ()
    if isinstance(state, dict):
        pairs = state.items()
    elif isinstance(state, list | tuple):
        pairs = enumerate(state)
    for key, value in pairs:
        yield from _arrays(value, f"{path}/{key}" if path else str(key))

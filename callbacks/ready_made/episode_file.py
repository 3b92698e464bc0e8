"""One episode as an `.npz` file: plain arrays by name, the same bytes for the same episode.

    id            the id of the episode, a string
    seed          what `env.reset(seed=...)` was given, int64; missing if unknown
    observations  [T + 1, ...]; of dicts and tuples one array per leaf: `observations/camera`
    actions       [T, ...], as the module gave them; of dicts and tuples likewise
    rewards       float64, [T]
    terminated    bool: the env reached a final state
    truncated     bool: a limit ended the episode
    extra/NAME    [T, ...]: an extra output of the module, if wanted

`load_episode` needs nothing but NumPy; nothing is pickled.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from callbacks.views import EpisodeView
from checkpoints.arguments import checked_arguments

Array = npt.NDArray[Any]


@checked_arguments
def load_episode(path: str | os.PathLike[str]) -> dict[str, Array]:
    """The arrays of a recorded episode by name, as the module docstring lists them.

    Args:
        path: a file that `EpisodeRecorder` wrote.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no file of arrays, or holds pickled objects.
    """
    try:
        archive = np.load(Path(path).expanduser(), allow_pickle=False)
    except (ValueError, EOFError, zipfile.BadZipFile) as cause:
        raise ValueError(
            f"path={str(path)!r} is no file of arrays ({cause}); expected an .npz file that "
            "EpisodeRecorder wrote. Give the path of one."
        ) from cause
    if not hasattr(archive, "files"):
        raise ValueError(
            f"{path} holds a single array; expected an .npz file that EpisodeRecorder wrote"
        )
    with archive:
        return {name: archive[name] for name in archive.files}


def episode_arrays(
    chunks: Sequence[EpisodeView], *, seed: int | None, columns: Sequence[str] = ()
) -> dict[str, Array]:
    """The arrays of a whole episode.

    Args:
        chunks: all chunks of the episode, oldest first; lists or arrays.
        seed: what the env was reset with, if known.
        columns: names of extra outputs of the module.

    Raises:
        ValueError: the steps differ in shape, or an extra output does not exist.
    """
    last = chunks[-1]
    arrays = {"id": np.array(last.id_)}
    if seed is not None:
        arrays["seed"] = np.array(seed, np.int64)
    observations = [_leaves("observations", chunk.get_observations()) for chunk in chunks]
    # A chunk begins with the observation that the one before it ends with.
    continued = [{name: leaf[1:] for name, leaf in part.items()} for part in observations[1:]]
    arrays |= _joined([observations[0], *continued])
    arrays |= _joined([_leaves("actions", chunk.get_actions()) for chunk in chunks])
    arrays["rewards"] = np.concatenate(
        [np.asarray(chunk.get_rewards(), np.float64) for chunk in chunks]
    )
    arrays["terminated"] = np.array(last.is_terminated)
    arrays["truncated"] = np.array(last.is_truncated)
    for column in columns:
        parts = [_leaves(f"extra/{column}", _output(chunk, column)) for chunk in chunks]
        arrays |= _joined(parts)
    return arrays


def write_episode(path: Path, arrays: Mapping[str, Array], *, compressed: bool) -> None:
    """Writes arrays as `.npz`, as `numpy.savez` does but without the time of writing."""
    method = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            # Everything that could differ from one writing to the next is fixed.
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type = method
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            with archive.open(entry, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array, order="C"), allow_pickle=False)


def _output(chunk: EpisodeView, column: str) -> Any:
    outputs = chunk.get_extra_model_outputs()
    if column not in outputs:
        raise ValueError(
            f"EpisodeRecorder(columns=...): episode {chunk.id_} has no extra output {column!r}; "
            f"it has {', '.join(map(repr, outputs)) or 'none'}"
        )
    return outputs[column]


def _joined(parts: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _leaves(name: str, rows: Any) -> dict[str, Array]:
    """The leaves of many rows of one column by path, each as an array with a row per step."""
    leaves: dict[str, Array] = {}
    for path, leaf in _walk(name, rows):
        if path in leaves:
            raise ValueError(
                f"two entries of an episode are called {path!r} in a file; rename one of the keys "
                "of the space, such as one with a slash"
            )
        leaves[path] = leaf
    return leaves


def _walk(name: str, rows: Any) -> Iterator[tuple[str, Array]]:
    """Leaves with their paths: `rows` is a list of items, or a batch (structure outside)."""
    first = rows[0] if isinstance(rows, list) and rows else None
    if isinstance(rows, Mapping):
        for key, batch in rows.items():
            yield from _walk(f"{name}/{key}", batch)
    elif isinstance(rows, tuple):
        for index, batch in enumerate(rows):
            yield from _walk(f"{name}/{index}", batch)
    elif isinstance(first, Mapping):
        for key in first:
            yield from _walk(f"{name}/{key}", [item[key] for item in rows])
    elif isinstance(first, tuple):
        for index in range(len(first)):
            yield from _walk(f"{name}/{index}", [item[index] for item in rows])
    else:
        yield name, _stacked(name, rows)


def _stacked(name: str, rows: Any) -> Array:
    try:
        array = np.asarray(rows)
    except ValueError as error:  # rows of different shapes
        raise ValueError(f"{name} cannot be recorded: {error}") from error
    if array.dtype.hasobject:
        raise ValueError(
            f"{name} cannot be recorded: its items are {type(rows[0]).__name__} objects; expected "
            "numbers, strings, or arrays of them that have one shape in all steps"
        )
    return array

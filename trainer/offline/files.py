"""The files of recordings: what each kind holds, under the same names for all of them.

    observations, observations/KEY   [T + 1, ...]     actions, actions/KEY   [T, ...]
    rewards   [T]                                     terminated, truncated  bool

These are the names of `EpisodeRecorder`; leaves of Dict and Tuple spaces have their key or number
behind a slash. Files are strangers' files: nothing in them is code that runs, and memory is taken
only after a look at how much it will be.
"""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from callbacks.optional_import import optional_module
from trainer.errors import EpisodeError
from trainer.types import Array

MOST_BYTES: Final = 2**31
"""Of a file with one episode, and of one Parquet file: more is refused before it is unpacked."""

MINARI: Final = "minari:"
"""What the name of a Minari data set begins with."""

COLUMNS: Final[Mapping[str, str]] = {
    "eps_id": "eps_id",
    "obs": "obs",
    "actions": "actions",
    "rewards": "rewards",
    "terminateds": "terminateds",
    "truncateds": "truncateds",
    "new_obs": "new_obs",
}
"""Columns of a Parquet file, by RLlib's names for them; `input_read_schema` renames them."""

_LARGEST_NUMBER: Final = 8
"""Bytes of a number."""
_READ: Final = ("observations", "actions", "rewards", "terminated", "truncated")
_HEADERS: Final = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def absolute_inputs(value: Any) -> Any:
    """What `input_` is given, with paths as text that leads there from every folder.

    So checkpoints hold it. What is no path stays as it is.
    """
    if isinstance(value, (list, tuple)):
        return [absolute_inputs(one) for one in value]
    if not isinstance(value, str | os.PathLike) or not str(value) or str(value).startswith(MINARI):
        return value
    return str(Path(value).expanduser().absolute())


@dataclass(frozen=True)
class RecordedEpisode:
    """One episode in some file.

    Attributes:
        name: of file and episode, for messages.
        read: gives its columns.
        holds_env_actions: its actions are those that the env was given, not those of a module.
    """

    name: str
    read: Callable[[], Mapping[str, Array]]
    holds_env_actions: bool


def find_episodes(
    inputs: Sequence[str | os.PathLike[str]], *, schema: Mapping[str, str]
) -> list[RecordedEpisode]:
    """All episodes of what is named, in an order that follows from the names of the files.

    Args:
        inputs: folders, `.npz` files, `.parquet` files, and `minari:NAME`.
        schema: of Parquet files, what a column is called there, by its name in `COLUMNS`.

    Raises:
        EpisodeError: something is not there, or cannot be read.
        ImportError: the package that reads it is not installed.
    """
    found: list[RecordedEpisode] = []
    for one in inputs:
        if str(one).startswith(MINARI):
            found += _of_minari(str(one).removeprefix(MINARI))
            continue
        for file in _files(Path(one).expanduser()):
            found += _of_parquet(file, schema) if file.suffix == ".parquet" else [_of_npz(file)]
    if not found:
        raise EpisodeError(
            f"There are no recordings in input_={[str(one) for one in inputs]}; expected folders "
            "with .npz files of EpisodeRecorder or with .parquet files, such files, or "
            f"'{MINARI}NAME'. Record some: `local-trainer record RUN`."
        )
    return found


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        if path.suffix in (".npz", ".parquet") and path.is_file():
            return [path]
        why = "is no .npz and no .parquet file" if path.exists() else "does not exist"
        raise EpisodeError(
            f"input_={str(path)!r} {why}. Give a folder of recordings, such a file, or "
            f"'{MINARI}NAME'."
        )
    files = [file for file in path.iterdir() if file.suffix in (".npz", ".parquet")]
    folder = path.resolve()
    for file in files:
        if not file.resolve().is_relative_to(folder):
            raise EpisodeError(
                f"{file} is a link that leads out of its folder, to {file.resolve()}. Give that "
                "file itself in `input_` if it is meant."
            )
    return sorted(file for file in files if not file.name.startswith("."))


def _unreadable(name: str, cause: BaseException) -> EpisodeError:
    return EpisodeError(
        f"{name} cannot be read as a recording ({type(cause).__name__}: {cause!s:.200}). It is "
        "damaged, or something else; leave it out."
    )


# ---- .npz files of EpisodeRecorder


def _of_npz(path: Path) -> RecordedEpisode:
    def read() -> Mapping[str, Array]:
        try:
            return _npz_columns(path)
        except EpisodeError:
            raise
        except Exception as cause:
            # Any: damage makes zipfile, zlib and NumPy raise a dozen classes.
            raise _unreadable(str(path), cause) from cause

    return RecordedEpisode(str(path), read, holds_env_actions=False)


def _npz_columns(path: Path) -> dict[str, Array]:
    with zipfile.ZipFile(path) as archive:
        members = {one.filename.removesuffix(".npy"): one for one in archive.infolist()}
        read = {name: one for name, one in members.items() if name.split("/")[0] in _READ}
        if not read and any(name.endswith("/rewards") for name in members):
            raise EpisodeError(
                f"{path} is the episode of several agents; expected one of a single agent. "
                "Learning from recordings of several agents is not offered in this version."
            )
        _refuse_large(str(path), sum(one.file_size for one in read.values()))
        return {name: _array(archive, one) for name, one in read.items()}


def _refuse_large(name: str, num_bytes: int) -> None:
    if num_bytes > MOST_BYTES:
        raise EpisodeError(
            f"{name} would take {num_bytes / 2**30:,.1f} GiB of memory; at most "
            f"{MOST_BYTES / 2**30:g} GiB are read at once. Cut it into smaller files."
        )


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Array:
    with archive.open(member) as opened:
        shape, _, dtype = _HEADERS[np.lib.format.read_magic(opened)](opened)
    # NumPy takes as much memory as the header says, before it finds out how much there is.
    if dtype.hasobject or math.prod(shape) * dtype.itemsize > member.file_size:
        raise ValueError(f"{member.filename} says {dtype} of shape {shape}")
    with archive.open(member) as opened:
        array: Array = np.lib.format.read_array(opened, allow_pickle=False)
        return array


# ---- Parquet


def _of_parquet(path: Path, schema: Mapping[str, str]) -> list[RecordedEpisode]:
    """The episodes of a file; rows of one stand in order of time, and one after another."""
    parquet = optional_module("pyarrow.parquet", user=str(path), extra="parquet")
    names = {**COLUMNS, **schema}
    try:
        # Each text once: a small file says the same long one for any number of rows.
        ids = {names["eps_id"]}.intersection(parquet.read_schema(path).names)
        file = parquet.ParquetFile(path, read_dictionary=[*ids])
        _refuse_large(str(path), _bytes_in_memory(file.metadata))
        wanted = [one for one in file.schema_arrow.names if one.split("/")[0] in names.values()]
        _refuse_texts(path, file.schema, {*wanted} - ids)
        table = file.read(columns=wanted).unify_dictionaries()
        columns = {
            leaf: numbers
            for name in wanted
            for leaf, numbers in _leaves(name, table.column(name).combine_chunks())
        }
    except EpisodeError:
        raise
    except Exception as cause:
        raise _unreadable(str(path), cause) from cause
    for needed in ("eps_id", "actions", "rewards", "terminateds"):
        if not any(leaf.split("/")[0] == names[needed] for leaf in columns):
            raise EpisodeError(
                f"{path} has no column {names[needed]!r}; it has {', '.join(table.column_names)} "
                f"(read: {', '.join(columns) or 'none'}). Name the column with "
                f"input_read_schema={{{needed!r}: ...}}."
            )
    of_rows = columns[names["eps_id"]]
    starts = np.flatnonzero(np.r_[True, of_rows[1:] != of_rows[:-1]])
    if len(np.unique(of_rows[starts])) < len(starts):
        raise EpisodeError(
            f"{path}: rows of one episode stand apart, with those of others between them. Sort the "
            f"rows by {names['eps_id']!r} and time."
        )
    stops = [*starts[1:].tolist(), len(of_rows)]
    return [
        _rows_of_parquet(f"{path}, rows {start} to {stop - 1}", columns, names, slice(start, stop))
        for start, stop in zip(starts.tolist(), stops, strict=True)
    ]


def _refuse_texts(path: Path, schema: Any, names: Collection[str]) -> None:
    """Raises an EpisodeError for columns of no numbers, before they take memory."""
    leaves = [schema.column(index) for index in range(len(schema.names))]
    for leaf in leaves:
        kind = leaf.physical_type
        is_number = "BYTE_ARRAY" not in kind or 0 < leaf.length <= _LARGEST_NUMBER
        if leaf.path.split(".")[0] in names and not is_number:
            raise EpisodeError(f"{path}: column {leaf.path!r} holds {kind}; expected numbers.")


def _bytes_in_memory(metadata: Any) -> int:
    """What a file takes in memory; equal numbers, and equal texts, are written once."""
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    chunks = [group.column(i) for group in groups for i in range(group.num_columns)]
    written: int = sum(group.total_byte_size for group in groups)
    numbers: int = sum(8 * chunk.num_values for chunk in chunks)
    return max(written, numbers)


def _leaves(name: str, column: Any) -> Iterator[tuple[str, Array]]:
    """The arrays of a column of lists or structs, by path."""
    column = getattr(column, "storage", column)  # of tensors
    column = getattr(column, "indices", column)  # which text it is
    if column.null_count:
        raise EpisodeError(f"the column {name!r} has {column.null_count} empty rows")
    if hasattr(column.type, "fields"):  # a struct
        for field in column.type.fields:
            yield from _leaves(f"{name}/{field.name}", column.field(field.name))
        return
    yield name, _numbers(name, column)


def _numbers(name: str, column: Any) -> Array:
    if not hasattr(column, "flatten") or not hasattr(column.type, "value_type"):
        numbers: Array = column.to_numpy(zero_copy_only=False)
        return numbers
    values = _numbers(name, column.flatten())
    lengths = {len(item) for item in column}
    if len(lengths) > 1:
        raise EpisodeError(f"the column {name!r} has lists of {sorted(lengths)[:5]} numbers")
    return values.reshape(len(column), *lengths, *values.shape[1:])


def _rows_of_parquet(
    name: str, columns: Mapping[str, Array], names: Mapping[str, str], rows: slice
) -> RecordedEpisode:
    def part(of: str, renamed: str) -> dict[str, Array]:
        theirs = names[of]
        return {
            renamed + leaf.removeprefix(theirs): numbers[rows]
            for leaf, numbers in columns.items()
            if leaf.split("/")[0] == theirs
        }

    def is_set(of: str) -> bool:
        flags = columns.get(names[of])
        if flags is not None and flags[rows][:-1].any():
            raise EpisodeError(
                f"{name}: {names[of]!r} is true before its last row. Rows after the end of an "
                f"episode are another one's, with another {names['eps_id']!r}."
            )
        return flags is not None and bool(flags[rows][-1])

    def read() -> Mapping[str, Array]:
        before, after = part("obs", "observations"), part("new_obs", "observations")
        terminated, truncated = is_set("terminateds"), is_set("truncateds")
        steps = {**part("actions", "actions"), **part("rewards", "rewards")}
        if after:
            before = {leaf: np.concatenate([before[leaf], after[leaf][-1:]]) for leaf in before}
        elif terminated:  # nobody asks what the last observation is worth
            before = {leaf: np.concatenate([rows, rows[-1:]]) for leaf, rows in before.items()}
        else:  # the last one that is known follows the last step but one
            steps = {leaf: rows[:-1] for leaf, rows in steps.items()}
        return {
            **before,
            **steps,
            "terminated": np.array(terminated),
            "truncated": np.array(truncated),
        }

    return RecordedEpisode(name, read, holds_env_actions=True)


# ---- Minari


def _of_minari(name: str) -> list[RecordedEpisode]:
    minari = optional_module("minari", user=f"{MINARI}{name}", extra="minari")
    try:
        data = minari.load_dataset(name)
        indices = [int(index) for index in data.episode_indices]
    except Exception as cause:
        raise _unreadable(f"The Minari data set {name!r}", cause) from cause

    def reader(index: int) -> Callable[[], Mapping[str, Array]]:
        def read() -> Mapping[str, Array]:
            try:
                (episode,) = data.iterate_episodes([index])
            except Exception as cause:
                raise _unreadable(f"{name}, episode {index}", cause) from cause
            return {
                **dict(_walk("observations", episode.observations)),
                **dict(_walk("actions", episode.actions)),
                "rewards": np.asarray(episode.rewards),
                "terminated": np.array(bool(episode.terminations[-1])),
                "truncated": np.array(bool(episode.truncations[-1])),
            }

        return read

    return [
        RecordedEpisode(f"{MINARI}{name}, episode {index}", reader(index), holds_env_actions=True)
        for index in indices
    ]


def _walk(name: str, batch: Any) -> Iterator[tuple[str, Array]]:
    if isinstance(batch, Mapping):
        for key, part in batch.items():
            yield from _walk(f"{name}/{key}", part)
    elif isinstance(batch, tuple):
        for index, part in enumerate(batch):
            yield from _walk(f"{name}/{index}", part)
    else:
        yield name, np.asarray(batch)

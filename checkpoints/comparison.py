"""What differs between two checkpoints: by component, by place, and for arrays by how much."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from checkpoints.array_format import Array, blocks, memory_order
from checkpoints.code import SAVED_AT
from checkpoints.codec import encode
from checkpoints.listing import PathLike
from checkpoints.manifest import CODE_FILE, FileEntry
from checkpoints.reader import read_checkpoint, verify
from trainer_toolkit.checks import plain_scalar

_NUMBERS: Final = "biuf"
_MAX_TEXT: Final = 60
_MAX_PRINTED_BITS: Final = 1024


@dataclass(frozen=True)
class Difference:
    """One place at which two states differ.

    Attributes:
        path: keys and positions that lead there, joined with slashes; "" for the whole.
        text: what is there in the first and in the second.
        max_abs: largest absolute difference, for numbers and arrays of numbers of one shape; NaN if
            one of them is NaN where the other is not. None for everything else.
    """

    path: str
    text: str
    max_abs: float | None = None


@dataclass(frozen=True)
class ComponentDifference:
    """How one component differs.

    Attributes:
        status: whether both checkpoints have it, and it is the same in both.
        num_bytes: sizes in the first and in the second, files of arrays included; None where it is
            missing.
        differences: all places, in the order of the first state; empty unless it "differs".
    """

    status: Literal["equal", "differs", "only in the first", "only in the second"]
    num_bytes: tuple[int | None, int | None]
    differences: tuple[Difference, ...] = ()


@dataclass(frozen=True)
class CheckpointDifference:
    """How two checkpoints differ.

    Attributes:
        components: by path, those of the first and then those that only the second has; the file
            with pickled code, if there is one, is the last and called "code.pkl".
        metadata: what the manifests say differently of the objects (times included); it does not
            make checkpoints unequal.
    """

    components: Mapping[str, ComponentDifference]
    metadata: tuple[Difference, ...]

    @property
    def is_equal(self) -> bool:
        """Whether both hold the same bytes in the same components, whatever their code.

        Equal code is pickled to other bytes from process to process.
        """
        states = [part for name, part in self.components.items() if name != CODE_FILE]
        return all(part.status == "equal" for part in states)


def diff_checkpoints(first: PathLike, second: PathLike) -> CheckpointDifference:
    """Return how two checkpoints differ; every file of both is compared with its hash first.

    States are compared as they were written, by type and by bit: 1 differs from 1.0 and NaN is
    equal to itself. Code is compared by its hash and never loaded.

    Raises:
        CheckpointNotFoundError: if one of them is not there.
        CheckpointCorruptError: if a file of one of them was altered.
    """
    manifests = verify(first), verify(second)
    files = [dict(manifest.components) for manifest in manifests]
    found: dict[str, ComponentDifference] = {}
    for name in {**files[0], **files[1]}:

        def compare(name: str = name) -> tuple[Difference, ...]:
            one, other = (
                read_checkpoint(path, name, mapped=True).components[name]
                for path in (first, second)
            )
            return tuple(differences(one, other))

        found[name] = _compared(files[0].get(name), files[1].get(name), compare)
    codes = [manifest.code for manifest in manifests]
    if any(codes):
        found[CODE_FILE] = _compared(codes[0], codes[1], lambda: ())
    contents = [
        {key: value for key, value in manifest.metadata.items() if key != SAVED_AT}
        for manifest in manifests  # the place is no part of what was saved
    ]
    metadata = differences(contents[0], contents[1])
    return CheckpointDifference(found, tuple(metadata))


def _compared(
    first: FileEntry | None, second: FileEntry | None, compare: Callable[[], tuple[Difference, ...]]
) -> ComponentDifference:
    sizes = (first.total_bytes if first else None, second.total_bytes if second else None)
    if first is None:
        return ComponentDifference("only in the second", sizes)
    if second is None:
        return ComponentDifference("only in the first", sizes)
    if first.digests != second.digests:
        return ComponentDifference("differs", sizes, compare())
    if first.state_version != second.state_version:
        text = f"state version {first.state_version} -> {second.state_version}"
        return ComponentDifference("differs", sizes, (Difference("", text),))
    return ComponentDifference("equal", sizes)


def differences(first: Any, second: Any, path: str = "") -> Iterator[Difference]:
    """Yield every place at which two plain-data values differ, in the order of the first.

    Of lists of different lengths, the part that both have is compared, too.
    """
    if type(first) is not type(second):
        kinds = f"{type(first).__name__} {shown(first)} -> {type(second).__name__} {shown(second)}"
        yield Difference(path, kinds)
    elif isinstance(first, dict):
        yield from _dict_differences(first, second, path)
    elif isinstance(first, list | tuple):
        if len(first) != len(second):
            yield Difference(path, f"{len(first)} items -> {len(second)} items")
        for index, (one, other) in enumerate(zip(first, second, strict=False)):
            yield from differences(one, other, _below(path, index))
    elif isinstance(first, np.ndarray):
        yield from _array_differences(first, second, path)
    elif encode(first) != encode(second):
        is_number = isinstance(first, int | float | np.number) and not isinstance(first, bool)
        distance = _distance(np.asarray(first), np.asarray(second)) if is_number else None
        yield Difference(path, f"{shown(first)} -> {shown(second)}", distance)


def _dict_differences(
    first: dict[Any, Any], second: dict[Any, Any], path: str
) -> Iterator[Difference]:
    for key, value in first.items():
        if key in second:
            yield from differences(value, second[key], _below(path, key))
        else:
            yield Difference(_below(path, key), f"{shown(value)} -> (missing)")
    for key, value in second.items():
        if key not in first:
            yield Difference(_below(path, key), f"(missing) -> {shown(value)}")
    if first.keys() == second.keys() and list(first) != list(second):
        yield Difference(path, "the same keys in another order")


def _array_differences(first: Array, second: Array, path: str) -> Iterator[Difference]:
    if first.dtype != second.dtype or first.shape != second.shape:
        yield Difference(path, f"{shown(first)} -> {shown(second)}")
    else:
        num_unequal = 0
        distances: list[float | None] = []
        for one, other in zip(blocks(first), blocks(second), strict=True):  # they may be huge
            unequal = _num_unequal(one, other)
            num_unequal += unequal
            if unequal and first.dtype.kind in _NUMBERS:
                distances.append(_distance(one, other))
        if num_unequal:
            text = f"{num_unequal} of {first.size} numbers"
            yield Difference(path, text, _largest(distances))
        elif memory_order(first) != memory_order(second):
            yield Difference(path, "the same numbers in another memory order")


def _num_unequal(first: Array, second: Array) -> int:
    """Return how many items differ in a bit."""
    if first.nbytes == 0:
        return 0
    bits = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (first, second)]
    return int((bits[0] != bits[1]).reshape(first.size, -1).any(axis=1).sum())


def _largest(distances: list[float | None]) -> float | None:
    """Return the largest of all; NaN if one is NaN, None if one cannot be said."""
    known = [distance for distance in distances if distance is not None]
    return float(np.max(known)) if known and len(known) == len(distances) else None


def _distance(first: Array, second: Array) -> float | None:
    try:
        one, other = first.astype(np.float64), second.astype(np.float64)
    except (OverflowError, TypeError):  # whole numbers beyond floats
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        gaps = np.where(one == other, 0.0, np.abs(one - other))
    gaps[np.isnan(one) & np.isnan(other)] = 0.0
    return float(gaps.max())


def shown(value: Any) -> str:
    """Return a short text for a value of a state."""
    if isinstance(value, np.ndarray):
        return f"array {value.dtype} {list(value.shape)}"
    if isinstance(value, dict | list | tuple | set | frozenset) and len(value) > 4:
        return f"{type(value).__name__} of {len(value)}"
    if isinstance(value, int) and value.bit_length() > _MAX_PRINTED_BITS:
        return f"int of {value.bit_length():,} bits"
    text = repr(plain_scalar(value))
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 3] + "..."


def _below(path: str, key: Any) -> str:
    return f"{path}/{key}" if path else str(key)

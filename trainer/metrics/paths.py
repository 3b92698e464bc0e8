"""Metric keys as paths, and nested dicts addressed by them. Pure functions."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from trainer.errors import MetricsError

Key = str | tuple[str | int, ...]
"""A metric's name: a slash path such as "car/speed", or a tuple of parts for nested dicts."""

Path = tuple[str | int, ...]
"""A key as a tuple of parts without slashes."""


def path_of(key: Any) -> Path:
    """The path that a key means: "a/b", ("a", "b") and ("a/b",) are the same.

    One meaning for all, because results are read and written by slash paths, in which the three
    could not be told apart.

    Raises:
        MetricsError: it is neither a string nor a tuple of strings and ints, or a part is empty.
    """
    parts = key if isinstance(key, tuple) else (key,)
    path: list[str | int] = []
    for part in parts:
        if isinstance(part, str):
            path += part.split("/")
        elif isinstance(part, int):
            path.append(part)
        else:
            path.append("")  # refused below
    if not path or "" in path:
        raise MetricsError(
            f"{key!r} is no key for a metric. A key is a string, or a tuple of strings for nested "
            "results; slashes separate parts, and no part is empty. Write for example 'speed', "
            "'car/speed' or ('car', 'speed')."
        )
    return tuple(path)


def text_of(path: Path) -> str:
    """The path as people write it: "env_runners/episode_return_mean"."""
    return "/".join(str(part) for part in path)


def put(tree: dict[Any, Any], path: Path, value: Any) -> None:
    """Sets a leaf of a nested dict and makes the dicts on the way."""
    for part in path[:-1]:
        tree = tree.setdefault(part, {})
    tree[path[-1]] = value


def leaves(tree: Mapping[Any, Any], prefix: Path = ()) -> Iterator[tuple[Path, Any]]:
    """All (path, leaf) of a nested dict, in its order; empty dicts have none."""
    for part, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, (*prefix, part))
        else:
            yield (*prefix, part), value


def sorting_key(item: tuple[Path, Any]) -> tuple[str, ...]:
    """Orders (path, anything) by path, ints and strings alike."""
    return tuple(str(part) for part in item[0])


def nearest(name: str, known: Iterable[str]) -> str:
    """A sentence naming the known name most like `name`, or an empty string."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" The nearest one is {found[0]!r}." if found else ""

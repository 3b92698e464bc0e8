"""Nested observations and actions as flat columns, and back.

A Dict or Tuple space becomes one column per part, named as Python would reach it: `obs['camera']`,
`obs[0]`. So no two parts ever share a name, whatever characters the keys have. A *template* is the
nesting without its arrays: None stands for an array.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from trainer.types import Array


def parts_of(name: str, tree: Any) -> Iterator[tuple[str, Array]]:
    """Column name and array of every part of a nested batch, in order."""
    if isinstance(tree, dict):
        for key, part in tree.items():
            yield from parts_of(f"{name}[{key!r}]", part)
    elif isinstance(tree, tuple):
        for index, part in enumerate(tree):
            yield from parts_of(f"{name}[{index}]", part)
    else:
        yield name, tree


def template_of(tree: Any) -> Any:
    """The nesting of a batch."""
    if isinstance(tree, dict):
        return {key: template_of(part) for key, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(template_of(part) for part in tree)
    return None


def gathered(name: str, template: Any, columns: Mapping[str, Array], rows: Array) -> Any:
    """Rows of the columns of `name`, nested as the template is; a copy.

    Args:
        name: of the whole, such as "obs".
        template: its nesting.
        columns: name → [N, …].
        rows: int64, of any shape S.

    Returns:
        Arrays [S…, …].
    """
    if template is None:
        return columns[name].take(rows, axis=0)
    if isinstance(template, dict):
        return {
            key: gathered(f"{name}[{key!r}]", part, columns, rows) for key, part in template.items()
        }
    return tuple(
        gathered(f"{name}[{index}]", part, columns, rows) for index, part in enumerate(template)
    )


def plain_template(template: Any) -> Any:
    """A template as MessagePack can hold it, which knows no tuples and no keys but strings."""
    if isinstance(template, dict):
        return {"dict": [[key, plain_template(part)] for key, part in template.items()]}
    if isinstance(template, tuple):
        return {"tuple": [plain_template(part) for part in template]}
    return None


def template_from(plain: Any) -> Any:
    """The template that `plain_template` described."""
    if plain is None:
        return None
    if "dict" in plain:
        return {key: template_from(part) for key, part in plain["dict"]}
    return tuple(template_from(part) for part in plain["tuple"])


def plain_array(values: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """An array of a saved state, which is nested lists if MessagePack has brought it back.

    Args:
        values: [N, …].
        dtype: of the result.
        shape: of one row.
    """
    return np.asarray(values, dtype).reshape(len(values), *shape)

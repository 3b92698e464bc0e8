"""Plain data as JSON and back, exactly, for files that are read here again.

    to_json({"hiddens": (64, 64)})       {"hiddens": {"$tuple": [64, 64]}}
    from_json(…)                         {"hiddens": (64, 64)}

What JSON has stands for itself: None, truth values, ints, finite floats, texts, lists, and dicts of
texts. Anything else is a dict with one key, a tag that begins with "$". Objects have tags of their
own, which the caller writes and reads; no name in a file is looked up here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from trainer_toolkit.checks import plain_scalar

_TUPLE: Final = "$tuple"
_RANGE: Final = "$range"
_FLOAT: Final = "$float"
_DICT: Final = "$dict"
_NOT_FINITE: Final = ("nan", "inf", "-inf")


class NotPlainError(ValueError):
    """A value is no plain data, or JSON is nothing that `to_json` gave."""


def _no_object(value: Any) -> dict[str, Any]:
    raise NotPlainError(f"a {type(value).__name__} is no plain data")


def _no_tag(tag: str, content: Any) -> Any:
    raise NotPlainError(f"there is no tag {tag!r} ({type(content).__name__})")


def to_json(value: Any, *, of_object: Callable[[Any], dict[str, Any]] = _no_object) -> Any:
    """What `json.dumps(…, allow_nan=False)` takes, and `from_json` turns back; shares nothing.

    Scalars of NumPy become Python's.

    Args:
        value: plain data.
        of_object: what an object becomes: {"$tag": JSON data}; raises a NotPlainError for others.

    Raises:
        NotPlainError: something in it is no plain data.
    """

    def convert(value: Any) -> Any:
        value = plain_scalar(value)
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else {_FLOAT: repr(value)}
        if kind is list:
            return [convert(entry) for entry in value]
        if kind is tuple:
            return {_TUPLE: [convert(entry) for entry in value]}
        if kind is range:
            return {_RANGE: [value.start, value.stop, value.step]}
        if kind is not dict:
            return of_object(value)
        if all(type(key) is str and not key.startswith("$") for key in value):
            return {key: convert(entry) for key, entry in value.items()}
        return {_DICT: [[convert(key), convert(entry)] for key, entry in value.items()]}

    return convert(value)


def from_json(tree: Any, *, of_tag: Callable[[str, Any], Any] = _no_tag) -> Any:
    """The value that `to_json` was given.

    Args:
        tree: what it gave, or what a file says.
        of_tag: the object of a tag and its JSON data; raises a NotPlainError for other tags.

    Raises:
        NotPlainError: it gives no such thing.
    """

    def convert(tree: Any) -> Any:
        if isinstance(tree, list):
            return [convert(entry) for entry in tree]
        if not isinstance(tree, dict):
            return tree
        tag = next(iter(tree), "")
        if len(tree) != 1 or not tag.startswith("$"):
            return {key: convert(entry) for key, entry in tree.items()}
        content = tree[tag]
        try:
            if tag == _TUPLE:
                return tuple(convert(entry) for entry in content)
            if tag == _RANGE:
                start, stop, step = content
                return range(start, stop, step)
            if tag == _FLOAT and content in _NOT_FINITE:
                return float(content)
            if tag == _DICT:
                return {convert(key): convert(entry) for key, entry in content}
        except (TypeError, ValueError) as error:
            raise NotPlainError(f"{tag!r} cannot hold {content!r:.80}: {error}") from error
        return of_tag(tag, content)

    return convert(tree)

"""Values on the command line."""

from __future__ import annotations

import argparse
import ast
import json
import math
from typing import Any


def setting(text: str) -> tuple[str, Any]:
    """Reads NAME=VALUE; the value is a JSON or Python literal, else a string.

    Raises:
        argparse.ArgumentTypeError: there is no `=`.
    """
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE, for example lr=3e-4")
    return name.strip(), _literal(value.strip())


def count(text: str) -> int:
    """Reads a whole number of at least 1.

    Raises:
        argparse.ArgumentTypeError: it is something else.
    """
    return _whole_number(text, at_least=1)


def count_or_zero(text: str) -> int:
    """Reads a whole number of at least 0.

    Raises:
        argparse.ArgumentTypeError: it is something else.
    """
    return _whole_number(text, at_least=0)


def number(text: str) -> float:
    """Reads a finite number.

    Raises:
        argparse.ArgumentTypeError: it is something else.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number")
    return value


def seconds(text: str) -> float:
    """Reads a number of seconds above 0.

    Raises:
        argparse.ArgumentTypeError: it is something else.
    """
    value = number(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def _whole_number(text: str, *, at_least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = at_least - 1
    if value < at_least:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {at_least}")
    return value


def _literal(text: str) -> Any:
    if text in {"inf", "-inf", "nan"}:
        return float(text)
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, SyntaxError):
            continue
    return text

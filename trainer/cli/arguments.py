"""Values on the command line."""

from __future__ import annotations

import argparse
import ast
import json
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


def _literal(text: str) -> Any:
    if text in {"inf", "-inf", "nan"}:
        return float(text)
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, SyntaxError):
            continue
    return text

"""Whether a checkpoint is of another network although its weights have the same shapes."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, Final

from trainer.modules.model_config import DefaultModelConfig

_OF_FIRST_WEIGHTS: Final = ("initializer", "initial_alpha")
_OF_FIRST_WEIGHTS_TOO: Final = ("_initializer", "_initializer_kwargs")


def plain_model_config(model_config: Any) -> Any:
    """A `model_config` as it comes back from JSON; None if it holds more than plain data."""
    if isinstance(model_config, DefaultModelConfig):
        model_config = asdict(model_config)
    try:
        return json.loads(json.dumps(model_config or {}))
    except (TypeError, ValueError):
        return None


def _is_of_first_weights(name: str) -> bool:
    return name in _OF_FIRST_WEIGHTS or name.endswith(_OF_FIRST_WEIGHTS_TOO)


def model_difference(saved: Any, own: Any) -> str:
    """Says in which settings two networks differ, and how; "" for none.

    Args:
        saved: what `plain_model_config` gave for the one; None if nobody knows.
        own: for the other.
    """
    if not isinstance(saved, dict) or not isinstance(own, dict):
        return ""
    defaults = plain_model_config(DefaultModelConfig())
    saved, own = {**defaults, **saved}, {**defaults, **own}
    parts = [
        f"{name}: the checkpoint has {saved.get(name)!r}, this algorithm {own.get(name)!r}"
        for name in sorted(saved.keys() | own.keys())
        if saved.get(name) != own.get(name) and not _is_of_first_weights(name)
    ]
    return f"model_config: {', '.join(parts)}" if parts else ""

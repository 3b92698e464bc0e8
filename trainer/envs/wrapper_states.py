"""What gymnasium's own wrappers remember from step to step: attributes, by the wrapper's name.

A wrapper that changes observations, actions or rewards by a function remembers nothing; the
function is taken to remember nothing either. Clocks (`RecordEpisodeStatistics`), checks that are
made once (`PassiveEnvChecker`) and pictures (`RecordVideo`) begin anew: no episode depends on them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final

_NOTHING: Final = (
    "AddRenderObservation AddWhiteNoise ClipAction ClipReward DiscretizeAction "
    "DiscretizeObservation DtypeObservation FilterObservation FlattenObservation "
    "GrayscaleObservation HumanRendering ObstructView OrderEnforcing PassiveEnvChecker RecordVideo "
    "RenderCollection RepeatAction RescaleAction RescaleObservation ReshapeObservation "
    "ResizeObservation TransformAction TransformObservation TransformReward"
)

_FREEZING: Final = ("_update_running_mean",)

_REMEMBERED: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        **dict.fromkeys(_NOTHING.split(), ()),
        "Autoreset": ("autoreset",),
        "DelayObservation": ("observation_queue",),
        "FrameStackObservation": ("obs_queue",),
        "MaxAndSkipObservation": ("_obs_buffer",),
        "NormalizeObservation": ("obs_rms.mean", "obs_rms.var", "obs_rms.count", *_FREEZING),
        "NormalizeReward": (
            "return_rms.mean",
            "return_rms.var",
            "return_rms.count",
            "discounted_reward",
            *_FREEZING,
        ),
        "RecordEpisodeStatistics": (
            "episode_count",
            "episode_returns",
            "episode_lengths",
            "return_queue",
            "length_queue",
        ),
        "StickyAction": ("last_action", "is_sticky_actions", "num_repeats", "repeats_taken"),
        "TimeAwareObservation": ("timesteps",),
        "TimeLimit": ("_elapsed_steps",),
    }
)

_CARRYING: Final = frozenset({"NormalizeObservation", "NormalizeReward", "RecordEpisodeStatistics"})
"""Those whose `reset` does not set anew what they remember."""


def is_carrying(layer: Any) -> bool:
    """Whether one of gymnasium's wrappers carries something from one episode to the next."""
    return is_of_gymnasium(layer) and type(layer).__name__ in _CARRYING


def is_of_gymnasium(layer: Any) -> bool:
    """Whether a layer is one of gymnasium's own wrappers."""
    return type(layer).__module__.startswith("gymnasium.wrappers.")


def remembered_by(layer: Any) -> tuple[str, ...] | None:
    """The attributes that one of gymnasium's wrappers remembers; None if it is none of those.

    Releases of gymnasium differ in a few: those are named that this one has.
    """
    if not is_of_gymnasium(layer):
        return None
    names = _REMEMBERED.get(type(layer).__name__)
    return None if names is None else tuple(name for name in names if _has(layer, name))


def _has(layer: Any, name: str) -> bool:
    try:
        attrgetter(name)(layer)
    except AttributeError:
        return False
    return True


def attributes_of(layer: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """The values of attributes, by name; a deque is told as the list of what is in it.

    Raises:
        AttributeError: there is no such attribute.
    """
    values = {name: attrgetter(name)(layer) for name in names}
    return {name: list(value) if type(value) is deque else value for name, value in values.items()}


def set_attributes(layer: Any, names: tuple[str, ...], values: Mapping[str, Any]) -> None:
    """Gives attributes the values that `attributes_of` told.

    Raises:
        AttributeError: there is no such attribute, or it cannot be set.
        ValueError: the values are of other attributes; nothing is set.
    """
    # Names lead anywhere in a layer, and whoever wrote a checkpoint may not be trusted so far.
    if set(values) != set(names):
        raise ValueError(f"they are {sorted(values)!r:.200}, expected {sorted(names)}")
    for name, value in values.items():
        owner_name, _, attribute = name.rpartition(".")
        owner = attrgetter(owner_name)(layer) if owner_name else layer
        present = getattr(owner, attribute)
        if type(present) is deque:  # in place: others may hold it, and it knows its length
            present.clear()
            present.extend(value)
        else:
            setattr(owner, attribute, value)

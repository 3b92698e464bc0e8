"""Algorithms of RLlib that are not here, and which of ours solves the same kind of task."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_POLICY_GRADIENT: Final = "PPO"
_CONTINUOUS: Final = "SAC"
_VALUES: Final = "DQN"

NOT_OFFERED_ALGORITHMS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "A2C": _POLICY_GRADIENT,
        "A3C": _POLICY_GRADIENT,
        "APPO": _POLICY_GRADIENT,
        "ARS": _POLICY_GRADIENT,
        "DDPPO": _POLICY_GRADIENT,
        "ES": _POLICY_GRADIENT,
        "IMPALA": _POLICY_GRADIENT,
        "TRPO": _POLICY_GRADIENT,
        "DDPG": _CONTINUOUS,
        "APEXDDPG": _CONTINUOUS,
        "TD3": _CONTINUOUS,
        "TQC": _CONTINUOUS,
        "APEX": _VALUES,
        "APEXDQN": _VALUES,
        "R2D2": _VALUES,
        "RAINBOW": _VALUES,
        "SIMPLEQ": _VALUES,
    }
)
"""By name in upper case, without dashes and underscores."""

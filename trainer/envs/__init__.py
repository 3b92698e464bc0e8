"""Environments: how they are named and made, what an env is told, several of them side by side."""

from trainer.envs.env_factory import (
    EnvContext,
    EnvFactory,
    make_env_factory,
    packed_registrations,
    register_env,
    take_over_registrations,
)
from trainer.envs.env_state import EnvState, StatefulEnv, silent_wrappers, why_no_env_state
from trainer.envs.vector_env import VectorEnv

__all__ = [
    "EnvContext",
    "EnvFactory",
    "EnvState",
    "StatefulEnv",
    "VectorEnv",
    "make_env_factory",
    "packed_registrations",
    "register_env",
    "silent_wrappers",
    "take_over_registrations",
    "why_no_env_state",
]

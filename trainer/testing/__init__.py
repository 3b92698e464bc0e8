"""Tools for tests, yours and ours: faults on purpose, leaks, small envs, checks of networks.

docs/testing-faults.md shows a fault test. No other room of the library imports this one.
"""

from __future__ import annotations

from trainer.testing.checks import check_env_state, check_module, gradient_check
from trainer.testing.envs import (
    ContinuousEnv,
    CorridorEnv,
    CountdownEnv,
    FailingEnv,
    RestlessEnv,
    TargetEnv,
    UnseededEnv,
)
from trainer.testing.faults import (
    Fault,
    FaultyCallback,
    FaultyEnv,
    HugeError,
    InjectedFaultError,
    Parcel,
    UnpicklableError,
    faulty_module,
    with_faults,
)
from trainer.testing.processes import Kill, RandomKiller, is_process_alive, no_leaks, wait_until

__all__ = [
    "ContinuousEnv",
    "CorridorEnv",
    "CountdownEnv",
    "FailingEnv",
    "Fault",
    "FaultyCallback",
    "FaultyEnv",
    "HugeError",
    "InjectedFaultError",
    "Kill",
    "Parcel",
    "RandomKiller",
    "RestlessEnv",
    "TargetEnv",
    "UnpicklableError",
    "UnseededEnv",
    "check_env_state",
    "check_module",
    "faulty_module",
    "gradient_check",
    "is_process_alive",
    "no_leaks",
    "wait_until",
    "with_faults",
]

"""Tools for tests, yours and ours: faults on purpose, leaks, small envs, checks of networks.

docs/testing-faults.md shows a fault test. No other room of the library imports this one.
"""

from __future__ import annotations

from trainer.testing.debug_envs import (
    ContinuousEnv,
    CorridorEnv,
    CountdownEnv,
    FailingEnv,
    TargetEnv,
    UnseededEnv,
)
from trainer.testing.env_states import check_env_state
from trainer.testing.faults import Fault, HugeError, InjectedFaultError, UnpicklableError
from trainer.testing.faulty_callback import FaultyCallback
from trainer.testing.faulty_envs import FaultyEnv, with_faults
from trainer.testing.faulty_module import faulty_module
from trainer.testing.gradients import gradient_check
from trainer.testing.killer import Kill, RandomKiller
from trainer.testing.leaks import no_leaks
from trainer.testing.modules import check_module
from trainer.testing.multi_agent_envs import AgentScript, ScriptedMultiAgentEnv, ScriptedStep
from trainer.testing.parcels import Parcel
from trainer.testing.state_envs import RestlessEnv
from trainer.testing.waiting import is_process_alive, wait_until

__all__ = [
    "AgentScript",
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
    "ScriptedMultiAgentEnv",
    "ScriptedStep",
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

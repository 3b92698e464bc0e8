"""Tools for tests, yours and ours: faults on purpose, an engine by script, leaks, envs, checks.

docs/fault-tolerance.md shows a fault test. No other room of the library imports this one.
"""

from __future__ import annotations

from trainer.testing.checks import check_env_state, check_module, gradient_check
from trainer.testing.envs import (
    ContinuousEnv,
    CorridorEnv,
    CountdownEnv,
    FailingEnv,
    RepeatPreviousEnv,
    RestlessEnv,
    StatelessCartPole,
    TargetEnv,
    UnseededEnv,
)
from trainer.testing.fake_engine import FakeEngine, ScriptedFault
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
from trainer.testing.multi_agent_envs import (
    AgentScript,
    MultiAgentCartPole,
    MultiAgentPendulum,
    RepeatAfterMe,
    RockPaperScissors,
    ScriptedMultiAgentEnv,
    ScriptedStep,
    TwoStepGame,
)
from trainer.testing.multi_agent_replay import ReplayReport, check_replay
from trainer.testing.processes import Kill, RandomKiller, is_process_alive, no_leaks, wait_until

__all__ = [
    "AgentScript",
    "ContinuousEnv",
    "CorridorEnv",
    "CountdownEnv",
    "FailingEnv",
    "FakeEngine",
    "Fault",
    "FaultyCallback",
    "FaultyEnv",
    "HugeError",
    "InjectedFaultError",
    "Kill",
    "MultiAgentCartPole",
    "MultiAgentPendulum",
    "Parcel",
    "RandomKiller",
    "RepeatAfterMe",
    "RepeatPreviousEnv",
    "ReplayReport",
    "RestlessEnv",
    "RockPaperScissors",
    "ScriptedFault",
    "ScriptedMultiAgentEnv",
    "ScriptedStep",
    "StatelessCartPole",
    "TargetEnv",
    "TwoStepGame",
    "UnpicklableError",
    "UnseededEnv",
    "check_env_state",
    "check_module",
    "check_replay",
    "faulty_module",
    "gradient_check",
    "is_process_alive",
    "no_leaks",
    "wait_until",
    "with_faults",
]

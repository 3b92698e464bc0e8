"""Acting: runners that step envs, and the group that asks them and keeps them alive.

Never imports learning.
"""

from trainer.env_runners.env_runner import EnvRunner, get_global_worker
from trainer.env_runners.messages import (
    Assignment,
    EnvRunnerSpec,
    TrajectoryPostprocessing,
    Weights,
)
from trainer.env_runners.rollout_worker import RolloutWorker
from trainer.env_runners.single_agent_env_runner import SingleAgentEnvRunner
from trainer.runner_group.group import EnvRunnerGroup
from trainer.runner_group.plays import GroupSample, TicketPlay

__all__ = [
    "Assignment",
    "EnvRunner",
    "EnvRunnerGroup",
    "EnvRunnerSpec",
    "GroupSample",
    "RolloutWorker",
    "SingleAgentEnvRunner",
    "TicketPlay",
    "TrajectoryPostprocessing",
    "Weights",
    "get_global_worker",
]

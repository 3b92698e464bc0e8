"""Acting: runners that step envs, and the group that asks them and keeps them alive.

Never imports learning.
"""

from trainer.env_runners.env_runner import EnvRunner
from trainer.env_runners.env_runner_group import EnvRunnerGroup
from trainer.env_runners.global_worker import get_global_worker
from trainer.env_runners.group_sample import GroupSample
from trainer.env_runners.rollout_worker import RolloutWorker
from trainer.env_runners.single_agent_env_runner import SingleAgentEnvRunner
from trainer.env_runners.spec import (
    Assignment,
    EnvRunnerSpec,
    Weights,
)
from trainer.env_runners.ticket_play import TicketPlay
from trainer.env_runners.trajectory_postprocessing import TrajectoryPostprocessing

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

"""The asking side of env runners, in the main process: group, rounds, records of runners."""

from trainer.runner_group.group import EnvRunnerGroup
from trainer.runner_group.plays import GroupSample, TicketPlay

__all__ = ["EnvRunnerGroup", "GroupSample", "TicketPlay"]

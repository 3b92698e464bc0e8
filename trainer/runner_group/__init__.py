"""The asking side of env runners, in the main process: group, runners, records of them."""

from trainer.runner_group.group import EnvRunnerGroup
from trainer.runner_group.plays import TicketPlay
from trainer.runner_group.sampling import GroupSample

__all__ = ["EnvRunnerGroup", "GroupSample", "TicketPlay"]

"""The modules of a run, as one value that every process is told.

A change of it is a new value: runners get it with their next request, and a runner that is made
anew is made from it. There is no second way to add a module to a runner.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainer.modules.actor_critic import RLModuleSpec
from trainer.modules.by_module import ByModule


@dataclass(frozen=True)
class ModuleTable:
    """Which modules there are, and which of them acts for which agent.

    Attributes:
        specs: make the networks; spaces that are None are those of the agents.
        mapping: `policy_mapping_fn` as it was given; None gives all agents to the only module.
        version: how often the table was changed in this run.
    """

    specs: ByModule[RLModuleSpec]
    mapping: Any = None
    version: int = 0

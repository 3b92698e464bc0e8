"""The modules of a run and their agents, as one value that every process is told.

A change of it is a new value: runners get it with their next request (`Sync`), and a runner that is
made anew is made from it. There is no second way to add a module to a runner.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from trainer.agent_ids import canonical_order, listed
from trainer.env_runners.policy_mapping import PolicyMapping
from trainer.envs.multi_agent_env import EnvAgents
from trainer.errors import ConfigError
from trainer.modules import ByModule, RLModuleSpec
from trainer.seeding import Role
from trainer.types import AgentId, ModuleId


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

    def policy_mapping(self, agents: EnvAgents, *, root_seed: int, role: Role) -> PolicyMapping:
        """What is asked which module acts for an agent.

        Args:
            agents: of the env.
            root_seed: of the run.
            role: TRAINING or EVALUATION.

        Raises:
            ConfigError: the mapping names no module of the table, or is no function of the episode.
        """
        return PolicyMapping(
            self.mapping, self.specs.ids, agents=agents.ids, root_seed=root_seed, role=role
        )

    def completed_specs(
        self, mapping: PolicyMapping, agents: EnvAgents, *, env_name: str
    ) -> ByModule[RLModuleSpec]:
        """The specs with the spaces of the agents that each module acts for.

        Args:
            mapping: of this table.
            agents: of the env.
            env_name: what messages call the env.

        Raises:
            ConfigError: agents of one module have different spaces, the module has others than
                they, or a module without agents does not say which it needs.
        """
        if len(self.specs) == 1 and self.mapping is None:
            agents.check_shared(name=env_name)
        served = mapping.served_by()
        return ByModule(
            {
                id_: _completed_spec(id_, spec, served[id_], agents)
                for id_, spec in self.specs.items()
            }
        )


def _completed_spec(
    module_id: ModuleId, spec: RLModuleSpec, served: Collection[AgentId], agents: EnvAgents
) -> RLModuleSpec:
    serves = canonical_order(served or agents.ids)
    completed = spec
    for kind in ("observation_space", "action_space"):
        by_agent = getattr(agents, f"{kind}s")
        first, *others = (by_agent[agent] for agent in serves)
        differing = [a for a, space in zip(serves[1:], others, strict=True) if space != first]
        given = getattr(spec, kind)
        if differing and (served or given is None):
            raise ConfigError(
                f"Module {module_id!r} is to serve agents with different {kind}s: "
                f"{serves[0]!r} has {first}, {listed(differing)} {by_agent[differing[0]]}. "
                "Give agents of one module equal spaces, or map them to modules of their own; "
                "for a module that no agent is mapped to at first, give "
                "PolicySpec(observation_space, action_space)."
            )
        if served and given is not None and given != first:
            raise ConfigError(
                f"Module {module_id!r} has {kind}={given}, and agent {serves[0]!r}, which it "
                f"serves, {first}. Leave the space out, or correct one of them."
            )
        completed = replace(completed, **{kind: first if given is None else given})
    return completed

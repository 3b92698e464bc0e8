"""Modules and the agents that they act for: what a table of modules means in an env."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from trainer.agent_ids import canonical_order, listed
from trainer.env_runners.policy_mapping import PolicyMapping
from trainer.envs.multi_agent_env import EnvAgents
from trainer.errors import ConfigError
from trainer.modules import ByModule, ModuleTable, RLModuleSpec
from trainer.seeding import Role
from trainer.types import AgentId, ModuleId


def policy_mapping(
    table: ModuleTable, agents: EnvAgents, *, root_seed: int, role: Role
) -> PolicyMapping:
    """What is asked which module of a table acts for an agent.

    Raises:
        ConfigError: the mapping names no module of the table, or is no function of the episode.
    """
    return PolicyMapping(
        table.mapping, table.specs.ids, agents=agents.ids, root_seed=root_seed, role=role
    )


def completed_specs(
    table: ModuleTable, mapping: PolicyMapping, agents: EnvAgents, *, env_name: str
) -> ByModule[RLModuleSpec]:
    """The specs of a table with the spaces of the agents that each module acts for.

    Raises:
        ConfigError: agents of one module have different spaces, the module has others than they,
            or a module without agents does not say which it needs.
    """
    if len(table.specs) == 1 and table.mapping is None:
        agents.check_shared(name=env_name)
    served = mapping.served_by()
    return ByModule(
        {id_: _completed_spec(id_, spec, served[id_], agents) for id_, spec in table.specs.items()}
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
        if given is None:  # else it stays the same object
            completed = replace(completed, **{kind: first})
    return completed

"""The env runner for envs of several agents: its modules, which agents they serve, its answers.

It lives as a runner for one agent does (`EnvRunner`), and plays with another player. The
bootstrap of a runner makes one or the other, once, as the env asks for it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium

from trainer.connectors import ConnectedLayer, ConnectorFactories
from trainer.env_runners.env_runner import EnvRunner
from trainer.env_runners.mapped_modules import completed_specs, policy_mapping
from trainer.env_runners.messages import EnvRunnerSpec
from trainer.env_runners.multi_agent_player import MultiAgentPlayer
from trainer.env_runners.policy_mapping import PolicyMapping
from trainer.env_runners.sub_env_repair import MadeEnv, make_vector_env
from trainer.envs.env_factory import MultiAgentVectorEnv
from trainer.envs.multi_agent_checks import check_agents_finite
from trainer.envs.multi_agent_env import EnvAgents
from trainer.modules import (
    ByModule,
    ModuleTable,
    MultiRLModule,
    RLModule,
    RLModuleSpec,
    module_position,
)
from trainer.modules.module_table import are_same_specs
from trainer.seeding import weights_rng
from trainer.types import ModuleId
from trainer_toolkit.interrupts import signals_deferred


class MultiAgentEnvRunner(EnvRunner):
    """Steps its sub-envs side by side and hands out episodes of several agents.

    Attributes:
        agents: the agents of the env, and their spaces.
        mapping: says which module acts for which agent.
        modules: the networks by id.
        module: the only network, or a `MultiRLModule`.
    """

    agents: EnvAgents
    mapping: PolicyMapping
    module: Any
    _player: MultiAgentPlayer

    def __init__(
        self, spec: EnvRunnerSpec | None = None, *, first_env: MadeEnv | None = None, **rest: Any
    ) -> None:
        """Makes envs and modules and brings them to the given position.

        Arguments as of `EnvRunner`; `first_env` is the first sub-env, if it was made already.

        Raises:
            ConfigError: the config is wrong, or asks for what is not offered with several agents.
            EnvCreationError, EnvContractError: an env could not be made or breaks the contract.
        """
        self._first_env = first_env
        self._specs: ByModule[RLModuleSpec]
        super().__init__(spec, **rest)

    def _make_parts(self, *, is_recreated: bool) -> None:
        spec, name = self.spec, self.spec.env_factory.name
        first, self._first_env = self._first_env, None
        self.env = make_vector_env(
            self,
            MultiAgentVectorEnv,
            is_recreated=is_recreated,
            check_first=EnvAgents.of,
            first=first,
        )
        self.agents = EnvAgents.of(self.env.envs[0], name=name)
        for index, env in enumerate(self.env.envs[1:], start=1):
            others = EnvAgents.of(env, name=name)
            self.agents.check_same(
                others, first=f"Sub-env 0 of env {name!r}", second=f"sub-env {index}"
            )
        self._make_modules(spec.table, known={})
        for id_ in self.modules:
            if id_ not in self._unannounced:
                self._announce_module(id_)
        self._player = MultiAgentPlayer(self, mapping=self.mapping, signals=self._signals)

    def connected(
        self, env: gymnasium.Env[Any, Any], connectors: ConnectorFactories
    ) -> ConnectedLayer:
        """See `EnvRunner`: each agent has pieces of its own."""
        agents = EnvAgents.of(env, name=self.spec.env_factory.name)
        spaces = {
            agent: (agents.observation_spaces[agent], agents.action_spaces[agent])
            for agent in agents.ids
        }
        return connectors.connected_agents(env, spaces)

    def _make_modules(self, table: ModuleTable, *, known: Mapping[ModuleId, RLModule]) -> None:
        """Makes a table's modules, but those that are known, and what says whom they act for."""
        spec, before = self.spec, self._specs if known else {}
        mapping = policy_mapping(table, self.agents, root_seed=spec.root_seed, role=spec.role)
        completed = completed_specs(table, mapping, self.agents, env_name=spec.env_factory.name)
        added = spec.postprocessing
        inference_only = added is None or not added.needs_whole_module
        specs = completed.map(lambda one: replace(one, inference_only=inference_only))
        modules = {
            id_: known[id_]
            if id_ in known and are_same_specs(one, before[id_])
            else one.build(weights_rng(spec.root_seed, of=module_position(id_)))
            for id_, one in specs.items()
        }
        is_one = len(modules) == 1
        with signals_deferred():  # no module is to stand beside a spec that did not make it
            self.mapping, self._specs, self.modules = mapping, specs, ByModule(modules)
            self.module = self.modules.only if is_one else MultiRLModule(modules, is_of_run=True)

    def _take_table(self, table: ModuleTable, new_modules: Collection[ModuleId]) -> None:
        self.spec = replace(self.spec, table=table)
        known = {id_: one for id_, one in self.modules.items() if id_ not in new_modules}
        self._make_modules(table, known=known)
        self._player.take_modules(self.mapping)

    @property
    def module_specs(self) -> ByModule[RLModuleSpec]:
        """What its modules were made from, with the spaces of its envs filled in."""
        return self._specs

    def explain(self, error: Exception, episodes: Sequence[Any]) -> None:
        """Nothing: what an env of several agents answers is checked at every step."""

    def _check_finite(self, episodes: list[Any]) -> None:
        check_agents_finite(episodes, name=self.spec.env_factory.name)

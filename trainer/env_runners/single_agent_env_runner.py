"""The env runner for envs of one agent."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import gymnasium

from trainer.connectors import ConnectedLayer, ConnectorFactories
from trainer.env_runners.env_runner import EnvRunner
from trainer.env_runners.single_agent_player import SingleAgentPlayer
from trainer.env_runners.sub_env_repair import make_native_vector_env, make_vector_env
from trainer.env_runners.vector_player import VectorPlayer
from trainer.envs.env_checks import check_action_space, check_finite, check_spaces, explain_failure
from trainer.envs.env_factory import VectorEnv
from trainer.errors import ConfigError
from trainer.modules import ByModule, ModuleTable, RLModuleSpec, module_position
from trainer.seeding import weights_rng
from trainer.types import ModuleId


class SingleAgentEnvRunner(EnvRunner):
    """Steps its sub-envs of one agent each side by side; see `EnvRunner`.

    Attributes:
        module_id: the id of its module.
        module_spec: what that was made from, with the spaces of its envs filled in.
    """

    _player: SingleAgentPlayer

    def _make_parts(self, *, is_recreated: bool) -> None:
        self.env = self._make_env(is_recreated=is_recreated)
        specs = self.spec.module_specs
        if len(specs) > 1:
            raise ConfigError(
                f"There are the modules {', '.join(specs)}, and the env "
                f"{self.spec.env_factory.name!r} has a single agent. Give a MultiAgentEnv, or "
                "leave out multi_agent(policies=…)."
            )
        self.module_id = specs.only_id
        self.module_spec = self._complete_module_spec()
        rng = weights_rng(self.spec.root_seed, of=module_position(self.module_id))
        self.module = self.module_spec.build(rng)
        self.modules = ByModule({self.module_id: self.module})
        self._announce_module(self.module_id)
        player = VectorPlayer if self.spec.has_vector_env else SingleAgentPlayer
        self._player = player(self, signals=self._signals)

    def _make_env(self, *, is_recreated: bool) -> VectorEnv:
        if self.spec.has_vector_env:
            return make_native_vector_env(self, is_recreated=is_recreated)
        return make_vector_env(self, VectorEnv, is_recreated=is_recreated, check_first=check_spaces)

    @property
    def module_specs(self) -> ByModule[RLModuleSpec]:
        """What its module was made from, with the spaces of its envs filled in."""
        return ByModule({self.module_id: self.module_spec})

    def _complete_module_spec(self) -> RLModuleSpec:
        given, postprocessing = self.spec.module_specs.only, self.spec.postprocessing
        observation_space, action_space = given.observation_space, given.action_space
        if observation_space is None:
            observation_space = self.env.single_observation_space
        if action_space is None:
            action_space = self.env.single_action_space
        elif self.spec.checks_env:
            check_action_space(action_space, self.env, name=self.spec.env_factory.name)
        return replace(
            given,
            observation_space=observation_space,
            action_space=action_space,
            inference_only=postprocessing is None or not postprocessing.needs_whole_module,
        )

    def _take_table(self, table: ModuleTable, new_modules: Collection[ModuleId]) -> None:
        """Nothing: a single agent has one module, and keeps it."""

    def connected(
        self, env: gymnasium.Env[Any, Any], connectors: ConnectorFactories
    ) -> ConnectedLayer:
        return connectors.connected(env)

    def explain(self, error: Exception, episodes: Sequence[Any]) -> None:
        """See `EnvRunner`: an observation or a reward that is not finite, say."""
        explain_failure(episodes, error, name=self.spec.env_factory.name)

    def _check_finite(self, episodes: list[Any]) -> None:
        check_finite(episodes, name=self.spec.env_factory.name)

"""The env runner for envs of several agents: its modules, which agents they serve, its answers.

It lives as a runner for one agent does (`PlayingEnvRunner`), and plays with another player. The
bootstrap of a runner makes one or the other, once, as the env asks for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from checkpoints.arguments import checked_methods
from trainer.agent_ids import canonical_order, listed
from trainer.env_runners.messages import EnvRunnerSpec
from trainer.env_runners.multi_agent_player import MultiAgentPlayer
from trainer.env_runners.multi_agent_trajectories import fire_joint_sample_end
from trainer.env_runners.playing_env_runner import PlayingEnvRunner
from trainer.env_runners.policy_mapping import PolicyMapping
from trainer.env_runners.sub_env_repair import MadeEnv, make_vector_env
from trainer.envs.env_factory import MultiAgentVectorEnv
from trainer.envs.multi_agent_checks import check_agents_finite
from trainer.envs.multi_agent_env import EnvAgents
from trainer.errors import ConfigError
from trainer.modules import ByModule, MultiRLModule, RLModule, RLModuleSpec, module_position
from trainer.seeding import weights_rng
from trainer.types import AgentId, ModuleId


@checked_methods()
class MultiAgentEnvRunner(PlayingEnvRunner):
    """Steps its sub-envs side by side and hands out episodes of several agents.

    Attributes:
        agents: the agents of the env, and their spaces.
        modules: the networks by id.
        module: the only network, or a `MultiRLModule`.
    """

    module: Any
    _player: MultiAgentPlayer

    def __init__(
        self, spec: EnvRunnerSpec | None = None, *, first_env: MadeEnv | None = None, **rest: Any
    ) -> None:
        """Makes envs and modules and brings them to the given position.

        Args:
            spec: what to make; None makes what a config asks for.
            first_env: the first sub-env, if it was made already.
            rest: see `PlayingEnvRunner`.

        Raises:
            ConfigError: the config is wrong, or asks for what is not offered with several agents.
            EnvCreationError, EnvContractError: an env could not be made or breaks the contract.
        """
        self._first_env = first_env
        super().__init__(spec, **rest)

    def _make_parts(self, *, is_recreated: bool) -> None:
        spec, name = self.spec, self.spec.env_factory.name
        self._refuse_what_is_not_offered()
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
        mapping = PolicyMapping(
            spec.policy_mapping,
            spec.module_specs.ids,
            agents=self.agents.ids,
            root_seed=spec.root_seed,
            role=spec.role,
        )
        self._specs = self._completed(mapping)
        self.modules = self._make_modules()
        self._player = MultiAgentPlayer(self, mapping=mapping, signals=self._signals)

    def _refuse_what_is_not_offered(self) -> None:
        spec = self.spec
        problems = []
        if spec.connectors is not None:
            problems.append("connector pieces (change observations in a wrapper of the env)")
        if problems:
            raise ConfigError(
                f"The env {spec.env_factory.name!r} has several agents, for which this version "
                f"does not offer {' and '.join(problems)}."
            )

    def _completed(self, mapping: PolicyMapping) -> ByModule[RLModuleSpec]:
        """The specs with the spaces of the agents that each module serves.

        Raises:
            ConfigError: agents of one module have different spaces, or nobody knows which it needs.
        """
        if len(self.spec.module_specs) == 1 and self.spec.policy_mapping is None:
            self.agents.check_shared(name=self.spec.env_factory.name)
        served = mapping.served_by()
        return ByModule(
            {
                id_: self._completed_one(id_, spec, served[id_])
                for id_, spec in self.spec.module_specs.items()
            }
        )

    def _completed_one(
        self, module_id: ModuleId, spec: RLModuleSpec, served: set[Any]
    ) -> RLModuleSpec:
        serves = canonical_order(served or self.agents.ids)
        postprocessing = self.spec.postprocessing
        completed = replace(
            spec, inference_only=postprocessing is None or not postprocessing.needs_whole_module
        )
        for kind in ("observation_space", "action_space"):
            by_agent = getattr(self.agents, f"{kind}s")
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

    def _make_modules(self) -> ByModule[RLModule]:
        modules = {}
        for id_, spec in self._specs.items():
            rng = weights_rng(self.spec.root_seed, of=module_position(id_))
            modules[id_] = spec.build(rng)
            self.callbacks.fire("on_create_policy", policy_id=id_, policy=modules[id_])
        is_one = len(modules) == 1
        self.module = next(iter(modules.values())) if is_one else MultiRLModule(modules)
        return ByModule(modules)

    @property
    def agent_ids(self) -> tuple[AgentId, ...]:
        """All possible agents."""
        return self.agents.ids

    @property
    def module_specs(self) -> ByModule[RLModuleSpec]:
        """What its modules were made from, with the spaces of its envs filled in."""
        return self._specs

    def explain(self, error: Exception, episodes: Sequence[Any]) -> None:
        """Nothing: what an env of several agents answers is checked at every step."""

    def _check_finite(self, episodes: list[Any]) -> None:
        check_agents_finite(episodes, name=self.spec.env_factory.name)

    def _fire_sample_end(self, episodes: list[Any]) -> None:
        player = self._player
        fire_joint_sample_end(self, episodes, slots=player.slots, records=player.finished.records)

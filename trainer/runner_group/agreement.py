"""What the runners of a group have in common, as they report it: agents, and who acts for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from trainer.env_runners.mapped_modules import policy_mapping
from trainer.env_runners.messages import RunnerReport
from trainer.env_runners.policy_mapping import SAME_EVERYWHERE, PolicyMapping
from trainer.envs.multi_agent_env import EnvAgents
from trainer.errors import ConfigError, EnvContractError
from trainer.modules import ByModule, ModuleTable, RLModuleSpec
from trainer.runner_group.records import RunnerRecords


class Agreement:
    """What the runners of a group have in common; refuses runners that differ.

    Attributes:
        module_specs: what the runners' modules are made from; complete once they were made.
        agents: all possible agents of the envs, and their spaces; None for envs of one agent.
    """

    def __init__(self, records: RunnerRecords) -> None:
        self.module_specs: ByModule[RLModuleSpec] = records.spec.module_specs
        self.agents: EnvAgents | None = None
        self._records = records
        self._is_known = False  # who the agents are
        self._mapping: tuple[ModuleTable, PolicyMapping] | None = None

    def take(self, reports: Mapping[int, RunnerReport]) -> None:
        """Takes what runners report, by number.

        Raises:
            EnvContractError: their envs have not the same agents.
            ConfigError: `policy_mapping_fn` does not answer alike in all processes.
        """
        self._check_agents(reports)
        self.module_specs = reports[min(reports)].module_specs
        self._check_mappings(reports)

    def _check_agents(self, reports: Mapping[int, RunnerReport]) -> None:
        name, first = self._records.spec.env_factory.name, "the other env runners"
        if not self._is_known:
            first = f"env runner {min(reports)}"
            self.agents, self._is_known = reports[min(reports)].agents, True
        for index, report in sorted(reports.items()):
            ours, theirs = self.agents, report.agents
            if ours is None and theirs is None:
                continue
            if ours is None or theirs is None:
                several, one = (first, f"env runner {index}")[:: 1 if theirs is None else -1]
                raise EnvContractError(
                    f"Env {name!r} has several agents in {several}, and a single one in {one}. All "
                    "envs of a run have the same agents, in every process. Make the same env "
                    "whatever `worker_index` is."
                )
            ours.check_same(
                theirs, first=f"Env {name!r} in {first}", second=f"the one in env runner {index}"
            )

    def _check_mappings(self, reports: Mapping[int, RunnerReport]) -> None:
        mapping = self._mapping_here()
        if mapping is None:
            return
        for index, report in sorted(reports.items()):
            mapping.check_same(
                report.mapping_answers, where=f"env runner {index}", here="the main process"
            )

    def check_fingerprint(self, index: int, fingerprint: str) -> None:
        """Raises a ConfigError if a runner that played maps agents otherwise than this process."""
        mapping = self._mapping_here()
        if mapping is not None and mapping.fingerprint != fingerprint:
            raise ConfigError(
                f"policy_mapping_fn gives other answers in env runner {index} than in the main "
                f"process. {SAME_EVERYWHERE}"
            )

    def _mapping_here(self) -> PolicyMapping | None:
        """The mapping as the main process has it; None for one agent, or without processes."""
        if self.agents is None or not self._records.is_remote:
            return None
        spec, table = self._records.spec, self._records.table
        if self._mapping is None or self._mapping[0] is not table:
            made = policy_mapping(table, self.agents, root_seed=spec.root_seed, role=spec.role)
            self._mapping = table, made
        return self._mapping[1]

    def take_specs(self, specs: ByModule[RLModuleSpec]) -> None:
        """Notes which modules runners have from the next request on."""
        are_small = self.takes_inference_only
        self.module_specs = specs.map(lambda spec: replace(spec, inference_only=are_small))

    @property
    def takes_inference_only(self) -> bool:
        """Whether runners have only those parts of modules that acting needs."""
        return next(iter(self.module_specs.values())).inference_only

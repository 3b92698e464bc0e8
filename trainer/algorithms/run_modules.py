"""`RunModules`: which modules a run has at some moment, whom they act for, and which of them learn.

How one such value follows the other is in `module_changes.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from trainer.errors import ConfigError
from trainer.modules import ByModule, ModuleTable, RandomRLModule, RLModuleSpec
from trainer.types import ModuleId
from trainer_toolkit.nearest_names import IN_BRACKETS, did_you_mean


@dataclass(frozen=True)
class RunModules:
    """The modules of a run at some moment.

    Attributes:
        table: of training, with the spaces of all modules.
        evaluation_mapping: of evaluation; None if it has that of training.
        trained: what learns: ids, a function `f(module_id, batch)`, or None for all.
        settings: by module id: settings that are different for this module.
        updates_of_removed: how many updates the modules made that are gone. One that is added again
            under such an id goes on counting, so that no random numbers are drawn twice.
    """

    table: ModuleTable
    evaluation_mapping: Any = None
    trained: Any = None
    settings: Mapping[ModuleId, Mapping[str, Any]] = field(default_factory=dict)
    updates_of_removed: Mapping[ModuleId, int] = field(default_factory=dict)

    @property
    def ids(self) -> tuple[ModuleId, ...]:
        """The modules, in canonical order."""
        return self.table.specs.ids

    @property
    def mapping_in_evaluation(self) -> Any:
        """What says in evaluation which module acts for an agent."""
        return self.table.mapping if self.evaluation_mapping is None else self.evaluation_mapping

    def changed(self, specs: Mapping[ModuleId, RLModuleSpec] | None = None) -> RunModules:
        """The next version, with these modules; None for the same."""
        table = self.table
        given = table.specs if specs is None else ByModule(specs)
        return replace(self, table=replace(table, specs=given, version=table.version + 1))

    def mapped_by(self, mapping: Any) -> RunModules:
        """The same with another mapping in training; None keeps it."""
        return (
            self if mapping is None else replace(self, table=replace(self.table, mapping=mapping))
        )

    def with_trained(self, trained: Any) -> RunModules:
        """The same where other modules learn; None keeps those that do."""
        if trained is None or callable(trained):
            return self if trained is None else replace(self, trained=trained)
        ids = [trained] if isinstance(trained, str) else trained
        if not isinstance(ids, Collection) or not all(isinstance(id_, str) for id_ in ids):
            raise ConfigError(
                f"policies_to_train={trained!r:.200}: expected ids of modules, or a function "
                "f(module_id, batch) that says whether a module learns."
            )
        unknown = sorted({*ids} - {*self.ids})
        if unknown:
            raise ConfigError(
                f"policies_to_train={sorted(ids)!r}: there is no module "
                f"{', '.join(map(repr, unknown))}{did_you_mean(unknown[0], self.ids, IN_BRACKETS)}."
                " Name some "
                f"of {', '.join(map(repr, self.ids))}."
            )
        return replace(self, trained=tuple(sorted(ids)))

    def should_learn(self, module_id: ModuleId, batch: Any = None) -> bool:
        """Whether a module is to learn from a batch.

        Raises:
            ConfigError: a function of the user raised, or answered something else.
        """
        if issubclass(self.table.specs[module_id].module_class or object, RandomRLModule):
            return False
        if self.trained is None or not callable(self.trained):
            return self.trained is None or module_id in self.trained
        name = getattr(self.trained, "__qualname__", repr(self.trained))
        try:
            answer = self.trained(module_id, batch)
        except Exception as error:
            raise ConfigError(
                f"policies_to_train is the function {name}, which raised for module {module_id!r}: "
                f"{type(error).__name__}: {error}. It is called as f(module_id, batch) and returns "
                "whether the module learns."
            ) from error
        if not isinstance(answer, bool):
            raise ConfigError(
                f"policies_to_train is the function {name}, which returned {answer!r:.80} for "
                f"module {module_id!r}; expected True or False."
            )
        return answer

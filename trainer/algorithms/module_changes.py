"""Which modules a run has, and how that changes while it is trained.

There is one value, `RunModules`, in the main process. A change makes another one: it is judged as a
whole (ids, spaces, the mapping's answers), then the parts that belong to modules are made or
dropped, then the runners are told with their next request. Whatever fails on the way leaves
everything as it was. Within a training iteration it is a part of that: undone if the iteration is.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from callbacks import PackingError
from callbacks.packing import pack_object
from checkpoints import CheckpointMismatchError, check_shape, encode
from trainer.algorithms.run_modules import RunModules
from trainer.algorithms.sample_ahead import SampleAhead
from trainer.config import AlgorithmConfig
from trainer.config.algorithm_config import module_spec, own_acting
from trainer.env_runners.mapped_modules import completed_specs, policy_mapping
from trainer.envs.multi_agent_env import EnvAgents
from trainer.errors import (
    ConfigError,
    ModuleError,
    SerializationError,
    TrainerError,
    UnsupportedSpaceError,
)
from trainer.learners import Learner
from trainer.modules import (
    ActorCriticModule,
    ByModule,
    ModuleTable,
    OwnActing,
    RLModule,
    RLModuleSpec,
)
from trainer.modules.by_module import why_no_module_id
from trainer.modules.module_table import (
    MAPPING_RECORD,
    SPEC_RECORD,
    are_same_specs,
    digest_of_code,
    mapping_from_record,
    mapping_record,
    spec_from_record,
    spec_record,
)
from trainer.name_resolution import stranger
from trainer.runner_group import EnvRunnerGroup
from trainer.runtime.threads import single_threaded_blas
from trainer.seeding import Role
from trainer.types import ModuleId, State
from trainer_toolkit import checks
from trainer_toolkit.nearest_names import IN_BRACKETS, did_you_mean, nearest
from trainer_toolkit.undo import Undo, undone_on_error

_LOGGER: Final = logging.getLogger(__name__)

_SIMILARITY_OF_MISSPELT: Final = 0.75
"""How similar a new module's id and a forsaken one's are if one is taken for the other."""

MODULES: Final = "modules"
"""The component of a checkpoint that says which modules there are."""

_STATE: Final = checks.fields(
    {
        "version": checks.COUNT,
        "modules": checks.dict_of(
            checks.fields(
                {
                    "spec": checks.either(SPEC_RECORD, checks.NOTHING),
                    "settings": checks.dict_of(checks.anything()),
                },
            )
        ),
        "mapping": MAPPING_RECORD,
        "evaluation_mapping": MAPPING_RECORD,
        "trained": checks.either(checks.list_of(checks.TEXT), checks.TEXT, checks.NOTHING),
        "updates_of_removed": checks.dict_of(checks.COUNT),
    },
    optional={"fingerprints": checks.dict_of(checks.TEXT)},
)
_NO_MODULES: Final = (
    CheckpointMismatchError,
    ConfigError,
    ModuleError,
    SerializationError,
    UnsupportedSpaceError,
)
"""What is raised where a state describes no modules, or none that can act."""

_FUNCTION: Final = "a function"
_MAPPINGS: Final = ("mapping", "evaluation_mapping")


@dataclass(frozen=True)
class NewModule:
    """What a module that is added begins with: at most one of the first three says its network.

    Attributes:
        spec: of the network.
        copy_of: the id of the module that it is a copy of, as that is now.
        load_from: the path of a module that was saved.
        state: arrays by name, instead of first weights.
        settings: that are different for this module.
        copies_optimizer: with `copy_of`: take all over that its learner remembers.
    """

    spec: RLModuleSpec | None = None
    copy_of: ModuleId | None = None
    load_from: Any = None
    state: Mapping[str, Any] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    copies_optimizer: bool = False

    @property
    def loaded(self) -> RLModule | None:
        """The module that was saved; None if there is none."""
        return None if self.load_from is None else RLModule.from_checkpoint(self.load_from)


class _Algorithm(Protocol):
    """What changes of modules need of the algorithm."""

    @property
    def config(self) -> AlgorithmConfig: ...
    @property
    def root_seed(self) -> int: ...
    @property
    def learners(self) -> Mapping[ModuleId, Learner]: ...
    @property
    def normalizations(self) -> Mapping[ModuleId, Any]: ...
    @property
    def env_runner_group(self) -> EnvRunnerGroup: ...
    def refuse_module_changes(self, what: str) -> None: ...
    def parts_by_module(self) -> dict[str, Any]: ...
    def put_parts_back(self, parts: Mapping[str, Any]) -> None: ...
    def make_parts_by_module(self) -> None: ...
    def send_modules(self, table: ModuleTable) -> None: ...


_IF_TRUSTED: Final = (
    "Pass allow_code=True only if you trust the checkpoint like a program; or add the module "
    "before, with the class: add_module(…, config_overrides={'exploration_config': {'type': "
    "MyStrategy}})."
)


@dataclass(frozen=True)
class Adopted:
    """What follows when the modules of a state were made.

    Attributes:
        made: ids of the modules that were made for it, and have learnt nothing yet.
        to_come: the modules to go on with when all else was restored; None: just these.
        fingerprints: of the functions that the run had which the state is of.
    """

    made: frozenset[ModuleId] = frozenset()
    to_come: RunModules | None = None
    fingerprints: Mapping[str, str] = field(default_factory=dict)


class ModuleChanges:
    """Changes the modules of one algorithm, all or nothing.

    Attributes:
        now: the modules that there are.
        first: those that the config asked for.
    """

    def __init__(self, algorithm: _Algorithm, first: RunModules, *, ahead: SampleAhead) -> None:
        """Begins with the modules of the config."""
        self.first = self.now = first
        self._algorithm, self._ahead = algorithm, ahead
        self._recorded: tuple[RunModules, State] | None = None
        self._evaluated: tuple[RunModules, ModuleTable] | None = None

    # ---- what users ask for

    def add(self, module_id: ModuleId, new: NewModule, *, mapping: Any, trained: Any) -> None:
        """Adds a module; see `Algorithm.add_module`."""
        algorithm, now = self._algorithm, self.now
        algorithm.refuse_module_changes("add_module")
        self._refuse_id(module_id)
        settings = algorithm.config.checked_settings_of_module(module_id, new.settings)
        loaded = new.loaded
        spec = self._spec(module_id, new, loaded, settings)
        changed = now.changed({**now.table.specs, module_id: spec}).mapped_by(mapping)
        if settings:
            changed = replace(changed, settings={**now.settings, module_id: settings})
        changed = self._judged(changed.with_trained(trained))
        if spec_record(changed.table.specs[module_id]) is None:
            raise ConfigError(
                f"add_module({module_id!r}): its model_config or one of its spaces is no plain "
                "data, so no checkpoint could hold the module. Give plain settings, and spaces "
                "that gymnasium has."
            )
        self._take(changed, lambda: self._begin(module_id, new, loaded))

    def remove(self, module_id: ModuleId, *, mapping: Any, trained: Any) -> None:
        """Removes a module; see `Algorithm.remove_module`."""
        algorithm, now = self._algorithm, self.now
        algorithm.refuse_module_changes("remove_module")
        self._known(module_id, "remove_module")
        specs = {id_: spec for id_, spec in now.table.specs.items() if id_ != module_id}
        if not specs:
            raise ConfigError(
                f"remove_module({module_id!r}): it is the only module, and something has to act. "
                "Add another one first."
            )
        updates = {**now.updates_of_removed, module_id: algorithm.learners[module_id].num_updates}
        changed = replace(now.changed(specs).mapped_by(mapping), updates_of_removed=updates)
        kept = {id_: own for id_, own in now.settings.items() if id_ != module_id}
        changed = replace(changed, settings=kept)
        if isinstance(changed.trained, tuple):
            changed = replace(changed, trained=tuple(i for i in changed.trained if i != module_id))
        try:
            changed = self._judged(changed.with_trained(trained))
        except ConfigError as error:
            raise ConfigError(
                f"Module {module_id!r} was not removed: {error} Give remove_module() a mapping of "
                "agents that does without it: new_agent_to_module_mapping_fn=…"
            ) from error
        self._take(changed, lambda: None)

    def set_mapping(self, mapping: Any, *, for_evaluation: bool) -> None:
        """Gives agents other modules; see `Algorithm.set_policy_mapping_fn`."""
        self._algorithm.refuse_module_changes("set_policy_mapping_fn")
        changed = self.now.changed()
        if for_evaluation:
            changed = replace(changed, evaluation_mapping=mapping)
        else:
            changed = replace(changed, table=replace(changed.table, mapping=mapping))
        self._take(self._judged(changed), lambda: None)

    def set_trained(self, trained: Any) -> None:
        """Lets other modules learn; see `Algorithm.set_policies_to_train`."""
        self._algorithm.refuse_module_changes("set_policies_to_train")
        changed = replace(self.now.changed(), trained=None)
        self._take(changed.with_trained(trained), lambda: None)

    def take_given(self, settings: Mapping[str, Any], *, keep: Collection[ModuleId] | None) -> None:
        """What a caller of `from_checkpoint` says of modules wins over what the checkpoint says.

        Args:
            settings: those that were given, by name.
            keep: the modules to go on with; None keeps all.

        Raises:
            ConfigError: one of them is none of the checkpoint's, or agents are mapped to another.
        """
        mapping, trained = settings.get("policy_mapping_fn"), settings.get("policies_to_train")
        kept = self.now.ids if keep is None else [keep] if isinstance(keep, str) else [*keep]
        for module_id in kept:
            self._known(module_id, f"from_checkpoint(policy_ids={kept!r})")
        if self._algorithm.env_runner_group.agents is None:
            return  # one agent, one module
        if not kept:
            raise ConfigError(
                "from_checkpoint(policy_ids=[]) leaves no module, and something has to act. Name "
                f"some of {', '.join(map(repr, self.now.ids))}."
            )
        if mapping is not None:
            self.set_mapping(mapping, for_evaluation=False)
        for module_id in [id_ for id_ in self.now.ids if id_ not in kept]:
            self.remove(module_id, mapping=None, trained=None)
        if trained is not None:
            self.set_trained(trained)

    def _refuse_id(self, module_id: ModuleId) -> None:
        why = why_no_module_id(module_id)
        if why is not None:
            raise ConfigError(f"add_module(): {why}. Give a short text as id.")
        if module_id in self.now.ids:
            raise ConfigError(
                f"add_module({module_id!r}): there is a module of this id; there are "
                f"{', '.join(map(repr, self.now.ids))}. Give another id, or remove it first."
            )

    def _known(self, module_id: ModuleId, what: str) -> None:
        if module_id not in self.now.ids:
            raise ConfigError(
                f"{what}: there is no module {module_id!r}"
                f"{did_you_mean(module_id, self.now.ids, IN_BRACKETS)}. There are "
                f"{', '.join(map(repr, self.now.ids))}. Name one of these."
            )

    def _spec(
        self,
        module_id: ModuleId,
        new: NewModule,
        loaded: RLModule | None,
        settings: Mapping[str, Any],
    ) -> RLModuleSpec:
        given = {"module_spec": new.spec, "copy_of": new.copy_of, "load_from": new.load_from}
        said = [name for name, value in given.items() if value is not None]
        if len(said) > 1:
            raise ConfigError(
                f"add_module({module_id!r}) was given {' and '.join(said)}, which say its network "
                "more than once. Give one of them."
            )
        if said not in ([], ["module_spec"]) and "model_config" in new.settings:
            raise ConfigError(
                f"add_module({module_id!r}) was given {said[0]}, whose network the new module has, "
                f"and config_overrides['model_config']={new.settings['model_config']!r:.120}, "
                "which says another one. Leave one of them out."
            )
        if new.copy_of is not None:
            self._known(new.copy_of, f"add_module({module_id!r}, copy_of={new.copy_of!r})")
            return self.now.table.specs[new.copy_of]
        if loaded is not None:
            return replace(RLModuleSpec.from_module(loaded), inference_only=False)
        default = module_spec(self._algorithm.config.with_settings(settings), module_id, None)
        if new.spec is None:
            return default
        if new.spec.module_class is not None:
            key = new.spec.action_mask_key or default.action_mask_key
            return replace(new.spec, action_mask_key=key)
        return replace(
            default,
            observation_space=new.spec.observation_space,
            action_space=new.spec.action_space,
            model_config=new.spec.model_config or default.model_config,
        )

    def _begin(self, module_id: ModuleId, new: NewModule, loaded: RLModule | None) -> None:
        """Gives a module that was just made what it begins with."""
        algorithm = self._algorithm
        learner = algorithm.learners[module_id]
        if new.copy_of is not None:
            source = algorithm.learners[new.copy_of]
            if new.copies_optimizer:
                learner.set_state(source.get_state())
            else:
                learner.set_weights(source.get_weights())
            moments = algorithm.normalizations[new.copy_of].get_state()
            algorithm.normalizations[module_id].set_state({**moments, "running": {}})
        elif loaded is not None:
            learner.set_weights(loaded.get_state())
        if new.state is not None:
            learner.set_weights(dict(new.state))
        learner.num_updates = self.now.updates_of_removed.get(module_id, 0)

    # ---- judging

    def _agents(self) -> EnvAgents:
        agents = self._algorithm.env_runner_group.agents
        if agents is None:
            raise ConfigError(
                f"The env {self._algorithm.env_runner_group.env_name!r} has a single agent, which "
                "one module acts for. Modules can be changed with a MultiAgentEnv."
            )
        return agents

    def _judged(self, modules: RunModules) -> RunModules:
        """The same with the spaces of all modules.

        Raises:
            ConfigError: a mapping names other modules, or spaces do not fit.
            SerializationError: a mapping cannot be sent to the runners.
        """
        agents, group = self._agents(), self._algorithm.env_runner_group
        seed, name, table = self._algorithm.root_seed, group.env_name, modules.table
        mapping = policy_mapping(table, agents, root_seed=seed, role=Role.TRAINING)
        specs = completed_specs(table, mapping, agents, env_name=name)
        other = replace(table, specs=specs, mapping=modules.mapping_in_evaluation)
        mapping = policy_mapping(other, agents, root_seed=seed, role=Role.EVALUATION)
        completed_specs(other, mapping, agents, env_name=name)
        if group.num_remote_env_runners():
            for given in (modules.table.mapping, modules.evaluation_mapping):
                _check_travels(given)
        acting = self._acting(modules, self._algorithm.config)
        return replace(modules, table=replace(table, specs=specs, acting=acting))

    @staticmethod
    def _acting(modules: RunModules, config: AlgorithmConfig) -> dict[ModuleId, OwnActing]:
        return {
            id_: own_acting(config, modules.settings[id_])
            for id_ in modules.ids
            if id_ in modules.settings
        }

    def in_evaluation(self) -> ModuleTable | None:
        """The modules as evaluation runners take them; None for those of the config.

        Spaces of modules that act follow from the envs of evaluation, whose bounds may differ.
        """
        if self.now is self.first:
            return None
        if self._evaluated is None or self._evaluated[0] is not self.now:
            self._evaluated = (self.now, self._table_in_evaluation())
        return self._evaluated[1]  # the same object, which is sent once

    def _table_in_evaluation(self) -> ModuleTable:
        now = self.now
        table = replace(now.table, mapping=now.mapping_in_evaluation)
        mapping = policy_mapping(
            table, self._agents(), root_seed=self._algorithm.root_seed, role=Role.EVALUATION
        )
        acting = {id_ for id_, agents in mapping.served_by().items() if agents}
        specs = {
            id_: replace(spec, observation_space=None, action_space=None) if id_ in acting else spec
            for id_, spec in table.specs.items()
        }
        config = self._algorithm.config.get_evaluation_config_object()
        return replace(table, specs=ByModule(specs), acting=self._acting(now, config))

    # ---- carrying out

    def _take(
        self,
        changed: RunModules,
        begin: Callable[[], None],
        *,
        anew: Collection[ModuleId] = (),
    ) -> None:
        """Makes what the modules need, then tells the runners.

        Args:
            changed: the modules to come.
            begin: called when their parts are there.
            anew: those of them that others of the same ids make room for.
        """
        algorithm = self._algorithm
        with undone_on_error() as undo, single_threaded_blas():
            group = algorithm.env_runner_group
            group.finish_calls()
            undo(group.mark())
            undo(self.mark())
            undo(group.end_calls)
            self.now = changed
            parts = algorithm.parts_by_module() if anew else {}
            algorithm.put_parts_back(
                {
                    name: {id_: part for id_, part in by_id.items() if id_ not in anew}
                    for name, by_id in parts.items()
                }
            )
            algorithm.make_parts_by_module()
            begin()
            self._ahead.drop()
            algorithm.send_modules(changed.table)

    def mark(self) -> Undo:
        """What puts the modules back to those of now, with the parts that belong to them."""
        algorithm, now, policies = self._algorithm, self.now, self._ahead.policies
        parts = algorithm.parts_by_module()

        def undo() -> None:
            self.now, self._ahead.policies = now, policies
            algorithm.put_parts_back(parts)

        return undo

    # ---- state

    @property
    def has_state(self) -> bool:
        """Whether a checkpoint says which modules there are: not if there is, and was, just one."""
        return self.now.table.version > 0 or len(self.now.ids) > 1

    def get_state(self) -> State:
        """Which modules there are, and for whom they act: plain data."""
        if self._recorded is None or self._recorded[0] is not self.now:
            self._recorded = (self.now, self._record())
        return copy.deepcopy(self._recorded[1])

    def _record(self) -> State:
        now = self.now
        trained: Any = _FUNCTION if callable(now.trained) else now.trained
        return {
            "version": now.table.version,
            "modules": {
                id_: {"spec": spec_record(spec), "settings": self._added_settings(id_)}
                for id_, spec in now.table.specs.items()
            },
            "mapping": mapping_record(now.table.mapping),
            "evaluation_mapping": mapping_record(now.evaluation_mapping),
            "trained": list(trained) if isinstance(trained, tuple) else trained,
            "updates_of_removed": dict(now.updates_of_removed),
            **({"fingerprints": prints} if (prints := self._fingerprints()) else {}),
        }

    def _fingerprints(self) -> dict[str, str]:
        """Of functions, which no checkpoint holds: digests of answers about episodes, or of code.

        A mapping that needs observations cannot be asked beforehand, and has none.
        """
        now, agents = self.now, self._algorithm.env_runner_group.agents
        found = {}
        if agents is not None:
            seed, table = self._algorithm.root_seed, now.table
            for name, role, mapping in (
                ("policy_mapping_fn", Role.TRAINING, table.mapping),
                ("policy_mapping_fn of evaluation", Role.EVALUATION, now.evaluation_mapping),
            ):
                if mapping is not None:
                    of = replace(table, mapping=mapping)
                    found[name] = policy_mapping(of, agents, root_seed=seed, role=role).fingerprint
        if callable(now.trained):  # it is asked about batches, so its code has to do
            found["policies_to_train"] = digest_of_code(now.trained)
        return {name: digest for name, digest in found.items() if digest}

    def warn_of_other_functions(self, adopted: Adopted) -> None:
        """Warns of functions that answer otherwise than those of the state that was adopted."""
        before = adopted.fingerprints
        now = self.get_state().get("fingerprints", {})
        for name in sorted(before.keys() & now.keys()):
            (one, _, _), (other, _, _) = before[name].partition("-"), now[name].partition("-")
            is_comparable = "-" not in before[name] + now[name] or one == other
            if is_comparable and before[name] != now[name]:
                _LOGGER.warning(
                    "%s is another one than when the checkpoint was saved, so the run does not go "
                    "on as it would have. Running episodes keep their modules. If "
                    "that is not what you want, give the former function, or set it in "
                    "on_checkpoint_loaded; a dict or Matchups would be part of the checkpoint.",
                    name,
                )

    def _is_of_settings(self, module_id: ModuleId, removed: Collection[ModuleId]) -> bool:
        """Whether a module of a run is the one of that id that the settings name.

        Args:
            module_id: of the module.
            removed: the ids of which the run removed a module; what it has of them was added.
        """
        return module_id in self.first.ids and module_id not in removed

    def _added_settings(self, module_id: ModuleId) -> State:
        """The settings of a module that was added; those of the others are in the config."""
        if self._is_of_settings(module_id, self.now.updates_of_removed):
            return {}
        return copy.deepcopy(dict(self.now.settings.get(module_id, {})))

    def check_state(self, state: State) -> None:
        """Raises a CheckpointMismatchError unless `set_state` will take it; changes nothing."""
        check_shape(state, _STATE)

    def set_state(self, state: State) -> None:
        """Nothing is left to do: `adopt` came first, for other parts follow from the modules."""
        if not self._is_of_now(state):
            raise CheckpointMismatchError(
                f"The state of {MODULES!r} names other modules, settings or mappings than it says "
                "when it is taken again. Nothing was changed. Choose another checkpoint."
            )

    def adopt(
        self, state: State | None, *, only: ModuleId | None = None, is_trusted: bool = False
    ) -> Adopted:
        """Makes the modules of a state; what they have learnt is restored afterwards.

        Args:
            state: what `get_state` gave; None where there is, and was, just one module.
            only: the id of that one; None stands for the modules of the config.
            is_trusted: whether its settings of modules may name code.

        Raises:
            CodeNotAllowedError: they do, and may not; nothing was changed.
            CheckpointMismatchError: they cannot be made, or act for these agents; nothing was
                changed.
        """
        if state is not None:
            try:
                self.check_state(state)
            except CheckpointMismatchError as error:
                raise CheckpointMismatchError(
                    f"The component {MODULES!r} of the checkpoint says not which modules there "
                    f"are: {error}. Nothing was changed. Choose another checkpoint."
                ) from error
            if self._is_of_now(state):
                return Adopted(fingerprints=state.get("fingerprints", {}))
        try:
            if state is not None and not is_trusted:
                self._check_names(state)
            return self._adopt_checked(state, only)
        except _NO_MODULES as error:
            gone = [] if state is None else {*self.first.ids} & {*state["updates_of_removed"]}
            hint = (
                f" The settings name {', '.join(map(repr, sorted(gone)))}, which the run removed: "
                "map agents to modules that the checkpoint has."
                if gone
                else ""
            )
            raise CheckpointMismatchError(
                f"The modules of the checkpoint (its component {MODULES!r}) cannot act here: "
                f"{error}{hint} Nothing was changed."
            ) from error

    def _check_names(self, state: State) -> None:
        """Raises if settings of modules name code that neither the config nor a module names."""
        config = self._algorithm.config
        given = (config.given_settings(), self.now.settings)
        source = stranger(_IF_TRUSTED).handing_in(*given)
        for module in state["modules"].values():
            config.with_settings(module["settings"], source=source).check_names()

    def _adopt_checked(self, state: State | None, only: ModuleId | None) -> Adopted:
        """See `adopt`; the state has the right form."""
        wanted, to_come = self._of_one(only) if state is None else self._of_state(state)
        fingerprints = {} if state is None else state.get("fingerprints", {})
        if wanted is self.now:
            return Adopted(to_come=to_come, fingerprints=fingerprints)
        anew = self._to_make_anew(wanted)
        made = frozenset(anew | ({*wanted.ids} - {*self.now.ids}))
        self._take(wanted, lambda: None, anew=anew)
        return Adopted(made, to_come, fingerprints)

    def _to_make_anew(self, wanted: RunModules) -> set[ModuleId]:
        """The modules that are others under the same id: removed and added again, here or there.

        What the settings say of one that always was there is compared with what was saved, later.
        """
        now = self.now
        of_settings = {*self.first.ids} - {*now.updates_of_removed} - {*wanted.updates_of_removed}
        return {
            id_
            for id_ in ({*now.ids} & {*wanted.ids}) - of_settings
            if not are_same_specs(now.table.specs[id_], wanted.table.specs[id_])
            or now.settings.get(id_) != wanted.settings.get(id_)
        }

    def complete(self, adopted: Adopted) -> None:
        """Adds the modules that only the settings name, when those of a state were restored.

        They are new, also if the algorithm trained them before it was restored.
        """
        to_come = adopted.to_come
        if to_come is None:
            return
        known = self.now.ids
        new = [id_ for id_ in to_come.ids if id_ not in known]
        self._take(to_come, lambda: None)
        if new:
            _LOGGER.warning(
                "The checkpoint does not have the modules %s, which the settings name: they are "
                "new and untrained. It has %s. Which agents they act for is as %s: see "
                "set_policy_mapping_fn().",
                ", ".join(f"{id_!r}{did_you_mean(id_, known, IN_BRACKETS)}" for id_ in new),
                ", ".join(map(repr, known)),
                "the settings say"
                if to_come.table.mapping is self.first.table.mapping
                else "the run said that was saved",
            )

    def _of_one(self, only: ModuleId | None) -> tuple[RunModules, RunModules | None]:
        """The modules of a state with just one, and those to go on with; see `complete`."""
        first = self.first
        if only not in first.ids or len(first.ids) == 1:
            return first, None
        alone = ModuleTable(ByModule({only: first.table.specs[only]}))
        return self._judged(replace(first, table=alone, evaluation_mapping=None)), first

    def _of_state(self, state: State) -> tuple[RunModules, RunModules | None]:
        """The modules of a state, and those to go on with if these are others; see `complete`.

        A run that never changed its modules had them from its settings, so those of now hold. To
        what another run has, modules are added that only the settings of now name.
        """
        new = self._only_in_settings(state)
        saved = self._from_state(state)
        if not new and (saved.table.version or self._says_the_same(state)):
            return self._judged(saved), None
        first = self.first.table
        specs = {**saved.table.specs, **{id_: first.specs[id_] for id_ in new}}
        to_come = saved.changed(specs)
        if saved.table.version:
            to_come = self._with_new(to_come, new)
        else:
            version = 0 if {*specs} == {*first.specs} else 1  # runners know those of the settings
            to_come = self._as_in_settings(to_come)
            to_come = replace(to_come, table=replace(to_come.table, version=version))
        to_come = self._judged(to_come)
        self._refuse_misspelt(new, to_come)
        # Nothing is played with these: functions, which may know the new ones, are not asked.
        wanted = self._from_state(state, asks_functions=False)
        complete = ByModule({id_: to_come.table.specs[id_] for id_ in wanted.ids})
        return self._judged(replace(wanted, table=replace(wanted.table, specs=complete))), to_come

    def _refuse_misspelt(self, new: Collection[ModuleId], to_come: RunModules) -> None:
        """Raises a ConfigError if a new module took the agents of one with nearly the same id.

        One that the settings name, too, is not taken for misspelt: who wrote them knows both.
        """
        used: set[ModuleId] = set()
        agents, seed = self._agents(), self._algorithm.root_seed
        for role, mapping in (
            (Role.TRAINING, to_come.table.mapping),
            (Role.EVALUATION, to_come.mapping_in_evaluation),
        ):
            table = replace(to_come.table, mapping=mapping)
            asked = policy_mapping(table, agents, root_seed=seed, role=role)
            used |= {id_ for id_, served in asked.served_by().items() if served}
        forsaken = {*to_come.ids} - {*self.first.ids} - used
        for id_ in sorted(used & {*new}):
            meant = nearest(id_, forsaken, similarity=_SIMILARITY_OF_MISSPELT)
            if meant is not None:
                raise ConfigError(
                    f"the settings map agents to {id_!r}, which the checkpoint does not have, and "
                    f"none to its module {meant!r}. Under a misspelt id, a module would begin "
                    f"untrained. Write {meant!r} in policies and policy_mapping_fn; or name "
                    f"{meant!r} in multi_agent(policies=…), too, if {id_!r} is to be new. Then "
                    f"restore_from_path(path, component='learner/{meant}', into={id_!r}) gives it "
                    "what the former one had learnt."
                )

    def _only_in_settings(self, state: State) -> list[ModuleId]:
        """The modules that the settings name, and that the run never had."""
        if not self._algorithm.config.is_multi_agent:  # they name none
            return []
        known = {*state["modules"], *state["updates_of_removed"]}
        return [id_ for id_ in self.first.ids if id_ not in known]

    def _says_the_same(self, state: State) -> bool:
        first, trained = self.first, self.first.trained
        return (
            (first.table.mapping is None or mapping_record(first.table.mapping) == state["mapping"])
            and mapping_record(first.evaluation_mapping) in (None, state["evaluation_mapping"])
            and (trained is None or callable(trained) or [*trained] == state["trained"])
        )

    def _as_in_settings(self, modules: RunModules) -> RunModules:
        """The same modules, which act and learn as the settings say, as far as they do."""
        first = self.first
        evaluation = first.evaluation_mapping
        return replace(
            modules.mapped_by(first.table.mapping),
            evaluation_mapping=modules.evaluation_mapping if evaluation is None else evaluation,
            trained=modules.trained if first.trained is None else first.trained,
        )

    def _with_new(self, modules: RunModules, new: Collection[ModuleId]) -> RunModules:
        """The same modules, the new ones of which learn if the settings say so."""
        trained, said = modules.trained, self.first.trained
        if callable(trained) or callable(said):
            return modules
        learn = {id_ for id_ in new if said is None or id_ in said}
        if trained is None and learn == {*new}:
            return modules
        others = {*modules.ids} - {*new} if trained is None else {*trained}
        return replace(modules, trained=tuple(sorted(others | learn)))

    def _from_state(self, state: State, *, asks_functions: bool = True) -> RunModules:
        specs, now, removed = {}, self.now, state["updates_of_removed"]
        first = self.first.table.specs
        for id_, module in state["modules"].items():
            known = [of[id_] for of in (now.table.specs, first) if id_ in of]
            if module["spec"] is None and not known:
                raise ConfigError(
                    f"module {id_!r} has spaces or settings that are no plain data. Name it in "
                    "multi_agent(policies=…)."
                )
            # The script's own, where it is the same: it may hold code.
            same = [
                spec
                for spec in known
                if module["spec"] is None or encode(module["spec"]) == encode(spec_record(spec))
            ]
            specs[id_] = same[0] if same else self._other_spec(id_, module["spec"], removed)
        settings = {id_: one["settings"] for id_, one in state["modules"].items()}
        settings |= {id_: own for id_, own in self.first.settings.items() if id_ not in removed}
        functions = (now.table.mapping, now.evaluation_mapping)
        mapping, evaluation_mapping = (
            mapping_from_record(state[name], code=function if asks_functions else _is_not_asked)
            for name, function in zip(_MAPPINGS, functions, strict=True)
        )
        table = ModuleTable(ByModule(specs), mapping, version=state["version"])
        trained = None if state["trained"] is None else tuple(state["trained"])
        return RunModules(
            table,
            evaluation_mapping,
            now.trained if state["trained"] == _FUNCTION else trained,
            {id_: own for id_, own in settings.items() if own},
            removed,
        )

    def _other_spec(
        self, module_id: ModuleId, record: State, removed: Collection[ModuleId]
    ) -> RLModuleSpec:
        """The spec of a module whose record in a state says what no spec of now does.

        What the network computes follows from the settings of now, if the run had the module from
        its settings; with one module it is so, too.
        """
        saved = spec_from_record(record)
        if not self._is_of_settings(module_id, removed):
            return saved
        own = self.first.table.specs[module_id]
        classes = [one.module_class or ActorCriticModule for one in (saved, own)]
        if classes[0] is not classes[1]:
            raise ConfigError(
                f"module {module_id!r} is a {classes[0].__name__} there, and a "
                f"{classes[1].__name__} here. Build the algorithm with the settings of the run "
                "that was saved."
            )
        for what in ("observation_space", "action_space"):
            one, other = getattr(saved, what), getattr(own, what)
            if None not in (one, other) and one != other:
                raise ConfigError(
                    f"module {module_id!r} has the {what} {one} there, and {other} here. Build the "
                    "algorithm with the env of the run that was saved."
                )
        return own

    def _is_of_now(self, state: State) -> bool:
        """Whether a state is of the modules of now.

        Where it has functions, those of now will do, and so will networks of the settings.
        """
        left_out = {"fingerprints"}
        left_out |= {name for name in _MAPPINGS if "code" in (state[name] or {})}
        left_out |= {"trained"} if state["trained"] == _FUNCTION else set()
        one, other = (
            {name: value for name, value in whole.items() if name not in left_out}
            for whole in (state, self.get_state())
        )
        return encode(self._without_networks_of_settings(one)) == encode(
            self._without_networks_of_settings(other)
        )

    def _without_networks_of_settings(self, state: State) -> State:
        removed = state["updates_of_removed"]
        modules = {
            id_: {**one, "spec": {**one["spec"], "model_config": None}}
            if one["spec"] is not None and self._is_of_settings(id_, removed)
            else one
            for id_, one in state["modules"].items()
        }
        return {**state, "modules": modules}


def _is_not_asked(agent_id: Any, episode: Any) -> ModuleId:
    """Stands for a mapping as long as it cannot be asked."""
    del agent_id, episode
    raise LookupError("not all modules are there yet")


def _check_travels(mapping: Any) -> None:
    try:
        pack_object(mapping, name="policy_mapping_fn")
    except PackingError as error:
        raise SerializationError(
            f"The env runners are processes of their own, and {error} Nothing was changed."
        ) from error


def refused_now(what: str) -> TrainerError:
    """The error for a change while runners play or modules learn."""
    return TrainerError(
        f"{what}() was called while env runners play or modules learn. Call it between two calls "
        "of train(), or in one of the callbacks on_algorithm_init, on_evaluate_end, "
        "on_train_result and on_checkpoint_loaded."
    )

"""Restoring an algorithm, whole or in part: all of it is taken, or nothing.

    from files       SavedState.read ─┐
    from a user      set_state        ├→ modules · names · forms · states of the parts · runners
    from a mark      (undo)           ┘

Modules come first, because what they have learnt is compared with them and put into them. Every way
is a block that is undone if it raises; `make_undoable` says what undoes it, for `train()`, too.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, ClassVar, Final, Protocol

from callbacks import CallbackChain
from checkpoints import (
    CheckpointContents,
    CheckpointError,
    CheckpointMismatchError,
    HasState,
    Manifest,
    PathLike,
    read_checkpoint,
    read_manifest,
)
from checkpoints.component_paths import ComponentNames
from checkpoints.components import flatten
from checkpoints.live_arrays import live_state
from checkpoints.manifest import StateMigrations
from checkpoints.restoring import SavedState, check_names
from trainer.algorithms.checkpointing import (
    ACTORS,
    ATTRIBUTES,
    ActorStates,
    CheckedState,
    check_facts,
    check_given_state,
    is_whole,
    misfitting_state,
    only_module_of,
    settings_behind,
    warn_of_networks_in_state,
    with_own_positions,
)
from trainer.algorithms.module_changes import MODULES, Adopted, ModuleChanges
from trainer.algorithms.sample_ahead import SAMPLE_AHEAD, SampleAhead
from trainer.algorithms.training_iteration import TrainingIterations
from trainer.config import AlgorithmConfig
from trainer.evaluation.evaluations import Evaluations
from trainer.learners import Learner
from trainer.metrics import MetricsLogger
from trainer.runner_group import EnvRunnerGroup
from trainer.runtime.threads import single_threaded_blas
from trainer.types import ModuleId, State
from trainer_toolkit.undo import Undo, undone_on_error

_LOGGER: Final = logging.getLogger(__name__)
_MARKED_OTHERWISE: Final = (
    *("config", MODULES, "env_runners", SAMPLE_AHEAD, "evaluation", "replay_buffer"),
    ACTORS,  # nothing is asked of them per iteration
)
"""Components that undo themselves, or that a mark keeps references of."""


class _Algorithm(Protocol):
    """What restoring needs of the algorithm."""

    root_seed: int
    config: AlgorithmConfig
    callbacks: CallbackChain
    metrics: MetricsLogger
    env_runner_group: EnvRunnerGroup
    state_migrations: ClassVar[StateMigrations]

    @property
    def learners(self) -> Mapping[ModuleId, Learner]: ...
    def get_checkpointable_components(self) -> Collection[tuple[str, HasState]]: ...
    def get_state(
        self, components: ComponentNames | None = None, *, not_components: Any = None
    ) -> State: ...
    def set_state(self, state: State) -> None: ...
    def check_state(self, state: Any) -> None: ...
    def get_metadata(self) -> dict[str, Any]: ...
    def facts(self) -> dict[str, Any]: ...
    def adopt_root_seed(self, root_seed: int) -> None: ...
    def _set_parts(self, state: State) -> None:
        """Gives the parts a state that was checked; a subclass' own way is not asked."""

    def _marks_of_parts(self) -> list[Undo]:
        """Marks of parts that undo their own changes."""

    def _components_that_may_lack(self) -> Collection[str]:
        """Those that either a checkpoint or the algorithm may lack."""

    def _note_restored(self, found: Collection[str]) -> None:
        """Called when a whole state was taken, with the components that it had."""


class Restoring:
    """Restores one algorithm.

    Attributes:
        actor_states: those that belong to its checkpoints.
    """

    def __init__(
        self,
        algorithm: _Algorithm,
        *,
        modules: ModuleChanges,
        evaluations: Evaluations,
        iterations: TrainingIterations,
        ahead: SampleAhead,
        actor_states: ActorStates,
    ) -> None:
        self._algorithm = algorithm
        self._modules, self._evaluations = modules, evaluations
        self._iterations, self._ahead = iterations, ahead
        self._actor_states = actor_states

    def make_undoable(self, undo: undone_on_error) -> None:
        """Registers what puts the algorithm back to now, but for actors.

        Of what is never changed in place, such as positions of runners, references are kept; of the
        rest, and of what a class of the user's adds, a copy of the state. Background calls of
        users' functions in training runners are waited for: what they change belongs to now; those
        that are made later end when it is undone.
        """
        algorithm, iterations, group = (
            self._algorithm,
            self._iterations,
            self._algorithm.env_runner_group,
        )
        group.finish_calls()
        before = algorithm.get_state(not_components=_MARKED_OTHERWISE)
        # What is registered last is undone first, and each of them even if another one raises.
        undo(partial(iterations.note, is_under_way=iterations.is_under_way))
        undo(partial(setattr, iterations, "clock", copy.copy(iterations.clock)))
        for mark in algorithm._marks_of_parts():
            undo(mark)
        undo(self._evaluations.mark())
        undo(group.mark())
        undo(partial(algorithm.set_state, CheckedState(before)))
        undo(partial(self._adopt_seed, algorithm.root_seed))
        undo(self._modules.mark())
        undo(group.end_calls)

    def _adopt_seed(self, root_seed: int) -> None:
        if self._algorithm.root_seed != root_seed:
            self._algorithm.adopt_root_seed(root_seed)

    # ---- from files

    def from_path(self, path: PathLike, component: str | None, *, allow_code: bool) -> None:
        """Takes a checkpoint, or a component of one; see `Algorithm.restore_from_path`."""
        adopted, modules, saved = Adopted(), None, None
        if component is None and self._algorithm.env_runner_group.agent_ids is not None:
            modules = self._modules_at(path)
        else:
            saved = self._checked_at(path, component)
        with undone_on_error() as undo, single_threaded_blas():
            self.make_undoable(undo)
            if modules is not None:
                is_trusted = allow_code or modules.manifest.is_own
                adopted = self._adopt(modules.components, is_trusted=is_trusted)
            saved = saved or self._checked_at(path, component)
            found = [*saved.components]
            undo(self._actor_states.mark(is_set=ACTORS in found))
            if component is None:
                self._actor_states.restart(path, are_saved=ACTORS in found)
            saved.take(self._algorithm, CheckedState)
            self._modules.complete(adopted)
            if component is None:
                time_s = float(saved.manifest.metadata.get("time_total_s") or 0.0)
                self._go_on_from(found, time_s=time_s)
        if component is None:
            self._tell(adopted)

    def _modules_at(self, path: PathLike) -> CheckpointContents:
        """What a checkpoint says of its modules, of several agents.

        They are made before the rest is read and compared: their parts have room for it.
        """
        name = MODULES if MODULES in read_manifest(path).components else "config"
        return read_checkpoint(path, name, migrations=self._algorithm.state_migrations)

    def _checked_at(self, path: PathLike, component: str | None) -> SavedState:
        """The states of a checkpoint of such an algorithm, which were verified and compared."""
        algorithm, own = self._algorithm, self._algorithm.get_metadata()
        versions = {each: str(own[each]) for each in ("producer_version", "gymnasium")}

        def check(manifest: Manifest) -> None:
            name = type(algorithm).__name__
            check_facts(manifest, algorithm.facts(), component=component, name=name)

        saved = SavedState.read(algorithm, path, component, check_manifest=check, versions=versions)
        self._check_names(saved.expected(self._paths()), saved.components, path=path)
        saved.check_state(algorithm)
        return saved

    def _go_on_from(self, found: Collection[str], *, time_s: float) -> None:
        """What follows when a whole state was taken, which had these components."""
        self._iterations.clock.restore(time_s)
        self._algorithm._note_restored(found)

    def _tell(self, adopted: Adopted) -> None:
        algorithm = self._algorithm
        algorithm.callbacks.fire(
            "on_checkpoint_loaded", algorithm=algorithm, metrics_logger=algorithm.metrics
        )
        self._modules.warn_of_other_functions(adopted)

    # ---- from memory

    def from_user(self, state: State) -> None:
        """Takes a state that the user gives, whole or in part; see `Algorithm.set_state`."""
        name, own = type(self._algorithm).__name__, state
        if isinstance(state, Mapping):
            own = with_own_positions(state)
        try:
            with undone_on_error() as undo, single_threaded_blas():
                self.make_undoable(undo)
                undo(self._actor_states.mark(is_set=ACTORS in own))
                adopted = Adopted()
                if is_whole(own):
                    adopted = self._adopt_learnt(own)
                    own = self._ahead.part_of(own)
                self._check_given(own)
                self._algorithm._set_parts(own)
                self._modules.complete(adopted)
        except CheckpointError:
            raise
        except Exception as error:
            raise misfitting_state(state, error, name=name) from error

    def into_new(self, state: State) -> None:
        """Takes a whole state into an algorithm that was just made, and goes if this raises."""
        algorithm, adopted = self._algorithm, self._adopt_learnt(state)
        found = list(flatten(algorithm, state))
        self._check_names(self._paths(), found, path="the state")
        algorithm.check_state(state)
        algorithm.set_state(CheckedState(state))
        self._go_on_from(found, time_s=0.0)
        self._tell(adopted)

    def _adopt_learnt(self, state: State) -> Adopted:
        """Makes the modules of a state, which must say what they have learnt."""
        adopted, learnt = self._adopt(state), state.get("learner")
        if len(self._algorithm.learners) == 1 or not isinstance(learnt, Mapping):
            return adopted
        if lacking := sorted(adopted.made - {*learnt}):
            raise CheckpointMismatchError(
                f"The state says in {MODULES!r} that there are modules which its component "
                f"'learner' lacks: {', '.join(map(repr, lacking))}; they would begin untrained. "
                "Nothing was changed. Give what get_state() returned."
            )
        return adopted

    def _adopt(self, state: Mapping[str, Any], *, is_trusted: bool = False) -> Adopted:
        """Makes the modules that a state is of, which says so."""
        only = only_module_of(state.get("config"))
        return self._modules.adopt(state.get(MODULES), only=only, is_trusted=is_trusted)

    # ---- what fits

    def _paths(self) -> list[str]:
        """The paths of all components of now, without actors."""
        of_now = partial(self._algorithm.get_state, not_components=[ACTORS])
        return [*flatten(self._algorithm, live_state(of_now))]

    def _check_names(
        self, expected: Collection[str], found: Collection[str], *, path: PathLike
    ) -> None:
        """Raises unless there are the components that are expected, but for those that may lack."""
        algorithm = self._algorithm
        if ATTRIBUTES in expected and ATTRIBUTES not in found:
            _LOGGER.warning(
                "The checkpoint %s holds no attributes of %s; they stay as they are.",
                path,
                type(algorithm).__name__,
            )
        may_lack = {ACTORS, ATTRIBUTES, SAMPLE_AHEAD, *algorithm._components_that_may_lack()}
        both = ([name for name in names if name not in may_lack] for names in (expected, found))
        try:
            check_names(algorithm, *both, path=path)
        except CheckpointMismatchError as error:
            hint = settings_behind(algorithm.config, {*expected} ^ {*found})
            raise CheckpointMismatchError(f"{error}{hint}") from None

    def _check_given(self, state: State) -> None:
        algorithm = self._algorithm
        known = [ACTORS, *dict(algorithm.get_checkpointable_components())]
        if isinstance(state, Mapping) and not {*state} <= {*known}:
            of_subclass = algorithm.get_state(not_components=[ACTORS])
            known += [own for own in of_subclass if own not in known]
        check_given_state(
            state,
            name=type(algorithm).__name__,
            known=known,
            check_state=algorithm.check_state,
            config=algorithm.config,
        )
        warn_of_networks_in_state(state, algorithm.get_state(("config", MODULES)))

"""The algorithm: the object that users train, evaluate, save, restore and stop.

It owns the env runners, the learner, the counters and the metrics, and lets data flow one way:

    env runners → episodes → learner → weights → env runners

What it does is done by its parts: `TrainingIterations`, `Evaluations`, `Inference`, `ModuleChanges`
and `Restoring`; what is checked before a state is taken is in `checkpointing`.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import logging
import platform
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final, TypeVar, cast

from callbacks import CallbackChain
from callbacks.ready_made.claims import release_claims
from callbacks.ready_made.result_loggers import close_loggers
from checkpoints import (
    Checkpointable,
    CheckpointMismatchError,
    CheckpointWriteError,
    HasState,
    PathLike,
    is_selected,
    read_manifest,
)
from checkpoints.checkpointable import refuse_filesystem, refuse_part
from checkpoints.component_paths import as_names
from checkpoints.components import flatten
from checkpoints.live_arrays import are_arrays_shown, live_state
from checkpoints.reader import checkpoint_of_run
from checkpoints.writer import BackgroundSave, EncodedCheckpoint
from trainer.algorithms.building import make_callbacks, make_group, own_config, register_algorithm
from trainer.algorithms.checkpointing import (
    ACTORS,
    ATTRIBUTES,
    MAY_BE_MISSING,
    ActorStates,
    CheckedState,
    ConfigCode,
    ConfigRecord,
    ConnectorsRecord,
    MetricsRecord,
    class_of_checkpoint,
    class_of_state,
    component_for_module,
    config_from_state,
    is_whole,
    metadata_of_state,
    plain_model_config,
    refuse_component_names,
    restored_config,
    with_own_positions,
)
from trainer.algorithms.inference import (
    ActionRequest,
    Inference,
    known_module,
    modules_named,
    modules_of_agents,
    refuse_connectors,
)
from trainer.algorithms.module_changes import (
    MODULES,
    ModuleChanges,
    NewModule,
    refused_now,
)
from trainer.algorithms.restoring import Restoring
from trainer.algorithms.run_modules import RunModules
from trainer.algorithms.sample_ahead import SAMPLE_AHEAD, SampleAhead
from trainer.algorithms.time_split import SAVING
from trainer.algorithms.training_iteration import (
    AfterResult,
    Counters,
    IterationResult,
    SampleExploration,
    TrainingIterations,
)
from trainer.config import AlgorithmConfig
from trainer.config.algorithm_config import exploration_spec, normalization_settings
from trainer.config.names_elsewhere import hint_for
from trainer.connectors import Normalization, NormalizationStatistics
from trainer.env_runners import EnvRunner, TrajectoryPostprocessing, Weights
from trainer.env_runners.mapped_modules import policy_mapping
from trainer.env_runners.messages import ModuleWeights, PolicySnapshot, Rounds
from trainer.episodes import SingleAgentEpisode, nested
from trainer.errors import (
    ActorDiedError,
    AlgorithmStoppedError,
    ConfigError,
    DebuggerError,
    EnvContractError,
    ModuleError,
    TrainerError,
)
from trainer.evaluation.evaluations import Evaluations
from trainer.learners import Learner, LearnerGroup, chunks_by_module
from trainer.metrics import EpisodeStatistics, MetricsLogger, ResultDict
from trainer.modules import (
    ByModule,
    ModuleTable,
    RLModule,
    RLModuleSpec,
    component_of,
    module_position,
)
from trainer.modules.by_module import kept_over, without_only_id
from trainer.old_names import OLD_NAMES, refuse_overrides
from trainer.own_attributes import OwnAttributes
from trainer.runner_group import EnvRunnerGroup, GroupSample
from trainer.runner_group.crash_files import read_crash
from trainer.runner_group.user_calls import OnMetrics
from trainer.runtime.machine_facts import installed_version
from trainer.runtime.threads import OneThread, single_threaded_blas
from trainer.seeding import Role, draw_root_seed
from trainer.types import AgentId, ModuleId, State
from trainer_toolkit.arguments import takes
from trainer_toolkit.checks import boolean, instance, integer, mapping, optional
from trainer_toolkit.class_names import class_name
from trainer_toolkit.interrupts import signals_deferred
from trainer_toolkit.nearest_names import IN_BRACKETS, did_you_mean
from trainer_toolkit.undo import Undo, undone_on_error

_LOGGER: Final = logging.getLogger(__name__)
_OTHERS_END_WITHIN_S: Final = 10.0
_Made = TypeVar("_Made")
_Self = TypeVar("_Self", bound="Algorithm")
_Learner = TypeVar("_Learner", bound=Learner)


class _AlgorithmType(abc.ABCMeta):
    """Answers names of other libraries on the class, too: `PPO.load(path)`."""

    def __getattr__(cls, name: str) -> Any:
        hint = hint_for(name)
        raise AttributeError(
            f"type object {cls.__name__!r} has no attribute {name!r}.{hint}", name=name, obj=cls
        )


class Algorithm(Checkpointable, metaclass=_AlgorithmType):
    """Trains a module in envs, step by step.

        with PPOConfig().environment("CartPole-v1").build_algo() as algo:
            for _ in range(10):
                result = algo.train()
            algo.save_to_path("runs/cartpole")

    `train()` either returns a result or leaves the algorithm as it was: whatever is raised in the
    middle of an iteration, everything is put back to where the iteration began.

    Subclasses name their `config_class` and implement `make_learner` and `training_step`. A class
    derived from PPO or another algorithm may override `training_step`, `step`, `setup`, `evaluate`
    and `get_default_config`, too. Attributes that it adds are saved, restored and undone with the
    rest if they are plain data; the first time, a warning names those that are not. To save them in
    its own way, it extends `get_state` and `set_state`.

    Attributes:
        config: the settings: validated, frozen, and the algorithm's own.
        root_seed: what all randomness is derived from: `config.seed`, or drawn once if that is
            None.
        callbacks: the callback objects of the main process.
        metrics: the logger of the main process; what is logged here appears at the top of results.
        counters: what was sampled and trained so far.
        env_runner_group: the training runners.
        learners: make updates, one per module.
        episode_statistics: of the finished training episodes.
        explorations: the exploration strategies of the main process, one per module.
        normalizations: what normalisation follows from, of all that was sampled, by module.
    """

    config: AlgorithmConfig
    root_seed: int
    callbacks: CallbackChain
    metrics: MetricsLogger
    counters: Counters
    env_runner_group: EnvRunnerGroup
    learners: LearnerGroup[Any]
    episode_statistics: EpisodeStatistics
    explorations: ByModule[SampleExploration]
    normalizations: ByModule[NormalizationStatistics]

    config_class: ClassVar[type[AlgorithmConfig]] = AlgorithmConfig
    # Declared, so that they are told from the attributes of a class derived from this one.
    _no_settings: set[str]
    _is_stopped: bool
    _one_thread: OneThread
    _learns: dict[ModuleId, bool]
    _actor_states: ActorStates
    _code: ConfigCode
    _attributes: OwnAttributes
    _ahead: SampleAhead
    _evaluations: Evaluations
    _iterations: TrainingIterations
    _modules: ModuleChanges
    _restoring: Restoring
    _inference: ByModule[Inference]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        refuse_overrides(cls, OLD_NAMES.algorithm_overrides)
        if "config_class" in cls.__dict__:
            cls.config_class.default_algo_class = cls
            register_algorithm(cls)

    def __getattr__(self, name: str) -> Any:
        # Only called for what is not there.
        kind = type(self).__name__
        raise AttributeError(
            f"{kind!r} object has no attribute {name!r}.{hint_for(name)}", name=name, obj=self
        )

    def __new__(cls: type[_Self], config: Any = None, *_: Any, **settings: Any) -> _Self:
        """An algorithm, unless its class is not complete."""
        cls._settle_config_class()
        missing = sorted(getattr(cls, "__abstractmethods__", ()))
        is_own = cls.make_learner is not Algorithm.make_learner
        if not is_own and not _names_learner(cls, config, settings):
            missing = ["make_learner", *missing]
        if missing:
            raise ConfigError(_incomplete(cls, missing))
        return super().__new__(cls)

    def __init__(
        self,
        config: AlgorithmConfig | Mapping[str, Any] | None = None,
        env: object = None,
        logger_creator: object = None,
        **settings: Any,
    ) -> None:
        """Builds runners, module and learner; returns when everything is up.

        Args:
            config: the settings, as a config object or as a dict.
            env: the env, if the config does not name it.
            logger_creator: no effect; results are written by callbacks.
            settings: further settings by name.

        Raises:
            ConfigError: lists everything that is wrong with the settings.
            EnvCreationError, EnvContractError: the env could not be made, or breaks the contract.
        """
        del logger_creator
        self.config = own_config(type(self), config, env, settings)
        self.root_seed = draw_root_seed() if self.config.seed is None else int(self.config.seed)
        self._is_stopped = False
        self._one_thread = OneThread()
        self._learns: dict[ModuleId, bool] = {}
        self.metrics = MetricsLogger(root=True)
        self.episode_statistics = EpisodeStatistics(
            smoothing=self.config.metrics_num_episodes_for_smoothing,
            keep_per_episode_custom_metrics=self.config.keep_per_episode_custom_metrics,
        )
        self._actor_states = ActorStates()
        self._code = ConfigCode(self.config)
        self._attributes = OwnAttributes(self, kind="algorithm")
        self._ahead = SampleAhead(self)
        self._evaluations = Evaluations(self, self._make_evaluation_group)
        self.callbacks = make_callbacks(self.config)
        self.env_runner_group = make_group(
            self.config,
            Role.TRAINING,
            root_seed=self.root_seed,
            on_recreated=lambda indices: self._fire_recreated(indices, is_evaluation=False),
            on_metrics=lambda logged: self.metrics.aggregate(logged, key="env_runners"),
            one_thread=self._one_thread,
            postprocessing=self._postprocessing_to_show(),
        )
        self.counters = Counters(self.env_runner_group.module_specs.ids)
        self._iterations = TrainingIterations(self, self._evaluations)
        try:
            self.setup(self.config)
            self._refuse_half_setup()
            self.callbacks.fire("on_algorithm_init", algorithm=self, metrics_logger=self.metrics)
        except BaseException:
            self.stop()
            raise

    @classmethod
    def _settle_config_class(cls) -> None:
        """Reads `config_class` from `get_default_config`, where a subclass overrides that alone."""
        names = "get_default_config", "config_class"
        mro = cls.__mro__
        said, named = (next(i for i, one in enumerate(mro) if name in vars(one)) for name in names)
        if said >= named:
            return
        config_class = type(cls.get_default_config())
        if issubclass(config_class, AlgorithmConfig) and config_class is not cls.config_class:
            cls.config_class = config_class
            register_algorithm(cls)

    @classmethod
    def get_default_config(cls) -> AlgorithmConfig:
        """A new config of this algorithm with all defaults."""
        return cls.config_class()

    def setup(self, config: AlgorithmConfig) -> None:
        """Builds runners, module and learner.

        A subclass may add to it: `super().setup(config)`, then its own.

        Args:
            config: `self.config`, which is frozen.
        """
        del config
        self._set_up()

    def _refuse_half_setup(self) -> None:
        if "normalizations" not in self.__dict__:
            raise TrainerError(
                f"{type(self).__name__}.setup() built no env runners and no learner. Call "
                "super().setup(config) in it, before what it adds."
            )

    def _set_up(self) -> None:
        self.env_runner_group.start()
        if self.config.env_task_fn is not None:
            self.env_runner_group.tasks.require("env_task_fn")
        self._modules = ModuleChanges(self, self._modules_of_config(), ahead=self._ahead)
        self._restoring = Restoring(
            self,
            modules=self._modules,
            evaluations=self._evaluations,
            iterations=self._iterations,
            ahead=self._ahead,
            actor_states=self._actor_states,
        )
        self.make_parts_by_module()
        self.send_modules()
        if self.config.evaluation_interval:
            self._evaluations.get_evaluator().group.start()

    def _modules_of_config(self) -> RunModules:
        config, specs = self.config, self.env_runner_group.module_specs
        specs = specs.map(lambda spec: dataclasses.replace(spec, inference_only=False))
        named = config.policies_to_train
        return RunModules(
            dataclasses.replace(self.env_runner_group.table, specs=specs),
            evaluation_mapping=(config.evaluation_config or {}).get("policy_mapping_fn"),
            trained=tuple(sorted(named)) if isinstance(named, Collection) else named,
            settings=config.settings_of_modules(),
        )

    # ---- changing modules

    @takes(
        module_spec=optional(instance(RLModuleSpec, "an RLModuleSpec")),
        module_state=optional(mapping()),
        config_overrides=optional(mapping()),
        copy_optimizer=boolean(),
    )
    def add_module(
        self,
        module_id: ModuleId,
        module_spec: RLModuleSpec | None = None,
        *,
        copy_of: ModuleId | None = None,
        load_from: PathLike | None = None,
        module_state: Mapping[str, Any] | None = None,
        config_overrides: Mapping[str, Any] | None = None,
        copy_optimizer: bool = False,
        new_agent_to_module_mapping_fn: Any = None,
        new_should_module_be_updated: Any = None,
        add_to_learners: bool = True,
        add_to_env_runners: bool = True,
        add_to_eval_env_runners: bool = True,
    ) -> RLModuleSpec:
        """Adds a module, between two iterations or in a callback of the main process.

        Runners have it from their next request on. Episodes that run go on with the modules that
        they began with. In `on_train_result` it belongs to the iteration, and is undone with it.
        Without a spec, `copy_of` and `load_from`, its network is that of the config, with the
        spaces of the agents that it acts for.

        Args:
            module_id: of the new module.
            module_spec: its network; what it leaves out is as in the config.
            copy_of: the id of a module whose network, weights and running statistics of
                observations and rewards it gets, bit by bit, as they are now.
            load_from: the path of a saved module, such as `<checkpoint>/learner/main/rl_module`.
            module_state: its weights by name.
            config_overrides: settings that are different for this module.
            copy_optimizer: with `copy_of`, take over the optimiser's state as well.
            new_agent_to_module_mapping_fn: replaces `policy_mapping_fn`; None keeps it.
            new_should_module_be_updated: replaces `policies_to_train`; None keeps it. So the new
                module learns if it is named there, or if all modules do.
            add_to_learners: must be True: all processes have the same modules.
            add_to_env_runners: must be True for the same reason.
            add_to_eval_env_runners: must be True for the same reason.

        Returns:
            its spec, with both spaces.

        Raises:
            ConfigError: there is such a module, or none to copy; spaces, settings or the mapping do
                not fit. Nothing is changed then, nor by other errors.
            ModuleError: the weights do not fit.
            TrainerError: env runners play, or modules learn.
            SerializationError: the mapping cannot be sent to the runners.
        """
        given = {
            "add_to_learners": add_to_learners,
            "add_to_env_runners": add_to_env_runners,
            "add_to_eval_env_runners": add_to_eval_env_runners,
        }
        if left_out := [name for name, value in given.items() if not value]:
            raise ConfigError(
                f"add_module({module_id!r}) was given {'=False, '.join(left_out)}=False; all "
                "processes have the same modules, so that any of them can be made anew. Leave it "
                "out. A module that is not named in policies_to_train does not learn, and one that "
                "the mapping does not name does not act."
            )
        new = NewModule(
            spec=module_spec,
            copy_of=copy_of,
            load_from=load_from,
            state=module_state,
            settings=dict(config_overrides or {}),
            copies_optimizer=copy_optimizer,
        )
        self._modules.add(
            module_id,
            new,
            mapping=new_agent_to_module_mapping_fn,
            trained=new_should_module_be_updated,
        )
        return self.module_specs[module_id]

    def remove_module(
        self,
        module_id: ModuleId,
        *,
        new_agent_to_module_mapping_fn: Any = None,
        new_should_module_be_updated: Any = None,
    ) -> None:
        """Removes a module with all that belongs to it; see `add_module` for when.

        Running episodes that it acts in are given up, and counted in `num_episodes_lost`.

        Args:
            module_id: which one.
            new_agent_to_module_mapping_fn: replaces `policy_mapping_fn`; None keeps it.
            new_should_module_be_updated: replaces `policies_to_train`; None keeps it.

        Raises:
            ConfigError: there is no such module, or no other; or the mapping still names it.
                Nothing is changed then.
            TrainerError: env runners play, or modules learn.
        """
        self._modules.remove(
            module_id,
            mapping=new_agent_to_module_mapping_fn,
            trained=new_should_module_be_updated,
        )

    def set_policy_mapping_fn(self, mapping: Any, *, for_evaluation: bool = False) -> None:
        """Gives agents other modules, in episodes that begin from now on.

        Args:
            mapping: `{agent: module id}`, `Matchups`, or a function; see `multi_agent()`. A
                function is no part of checkpoints: set it again in `on_checkpoint_loaded`.
            for_evaluation: change the mapping of evaluation alone, which then has one of its own
                (None: that of training). Else that of training, and of evaluation as long as it has
                none of its own.

        Raises:
            ConfigError: it names a module that there is not, or agents with other spaces. Nothing
                is changed then.
            TrainerError: env runners play, or modules learn.
            SerializationError: it cannot be sent to the runners.
        """
        self._modules.set_mapping(mapping, for_evaluation=for_evaluation)

    def set_policies_to_train(self, trained: Any) -> None:
        """Lets other modules learn from the next update on; the rest is frozen.

        Args:
            trained: ids, a function `f(module_id, batch)`, or None for all.

        Raises:
            ConfigError: there is no such module.
            TrainerError: env runners play, or modules learn.
        """
        self._modules.set_trained(trained)

    def refuse_module_changes(self, what: str) -> None:
        """Raises a TrainerError while runners play or modules learn."""
        self._refuse_if_stopped(what)
        self._one_thread.refuse_others(f"{what}()")
        self._refuse_in_training_step(what)

    def _refuse_in_training_step(self, what: str) -> None:
        if self._iterations.is_in_training_step:
            raise refused_now(what)

    # ---- parts that belong to modules

    _by_module: ClassVar[tuple[str, ...]] = (
        "learners",
        "explorations",
        "_inference",
        "normalizations",
    )
    """Attributes with a part for each module."""

    def parts_by_module(self) -> dict[str, Any]:
        """The parts that belong to modules, for `put_parts_back`."""
        return {name: self.__dict__[name] for name in self._by_module if name in self.__dict__}

    def put_parts_back(self, parts: Mapping[str, Any]) -> None:
        """Has these parts again; the modules are those that they belong to."""
        for name, by_module in parts.items():
            setattr(self, name, by_module)
        self.counters.take_modules(self.module_specs.ids)

    def make_parts_by_module(self) -> None:
        """Makes the parts of modules that have none, and drops those of modules that are gone."""
        ids, known = self.module_specs.ids, self.parts_by_module()
        self.counters.take_modules(ids)
        self.learners = LearnerGroup(kept_over(known.get("learners", {}), ids, self._new_learner))
        for name, make in (
            ("explorations", self._new_exploration),
            ("_inference", self._new_inference),
            ("normalizations", self._new_normalization),
        ):
            setattr(self, name, kept_over(known.get(name, {}), ids, make))

    def send_modules(self, table: ModuleTable | None = None) -> None:
        """Lets the training runners act with the newest policy of all modules.

        `table` says which there are from now on; None: those of before.
        """
        self.apply_normalization()
        self.env_runner_group.act_with(dataclasses.replace(self.newest_policy(), table=table))

    def _new_learner(self, module_id: ModuleId) -> Learner:
        is_only = len(self.module_specs) == 1  # a class of the user's may know no ids
        learner = self.make_learner() if is_only else self.make_learner(module_id)
        learner.build()
        return learner

    def _new_exploration(self, module_id: ModuleId) -> SampleExploration:
        config = self.config_for(module_id)
        return SampleExploration(
            exploration_spec(config),
            self.learners[module_id],
            root_seed=self.root_seed,
            num_workers=config.num_env_runners,
            normalize_actions=config.normalize_actions,
        )

    def _new_inference(self, module_id: ModuleId) -> Inference:
        """What acts outside of training, with the root seed of now."""
        module = self.learners[module_id].module
        return Inference(module, self.config_for(module_id), self.root_seed)

    def _new_normalization(self, module_id: ModuleId) -> NormalizationStatistics:
        settings = normalization_settings(
            self.config_for(module_id),
            num_slots=self._num_running_at_most(),
            module=self.module_specs[module_id],
        )
        return NormalizationStatistics(settings, self.learners[module_id].make_encoder())

    def config_for(self, module_id: ModuleId | None = None) -> AlgorithmConfig:
        """The settings of a module: those of the run, but for what it has of its own.

        Args:
            module_id: which one; None is the only one.
        """
        id_ = self.module_specs.only_id if module_id is None else module_id
        return self.config.with_settings(self._modules.now.settings.get(id_, {}))

    def _num_running_at_most(self) -> int:
        """How many chunks that a module acts in may be running at a time."""
        agents = self.env_runner_group.agent_ids
        return self.env_runner_group.num_slots * (1 if agents is None else len(agents))

    def _make_evaluation_group(self, on_metrics: OnMetrics) -> EnvRunnerGroup:
        return make_group(
            self.config.get_evaluation_config_object(),
            Role.EVALUATION,
            root_seed=self._evaluation_root_seed,
            on_recreated=lambda indices: self._fire_recreated(indices, is_evaluation=True),
            on_metrics=on_metrics,
            one_thread=self._one_thread,
        )

    @property
    def _evaluation_root_seed(self) -> int:
        fixed = self.config.fixed_evaluation_seed
        return self.root_seed if fixed is None else fixed

    # ---- what subclasses implement

    def make_learner(self, module_id: ModuleId | None = None) -> Learner:
        """The learner of a module: of the class that the config names, unless overridden.

        Args:
            module_id: which one; None is the only one, whose spec is `self.module_spec`.

        Raises:
            ConfigError: nothing says how this algorithm learns.
        """
        if self.config_for(module_id).chosen_learner_class is None:
            raise ConfigError(_incomplete(type(self), ["make_learner"]))
        return self.new_learner(Learner, module_id)

    @abc.abstractmethod
    def training_step(self) -> None:
        """Samples and learns once."""

    def new_learner(
        self, default: type[_Learner], module_id: ModuleId | None = None, **settings: Any
    ) -> _Learner:
        """A learner of the class that `training(learner_class=…)` names, with its settings.

        Args:
            default: the class if none is named; one that is named has to be derived from it.
            module_id: whose learner; None is the only one.
            settings: what settings of the learner are instead of those of the config.

        Raises:
            ConfigError: it is not derived from the default.
        """
        config = self.config_for(module_id)
        cls = cast("type[_Learner]", config.chosen_learner_class or default)
        if not issubclass(cls, default):
            raise ConfigError(
                f"learner_class={cls.__name__}: {type(self).__name__} learns by a "
                f"{default.__name__}, and this class is not derived from it. Write "
                f"`class {cls.__name__}({default.__name__})`, or a {type(self).__name__} of your "
                "own whose `make_learner` makes it."
            )
        id_ = self.module_specs.only_id if module_id is None else module_id
        read = cls.settings_class.from_config(config, module_id=id_, **settings)
        return cls(settings=read, **self.learner_arguments(module_id))

    def learner_arguments(self, module_id: ModuleId | None = None) -> dict[str, Any]:
        """What every learner of a module is made with, besides its settings.

        Args:
            module_id: which module; None is the only one.
        """
        id_ = self.module_specs.only_id if module_id is None else module_id
        return {
            "module_spec": self.module_specs[id_],
            "root_seed": self.root_seed,
            "position": module_position(id_),
        }

    def make_postprocessing(self) -> TrajectoryPostprocessing | None:
        """What trajectories get before `on_postprocess_trajectory` shows them; None for nothing."""
        return None

    def add_to_result(self, result: IterationResult) -> None:
        """Adds what only this algorithm has to the result of an iteration."""

    # ---- training and evaluating

    def train(self) -> ResultDict:
        """Runs one training iteration.

        Returns:
            the result: metrics by path (`result["env_runners/episode_return_mean"]`), counters,
            times; the keys are listed in `trainer.metrics.result`.

        Raises:
            AlgorithmStoppedError: `stop()` was called.
            TrainerError: another thread works with the algorithm.
            CallbackError: a callback raised.
            RunnerLostError: a runner's process died and may not be replaced.
            CheckpointWriteError: a save in the background failed; nothing was begun. Call again.
            Exception: what the user's env or module raised, if the runner may not be replaced.
        """
        self._refuse_if_stopped("train")
        with self._one_thread.alone("train()"):
            return self._train()

    def _train(self) -> ResultDict:
        self._iterations.refuse_nested()
        # Before anything begins, so that a failed save costs no iteration.
        self._notice_end_of_save(wait=False)
        self._send_policy_if_others_set_weights()
        try:
            return self._all_or_nothing(self._iterations.make)
        except DebuggerError as error:
            # The text says where the debugger was called; our own frames would only hide it.
            raise error.with_traceback(None) from None

    def _all_or_nothing(self, make: Callable[[], _Made]) -> _Made:
        """What `make()` returns; if it raises, everything is put back to where it began."""
        with undone_on_error() as undo, single_threaded_blas():
            self._restoring.make_undoable(undo)
            return make()

    def _marks_of_parts(self) -> list[Undo]:
        """Marks of parts that a subclass adds and that undo their own changes; to be extended."""
        return []

    def step(self) -> ResultDict:
        """Samples, learns, evaluates when due, and puts the result together: the middle of `train`.

        A subclass may add to it: `result = super().step()`, then its own entries. `env_task_fn` and
        `on_train_result` see what it returns.

        Raises:
            TrainerError: it was called by itself; only `train()` can undo what fails.
        """
        return self._iterations.step()

    def evaluate(self) -> ResultDict:
        """Plays evaluation episodes with the newest weights, at any time.

        Training is not disturbed: neither its episodes nor its metrics nor its random numbers.

        Returns:
            metrics of the episodes of this evaluation alone (`env_runners/…`), dated by
            `evaluated_at_iteration` and `weights_version`.
        """
        self._refuse_if_stopped("evaluate")
        with self._one_thread.alone("evaluate()"):
            return self._all_or_nothing(self._evaluations.evaluate)

    def after_train_result(self, function: AfterResult, *, phase: str | None = None) -> None:
        """Calls `function(result)` once the iteration is complete; for use in `on_train_result`.

        By then all callbacks have heard of the result, and what they logged is in it. So a
        checkpoint that is saved there goes on exactly, while one that is saved directly in
        `on_train_result` lacks what the callbacks that come later would have remembered. If one
        raises, `train()` raises the very same exception, not a `CallbackError` around it, and the
        iteration is undone; it will be made again with the same bytes.

        Args:
            function: called with what `train()` is about to return.
            phase: when: "decide", then "save", "save_last" (what is to remember the other saves),
                and "report"; within a phase in the order of the callbacks. None is "decide", or
                inside such a function the phase after its own; after "report" there is always
                one more.

        Raises:
            TrainerError: no `on_train_result` is running, `function` cannot be called, or the phase
                does not exist or is over.
        """
        self._iterations.after_result(function, phase)

    def replay_episode(self, crash_file: str | Path) -> list[SingleAgentEpisode]:
        """Plays again, in this process, a request to an env runner that failed.

        Set a breakpoint, or call this in a debugger: the same episodes are played with the same
        seeds and actions, so what was raised is raised again, and what crashed crashes again. The
        algorithm itself stays as it is. Sub-envs are not restarted here.

        Args:
            crash_file: written where `config.fault_tolerance(crash_dir=…)` says, by a run with the
                same settings; its log names the file.

        Returns:
            what was played, if nothing failed this time. Then the failure does not follow from
            seeds and actions: look for clocks, other processes, memory.

        Raises:
            ConfigError: there is no such file.
            Exception: what the env or a callback raised.
        """
        record = read_crash(crash_file)
        is_evaluation = record["role"] == Role.EVALUATION.name
        group = self._evaluations.get_evaluator().group if is_evaluation else self.env_runner_group
        reply = group.replay(record)
        return [] if reply is None else list(reply.episodes)

    # ---- what training steps are made of

    @property
    def _iteration(self) -> IterationResult:
        """The result of the iteration under way."""
        return self._iterations.result

    def sample_env_steps(self, num_env_steps: int) -> GroupSample:
        """Lets the training runners play, and counts what they report.

        Args:
            num_env_steps: exactly so many steps, or at least so many with
                `batch_mode="complete_episodes"`.
        """
        return self._sampled(num_env_steps, by_agent=False)

    def sample_steps(self, num_steps: int) -> GroupSample:
        """Lets the training runners play, and counts what they report.

        Args:
            num_steps: env steps, as for `sample_env_steps`, or with
                `multi_agent(count_steps_by="agent_steps")` agent steps: every env slot plays whole
                env steps until it has its share, and what it made beyond that is taken off its next
                share.
        """
        if not self.config.counts_agent_steps:
            return self.sample_env_steps(num_steps)
        return self._sampled(num_steps, by_agent=True)

    def _sampled(
        self, num_steps: int, *, by_agent: bool, rounds: Rounds | None = None
    ) -> GroupSample:
        """What the runners played of so many steps, counted, and as it is to be learnt from."""
        result, timestep = self._iteration, self._ahead.timestep
        if timestep is None:
            timestep = self.counters.num_env_steps_sampled
        group, is_whole = self.env_runner_group, self.config.batch_mode == "complete_episodes"
        ask = group.sample_agent_steps if by_agent else group.sample_env_steps
        with result.time("env_runner_sampling_timer"):
            sample = ask(num_steps, whole_episodes=is_whole, timestep=timestep, rounds=rounds)
        if rounds is None:  # else they were looked after in between
            self._evaluations.look_after()
        self.counters.played += sample.counts
        result.played += sample.counts
        self.episode_statistics.add(sample.records)
        if any(sample.metrics):
            self.metrics.aggregate(sample.metrics, key="env_runners")
        sample = self._explored(sample, timestep)
        if any(one.has_state for one in self.normalizations.values()):
            self._add_to_statistics(sample)
        self._ahead.begin(num_steps, by_agent=by_agent, whole_episodes=is_whole)
        return sample

    def _add_to_statistics(self, sample: GroupSample) -> None:
        """Adds a sample to the statistics of normalisation, and scales rewards by them at once.

        Otherwise the first sample would be learnt from on the env's own scale, and the values
        predicted from it be wrong for several updates. Observations keep the normalisation that the
        policy acted with until the training step is over.
        """
        for id_, chunks in self.chunks_of(sample).items():
            statistics, learner = self.normalizations[id_], self.learners[id_]
            if statistics.has_state:
                statistics.add(chunks)
                rewards = statistics.reward_transform
                learner.normalize_with(dataclasses.replace(learner.normalization, rewards=rewards))

    def is_trained(self, module_id: ModuleId) -> bool:
        """Whether a module learns: `policies_to_train` names it, or all do.

        A function that says so is asked once per update; this is its newest answer.

        Raises:
            ModuleError: there is no such module.
        """
        now = self._modules.now
        if module_id not in now.table.specs:
            raise _no_module("is_trained", module_id, now.table.specs)
        if callable(now.trained) and module_id in self._learns:
            return self._learns[module_id]
        return now.should_learn(module_id)

    def trained(self, by_module: ByModule[_Made]) -> ByModule[_Made]:
        """What belongs to the modules that learn; a function of the user's is asked once each."""
        learns = self._modules.now.should_learn
        self._learns = {id_: learns(id_, one) for id_, one in by_module.items()}
        return ByModule({id_: one for id_, one in by_module.items() if self._learns[id_]})

    def chunks_of(self, sample: GroupSample) -> ByModule[Sequence[SingleAgentEpisode]]:
        """The chunks of a sample that each module acted in, to learn from."""
        return chunks_by_module(sample.episodes, self.module_specs.ids)

    def _explored(self, sample: GroupSample, timestep: int) -> GroupSample:
        """Shows the sample to the exploration strategy, which may change rewards to learn from."""
        explorations = self.explorations
        if sample.episodes and len(explorations) == 1 and explorations.only.ignores_samples:
            explorations.only.strategy.last_timestep = timestep
            return sample
        before = self.explorations.map(lambda one: one.strategy.runner_state())
        explored: dict[ModuleId, Sequence[SingleAgentEpisode]] = {
            id_: self.explorations[id_].observe(
                chunks, timestep=timestep, iteration=self.counters.training_iteration
            )
            if chunks
            else chunks
            for id_, chunks in self.chunks_of(sample).items()
        }
        after = self.explorations.map(lambda one: one.strategy.runner_state())
        if any(after[id_] != before[id_] for id_ in after):
            self.send_policy()
        if not any(one.changes_rewards for one in self.explorations.values()):
            return sample
        # From here on chunks of agents are all that matters: they know their modules.
        chunks = [chunk for of_module in explored.values() for chunk in of_module]
        return dataclasses.replace(sample, episodes=chunks)

    # ---- weights and normalisation

    def reading(self, what: str) -> contextlib.AbstractContextManager[None]:
        """Surrounds a method that reads weights: another thread must not train meanwhile.

        A TrainerError if one does. Several threads may read at the same time.
        """
        return self._one_thread.reading(f"{what}()")

    @property
    def module_specs(self) -> ByModule[RLModuleSpec]:
        """The networks by module id, with the spaces of the env."""
        return self._modules.now.table.specs

    @property
    def module_ids(self) -> tuple[ModuleId, ...]:
        """The ids of all modules that there are now."""
        return self.module_specs.ids

    @property
    def module_spec(self) -> RLModuleSpec:
        """The network, with the spaces of the env, of an algorithm with one module.

        Raises:
            ModuleError: there are several; see `module_specs`.
        """
        return self.module_specs.only

    @property
    def learner(self) -> Learner:
        """What makes updates, of an algorithm with one module.

        Raises:
            ModuleError: there are several; see `learners`.
        """
        return cast("Learner", self.learners.only)

    def get_module(self, module_id: ModuleId | None = None) -> RLModule:
        """The learner's module, with the newest weights.

        Args:
            module_id: which one; None is the only one.

        Raises:
            ModuleError: there is no such module; or no id was given, and there are several.
        """
        learners = self.learners
        if module_id is not None and module_id not in learners:
            raise _no_module("get_module", module_id, learners)
        learner = learners.only if module_id is None else learners[module_id]
        return cast("RLModule", learner.module)

    def get_weights(self, policies: Collection[ModuleId] | None = None) -> State:
        """Copies of weights: module id → name → array.

        Args:
            policies: ids of the modules; None means all.

        Raises:
            ModuleError: there is no such module.
            TypeError: a single id was given, not in a list.
        """
        if isinstance(policies, str):
            raise TypeError(f"get_weights({policies!r}): expected a list of ids, [{policies!r}].")
        wanted = {*self.learners} if policies is None else {*policies}
        unknown = sorted(wanted - {*self.learners})
        if unknown:
            raise ModuleError(
                f"get_weights() was asked for {', '.join(map(repr, unknown))}, and there are "
                f"{', '.join(map(repr, self.learners))}. Name some of these."
            )
        chosen = [id_ for id_ in self.learners if id_ in wanted]
        with self.reading("get_weights"):
            return {id_: self.learners[id_].module.get_state() for id_ in chosen}

    def set_weights(self, weights: Mapping[str, Mapping[str, Any]]) -> None:
        """Replaces the weights everywhere; modules that are left out keep theirs.

        Raises:
            ModuleError: names or shapes do not fit; nothing is changed.
        """
        unknown = sorted({*weights} - {*self.learners}, key=str)
        if unknown or not weights:
            raise ModuleError(
                f"set_weights() got weights of {sorted(weights, key=str)}; expected those of "
                f"{', '.join(map(repr, self.learners))}. Give what get_weights() returns."
            )
        with self._one_thread.alone("set_weights()"), undone_on_error() as undo:
            for id_, state in weights.items():
                learner = self.learners[id_]
                undo(learner.mark())
                learner.set_weights(dict(state))
            self.send_policy()

    def _weights(self, timestep: int | None = None) -> Weights:
        """The newest weights, as runners take them: only what they act with, if that will do.

        They are of that many env steps of the run; None is all that were counted.
        """
        is_small = self.env_runner_group.takes_inference_only
        modules = {
            id_: ModuleWeights(
                learner.num_updates,
                learner.module.get_state(inference_only=is_small),
                exploration=self.explorations[id_].strategy.runner_state(),
            )
            for id_, learner in self.learners.items()
        }
        return Weights(
            ByModule(modules),
            timestep=self.counters.num_env_steps_sampled if timestep is None else timestep,
            connectors=self.env_runner_group.connector_state(),
        )

    def newest_policy(self, *, timestep: int | None = None) -> PolicySnapshot:
        """How the modules act now, whichever of them there are; after so many env steps."""
        return PolicySnapshot(self._weights(timestep), self.learners.map(_normalization_of))

    def policy_to_evaluate(self) -> PolicySnapshot:
        """How the modules act in an evaluation that begins now."""
        return dataclasses.replace(self.newest_policy(), table=self._modules.in_evaluation())

    def send_policy(self, *, timestep: int | None = None) -> None:
        """Lets the training runners act with the newest policy, or as `sample_ahead` says.

        It was made after so many env steps of the run; None is after all of them.
        """
        newest = self._ahead.acting or self.newest_policy(timestep=timestep)
        self.env_runner_group.act_with(newest)

    def _send_policy_if_others_set_weights(self) -> None:
        """For weights that were given to the learner or the module, which send no event."""
        policy = self._ahead.acting or live_state(self.newest_policy)  # only looked at
        if not self.env_runner_group.has_weights_of(policy):
            self.send_policy()

    @property
    def normalization(self) -> Normalization:
        """What is done to observations and rewards now; `normalization.observations(rows)` does it.

        For observations it changes when a training step is over, never within one, so runners and
        learner use the same; for rewards, whenever a sample was taken.
        It is that of an only module; of any it is `learners[module_id].normalization`.
        """
        return self.learner.normalization

    def apply_normalization(self) -> None:
        """Brings into force what follows from the statistics as they are now."""
        if not any(one.has_effect for one in self.normalizations.values()):
            return
        in_force = self.normalizations.map(NormalizationStatistics.current)
        for id_, learner in self.learners.items():
            learner.normalize_with(in_force[id_])
            self._inference[id_].normalize_with(in_force[id_])
        if self._ahead.acting is None:
            self.env_runner_group.act_with(PolicySnapshot(normalization=in_force))

    @takes(root_seed=integer(0))
    def adopt_root_seed(self, root_seed: int) -> None:
        """Derives all randomness to come from another seed."""
        self.root_seed = root_seed
        self.env_runner_group.set_root_seed(root_seed)
        self._inference = ByModule({id_: self._new_inference(id_) for id_ in self.learners})
        for id_, learner in self.learners.items():
            learner.root_seed = root_seed
            self._inference[id_].normalize_with(learner.normalization)
        evaluation = self.eval_env_runner_group
        if evaluation is not None:
            evaluation.set_root_seed(self._evaluation_root_seed)

    # ---- acting outside of training

    @takes(
        explore=optional(boolean()),
        timestep=optional(integer()),
        unsquash_action=optional(boolean()),
        clip_action=optional(boolean()),
    )
    def compute_single_action(
        self,
        observation: Any = None,
        state: Any = None,
        *,
        input_dict: Mapping[str, Any] | None = None,
        policy_id: ModuleId | None = None,
        agent_id: AgentId | None = None,
        full_fetch: bool = False,
        explore: bool | None = None,
        timestep: int | None = None,
        unsquash_action: bool | None = None,
        clip_action: bool | None = None,
        prev_action: Any = None,
        prev_reward: Any = None,
        info: Any = None,
        episode: Any = None,
    ) -> Any:
        """The action for one observation, as the env takes it.

        Args:
            observation: one element of the observation space.
            state: of a network with memory: what the call before returned, or at the beginning of
                an episode `algo.get_module().get_initial_state()`; else an empty list.
            input_dict: {"obs": observation}, instead of `observation`.
            policy_id: the module that acts; None is the only one, or that of `agent_id`.
            agent_id: with several agents: who acts, by the mapping of agents to modules.
            full_fetch: return more than the action.
            explore: use the exploration strategy (True), or take the most likely action (False);
                None as configured.
            timestep: where schedules of exploration stand; None: the env steps sampled so far.
            unsquash_action: scale from [-1, 1] to the bounds; None: `normalize_actions`.
            clip_action: clip to the bounds; None: `clip_actions`.
            prev_action: the action before, for networks with `lstm_use_prev_action`: "actions" of
                what the call before returned; None before the first one.
            prev_reward: the reward before, for networks with `lstm_use_prev_reward`.
            info: networks here do not read it.
            episode: with an agent: the episode in which it acts, for the mapping.

        Returns:
            The action; with `full_fetch` or a state: (action, state after, {"action_dist_inputs",
            "action_logp", "action_prob"}), the last two under the module's distribution. Without
            memory, the state is []; with memory, "actions" is the action as the module gave it.

        Raises:
            ConfigError: there is no such module, or no observation; or the module has memory, and
                its state is neither given nor fetched.
            ModuleError: the state is not of the module.
            EnvContractError: the observation is not of the observation space, or not finite.
            AlgorithmStoppedError: `stop()` was called.
        """
        self._refuse_if_stopped("compute_single_action")
        del info
        refuse_connectors(self.config, "compute_single_action")
        with self.reading("compute_single_action"):
            if policy_id is None and agent_id is not None:
                policy_id = self._modules_of([agent_id], episode)[agent_id]
            module_id = known_module(policy_id, self.learners, "policy_id")
            if observation is None and input_dict is not None:
                observation = input_dict.get("obs")
            request = ActionRequest(
                number=self.counters.num_actions_computed + 1,
                timestep=self.counters.num_env_steps_sampled if timestep is None else timestep,
                explore=explore,
                unsquash=unsquash_action,
                clip=clip_action,
                exploration_state=self.explorations[module_id].strategy.runner_state(),
                state=state,
                prev_action=prev_action,
                prev_reward=prev_reward,
            )
            answer = self._inference[module_id].answer(observation, request, full_fetch=full_fetch)
            self.counters.num_actions_computed += 1
            return answer

    def _modules_of(self, agents: Iterable[AgentId], episode: Any) -> dict[AgentId, ModuleId]:
        """The module that acts for each agent, by the mapping of the run."""
        group, mapping = self.env_runner_group, None
        if group.agents is not None:
            mapping = policy_mapping(
                group.table, group.agents, root_seed=self.root_seed, role=Role.TRAINING
            )
        return modules_of_agents(list(agents), mapping, episode=episode)

    def compute_actions(
        self,
        observations: Mapping[Any, Any],
        state: Mapping[Any, Any] | None = None,
        *,
        policy_id: ModuleId | None = None,
        policy_ids: Mapping[Any, ModuleId] | None = None,
        full_fetch: bool = False,
        unsquash_actions: bool | None = None,
        clip_actions: bool | None = None,
        episode: Any = None,
        episodes: Any = None,
        **options: Any,
    ) -> Any:
        """An action for each observation of a dict, under the same keys.

        With several modules, the one of each agent acts: by the mapping of the run, unless modules
        are named.

        Args:
            observations: by agent.
            state: see `compute_single_action`, by agent.
            policy_id: the module that acts for all.
            policy_ids: {agent: the module that acts for it}.
            full_fetch: return more than the actions.
            unsquash_actions: see `unsquash_action` there.
            clip_actions: see `clip_action` there.
            episode: in which the agents act, for the mapping.
            episodes: networks here do not read it.
            options: further arguments of `compute_single_action`, for all observations.

        Returns:
            The actions; with `full_fetch` or a state: (actions, states, extra outputs), each by
            agent.

        Raises:
            EnvContractError: the observations are no dict; see also `compute_single_action`.
        """
        del episodes
        if not isinstance(observations, Mapping):
            raise EnvContractError(
                f"compute_actions() got {nested.describe(observations)}; expected a dict of "
                "observations by agent. For a single one, ask compute_single_action(observation)."
            )
        options |= {"unsquash_action": unsquash_actions, "clip_action": clip_actions}
        by_key: Mapping[Any, ModuleId | None] = dict.fromkeys(observations, policy_id)
        if policy_ids is not None:
            by_key = modules_named(policy_ids, observations)
        elif policy_id is None and len(self.learners) > 1:
            by_key = self._modules_of(observations, episode)
        is_whole = full_fetch or state is not None
        options["full_fetch"] = is_whole
        states = state or {}
        with self.reading("compute_actions"):
            before = self.counters.num_actions_computed
            with undone_on_error() as undo:  # all actions, or none
                undo(partial(setattr, self.counters, "num_actions_computed", before))
                answers = {
                    key: self.compute_single_action(
                        observation, states.get(key), policy_id=by_key[key], **options
                    )
                    for key, observation in observations.items()
                }
        if not is_whole:
            return answers
        return tuple({key: parts[index] for key, parts in answers.items()} for index in range(3))

    # ---- what there is

    @property
    def training_iteration(self) -> int:
        """Iterations completed so far."""
        return self.counters.training_iteration

    @property
    def iteration(self) -> int:
        """The same as `training_iteration`."""
        return self.counters.training_iteration

    @property
    def env_runner(self) -> EnvRunner | None:
        """The training runner of the main process; None if the runners are processes."""
        return self.env_runner_group.local_env_runner

    @property
    def eval_env_runner_group(self) -> EnvRunnerGroup | None:
        """The evaluation runners; None until evaluation is configured or used."""
        return self._evaluations.group

    def _postprocessing_to_show(self) -> TrajectoryPostprocessing | None:
        """What trajectories get, if there is a listener."""
        is_wanted = self.callbacks.listens_to("on_postprocess_trajectory")
        return self.make_postprocessing() if is_wanted else None

    def _fire_recreated(self, indices: list[int], *, is_evaluation: bool) -> None:
        """Fires the events that runners were replaced."""
        group = self.eval_env_runner_group if is_evaluation else None
        arguments = {"algorithm": self, "is_evaluation": is_evaluation}
        self.callbacks.fire(
            "on_env_runners_recreated",
            env_runner_group=group or self.env_runner_group,
            env_runner_indices=indices,
            **arguments,
        )
        self.callbacks.fire(
            "on_workers_recreated",
            worker_set=group or self.env_runner_group,
            worker_ids=indices,
            **arguments,
        )

    # ---- saving

    def get_checkpointable_components(self) -> Collection[tuple[str, HasState]]:
        """The parts of the algorithm, in the order in which they are restored."""
        statistics, ids = self.normalizations, self.learners.ids
        connectors = {
            id_: ConnectorsRecord(one, self.apply_normalization)
            for id_, one in statistics.items()
            if one.has_state
        }
        exploration = {id_: one for id_, one in self.explorations.items() if one.has_state}
        return [
            ("config", ConfigRecord(self._config_state, self.adopt_root_seed)),
            *([(MODULES, self._modules)] if self._modules.has_state else []),
            ("counters", self.counters),
            ("learner", component_of(self.learners, ids)),
            *([("connectors", component_of(connectors, ids))] if connectors else []),
            *([("exploration", component_of(exploration, ids))] if exploration else []),
            ("env_runners", self.env_runner_group),
            *([(SAMPLE_AHEAD, self._ahead)] if self._ahead.is_on else []),
            ("evaluation", self._evaluations),
            ("metrics", MetricsRecord(self.metrics, self.episode_statistics)),
            ("callbacks", self.callbacks),
            *([(ATTRIBUTES, self._attributes)] if self._attributes.are_saved else []),
        ]

    def _config_state(self) -> State:
        """The settings; numbers of runners are those there are, which `add_workers` may raise."""
        state = self.config.get_state()
        state["settings"]["num_env_runners"] = self.env_runner_group.num_remote_env_runners()
        evaluation = self.eval_env_runner_group
        if evaluation is not None:
            num_env_runners = evaluation.num_remote_env_runners()
            state["settings"]["evaluation_num_env_runners"] = num_env_runners
        return {**state, "root_seed": self.root_seed}

    @contextlib.contextmanager
    def _saving(self) -> Iterator[None]:
        with self._one_thread.alone("save_to_path()"):
            self._refuse_in_training_step("save_to_path")
            self.env_runner_group.tasks.check_can_be_saved()
            with self._iterations.between.spent_on(SAVING):
                yield

    def _encoded(self, state: Mapping[str, Any] | None = None) -> EncodedCheckpoint:
        try:
            return super()._encoded(state)
        except ActorDiedError as error:
            raise CheckpointWriteError(
                f"No checkpoint was saved, and those that were saved before are whole. {error}"
            ) from error

    def _given_components(self, state: Mapping[str, Any]) -> dict[str, Any]:
        # Which actors there are now says nothing of a state from another time.
        given = flatten(self, state)
        of_now = partial(self.get_state, not_components=[ACTORS])
        expected = flatten(self, live_state(of_now))
        refuse_part(self, expected=expected, given=[name for name in given if name != ACTORS])
        return given

    def _start_save(self, save: BackgroundSave) -> None:
        with signals_deferred():
            super()._start_save(save)

    def _on_checkpoint_saved(self, path: str) -> None:
        self.callbacks.fire(
            "on_checkpoint_saved", algorithm=self, metrics_logger=self.metrics, path=path
        )

    def facts(self) -> dict[str, Any]:
        """What a checkpoint must have in common with this algorithm, whatever state it is in."""
        facts = ByModule({id_: self._facts_of(id_) for id_ in self.learners})
        return {
            "algorithm": type(self).__name__,
            "env": self.env_runner_group.env_name,
            **(facts.only if len(facts) == 1 else {"modules": dict(facts)}),
        }

    def _facts_of(self, module_id: ModuleId) -> dict[str, Any]:
        module = self.learners[module_id].module
        return {
            "observation_space": str(module.observation_space),
            "action_space": str(module.action_space),
            "module": class_name(type(module)),
            "num_parameters": module.num_parameters,
            "model_config": plain_model_config(self.module_specs[module_id].model_config),
        }

    def _checkpoint_metadata(self) -> dict[str, Any]:
        facts = self.facts()
        episodes = self.episode_statistics.result()
        return {
            "algorithm": facts.pop("algorithm"),
            "producer": "local-trainer",
            "producer_version": installed_version("local-trainer") or "unknown",
            "gymnasium": installed_version("gymnasium") or "unknown",
            "cloudpickle": installed_version("cloudpickle") or "unknown",
            "platform": platform.platform(),
            **facts,
            "num_env_runners": self.env_runner_group.num_remote_env_runners(),
            "num_env_slots": self.env_runner_group.num_slots,
            "running_episodes": self.env_runner_group.slot_states.ways_back(),
            "root_seed": self.root_seed,
            "training_iteration": self.counters.training_iteration,
            "num_env_steps_sampled_lifetime": self.counters.num_env_steps_sampled
            or self.counters.trained.num_env_steps,
            "num_episodes_lifetime": self.counters.played.num_episodes,
            "episode_return_mean": episodes.get("episode_return_mean"),
            "time_total_s": self._iterations.clock.total_s,
        }

    def _metadata_of(self, state: Mapping[str, Any] | None) -> dict[str, Any]:
        metadata = super()._metadata_of(state)
        if kept := self._actor_states.names_kept():
            metadata = {**metadata, "actors_not_here": kept}
        return metadata if state is None else metadata_of_state(state, metadata)

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The config; it is a component of its own, so it is not saved once more."""
        return (self.config,), {}

    def _plain_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (), {}

    def _is_own_work(self) -> bool:
        return self.config.source.is_trusted

    def _checkpoint_code(self) -> bytes | None:
        return self._code.pack()

    # ---- restoring

    @classmethod
    @takes(allow_code=boolean())
    def from_checkpoint(
        cls: type[_Self],
        path: PathLike,
        filesystem: object = None,
        *,
        config: AlgorithmConfig | Mapping[str, Any] | None = None,
        allow_code: bool = False,
        policy_ids: Collection[ModuleId] | None = None,
        **settings: Any,
    ) -> _Self:
        """A new algorithm that goes on where a checkpoint was saved.

        Args:
            path: a checkpoint, or the directory of a run, which stands for its newest whole
                checkpoint.
            filesystem: must be None: paths are local.
            config: the settings to build with; None takes those of the checkpoint.
            allow_code: let classes and functions of the saved config (callbacks, env creators) be
                unpickled, and an env be imported by its dotted name. That runs code from the
                checkpoint: say so only if you trust it like a program.
            policy_ids: the modules to go on with, of several agents; None is all. The others are
                gone, and so are running episodes in which they act. `policy_mapping_fn` and
                `policies_to_train` are given beside it as far as they named the others.
            settings: settings to change, by name: `num_env_runners=0`, `callbacks=MyCallbacks`,
                `env=MyEnv` …; dicts are merged into those that were saved (without `allow_code`,
                they replace one that holds code); `seed=…` gives another seed to all randomness to
                come. What has moved on since the start (`kl_coeff`, `initial_alpha` …) stays where
                it is.

        Raises:
            CheckpointError: the checkpoint is missing, damaged, of another algorithm or env.
            CodeNotAllowedError: its config holds code, which was neither allowed nor given.
            ConfigError: the settings are wrong.
            TypeError: `allow_code` is neither True nor False.
        """
        refuse_filesystem(filesystem)
        # As RLlib's arguments of these names: None keeps what the checkpoint says.
        as_saved = {"policy_mapping_fn", "policies_to_train"}
        settings = {k: v for k, v in settings.items() if k not in as_saved or v is not None}
        path = checkpoint_of_run(path)
        chosen = class_of_checkpoint(cls, path)
        chosen._settle_config_class()
        own = restored_config(path, chosen, config, settings, allow_code=allow_code)
        try:
            built = chosen(own)
        except MemoryError as error:
            raise CheckpointMismatchError(
                f"The settings of the checkpoint {path} ask for more memory than there is: "
                f"{error}. Nothing was changed. Give smaller ones, such as from_checkpoint(path, "
                'replay_buffer_config={"capacity": ...}) or num_envs_per_env_runner=...'
            ) from error
        try:
            built.restore_from_path(path, allow_code=allow_code)
            built._modules.take_given(settings, keep=policy_ids)
            if (seed := settings.get("seed")) is not None:  # given as such: not that of the run
                built.adopt_root_seed(int(seed))
        except BaseException:
            built.stop()
            raise
        return cast("_Self", built)

    @classmethod
    def from_state(cls: type[_Self], state: Mapping[str, Any], **settings: Any) -> _Self:
        """A new algorithm that goes on where `get_state()` was called.

        Args:
            state: what `get_state()` gave; Algorithm itself also needs its `algorithm_class`, as
                in `__getstate__()`.
            settings: settings to change, and those that are code, by name.

        Raises:
            ConfigError: the class or the config is missing, or settings are wrong.
            CheckpointMismatchError: the state does not fit the config in it.
        """
        chosen = class_of_state(cls, state)
        built = chosen(config_from_state(chosen, state["config"], settings))
        try:
            whole = {name: part for name, part in state.items() if name != "algorithm_class"}
            built._restoring.into_new(whole)
        except BaseException:
            built.stop()
            raise
        return cast("_Self", built)

    @takes(allow_code=boolean())
    def restore_from_path(
        self,
        path: PathLike,
        *,
        component: str | None = None,
        into: ModuleId | None = None,
        filesystem: object = None,
        allow_code: bool = False,
        **kwargs: Any,
    ) -> None:
        """Restores everything, or one component such as "learner/rl_module"; see `Checkpointable`.

        The directory of a run stands for its newest whole checkpoint. After everything was
        restored, `on_checkpoint_loaded` fires; runners play on from the state when they are next
        asked. A single component fires nothing.

        Args:
            path: see `Checkpointable`.
            component: see `Checkpointable`; "learner/main" is a module with its optimiser and
                counters, "learner/main/rl_module" its weights alone.
            into: the module of this algorithm that gets what another one had learnt. Nothing else
                changes.
            filesystem: see `Checkpointable`.
            allow_code: let the checkpoint name strategies of modules, which are then imported.
            kwargs: see `Checkpointable`.

        Raises:
            CodeNotAllowedError: it names some, and that is not allowed.
            ConfigError: `into` is no module, or the component belongs to none.
            CheckpointMismatchError: the two modules have different spaces or parameters; nothing
                was changed. For more see `Checkpointable`.
        """
        refuse_filesystem(filesystem)
        if kwargs:
            raise TypeError(
                f"{type(self).__name__}.restore_from_path() got the unknown argument(s) "
                f"{', '.join(kwargs)}. It takes `component`, `into`, `filesystem` and `allow_code`."
            )
        if component is not None and into is None:
            component = without_only_id(component, self.module_specs.ids)
        path = checkpoint_of_run(path)
        with self._one_thread.alone("restore_from_path()"):
            self._refuse_in_training_step("restore_from_path")
            self._refuse_if_stopped("restore_from_path")
            self.finish_saving()
            if into is not None:
                self._restore_into(into, path, component or "")
            else:
                self._restoring.from_path(path, component, allow_code=allow_code)

    def _components_that_may_lack(self) -> Collection[str]:
        """Those that either a checkpoint or the algorithm may lack; to be extended."""
        return ()

    def _note_restored(self, found: Collection[str]) -> None:
        """Called when a whole state was taken, with the components it had; to be extended."""

    def _restore_into(self, module_id: ModuleId, path: PathLike, component: str) -> None:
        """Gives a module what another one had learnt; arguments as in `restore_from_path`."""
        module_id = known_module(module_id, self.learners, "restore_from_path(into=…)")
        own = self._facts_of(module_id)
        component = component_for_module(read_manifest(path), component, into=module_id, own=own)
        learner = self.learners[module_id]
        target = learner.module if component.endswith("/rl_module") else learner
        target.restore_from_path(Path(path) / component)
        self.send_policy()

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
    ) -> State:
        """See `Checkpointable`; with the states of actors, if there are any that say so.

        Raises:
            ActorDiedError: an actor is gone whose state belongs to it, and was not made again.
            ConfigError: there is no component of a name.
        """
        self._check_component_names(components, not_components)
        with self._one_thread.alone("get_state()"):
            state = super().get_state(components, not_components=not_components)
            if not are_arrays_shown():
                state = with_own_positions(state)
            wants_actors = is_selected(ACTORS, components, not_components)
            if wants_actors and (actors := self._actor_states.get()):
                state[ACTORS] = actors
            return state

    def _check_component_names(self, *given: str | Collection[str] | None) -> None:
        names = [name for one in given for name in as_names(one) or ()]
        if not names:
            return
        known = {*dict(self.get_checkpointable_components()), *MAY_BE_MISSING}
        unknown = {name: None for name in names if name.partition("/")[0] not in known}
        if unknown and not unknown.keys() <= (own := {*self.get_state()} | known):
            refuse_component_names([*unknown], own, of=type(self).__name__)

    def set_state(self, state: State) -> None:
        """Takes back what `get_state` gave, whole or in part, and sends it to all runners.

        Raises:
            CheckpointMismatchError: a component is unknown, or does not fit; nothing was changed.
        """
        if isinstance(state, CheckedState):  # who checked it undoes it, too
            self._set_parts(state)
            return
        with self._one_thread.alone("set_state()"):
            self._refuse_in_training_step("set_state")
            self._restoring.from_user(state)

    def _set_parts(self, state: State) -> None:
        """Gives the parts a state that was checked, and the runners what follows."""
        with signals_deferred():  # an interrupt leaves all of it, or none
            if is_whole(state) and not (self._ahead.is_on and SAMPLE_AHEAD in state):
                self._ahead.drop()  # of a run with sample_ahead=False, or for one
            super().set_state(state)
            self.send_policy()
        if ACTORS in state:
            self._actor_states.set(state[ACTORS])

    # ---- end

    def stop(self) -> None:
        """Waits for a save in the background, ends all processes and closes all envs. Idempotent.

        Nothing but reading results is possible afterwards. While another thread trains, its
        `train()` waits for runners no longer: it is undone, and raises an AlgorithmStoppedError.

        Raises:
            CheckpointWriteError: a save in the background failed; everything has ended all the
                same. A `with` block that is left by an exception logs it instead.
            TrainerError: another thread is still at work after 10 s, in an update, a callback or an
                env of this process. All worker processes have ended; call it again when that
                thread is done.
        """
        self._is_stopped = True
        evaluation = self.eval_env_runner_group
        groups = [self.env_runner_group, *([] if evaluation is None else [evaluation])]
        self._end_call_of_other_thread(groups)
        try:
            self.finish_saving()
        finally:
            try:
                self._stop_groups(groups)
            finally:
                close_loggers(self)
                release_claims(self)

    def _end_call_of_other_thread(self, groups: Sequence[EnvRunnerGroup]) -> None:
        if not self._one_thread.other_at_work():
            return
        for group in groups:
            group.cancel()
        try:
            if doing := self._one_thread.other_at_work(after_s=_OTHERS_END_WITHIN_S):
                raise TrainerError(
                    f"stop() has waited {_OTHERS_END_WITHIN_S:.0f} s for {doing}, which is in an "
                    "update, a callback or an env of this process. All worker processes have "
                    "ended; what belongs to this process cannot be closed while it is in use. "
                    "Call stop() again when that thread is done."
                )
        except BaseException:
            for group in groups:
                group.kill()
            raise

    def _stop_groups(self, groups: Sequence[EnvRunnerGroup]) -> None:
        try:
            for group in reversed(groups):
                group.stop()
        except BaseException:  # closing an env runs the user's code, which may raise; or Ctrl-C
            with signals_deferred():
                for group in groups:
                    group.kill()
            raise

    @property
    def is_stopped(self) -> bool:
        """Whether `stop()` was called."""
        return self._is_stopped

    def _refuse_if_stopped(self, what: str) -> None:
        if self._is_stopped:
            raise AlgorithmStoppedError(
                f"{type(self).__name__}.{what}() was called after stop(): its env runners are "
                "gone. Build a new one, or restore one with from_checkpoint()."
            )

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.stop()
        except CheckpointWriteError as failed:
            if error is None:
                raise
            _LOGGER.error("%s", failed)  # what ends the block is the more important


def _names_learner(cls: type[Algorithm], config: Any, settings: Mapping[str, Any]) -> bool:
    """Whether what an algorithm is made from says how it learns."""
    if not isinstance(config, AlgorithmConfig):
        given = {**config, **settings} if isinstance(config, Mapping) else settings
        if given.get("learner_class") is not None:
            return True
        config = cls.get_default_config()
    return config.chosen_learner_class is not None


def _incomplete(cls: type[Algorithm], missing: Sequence[str]) -> str:
    return (
        f"{cls.__name__} cannot be built: {' and '.join(missing)} "
        f"{'is' if len(missing) == 1 else 'are'} missing. Derive it from an algorithm that "
        "learns (PPO, DQN, SAC, TD3, PG) and override what it does differently, such as "
        "training_step(); or write them: make_learner() returns a learner for "
        "self.module_spec (or the config names its class: `learner_class`, "
        "`get_default_learner_class()`), training_step() samples and learns once."
    )


def _normalization_of(learner: Learner) -> Normalization:
    return learner.normalization


def _no_module(method: str, module_id: object, known: Collection[ModuleId]) -> ModuleError:
    return ModuleError(
        f"{method}({module_id!r:.80}): there is no such module"
        f"{did_you_mean(module_id, known, IN_BRACKETS)}; there is "
        f"{', '.join(map(repr, known))}. Name one of these."
    )

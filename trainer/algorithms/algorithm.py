"""The algorithm: the object that users train, evaluate, save, restore and stop.

It owns the env runners, the learner, the evaluator, the counters and the metrics, and lets data
flow one way:

    env runners → episodes → learner → weights → env runners
"""

from __future__ import annotations

import abc
import copy
import dataclasses
import logging
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, ClassVar, Final, TypeVar

from callbacks.ready_made.checkpoint_directory import release_directories
from checkpoints import CheckpointWriteError
from checkpoints.arguments import checked_methods, integer, takes
from trainer.algorithms.algorithm_checkpoints import AlgorithmCheckpoints
from trainer.algorithms.algorithm_inference import AlgorithmInference
from trainer.algorithms.algorithm_parts import AlgorithmParts
from trainer.algorithms.algorithm_training import AlgorithmTraining
from trainer.algorithms.building import make_callbacks, make_group, own_config
from trainer.algorithms.counters import Counters
from trainer.algorithms.inference import Inference
from trainer.algorithms.registry import register_algorithm
from trainer.algorithms.run_clock import RunClock
from trainer.algorithms.sample_exploration import SampleExploration
from trainer.algorithms.state import ACTORS
from trainer.config import AlgorithmConfig
from trainer.config.specs import exploration_spec, normalization_settings
from trainer.connectors import NormalizationStatistics
from trainer.env_runners import SingleAgentEnvRunner
from trainer.errors import (
    AlgorithmStoppedError,
    ConfigError,
    DebuggerError,
    FrozenConfigError,
    ModuleError,
    TrainerError,
)
from trainer.learners import Learner
from trainer.metrics import EpisodeStatistics, MetricsLogger, ResultDict
from trainer.modules import RLModule
from trainer.rllib_names.algorithm_names import AlgorithmNames
from trainer.rllib_names.refused_overrides import ALGORITHM_OVERRIDES, refuse_overrides
from trainer.runtime.signals import signals_deferred
from trainer.runtime.threads import single_threaded_blas
from trainer.seeding import Role, draw_root_seed
from trainer.types import DEFAULT_MODULE_ID, State

_LOGGER: Final = logging.getLogger(__name__)
_Made = TypeVar("_Made")
_Self = TypeVar("_Self", bound="Algorithm")


@checked_methods()
class Algorithm(AlgorithmTraining, AlgorithmInference, AlgorithmCheckpoints, AlgorithmNames):
    """Trains a module in envs, step by step.

        with PPOConfig().environment("CartPole-v1").build_algo() as algo:
            for _ in range(10):
                result = algo.train()
            algo.save_to_path("runs/cartpole")

    `train()` either returns a result or leaves the algorithm as it was: whatever is raised in the
    middle of an iteration, everything is put back to where the iteration began.

    Subclasses name their `config_class` and implement `make_learner` and `training_step`. A class
    derived from PPO or another algorithm may override `training_step`, `step`, `setup`, `evaluate`
    and `get_default_config`, too. The attributes are described in `AlgorithmParts`.
    """

    config_class: ClassVar[type[AlgorithmConfig]] = AlgorithmConfig
    _is_undoable: bool = False
    _undone_apart: ClassVar[tuple[str, ...]] = (ACTORS,)  # nothing is asked of them per iteration

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        refuse_overrides(cls, ALGORITHM_OVERRIDES)
        if "config_class" in cls.__dict__:
            cls.config_class.default_algo_class = cls
            register_algorithm(cls)

    def __new__(cls: type[_Self], *_: Any, **__: Any) -> _Self:
        """An algorithm, unless its class is not complete."""
        missing = sorted(getattr(cls, "__abstractmethods__", ()))
        if missing:
            raise ConfigError(
                f"{cls.__name__} cannot be built: {' and '.join(missing)} "
                f"{'is' if len(missing) == 1 else 'are'} missing. Derive it from an algorithm that "
                "learns (PPO, DQN, SAC, PG) and override what it does differently, such as "
                "training_step(); or write them: make_learner() returns a learner for "
                "self.module_spec, training_step() samples and learns once."
            )
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
        self.counters = Counters()
        self.metrics = MetricsLogger(root=True)
        self.episode_statistics = EpisodeStatistics(
            smoothing=self.config.metrics_num_episodes_for_smoothing,
            keep_per_episode_custom_metrics=self.config.keep_per_episode_custom_metrics,
        )
        self._clock = RunClock()
        self._last_evaluation = {}
        self._evaluation_reported_at = None
        self._evaluator = None
        self._evaluator_state = {"num_evaluations": 0, "callbacks": {}}
        self.callbacks = make_callbacks(self.config)
        self.env_runner_group = make_group(
            self.config,
            Role.TRAINING,
            root_seed=self.root_seed,
            on_recreated=lambda indices: self._tell_recreated(indices, is_evaluation=False),
            on_metrics=lambda logged: self.metrics.aggregate(logged, key="env_runners"),
            postprocessing=self._postprocessing_to_show(),
        )
        try:
            self.setup(self.config)
            self._refuse_half_setup()
            self.callbacks.fire("on_algorithm_init", algorithm=self, metrics_logger=self.metrics)
        except BaseException:
            self.stop()
            raise

    def __setattr__(self, name: str, value: Any) -> None:
        config = self.__dict__.get("config")
        if config is not None and (name == "config" or name in config):
            is_first_time = name in AlgorithmParts.__annotations__ and name not in self.__dict__
            if not (is_first_time or hasattr(type(self), name)):
                raise FrozenConfigError.of_attribute(self, name, value)
        super().__setattr__(name, value)

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
        if "normalization_statistics" not in self.__dict__:
            raise TrainerError(
                f"{type(self).__name__}.setup() built no env runners and no learner. Call "
                "super().setup(config) in it, before what it adds."
            )

    def _set_up(self) -> None:
        self.env_runner_group.start()
        if self.config.env_task_fn is not None:
            self.env_runner_group.require_tasks("env_task_fn")
        self.module_spec = dataclasses.replace(
            self.env_runner_group.module_spec, inference_only=False
        )
        self.learner = self.make_learner()
        self.sample_exploration = SampleExploration(
            exploration_spec(self.config),
            self.learner,
            root_seed=self.root_seed,
            num_workers=self.config.num_env_runners,
            normalize_actions=self.config.normalize_actions,
        )
        self._send_weights()
        self._inference = Inference(self.learner.module, self.config, self.root_seed)
        self.normalization_statistics = NormalizationStatistics(
            normalization_settings(
                self.config, num_slots=self.env_runner_group.num_slots, module=self.module_spec
            ),
            self.learner.make_encoder(),
        )
        self.apply_normalization()
        if self.config.evaluation_interval:
            self._get_evaluator().group.start()

    # ---- what subclasses implement

    @abc.abstractmethod
    def make_learner(self) -> Learner:
        """The learner of this algorithm, for `self.module_spec`."""

    # ---- training and evaluating

    def train(self) -> ResultDict:
        """Runs one training iteration.

        Returns:
            the result: metrics by path (`result["env_runners/episode_return_mean"]`), counters,
            times; the keys are listed in `trainer.metrics.keys`.

        Raises:
            AlgorithmStoppedError: `stop()` was called.
            CallbackError: a callback raised.
            RunnerLostError: a runner's process died and may not be replaced.
            CheckpointWriteError: a save in the background failed; nothing was begun. Call again.
            Exception: what the user's env or module raised, if the runner may not be replaced.
        """
        self._refuse_if_stopped("train")
        self._refuse_within_train()
        # Before anything begins, so that a failed save costs no iteration.
        self._notice_end_of_save(wait=False)
        self._send_weights_if_others_set_them()
        try:
            return self._all_or_nothing(self._train)
        except DebuggerError as error:
            # The text says where the debugger was called; our own frames would only hide it.
            raise error.with_traceback(None) from None

    def _all_or_nothing(self, make: Callable[[], _Made]) -> _Made:
        """What `make()` returns; if it raises, everything is put back to where it began.

        No context manager: an interrupt while one is left would let it undo much later, whenever
        it is collected.
        """
        is_nested, is_training = self._is_undoable, self._is_training
        undo = self._mark(is_nested=is_nested)
        try:
            self._is_undoable = True
            with single_threaded_blas():
                made = make()
            self._is_undoable = is_nested
            return made
        except BaseException:
            with signals_deferred():
                undo()
                self._is_undoable = is_nested
                self._note_training(is_training=is_training)
            raise

    def _mark(self, *, is_nested: bool) -> Callable[[], None]:  # noqa: ARG002 - for subclasses
        """Returns what puts everything back to where it is now.

        Args:
            is_nested: somebody else, who will end later, wants to be able to go back further.
        """
        before, clock = self.get_state(not_components=self._undone_apart), copy.copy(self._clock)
        evaluations = self._note_evaluations()

        def undo() -> None:
            with self._undoing_evaluations(evaluations), self._states_checked():
                self.set_state(before)
            self._clock = clock

        return undo

    def evaluate(self) -> ResultDict:
        """Plays evaluation episodes with the newest weights, at any time.

        Training is not disturbed: neither its episodes nor its metrics nor its random numbers.

        Returns:
            metrics of the episodes of this evaluation alone (`env_runners/…`), dated by
            `evaluated_at_iteration` and `weights_version`.
        """
        self._refuse_if_stopped("evaluate")
        return self._all_or_nothing(self._evaluate)

    @takes(root_seed=integer(0))
    def adopt_root_seed(self, root_seed: int) -> None:
        """Derives all randomness to come from another seed."""
        self.root_seed = root_seed
        self.env_runner_group.set_root_seed(root_seed)
        self.learner.root_seed = root_seed
        self._inference = Inference(self.learner.module, self.config, root_seed)
        self._inference.normalize_with(self.normalization)
        if self._evaluator is not None and self.config.evaluation_seed is None:
            self._evaluator.group.set_root_seed(root_seed)

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
    def env_runner(self) -> SingleAgentEnvRunner | None:
        """The training runner of the main process; None if the runners are processes."""
        return self.env_runner_group.local_env_runner

    def get_module(self, module_id: str = DEFAULT_MODULE_ID) -> RLModule | None:
        """The learner's module, with the newest weights; None for an id that does not exist."""
        return self.learner.module if module_id == DEFAULT_MODULE_ID else None

    def get_weights(self) -> State:
        """Copies of all weights: module id → name → array."""
        return {DEFAULT_MODULE_ID: self.learner.module.get_state()}

    def set_weights(self, weights: Mapping[str, Mapping[str, Any]]) -> None:
        """Replaces the weights everywhere.

        Raises:
            ModuleError: names or shapes do not fit; nothing is changed.
        """
        if DEFAULT_MODULE_ID not in weights:
            raise ModuleError(
                f"set_weights() got weights of {sorted(weights)}; expected those of "
                f"{DEFAULT_MODULE_ID!r}. Give what get_weights() returns."
            )
        self.learner.set_weights(dict(weights[DEFAULT_MODULE_ID]))
        self._send_weights()

    # ---- end

    def stop(self) -> None:
        """Waits for a save in the background, ends all processes and closes all envs. Idempotent.

        Nothing but reading results is possible afterwards.

        Raises:
            CheckpointWriteError: a save in the background failed; everything has ended all the
                same. A `with` block that is left by an exception logs it instead.
        """
        try:
            self.finish_saving()
        finally:
            self._is_stopped = True
            release_directories(self)
            self._stop_groups()

    def _stop_groups(self) -> None:
        evaluator = self._evaluator
        groups = [self.env_runner_group, *([] if evaluator is None else [evaluator.group])]
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

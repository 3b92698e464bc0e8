"""Saving an algorithm and bringing it back: what is in a checkpoint, in which order, and what is
checked first.

| component | what it holds |
|---|---|
| config | the settings that are plain data, for `from_checkpoint`; restoring into an algorithm leaves its own alone |
| counters | lifetime counts |
| learner/… | weights, optimiser, coefficients |
| env_runners | where every env slot stands, running episodes included; state of the runners' callbacks |
| evaluation | number of the next evaluation, the last one's result, state of the evaluation runners' callbacks |
| metrics | windows and sums |
| callbacks | state of the main process' callback objects |
"""

from __future__ import annotations

import copy
import logging
import platform
from collections.abc import Collection, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

from checkpoints import (
    Checkpointable,
    CheckpointMismatchError,
    HasState,
    Manifest,
    StateError,
    is_selected,
    pack_code,
    read_checkpoint,
    read_code,
    read_manifest,
)
from checkpoints.listing import PathLike
from trainer.algorithms.registry import algorithm_class
from trainer.config import AlgorithmConfig
from trainer.types import State

_LOGGER = logging.getLogger(__name__)
_Self = TypeVar("_Self", bound="AlgorithmCheckpoints")


class AlgorithmCheckpoints(Checkpointable):
    """What an algorithm adds to `Checkpointable`: its components, its checks, its events."""

    config: AlgorithmConfig
    # The rest of the algorithm, as far as it is used here; see `Algorithm`.
    root_seed: int
    counters: Any
    learner: Any
    metrics: Any
    callbacks: Any
    env_runner_group: Any
    _clock: Any
    _episode_statistics: Any
    _evaluator: Any
    _evaluator_state: State
    _last_evaluation: dict[str, Any]

    def _adopt_root_seed(self, root_seed: int) -> None:
        raise NotImplementedError

    def _restore_evaluator(self, state: State) -> None:
        raise NotImplementedError

    def get_checkpointable_components(self) -> Collection[tuple[str, HasState]]:
        """The parts of the algorithm, in the order in which they are restored."""
        return [
            ("config", _ConfigRecord(self)),
            ("counters", self.counters),
            ("learner", _LearnerParts(self.learner)),
            ("env_runners", self.env_runner_group),
            ("evaluation", _EvaluationRecord(self)),
            ("metrics", _MetricsRecord(self.metrics, self._episode_statistics)),
            ("callbacks", self.callbacks),
        ]

    # ---- saving

    def save_to_path(self, path: PathLike | None = None) -> str:
        """Saves everything that is needed to go on, and returns the directory's absolute path.

        Args:
            path: a directory that does not exist, is empty, or holds a checkpoint, which is
                replaced once the new one is complete. None makes a temporary directory.

        Raises:
            StateError: something is not plain data; names the place. Nothing is written then.
            CheckpointWriteError: the directory cannot be written; what was there before is whole.
        """
        saved = super().save_to_path(path)
        self.callbacks.fire(
            "on_checkpoint_saved", algorithm=self, metrics_logger=self.metrics, path=saved
        )
        return saved

    def _checkpoint_metadata(self) -> dict[str, Any]:
        module = self.learner.module
        episodes = self._episode_statistics.result()
        return {
            "algorithm": type(self).__name__,
            "producer": "local-trainer",
            "producer_version": _version("local-trainer"),
            "gymnasium": _version("gymnasium"),
            "cloudpickle": _version("cloudpickle"),
            "platform": platform.platform(),
            "env": self.env_runner_group.env_name,
            "observation_space": str(module.observation_space),
            "action_space": str(module.action_space),
            "module": type(module).__qualname__,
            "num_parameters": module.num_parameters,
            "num_env_runners": self.config.num_env_runners,
            "num_env_slots": self.env_runner_group.num_slots,
            "root_seed": self.root_seed,
            "training_iteration": self.counters.training_iteration,
            "num_env_steps_sampled_lifetime": self.counters.num_env_steps_sampled,
            "num_episodes_lifetime": self.counters.num_episodes,
            "episode_return_mean": episodes.get("episode_return_mean"),
            "time_total_s": self._clock.total_s,
        }

    def _checkpoint_code(self) -> bytes | None:
        code = {name: self.config[name] for name in self.config.names_of_code()}
        if not code:
            return None
        try:
            return pack_code(code)
        except StateError as error:
            _LOGGER.warning(
                "The checkpoint is written without the settings %s, which cannot be pickled (%s). To restore it, "
                "build an algorithm with the same config and call restore_from_path().",
                sorted(code), error,
            )  # fmt: skip
            return None

    # ---- restoring

    @classmethod
    def from_checkpoint(
        cls: type[_Self],
        path: PathLike,
        *,
        config: AlgorithmConfig | Mapping[str, Any] | None = None,
        allow_code: bool = False,
        **settings: Any,
    ) -> _Self:
        """A new algorithm that goes on where a checkpoint was saved.

        Args:
            path: a checkpoint.
            config: the settings to build with; None takes those of the checkpoint.
            allow_code: let classes and functions of the saved config (callbacks, env creators) be
                unpickled. That runs
                code from the checkpoint: say so only if you trust it like a program.
            settings: settings to change, by name: `num_env_runners=0`, `callbacks=MyCallbacks`,
                `env=MyEnv` …

        Raises:
            CheckpointError: the checkpoint is missing, damaged, of another algorithm or env.
            CodeNotAllowedError: its config holds code, which was neither allowed nor given.
            ConfigError: the settings are wrong.
        """
        manifest = read_manifest(path)
        algorithm = (
            algorithm_class(manifest.metadata.get("algorithm", "")) if cls._is_abstract() else cls
        )
        built = algorithm(
            _restored_config(path, algorithm, config, settings, allow_code=allow_code)
        )
        try:
            built.restore_from_path(path)
        except BaseException:
            built.stop()
            raise
        return built

    @classmethod
    def _is_abstract(cls) -> bool:
        return bool(getattr(cls, "__abstractmethods__", None))

    def _check_manifest(self, manifest: Manifest) -> None:
        facts, own = manifest.metadata, self._checkpoint_metadata()
        checked = ("algorithm", "observation_space", "action_space", "module", "num_parameters")
        different = [
            f"{name}: the checkpoint has {facts.get(name)!r}, this algorithm {own[name]!r}"
            for name in checked
            if facts.get(name) != own[name]
        ]
        if different:
            raise CheckpointMismatchError(
                f"The checkpoint is of env {facts.get('env')!r} and does not fit this {type(self).__name__} of env "
                f"{own['env']!r}: {'; '.join(different)}. Nothing was changed. Build the algorithm with the config "
                "that the checkpoint was saved with, or use from_checkpoint()."
            )
        if facts.get("env") != own["env"]:
            _LOGGER.warning("The checkpoint was saved with env %r; this algorithm has %r of the same spaces.",
                            facts.get("env"), own["env"])  # fmt: skip
        self._restored_time_s = float(facts.get("time_total_s") or 0.0)

    def set_state(self, state: State) -> None:
        """Takes back what `get_state` gave, whole or in part, and sends it to all runners."""
        super().set_state(state)
        self._send_weights()

    def _put_back(self, state: State) -> None:
        """Undoes an iteration that was interrupted."""
        self.set_state(state)

    def _send_weights(self) -> None:
        raise NotImplementedError

    def _on_restored(self) -> None:
        self._clock.restore(self._restored_time_s)
        self.callbacks.fire("on_checkpoint_loaded", algorithm=self, metrics_logger=self.metrics)

    # ---- the older names

    def save(self, checkpoint_dir: PathLike | None = None) -> str:
        """Older name of `save_to_path`."""
        return self.save_to_path(checkpoint_dir)

    def restore(self, checkpoint_path: PathLike) -> None:
        """Older name of `restore_from_path`."""
        self.restore_from_path(checkpoint_path)

    def save_checkpoint(self, checkpoint_dir: PathLike) -> str:
        """Older name of `save_to_path`."""
        return self.save_to_path(checkpoint_dir)

    def load_checkpoint(self, checkpoint_dir: PathLike) -> None:
        """Older name of `restore_from_path`."""
        self.restore_from_path(checkpoint_dir)


def _restored_config(
    path: PathLike,
    algorithm: type[Any],
    config: AlgorithmConfig | Mapping[str, Any] | None,
    settings: Mapping[str, Any],
    *,
    allow_code: bool,
) -> AlgorithmConfig:
    """The config to build with: the caller's if given, else the checkpoint's, changed by `settings`."""
    config_class: type[AlgorithmConfig] = algorithm.config_class
    if isinstance(config, AlgorithmConfig):
        return config.copy(copy_frozen=False).update_from_dict(settings)
    if config is not None:
        return config_class.from_dict(config).update_from_dict(settings)
    state = read_checkpoint(path, "config").components["config"]
    code: dict[str, Any] = config_class.overrides(**settings)
    if not set(state["code"]) <= code.keys():
        saved = read_code(path, allow_code=allow_code)
        code = {**saved, **code}
    restored = config_class.from_state({"class": state["class"], "settings": state["settings"], "code": state["code"]},
                                       code=code)  # fmt: skip
    if restored.seed is None:
        restored.seed = state["root_seed"]
    return restored


class _ConfigRecord:
    """The settings beside the state: written for `from_checkpoint`; an algorithm keeps those it was built with.

    The root seed is the exception: the numbers to come follow from it.
    """

    def __init__(self, algorithm: AlgorithmCheckpoints) -> None:
        self._algorithm = algorithm

    def get_state(self) -> State:
        return {**self._algorithm.config.get_state(), "root_seed": self._algorithm.root_seed}

    def set_state(self, state: State) -> None:
        self._algorithm._adopt_root_seed(state["root_seed"])


class _LearnerParts(Checkpointable):
    """The learner as components of their own, so that weights can be restored alone."""

    def __init__(self, learner: Any) -> None:
        self._learner = learner

    def get_state(self, components: Any = None, *, not_components: Any = None) -> State:
        state = self._learner.get_state()
        return {
            name: part
            for name, part in state.items()
            if is_selected(name, components, not_components)
        }

    def set_state(self, state: State) -> None:
        # The learner takes all its parts or none, so that a state that does not fit changes nothing.
        self._learner.set_state({**self._learner.get_state(), **state})

    def get_checkpointable_components(self) -> Collection[tuple[str, HasState]]:
        return [(name, _LearnerPart(self._learner, name)) for name in self._learner.get_state()]


class _LearnerPart:
    """One component of the learner."""

    def __init__(self, learner: Any, name: str) -> None:
        self._learner = learner
        self._name = name

    def get_state(self) -> State:
        state: State = self._learner.get_state()[self._name]
        return state

    def set_state(self, state: State) -> None:
        self._learner.set_state({**self._learner.get_state(), self._name: state})


class _EvaluationRecord:
    """The evaluator's state, also while there is none yet."""

    def __init__(self, algorithm: AlgorithmCheckpoints) -> None:
        self._algorithm = algorithm

    def get_state(self) -> State:
        evaluator = self._algorithm._evaluator  # noqa: SLF001 - a part of the same object
        return {
            "evaluator": evaluator.get_state()
            if evaluator is not None
            else self._algorithm._evaluator_state,
            "last": copy.deepcopy(self._algorithm._last_evaluation),
        }

    def set_state(self, state: State) -> None:
        self._algorithm._restore_evaluator(state["evaluator"])
        self._algorithm._last_evaluation = copy.deepcopy(state["last"])


class _MetricsRecord:
    """The logger and the episode statistics under one name."""

    def __init__(self, logger: HasState, episodes: HasState) -> None:
        self._parts = {"logger": logger, "episodes": episodes}

    def get_state(self) -> State:
        return {name: part.get_state() for name, part in self._parts.items()}

    def set_state(self, state: State) -> None:
        for name, part in self._parts.items():
            part.set_state(state[name])


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "unknown"


def default_checkpoint_directory(run_directory: PathLike, iteration: int) -> Path:
    """Where a run's checkpoint of one iteration goes: `<run>/checkpoints/000010`."""
    return Path(run_directory) / "checkpoints" / f"{iteration:06d}"

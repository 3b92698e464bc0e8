"""Saving an algorithm and bringing it back: metadata, checks before anything is changed, events.

What is in a checkpoint, and in which order, is in `state`.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import platform
from collections.abc import Collection, Iterator, Mapping
from importlib import metadata
from types import MappingProxyType
from typing import Any, Final, TypeVar, cast

from checkpoints import (
    CheckpointMismatchError,
    HasState,
    Manifest,
    NewArray,
    PathLike,
    StateError,
    is_selected,
    pack_code,
    read_manifest,
)
from checkpoints.checkpointable import refuse_filesystem
from checkpoints.code import check_switch, large_globals
from checkpoints.components import flatten
from checkpoints.run_directories import checkpoint_of_run
from checkpoints.writer import EncodedCheckpoint
from trainer.actors.handles import get_actor_states, set_actor_states, with_kept
from trainer.algorithms.given_states import GivenStates
from trainer.algorithms.model_difference import model_difference, plain_model_config
from trainer.algorithms.registry import algorithm_class, is_registered
from trainer.algorithms.restored_config import class_of_state, config_from_state, restored_config
from trainer.algorithms.state import ACTORS, components_of
from trainer.config import AlgorithmConfig
from trainer.rllib_names.policy_arguments import without_policy_arguments
from trainer.runtime.signals import signals_deferred
from trainer.types import State

_LOGGER = logging.getLogger(__name__)
_Self = TypeVar("_Self", bound="AlgorithmCheckpoints")


_SPACES: Final = ("observation_space", "action_space")
_FACTS: Final = ("algorithm", *_SPACES, "module", "num_parameters")
"""Of the manifest: what must be the same here."""

_FACTS_OF: Final[Mapping[str | None, tuple[str, ...]]] = MappingProxyType(
    {"replay_buffer": _SPACES, "env_runners": _SPACES, "counters": (), "metrics": ()}
)
"""The same of components that say nothing of a network, if they are restored alone."""


_LARGE_CODE_BYTES: Final = 5_000_000


class AlgorithmCheckpoints(GivenStates):
    """What an algorithm adds to `Checkpointable`: its components, its checks, its events."""

    _versions_in_metadata = ("producer_version", "gymnasium")
    _restored_time_s: float
    _restores_all: bool
    _restored_component: str | None = None
    _has_told_large_code: bool = False
    _may_miss_actors = False
    """Whether a state may be taken without those actors that are gone: to compare, or to undo."""

    _kept_actor_states: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
    """Of the checkpoint that was restored: the states of actors that nobody made here."""

    def get_checkpointable_components(self) -> Collection[tuple[str, HasState]]:
        """The parts of the algorithm, in the order in which they are restored."""
        return components_of(self)

    # ---- saving

    def _facts(self) -> dict[str, Any]:
        """What a checkpoint must have in common with this algorithm, whatever state it is in."""
        module = self.learner.module
        return {
            "algorithm": type(self).__name__,
            "env": self.env_runner_group.env_name,
            "observation_space": str(module.observation_space),
            "action_space": str(module.action_space),
            "module": type(module).__qualname__,
            "num_parameters": module.num_parameters,
            "model_config": plain_model_config(self.module_spec.model_config),
        }

    def _checkpoint_metadata(self) -> dict[str, Any]:
        facts = self._facts()
        episodes = self.episode_statistics.result()
        return {
            "algorithm": facts.pop("algorithm"),
            "producer": "local-trainer",
            "producer_version": _version("local-trainer"),
            "gymnasium": _version("gymnasium"),
            "cloudpickle": _version("cloudpickle"),
            "platform": platform.platform(),
            **facts,
            "num_env_runners": self.env_runner_group.num_remote_env_runners(),
            "num_env_slots": self.env_runner_group.num_slots,
            "running_episodes": self.env_runner_group.ways_back(),
            "root_seed": self.root_seed,
            "training_iteration": self.counters.training_iteration,
            "num_env_steps_sampled_lifetime": self.counters.num_env_steps_sampled,
            "num_episodes_lifetime": self.counters.num_episodes,
            "episode_return_mean": episodes.get("episode_return_mean"),
            "time_total_s": self._clock.total_s,
        }

    def _metadata_of(self, state: Mapping[str, Any] | None) -> dict[str, Any]:
        metadata = super()._metadata_of(state)
        if kept := [name for names in self._kept_actor_states.values() for name in names]:
            metadata = {**metadata, "actors_not_here": sorted(kept)}
        if state is None:
            return metadata
        counters = state["counters"]
        return {
            **metadata,
            "root_seed": state["config"]["root_seed"],
            "training_iteration": counters["training_iteration"],
            "num_env_steps_sampled_lifetime": counters["num_env_steps_sampled"],
            "num_episodes_lifetime": counters["num_episodes"],
            "episode_return_mean": None,  # of another time
        }

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The config; it is a component of its own, so it is not saved once more."""
        return (self.config,), {}

    def _plain_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (), {}

    def _checkpoint_code(self) -> bytes | None:
        code = {name: self.config[name] for name in self.config.names_of_code()}
        if not code:
            return None
        try:
            packed = pack_code(code)
            self._tell_large_code(code, len(packed))
            return packed
        except StateError as error:
            _LOGGER.warning(
                "The checkpoint is written without the settings %s, which cannot be pickled (%s). "
                "To restore it, build an algorithm with the same config and call "
                "restore_from_path().",
                sorted(code),
                error,
            )
            return None

    def _tell_large_code(self, code: Mapping[str, Any], num_bytes: int) -> None:
        if num_bytes < _LARGE_CODE_BYTES or self._has_told_large_code:
            return
        self._has_told_large_code = True
        data = large_globals(code, at_least_bytes=_LARGE_CODE_BYTES // 10)
        names = ", ".join(f"`{name}` ({size / 1e6:,.1f} MB)" for name, size in data.items())
        _LOGGER.warning(
            "The code in every checkpoint has %.1f MB, because the settings %s are saved with the "
            "data that they refer to%s. Read such data where it is used (in the `__init__` of the "
            "env or callback, from a file), or put the code into a module that is imported.",
            num_bytes / 1e6,
            sorted(code),
            f": the global {names}" if names else "",
        )

    # ---- restoring

    @classmethod
    def from_checkpoint(
        cls: type[_Self],
        path: PathLike,
        filesystem: object = None,
        *,
        config: AlgorithmConfig | Mapping[str, Any] | None = None,
        allow_code: bool = False,
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
            settings: settings to change, by name: `num_env_runners=0`, `callbacks=MyCallbacks`,
                `env=MyEnv` …; `seed=…` gives another seed to all randomness to come. What has moved
                on since the start (`kl_coeff`, `initial_alpha` …) stays where it is.

        Raises:
            CheckpointError: the checkpoint is missing, damaged, of another algorithm or env.
            CodeNotAllowedError: its config holds code, which was neither allowed nor given.
            ConfigError: the settings are wrong.
            TypeError: `allow_code` is neither True nor False.
        """
        refuse_filesystem(filesystem)
        check_switch("allow_code", allow_code)
        settings = without_policy_arguments(settings)
        path = checkpoint_of_run(path)
        chosen: type[Any] = cls
        saved = read_manifest(path).metadata.get("algorithm", "")
        if getattr(cls, "__abstractmethods__", None):  # Algorithm itself: the checkpoint says which
            if not is_registered(saved):
                raise CheckpointMismatchError(
                    f"The checkpoint {path} is of the algorithm {saved!r}, which is none of those "
                    "that are found by name. If it is a class of yours, import it and call "
                    f"{saved or 'MyAlgorithm'}.from_checkpoint(path)."
                )
            chosen = algorithm_class(saved)
        elif saved != cls.__name__:
            raise CheckpointMismatchError(
                f"The checkpoint {path} is of the algorithm {saved!r}, which {cls.__name__} cannot "
                f"go on with. Call {saved or 'Algorithm'}.from_checkpoint()"
                + (
                    ", or Algorithm.from_checkpoint(), which finds the class by itself."
                    if is_registered(saved)
                    else " of that class, after it was imported."
                )
            )
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
            built.restore_from_path(path)
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
            built._take_whole_state({k: v for k, v in state.items() if k != "algorithm_class"})
        except BaseException:
            built.stop()
            raise
        return cast("_Self", built)

    def _take_whole_state(self, state: State) -> None:
        """Restores from memory what `restore_from_path` restores from files."""
        with self._missing_actors_allowed():
            expected = list(flatten(self, self.get_state()))
        self._check_components(
            expected=expected, found=list(flatten(self, state)), path="the state"
        )
        self.check_state(state)
        with self._states_checked():
            self.set_state(state)
        self._restores_all, self._restored_time_s = True, 0.0
        self._on_restored()

    def _check_manifest(self, manifest: Manifest) -> None:
        facts, own = manifest.metadata, self._facts()
        checked = _FACTS_OF.get(self._restored_component, _FACTS)
        different = [
            f"{name}: the checkpoint has {facts.get(name)!r}, this algorithm {own[name]!r}"
            for name in checked
            if facts.get(name) != own[name]
        ]
        models = model_difference(facts.get("model_config"), own["model_config"])
        models = models if checked is _FACTS else ""
        if different:
            different += [models] if models else []
            raise CheckpointMismatchError(
                f"The checkpoint is of env {facts.get('env')!r} and does not fit this "
                f"{type(self).__name__} of env {own['env']!r}: {'; '.join(different)}. Nothing was "
                "changed. Build the algorithm with the config that the checkpoint was saved with, "
                "or use from_checkpoint()."
            )
        if models:
            _LOGGER.warning(
                "%s. The weights have the same shapes, but what the network makes of them may be "
                "something else.",
                models,
            )
        if facts.get("env") != own["env"]:
            _LOGGER.warning(
                "The checkpoint was saved with env %r; this algorithm has %r of the same spaces.",
                facts.get("env"),
                own["env"],
            )
        self._restored_time_s = float(facts.get("time_total_s") or 0.0)

    def restore_from_path(
        self,
        path: PathLike,
        *,
        component: str | None = None,
        filesystem: object = None,
        **kwargs: Any,
    ) -> None:
        """Restores everything, or one component such as "learner/rl_module"; see `Checkpointable`.

        The directory of a run stands for its newest whole checkpoint. After everything was
        restored, all runners hold the state and `on_checkpoint_loaded` fires. A single component
        fires nothing.
        """
        self._restores_all, self._restored_component = component is None, component
        path = checkpoint_of_run(path)
        super().restore_from_path(path, component=component, filesystem=filesystem, **kwargs)

    def _restore(
        self, path: PathLike, component: str | None, large: Mapping[str, NewArray]
    ) -> None:
        kept = self._kept_actor_states
        if component is None:  # those of another state
            self._kept_actor_states = {}
        try:
            # Restoring checks states itself, and also undoes.
            with self._states_checked(), self._missing_actors_allowed():
                super()._restore(path, component, large)
        except BaseException:
            self._kept_actor_states = kept
            raise

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
    ) -> State:
        """See `Checkpointable`; with the states of actors, if there are any that say so.

        Raises:
            ActorDiedError: an actor is gone whose state belongs to it, and was not made again.
        """
        state = super().get_state(components, not_components=not_components)
        if is_selected(ACTORS, components, not_components):
            found = get_actor_states(may_miss_some=self._may_miss_actors)
            if actors := with_kept(found, self._kept_actor_states):
                state[ACTORS] = actors
        return state

    def set_state(self, state: State) -> None:
        """Takes back what `get_state` gave, whole or in part, and sends it to all runners.

        Raises:
            CheckpointMismatchError: a component is unknown, or does not fit; nothing was changed.
        """
        if not self._takes_checked_states:
            self._check_given(state)
        with signals_deferred():  # an interrupt leaves all of it, or none
            super().set_state(state)
            self._send_weights()
        if ACTORS in state:
            self._kept_actor_states = set_actor_states(state[ACTORS])

    @contextlib.contextmanager
    def _missing_actors_allowed(self) -> Iterator[None]:
        before, self._may_miss_actors = self._may_miss_actors, True
        try:
            yield
        finally:
            self._may_miss_actors = before

    def _encoded(self, state: Mapping[str, Any] | None = None) -> EncodedCheckpoint:
        if state is None:
            return super()._encoded(state)
        with self._missing_actors_allowed():  # theirs are in the state that was given
            return super()._encoded(state)

    def _check_given_state(self, *, expected: Collection[str], given: Collection[str]) -> None:
        # Which actors there are now says nothing of a state from another time.
        super()._check_given_state(
            expected=[name for name in expected if name != ACTORS],
            given=[name for name in given if name != ACTORS],
        )

    def _check_components(
        self, *, expected: Collection[str], found: Collection[str], path: PathLike
    ) -> None:
        # Actors are no part of the algorithm: those are restored that are there now.
        if ACTORS in expected and ACTORS not in found:
            _LOGGER.warning("The checkpoint %s holds no states of actors; they keep theirs.", path)
        try:
            super()._check_components(
                expected=[name for name in expected if name != ACTORS],
                found=[name for name in found if name != ACTORS],
                path=path,
            )
        except CheckpointMismatchError as error:
            hint = self._settings_behind({*expected} ^ {*found})
            raise CheckpointMismatchError(f"{error}{hint}") from None

    def _on_restored(self) -> None:
        if not self._restores_all:
            return
        self._clock.restore(self._restored_time_s)
        self.callbacks.fire("on_checkpoint_loaded", algorithm=self, metrics_logger=self.metrics)


@functools.cache  # each look reads a file, and a save takes several
def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "unknown"

"""What a checkpoint of an algorithm says of it, which states fit it, and which class restores it.

What is in a checkpoint, and in which order, is in `state`.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Collection, Mapping
from importlib import metadata
from types import MappingProxyType
from typing import Any, Final

from checkpoints import (
    CheckpointMismatchError,
    Manifest,
    PathLike,
    StateError,
    pack_code,
    read_manifest,
)
from checkpoints.code import large_globals
from checkpoints.component_paths import nearest
from checkpoints.components import failed_component
from trainer.algorithms.model_difference import model_difference
from trainer.algorithms.registry import algorithm_class, is_registered
from trainer.config import AlgorithmConfig
from trainer.types import State

_LOGGER = logging.getLogger(__name__)

_LARGE_CODE_BYTES: Final = 5_000_000

_DECIDED_BY: Final = MappingProxyType(
    {
        "connectors": ("observation_filter", "normalize_rewards"),
        "exploration": ("exploration_config",),
    }
)
"""Components that are not always there, and the settings that decide it."""


_SPACES: Final = ("observation_space", "action_space")
_FACTS: Final = ("algorithm", *_SPACES, "module", "num_parameters")
"""Of the manifest: what must be the same here."""

_FACTS_OF: Final[Mapping[str | None, tuple[str, ...]]] = MappingProxyType(
    {"replay_buffer": _SPACES, "env_runners": _SPACES, "counters": (), "metrics": ()}
)
"""The same of components that say nothing of a network, if they are restored alone."""


def metadata_of_state(state: Mapping[str, Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The same, if a state of another time is saved."""
    counters = state["counters"]
    return {
        **metadata,
        "root_seed": state["config"]["root_seed"],
        "training_iteration": counters["training_iteration"],
        "num_env_steps_sampled_lifetime": counters["num_env_steps_sampled"],
        "num_episodes_lifetime": counters["num_episodes"],
        "episode_return_mean": None,  # of another time
    }


class ConfigCode:
    """The settings of a config that are code, for the checkpoints of an algorithm."""

    def __init__(self, config: AlgorithmConfig) -> None:
        self._config = config
        self._has_told_size = False

    def pack(self) -> bytes | None:
        """The settings, pickled; None if there are none, or if they cannot be."""
        code = {name: self._config[name] for name in self._config.names_of_code()}
        if not code:
            return None
        try:
            packed = pack_code(code)
        except StateError as error:
            _LOGGER.warning(
                "The checkpoint is written without the settings %s, which cannot be pickled (%s). "
                "To restore it, build an algorithm with the same config and call "
                "restore_from_path().",
                sorted(code),
                error,
            )
            return None
        self._tell_size(code, len(packed))
        return packed

    def _tell_size(self, code: Mapping[str, Any], num_bytes: int) -> None:
        if num_bytes < _LARGE_CODE_BYTES or self._has_told_size:
            return
        self._has_told_size = True
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


def class_of_checkpoint(given: type[Any], path: PathLike) -> type[Any]:
    """The class of algorithm that a checkpoint is restored as.

    Args:
        given: the class whose `from_checkpoint` was called; `Algorithm` finds it by name.
        path: the checkpoint.

    Raises:
        CheckpointMismatchError: it is of another class, or of one that is not known.
    """
    saved = read_manifest(path).metadata.get("algorithm", "")
    if getattr(given, "__abstractmethods__", None):  # Algorithm itself: the checkpoint says which
        if not is_registered(saved):
            raise CheckpointMismatchError(
                f"The checkpoint {path} is of the algorithm {saved!r}, which is none of those "
                "that are found by name. If it is a class of yours, import it and call "
                f"{saved or 'MyAlgorithm'}.from_checkpoint(path)."
            )
        return algorithm_class(saved)
    if saved != given.__name__:
        raise CheckpointMismatchError(
            f"The checkpoint {path} is of the algorithm {saved!r}, which {given.__name__} cannot "
            f"go on with. Call {saved or 'Algorithm'}.from_checkpoint()"
            + (
                ", or Algorithm.from_checkpoint(), which finds the class by itself."
                if is_registered(saved)
                else " of that class, after it was imported."
            )
        )
    return given


def check_facts(
    manifest: Manifest, own: Mapping[str, Any], *, component: str | None, name: str
) -> float:
    """Checks that a checkpoint is of such an algorithm; returns the seconds it was trained.

    Args:
        manifest: of the checkpoint.
        own: the same facts of the algorithm.
        component: what alone is to be restored; None is everything.
        name: of the algorithm, for messages.

    Raises:
        CheckpointMismatchError: it is of another env, network or algorithm.
    """
    facts = manifest.metadata
    checked = _FACTS_OF.get(component, _FACTS)
    different = [
        f"{fact}: the checkpoint has {facts.get(fact)!r}, this algorithm {own[fact]!r}"
        for fact in checked
        if facts.get(fact) != own[fact]
    ]
    models = model_difference(facts.get("model_config"), own["model_config"])
    models = models if checked is _FACTS else ""
    if different:
        different += [models] if models else []
        raise CheckpointMismatchError(
            f"The checkpoint is of env {facts.get('env')!r} and does not fit this "
            f"{name} of env {own['env']!r}: {'; '.join(different)}. Nothing was "
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
    return float(facts.get("time_total_s") or 0.0)


def check_given_state(
    state: State,
    *,
    name: str,
    known: Collection[str],
    check_state: Callable[[State], None],
    config: AlgorithmConfig,
) -> None:
    """Checks a state from the user, whole or in part, before anything is changed.

    Args:
        state: what was given.
        name: of the algorithm, for messages.
        known: its components.
        check_state: raises unless the parts fit.
        config: its settings.

    Raises:
        CheckpointMismatchError: a component is unknown or does not fit; nothing was changed.
    """
    if not isinstance(state, Mapping):
        raise CheckpointMismatchError(
            f"{name}.set_state() was given a {type(state).__name__}. Nothing was changed. Give "
            "what get_state() returned: a dict by name of component."
        )
    if unknown := [f"{key!r}{nearest(str(key), known)}" for key in state if key not in known]:
        raise CheckpointMismatchError(
            f"{name}.set_state() was given the unknown {', '.join(unknown)}; the components of "
            f"this {name} are {', '.join(known)}. Nothing was changed. Give what get_state() "
            f"returned.{settings_behind(config, [str(key) for key in state])}"
        )
    try:
        check_state(state)
    except Exception as error:
        raise CheckpointMismatchError(
            f"{name}.set_state() was given a state whose component "
            f"{failed_component(error) or list(state)!r} does not fit: {error}. Nothing was "
            "changed. Give what get_state() of an algorithm with the same settings returned."
        ) from error


def settings_behind(config: AlgorithmConfig, components: Collection[str]) -> str:
    """Names the settings that decide whether there are these components, with their values."""
    settings = [
        f"{name}={config[name]!r}"
        for component in sorted(components)
        for name in _DECIDED_BY.get(component, ())
    ]
    return f" Whether they are there depends on: {', '.join(settings)}." if settings else ""


@functools.cache  # each look reads a file, and a save takes several
def version_of(distribution: str) -> str:
    """The version of an installed distribution, or "unknown"."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "unknown"

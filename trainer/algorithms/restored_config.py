"""The config that an algorithm is built with when it is restored."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Collection, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from checkpoints import (
    CheckpointContents,
    CheckpointMismatchError,
    CodeNotAllowedError,
    PathLike,
    check_shape,
    read_checkpoint,
    read_code,
)
from checkpoints.components import naming_component
from checkpoints.file_system import regular_file_size
from trainer.algorithms.registry import algorithm_class
from trainer.algorithms.state import CONFIG
from trainer.config import AlgorithmConfig
from trainer.errors import ConfigError

_LOGGER = logging.getLogger(__name__)
_OF_NETWORKS: Final = ("model_config", "policy_model_config", "q_model_config")
_BYTES_OF_A_WEIGHT: Final = 4


def restored_config(
    path: PathLike,
    algorithm: type[Any],
    config: AlgorithmConfig | Mapping[str, Any] | None,
    settings: Mapping[str, Any],
    *,
    allow_code: bool,
) -> AlgorithmConfig:
    """The config to build with: the caller's, else the checkpoint's, changed by `settings`.

    Args:
        path: the checkpoint.
        algorithm: the class to be built.
        config: the caller's.
        settings: changes, by name.
        allow_code: unpickle settings that are code.
    """
    config_class: type[AlgorithmConfig] = algorithm.config_class
    if isinstance(config, AlgorithmConfig):
        return config.copy(copy_frozen=False).update_from_dict(settings)
    if config is not None:
        return config_class.from_dict(config).update_from_dict(settings)
    contents = read_checkpoint(path, "config", migrations=algorithm.state_migrations)
    restored = config_from_state(
        algorithm,
        contents.components["config"],
        settings,
        find_code=lambda missing: _saved_code(path, missing, allow_code=allow_code),
        allow_code=allow_code,
    )
    _refuse_larger_networks(restored, contents)
    if not allow_code and "crash_dir" not in config_class.overrides(**settings):
        _keep_crash_files_with_the_run(restored, contents.path)
    return restored


def config_from_state(
    algorithm: type[Any],
    state: Mapping[str, Any],
    settings: Mapping[str, Any],
    *,
    find_code: Callable[[Collection[str]], Mapping[str, Any]] | None = None,
    allow_code: bool = False,
) -> AlgorithmConfig:
    """The config of a state.

    Args:
        algorithm: the class to be built.
        state: the component `config`.
        settings: changes, by name.
        find_code: gives the settings that are code and that nobody gave, by their names.
        allow_code: import envs and strategies that the state names.

    Raises:
        CodeNotAllowedError: it names some, and that is not allowed.
        CheckpointMismatchError: it is no state of a config.
        ConfigError: settings are wrong, or missing because they are code.
    """
    config_class: type[AlgorithmConfig] = algorithm.config_class
    with naming_component("config"):
        check_shape(state, CONFIG)
    given: dict[str, Any] = config_class.overrides(**settings)
    code = {name: given[name] for name in state["code"] if name in given}
    missing = sorted(set(state["code"]) - code.keys())
    if missing and find_code is not None:
        code = {**find_code(missing), **code}
    # Dicts such as `model` are merged into those that were saved, as in a section of a config.
    restored = config_class.from_state(state, code=code, changes=settings, allow_code=allow_code)
    if restored.seed is None:
        restored.seed = state["root_seed"]
    return restored


def _refuse_larger_networks(config: AlgorithmConfig, contents: CheckpointContents) -> None:
    """Raises if the settings ask for networks that the weights in the checkpoint cannot fill.

    Else a file of some kilobytes could take all memory and much time, before its weights are found
    not to fit.
    """
    if config.rl_module_spec is not None:
        return  # what the settings of somebody's own network mean is not known
    sizes = [regular_file_size(contents.path / entry.file) for entry in contents.manifest.files]
    num_bytes = sum(size or 0 for size in sizes)
    for name in _OF_NETWORKS:
        if name not in config:
            continue
        least = _least_parameters(config[name])
        if least * _BYTES_OF_A_WEIGHT > num_bytes:
            raise CheckpointMismatchError(
                f"The saved `{name}` asks for a network of {least:,} weights or more, and the "
                f"checkpoint has {num_bytes:,} bytes in all, so they are not in it. Nothing was "
                f"made. If it is not damaged, give `{name}` as it was."
            )


def _keep_crash_files_with_the_run(config: AlgorithmConfig, checkpoint: Path) -> None:
    """Takes away a saved `crash_dir` that lies elsewhere: a file does not say where to write."""
    if config.crash_dir is None:
        return
    directory = Path(config.crash_dir).expanduser().resolve()
    if directory.is_relative_to(checkpoint.parent.parent):
        return
    _LOGGER.warning(
        "The checkpoint %s names the directory %s for crash files, which is not beside it. None "
        "are written: a file does not say where to write. Give it yourself: "
        "from_checkpoint(path, crash_dir=...).",
        checkpoint,
        directory,
    )
    config.crash_dir = None


def _least_parameters(value: Any) -> int:
    """How many weights a network has at least whose layers have the sizes that are in a value."""
    if isinstance(value, Mapping):
        return max(map(_least_parameters, value.values()), default=0)
    if not isinstance(value, list | tuple):
        return value if isinstance(value, int) else 0
    widths = [entry for entry in value if isinstance(entry, int)]
    return max(
        *(first * second for first, second in pairwise(widths)),
        *map(_least_parameters, value),
        0,
        0,
    )


def class_of_state(given: type[Any], state: Mapping[str, Any]) -> type[Any]:
    """The class of the algorithm that a state is of.

    Raises:
        ConfigError: the state does not say it, or has no config; it is of another class.
    """
    wanted = ("config", "algorithm_class") if inspect.isabstract(given) else ("config",)
    missing = [name for name in wanted if name not in state]
    if missing:
        raise ConfigError(
            f"The state lacks {' and '.join(map(repr, missing))}, so that nobody knows what to "
            "build. Give what `algo.__getstate__()` returned, or call from_state() of the class "
            "itself with what `algo.get_state()` returned."
        )
    named = state.get("algorithm_class", given)
    found = named if isinstance(named, type) else algorithm_class(str(named))
    if not issubclass(found, given):
        raise ConfigError(
            f"The state is of {found.__name__}, which is no {given.__name__}. Call "
            f"{found.__name__}.from_state()."
        )
    return found


def _saved_code(path: PathLike, missing: Collection[str], *, allow_code: bool) -> Mapping[str, Any]:
    try:
        saved: Mapping[str, Any] = read_code(path, allow_code=allow_code)
    except CodeNotAllowedError as error:
        raise CodeNotAllowedError(
            f"{error} It is enough to give what is code: "
            f"from_checkpoint(path, {', '.join(f'{name}=...' for name in missing)})."
        ) from error
    return saved

"""What the user names on the command line: configs, callbacks, and the folder they are found in.

A name that the user types may be imported; a name that stands in a file of plain data may not.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Final

import callbacks
from checkpoints.moved_names import current_module
from trainer.config import AlgorithmConfig
from trainer.envs.env_factory import leads_to_new_code
from trainer.errors import ConfigError

_STOPS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "episode_return": "stop_return",
        "episode_reward_mean": "stop_return",
        "episode_return_mean": "stop_return",
        "env_runners/episode_return_mean": "stop_return",
        "env_runners/episode_reward_mean": "stop_return",
        "env_steps": "stop_env_steps",
        "timesteps_total": "stop_env_steps",
        "num_env_steps_sampled_lifetime": "stop_env_steps",
        "iterations": "stop_iterations",
        "training_iteration": "stop_iterations",
        "time_s": "stop_time_s",
        "time_total_s": "stop_time_s",
    }
)
"""Keys of `stop` in a config file, ours and RLlib's → the argument that they stand for."""

_KEYS: Final = ("algo", "run", "env", "config", "stop")
_SHAPE: Final = (
    'Expected is {"algo": "PPO", "env": "CartPole-v1", "config": {"lr": 0.001}, '
    '"stop": {"iterations": 10}}, with any of the four, or the same as a Python file: '
    "config = PPOConfig()…, stop = {…}."
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment:
    """What a config file describes.

    Attributes:
        algo: the name of the algorithm; None if the file does not say it.
        env: the env; None if the file does not say it.
        settings: by name.
        config: the config object of a Python file, instead of the three above.
        stops: by the name of the argument, such as `stop_iterations`.
    """

    algo: str | None = None
    env: str | None = None
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    config: AlgorithmConfig | None = None
    stops: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def import_from_here() -> None:
    """Lets modules in the current folder be imported, as `python -m` does.

    Behind everything else: no file of the user's takes the place of a module of a library.
    """
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)


def imported(name: str, *, option: str) -> Any:
    """What a name that the user typed leads to.

    Args:
        name: `package.module:name` or `package.module.name`.
        option: the option that it was given to, for errors.

    Raises:
        ConfigError: it leads to nothing.
    """
    import_from_here()
    module_name, colon, attribute = name.partition(":")
    if not colon:
        module_name, _, attribute = name.rpartition(".")
    if not module_name or not attribute:
        raise ConfigError(
            f"{option} {name}: expected a name and the module that it is in. Give "
            "package.module:name; modules are looked for in the current folder, too."
        )
    try:
        return getattr(importlib.import_module(current_module(module_name)), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"{option} {name}: {error}. Give package.module:name; modules are looked for in the "
            "current folder, too."
        ) from error


def named_callbacks(names: Sequence[str]) -> list[Any]:
    """The callback classes that the user names: of the package `callbacks`, or by their module.

    Raises:
        ConfigError: a name leads to nothing.
    """
    return [
        getattr(callbacks, name)
        if name in callbacks.__all__
        else imported(name, option="--callbacks")
        for name in names
    ]


def config_of(found: Any, *, name: str) -> AlgorithmConfig:
    """A config, or what a function that makes one returns.

    Raises:
        ConfigError: it is neither.
    """
    config = found() if callable(found) else found
    if not isinstance(config, AlgorithmConfig):
        raise ConfigError(
            f"--config {name} gave a {type(config).__name__}; expected a config, such as "
            "PPOConfig().environment(…)."
        )
    return config


def read_experiment(name: str) -> Experiment:
    """What `--config` names: a file .json, .toml or .py, or `package.module:name`.

    Raises:
        ConfigError: it is not there, cannot be read, or is of another shape.
    """
    path = Path(name).expanduser()
    if path.suffix == ".py":
        return _of_module(executed(path, name), name)
    if path.suffix not in (".json", ".toml"):
        found = imported(name, option="--config")
        if isinstance(found, Mapping):
            return _of_dict(dict(found), name, is_code=True)
        return Experiment(config=config_of(found, name=name))
    try:
        values = _parsed(path)
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"--config {name} cannot be read: {error}. {_SHAPE}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"--config {name} holds a {type(values).__name__}. {_SHAPE}")
    return _of_dict(values, name, is_code=False)


def _parsed(path: Path) -> Any:
    if path.suffix == ".json":
        return json.loads(path.read_text(encoding="utf-8"))
    try:
        tomllib = importlib.import_module("tomllib")
    except ImportError as error:
        raise ValueError("TOML needs Python 3.11; write it as JSON") from error
    return tomllib.loads(path.read_text(encoding="utf-8"))


def executed(path: Path, name: str) -> ModuleType:
    """The module of a Python file; its folder is where it imports from."""
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ConfigError(f"--config {name}: there is no such file. {_SHAPE}")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    return module


def _of_module(module: ModuleType, name: str) -> Experiment:
    found = getattr(module, "config", None)
    if found is None:
        raise ConfigError(f"--config {name} defines no `config`. {_SHAPE}")
    stop = getattr(module, "stop", {})
    if isinstance(found, Mapping):
        values = {key: getattr(module, key) for key in ("algo", "env") if hasattr(module, key)}
        if not found.keys() & {"config", "stop", "run", "algo"}:
            found = {**values, "config": found, "stop": stop}
        return _of_dict(dict(found), name, is_code=True)
    return Experiment(config=config_of(found, name=name), stops=_stops(stop, name))


def _of_dict(values: dict[str, Any], name: str, *, is_code: bool) -> Experiment:
    if len(values) == 1:  # RLlib's tuned examples have a name around all
        (only,) = values.values()
        if isinstance(only, dict) and only.keys() & {"run", "algo"}:
            values = only
    unknown = sorted(map(str, values.keys() - set(_KEYS)))
    parts = {key: values.get(key, {}) for key in ("config", "stop")}
    wrong = [key for key, part in parts.items() if not isinstance(part, Mapping)]
    if unknown or wrong:
        what = f"has the unknown key(s) {', '.join(unknown)}" if unknown else f"has no {wrong[0]}"
        raise ConfigError(f"--config {name} {what}. {_SHAPE} Settings stand in `config`.")
    settings = dict(parts["config"])
    env = values.get("env", settings.pop("env", None))
    if not is_code:
        _refuse_code({**settings, "env": env}, name)
    return Experiment(
        algo=values.get("algo", values.get("run")),
        env=env,
        settings=settings,
        stops=_stops(parts["stop"], name),
    )


def _refuse_code(value: Any, name: str, key: object = None) -> None:
    """Raises if plain data names an env or a class that would have to be imported."""
    if isinstance(value, Mapping):
        for inner, entry in value.items():
            _refuse_code(entry, name, inner)
    elif isinstance(value, list):
        for entry in value:
            _refuse_code(entry, name, key)
    elif isinstance(value, str):
        is_env = key == "env" and leads_to_new_code(value)
        if is_env or (key in ("type", "sub_exploration") and ("." in value or ":" in value)):
            raise ConfigError(
                f"--config {name} names {value!r} as `{key}`, which would have to be imported: a "
                "file of plain data names ready-made envs and classes only. "
                + (f"Type it: --env {value}" if is_env else "Type it: --set …")
                + ", or write the config as a Python file."
            )


def _stops(stop: Mapping[str, Any], name: str) -> dict[str, Any]:
    unknown = [key for key in stop if key not in _STOPS]
    if unknown:
        raise ConfigError(
            f"--config {name}: `stop` has the unknown key(s) {', '.join(map(repr, unknown))}. "
            f"There are: {', '.join(_STOPS)}."
        )
    return {_STOPS[key]: value for key, value in stop.items()}

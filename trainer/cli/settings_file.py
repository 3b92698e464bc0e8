"""A run described by a file: algorithm, env, settings, stops. Read by `--config`, written back.

Read are .json, .toml and .yaml, a Python file, and `package.module:name`. Written is
`settings.json` in every run's directory: what the run was begun with, the drawn seed included, in
the same form. `train --config runs/x/settings.json` ends with the same bytes as the run that wrote
it.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Final

from callbacks.optional_import import optional_module
from callbacks.ready_made.metric_values import count_problems
from callbacks.ready_made.stopping import StopCriteria
from checkpoints.signatures import is_own, is_trusted, sign, trust
from checkpoints.writer import write_whole_file
from trainer.algorithms.algorithm import Algorithm
from trainer.algorithms.building import algorithm_class
from trainer.cli.named_code import config_of, executed, imported
from trainer.cli.output import missing_extras_explained
from trainer.cli.run_directory import STOP_FIELDS, STOPS, RunPlan
from trainer.config import AlgorithmConfig
from trainer.config.settings import is_plain_data
from trainer.errors import ConfigError, TrainerError
from trainer.name_resolution import PROGRAM, Source, stranger
from trainer_toolkit.nearest_names import IN_BRACKETS, did_you_mean
from trainer_toolkit.trees import same

SETTINGS_FILE: Final = "settings.json"

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

_KEYS: Final = ("algo", "run", "env", "config", "stop", "save", "code")
_SAVING: Final = ("checkpoint_every", "keep")
_REMEDY: Final = (
    "A file of plain data that you did not save here names ready-made envs and classes only. Type "
    "it: --env NAME, or --set NAME=VALUE; write the config as a Python file; or, if the file is "
    "yours, say --allow-code once: it is remembered until the file is changed."
)
_SIGNATURE: Final = "signature"
_DATA_FILES: Final = (".json", ".toml", ".yaml", ".yml")
_SHAPE: Final = (
    'Expected is {"algo": "PPO", "env": "CartPole-v1", "config": {"lr": 0.001}, '
    '"stop": {"iterations": 10}, "save": {"keep": 3}}, with any of the five, or the same as a '
    "Python file: config = PPOConfig()…, stop = {…}."
)


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What a config file describes.

    Attributes:
        algo: the name of the algorithm; None if the file does not say it.
        env: the env; None if the file does not say it.
        settings: by name.
        config: the config object of a Python file, instead of the three above.
        stops: by the name of the argument, such as `stop_iterations`.
        saving: `checkpoint_every` and `keep`.
        code: settings that the run had and the file cannot hold, with what they were, as texts.
            They must be given beside the file.
        source: a file of plain data does not name code, a Python file does.
    """

    algo: str | None = None
    env: str | None = None
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    config: AlgorithmConfig | None = None
    stops: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    saving: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    code: Mapping[str, str] = dataclasses.field(default_factory=dict)
    source: Source = PROGRAM


# ---- reading


def read_experiment(name: str, *, allow_code: bool = False) -> Experiment:
    """What `--config` names: a file .json, .toml, .yaml or .py, or `package.module:name`.

    A file of plain data may name code if that is allowed now, or was for a file of this content.

    Raises:
        ConfigError: it is not there, cannot be read, or is of another shape.
    """
    path = Path(name).expanduser()
    if path.suffix == ".py":
        return _of_module(executed(path, name), name)
    if path.is_dir():
        file = path / SETTINGS_FILE
        advice = f"Give its settings: --config {shlex.quote(str(file))}."
        raise ConfigError(
            f"--config {name} is a directory; expected a file, or package.module:name. "
            f"{advice if file.is_file() else _SHAPE}"
        )
    if path.suffix not in _DATA_FILES:
        if path.is_file():
            raise ConfigError(
                f"--config {name}: expected a file .json, .toml, .yaml or .py. {_SHAPE}"
            )
        if name.lstrip().startswith("{") or "=" in name:
            raise ConfigError(
                f"--config {name}: expected a file, or package.module:name. Single settings are "
                "typed by --set NAME=VALUE, once for each: --set lr=3e-4 --set gamma=0.99."
            )
        found = imported(name, option="--config")
        if isinstance(found, Mapping):
            return _of_dict(dict(found), name, source=PROGRAM)
        return Experiment(config=config_of(found, name=name))
    try:
        with missing_extras_explained():
            data = path.read_bytes()
            values = _parsed(path, data.decode())
    except ConfigError:
        raise  # which is a ValueError, too
    except FileNotFoundError as error:
        raise ConfigError(
            f"--config {name}: there is no such file in {path.absolute().parent}. Check its name "
            "and the current folder."
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"--config {name} cannot be read: {error}. {_SHAPE}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"--config {name} holds a {type(values).__name__}. {_SHAPE}")
    if allow_code:
        trust(data)
    signature = values.pop(_SIGNATURE, None)
    is_ours = allow_code or is_trusted(data) or is_own(_signed(values), signature)
    return _of_dict(values, name, source=PROGRAM if is_ours else stranger(_REMEDY))


def _signed(values: Mapping[str, Any]) -> bytes:
    """What a signature in a file is of: all the rest."""
    return json.dumps(values, sort_keys=True, default=repr).encode()


def _parsed(path: Path, text: str) -> Any:
    if path.suffix == ".json":
        return json.loads(text)
    if path.suffix != ".toml":
        return _parsed_yaml(text)
    try:
        tomllib = importlib.import_module("tomllib")
    except ImportError as error:
        raise ValueError("TOML needs Python 3.11; write it as JSON or YAML") from error
    return tomllib.loads(text)


_FLOAT: Final = re.compile(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)$")


def _parsed_yaml(text: str) -> Any:
    """YAML of plain data. `3e-4` is a number, as in YAML 1.2; PyYAML alone reads it as text."""
    yaml = optional_module("yaml", user="--config FILE.yaml", extra="yaml")
    loader: Any = type("Loader", (yaml.SafeLoader,), {})
    loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))
    try:
        return yaml.load(text, Loader=loader)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


def _of_module(module: ModuleType, name: str) -> Experiment:
    found = getattr(module, "config", None)
    if found is None:
        raise ConfigError(f"--config {name} defines no `config`. {_SHAPE}")
    names = ("algo", "env", "stop", "save")
    beside: dict[str, Any] = {key: getattr(module, key) for key in names if hasattr(module, key)}
    if isinstance(found, Mapping):
        values = _unwrapped(dict(found))
        if not values.keys() & {"config", "stop", "run", "algo"}:
            values = {"config": values}
        for key in beside.keys() & values.keys():
            values[key] = _the_one((key, beside[key]), (f"config[{key!r}]", values[key]), name)
        return _of_dict({**beside, **values}, name, source=PROGRAM)
    given = config_of(found, name=name)
    _refuse_beside(given, beside, name)
    tables = {key: value for key, value in beside.items() if key in ("stop", "save")}
    return dataclasses.replace(_of_dict(tables, name, source=PROGRAM), config=given)


def _refuse_beside(given: AlgorithmConfig, beside: Mapping[str, Any], name: str) -> None:
    """Raises if `algo` or `env` beside a config object says something else than the object."""
    algo, env = beside.get("algo"), beside.get("env")
    wrong = []
    if isinstance(algo, str) and algorithm_class(algo) is not given.algo_class:
        wrong.append(f"algo={algo!r}")
    if isinstance(env, str) and env != given.env:
        wrong.append(f"env={env!r}")
    if wrong:
        raise ConfigError(
            f"--config {name} has {' and '.join(wrong)} beside a {type(given).__name__} with "
            f"env={given.env!r}; a config object says both itself. Leave it out, or write it into "
            "the config."
        )


def _unwrapped(values: dict[str, Any]) -> dict[str, Any]:
    """The values without the name that RLlib's tuned examples have around all."""
    if len(values) == 1:
        (only,) = values.values()
        if isinstance(only, dict) and only.keys() & {"run", "algo"}:
            return dict(only)
    return values


def _of_dict(values: dict[str, Any], name: str, *, source: Source) -> Experiment:
    values = _unwrapped(values)
    unknown = sorted(map(str, values.keys() - set(_KEYS)))
    several = [
        key for key, value in values.items() if isinstance(value, Mapping) and "env" in value
    ]
    if len(several) > 1 and len(several) == len(values):
        raise ConfigError(
            f"--config {name} describes {len(several)} runs: {', '.join(map(str, several))}. Write "
            "each into a file of its own, or search settings with local-trainer tune."
        )
    given = {key: values.get(key) for key in ("config", "stop", "save", "code")}
    # A key with nothing behind it is None in YAML.
    parts: dict[str, Any] = {key: {} if part is None else part for key, part in given.items()}
    wrong = [key for key, part in parts.items() if not isinstance(part, Mapping)]
    if unknown or wrong:
        what = f"has {wrong[0]}={parts[wrong[0]]!r}, which is no table" if wrong else ""
        shown = (f"{key}{did_you_mean(key, _KEYS, IN_BRACKETS)}" for key in unknown)
        what = f"has the unknown key(s) {', '.join(shown)}" if unknown else what
        raise ConfigError(f"--config {name} {what}. {_SHAPE} Settings stand in `config`.")
    _check_saving(parts["save"], name)
    settings = dict(parts["config"])
    inner_env = settings.pop("env", None)
    env = _the_one(("env", values.get("env")), ("config.env", inner_env), name)
    algo = _the_one(("algo", values.get("algo")), ("run", values.get("run")), name)
    if not isinstance(algo, str | None):
        raise ConfigError(f"--config {name} has algo={algo!r:.80}; expected a name, such as 'PPO'.")
    return Experiment(
        algo=algo,
        env=env,
        settings=settings,
        stops=_stops(parts["stop"], name),
        saving=parts["save"],
        code={str(key): str(value) for key, value in parts["code"].items()},
        source=source,
    )


def _the_one(first: tuple[str, Any], second: tuple[str, Any], name: str) -> Any:
    """The value that is given under one of two names, or the same under both; None if neither."""
    if first[1] is None or second[1] is None:
        return second[1] if first[1] is None else first[1]
    if not same(first[1], second[1]):
        raise ConfigError(
            f"--config {name} says {first[0]}={first[1]!r} and {second[0]}={second[1]!r}, which "
            "mean the same thing and differ. Leave one out."
        )
    return first[1]


def _check_saving(saving: Mapping[str, Any], name: str) -> None:
    problems = [f"{key!r} is no part of it" for key in saving if key not in _SAVING]
    for key in _SAVING:
        problems += count_problems(key, saving.get(key), none="the default")
    if problems:
        raise ConfigError(
            f"--config {name}: `save` makes no sense: {'; '.join(problems)}. There are: "
            f"{', '.join(_SAVING)}."
        )


def _stops(stop: Mapping[str, Any], name: str) -> dict[str, Any]:
    unknown = [key for key in stop if key not in _STOPS]
    if unknown:
        raise ConfigError(
            f"--config {name}: `stop` has the unknown key(s) {', '.join(map(repr, unknown))}. "
            f"There are: {', '.join(_STOPS)}."
        )
    stops = {_STOPS[key]: value for key, value in stop.items()}
    criteria: dict[str, Any] = {STOPS[key]: value for key, value in stops.items()}
    if problems := StopCriteria(**criteria).problems():
        raise ConfigError(f"--config {name}: `stop` makes no sense: {'; '.join(problems)}.")
    return stops


def require_code(experiment: Experiment, given: Sequence[str], name: str) -> None:
    """Raises a ConfigError that names all code of the run that was not given beside the file.

    Given are the settings on the command line.
    """
    missing = {key: was for key, was in experiment.code.items() if key not in given}
    if missing:
        options = {
            "env": "--env NAME",
            "callbacks_class": "--callbacks NAME",
            "algo": "--algo NAME",
        }
        typed = [f"{options[key]} (it was {was})" for key, was in missing.items() if key in options]
        others = [f"`{key}` (it was {was})" for key, was in missing.items() if key not in options]
        advice = [f"Type it: {', '.join(typed)}."] if typed else []
        if others:
            advice.append(
                f"{', '.join(others)} cannot be typed: give --config the .py file that defines "
                "the config instead."
            )
        raise ConfigError(
            f"--config {name} is of a run with code, which a file of plain data does not hold. "
            f"{' '.join(advice)}"
        )


# ---- writing


def write_settings(file: Path, algo: Algorithm, plan: RunPlan, *, names: Sequence[str]) -> None:
    """Writes down what a run is begun with, so that `--config` begins the same run again.

    The algorithm stands before its first iteration; `names` are callbacks as they were typed. A
    CheckpointWriteError if it cannot be written.
    """
    found = _described(algo, plan, names)
    signature = sign(_signed(found)) if algo.config.source.is_trusted else None
    if signature is not None:
        found[_SIGNATURE] = signature
    text = json.dumps(found, indent=2) + "\n"
    write_whole_file(file, text.encode(), overwrite=True)


def _described(algo: Algorithm, plan: RunPlan, names: Sequence[str]) -> dict[str, Any]:
    config = algo.config
    settings = {**config.changed_settings(), "seed": algo.root_seed}
    env = settings.pop("env", None)
    is_named = isinstance(env, str)
    kept = dict(_kept(config, settings))
    code = {key: _short(value) for key, value in settings.items() if key not in kept}
    if names and "callbacks_class" in code:
        code["callbacks_class"] = ", ".join(names)
    algorithm = _algorithm_name(config)
    found: dict[str, Any] = {
        **({} if algorithm is None else {"algo": algorithm}),
        **({"env": env} if is_named else {}),
        "config": kept,
        "stop": {key: getattr(plan.stops, field) for key, field in STOP_FIELDS.items()},
        "save": {key: getattr(plan, key) for key in _SAVING},
        "code": {**({} if is_named else {"env": _short(env)}), **code},
    }
    if algorithm is None:
        found["code"]["algo"] = type(algo).__name__
    found["stop"] = {key: value for key, value in found["stop"].items() if value is not None}
    return {key: value for key, value in found.items() if value or key == "config"}


def _kept(config: AlgorithmConfig, settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The settings that a file of plain data gives back as they are."""
    fresh = type(config)
    for key, value in settings.items():
        if not is_plain_data(value):
            continue
        try:
            text = json.dumps(value)
            again = fresh().update_from_dict({key: json.loads(text)})
        except (TypeError, ValueError, TrainerError):
            continue  # an array, keys that are no texts
        if same(_listed(getattr(again, key)), _listed(value)):
            yield key, json.loads(text)


def _listed(value: Any) -> Any:
    """The value with lists for tuples, which JSON does not tell apart."""
    if isinstance(value, dict):
        return {key: _listed(entry) for key, entry in value.items()}
    return [_listed(entry) for entry in value] if isinstance(value, list | tuple) else value


def _algorithm_name(config: AlgorithmConfig) -> str | None:
    """The name by which `--algo` finds the algorithm; None if it finds another, or none."""
    name = str(getattr(config.algo_class, "__name__", ""))
    try:
        is_found = algorithm_class(name) is config.algo_class
    except TrainerError:
        return None
    return name if is_found else None


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 200 else f"{text[:199]}…"

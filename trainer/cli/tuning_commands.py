"""`tune`, `tune-resume`, `trials` and `best`: experiments on the command line."""

from __future__ import annotations

import argparse
import contextlib
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from callbacks.ready_made.rows_file import jsonable
from trainer.algorithms.building import is_registered
from trainer.cli.named_code import executed, import_from_here, imported
from trainer.cli.output import complain, print_json, print_text
from trainer.errors import TuneError
from trainer.tune.configs import RunConfig, TuneConfig
from trainer.tune.experiment import printable_config
from trainer.tune.legacy import read_grid
from trainer.tune.naming import create_scheduler, create_searcher
from trainer.tune.output import shown_value, table_text
from trainer.tune.restored import read_header
from trainer.tune.results import Result, ResultGrid
from trainer.tune.rows import MISSING, value_at
from trainer.tune.scheduling import TrialScheduler
from trainer.tune.search_space import GridSearch
from trainer.tune.stored_spec import domain_of_text
from trainer.tune.trial_files import read_trial_facts
from trainer.tune.tuner import Tuner, extended, silence
from trainer_toolkit.arguments import ArgumentError
from trainer_toolkit.files import numbered_beside
from trainer_toolkit.nearest_names import did_you_mean
from trainer_toolkit.trees import named_leaves

_FILE: Final = re.compile(r"^(?P<file>.+\.py):(?P<name>\w+)$")
_BOUND: Final = re.compile(r"^(?P<key>[^<>=]+)(?P<sign><=|>=|=)(?P<value>.+)$")
_FILTER: Final = re.compile(r"^(?P<key>[^<>=!]+)(?P<sign><=|>=|==|!=|<|>)(?P<value>.+)$")
_SCHEDULERS: Final[Mapping[str, str]] = {
    "fifo": "fifo",
    "asha": "asha",
    "hyperband": "hyperband",
    "median": "median_stopping_rule",
    "pbt": "pbt",
}
_SEARCHERS: Final[Mapping[str, str]] = {"random": "random", "optuna": "optuna"}
_OF_TUNER: Final = (
    "env",
    "space",
    "num_samples",
    "metric",
    "mode",
    "stop",
    "scheduler",
    "search",
    "concurrent",
    "seed",
    "name",
    "storage_path",
)
"""Arguments of `tune` that a tuner of a file has in it."""

_SIGNS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


# ---- arguments: an argparse.ArgumentTypeError for what cannot be read as one


def space(text: str) -> tuple[str, Any]:
    """Reads NAME=DOMAIN, such as `lr=loguniform(1e-5, 1e-2)`; runs no code."""
    name, separator, domain = text.partition("=")
    if not separator or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=DOMAIN")
    try:
        return name.strip(), domain_of_text(domain)
    except (TuneError, ArgumentError) as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def bound(text: str) -> tuple[str, Any]:
    """Reads a stop criterion: KEY=NUMBER and KEY>=NUMBER (at least) or KEY<=NUMBER (at most)."""
    found = _BOUND.match(text)
    try:
        if found is None:
            raise ValueError
        sign = "<=" if found["sign"] == "<=" else ">="
        return found["key"].strip(), (sign, float(found["value"]))
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not KEY=NUMBER, such as training_iteration=20 or loss<=0.1"
        ) from error


def scheduler(text: str) -> str:
    """Reads the name of a scheduler."""
    return _known(text, _SCHEDULERS)


def searcher(text: str) -> str:
    """Reads the name of a searcher."""
    return _known(text, _SEARCHERS)


def _known(text: str, names: Mapping[str, str]) -> str:
    name = text.lower()
    if name not in (*names, *names.values()):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not one of {', '.join(names)}.{did_you_mean(text, names)}"
        )
    return names.get(name, name)


# ---- commands


def tune(arguments: argparse.Namespace) -> int:
    """Begins an experiment; returns the exit code."""
    import_from_here()
    tuner = _tuner_of_file(arguments.trainable)
    if tuner is None:
        _refuse_existing(arguments)
        return _run(_tuner_of_arguments(arguments), arguments, code=None)
    _refuse_other_arguments(arguments)
    return _run(tuner, arguments, code=arguments.trainable)


def tune_resume(arguments: argparse.Namespace) -> int:
    """Goes on with an experiment; returns the exit code."""
    import_from_here()
    folder = Path(arguments.path)
    given = None if arguments.trainable is None else _tuner_of_file(arguments.trainable)
    header = read_header(folder)
    if given is None:
        _refuse_unnamed_code(arguments.path, header)
    resume = {
        "resume_errored": arguments.errored == "resume",
        "restart_errored": arguments.errored == "restart",
        "allow_code": arguments.allow_code,
    }
    more: dict[str, Any] = {}
    if arguments.num_samples is not None:
        more["num_samples"] = arguments.num_samples
    stop = _stop_of(arguments)
    if given is not None:
        tuner = extended(given, folder, num_samples=arguments.num_samples, stop=stop, **resume)
    else:
        tuner = Tuner.restore(
            folder,
            header["trainable"],
            **resume,
            tune_config=TuneConfig(**more) if more else None,
            run_config=RunConfig(stop=stop) if stop else None,
        )
    return _run(tuner, arguments, code=None if given is None else arguments.trainable)


def trials(arguments: argparse.Namespace) -> int:
    """Shows the trials of an experiment; returns 0."""
    grid, header = _grid_at(arguments.path)
    rows = [_row_of(result) for result in grid]
    _check_names(rows, arguments, header)
    for text in arguments.filters:
        rows = [row for row in rows if _passes(row, text)]
    if arguments.sort:
        rows.sort(key=lambda row: _sort_key(row, arguments.sort, header.get("mode")))
    if arguments.limit is not None:
        rows = rows[: arguments.limit]
    if arguments.json:
        print_json(jsonable(rows))
        return 0
    columns = _columns(rows, header, arguments.columns)
    cells = [
        [f"{row['number']:05d}", row["status"], *(_cell(row, name) for name in columns)]
        for row in rows
    ]
    print_text(table_text(["trial", "status", *columns], cells))
    return 0


def best(arguments: argparse.Namespace) -> int:
    """Shows the best trial of an experiment; returns 0."""
    grid, header = _grid_at(arguments.path)
    metric = arguments.metric or header.get("metric")
    mode = arguments.mode or header.get("mode")
    if metric is None or mode is None:
        raise TuneError(
            f"{arguments.path} does not say what is best: metric {metric!r}, mode {mode!r}. Say "
            "it: --metric env_runners/episode_return_mean --mode max, for example."
        )
    result: Result = grid.get_best_result(metric, mode)
    checkpoint = result.checkpoint
    facts = {
        "number": result.number,
        "metric": metric,
        "value": value_at(result.metrics or {}, str(metric)),
        "params": dict(result.params),
        "config": result.config,
        "checkpoint": None if checkpoint is None else checkpoint.path,
        "path": result.path,
    }
    if arguments.config_only:
        print_json(_config_file(result, str(header["trainable"])))
    elif arguments.json:
        print_json(jsonable(facts))
    else:
        print_text(f"Trial {result.number:05d}: {metric} {shown_value(facts['value'])}")
        for path, value in result.params.items():
            print_text(f"  {path} = {shown_value(value)}")
        print_text(f"  {facts['checkpoint'] or result.path}")
    return 0


# ---- parts


def _config_file(result: Result, trainable: str) -> dict[str, Any]:
    """The config of a trial; of an algorithm's as `train --config` takes it, with its seed."""
    config: dict[str, Any] = printable_config(result.config)
    if not is_registered(trainable):
        return config
    config.setdefault("seed", read_trial_facts(Path(result.path)).get("seed"))
    env = config.pop("env", None)
    return {"algo": trainable, "env": env, "config": config}


def _run(tuner: Tuner, arguments: argparse.Namespace, *, code: str | None) -> int:
    if arguments.json:
        silence(tuner)
    try:
        grid = tuner.fit()
    except KeyboardInterrupt:
        if tuner.experiment_path is not None:
            with contextlib.suppress(OSError):  # the terminal may be closed
                complain(f"What to type next:\n  {_command_to_go_on(tuner, code)}")
        raise
    if arguments.json:
        print_json(jsonable(grid.rows()))
    else:
        print_text(grid.table())
        folder = shlex.quote(grid.experiment_path)
        print_text(
            f"\nResults: {grid.experiment_path}\nWhat to type next:\n"
            f"  local-trainer best {folder}\n"
            f"  local-trainer trials {folder}\n"
            f"  {_command_to_go_on(tuner, code)}"
        )
    return 1 if grid.num_errors or grid.unsaved else 0


def _command_to_go_on(tuner: Tuner, code: str | None) -> str:
    given = [] if code is None else [code]
    return shlex.join(["local-trainer", "tune-resume", str(tuner.experiment_path), *given])


def _tuner_of_file(text: str) -> Tuner | None:
    """The tuner that FILE.py:name or module:name leads to; None for a plain name."""
    found = _FILE.match(text)
    if found is not None:
        module = executed(Path(found["file"]).expanduser(), text)
        made = getattr(module, found["name"], None)
    elif ":" in text:
        made = imported(text, option="tune")
    else:
        return None
    made = made() if callable(made) and not isinstance(made, Tuner) else made
    if not isinstance(made, Tuner):
        raise TuneError(
            f"{text} gave a {type(made).__name__}; expected a tune.Tuner, or a function without "
            "arguments that returns one."
        )
    return made


def _refuse_existing(arguments: argparse.Namespace) -> None:
    if arguments.name is None:
        return
    folder = Path(arguments.storage_path).expanduser() / arguments.name
    if Tuner.can_restore(folder):
        raise TuneError(
            f"{folder} holds an experiment already. Go on with it: local-trainer tune-resume "
            f"{shlex.quote(str(folder))}. Or begin another one: "
            f"--name {shlex.quote(numbered_beside(folder, '-', first=2).name)}."
        )


def _refuse_other_arguments(arguments: argparse.Namespace) -> None:
    """A tuner of a file is complete; what stands beside it would have no effect."""
    options = {"settings": "--set", **{name: f"--{name.replace('_', '-')}" for name in _OF_TUNER}}
    given = [
        option
        for name, option in options.items()
        if getattr(arguments, name) not in (None, [])
        and (name != "storage_path" or arguments.storage_path != "runs")
    ]
    if given:
        raise TuneError(
            f"{arguments.trainable} is a whole tuner, and {', '.join(given)} would change nothing. "
            "Write it in the file, or leave it out; tune-resume takes --num-samples and --stop "
            "beside a file."
        )


def _refuse_unnamed_code(path: str, header: Mapping[str, Any]) -> None:
    is_code = not is_registered(header["trainable"]) or header.get("plain_space") is None
    if is_code:
        what = header["trainable"] if header.get("plain_space") is not None else "a search space"
        raise TuneError(
            f"{path} was begun with code of yours ({what}), which is not in the experiment's "
            f"folder. Name what made the tuner: local-trainer tune-resume {shlex.quote(path)} "
            "FILE.py:NAME."
        )


def _scheduler_of(arguments: argparse.Namespace) -> TrialScheduler | None:
    name = arguments.scheduler
    if name is None:
        return None
    if name != "pbt":
        return create_scheduler(name)
    searched = {
        key: domain.values if isinstance(domain, GridSearch) else domain
        for key, domain in arguments.space
    }
    if not searched:
        raise TuneError(
            "--scheduler pbt changes settings while trials run, and none is searched. Name them: "
            "--space 'lr=loguniform(1e-5, 1e-2)'."
        )
    return create_scheduler(name, hyperparam_mutations=searched)


def _tuner_of_arguments(arguments: argparse.Namespace) -> Tuner:
    given = {
        "--set": dict(arguments.settings),
        "--space": dict(arguments.space),
        "--env": {} if arguments.env is None else {"env": arguments.env},
    }
    param_space: dict[str, Any] = {}
    for option, values in given.items():
        for name in values.keys() & param_space.keys():
            raise TuneError(
                f"{option} says what {name!r} is, and so does another option. Give one of them."
            )
        param_space |= values
    judge = _scheduler_of(arguments)
    searches = None if arguments.search is None else create_searcher(arguments.search)
    compares = (judge is not None and judge.needs_metric) or arguments.search == "optuna"
    if compares and None in (arguments.metric, arguments.mode):
        by = (
            f"--search {arguments.search}"
            if judge is None
            else f"--scheduler {arguments.scheduler}"
        )
        raise TuneError(
            f"{by} compares trials. Say by what: --metric env_runners/episode_return_mean "
            "--mode max."
        )
    tune_config = TuneConfig(
        metric=arguments.metric,
        mode=arguments.mode,
        num_samples=arguments.num_samples or 1,
        scheduler=judge,
        search_alg=searches,
        max_concurrent_trials=arguments.concurrent,
        seed=arguments.seed,
    )
    run_config = RunConfig(
        name=arguments.name,
        storage_path=arguments.storage_path,
        stop=_stop_of(arguments),
        verbose=0 if arguments.json else 1,
    )
    return Tuner(
        arguments.trainable, param_space=param_space, tune_config=tune_config, run_config=run_config
    )


def _stop_of(arguments: argparse.Namespace) -> list[dict[str, Any]] | None:
    """What `--stop` says; a key that is given twice has two bounds, and either ends a trial."""
    found: list[dict[str, Any]] = []
    for key, limit in arguments.stop:
        without = next((bounds for bounds in found if key not in bounds), None)
        if without is None:
            found.append(without := {})
        without[key] = limit
    return found or None


def _grid_at(path: str) -> tuple[ResultGrid, dict[str, Any]]:
    header = read_header(Path(path))
    return read_grid(Path(path)), header


def _row_of(result: Result) -> dict[str, Any]:
    last: dict[str, Any] = result.metrics or {}
    last.pop("config", None)
    return {
        "number": result.number,
        "status": result.status,
        "stop_reason": result.stop_reason,
        "params": dict(result.params),
        "last_result": last,
    }


def _value(row: Mapping[str, Any], name: str) -> Any:
    if name in row["params"]:
        return row["params"][name]
    found = value_at(row["last_result"], name)
    return row.get(name) if found is MISSING else found


def _cell(row: Mapping[str, Any], name: str) -> str:
    value = _value(row, name)
    return "" if value is None else shown_value(value)


def _columns(rows: list[dict[str, Any]], header: Mapping[str, Any], given: str | None) -> list[str]:
    if given:
        return [name.strip() for name in given.split(",")]
    params = list(dict.fromkeys(path for row in rows for path in row["params"]))
    return [*params, "training_iteration", *([header["metric"]] if header.get("metric") else [])]


def _sort_key(row: Mapping[str, Any], name: str, mode: str | None) -> tuple[bool, float, int]:
    value = _value(row, name)
    is_number = isinstance(value, int | float) and value == value
    number = float(value) if is_number else 0.0
    return not is_number, -number if mode == "max" else number, row["number"]


def _comparison(text: str) -> tuple[str, str, str]:
    """A filter as key, sign, value; a TuneError if it is no comparison."""
    found = _FILTER.match(text)
    if found is None:
        raise TuneError(f"--filter {text!r}: expected such as 'lr<1e-3' or 'status==ERROR'.")
    key, sign, wanted = found["key"].strip(), found["sign"], found["value"].strip()
    if sign not in ("==", "!="):
        try:
            float(wanted)
        except ValueError as error:
            raise TuneError(
                f"--filter {text!r}: {wanted!r} is no number; expected such as 'lr<1e-3'."
            ) from error
    return key, sign, wanted


def _passes(row: Mapping[str, Any], text: str) -> bool:
    key, sign, wanted = _comparison(text)
    value = _value(row, key)
    try:
        return _SIGNS[sign](float(value), float(wanted))
    except (TypeError, ValueError):
        return sign in ("==", "!=") and _SIGNS[sign](str(value), wanted)


def _check_names(
    rows: Sequence[Mapping[str, Any]], arguments: argparse.Namespace, header: Mapping[str, Any]
) -> None:
    """Raises if an option names what no trial has."""
    asked = [("--sort", arguments.sort)] if arguments.sort else []
    asked += [("--columns", name.strip()) for name in (arguments.columns or "").split(",") if name]
    asked += [("--filter", _comparison(text)[0]) for text in arguments.filters]
    for option, name in asked:
        if name == header.get("metric") or any(_has(row, name) for row in rows):
            continue
        known = {
            *("number", "status", "stop_reason"),
            *(path for row in rows for path in row["params"]),
            *(path for row in rows for path, _ in named_leaves(row["last_result"])),
        }
        raise TuneError(
            f"{option} {name!r}: no trial has it, neither as a parameter nor in its last result."
            f"{did_you_mean(name, known)} trials --json shows all that there is."
        )


def _has(row: Mapping[str, Any], name: str) -> bool:
    is_of_trial = name in row["params"] or name in ("number", "status", "stop_reason")
    return is_of_trial or value_at(row["last_result"], name) is not MISSING

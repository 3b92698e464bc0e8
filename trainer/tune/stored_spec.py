"""What the journal's header says of an experiment: written at the start, compared at a restore.

Parts that are plain data (spaces of ready-made domains, ready-made schedulers and searchers, stop
criteria that are dicts) are written so that they can be made again from the header alone, by a list
of known names and never by running text. Parts that are code come from the caller.
"""

from __future__ import annotations

import ast
import platform
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from trainer.algorithms.building import algorithm_class, is_registered
from trainer.config import AlgorithmConfig
from trainer.errors import JournalError, SearchSpaceError, TuneError
from trainer.runtime.machine_facts import installed_version
from trainer.tune import (
    optuna_search,
    population_based_training,
    scheduling,
    search_space,
    searchers,
)
from trainer.tune.controller import ExperimentPlan
from trainer.tune.journal_entries import MOST
from trainer.tune.search_space import Domain, SampleFrom
from trainer.tune.stoppers import StopCriteria

FORMAT: Final = 1
_DOMAIN: Final = "__domain__"
_CONFIG: Final = "__config__"
_TUPLE: Final = "__tuple__"
_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")
_DOMAINS: Final[Mapping[str, Callable[..., Any]]] = {
    name: getattr(search_space, name)
    for name in (
        "choice",
        "uniform",
        "quniform",
        "loguniform",
        "qloguniform",
        "randint",
        "qrandint",
        "lograndint",
        "qlograndint",
        "randn",
        "qrandn",
        "grid_search",
    )
}
_MODULES: Final = (scheduling, searchers, population_based_training, optuna_search)
_PARTS: Final = ("trainable", "space", "metric", "mode", "searcher", "scheduler", "seed", "order")
"""What must be the same at a restore."""


class _NotPlainError(Exception):
    """A part of a space is code."""


# ---- domains as text


def domain_of_text(text: str) -> Any:
    """A domain as it is written, such as `loguniform(1e-5, 1e-2)`; never runs anything else.

    Raises:
        SearchSpaceError: it is not one of the functions of the search space, over plain values.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
            raise ValueError("it is no call of a domain")
        function = _DOMAINS.get(tree.func.id)
        if function is None:
            raise ValueError(f"{tree.func.id!r} is none of {', '.join(_DOMAINS)}")
        arguments = [ast.literal_eval(argument) for argument in tree.args]
        named = {str(pair.arg): ast.literal_eval(pair.value) for pair in tree.keywords}
        return function(*arguments, **named)
    except SearchSpaceError:
        raise
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise SearchSpaceError(
            f"{text!r:.120} is no domain: {error}. Write one of {', '.join(_DOMAINS)} over plain "
            "values, such as loguniform(1e-5, 1e-2) or choice([32, 64])."
        ) from error


# ---- spaces as plain data


def plain_space(param_space: Any) -> Any:
    """A space as JSON data that `space_of_plain` makes again; None if code is in it."""
    try:
        if isinstance(param_space, AlgorithmConfig):
            name = getattr(param_space.algo_class, "__name__", "")
            if not is_registered(str(name)):
                return None
            return {_CONFIG: name, "settings": _plain(param_space.given_settings())}
        return _plain(dict(param_space or {}))
    except (_NotPlainError, TypeError, ValueError):
        return None


def space_of_plain(plain: Any) -> Any:
    """The space that `plain_space` wrote."""
    if isinstance(plain, Mapping) and _CONFIG in plain:
        config_class = algorithm_class(str(plain[_CONFIG])).config_class
        return config_class().update_from_dict(_of_plain(plain["settings"]))
    return _of_plain(plain)


def _plain(value: Any) -> Any:
    if isinstance(value, SampleFrom):
        raise _NotPlainError
    if isinstance(value, Domain):
        text = repr(value)
        if repr(domain_of_text(text)) != text:
            raise _NotPlainError
        return {_DOMAIN: text}
    if isinstance(value, Mapping):
        if not all(type(key) is str and not key.startswith("__") for key in value):
            raise _NotPlainError
        return {key: _plain(entry) for key, entry in value.items()}
    if type(value) is list:
        return [_plain(entry) for entry in value]
    if type(value) is tuple:
        return {_TUPLE: [_plain(entry) for entry in value]}
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise _NotPlainError


def _of_plain(plain: Any) -> Any:
    if isinstance(plain, Mapping):
        if _DOMAIN in plain:
            return domain_of_text(plain[_DOMAIN])
        if _TUPLE in plain:
            return tuple(_of_plain(entry) for entry in plain[_TUPLE])
        return {key: _of_plain(entry) for key, entry in plain.items()}
    return [_of_plain(entry) for entry in plain] if isinstance(plain, list) else plain


# ---- searchers, schedulers, criteria as plain data


def made_again(described: Mapping[str, Any]) -> Any:
    """The ready-made searcher or scheduler that `describe()` told of.

    Raises:
        TuneError: it is none of ours, or holds code.
    """
    arguments = dict(described)
    name = str(arguments.pop("type", ""))
    found = _ready_made(name)
    if found is None:
        raise _needs_caller(name)
    if isinstance(arguments.get("searcher"), Mapping):
        arguments["searcher"] = made_again(arguments["searcher"])
    if isinstance(mutations := arguments.get("hyperparam_mutations"), Mapping):
        arguments["hyperparam_mutations"] = {k: domain_of_text(v) for k, v in mutations.items()}
    if arguments.get("sampler") == "TPESampler":
        del arguments["sampler"]  # the default
    try:
        made = found(**{key: value for key, value in arguments.items() if value not in (None, [])})
    except (TypeError, TuneError) as error:
        raise _needs_caller(name) from error
    if described_part(made) != dict(described):
        raise _needs_caller(name)
    return made


def _ready_made(name: str) -> type[Any] | None:
    for module in _MODULES:
        found = getattr(module, name, None)
        if isinstance(found, type) and found.__module__ == module.__name__:
            return found
    return None


def described_part(part: Any) -> dict[str, Any]:
    """What a searcher or scheduler tells of itself; a subclass of ours is not taken for ours."""
    told: dict[str, Any] = dict(part.describe())
    kind, name = type(part), str(told.get("type", ""))
    if kind.__module__ not in {module.__name__ for module in _MODULES} and _ready_made(name):
        told["type"] = f"{kind.__qualname__}, a subclass of {name}"
    if "searcher" in told:
        told["searcher"] = described_part(part.searcher)
    return told


def _needs_caller(name: str) -> TuneError:
    return TuneError(
        f"The experiment was begun with {name or 'a part of its own'}, which the journal cannot "
        "make again. Give it: Tuner.restore(path, trainable, tune_config=TuneConfig(…), "
        "param_space=…)."
    )


def stop_of_plain(described: Any) -> Any:
    """The stop criteria that `StopCriteria.describe()` told of; a TuneError if some are code."""
    for entry in described or ():
        if not isinstance(entry, list):
            raise TuneError(
                f"The experiment stops by {_shown_stopper(entry)}, which is code. Give it again: "
                "Tuner.restore(path, trainable, run_config=RunConfig(stop=…))."
            )
    found = [{key: (sign, bound) for key, sign, bound in entry} for entry in described or ()]
    return found or None


def _shown_stopper(entry: Any) -> Any:
    return entry.get("type") if isinstance(entry, Mapping) else entry


def is_same_stop(described: Any, criteria: StopCriteria) -> bool:
    """Whether a header tells of these criteria."""
    return described in [steady(criteria.describe(by_reason=each)) for each in (False, True)]


# ---- the header


def header_of(
    plan: ExperimentPlan,
    *,
    name: str,
    trainable: str,
    param_space: Any,
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    """The journal's first line.

    `settings` are further ones that a restore takes over, as plain data.
    """
    return {
        "event": "header",
        "format": FORMAT,
        "name": name,
        "trainable": trainable,
        "seed": plan.seed,
        "num_lanes": plan.num_lanes,
        "cpus": plan.cpus,
        "order": plan.order,
        "num_samples": plan.num_samples,
        "metric": plan.metric,
        "mode": plan.mode,
        "space": steady(plan.space.describe()),
        "plain_space": plain_space(param_space),
        "searcher": steady(described_part(plan.searcher)),
        "scheduler": steady(described_part(plan.scheduler)),
        "stop": steady(plan.stop.describe()),
        "settings": dict(settings),
        "versions": versions(),
        "processor": platform.processor() or platform.machine(),
    }


def versions() -> dict[str, str | None]:
    """Of what results depend on."""
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        **{name: installed_version(name) for name in ("local-trainer", "optuna")},
    }


def _is_between(low: float, high: float, *kinds: type) -> Callable[[Any], bool]:
    return lambda value: type(value) in kinds and low <= value <= high


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_text_or_none(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping)


_HEADER: Final[Mapping[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("name", "trainable", "order"), _is_text),
    **dict.fromkeys(("metric", "mode"), _is_text_or_none),
    **dict.fromkeys(("space", "searcher", "scheduler", "settings", "versions"), _is_mapping),
    "seed": _is_between(0, MOST, int),
    "num_samples": _is_between(-1, MOST, int),
    "num_lanes": _is_between(1, 10_000, int),
    "cpus": _is_between(0, 1_000_000, int, float),
    "stop": lambda value: value is None or isinstance(value, list),
}
"""What a header's fields may hold: a journal may be a stranger's."""


def check_header(header: Mapping[str, Any] | None, path: str) -> None:
    """Raises a JournalError for what is no header, or of a newer format than this one."""
    if header is None or header.get("event") != "header":
        raise JournalError(
            f"{path} holds no experiment: its journal has no header. Nothing was begun there; "
            "begin with tune.Tuner(…).fit()."
        )
    if header.get("format") != FORMAT:
        raise JournalError(
            f"The journal in {path} has the format {header.get('format')!r}; this version knows "
            f"{FORMAT}. Restore it with the version that wrote it: {header.get('versions')!s:.200}."
        )
    if wrong := [name for name, fits in _HEADER.items() if not fits(header.get(name))]:
        raise JournalError(
            f"The header of the journal in {path} has {wrong[0]}={header.get(wrong[0])!r:.80}, "
            "which none has that was written here. It is damaged or forged: bring it back from a "
            "copy."
        )


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The parts in which a restore differs, that must be the same; each with both values."""
    return [
        f"{part}: it was begun with {old.get(part)!r}, this is {new.get(part)!r}"
        for part in _PARTS
        if old.get(part) != new.get(part)
    ]


def changed_versions(old: Mapping[str, Any]) -> list[str]:
    """Libraries of other versions than at the start, that may change what is computed."""
    before, now = dict(old.get("versions") or {}), versions()
    names = ["python", "numpy", "optuna"]
    uses_optuna = "Optuna" in str(old.get("searcher"))
    names = names if uses_optuna else names[:2]
    return [
        f"{name} {before.get(name)} then, {now.get(name)} now"
        for name in names
        if before.get(name) != now.get(name)
    ]


def steady(value: Any) -> Any:
    """Plain data without addresses in memory, as JSON gives it back."""
    if isinstance(value, Mapping):
        return {str(key): steady(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [steady(entry) for entry in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    return _ADDRESS.sub("", value if isinstance(value, str) else repr(value))

"""What the journal's header says of an experiment: written at the start, compared at a restore.

Spaces of ready-made domains are written as plain data, ready-made parts as the arguments that they
were made with. They can be made again from the header alone, by a list of known names and never by
running text. What is code comes from the caller.
"""

from __future__ import annotations

import ast
import dataclasses
import datetime as dt
import inspect
import platform
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import numpy as np

from trainer.algorithms.building import algorithm_class, is_registered
from trainer.config import AlgorithmConfig
from trainer.errors import JournalError, SearchSpaceError, TuneError
from trainer.runtime.machine_facts import installed_version
from trainer.tune import (
    configs,
    optuna_search,
    output,
    population_based_training,
    scheduling,
    search_space,
    searchers,
    stoppers,
)
from trainer.tune.configs import RunConfig, TuneConfig
from trainer.tune.journal_entries import MOST
from trainer.tune.parts import Part
from trainer.tune.plan import ExperimentPlan
from trainer.tune.search_space import Domain, SampleFrom
from trainer.tune.stoppers import Bounds, StopCriteria
from trainer_toolkit.plain_json import NotPlainError, from_json, to_json

_AnyConfig = TypeVar("_AnyConfig", TuneConfig, RunConfig)

FORMAT: Final = 1
_DOMAIN: Final = "$domain"
_CONFIG: Final = "$config"
_PART: Final = "$part"
_DURATION: Final = "$seconds"
_DISTRIBUTION: Final = "$distribution"
_CODE: Final = "$code"
"""What cannot be made again, as text to be compared and shown."""
_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")
_DOMAINS: Final[Mapping[str, Callable[..., Any]]] = {
    function.__name__: function
    for function in (
        search_space.choice,
        search_space.uniform,
        search_space.quniform,
        search_space.loguniform,
        search_space.qloguniform,
        search_space.randint,
        search_space.qrandint,
        search_space.lograndint,
        search_space.qlograndint,
        search_space.randn,
        search_space.qrandn,
        search_space.grid_search,
    )
}
_WRITTEN_APART: Final = ("TuneConfig", "RunConfig", "Bounds")
READY_MADE: Final[Mapping[str, type[Part]]] = {
    name: each
    for module in (
        *(scheduling, population_based_training, searchers, optuna_search),
        *(stoppers, output, configs),
    )
    for name, each in vars(module).items()
    if isinstance(each, type) and issubclass(each, Part) and not name.startswith("_")
    if each.__module__ == module.__name__ and each.__name__ == name and name not in _WRITTEN_APART
}
"""The parts that a header may name."""

RECORDED_ELSEWHERE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("num_samples", "seed", "metric", "mode", "scheduler", "stop"), "the header"),
    "search_alg": "the header",
    "max_concurrent_trials": "the header",
    "num_cpus": "the header",
    "name": "the folder",
    "storage_path": "the folder",
    "callbacks": "nowhere: they are the caller's, and may change",
    "engine": "nowhere: it is no part of the experiment",
    **dict.fromkeys(("sync_config", "storage_filesystem", "local_dir"), "nowhere: of no effect"),
}
"""Fields of the configs that are not among the header's settings, and where they are."""

GIVEN_AGAIN: Final = ("trial_name_creator", "trial_dirname_creator")
"""Fields that are code: if they were given at the start, a restore needs them."""

_PARTS: Final = ("trainable", "space", "metric", "mode", "searcher", "scheduler", "seed", "order")
"""What must be the same at a restore."""


class NeedsCallerError(TuneError):
    """A part must be given again."""


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
    except (NotPlainError, TypeError, ValueError):
        return None


def space_of_plain(plain: Any) -> Any:
    """The space that `plain_space` wrote."""
    if isinstance(plain, Mapping) and _CONFIG in plain:
        config_class = algorithm_class(str(plain[_CONFIG])).config_class
        return config_class().update_from_dict(_of_plain(plain["settings"]))
    return _of_plain(plain)


def _plain(value: Any) -> Any:
    return to_json(value, of_object=_tagged)


def _tagged(value: Any) -> dict[str, Any]:
    """What a domain, a ready-made part or a duration becomes."""
    if isinstance(value, Domain) and not isinstance(value, SampleFrom):
        text = repr(value)
        if repr(domain_of_text(text)) == text:
            return {_DOMAIN: text}
    if isinstance(value, Part):
        return {_PART: described_part(value)}
    if isinstance(value, dt.timedelta):
        return {_DURATION: value.total_seconds()}
    distribution = optuna_search.text_of_distribution(value)
    if distribution is not None:
        return {_DISTRIBUTION: distribution}
    raise NotPlainError(f"{value!r:.80} is code")


def _of_plain(plain: Any) -> Any:
    return from_json(plain, of_tag=_untagged)


def _untagged(tag: str, content: Any) -> Any:
    if tag == _DOMAIN:
        return domain_of_text(content)
    if tag == _PART:
        return made_again(content)
    if tag == _DURATION:
        return dt.timedelta(seconds=content)
    if tag == _DISTRIBUTION:
        return optuna_search.distribution_of_text(content)
    raise NotPlainError(f"there is no tag {tag!r}")


# ---- parts as plain data


def _described(value: Any) -> Any:
    """An argument as JSON data; what is code in it makes it text."""
    try:
        return _plain(value)
    except (NotPlainError, SearchSpaceError):
        return {_CODE: steady(repr(value))}


def code_in(plain: Any) -> str | None:
    """The text of what `_described` found to be code; None: it can be made again."""
    return str(plain[_CODE]) if isinstance(plain, Mapping) and _CODE in plain else None


def made_again(described: Mapping[str, Any]) -> Any:
    """The ready-made part that `described_part` told of.

    Raises:
        TuneError: it is none of ours, or holds code.
    """
    arguments = dict(described)
    name = str(arguments.pop("type", ""))
    kind = READY_MADE.get(name)
    if kind is None:
        raise _needs_caller(name)
    for argument, plain in arguments.items():
        if (text := code_in(plain)) is not None:
            raise _needs_caller(f"{name}({argument}={text})")
    try:
        bound = inspect.BoundArguments(inspect.signature(kind.__init__), OrderedDict(self=None))
        bound.arguments.update({key: _of_plain(plain) for key, plain in arguments.items()})
        made = kind(*bound.args[1:], **bound.kwargs)
    except NeedsCallerError:  # of a part in this one
        raise
    except Exception as error:  # the arguments are what a file says
        raise _needs_caller(name) from error
    if described_part(made) != dict(described):
        raise _needs_caller(name)
    return made


def described_part(part: Part) -> dict[str, Any]:
    """What a part tells of itself; a subclass of ours is not taken for ours."""
    kinds = [each for each in type(part).__mro__ if READY_MADE.get(each.__name__) is each]
    name = type(part).__qualname__
    if kinds and kinds[0] is not type(part):
        name = f"{name}, a subclass of {kinds[0].__name__}"
    return {key: _described(value) for key, value in part.describe().items()} | {"type": name}


def _needs_caller(name: str) -> TuneError:
    return NeedsCallerError(
        f"The experiment was begun with {name or 'a part of its own'}, which the journal cannot "
        "make again. Give it: Tuner.restore(path, trainable, tune_config=TuneConfig(…), "
        "run_config=RunConfig(…), param_space=…)."
    )


def described_stop(criteria: StopCriteria) -> list[Any]:
    """Stop criteria for the journal: bounds as lists, stoppers as parts."""
    return [
        steady(each.bounds) if isinstance(each, Bounds) else described_part(each)
        for each in criteria.stoppers
    ]


def stop_of_plain(plain: Any) -> Any:
    """The stop criteria that `described_stop` told of; a TuneError if some are code."""
    found = [
        {key: (sign, bound) for key, sign, bound in entry}
        if isinstance(entry, list)
        else made_again(entry)
        for entry in plain or ()
    ]
    return found or None


# ---- configs as plain data


def settings_of(config: TuneConfig | RunConfig) -> dict[str, Any]:
    """The fields of a config as plain data, but for those that are kept elsewhere."""
    names = [each.name for each in dataclasses.fields(config)]
    return {
        name: _described(getattr(config, name)) for name in names if name not in RECORDED_ELSEWHERE
    }


def filled_up(
    given: _AnyConfig, recorded: Mapping[str, Any], kept: Callable[[str, NeedsCallerError], Any]
) -> _AnyConfig:
    """What the caller gave, with the recorded values of fields that were left at their defaults.

    `kept` gives the value of one that is code, or raises what it is given.
    """
    left = {}
    for name, plain in recorded.items():
        if not given.leaves_out(name):
            continue
        code = code_in(plain)
        if code is None:
            left[name] = _of_plain(plain)
        elif name in GIVEN_AGAIN:
            asks = NeedsCallerError(
                f"The experiment was begun with {name}={code}, which is code. Give it again: "
                f"Tuner.restore(path, trainable, tune_config=TuneConfig({name}=…))."
            )
            left[name] = kept(name, asks)
    return dataclasses.replace(given, **left)


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
        "searcher": described_part(plan.searcher),
        "scheduler": described_part(plan.scheduler),
        "stop": described_stop(plan.stop),
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

"""Searchers and schedulers by name, and names of Ray Tune that are known and not offered."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NoReturn, TypeVar

from trainer.errors import TuneError, TuneSettingError
from trainer.tune.optuna_search import OptunaSearch
from trainer.tune.population_based_training import (
    PopulationBasedTraining,
    PopulationBasedTrainingReplay,
)
from trainer.tune.scheduling import SCHEDULERS, TrialScheduler
from trainer.tune.searchers import BasicVariantGenerator, Searcher
from trainer_toolkit.checks import shown
from trainer_toolkit.nearest_names import did_you_mean

_Made = TypeVar("_Made")

_PBT: Final = "Use PopulationBasedTraining, which needs no model of the metric."
_ASHA: Final = "Use ASHAScheduler, or HyperBandScheduler with OptunaSearch."
_OPTUNA: Final = 'Use OptunaSearch (`pip install "local-trainer[tune]"`).'
_ONE_MACHINE: Final = "Trials run in processes of this machine; leave it out."

_OTHER_SEARCHERS: Final[Mapping[str, str]] = {
    "ax": "AxSearch",
    "bayesopt": "BayesOptSearch",
    "hyperopt": "HyperOptSearch",
    "hebo": "HEBOSearch",
    "nevergrad": "NevergradSearch",
    "zoopt": "ZOOptSearch",
    "blendsearch": "BlendSearch",
    "cfo": "CFO",
    "skopt": "SkOptSearch",
    "sigopt": "SigOptSearch",
    "dragonfly": "DragonflySearch",
}
NOT_OFFERED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "PB2": _PBT,
        "HyperBandForBOHB": _ASHA,
        "TuneBOHB": _ASHA,
        "BOHB": _ASHA,
        "ResourceChangingScheduler": "What a trial asks for is fixed: tune.with_resources().",
        "DistributeResources": "What a trial asks for is fixed: tune.with_resources().",
        **dict.fromkeys(_OTHER_SEARCHERS.values(), _OPTUNA),
        "checkpoint_dir": (
            "Save into a folder of your own and report it: "
            "tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(folder))."
        ),
        "save_checkpoint": "Write tune.report(metrics, checkpoint=...).",
        "load_checkpoint": "Write tune.get_checkpoint().",
        "get_trial_id": "Write tune.get_context().get_trial_id().",
        "get_trial_name": "Write tune.get_context().get_trial_name().",
        "get_trial_dir": "Write tune.get_context().get_trial_dir().",
        "get_trial_resources": "Write tune.get_context().get_trial_resources().",
        "is_session_enabled": "tune.get_context().get_trial_id() is None outside of a trial.",
        "wait_for_gpu": "Networks run in NumPy, on CPUs; leave it out.",
        "with_parameters_ref": _ONE_MACHINE,
        "Syncer": _ONE_MACHINE,
        "SyncClient": _ONE_MACHINE,
        "ExperimentScheduler": _ONE_MACHINE,
    }
)
"""Names of `ray.tune` that users may write, and what to do instead."""

_SCHEDULERS: Final[Mapping[str, type[TrialScheduler]]] = {
    **SCHEDULERS,
    "pbt": PopulationBasedTraining,
    "pbt_replay": PopulationBasedTrainingReplay,
}
_SEARCHERS: Final[Mapping[str, type[Searcher]]] = {
    "random": BasicVariantGenerator,
    "variant_generator": BasicVariantGenerator,
    "optuna": OptunaSearch,
}
_OTHER_NAMES: Final[Mapping[str, str]] = {
    **_OTHER_SEARCHERS,
    "pb2": "PB2",
    "hb_bohb": "HyperBandForBOHB",
    "resource_changing": "ResourceChangingScheduler",
    "bohb": "TuneBOHB",
}


def not_offered(name: str) -> str | None:
    """What to tell who wants a name of Ray Tune that is not offered; None: it is unknown."""
    advice = NOT_OFFERED.get(name)
    return None if advice is None else f"{name} of Ray Tune is not offered. {advice}"


def stand_in(name: str, known: Iterable[str], *, module: str) -> Callable[..., NoReturn]:
    """What stands for a name of Ray Tune that is not offered: a script that imports it is told.

    Raises:
        AttributeError: nothing is known of the name.
    """
    advice = None if name.startswith("__") else not_offered(name)
    if advice is None:
        hint = did_you_mean(name, known)
        raise AttributeError(f"module {module!r} has no attribute {name!r}.{hint}")

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise TuneError(advice)

    return refuse


def create_scheduler(scheduler: str, **arguments: Any) -> TrialScheduler:
    """A scheduler by name, such as "asha", with its arguments.

    Raises:
        TuneError: the name or an argument is unknown; names the nearest one.
    """
    return _created("create_scheduler", scheduler, _SCHEDULERS, arguments)


def create_searcher(search_alg: str, **arguments: Any) -> Searcher:
    """A searcher by name, such as "optuna", with its arguments.

    Raises:
        TuneError: the name or an argument is unknown; names the nearest one.
        ImportError: it needs a package that is not installed.
    """
    return _created("create_searcher", search_alg, _SEARCHERS, arguments)


def _created(
    creator: str,
    name: str,
    known: Mapping[str, Callable[..., _Made]],
    arguments: Mapping[str, Any],
) -> _Made:
    made = known.get(name.lower()) if isinstance(name, str) else None
    if made is None:
        refusal = not_offered(_OTHER_NAMES.get(str(name).lower(), str(name)))
        hint = did_you_mean(name, known)
        raise TuneSettingError(
            f"{creator}({shown(name)}): "
            + (refusal or f"expected one of {', '.join(map(repr, known))}.{hint}")
        )
    names = [each for each in inspect.signature(made).parameters if each != "self"]
    unknown = sorted(arguments.keys() - set(names))
    if unknown:
        hint = did_you_mean(unknown[0], names)
        raise TuneSettingError(
            f"{creator}({name!r}, {unknown[0]}={shown(arguments[unknown[0]])}): there is no such "
            f"argument; expected some of {', '.join(names)}.{hint}"
        )
    return made(**arguments)

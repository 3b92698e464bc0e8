"""Schedulers of users that are written for Ray: their methods take its controller first.

    class Mine(tune.schedulers.ASHAScheduler):
        def on_trial_result(self, tune_controller, trial, result):
            return super().on_trial_result(tune_controller, trial, result)

There is no controller here, so they are given None for it. Nothing else of Ray's protocol is.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

from trainer.errors import TuneSettingError
from trainer.tune.scheduling import TrialScheduler

_CONTROLLERS: Final = ("tune_controller", "trial_runner", "runner", "controller")
_NUM_TAKEN: Final = {"on_trial_add": 1, "on_trial_result": 2, "on_trial_complete": 2}
"""Arguments behind the controller."""


def without_controller(scheduler: TrialScheduler) -> TrialScheduler:
    """The scheduler, as one whose methods take no controller if they take Ray's.

    Raises:
        TuneSettingError: it has a method that would never be called.
    """
    cls = type(scheduler)
    if hasattr(cls, "choose_trial_to_run"):
        raise TuneSettingError(
            f"{cls.__name__}.choose_trial_to_run() would never be called: trials start in the "
            "order of their numbers. Leave it out; on_trial_result may return verdicts that pause "
            "trials and resume others."
        )
    names = [name for name in _NUM_TAKEN if _takes_controller(getattr(cls, name))]
    if names:
        ours = next(base for base in cls.__mro__ if base.__module__.startswith("trainer.tune."))
        # Between the user's class and ours, so that `super()` with a controller finds it.
        below = type(ours.__name__, (ours,), {name: _dropping(ours, name) for name in names})
        members: dict[str, Any] = {name: _giving(cls, name) for name in names}
        members["__module__"] = cls.__module__
        scheduler.__class__ = type(cls.__name__, (cls, below), members)
    return scheduler


def _takes_controller(method: Callable[..., Any]) -> bool:
    names = list(inspect.signature(method).parameters)
    return len(names) > 1 and names[1] in _CONTROLLERS


def _giving(cls: type, name: str) -> Callable[..., Any]:
    def method(self: Any, *given: Any) -> Any:
        return getattr(cls, name)(self, None, *given[: _NUM_TAKEN[name]])

    return method


def _dropping(cls: type, name: str) -> Callable[..., Any]:
    def method(self: Any, controller: object, *given: Any) -> Any:
        del controller
        more = (False,) if name == "on_trial_complete" else ()
        return getattr(cls, name)(self, *given, *more)

    return method

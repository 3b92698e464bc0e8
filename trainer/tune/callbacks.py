"""Callbacks of an experiment, and loggers that write each trial's rows somewhere.

They are called in the tuner's process, in the decided order, by keyword, each with the arguments
that it names. A callback that raises ends the experiment in order.

After a kill of the tuner, calls of the last step may come again. What a callback counts is right
all the same if it has `get_state`: its state is saved after every step, with the number of causes
in the journal that it has been told of. A restored experiment gives it the state back and tells it
what it was not told, once. Some things depend on time, with kills or without: how many rows a step
takes (and so `iteration`), when a checkpoint is there (`on_trial_save`, `on_checkpoint`), and the
order of rows of different trials where no decision depends on it.
"""

from __future__ import annotations

import inspect
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from callbacks import CallbackError
from callbacks.ready_made.followers import Follower, FollowerThread, Sink
from callbacks.ready_made.result_files import CSVResults, TensorBoardResults
from checkpoints import decode, encode
from checkpoints.strict_files import refused
from trainer.errors import TuneError
from trainer.metrics import ResultDict
from trainer.tune.checkpoint import Checkpoint
from trainer.tune.events import Trial
from trainer.tune.own_errors import as_cause_too
from trainer.tune.trial_files import TrialFiles
from trainer_toolkit.files import replacing
from trainer_toolkit.nearest_names import did_you_mean

_LOGGER = logging.getLogger(__name__)
_STATES_FILE: Final = "callbacks.msgpack"
_PATIENCE_S: Final = 5.0
_OF_TRIALS: Final = ("iteration", "trials", "trial")
_GIVEN: Final[Mapping[str, tuple[str, ...]]] = {
    "setup": ("stop", "num_samples", "total_num_samples"),
    "on_step_begin": ("iteration", "trials"),
    "on_step_end": ("iteration", "trials"),
    "on_trial_start": _OF_TRIALS,
    "on_trial_restore": _OF_TRIALS,
    "on_trial_save": _OF_TRIALS,
    "on_trial_recover": _OF_TRIALS,
    "on_trial_result": (*_OF_TRIALS, "result"),
    "on_trial_complete": _OF_TRIALS,
    "on_trial_error": _OF_TRIALS,
    "on_checkpoint": (*_OF_TRIALS, "checkpoint"),
    "on_experiment_end": ("iteration", "trials"),
}
"""The arguments of each event."""

Listeners = Literal["all", "with state", "without state"]


class TrialView:
    """What callbacks see of a trial; read only, and always as it is now.

    Args:
        trial: the controller's record.
        config: of the trial.
        path: its folder.
        name: what it is called.
        trainable_name: of what is tuned.
        newest: gives the newest checkpoint that was asked for.
    """

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    TERMINATED = "TERMINATED"
    ERROR = "ERROR"

    def __init__(
        self,
        trial: Trial,
        *,
        config: Callable[[], Any],
        path: Path,
        name: str,
        trainable_name: str,
        newest: Callable[[], Path | None],
    ) -> None:
        self._trial = trial
        self._config = config
        self._newest = newest
        self._name = name
        self.trainable_name = trainable_name
        self.path = str(path)

    def __repr__(self) -> str:
        return f"<trial {self.trial_id}, {self.status}>"

    def __str__(self) -> str:
        return self._name

    @property
    def number(self) -> int:
        """From 0, in the order of suggestions."""
        return self._trial.number

    @property
    def trial_id(self) -> str:
        """The number as text, such as `00003`."""
        return self._trial.trial_id

    @property
    def trial_name(self) -> str:
        """What it is called."""
        return self._name

    @property
    def config(self) -> Any:
        """The whole config, made anew."""
        return self._config()

    @property
    def params(self) -> dict[str, Any]:
        """The values that were searched, by path."""
        return dict(self._trial.params)

    evaluated_params = params

    @property
    def status(self) -> str:
        """RUNNING, PAUSED, TERMINATED or ERROR."""
        return self._trial.status.value

    @property
    def last_result(self) -> ResultDict:
        """The newest row that counts; empty before the first."""
        last = self._trial.last_row
        if last is not None and not isinstance(last, ResultDict):
            # Of a trial that is over, or restored, the controller keeps what decisions look at.
            last = TrialFiles(Path(self.path)).last_row()
        return ResultDict(last or {})

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The newest one; None if there is none."""
        path = self._newest()
        return None if path is None else Checkpoint(path)

    @property
    def stop_reason(self) -> str | None:
        """Why it ended; None while it goes on."""
        return self._trial.stop_reason

    @property
    def error(self) -> str | None:
        """The text of the error that ended it."""
        return self._trial.error

    @property
    def num_failures(self) -> int:
        """Errors of the user's code so far."""
        return self._trial.num_failures

    local_path = property(lambda self: self.path, doc="Its folder.")
    logdir = local_path


_Trials = Sequence[TrialView]


class Callback:
    """Derive from it and write what you want to be told; every method does nothing.

        class Printer(tune.Callback):
            def on_trial_result(self, trial, result, **info):
                print(trial.trial_id, result["loss"])

    Methods are called by keyword and get the arguments that they name.
    """

    def setup(self, *_: Any, **info: Any) -> None:
        """Before everything else: `stop`, `num_samples`, `total_num_samples`."""

    def on_step_begin(self, *_: Any, **info: Any) -> None:
        """Before a decision is carried out: `iteration`, `trials`."""

    def on_step_end(self, *_: Any, **info: Any) -> None:
        """After it was: `iteration`, `trials`."""

    def on_trial_start(self, *_: Any, **info: Any) -> None:
        """A new trial starts: `iteration`, `trials`, `trial`."""

    def on_trial_restore(self, *_: Any, **info: Any) -> None:
        """A trial goes on after a pause, an exploit, an error or a restore; the same arguments."""

    def on_trial_save(self, *_: Any, **info: Any) -> None:
        """A checkpoint of a trial is complete; the same arguments."""

    def on_trial_recover(self, *_: Any, **info: Any) -> None:
        """A trial's process was lost and is started again; the same arguments."""

    def on_trial_result(self, *_: Any, **info: Any) -> None:
        """A row counts: `iteration`, `trials`, `trial`, `result`."""

    def on_trial_complete(self, *_: Any, **info: Any) -> None:
        """A trial is over, without an error: `iteration`, `trials`, `trial`."""

    def on_trial_error(self, *_: Any, **info: Any) -> None:
        """A trial is over, with an error: `iteration`, `trials`, `trial`."""

    def on_checkpoint(self, *_: Any, **info: Any) -> None:
        """A checkpoint is complete: `iteration`, `trials`, `trial`, `checkpoint`."""

    def on_experiment_end(self, *_: Any, **info: Any) -> None:
        """All trials are over, or the experiment was ended: `iteration`, `trials`."""

    def get_state(self) -> dict[str, Any]:
        """What a restored experiment needs to go on: plain data, kept after every step."""
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        """Takes what `get_state` gave, after `setup`, when the experiment is restored."""


class LoggerCallback(Callback):
    """A callback that writes each trial's rows somewhere: write its `log_trial_…` methods."""

    def log_trial_start(self, trial: TrialView) -> None:
        """A trial starts."""

    def log_trial_restore(self, trial: TrialView) -> None:
        """A trial goes on."""

    def log_trial_save(self, trial: TrialView) -> None:
        """A checkpoint is complete."""

    def log_trial_result(self, iteration: int, trial: TrialView, result: Mapping[str, Any]) -> None:
        """A row counts."""

    def log_trial_end(self, trial: TrialView, failed: bool = False) -> None:
        """A trial is over."""

    def on_trial_start(self, iteration: int, trials: _Trials, trial: TrialView, **_: Any) -> None:
        self.log_trial_start(trial)

    def on_trial_restore(self, iteration: int, trials: _Trials, trial: TrialView, **_: Any) -> None:
        self.log_trial_restore(trial)

    def on_trial_save(self, iteration: int, trials: _Trials, trial: TrialView, **_: Any) -> None:
        self.log_trial_save(trial)

    def on_trial_result(
        self,
        iteration: int,
        trials: _Trials,
        trial: TrialView,
        result: Mapping[str, Any],
        **_: Any,
    ) -> None:
        self.log_trial_result(iteration, trial, result)

    def on_trial_complete(
        self, iteration: int, trials: _Trials, trial: TrialView, **_: Any
    ) -> None:
        self.log_trial_end(trial, failed=False)

    def on_trial_error(self, iteration: int, trials: _Trials, trial: TrialView, **_: Any) -> None:
        self.log_trial_end(trial, failed=True)


class Logger:
    """The old base of loggers, an object per trial: give the class to `LegacyLoggerCallback`.

    Args:
        config: of the trial.
        logdir: its folder.
        trial: whose rows are written.
    """

    def __init__(self, config: Any, logdir: str, trial: TrialView | None = None) -> None:
        self.config, self.logdir, self.trial = config, logdir, trial
        self._init()

    def _init(self) -> None:
        """Opens what is written to."""

    def on_result(self, result: Mapping[str, Any]) -> None:
        """A row counts."""
        raise NotImplementedError(f"{type(self).__name__}.on_result() is not written.")

    def update_config(self, config: Any) -> None:
        """The trial goes on with another config."""
        self.config = config

    def flush(self) -> None:
        """Has what was written so far on the disk."""

    def close(self) -> None:
        """The trial is over."""


class LegacyLoggerCallback(LoggerCallback):
    """Makes a logger of each of some classes for every trial, and has it write the rows.

    Args:
        logger_classes: classes with the methods of `Logger`.
    """

    def __init__(self, logger_classes: Iterable[type[Logger]]) -> None:
        self.logger_classes = tuple(logger_classes)
        self._loggers: dict[str, list[Logger]] = {}

    def log_trial_start(self, trial: TrialView) -> None:
        if trial.trial_id not in self._loggers:
            self._loggers[trial.trial_id] = [
                make(trial.config, trial.path, trial) for make in self.logger_classes
            ]

    def log_trial_restore(self, trial: TrialView) -> None:
        self.log_trial_start(trial)
        for logger in self._loggers[trial.trial_id]:
            logger.update_config(trial.config)

    def log_trial_save(self, trial: TrialView) -> None:
        for logger in self._loggers.get(trial.trial_id, ()):
            logger.flush()

    def log_trial_result(self, iteration: int, trial: TrialView, result: Mapping[str, Any]) -> None:
        del iteration
        self.log_trial_start(trial)
        for logger in self._loggers[trial.trial_id]:
            logger.on_result(result)

    def log_trial_end(self, trial: TrialView, failed: bool = False) -> None:
        del failed
        for logger in self._loggers.pop(trial.trial_id, ()):
            logger.close()


class FollowingLogger(LoggerCallback):
    """Brings something up to the rows of each trial, in the background; see `Follower`.

    A derived class says what. Tuning never waits for it, but for some seconds at the very end.

    Attributes:
        number: 1 for the first logger of its class in an experiment, and so on.
    """

    def __init__(self) -> None:
        self.number = 1
        self._thread = FollowerThread(type(self).__name__)
        self._followers: dict[str, Follower] = {}

    def _sink_of(self, trial: TrialView) -> Sink:
        """What gets the rows of a trial."""
        raise NotImplementedError

    def log_trial_start(self, trial: TrialView) -> None:
        """Begins, or goes on where rows and sink agree: the trial may have begun anew."""
        self._wake(trial)

    log_trial_restore = log_trial_start

    def log_trial_result(self, iteration: int, trial: TrialView, result: Mapping[str, Any]) -> None:
        """Hands over the rows that count by now."""
        del iteration, result
        self._wake(trial)

    def log_trial_end(self, trial: TrialView, failed: bool = False) -> None:
        """Ends it behind the last row."""
        self._follower_of(trial).end(failed=failed)
        self._wake(trial)

    def on_experiment_end(self, *_: Any, trials: Sequence[TrialView], **__: Any) -> None:
        """Has trials that ended in an earlier process get what they lack; waits some seconds."""
        for trial in trials:
            is_of_earlier = trial.path not in self._followers
            if is_of_earlier and self._follower_of(trial).number < trial._trial.num_rows:
                self.log_trial_end(trial, failed=trial.error is not None)
        self._thread.flush(_PATIENCE_S)

    def _follower_of(self, trial: TrialView) -> Follower:
        if trial.path not in self._followers:
            rows = TrialFiles(Path(trial.path)).rows_file
            self._followers[trial.path] = Follower(rows, self._sink_of(trial), self._thread)
        return self._followers[trial.path]

    def _wake(self, trial: TrialView) -> None:
        follower = self._follower_of(trial)
        follower.until = trial._trial.num_rows  # what is behind may not count yet
        follower.wake()


class CSVLoggerCallback(FollowingLogger):
    """Writes `progress.csv` into each trial's folder; a column may appear late."""

    def _sink_of(self, trial: TrialView) -> Sink:
        return CSVResults(Path(trial.path) / "progress.csv")


class JsonLoggerCallback(LoggerCallback):
    """Of no effect: `results.jsonl` is in each trial's folder anyway."""


class TrialCurves(TensorBoardResults):
    """TensorBoard files of a trial, with its hyper-parameters.

    Args:
        directory: of the files.
        trial: whose they are.
    """

    def __init__(self, directory: Path, trial: TrialView) -> None:
        super().__init__(directory)
        self._trial = trial

    def begin(self, number: int) -> int:
        """Writes the hyper-parameters, so that running trials can be compared."""
        newest = super().begin(number)
        self.append_hyper_parameters(self._trial.params)
        return newest

    def end(self, *, failed: bool) -> None:
        """Writes the hyper-parameters once more: an exploit may have changed them."""
        del failed
        self.append_hyper_parameters(self._trial.params)


class TBXLoggerCallback(FollowingLogger):
    """Writes each trial's rows for TensorBoard, with its hyper-parameters.

    Steps are env steps where rows have them, else their numbers. Needs
    `pip install 'local-trainer[tensorboard]'`.

    Raises:
        ImportError: tensorboardX is not installed.
    """

    def __init__(self) -> None:
        TensorBoardResults(".")  # a missing package is told now
        super().__init__()

    def _sink_of(self, trial: TrialView) -> Sink:
        return TrialCurves(Path(trial.path) / "tensorboard", trial)


class CallbackCaller:
    """Calls all callbacks, each with the arguments that it names.

    Args:
        callbacks: in this order.

    Raises:
        TuneError: one is no callback, or listens to an event that there is not.
    """

    _EVENTS: Final = tuple(name for name in vars(Callback) if name.startswith("on_"))

    def __init__(self, callbacks: Sequence[Any]) -> None:
        for callback in callbacks:
            if isinstance(callback, type) or not any(
                hasattr(callback, name) for name in (*self._EVENTS, "setup")
            ):
                raise TuneError(
                    f"callbacks holds {callback!r:.80}; expected objects of classes derived from "
                    "tune.Callback. (Callbacks of an algorithm belong into its config: "
                    "config.callbacks(MyCallbacks).)"
                )
            _check_methods(callback)
        kinds: Counter[type] = Counter()
        for callback in callbacks:
            kinds[type(callback)] += 1
            if isinstance(callback, FollowingLogger):
                callback.number = kinds[type(callback)]
        self._states = {
            f"{index}-{type(callback).__name__}": callback
            for index, callback in enumerate(callbacks)
            if _written(callback, "get_state") is not None
        }
        self._methods = {
            name: [
                (method, _accepted(method), any(callback is each for each in self._states.values()))
                for callback in callbacks
                if (method := _written(callback, name)) is not None
            ]
            for name in ("setup", *self._EVENTS)
        }

    @property
    def has_states(self) -> bool:
        """Whether there is anything to save."""
        return bool(self._states)

    def save(self, folder: Path, *, num_delivered: int, iteration: int) -> None:
        """Writes the states of callbacks that have one; after each step that did something.

        Args:
            folder: of the experiment.
            num_delivered: moves of the journal that they know.
            iteration: steps that they know.

        Raises:
            CallbackError: `get_state` raised; chained as the cause.
            StateError: a state is no plain data; names the place.
            OSError: the disk is full, or the file cannot be written; the old one stays.
        """
        if self._states:
            states = {
                name: self._guarded(callback, "get_state")
                for name, callback in self._states.items()
            }
            data = encode(
                {"num_delivered": num_delivered, "iteration": iteration, "states": states},
                name="callbacks",
            )
            with replacing(folder / _STATES_FILE, folder / f".{_STATES_FILE}.tmp") as file:
                file.write(data)

    def read(self, folder: Path) -> dict[str, Any]:
        """What `save` wrote; empty if there is nothing, or no callback to be given it."""
        file = folder / _STATES_FILE
        if not (self._states and file.exists()):
            return {}
        saved: Any = decode(file.read_bytes())
        if not isinstance(saved, dict) or not isinstance(saved.get("states"), dict):
            raise refused(file, "holds no states of callbacks")
        return saved

    def load(self, folder: Path) -> None:
        """Gives the callbacks their states back; new ones, and those of other classes, have none.

        Raises:
            CallbackError: `set_state` raised; chained as the cause.
            CheckpointCorruptError: the file is damaged.
        """
        states = self.read(folder).get("states", {})
        for name in self._states.keys() & states.keys():
            self._guarded(self._states[name], "set_state", states[name])

    def _guarded(self, callback: Any, name: str, *arguments: Any) -> Any:
        try:
            return getattr(callback, name)(*arguments)
        except Exception as error:
            raise as_cause_too(
                CallbackError(f"{type(callback).__name__}.{name}", name, original=error), error
            ) from error

    def listens_to(self, name: str) -> bool:
        """Whether anybody is told of it."""
        return bool(self._methods[name])

    def call(self, name: str, *, whom: Listeners = "all", **arguments: Any) -> None:
        """Tells who listens; a CallbackError if one raised, which is its cause."""
        for method, accepted, has_state in self._methods[name]:
            if whom != "all" and has_state != (whom == "with state"):
                continue
            given = {k: v for k, v in arguments.items() if accepted is None or k in accepted}
            try:
                method(**given)
            except Exception as error:
                owner = type(getattr(method, "__self__", method)).__name__
                raised = CallbackError(f"{owner}.{name}", name, original=error)
                raise as_cause_too(raised, error) from error


def _check_methods(callback: Any) -> None:
    """Raises if a method would never be called, or could not be.

    Raises:
        TuneError: names the method, and the nearest event or the argument.
    """
    cls = type(callback)
    known = [*_GIVEN, *(name for name in vars(LoggerCallback) if name.startswith("log_trial_"))]
    for name in dir(cls):
        if name in known or not name.startswith(("on_", "log_trial_")):
            continue
        raise TuneError(
            f"{cls.__name__}.{name} would never be called: there is no such event."
            f"{did_you_mean(name, known)} There are {', '.join(_GIVEN)}; what is none begins with "
            "another word, such as _on_."
        )
    for name, given in _GIVEN.items():
        method = _written(callback, name)
        parameters = inspect.signature(method).parameters.values() if method is not None else ()
        lacking = [
            parameter.name
            for parameter in parameters
            if parameter.default is parameter.empty
            and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
            and parameter.name not in given
        ]
        if lacking:
            raise TuneError(
                f"{cls.__name__}.{name} wants {lacking[0]!r}, which is not given; expected some of "
                f"{', '.join(given)}.{did_you_mean(lacking[0], given)} Arguments are given by name."
            )


def _written(callback: Any, name: str) -> Callable[..., None] | None:
    """The method of a callback, unless it is the one that does nothing."""
    method: Callable[..., None] | None = getattr(callback, name, None)
    is_default = getattr(type(callback), name, None) is getattr(Callback, name)
    return None if is_default else method


def _accepted(method: Callable[..., None]) -> frozenset[str] | None:
    """The arguments that a method names; None for all."""
    parameters = inspect.signature(method).parameters.values()
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return frozenset(parameter.name for parameter in parameters)

"""`tune.run`, `Experiment`, `ExperimentAnalysis`: names of before, told in those of today."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from checkpoints.links import check_links
from trainer.errors import TuneError, TuneSettingError
from trainer.tune.checkpoint import Checkpoint
from trainer.tune.configs import CheckpointConfig, FailureConfig, RunConfig, TuneConfig
from trainer.tune.events import TrialStatus
from trainer.tune.results import Result, ResultGrid
from trainer.tune.rows import Mode
from trainer.tune.trainables import with_resources
from trainer.tune.trial_records import TRIALS_FOLDER
from trainer.tune.tuner import Tuner

_LOGGER = logging.getLogger(__name__)
_RESUMES: Final[Mapping[Any, Mapping[str, bool]]] = {
    True: {},
    "LOCAL": {},
    "AUTO": {},
    "ERRORED_ONLY": {"resume_errored": True},
    "AUTO+ERRORED": {"resume_errored": True},
    "AUTO+ERRORED_ONLY": {"resume_errored": True},
    "AUTO+RESTART_ERRORED": {"restart_errored": True},
    "AUTO+RESTART_ERRORED_ONLY": {"restart_errored": True},
}
_OF_TUNING: Final = (
    "metric",
    "mode",
    "search_alg",
    "scheduler",
    "num_samples",
    "max_concurrent_trials",
    "time_budget_s",
    "reuse_actors",
    "trial_name_creator",
    "trial_dirname_creator",
)
_OF_RUNNING: Final = (
    "name",
    "stop",
    "callbacks",
    "verbose",
    "progress_reporter",
    "log_to_file",
    "storage_path",
)
_OF_SAVING: Final = {
    "checkpoint_freq": "checkpoint_frequency",
    "checkpoint_at_end": "checkpoint_at_end",
    "keep_checkpoints_num": "num_to_keep",
}
_OTHERS: Final = (
    "config",
    "resources_per_trial",
    "local_dir",
    "checkpoint_config",
    "checkpoint_score_attr",
    "max_failures",
    "fail_fast",
    "restore",
    "resume",
    "raise_on_failed_trial",
)


class AnalysedTrial(Result):
    """A result under the names of Ray's `Trial`; as text it is the trial's name."""

    def __str__(self) -> str:
        return self.trial_name

    @property
    def local_path(self) -> str:
        """Its folder."""
        return self.path

    @property
    def evaluated_params(self) -> Mapping[str, Any]:
        """The values that were searched, by path."""
        return self.params

    @property
    def last_result(self) -> dict[str, Any]:
        """The last row that counts, as `metrics`; `done` once the trial has ended in order."""
        row = {} if (last := self.metrics) is None else last
        if self.status == TrialStatus.TERMINATED.value:
            row["done"] = True
        return row

    def has_checkpoint(self) -> bool:
        """Whether there is one."""
        return bool(self.saved)


class ExperimentAnalysis:
    """What `run` returns: a grid under older names.

    Args:
        grid: the results, or the folder of an experiment whose trials' folders are read.
        default_metric: for what takes a metric.
        default_mode: "min" or "max".
    """

    def __init__(
        self,
        grid: ResultGrid | str | Path,
        default_metric: str | None = None,
        default_mode: Mode | None = None,
    ) -> None:
        if not isinstance(grid, ResultGrid):
            grid = read_grid(Path(grid))
        self.grid = grid
        self.default_metric = default_metric or grid._metric
        self.default_mode = default_mode or grid._mode

    @property
    def experiment_path(self) -> str:
        """The folder."""
        return self.grid.experiment_path

    @property
    def trials(self) -> list[AnalysedTrial]:
        """All results, by number."""
        return list(map(_as_trial, self.grid))

    @property
    def results(self) -> dict[str, dict[str, Any]]:
        """The last row of each trial, by its id."""
        return dict(zip(self._ids(), (each.last_result for each in self.trials), strict=True))

    @property
    def results_df(self) -> Any:
        """The last rows as a pandas DataFrame, one column per path, by the trials' ids."""
        frame = self.grid.get_dataframe()
        frame.index = self._ids()
        return frame

    def _ids(self) -> list[str]:
        """The trials' ids; with several experiments, behind the names of their folders."""
        ids = [each.trial_id for each in self.grid]
        if len(set(ids)) == len(ids):
            return ids
        return [f"{Path(each.path).parents[1].name}/{each.trial_id}" for each in self.grid]

    @property
    def trial_dataframes(self) -> dict[str, Any]:
        """All rows of each trial as a pandas DataFrame, by its id."""
        return dict(zip(self._ids(), (each.metrics_dataframe for each in self.grid), strict=True))

    @property
    def best_trial(self) -> AnalysedTrial | None:
        """The best result by the experiment's metric; None, which is logged, if there is none."""
        return self.get_best_trial()

    @property
    def best_config(self) -> Any:
        """The config of the best trial; None if there is none."""
        return self.get_best_config()

    @property
    def best_result(self) -> dict[str, Any]:
        """The last row of the best trial."""
        return self._best().last_result

    @property
    def best_dataframe(self) -> Any:
        """All rows of the best trial as a pandas DataFrame."""
        return self._best().metrics_dataframe

    @property
    def best_result_df(self) -> Any:
        """The last row of the best trial as a pandas DataFrame."""
        return self.best_dataframe.tail(1)

    @property
    def best_checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint of the best trial."""
        return self._best().checkpoint

    @property
    def best_logdir(self) -> str:
        """The folder of the best trial."""
        return self._best().path

    best_trial_path = best_logdir

    def _best(self, metric: str | None = None, mode: Mode | None = None) -> AnalysedTrial:
        """The best result; a TuneError if there is none."""
        metric, mode = metric or self.default_metric, mode or self.default_mode
        return _as_trial(self.grid.get_best_result(metric, mode))

    def get_best_trial(
        self,
        metric: str | None = None,
        mode: Mode | None = None,
        scope: str = "last",
        filter_nan_and_inf: bool = True,
    ) -> AnalysedTrial | None:
        """The best result; see `ResultGrid.get_best_result`. None, which is logged, without one."""
        metric, mode = metric or self.default_metric, mode or self.default_mode
        best = self.grid._best(metric, mode, scope, filter_nan_and_inf)
        if isinstance(best, TuneError):
            _LOGGER.warning("%s", best)
            return None
        return _as_trial(best)

    def get_best_config(
        self, metric: str | None = None, mode: Mode | None = None, scope: str = "last"
    ) -> Any:
        """The config of the best trial; None if there is none."""
        best = self.get_best_trial(metric, mode, scope)
        return None if best is None else best.config

    def get_best_logdir(
        self, metric: str | None = None, mode: Mode | None = None, scope: str = "last"
    ) -> str | None:
        """The folder of the best trial; None if there is none."""
        best = self.get_best_trial(metric, mode, scope)
        return None if best is None else best.path

    def get_best_checkpoint(
        self, trial: Result, metric: str | None = None, mode: Mode | None = None
    ) -> Checkpoint | None:
        """The checkpoint of a trial whose row is best."""
        metric, mode = metric or self.default_metric, mode or self.default_mode
        if metric is None or mode is None:
            raise TuneSettingError("get_best_checkpoint() needs metric and mode; give both.")
        return trial.get_best_checkpoint(metric, mode)

    def get_last_checkpoint(
        self, trial: Result | None = None, metric: str | None = None, mode: Mode | None = None
    ) -> Checkpoint | None:
        """The newest checkpoint of a trial; None: of the best one."""
        return (trial or self._best(metric, mode)).checkpoint

    def get_all_configs(self) -> dict[str, Any]:
        """All configs, by the trials' ids."""
        return dict(zip(self._ids(), (each.config for each in self.grid), strict=True))

    def dataframe(self, metric: str | None = None, mode: Mode | None = None) -> Any:
        """A pandas DataFrame with a row per trial: its last, or with `mode` that of the best.

        Trials that have not reported have none; `results_df` has all.
        """
        if mode is not None and metric is None:
            raise TuneSettingError(f"dataframe(mode={mode!r}) has no metric; give one.")
        frame = self.grid.get_dataframe(None if mode is None else metric, mode)
        has_reported = [each.last_row is not None for each in self.grid]
        return frame[has_reported].reset_index(drop=True)

    def stats(self) -> dict[str, Any]:
        """How many trials there are, and how many failed."""
        return {"num_trials": len(self.grid), "num_errors": self.grid.num_errors}


def _as_trial(result: Result) -> AnalysedTrial:
    return AnalysedTrial(**{each.name: getattr(result, each.name) for each in fields(Result)})


def read_grid(folder: Path) -> ResultGrid:
    """The results in a folder, configs as in `trial.json`; a TuneError if there are none."""
    folder = folder.expanduser().resolve()
    check_links(folder)
    trials = sorted(path for path in (folder / TRIALS_FOLDER).glob("*") if path.is_dir())
    if not trials:
        raise TuneError(f"{folder} holds no trials; give the folder of an experiment.")
    results = sorted(map(Result.of_folder, trials), key=lambda each: each.number)
    return ResultGrid(results, folder=folder)


@dataclass(frozen=True)
class Experiment:
    """An experiment to be given to `run`; what does not fit is told when it is made.

    Attributes:
        name: of its folder.
        run: the trainable.
        settings: further arguments of `run`, and `env`, which goes into its `config`.
    """

    name: str
    run: Any
    settings: Mapping[str, Any]

    def __init__(self, name: str, run: Any = None, **settings: Any) -> None:
        if run is None:
            raise TuneSettingError(f"Experiment({name!r}) has no `run`; expected what is tuned.")
        if (env := settings.pop("env", None)) is not None:
            settings["config"] = {**(settings.get("config") or {}), "env": env}
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "run", run)
        object.__setattr__(self, "settings", settings)
        _check(settings)
        # How it is searched may be given to `run`: it is checked there.
        own = {key: value for key, value in settings.items() if key not in (*_OF_TUNING, "resume")}
        _tuner(_with_resources(run, settings), own)


def run(run_or_experiment: Any, **settings: Any) -> ExperimentAnalysis:
    """Runs an experiment as `Tuner` does, with arguments of before.

    Args:
        run_or_experiment: the trainable, an `Experiment`, or a list of these, which are run one
            after the other, each in a folder of its own; then `trials` are those of all.
        settings: `config`, `stop`, `num_samples`, `metric`, `mode`, `name`, `resources_per_trial`,
            `resume` and others of `ray.tune.run`.

    Raises:
        TuneError: an argument is unknown or wrong; trials failed, unless
            `raise_on_failed_trial=False`.
    """
    if isinstance(run_or_experiment, list | tuple):
        return _run_all(run_or_experiment, settings)
    if isinstance(run_or_experiment, Experiment):
        settings = {
            **run_or_experiment.settings,
            "name": run_or_experiment.name,
            **settings,
        }
        run_or_experiment = run_or_experiment.run
    _check(settings)
    tuner = _tuner(_with_resources(run_or_experiment, settings), settings)
    grid = tuner.fit()
    if grid.num_errors and settings.get("raise_on_failed_trial", True):
        failed = [f"{each.number:05d}" for each in grid if each.error is not None]
        raise TuneError(
            f"Trials {', '.join(failed)} failed; the results are in {grid.experiment_path}. The "
            f"first error: {grid.errors[0]}"
        ) from grid.errors[0]
    return ExperimentAnalysis(grid)


def _run_all(experiments: Sequence[Any], settings: Mapping[str, Any]) -> ExperimentAnalysis:
    if not experiments:
        raise TuneSettingError("tune.run([]) is given no experiment; expected at least one.")
    grids = [run(each, **settings).grid for each in experiments]
    if len(grids) == 1:
        return ExperimentAnalysis(grids[0])
    together = ResultGrid(
        [result for grid in grids for result in grid],
        folder=Path(grids[0].experiment_path),
        metric=grids[0]._metric,
        mode=grids[0]._mode,
    )
    return ExperimentAnalysis(together)


def run_experiments(
    experiments: Experiment | Sequence[Experiment] | Mapping[str, Mapping[str, Any]],
    **settings: Any,
) -> list[AnalysedTrial]:
    """Runs experiments one after the other; returns the results of all trials."""
    if isinstance(experiments, Experiment):
        experiments = [experiments]
    elif isinstance(experiments, Mapping):
        experiments = [Experiment(name, **each) for name, each in experiments.items()]
    return run(list(experiments), **settings).trials


def _check(settings: Mapping[str, Any]) -> None:
    known = {*_OF_TUNING, *_OF_RUNNING, *_OF_SAVING, *_OTHERS}
    if unknown := sorted(settings.keys() - known):
        raise TuneSettingError(
            f"tune.run() does not know {', '.join(unknown)}. It knows {', '.join(sorted(known))}; "
            "tune.Tuner has more."
        )
    if settings.get("restore") is not None:
        raise TuneSettingError(
            "tune.run(restore=…) is not offered: load the checkpoint in the trainable, such as "
            "algo.restore_from_path(path)."
        )


def _with_resources(trainable: Any, settings: Mapping[str, Any]) -> Any:
    asked = settings.get("resources_per_trial")
    return trainable if asked is None else with_resources(trainable, asked)


def _tuner(trainable: Any, settings: Mapping[str, Any]) -> Tuner:
    tune_config = TuneConfig(**{k: settings[k] for k in _OF_TUNING if k in settings})
    running = {key: settings[key] for key in _OF_RUNNING if key in settings}
    if settings.get("local_dir") is not None:
        running.setdefault("storage_path", settings["local_dir"])
    run_config = RunConfig(
        **running,
        checkpoint_config=_saving(settings),
        failure_config=FailureConfig(
            max_failures=settings.get("max_failures", 0),
            fail_fast=settings.get("fail_fast", False),
        ),
    )
    resume = settings.get("resume")
    if resume:
        if resume not in _RESUMES:
            choices = ", ".join(map(repr, _RESUMES))
            raise TuneSettingError(f"resume={resume!r}: expected one of {choices}, or False.")
        folder = Path(str(run_config.storage_path)).expanduser() / str(run_config.name)
        if run_config.name is not None and Tuner.can_restore(folder):
            restored: Tuner = Tuner.restore(
                folder,
                trainable,
                param_space=settings.get("config"),
                tune_config=tune_config,
                run_config=run_config,
                **_RESUMES[resume],
            )
            return restored
        if "AUTO" not in str(resume):
            raise TuneError(
                f"resume={resume!r}: there is no experiment in {folder}. Give its name, or "
                "resume='AUTO', which begins one if there is none."
            )
    return Tuner(
        trainable,
        param_space=settings.get("config"),
        tune_config=tune_config,
        run_config=run_config,
    )


def _saving(settings: Mapping[str, Any]) -> CheckpointConfig:
    given = settings.get("checkpoint_config")
    old = {new: settings[name] for name, new in _OF_SAVING.items() if settings.get(name)}
    attribute = settings.get("checkpoint_score_attr")
    if attribute:
        is_small_good = str(attribute).startswith("min-")
        old["checkpoint_score_attribute"] = str(attribute).removeprefix("min-")
        old["checkpoint_score_order"] = "min" if is_small_good else "max"
    if given is not None and old:
        raise TuneSettingError(
            f"checkpoint_config and {', '.join(old)} were both given; leave one of them out."
        )
    return given if given is not None else CheckpointConfig(**old)

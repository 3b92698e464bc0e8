"""`Tuner`: what users write, checked as a whole, begun, and gone on with.

A tuner checks everything when it is made, so that a misspelt setting costs milliseconds and not the
first trials. `restore` takes the trainable from the caller's code and the rest from the journal,
where it is plain data; what is code beside it is opened only if it is this user's own work.
"""

from __future__ import annotations

import dataclasses
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from trainer.errors import TuneError
from trainer.runtime.run_lock import RunLock
from trainer.tune.configs import (
    ResumeConfig,
    RunConfig,
    TuneConfig,
)
from trainer.tune.experiment import (
    Experiment,
    read_experiment_file,
    update_experiment_file,
)
from trainer.tune.journal_file import (
    JOURNAL_FILE,
    JournalFile,
    followed,
    read_journal,
)
from trainer.tune.plan import ExperimentPlan
from trainer.tune.restored import RestoredExperiment, read_header
from trainer.tune.results import ResultGrid
from trainer.tune.setup import PARAMETERS_FOLDER, ExperimentSetup, check_kind
from trainer.tune.stored_code import keep_code
from trainer_toolkit.arguments import takes
from trainer_toolkit.checks import boolean
from trainer_toolkit.files import numbered_beside

_LOGGER = logging.getLogger(__name__)
_ELSEWHERE: Final = "another RunConfig(name=…)"


class _OnObjectError(TuneError, AttributeError):
    """`restore` was looked up on an object: `hasattr` says no."""


class _OfClass:
    """A class method that says so when it is called on an object."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    def __get__(self, instance: object, owner: type) -> Callable[..., Any]:
        if instance is not None:
            raise _OnObjectError(
                "restore() belongs to the class and makes a tuner: "
                "tuner = tune.Tuner.restore(path, trainable); tuner.fit()."
            )
        return lambda *given, **named: self._function(owner, *given, **named)


class Tuner:
    """Runs trials of a trainable over a search space, and survives every kill exactly.

        tuner = tune.Tuner(
            "PPO",
            param_space={"env": "CartPole-v1", "lr": tune.loguniform(1e-5, 1e-2)},
            tune_config=tune.TuneConfig(
                num_samples=8, metric="env_runners/episode_return_mean", mode="max"
            ),
            run_config=tune.RunConfig(name="first", stop={"training_iteration": 20}),
        )
        best = tuner.fit().get_best_result()

    Args:
        trainable: a function, a `Trainable` class, an `Algorithm` class, or a name; also what
            `with_resources` and `with_parameters` give.
        param_space: a dict with domains at any depth, or an `AlgorithmConfig` with them.
        tune_config: how to search.
        run_config: where to keep it, when to stop.

    Raises:
        TuneError: something does not fit; says what.
        ConfigError: a setting of an algorithm is unknown or wrong.
    """

    def __init__(
        self,
        trainable: Any = None,
        *,
        param_space: Any = None,
        tune_config: TuneConfig | None = None,
        run_config: RunConfig | None = None,
        _setup: ExperimentSetup | None = None,
    ) -> None:
        check_kind("tune_config", tune_config, TuneConfig)
        check_kind("run_config", run_config, RunConfig)
        self._setup = _setup or ExperimentSetup(
            trainable,
            param_space,
            tune_config or TuneConfig(),
            run_config or RunConfig(),
        )
        self._restored: RestoredExperiment | None = None
        self._grid: ResultGrid | None = None
        self._has_begun = False
        self._folder: Path | None = None
        if _setup is None:
            self._setup.check()

    # ---- running

    def fit(self) -> ResultGrid:
        """Runs the experiment to its end; once per tuner.

        Returns:
            the results, also if trials failed.

        Raises:
            TuneError: it was called before; the experiment itself failed.
            KeyboardInterrupt: Ctrl-C or SIGTERM, after an end in order that says how to go on.
            CallbackError: a callback raised.
        """
        if self._has_begun:
            raise TuneError(
                "fit() was called before, and runs an experiment once. Go on with "
                "tune.Tuner.restore(path, trainable), or make another Tuner."
            )
        self._has_begun = True
        run = self._begin if self._restored is None else self._go_on
        return run()

    @property
    def experiment_path(self) -> str | None:
        """The folder of the experiment that was begun or is gone on with; None before `fit`."""
        return None if self._folder is None else str(self._folder)

    def _begin(self) -> ResultGrid:
        setup = self._setup
        folder, must_be_new = setup.new_folder()
        if Tuner.can_restore(folder):
            folder, must_be_new = _beside(folder), True
        with RunLock(folder, must_be_new=must_be_new, elsewhere=_ELSEWHERE):
            _refuse_existing(folder)
            self._folder = folder
            plan = setup.plan(setup.tune_config.num_samples)
            header = setup.header(plan, folder.name)
            keep_code(
                folder,
                header,
                param_space=setup.param_space,
                tune_config=setup.tune_config,
                run_config=setup.run_config,
            )
            journal = JournalFile(folder / JOURNAL_FILE, signs=True)
            journal.append([header])
            journal.sync()
            update_experiment_file(folder, {k: v for k, v in header.items() if k != "event"})
            experiment = setup.experiment(plan, folder)
            experiment.begin(journal)
            return self._run(experiment, plan)

    def _go_on(self) -> ResultGrid:
        restored, setup = self._restored, self._setup
        assert restored is not None  # noqa: S101 - asked before
        self._folder = restored.folder
        with RunLock(restored.folder, elsewhere=_ELSEWHERE):
            with followed(restored.folder):
                experiment, plan = self._restored_experiment(restored, setup)
            return self._run(experiment, plan)

    @staticmethod
    def _restored_experiment(
        restored: RestoredExperiment, setup: ExperimentSetup
    ) -> tuple[Experiment, ExperimentPlan]:
        journal = JournalFile(restored.folder / JOURNAL_FILE, signs=restored.is_trusted)
        moves = restored.moves(journal.read(restored.read_before()))
        plan = setup.plan(restored.header["num_samples"])
        experiment = setup.experiment(plan, restored.folder)
        elapsed_s = float(read_experiment_file(restored.folder).get("elapsed_s") or 0.0)
        experiment.restore(
            journal,
            moves,
            elapsed_s=elapsed_s,
            has_new_stop=restored.has_new_stop(setup),
        )
        controller = experiment.controller
        unfinished = [trial for trial in controller.trials if not trial.status.is_over]
        setup.check_read(controller.config_of(trial.number) for trial in unfinished)
        amendment = restored.amendment(controller, moves, setup)
        if amendment is not None:
            experiment.amend(amendment)
        return experiment, plan

    def _run(self, experiment: Experiment, plan: ExperimentPlan) -> ResultGrid:
        setup = self._setup
        setup.warn_if_endless(plan)
        try:
            reason = experiment.run()
        finally:
            shutil.rmtree(experiment.folder / PARAMETERS_FOLDER, ignore_errors=True)
        self._grid = setup.grid(experiment, plan, reason)
        return self._grid

    def get_results(self) -> ResultGrid:
        """The results of the last `fit`, or after `restore` what is in the directory.

        Raises:
            TuneError: nothing was run.
        """
        if self._grid is not None:
            return self._grid
        if self._restored is None:
            raise TuneError("There are no results yet: call fit() first.")
        restored, setup = self._restored, self._setup
        with followed(restored.folder):
            moves = restored.moves(read_journal(restored.folder / JOURNAL_FILE)[0])
            plan = setup.plan(restored.header["num_samples"])
            experiment = setup.experiment(plan, restored.folder)
            experiment.look(moves, has_new_stop=restored.has_new_stop(setup))
            return setup.grid(experiment, plan, "")

    # ---- restoring

    @_OfClass
    @takes(resume_errored=boolean(), restart_errored=boolean(), allow_code=boolean())
    def restore(
        cls,  # noqa: N805 - it is given the class
        path: str | Path,
        trainable: Any = None,
        *,
        resume_unfinished: bool = True,
        resume_errored: bool = False,
        restart_errored: bool = False,
        param_space: Any = None,
        tune_config: TuneConfig | None = None,
        run_config: RunConfig | None = None,
        allow_code: bool = False,
        **more: Any,
    ) -> Tuner:
        """A tuner that goes on with an experiment; `fit()` runs it.

        The trainable comes from the caller's code. Space and configs may be left out: code in them
        was kept, and is opened if this user began the experiment on this machine, or with
        `allow_code`. Where they are given they must be the same, except for what extends the
        experiment: a larger `num_samples`, other stop criteria, callbacks, failures, checkpoints.
        Fields that are left at their defaults are what they were at the start.

        Args:
            path: the experiment's folder.
            trainable: what is tuned.
            resume_unfinished: go on with trials that were running.
            resume_errored: go on with trials that failed, from their newest checkpoints.
            restart_errored: begin trials that failed anew.
            param_space: as at the start.
            tune_config: as at the start.
            run_config: what is to be changed.
            allow_code: open code that was kept with the experiment, and let configs in its folder
                name envs and strategies that have to be imported; say True only where you trust
                the folder like a program.
            more: names of older versions; refused with advice.

        Raises:
            TuneError: there is no experiment, or something else is tuned than before; names both.
        """
        if more:
            raise TuneError(
                f"Tuner.restore() got {sorted(more)}; expected resume_unfinished, resume_errored, "
                "restart_errored, param_space, tune_config, run_config or allow_code."
            )
        if not resume_unfinished:
            raise TuneError(
                "resume_unfinished=False: trials that were running go on, because what others did "
                "depended on them. To look at results without running, call get_results()."
            )
        resume = ResumeConfig(
            errored="restart" if restart_errored else "resume" if resume_errored else "skip",
        )
        restored = RestoredExperiment.at(
            path, resume, tune_config, run_config, allow_code=allow_code
        )
        with followed(restored.folder):
            setup = restored.setup(trainable, param_space)
        made: Tuner = cls(_setup=setup)  # type: ignore[operator]  # it is the class
        made._restored = restored
        return made

    @staticmethod
    def can_restore(path: str | Path, **_: Any) -> bool:
        """Whether there is an experiment in a folder; reads the header, loads no code."""
        try:
            read_header(Path(path))
        except (TuneError, OSError):
            return False
        return True


def extended(
    tuner: Tuner, folder: Path, *, num_samples: int | None = None, stop: Any = None, **resume: bool
) -> Tuner:
    """A tuner that goes on in a folder with what another one was made of.

    Args:
        tuner: made by the user's code, and not yet run.
        folder: of the experiment.
        num_samples: more of them; None: as many as in the tuner.
        stop: other criteria; None: those of the tuner.
        resume: see `Tuner.restore`.
    """
    setup = tuner._setup
    tune_config, run_config = setup.tune_config, setup.run_config
    if num_samples is not None:
        tune_config = dataclasses.replace(tune_config, num_samples=num_samples)
    if stop is not None:
        run_config = dataclasses.replace(run_config, stop=stop)
    made: Tuner = Tuner.restore(
        folder,
        setup.trainable,
        param_space=setup.param_space,
        tune_config=tune_config,
        run_config=run_config,
        **resume,
    )
    return made


def silence(tuner: Tuner) -> None:
    """Keeps a tuner that has not begun from showing its progress: its caller writes the output."""
    tuner._setup.run_config = dataclasses.replace(tuner._setup.run_config, verbose=0)


def _beside(folder: Path) -> Path:
    """Where an experiment goes whose name was used before: scripts are run again."""
    another = numbered_beside(folder, "-", first=2)
    _LOGGER.warning(
        "%s holds an experiment already; this one is kept in %s. To go on with the first one: "
        "tune.Tuner.restore(%r, trainable).fit().",
        folder,
        another,
        str(folder),
    )
    return another


def _refuse_existing(folder: Path) -> None:
    if Tuner.can_restore(folder):
        raise TuneError(
            f"Another program has just begun an experiment in {folder}; give {_ELSEWHERE}."
        )
    journal = folder / JOURNAL_FILE
    if journal.exists() and read_journal(journal)[0]:
        raise TuneError(f"{journal} is no journal of this library; give another name.")
    journal.unlink(missing_ok=True)  # a header that was not written to its end

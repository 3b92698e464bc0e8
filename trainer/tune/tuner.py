"""`Tuner`: what users write, checked as a whole, begun, and gone on with.

A tuner checks everything when it is made, so that a misspelt setting costs milliseconds and not the
first trials. `restore` takes the trainable from the caller's code and the rest from the journal,
where it is plain data; no pickle is ever read.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime as dt
import functools
import inspect
import logging
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from checkpoints.arguments import boolean, takes
from checkpoints.data_classes import dataclass
from checkpoints.file_system import numbered_beside
from checkpoints.trees import copied_if_possible
from trainer.algorithms.building import require_env
from trainer.envs.env_factory import check_known
from trainer.errors import TuneError
from trainer.name_resolution import PROGRAM, Source, stranger
from trainer.runtime.run_lock import RunLock
from trainer.seeding import draw_root_seed
from trainer.tune.callbacks import CallbackCaller
from trainer.tune.configs import (
    CheckpointConfig,
    FailureConfig,
    ResumeConfig,
    RunConfig,
    TuneConfig,
    default_num_lanes,
)
from trainer.tune.controller import Controller, ExperimentPlan
from trainer.tune.events import StartTrial, TrialStatus
from trainer.tune.experiment import (
    Experiment,
    read_experiment_file,
    update_experiment_file,
)
from trainer.tune.journal_entries import AmendEntry, DecideEntry, Entry, entry_from_plain
from trainer.tune.journal_file import (
    JOURNAL_FILE,
    JournalFile,
    ReadJournal,
    read_first_entry,
    read_journal,
)
from trainer.tune.naming import create_scheduler, create_searcher
from trainer.tune.output import CLIReporter, Progress, ProgressReporter
from trainer.tune.results import ResultGrid, result_of
from trainer.tune.scheduling import FIFOScheduler, TrialScheduler
from trainer.tune.search_space import Choice, SampleFrom, SearchSpace
from trainer.tune.searchers import BasicVariantGenerator, Searcher
from trainer.tune.stoppers import StopCriteria
from trainer.tune.stored_spec import (
    changed_versions,
    check_header,
    differences,
    header_of,
    is_same_stop,
    made_again,
    space_of_plain,
    steady,
    stop_of_plain,
)
from trainer.tune.trainables import (
    Trainable,
    algorithm_config,
    resolve_trainable,
)
from trainer.tune.trial_records import (
    check_packs,
    cpus_for_trials,
    engine_for_trials,
)

_LOGGER = logging.getLogger(__name__)
_AnyConfig = TypeVar("_AnyConfig", TuneConfig, RunConfig)
_PARAMETERS: Final = ".parameters"
_ELSEWHERE: Final = "another RunConfig(name=…)"
_CRITERIA: Final = "criteria"
"""The journal's lines of new stop criteria, which the controller does not read."""

_OF_STATE: Final = frozenset(
    (
        *("model", "model_config", "rl_module_spec", "env", "dueling", "num_atoms", "noisy"),
        *("observation_filter", "normalize_rewards", "kl_coeff"),
        *(f"replay_buffer_config/{name}" for name in ("type", "capacity", "alpha")),
    )
)
"""Settings that a checkpoint must have been saved with, or that it has a value of."""

_KEPT: Final = ("chdir_to_trial_dir", "in_process", "seed_globals", "reuse_actors")
"""Fields of `TuneConfig` that a restore takes over from the header."""


class _OfClass:
    """A class method that says so when it is called on an object."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    def __get__(self, instance: object, owner: type) -> Callable[..., Any]:
        if instance is not None:
            raise TuneError(
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
        _setup: _Setup | None = None,
    ) -> None:
        _check_kind("tune_config", tune_config, TuneConfig)
        _check_kind("run_config", run_config, RunConfig)
        self._setup = _setup or _Setup(
            trainable,
            param_space,
            tune_config or TuneConfig(),
            run_config or RunConfig(),
        )
        self._restored: _Restored | None = None
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
            TuneError: it was called before; the name is taken; the experiment itself failed.
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
        with RunLock(folder, must_be_new=must_be_new, elsewhere=_ELSEWHERE):
            _refuse_existing(folder)
            self._folder = folder
            plan = setup.plan(setup.tune_config.num_samples)
            journal = JournalFile(folder / JOURNAL_FILE)
            header = setup.header(plan, folder.name)
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
            journal = JournalFile(restored.folder / JOURNAL_FILE)
            entries = restored.entries(journal.read(restored.read_before()))
            plan = setup.plan(restored.header["num_samples"])
            experiment = setup.experiment(plan, restored.folder)
            elapsed_s = float(read_experiment_file(restored.folder).get("elapsed_s") or 0.0)
            experiment.restore(
                journal,
                entries,
                elapsed_s=elapsed_s,
                has_new_stop=restored.has_new_stop(setup),
            )
            controller = experiment.controller
            unfinished = [trial for trial in controller.trials if not trial.status.is_over]
            setup.check_read(controller.config_of(trial.number) for trial in unfinished)
            amendment = restored.amendment(experiment.controller, entries, setup)
            if amendment is not None:
                if amendment.has_new_stop:
                    journal.append([restored.criteria_entry(setup)])
                experiment.amend(amendment)
            return self._run(experiment, plan)

    def _run(self, experiment: Experiment, plan: ExperimentPlan) -> ResultGrid:
        setup = self._setup
        setup.tell_endless(plan)
        try:
            reason = experiment.run()
        finally:
            shutil.rmtree(experiment.folder / _PARAMETERS, ignore_errors=True)
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
        entries = restored.entries(read_journal(restored.folder / JOURNAL_FILE)[0])
        plan = setup.plan(restored.header["num_samples"])
        experiment = setup.experiment(plan, restored.folder)
        experiment.look(entries, has_new_stop=restored.has_new_stop(setup))
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

        The trainable comes from the caller's code. Space and configs may be left out where they
        hold no code; where they are given they must be the same, except for what extends the
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
            allow_code: let configs in the experiment's folder name envs and strategies that have to
                be imported; say True only where you trust the folder like a program.
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
        restored = _Restored.at(path, resume, tune_config, run_config)
        setup = restored.setup(trainable, param_space, allow_code=allow_code)
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


def opens_with_code_only(tuner: Tuner) -> bool:
    """Whether the folder of an experiment names code, so that it opens with `allow_code` only."""
    setup = tuner._setup
    algorithm = setup.spec.algorithm
    return algorithm is not None and any(
        algorithm_config(algorithm, config, source=PROGRAM).names_code()
        for config in _drawn(setup.space)
    )


def silence(tuner: Tuner) -> None:
    """Keeps a tuner that has not begun from showing its progress: its caller writes the output."""
    tuner._setup.run_config = dataclasses.replace(tuner._setup.run_config, verbose=0)


def _check_kind(name: str, value: object, kind: type) -> None:
    if value is not None and not isinstance(value, kind):
        raise TuneError(f"{name}={value!r:.80}: expected a {kind.__name__}, or None.")


def _refuse_existing(folder: Path) -> None:
    if Tuner.can_restore(folder):
        raise TuneError(
            f"{folder} holds an experiment already. Go on with it: tune.Tuner.restore("
            f"{str(folder)!r}, trainable).fit(). Or begin another one: "
            f"RunConfig(name={numbered_beside(folder, '-', first=2).name!r})."
        )
    journal = folder / JOURNAL_FILE
    if journal.exists() and read_journal(journal)[0]:
        raise TuneError(f"{journal} is no journal of this library; give another name.")
    journal.unlink(missing_ok=True)  # a header that was not written to its end


def read_header(folder: Path) -> dict[str, Any]:
    """The header of an experiment's journal.

    Raises:
        TuneError: there is none; names the experiment's folder if a part of it was given.
    """
    folder = folder.expanduser().resolve()
    if not (folder / JOURNAL_FILE).is_file():
        above = [path for path in folder.parents if (path / JOURNAL_FILE).is_file()]
        hint = f" Give the experiment's folder, {above[0]}." if above else ""
        raise TuneError(f"{folder} holds no experiment: there is no {JOURNAL_FILE} in it.{hint}")
    header = read_first_entry(folder / JOURNAL_FILE)
    check_header(header, str(folder))
    assert header is not None  # noqa: S101 - checked
    return header


@dataclass
class _Setup:
    """What users wrote, in the form in which an experiment needs it.

    Attributes:
        trainable: as it was given.
        param_space: as it was written.
        tune_config: how to search.
        run_config: where to keep it, when to stop.
        seed: of the experiment.
        num_lanes: trials at the same time at most; 0 until `check` has worked it out.
        cpus: that trials share.
        request: CPUs that trial 0 asks for.
        source: where configs of trials are read: the program, or an experiment's folder.
    """

    trainable: Any
    param_space: Any
    tune_config: TuneConfig
    run_config: RunConfig
    seed: int = -1
    num_lanes: int = 0
    cpus: float = 0.0
    request: float = 1.0
    source: Source = PROGRAM

    def __post_init__(self) -> None:
        self.spec = resolve_trainable(self.trainable).reading(self.source)
        self.space = SearchSpace(self.param_space)
        if self.seed < 0:
            given = self.tune_config.seed
            self.seed = draw_root_seed() if given is None else given
        if not self.cpus:
            self.cpus = float(self.run_config.num_cpus or cpus_for_trials(self.tune_config.engine))

    @property
    def checkpoint_config(self) -> CheckpointConfig:
        """When trials are saved."""
        return self.run_config.checkpoint_config or CheckpointConfig()

    @property
    def failure_config(self) -> FailureConfig:
        """What happens when code raises."""
        return self.run_config.failure_config or FailureConfig()

    # ---- checks

    def check(self) -> None:
        """Raises what is wrong with the parts together, before anything runs.

        Raises:
            TuneError: parts do not fit each other, or cannot travel to a process.
            ConfigError: the first trial's config is wrong.
        """
        self._check_trainable()
        self._check_saving()
        lanes, self.num_lanes = self.num_lanes, self.num_lanes or 1
        plan = self.plan(self.tune_config.num_samples)
        self._check_explored(plan.scheduler)
        probe = Controller(plan)
        starts = [each for each in probe.begin().actions if isinstance(each, StartTrial)]
        if not starts:
            raise TuneError("The searcher suggested no first trial; expected at least one.")
        self.check_config(starts[0].config)
        self.request = request = probe.trials[0].cpus
        given = self.tune_config.max_concurrent_trials
        number = given or default_num_lanes(self.cpus, request, probe.num_trials_expected)
        self.num_lanes = lanes or number
        CallbackCaller(self.run_config.callbacks or ())
        self._reporter()

    def _check_explored(self, scheduler: TrialScheduler) -> None:
        """An algorithm goes on from the state of one that was built with the same settings."""
        names = {path: {path, path.partition("/")[0]} for path in scheduler.explored}
        wrong = sorted(path for path in names if names[path] & _OF_STATE)
        if wrong and self.spec.algorithm is not None:
            raise TuneError(
                f"{type(scheduler).__name__} is to change {', '.join(wrong)} while trials run, but "
                "a clone goes on from its donor's state: that of another network, env, filter or "
                "replay buffer does not fit, and kl_coeff is a part of it. Search them in "
                "param_space with tune.choice or tune.grid_search, and leave them out of what is "
                "mutated."
            )

    def check_config(self, config: Any) -> None:
        """Raises if a trial with this config could not begin."""
        if self.spec.algorithm is not None:
            own = algorithm_config(self.spec.algorithm, config, source=self.spec.source)
            own.validate()
            require_env(own)
            if isinstance(own.env, str):
                check_known(own.env, source=own.source)
        if not self.tune_config.in_process:
            check_packs(self.spec, config)

    def check_read(self, configs: Iterable[Any]) -> None:
        """Raises if configs that were read are wrong or name code, before trials fail by them."""
        algorithm = self.spec.algorithm
        if algorithm is None or self.source.is_trusted:
            return
        for config in configs:
            algorithm_config(algorithm, config, source=self.source).validate()

    def _check_call(self) -> None:
        """Whether trials can call the function, or `setup`, with what they have."""
        spec = self.spec
        called = spec.target.setup if spec.kind == "class" else spec.target
        positional = [None] * (1 + (spec.kind == "class") + spec.takes_reporter)
        try:
            signature = inspect.signature(called)
        except (TypeError, ValueError):  # some callables of C code have none
            return
        try:
            signature.bind(*positional, **spec.parameters)
        except TypeError as error:
            name = spec.name if spec.kind == "function" else f"{spec.name}.setup"
            more = "".join(f", {each}=…" for each in spec.parameters)
            raise TuneError(
                f"Trials call {name}(config{more}), which does not fit {name}{signature}: {error}. "
                "Whatever it takes besides the config comes from tune.with_parameters(trainable, "
                "name=value)."
            ) from error

    def _check_trainable(self) -> None:
        self._check_call()
        of_space = self.space.config_class
        if of_space is None:
            return
        algorithm = self.spec.algorithm
        if algorithm is None or not issubclass(of_space, algorithm.config_class):
            raise TuneError(
                f"param_space is a {of_space.__name__}, and the trainable is {self.spec.name}; "
                "expected the algorithm that the config is of, as its class or its name."
            )

    def _check_saving(self) -> None:
        saving, is_function = self.checkpoint_config, self.spec.kind == "function"
        for name in ("checkpoint_frequency", "checkpoint_at_end"):
            if is_function and getattr(saving, name):
                raise TuneError(
                    f"{name}={getattr(saving, name)!r}: the function {self.spec.name} saves by "
                    "itself, with tune.report({…}, checkpoint=…). Leave it out."
                )
        if not is_function and not self.spec.saves and saving.checkpoint_frequency:
            raise TuneError(
                f"checkpoint_frequency={saving.checkpoint_frequency}: {self.spec.name} has no "
                "save_checkpoint(). Write it and load_checkpoint(), or leave the frequency out."
            )
        if self.tune_config.reuse_actors:
            target = self.spec.target
            if is_function or target.reset_config is Trainable.reset_config:
                raise TuneError(
                    f"reuse_actors=True: {self.spec.name} has no reset_config(new_config) that "
                    "makes its object another trial's. Write it, or leave reuse_actors out."
                )

    # ---- plans

    def plan(self, num_samples: int) -> ExperimentPlan:
        """A plan with a searcher and a scheduler of its own.

        `num_samples` are those that the experiment was begun with.
        """
        tuning, saving = self.tune_config, self.checkpoint_config
        # Copies: what a user gave stays as it is, and can be given again.
        given = tuning.scheduler
        scheduler = copied_if_possible(
            _chosen("scheduler", given, TrialScheduler, create_scheduler)
        )
        given = tuning.search_alg
        searcher = copied_if_possible(_chosen("search_alg", given, Searcher, create_searcher))
        at_end = saving.checkpoint_at_end
        budget: Any = tuning.time_budget_s
        return ExperimentPlan(
            space=SearchSpace(self.param_space),
            searcher=searcher,
            scheduler=scheduler,
            stop=StopCriteria(copied_if_possible(self.run_config.stop), time_budget_s=budget),
            metric=tuning.metric or getattr(scheduler, "metric", None),
            mode=tuning.mode or getattr(scheduler, "mode", None),
            seed=self.seed,
            num_samples=num_samples,
            num_lanes=self.num_lanes,
            cpus=self.cpus,
            cpus_of=self.spec.cpus_of,
            order=tuning.order,
            max_failures=self.failure_config.max_failures,
            fail_fast=bool(self.failure_config.fail_fast),
            save_at_end=self.spec.saves if at_end is None else at_end,
            save_frequency=saving.checkpoint_frequency,
        )

    def header(self, plan: ExperimentPlan, name: str) -> dict[str, Any]:
        """The journal's first line."""
        tuning, saving, failing = self.tune_config, self.checkpoint_config, self.failure_config
        settings = {
            "tune_config": {field: getattr(tuning, field) for field in _KEPT},
            "time_budget_s": tuning.time_budget_s,
            "checkpoint_config": dataclasses.asdict(saving),
            "failure_config": dataclasses.asdict(failing),
            "recovery_interval_s": self.run_config.recovery_interval_s,
            "trial_timeout_s": self.run_config.trial_timeout_s,
            "verbose": self.run_config.verbose,
        }
        return header_of(
            plan,
            name=name,
            trainable=self.spec.name,
            param_space=self.param_space,
            settings=settings,
        )

    # ---- experiments

    def new_folder(self) -> tuple[Path, bool]:
        """Where a new experiment goes, and whether the folder must not be there."""
        parent = Path(str(self.run_config.storage_path)).expanduser().resolve()
        if self.run_config.name is not None:
            return parent / self.run_config.name, False
        now = dt.datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
        folder = parent / f"{self.spec.name}-{now}"
        return (numbered_beside(folder, "-", first=2) if folder.exists() else folder), True

    def experiment(self, plan: ExperimentPlan, folder: Path) -> Experiment:
        """An experiment in a folder, not yet begun."""
        tuning, running = self.tune_config, self.run_config
        title = (
            f"Experiment {folder.name}: {self.spec.name}, {self.num_lanes} at a time, seed "
            f"{self.seed}, in {folder}"
        )
        spec = self.spec
        if not tuning.in_process:
            spec = spec.with_shared_arrays(folder / _PARAMETERS)
        return Experiment(
            plan,
            spec,
            folder,
            tune_config=tuning,
            run_config=running,
            engine=engine_for_trials(tuning.engine, num_cpus=self.request),
            callbacks=CallbackCaller(running.callbacks or ()),
            progress=Progress(running.verbose, self._reporter(), title=title),
        )

    def _reporter(self) -> ProgressReporter:
        found = copy.copy(self.run_config.progress_reporter) or CLIReporter()
        if not isinstance(found, ProgressReporter):
            raise TuneError(
                f"progress_reporter={found!r:.80}: expected a tune.CLIReporter or another "
                "ProgressReporter."
            )
        metric, mode = self.tune_config.metric, self.tune_config.mode
        if isinstance(metric, str):
            found.metric, found.mode = found.metric or metric, found.mode or mode
        return found

    def tell_endless(self, plan: ExperimentPlan) -> None:
        """Warns if nothing will end the experiment."""
        is_unbounded = plan.num_samples == -1 and plan.stop.deadline_s is None
        is_endless = self.spec.kind == "class" and plan.stop.is_empty
        if is_unbounded or (is_endless and isinstance(plan.scheduler, FIFOScheduler)):
            _LOGGER.warning(
                "Nothing ends this experiment by itself: give RunConfig(stop={'training_iteration':"
                " 100}) or another criterion. Ctrl-C ends it in order, and it can be restored."
            )

    def grid(self, experiment: Experiment, plan: ExperimentPlan, reason: str) -> ResultGrid:
        """The results of an experiment."""
        controller, records = experiment.controller, experiment.records
        reasons = list(controller.inexact_reasons)
        unsaved = {ref.trial for ref in controller.unfinished_saves if self.spec.saves}
        if experiment.rows_differ:
            reasons.append("rows that were made again after a repair were others")
        metric: Any = plan.metric if isinstance(plan.metric, str) else None
        mode: Any = plan.mode if isinstance(plan.mode, str) else None
        return ResultGrid(
            [
                result_of(
                    trial,
                    functools.partial(plan.space.config, trial.params),
                    records.files_of(trial.number).path,
                    records.saved_of(trial.number),
                )
                for trial in controller.trials
            ],
            folder=experiment.folder,
            metric=metric,
            mode=mode,
            seed=self.seed,
            num_lanes=self.num_lanes,
            inexact_reasons=reasons,
            space=plan.space,
            stop_reason=reason,
            unsaved=sorted(unsaved),
        )


def _chosen(name: str, given: Any, kind: type, create: Callable[[str], Any]) -> Any:
    if given is None:
        return FIFOScheduler() if kind is TrialScheduler else BasicVariantGenerator()
    if isinstance(given, str):
        return create(given)
    if not isinstance(given, kind):
        raise TuneError(f"{name}={given!r:.80}: expected a {kind.__name__}, or its name.")
    return given


_IF_TRUSTED: Final = (
    "If it is yours, register it before (register_env(name, …)), or give the search space again: "
    "Tuner.restore(path, trainable, param_space=…). Pass allow_code=True (--allow-code) only if "
    "you trust the experiment's folder like a program."
)


def _given(param_space: Any) -> list[Any]:
    """The values that a space of the caller's holds, choices included."""
    if param_space is None:
        return []
    space = SearchSpace(param_space)
    choices = [each.values for each in space.parameters.values() if isinstance(each, Choice)]
    return [space.unresolved(), *choices]


def _drawn(space: SearchSpace) -> Iterator[Any]:
    """Configs of a space in which each choice is taken once; none of a space with functions."""
    if any(isinstance(domain, SampleFrom) for domain in space.parameters.values()):
        return
    rng = np.random.default_rng(0)
    first = {name: domain.draw(rng) for name, domain in space.parameters.items()}
    yield space.config(first)
    for name, domain in space.parameters.items():
        for value in domain.values if isinstance(domain, Choice) else ():
            yield space.config({**first, name: value})


@dataclass
class _Restored:
    """An experiment that is to be gone on with.

    Attributes:
        folder: of the experiment.
        header: of its journal.
        resume: what to do with trials that have ended.
        tune_config: given by the caller, or None.
        run_config: given by the caller, or None.
    """

    folder: Path
    header: dict[str, Any]
    resume: ResumeConfig
    tune_config: TuneConfig | None
    run_config: RunConfig | None
    _read: ReadJournal | None = None

    @classmethod
    def at(
        cls,
        path: str | Path,
        resume: ResumeConfig,
        tune_config: TuneConfig | None,
        run_config: RunConfig | None,
    ) -> _Restored:
        """Reads the header; a TuneError if there is no experiment."""
        _check_kind("tune_config", tune_config, TuneConfig)
        _check_kind("run_config", run_config, RunConfig)
        folder = Path(path).expanduser().resolve()
        return cls(folder, read_header(folder), resume, tune_config, run_config)

    def setup(self, trainable: Any, param_space: Any, *, allow_code: bool) -> _Setup:
        """What the caller gave, filled up from the header, and compared with it.

        Unless `allow_code`, only what the caller gave may name code.

        Raises:
            TuneError: parts differ that must be the same; names both values of each.
        """
        header = self.header
        source = PROGRAM if allow_code else stranger(_IF_TRUSTED).handing_in(*_given(param_space))
        if param_space is None:
            if header.get("plain_space") is None:
                raise TuneError(
                    f"The search space of {self.folder} holds code, which is not in the journal. "
                    "Give it again: Tuner.restore(path, trainable, param_space=…)."
                )
            param_space = space_of_plain(header["plain_space"])
        setup = _Setup(
            trainable,
            param_space,
            self._whole_tune_config(),
            self._whole_run_config(),
            seed=header["seed"],
            num_lanes=header["num_lanes"],
            cpus=header["cpus"],
            source=source,
        )
        setup.check_read(_drawn(setup.space))
        new = setup.header(setup.plan(header["num_samples"]), self.folder.name)
        if found := differences(header, new):
            raise TuneError(
                f"{self.folder} cannot be gone on with as another experiment. {'. '.join(found)}. "
                "What may change: num_samples (more), stop, callbacks, verbose, failure_config, "
                "checkpoint_config. Nothing was changed."
            )
        for change in changed_versions(header):
            _LOGGER.warning(
                "The experiment %s goes on with another version (%s): rows may differ in their "
                "last digits.",
                self.folder.name,
                change,
            )
        setup.check()
        return setup

    def _whole_tune_config(self) -> TuneConfig:
        header, settings = self.header, self.header["settings"]
        recorded = {
            "time_budget_s": settings.get("time_budget_s"),
            "order": header["order"],
            **settings["tune_config"],
        }
        given = self.tune_config or TuneConfig(num_samples=header["num_samples"])
        return dataclasses.replace(
            _filled_up(given, recorded),
            seed=header["seed"],
            max_concurrent_trials=header["num_lanes"],
            metric=given.metric or header["metric"],
            mode=given.mode or header["mode"],
            scheduler=given.scheduler or made_again(header["scheduler"]),
            search_alg=given.search_alg or made_again(header["searcher"]),
        )

    def _whole_run_config(self) -> RunConfig:
        settings = self.header["settings"]
        given = self.run_config or RunConfig()
        own = {
            "name": self.folder.name,
            "storage_path": str(self.folder.parent),
            "num_cpus": self.header["cpus"],
        }
        recorded = {
            "checkpoint_config": CheckpointConfig(**settings["checkpoint_config"]),
            "failure_config": FailureConfig(**settings["failure_config"]),
            "recovery_interval_s": settings["recovery_interval_s"],
            "trial_timeout_s": settings["trial_timeout_s"],
            "verbose": settings["verbose"],
        }
        stop = given.stop if given.stop is not None else stop_of_plain(self._last_stop())
        return dataclasses.replace(_filled_up(given, recorded), stop=stop, **own)

    def _last_stop(self) -> Any:
        """The criteria of the newest restore that changed them, else of the start."""
        return self._criteria[-1] if self._criteria else self.header["stop"]

    @functools.cached_property
    def _criteria(self) -> list[Any]:
        """The stop criteria that restores brought, in order; damage is told when it is read.

        They are in force if the line after them says so: a kill in between leaves the old ones.
        """
        self._read = read_journal(self.folder / JOURNAL_FILE)
        found, written = [], None
        for entry in self._read[0]:
            if entry.get("event") == _CRITERIA:
                written = entry["stop"]
            elif entry.get("event") == AmendEntry.kind and entry.get("has_new_stop"):
                found.append(written)
        return found

    def read_before(self) -> ReadJournal | None:
        """What was read of the journal when the criteria were looked for; given away once."""
        found, self._read = self._read, None
        return found

    def criteria_entry(self, setup: _Setup) -> dict[str, Any]:
        """The journal's line of new stop criteria."""
        stop = StopCriteria(setup.run_config.stop).describe()
        return {"event": _CRITERIA, "stop": steady(stop)}

    def entries(self, plain: list[dict[str, Any]]) -> list[Entry]:
        """The entries of the journal that the controller knows; a JournalError for others."""
        check_header(plain[0] if plain else None, str(self.folder))
        return [entry_from_plain(entry) for entry in plain[1:] if entry["event"] != _CRITERIA]

    def amendment(
        self, controller: Controller, entries: list[Entry], setup: _Setup
    ) -> AmendEntry | None:
        """What this restore changes; None if nothing."""
        wanted = None if self.tune_config is None else self.tune_config.num_samples
        more = None if wanted in (None, 1, controller.num_samples) else wanted
        errored = [t.number for t in controller.trials if t.status is TrialStatus.ERROR]
        resumed = errored if self.resume.errored == "resume" else []
        restarted = errored if self.resume.errored == "restart" else []
        has_new_stop = self.has_new_stop(setup)
        if has_new_stop:
            resumed = [*resumed, *_ended_by_criteria(controller, entries)]
        if more is None and not (resumed or restarted or has_new_stop):
            return None
        return AmendEntry(
            num_samples=more,
            has_new_stop=has_new_stop,
            resumed=tuple(sorted(resumed)),
            restarted=tuple(restarted),
        )

    def has_new_stop(self, setup: _Setup) -> bool:
        """Whether other stop criteria decide from now on."""
        if self.run_config is None or self.run_config.stop is None:
            return False
        return not is_same_stop(self._last_stop(), StopCriteria(setup.run_config.stop))


def _filled_up(given: _AnyConfig, recorded: Mapping[str, Any]) -> _AnyConfig:
    """What the caller gave, with the recorded values of fields that were left at their defaults."""
    left = {name: value for name, value in recorded.items() if given.leaves_out(name)}
    return dataclasses.replace(given, **left)


def _ended_by_criteria(controller: Controller, entries: list[Entry]) -> list[int]:
    """Trials that the old criteria ended; they go on under the new ones."""
    last = {entry.trial: entry for entry in entries if isinstance(entry, DecideEntry)}
    return [
        number
        for number, entry in last.items()
        if number >= 0
        and entry.by == "criterion"
        and controller.trials[number].status is TrialStatus.TERMINATED
    ]

"""What users wrote of an experiment, checked as a whole, in the form in which it is begun."""

from __future__ import annotations

import copy
import datetime as dt
import functools
import inspect
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from trainer.algorithms.building import require_env
from trainer.envs.env_factory import check_known
from trainer.errors import TuneError, TuneSettingError
from trainer.name_resolution import PROGRAM, Source
from trainer.seeding import draw_root_seed
from trainer.tune.callbacks import CallbackCaller
from trainer.tune.configs import (
    CheckpointConfig,
    FailureConfig,
    RunConfig,
    TuneConfig,
    default_num_lanes,
)
from trainer.tune.controller import Controller
from trainer.tune.events import StartTrial
from trainer.tune.experiment import (
    Experiment,
)
from trainer.tune.naming import create_scheduler, create_searcher
from trainer.tune.output import CLIReporter, Progress, ProgressReporter
from trainer.tune.plan import ExperimentPlan
from trainer.tune.rays_schedulers import without_controller
from trainer.tune.results import ResultGrid, result_of
from trainer.tune.scheduling import FIFOScheduler, TrialScheduler
from trainer.tune.search_space import Choice, SampleFrom, SearchSpace
from trainer.tune.searchers import BasicVariantGenerator, Searcher
from trainer.tune.session import UNNAMED_METRIC
from trainer.tune.stoppers import StopCriteria
from trainer.tune.stored_spec import (
    header_of,
    settings_of,
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
from trainer_toolkit.files import numbered_beside
from trainer_toolkit.trees import copied_if_possible

_LOGGER = logging.getLogger(__name__)
PARAMETERS_FOLDER: Final = ".parameters"

_OF_STATE: Final = frozenset(
    (
        *("model", "model_config", "rl_module_spec", "env", "dueling", "num_atoms", "noisy"),
        *("observation_filter", "normalize_rewards", "kl_coeff"),
        *(f"replay_buffer_config/{name}" for name in ("type", "capacity", "alpha")),
    )
)
"""Settings that a checkpoint must have been saved with, or that it has a value of."""


def check_kind(name: str, value: object, kind: type) -> None:
    """Raises a TuneError unless a value is None or of a class."""
    if value is not None and not isinstance(value, kind):
        raise TuneSettingError(f"{name}={value!r:.80}: expected a {kind.__name__}, or None.")


@dataclass
class ExperimentSetup:
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
        actions = [action for step in probe.begin() for action in step.actions]
        starts = [each for each in actions if isinstance(each, StartTrial)]
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
            raise TuneSettingError(
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
            raise TuneSettingError(
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
            raise TuneSettingError(
                f"param_space is a {of_space.__name__}, and the trainable is {self.spec.name}; "
                "expected the algorithm that the config is of, as its class or its name."
            )

    def _check_saving(self) -> None:
        saving, is_function = self.checkpoint_config, self.spec.kind == "function"
        for name in ("checkpoint_frequency", "checkpoint_at_end"):
            if is_function and getattr(saving, name):
                raise TuneSettingError(
                    f"{name}={getattr(saving, name)!r}: the function {self.spec.name} saves by "
                    "itself, with tune.report({…}, checkpoint=…). Leave it out."
                )
        if not is_function and not self.spec.saves and saving.checkpoint_frequency:
            raise TuneSettingError(
                f"checkpoint_frequency={saving.checkpoint_frequency}: {self.spec.name} has no "
                "save_checkpoint(). Write it and load_checkpoint(), or leave the frequency out."
            )
        if self.tune_config.reuse_actors:
            self._check_reuse()

    def _check_reuse(self) -> None:
        name = self.spec.name
        if self.spec.kind == "function":
            _LOGGER.warning(
                "reuse_actors=True has no effect: each trial calls the function %s in a process of "
                "its own.",
                name,
            )
        elif self.spec.target.reset_config is Trainable.reset_config:
            raise TuneSettingError(
                f"reuse_actors=True: {name} has no reset_config(new_config) that makes its object "
                "another trial's. Write it, or leave reuse_actors out."
            )

    # ---- plans

    def plan(self, num_samples: int) -> ExperimentPlan:
        """A plan with a searcher and a scheduler of its own.

        `num_samples` are those that the experiment was begun with.
        """
        tuning, saving = self.tune_config, self.checkpoint_config
        # Copies: what a user gave stays as it is, and can be given again.
        given = tuning.scheduler
        scheduler = without_controller(
            copied_if_possible(_chosen("scheduler", given, TrialScheduler, create_scheduler))
        )
        given = tuning.search_alg
        searcher = copied_if_possible(_chosen("search_alg", given, Searcher, create_searcher))
        at_end = saving.checkpoint_at_end
        budget: Any = tuning.time_budget_s
        metric = tuning.metric or getattr(scheduler, "metric", None)
        if metric is None and tuning.mode is not None and searcher.metric is None:
            metric = UNNAMED_METRIC
        return ExperimentPlan(
            space=SearchSpace(self.param_space),
            searcher=searcher,
            scheduler=scheduler,
            stop=StopCriteria(copied_if_possible(self.run_config.stop), time_budget_s=budget),
            metric=metric,
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
        return header_of(
            plan,
            name=name,
            trainable=self.spec.name,
            param_space=self.param_space,
            settings={
                "tune_config": settings_of(self.tune_config),
                "run_config": settings_of(self.run_config),
            },
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
            spec = spec.with_shared_arrays(folder / PARAMETERS_FOLDER)
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
            raise TuneSettingError(
                f"progress_reporter={found!r:.80}: expected a tune.CLIReporter or another "
                "ProgressReporter."
            )
        metric, mode = self.tune_config.metric, self.tune_config.mode
        if isinstance(metric, str):
            found.metric, found.mode = found.metric or metric, found.mode or mode
        return found

    def warn_if_endless(self, plan: ExperimentPlan) -> None:
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
        unsaved = {ref.trial for ref in controller.unfinished_saves}
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
                    trainable_name=self.spec.name,
                    trial_name=records[trial.number].name,
                    cause=experiment.causes.get(trial.number),
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
        raise TuneSettingError(f"{name}={given!r:.80}: expected a {kind.__name__}, or its name.")
    return given


def drawn_configs(space: SearchSpace) -> Iterator[Any]:
    """Configs of a space in which each choice is taken once; none of a space with functions."""
    if any(isinstance(domain, SampleFrom) for domain in space.parameters.values()):
        return
    rng = np.random.default_rng(0)
    first = {name: domain.draw(rng) for name, domain in space.parameters.items()}
    yield space.config(first)
    for name, domain in space.parameters.items():
        for value in domain.values if isinstance(domain, Choice) else ():
            yield space.config({**first, name: value})

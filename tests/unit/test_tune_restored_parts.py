"""Every argument of every ready-made part of an experiment survives `Tuner.restore`.

Parts and arguments are found by introspection: one that is added and has no value in the tables
here fails.
"""

import dataclasses
import datetime as dt
import inspect
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from optuna.distributions import FloatDistribution
from optuna.samplers import RandomSampler

from trainer import tune
from trainer.errors import TuneError
from trainer.tune.journal_file import JOURNAL_FILE, JournalFile
from trainer.tune.schedulers import PopulationBasedTraining
from trainer.tune.search_space import Domain
from trainer.tune.searchers import BasicVariantGenerator
from trainer.tune.stored_spec import GIVEN_AGAIN, READY_MADE, RECORDED_ELSEWHERE

SPACE = {"lr": tune.uniform(0.0, 1.0), "x": tune.choice([1, 2])}


def report_once(config):
    tune.report({"loss": config["lr"]})


def as_given(config):
    return config


def policy_file(folder):
    path = folder / "pbt_policy_00000.txt"
    path.write_text('["00000", "00001", 1, 1, {"lr": 0.5}, {"lr": 0.25}]\n', encoding="utf-8")
    return str(path)


NEEDED = {
    "PopulationBasedTraining": {"hyperparam_mutations": {"lr": tune.uniform(0.0, 0.5)}},
    "PopulationBasedTrainingReplay": {"policy_file": policy_file},
    "ConcurrencyLimiter": {"searcher": BasicVariantGenerator(), "max_concurrent": 2},
    "Repeater": {"searcher": BasicVariantGenerator()},
    "FunctionStopper": {"function": lambda trial_id, row: False},
    "MaximumIterationStopper": {"max_iter": 3},
    "TrialPlateauStopper": {"metric": "loss"},
    "ExperimentPlateauStopper": {"metric": "loss"},
    "TimeoutStopper": {"timeout": 5},
    "OptunaSearch.evaluated_rewards": {"points_to_evaluate": [{"lr": 0.5, "x": 1}]},
    "TrialPlateauStopper.metric_threshold": {"mode": "min"},
}
"""Arguments beside the one that is tried, by part or by part and argument."""

VALUES = {
    "time_attr": "clock",
    "metric": "loss",
    "mode": "max",
    "max_t": 50,
    "grace_period": 2,
    "reduction_factor": 2.5,
    "brackets": 2,
    "stop_last_trials": False,
    "min_samples_required": 7,
    "hard_stop": False,
    "perturbation_interval": 3,
    "burn_in_period": 4.5,
    "hyperparam_mutations": {"lr": tune.loguniform(0.125, 0.5), "x": [1, 2], "y": {"z": range(3)}},
    "quantile_fraction": 0.5,
    "resample_probability": 0.75,
    "perturbation_factors": (1.5, 0.5),
    "custom_explore_fn": as_given,
    "log_config": False,
    "require_attrs": False,
    "synch": False,
    "bounds_checked": False,
    "policy_file": policy_file,
    "points_to_evaluate": [{"lr": 0.5}, {"lr": 0.25, "x": 2}],
    "max_concurrent": 1,
    "constant_grid_search": True,
    "random_state": 7,
    "searcher": BasicVariantGenerator(random_state=3, max_concurrent=2),
    "batch": True,
    "repeat": 2,
    "set_index": False,
    "reduce": "median",
    "space": {"lr": FloatDistribution(0.25, 0.75)},
    "sampler": RandomSampler(),
    "seed": 11,
    "evaluated_rewards": [0.5],
    "function": lambda trial_id, row: row["loss"] > 3,
    "max_iter": 9,
    "std": 0.5,
    "num_results": 6,
    "metric_threshold": 0.25,
    "top": 3,
    "patience": 2,
    "timeout": dt.timedelta(seconds=90),
    "stoppers": (
        tune.stopper.MaximumIterationStopper(4),
        tune.stopper.CombinedStopper(tune.stopper.TrialPlateauStopper("loss", std=0.5)),
    ),
    "metric_columns": {"loss": "L"},
    "parameter_columns": ["lr"],
    "max_progress_rows": 3,
    "max_report_frequency": 1.5,
    "sort_by_metric": True,
    "num_to_keep": 2,
    "checkpoint_score_attribute": "loss",
    "checkpoint_score_order": "min",
    "checkpoint_frequency": 3,
    "checkpoint_at_end": True,
    "max_failures": 3,
    "fail_fast": True,
    "time_budget_s": dt.timedelta(seconds=70),
    "reuse_actors": True,
    "trial_name_creator": str,
    "trial_dirname_creator": str,
    "order": "arrival",
    "max_run_ahead": 3,
    "in_process": True,
    "seed_globals": False,
    "chdir_to_trial_dir": True,
    "failure_config": tune.FailureConfig(max_failures=2),
    "checkpoint_config": tune.CheckpointConfig(num_to_keep=4),
    "verbose": 2,
    "progress_reporter": tune.CLIReporter(max_progress_rows=7),
    "log_to_file": ("out.txt", "err.txt"),
    "recovery_interval_s": 7.5,
    "trial_timeout_s": 60.0,
    "overwrite": False,
}
OTHER_VALUES = {"TrialPlateauStopper.mode": "min"}

REFUSED = {
    ("MedianStoppingRule", "min_time_slice"),
    ("OptunaSearch", "study_name"),
    ("OptunaSearch", "storage"),
}
"""Arguments that take their defaults only."""

OF_CALLER = {
    ("PopulationBasedTraining", "custom_explore_fn"),
    ("PopulationBasedTrainingReplay", "policy_file"),
    ("OptunaSearch", "sampler"),
    ("FunctionStopper", "function"),
}
"""Arguments that are code, or name a file elsewhere: the caller gives them again."""


def arguments_of(part):
    if part.__init__ is object.__init__:
        return
    _, *parameters = inspect.signature(part.__init__).parameters.values()
    yield from (each.name for each in parameters if each.kind is not each.VAR_KEYWORD)


def all_arguments():
    found = [(name, each) for name, part in READY_MADE.items() for each in arguments_of(part)]
    return [each for each in found if each not in REFUSED and each[0] != "Searcher"]  # abstract


def made(part, argument, folder):
    value = OTHER_VALUES.get(f"{part}.{argument}", VALUES[argument])
    given = {**NEEDED.get(part, {}), **NEEDED.get(f"{part}.{argument}", {}), argument: value}
    given = {name: each(folder) if each is policy_file else each for name, each in given.items()}
    if argument == "stoppers":
        return READY_MADE[part](*given["stoppers"])
    return READY_MADE[part](**given)


def configs_with(part):
    tuning = {"in_process": True, "metric": "loss", "mode": "max", "num_samples": 2}
    running = {"verbose": 0}
    for kind, into, name in (
        (tune.schedulers.TrialScheduler, tuning, "scheduler"),
        (tune.search.Searcher, tuning, "search_alg"),
        (tune.stopper.Stopper, running, "stop"),
        (tune.CheckpointConfig, running, "checkpoint_config"),
        (tune.FailureConfig, running, "failure_config"),
        (tune.ProgressReporter, running, "progress_reporter"),
    ):
        if isinstance(part, kind):
            into[name] = part
    if type(part).__name__ == "PopulationBasedTrainingReplay":
        tuning["num_samples"] = 1
    return {"tune_config": tune.TuneConfig(**tuning), "run_config": tune.RunConfig(**running)}


def part_of(tuner, kind):
    setup = tuner._setup
    tuning, running = setup.tune_config, setup.run_config
    places = [tuning.scheduler, tuning.search_alg, running.checkpoint_config]
    places += [running.failure_config, running.progress_reporter]
    places += running.stop if isinstance(running.stop, list) else [running.stop]
    (found,) = [each for each in places if type(each) is kind]
    return found


class Saving(tune.Trainable):
    def step(self):
        return {"loss": 1.0}

    def save_checkpoint(self, folder):
        Path(folder, "state").touch()

    def load_checkpoint(self, folder):
        assert Path(folder, "state").exists()

    def reset_config(self, new_config):
        return True


def begun(folder, **configs):
    """An experiment whose journal has its header and nothing else."""
    tuner = tune.Tuner(Saving, param_space=SPACE, **configs)
    folder.mkdir(exist_ok=True)
    setup = tuner._setup
    header = setup.header(setup.plan(setup.tune_config.num_samples), folder.name)
    JournalFile(folder / JOURNAL_FILE).append([header])
    return folder


def seen(value):
    """What an object is: what its attributes hold, at any depth."""
    if isinstance(value, Mapping):
        return {key: seen(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value), [seen(each) for each in value]
    if isinstance(value, Domain | np.ndarray) or not type(value).__module__.startswith("trainer."):
        return type(value), repr(value)
    return type(value), seen({k: each for k, each in vars(value).items() if k != "_arguments"})


@pytest.mark.parametrize(("part", "argument"), all_arguments())
def test_an_argument_of_a_part_survives_a_restore_or_is_asked_for_again(part, argument, tmp_path):
    given = made(part, argument, tmp_path)
    folder = begun(tmp_path / "x", **configs_with(given))
    must_be_given = (part, argument) in OF_CALLER or part in {name for name, _ in OF_CALLER} & {
        "FunctionStopper",
        "PopulationBasedTrainingReplay",
    }
    if must_be_given:
        with pytest.raises(TuneError, match=f"{part}.*[Gg]ive it.*: Tuner.restore"):
            tune.Tuner.restore(folder, Saving)
        tune.Tuner.restore(folder, Saving, **configs_with(made(part, argument, tmp_path)))
        return
    restored = part_of(tune.Tuner.restore(folder, Saving), type(given))
    assert seen(restored) == seen(given)


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        (kind, field.name)
        for kind in (tune.TuneConfig, tune.RunConfig)
        for field in dataclasses.fields(kind)
        if field.name not in RECORDED_ELSEWHERE
    ],
)
def test_a_field_of_a_config_survives_a_restore_or_is_asked_for_again(kind, field, tmp_path):
    name = "tune_config" if kind is tune.TuneConfig else "run_config"
    given = kind(**{field: VALUES[field]})
    folder = begun(tmp_path / "x", **{name: given})
    if field in GIVEN_AGAIN:
        with pytest.raises(TuneError, match=rf"{field}=.*is code.*: Tuner.restore"):
            tune.Tuner.restore(folder, Saving)
        restored = tune.Tuner.restore(folder, Saving, **{name: given})
    else:
        restored = tune.Tuner.restore(folder, Saving)
    of_restored = (
        restored._setup.tune_config if name == "tune_config" else restored._setup.run_config
    )
    assert seen(getattr(of_restored, field)) == seen(getattr(given, field))
    assert getattr(given, field) != getattr(kind(), field)


def test_another_argument_at_a_restore_is_refused_with_both(tmp_path):
    mutations = {"lr": tune.uniform(0.0, 1.0)}
    given = PopulationBasedTraining(hyperparam_mutations=mutations, require_attrs=False)
    folder = begun(tmp_path / "x", **configs_with(given))
    other = PopulationBasedTraining(hyperparam_mutations=mutations)
    with pytest.raises(TuneError, match=r"'require_attrs': False.*'require_attrs': True"):
        tune.Tuner.restore(folder, Saving, **configs_with(other))


def test_a_list_that_its_owner_changes_later_is_what_it_was_when_it_was_given(tmp_path):
    points = [{"lr": 0.5}]
    searcher = BasicVariantGenerator(points)
    points.append({"lr": 0.25})
    folder = begun(tmp_path / "x", **configs_with(searcher))
    restored = part_of(tune.Tuner.restore(folder, Saving), BasicVariantGenerator)
    assert seen(restored) == seen(searcher)


def test_an_interrupted_search_by_optuna_goes_on_in_the_space_it_was_given(tmp_path):
    def restored_after(num_rows):
        folder = tmp_path / str(num_rows)

        class Interrupts(tune.Callback):
            def on_trial_result(self, **info):
                if info["trial"].number == num_rows:
                    raise KeyboardInterrupt

        space = {"lr": FloatDistribution(0.0, 0.125)}
        tuner = tune.Tuner(
            report_once,
            param_space=SPACE,
            tune_config=tune.TuneConfig(
                in_process=True,
                num_samples=8,
                metric="loss",
                mode="max",
                seed=1,
                search_alg=tune.search.optuna.OptunaSearch(space=space),
            ),
            run_config=tune.RunConfig(
                name=folder.name, storage_path=tmp_path, verbose=0, callbacks=[Interrupts()]
            ),
        )
        try:
            grid = tuner.fit()
        except KeyboardInterrupt:
            grid = tune.Tuner.restore(folder, report_once).fit()
        assert grid.is_exact
        return [row["loss"] for result in grid for row in result.rows()]

    assert restored_after(3) == restored_after(99)

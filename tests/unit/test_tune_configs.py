"""The configs of tuning: what they accept, and that all problems are told at once."""

import dataclasses
import datetime as dt
from pathlib import Path

import pytest

from trainer import PPOConfig, tune
from trainer.errors import TrainerError, TuneError
from trainer.tune.configs import default_num_lanes
from trainer_toolkit.arguments import ArgumentError


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: tune.TuneConfig(mode="maximum"), "mode"),
        (lambda: tune.TuneConfig(metric=3), "metric"),
        (lambda: tune.TuneConfig(metric=["a", "b"], mode=["max"]), "as many modes"),
        (lambda: tune.TuneConfig(num_samples=0), "at least 1, or -1"),
        (lambda: tune.TuneConfig(num_samples=-2), "num_samples"),
        (lambda: tune.TuneConfig(seed=-1), "seed"),
        (lambda: tune.TuneConfig(order="random"), "order"),
        (lambda: tune.TuneConfig(engine="dask"), "expected one of .local., .ray., or an engine"),
        (lambda: tune.TuneConfig(engine="ray", in_process=True), "give one of them"),
        (lambda: tune.TuneConfig(time_budget_s=0), "time_budget_s"),
        (lambda: tune.TuneConfig(max_run_ahead=-1), "max_run_ahead"),
        (lambda: tune.CheckpointConfig(num_to_keep=0), "checkpoint_frequency=0"),
        (lambda: tune.CheckpointConfig(checkpoint_score_order="up"), "score_order"),
        (lambda: tune.FailureConfig(max_failures=-2), "max_failures"),
        (lambda: tune.FailureConfig(fail_fast=True, max_failures=2), "one of them"),
        (lambda: tune.FailureConfig(fail_fast="loud"), "fail_fast"),
        (lambda: tune.ResumeConfig(errored="again"), "errored"),
        (lambda: tune.RunConfig(storage_path="s3://bucket/runs"), "local disk"),
        (lambda: tune.RunConfig(storage_filesystem=object()), "local disk"),
        (lambda: tune.RunConfig(local_dir="runs"), "storage_path"),
        (lambda: tune.RunConfig(name="a/b"), "slashes"),
        (lambda: tune.RunConfig(failure_config=3), "FailureConfig"),
        (lambda: tune.RunConfig(callbacks=print), "a list"),
        (lambda: tune.RunConfig(log_to_file=("a", "b", "c")), "two names"),
        (lambda: tune.RunConfig(verbose=7), "verbose"),
        (lambda: tune.SyncConfig(upload_dir="s3://bucket"), "mounted folder"),
    ],
)
def test_wrong_fields_are_named(make, expected):
    with pytest.raises(TuneError, match=expected):
        make()


def test_all_problems_are_told_at_once():
    with pytest.raises(TuneError) as raised:
        tune.TuneConfig(num_samples=-5, seed=1.5, order="x", engine="y")
    for name in ("num_samples", "seed", "order", "engine"):
        assert name in str(raised.value)


def test_defaults_stand_for_none():
    config = tune.RunConfig(storage_path=None, checkpoint_config=None, callbacks=None)
    assert config.storage_path == "runs"
    assert config.checkpoint_config == tune.CheckpointConfig()
    assert config.failure_config == tune.FailureConfig()
    assert config.callbacks == ()
    assert tune.RunConfig(storage_path=Path("x"), log_to_file=("out", "err")).verbose == 1
    assert tune.TuneConfig(max_concurrent_trials=0).max_concurrent_trials is None
    assert tune.TuneConfig(time_budget_s=dt.timedelta(hours=1)).time_budget_s == 3600
    assert tune.TuneConfig(metric=["a", "b"], mode=["max", "min"]).metric == ["a", "b"]
    tune.SyncConfig(sync_period=300)


def test_configs_are_values():
    assert tune.TuneConfig(num_samples=3) == tune.TuneConfig(num_samples=3)
    config = dataclasses.replace(tune.RunConfig(name="a"), verbose=0)
    assert (config.name, config.verbose) == ("a", 0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.name = "b"


def test_lanes_follow_from_cpus_and_trials():
    assert default_num_lanes(8, 1, 100) == 8
    assert default_num_lanes(8, 3, None) == 2
    assert default_num_lanes(2, 3, 5) == 1
    assert default_num_lanes(8, 1, 3) == 3
    assert default_num_lanes(8, 0, 3) == 1
    assert default_num_lanes(8, 1, 0) == 1


untyped = tune
"""What scripts without types may write."""


def train(config):
    tune.report(loss=1.0)


class Misspelt(tune.Callback):
    def on_trial_reslt(self, **info):
        """Never called."""


class MisspeltLogger(tune.logger.LoggerCallback):
    def log_trial_reslt(self, **info):
        """Never called."""


class Demanding(tune.Callback):
    def on_trial_result(self, trial, results):
        """There is no `results`."""


def population(mutations):
    """A tuner of a population of PPO."""
    scheduler = tune.PopulationBasedTraining(hyperparam_mutations=mutations)
    return tune.Tuner(
        "PPO",
        param_space={"env": "CartPole-v1", "model": {"fcnet_hiddens": tune.choice([[8], [16]])}},
        tune_config=tune.TuneConfig(num_samples=2, metric="a", mode="max", scheduler=scheduler),
    )


def population_of_config(mutations):
    """The same, with a schedule for `lr`, and the space as a config object."""
    config = PPOConfig().environment("CartPole-v1").training(lr=[[0, 0.1], [100, 0.01]])
    scheduler = tune.PopulationBasedTraining(hyperparam_mutations=mutations)
    return tune.Tuner(
        "PPO",
        param_space=config.training(num_sgd_iter=tune.choice([1, 2])),
        tune_config=tune.TuneConfig(num_samples=2, metric="a", mode="max", scheduler=scheduler),
    )


def told(callback):
    return tune.RunConfig(callbacks=[callback])


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: tune.Tuner(lambda config, data: 1), "missing a required argument: 'data'"),
        (lambda: tune.Tuner(tune.with_parameters(train, dta=1)), "unexpected keyword.*'dta'"),
        (lambda: tune.Tuner(tune.with_parameters("PPO", dta=1)), "PPO.setup.*'dta'"),
        (lambda: tune.Tuner("PPO", param_space={}), "no env to train in"),
        (lambda: tune.Tuner("PPO", param_space={"env": "CartPol-v1"}), "mean 'CartPole-v1'"),
        (lambda: tune.Tuner(train, run_config=told(Misspelt())), "mean 'on_trial_result'"),
        (lambda: tune.Tuner(train, run_config=told(MisspeltLogger())), "mean 'log_trial_result'"),
        (lambda: tune.Tuner(train, run_config=told(Demanding())), "wants 'results'.*mean 'result'"),
        (lambda: population({"model": {"fcnet_hiddens": [[8], [16]]}}), "another network"),
        (lambda: population({"lr": [0.1, 0.2], "env": ["A-v0", "B-v0"]}), "change env while"),
        (lambda: population({"kl_coeff": [0.1, 0.2]}), "change kl_coeff while"),
        (lambda: population({"replay_buffer_config": {"alpha": [0, 1]}}), "change replay.*alpha"),
        (lambda: population_of_config({"lrr": [0.1, 0.2]}), "Did you mean `lr`"),
        (lambda: population_of_config({"lr": tune.uniform(0, 1)}), "lr=.*no number.*as a list"),
        (lambda: untyped.CLIReporter(max_progres_rows=3), "mean 'max_progress_rows'"),
        (lambda: untyped.CLIReporter(max_progress_rows=0), "at least one row"),
        (lambda: untyped.CLIReporter(metric_columns="loss"), "a list"),
        (lambda: untyped.PlacementGroupFactory({"CPU": 1}), "expected a list of dicts"),
        (lambda: untyped.search.BasicVariantGenerator(points_to_evaluate=3), "a list of dicts"),
        (lambda: untyped.stopper.MaximumIterationStopper("3"), "expected an int"),
        (lambda: untyped.stopper.MaximumIterationStopper(0), "at least 1"),
        (lambda: untyped.stopper.TrialPlateauStopper("loss", mode="up"), "'min', 'max'"),
        (lambda: untyped.stopper.CombinedStopper({"loss": 1}), "expected stoppers"),
        (lambda: untyped.Checkpoint.from_data(3), "expected a dict"),
    ],
)
def test_what_would_fail_in_every_trial_fails_at_once(make, expected):
    with pytest.raises((TuneError, TrainerError, ArgumentError), match=f"(?s){expected}"):
        make()


def test_what_ray_tune_writes_is_accepted():
    class Printer(tune.Callback):
        def setup(self, stop=None, num_samples=None, **info): ...
        def on_trial_result(self, iteration, trials, trial, result): ...

    population({"lr": [1e-3, 1e-4], "train_batch_size": [500, 1000]})
    tune.CLIReporter(metric_columns={"loss": "L"}, max_error_rows=3, parameter_columns=["x"])
    scheduler = untyped.PopulationBasedTraining(
        perturbation_factors=[1.2, 0.8], hyperparam_mutations={"x": [1, 2]}
    )
    tune.Tuner(
        tune.with_parameters(lambda config, data=None: 1, data=3),
        param_space={"x": 1},
        tune_config=tune.TuneConfig(num_samples=2, metric="a", mode="max", scheduler=scheduler),
        run_config=told(Printer()),
    )

"""Ray Tune with our algorithms, and our tuner with trials on a Ray cluster."""

import importlib
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from trainer import PPO, ConfigError, PPOConfig, tune
from trainer.metrics import comparable
from trainer.ray_adapter import as_ray_trainable
from trainer.testing import CountdownEnv
from trainer.tune import trial_records
from trainer.tune.session import TuneContext

pytestmark = [pytest.mark.ray, pytest.mark.process]

_SETTINGS = {
    "env": CountdownEnv,
    "num_env_runners": 1,
    "train_batch_size": 40,
    "minibatch_size": 20,
    "num_epochs": 1,
    "model": {"fcnet_hiddens": [8]},
    "seed": 3,
}


@pytest.fixture
def ray_tune():
    handler = signal.getsignal(signal.SIGINT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield importlib.import_module("ray.tune")
    signal.signal(signal.SIGINT, handler)  # Ray Tune leaves its own


def rows_without_ray(lr, number):
    with PPO(config={**_SETTINGS, "lr": lr}) as algo:
        return [comparable(algo.train()) for _ in range(number)]


def test_trials_under_asha_have_the_rows_that_they_have_without_ray(ray_tune, tmp_path):
    schedulers = importlib.import_module("ray.tune.schedulers")
    rates = [1e-3, 1e-4, 1e-5]
    asha = schedulers.ASHAScheduler(max_t=4, grace_period=1, reduction_factor=2)
    grid = ray_tune.Tuner(
        as_ray_trainable(PPO),
        param_space={**_SETTINGS, "lr": ray_tune.grid_search(rates)},
        tune_config=ray_tune.TuneConfig(
            metric="env_runners/episode_return_mean", mode="max", scheduler=asha
        ),
        run_config=ray_tune.RunConfig(storage_path=str(tmp_path), verbose=0),
    ).fit()
    assert not grid.errors
    assert sorted(result.config["lr"] for result in grid) == sorted(rates)
    for result in grid:
        number = result.metrics["training_iteration"]
        assert 1 <= number <= 4
        expected = rows_without_ray(result.config["lr"], number)[-1]
        for part in ("env_runners", "learners"):
            assert flat(result.metrics[part]).items() >= deterministic(expected[part]).items()


def flat(tree, path=""):
    found = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            found |= flat(value, f"{path}{key}/")
        else:
            found[f"{path}{key}"] = value
    return found


def deterministic(tree):
    return {key: value for key, value in flat(dict(tree)).items() if value == value}  # no NaN


def test_population_based_training_of_ray_copies_and_goes_on(ray_tune, tmp_path):
    schedulers = importlib.import_module("ray.tune.schedulers")
    population = schedulers.PopulationBasedTraining(
        time_attr="training_iteration",
        perturbation_interval=2,
        hyperparam_mutations={"lr": [1e-3, 1e-4, 1e-5]},
        synch=True,
    )
    grid = ray_tune.Tuner(
        as_ray_trainable(PPO),
        param_space={**_SETTINGS, "lr": ray_tune.grid_search([1e-3, 1e-4])},
        tune_config=ray_tune.TuneConfig(
            metric="env_runners/episode_return_mean",
            mode="max",
            scheduler=population,
            reuse_actors=True,
        ),
        run_config=ray_tune.RunConfig(
            storage_path=str(tmp_path), verbose=0, stop={"training_iteration": 6}
        ),
    ).fit()
    assert not grid.errors
    for result in grid:
        assert result.metrics["training_iteration"] == 6
        folder = Path(result.checkpoint.path) / "algorithm"
        with PPO.from_checkpoint(folder, env=CountdownEnv) as algo:
            assert 1 <= algo.training_iteration <= 6
            algo.train()


def test_our_trials_on_ray_have_the_rows_and_checkpoints_of_local_ones(tmp_path):
    found = {}
    for engine in ("local", "ray"):
        grid = tune.Tuner(
            "PPO",
            param_space={**_SETTINGS, "lr": tune.loguniform(1e-5, 1e-3)},
            tune_config=tune.TuneConfig(
                num_samples=3,
                max_concurrent_trials=2,
                seed=7,
                metric="env_runners/episode_return_mean",
                mode="max",
                scheduler=tune.schedulers.ASHAScheduler(max_t=3, grace_period=1),
                engine=engine,
            ),
            run_config=tune.RunConfig(
                name=engine, storage_path=tmp_path, stop={"training_iteration": 3}, verbose=0
            ),
        ).fit()
        assert grid.num_errors == 0
        found[engine] = [
            (trial.config["lr"], [comparable(row) for row in trial.rows()]) for trial in grid
        ]
    assert found["ray"] == found["local"]


_RUNNERS_ON_RAY = """
import sys
from pathlib import Path
from checkpoints import encode
from tests.integration.test_ray_tune import rows_of_trials
for engine in ("local", "ray"):
    rows = rows_of_trials(Path(sys.argv[1]) / engine, {"engine": engine})
    print(encode(rows).hex())
"""


def rows_of_trials(folder, settings):
    """What two trials in processes of this machine have learnt after each iteration."""
    grid = tune.Tuner(
        "PPO",
        param_space={**_SETTINGS, "lr": tune.grid_search([1e-3, 1e-4]), **settings},
        tune_config=tune.TuneConfig(max_concurrent_trials=2, seed=7),
        run_config=tune.RunConfig(storage_path=folder, stop={"training_iteration": 2}, verbose=0),
    ).fit()
    assert grid.num_errors == 0, grid.errors
    return [
        [comparable(row)[part] for part in ("env_runners", "learners")]
        for trial in grid
        for row in trial.rows()
    ]


def test_trials_whose_runners_are_on_ray_learn_the_same_bytes(ray_cluster, tmp_path):
    """In a process of its own, whose trials find the cluster by its address."""
    done = subprocess.run(
        [sys.executable, "-c", _RUNNERS_ON_RAY, str(tmp_path)],
        env={
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "RAY_ADDRESS": ray_cluster.address,
            "RAY_AUTH_MODE": "disabled",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=600.0,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    local, on_ray = [line for line in done.stdout.splitlines() if not line.startswith("(")][-2:]
    assert local == on_ray


def test_a_folder_that_a_machine_does_not_have_is_named(monkeypatch, tmp_path):
    context = TuneContext

    def elsewhere(**given):
        return context(**{**given, "trial_dir": "/not/on/that/machine"})

    monkeypatch.setattr(trial_records, "TuneContext", elsewhere)
    grid = tune.Tuner(
        "PPO",
        param_space=_SETTINGS,
        tune_config=tune.TuneConfig(engine="ray", max_concurrent_trials=1),
        run_config=tune.RunConfig(storage_path=tmp_path, verbose=0, stop={"training_iteration": 1}),
    ).fit()
    assert grid.num_errors == 1
    assert "storage_path must be a folder that all machines share" in str(grid[0].error)


def test_what_is_no_algorithm_and_runners_on_ray_in_a_trial_are_refused(ray_tune):
    with pytest.raises(ConfigError, match="expected the class of an algorithm"):
        as_ray_trainable(PPOConfig)
    made = as_ray_trainable(PPO)
    request = made.default_resource_request({**_SETTINGS, "num_env_runners": 3})
    assert request.bundles == [{"CPU": 4.0}]
    with pytest.raises(ConfigError, match="Leave engine out"):
        made.setup(object.__new__(made), {**_SETTINGS, "engine": "ray"})

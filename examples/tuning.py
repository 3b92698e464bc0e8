"""Tuning, from the simplest search to populations; each function is an example of its own.

    python examples/tuning.py

Kill the program at any moment and give the experiment's folder to `restored`: the same trials, the
same rows, the same best config come of it.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from trainer import PPO, PPOConfig, tune
from trainer.testing import CountdownEnv


class Steps(CountdownEnv):
    """A task of three difficulties."""

    task = 0

    def set_task(self, task: int) -> None:
        """Sets the difficulty."""
        self.task = task

    def get_task(self) -> int:
        """The difficulty."""
        return self.task


def descent(config: dict[str, Any]) -> None:
    """Gradient descent on a parabola: what is tuned below."""
    found = tune.get_checkpoint()
    x, done = (5.0, 0) if found is None else (found.data()["x"], found.data()["step"])
    for step in range(done + 1, 10):
        x -= config["lr"] * 2 * x
        checkpoint = tune.Checkpoint.from_data({"x": x, "step": step})
        tune.report({"loss": x**2}, checkpoint=checkpoint)


def _run_config(folder: Path, name: str, **more: Any) -> tune.RunConfig:
    return tune.RunConfig(storage_path=folder, name=name, verbose=0, **more)


def random_search(folder: Path) -> tune.ResultGrid:
    """Random values; the best of eight."""
    return tune.Tuner(
        descent,
        param_space={"lr": tune.loguniform(1e-3, 1)},
        tune_config=tune.TuneConfig(num_samples=8, metric="loss", mode="min", seed=0),
        run_config=_run_config(folder, "random"),
    ).fit()


def early_stopping(folder: Path) -> tune.ResultGrid:
    """ASHA: trials that are bad early are stopped."""
    return tune.Tuner(
        descent,
        param_space={"lr": tune.loguniform(1e-3, 1)},
        tune_config=tune.TuneConfig(
            num_samples=8,
            metric="loss",
            mode="min",
            seed=0,
            scheduler=tune.ASHAScheduler(max_t=9, grace_period=1, reduction_factor=3),
        ),
        run_config=_run_config(folder, "asha"),
    ).fit()


def suggested_by_optuna(folder: Path) -> tune.ResultGrid:
    """Optuna's TPE suggests; needs `pip install "local-trainer[tune]"`."""
    return tune.Tuner(
        descent,
        param_space={"lr": tune.loguniform(1e-3, 1)},
        tune_config=tune.TuneConfig(
            num_samples=12, metric="loss", mode="min", seed=0, search_alg=tune.OptunaSearch()
        ),
        run_config=_run_config(folder, "optuna"),
    ).fit()


def population(folder: Path) -> tune.ResultGrid:
    """Population based training of an algorithm: the bad go on from the good, changed."""
    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0)
        .training(
            lr=tune.loguniform(1e-5, 1e-2), train_batch_size=200, minibatch_size=100, num_epochs=1
        )
    )
    return tune.Tuner(
        "PPO",
        param_space=config,
        tune_config=tune.TuneConfig(
            num_samples=4,
            metric="env_runners/episode_return_mean",
            mode="max",
            seed=0,
            scheduler=tune.PopulationBasedTraining(
                perturbation_interval=2,
                hyperparam_mutations={"lr": tune.loguniform(1e-5, 1e-2)},
            ),
        ),
        run_config=_run_config(folder, "population", stop={"training_iteration": 4}),
    ).fit()


def set_task(env: Any, task: int) -> None:
    """What every env is told."""
    env.unwrapped.set_task(task)


def curriculum(config: dict[str, Any]) -> None:
    """A curriculum in a function: the task is in the checkpoint, so no kill forgets it."""
    algo = PPO(config=config, env=Steps)
    found, task = tune.get_checkpoint(), 0
    if found is not None:
        with found.as_directory() as folder:
            algo.restore_from_path(folder)
        task = found.get_metadata()["task"]
    for _ in range(algo.training_iteration, 3):
        algo.env_runner_group.foreach_env(partial(set_task, task=task))
        result = algo.train()
        task += 1
        checkpoint = tune.Checkpoint.from_directory(algo.save_to_path())
        checkpoint.set_metadata({"task": task})
        steps = result["num_env_steps_sampled_lifetime"]
        tune.report({"task": task, "steps": steps}, checkpoint=checkpoint)
    algo.stop()


def in_phases(folder: Path) -> tune.ResultGrid:
    """The curriculum above as a trial."""
    small = {
        "num_env_runners": 0,
        "train_batch_size": 70,
        "minibatch_size": 70,
        "num_epochs": 1,
        "env_config": {"min_length": 7, "max_length": 7},
    }
    return tune.Tuner(
        curriculum, param_space=small, run_config=_run_config(folder, "curriculum")
    ).fit()


def restored(path: Path) -> tune.ResultGrid:
    """Goes on with an experiment that was killed or interrupted; its code comes from here."""
    tuner: tune.Tuner = tune.Tuner.restore(path, descent)
    return tuner.fit()


def extended(path: Path, num_samples: int) -> tune.ResultGrid:
    """Goes on with more trials than were planned; those that are there stay as they are."""
    tuner: tune.Tuner = tune.Tuner.restore(
        path,
        descent,
        tune_config=tune.TuneConfig(num_samples=num_samples, metric="loss", mode="min"),
    )
    return tuner.fit()


if __name__ == "__main__":
    runs = Path("runs")
    for example in (random_search, early_stopping, population, in_phases):
        print(example(runs).table())

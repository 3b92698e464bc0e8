"""Experiments that are begun, or gone on with where they are, by a script that may be killed.

    python -m tests.faults.tuned_runs KIND TRAINABLE

KIND is what decides: FIFO, ASHA, HYPERBAND, POPULATION or OPTUNA; TRAINABLE is a function, PPO, or
PPO with runners of its own. Prints what the experiment came to, without clocks. Used by
`test_killed_experiments.py`.
"""

import hashlib
import json
import sys
import tempfile
from pathlib import Path

import numpy as np

from callbacks.ready_made.result_files import CSVResults
from tests.event_files import curves
from trainer import PPOConfig, tune
from trainer.metrics import comparable
from trainer.tune.logger import CSVLoggerCallback, TBXLoggerCallback
from trainer.tune.trial_files import TrialFiles

EXPERIMENT = Path("runs/killed")
NUM_ROWS = 6
NUM_TRIALS = {"function": 8, "PPO": 16, "PPO with runners": 3}


def function(config):
    """Draws from the global generator in every row, and goes on from its checkpoints."""
    checkpoint = tune.get_checkpoint()
    state = checkpoint.data() if checkpoint else {"step": 0, "score": 0.0}
    while True:
        gain = config["x"] * np.random.default_rng(state["step"]).random()
        noise = 0.01 * float(np.random.random())  # noqa: NPY002 - what users write
        state = {"step": state["step"] + 1, "score": state["score"] + gain + noise}
        tune.report({"score": state["score"]}, checkpoint=tune.Checkpoint.from_data(state))


def parts(kind, trainable):
    """What decides in an experiment."""
    metric = "score" if trainable == "function" else "env_runners/episode_return_mean"
    mutations = {"x" if trainable == "function" else "lr": tune.uniform(0.001, 1)}
    found = {
        "FIFO": {},
        "ASHA": {"scheduler": tune.ASHAScheduler(max_t=NUM_ROWS, reduction_factor=2)},
        "HYPERBAND": {"scheduler": tune.HyperBandScheduler(max_t=NUM_ROWS, reduction_factor=2)},
        "POPULATION": {
            "scheduler": tune.PopulationBasedTraining(
                perturbation_interval=2, hyperparam_mutations=mutations
            )
        },
        "OPTUNA": {
            "search_alg": tune.OptunaSearch(),
            "scheduler": tune.ASHAScheduler(max_t=NUM_ROWS, reduction_factor=2),
        }
        if kind == "OPTUNA"
        else {},
    }
    return {"metric": metric, "mode": "max", **found[kind]}


def space(trainable):
    """What is searched."""
    if trainable == "function":
        return {"x": tune.uniform(0, 1), "unused": tune.choice([[1], [2, 2]])}
    return (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0 if trainable == "PPO" else 2)
        .training(
            lr=tune.loguniform(1e-3, 1e-1),
            train_batch_size=40,
            minibatch_size=20,
            num_epochs=1,
            model={"fcnet_hiddens": [8]},
        )
    )


def tuner_of(kind, trainable):
    """A tuner that begins the experiment, or goes on with it."""
    given = function if trainable == "function" else "PPO"
    tune_config = tune.TuneConfig(
        num_samples=NUM_TRIALS[trainable],
        max_concurrent_trials=2,
        seed=3,
        **parts(kind, trainable),
    )
    run_config = tune.RunConfig(
        name=EXPERIMENT.name,
        storage_path=EXPERIMENT.parent,
        stop={"training_iteration": NUM_ROWS},
        verbose=0,
        recovery_interval_s=0.05,
        callbacks=[CSVLoggerCallback(), TBXLoggerCallback()],
    )
    if tune.Tuner.can_restore(EXPERIMENT):
        return tune.Tuner.restore(
            EXPERIMENT, given, param_space=space(trainable), tune_config=tune_config,
            run_config=run_config,
        )  # fmt: skip
    return tune.Tuner(
        given, param_space=space(trainable), tune_config=tune_config, run_config=run_config
    )


def outcome(grid):
    """What an experiment came to: trials, configs, rows, states, the best; without clocks."""
    return {
        "trials": [
            {
                "params": result.params,
                "status": result.status,
                "reason": result.stop_reason,
                "failures": result.num_failures,
                "rows": [comparable(row, also_drop=("timestamp",)) for row in result.rows()],
                "states": {
                    saved.name: dict(states(Path(result.path) / "checkpoints" / saved.name))
                    for saved in result.saved
                },
                "followed": followed(Path(result.path)),
            }
            for result in grid
        ],
        "best": grid.get_best_result().params,
        "exact": grid.inexact_reasons,
    }


def followed(folder):
    """Whether the table of a trial is what its rows give; and the points of one of its curves."""
    with tempfile.TemporaryDirectory() as other:
        table = CSVResults(Path(other) / "progress.csv")
        table.begin(1)
        for number, row in enumerate(TrialFiles(folder).rows(), start=1):
            table.append(number, row)
        is_same = table.path.read_bytes() == (folder / "progress.csv").read_bytes()
    points = curves(folder / "tensorboard")["training_iteration"]
    return is_same, [number for _, number in points]


def states(checkpoint):
    """Digests of the files of a checkpoint that hold states."""
    for path in sorted(checkpoint.rglob("*")):
        if path.suffix in (".msgpack", ".state"):
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            yield str(path.relative_to(checkpoint)), digest


if __name__ == "__main__":
    finished = tuner_of(sys.argv[1], sys.argv[2]).fit()
    sys.stdout.write(json.dumps(outcome(finished), default=str, sort_keys=True))

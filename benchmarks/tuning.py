"""Tuning: what a trial costs besides its work, and 16 short PPO trials against Ray Tune.

    trivial trials      one report each: how many per second, and how much memory the tuner takes
    start of a trial    in a process of its own, until its first row is there
    16 PPO trials       CartPole-v1, 20,480 env steps each, two at a time, against Ray Tune with
                        RLlib's PPO and with our PPO, where `ray[rllib,tune]` is installed

`ray.init` is not counted.
"""

from __future__ import annotations

import importlib.util
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from benchmarks.figures import Figure, ratio, report
from benchmarks.peers import ray_tunes_ours, rllib_tunes
from trainer import PPOConfig, tune

NUM_TRIALS = 16
NUM_ITERATIONS = 10
STEPS = 2048
LR = (1e-4, 1e-3)

_TRIVIAL = """
import resource, sys, tempfile, time
from trainer import tune

def trivial(config):
    tune.report({"loss": config["x"]})

number, in_process = int(sys.argv[1]), sys.argv[2] == "in-process"
with tempfile.TemporaryDirectory() as folder:
    tuner = tune.Tuner(
        trivial,
        param_space={"x": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(
            num_samples=number, seed=0, in_process=in_process, max_concurrent_trials=2
        ),
        run_config=tune.RunConfig(storage_path=folder, name="x", verbose=0),
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    began_at = time.perf_counter()
    assert tuner.fit().num_terminated == number
    seconds = time.perf_counter() - began_at
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    began_at = time.perf_counter()
    tune.Tuner.restore(folder + "/x", trivial).fit()
    print(seconds, before, peak, time.perf_counter() - began_at)
"""


def main() -> None:
    """Prints all of them."""
    _trivial_trials()
    _starts()
    _against_ray()


def _trivial_trials() -> None:
    for number, how, target in ((10_000, "in-process", "≥ 200"), (300, "processes", "")):
        print(f"{number:,} trivial trials, two lanes, {how}, without checkpoints")
        done = subprocess.run(
            [sys.executable, "-c", _TRIVIAL, str(number), how],
            capture_output=True,
            text=True,
            check=True,
        )
        seconds, before, peak, restored = map(float, done.stdout.split())
        report("rate", Figure([number / seconds], "trials/s"), target=target)
        report("time per trial", Figure([1000 * seconds / number], "ms"), target="≤ 50")
        report("memory of the tuner at its most", Figure([peak], "MB"), target="< 100")
        report("the same per trial", Figure([(peak - before) * 1024 / number], "KB"))
        report("restore of the finished experiment", Figure([restored], "s"), target="< 5")


def _begun(config: dict[str, Any]) -> None:
    """Reports when its first line ran, and how long an algorithm took to come up."""
    now = time.monotonic()  # the same clock in all processes of a machine
    began_at = time.perf_counter()
    algo = _config().env_runners(num_env_runners=config["num_env_runners"]).build_algo()
    built_s = time.perf_counter() - began_at
    algo.stop()
    tune.report(at=now, built_s=built_s)


class _Starts(tune.Callback):
    """Notes when trials are told to start."""

    def __init__(self) -> None:
        self.at: list[float] = []

    def on_trial_start(self, **_: Any) -> None:
        self.at.append(time.monotonic())


def _starts() -> None:
    print("start of a trial in a process of its own, one at a time")
    for num_env_runners, target in ((0, ""), (2, "≤ 150")):
        starts = _Starts()
        with tempfile.TemporaryDirectory() as folder:
            grid = tune.Tuner(
                _begun,
                param_space={"num_env_runners": num_env_runners},
                tune_config=tune.TuneConfig(num_samples=16, max_concurrent_trials=1),
                run_config=tune.RunConfig(storage_path=folder, verbose=0, callbacks=[starts]),
            ).fit()
            rows = [result.rows()[0] for result in grid][1:]  # the first imports for all
        begun = [1000 * (row["at"] - at) for row, at in zip(rows, starts.at[1:], strict=True)]
        built = [1000 * row["built_s"] for row in rows]
        if not num_env_runners:
            report("until the first line of user code", Figure(begun, "ms"), target="≤ 50")
        name = f"then: a PPO with {num_env_runners} env runners is built"
        report(name, Figure(built, "ms"), target=target)


def _config() -> PPOConfig:
    return (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=4)
        .training(
            train_batch_size=STEPS,
            minibatch_size=64,
            num_epochs=10,
            model={"fcnet_hiddens": [64, 64]},
        )
        .debugging(seed=0)
    )


def _ours() -> float:
    """Seconds that our tuner takes for all trials."""
    with tempfile.TemporaryDirectory() as folder:
        tuner = tune.Tuner(
            "PPO",
            param_space=_config().training(lr=tune.loguniform(*LR)),
            tune_config=tune.TuneConfig(
                num_samples=NUM_TRIALS, max_concurrent_trials=2, seed=0,
                metric="env_runners/episode_return_mean", mode="max",
            ),
            run_config=tune.RunConfig(
                storage_path=folder, verbose=0, stop={"training_iteration": NUM_ITERATIONS}
            ),
        )  # fmt: skip
        began_at = time.perf_counter()
        grid = tuner.fit()
        seconds = time.perf_counter() - began_at
        assert grid.num_terminated == NUM_TRIALS, grid.errors
        return seconds


def _against_ray(repeats: int = 3) -> None:
    print(f"{NUM_TRIALS} PPO trials, CartPole-v1, {NUM_ITERATIONS * STEPS:,} steps each, 2 lanes")
    peers: dict[str, tuple[Callable[[], float], str]] = {}
    if importlib.util.find_spec("ray") is not None:
        sizes = {"num_trials": NUM_TRIALS, "num_iterations": NUM_ITERATIONS, "steps": STEPS}
        peers = {
            "Ray Tune with RLlib's PPO": (lambda: rllib_tunes(lr=LR, **sizes), "≤ 0.1"),
            "Ray Tune with our PPO": (
                lambda: ray_tunes_ours(_config, lr=LR, **sizes),
                "≤ 0.5",
            ),
        }
    measured: dict[str, list[float]] = {"ours": [], **{name: [] for name in peers}}
    for _ in range(repeats):
        measured["ours"].append(_ours())
        for name, (measure, _) in peers.items():
            measured[name].append(measure())
    ours = Figure(measured["ours"], "s")
    report("ours", ours)
    for name, (_, target) in peers.items():
        theirs = Figure(measured[name], "s")
        report(name, theirs)
        report(f"ours against {name}", ratio(ours, theirs), target=target)
    if not peers:
        print("  Ray Tune is not installed here: pip install 'ray[rllib,tune]>=2.49'")
    print(f"  per trial: {1000 * statistics.median(measured['ours']) / NUM_TRIALS:,.0f} ms")

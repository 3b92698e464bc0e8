"""Runners with a slow env: the share of the ideal throughput, and the model of `throughput_model`.

Ideal is one env step per runner and 5 ms, all the time. Measured are whole iterations, learning
included: our local engine, our Ray engine, and RLlib where `ray[rllib]` is installed, in turn.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np

from benchmarks.figures import Figure, report
from benchmarks.throughput_model import Throughput, draw, fitted
from trainer import PPOConfig

STEP_S = 0.005
STEPS_PER_RUNNER = 100
REPEATS = 5
MODEL_COUNTS = (1, 2, 4, 8, 16)
MODEL_STEPS = 400


class SlowEnv(gymnasium.Env[Any, Any]):
    """Waits in every step, as a simulator in a process or machine of its own does."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, config: Any = None) -> None:
        del config
        self._t = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._t = 0
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        del action
        self.wait()
        self._t += 1
        return np.full(4, self._t / 50, np.float32), 1.0, self._t >= 50, False, {}

    def wait(self) -> None:
        time.sleep(STEP_S)


def settings(num_steps: int) -> dict[str, Any]:
    return {
        "train_batch_size": num_steps,
        "minibatch_size": STEPS_PER_RUNNER,
        "num_epochs": 1,
    }


@contextmanager
def ours(
    engine: str, num_runners: int, *, num_steps: int | None = None
) -> Iterator[Callable[[], float]]:
    """Seconds of an iteration of ours."""
    with config_of_ours(engine, num_runners, num_steps).build_algo() as algo:
        yield lambda: timed(algo.train)


def config_of_ours(engine: str, num_runners: int, num_steps: int | None = None) -> PPOConfig:
    num_steps = STEPS_PER_RUNNER * num_runners if num_steps is None else num_steps
    return (
        PPOConfig()
        .environment(SlowEnv)
        .env_runners(num_env_runners=num_runners, num_cpus_per_env_runner=0)
        .training(**settings(num_steps), model={"fcnet_hiddens": [64, 64]})
        .resources(engine=engine)
        .debugging(seed=0)
    )


@contextmanager
def rllibs(num_runners: int) -> Iterator[Callable[[], float]]:
    """Seconds of an iteration of RLlib's."""
    from ray.rllib.algorithms.ppo import PPOConfig as TheirConfig

    config: Any = (
        TheirConfig()
        .environment(SlowEnv)
        .env_runners(num_env_runners=num_runners, num_cpus_per_env_runner=0)
        .training(train_batch_size_per_learner=STEPS_PER_RUNNER * num_runners)
        .training(minibatch_size=STEPS_PER_RUNNER, num_epochs=1)
        .rl_module(model_config={"fcnet_hiddens": [64, 64]})
        .debugging(seed=0)
    )
    algo = config.build_algo()
    try:
        yield lambda: timed(algo.train)
    finally:
        algo.stop()


def timed(do: Callable[[], object]) -> float:
    started_at = time.perf_counter()
    do()
    return time.perf_counter() - started_at


def main() -> None:
    """Prints shares of the ideal throughput, then the model."""
    print(f"scale-out: an env step takes {STEP_S * 1e3:g} ms; whole iterations of PPO")
    has_ray = importlib.util.find_spec("ray") is not None
    has_rllib = has_ray and importlib.util.find_spec("torch") and importlib.util.find_spec("tree")
    with ray_cluster(has_ray):
        for num_runners in (4, 8):
            peers: dict[str, Any] = {"ours, local": lambda n: ours("local", n)}
            if has_ray:
                peers["ours on Ray"] = lambda n: ours("ray", n)
            if has_rllib:
                peers["RLlib"] = rllibs
            for name, make in peers.items():
                with make(num_runners) as iteration:
                    iteration()
                    seconds = [iteration() for _ in range(REPEATS)]
                ideal_s = STEPS_PER_RUNNER * STEP_S
                share = Figure([ideal_s / each for each in seconds], "of the ideal")
                target = "≥ 0.85" if name == "ours on Ray" else ""
                report(f"{num_runners} runners: {name}", share, target=target)
        if has_ray:
            report(
                "a killed Ray actor is replaced, others on its machine",
                Figure(replacements_s(), "s"),
                target="< 1.5",
            )
        for engine in ("local", "ray") if has_ray else ("local",):
            check_model(engine)
    for env_step_s, learner, network in (
        (1e-4, 26_000.0, "64×64"),
        (1e-3, 26_000.0, "64×64"),
        (1e-2, 26_000.0, "64×64"),
        (1e-2, 5_800.0, "256×256"),
    ):
        weights = 37_000.0 if network == "64×64" else 540_000.0
        model = Throughput(env_step_s, learner_steps_per_s=learner, weights_bytes=weights)
        print(f"  model, an env step of {env_step_s * 1e3:g} ms, {network}:")
        print(draw(model), flush=True)


def replacements_s() -> list[float]:
    """How much longer an iteration takes in whose beginning a runner's actor is found dead."""
    found = []
    with config_of_ours("ray", 4).build_algo() as algo:
        algo.train()
        usual_s = statistics.median(timed(algo.train) for _ in range(REPEATS))
        pool: Any = algo.env_runner_group._runners._pool
        for number in (1, 3):  # taken in by those of 2 and 4
            os.kill(pool[number].host_pid, signal.SIGKILL)
            found.append(timed(algo.train) - usual_s)
    return found


@contextmanager
def ray_cluster(is_wanted: bool) -> Iterator[None]:
    """A small local cluster for everything that is measured on Ray."""
    if not is_wanted:
        yield
        return
    import ray

    ray.init(
        num_cpus=16, include_dashboard=False, log_to_driver=False, object_store_memory=200 * 2**20
    )
    try:
        yield
    finally:
        ray.shutdown()


def check_model(engine: str) -> None:
    """Measures iterations with 1 to 16 runners, and says how far the model is off."""
    measured: dict[int, float] = {}
    for num_runners in MODEL_COUNTS:
        with ours(engine, num_runners, num_steps=MODEL_STEPS) as iteration:
            iteration()
            measured[num_runners] = statistics.median(iteration() for _ in range(REPEATS))
    model = fitted(Throughput(STEP_S, num_steps=MODEL_STEPS), measured)
    print(
        f"  model, {engine}: acting {model.acting_s * 1e6:.0f} µs per step, "
        f"{model.answer_s * 1e3:.1f} ms per answer, fitted to all lines"
    )
    for number, seconds in measured.items():
        told = model.iteration_s(number)
        print(
            f"    {number:>2} runners: iteration {seconds * 1e3:6.0f} ms, model "
            f"{told * 1e3:6.0f} ms ({told / seconds - 1.0:+.1%})",
            flush=True,
        )

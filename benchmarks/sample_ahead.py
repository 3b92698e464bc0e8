"""Sampling ahead: what it gains with slow envs, and what it costs in learning.

The share of the ideal: an env waits 5 ms in every step, always, or on average with waits that are
exponentially distributed. The ideal is an iteration that takes as long as the waits of the runner
that waits longest in it: no trainer whose updates need a whole sample is faster. Waits are taken as
the clock measures them, as `time.sleep(0.005)` takes 5.06 to 5.25 ms: a bare loop that does no more
than step the env would reach 0.95 to 0.99 of the waits that were asked for. The share of these is
printed, too. Measured are whole iterations of PPO, with and without `sample_ahead` in turn.

Learning: env steps to a mean return of 450 on CartPole-v1, with the settings of `learning`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np

from benchmarks.figures import Figure, alternate, ratio, report
from benchmarks.learning import ppo_speed_config, run
from benchmarks.scale_out import STEP_S, SlowEnv, settings
from trainer import Algorithm, PPOConfig, RLlibCallback

STEPS_PER_RUNNER = 200
SEEDS = range(9)


class Waits(SlowEnv):
    """Waits 5 ms in every step, or so long on average.

    Attributes:
        waited_s: seconds that it has waited by the clock.
        asked_s: seconds that it wanted to wait.
    """

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self._is_exponential = config["is_exponential"]
        self._rng = np.random.default_rng([7, config.worker_index])
        self.waited_s = self.asked_s = 0.0

    def wait(self) -> None:
        seconds = self._rng.exponential(STEP_S) if self._is_exponential else STEP_S
        self.asked_s += seconds
        started_at = time.perf_counter()
        time.sleep(seconds)
        self.waited_s += time.perf_counter() - started_at


class TellWaits(RLlibCallback):
    """Logs how long each runner's env waited in each sample; the longest counts."""

    def on_sample_end(self, *, env_runner: Any, metrics_logger: Any, **_: Any) -> None:
        env = env_runner.env.envs[0].unwrapped
        for name in ("waited_s", "asked_s"):
            metrics_logger.log_value(name, getattr(env, name), reduce="max", clear_on_reduce=True)
            setattr(env, name, 0.0)


def slow_config(num_runners: int, *, is_exponential: bool, is_ahead: bool) -> PPOConfig:
    """One slow env in each of so many runners."""
    learning = {**settings(STEPS_PER_RUNNER * num_runners), "minibatch_size": STEPS_PER_RUNNER}
    return (
        PPOConfig()
        .environment(Waits, env_config={"is_exponential": is_exponential})
        .env_runners(num_env_runners=num_runners)
        .training(**learning, sample_ahead=is_ahead, model={"fcnet_hiddens": [64, 64]})
        .callbacks(TellWaits)
        .debugging(seed=0)
    )


@contextmanager
def built(num_runners: int, *, is_exponential: bool, is_ahead: bool) -> Iterator[Algorithm]:
    """An algorithm that has made an iteration."""
    config = slow_config(num_runners, is_exponential=is_exponential, is_ahead=is_ahead)
    with config.build_algo() as algo:
        algo.train()
        yield algo


def share(algo: Algorithm, num_iterations: int = 3, *, of: str = "waited_s") -> float:
    """Of the ideal throughput, over some iterations; `of` says which waits are the ideal.

    With samples ahead, none may be under way while the other algorithm is measured: the first
    iteration of each measurement takes the one that waited, and does not count.
    """
    algo.train()
    started_at, ideal_s = time.perf_counter(), 0.0
    for _ in range(num_iterations):
        ideal_s += algo.train()["env_runners"][of]
    return ideal_s / (time.perf_counter() - started_at)


def slow_shares(repeats: int = 5) -> None:
    """Prints the shares of 1, 4 and 8 runners."""
    for is_exponential in (False, True):
        kind = "exponential" if is_exponential else "constant"
        for num_runners in (1, 4, 8):
            with ExitStack() as stack:
                plain, ahead = (
                    stack.enter_context(
                        built(num_runners, is_exponential=is_exponential, is_ahead=is_ahead)
                    )
                    for is_ahead in (False, True)
                )
                one, other = alternate(
                    partial(share, plain),
                    partial(share, ahead),
                    unit="of the ideal",
                    repeats=repeats,
                )
                asked = Figure([share(plain, of="asked_s") for _ in range(2)], "of the ideal")
            report(f"5 ms, {kind}, {num_runners} runners", one, target="≥ 0.93")
            report("  the same with sample_ahead", other, target="≥ 0.97")
            report("  of the waits asked for", asked)


def effect_on_learning() -> None:
    """Prints steps to 450 with and without."""
    print(f"sample_ahead: CartPole-v1 to a mean return of 450, seeds {[*SEEDS]}")
    steps: dict[bool, list[float]] = {False: [], True: []}
    for seed in SEEDS:
        for is_ahead, found in steps.items():
            config = ppo_speed_config(0).training(sample_ahead=is_ahead).debugging(seed=seed)
            found.append(run(config).env_steps)
    plain, ahead = Figure(steps[False], "steps"), Figure(steps[True], "steps")
    report("env steps", plain)
    report("env steps with sample_ahead", ahead)
    report("ratio", ratio(ahead, plain))


def main(repeats: int = 5) -> None:
    """Prints both.

    Args:
        repeats: of each share.
    """
    print(f"sample_ahead: {STEPS_PER_RUNNER} steps of each runner per iteration")
    slow_shares(repeats)
    print()
    effect_on_learning()

"""Sampling ahead: what it gains with slow envs, and what it costs in learning.

The share of the ideal: an env waits 5 ms in every step, always, or on average with waits that are
exponentially distributed. The ideal is an iteration that takes as long as the waits of the runner
that waits longest in it: no trainer whose updates need a whole sample is faster. Waits are taken as
the clock measures them, as `time.sleep(0.005)` takes 5.06 to 5.25 ms: a bare loop that does no more
than step the env would reach 0.95 to 0.99 of the waits that were asked for. The share of these is
printed, too. Measured are whole iterations of PPO, with and without `sample_ahead` in turn.

Uneven steps: 8 runners whose env waits 5 to 50 ms, log-normally distributed (median 15 ms). The
ideal is that every runner waits all the time, and what is measured is the waits of all runners per
runner and second: of PPO, of PPO with `sample_ahead`, and of APPO with several lags.

Learning: env steps to a mean return of 450 on CartPole-v1, with the settings of `learning`; and of
PPO and APPO with a lag of 2 on two envs, with the settings of `quality`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Final

import numpy as np

from benchmarks.figures import Figure, alternate, ratio, report
from benchmarks.learning import ppo_speed_config, run
from benchmarks.quality.ours import config_of
from benchmarks.quality.tasks import BY_NAME
from benchmarks.scale_out import STEP_S, SlowEnv, settings
from trainer import Algorithm, AlgorithmConfig, APPOConfig, PPOConfig, RLlibCallback

STEPS_PER_RUNNER = 200
SEEDS = range(9)


def seconds_of_step(waits: str, rng: np.random.Generator) -> float:
    """How long a step waits, in a way that has a name."""
    if waits == "constant":
        return STEP_S
    if waits == "exponential":
        return float(rng.exponential(STEP_S))
    return float(np.clip(0.015 * np.exp(0.6 * rng.standard_normal()), 0.005, 0.05))


class Waits(SlowEnv):
    """Waits in every step, as long as `seconds_of_step` says.

    Attributes:
        waited_s: seconds that it has waited by the clock.
        asked_s: seconds that it wanted to wait.
    """

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self._waits = config["waits"]
        self._rng = np.random.default_rng([7, config.worker_index])
        self.waited_s = self.asked_s = 0.0

    def wait(self) -> None:
        seconds = seconds_of_step(self._waits, self._rng)
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


def slow_config(num_runners: int, *, waits: str, is_ahead: bool) -> PPOConfig:
    """One slow env in each of so many runners."""
    learning = {**settings(STEPS_PER_RUNNER * num_runners), "minibatch_size": STEPS_PER_RUNNER}
    return (
        PPOConfig()
        .environment(Waits, env_config={"waits": waits})
        .env_runners(num_env_runners=num_runners)
        .training(**learning, sample_ahead=is_ahead, model={"fcnet_hiddens": [64, 64]})
        .callbacks(TellWaits)
        .debugging(seed=0)
    )


@contextmanager
def built(num_runners: int, *, waits: str, is_ahead: bool) -> Iterator[Algorithm]:
    """An algorithm that has made an iteration."""
    config = slow_config(num_runners, waits=waits, is_ahead=is_ahead)
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
    for kind in ("constant", "exponential"):
        for num_runners in (1, 4, 8):
            with ExitStack() as stack:
                plain, ahead = (
                    stack.enter_context(built(num_runners, waits=kind, is_ahead=is_ahead))
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


class TellAllWaits(RLlibCallback):
    """Logs how long the envs of all runners waited in each sample, together."""

    def on_sample_end(self, *, env_runner: Any, metrics_logger: Any, **_: Any) -> None:
        env = env_runner.env.envs[0].unwrapped
        metrics_logger.log_value("waited_s", env.waited_s, reduce="sum", clear_on_reduce=True)
        env.waited_s = 0.0


def busy_share(config: AlgorithmConfig, *, num_iterations: int) -> float:
    """The share of time in which runners wait for their env, over some iterations."""
    with config.build_algo() as algo:
        for _ in range(5):  # until samples ahead are spread as they stay
            algo.train()
        started_at = time.perf_counter()
        waited_s = 0.0
        for _ in range(num_iterations):
            waited_s += algo.train()["env_runners"]["waited_s"]
        return waited_s / algo.config.num_env_runners / (time.perf_counter() - started_at)


def uneven_config(lag: int, *, kind: type[PPOConfig]) -> PPOConfig:
    """Eight runners with an env each, 50 steps of each in an iteration."""
    return (
        kind()
        .environment(Waits, env_config={"waits": "log-normal"})
        .env_runners(num_env_runners=8)
        .training(
            train_batch_size=400,
            minibatch_size=100,
            num_epochs=4,
            sample_ahead=lag,
            model={"fcnet_hiddens": [64, 64]},
        )
        .callbacks(TellAllWaits)
        .debugging(seed=0)
    )


def uneven_shares(repeats: int = 3, num_iterations: int = 20) -> None:
    """Prints the shares of busy runners, each in turn."""
    configs = {
        "PPO": uneven_config(0, kind=PPOConfig),
        "PPO, sample_ahead=1": uneven_config(1, kind=PPOConfig),
        "APPO, sample_ahead=1": uneven_config(1, kind=APPOConfig),
        "APPO, sample_ahead=2": uneven_config(2, kind=APPOConfig),
        "APPO, sample_ahead=4": uneven_config(4, kind=APPOConfig),
    }
    shares: dict[str, list[float]] = {name: [] for name in configs}
    for _ in range(repeats):
        for name, config in configs.items():
            share_now = busy_share(config.copy(copy_frozen=False), num_iterations=num_iterations)
            shares[name].append(share_now)
    for name, found in shares.items():
        target = "≥ 0.95" if name.startswith("APPO") else ""
        report(f"5 to 50 ms, log-normal, 8 runners: {name}", Figure(found, "busy"), target=target)


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


LAG = 2
SETTINGS: Final[Mapping[str, dict[str, Any]]] = {
    "CartPole-v1": {},
    "LunarLander-v3": {"train_batch_size": 4096, "minibatch_size": 128, "num_epochs": 6},
}
"""Besides those of the PPO tasks of `benchmarks.quality`: for LunarLander smaller batches."""


def steps_to_learn(env: str, *, lag: int, seed: int) -> float:
    """Env steps until the mean return is what counts as learnt; the budget if it never is."""
    task = BY_NAME[f"PPO {env}"]
    config = config_of(task)
    if lag:
        config = APPOConfig().update_from_dict(config.given_settings())
        config.training(standardize_advantages="batch", sample_ahead=lag)
    config.environment(env).training(**SETTINGS[env]).debugging(seed=seed)
    with config.build_algo() as algo:
        while algo.counters.num_env_steps_sampled < task.num_env_steps:
            found = algo.train()["env_runners"].get("episode_return_mean", -np.inf)
            if found >= task.wanted_return:
                break
        return algo.counters.num_env_steps_sampled


def effect_of_lags(seeds: Iterable[int] = range(5)) -> None:
    """Prints the steps that PPO and APPO take, with the same settings."""
    for env in SETTINGS:
        wanted = BY_NAME[f"PPO {env}"].wanted_return
        steps = {
            lag: Figure([steps_to_learn(env, lag=lag, seed=seed) for seed in seeds], "steps")
            for lag in (0, LAG)
        }
        report(f"{env} to {wanted:g}: PPO", steps[0])
        report(f"{env} to {wanted:g}: APPO, sample_ahead={LAG}", steps[LAG])
        quotient = steps[LAG].median / steps[0].median
        print(f"  ratio of medians {quotient:.2f}   target ≤ 1.3")


def main(repeats: int = 5) -> None:
    """Prints all.

    Args:
        repeats: of each share.
    """
    print(f"sample_ahead: {STEPS_PER_RUNNER} steps of each runner per iteration")
    slow_shares(repeats)
    print()
    uneven_shares()
    print()
    effect_on_learning()
    print()
    effect_of_lags()

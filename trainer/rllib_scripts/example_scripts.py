"""The arguments and the runner that RLlib's example scripts share, and scripts made from them.

    parser = add_rllib_example_script_args(default_reward=450.0)
    args = parser.parse_args()
    run_rllib_example_script_experiment(config, args)

The arguments are RLlib's; those for clusters, frameworks and services are read and have no effect,
or are refused when they ask for something.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from callbacks.ready_made.display import LineOutput
from trainer import tune
from trainer.algorithms.building import get_trainable_cls
from trainer.config import AlgorithmConfig
from trainer.errors import ConfigError, TrainerError
from trainer.metrics import ResultDict

_RETURN: Final = "env_runners/episode_return_mean"
_RETURN_OF_EVALUATION: Final = f"evaluation/{_RETURN}"
_ENV_STEPS: Final = "env_runners/num_env_steps_sampled_lifetime"
_ITERATION: Final = "training_iteration"

_NOT_TAKEN: Final[Mapping[str, str]] = {
    "old_api_stack": "there is one implementation, under the new names and the old",
    "enable_new_api_stack": "there is one implementation; leave it out",
    "output": "recording data to learn from is not part of this trainer; `EpisodeRecorder` keeps "
    "episodes",
    "wandb_key": "keys stay with the service's own login; give the callback `WandbLogger`",
}
"""Arguments that are refused when they ask for something."""


def _count_or_auto(text: str) -> int | str:
    return text if text == "auto" else int(text)


def add_rllib_example_script_args(
    parser: argparse.ArgumentParser | None = None,
    default_reward: float = 100.0,
    default_iters: int = 200,
    default_timesteps: int = 100_000,
) -> argparse.ArgumentParser:
    """Adds the arguments of RLlib's example scripts to a parser.

    Args:
        parser: what they are added to; None makes one.
        default_reward: of `--stop-reward`.
        default_iters: of `--stop-iters`.
        default_timesteps: of `--stop-timesteps`.

    Returns:
        The parser.
    """
    parser = argparse.ArgumentParser() if parser is None else parser
    add = parser.add_argument
    add("--algo", default="PPO", help="name of the algorithm")
    add("--env", help="gymnasium id of the env")
    add("--num-env-runners", type=int, help="processes that sample; 0: the main process does")
    add("--num-envs-per-env-runner", type=int, help="envs side by side in each")
    add("--num-agents", type=int, default=0, help="0: one agent")
    add("--evaluation-num-env-runners", type=int, default=0, help="processes that evaluate")
    add("--evaluation-interval", type=int, default=0, help="iterations between; 0: none")
    add("--evaluation-duration", type=_count_or_auto, default=10, help='a number, or "auto"')
    add("--evaluation-duration-unit", choices=["episodes", "timesteps"], default="episodes")
    add("--evaluation-parallel-to-training", action="store_true")
    add("--no-tune", action="store_true", help="train in this process, without tune.Tuner")
    add("--num-samples", type=int, default=1, help="trials")
    add("--max-concurrent-trials", type=int, help="trials at the same time")
    add("--verbose", type=int, default=2, help="how much tune.Tuner prints")
    add("--checkpoint-freq", type=int, default=0, help="iterations between checkpoints; 0: none")
    add("--checkpoint-at-end", action="store_true")
    add("--tune-max-report-freq", type=int, default=5, help="seconds between reports")
    add("--stop-reward", type=float, default=default_reward, help="mean return at which to stop")
    add("--stop-iters", type=int, default=default_iters, help="iterations at most")
    add("--stop-timesteps", type=int, default=default_timesteps, help="env steps at most")
    add("--as-test", action="store_true", help="fail unless the return was reached")
    add("--as-release-test", action="store_true", help="as --as-test")
    nothing: dict[str, Any] = {"help": "no effect, or refused: see docs/coming-from-rllib.md"}
    add("--framework", choices=["tf", "tf2", "torch"], default="torch", **nothing)
    add("--log-level", choices=["INFO", "DEBUG", "WARN", "ERROR"], **nothing)
    add("--num-learners", type=int, **nothing)
    for name in ("--num-cpus-per-learner", "--num-gpus-per-learner"):
        add(name, type=float, **nothing)
    for name in ("--num-aggregator-actors-per-learner", "--num-gpus"):
        add(name, type=int, **nothing)
    add("--num-cpus", type=int, default=0, **nothing)
    for name in ("--output", "--wandb-key", "--wandb-project", "--wandb-run-name"):
        add(name, **nothing)
    for name in ("--old-api-stack", "--enable-new-api-stack", "--local-mode"):
        add(name, action="store_true", **nothing)
    return parser


def run_rllib_example_script_experiment(
    base_config: AlgorithmConfig,
    args: argparse.Namespace | None = None,
    *,
    stop: Mapping[str, Any] | None = None,
    success_metric: Mapping[str, float] | None = None,
    trainable: Any = None,
    tune_callbacks: Sequence[Any] | None = None,
    keep_config: bool = False,
    keep_ray_up: bool = False,
    scheduler: Any = None,
    progress_reporter: Any = None,
) -> ResultDict | tune.ResultGrid:
    """Trains as an example script of RLlib was asked to on its command line.

    Args:
        base_config: changed by the arguments, unless `keep_config`.
        args: of `add_rllib_example_script_args()`; None reads those of the process.
        stop: bounds by key of the result; None takes the `--stop-…` arguments.
        success_metric: key and bound that `--as-test` asks for; None: the return in `stop`.
        trainable: what is trained; None: the algorithm of the config.
        tune_callbacks: of the `tune.Tuner`.
        keep_config: leave the config as it is.
        keep_ray_up: no effect.
        scheduler: of the `tune.Tuner`.
        progress_reporter: of the `tune.Tuner`.

    Returns:
        What `tune.Tuner.fit()` gave; with `--no-tune` the last result.

    Raises:
        ConfigError: an argument asks for what is not here.
        TrainerError: `--as-test`, and the bound was not reached.
    """
    del keep_ray_up
    args = add_rllib_example_script_args().parse_args() if args is None else args
    for name, why in _NOT_TAKEN.items():
        if getattr(args, name, None):
            raise ConfigError(f"--{name.replace('_', '-')} is not offered: {why}.")
    if not keep_config:
        _change(base_config, args)
    bounds = {
        _RETURN: args.stop_reward,
        _ENV_STEPS: args.stop_timesteps,
        _ITERATION: args.stop_iters,
    }
    bounds = bounds if stop is None else dict(stop)
    if args.no_tune:
        return _trained(base_config, bounds, at_most=args.stop_iters)
    tuner = tune.Tuner(
        trainable or base_config.algo_class or get_trainable_cls(args.algo),
        param_space=base_config,
        run_config=tune.RunConfig(
            stop=bounds,
            verbose=1 if args.as_test else args.verbose,
            callbacks=list(tune_callbacks or ()),
            failure_config=tune.FailureConfig(fail_fast="raise"),
            checkpoint_config=tune.CheckpointConfig(
                checkpoint_frequency=args.checkpoint_freq,
                checkpoint_at_end=args.checkpoint_at_end,
            ),
            progress_reporter=progress_reporter,
        ),
        tune_config=tune.TuneConfig(
            num_samples=args.num_samples,
            max_concurrent_trials=args.max_concurrent_trials,
            scheduler=scheduler,
        ),
    )
    results = tuner.fit()
    if args.as_test or args.as_release_test:
        in_stop = {key: bounds[key] for key in (_RETURN_OF_EVALUATION, _RETURN) if key in bounds}
        asked = success_metric or in_stop or {_RETURN: args.stop_reward}
        _require(results, *next(iter(asked.items())))
    return results


def _change(config: AlgorithmConfig, args: argparse.Namespace) -> None:
    """Puts what the arguments say into a config."""
    if args.env is not None and config.env is None:
        config.environment(args.env)
    if args.num_env_runners is not None:
        config.env_runners(num_env_runners=args.num_env_runners)
    if args.num_envs_per_env_runner is not None:
        config.env_runners(num_envs_per_env_runner=args.num_envs_per_env_runner)
    if args.evaluation_interval > 0:
        config.evaluation(
            evaluation_num_env_runners=args.evaluation_num_env_runners,
            evaluation_interval=args.evaluation_interval,
            evaluation_duration=args.evaluation_duration,
            evaluation_duration_unit=args.evaluation_duration_unit,
            evaluation_parallel_to_training=args.evaluation_parallel_to_training,
        )


def _trained(config: AlgorithmConfig, bounds: Mapping[str, Any], *, at_most: int) -> ResultDict:
    with config.build_algo() as algorithm:
        for _ in range(bounds.get(_ITERATION, at_most)):
            result = algorithm.train()
            iteration, returned = result[_ITERATION], result[_RETURN]
            _say(f"iter={iteration} R={returned}")
            if should_stop(bounds, result):
                break
    return result


def should_stop(stop: Mapping[str, Any], results: ResultDict, keep_ray_up: bool = False) -> bool:
    """Whether a result has reached one of some bounds; says which.

    Args:
        stop: bounds by key of the result; keys that it does not have are passed over.
        results: of `train()`.
        keep_ray_up: no effect.
    """
    del keep_ray_up
    for key, bound in stop.items():
        value = results.get(key)
        if isinstance(value, int | float) and value >= bound:
            _say(f"Stop criterion ({key}={bound}) fulfilled!")
            return True
    return False


def check_learning_achieved(
    tune_results: tune.ResultGrid,
    min_value: float,
    evaluation: bool | None = None,
    metric: str = _RETURN,
) -> float:
    """Raises unless a metric has reached a bound in one of the trials; returns the best value.

    Args:
        tune_results: of `tune.Tuner.fit()`.
        min_value: the bound.
        evaluation: whether the metric is that of evaluations.
        metric: its key.

    Raises:
        TrainerError: it was not reached.
    """
    return _require(tune_results, f"evaluation/{metric}" if evaluation else metric, min_value)


def _say(text: str) -> None:
    LineOutput().write(text)


def _require(results: tune.ResultGrid, key: str, bound: float) -> float:
    values = [row.get(key, math.nan) for result in results for row in result.rows()]
    best = max((value for value in values if not math.isnan(value)), default=math.nan)
    if not best >= bound:
        raise TrainerError(f"`{key}` of {bound} was not reached; the best value is {best}.")
    _say(f"`{key}` of {bound} was reached.")
    return best

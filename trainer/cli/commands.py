"""What the commands do. Each takes the parsed arguments and returns an exit code."""

from __future__ import annotations

import argparse
import datetime as dt
import math
import re
from pathlib import Path
from typing import Any

from checkpoints import latest_checkpoint, read_checkpoint, read_manifest, verify
from trainer.algorithms.algorithm import Algorithm
from trainer.algorithms.registry import algorithm_class
from trainer.cli.run_directory import RunDirectory
from trainer.cli.training_run import StopCriteria, TrainingRun


def train(arguments: argparse.Namespace) -> int:
    """`local-trainer train`."""
    algorithm = algorithm_class(arguments.algo)
    config = algorithm.get_default_config().environment(arguments.env)
    given = {
        "num_env_runners": arguments.num_env_runners,
        "num_envs_per_env_runner": arguments.num_envs_per_env_runner,
        "seed": arguments.seed,
    }
    config.update_from_dict({name: value for name, value in given.items() if value is not None})
    config.update_from_dict(dict(arguments.settings))
    stops = _stops(arguments)
    directory = RunDirectory(arguments.run_dir or _new_run_directory(arguments.algo, arguments.env))
    directory.create(stops.to_dict())
    try:
        algo = config.build_algo()
    except BaseException:
        directory.remove_if_unused()
        raise
    with algo:
        return _run(algo, directory, stops, arguments)


def resume(arguments: argparse.Namespace) -> int:
    """`local-trainer resume`."""
    checkpoint = _checkpoint_at(arguments.path)
    directory = RunDirectory(_run_directory_of(checkpoint))
    stops = StopCriteria.from_dict(directory.read_stops()).updated(_stops(arguments))
    with Algorithm.from_checkpoint(checkpoint, allow_code=arguments.allow_code) as algo:
        print(f"Restored {checkpoint} (iteration {algo.training_iteration}).")
        directory.forget_results_after(algo.training_iteration)
        directory.write_stops(stops.to_dict())  # the next resume ends where this one is to end
        return _run(algo, directory, stops, arguments)


def evaluate(arguments: argparse.Namespace) -> int:
    """`local-trainer evaluate`."""
    checkpoint = _checkpoint_at(arguments.path)
    saved = read_checkpoint(checkpoint, "config").components["config"]["settings"]
    overrides = {**(saved.get("evaluation_config") or {}), "explore": arguments.explore}
    settings: dict[str, Any] = {
        "evaluation_duration": arguments.episodes,
        "evaluation_duration_unit": "episodes",
        "evaluation_seed": arguments.seed,
        "evaluation_config": overrides,
        "num_env_runners": 0,
        "num_envs_per_env_runner": 1,
    }
    with Algorithm.from_checkpoint(checkpoint, allow_code=arguments.allow_code, **settings) as algo:
        metrics = algo.evaluate()["env_runners"]
    print(f"{checkpoint}, iteration {algo.training_iteration}, {metrics['num_episodes']} episodes:")
    for name in (
        "episode_return_mean",
        "episode_return_min",
        "episode_return_max",
        "episode_len_mean",
    ):
        print(f"  {name:<22}{metrics[name]:>12.2f}")
    return 0


def inspect(arguments: argparse.Namespace) -> int:
    """`local-trainer inspect`."""
    checkpoint = _checkpoint_at(arguments.path)
    manifest = verify(checkpoint) if arguments.verify else read_manifest(checkpoint)
    print(f"{checkpoint}")
    print(
        f"  format {manifest.format_version}, saved {manifest.created_at}, "
        f"{_versions(manifest.versions)}"
    )
    for name, value in manifest.metadata.items():
        print(f"  {name:<32}{value}")
    print("  components:")
    for name, entry in manifest.components.items():
        print(f"    {name:<28}{entry.num_bytes:>12,} bytes  sha256 {entry.sha256[:12]}…")
    code = (
        "none"
        if manifest.code is None
        else f"{manifest.code.num_bytes:,} bytes, loaded only on request"
    )
    print(f"  pickled code: {code}")
    if arguments.verify:
        print("  all files are as their hashes say")
    return 0


def _run(
    algo: Algorithm, directory: RunDirectory, stops: StopCriteria, arguments: argparse.Namespace
) -> int:
    run = TrainingRun(
        algo, directory, stops, checkpoint_every=arguments.checkpoint_every, keep=arguments.keep
    )
    reason = run.run()
    path = directory.relative_path
    print(f"\n{reason} Results: {directory.results_file}")
    print("What to type next:")
    print(f"  local-trainer evaluate {path} --episodes 20")
    print(f"  local-trainer resume {path} --stop-iterations {algo.training_iteration + 10}")
    print(f"  local-trainer inspect {path}")
    return 130 if run.was_interrupted else 0


def _stops(arguments: argparse.Namespace) -> StopCriteria:
    return StopCriteria(
        episode_return=arguments.stop_return,
        env_steps=arguments.stop_env_steps,
        iterations=arguments.stop_iterations,
    )


def _new_run_directory(algo: str, env: str) -> Path:
    now = dt.datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
    return Path("runs") / f"{algo}-{re.sub(r'[^A-Za-z0-9._-]+', '_', env)}-{now}"


def _checkpoint_at(path: str) -> Path:
    """The checkpoint at a path: itself, or the newest of a run's directory."""
    for directory in (Path(path).expanduser() / "checkpoints", Path(path).expanduser()):
        if directory.is_dir() and not (directory / "manifest.json").exists():
            found = latest_checkpoint(directory)
            if found is not None:
                return found
    return Path(path)


def _run_directory_of(checkpoint: Path) -> Path:
    parent = checkpoint.expanduser().resolve().parent
    return parent.parent if parent.name == "checkpoints" else parent


def _versions(versions: Any) -> str:
    return ", ".join(
        f"{name} {version}" for name, version in versions.items() if not _is_nothing(version)
    )


def _is_nothing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))

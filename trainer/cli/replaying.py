"""`local-trainer replay-episode`: plays a request that failed again, for a debugger to look at."""

from __future__ import annotations

import argparse
import faulthandler
import pdb  # noqa: T100 - it is what the user asks for
from typing import Any, Final

from trainer.algorithms.registry import algorithm_class
from trainer.cli.named_code import config_of, imported
from trainer.cli.output import complain_with_traceback, tell
from trainer.config import AlgorithmConfig
from trainer.errors import ConfigError
from trainer.runner_group.crash_files import read_crash
from trainer.types import State

_IN_THIS_PROCESS: Final = {
    "num_env_runners": 0,
    "evaluation_interval": None,
    "evaluation_num_env_runners": 0,
    "evaluation_parallel_to_training": False,
    "enable_async_evaluation": False,
    "crash_dir": None,
}


def replay_episode(arguments: argparse.Namespace) -> int:
    """Plays it again; the exit code is 1 if something was raised."""
    record = read_crash(arguments.path)
    tell(f"{arguments.path}: {_headline(record)}\n")
    config = _config(arguments, record).update_from_dict(_IN_THIS_PROCESS)
    faulthandler.enable()  # shows the Python lines above a crash in compiled code
    with config.build_algo() as algo:
        try:
            episodes = algo.replay_episode(arguments.path)
        except Exception as error:  # noqa: BLE001 - shown; it is what was looked for
            complain_with_traceback(error)
            if arguments.pdb:
                pdb.post_mortem(error.__traceback__)
            return 1
    num_steps = sum(len(episode) for episode in episodes)
    tell(
        f"Played {num_steps} env steps of {len(episodes)} episodes and chunks; nothing was raised "
        "this time. So the failure does not follow from seeds and actions alone: look for clocks, "
        "files, other processes, memory."
    )
    return 0


def _headline(record: State) -> str:
    what = str(record["why"]).strip().splitlines()[-1 if record["why"].startswith("Trace") else 0]
    return (
        f"env runner {record['place']['worker_index']} of {record['role'].lower()} in env "
        f"{record['env']!r} {what}"
    )


def _config(arguments: argparse.Namespace, record: State) -> AlgorithmConfig:
    """The config of the run that failed: as the user gives it, or as the file has it."""
    if arguments.config is not None:
        found = imported(arguments.config, option="--config")
        return config_of(found, name=arguments.config).copy(copy_frozen=False)
    state = record["config"]
    code: dict[str, Any] = {} if arguments.env is None else {"env": arguments.env}
    missing = sorted(set(state["code"]) - code.keys())
    if missing:
        raise ConfigError(
            f"The config of that run holds code, which is not in the file: {', '.join(missing)}. "
            "Say where the config is made: --config package.module:name (a config, or a function "
            "that returns one)"
            + (", or name the env: --env package.module.MyEnv." if missing == ["env"] else ".")
        )
    config: AlgorithmConfig = algorithm_class(record["algorithm"]).config_class.from_state(
        state, code=code
    )
    return config

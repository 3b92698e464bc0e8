"""Fingerprints of fixed short runs: evidence that a change of the code changes no byte.

    python -m tests.fingerprints record              writes tests/fingerprints.json
    python -m tests.fingerprints compare             compares this tree with that file
    python -m tests.fingerprints compare --base REV  compares this tree with a commit, side by side

A fingerprint is a digest of one thing that a run shows or knows: a result without its times, the
batches and episodes it learnt from, a part of its state, a component file of its checkpoint. The
runs are every algorithm without runners, with two, with two that are killed, and in a new process
after a restore; and some more with evaluation, normalisation, a curriculum and strategies.

The numbers depend on how a machine computes. `record` therefore stores a fingerprint of its
arithmetic, too, and `compare` refuses a file that another arithmetic made: use `--base` there.
Only public names are used, so that the same file runs in an older tree.
"""

import argparse
import hashlib
import json
import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from checkpoints import encode, read_checkpoint, read_manifest
from tests.resume_cells import ENVS, Cell, Remembering
from trainer import Algorithm
from trainer.metrics import comparable
from trainer.testing.envs import TaskCountdownEnv

RECORD = Path(__file__).with_suffix(".json")
PROJECT = Path(__file__).parents[1]
KILLS = "LOCAL_TRAINER_FINGERPRINT_KILLS"
"""Environment variable: the folder whose files say which runners kill themselves, once each."""

HALF = 3
"""Iterations before and after the checkpoint of a run."""

Fingerprints = dict[str, dict[str, str]]
"""Digests by the name of the run and of what was digested."""


class Witness(Remembering):
    """Keeps digests of all samples (in the runners) and all batches (in the main process)."""

    def __init__(self):
        super().__init__()
        self.seen = ""
        self.num_samples = 0

    def on_sample_end(self, *, env_runner, samples, **_):
        self.num_samples += 1
        for episode in samples:
            self._see(
                episode.get_observations(),
                episode.get_actions(),
                episode.get_rewards(),
                [episode.is_terminated, episode.is_truncated],
            )
        self._kill_oneself(env_runner.worker_index)

    def on_learn_on_batch(self, *, train_batch, **_):
        for name in sorted(train_batch):
            self._see(name, np.asarray(train_batch[name]))

    def _see(self, *values):
        self.seen = hashlib.sha256(self.seen.encode() + encode(list(values))).hexdigest()

    def _kill_oneself(self, worker_index):
        folder = os.environ.get(KILLS)
        if folder is None or worker_index == 0:
            return
        try:
            Path(folder, f"runner-{worker_index}-sample-{self.num_samples}").unlink()
        except FileNotFoundError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


def next_task(train_results, task_settable_env, env_ctx):
    """A curriculum: the number of the iteration."""
    return int(train_results["training_iteration"])


@dataclass(frozen=True)
class Plan:
    """One run.

    Attributes:
        cell: algorithm, env and number of runners.
        settings: what is set besides.
        is_killed: each runner is killed once, before and after the checkpoint.
        is_elsewhere: a new process restores the checkpoint and makes the second half.
        has_tasks: it is trained on an env whose tasks change.
    """

    cell: Cell
    settings: Mapping[str, Any] = field(default_factory=dict)
    is_killed: bool = False
    is_elsewhere: bool = False
    has_tasks: bool = False

    def config(self):
        """The config of the run."""
        made = self.cell.config(**self.settings).callbacks(Witness)
        if self.has_tasks:
            made.environment(TaskCountdownEnv, env_config={}, env_task_fn=next_task)
        return made

    def given(self):
        """What a restore must be given: the code of the config."""
        env = TaskCountdownEnv if self.has_tasks else ENVS[self.cell.env]
        given = {"callbacks_class": Witness}
        if isinstance(env, type):
            given["env"] = env
        if self.has_tasks:
            given["env_task_fn"] = next_task
        return given


_FILTERS = {
    "observation_filter": "MeanStdFilter",
    "normalize_rewards": True,
    "metrics_num_episodes_for_smoothing": 9,
}
_EVALUATION = {"evaluation_interval": 2, "evaluation_duration": 3}
_CURIOSITY = {
    "type": "Curiosity",
    "feature_dim": 4,
    "feature_net_config": {"fcnet_hiddens": [6]},
    "sub_exploration": {"type": "StochasticSampling"},
}
_ENVS = {
    "PPO": "CartPole",
    "DQN": "Acrobot",
    "SAC": "Pendulum",
    "PG": "own np_random",
    "TD3": "Pendulum",
    "DDPG": "own np_random",
}


def plans():
    """All runs by name."""
    made = {}
    for algorithm, env in _ENVS.items():
        local, remote = Cell(algorithm, env, 0), Cell(algorithm, env, 2)
        made[f"{algorithm}, no runners"] = Plan(local)
        made[f"{algorithm}, 2 runners"] = Plan(remote)
        made[f"{algorithm}, 2 runners, killed"] = Plan(remote, is_killed=True)
        made[f"{algorithm}, no runners, new process"] = Plan(local, is_elsewhere=True)
    walk, pole = Cell("PPO", "own np_random", 2), Cell("PPO", "CartPole", 2)
    evaluated = {**_EVALUATION, "evaluation_num_env_runners": 1}
    made |= {
        "filters and evaluation": Plan(walk, {**_FILTERS, **_EVALUATION}),
        "filters and evaluation, killed": Plan(walk, {**_FILTERS, **_EVALUATION}, is_killed=True),
        "evaluation runner": Plan(pole, evaluated),
        "evaluation beside training": Plan(
            pole, {**evaluated, "evaluation_parallel_to_training": True}
        ),
        "curriculum": Plan(pole, has_tasks=True),
        "curriculum, killed": Plan(pole, has_tasks=True, is_killed=True),
        "curriculum, new process": Plan(pole, has_tasks=True, is_elsewhere=True),
        "parameter noise": Plan(pole, {"exploration_config": {"type": "ParameterNoise"}}),
        "curiosity": Plan(Cell("PPO", "CartPole", 0), {"exploration_config": _CURIOSITY}),
        "state of envs": Plan(Cell("PPO", "get_state", 2), is_killed=True),
        "whole episodes": Plan(pole, {"batch_mode": "complete_episodes"}),
        "values as distributions": Plan(
            Cell("DQN", "CartPole", 0), {"num_atoms": 5, "v_min": 0.0, "v_max": 30.0}
        ),
    }
    return made


# ---- one run


def fingerprints_of(plan, folder):
    """Makes a run: half of it, a checkpoint, the other half."""
    found = {}
    with _kills(plan, folder), plan.config().build_algo() as algo:
        _train(algo, found)
        path = Path(algo.save_to_path(folder / "checkpoint"))
        found |= _files(path)
        if not plan.is_elsewhere:
            _train(algo, found)
            found |= _state(algo)
    return found


def second_half(plan, path):
    """Restores a run in this process and makes its second half."""
    found = {}
    with Algorithm.from_checkpoint(path, **plan.given()) as algo:
        _train(algo, found)
        found |= _state(algo)
    return found


def _train(algo, found):
    for _ in range(HALF):
        result = comparable(algo.train())
        found[f"result {algo.training_iteration}"] = digest(result)


def _state(algo):
    state = algo.get_state(not_components="config")
    return {
        f"state {name}/{key}": digest(value)
        for name, part in state.items()
        for key, value in part.items()
    }


def _files(path):
    """Digests of a checkpoint's component files.

    Of `constructors` without the modules of the classes that it names, which may move.
    """
    found = {
        f"file {name}": entry.sha256[:16] for name, entry in read_manifest(path).components.items()
    }
    constructors = str(read_checkpoint(path).components["constructors"])
    found["file constructors"] = digest(re.sub(r"\b(?:[a-z_]+\.)+([A-Z])", r"\1", constructors))
    return found


def digest(value):
    """A short digest of plain data."""
    return hashlib.sha256(encode(value)).hexdigest()[:16]


@contextmanager
def _kills(plan, folder):
    """Arms the kills of a run; all of them must have happened when it is over."""
    armed = Path(os.environ[KILLS])
    files = [
        armed / f"runner-{runner}-sample-{sample}"
        for runner, sample in ((1, 2), (2, 3), (1, 5), (2, 5))
        if plan.is_killed
    ]
    for file in files:
        file.touch()
    try:
        yield
        left = sorted(file.name for file in files if file.exists())
        if left:
            raise AssertionError(f"kills that did not happen: {left}")
    finally:
        for file in files:
            file.unlink(missing_ok=True)


# ---- all runs


def all_fingerprints(names=None):
    """Makes the runs; those that go on elsewhere share one new process."""
    chosen = {name: plan for name, plan in plans().items() if names is None or name in names}
    found = {}
    elsewhere = {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ[KILLS] = folder
        for number, (name, plan) in enumerate(chosen.items()):
            place = Path(folder, str(number))
            found[name] = fingerprints_of(plan, place)
            if plan.is_elsewhere:
                elsewhere[name] = str(place / "checkpoint")
        if elsewhere:
            for name, more in run_main(["second-half", json.dumps(elsewhere)]).items():
                found[name] |= more
    return found


def run_main(arguments, *, project=PROJECT):
    """What this module prints when it runs in a new process, in some tree.

    Runners inherit the environment from their fork server, which must not run yet: so runs with
    kills need a new process.

    Raises:
        RuntimeError: it failed.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tests.fingerprints", *arguments],
        cwd=project, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(project)},
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"{arguments[0]} in {project} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def broken_promises(found):
    """Runs that differ though only kills or processes set them apart."""
    pairs = [(name, name.removesuffix(", killed")) for name in found if name.endswith(", killed")]
    pairs += [
        (name, name.removesuffix(", new process"))
        for name in found
        if name.endswith(", new process")
    ]
    return [
        f"{what} differs from {other}"
        for one, other in pairs
        if other in found
        for what in differences({one: found[one]}, {one: found[other]})
    ]


def differences(one, other):
    """The names of the fingerprints that differ or that only one side has."""
    flat_one, flat_other = _flat(one), _flat(other)
    names = flat_one.keys() | flat_other.keys()
    return sorted(name for name in names if flat_one.get(name) != flat_other.get(name))


def _flat(found):
    return {f"{run}: {name}": value for run, part in found.items() for name, value in part.items()}


def arithmetic():
    """A digest of how this machine computes: the same numbers come out where it is the same."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((64, 48)).astype(np.float32)
    products = [values[:rows] @ values.T for rows in (1, 8, 64)]
    functions = [
        function(np.abs(numbers))
        for numbers in (values, values.astype(np.float64))
        for function in (np.exp, np.tanh, np.log, np.sin, np.log1p, lambda x: x**0.6)
    ]
    sums = [values.sum(axis=0), values.astype(np.float64).sum(), np.sqrt(np.abs(values)).mean()]
    return digest([np.__version__, sys.version_info[:2], *products, *functions, *sums])


# ---- the command


def main(arguments=None):
    """The command; 1 if something differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.fingerprints", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("record", help="write the file of fingerprints")
    compare = commands.add_parser("compare", help="compare with the file, or with a commit")
    compare.add_argument("--base", metavar="REV", help="a commit to run beside this tree")
    show = commands.add_parser("print", help="print the fingerprints of this tree")
    show.add_argument("names", nargs="*", help="of these runs; of all by default")
    commands.add_parser("second-half").add_argument("paths")
    given = parser.parse_args(arguments)
    logging.getLogger("trainer").setLevel(logging.ERROR)  # kills are told, and meant
    if given.command == "second-half":
        paths = json.loads(given.paths)
        found = {name: second_half(plans()[name], Path(path)) for name, path in paths.items()}
        sys.stdout.write(json.dumps(found))
        return 0
    begun = time.monotonic()
    if given.command == "print":
        sys.stdout.write(json.dumps(all_fingerprints(given.names or None)))
        return 0
    found = all_fingerprints()
    broken = broken_promises(found)
    if given.command == "record":
        record = {"arithmetic": arithmetic(), "runs": found}
        if not broken:
            RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
        differing = []
    else:
        differing = differences(found, _at(given.base) if given.base else recorded())
    for line in [*broken, *differing]:
        sys.stdout.write(f"{line}\n")
    total, seconds = len(_flat(found)), time.monotonic() - begun
    sys.stdout.write(
        f"{len(found)} runs, {total} fingerprints, {len(differing)} different, "
        f"{len(broken)} broken promises, {seconds:.0f} s\n"
    )
    return int(bool(broken or differing))


def recorded():
    """The recorded fingerprints.

    Raises:
        RuntimeError: another arithmetic made them.
    """
    record = json.loads(RECORD.read_text())
    if record["arithmetic"] != arithmetic():
        raise RuntimeError(
            f"{RECORD.name} was recorded where numbers come out differently (another processor, "
            "NumPy or Python). Compare with a commit instead: "
            "python -m tests.fingerprints compare --base HEAD~1"
        )
    return record["runs"]


def _at(revision):
    """The fingerprints of a commit."""
    archive = subprocess.run(
        ["git", "archive", "--format=tar", revision], cwd=PROJECT, capture_output=True, check=True
    )
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        return run_main(["print"], project=Path(folder))


if __name__ == "__main__":
    sys.exit(main())

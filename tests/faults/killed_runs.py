"""Runs whose main process is killed again and again, and goes on from the newest checkpoint.

    python -m tests.faults.killed_runs KIND RUNNERS ITERATIONS        a run of the Python API

KIND is an algorithm, or ACTORS for the run of `runs_with_actors`, whose runners, actors and fork
server are killed, too.

Used by `test_killed_runs.py`. The killer watches from outside: which files there are says what a
run is doing, and, whatever it is doing, the newest checkpoint has to be whole.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

from callbacks import (
    BestCheckpoint,
    CSVLogger,
    JSONLinesLogger,
    PeriodicCheckpoint,
    TensorBoardLogger,
)
from checkpoints import CheckpointNotFoundError, latest_checkpoint, verify
from tests.command_line import ENV, command
from tests.faults import runs_with_actors
from tests.faults.runs_with_actors import PIDS_FILE, Reporting, is_about_an_actor, make_actors
from tests.saved_files import files_of
from trainer import Algorithm, DQNConfig, PPOConfig

PROJECT = Path(__file__).resolve().parents[2]
KEEP = 2
LOOK_AGAIN_S = 0.002
SETTINGS = {
    "PPO": {"train_batch_size": 40, "minibatch_size": 20, "num_epochs": 1},
    "DQN": {
        "train_batch_size": 16,
        "num_steps_sampled_before_learning_starts": 20,
        "min_sample_timesteps_per_iteration": 40,
        "replay_buffer_config": {"type": "PrioritizedEpisodeReplayBuffer", "capacity": 60},
    },
}
AN_ACTOR_DIED = 3
"""The exit code of a run that an actor's death has ended: it is to be started again."""

COMMON = {
    "num_envs_per_env_runner": 2,
    "seed": 5,
    "model": {"fcnet_hiddens": [8]},
}


def train_line(kind, *, runners, iterations):
    """The command that begins a run which saves every iteration."""
    settings = {**SETTINGS[kind], **COMMON, "num_env_runners": runners}
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value!r}")]
    return command(
        "train", "--algo", kind, "--env", ENV, *words,
        "--run-dir", "run", "--checkpoint-every", 1, "--keep", KEEP,
        "--stop-iterations", iterations,
    )  # fmt: skip


def resume_line():
    return command("resume", "run", "--checkpoint-every", 1, "--keep", KEEP)


def script_line(kind, *, runners, iterations):
    """The command that begins a run of the Python API, or goes on with it."""
    return [sys.executable, "-m", __name__, kind, str(runners), str(iterations)]


def run_script(kind, runners, iterations, folder):
    """A run of the Python API that begins, or goes on with what it finds."""
    has_actors = kind == "ACTORS"
    checkpoints = folder / "checkpoints"
    callbacks = [
        PeriodicCheckpoint(checkpoints, every=1, keep_last=KEEP, background=has_actors),
        BestCheckpoint(folder / "best", keep=2),
        JSONLinesLogger(folder / "results.jsonl"),
        CSVLogger(folder / "results.csv"),
        TensorBoardLogger(folder / "curves"),
        *([Reporting] if has_actors else []),
    ]
    if has_actors:
        make_actors()
    config = config_of(kind, runners).callbacks(callbacks)
    newest = latest_checkpoint(checkpoints)
    if newest is not None:
        env = {"env": config.env, "env_task_fn": config.env_task_fn} if has_actors else {}
        algo = Algorithm.from_checkpoint(newest, callbacks=callbacks, **env)
    else:
        algo = config.build_algo()
    with algo:
        while algo.training_iteration < iterations:
            algo.train()


def config_of(kind, runners):
    if kind == "ACTORS":
        return runs_with_actors.config(**COMMON, num_env_runners=runners)
    config = {"PPO": PPOConfig, "DQN": DQNConfig}[kind]().environment(ENV)
    return config.update_from_dict({**SETTINGS[kind], **COMMON, "num_env_runners": runners})


class KilledRun:
    """One run, killed at moments that follow from a seed; says what the kills hit.

    Attributes:
        newest: the iteration of the newest checkpoint that was ever seen.
        hits: what the run was doing → how many kills found it doing that.
        num_looks: how often the newest checkpoint was looked for and read completely.
        killed_others: which of its other processes were killed → how many.
    """

    def __init__(self, folder, begin, go_on, *, seed):
        self.newest = 0
        self.hits = Counter()
        self.num_looks = 0
        self.killed_others = Counter()
        self._folder = folder
        self._begin, self._go_on = begin, go_on
        self._checkpoints = folder / "run" / "checkpoints"
        self._rng = np.random.default_rng(seed)

    def live(self):
        """Lets the run live until it is killed; returns its exit code if it ended before."""
        process, before, stale = self._start(), self.newest, self._signs()
        try:
            is_due, kill_others = self._moment(), self._kills_of_others(process.pid)
            while not is_due():
                self.look()
                kill_others()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=LOOK_AGAIN_S)
                    break
            # Sometimes its processes go with it, as when a container is stopped.
            kill = os.killpg if self._rng.random() < 0.25 else os.kill
            if process.poll() is None:
                kill(process.pid, signal.SIGKILL)
        finally:
            process.kill()
            process.wait()
        if process.returncode != -signal.SIGKILL:
            return process.returncode
        self.hits[self._what_was_hit(before, stale)] += 1
        self.look()
        return None

    def finish(self):
        """Lets the run go on to its end."""
        process = self._start()
        try:
            assert process.wait(timeout=60) == 0, self.output()
        finally:
            process.kill()

    def look(self):
        """Some checkpoint is there and whole, and none that was there before is gone."""
        for _ in range(5):  # it may have been removed since, if this process was not running
            found = latest_checkpoint(self._checkpoints)
            if found is None:
                assert self.newest == 0, f"of iteration {self.newest} and later, none is left"
                return
            try:
                iteration = verify(found).training_iteration
            except CheckpointNotFoundError:
                continue
            self.num_looks += 1
            assert iteration >= self.newest
            self.newest = iteration
            return
        raise AssertionError("the newest checkpoint was gone five times")

    def output(self):
        """What the run wrote so far, all its lives together."""
        return (self._folder / "output").read_text()

    def _start(self):
        line = self._begin if self.newest == 0 else self._go_on
        with (self._folder / "output").open("ab") as output:
            return subprocess.Popen(
                line, cwd=self._folder, env={**os.environ, "PYTHONPATH": str(PROJECT)},
                stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def _moment(self):
        """What says when to kill: some time after the start, or after something is seen."""
        kind = self._rng.choice(["start", "result", "saving", "removing"], p=[0.2, 0.3, 0.3, 0.2])
        delay_s = self._rng.uniform(0.0, 0.9 if kind == "start" else 0.03)
        skipped = self.newest + int(self._rng.integers(1, 3))
        seen_at = time.monotonic() if kind == "start" else None

        def is_due():
            nonlocal seen_at
            if seen_at is None and self.newest >= skipped and self._is_seen(str(kind)):
                seen_at = time.monotonic()
            return seen_at is not None and time.monotonic() >= seen_at + delay_s

        return is_due

    def _kills_of_others(self, pid):
        """What kills processes of this life beside the main one, up to two of them.

        Those that the run has named in this life; which, when and how many follows from the seed.
        """
        kinds = ["training runner", "evaluation runner", "actor", "fork server"]
        names = [
            str(self._rng.choice(kinds, p=[0.45, 0.3, 0.15, 0.1]))
            for _ in range(self._rng.integers(0, 3))
        ]
        waits_s = [self._rng.uniform(0.0, 0.4) for _ in names]
        file = self._folder / PIDS_FILE
        file.unlink(missing_ok=True)
        seen_at = None

        def kill():
            nonlocal seen_at
            if not names or not file.exists():
                return
            seen_at = time.monotonic() if seen_at is None else seen_at
            if time.monotonic() < seen_at + waits_s[0]:
                return
            waits_s.pop(0)
            name, seen_at = names.pop(0), None
            found = json.loads(file.read_text())[name]
            if not found:
                return
            chosen = int(self._rng.choice(found))
            with contextlib.suppress(ProcessLookupError):
                # The number may be another process's by now; ours are all in the run's own session.
                if os.getsid(chosen) == pid:
                    os.kill(chosen, signal.SIGKILL)
                    self.killed_others[name] += 1

        return kill

    def _is_seen(self, kind):
        return kind == "result" or kind in self._signs().values()

    def _signs(self):
        """What the folders in the checkpoints say of what the run is doing."""
        signs = {}
        for path in sorted(self._checkpoints.glob("*")):
            try:
                folders = [folder.name for folder in sorted(path.glob("files-*"))]
            except FileNotFoundError:  # removed since it was listed, which is what runs do
                continue
            name = f"{path.name}/{','.join(folders)}"
            if (path / "manifest.json").exists():
                if len(folders) > 1:
                    signs[name] = "replacing"
            elif folders:
                is_new = path.name >= f"{self.newest:06d}"
                signs[name] = "saving" if is_new else "removing"
        return signs

    def _what_was_hit(self, newest_before, stale):
        for name, sign in self._signs().items():
            if name not in stale:
                return sign
        # Sampling and learning: the results are written just before the checkpoint.
        return "starting" if self.newest == newest_before else "between two saves"


def component_bytes(checkpoint):
    """The files of a checkpoint but for the manifest, which has times."""
    files = sorted(files_of(checkpoint).glob("*.state"))
    assert files
    return {file.name: file.read_bytes() for file in files}


def main(words):
    """Makes a run of the Python API in the folder `run`."""
    kind, runners, iterations = words
    try:
        run_script(kind, int(runners), int(iterations), Path("run"))
    except Exception as error:
        if kind != "ACTORS" or not is_about_an_actor(error):
            raise
        print(f"ended because of an actor: {type(error).__name__}: {error}")
        sys.exit(AN_ACTOR_DIED)


if __name__ == "__main__":
    main(sys.argv[1:])

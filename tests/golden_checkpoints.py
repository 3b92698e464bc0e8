"""Files that released versions wrote, kept to show that later versions read them.

    python -m tests.golden_checkpoints make 1.0      before a release, once: files and numbers
    python -m tests.golden_checkpoints record 1.0    numbers alone, where a seed gives others now
    python -m tests.golden_checkpoints check         restores all and goes on; without pytest

A folder per version holds an archive per run of `tests/golden_runs.py`, the recordings, a policy
file, a run of the command line, an experiment, and in `numbers.json` what came of going on. Files
of a released version are never made again. Numbers may be, in a commit that says why.
"""

import argparse
import contextlib
import importlib.util
import io
import json
import math
import os
import re
import sys
import tarfile
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np

from checkpoints.policy import load_policy
from tests import golden_runs
from tests.fingerprints import arithmetic, digest
from trainer import Algorithm, export_policy, tune
from trainer.cli import main as command_line

GOLDEN = Path(__file__).with_name("golden")
NUMBERS = "numbers.json"
OTHERS = ("recordings", "run", "experiment", "policy")
"""What is kept besides checkpoints."""

NUM_ITERATIONS = 3
"""Of every run, before its checkpoint and after it."""

KEYS = (
    "num_env_steps_sampled_lifetime",
    "num_env_steps_trained_lifetime",
    "env_runners/episode_return_mean",
    "evaluation/env_runners/episode_return_mean",
    "env_runners/lately",
    "episodes_seen",
)
"""Of results: what is compared, where it is there."""

OBSERVATIONS = np.array([[0.0, 0.0], [-2.0, 0.5], [3.0, 1.0]], np.float32)
"""What the policy file answers."""


def versions():
    """The versions whose files are kept."""
    return sorted(folder.name for folder in GOLDEN.iterdir() if folder.is_dir())


def names(version):
    """The runs of which a version has a checkpoint."""
    found = {file.name.removesuffix(".tar.xz") for file in (GOLDEN / version).glob("*.tar.xz")}
    return sorted(found - set(OTHERS))


def numbers(version):
    """What came of going on when the numbers were recorded, and where that was."""
    return json.loads((GOLDEN / version / NUMBERS).read_text())


def computed_as_here(recorded, name):
    """Whether this machine computes the bits that were recorded of a run."""
    return recorded["arithmetic"] == arithmetic() and (
        name not in golden_runs.NEEDS_TORCH or recorded["torch"] == torch_version()
    )


def torch_version():
    """Of the Torch that is imported; empty if none is."""
    return str(getattr(sys.modules.get("torch"), "__version__", ""))


# ---- archives


def pack(folder, file):
    """Writes a folder as an archive: the same bytes for the same content."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz", preset=9) as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            entry = tarfile.TarInfo(path.relative_to(folder).as_posix())
            entry.size = path.stat().st_size
            archive.addfile(entry, io.BytesIO(path.read_bytes()))
    file.write_bytes(packed.getvalue())


def unpack(version, name, folder):
    """Unpacks an archive of a version into a new folder of its name, which is returned."""
    place = folder / name
    with tarfile.open(GOLDEN / version / f"{name}.tar.xz") as archive:
        for entry in archive:
            path = place / entry.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.extractfile(entry).read())
    return place


# ---- what is compared


def facts(algo):
    """Where a run stands."""
    return {"iteration": algo.training_iteration, "weights": digest(algo.get_weights())}


def went_on(algo):
    """What some more iterations give: values of results and the weights."""
    found = []
    for _ in range(NUM_ITERATIONS):
        result = algo.train()
        values = {key: repr(result[key]) for key in KEYS if _has(result, key)}
        found.append({**facts(algo), **values})
    return found


def _has(result, key):
    try:
        return result[key] is not None
    except KeyError:
        return False


def restored(version, name, folder, recordings):
    """The algorithm of a golden checkpoint."""
    path = unpack(version, name, folder)
    return Algorithm.from_checkpoint(path, **golden_runs.given(name, recordings))


def climbed(path):
    """The rows of the golden experiment, which goes on for as long again."""
    tuner = tune.Tuner.restore(
        path, golden_runs.Climb, run_config=tune.RunConfig(stop={"training_iteration": 8})
    )
    return [[row["height"] for row in result.rows()] for result in tuner.fit()]


def resumed(path):
    """The weights of the golden run of the command line, after as many iterations again."""
    env = f"{golden_runs.__name__}.Walk"
    words = ["resume", str(path), "--env", env, "--stop-iterations", str(2 * NUM_ITERATIONS)]
    typed(words)
    with Algorithm.from_checkpoint(path, env=golden_runs.Walk) as algo:
        return facts(algo)


def typed(words):
    """Runs a command, whose progress is of no interest."""
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        if command_line([*words, "--lines"]) != 0:
            raise RuntimeError(f"{words} failed: {shown.getvalue()}")


def answers(path):
    """What the golden policy file says of some observations."""
    return load_policy(path / "policy.npz").run({"obs": OBSERVATIONS})["action_dist_inputs"]


# ---- making


@contextlib.contextmanager
def unsaid_where():
    """Files hold no code, which is of one Python, and do not say what kind of machine this is."""
    no_code = mock.patch.object(Algorithm, "_checkpoint_code", return_value=None)
    with no_code, mock.patch("platform.platform", return_value="unsaid"):
        yield


def make(version):
    """Makes all files of a version.

    Raises:
        FileExistsError: it has some.
    """
    target = GOLDEN / version
    if target.exists():
        raise FileExistsError(
            f"{target} exists. Golden files of a released version stay what they are: add those of "
            "another version. Remove the folder first if no release ever had it."
        )
    with tempfile.TemporaryDirectory() as place, unsaid_where():
        folder = Path(place)
        os.environ["XDG_DATA_HOME"] = str(folder / "data")  # a key of no person signs
        golden_runs.record(folder / "recordings")
        for name, config_of in golden_runs.RUNS.items():
            with config_of(folder / "recordings").build_algo() as algo:
                for _ in range(NUM_ITERATIONS):
                    algo.train()
                algo.save_to_path(folder / name)
                if name == "ppo":
                    (folder / "policy").mkdir()
                    export_policy(algo, folder / "policy" / "policy.npz")
        typed([
            "train", "--env", f"{golden_runs.__name__}.Walk", "--seed", "11",
            "--num-env-runners", "0", "--stop-iterations", str(NUM_ITERATIONS),
            *("--set", "train_batch_size=23", "--set", "minibatch_size=8"),
            *("--set", "num_epochs=1", "--set", "model_config={'fcnet_hiddens': [4]}"),
            "--run-dir", str(folder / "run"),
        ])  # fmt: skip
        golden_runs.experiment(folder).fit()
        target.mkdir(parents=True)
        for name in (*golden_runs.RUNS, *OTHERS):
            pack(folder / name, target / f"{name}.tar.xz")
    record(version)


def record(version):
    """Writes down what comes of going on here with the files of a version."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        recordings = unpack(version, "recordings", folder)
        runs = {}
        for name in names(version):
            with restored(version, name, folder, recordings) as algo:
                runs[name] = {"restored": facts(algo), "went on": went_on(algo)}
        found = {
            "arithmetic": arithmetic(),
            "torch": torch_version(),
            "runs": runs,
            "run": resumed(unpack(version, "run", folder)),
            "experiment": climbed(unpack(version, "experiment", folder)),
            "policy": answers(unpack(version, "policy", folder)).tolist(),
        }
    text = json.dumps(found, indent=1, sort_keys=True)
    (GOLDEN / version / NUMBERS).write_text(text + "\n")


def check(version):
    """Restores all checkpoints and the experiment of a version, goes on, and counts differences.

    Returns:
        How many were restored, and what differs.
    """
    recorded, wrong, done = numbers(version), [], 0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        recordings = unpack(version, "recordings", folder)
        for name in names(version):
            if name in golden_runs.NEEDS_TORCH and importlib.util.find_spec("torch") is None:
                continue
            expected = recorded["runs"][name]
            with restored(version, name, folder, recordings) as algo:
                stands, went = facts(algo), went_on(algo)
            is_exact = computed_as_here(recorded, name)
            is_right = stands == expected["restored"] and (
                went == expected["went on"] if is_exact else len(went) == NUM_ITERATIONS
            )
            wrong += [] if is_right else [name]
            done += 1
        if climbed(unpack(version, "experiment", folder)) != recorded["experiment"]:
            wrong.append("experiment")
    return done, wrong


def main(arguments=None):
    """The command; 1 if something differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden_checkpoints")
    parser.add_argument("what", choices=("make", "record", "check"))
    parser.add_argument("version", nargs="?", help="a folder in tests/golden, such as 1.0")
    words = parser.parse_args(arguments)
    if words.what == "check":
        found = {version: check(version) for version in versions()}
        for version, (done, wrong) in found.items():
            sys.stdout.write(f"{version}: {done} checkpoints, {len(wrong)} wrong {wrong}\n")
        return int(any(wrong for _, wrong in found.values()))
    if not re.fullmatch(r"\d+\.\d+", words.version or ""):
        parser.error(f"{words.version!r}: a version is written as 1.0")
    (make if words.what == "make" else record)(words.version)
    size = sum(file.stat().st_size for file in (GOLDEN / words.version).iterdir())
    sys.stdout.write(f"{GOLDEN / words.version}: {math.ceil(size / 1000)} kB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

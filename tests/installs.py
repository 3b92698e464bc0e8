"""Installs what is published in clean environments, works with it there, and shows a table.

    python -m tests.installs dist                # every Python found, with everything below
    python -m tests.installs dist 3.12 3.13      # these

`dist` is what `make dist` made. In each environment: `pip check`, an iteration, a save, a restore
with the same weights, the command line, golden checkpoints, and folders of users in which modules
are called `callbacks` and `checkpoints`. It needs a registry.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.lowest_versions import lowest_versions

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
OTHERS = ("torch", "ray", "tensorflow", "keras", "jax")
PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input")

SMOKE = """
import sys, warnings
warnings.simplefilter("error")
from trainer import Algorithm, PPOConfig
from trainer.nn import kernels
config = PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=1).debugging(seed=1)
config.training(train_batch_size=64, minibatch_size=32, num_epochs=1)
if __name__ == "__main__":
    with config.build_algo() as algo:
        assert algo.train()["num_env_steps_sampled_lifetime"] >= 64
        algo.save_to_path("saved")
        weights = algo.get_weights()["default_policy"]
    with Algorithm.from_checkpoint("saved") as algo:
        again = algo.get_weights()["default_policy"]
        assert all((weights[name] == again[name]).all() for name in weights)
        assert algo.train()["training_iteration"] == 2
    loaded = sorted({name.split(".")[0] for name in sys.modules} & set(sys.argv[1].split(",")))
    assert not loaded, f"{loaded} were imported unasked"
    print("kernels:", kernels.why_not().split(":")[0] or "used")
"""


@dataclass(frozen=True)
class Case:
    """One environment.

    Attributes:
        name: what is installed, for the table.
        file: the ending of what is installed of ours.
        more: what is installed besides.
        variables: of the environment while it is installed.
        has_stubs: packages with the names of others are there, which raise when imported.
    """

    name: str
    file: str
    more: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    has_stubs: bool = False


def cases(python):
    """What is tried with a Python."""
    found = [
        Case("wheel with kernels, newest", "-linux_*.whl" if sys.platform == "linux" else "*.whl"),
        Case("pure wheel, newest, beside stubs", "-any.whl", has_stubs=True),
        Case("sdist, compiler", ".tar.gz"),
        Case("sdist, no compiler", ".tar.gz", variables=(("CC", "false"),)),
        Case("pure wheel, lowest", "-any.whl", more=tuple(lowest_versions())),
    ]
    if python == "3.11":  # large: of one Python
        found.append(Case("wheel with kernels, beside Torch", found[0].file, more=("torch",)))
        found.append(Case("wheel with kernels, beside Ray", found[0].file, more=("ray[tune]",)))
    return found


class Failure(Exception):
    """A step did not end as it should."""


def ended(*words, folder, fails=False, **more):
    """What a command prints.

    Raises:
        Failure: it ended with another code than expected; the last lines that it printed.
    """
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"} | more
    done = subprocess.run(
        [str(word) for word in words], cwd=folder, env=environment, capture_output=True, text=True,
        timeout=1800, check=False,
    )  # fmt: skip
    if (done.returncode != 0) is not fails:
        raise Failure(" / ".join((done.stdout + done.stderr).strip().splitlines()[-4:]))
    return done.stdout + done.stderr


def tried(python, case, dist, folder):
    """Makes an environment and works in it; returns what is worth telling.

    Raises:
        Failure: says what went wrong.
    """
    ended(python, "-m", "venv", "clean", folder=folder)
    inside = folder / "clean" / "bin" / "python"
    (file,) = dist.glob(f"*{case.file}")
    if case.name.endswith("lowest"):
        missing = _without_wheels(inside, case.more, folder)
        if missing:
            return f"not tried: no wheels of {missing} for this Python"
    ended(inside, *PIP, "install", file, *case.more, folder=folder, **dict(case.variables))
    if "No broken requirements" not in ended(inside, "-m", "pip", "check", folder=folder):
        raise Failure("pip check complains")
    golden = folder / "golden"  # beside what is installed: only the tests, not the packages
    shutil.copytree(ROOT / "tests", golden / "tests", ignore=shutil.ignore_patterns("*.pyc"))
    shown = ended(inside, "-m", "tests.golden_checkpoints", "check", folder=golden)
    restored = ", ".join(re.findall(r"^[\d.]+: \d+ checkpoints", shown, re.M))
    if case.has_stubs:
        _make_stubs(inside, folder)
    work = folder / "work"
    work.mkdir()
    (work / "smoke.py").write_text(SMOKE)
    told = ended(inside, "smoke.py", ",".join(OTHERS), folder=work).strip().splitlines()[-1]
    _type_commands(inside, work)
    _meet_users_names(inside, folder)
    numpy = ended(inside, "-c", "import numpy; print(numpy.__version__)", folder=work).strip()
    return f"NumPy {numpy}, {told}, golden {restored}"


def _without_wheels(python, requirements, folder):
    """Those lowest versions that came before this Python, as text."""
    missing = []
    for requirement in requirements:
        try:
            ended(
                python, *PIP, "download", "--no-deps", "--only-binary", ":all:", "--dest", "wheels",
                requirement, folder=folder,
            )  # fmt: skip
        except Failure:
            missing.append(requirement)
    return ", ".join(missing)


def _make_stubs(python, folder):
    where = ended(
        python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=folder
    )
    for name in OTHERS:
        stub = Path(where.strip()) / name
        stub.mkdir()
        (stub / "__init__.py").write_text("raise RuntimeError('imported unasked')\n")


def _type_commands(python, work):
    command = python.with_name("local-trainer")
    small = ("--set", "train_batch_size=64", "--set", "minibatch_size=32", "--recipe", "none")
    train = ("train", "--env", "CartPole-v1", *small, "--run-dir", "run", "--stop-iterations", "1")
    ended(command, *train, folder=work)
    ended(command, "resume", "run", "--stop-iterations", "2", folder=work)
    ended(command, "verify", "run", folder=work)
    ended(command, "doctor", folder=work)


def _meet_users_names(python, folder):
    """Users' modules are told in one line; folders that are no packages are in nobody's way.

    Raises:
        Failure: they are not.
    """
    for name in ("callbacks.py", "checkpoints/__init__.py"):
        place = folder / name.replace("/", "-")
        (place / name).parent.mkdir(parents=True)
        (place / name).touch()
        for words in (("-c", "import trainer"), ("-m", "trainer.cli", "doctor")):
            last = ended(python, *words, folder=place, fails=True).strip().splitlines()[-1]
            if not re.search(rf"needs its own package.*{name}.*Rename that file", last):
                raise Failure(f"beside {name}: {last}")
        ended(python.with_name("local-trainer"), "--help", folder=place)
    place = folder / "data"
    (place / "checkpoints").mkdir(parents=True)
    ended(python, "-W", "error", "-c", "import trainer", folder=place)


def main(arguments=None):
    """The command; 1 if something failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.installs")
    parser.add_argument("dist", type=Path)
    parser.add_argument("pythons", nargs="*", default=PYTHONS)
    words = parser.parse_args(arguments)
    rows = []
    for version in words.pythons:
        python = shutil.which(f"python{version}")
        if (
            python is None
            or subprocess.run([python, "-V"], capture_output=True, check=False).returncode
        ):
            rows.append((version, "", "not found", 0.0))
            continue
        for case in cases(version):
            begun = time.monotonic()
            with tempfile.TemporaryDirectory() as folder:
                try:
                    outcome = tried(python, case, words.dist.absolute(), Path(folder))
                except Failure as failure:
                    outcome = f"FAILED: {failure}"
            rows.append((version, case.name, outcome, time.monotonic() - begun))
            sys.stderr.write(f"{version}, {case.name}: {outcome}\n")
    sys.stdout.write("| Python | installed | outcome | seconds |\n|---|---|---|---|\n")
    for version, name, outcome, seconds in rows:
        sys.stdout.write(f"| {version} | {name} | {outcome} | {seconds:.0f} |\n")
    failures = sum(outcome.startswith("FAILED") for _, _, outcome, _ in rows)
    tries = sum(not outcome.startswith("not ") for _, _, outcome, _ in rows)
    sys.stdout.write(f"\n{tries} tries, {failures} failures\n")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())

"""What is published is built, twice the same, installed in clean environments, and trains."""

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.process]

ROOT = Path(__file__).parents[2]
SCRIPT = """
import trainer, callbacks, checkpoints
from trainer import PPOConfig
config = PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=1)
config.training(train_batch_size=64, minibatch_size=32, num_epochs=1)
with config.build_algo() as algo:
    print(algo.train()["num_env_steps_sampled_lifetime"], trainer.__file__)
"""
WHY_NOT = "import trainer; from trainer.nn import kernels; print(kernels.why_not())"


def ended(*words, folder, **more):
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"} | more
    done = subprocess.run(
        [str(word) for word in words], cwd=folder, env=environment, capture_output=True, text=True,
        timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check")


def built(folder, **environment):
    """A wheel of this checkout."""
    source = folder / "source"  # so that nothing is built in the checkout
    source.mkdir()
    names = (
        "pyproject.toml",
        "setup.cfg",
        "setup.py",
        "README.md",
        "LICENSE",
        "checkpoints",
        "callbacks",
        "trainer",
        "trainer_toolkit",
    )
    for name in names:
        ended("cp", "-r", ROOT / name, source / name, folder=folder)
    for compiled in source.rglob("*.shared"):
        compiled.unlink()
    building = (sys.executable, *PIP, "wheel", "--no-deps", "--wheel-dir", "dist", source)
    ended(*building, folder=folder, **environment)
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


def installed(wheel, folder):
    """The Python of a clean environment with the wheel in it."""
    ended(sys.executable, "-m", "venv", "clean", folder=folder)
    python = folder / "clean" / "bin" / "python"
    ended(python, *PIP, "install", wheel, folder=folder)
    return python


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """The sdist and the two wheels, built twice: in other folders, zones and modes of files."""
    pytest.importorskip("build")
    builds = []
    for place, mask, zone in (("a", 0o022, "UTC"), ("a/longer/path", 0o077, "Asia/Tokyo")):
        temporary = tmp_path_factory.mktemp("publish") / place
        temporary.mkdir(parents=True)
        done = subprocess.run(
            [sys.executable, "-m", "tests.distributions", temporary / "dist"],
            cwd=ROOT, umask=mask, capture_output=True, text=True, timeout=900, check=False,
            env={**os.environ, "TMPDIR": str(temporary), "TZ": zone},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        builds.append({file.name: file for file in (temporary / "dist").iterdir()})
    return builds


def test_two_builds_give_the_same_bytes(published):
    one, other = (
        {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in built.items()}
        for built in published
    )
    assert len(one) == 3
    assert one == other


def test_a_wheel_is_named_by_what_is_in_it(published):
    wheels = [file for name, file in published[0].items() if name.endswith(".whl")]
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            kernels = [name for name in archive.namelist() if name.endswith("kernels.shared")]
            texts = [archive.read(name) for name in archive.namelist()]
        assert "-py3-none-" in wheel.name
        assert len(kernels) == int("none-any" not in wheel.name)
        assert not any(str(wheel.parent.parent).encode() in text for text in texts)
    assert sum("none-any" in wheel.name for wheel in wheels) == 1


def test_the_tests_run_from_the_sdist(published, tmp_path):
    (sdist,) = (file for name, file in published[0].items() if name.endswith(".tar.gz"))
    shutil.unpack_archive(sdist, tmp_path)
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    files = ("unit/test_packaging.py", "unit/test_seeding.py", "architecture/test_public_api.py")
    ended(
        sys.executable, "-m", "pytest", "-p", "no:cacheprovider",
        *(f"tests/{file}" for file in files),
        "tests/integration/test_golden_checkpoints.py", "-k", "not ppo-torch",
        folder=folder, PYTHONPATH=str(folder),
    )  # fmt: skip


def test_without_a_compiler_the_wheel_is_built_and_trains(tmp_path):
    wheel = built(tmp_path, CC="false")
    assert wheel.name.endswith("-py3-none-any.whl")
    python = installed(wheel, tmp_path)
    assert "not compiled" in ended(python, "-c", WHY_NOT, folder=tmp_path)
    assert int(ended(python, "-W", "error", "-c", SCRIPT, folder=tmp_path).split()[0]) >= 64


def test_the_wheel_is_built_installed_elsewhere_and_trains(tmp_path):
    wheel = built(tmp_path)
    with zipfile.ZipFile(wheel) as archive:
        files = archive.namelist()
    assert {f"{name}/py.typed" for name in ("callbacks", "checkpoints", "trainer")} <= set(files)
    tops = {name.split("/")[0] for name in files}
    assert {name for name in tops if not name.endswith(".dist-info")} == {
        "callbacks", "checkpoints", "trainer", "trainer_toolkit"
    }  # fmt: skip
    python = installed(wheel, tmp_path)
    if shutil.which("cc"):
        assert ended(python, "-c", WHY_NOT, folder=tmp_path).strip() == ""
    steps, place = ended(python, "-W", "error", "-c", SCRIPT, folder=tmp_path).split()
    assert int(steps) >= 64
    assert Path(place).is_relative_to(tmp_path / "clean")
    done = ended(
        tmp_path / "clean" / "bin" / "local-trainer", "train", "--env", "CartPole-v1",
        "--stop-iterations", 1, "--set", "train_batch_size=64", "--set", "minibatch_size=32",
        folder=tmp_path,
    )  # fmt: skip
    assert "What to type next" in done

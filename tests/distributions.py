"""Builds what is published: the sdist, a wheel with kernels for this platform, and one without.

    python -m tests.distributions dist       # what git has, also if it is not committed

The same sources give the same bytes, wherever and whenever this runs: files come from a copy with
one mode and one time, that of the last commit, and the wheels are built from the sdist. It needs
`build`, a C compiler, and a registry for setuptools.
"""

import argparse
import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def build_all(target, *, root=ROOT):
    """Builds the three files into a folder and returns their paths, the sdist first."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        source = copied(root, Path(place) / "source")
        built = Path(place) / "built"
        when = commit_time(root)
        _build(source, built, "--sdist", when=when)
        (sdist,) = built.glob("*.tar.gz")
        made = [target / sdist.name]
        made[0].write_bytes(normalised(sdist.read_bytes(), when))
        for kernels in ("1", "0"):
            wheels = Path(place) / f"wheels-{kernels}"
            unpacked = Path(place) / f"sdist-{kernels}"
            shutil.unpack_archive(made[0], unpacked)
            (folder,) = unpacked.iterdir()
            _build(folder, wheels, "--wheel", when=when, LOCAL_TRAINER_KERNELS=kernels)
            (wheel,) = wheels.glob("*.whl")
            made.append(Path(shutil.copy(wheel, target / wheel.name)))
    return made


def _build(source, target, kind, **environment):
    when = environment.pop("when")
    done = subprocess.run(
        [sys.executable, "-m", "build", kind, "--outdir", str(target), str(source)],
        env={**os.environ, "SOURCE_DATE_EPOCH": str(when), "PYTHONHASHSEED": "0", **environment},
        capture_output=True, text=True, check=False,
        umask=0o022,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"build {kind} failed:\n{done.stdout}\n{done.stderr}")


def copied(root, target):
    """A copy of all files that git knows or that it does not ignore."""
    listed = _git(root, "ls-files", "--cached", "--others", "--exclude-standard", "-z")
    for name in filter(None, listed.split("\0")):
        file, path = root / name, target / name
        if file.is_file():  # not: deleted and not yet committed
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, path)
            path.chmod(0o644)
    return target


def commit_time(root):
    """Of the last commit, in seconds; the time that all files get."""
    return int(_git(root, "log", "-1", "--format=%ct"))


def _git(root, *words):
    return subprocess.run(
        ["git", *words], cwd=root, capture_output=True, text=True, check=True
    ).stdout


def normalised(sdist, when):
    """The bytes of an sdist whose entries have one owner, one time, and an order."""
    plain = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(sdist)) as old,
        tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for entry in sorted(old.getmembers(), key=lambda one: one.name):
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mtime = when
            entry.mode = 0o755 if entry.isdir() else 0o644
            entry.pax_headers = {}
            new.addfile(entry, old.extractfile(entry) if entry.isfile() else None)
    return gzip.compress(plain.getvalue(), mtime=when)


def main(arguments=None):
    """The command: builds, and says what came of it."""
    parser = argparse.ArgumentParser(prog="python -m tests.distributions")
    parser.add_argument("target", type=Path)
    for file in build_all(parser.parse_args(arguments).target):
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        sys.stdout.write(f"{digest}  {file} ({file.stat().st_size / 1000:,.0f} kB)\n")


if __name__ == "__main__":
    main()

"""The report as people see it: opened in a headless browser, text read, picture measured."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from trainer.reports import write_report

pytestmark = pytest.mark.process

VARIABLE = "LOCAL_TRAINER_BROWSER"
BROWSERS = (
    *("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"),
    *("microsoft-edge", "chrome-headless-shell"),
)


@pytest.fixture(scope="module")
def browser() -> str:
    """A browser of Chromium's kind: the one that the variable names, or one on the PATH."""
    named = os.environ.get(VARIABLE)
    found = next((path for name in [named or "", *BROWSERS] if (path := shutil.which(name))), None)
    if named and (found is None or found != shutil.which(named)):
        pytest.fail(f"{VARIABLE}={named!r} names no program")
    if found is None:
        pytest.skip(
            f"no browser is installed; looked for {', '.join(BROWSERS)}. Install one "
            f"(`apt-get install chromium`), or name one in {VARIABLE}"
        )
    return found


def write_runs(folder: Path) -> list[Path]:
    """Five seeds of two algorithms, as `train` writes them."""
    paths = []
    for algorithm, slope in (("PPO", 20.0), ("DQN", 12.0)):
        for seed in range(5):
            path = folder / f"{algorithm}-{seed}"
            path.mkdir(parents=True)
            rows = [
                {
                    "training_iteration": i,
                    "num_env_steps_sampled_lifetime": 1000 * i,
                    "time_total_s": 0.5 * i,
                    "env_runners": {"episode_return_mean": slope * i + seed},
                }
                for i in range(1, 21)
            ]
            (path / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
            paths.append(path)
    return paths


def shown(browser: str, *words: str, folder: Path) -> str:
    """What the browser prints; it reaches no network and no profile of the user."""
    done = subprocess.run(
        [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={folder / 'profile'}",
            *words,
        ],
        cwd=folder, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
def test_a_report_is_rendered_with_text_and_curves(browser: str, tmp_path: Path) -> None:
    for package in ("matplotlib", "jinja2"):
        pytest.importorskip(package)
    labels = ["PPO"] * 5 + ["DQN"] * 5
    page = tmp_path / "report.html"
    write_report(write_runs(tmp_path / "runs"), page, labels=labels, title="Two algorithms")
    address = page.as_uri()
    text = re.sub(
        r"<style.*?</style>|<[^>]+>",
        " ",
        shown(browser, "--dump-dom", address, folder=tmp_path),
        flags=re.DOTALL,
    )
    for expected in ("Two algorithms", "PPO", "DQN", "PPO-4", "402.0", "env steps"):
        assert expected in text, expected
    for width in (800, 1400):
        shown(
            browser,
            f"--window-size={width},1600",
            f"--screenshot={tmp_path}/{width}.png",
            address,
            folder=tmp_path,
        )
        picture = (tmp_path / f"{width}.png").read_bytes()
        assert struct.unpack(">II", picture[16:24]) == (width, 1600)
        assert len(picture) > 20_000, "not an empty page"

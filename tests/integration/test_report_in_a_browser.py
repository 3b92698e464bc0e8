"""The report as people see it: opened in a headless browser, text read, pictures looked at."""

import json
import struct

import numpy as np
import pytest

from tests.headless_browser import BROWSERS, VARIABLE, find_browser, open_browser
from trainer.reports import write_report

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def program():
    found = find_browser()
    if found is None:
        pytest.skip(
            f"no browser is installed; looked for {', '.join(BROWSERS)}. Install one, or name one "
            f"in {VARIABLE}"
        )
    return found


def write_runs(folder):
    """Five seeds of two algorithms, as `train` writes them; noisy, and crossing each other."""
    paths = []
    rng = np.random.default_rng(0)
    for algorithm, reached, slowness in (("PPO", 450.0, 12.0), ("DQN", 320.0, 5.0)):
        for seed in range(5):
            path = folder / f"{algorithm}-{seed}"
            path.mkdir(parents=True)
            means = [
                20 + (reached - 8 * seed) * (1 - np.exp(-i / slowness)) + rng.normal(scale=14)
                for i in range(1, 41)
            ]
            rows = [
                {
                    "training_iteration": i,
                    "num_env_steps_sampled_lifetime": 2000 * i,
                    "time_total_s": (0.5 + 0.1 * seed) * i,
                    "env_runners": {"episode_return_mean": mean},
                    "evaluation": {"env_runners": {"episode_return_mean": mean + 30}},
                    "learners": {"default_policy": {"total_loss": 50 / i, "entropy": 0.69 / i}},
                }
                for i, mean in enumerate(means, 1)
            ]
            (path / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
            paths.append(path)
    return paths


OVERLAPS = """
[...document.querySelectorAll('svg')].flatMap(svg => {
    const texts = [...svg.querySelectorAll('g[id*="text_"]')]
        .map(text => text.getBoundingClientRect()).filter(box => box.width > 0);
    return texts.flatMap((a, i) => texts.slice(i + 1).filter(b =>
        a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1
    ).map(b => [a.left, a.top, b.left, b.top]));
})"""
CUT = """
[...document.querySelectorAll('svg')].flatMap(svg => {
    const frame = svg.getBoundingClientRect();
    return [...svg.querySelectorAll('g[id*="text_"]')].map(text => text.getBoundingClientRect())
        .filter(box => box.width > 0 && (box.left < frame.left - 1 || box.right > frame.right + 1
            || box.top < frame.top - 1 || box.bottom > frame.bottom + 1)).map(box => box.left);
})"""


@pytest.mark.slow
def test_a_report_is_rendered_with_text_and_curves_that_do_not_overlap(program, tmp_path):
    for package in ("matplotlib", "jinja2"):
        pytest.importorskip(package)
    labels = ["PPO"] * 5 + ["DQN"] * 5
    page = tmp_path / "report.html"
    write_report(write_runs(tmp_path / "runs"), page, labels=labels, title="Two algorithms")
    with open_browser(program, tmp_path) as browser:
        for width in (800, 1400):
            browser.open(page.as_uri(), width=width)
            text = browser.evaluate("document.body.innerText")
            for expected in ("Two algorithms", "PPO", "DQN-4", "Runs", "How to make these runs"):
                assert expected in text, expected
            assert browser.evaluate("document.documentElement.scrollWidth") <= width
            assert browser.evaluate("document.querySelectorAll('svg').length") >= 3
            assert browser.evaluate("document.querySelectorAll('svg g[id*=text_]').length") > 20
            assert browser.evaluate(OVERLAPS) == []
            assert browser.evaluate(CUT) == []
            picture = browser.picture(tmp_path / f"{width}.png")
            shown_width, height = struct.unpack(">II", picture[16:24])
            assert shown_width == width
            assert height >= 1600
            assert len(picture) > 50_000, "not an empty page"

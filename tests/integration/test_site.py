"""The documentation as a site: every public name has a page, every page is found, links lead on."""

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from trainer import PPOConfig

ROOT = Path(__file__).parents[2]


def script(name):
    """A script of docs/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site():
    return script("site_pages")


def test_every_public_name_has_its_place_on_a_page(site):
    for package in site.PACKAGES:
        page = site.reference(package)
        names = site.public_names(package)
        assert len(names) > 2, package
        assert re.findall(r"^## (\w+)$", page, flags=re.MULTILINE) == names
    assert "\n::: trainer.algorithms.ppo.ppo.PPO\n" in site.reference("trainer")
    assert "See [callbacks](callbacks.md#rllibcallback)." in site.reference("trainer")


def test_the_navigation_names_pages_that_are_there_and_no_page_is_left_out(site):
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    there = site.written() | set(site.pages())
    assert len(site.listed(text)) > 30
    assert {*site.listed(text), *site.unlisted(text)} == there
    assert "index.md" in site.unlisted(text.replace("      - index.md\n", ""))


def test_the_contents_list_every_page_once(site):
    contents = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| \[[^]]+\]\(([^)]+)\)", contents, re.MULTILINE)) == sorted(
        site.written()
    )


def test_links_on_made_pages_lead_to_pages(site):
    known = site.written() | set(site.pages())
    for name, text in site.pages().items():
        prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
        for target in re.findall(r"\]\(([^)\s#]+\.md)[^)]*\)", prose):
            if not re.match(r"[a-z]+:", target):
                assert (Path(name).parent / target).as_posix() in known, f"{name}: {target}"


def test_links_to_what_is_not_on_the_site_become_text(site):
    text = (
        "[a](../README.md#more) [b](../tests/conftest.py) [c](envs.md) [d](https://x.org) "
        "[e](../examples/memory.py)\n```\n[f](../tests/x.py)\n```"
    )
    assert site.linked(text, ROOT / "docs" / "metrics.md") == (
        "[a](index.md#more) b [c](envs.md) [d](https://x.org) [e](examples.md#memorypy)\n"
        "```\n[f](../tests/x.py)\n```\n"
    )


@pytest.mark.slow
@pytest.mark.process
def test_the_site_is_built_without_a_warning(tmp_path):
    for package in ("mkdocs", "material", "mkdocstrings"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: pip install '.[docs]'")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "WARNING -" not in done.stderr
    assert (tmp_path / "site" / "reference" / "trainer.html").stat().st_size > 100_000
    shutil.rmtree(tmp_path / "site")


def test_an_episode_of_the_gallery_is_a_moving_picture(tmp_path):
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("pygame")
    run = tmp_path / "run"
    with PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=0).build_algo() as algo:
        algo.save_to_path(run)
    gallery = script("make_gallery")
    episode_return = gallery.record(run, "CartPole-v1", tmp_path / "episode.webp")
    with image.open(tmp_path / "episode.webp") as picture:
        assert 1 < picture.n_frames <= episode_return  # frames that are equal become one

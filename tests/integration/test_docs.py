"""The documentation tells the truth: examples run, links lead somewhere, tables are up to date."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from callbacks import EVENTS
from trainer import PPOConfig
from trainer.metrics.rllib_keys import OLD_KEYS, OLD_PATHS

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("trainer/**/*.md"))
)
_FENCE = re.compile(r"^\s*```(.*)$")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def script_of(page: Path) -> str:
    """The python blocks of a page as one script whose line numbers are those of the page."""
    lines, language = [], None
    for line in page.read_text(encoding="utf-8").splitlines():
        fence = _FENCE.match(line)
        if fence:
            language = fence.group(1).strip() if language is None else None
            lines.append("")
        else:
            lines.append(line if language == "python" else "")
    return "\n".join(lines).rstrip() + "\n"


def prose_of(page: Path) -> Iterator[str]:
    """The lines of a page that are not inside a block of code."""
    is_code = False
    for line in page.read_text(encoding="utf-8").splitlines():
        if _FENCE.match(line):
            is_code = not is_code
        elif not is_code:
            yield line


def anchor_of(heading: str) -> str:
    """What a heading is called in links, as GitHub makes it."""
    text = heading.lstrip("#").strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", [page for page in PAGES if script_of(page).strip()], ids=name_of)
def test_the_examples_of_a_page_run(page: Path, tmp_path: Path) -> None:
    script = tmp_path / "page.py"
    script.write_text(script_of(page), encoding="utf-8")
    (tmp_path / "folder").mkdir()
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path / "folder",
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{name_of(page)} (line numbers as in the page):\n{done.stderr}"


def test_every_documentation_page_has_examples_or_is_known_to_have_none() -> None:
    without = {name_of(page) for page in PAGES if not script_of(page).strip()}
    assert without <= {
        "CHANGELOG.md",
        "docs/architecture.md",
        "docs/why.md",
        "trainer/algorithms/ppo/README.md",
    }


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    broken = []
    for target in _LINK.findall("\n".join(prose_of(page))):
        if re.match(r"[a-z]+:", target):
            continue  # the world outside is not tested
        file, _, anchor = target.partition("#")
        linked = (page.parent / file).resolve() if file else page
        if not linked.exists():
            broken.append(target)
        elif anchor and linked.suffix == ".md":
            headings = [line for line in prose_of(linked) if line.startswith("#")]
            if anchor not in map(anchor_of, headings):
                broken.append(target)
    assert not broken


def test_the_page_of_settings_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "make_settings.py"), "--check"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def rows_of(page: str) -> Iterator[list[str]]:
    """The cells of all table rows of a page."""
    for line in prose_of(ROOT / "docs" / page):
        if line.startswith("| `"):
            yield [cell.strip() for cell in line.strip("| ").split(" | ")]


def test_the_table_of_events_is_that_of_the_code() -> None:
    rows = {cells[0].strip("`"): cells[1] for cells in rows_of("callbacks.md")}
    documented = {name: tuple(re.findall(r"`(\w+)`", cell)) for name, cell in rows.items()}
    events = {name: arguments for name, arguments in documented.items() if name.startswith("on_")}
    assert events == {name: event.arguments for name, event in EVENTS.items()}


def test_the_table_of_old_keys_is_that_of_the_code() -> None:
    rows = {cells[0].strip("`"): cells[1].strip("`") for cells in rows_of("metrics.md")}
    documented = {key: rows[key] for key in OLD_PATHS if key in rows}
    assert documented == {key: paths[0] for key, paths in OLD_PATHS.items()}
    assert {"info", "counters"} == OLD_KEYS - set(OLD_PATHS) <= set(rows)


def documented_patterns() -> set[str]:
    return {
        pattern
        for cells in rows_of("metrics.md")
        if cells[0].strip("`") not in OLD_KEYS - {"num_env_steps_sampled_lifetime"}
        for pattern in re.findall(r"`([\w/*]+)`", cells[0])
    }


def is_below(path: str, pattern: str) -> bool:
    own, parts = pattern.split("/"), path.split("/")
    return len(own) <= len(parts) and all(
        mine in ("*", part) for mine, part in zip(own, parts, strict=False)
    )


def test_the_tables_of_keys_hold_what_a_result_holds() -> None:
    config = PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=0)
    config.training(train_batch_size=200, minibatch_size=50, num_epochs=1)
    config.training(model={"fcnet_hiddens": [4]}).debugging(seed=0)
    config.evaluation(evaluation_interval=1, evaluation_duration=1)
    config.callbacks(on_episode_end=_store_a_metric)
    with config.build_algo() as algo:
        result: Mapping[str, Any] = algo.train().flat()
    patterns = {pattern for pattern in documented_patterns() if not pattern.startswith("on_")}
    not_documented = [key for key in result if not any(is_below(key, p) for p in patterns)]
    not_there = [p for p in patterns if "/" in p and not any(is_below(key, p) for key in result)]
    assert not_documented == []
    assert not_there == []


def _store_a_metric(episode: Any) -> None:
    episode.custom_metrics["mine"] = 1.0

"""The documentation tells the truth: examples run, links lead somewhere, tables are up to date."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from callbacks import EVENTS
from trainer.cli.main import make_parser

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
    if "import torch" in script_of(page):
        pytest.importorskip("torch")
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
        "trainer/algorithms/dqn/README.md",
        "trainer/algorithms/pg/README.md",
        "trainer/algorithms/ppo/README.md",
        "trainer/algorithms/sac/README.md",
    }


def test_the_commands_on_the_page_of_the_command_line_are_understood() -> None:
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```sh\n(.*?)```", page, flags=re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    assert len(lines) >= 7
    for line in lines:
        program, *words = shlex.split(line)
        assert program == "local-trainer"
        make_parser().parse_args(words)


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


@pytest.mark.parametrize(
    "script", ["make_settings.py", "make_callback_events.py", "make_fault_matrix.py"]
)
def test_the_pages_that_are_made_are_up_to_date(script: str) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / script), "--check"],
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
    rows = {cells[0].strip("`"): cells[1] for cells in rows_of("callback-events.md")}
    documented = {name: tuple(re.findall(r"`(\w+)`", cell)) for name, cell in rows.items()}
    events = {name: arguments for name, arguments in documented.items() if name.startswith("on_")}
    assert events == {name: event.arguments for name, event in EVENTS.items()}

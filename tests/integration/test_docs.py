"""The documentation tells the truth: examples run, links lead somewhere, tables are up to date."""

import multiprocessing
import os
import re
import runpy
import shlex
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import trainer
import trainer.testing
from callbacks import EVENTS
from trainer.cli.main import make_parser

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("trainer/**/*.md"))
)
# The first is what users try first; the other counts processes and files, its own included.
PROGRAMS = ("README.md", "docs/fault-tolerance.md")
_FENCE = re.compile(r"^\s*```(.*)$")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def script_of(page):
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


def prose_of(page):
    """The lines of a page that are not inside a block of code."""
    is_code = False
    for line in page.read_text(encoding="utf-8").splitlines():
        if _FENCE.match(line):
            is_code = not is_code
        elif not is_code:
            yield line


def anchor_of(heading):
    """What a heading is called in links, as GitHub makes it."""
    text = heading.lstrip("#").strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def name_of(page):
    return page.relative_to(ROOT).as_posix()


def run_page(script, folder, output):
    """What a new process does: runs the script as its main program, in a folder of its own."""
    os.chdir(folder)
    with Path(output).open("wb") as file:
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
    sys.argv = [script]
    warnings.simplefilter("error")
    runpy.run_path(script, run_name="__main__")


def written(page, folder):
    """The script of a page, and beside it a folder for it to run in."""
    script = folder / "page.py"
    script.write_text(script_of(page), encoding="utf-8")
    (folder / "folder").mkdir()
    return script


def ended_page(page, folder):
    """How the examples of a page end, and what they print.

    They run in a process that has imported this library already: a new interpreter takes 0.5 s for
    that, and another 0.5 s for a fork server of its own.
    """
    script, output = written(page, folder), folder / "output"
    process = multiprocessing.get_context("forkserver").Process(
        target=run_page, args=(str(script), str(folder / "folder"), str(output))
    )
    process.start()
    process.join(60)
    if process.is_alive():
        process.kill()
        process.join()
    return process.exitcode, output.read_text(encoding="utf-8")


def ended_here(page, folder):
    """As `ended_page`, in this process, which has imported Torch: that takes 3 s."""
    script = written(page, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("sys.argv", [str(script)])
        runpy.run_path(str(script), run_name="__main__")
    return 0, ""


def ended_program(page, folder):
    """As `ended_page`, in a new interpreter."""
    script = written(page, folder)
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=folder / "folder",
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("page", [page for page in PAGES if script_of(page).strip()], ids=name_of)
def test_the_examples_of_a_page_run(page, tmp_path):
    run = ended_program if name_of(page) in PROGRAMS else ended_page
    if "import torch" in script_of(page):
        pytest.importorskip("torch")
        run = ended_here
    code, told = run(page, tmp_path)
    assert code == 0, f"{name_of(page)} (line numbers as in the page):\n{told}"


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import warnings\nwarnings.warn('old')", "UserWarning: old"),
        ("assert 1 == 2", 'page.py", line 3'),
    ],
)
def test_a_page_that_fails_or_warns_is_found(code, told, tmp_path):
    page = tmp_path / "wrong.md"
    page.write_text(f"Text\n```python\n{code}\n```\n", encoding="utf-8")
    exit_code, output = ended_page(page, tmp_path)
    assert exit_code == 1
    assert told in output
    assert len([page for page in PAGES if script_of(page).strip()]) >= 20


def test_every_documentation_page_has_examples_or_is_known_to_have_none():
    without = {name_of(page) for page in PAGES if not script_of(page).strip()}
    assert without <= {
        "CHANGELOG.md",
        "docs/README.md",
        "docs/evidence.md",
        "docs/architecture.md",
        "docs/decisions.md",
        "docs/results.md",
        "docs/glossary.md",
        "docs/installing.md",
        "docs/envs.md",
        "docs/first-week.md",
        "trainer/algorithms/appo/README.md",
        "trainer/algorithms/bc/README.md",
        "trainer/algorithms/cql/README.md",
        "trainer/algorithms/dqn/README.md",
        "trainer/algorithms/marwil/README.md",
        "trainer/algorithms/pg/README.md",
        "trainer/algorithms/ppo/README.md",
        "trainer/algorithms/sac/README.md",
        "trainer/algorithms/td3/README.md",
    }


def test_the_commands_on_the_page_of_the_command_line_are_understood():
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```sh\n(.*?)```", page, flags=re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    assert len(lines) >= 7
    for line in lines:
        program, *words = shlex.split(line)
        assert program == "local-trainer"
        make_parser().parse_args(words)


def test_the_short_answers_to_common_questions_name_what_there_is():
    text = (ROOT / "docs" / "first-week.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in text.splitlines() if re.match(r"\| (?!question)", line)]
    assert len(rows) >= 40
    assert {len(cells) for cells in rows} == {3}
    ours = [code for cells in rows for code in re.findall(r"`([^`]+)`", cells[1])]
    offered = {name for package in (trainer, trainer.testing) for name in package.__all__}
    for code in ours:
        if code.startswith("local-trainer "):
            make_parser().parse_args(shlex.split(code.replace("/*", "/1"))[1:])
        for name in re.findall(r"^([A-Z]\w+|check_\w+)\b", code):
            assert name in offered, code
    options = [code for code in ours if code.startswith("--") and code != "--explore"]
    for code in options:
        make_parser().parse_args(["train", "--env", "CartPole-v1", *shlex.split(code)])
    assert len(options) >= 8


def broken_links_of(page):
    for target in _LINK.findall("\n".join(prose_of(page))):
        if re.match(r"[a-z]+:", target):
            continue  # the world outside is not tested
        file, _, anchor = target.partition("#")
        linked = (page.parent / file).resolve() if file else page
        if not linked.exists():
            yield target
        elif anchor and linked.suffix == ".md":
            headings = [line for line in prose_of(linked) if line.startswith("#")]
            if anchor not in map(anchor_of, headings):
                yield target


def test_links_of_pages_lead_somewhere(tmp_path):
    broken = {name_of(page): [*broken_links_of(page)] for page in PAGES}
    assert {page: links for page, links in broken.items() if links} == {}
    (tmp_path / "other.md").write_text("# Here it is\n")
    wrong = tmp_path / "page.md"
    wrong.write_text("[a](gone.md) [b](other.md#here-it-is) [c](other.md#there) [d](#here)\n")
    assert [*broken_links_of(wrong)] == ["gone.md", "other.md#there", "#here"]


_CHECK_ALL = """
import runpy, sys
for script in sys.argv[1:]:
    sys.argv = [script, "--check"]
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        print(script, "ends with", end.code)
"""


def test_the_pages_that_are_made_are_up_to_date():
    names = (
        "make_settings.py",
        "make_section_stubs.py",
        "make_callback_events.py",
        "make_fault_matrix.py",
        "make_evidence.py",
    )
    scripts = [str(ROOT / "docs" / name) for name in names]
    done = subprocess.run(  # one process: most of each is the import of the library
        [sys.executable, "-c", _CHECK_ALL, *scripts],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "docs"), str(ROOT)))},
        capture_output=True,
        text=True,
        check=False,
    )
    ends = [f"{script} ends with 0" for script in scripts]
    assert done.stdout.splitlines() == ends, done.stderr


def rows_of(page):
    """The cells of all table rows of a page."""
    for line in prose_of(ROOT / "docs" / page):
        if line.startswith("| `"):
            yield [cell.strip() for cell in line.strip("| ").split(" | ")]


def test_the_table_of_events_is_that_of_the_code():
    rows = {cells[0].strip("`"): cells[1] for cells in rows_of("callback-events.md")}
    documented = {name: tuple(re.findall(r"`(\w+)`", cell)) for name, cell in rows.items()}
    events = {name: arguments for name, arguments in documented.items() if name.startswith("on_")}
    assert events == {name: event.arguments for name, event in EVENTS.items()}

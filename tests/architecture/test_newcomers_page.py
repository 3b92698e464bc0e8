"""The page for newcomers names files that exist, and answers the commonest questions."""

import re

from tests.architecture.source_tree import PROJECT

PAGE = PROJECT / "docs" / "architecture.md"
_NAMED = re.compile(r"`((?:[\w.-]+/)*[\w.-]*(?:/|\.py|\.md))`")


def named_files(text):
    """Files and folders that a page names in code marks."""
    return set(_NAMED.findall(text))


def missing(text, root):
    """What a page names and is neither in the project nor in the package `trainer`.

    A file of which the page names no folder may be in any room.
    """
    rooms = [root, root / "trainer"]
    rooms += [path for path in (root / "trainer").iterdir() if path.is_dir()]
    return [
        name
        for name in sorted(named_files(text))
        if not any((room / name).exists() for room in rooms[: 2 if "/" in name else None])
    ]


def test_the_files_that_the_page_names_exist():
    assert missing(PAGE.read_text(encoding="utf-8"), PROJECT) == []


def test_the_commonest_changes_have_a_row_with_a_file_each():
    _, _, rest = PAGE.read_text(encoding="utf-8").partition("## Where do I change")
    table, _, _ = rest.partition("\n## ")
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 10
    assert [row[0] for row in rows if not named_files(row[1])] == []


def test_the_page_is_three_pages_long():
    assert len(PAGE.read_text(encoding="utf-8").split()) <= 3 * 550


def test_a_file_that_is_gone_is_found():
    assert missing("in `trainer/gone.py` and `trainer/seeding.py`", PROJECT) == ["trainer/gone.py"]

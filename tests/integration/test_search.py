"""The search of the site finds what newcomers ask for: 60 questions, written by one who had not
read the pages, each with the pages that answer it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("material")
pytest.importorskip("mkdocstrings")
lunr = pytest.importorskip("lunr").lunr

ROOT = Path(__file__).parents[2]
NUM_SHOWN = 5


@pytest.fixture(scope="module")
def search(tmp_path_factory):
    """Finds the first pages for words, scored as the site's search scores: titles count most."""
    site = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(site)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=600, capture_output=True)
    sections = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    found = [
        ({"ref": str(number), **{of: _plain(section[of]) for of in ("title", "text")}},
         {"boost": section.get("boost", 1)})
        for number, section in enumerate(sections)
    ]  # fmt: skip
    index = lunr("ref", [{"field_name": "title", "boost": 10}, "text"], found)

    def pages(words):
        hits = index.search(re.sub(r"[^\w ]", " ", words))
        names = [sections[int(hit["ref"])]["location"].partition(".html")[0] for hit in hits]
        return list(dict.fromkeys(names))[:NUM_SHOWN]

    return pages


def _plain(html):
    return re.sub(r"<[^>]*>", " ", html)


def questions():
    """(question, the pages that answer it)"""
    lines = (ROOT / "tests" / "questions.tsv").read_text(encoding="utf-8").splitlines()
    return [(question, pages.split()) for question, pages in (line.split("\t") for line in lines)]


def test_newcomers_find_what_they_ask_for(search):
    missed = {
        question: (wanted, shown)
        for question, wanted in questions()
        if not set(wanted) & set(shown := search(question))
    }
    assert len(questions()) == 60
    assert len(missed) <= 5, "\n".join(map(str, missed.items()))


def test_what_no_page_answers_is_not_found(search):
    assert search("xylophone zebra") == []

"""The site's search finds the answers to questions of newcomers who have not read the pages.

`tests/questions.tsv` has a line per question: the question, what an answer says, and the pages that
give it. `python -m tests.integration.test_questions SITE` tells what a built site finds.
"""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
QUESTIONS = ROOT / "tests" / "questions.tsv"
NUM_HITS = 5
FEWEST_FOUND = 55


def questions():
    """(question, pages that answer it)."""
    for line in QUESTIONS.read_text(encoding="utf-8").splitlines():
        question, _, pages = line.split("\t")
        yield question, pages.split()


def found_pages(site, asked):
    """For each question the pages of the first hits, the best first."""
    lunr = importlib.import_module("lunr")
    data = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    fields = [{"field_name": "title", "boost": 1000}, "text"]  # as the theme weighs them
    documents = [(section, {"boost": section.get("boost", 1)}) for section in data["docs"]]
    index = lunr.lunr(ref="location", fields=fields, documents=documents)
    for question in asked:
        words = "".join(char if char.isalnum() else " " for char in question)
        num_terms = len({index.pipeline.run_string(word)[0] for word in words.lower().split()
                         if index.pipeline.run_string(word)})  # fmt: skip
        ranked = sorted(index.search(words), key=lambda hit: -weighed(hit, num_terms))
        yield [*dict.fromkeys(hit["ref"].split(".html")[0] for hit in ranked)][:NUM_HITS]


def weighed(hit, num_terms):
    """The score as the theme weighs it: more for whole pages, and where every word is found."""
    bonus = ("#" not in hit["ref"]) + (len(hit["match_data"].metadata) >= num_terms)
    return hit["score"] * (1 + bonus**2)


def missed(site):
    """Questions whose pages are not among the first hits, with what was found instead."""
    asked = [*questions()]
    found = found_pages(site, [question for question, _ in asked])
    return [
        (question, pages, hits)
        for (question, pages), hits in zip(asked, found, strict=True)
        if not {*pages} & {*hits}
    ]


def test_every_question_names_pages_that_there_are():
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")} | {"index"}
    asked = [*questions()]
    assert len(asked) == 60
    assert [question for question, named in asked if not named or {*named} - pages] == []


@pytest.mark.process
def test_the_search_of_the_site_finds_the_answers(tmp_path):
    for package in ("mkdocs", "material", "mkdocstrings", "lunr"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: pip install '.[docs]'")
    site = tmp_path / "site"
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)],
        cwd=ROOT, capture_output=True, timeout=600, check=True,
    )  # fmt: skip
    not_found = missed(site)
    assert 60 - len(not_found) >= FEWEST_FOUND, not_found


if __name__ == "__main__":
    not_found = missed(Path(sys.argv[1]))
    for question, wanted, hits in not_found:
        print(f"{question}: wanted {' or '.join(wanted)}; found {', '.join(hits)}")
    print(f"{60 - len(not_found)} of 60 found")

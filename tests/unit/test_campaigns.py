"""The long campaigns name files that are there, and count what they came to."""

import re

import pytest

from tests import campaigns
from tests.campaigns import CAMPAIGNS, ROOT, Campaign, main, records, run


def test_the_files_of_every_campaign_are_there():
    named = [file for each in CAMPAIGNS.values() for file in re.findall(r"tests/\S+", each.command)]
    assert len(named) > 20
    assert [file for file in named if not (ROOT / file).exists()] == []


def test_tries_failures_and_skips_are_counted(tmp_path, monkeypatch):
    file = tmp_path / "test_three.py"
    file.write_text(
        "import pytest\n"
        "@pytest.mark.parametrize('n', range(3))\n"
        "def test_one(n): assert n\n"
        "def test_two(): pytest.skip('why not')\n"
    )
    command = f"pytest -q -p no:cacheprovider -p no:randomly -c /dev/null {file}"
    monkeypatch.setattr(campaigns, "RECORDS", tmp_path / "records.json")
    monkeypatch.setattr(campaigns, "LOGS", tmp_path)
    monkeypatch.setattr(campaigns, "CAMPAIGNS", {"three": Campaign("Three.", command)})
    record = run("three")
    assert (record.num_tries, record.num_failures, record.num_skipped) == (3, 1, 1)
    assert records() == {"three": record}
    assert main(["three"]) == 1


def test_a_campaign_that_does_not_end_with_its_counts_is_no_record(tmp_path, monkeypatch):
    monkeypatch.setattr(campaigns, "RECORDS", tmp_path / "records.json")
    monkeypatch.setattr(campaigns, "LOGS", tmp_path)
    monkeypatch.setattr(campaigns, "CAMPAIGNS", {"none": Campaign("None.", "this")})
    with pytest.raises(ValueError, match="not with the counts of runs"):
        run("none")
    assert records() == {}


def test_an_unknown_name_is_told_with_those_there_are(capsys):
    assert main(["exact"]) == 2
    assert "exactness" in capsys.readouterr().out

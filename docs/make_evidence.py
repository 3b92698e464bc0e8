"""Writes the table of docs/evidence.md: what the long campaigns came to.

    python docs/make_evidence.py            writes it into the page
    python docs/make_evidence.py --check    exit code 1 if it is out of date; writes nothing

The figures are those of `tests/campaigns.json`, which `python -m tests.campaigns` keeps.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from made_page import write_or_check

ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.campaigns import CAMPAIGNS, records  # noqa: E402 - found only now

PAGE: Final = ROOT / "docs" / "evidence.md"
BEGIN: Final = "<!-- made by docs/make_evidence.py: begin -->\n"
END: Final = "<!-- made by docs/make_evidence.py: end -->\n"


def rows() -> Iterator[str]:
    """The lines of the table."""
    yield "| campaign: what is claimed | tries | failed | minutes | commit, date |"
    yield "|---|---|---|---|---|"
    known = records()
    for name, campaign in CAMPAIGNS.items():
        claim = f"`{name}`: {campaign.claim}"
        if name not in known:
            yield f"| {claim} | not run yet | | | |"
            continue
        record = known[name]
        skipped = f", {record.num_skipped:,} skipped" if record.num_skipped else ""
        figures = f"{record.num_tries:,}{skipped} | {record.num_failures:,} | {record.minutes:.0f}"
        yield f"| {claim} | {figures} | {record.commit}, {record.date} |"


def page() -> str:
    """The page with the table as it is now."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n" + "\n".join(rows()) + f"\n\n{END}{after}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes or checks the page; returns the exit code."""
    return write_or_check(PAGE, page, arguments, script="make_evidence.py")


if __name__ == "__main__":
    raise SystemExit(main())

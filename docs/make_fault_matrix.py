"""Writes the fault matrix of docs/fault-tolerance.md: what comes of a fault, by place and way.

    python docs/make_fault_matrix.py            writes it into the page
    python docs/make_fault_matrix.py --check    exit code 1 if it is out of date; writes nothing

Nothing about a fault is written here: the table is that of `tests/faults/fault_matrix.py`, which
`tests/faults/test_fault_matrix.py` asserts, fault by fault.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.faults.fault_matrix import table  # noqa: E402 - found only now

PAGE: Final = ROOT / "docs" / "fault-tolerance.md"
BEGIN: Final = "<!-- made by docs/make_fault_matrix.py: begin -->\n"
END: Final = "<!-- made by docs/make_fault_matrix.py: end -->\n"


def page(text: str) -> str:
    """The page with the matrix as it is now."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes or checks the page; returns the exit code."""
    parser = argparse.ArgumentParser(description="Writes the matrix of docs/fault-tolerance.md.")
    parser.add_argument("--check", action="store_true", help="only say whether it is up to date")
    old = PAGE.read_text(encoding="utf-8")
    new = page(old)
    if not parser.parse_args(arguments).check:
        PAGE.write_text(new, encoding="utf-8")
        return 0
    if new == old:
        return 0
    sys.stderr.write(f"{PAGE.name} is out of date. Run: python docs/make_fault_matrix.py\n")
    return 1


if __name__ == "__main__":
    raise SystemExit(main())

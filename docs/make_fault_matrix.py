"""Writes the fault matrix of docs/fault-tolerance.md: what comes of a fault, by place and way.

    python docs/make_fault_matrix.py            writes it into the page
    python docs/make_fault_matrix.py --check    exit code 1 if it is out of date; writes nothing

Nothing about a fault is written here: the table is that of `tests/faults/fault_matrix.py`, which
`tests/faults/test_fault_matrix.py` asserts, fault by fault.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from made_page import write_or_check

ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.faults.fault_matrix import table  # noqa: E402 - found only now

PAGE: Final = ROOT / "docs" / "fault-tolerance.md"
BEGIN: Final = "<!-- made by docs/make_fault_matrix.py: begin -->\n"
END: Final = "<!-- made by docs/make_fault_matrix.py: end -->\n"


def page() -> str:
    """The page with the matrix as it is now."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes or checks the page; returns the exit code."""
    return write_or_check(PAGE, page, arguments, script="make_fault_matrix.py")


if __name__ == "__main__":
    raise SystemExit(main())

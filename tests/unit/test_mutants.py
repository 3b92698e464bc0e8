"""The list of mutants keeps up with the source, and the command sees a test that notices."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants import MUTANTS, Mutant, text_with


def test_every_mutant_can_be_made() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(set(names)) == len(names) >= 60
    for mutant in MUTANTS:
        assert mutant.new in text_with(mutant)


@pytest.mark.parametrize("text", ["a = 2\n", "a = 1\na = 1\n"])
def test_a_mutant_whose_text_is_gone_or_there_twice_is_an_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(text, encoding="utf-8")
    with pytest.raises(LookupError, match="expected once"):
        text_with(Mutant("module.py", "a = 1", "a = 3"), tmp_path)

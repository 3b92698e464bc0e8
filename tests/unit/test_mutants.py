"""The list of mutants keeps up with the source, and only a test that fails by one notices it."""

import pytest

from tests import mutants
from tests.mutants import MUTANTS, Mutant, Verdict, main, text_with


def test_every_mutant_can_be_made():
    names = [mutant.name for mutant in MUTANTS]
    assert len(set(names)) == len(names) >= 60
    for mutant in MUTANTS:
        text = text_with(mutant)
        assert mutant.new in text
        compile(text, mutant.file, "exec")


@pytest.mark.parametrize(
    ("text", "new"), [("a = 2\n", "a = 3"), ("a = 1\na = 1\n", "a = 3"), ("a = 1\n", "a = 1")]
)
def test_a_mutant_is_an_error_whose_text_is_gone_or_there_twice_or_the_same(text, new, tmp_path):
    (tmp_path / "module.py").write_text(text, encoding="utf-8")
    with pytest.raises(LookupError, match="expected once"):
        text_with(Mutant("module.py", "a = 1", new), tmp_path)


@pytest.mark.parametrize(
    ("unmutated", "mutated", "expected"),
    [
        (Verdict("passed"), Verdict("failed", "tests/a.py::b"), "a = 1 | tests/a.py::b | "),
        (Verdict("passed"), Verdict("passed"), "a = 1 | NOT NOTICED | "),
        (Verdict("passed"), Verdict("none", "timed out"), "a = 1 | NOT NOTICED timed out | "),
        (
            Verdict("failed", "tests/a.py::b"),
            Verdict("failed", "tests/a.py::b"),
            "a = 1 | NOT NOTICED fails without it: tests/a.py::b | ",
        ),
    ],
)
def test_only_tests_that_pass_without_a_mutant_notice_it(
    unmutated, mutated, expected, monkeypatch, capsys
):
    def run(copy, tests, *options, limit_s):
        return mutated if (copy / "module.py").read_text() == "a = 3\n" else unmutated

    monkeypatch.setattr(mutants, "MUTANTS", [Mutant("module.py", "a = 1", "a = 3")])
    monkeypatch.setattr(mutants, "run_tests", run)
    monkeypatch.setattr(
        mutants, "copy_of_project", lambda folder: (folder / "module.py").write_text("a = 1\n")
    )
    exit_code = main(["--", "tests/a.py"])
    assert expected in capsys.readouterr().out
    assert exit_code == (0 if "NOT" not in expected else 1)


def test_a_name_that_no_mutant_has_is_refused_and_nothing_is_run(monkeypatch, capsys):
    monkeypatch.setattr(mutants, "copy_of_project", lambda _: pytest.fail("it was copied"))
    with pytest.raises(SystemExit, match="2"):
        main(["-k", "no such mutant"])
    assert "no mutant has 'no such mutant' in its name" in capsys.readouterr().err

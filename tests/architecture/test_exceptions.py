"""An exception to a rule excuses what it names, and has to go when nothing is left to excuse."""

import pytest

from tests.architecture.source_tree import expect_clean


def test_a_problem_without_an_exception_fails():
    with pytest.raises(pytest.fail.Exception, match="b is wrong"):
        expect_clean({"a": "a is wrong", "b": "b is wrong"}, {"a": "for a reason"})


def test_a_problem_with_an_exception_does_not_fail():
    expect_clean({"a": "a is wrong"}, {"a": "for a reason"})
    expect_clean({})


def test_an_exception_that_excuses_nothing_fails():
    with pytest.raises(pytest.fail.Exception, match="b: this exception is not needed any more"):
        expect_clean({"a": "a is wrong"}, {"a": "for a reason", "b": "for another"})

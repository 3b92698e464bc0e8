"""Checks of arguments remember types, where nothing but the type counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from checkpoints.arguments import (
    ArgumentError,
    Check,
    boolean,
    checked_arguments,
    either,
    instance,
    integer,
    of_type,
    optional,
    takes,
)


def test_what_was_accepted_once_changes_nothing_about_other_values() -> None:
    @checked_arguments
    def given(number: int, text: str | None = None, *, flag: bool = False) -> Any:
        return number, text, flag

    for _ in range(3):
        assert given(3, "x", flag=True) == (3, "x", True)
        assert given(number=4) == (4, None, False)
        scalars: dict[str, Any] = {"number": np.int64(5), "flag": np.bool_(True)}
        number, _, flag = given(**scalars)
        assert (type(number), type(flag)) == (int, bool)
        for wrong in ((True,), ("3",), (3.0,), (3, 4)):
            with pytest.raises(ArgumentError, match=r"given\(\): `(number|text)="):
                given(*wrong)
        with pytest.raises(ArgumentError, match="`flag=1`"):
            given(3, flag=1)  # type: ignore[arg-type]


def test_a_bound_is_looked_at_every_time() -> None:
    @takes(number=integer(1), choice=either(integer(1), boolean()))
    def given(number: int, choice: Any = True) -> Any:
        return number

    assert given(1) == given(2, 3) - 1 == given(1, choice=False)
    with pytest.raises(ArgumentError, match="≥ 1"):
        given(0)
    with pytest.raises(ArgumentError, match="choice=0"):
        given(1, 0)


def test_a_value_is_asked_about_once_per_type_only_where_that_is_enough() -> None:
    asked: list[Any] = []

    def accepts(value: Any) -> bool:
        asked.append(value)
        return isinstance(value, (int, str))

    @takes(by_type=of_type("a thing", accepts), by_value=Check("a thing", accepts))
    def given(by_type: Any, by_value: Any) -> None:
        del by_type, by_value

    for number in (1, 2, 3):
        given(number, number)
    assert asked == [1, 1, 2, 3]
    given("a", "b")
    assert asked[-2:] == ["a", "b"]


def test_checks_made_of_others_look_at_types_if_all_of_them_do() -> None:
    assert optional(instance(dict, "a dict")).follows_type({})
    assert either(boolean(), integer()).follows_type(1)
    assert either(boolean(), integer(0)).follows_type(True)
    assert not either(boolean(), integer(0)).follows_type(1)
    assert not optional(integer(0)).follows_type(0)

"""Data classes as plain data, and back; what is wrong with plain data is named by its place."""

import sys
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoints import decode, encode
from trainer.types import Array
from trainer_toolkit.checks import Check
from trainer_toolkit.plain_classes import NOT_KEPT, RARE, Plain, check_of, from_plain, to_plain


@dataclass(frozen=True)
class Task:
    step: int
    what: Any = None


@dataclass(frozen=True)
class Position:
    number: int
    seed: int | None = None
    share: float = 1.0
    name: str = ""
    is_over: bool = False
    tasks: tuple[Task, ...] = ()
    counts: Sequence[int] = ()
    by_agent: Mapping[str, Task] = field(default_factory=dict)
    how: Literal["new", "old"] = "new"
    clip: float | bool | None = None
    rows: Array | None = None
    note: Annotated[str, RARE] = ""
    memory: Annotated[Any, RARE] = None
    told: Annotated[str, NOT_KEPT] = ""
    packed: Annotated[
        bytes | None, Plain(check=Check("any", bool), to=decode, back=encode, is_rare=True)
    ] = None


WHOLE = Position(
    3,
    4,
    0.5,
    "n",
    True,
    (Task(0, "a"), Task(2)),
    [5, 6],
    {"a": Task(1)},
    "old",
    True,
    np.arange(2.0),
    "x",
    {"h": 1},
    "y",
    encode({"deep": [1]}),
)
PLAIN = {
    "number": 3,
    "seed": 4,
    "share": 0.5,
    "name": "n",
    "is_over": True,
    "tasks": [{"step": 0, "what": "a"}, {"step": 2, "what": None}],
    "counts": [5, 6],
    "by_agent": {"a": {"step": 1, "what": None}},
    "how": "old",
    "clip": True,
    "note": "x",
    "memory": {"h": 1},
    "packed": {"deep": [1]},
}


def test_every_field_becomes_plain_and_comes_back():
    plain = to_plain(WHOLE)
    assert plain == {**PLAIN, "rows": WHOLE.rows}
    assert plain["rows"] is WHOLE.rows
    assert list(check_of(Position)(plain)) == []
    again = from_plain(Position, plain)
    assert to_plain(again) == plain
    assert again.tasks == WHOLE.tasks
    assert again.packed == WHOLE.packed
    assert again.told == "", "it is not kept"


def test_arrays_are_kept_as_the_caller_says():
    plain = to_plain(WHOLE, array=np.array)
    assert plain["rows"] is not WHOLE.rows
    assert np.array_equal(plain["rows"], [0.0, 1.0])


def test_what_is_rare_is_left_out_while_it_is_the_default_and_all_defaults_if_that_is_wanted():
    assert not {"note", "memory", "packed", "told"} & to_plain(Position(1)).keys()
    plain = to_plain(Position(1, tasks=(Task(0),), is_over=False, share=1), keeps_defaults=False)
    assert plain == {"number": 1, "share": 1, "tasks": [{"step": 0, "what": None}]}, (
        "a default of another type is none"
    )
    assert list(check_of(Position, needs_defaults=False)({"number": 1})) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"number": -1}, "['number'] is an int (-1)"),
        ({"number": True}, "['number'] is a bool"),
        ({"seed": "x"}, "['seed'] is a str"),
        ({"tasks": [{"step": 0}]}, "['tasks'][0] lacks 'what'"),
        ({"tasks": ({"step": 0, "what": 1},)}, "['tasks'] is a tuple"),
        (
            {"by_agent": {"a": {"step": 0, "what": 1, "why": 2}}},
            "['by_agent']['a'] has the unknown",
        ),
        ({"by_agent": {3: {"step": 0, "what": 1}}}, "has the key an int (3)"),
        ({"how": "never"}, "['how'] is a str ('never'), expected one of 'new', 'old'"),
        ({"clip": "x"}, "['clip'] is a str"),
        ({"rows": [1.0]}, "['rows'] is a list"),
        ({"told": "y"}, "has the unknown 'told'"),
        ({"name": None}, "['name'] is None"),
    ],
)
def test_what_is_wrong_is_named_by_its_place(change, problem):
    found = list(check_of(Position)({**to_plain(WHOLE), **change}, "it"))
    assert [each for each in found if problem in each], found


@given(
    st.builds(
        Position,
        st.integers(0, 2**60),
        st.none() | st.integers(0, 9),
        st.floats(allow_nan=False),
        st.text(),
        st.booleans(),
        st.lists(st.builds(Task, st.integers(0, 9), st.none() | st.text())).map(tuple),
        st.lists(st.integers(0, 9)).map(tuple),
        st.dictionaries(st.text(), st.builds(Task, st.integers(0, 9))),
        st.sampled_from(["new", "old"]),
        st.none() | st.booleans() | st.floats(allow_nan=False),
    )
)
def test_any_value_comes_back_with_and_without_defaults(position):
    for keeps in (True, False):
        plain = to_plain(position, keeps_defaults=keeps)
        assert list(check_of(Position, needs_defaults=keeps)(plain)) == []
        assert to_plain(from_plain(Position, plain)) == to_plain(position)


@pytest.mark.parametrize(
    ("kind", "problem"),
    [(complex, "complex"), (tuple[int, str], "tuple"), (Task | list[int], "several kinds")],
)
def test_a_type_without_plain_data_is_refused_when_it_is_first_asked_for(kind, problem):
    made = make_dataclass("Odd", [("value", kind, None)])
    with pytest.raises(TypeError, match=problem):
        to_plain(made())


def test_what_two_notes_say_holds_together_and_a_made_default_counts():
    digit = Annotated[int, Plain(check=Check("a digit", lambda value: value in range(10)))]
    made = make_dataclass(
        "Made",
        [
            ("count", Annotated[digit, RARE], 3),
            ("rows", list[int], field(default_factory=lambda: [1])),
        ],
    )
    assert to_plain(made(), keeps_defaults=False) == {}
    assert to_plain(made(rows=[])) == {"rows": []}
    assert [*check_of(made)({"rows": [], "count": 12})]
    assert from_plain(made, {"rows": []}).count == 3


@pytest.mark.skipif(sys.version_info < (3, 12), reason="types get names of their own later")
def test_a_name_of_a_type_is_as_good_as_the_type():
    name = typing.TypeAliasType("Numbers", np.ndarray[Any, np.dtype[Any]])
    one, other = (make_dataclass("Kept", [("numbers", kind)]) for kind in (name, Array))
    plain = to_plain(one(np.arange(3)))
    assert list(check_of(one)(plain, "")) == list(check_of(other)(plain, "")) == []
    assert list(check_of(one)({"numbers": "3"}, "")) == list(check_of(other)({"numbers": "3"}, ""))
    assert from_plain(one, plain).numbers.tolist() == [0, 1, 2]

"""Data classes of our own making are those of the standard library in everything but the time."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

import checkpoints.data_classes as ours

Decorator = Callable[..., Any]


def plain(dataclass: Decorator) -> Any:
    @dataclass
    class Case:
        a: int
        b: float = 2.0

    return Case


def frozen(dataclass: Decorator) -> Any:
    @dataclass(frozen=True)
    class Case:
        """Says what it is."""

        kind: ClassVar[str] = "frozen"
        a: int
        b: float = 0.5

    return Case


def one_field(dataclass: Decorator) -> Any:
    @dataclass(frozen=True)
    class Case:
        a: float

    return Case


def no_field(dataclass: Decorator) -> Any:
    @dataclass(frozen=True)
    class Case:
        pass

    return Case


def special_fields(dataclass: Decorator) -> Any:
    @dataclass(frozen=True)
    class Case:
        a: int
        made: list[int] = dataclasses.field(default_factory=list)
        hidden: int = dataclasses.field(default=3, repr=False, compare=False)
        set_later: int = dataclasses.field(default=4, init=False)
        made_later: dict[str, int] = dataclasses.field(default_factory=dict, init=False)
        never: int = dataclasses.field(init=False, repr=False, compare=False)

    return Case


def by_name(dataclass: Decorator) -> Any:
    @dataclass(frozen=True, kw_only=True)
    class Case:
        b: int = 1
        a: int

    return Case


def partly_by_name(dataclass: Decorator) -> Any:
    @dataclass
    class Case:
        a: int
        _: dataclasses.KW_ONLY
        b: int = 2

    return Case


def completes_itself(dataclass: Decorator) -> Any:
    @dataclass(frozen=True)
    class Case:
        a: int
        b: int = 0

        def __post_init__(self) -> None:
            object.__setattr__(self, "b", self.a + 1)

    return Case


def with_methods_of_its_own(dataclass: Decorator) -> Any:
    @dataclass(frozen=True)
    class Case:
        a: int

        def __init__(self, a: int, more: int = 0) -> None:
            object.__setattr__(self, "a", a + more)

        def __repr__(self) -> str:
            return "its own"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, type(self))

    return Case


def with_a_hash_of_its_own(dataclass: Decorator) -> Any:
    @dataclass
    class Case:
        a: int

        def __hash__(self) -> int:
            return 7

    return Case


def without_comparison(dataclass: Decorator) -> Any:
    @dataclass(frozen=True, eq=False, repr=False)
    class Case:
        a: int

    return Case


def with_slots(dataclass: Decorator) -> Any:
    @dataclass(frozen=True, slots=True)
    class Case:
        a: int

    return Case


def derived(dataclass: Decorator) -> Any:
    @dataclass(frozen=True)
    class Base:
        a: int
        b: int = 1

    @dataclass(frozen=True)
    class Case(Base):
        c: int = 2

    return Case


def derived_with_other_means(dataclass: Decorator) -> Any:
    @dataclass(frozen=True)
    class Base:
        a: int

    @dataclasses.dataclass(frozen=True)
    class Case(Base):
        c: int = 2

    return Case


def derived_without_decorator(dataclass: Decorator) -> Any:
    @dataclass(frozen=True)
    class Base:
        a: int

    class Case(Base):
        pass

    return Case


CASES = [
    plain,
    frozen,
    one_field,
    no_field,
    special_fields,
    by_name,
    partly_by_name,
    completes_itself,
    with_methods_of_its_own,
    with_a_hash_of_its_own,
    without_comparison,
    with_slots,
    derived,
    derived_with_other_means,
    derived_without_decorator,
]


def outcome(action: Callable[[], Any]) -> Any:
    """What comes of it: a value, or an error with its text."""
    try:
        return action()
    except Exception as error:  # noqa: BLE001 - it is what is compared
        return type(error), str(error)


def made(cls: Any, **changes: Any) -> Any:
    required = {name: 5 for name in ("a",) if name in inspect.signature(cls).parameters}
    return cls(**required | changes)


def facts_of(field: Any) -> list[Any]:
    """What a field says of itself that can be compared."""
    return [getattr(field, name) for name in ("name", "type", "init", "repr", "compare", "kw_only")]


def behaviour(cls: Any) -> dict[str, Any]:
    """All that can be seen of a class and its objects."""
    one, same, other = made(cls), made(cls), outcome(lambda: made(cls, a=6))
    return {
        "signature": str(inspect.signature(cls)),
        "annotations": cls.__init__.__annotations__,
        "name of init": cls.__init__.__qualname__,
        "fields": [facts_of(field) for field in dataclasses.fields(cls)],
        "match": cls.__match_args__,
        "repr": repr(one) if cls.__repr__ is not object.__repr__ else None,
        "equal": one == same,
        "unequal": one != other,
        "equal to a copy": one == copy.copy(one),
        "equal to another class": one == "5",
        "hash": outcome(lambda: hash(one) == hash(same)),
        "is hashable": cls.__hash__ is not None,
        "set": outcome(lambda: setattr(one, "a", 9)),
        "set unknown": outcome(lambda: setattr(one, "x", 9)),
        "delete": outcome(lambda: delattr(same, "a")),
        "values": vars(one) if hasattr(one, "__dict__") else dataclasses.asdict(one),
        "replaced": repr(outcome(lambda: vars(dataclasses.replace(made(cls), a=8)))),
        "dict": repr(outcome(lambda: dataclasses.asdict(made(cls)))),
        "too many": outcome(lambda: made(cls, unknown=1)),
        "too few": repr(outcome(cls)),
        "frozen": cls.__dataclass_params__.frozen,
        "doc": cls.__doc__ if cls.__doc__ and "(" not in cls.__doc__ else cls.__name__,
    }


@pytest.mark.parametrize("case", CASES)
def test_they_behave_as_those_of_the_standard_library(case: Callable[[Decorator], Any]) -> None:
    theirs, own = behaviour(case(dataclasses.dataclass)), behaviour(case(ours.dataclass))
    assert own == theirs


def test_negative_control_a_difference_is_seen() -> None:
    def careless(cls: Any = None, **settings: Any) -> Any:
        settings["frozen"] = False
        return dataclasses.dataclass(cls, **settings) if cls else dataclasses.dataclass(**settings)

    assert behaviour(frozen(careless)) != behaviour(frozen(dataclasses.dataclass))


@pytest.mark.parametrize("dataclass", [dataclasses.dataclass, ours.dataclass])
def test_frozen_and_unfrozen_ones_do_not_mix(dataclass: Decorator) -> None:
    for is_frozen in (True, False):
        base = dataclass(frozen=is_frozen)(type("Base", (), {"__annotations__": {"a": "int"}}))
        with pytest.raises(TypeError, match="frozen"):
            dataclass(frozen=not is_frozen)(type("Derived", (base,), {}))


@ours.dataclass(frozen=True)
class Node:
    value: int
    children: list[Node] = dataclasses.field(default_factory=list)


@ours.dataclass(frozen=True)
class Number:
    value: float


def test_an_object_is_equal_to_itself_whatever_its_fields_say() -> None:
    """The standard library's is, too, until Python 3.13."""
    nan = float("nan")
    assert Number(nan) == Number(nan)
    assert Number(nan) != Number(float("nan"))


def test_they_can_be_pickled_and_hold_themselves() -> None:
    node = Node(1, [Node(2)])
    assert pickle.loads(pickle.dumps(node)) == node
    node.children.append(node)
    assert repr(node) == "Node(value=1, children=[Node(value=2, children=[]), ...])"
    assert Node(1).children is not Node(1).children

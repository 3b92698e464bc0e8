import collections
import dataclasses
import enum
import logging
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callbacks import (
    CallbackChain,
    CallbackError,
    CallbackSpec,
    RLlibCallback,
    make_multi_callbacks,
)
from callbacks.callback import NotPlainError, plain_copy
from callbacks.chain import matched_states
from checkpoints.codec import decode, encode


class Tally(RLlibCallback):
    def __init__(self, label="", start=0):
        self.label = label
        self.count = start
        self.history = []

    def on_train_result(self, **kwargs):
        self.count += 1
        self.history.append(self.count)


class Other(RLlibCallback):
    def __init__(self):
        self.weights = np.zeros(3, np.float32)


class WithLock(RLlibCallback):
    def __init__(self):
        self.lock = threading.Lock()
        self.nested = [{"lock": self.lock}]
        self.count = 4


class HandsOutItsList(RLlibCallback):
    def __init__(self):
        self.seen = []

    def get_state(self):
        return {"seen": self.seen}

    def set_state(self, state):
        self.seen = state["seen"]


class Slotted:
    """No RLlibCallback and no __dict__."""

    __slots__ = ("count", "unset")

    def __init__(self):
        self.count = 1

    def on_sample_end(self): ...


class Stateless(RLlibCallback):
    def on_sample_end(self, **kwargs): ...


class Colour(enum.IntEnum):
    RED = 1


RESULT = {"algorithm": None, "metrics_logger": None, "result": {}}

_leaves = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    | st.binary(max_size=5) | st.complex_numbers()
)  # fmt: skip
_keys = st.integers() | st.text(max_size=3) | st.tuples(st.integers(), st.text(max_size=2))
_plain = st.recursive(
    _leaves,
    lambda inside: (
        st.lists(inside, max_size=3)
        | st.tuples(inside, inside)
        | st.dictionaries(_keys, inside, max_size=3)
        | st.sets(_keys, max_size=3)
        | st.frozensets(_keys, max_size=3)
    ),
    max_leaves=8,
)


@given(_plain)
def test_plain_data_is_copied_exactly_and_a_checkpoint_can_hold_it(value):
    copied = plain_copy(value)
    assert encode(copied) == encode(value)
    assert type(decode(encode(copied))) is type(value)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.float64(2.5),
        np.bool_(True),
        np.array(["a", "bc"]),
        np.zeros((2,), dtype=[("x", "f4"), ("y", "i8")]),
    ],
)
def test_arrays_keep_dtype_bytes_and_memory_order_and_share_nothing(array):
    copied = plain_copy(array)
    assert type(copied) is type(array)
    assert copied.dtype == array.dtype
    assert encode(copied) == encode(array)
    assert not np.shares_memory(copied, array)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (object(), "x is object"),
        ([1, {"a": print}], r"x\[1\]\['a'\] is builtin_function_or_method"),
        ({Colour.RED: 1}, "the key .* of x is .*Colour"),
        (collections.OrderedDict(), r"x is collections\.OrderedDict"),
        (np.array([None, print], dtype=object), "x is an array of dtype object"),
        ({(1, Colour.RED)}, "an element of x"),
    ],
)
def test_what_is_not_plain_is_named_by_its_path(value, words):
    with pytest.raises(NotPlainError, match=words):
        plain_copy(value, path="x")


def test_data_that_contains_itself_is_refused_not_followed_forever():
    loop = [1]
    loop.append(loop)
    with pytest.raises(NotPlainError, match="contains itself"):
        plain_copy(loop, path="loop")


def test_state_is_a_snapshot_and_restores_into_a_new_chain():
    spec = CallbackSpec(Tally)
    chain = CallbackChain(spec)
    chain.fire("on_train_result", **RESULT)
    state = chain.get_state()
    chain.fire("on_train_result", **RESULT)
    (entry,) = state["objects"]
    assert entry["class"].endswith("test_callbacks_state.Tally")
    assert entry["state"] == {"label": "", "count": 1, "history": [1]}

    restored = CallbackChain(spec)
    restored.set_state(decode(encode(state)))
    restored.fire("on_train_result", **RESULT)
    assert restored.get_state() == chain.get_state()
    assert entry["state"]["history"] == [1]


def test_two_objects_of_one_class_keep_their_own_states():
    spec = CallbackSpec([Tally("a", 1), lambda: Tally("b", 10), Tally("c", 100)])
    chain = CallbackChain(spec)
    chain.objects[1].count = 11
    chain.objects[2].count = 102
    restored = CallbackChain(spec)
    restored.set_state(chain.get_state())
    assert [(o.label, o.count) for o in restored.objects] == [("a", 1), ("b", 11), ("c", 102)]


def test_states_find_their_class_when_another_callback_was_put_in_front(caplog):
    chain = CallbackChain(CallbackSpec([Tally("x", 5), Tally("y", 6)]))
    restored = CallbackChain(CallbackSpec([Other, Tally, Tally]))
    restored.set_state(chain.get_state())
    assert [o.count for o in restored.objects[1:]] == [5, 6]
    (record,) = caplog.records
    assert "no state was saved for" in record.message
    assert "Other" in record.message
    assert "Tally" not in record.message


def test_a_state_without_an_object_is_named(caplog):
    state = CallbackChain(CallbackSpec([Tally, Other])).get_state()
    CallbackChain(CallbackSpec(Tally)).set_state(state)
    (record,) = caplog.records
    assert "no callback object takes the saved state of" in record.message
    assert "Other" in record.message


def test_matching_states_say_nothing(caplog):
    spec = CallbackSpec([Tally, Other])
    with caplog.at_level(logging.DEBUG):
        CallbackChain(spec).set_state(CallbackChain(spec).get_state())
    assert caplog.records == []


def test_a_class_of_the_script_is_the_same_class_when_it_is_imported():
    saved = [{"class": "__main__.A", "state": 1}, {"class": "run.B", "state": 2}]
    matches = matched_states(saved, ["run.A", "__main__.B"])
    assert matches.pairs == {0: 1, 1: 2}
    assert matches.text == ""
    assert matched_states(saved[:1], ["run.BA"]).pairs == {}


def test_exact_names_are_matched_before_names_of_the_script():
    saved = [{"class": "__main__.A", "state": 1}, {"class": "run.A", "state": 2}]
    assert matched_states(saved, ["run.A", "__main__.A"]).pairs == {0: 2, 1: 1}


def test_attributes_that_are_not_plain_are_left_out_and_named_once(caplog):
    chain = CallbackChain(CallbackSpec([WithLock, WithLock]))  # a class, so nothing is copied
    states = [chain.get_state() for _ in range(3)]
    assert states[0] == states[2]
    assert states[0]["objects"][0]["state"] == {"count": 4}
    texts = [record.message for record in caplog.records]
    assert len(texts) == 2
    assert "callback WithLock leaves out its attribute `lock`: lock is _thread.lock" in texts[0]
    assert "`nested`: nested[0]['lock'] is _thread.lock" in texts[1]
    assert "Override get_state" in texts[0]


def test_an_attribute_that_stops_being_plain_later_is_named_then(caplog):
    chain = CallbackChain(CallbackSpec(Tally))
    chain.get_state()
    assert caplog.records == []
    chain.objects[0].label = print
    assert "label" not in chain.get_state()["objects"][0]["state"]
    assert "`label`" in caplog.text


def test_objects_with_slots_and_without_base_class_have_state():
    chain = CallbackChain(CallbackSpec(Slotted))
    assert chain.has_state()
    chain.objects[0].count = 7
    restored = CallbackChain(CallbackSpec(Slotted))
    restored.set_state(chain.get_state())
    assert restored.objects[0].count == 7


@dataclasses.dataclass(frozen=True)
class Frozen(RLlibCallback):
    """A callback's settings; nothing is assigned to them after it was made."""

    scale: float = 0.5
    seen: list[int] = dataclasses.field(default_factory=list)


def test_a_frozen_dataclass_can_be_restored():
    chain = CallbackChain(CallbackSpec(Frozen()))
    chain.objects[0].seen.append(3)
    restored = CallbackChain(CallbackSpec(Frozen(scale=2.0)))
    restored.set_state(chain.get_state())
    assert restored.objects[0] == Frozen(0.5, [3])


def test_restoring_keeps_attributes_that_the_state_does_not_know():
    chain = CallbackChain(CallbackSpec(Tally))
    state = chain.get_state()
    del state["objects"][0]["state"]["history"]
    restored = CallbackChain(CallbackSpec(Tally))
    restored.objects[0].history = [9]
    restored.set_state(state)
    assert restored.objects[0].history == [9]


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        (None, False),
        (Stateless, False),
        ([Stateless, Tally], True),
        (HandsOutItsList, True),
        (make_multi_callbacks([Stateless]), False),
        (make_multi_callbacks([Stateless, Tally]), True),
    ],
)
def test_has_state_tells_cheaply_whether_there_is_any(classes, expected):
    assert CallbackChain(CallbackSpec(classes)).has_state() is expected


def test_has_state_notices_attributes_that_appear_later():
    chain = CallbackChain(CallbackSpec(Stateless))
    chain.objects[0].seen = 1
    assert chain.has_state()


@pytest.mark.parametrize("first", [1, collections.OrderedDict(plain=False)])
def test_a_state_of_a_class_of_its_own_shares_nothing_with_the_object(first, caplog):
    chain = CallbackChain(CallbackSpec([HandsOutItsList]))
    chain.objects[0].seen.append(first)
    before = chain.get_state()
    chain.objects[0].seen.append(2)
    for _ in range(2):  # an iteration may be undone more than once
        chain.set_state(before)
        assert chain.objects[0].seen == [first]
        chain.objects[0].seen.append(3)
    assert caplog.records == [], "what it gives is its own affair"


@pytest.mark.parametrize("error", [KeyError, SystemExit])
def test_a_state_method_that_raises_or_exits_is_named(error):
    class Broken(RLlibCallback):
        def get_state(self):
            raise error

        def set_state(self, state):
            raise error

    chain, name = CallbackChain(CallbackSpec(Broken), where="env runner 1"), error.__name__
    with pytest.raises(CallbackError, match=rf"`Broken\.get_state` raised {name}.*env runner 1"):
        chain.get_state()
    state = {"objects": [{"class": f"{__name__}.Broken", "state": {}}]}
    with pytest.raises(CallbackError, match=rf"`Broken\.set_state` raised {name}"):
        chain.set_state(state)

"""Plain data comes back from JSON as it was, and nothing else is made of it."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_toolkit.plain_json import NotPlainError, from_json, to_json
from trainer_toolkit.trees import same

_KEYS = st.one_of(
    st.text(), st.sampled_from(["$tuple", "$", "$dict"]), st.integers(), st.booleans()
)
_PLAIN = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()),
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(inner).map(tuple),
        st.dictionaries(_KEYS, inner),
        st.dictionaries(st.tuples(st.integers(), st.text()), inner),
    ),
    max_leaves=20,
)


@given(_PLAIN)
def test_whatever_is_plain_comes_back_as_it_was(value):
    text = json.dumps(to_json(value), allow_nan=False)
    again = from_json(json.loads(text))
    assert same(again, value)
    assert type(again) is type(value)


@pytest.mark.parametrize(
    ("value", "tree"),
    [
        (
            {"a": [1, 2.5, None, True, "text"], "b": {}},
            {"a": [1, 2.5, None, True, "text"], "b": {}},
        ),
        ((1,), {"$tuple": [1]}),
        (range(1, 9, 2), {"$range": [1, 9, 2]}),
        (math.inf, {"$float": "inf"}),
        ({"a": 1, 3: "x"}, {"$dict": [["a", 1], [3, "x"]]}),
        ([np.float32(0.5), np.int64(3)], [0.5, 3]),
    ],
)
def test_what_json_has_stands_for_itself_and_the_rest_has_tags(value, tree):
    assert to_json(value) == tree


@pytest.mark.parametrize("value", [object(), {1, 2}, np.zeros(2), b"x", [print], {"a": {"b": int}}])
def test_what_is_no_plain_data_is_refused(value):
    with pytest.raises(NotPlainError, match="is no plain data"):
        to_json(value)


@pytest.mark.parametrize(
    "tree",
    [
        {"$tuple": 3},
        {"$range": [1, 2]},
        {"$range": ["a", "b", "c"]},
        {"$float": "1e999"},
        {"$float": 3},
        {"$dict": [[1]]},
        {"$dict": [[[], 1]]},
        {"$other": 1},
    ],
)
def test_what_was_never_written_is_refused(tree):
    with pytest.raises(NotPlainError):
        from_json(tree)


def test_objects_have_tags_of_their_callers():
    def of_object(value):
        return {"$complex": [value.real, value.imag]}

    def of_tag(tag, content):
        assert tag == "$complex"
        return complex(*content)

    tree = to_json({"z": [1 + 2j]}, of_object=of_object)
    assert tree == {"z": [{"$complex": [1.0, 2.0]}]}
    assert from_json(tree, of_tag=of_tag) == {"z": [1 + 2j]}

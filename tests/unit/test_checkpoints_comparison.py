"""What differs between two checkpoints is named by place, and measured where it can be."""

import math

import numpy as np
import pytest

from checkpoints import (
    CheckpointCorruptError,
    Difference,
    diff_checkpoints,
    pack_code,
    write_checkpoint,
)
from checkpoints.comparison import differences
from tests.saved_files import files_of

NAN = float("nan")


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": [1, 2]}, {"a": [1, 5]}, [("a/1", "2 -> 5", 3.0)]),
        ({"a": 1}, {"a": 1.0}, [("a", "int 1 -> float 1.0", None)]),
        ({"a": True}, {"a": False}, [("a", "True -> False", None)]),
        ({"a": NAN}, {"a": NAN}, []),
        (0.0, -0.0, [("", "0.0 -> -0.0", 0.0)]),
        ([1], [1, 2], [("", "1 items -> 2 items", None)]),
        ({"a": 1, "b": 2}, {"b": 2}, [("a", "1 -> (missing)", None)]),
        ({"b": 2}, {"a": 1, "b": 2}, [("a", "(missing) -> 1", None)]),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, [("", "the same keys in another order", None)]),
        ("x", "y", [("", "'x' -> 'y'", None)]),
        ({(1, 2): 3}, {(1, 2): 4}, [("(1, 2)", "3 -> 4", 1.0)]),
        (2**1030, 2**1030, []),
    ],
)
def test_differences_of_plain_data(first, second, expected):
    found = [(item.path, item.text, item.max_abs) for item in differences(first, second)]
    assert found == expected


def test_whole_numbers_beyond_floats_have_no_distance():
    (found,) = differences(2**2000, 2**2001)
    assert found.max_abs is None
    assert len(found.text) < 140


@pytest.mark.parametrize(
    ("first", "second", "text", "max_abs"),
    [
        (np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.5, 1.0]), "2 of 3 numbers", 2.0),
        (np.array([np.inf, 1.0]), np.array([np.inf, 1.5]), "1 of 2 numbers", 0.5),
        (np.array([NAN, 1.0]), np.array([NAN, 4.0]), "1 of 2 numbers", 3.0),
        (np.array([NAN, 1.0]), np.array([0.0, 4.0]), "2 of 2 numbers", NAN),
        (np.array(["a"]), np.array(["b"]), "1 of 1 numbers", None),
        (np.array([0], "u1"), np.array([255], "u1"), "1 of 1 numbers", 255.0),
        (np.ones(2), np.ones(3), "array float64 [2] -> array float64 [3]", None),
        (np.ones(1), np.ones(1, "f4"), "array float64 [1] -> array float32 [1]", None),
        (
            np.ones((2, 2)),
            np.asfortranarray(np.ones((2, 2))),
            "the same numbers in another m",
            None,
        ),
    ],
)
def test_differences_of_arrays(first, second, text, max_abs):
    (found,) = differences({"w": first}, {"w": second})
    assert found.path == "w"
    assert found.text.startswith(text)
    if max_abs is not None and math.isnan(max_abs):
        assert found.max_abs is not None
        assert math.isnan(found.max_abs)
    else:
        assert found.max_abs == max_abs
    assert list(differences(first, first.copy(order="A"))) == []


def written(path, **options):
    return write_checkpoint(path, **{"components": {"a": 1}, "metadata": {}, **options})


def test_checkpoints_are_compared_component_by_component(tmp_path):
    same = {"a": np.ones(2)}
    first, second = (
        written(
            tmp_path / name,
            components={"same": same, "other": {"x": number}, name: number},
            metadata={"it": number},
            code=pack_code(number),
        )
        for number, name in ((1, "gone"), (2, "new"))
    )
    found = diff_checkpoints(first, second)
    assert {name: part.status for name, part in found.components.items()} == {
        "same": "equal",
        "other": "differs",
        "gone": "only in the first",
        "new": "only in the second",
        "code.pkl": "differs",
    }
    assert found.components["other"].differences == (Difference("x", "1 -> 2", 1.0),)
    assert found.components["gone"].num_bytes[1] is None
    assert found.metadata == (Difference("it", "1 -> 2", 1.0),)
    assert not found.is_equal


def test_metadata_and_pickled_code_alone_make_no_difference(tmp_path):
    paths = [written(tmp_path / f"{n}", metadata={"n": n}, code=pack_code(n)) for n in (1, 2)]
    found = diff_checkpoints(*paths)
    assert found.is_equal
    assert found.metadata == (Difference("n", "1 -> 2", 1.0),)
    assert found.components["code.pkl"].status == "differs"


@pytest.mark.parametrize("damaged", [0, 1])
def test_a_damaged_checkpoint_is_not_called_equal(damaged, tmp_path):
    paths = [written(tmp_path / f"{number}") for number in range(2)]
    file = files_of(paths[damaged]) / "a.state"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(CheckpointCorruptError, match="was altered"):
        diff_checkpoints(*paths)


def test_equal_bytes_of_another_state_version_differ(tmp_path):
    paths = [written(tmp_path / f"{number}", state_versions={"a": number}) for number in (1, 2)]
    assert diff_checkpoints(*paths).components["a"].differences[0].text == "state version 1 -> 2"

"""What the getters and setters answer, before and after `to_numpy()`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.episodes import LookbackBuffer, SingleAgentEpisode
from trainer.errors import EpisodeError


def buffer_of(data: list[Any], lookback: int, *, numpy: bool, space: Any = None) -> LookbackBuffer:
    buffer = LookbackBuffer(list(data), lookback=lookback, space=space)
    if numpy:
        buffer.to_numpy(name="test")
    return buffer


def plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


@pytest.mark.parametrize("numpy", [False, True])
class TestWorkedCases:
    """The cases of the specification, section 3.3."""

    @pytest.mark.parametrize(
        ("indices", "fill", "expected"),
        [
            (slice(-6, -2), -9, [-9, -9, 0, 1]),
            (slice(2, 5), -7, [2, 3, -7]),
            (slice(-6, 6), 5, [5, 5, 0, 1, 2, 3, 5, 5]),
            (slice(-9, -6), 5, [5, 5, 5]),
            (slice(7, 9), 5, [5, 5]),
            (slice(1, 3), 5, [1, 2]),
            ([0, 9, -1], 5, [0, 5, 3]),
            (9, 5, 5),
            (-9, 5, 5),
        ],
    )
    def test_fill_stands_in_for_missing_items(
        self, numpy: bool, indices: Any, fill: int, expected: Any
    ) -> None:
        buffer = buffer_of([0, 1, 2, 3], 0, numpy=numpy)
        assert plain(buffer.get(indices, fill=fill)) == expected

    @pytest.mark.parametrize(
        ("indices", "as_lookback", "expected"),
        [
            (0, False, 7),
            (-1, False, 9),
            (-1, True, 6),
            (-3, True, 4),
            (-6, False, 4),
            (slice(-2, 1), True, [5, 6, 7]),
            (slice(-5, None), False, [5, 6, 7, 8, 9]),
            (slice(-5, -3), False, [5, 6]),
            (slice(None, 2), False, [7, 8]),
            (slice(-99, 99), False, [4, 5, 6, 7, 8, 9]),
            (slice(None, None, 2), False, [7, 9]),
            (slice(None, None, -1), False, [9, 8, 7]),
            (slice(-3, None, 2), True, [4, 6, 8]),
            (slice(5, 9), False, []),
            ([-1, 0, -1], False, [9, 7, 9]),
            ([-1, 0], True, [6, 7]),
            ([], False, []),
            (None, False, [7, 8, 9]),
        ],
    )
    def test_indices_count_from_the_first_step(
        self, numpy: bool, indices: Any, as_lookback: bool, expected: Any
    ) -> None:
        buffer = buffer_of([4, 5, 6, 7, 8, 9], 3, numpy=numpy)
        assert plain(buffer.get(indices, neg_index_as_lookback=as_lookback)) == expected

    @pytest.mark.parametrize("index", [3, 99, -7, [0, 3], [-7]])
    def test_an_index_outside_is_refused(self, numpy: bool, index: Any) -> None:
        buffer = buffer_of([4, 5, 6, 7, 8, 9], 3, numpy=numpy)
        with pytest.raises(IndexError, match="3 items of look-back and 3 from step 0 on"):
            buffer.get(index)

    def test_length_and_iteration_leave_the_lookback_out(self, numpy: bool) -> None:
        buffer = buffer_of([4, 5, 6, 7], 3, numpy=numpy)
        assert (len(buffer), [int(item) for item in buffer], buffer[0]) == (1, [7], 7)

    def test_one_hot_of_discrete(self, numpy: bool) -> None:
        buffer = buffer_of([5, 7], 0, numpy=numpy, space=spaces.Discrete(3, start=5))
        codes = buffer.get(fill=0, one_hot_discrete=True)
        assert [code.tolist() for code in codes] == [[1, 0, 0], [0, 0, 1]]
        assert buffer.get(1, one_hot_discrete=True).tolist() == [0, 0, 1]
        assert buffer.get(2, fill=0, one_hot_discrete=True).tolist() == [0, 0, 0]
        filled = buffer.get(slice(1, 3), fill=0, one_hot_discrete=True)
        assert [code.tolist() for code in filled] == [[0, 0, 1], [0, 0, 0]]

    def test_one_hot_of_multi_discrete_joins_the_codes(self, numpy: bool) -> None:
        items = [np.array([0, 2]), np.array([1, 0])]
        buffer = buffer_of(items, 0, numpy=numpy, space=spaces.MultiDiscrete([2, 3]))
        codes = buffer.get(one_hot_discrete=True)
        assert [code.tolist() for code in codes] == [[1, 0, 0, 0, 1], [0, 1, 1, 0, 0]]
        assert buffer.get(-3, fill=1).tolist() == [1, 1]

    def test_one_hot_goes_into_nested_spaces(self, numpy: bool) -> None:
        space = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Tuple([spaces.Box(0, 1, (1,))])})
        item = {"a": 1, "b": (np.array([0.5], np.float32),)}
        buffer = buffer_of([item], 0, numpy=numpy, space=space)
        coded = buffer.get(0, one_hot_discrete=True)
        assert coded["a"].tolist() == [0, 1]
        assert coded["b"][0].tolist() == [0.5]
        filled = buffer.get(5, fill=0.25, one_hot_discrete=True)
        assert filled["a"].tolist() == [0, 0]
        assert filled["b"][0].tolist() == [0.25]

    def test_one_hot_needs_a_space_and_values_inside_it(self, numpy: bool) -> None:
        with pytest.raises(EpisodeError, match="does not know the space"):
            buffer_of([1], 0, numpy=numpy).get(0, one_hot_discrete=True)
        with pytest.raises(EpisodeError, match="does not know the space"):
            buffer_of([1], 0, numpy=numpy).get(9, fill=0, one_hot_discrete=True)
        outside = buffer_of([3], 0, numpy=numpy, space=spaces.Discrete(3))
        with pytest.raises(EpisodeError, match="outside its space"):
            outside.get(one_hot_discrete=True)

    def test_setters_replace_in_place(self, numpy: bool) -> None:
        buffer = buffer_of([4, 5, 6, 7], 1, numpy=numpy)
        buffer.set([50, 60, 70])
        buffer.set(40, -1, neg_index_as_lookback=True)
        assert plain(buffer.get(slice(-99, None))) == [40, 50, 60, 70]
        buffer.set(np.array([1, 2]), slice(1, 3))
        buffer[[0, -1]] = [8, 9]
        assert plain(buffer.get()) == [8, 1, 9]

    def test_setters_never_change_the_length(self, numpy: bool) -> None:
        buffer = buffer_of([4, 5, 6, 7], 1, numpy=numpy)
        with pytest.raises(IndexError, match="2 new items were given for 3 places"):
            buffer.set([1, 2])
        with pytest.raises(IndexError, match="2 new items were given for 1 places"):
            buffer.set([1, 2], slice(2, 4))
        with pytest.raises(IndexError, match="lies outside"):
            buffer.set(1, 3)


def test_fill_takes_the_form_of_the_items() -> None:
    box = spaces.Box(0, 255, (2,), np.uint8)
    for numpy in (False, True):
        with_space = buffer_of([np.zeros(2, np.uint8)], 0, numpy=numpy, space=box)
        assert with_space.get(3, fill=7).dtype == np.uint8
        assert with_space.get(3, fill=-1).tolist() == [-1, -1]
        rows = with_space.get(slice(0, 2), fill=-1)
        assert [row.tolist() for row in rows] == [[0, 0], [-1, -1]]
        without = buffer_of([np.zeros(2, np.float32)], 0, numpy=numpy)
        assert without.get(3, fill=0.5).tolist() == [0.5, 0.5]
    assert LookbackBuffer(space=box).get(0, fill=1).tolist() == [1, 1]
    assert LookbackBuffer().get(0, fill=1) == 1


def test_a_fill_of_half_is_not_cut_to_an_integer() -> None:
    assert buffer_of([1], 0, numpy=True).get(slice(0, 2), fill=0.5).tolist() == [1, 0.5]


def number_line(data: list[int], lookback: int, indices: slice, as_lookback: bool) -> list[int]:
    """The indices a slice means, with 0 as the first step and -1 as the newest look-back."""
    steps = len(data) - lookback

    def place(index: int | None, missing: int) -> int:
        if index is None:
            return missing
        return index + steps if index < 0 and not as_lookback else index

    return list(range(place(indices.start, 0), place(indices.stop, steps)))


@settings(max_examples=150, deadline=None)
@given(
    steps=st.integers(0, 6),
    lookback=st.integers(0, 4),
    start=st.none() | st.integers(-12, 12),
    stop=st.none() | st.integers(-12, 12),
    as_lookback=st.booleans(),
    numpy=st.booleans(),
)
def test_slices_agree_with_a_number_line(
    steps: int,
    lookback: int,
    start: int | None,
    stop: int | None,
    as_lookback: bool,
    numpy: bool,
) -> None:
    data = list(range(100, 100 + lookback + steps))
    buffer = buffer_of(data, lookback, numpy=numpy)
    indices = slice(start, stop)
    line = number_line(data, lookback, indices, as_lookback)
    values = [data[i + lookback] if -lookback <= i < steps else -1 for i in line]
    filled = buffer.get(indices, neg_index_as_lookback=as_lookback, fill=-1)
    clipped = buffer.get(indices, neg_index_as_lookback=as_lookback)
    assert plain(filled) == values
    assert plain(clipped) == [value for value in values if value >= 0]


def grown(*, steps: int, lookback: int, numpy: bool) -> SingleAgentEpisode:
    total = steps + lookback
    episode = SingleAgentEpisode(
        "e",
        observations=[np.array([t, -t], np.float32) for t in range(total + 1)],
        observation_space=spaces.Box(-100, 100, (2,)),
        infos=[{"t": t} for t in range(total + 1)],
        actions=[t % 3 for t in range(total)],
        action_space=spaces.Discrete(3),
        rewards=[t / 7 for t in range(total)],
        extra_model_outputs={"action_logp": [-t / 3 for t in range(total)]},
        len_lookback_buffer=lookback,
    )
    return episode.to_numpy() if numpy else episode


def same(first: Any, second: Any) -> bool:
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[k], second[k]) for k in first)
    a, b = np.asarray(first), np.asarray(second)
    return np.array_equal(a, b) or (len(a) == 0 and len(b) == 0)  # [] does not know its shape


INDICES = (
    st.none()
    | st.integers(-9, 9)
    | st.lists(st.integers(-9, 9), max_size=4)
    | st.builds(slice, st.none() | st.integers(-9, 9), st.none() | st.integers(-9, 9))
)


@settings(max_examples=100, deadline=None)
@given(
    indices=INDICES,
    lookback=st.integers(0, 3),
    steps=st.integers(1, 4),
    as_lookback=st.booleans(),
    one_hot=st.booleans(),
)
def test_getters_answer_the_same_before_and_after_to_numpy(
    indices: Any, lookback: int, steps: int, as_lookback: bool, one_hot: bool
) -> None:
    lists = grown(steps=steps, lookback=lookback, numpy=False)
    arrays = grown(steps=steps, lookback=lookback, numpy=True)
    options: dict[str, Any] = {"neg_index_as_lookback": as_lookback, "fill": 0}
    for name in ("get_observations", "get_infos", "get_rewards"):
        assert same(
            getattr(lists, name)(indices, **options), getattr(arrays, name)(indices, **options)
        ), name
    assert same(
        lists.get_actions(indices, one_hot_discrete=one_hot, **options),
        arrays.get_actions(indices, one_hot_discrete=one_hot, **options),
    )
    for key in (None, "action_logp"):
        assert same(
            lists.get_extra_model_outputs(key, indices, **options),
            arrays.get_extra_model_outputs(key, indices, **options),
        )


@pytest.mark.parametrize("numpy", [False, True])
def test_episode_setters(numpy: bool) -> None:
    episode = grown(steps=3, lookback=1, numpy=numpy)
    episode.set_rewards(new_data=[1.0, 2.0, 4.0])
    episode.set_actions(new_data=2, at_indices=-1)
    episode.set_observations(new_data=np.array([9, 9], np.float32), at_indices=0)
    episode.set_extra_model_outputs(key="action_logp", new_data=[0.5], at_indices=[1])
    episode.set_extra_model_outputs(key="advantages", new_data=[1.0, 2.0, 3.0, 4.0])
    assert episode.get_return() == 7.0
    assert episode.get_actions(-1) == 2
    assert episode.get_observations(0).tolist() == [9, 9]
    assert episode.get_extra_model_outputs("action_logp", 1) == 0.5
    assert plain(episode.get_extra_model_outputs("advantages")) == [2.0, 3.0, 4.0]
    episode.validate()
    assert isinstance(episode.extra_model_outputs["advantages"].data, np.ndarray) is numpy


def test_extra_outputs_are_named_in_errors() -> None:
    episode = grown(steps=2, lookback=0, numpy=False)
    with pytest.raises(EpisodeError, match=r"no extra output 'vf'. It has \['action_logp'\]"):
        episode.get_extra_model_outputs("vf")
    with pytest.raises(EpisodeError, match="no extra output 'vf'"):
        episode.set_extra_model_outputs(key="vf", new_data=1.0, at_indices=0)
    with pytest.raises(IndexError, match="'vf' has 1 items, but this episode has 2 steps"):
        episode.set_extra_model_outputs(key="vf", new_data=[1.0])


def test_nested_observations_become_nested_arrays() -> None:
    episode = SingleAgentEpisode("e")
    episode.add_env_reset({"a": np.zeros(2), "b": (1, np.ones((2, 2)))})
    episode.add_env_step({"a": np.ones(2), "b": (2, np.ones((2, 2)))}, 0, 1.0)
    before = episode.get_observations(-1)
    episode.to_numpy()
    data = episode.observations.data
    assert data["a"].tolist() == [[0, 0], [1, 1]]
    assert data["b"][0].tolist() == [1, 2]
    assert data["b"][1].shape == (2, 2, 2)
    after = episode.get_observations(-1)
    assert same(before["a"], after["a"])
    assert after["b"][0] == 2


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        (np.zeros(2), np.zeros(3), r"item 0 is float64 array of shape \(2,\), item 1 is"),
        (np.zeros(2), [0.0], "item 1 is list of length 1"),
        ({"a": 1}, {"b": 1}, "not all of them have 'a'"),
        ((1, 2), (1,), "not all of them have 1"),
        (None, None, "they are NoneType"),
        (object(), object(), "they are object"),
    ],
)
def test_items_that_cannot_be_stacked_are_named(first: Any, second: Any, text: str) -> None:
    buffer = LookbackBuffer([first, second])
    with pytest.raises(EpisodeError, match=text):
        buffer.to_numpy(name="obs")


def test_mixed_dtypes_are_promoted_not_reinterpreted() -> None:
    # Joining raw bytes would read the int64 as a float64 (negative control of the fast path).
    buffer = LookbackBuffer([np.array([1, 2]), np.array([0.5, 0.25])])
    buffer.to_numpy(name="obs")
    assert buffer.data.tolist() == [[1, 2], [0.5, 0.25]]


def test_rows_of_strided_arrays_are_stacked() -> None:
    table = np.arange(12).reshape(3, 4)
    buffer = LookbackBuffer([table[:, 1], table[:, 2]])
    buffer.to_numpy(name="obs")
    assert buffer.data.tolist() == [[1, 5, 9], [2, 6, 10]]
    assert buffer.data.flags.writeable

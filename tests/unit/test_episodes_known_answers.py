"""Each row of what is documented about constructing, reading and rewriting episodes, by hand.

The numbers tell where an item comes from: observation 10, 11, …, action 20, …, reward 30, … at
step 0, 1, … of the whole episode."""

import re
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer import EpisodeIndexError, UnknownOutputError
from trainer.episodes import LookbackBuffer, SingleAgentEpisode
from trainer.errors import EpisodeError

BOTH = pytest.mark.parametrize("numpy", [False, True])


def chunk(*, numpy=False, **arguments):
    """Steps 0 to 4 of an episode; the first two are look-back."""
    given = {
        "observations": [10, 11, 12, 13, 14, 15],
        "infos": [{"t": t} for t in range(6)],
        "actions": [20, 21, 22, 23, 24],
        "rewards": [30, 31, 32, 33, 34],
        "extra_model_outputs": {"action_logp": [-0.0, -0.1, -0.2, -0.3, -0.4]},
        "t_started": 2,
        "len_lookback_buffer": 2,
    }
    episode = SingleAgentEpisode("e", **{**given, **arguments})
    return episode.to_numpy() if numpy else episode


def plain(value):
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


# Construction.


def test_an_empty_episode_has_the_documented_defaults():
    episode = SingleAgentEpisode()
    assert episode, "true, though it has no steps"
    assert len(episode.id_) == 32
    assert int(episode.id_, 16) >= 0
    assert episode.id_ != SingleAgentEpisode().id_
    assert (episode.t, episode.t_started, len(episode)) == (0, 0, 0)
    flags = (episode.is_terminated, episode.is_truncated, episode.is_done)
    assert flags == (False, False, False)
    assert (episode.is_reset, episode.is_numpy) == (False, False)
    assert (episode.agent_id, episode.module_id, episode.multi_agent_episode_id) == (None,) * 3
    assert (episode.observation_space, episode.action_space) == (None, None)
    columns = (episode.observations, episode.infos, episode.actions, episode.rewards)
    assert [list(column) for column in columns] == [[], [], [], []]
    assert (episode.extra_model_outputs, episode.custom_data) == ({}, {})
    assert (episode.get_return(), episode.get_duration_s(), episode.env_steps()) == (0.0, 0.0, 0)
    episode.validate()


def test_every_argument_of_the_constructor_arrives():
    box, discrete = spaces.Box(0, 99, ()), spaces.Discrete(99)
    episode = chunk(
        observation_space=box,
        action_space=discrete,
        truncated=True,
        agent_id="a",
        module_id="m",
        multi_agent_episode_id="x",
    )
    assert (episode.observation_space, episode.action_space) == (box, discrete)
    assert (episode.is_terminated, episode.is_truncated, episode.is_done) == (False, True, True)
    assert (episode.agent_id, episode.module_id) == ("a", "m")
    assert episode.multi_agent_episode_id == "x"
    assert (episode.t_started, episode.t, len(episode), episode.lookback) == (2, 5, 3, 2)
    episode.observation_space = episode.action_space = None
    assert (episode.observations.space, episode.actions.space) == (None, None)
    assert chunk(terminated=True).is_terminated


def test_missing_infos_are_one_empty_dict_per_observation():
    episode = chunk(infos=None)
    assert episode.infos.data == [{}] * 6
    assert len({id(info) for info in episode.infos.data}) == 6


def test_buffers_are_taken_with_their_lookback():
    template = chunk()
    episode = SingleAgentEpisode(
        observations=template.observations,
        infos=template.infos,
        actions=template.actions,
        rewards=template.rewards,
        extra_model_outputs=template.extra_model_outputs,
    )
    assert (episode.lookback, episode.get_rewards()) == (2, [32, 33, 34])
    columns = {"observations": template.observations, "actions": template.actions}
    shorter = SingleAgentEpisode(**columns, rewards=template.rewards, len_lookback_buffer=1)
    assert shorter.get_actions() == [21, 22, 23, 24]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"rewards": (1.0,) * 5}, r"`rewards` is tuple with float .*Give a list"),
        ({"actions": np.array([None] * 5)}, "`actions` is object array"),
        ({"actions": {"a": np.zeros(5), "b": np.zeros(4)}}, r"`actions` have \[4, 5\] rows"),
        ({"observations": iter([1])}, "neither a list of items nor a batch"),
        ({"len_lookback_buffer": "all"}, "'all' steps of look-back"),
        ({"len_lookback_buffer": -1}, "-1 steps of look-back"),
        ({"t_started": -1}, "t_started=-1"),
        ({"infos": [{}]}, "'infos': 1"),
    ],
)
def test_data_without_a_meaning_is_refused(arguments, text):
    with pytest.raises(EpisodeError, match=text):
        chunk(**arguments)


# Getters.


@BOTH
@pytest.mark.parametrize(
    ("indices", "as_lookback", "observations", "rewards"),
    [
        (None, False, [12, 13, 14, 15], [32, 33, 34]),
        (0, False, 12, 32),
        (2, False, 14, 34),
        (-1, False, 15, 34),
        (-1, True, 11, 31),
        (-4, False, 12, 31),
        (-2, True, 10, 30),
        ([0, -1], False, [12, 15], [32, 34]),
        ([0, -1], True, [12, 11], [32, 31]),
        (np.array([1, 0]), False, [13, 12], [33, 32]),
        (slice(-2, None), False, [14, 15], [33, 34]),
        (slice(-2, None), True, [10, 11, 12, 13, 14, 15], [30, 31, 32, 33, 34]),
        (slice(None, None, 2), False, [12, 14], [32, 34]),
        (slice(None, None, -1), False, [15, 14, 13, 12], [34, 33, 32]),
    ],
)
def test_one_index_rule_for_all_columns(numpy, indices, as_lookback, observations, rewards):
    episode = chunk(numpy=numpy)
    flag = {"neg_index_as_lookback": as_lookback}
    assert plain(episode.get_observations(indices, **flag)) == observations
    assert plain(episode.get_rewards(indices, **flag)) == rewards
    shifted = np.asarray(rewards) - 10
    assert plain(episode.get_actions(indices, **flag)) == plain(shifted)
    outputs = episode.get_extra_model_outputs("action_logp", indices, **flag)
    assert np.asarray(outputs) == pytest.approx((30 - np.asarray(rewards)) / 10)
    every = episode.get_extra_model_outputs(None, indices, **flag)
    assert list(every) == ["action_logp"]
    assert plain(every["action_logp"]) == plain(outputs)
    infos = episode.get_infos(indices, **flag)
    expected = np.asarray(observations) - 10
    if isinstance(infos, dict):
        assert infos == {"t": int(expected)}
    else:
        assert [info["t"] for info in infos] == expected.tolist()


@BOTH
def test_infos_have_no_form_so_a_fill_stands_in_as_it_is(numpy):
    episode = chunk(numpy=numpy)
    assert episode.get_infos(slice(2, 6), fill={}) == [{"t": 4}, {"t": 5}, {}, {}]
    assert episode.get_infos(9, fill=0) == 0
    assert episode.get_infos([-7, 0], fill={"t": -1}) == [{"t": -1}, {"t": 2}]


@BOTH
def test_a_whole_item_can_be_the_fill(numpy):
    item = {"a": np.ones(2, np.float32)}
    episode = SingleAgentEpisode(observation_space=spaces.Dict(a=spaces.Box(0, 1, (2,))))
    episode.add_env_reset(item)
    episode.add_env_step(item, 0, 0.0)
    if numpy:
        episode.to_numpy()
    stand_in = {"a": np.full(2, 0.5, np.float32)}
    assert episode.get_observations(7, fill=stand_in)["a"].tolist() == [0.5, 0.5]
    last = episode.get_observations(slice(1, 3), fill=stand_in)
    values = last["a"] if numpy else [observation["a"] for observation in last]
    assert [value.tolist() for value in values] == [[1, 1], [0.5, 0.5]]


@BOTH
@pytest.mark.parametrize(
    ("index", "as_lookback", "exist"),
    [
        (3, False, "-5 to 2"),
        (-6, False, "-5 to 2"),
        (-3, True, "-2 to 2"),
        ([0, 7], False, "-5 to 2"),
    ],
)
def test_an_index_outside_names_index_length_and_lookback(numpy, index, as_lookback, exist):
    episode = chunk(numpy=numpy)
    offender = index[-1] if isinstance(index, list) else index
    text = (
        f"Index {offender} lies outside the data: 2 items of look-back and 3 from step 0 on; "
        f"indices that exist: {exist}"
    )
    with pytest.raises(IndexError, match=text) as caught:
        episode.get_rewards(index, neg_index_as_lookback=as_lookback)
    assert isinstance(caught.value, EpisodeIndexError)
    with pytest.raises(EpisodeIndexError, match=text):
        episode.set_rewards(
            new_data=[1.0, 2.0] if isinstance(index, list) else 1.0,
            at_indices=index,
            neg_index_as_lookback=as_lookback,
        )


def test_an_empty_column_has_no_index():
    with pytest.raises(EpisodeIndexError, match="indices that exist: none"):
        SingleAgentEpisode().get_observations(-1)


@BOTH
@pytest.mark.parametrize(
    "indices",
    [1.5, [0.0], [True, False, True], np.array([True, False]), slice(0.0, None), slice(0, 2, 0)],
)
def test_what_is_no_index_is_refused(numpy, indices):
    with pytest.raises(EpisodeIndexError, match="is not an index into an episode"):
        chunk(numpy=numpy).get_rewards(indices)


def test_an_unknown_output_is_an_error_with_the_nearest_name():
    with pytest.raises(UnknownOutputError, match=r"did you mean 'action_logp'\?") as caught:
        chunk().get_extra_model_outputs("action_logps")
    assert isinstance(caught.value, KeyError)
    assert str(caught.value).startswith("This episode has no extra output 'action_logps'")
    with pytest.raises(KeyError, match=r"no extra output 'x'\. It has"):
        chunk().set_extra_model_outputs(key="x", new_data=1.0, at_indices=0)


# Setters.


@BOTH
def test_setters_follow_the_same_index_rule(numpy):
    episode = chunk(numpy=numpy)
    episode.set_rewards(new_data=[1.0, 2.0, 3.0])
    episode.set_rewards(new_data=0.5, at_indices=-1, neg_index_as_lookback=True)
    episode.set_actions(new_data=[70, 71], at_indices=[0, -1])
    episode.set_observations(new_data=[0, 1], at_indices=slice(-2, 0), neg_index_as_lookback=True)
    episode.observations[2:99] = np.array([8, 9])
    episode.set_extra_model_outputs(key="action_logp", new_data=-9.0, at_indices=1)
    everything = slice(-99, None)
    assert plain(episode.get_rewards(everything)) == [30, 0.5, 1, 2, 3]
    assert plain(episode.get_actions(everything)) == [20, 21, 70, 23, 71]
    assert plain(episode.get_observations(everything)) == [0, 1, 12, 13, 8, 9]
    assert plain(episode.get_extra_model_outputs("action_logp")) == [-0.2, -9, -0.4]
    assert episode.get_return() == 6.0
    episode.validate()


@BOTH
@pytest.mark.parametrize(
    ("new_data", "indices"),
    [([1.0, 2.0], None), ([1.0] * 4, None), ([1.0], slice(0, 0)), ([], [0]), (np.ones(2), [0])],
)
def test_a_setter_wants_one_item_for_each_place(numpy, new_data, indices):
    episode = chunk(numpy=numpy)
    with pytest.raises(EpisodeIndexError, match=r"\d new items were given for \d places"):
        episode.set_rewards(new_data=new_data, at_indices=indices)
    assert plain(episode.get_rewards()) == [32, 33, 34]


@BOTH
def test_a_new_output_covers_all_steps_and_gets_zeros_for_the_lookback(numpy):
    episode = chunk(numpy=numpy)
    episode.set_extra_model_outputs(key="advantages", new_data=np.array([1.5, 2.5, 3.5]))
    episode.set_extra_model_outputs(key="all", new_data=[[i, i] for i in range(5)])
    episode.set_extra_model_outputs(key="few", new_data=[np.ones(2)] * 3)
    assert isinstance(episode.extra_model_outputs["advantages"].data, np.ndarray) is numpy
    assert plain(episode.get_extra_model_outputs("advantages")) == [1.5, 2.5, 3.5]
    assert episode.get_extra_model_outputs("advantages", -1, neg_index_as_lookback=True) == 0.0
    assert plain(episode.get_extra_model_outputs("all", 0)) == [2, 2]
    assert plain(episode.get_extra_model_outputs("few", 0)) == [1, 1]
    assert plain(episode.get_extra_model_outputs("few", -5)) == [0, 0]
    episode.validate()
    with pytest.raises(EpisodeIndexError, match="'x' has 4 items, but this episode has 3 steps"):
        episode.set_extra_model_outputs(key="x", new_data=[0.0] * 4)


def test_arrays_widen_for_numbers_that_they_cannot_hold():
    pixels = LookbackBuffer(np.array([[0], [255]], np.uint8))
    pixels.set(np.array([7]), 0)  # int64, but 7 fits
    assert (pixels.data.dtype, pixels.data.tolist()) == (np.uint8, [[7], [255]])
    pixels.set([300], 0)
    assert pixels.data.tolist() == [[300], [255]]
    pixels.set([np.array([0.5]), np.array([1.0])])
    assert (pixels.data.dtype, pixels.data.tolist()) == (np.float64, [[0.5], [1.0]])
    single = LookbackBuffer(np.zeros(2, np.float32))
    single.set(0.1, 0)
    assert (single.data.dtype, single.data[0]) == (np.float32, np.float32(0.1))


def test_items_of_another_form_replace_all_or_none():
    buffer = LookbackBuffer(np.zeros((2, 3), np.float32))
    with pytest.raises(EpisodeError, match=r"form \(2,\) cannot stand beside .* form \(3,\)"):
        buffer.set(np.zeros(2), 0)
    with pytest.raises(EpisodeError, match=r"form \(\) cannot stand beside"):
        buffer.set(1.0, 0)  # NumPy alone would write it into all three numbers
    buffer.set({"a": np.zeros(2), "b": np.ones((2, 1))})
    assert buffer.get(1)["b"].tolist() == [1]


def test_arrays_that_may_not_be_written_are_copied_first():
    rewards = np.array([1.0, 2.0])
    rewards.flags.writeable = False
    buffer = LookbackBuffer(rewards)
    buffer.set(5.0, 0)
    assert (buffer.data.tolist(), rewards.tolist()) == ([5, 2], [1, 2])


# Look-back of chunks and parts.


def test_a_negative_lookback_is_refused_everywhere():
    episode = chunk()
    for make in (episode.cut, lambda n: episode.slice(slice(0, 1), len_lookback_buffer=n)):
        with pytest.raises(EpisodeError, match="-1 steps of look-back"):
            make(-1)
    assert len(episode.cut(1)) == 0  # nothing was lost


@BOTH
@pytest.mark.parametrize(
    ("part", "t_started", "lookback", "rewards", "is_done"),
    [
        (slice(None), 2, [30, 31], [32, 33, 34], True),
        (slice(0, 2), 2, [30, 31], [32, 33], False),
        (slice(-1, None), 4, [32, 33], [34], True),
        (slice(9, 12), 5, [33, 34], [], True),
    ],
)
def test_a_part_is_an_episode(numpy, part, t_started, lookback, rewards, is_done):
    episode = chunk(numpy=numpy, terminated=True)
    episode.custom_data["x"] = 1
    sliced = episode[part]
    sliced.validate()
    steps = len(rewards)
    assert (sliced.id_, sliced.t_started, sliced.t) == ("e", t_started, t_started + steps)
    assert plain(sliced.get_rewards()) == rewards
    assert plain(sliced.get_rewards(slice(-2, 0), neg_index_as_lookback=True)) == lookback
    first = 10 + t_started
    assert plain(sliced.get_observations()) == list(range(first, first + steps + 1))
    assert sliced.is_terminated is is_done
    assert episode.slice(part, len_lookback_buffer=0).lookback == 0
    assert (sliced.custom_data, sliced.get_duration_s()) == ({}, 0.0)


# The invariant.


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("observations", [0], "'obs': 1"),
        ("infos", [{}], "'infos': 1"),
        ("actions", [], "'actions': 0"),
        ("rewards", [], "'rewards': 0"),
        ("observations", {"a": np.zeros(6), "b": np.zeros(5)}, r"`obs` have \[5, 6\] rows"),
    ],
)
def test_validate_names_what_does_not_fit(name, data, text):
    episode = chunk()
    getattr(episode, name).data = data
    with pytest.raises(EpisodeError, match=text):
        episode.validate()


def test_validate_compares_lookbacks_and_the_count_of_steps():
    episode = chunk()
    episode.actions.lookback = 1
    with pytest.raises(EpisodeError, match=r"have the look-backs .*'actions': 1"):
        episode.validate()
    episode = chunk()
    episode.t += 1
    with pytest.raises(EpisodeError, match="holds 3 steps, but counts from t_started=2 to t=6"):
        episode.validate()


def test_the_table_of_the_documentation_is_true():
    page = Path(__file__).parents[2] / "docs" / "episodes.md"
    rows = re.findall(
        r"^\| `(get_rewards\(.*\))` \| `(.+?)`", page.read_text("utf-8"), re.MULTILINE
    )
    episode = chunk(
        observations=[0] * 7,
        infos=None,
        actions=[0] * 6,
        rewards=[4, 5, 6, 7, 8, 9],
        extra_model_outputs=None,
        len_lookback_buffer=3,
    )
    known = {"get_rewards": episode.get_rewards, "slice": slice}
    for call, result in rows[:-1]:
        assert repr(eval(call, known)) == result, call
    assert len(rows) == 12
    with pytest.raises(EpisodeIndexError):
        eval(rows[-1][0], known)


def buffer_of(data, lookback, *, numpy, space=None):
    buffer = LookbackBuffer(list(data), lookback=lookback, space=space)
    if numpy:
        buffer.to_numpy(name="test")
    return buffer


@BOTH
class TestWorkedCases:
    """The cases of the specification, section 3.3."""

    @pytest.mark.parametrize(
        ("indices", "fill", "expected"),
        [
            (slice(-6, 6), 5, [5, 5, 0, 1, 2, 3, 5, 5]),
            ([0, 9, -1], 5, [0, 5, 3]),
            (9, 5, 5),
            (-9, 5, 5),
        ],
    )
    def test_fill_stands_in_for_missing_items(self, numpy, indices, fill, expected):
        buffer = buffer_of([0, 1, 2, 3], 0, numpy=numpy)
        assert plain(buffer.get(indices, fill=fill)) == expected

    def test_length_and_iteration_leave_the_lookback_out(self, numpy):
        buffer = buffer_of([4, 5, 6, 7], 3, numpy=numpy)
        assert (len(buffer), [int(item) for item in buffer], buffer[0]) == (1, [7], 7)

    def test_one_hot_of_discrete(self, numpy):
        buffer = buffer_of([5, 7], 0, numpy=numpy, space=spaces.Discrete(3, start=5))
        codes = buffer.get(fill=0, one_hot_discrete=True)
        assert [code.tolist() for code in codes] == [[1, 0, 0], [0, 0, 1]]
        assert buffer.get(1, one_hot_discrete=True).tolist() == [0, 0, 1]
        assert buffer.get(2, fill=0, one_hot_discrete=True).tolist() == [0, 0, 0]
        filled = buffer.get(slice(1, 3), fill=0, one_hot_discrete=True)
        assert [code.tolist() for code in filled] == [[0, 0, 1], [0, 0, 0]]

    def test_one_hot_of_multi_discrete_joins_the_codes(self, numpy):
        items = [np.array([0, 2]), np.array([1, 0])]
        buffer = buffer_of(items, 0, numpy=numpy, space=spaces.MultiDiscrete([2, 3]))
        codes = buffer.get(one_hot_discrete=True)
        assert [code.tolist() for code in codes] == [[1, 0, 0, 0, 1], [0, 1, 1, 0, 0]]
        assert buffer.get(-3, fill=1).tolist() == [1, 1]

    def test_one_hot_goes_into_nested_spaces(self, numpy):
        space = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Tuple([spaces.Box(0, 1, (1,))])})
        item = {"a": 1, "b": (np.array([0.5], np.float32),)}
        buffer = buffer_of([item], 0, numpy=numpy, space=space)
        coded = buffer.get(0, one_hot_discrete=True)
        assert coded["a"].tolist() == [0, 1]
        assert coded["b"][0].tolist() == [0.5]
        filled = buffer.get(5, fill=0.25, one_hot_discrete=True)
        assert filled["a"].tolist() == [0, 0]
        assert filled["b"][0].tolist() == [0.25]

    def test_one_hot_needs_a_space_and_values_inside_it(self, numpy):
        with pytest.raises(EpisodeError, match="does not know the space"):
            buffer_of([1], 0, numpy=numpy).get(0, one_hot_discrete=True)
        with pytest.raises(EpisodeError, match="does not know the space"):
            buffer_of([1], 0, numpy=numpy).get(9, fill=0, one_hot_discrete=True)
        outside = buffer_of([3], 0, numpy=numpy, space=spaces.Discrete(3))
        with pytest.raises(EpisodeError, match="outside its space"):
            outside.get(one_hot_discrete=True)


def test_fill_takes_the_form_of_the_items():
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


def test_a_fill_of_half_is_not_cut_to_an_integer():
    assert buffer_of([1], 0, numpy=True).get(slice(0, 2), fill=0.5).tolist() == [1, 0.5]


def number_line(data, lookback, indices, as_lookback):
    """The indices a slice means, with 0 as the first step and -1 as the newest look-back."""
    steps = len(data) - lookback

    def place(index, missing):
        if index is None:
            return missing
        return index + steps if index < 0 and not as_lookback else index

    return list(range(place(indices.start, 0), place(indices.stop, steps)))


@settings(max_examples=150)
@given(
    steps=st.integers(0, 6),
    lookback=st.integers(0, 4),
    start=st.none() | st.integers(-12, 12),
    stop=st.none() | st.integers(-12, 12),
    as_lookback=st.booleans(),
    numpy=st.booleans(),
)
def test_slices_agree_with_a_number_line(steps, lookback, start, stop, as_lookback, numpy):
    data = list(range(100, 100 + lookback + steps))
    buffer = buffer_of(data, lookback, numpy=numpy)
    indices = slice(start, stop)
    line = number_line(data, lookback, indices, as_lookback)
    values = [data[i + lookback] if -lookback <= i < steps else -1 for i in line]
    filled = buffer.get(indices, neg_index_as_lookback=as_lookback, fill=-1)
    clipped = buffer.get(indices, neg_index_as_lookback=as_lookback)
    assert plain(filled) == values
    assert plain(clipped) == [value for value in values if value >= 0]


def test_nested_observations_become_nested_arrays():
    episode = SingleAgentEpisode("e")
    episode.add_env_reset({"a": np.zeros(2), "b": (1, np.ones((2, 2)))})
    episode.add_env_step({"a": np.ones(2), "b": (2, np.ones((2, 2)))}, 0, 1.0)
    data = episode.to_numpy().observations.data
    assert data["a"].tolist() == [[0, 0], [1, 1]]
    assert data["b"][0].tolist() == [1, 2]
    assert data["b"][1].shape == (2, 2, 2)


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
def test_items_that_cannot_be_stacked_are_named(first, second, text):
    buffer = LookbackBuffer([first, second])
    with pytest.raises(EpisodeError, match=text):
        buffer.to_numpy(name="obs")


def test_mixed_dtypes_are_promoted_not_reinterpreted():
    # Joining raw bytes would read the int64 as a float64 (negative control of the fast path).
    buffer = LookbackBuffer([np.array([1, 2]), np.array([0.5, 0.25])])
    buffer.to_numpy(name="obs")
    assert buffer.data.tolist() == [[1, 2], [0.5, 0.25]]


def test_rows_of_strided_arrays_are_stacked():
    table = np.arange(12).reshape(3, 4)
    buffer = LookbackBuffer([table[:, 1], table[:, 2]])
    buffer.to_numpy(name="obs")
    assert buffer.data.tolist() == [[1, 5, 9], [2, 6, 10]]
    assert buffer.data.flags.writeable

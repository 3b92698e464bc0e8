"""Encoded observations."""

import copy
import pickle

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from trainer.connectors import ObservationEncoder, ObservationNormalizer
from trainer.errors import EnvContractError, UnsupportedSpaceError

SPACES = [
    spaces.Box(-1.0, 1.0, (4,)),
    spaces.Box(-1.0, 1.0, (2, 3), np.float64),
    spaces.Box(0, 255, (5,), np.uint8),
    spaces.Discrete(3),
    spaces.MultiDiscrete([2, 3]),
    spaces.MultiBinary(4),
    spaces.Dict(
        {"b": spaces.Discrete(3), "a": spaces.Tuple([spaces.Box(-1, 1, (2,)), spaces.Discrete(2)])}
    ),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_batch_of_arrays_is_encoded_like_a_list(space):
    space.seed(0)
    observations = [space.sample() for _ in range(5)]

    def batched(items):
        if isinstance(items[0], dict):
            return {key: batched([item[key] for item in items]) for key in items[0]}
        if isinstance(items[0], tuple):
            return tuple(batched([item[i] for item in items]) for i in range(len(items[0])))
        return np.array(items)

    encoder = ObservationEncoder(space)
    rows = encoder.encode(observations).copy()
    batch_rows = encoder.encode(batched(observations))
    np.testing.assert_array_equal(batch_rows, rows)
    encoder.encode(observations[::-1])
    np.testing.assert_array_equal(batch_rows, rows)  # a batch has memory of its own


@pytest.mark.parametrize("again", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
@pytest.mark.parametrize("space", SPACES, ids=str)
def test_a_copy_encodes_as_the_original(space, again):
    space.seed(0)
    observations = [[space.sample()] for _ in range(2)]
    encoder = ObservationEncoder(space)
    ones = np.ones(encoder.size)
    encoder.normalizer = ObservationNormalizer(ones, 2.0 * ones, 9.0 * ones)
    expected = [encoder.encode(one).tobytes() for one in observations]
    other = again(encoder)
    assert [other.encode(one).tobytes() for one in observations] == expected


def test_no_observation_gives_no_row():
    assert ObservationEncoder(SPACES[0]).encode([]).shape == (0, 4)


def test_observations_outside_the_space_are_shown():
    good = np.zeros(4, np.float32)
    with pytest.raises(EnvContractError, match=r"\[9\., 9\., 9\.\]"):
        ObservationEncoder(SPACES[0]).encode([good, np.full(3, 9.0)])
    for bad in (3, -1):
        with pytest.raises(EnvContractError, match=rf": {bad}\."):
            ObservationEncoder(spaces.Discrete(3)).encode([1, bad])
    with pytest.raises(EnvContractError, match="does not belong"):
        ObservationEncoder(SPACES[-1]).encode([{"b": 1}])


def test_space_that_cannot_be_encoded_says_what_can():
    with pytest.raises(UnsupportedSpaceError, match="Possible are Box"):
        ObservationEncoder(spaces.Dict({"text": spaces.Text(5)}))
    for space in (
        spaces.Sequence(spaces.Discrete(2)),
        spaces.Graph(spaces.Discrete(2), None),
        spaces.Tuple([spaces.Discrete(2), spaces.OneOf([spaces.Discrete(2)])]),
    ):
        with pytest.raises(UnsupportedSpaceError, match="Possible are Box, Discrete"):
            ObservationEncoder(space)


def test_what_may_be_normalised_are_quantities_only():
    space = spaces.Dict(
        {
            "action_mask": spaces.Box(0, 1, (2,), np.int8),
            "bits": spaces.MultiBinary(1),
            "image": spaces.Box(0, 255, (2, 1, 1), np.uint8),
            "number": spaces.Box(-1.0, 1.0, (2,)),
        }
    )
    assert ObservationEncoder(space).is_scalable.tolist() == [0, 0, 0, 1, 1, 0, 0]


def naive_code(space, value):
    """The numbers of one observation, one at a time."""
    if isinstance(space, spaces.Dict):
        return [x for key, part in space.spaces.items() for x in naive_code(part, value[key])]
    if isinstance(space, spaces.Tuple):
        pairs = zip(space.spaces, value, strict=True)
        return [x for part, entry in pairs for x in naive_code(part, entry)]
    if isinstance(space, spaces.Discrete):
        return [float(value - space.start == i) for i in range(int(space.n))]
    if isinstance(space, spaces.MultiDiscrete):
        rows = zip(space.nvec.ravel(), np.ravel(space.start), np.ravel(value), strict=True)
        return [float(x - start == i) for size, start, x in rows for i in range(int(size))]
    return [float(np.float32(x)) for x in np.ravel(value)]


def multi_discrete(sizes):
    return spaces.MultiDiscrete(sizes)


LEAVES = st.one_of(
    st.builds(spaces.Discrete, st.integers(1, 4), start=st.integers(-3, 3)),
    st.sampled_from([[2, 3], [[2, 3], [1, 4]]]).map(multi_discrete),
    st.builds(spaces.MultiBinary, st.sampled_from([1, 3, (2, 2)])),
    st.builds(
        lambda shape, dtype: spaces.Box(0, 100, shape, dtype),
        st.sampled_from([(), (3,), (2, 2), (2, 1, 2)]),
        st.sampled_from([np.float32, np.float64, np.uint8, np.int64]),
    ),
)
OBSERVATION_SPACES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1).map(spaces.Dict),
        st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple),
    ),
    max_leaves=6,
)


@given(space=OBSERVATION_SPACES, seed=st.integers(0, 2**31), masked=st.booleans())
def test_nested_observations_are_encoded_number_by_number(space, seed, masked):
    mask = spaces.MultiBinary(3)
    seen = spaces.Dict({"z": space}) if masked else space
    whole = spaces.Dict({"action_mask": mask, "z": space}) if masked else space
    whole.seed(seed)
    observations = [whole.sample() for _ in range(4)]
    encoder = ObservationEncoder(whole)
    assert encoder.mask_size == 3 * masked
    rows = encoder.encode(observations)
    for row, observation in zip(rows, observations, strict=True):
        expected = naive_code(seen, observation)
        if masked:  # behind everything else, though its key sorts first
            expected += naive_code(mask, observation["action_mask"])
        assert row.tolist() == expected


def test_a_mask_under_another_key_or_deeper_is_an_ordinary_part():
    inner = spaces.Dict({"action_mask": spaces.MultiBinary(2), "x": spaces.Discrete(2)})
    assert ObservationEncoder(inner, action_mask_key="other").mask_size == 0
    assert ObservationEncoder(spaces.Tuple([inner])).mask_size == 0
    with pytest.raises(UnsupportedSpaceError, match="nothing to read"):
        ObservationEncoder(spaces.Dict({"action_mask": spaces.MultiBinary(2)}))
    with pytest.raises(UnsupportedSpaceError, match="0 or 1 for every action"):
        ObservationEncoder(spaces.Dict({"action_mask": spaces.Discrete(2), "x": inner}))

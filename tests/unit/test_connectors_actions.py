"""Actions on their way to the env."""

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from trainer.connectors import ActionDecoder, before_decoding
from trainer.episodes import nested
from trainer.errors import UnsupportedSpaceError
from trainer.modules import distribution_for
from trainer.seeding import NOISE_DRAWS

BOUNDED = spaces.Box(np.array([0.0, -10.0], np.float32), np.array([4.0, 10.0], np.float32))
MIXED = spaces.Box(
    np.array([0.0, -np.inf, -1.0], np.float32), np.array([4.0, np.inf, np.inf], np.float32)
)


SCALED = {"normalize_actions": True}
CLIPPED = {"normalize_actions": False, "clip_actions": True}


@pytest.mark.parametrize(
    ("space", "options", "action", "expected"),
    [
        (BOUNDED, SCALED, [-1.0, -1.0], [0.0, -10.0]),
        (BOUNDED, SCALED, [1.0, 0.5], [4.0, 5.0]),
        (BOUNDED, SCALED, [3.0, -3.0], [4.0, -10.0]),
        (MIXED, SCALED, [0.5, 77.0, -5.0], [3.0, 77.0, -1.0]),
        (BOUNDED, CLIPPED, [0.5, 77.0], [0.5, 10.0]),
    ],
)
def test_actions_are_scaled_to_the_bounds_that_there_are_or_only_clipped(
    space, options, action, expected
):
    decoded = ActionDecoder(space, **options).to_env(np.array(action, np.float32))
    assert decoded.tolist() == expected
    assert decoded.dtype == np.float32
    assert space.contains(decoded)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_range_beyond_floats_is_scaled(dtype):
    most = np.finfo(dtype).max
    space = spaces.Box(np.array([-most, -2.0], dtype), np.array([most, 6.0], dtype), dtype=dtype)
    for action, expected in ((-1.0, -1.0), (-0.5, -0.5), (0.5, 0.5), (7.0, 1.0)):
        decoded = ActionDecoder(space).to_env(np.array([action, action], np.float32))
        np.testing.assert_allclose(decoded[0] / most, expected, rtol=1e-3)
        assert decoded[1] == 2.0 + 4.0 * expected


def test_rows_are_decoded_by_themselves():
    decoder = ActionDecoder(MIXED)
    rows = np.random.default_rng(0).standard_normal((7, 3)).astype(np.float32)
    together = decoder.to_env(rows)
    for index, row in enumerate(rows):
        assert decoder.to_env(row).tobytes() == together[index].tobytes()


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
@pytest.mark.parametrize(
    ("bound", "normalize", "expected"), [(2.0, True, 0.5), (2.0, False, 0.25), (np.inf, True, 0.25)]
)
def test_an_env_gets_the_number_type_of_its_space(dtype, bound, normalize, expected):
    space = spaces.Box(-bound, bound, (1,), dtype)
    decoded = ActionDecoder(space, normalize_actions=normalize).to_env(np.array([0.25], np.float32))
    assert decoded.dtype == dtype
    assert decoded.tolist() == [expected]
    assert space.contains(decoded)


def test_start_of_discrete_spaces_is_added():
    assert ActionDecoder(spaces.Discrete(3, start=5)).to_env(2) == 7
    decoder = ActionDecoder(spaces.MultiDiscrete([2, 3], start=[1, 0]))
    assert decoder.to_env(np.array([0, 2])).tolist() == [1, 2]


def test_single_integers_stay_as_they_are():
    for space in (spaces.Discrete(3), spaces.Tuple([spaces.Discrete(2), spaces.Discrete(3)])):
        action = (1, 1)
        assert ActionDecoder(space).is_identity
        assert ActionDecoder(space).to_env(action) is action
    assert not ActionDecoder(BOUNDED).is_identity
    assert not ActionDecoder(spaces.Discrete(3, start=1)).is_identity


def test_what_is_not_changed_is_copied_for_the_env_may_write_into_it():
    unbounded = spaces.Box(-np.inf, np.inf, (2,))
    for decoder in (
        ActionDecoder(spaces.MultiDiscrete([2, 3])),
        ActionDecoder(spaces.MultiBinary(2)),
        ActionDecoder(unbounded, normalize_actions=True, clip_actions=True),
        ActionDecoder(BOUNDED, normalize_actions=False, clip_actions=False),
    ):
        action = np.array([9.0, 9.0], np.float32)
        decoded = decoder.to_env(action)
        assert decoded.tolist() == action.tolist()
        assert decoded.dtype == action.dtype
        assert not np.shares_memory(decoded, action)
    given = {"a": 1, "b": 0}
    decoded = ActionDecoder(spaces.Dict(a=spaces.Discrete(2), b=spaces.Discrete(2))).to_env(given)
    assert decoded == given
    assert decoded is not given


def test_integers_are_counted_from_the_lower_bound():
    space = spaces.Box(np.array([-3, 200], np.int16), np.array([3, 300], np.int16), dtype=np.int16)
    decoded = ActionDecoder(space).to_env(np.array([[0, 0], [6, 100]]))
    assert decoded.tolist() == [[-3, 200], [3, 300]]
    assert decoded.dtype == np.int16
    small = ActionDecoder(spaces.Box(250, 255, (1,), np.uint8))
    assert small.to_env(np.array([5])).tolist() == [255]


def test_parts_of_nested_actions_are_decoded_by_themselves():
    space = spaces.Dict(
        {"a": BOUNDED, "b": spaces.Tuple([spaces.Discrete(3, start=5), spaces.MultiBinary(2)])}
    )
    bits = np.array([0, 1], np.int8)
    decoded = ActionDecoder(space).to_env({"a": np.zeros(2, np.float32), "b": (2, bits)})
    assert decoded["a"].tolist() == [2.0, 0.0]
    assert decoded["b"][0] == 7
    assert decoded["b"][1].tolist() == [0, 1]
    assert not np.shares_memory(decoded["b"][1], bits)
    assert space.contains(decoded)


def multi_discrete(sizes):
    return spaces.MultiDiscrete(sizes)


def leaf_spaces():
    bounds = st.sampled_from([(-1.0, 1.0), (0.0, np.inf), (-np.inf, np.inf), (2.0, 5.0)])
    shapes = st.sampled_from([(), (2,), (2, 3)])
    return st.one_of(
        st.builds(spaces.Discrete, st.integers(1, 4), start=st.integers(-2, 2)),
        st.builds(spaces.MultiBinary, st.sampled_from([1, 3, (2, 2)])),
        st.sampled_from([[2, 3], [[2, 3], [1, 4]]]).map(multi_discrete),
        st.builds(lambda b, shape: spaces.Box(b[0], b[1], shape), bounds, shapes),
        st.builds(
            lambda low, size, dtype: spaces.Box(low, low + size, (2,), dtype=dtype),
            st.integers(0, 100),
            st.integers(0, 20),
            st.sampled_from([np.uint8, np.int32, np.int64]),
        ),
    )


ACTION_SPACES = st.recursive(
    leaf_spaces(),
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1).map(spaces.Dict),
        st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple),
    ),
    max_leaves=5,
)


@given(space=ACTION_SPACES, seed=st.integers(0, 2**31), normalizes=st.booleans())
def test_every_drawn_action_belongs_to_the_space_after_decoding(space, seed, normalizes):
    distribution = distribution_for(space)
    rng = np.random.default_rng(seed)
    inputs = rng.standard_normal((3, distribution.num_inputs)).astype(np.float32)
    noise = NOISE_DRAWS[distribution.noise_kind](rng, (3, distribution.noise_width))
    actions = distribution.sample(inputs, noise)
    assert np.isfinite(distribution.logp(inputs, actions)).all()
    decoder = ActionDecoder(space, normalize_actions=normalizes, clip_actions=True)
    for action in nested.unstack(actions, 3):
        assert space.contains(decoder.to_env(action))
    plain = before_decoding(space, normalize_actions=normalizes)
    plain.seed(seed)
    assert space.contains(decoder.to_env(plain.sample()))


def test_other_spaces_are_refused():
    for space in (spaces.Text(3), spaces.Tuple([spaces.Sequence(spaces.Discrete(2))])):
        with pytest.raises(UnsupportedSpaceError, match="possible are Discrete"):
            ActionDecoder(space)
    with pytest.raises(UnsupportedSpaceError, match="integers to choose among"):
        ActionDecoder(spaces.Box(0, 2**62, (2,), np.int64))

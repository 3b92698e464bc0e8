"""Large observations are stored as frames, each once, and come out as they went in."""

import copy
import pickle

import numpy as np
import pytest

from checkpoints import codec
from checkpoints.errors import CheckpointMismatchError
from trainer.episodes import SingleAgentEpisode
from trainer.replay import ReplayBuffer

NUM_STEPS = 20
SIZE = 48


def pictures(t):
    """The four newest pictures before step t; the first one stands for those before it."""
    rng = [np.random.default_rng(max(step, 0)) for step in range(t - 3, t + 1)]
    return [one.integers(0, 256, (SIZE, SIZE, 3), np.uint8) for one in rng]


def channels_last(t):
    return np.stack([picture[..., 0] for picture in pictures(t)], axis=-1)


def frames_first(t):
    return np.stack([picture[..., 0] for picture in pictures(t)])


def colours_last(t):
    return np.concatenate(pictures(t), axis=-1)


def colours_first(t):
    return np.stack(pictures(t))


def one_picture(t):
    return pictures(t)[-1]


def numbers(t):
    return np.random.default_rng(t).normal(size=600)


def flattened(t):
    return np.concatenate([picture.ravel() for picture in pictures(t)])


def of_floats(t):
    return channels_last(t).astype(np.float32) / 255


def backwards(t):
    return channels_last(t)[..., ::-1]


def episode_of(observation, *, id_="a", first=0, num_steps=NUM_STEPS, is_done=False):
    observations = [observation(t) for t in range(first, first + num_steps + 1)]
    return SingleAgentEpisode(
        id_,
        observations=observations,
        actions=list(range(num_steps)),
        rewards=[0.0] * num_steps,
        terminated=is_done,
        t_started=first,
        len_lookback_buffer=0,
    ).to_numpy()


def sampled(buffer, num_items=200):
    return buffer.sample(num_items, rng=np.random.default_rng(3))


@pytest.mark.parametrize("chunk_length", [1, 4, NUM_STEPS])
@pytest.mark.parametrize(
    ("observation", "num_frames", "frame_size"),
    [
        (channels_last, NUM_STEPS + 1, SIZE * SIZE),
        (frames_first, NUM_STEPS + 1, SIZE * SIZE),
        (colours_last, NUM_STEPS + 1, 3 * SIZE * SIZE),
        (colours_first, NUM_STEPS + 1, 3 * SIZE * SIZE),
        (flattened, NUM_STEPS + 1, 3 * SIZE * SIZE),
        (of_floats, NUM_STEPS + 1, 4 * SIZE * SIZE),
        (numbers, NUM_STEPS + 1, 4800),
        # Its three colours are taken for frames, or it is one; each is stored once either way.
        (one_picture, NUM_STEPS + 1, 3 * SIZE * SIZE),
        # The newest picture comes first: only whole observations are alike.
        (backwards, NUM_STEPS + 1, 4 * SIZE * SIZE),
    ],
)
def test_each_frame_is_stored_once(observation, num_frames, frame_size, chunk_length):
    buffer = ReplayBuffer(50)
    for first in range(0, NUM_STEPS, chunk_length):
        buffer.add(episode_of(observation, first=first, num_steps=chunk_length))
    frames = buffer.get_state()["frames"][""]["frames"]
    assert frames.nbytes == num_frames * frame_size + frames[:1].nbytes, "and that of zeros"
    batch = sampled(buffer)
    assert set(batch.rows.tolist()) == set(range(NUM_STEPS))
    assert batch.obs.flags.c_contiguous
    for row, before, after in zip(batch.rows.tolist(), batch.obs, batch.next_obs, strict=True):
        for found, wanted in ((before, observation(row)), (after, observation(row + 1))):
            assert (found.dtype, found.tobytes()) == (wanted.dtype, wanted.tobytes())


def test_small_observations_are_kept_whole():
    buffer = ReplayBuffer(50)
    buffer.add(episode_of(lambda t: np.full((16, 16, 4), t, np.uint8)))
    assert "frames" not in buffer.get_state()


def test_zeros_of_both_signs_and_what_is_no_number_keep_their_bits():
    kinds = np.array([0x80000000, 0, 0x7FC00001, 0xFFC00002], np.uint32).view(np.float32)

    def observation(t):
        return np.broadcast_to(kinds[t % 4], (600,)).copy()

    buffer = ReplayBuffer(10)
    buffer.add(episode_of(observation, num_steps=8))
    batch = sampled(buffer)
    for row, found in zip(batch.rows.tolist(), batch.next_obs, strict=True):
        assert found.tobytes() == observation(row + 1).tobytes()
    assert len(buffer.get_state()["frames"][""]["frames"]) == 10, "one each, and that of zeros"


def test_a_chunk_whose_first_observation_was_rewritten_keeps_it():
    buffer = ReplayBuffer(10)
    buffer.add(episode_of(channels_last, num_steps=2))
    rewritten = episode_of(channels_last, first=2, num_steps=2)
    rewritten.observations.data[0] = 7
    buffer.add(rewritten)
    batch = sampled(buffer)
    found = {row: (batch.obs[i], batch.next_obs[i]) for i, row in enumerate(batch.rows.tolist())}
    assert np.array_equal(found[1][1], channels_last(2))
    assert np.all(found[2][0] == 7)
    assert np.array_equal(found[2][1], channels_last(3))


def test_frames_that_nobody_shows_make_room():
    buffer = ReplayBuffer(10)
    for number in range(20):
        first = 1000 * number
        buffer.add(episode_of(channels_last, id_=str(number), first=first, num_steps=7))
    # Ten steps of at most three episodes, each with four frames more than steps.
    assert len(buffer.get_state()["frames"][""]["frames"]) <= 1 + 10 + 3 * 4 + 4


@pytest.mark.parametrize("way", [copy.deepcopy, lambda b: pickle.loads(pickle.dumps(b))])
def test_a_copy_goes_on_by_itself(way):
    buffer = ReplayBuffer(10)
    buffer.add(episode_of(channels_last, num_steps=6))
    kept = codec.encode(buffer.get_state())
    other = way(buffer)
    for one in (other, buffer):
        assert codec.encode(one.get_state()) == kept
        one.add(episode_of(channels_last, first=6, num_steps=9))
    assert codec.encode(other.get_state()) == codec.encode(buffer.get_state())


def test_columns_of_a_former_version_stay_whole():
    """Before 0.3, a row held both its observations."""
    buffer = ReplayBuffer(10)
    buffer.add(episode_of(channels_last, num_steps=6))
    state = buffer.get_state()
    del state["frames"]
    state["columns"]["obs"] = np.stack([channels_last(t) for t in range(6)])
    state["columns"]["new_obs"] = np.stack([channels_last(t + 1) for t in range(6)])
    other = ReplayBuffer(10)
    other.check_state(state)
    other.set_state(state)
    for one in (buffer, other):
        one.add(episode_of(channels_last, first=6, num_steps=9))
    assert "frames" not in other.get_state()
    assert codec.encode(vars(sampled(other))) == codec.encode(vars(sampled(buffer)))


def spoil(state, path, value):
    *parents, last = path
    for key in parents:
        state = state[key]
    state[last] = value


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("frames", "", "split"), [2, 3], "split"),
        (("frames", "", "split"), [2, 0], "split"),
        (("frames", "", "split"), [3, 1], "split"),
        (("frames", "", "split"), [2, 10**12], "split"),
        (("frames", "", "frames"), np.ones((30, SIZE, SIZE, 1), np.uint8), "other than 0"),
        (("running_episodes",), [["a", 6, 6]], "running_episodes"),
        (("running_episodes",), [["a", -1, 6]], "running_episodes"),
        (("frames", "", "split"), [0, 4], "frames"),
        (("frames", "", "frames"), np.zeros((30, SIZE, SIZE, 1), np.float32), "frames"),
        (("frames", "", "frames"), np.zeros((0, SIZE, SIZE, 1), np.uint8), "not there"),
        (("frames", "", "frames"), np.zeros((5, SIZE, SIZE, 1), np.uint8), "not there"),
        (("columns", "obs"), np.full((6, 4), -1), "not there"),
        (("columns", "obs"), np.zeros((6, 3), np.int64), "obs"),
        (("columns", "new_obs"), np.zeros((6, 4), np.float64), "new_obs"),
        (("layout", "new_obs"), ["|u1", [SIZE, SIZE, 3]], "layout"),
        (("layout", "new_obs"), ["|i1", [SIZE, SIZE, 4]], "layout"),
        (("frames",), {"['camera']": {"split": [0, 1], "frames": np.zeros(3)}}, "layout"),
    ],
)
def test_a_state_whose_frames_do_not_fit_is_refused(path, value, words):
    buffer = ReplayBuffer(10)
    buffer.add(episode_of(channels_last, num_steps=6))
    state = codec.decode(codec.encode(buffer.get_state()))
    buffer.check_state(state)
    spoil(state, path, value)
    with pytest.raises(CheckpointMismatchError, match=words):
        buffer.check_state(state)


@pytest.mark.parametrize("place", ["actions", "rewards", "more"])
def test_frames_of_columns_that_no_observation_has_are_refused(place):
    buffer = ReplayBuffer(10)
    buffer.add(episode_of(channels_last, num_steps=6))
    state = codec.decode(codec.encode(buffer.get_state()))
    state["frames"][place] = state["frames"][""]
    for name in ("obs", "new_obs"):
        state["layout"][name + place] = state["layout"][name]
        state["columns"][name + place] = state["columns"][name]
    with pytest.raises(CheckpointMismatchError, match="nesting"):
        buffer.check_state(state)


@pytest.mark.parametrize("size", [48, 512], ids=["in the state", "in a file of its own"])
def test_more_frames_than_there_was_room_for_are_saved_and_restored(tmp_path, size):
    def black(_):
        return np.zeros((size, size, 4), np.uint8)

    def noise(t):
        return np.random.default_rng(t).integers(0, 256, (size, size, 4), np.uint8)

    buffer = ReplayBuffer(4)
    buffer.add(episode_of(black, num_steps=1))  # it looks stacked
    buffer.add(episode_of(noise, id_="b", num_steps=4))
    assert len(buffer.get_state()["frames"][""]["frames"]) >= 5 * 4 > 4 + 4 // 4 + 1
    buffer.save_to_path(tmp_path / "c")
    other = ReplayBuffer(4)
    other.restore_from_path(tmp_path / "c")
    for one in (buffer, other):
        one.add(episode_of(noise, id_="b", first=4, num_steps=2))
    assert codec.encode(other.get_state()) == codec.encode(buffer.get_state())

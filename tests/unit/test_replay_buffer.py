"""What comes out of a replay buffer, compared with a plain list of all steps."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoints import encode
from tests.replay_model import (
    ADDS,
    KINDS,
    Piece,
    World,
    action,
    chunk,
    observation,
    reward,
    row_of,
    same,
)
from trainer.episodes import SingleAgentEpisode
from trainer.errors import ReplayError
from trainer.replay import PrioritizedReplayBuffer, ReplayBuffer

BUFFERS = (ReplayBuffer, PrioritizedReplayBuffer)
ENOUGH = 500
"""So many draws miss one of at most 12 rows with a probability below 10⁻¹⁷."""


def filled(buffer_class, capacity, kind, adds):
    buffer, world = buffer_class(capacity), World(kind)
    for pieces in adds:
        buffer.add(world.play(pieces))
    return buffer, world


def rng():
    return np.random.default_rng(7)


@pytest.mark.parametrize("buffer_class", BUFFERS)
@given(st.sampled_from(KINDS), st.integers(1, 12), ADDS, st.integers(1, 5))
def test_every_sample_is_what_was_played(buffer_class, kind, capacity, adds, n_step):
    buffer, world = filled(buffer_class, capacity, kind, adds)
    stored = world.steps[-capacity:]
    assert buffer.num_added == len(world.steps)
    assert len(buffer) == buffer.get_num_timesteps() == len(stored)
    assert buffer.get_num_episodes() == len({episode for episode, _, _ in stored})
    if not stored:
        return
    batch = buffer.sample(ENOUGH, rng=rng(), n_step=n_step, gamma=0.9)
    assert set(batch.rows.tolist()) == set(range(len(stored))), "all steps, and no others"
    for row in range(len(stored)):
        wanted = world.transition(world.position_in(row, capacity), n_step=n_step, gamma=0.9)
        for index in np.flatnonzero(batch.rows == row)[:2]:
            assert same(row_of(batch, index), wanted)


@given(st.integers(1, 12), ADDS, st.integers(1, 5), st.integers(0, 4))
def test_a_range_of_steps_gives_one_of_its_lengths(capacity, adds, low, more):
    buffer, world = filled(ReplayBuffer, capacity, "vector", [*adds, [Piece(0, 1)]])
    high = low + more
    batch = buffer.sample(50, rng=rng(), n_step=(low, high), gamma=0.9)
    for index in range(50):
        position = world.position_in(int(batch.rows[index]), capacity)
        candidates = [
            world.transition(position, n_step=n_step, gamma=0.9) for n_step in range(low, high + 1)
        ]
        assert any(same(row_of(batch, index), wanted) for wanted in candidates)


@given(st.sampled_from(KINDS), st.integers(1, 12), ADDS, st.integers(1, 5))
def test_a_sequence_is_what_was_played_and_then_zeros(kind, capacity, adds, length):
    buffer, world = filled(ReplayBuffer, capacity, kind, [*adds, [Piece(0, 1)]])
    batch = buffer.sample_sequences(20, length=length, rng=rng())
    for index in range(20):
        position = world.position_in(int(batch.rows[index, 0]), capacity)
        episode = world.steps[position][0]
        rest = [step for step in world.steps[position:] if step[0] == episode][:length]
        assert batch.mask[index].tolist() == [step < len(rest) for step in range(length)]
        for step in range(length):
            got = _step_of(batch, index, step)
            if step < len(rest):
                _, t, is_terminated = rest[step]
                assert same(got[0], observation(kind, episode, t))
                assert same(got[1], action(kind, episode, t))
                assert same(got[2], observation(kind, episode, t + 1))
                assert got[3:] == (np.float32(reward(episode, t)), is_terminated)
            else:
                assert not any(map(_any, got))
                assert batch.rows[index, step] == -1


def _step_of(batch, index, step):
    def at(tree):
        if isinstance(tree, dict):
            return {key: at(part) for key, part in tree.items()}
        return tuple(map(at, tree)) if isinstance(tree, tuple) else tree[index, step]

    columns = (batch.obs, batch.actions, batch.next_obs, batch.rewards, batch.terminateds)
    return tuple(map(at, columns))


def _any(tree):
    if isinstance(tree, dict):
        return any(map(_any, tree.values()))
    return any(map(_any, tree)) if isinstance(tree, tuple) else bool(np.any(tree))


def test_known_answers_of_three_step_sums():
    buffer = ReplayBuffer(10)
    rewards = [1.0, 2.0, 4.0, 8.0]
    buffer.add(
        SingleAgentEpisode(
            observations=[np.float32(t) for t in range(5)],
            actions=[0, 1, 2, 3],
            rewards=rewards,
            terminated=True,
            len_lookback_buffer=0,
        ).to_numpy()
    )
    batch = buffer.sample(ENOUGH, rng=rng(), n_step=3, gamma=0.5)
    answers = {
        (int(row), float(total), float(after), float(discount))
        for row, total, after, discount in zip(
            batch.rows, batch.rewards, batch.next_obs, batch.discounts, strict=True
        )
    }
    assert answers == {
        (0, 1 + 2 / 2 + 4 / 4, 3.0, 0.125),
        (1, 2 + 4 / 2 + 8 / 4, 4.0, 0.0),
        (2, 4 + 8 / 2, 4.0, 0.0),
        (3, 8.0, 4.0, 0.0),
    }


def test_both_ends_of_a_range_of_steps_are_drawn():
    buffer = ReplayBuffer(100)
    buffer.add(chunk(0, 0, 100))
    batch = buffer.sample(ENOUGH, rng=rng(), n_step=(1, 3), gamma=0.5)
    inside = batch.rows < 97
    assert set(batch.discounts[inside].tolist()) == {0.5, 0.25, 0.125}


def test_a_transition_does_not_step_over_a_missing_chunk():
    buffer = ReplayBuffer(100)
    buffer.add(chunk(0, 0, 2))
    buffer.add(chunk(0, 5, 2))
    batch = buffer.sample(ENOUGH, rng=rng(), n_step=4, gamma=0.5)
    assert set(batch.discounts[batch.rows == 0].tolist()) == {0.25}


def test_episodes_that_were_given_up_are_forgotten_with_their_last_step():
    buffer = ReplayBuffer(6)
    for episode in range(20):
        buffer.add(chunk(episode, 0, 3))
    assert buffer.get_state()["running_episodes"] == [["episode 18", 56, 3], ["episode 19", 59, 3]]


def test_images_stay_bytes_and_every_part_is_a_copy():
    buffer = ReplayBuffer(4)
    buffer.add(chunk(0, 0, 4, kind="nested"))
    batch = buffer.sample(3, rng=rng())
    assert batch.obs["camera"].dtype == batch.next_obs["camera"].dtype == np.uint8
    assert batch.obs["camera"].shape == (3, 2, 1)
    before = buffer.sample(3, rng=rng())
    batch.obs["camera"][:] = 99
    batch.rewards[:] = 99
    assert same(row_of(buffer.sample(3, rng=rng()), 0), row_of(before, 0))


def test_what_was_added_may_change_afterwards():
    buffer, episode = ReplayBuffer(4), chunk(0, 0, 4)
    buffer.add(episode)
    episode.observations.data[:] = -1
    assert buffer.sample(20, rng=rng()).obs.min() >= 0


def test_keys_that_look_like_paths_stay_apart():
    observations = [{"a": {"b": np.float32(1)}, "a/b": np.float32(2)}] * 2
    buffer = ReplayBuffer(4)
    buffer.add(
        SingleAgentEpisode(
            observations=observations, actions=[0], rewards=[0.0], len_lookback_buffer=0
        ).to_numpy()
    )
    batch = buffer.sample(1)
    assert (batch.obs["a"]["b"].tolist(), batch.obs["a/b"].tolist()) == ([1.0], [2.0])


@pytest.mark.parametrize("buffer_class", BUFFERS)
def test_a_running_episode_with_lists_is_stored_as_one_with_arrays(buffer_class):
    buffers = buffer_class(20), buffer_class(20)
    running = chunk(1, 0, 3)
    running.to_lists()
    buffers[0].add(running)
    buffers[1].add(chunk(1, 0, 3))
    assert not running.is_numpy
    for buffer in buffers:
        buffer.add(chunk(1, 3, 6))  # joined to what it goes on from
    drawn = [buffer.sample(50, n_step=3, rng=rng()) for buffer in buffers]
    assert encode(drawn[0].obs) == encode(drawn[1].obs)
    assert encode(drawn[0].next_obs) == encode(drawn[1].next_obs)
    assert buffers[0].get_num_episodes() == 1


@pytest.mark.parametrize("buffer_class", BUFFERS)
@pytest.mark.parametrize(
    "bad",
    [chunk(1, 0, 3, kind="image"), chunk(1, 0, 3, kind="nested")],
    ids=["another number type", "another nesting"],
)
def test_a_chunk_that_does_not_fit_adds_nothing(buffer_class, bad):
    buffer = buffer_class(4)
    with pytest.raises(ReplayError, match="episode 1"):
        buffer.add([chunk(0, 0, 3), chunk(0, 3, 9), bad])
    assert len(buffer) == buffer.num_added == buffer.get_num_episodes() == 0
    buffer.add(chunk(2, 0, 3, kind="image"))
    assert buffer.sample(1).obs.dtype == np.uint8


def test_python_objects_are_refused():
    episode = chunk(0, 0, 2)
    episode.observations.data = np.array([object()] * 3)
    with pytest.raises(ReplayError, match="Python objects"):
        ReplayBuffer(4).add(episode)


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda empty, full: empty.sample(1), "empty"),
        (lambda empty, full: empty.sample_sequences(1, length=2), "empty"),
        (lambda empty, full: full.sample(0), "num_items"),
        (lambda empty, full: full.sample_sequences(1, length=0), "length"),
        (lambda empty, full: full.sample(1, n_step=0), "n_step"),
        (lambda empty, full: full.sample(1, n_step=(0, 2)), "n_step"),
        (lambda empty, full: full.sample(1, n_step=(3, 2)), "n_step"),
        (lambda empty, full: full.sample(1, gamma=1.5), "gamma"),
        (lambda empty, full: full.sample(1, gamma=-0.1), "gamma"),
        (lambda empty, full: full.sample(1, beta=math.nan), "beta"),
        (lambda empty, full: full.sample(1, beta=2.0), "beta"),
        (lambda *_: ReplayBuffer(0), "capacity"),
        (lambda *_: ReplayBuffer(2.5), "capacity"),
        (lambda *_: ReplayBuffer(1e6), "capacity"),
        (lambda *_: ReplayBuffer(True), "capacity"),
        (lambda *_: PrioritizedReplayBuffer(4, alpha=-1), "alpha"),
        (lambda *_: PrioritizedReplayBuffer(4, alpha="1"), "alpha"),
        (lambda *_: PrioritizedReplayBuffer(4, beta=1.5), "beta"),
        (lambda *_: PrioritizedReplayBuffer(4, beta=None), "beta"),
    ],
)
def test_impossible_numbers_are_refused(draw, words):
    full, empty = PrioritizedReplayBuffer(4), ReplayBuffer(4)
    full.add(chunk(0, 0, 3))
    empty.add([])
    with pytest.raises(ReplayError, match=words):
        draw(empty, full)


def test_a_capacity_may_be_a_numpy_integer():
    assert ReplayBuffer(np.int64(5)).capacity == 5


@pytest.mark.parametrize("buffer_class", BUFFERS)
def test_a_buffer_says_how_full_it_is(buffer_class):
    name = buffer_class.__name__
    buffer = buffer_class(1_000_000)
    assert repr(buffer) == f"<{name}: 0 of 1,000,000 env steps, 0 episodes, 0.0 MB>"
    steps = 10_000
    episode = SingleAgentEpisode(
        observations=list(np.zeros((steps + 1, 10), np.float32)),
        actions=[0] * steps,
        rewards=[0.0] * steps,
        terminated=True,
        len_lookback_buffer=0,
    )
    buffer.add(episode.to_numpy())
    text = repr(buffer)
    assert text.startswith(f"<{name}: 10,000 of 1,000,000 env steps, 1 episodes, ")
    megabytes = float(text.split(", ")[-1].removesuffix(" MB>"))
    assert 0.8 < megabytes < 1.3, "two observations of 40 bytes and some columns per step"

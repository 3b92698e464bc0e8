"""The short cuts of the sampling loop give the episodes that the plain way gives."""

import pickle
import timeit

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from checkpoints import codec
from trainer.episodes import SingleAgentEpisode
from trainer.episodes.conversion import add_output, to_numpy_together
from trainer.errors import EpisodeError

OUTPUT = "action_dist_inputs"


def as_bytes(episode):
    return codec.encode(episode.get_state())


def started(name="e"):
    episode = SingleAgentEpisode(name)
    episode.add_env_reset(np.zeros(2, np.float32), {})
    return episode


def record(episode, steps):
    add = episode.step_recorder(OUTPUT)
    for step in range(steps):
        add(np.full(2, step, np.float32), step % 2, step / 2, {}, np.ones(3, np.float32))


def test_a_recorder_adds_what_add_env_step_adds():
    plain, recorded = started(), started()
    for step in range(3):
        plain.add_env_step(
            np.full(2, step, np.float32),
            step % 2,
            step / 2,
            {},
            truncated=step == 2,
            extra_model_outputs={OUTPUT: np.ones(3, np.float32)},
        )
    record(recorded, 3)
    assert (recorded.t, recorded.is_done) == (3, False)
    recorded.end(terminated=False, truncated=True)
    assert as_bytes(recorded) == as_bytes(plain)
    with pytest.raises(EpisodeError, match="is done"):
        recorded.add_env_step(0, 0, 0.0)


def test_a_recorder_drops_what_its_steps_do_not_bring():
    first = started()
    record(first, 2)
    first.set_extra_model_outputs(key="mine", new_data=[1.0, 2.0])
    second = first.cut(1)
    record(second, 1)
    second.validate()
    assert list(second.get_extra_model_outputs()) == [OUTPUT]
    assert second.lookback == 1
    third = started()
    third.add_env_step(np.zeros(2, np.float32), 0, 0.0)  # an action drawn without the module
    successor = third.cut(1)
    record(successor, 1)
    successor.validate()
    assert (successor.lookback, len(successor)) == (0, 1)  # its look-back has no such output


def _to_numpy_and_back(episode):
    episode.to_numpy()
    episode.to_lists()


def _append_next_chunk(episode):
    following = pickle.loads(pickle.dumps(episode)).cut()
    following.add_env_step(
        np.full(2, 8, np.float32), 1, 8.0, extra_model_outputs={OUTPUT: np.ones(3, np.float32)}
    )
    episode.concat_episode(following)


@pytest.mark.parametrize("steps_before", [0, 2])
@pytest.mark.parametrize(
    "change",
    [
        SingleAgentEpisode.to_numpy,
        _to_numpy_and_back,
        _append_next_chunk,
        SingleAgentEpisode.drop_lookback,
        lambda episode: to_numpy_together([episode]),
    ],
)
def test_a_recorder_adds_to_its_episode_whatever_became_of_its_lists(change, steps_before):
    earlier = started()
    record(earlier, 3)
    episodes = [earlier.cut(1), pickle.loads(pickle.dumps(earlier)).cut(1)]
    add = episodes[0].step_recorder(OUTPUT)

    def add_plainly(seen, action, reward, infos, value):
        episodes[1].add_env_step(seen, action, reward, infos, extra_model_outputs={OUTPUT: value})

    for episode, method in zip(episodes, (add, add_plainly), strict=True):
        for step in range(steps_before + 3):
            if step == steps_before:
                change(episode)
            method(np.full(2, step, np.float32), step % 2, step / 2, {}, np.ones(3, np.float32))
        episode.validate()
    assert as_bytes(episodes[0].to_numpy()) == as_bytes(episodes[1].to_numpy())


def test_a_recorder_of_several_outputs_adds_to_arrays():
    episode = started()
    add = episode.step_recorder(OUTPUT, "logp")
    add(np.ones(2, np.float32), 0, 1.0, {}, (np.ones(3, np.float32), -1.0))
    episode.to_numpy()
    for again in (add, episode.step_recorder(OUTPUT, "logp")):
        again(np.ones(2, np.float32), 1, 2.0, {}, (np.zeros(3, np.float32), -2.0))
    episode.validate()
    assert episode.get_rewards().tolist() == [1.0, 2.0, 2.0]
    assert episode.get_extra_model_outputs("logp").tolist() == [-1.0, -2.0, -2.0]


@pytest.mark.parametrize("is_done", [False, True])
def test_a_recorder_refuses_what_add_env_step_refuses(is_done):
    episode = started() if is_done else SingleAgentEpisode("e")
    add = episode.step_recorder(OUTPUT)
    if is_done:
        episode.end(terminated=True, truncated=False)
    with pytest.raises(EpisodeError, match="is done" if is_done else "was not reset"):
        add(0, 0, 0.0, {}, 0)
    assert (episode.t, len(episode.rewards)) == (0, 0)


def mixed_episodes(shapes):
    """Episodes by (steps, is numpy already, size of an observation)."""
    episodes = []
    for number, (steps, is_numpy, size) in enumerate(shapes):
        episode = SingleAgentEpisode(f"e{number}", observation_space=spaces.Box(-9, 9, (size,)))
        episode.add_env_reset({"x": np.zeros(size, np.float32)} if size == 3 else np.zeros(size))
        for step in range(steps):
            seen = np.full(size, step, np.float32)
            outputs = {OUTPUT: np.full(2, step, np.float32)} if size != 1 else None
            episode.add_env_step(
                {"x": seen} if size == 3 else seen.astype(np.float64),
                np.int64(step),
                step / 3,
                extra_model_outputs=outputs,
            )
        episodes.append(episode.to_numpy() if is_numpy else episode)
    return episodes


@given(
    shapes=st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.integers(1, 3)), max_size=5)
    | st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.just(2)), max_size=5)
)
def test_converting_together_is_converting_one_by_one(shapes):
    together, alone = mixed_episodes(shapes), mixed_episodes(shapes)
    to_numpy_together(together)
    for episode, other in zip(together, alone, strict=True):
        assert as_bytes(episode) == as_bytes(other.to_numpy())
        episode.validate()


def test_steps_can_be_added_after_a_conversion_and_stay_in_their_episode():
    episodes = [started("a"), started("b")]
    for episode in episodes:
        episode.add_env_step(np.ones(2, np.float32), 1, 1.0)
    to_numpy_together(episodes)
    episodes[0].add_env_step(np.full(2, 9, np.float32), 0, 5.0)
    episodes[0].set_rewards(new_data=7.0, at_indices=0)
    assert episodes[0].get_rewards().tolist() == [7.0, 5.0]
    assert episodes[1].get_rewards().tolist() == [1.0]


def test_an_error_names_the_column_that_cannot_become_an_array():
    episodes = [started("a"), started("b")]
    for episode in episodes:
        episode.add_env_step(np.ones(2, np.float32), 1, 1.0)
    episodes[1].add_env_step(np.ones(3, np.float32), 1, 1.0)
    with pytest.raises(EpisodeError, match=r"`obs` cannot be stacked: item 0 .* item 2 is"):
        to_numpy_together(episodes)


@pytest.mark.parametrize("numpy", [False, True])
def test_an_output_is_computed_for_all_steps_with_the_lookback(numpy):
    first = started()
    record(first, 3)
    chunks = [first, first.cut(1), started("other")]
    record(chunks[1], 2)
    calls = []

    def compute(sources, actions):
        calls.append(len(sources))
        return sources.sum(axis=1) + 10 * actions

    if numpy:
        to_numpy_together(chunks)
    add_output(chunks, "sum", source=OUTPUT, compute=compute)
    add_output(chunks, "sum", source=OUTPUT, compute=compute)  # is there already
    assert calls == [6]
    assert "sum" not in chunks[2].extra_model_outputs  # no step, no source
    for chunk in chunks:
        chunk.validate()
    assert list(chunks[0].get_extra_model_outputs("sum")) == [3, 13, 3]
    assert list(chunks[1].get_extra_model_outputs("sum")) == [3, 13]
    assert chunks[1].get_extra_model_outputs("sum", -1, neg_index_as_lookback=True) == 3


def test_a_short_episode_costs_a_few_microseconds_beside_its_steps():
    # Measured: 3.5 µs from the constructor to the recorder; the limit leaves room for a busy
    # machine.
    def begin():
        episode = SingleAgentEpisode("e", observation_space=None, action_space=None)
        episode.add_env_reset(0, {})
        episode.step_recorder(OUTPUT)

    assert min(timeit.repeat(begin, number=10, repeat=50)) / 10 < 40e-6

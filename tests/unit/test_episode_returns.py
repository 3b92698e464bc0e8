"""What the env paid and what callbacks made of it stay apart, however chunks are cut and joined."""

import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.episodes import SingleAgentEpisode
from trainer.metrics import EpisodeRecord, EpisodeStatistics

finite = st.floats(-1e6, 1e6)
chunks_to_play = st.lists(
    st.tuples(st.lists(st.tuples(finite, finite), min_size=1, max_size=4), st.booleans()),
    min_size=1,
)
"""[chunk] = (what the env paid and what a callback wrote in each step, whether it wrote)"""


def rewrite(chunk, rewards):
    before = chunk.rewards_list().copy()
    chunk.set_rewards(new_data=np.array(rewards) if chunk.is_numpy else rewards)
    chunk.note_rewrite(before)


def chunks_of(played, *, as_numpy, lookback=0):
    running = SingleAgentEpisode("e", observations=[0.0])
    chunks = []
    for number, (pairs, is_rewritten) in enumerate(played):
        for paid, _ in pairs:
            running.add_env_step(0.0, 0, paid)
        chunk = running
        chunks.append(chunk)
        if number + 1 < len(played):
            running = chunk.cut(lookback)  # before the rewrite, as runners do
        if as_numpy:
            chunk.to_numpy()
        if is_rewritten:
            rewrite(chunk, [written for _, written in pairs])
        if running is not chunk:
            running.earlier_change = chunk.change_partials()
    return chunks


@given(played=chunks_to_play, as_numpy=st.booleans(), lookback=st.integers(0, 2))
def test_returns_do_not_depend_on_cuts_and_joins(played, as_numpy, lookback):
    chunks = chunks_of(played, as_numpy=as_numpy, lookback=lookback)
    paid = [reward for pairs, _ in played for reward, _ in pairs]
    written = [pair[is_rewritten] for pairs, is_rewritten in played for pair in pairs]
    was_rewritten = any(is_rewritten for _, is_rewritten in played)
    joined = SingleAgentEpisode.from_state(chunks[0].get_state())
    for chunk in chunks[1:]:
        joined.concat_episode(chunk)
    for whole in (chunks[-1], joined, pickle.loads(pickle.dumps(joined))):
        assert whole.get_return() == math.fsum(paid)
        assert whole.get_rewritten_return() == (math.fsum(written) if was_rewritten else None)
    assert list(joined.get_rewards()) == written
    assert joined.chunk_return() == math.fsum(written)


def test_what_was_rewritten_is_known_in_all_later_chunks():
    first = SingleAgentEpisode("e", observations=[0.0])
    first.add_env_step(0.0, 0, 1.0)
    rewrite(first, [10.0])
    second = first.cut()
    second.add_env_step(0.0, 0, 2.0)
    third = second.cut()
    third.add_env_step(0.0, 0, 4.0)
    assert third.get_return() == 7.0
    assert third.get_rewritten_return() == 16.0


def test_nothing_is_rewritten_until_somebody_does_it_and_then_as_often_as_wanted():
    episode = SingleAgentEpisode("e", observations=[0.0])
    episode.add_env_step(0.0, 0, 1.0)
    assert episode.get_rewritten_return() is None
    rewrite(episode, [1.0])  # the same numbers: written all the same
    assert episode.get_rewritten_return() == 1.0
    for written in (2.0, 4.0):
        rewrite(episode, [written])
        assert (episode.get_return(), episode.get_rewritten_return()) == (1.0, written)


def record(episode_return, rewritten=None):
    return EpisodeRecord("e", episode_return, 1, rewritten_return=rewritten)


def test_statistics_show_rewritten_returns_beside_the_envs_own_once_there_is_one():
    statistics = EpisodeStatistics(smoothing=3)
    statistics.add([record(1.0), record(2.0)])
    assert not any("rewritten" in key for key in statistics.result())
    assert "rewritten_return" not in statistics.result()["hist_stats"]
    statistics.add([record(3.0, -3.0)])
    result = statistics.result()
    assert result["episode_return_mean"] == 2.0
    spread = [result[f"rewritten_return_{kind}"] for kind in ("mean", "min", "max")]
    assert spread == [0.0, -3.0, 2.0]  # of those not rewritten, their own
    assert result["hist_stats"]["rewritten_return"] == [1.0, 2.0, -3.0]
    statistics.begin_iteration()
    statistics.add([record(4.0)] * 3)
    assert not any("rewritten" in key for key in statistics.result())


@pytest.mark.parametrize("rewritten", [None, -3.0])
def test_statistics_keep_rewritten_returns_in_their_state(rewritten):
    statistics = EpisodeStatistics()
    statistics.add([record(3.0, rewritten)])
    state = statistics.get_state()
    other = EpisodeStatistics()
    other.set_state(state)
    assert other.get_state() == state
    assert other.result().get("rewritten_return_mean") == rewritten
    del state["records"][0]["rewritten_return"]  # as older checkpoints have it
    other.set_state(state)
    assert other.result()["episode_return_mean"] == 3.0

"""States and pickles of episodes: exact, plain, compact, and without time."""

import copy
import math
import pickle

import numpy as np
import pytest
from gymnasium import spaces

from checkpoints import codec
from trainer.episodes import SingleAgentEpisode
from trainer.errors import EpisodeError


def played(steps, *, numpy=False, infos=True):
    episode = SingleAgentEpisode("e", observation_space=spaces.Box(0, 1, (3,)))
    episode.add_env_reset(np.zeros(3, np.float32), {"seed": 1} if infos else {})
    for step in range(steps):
        episode.add_env_step(
            np.full(3, step, np.float32),
            step,
            step / 3,
            {"step": step} if infos else None,
            extra_model_outputs={
                "action_logp": np.float32(step),
                "action_dist_inputs": np.full(2, step, np.float32),
            },
        )
    return episode.to_numpy() if numpy else episode


def test_a_restored_episode_goes_on_like_the_original():
    episode = played(3).cut(1)
    restored = SingleAgentEpisode.from_state(episode.get_state())
    for one in (episode, restored):
        one.add_env_step(
            np.ones(3, np.float32),
            0,
            0.1,
            terminated=True,
            extra_model_outputs={"action_logp": 0.0, "action_dist_inputs": np.zeros(2)},
        )
    assert codec.encode(episode.get_state()) == codec.encode(restored.get_state())
    assert restored.get_return() == episode.get_return() == math.fsum([0, 1 / 3, 2 / 3, 0.1])


def test_a_state_is_a_snapshot():
    episode = played(2)
    episode.custom_data |= {"x": [1], "seen": {1}}
    state = episode.get_state()
    before = codec.encode(state)
    episode.custom_data["x"].append(2)
    episode.custom_data["seen"].add(2)
    episode.add_env_step(
        0, 0, 1.0, extra_model_outputs={"action_logp": 0.0, "action_dist_inputs": 0.0}
    )
    first, second = SingleAgentEpisode.from_state(state), SingleAgentEpisode.from_state(state)
    first.custom_data["x"].append(3)
    first.rewards.data.append(5.0)
    assert codec.encode(state) == before
    assert second.custom_data == {"x": [1], "seen": {1}}


def test_time_and_spaces_are_not_part_of_the_state():
    episode = played(2)
    text = repr(sorted(episode.get_state()))
    assert "time" not in text
    assert "duration" not in text
    assert "space" not in text
    box = spaces.Box(0, 1, (3,))
    restored = SingleAgentEpisode.from_state(episode.get_state(), observation_space=box)
    assert restored.observation_space is box
    assert restored.action_space is None
    assert restored.get_duration_s() == 0.0


def test_an_incomplete_state_is_refused():
    state = played(1).get_state()
    del state["rewards"], state["earlier_return"]
    with pytest.raises(EpisodeError, match=r"lacks \['earlier_return', 'rewards'\]"):
        SingleAgentEpisode.from_state(state)
    state = played(2).get_state()
    state["actions"] = state["actions"][:1]
    with pytest.raises(EpisodeError, match="do not fit together"):
        SingleAgentEpisode.from_state(state)


def clone(episode):
    return pickle.loads(pickle.dumps(episode, pickle.HIGHEST_PROTOCOL))


@pytest.mark.parametrize("numpy", [False, True])
def test_a_pickled_episode_is_the_same_with_spaces_and_duration(numpy):
    episode = played(4, numpy=numpy)
    episode.user_data["x"] = 1
    other = clone(episode)
    assert codec.encode(other.get_state()) == codec.encode(episode.get_state())
    assert other.observation_space == episode.observation_space
    assert 0.0 < other.get_duration_s() <= episode.get_duration_s()
    assert other.get_infos() == episode.get_infos()
    assert copy.deepcopy(episode).get_return() == episode.get_return()


def test_empty_infos_cost_nothing_on_the_way():
    chunk = played(256, numpy=True, infos=False)
    arrays = (chunk.observations, chunk.actions, chunk.rewards, *chunk.extra_model_outputs.values())
    raw_bytes = sum(column.data.nbytes for column in arrays)
    chunk.observation_space = None
    assert len(pickle.dumps(chunk, pickle.HIGHEST_PROTOCOL)) < raw_bytes + 1000
    restored = clone(chunk)
    assert restored.get_infos() == [{}] * 257
    restored.infos.data[0]["x"] = 1
    assert restored.get_infos(1) == {}  # 257 dicts, not one

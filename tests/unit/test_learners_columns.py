"""From episodes to columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from trainer.connectors import ObservationEncoder
from trainer.episodes.single_agent_episode import SingleAgentEpisode
from trainer.errors import EpisodeError
from trainer.learners import columns_from_episodes
from trainer.learners.columns import RowMemory

ENCODER = ObservationEncoder(spaces.Box(-100.0, 100.0, (2,)))


def episode(start: float, steps: int, **more: Any) -> SingleAgentEpisode:
    numbers = [start + step for step in range(steps)]
    arguments: dict[str, Any] = {
        "observations": [np.array([n, -n], np.float32) for n in [*numbers, start + steps]],
        "actions": [int(n) % 2 for n in numbers],
        "rewards": [10.0 * n for n in numbers],
        "extra_model_outputs": {
            "action_logp": [np.float32(-n) for n in numbers],
            "action_dist_inputs": [np.array([n, 0.0], np.float32) for n in numbers],
        },
        "len_lookback_buffer": 0,
    }
    return SingleAgentEpisode(f"from {start}", **{**arguments, **more})


def test_chunks_stand_one_after_another() -> None:
    ended = episode(1.0, 2, terminated=True).to_numpy()
    cut = episode(5.0, 3).to_numpy()
    columns = columns_from_episodes([ended, cut], encoder=ENCODER)
    assert columns.obs[:, 0].tolist() == [1, 2, 5, 6, 7]
    assert columns.last_obs.tolist() == [[3, -3], [8, -8]]
    assert columns.actions.tolist() == [1, 0, 1, 0, 1]
    assert columns.rewards.tolist() == [10, 20, 50, 60, 70]
    assert columns.action_logp.tolist() == [-1, -2, -5, -6, -7]
    assert columns.action_dist_inputs[:, 0].tolist() == [1, 2, 5, 6, 7]
    assert columns.terminateds.tolist() == [False, True, False, False, False]
    assert columns.lengths.tolist() == [2, 3]
    assert columns.is_terminated.tolist() == [True, False]


def test_columns_have_their_dtypes() -> None:
    columns = columns_from_episodes([episode(1.0, 2).to_numpy()], encoder=ENCODER)
    assert columns.obs.dtype == columns.action_logp.dtype == np.float32
    assert columns.action_dist_inputs.dtype == columns.last_obs.dtype == np.float32
    assert columns.rewards.dtype == np.float64
    assert columns.terminateds.dtype == np.bool_


def test_truncated_episode_is_not_terminated() -> None:
    columns = columns_from_episodes([episode(1.0, 2, truncated=True).to_numpy()], encoder=ENCODER)
    assert not columns.is_terminated.any()


def test_lookback_is_left_out() -> None:
    chunk = episode(1.0, 4, len_lookback_buffer=2).to_numpy()
    columns = columns_from_episodes([chunk], encoder=ENCODER)
    assert columns.obs[:, 0].tolist() == [3, 4]
    assert columns.rewards.tolist() == [30, 40]
    assert columns.action_logp.tolist() == [-3, -4]


def test_chunks_without_steps_are_passed_over() -> None:
    empty = SingleAgentEpisode("empty", observations=[np.zeros(2, np.float32)]).to_numpy()
    columns = columns_from_episodes([empty, episode(1.0, 2).to_numpy()], encoder=ENCODER)
    assert columns.lengths.tolist() == [2]
    with pytest.raises(EpisodeError, match="1 episodes with 0 steps"):
        columns_from_episodes([empty], encoder=ENCODER)


def test_episode_of_random_actions_cannot_be_learnt_from() -> None:
    chunk = episode(1.0, 2, extra_model_outputs=None).to_numpy()
    with pytest.raises(EpisodeError, match=r"no action_logp and no action_dist_inputs.*random"):
        columns_from_episodes([chunk], encoder=ENCODER)


def test_episode_of_lists_is_refused() -> None:
    with pytest.raises(EpisodeError, match=r"to_numpy\(\)"):
        columns_from_episodes([episode(1.0, 2)], encoder=ENCODER)


def test_memory_of_observations_is_used_again_only_when_nobody_holds_it() -> None:
    memory = RowMemory()
    first = memory.rows(3, 2)
    first[:] = 1.0
    place = first.ctypes.data
    row = first[1]
    del first
    second = memory.rows(3, 2)
    second[:] = 2.0
    assert row.tolist() == [1.0, 1.0]
    assert second.ctypes.data != place
    place = second.ctypes.data
    del second
    third = memory.rows(2, 2)
    assert (third.shape, third.ctypes.data) == ((2, 2), place)
    del third
    assert memory.rows(4, 2).shape == (4, 2)

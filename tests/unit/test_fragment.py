"""Columns of sub-envs side by side."""

import numpy as np
from gymnasium import spaces

from trainer.episodes import SingleAgentEpisode
from trainer.episodes.fragment import Fragment

FINE = 1.0 + 2.0**-40
"""A number that float32 cuts."""


def opened():
    fragment = Fragment(np.zeros((2, 1), np.float32), num_rows=3)
    fragment.open_actions(np.zeros(2, np.float32), {"value": np.zeros(2, np.float32)})
    return fragment


def test_a_step_of_a_wider_dtype_keeps_its_numbers():
    fragment = opened()
    fine = np.array([FINE, FINE])
    fragment.write_step(0, fine, np.zeros(2), {"value": fine})
    fragment.write_observations(0, fine[:, None])
    assert fragment.actions[0, 0] == FINE
    assert fragment.outputs["value"][1, 0] == FINE
    assert fragment.observations[0, 0, 0] == FINE


def test_an_observation_of_one_sub_env_of_a_wider_dtype_keeps_its_numbers():
    fragment = opened()
    fragment.write_observations_of(1, 2, np.array([[FINE]]))
    assert fragment.observations[1, 2, 0] == FINE


def test_a_look_back_of_a_wider_dtype_keeps_its_numbers():
    fragment, space = opened(), spaces.Box(-9.0, 9.0, (1,), np.float64)
    episode = SingleAgentEpisode("e", observation_space=space, action_space=space)
    episode.add_env_reset(np.array([FINE]))
    episode.add_env_step(
        np.array([FINE]), np.array(FINE), 1.0, extra_model_outputs={"value": np.float64(FINE)}
    )
    fragment.write_carried(0, 1, episode)
    assert fragment.actions[0, 1] == FINE
    assert fragment.outputs["value"][0, 1] == FINE
    assert fragment.is_recorded.tolist() == [[False, True, False], [False] * 3]


def test_columns_that_hold_a_value_already_stay_where_they_are():
    fragment = opened()
    before = fragment.observations
    fragment.write_observations(1, np.ones((2, 1), np.float16))
    assert fragment.observations is before

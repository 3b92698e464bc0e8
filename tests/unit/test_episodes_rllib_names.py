"""What code written for RLlib's old episodes finds."""

from __future__ import annotations

import pytest

from trainer.episodes import SingleAgentEpisode
from trainer.errors import EpisodeError


def played() -> SingleAgentEpisode:
    episode = SingleAgentEpisode("e")
    episode.add_env_reset("o0", {"i": 0})
    outputs = {"action_logp": -1.0}
    episode.add_env_step("o1", "a1", 1, {"i": 1}, extra_model_outputs=outputs)
    episode.add_env_step("o2", "a2", 2, {"i": 2}, extra_model_outputs=outputs)
    return episode


def test_old_attributes() -> None:
    episode = played()
    episode.env_id = 4
    assert (episode.episode_id, episode.env_id, episode.length) == ("e", 4, 2)
    assert episode.total_reward == 3.0
    assert episode.agent_rewards == {("default_agent", "default_policy"): 3.0}
    assert (episode.custom_metrics, episode.user_data, episode.hist_data) == ({}, {}, {})
    assert (episode.get_agents(), episode.policy_for()) == (["default_agent"], "default_policy")
    assert (episode.started, episode.is_finalized) == (True, False)
    named = SingleAgentEpisode("e", agent_id="a", module_id="m")
    assert named.agent_rewards == {("a", "m"): 0.0}
    assert (named.length, named.started) == (-1, False)


@pytest.mark.parametrize("agent", [None, "agent0", "default_agent"])
def test_newest_items(agent: str | None) -> None:
    episode = played()
    assert episode.last_observation_for(agent) == "o2"
    assert episode.last_raw_obs_for(agent) == "o2"
    assert episode.last_info_for(agent) == {"i": 2}
    assert (episode.last_action_for(agent), episode.prev_action_for(agent)) == ("a2", "a1")
    assert (episode.last_reward_for(agent), episode.prev_reward_for(agent)) == (2.0, 1.0)
    assert episode.last_extra_action_outs_for(agent) == {"action_logp": -1.0}
    assert episode.rnn_state_for(agent) == []


def test_newest_items_of_a_fresh_episode_are_none() -> None:
    episode = SingleAgentEpisode("e")
    assert episode.last_info_for() is None
    assert episode.last_observation_for() is None
    assert episode.last_reward_for() is None
    assert episode.prev_action_for() is None


def test_an_info_is_found_right_after_a_cut() -> None:
    successor = played().cut(1)
    assert successor.last_info_for() == {"i": 2}
    assert successor.last_action_for() == "a2"
    assert successor.prev_action_for() is None


def test_an_unknown_agent_is_an_error() -> None:
    with pytest.raises(EpisodeError, match=r"no agent 'car_1'.*'default_agent'"):
        played().last_info_for("car_1")


def test_finalize_is_to_numpy() -> None:
    episode = SingleAgentEpisode("e")
    episode.add_env_reset(0)
    episode.add_env_step(1, 0, 1.0)
    episode.finalize()
    assert episode.is_finalized
    episode.add_env_step(2, 0, 1.0)
    assert episode.get_observations().tolist() == [0, 1, 2]

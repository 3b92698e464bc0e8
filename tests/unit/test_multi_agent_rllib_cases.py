"""What RLlib's own tests ask of its MultiAgentEpisode, asked of ours in our words.

Cuts, joins, returns and states are asked of random episodes (`test_multi_agent_properties`). Where
we answer otherwise than RLlib, a test says so by its name, and docs/multi-agent.md has the reasons
in a table.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

from trainer import EpisodeError, MultiAgentEpisode
from trainer.types import AgentId

AGENTS: Final[list[AgentId]] = [f"agent_{number}" for number in range(10)]


def empty(**settings: Any) -> MultiAgentEpisode:
    return MultiAgentEpisode("ten", possible_agents=AGENTS, **settings)


SMALL: Final[dict[str, Any]] = {
    "observations": [{"a": 0, "b": 0, "c": 0}, {"a": 1, "c": 1, "d": 1}, {"b": 2, "d": 2}],
    "actions": [{"a": 0, "b": 0, "c": 0}, {"a": 1, "c": 1, "d": 1}],
    "rewards": [{"a": 0.5, "c": 0.5, "d": 0.5}, {"b": 1.0, "d": 1.0}],
    "infos": [{"a": {}, "b": {}, "c": {}}, {"a": {}, "c": {}, "d": {}}, {"b": {}, "d": {}}],
    "extra_model_outputs": [
        {"a": {"x": 0}, "b": {"x": 0}, "c": {"x": 0}},
        {"a": {"x": 1}, "c": {"x": 1}, "d": {"x": 1}},
    ],
}
"""b acts at 0 and waits until 2; a and c act at 1 and are not observed; d comes at 1; e never."""


def small(**settings: Any) -> MultiAgentEpisode:
    given = {"possible_agents": "abcde", "len_lookback_buffer": 0, **settings}
    return MultiAgentEpisode("small", **given, **SMALL)


# ---- making


def test_agents_that_never_come_have_no_episode() -> None:
    episode = small()
    assert episode.agent_ids == {"a", "b", "c", "d"}
    lengths = {agent: len(own) for agent, own in episode.agent_episodes.items()}
    assert lengths == {"a": 1, "b": 1, "c": 1, "d": 1}


# ---- growing


def test_actions_and_rewards_wait_for_an_observation() -> None:
    episode = small()
    assert dict(episode.hanging) == {"a": (1, 1, 0.0, {"x": 1}), "c": (1, 1, 0.0, {"x": 1})}
    episode.add_env_step(
        {"a": 3, "b": 3},
        {"b": 3, "d": 3},
        {"a": 2.0, "b": 2.0, "c": 2.0, "e": 2.0},
        extra_model_outputs={"b": {"x": 2}, "d": {"x": 2}},
    )
    assert episode.hanging["c"][2] == 2.0
    assert episode.hanging["d"][:3] == (2, 3, 0.0)
    assert episode.agent_episodes["a"].get_rewards() == [0.5, 2.0]
    assert episode.agent_episodes["b"].get_rewards() == [1.0, 2.0]
    assert dict(episode.reward_before_start) == {"d": 0.5, "e": 2.0}


# ---- getters


def test_getters_by_env_step() -> None:
    episode = small()
    assert episode.get_observations(-1) == {"b": 2, "d": 2}
    assert episode.get_observations(-2) == {"a": 1, "c": 1, "d": 1}
    assert episode.get_observations([-1, -2]) == {"a": [1], "b": [2], "c": [1], "d": [2, 1]}
    assert episode.get_observations([-1, -2], return_list=True) == [
        {"b": 2, "d": 2},
        {"a": 1, "c": 1, "d": 1},
    ]
    assert episode.get_observations(slice(0, 2)) == {"a": [0, 1], "b": [0], "c": [0, 1], "d": [1]}
    assert episode.get_actions(-1) == {"a": 1, "c": 1, "d": 1}
    assert episode.get_actions(0, agent_ids=["b", "d"]) == {"b": 0}
    assert episode.get_rewards(0) == {"a": 0.5, "b": 1.0, "c": 0.5}
    assert episode.get_rewards(1) == {"a": 0.0, "c": 0.0, "d": 1.0}
    assert episode.get_extra_model_outputs("x", -1) == {"a": 1, "c": 1, "d": 1}
    assert episode.get_infos(-1) == {"b": {}, "d": {}}


def test_getters_by_own_steps() -> None:
    episode = small()
    assert episode.get_observations(-1, env_steps=False) == {"a": 1, "b": 2, "c": 1, "d": 2}
    assert episode.get_observations(0, env_steps=False) == {"a": 0, "b": 0, "c": 0, "d": 1}
    assert episode.get_actions(env_steps=False) == {"a": [0, 1], "b": [0], "c": [0, 1], "d": [1]}
    assert episode.get_rewards([-1], env_steps=False, agent_ids=["b", "d"]) == {
        "b": [1.0],
        "d": [1.0],
    }
    assert episode.get_observations(3, fill=-9, env_steps=False, agent_ids="a") == {"a": -9}


def test_getters_reach_into_the_look_back() -> None:
    episode = small(len_lookback_buffer=2)
    assert (episode.env_t_started, len(episode)) == (2, 0)
    assert episode.get_actions(-1, neg_index_as_lookback=True) == {"d": 1}
    # a and c acted in the look-back and are still not observed: shown where this chunk begins.
    assert episode.get_observations(0) == {"a": 1, "b": 2, "c": 1, "d": 2}
    assert episode.get_observations(-2, neg_index_as_lookback=True) == {"a": 0, "b": 0, "c": 0}


def test_who_acts_next_and_who_stepped() -> None:
    episode = small()
    assert episode.get_agents_to_act() == {"b", "d"}
    assert episode.get_agents_that_stepped() == {"b", "d"}
    assert episode.get_terminateds() == {**dict.fromkeys("abcd", False), "__all__": False}
    assert small(terminateds=True).get_terminateds()["__all__"]
    assert small(truncateds=True).get_truncateds() == {
        **dict.fromkeys("abcd", True),
        "__all__": True,
    }


def test_data_are_overwritten_in_the_episode_of_an_agent() -> None:
    episode = small()
    episode.agent_episodes["d"].set_observations(new_data=7, at_indices=-1)
    episode.agent_episodes["d"].set_rewards(new_data=[5.0])
    assert episode.get_observations(-1) == {"b": 2, "d": 7}
    assert episode.get_rewards(1, "d") == {"d": 5.0}


# ---- cutting, joining, slicing


# ---- returns, lengths, states


# ---- where we answer otherwise


def test_the_end_of_those_seen_so_far_is_not_the_end_of_the_episode() -> None:
    episode = empty()
    episode.add_env_reset({"agent_0": 0})
    episode.add_env_step({"agent_0": 1}, {"agent_0": 0}, {}, terminateds={"agent_0": True})
    assert not episode.is_done


def test_a_limit_for_each_agent_is_a_limit_for_the_episode() -> None:
    episode = MultiAgentEpisode("e", possible_agents=["a", "b"])
    episode.add_env_reset({"a": 0, "b": 0})
    flags = {"a": True, "b": True}
    episode.add_env_step({"a": 1, "b": 1}, {"a": 0, "b": 0}, {}, truncateds=flags)
    assert (episode.is_truncated, episode.is_terminated) == (True, False)
    assert episode.get_truncateds()["__all__"]


def test_an_action_is_asked_of_everybody_who_was_observed() -> None:
    episode = small()
    with pytest.raises(EpisodeError, match=r"'b' .* was observed at env step 2"):
        episode.add_env_step({"d": 3}, {"d": 1}, {}, extra_model_outputs={"d": {"x": 1}})

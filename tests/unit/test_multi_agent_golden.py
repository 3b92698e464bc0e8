"""Golden episodes of several agents, built by hand: every row, return, end and count."""

import pytest

from checkpoints import encode
from tests.multi_agent_scripts import (
    G1,
    G2,
    G3,
    G4,
    G6,
    G7,
    G8,
    G9,
    G10,
    G11,
    G12,
    G13,
    G14,
    G15,
    G16,
    GOLDEN,
    chunks_of,
    ends,
    played,
    rows,
    rows_of_all,
)
from trainer import EnvContractError, EpisodeError, MultiAgentEpisode

A_OF_THREE = [(0, 5, 1.0, 1), (1, 6, 1.0, 2), (2, 7, 1.0, 3)]


def as_bytes(episode):
    return encode(episode.get_state())


def test_g1_an_agent_starts_late():
    episode = played(G1)
    assert rows(episode) == {"A": A_OF_THREE, "B": [(20, 5, 2.0, 21), (21, 6, 3.0, 22)]}
    assert ends(episode) == {"A": "T", "B": "T"}
    assert (len(episode), episode.env_steps(), episode.agent_steps()) == (3, 3, 5)
    assert episode.env_t_to_agent_t["B"] == ["S", 0, 1, 2]
    assert episode.agent_t_to_env_t("B").tolist() == [1, 2, 3]
    assert dict(episode.reward_before_start) == {"B": 5.0}
    assert (episode.get_return(), episode.get_return(False)) == (13.0, 8.0)
    assert episode.get_agent_returns() == {"A": 3.0, "B": 10.0}
    by_env_step = [{"A": 1.0}, {"A": 1.0, "B": 2.0}, {"A": 1.0, "B": 3.0}]
    assert episode.get_rewards(return_list=True) == by_env_step
    assert episode.get_rewards(0) == {"A": 1.0}
    assert episode.get_rewards(0, env_steps=False) == {"A": 1.0, "B": 2.0}


def test_g2_an_agent_ends_early():
    episode = played(G2, 1)
    assert episode.get_agents_to_act() == {"A"}
    assert episode.get_agents_that_stepped() == {"A", "B"}
    assert episode.ended_agents == {"B": 1}
    assert not episode.is_done
    episode = played(G2)
    assert episode.is_terminated
    assert not episode.is_truncated
    assert {agent: len(own) for agent, own in rows(episode).items()} == {"A": 3, "B": 1}
    assert ends(episode) == {"A": "T", "B": "T"}
    assert episode.get_observations(2) == {"A": 2}
    assert episode.get_return() == 2.0
    assert episode.get_terminateds() == {"A": True, "B": True, "__all__": True}
    assert episode.get_truncateds() == {"A": False, "B": False, "__all__": False}


def test_g3_an_agent_that_has_ended_does_not_come_back():
    episode = played(G3, 1)
    before = as_bytes(episode)
    with pytest.raises(EnvContractError) as caught:
        episode.add_env_step(
            {"A": 2, "B": 22}, {"A": 6}, {"A": 1.0}, extra_model_outputs={"A": {"logp": -1.0}}
        )
    text = str(caught.value)
    assert "'B' of episode 'golden' ended at env step 1 and was observed again at 2" in text
    assert "another id" in text
    assert as_bytes(episode) == before


def test_g4_an_agent_is_rewarded_while_it_waits():
    episode = played(G4, 2)
    assert episode.get_agents_that_stepped() == {"A"}
    assert episode.hanging["B"] == (0, 5, 0.75, {"logp": 0.0})
    assert episode.get_actions(0) == {"A": 5, "B": 5}
    assert episode.get_rewards(0) == {"A": 1.0, "B": 0.75}
    assert episode.get_rewards(env_steps=False) == {"A": [1.0, 1.0], "B": [0.75]}
    assert episode.agent_steps() == 2
    assert (episode.get_return(), episode.get_return(False)) == (2.75, 2.0)
    episode = played(G4)
    b_rows = [(20, 5, 1.75, 21), (21, 6, 2.0, 22)]
    assert rows(episode) == {"A": [*A_OF_THREE, (3, 8, 1.0, 4)], "B": b_rows}
    assert ends(episode) == {"A": "U", "B": "U"}
    assert episode.env_t_to_agent_t["B"] == [0, "S", "S", 1, 2]
    rewards = [{"A": 1.0, "B": 1.75}, {"A": 1.0}, {"A": 1.0}, {"A": 1.0, "B": 2.0}]
    assert episode.get_rewards(return_list=True) == rewards
    assert (episode.agent_steps(), episode.get_return()) == (6, 7.75)
    assert (episode.is_truncated, episode.is_terminated) == (True, False)
    assert episode.agent_steps_of("B") == 2  # so B used rows 0 and 1 of its noise


def test_g5_a_cut_while_an_agent_waits():
    first, second = chunks_of(G4, {2})
    assert (len(first), rows(first)) == (2, {"A": A_OF_THREE[:2], "B": []})
    assert first.agent_episodes["B"].get_observations() == [20]
    assert first.agent_episodes["A"].get_observations(-1) == 2
    assert not first.agent_episodes["A"].is_done  # so learning bootstraps from it
    assert first.num_agent_steps_carried_over == 1
    assert second.env_t_started == 2
    assert second.agent_t_started == {"A": 2, "B": 0}
    assert second.get_actions(0) == {"A": 7}
    assert second.get_actions(0, env_steps=False) == {"A": 7, "B": 5}
    assert second.get_observations(0) == {"A": 2}
    assert second.get_observations(0, env_steps=False) == {"A": 2, "B": 20}
    assert second.agent_t_to_env_t("B").tolist() == [0, 3, 4]  # the clock keeps the true step
    assert rows_of_all([first, second]) == rows(played(G4))
    assert second.num_agent_steps_carried_over == 0
    assert second.get_return() == 7.75
    first.concat_episode(second)
    assert as_bytes(first) == as_bytes(played(G4))


def test_g6_turns():
    episode = played(G6)
    assert rows(episode) == {"X": [(0, 5, 0.0, 1), (1, 6, 1.0, 1)], "O": [(20, 5, -1.0, 20)]}
    assert ends(episode) == {"X": "T", "O": "T"}
    assert (episode.env_steps(), episode.agent_steps(), episode.get_return()) == (3, 3, 0.0)
    assert episode.get_rewards(return_list=True) == [{"X": 0.0}, {"O": -1.0}, {"X": 1.0}]
    chunks = list(chunks_of(G6, {1, 2, 3}))
    assert rows_of_all(chunks) == rows(episode)


@pytest.mark.parametrize(
    ("script", "expected", "num_unseen"),
    [
        (G7, {"A": "U", "B": "U"}, 0),  # one by one
        (G8, {"A": "T", "B": "U"}, 0),
        (G12, {"A": "U", "B": "U"}, 1),  # B without a last observation
        (G13, {"A": "T", "B": "T"}, 0),  # B without a last observation
    ],
)
def test_g7_g8_g12_g13_an_episode_is_truncated_if_one_agent_is(script, expected, num_unseen):
    episode = played(script)
    assert ends(episode) == expected
    is_truncated = "U" in expected.values()
    assert (episode.is_done, episode.is_truncated) == (True, is_truncated)
    assert episode.is_terminated is not is_truncated
    flags = {agent: way == "U" for agent, way in expected.items()}
    assert episode.get_truncateds() == {**flags, "__all__": is_truncated}
    assert episode.num_truncations_without_observation == num_unseen
    if script in (G12, G13):  # the one before stands in
        assert rows(episode)["B"] == [(20, 5, 0.75, 20)]


def test_g9_an_episode_goes_on_while_an_agent_is_to_come():
    episode = played(G9, 1)
    assert not episode.is_done
    assert not episode.get_agents_to_act()
    episode = played(G9, 2)
    assert episode.get_agents_to_act() == {"B"}
    episode = played(G9)
    assert episode.is_done
    assert episode.is_terminated


def test_g10_steps_in_which_nobody_acts():
    episode = played(G10, 0)
    assert episode.is_reset
    assert played(G10, 1).num_empty_steps == 1
    episode = played(G10, 2)
    assert (episode.env_t, episode.env_steps(), episode.agent_steps()) == (2, 2, 0)
    assert episode.get_agents_to_act() == {"A"}
    assert episode.num_empty_steps == 0
    assert episode.agent_t_started == {"A": 0}  # its first noise row is row 0


def test_g11_a_reward_after_the_end():
    episode = played(G11)
    assert rows(episode)["B"] == [(20, 5, 3.0, 21)]
    assert ends(episode)["B"] == "T"
    assert (episode.get_return(), episode.num_rewards_after_end) == (6.0, 1)
    assert episode.num_rewards_after_end_unlearnt == 0
    first, second = chunks_of(G11, {2})
    assert rows(first)["B"] == [(20, 5, -1.0, 21)]
    assert second.agent_ids == {"A"}
    assert second.get_agent_returns() == {"A": 3.0, "B": 3.0}
    assert dict(second.rewards_after_end) == {"B": 4.0}
    assert (second.num_rewards_after_end, second.num_rewards_after_end_unlearnt) == (1, 1)
    with pytest.raises(EnvContractError, match=r"'B' .* ended at env step 1 and got the reward 4"):
        played(G11, rewards_after_end="error")


def test_g14_an_agent_appears_and_ends_at_once():
    episode = played(G14, 1)
    assert episode.get_agents_to_act() == {"A"}
    assert episode.ended_agents == {"B": 1}
    assert (len(episode.agent_episodes["B"]), ends(episode)["B"]) == (0, "T")
    assert episode.get_agent_returns() == {"A": 1.0, "B": 2.0}
    assert rows(episode)["B"] == []


def test_g15_infos_of_all_together():
    episode = played(G15)
    assert episode.get_common_infos() == [{"w": 1}, {"w": 2}]
    assert episode.get_common_infos(-1) == {"w": 2}
    assert episode.get_infos(1) == {"A": {"k": 3}}
    successor = episode.cut(1)
    assert successor.get_common_infos(0) == {"w": 2}
    assert successor.get_common_infos(-2) == {"w": 1}
    again = MultiAgentEpisode.from_state(successor.get_state())
    assert again.get_common_infos(slice(-2, None)) == [{"w": 1}, {"w": 2}]


@pytest.mark.parametrize("cuts", [set(), {1, 2, 3}])
def test_g16_agents_that_share_a_module(cuts):
    modules = {1: "m", 2: "m"}
    *_, last = chunks_of(G16, cuts, agent_module_ids=modules)
    assert last.get_agent_returns() == {1: 3.0, 2: 5.0}
    assert [last.module_for(agent) for agent in last.agent_ids] == ["m", "m"]
    assert all(type(agent) is int for agent in last.get_agent_returns())


@pytest.mark.parametrize("name", GOLDEN)
@pytest.mark.parametrize("lookback", [0, 1, 2])
def test_cut_everywhere_and_joined_it_is_the_episode_that_was_never_cut(name, lookback):
    script = GOLDEN[name]
    first, *others = chunks_of(script, set(range(20)), lookback=lookback)
    for chunk in [first, *others]:
        chunk.validate()
    for chunk in others:
        first.concat_episode(chunk)
    first.validate()
    assert as_bytes(first) == as_bytes(played(script))


@pytest.mark.parametrize("as_numpy", [False, True])
def test_a_row_open_in_a_slice_is_completed_by_the_slice_behind(as_numpy):
    whole = played(G4)  # B waits from env step 0 to 3
    if as_numpy:
        whole.to_numpy()
    for split in range(4):
        joined = whole[:split]
        joined.concat_episode(whole[split:])
        joined.validate()
        assert as_bytes(joined) == as_bytes(whole)
    joined = whole[:1]
    joined.concat_episode(whole[1:2])  # which has nothing of B
    assert joined.hanging["B"] == (0, 5, 1.75, {"logp": 0.0})
    joined.concat_episode(whole[2:])
    assert as_bytes(joined) == as_bytes(whole)


def test_a_slice_with_other_extra_outputs_cannot_be_appended():
    table = table_of(G4)
    table["extra_model_outputs"] = [
        {"A": outputs["A"], "B": {"value": 0.5}} for outputs in table["extra_model_outputs"]
    ]
    settings = {"possible_agents": "AB", "len_lookback_buffer": 0, "truncateds": True}
    other = MultiAgentEpisode("golden", **settings, **table)
    joined = played(G4)[:2]
    before = as_bytes(joined)
    with pytest.raises(EpisodeError, match="agent 'B', they have different extra outputs"):
        joined.concat_episode(other[2:])
    assert as_bytes(joined) == before


def test_an_agent_that_ended_where_two_slices_meet_ends_once():
    whole = played(G2)  # B ends at env step 1
    assert whole[1:].agent_ids == {"A", "B"}
    joined = whole[:1]
    joined.concat_episode(whole[1:])
    assert rows(joined) == rows(whole)
    assert joined.ended_agents == whole.ended_agents


def table_of(script):
    """The data of a script as the constructor takes them."""
    whole = played(script)
    steps = script.steps
    return {
        "observations": [step.observations for step in steps],
        "actions": whole.get_actions(return_list=True),
        "rewards": [step.rewards for step in steps[1:]],
        "infos": [step.infos for step in steps],
        "extra_model_outputs": whole.get_extra_model_outputs(return_list=True),
    }


@pytest.mark.parametrize(
    ("script", "flags"),
    [
        (G1, {"terminateds": True}),
        (G4, {"truncateds": True}),
        (G2, {"terminateds": {"A": True, "B": True}}),  # B ended before
    ],
)
def test_an_episode_written_down_is_the_one_that_was_played(script, flags):
    episode = MultiAgentEpisode(
        "golden", possible_agents="AB", len_lookback_buffer=0, **flags, **table_of(script)
    )
    assert as_bytes(episode) == as_bytes(played(script))

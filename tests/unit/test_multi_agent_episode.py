"""Episodes of several agents: getters, chunks, parts, state, and what is refused."""

import copy
import pickle

import cloudpickle
import numpy as np
import pytest
from gymnasium import spaces

from checkpoints import decode, encode
from tests.multi_agent_scripts import (
    G1,
    G2,
    G4,
    G10,
    chunks_of,
    play_step,
    played,
    rows,
    started,
)
from trainer import (
    EnvContractError,
    EpisodeError,
    EpisodeIndexError,
    MultiAgentEpisode,
    UnknownOutputError,
)
from trainer.testing import AgentScript, ScriptedStep


def as_bytes(episode):
    return encode(episode.get_state())


# E19: G4's getters. Actions are 5, 6, 7, 8 of A at env steps 0 to 3, and 5, 6 of B at 0 and 3.

ACTIONS_OF_G4 = [
    (None, {}, {"A": [5, 6, 7, 8], "B": [5, 6]}),
    (1, {}, {"A": 6}),
    (-2, {}, {"A": 7}),
    ([0, 3], {}, {"A": [5, 8], "B": [5, 6]}),
    ([-1, 1], {}, {"A": [8, 6], "B": [6]}),
    (slice(1, 3), {}, {"A": [6, 7]}),
    (slice(-2, None), {}, {"A": [7, 8], "B": [6]}),
    (None, {"agent_ids": "B"}, {"B": [5, 6]}),
    (1, {"agent_ids": ["B"]}, {}),
    (1, {"env_steps": False}, {"A": 6, "B": 6}),
    (3, {"env_steps": False}, {"A": 8}),
    (-2, {"env_steps": False}, {"A": 7, "B": 5}),
    ([0, 1], {"env_steps": False, "agent_ids": ["B", "A"]}, {"A": [5, 6], "B": [5, 6]}),
    (slice(2, None), {"env_steps": False}, {"A": [7, 8]}),
    (slice(2, None), {"env_steps": False, "agent_ids": ["B", "A"]}, {"A": [7, 8], "B": []}),
    (None, {"return_list": True}, [{"A": 5, "B": 5}, {"A": 6}, {"A": 7}, {"A": 8, "B": 6}]),
    (1, {"return_list": True, "agent_ids": "B"}, [{}]),
    ([3, 0], {"return_list": True}, [{"A": 8, "B": 6}, {"A": 5, "B": 5}]),
    (slice(1, 3), {"return_list": True}, [{"A": 6}, {"A": 7}]),
]


@pytest.mark.parametrize(("indices", "options", "expected"), ACTIONS_OF_G4)
@pytest.mark.parametrize("numpy", [False, True])
def test_getters_follow_the_table(indices, options, expected, numpy):
    episode = played(G4)
    if numpy:
        episode.to_numpy()
    found = episode.get_actions(indices, **options)
    assert plain(found) == expected


def plain(value):
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def test_observations_have_an_item_for_the_newest_env_step():
    episode = played(G4)
    assert episode.get_observations() == {"A": [0, 1, 2, 3, 4], "B": [20, 21, 22]}
    assert episode.get_observations(-2) == {"A": 3, "B": 21}
    assert episode.get_observations([0, 4]) == {"A": [0, 4], "B": [20, 22]}


def test_outputs_are_read_by_name_or_all_together():
    episode = played(G4)
    assert episode.get_extra_model_outputs("logp", 3) == {"A": -3.0, "B": -1.0}
    assert episode.get_extra_model_outputs(indices=1) == {"A": {"logp": -1.0}}
    listed = episode.get_extra_model_outputs(indices=slice(0, 2), return_list=True)
    assert listed == [{"A": {"logp": 0.0}, "B": {"logp": 0.0}}, {"A": {"logp": -1.0}}]
    with pytest.raises(UnknownOutputError, match="did you mean 'logp'"):
        episode.get_extra_model_outputs("logq")


def test_an_open_row_is_the_newest_row_in_both_ways_of_counting():
    for episode in (played(G4, 2), played(G4, 2).to_numpy()):
        assert plain(episode.get_actions()) == {"A": [5, 6], "B": [5]}
        assert plain(episode.get_actions(-1, env_steps=False)) == {"A": 6, "B": 5}
        assert plain(episode.get_rewards(None, "B")) == {"B": [0.75]}
        assert plain(episode.get_extra_model_outputs("logp", 0)) == {"A": 0.0, "B": 0.0}
        assert len(episode.agent_episodes["B"]) == 0
        assert episode.hanging["B"][:3] == (0, 5, 0.75)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"indices": 3}, EpisodeIndexError, "lies outside the data"),
        ({"env_steps": False, "return_list": True}, ValueError, "return_list=True"),
        ({"indices": 1, "agent_ids": ["B"], "env_steps": False}, IndexError, "Agent 'B'"),
        ({"indices": "x", "env_steps": False}, EpisodeIndexError, "is not an index"),
    ],
)
def test_what_is_not_there_is_refused_of_agents_that_are_named(arguments, error, text):
    episode = played(G2)
    assert episode.get_actions(1, env_steps=False) == {"A": 6}, "B is too short"
    with pytest.raises(error, match=text):
        episode.get_actions(**arguments)


def test_fill_stands_in_outside_and_in_a_gap():
    episode = played(G4)
    assert episode.get_rewards(4, fill=0.0) == {"A": 0.0, "B": 0.0}
    assert episode.get_rewards(1, fill=0.0) == {"A": 1.0, "B": 0.0}
    assert episode.get_rewards(1) == {"A": 1.0}
    assert episode.get_observations([0, 1, 3], fill=-1) == {"A": [0, 1, 3], "B": [20, -1, 21]}
    assert episode.get_rewards(slice(2, 6), fill=0.0) == {
        "A": [1.0, 1.0, 0.0, 0.0],
        "B": [0.0, 2.0, 0.0, 0.0],
    }
    assert episode.get_rewards(slice(3, 5), fill=9.0, return_list=True) == [
        {"A": 1.0, "B": 2.0},
        {"A": 9.0, "B": 9.0},
    ]
    assert plain(episode.to_numpy().get_rewards([3, 4], fill=0.0)) == {
        "A": [1.0, 0.0],
        "B": [2.0, 0.0],
    }
    assert played(G1, 0).get_observations(2, ["B"], fill=0) == {"B": 0}


def test_discrete_values_are_coded_by_the_space_of_their_agent():
    seen = {"A": spaces.Discrete(5), "B": spaces.Discrete(3, start=20)}
    episode = MultiAgentEpisode("e", observation_space=seen)
    episode.add_env_reset({"A": 4, "B": 20})
    coded = plain(episode.get_observations(0, one_hot_discrete=True))
    assert coded == {"A": [0.0, 0.0, 0.0, 0.0, 1.0], "B": [1.0, 0.0, 0.0]}
    assert episode.possible_agents == {"A", "B"}


def test_look_back_is_read_by_either_kind_of_negative_index():
    _, second = chunks_of(G4, {3}, lookback=3)
    assert second.get_actions(-3, neg_index_as_lookback=True) == {"A": 5, "B": 5}
    assert second.get_rewards(-4) == {"A": 1.0, "B": 1.75}
    with pytest.raises(EpisodeIndexError):
        second.get_rewards(-5)


def test_only_the_chunk_that_follows_can_be_appended():
    def second(**settings):
        return list(chunks_of(G4, {2}, **settings))[1]

    first = next(chunks_of(G4, {2}))
    before = as_bytes(first)
    other_id = MultiAgentEpisode("other", possible_agents="AB")
    other_id.add_env_reset({"A": 2})
    other_observation, other_action = second(), second()
    other_observation.agent_episodes["A"].set_observations(new_data=99, at_indices=0)
    other_action.agent_episodes["B"].set_actions(new_data=77, at_indices=0)
    wrong = {
        "their ids differ": other_id,
        "ends at env step 2, the other begins at 3": list(chunks_of(G4, {3}))[1],
        "agent 'A', the last observation": other_observation,
        "agent 'B', the action that the first one waits with": other_action,
        "agent 'A', the modules differ": second(agent_module_ids={"A": "m"}),
    }
    for text, chunk in wrong.items():
        with pytest.raises(EpisodeError, match=text):
            first.concat_episode(chunk)
        assert as_bytes(first) == before
    with pytest.raises(EpisodeError, match="is done"):
        played(G4).concat_episode(second())


def test_slices_by_env_steps():
    episode = played(G4)
    part = episode[1:3]
    assert (part.env_t_started, part.env_t, len(part)) == (1, 3, 2)
    # B acted before the part and is observed in it: it begins there.
    assert rows(part) == {"A": [(1, 6, 1.0, 2), (2, 7, 1.0, 3)], "B": []}
    assert part.agent_episodes["B"].get_observations() == [21]
    assert part.get_agents_to_act() == {"A", "B"}
    part = episode[0:2]
    assert part.hanging["B"] == (0, 5, 1.75, {"logp": 0.0})
    assert not part.is_done
    assert episode[1:2].agent_ids == {"A"}
    running = played(G4, 2)
    assert dict(running[0:2].hanging) == dict(running.hanging) == {"B": (0, 5, 0.75, {"logp": 0.0})}
    part = episode[3:]
    assert part.is_truncated
    assert part.agent_t_started == {"A": 3, "B": 1}
    assert as_bytes(episode[:]) == as_bytes(episode)
    part = episode.slice(slice(3, 4), len_lookback_buffer=3)
    assert part.get_actions(slice(-4, None)) == {"A": [5, 6, 7, 8], "B": [5, 6]}
    with pytest.raises(EpisodeError, match="step 2"):
        episode[::2]
    with pytest.raises(NotImplementedError):
        episode[1]


def test_what_is_under_way_at_the_end_of_given_data_is_seen_in_the_look_back():
    episode = MultiAgentEpisode(
        "e",
        observations=[{"A": 0, "B": 20}, {"A": 1}],
        actions=[{"A": 5, "B": 6}],
        rewards=[{"A": 1.0, "B": 2.0}],
        extra_model_outputs=[{"A": {"logp": 0.5}, "B": {"logp": 0.25}}],
    )
    assert episode.get_observations(-1) == {"A": 1}
    assert episode.get_observations(-2) == {"A": 0, "B": 20}
    assert episode.get_actions(-1) == {"A": 5, "B": 6}
    assert episode.get_rewards(-1) == {"A": 1.0, "B": 2.0}
    assert episode.get_extra_model_outputs("logp", -1) == {"A": 0.5, "B": 0.25}


def test_a_slice_has_the_rows_under_way_that_its_look_back_shows():
    episode = played(G4)
    part = episode.slice(slice(1, 2), len_lookback_buffer=1)
    assert part.get_observations([-2, -1]) == {"A": [1, 2]}
    assert part.get_actions(-1, neg_index_as_lookback=True) == {"A": 5, "B": 5}
    assert part.hanging["B"] == (0, 5, 1.75, {"logp": 0.0})
    assert part.get_agents_to_act() == {"A"}
    assert episode.slice(slice(1, 2), len_lookback_buffer=0).agent_ids == {"A"}
    # Who has ended is not shown in the look-back of what follows.
    assert played(G2).slice(slice(2, 3), len_lookback_buffer=2).agent_ids == {"A"}


@pytest.mark.parametrize("stop", [0, 2, 4])
def test_a_state_through_the_codec_gives_an_equal_episode(stop):
    spaces_by_agent = {"A": spaces.Discrete(30), "B": spaces.Discrete(30)}
    episode = played(G4, stop, number=17, agent_module_ids={"A": "m"})
    episode.custom_data["note"] = [1, np.ones(2)]
    encoded = as_bytes(episode)
    restored = MultiAgentEpisode.from_state(decode(encoded), observation_space=spaces_by_agent)
    assert as_bytes(restored) == encoded
    assert dict(restored.hanging) == dict(episode.hanging)
    assert restored.get_agents_to_act() == episode.get_agents_to_act()
    assert restored.number == 17
    assert restored.agent_episodes["A"].observation_space == spaces_by_agent["A"]
    if not restored.is_done:
        answer = G4.steps[stop + 1]
        acting = dict.fromkeys(restored.get_agents_to_act(), 5)
        outputs = {agent: {"logp": 0.0} for agent in acting}
        step = (answer.observations, acting, answer.rewards)
        for each in (restored, episode):
            each.add_env_step(*step, truncateds=answer.truncateds, extra_model_outputs=outputs)
        assert as_bytes(restored) == as_bytes(episode)


def test_a_snapshot_does_not_change_with_the_episode():
    episode = played(G4, 2)
    state = episode.get_state()
    before = encode(state)
    restored = MultiAgentEpisode.from_state(state)
    for each in (episode, restored):
        outputs = {"A": {"logp": -2.0}}
        each.add_env_step({"A": 3, "B": 21}, {"A": 7}, {"B": 1.0}, extra_model_outputs=outputs)
    assert encode(state) == before


DAMAGED = {
    "what": lambda state: state.update(what=1),
    r"\['lines'\]\[1\]\['value'\].*clock": lambda state: line(state, 1).pop("clock"),
    "2 env steps for 1 observations": lambda state: clocked(state, 1, 0, 1),
    r"\['lines'\]\[1\]\['value'\]\['clock'\]": lambda state: clocked(state, 1),
    "does not ascend to at most env_t=2": lambda state: clocked(state, 0, 0, 2, 1),
    "of agent 'C', not 'B'": lambda state: line(state, 1)["episode"].update(agent_id="C"),
    r"\['open'\]\['parts'\]\[0\]": lambda state: line(state, 1)["open"].update(parts=["much"]),
    "rewards": lambda state: line(state, 1)["episode"].update(rewards=[1.0]),
}


def line(state, number):
    return state["lines"][number]["value"]


def clocked(state, number, *env_steps):
    line(state, number)["clock"] = np.array(env_steps, np.int64)


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_state_is_refused_with_the_place(text):
    state = copy.deepcopy(played(G4, 2).get_state())
    DAMAGED[text](state)
    with pytest.raises(EpisodeError, match=text):
        MultiAgentEpisode.from_state(state)


def test_an_episode_travels_to_another_process():
    episode = played(G4, 2, agent_to_module_mapping_fn=lambda agent, _: f"m_{agent}")
    arrived = pickle.loads(cloudpickle.dumps(episode))
    assert as_bytes(arrived) == as_bytes(episode)
    assert arrived.module_for("A") == "m_A"
    assert arrived.get_agents_to_act() == {"A"}
    assert arrived.get_duration_s() > 0


def test_arrays_keep_open_rows_and_the_getters_answers():
    lists, arrays = played(G4, 2), played(G4, 2).to_numpy()
    assert arrays.is_numpy
    assert dict(arrays.hanging) == dict(lists.hanging)
    for name in ("observations", "actions", "rewards", "infos"):
        ours, theirs = getattr(lists, f"get_{name}"), getattr(arrays, f"get_{name}")
        assert plain(theirs()) == plain(ours())
        assert plain(theirs(env_steps=False)) == plain(ours(env_steps=False))
    outputs = {"A": {"logp": -2.0}}
    arrays.add_env_step(
        {"A": 3, "B": 21}, {"A": 7}, {"A": 1.0, "B": 1.0}, extra_model_outputs=outputs
    )
    assert plain(arrays.get_rewards()) == {"A": [1.0, 1.0, 1.0], "B": [1.75]}


# E31: what a hand-made episode may not do, and what an env may not answer.


LOGP = {"A": {"logp": 0.0}}


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"actions": {"A": 7, "B": 6}}, EpisodeError, "'B' .* owed no action: it acted at env"),
        ({"actions": {}}, EpisodeError, "'A' of episode 'golden' was observed at env step 2"),
        ({"actions": {"A": 7, "C": 1}}, EpisodeError, "no agent 'C' in `actions`"),
        ({"extra_model_outputs": {}}, EpisodeError, "'A' .* extra outputs"),
        ({"extra_model_outputs": {"A": {"other": 1.0}}}, EpisodeError, "'A' .* extra outputs"),
        ({"observations": {"A": 3, "b": 1}}, EnvContractError, "no agent 'b'.* Did you mean 'B'"),
        ({"rewards": {"C": 1.0}}, EnvContractError, "no agent 'C' in `rewards`"),
        ({"infos": {"__what__": {}}}, EnvContractError, "no agent '__what__' in `infos`"),
        ({"terminateds": {"C": True}}, EnvContractError, "no agent 'C' in `terminateds`"),
        ({"rewards": {"A": None}}, EnvContractError, "'A' got the reward None at env step 3"),
        ({"rewards": {"A": "1.5"}}, EnvContractError, "expected a number"),
        ({"observations": True}, EnvContractError, "got observations="),
        ({"actions": 3.0}, EnvContractError, "got actions="),
        ({"rewards": [1]}, EnvContractError, "got rewards="),
        ({"infos": True}, EnvContractError, "got infos="),
        ({"terminateds": 3.0}, EnvContractError, "got terminateds="),
    ],
)
def test_a_step_that_cannot_be_changes_nothing(given, error, text):
    episode = played(G4, 2)
    before = as_bytes(episode)
    step = {"observations": {"A": 3}, "actions": {"A": 7}, "rewards": {"A": 1.0}}
    with pytest.raises(error, match=text):
        episode.add_env_step(**{**step, "extra_model_outputs": LOGP, **given})
    assert as_bytes(episode) == before


def test_life_of_an_episode():
    episode = MultiAgentEpisode("e", possible_agents=["A"])
    with pytest.raises(EpisodeError, match="was not reset"):
        episode.add_env_step({"A": 0}, {}, {})
    with pytest.raises(EpisodeError, match="was not reset"):
        episode.cut()
    episode.add_env_reset({"A": 0})
    with pytest.raises(EpisodeError, match="was reset already"):
        episode.add_env_reset({"A": 0})
    episode.add_env_step({"A": 1}, {"A": 0}, {}, terminateds={"__all__": True})
    assert episode.get_rewards() == {"A": [0.0]}  # a missing reward is none
    with pytest.raises(EpisodeError, match="is done"):
        episode.add_env_step({"A": 1}, {"A": 0}, {})
    with pytest.raises(EpisodeError, match="is done"):
        episode.cut()


def test_rewards_of_one_agent_are_rewritten_and_the_return_stays_the_envs():
    first = played(G4, 2)
    second = first.cut()
    own = first.agent_episodes["A"]
    paid = list(own.rewards_list())
    own.set_rewards(new_data=[10.0, 10.0])
    own.note_rewrite(paid)
    assert first.get_rewards(0) == {"A": 10.0, "B": 0.75}
    assert first.get_return() == 2.75
    assert first.get_rewritten_return() == 20.75
    assert second.get_return() == 2.75
    assert second.get_rewritten_return() is None  # it was cut off before
    assert first.cut().get_rewritten_return() == 20.75


@pytest.mark.parametrize("order", [[10, 2, "a"], ["a", 10, 2], [2, "a", 10]])
def test_agents_come_in_canonical_order(order):
    episode = MultiAgentEpisode("e", possible_agents=order)
    episode.add_env_reset(dict.fromkeys(order, 0))
    assert list(episode.agent_ids) == [2, 10, "a"]
    assert list(episode.get_agents_to_act()) == [2, 10, "a"]
    assert list(episode.get_observations(0)) == [2, 10, "a"]
    assert episode.agent_ids == {"a", 2, 10}
    assert {"a", 2, 10} == episode.agent_ids
    twin = MultiAgentEpisode("e", possible_agents=sorted(order, key=str))
    twin.add_env_reset(dict.fromkeys(sorted(order, key=str), 0))
    assert as_bytes(twin) == as_bytes(episode)


def test_numpys_ids_count_as_the_envs_own():
    episode = MultiAgentEpisode("e", possible_agents=["a", 1])
    episode.add_env_reset({np.str_("a"): 0, np.int64(1): 0})
    assert [type(agent) for agent in episode.agent_ids] == [int, str]
    with pytest.raises(EnvContractError, match="no agent True"):
        MultiAgentEpisode("e", possible_agents=[1]).add_env_reset({True: 0})


@pytest.mark.parametrize("bad", [True, 1.5, None, "__all__", ("a", 1)])
def test_what_cannot_be_an_agent_is_refused(bad):
    with pytest.raises(EnvContractError, match="cannot be one"):
        MultiAgentEpisode("e", possible_agents=["a", bad])
    with pytest.raises(EnvContractError, match="no agent"):
        MultiAgentEpisode("e").add_env_reset({bad: 0})


def test_without_possible_agents_only_all_ends_an_episode():
    episode = MultiAgentEpisode("e")
    episode.add_env_reset({"A": 0})
    episode.add_env_step({"A": 1}, {"A": 0}, {}, terminateds={"A": True})
    assert not episode.is_done


def test_modules_are_assigned_once():
    calls = []

    def mapping(agent, episode):
        calls.append((agent, episode.id_))
        return f"module_{agent}"

    episode = played(G1, 0, agent_to_module_mapping_fn=mapping)
    assert calls == [("A", "golden"), ("B", "golden")]
    assert episode.agent_episodes["A"].module_id == "module_A"
    assert episode.module_for("B") == "module_B"
    with pytest.raises(EpisodeError, match="served by the module 'module_A'"):
        episode.assign_modules({"A": "other"})
    other = played(G1, 0)
    assert other.module_for("A") is None
    other.assign_modules({"A": "x", "B": "y"})
    assert other.agent_episodes["A"].module_id == "x"
    with pytest.raises(EpisodeError, match="served by the module 'y'"):
        other.assign_modules({"A": "x", "B": "z"})
    assert [other.module_for(agent) for agent in "AB"] == ["x", "y"]
    with pytest.raises(EpisodeError, match=r"no agent 'a' .* Did you mean 'A'"):
        episode.module_for("a")
    unknown = MultiAgentEpisode("e", agent_to_module_mapping_fn=mapping)
    unknown.add_env_reset({"A": 0})
    unknown.add_env_step({"A": 1, "C": 0}, {"A": 0}, {})
    assert unknown.agent_episodes["C"].module_id == "module_C"


def test_ids_of_the_agents_episodes():
    episode = played(G1, agent_episode_ids={"A": "own"})
    assert episode.agent_episode_ids == {"A": "own", "B": "golden/B"}
    assert episode.agent_episodes["B"].multi_agent_episode_id == "golden"
    assert [chunk.agent_episode_ids["A"] for chunk in chunks_of(G1, {1, 2})] == ["golden/A"] * 3


def test_data_of_users_go_on_at_a_cut():
    episode = played(G4, 2)
    episode.custom_data["n"] = [1]
    episode.user_data["lock"] = object()
    episode.hist_data["h"] = [1.0]
    successor = episode.cut()
    successor.custom_data["n"].append(2)
    assert (episode.custom_data, successor.custom_data) == ({"n": [1]}, {"n": [1, 2]})
    assert (list(episode.user_data), list(successor.user_data)) == ([], ["lock"])
    assert successor.hist_data == {"h": [1.0]}


def test_time_is_played_time():
    episode = MultiAgentEpisode("e", possible_agents=["A"])
    now = [0.0]
    episode.stopwatch = type(episode.stopwatch)(clock=lambda: now[0])
    episode.add_env_reset({"A": 0})
    now[0] = 2.0
    episode.add_env_step({"A": 1}, {"A": 0}, {})
    successor = episode.cut()
    now[0] = 10.0
    assert successor.get_duration_s() == 2.0
    successor.add_env_step({"A": 2}, {"A": 0}, {})
    now[0] = 11.0
    assert successor.get_duration_s() == 3.0


def test_infos_of_those_who_are_not_observed_are_kept():
    episode = started(G4)
    episode.add_env_step({"A": 1}, {"A": 5, "B": 5}, {}, {"B": {"waits": 1}, "A": {"k": 2}})
    assert episode.get_infos(1) == {"A": {"k": 2}, "B": {"waits": 1}}
    assert episode.get_infos(env_steps=False) == {"A": [{}, {"k": 2}], "B": [{}]}
    assert episode.get_infos(agent_ids="B") == {"B": [{}, {"waits": 1}]}
    successor = episode.cut()
    assert successor.get_infos(0) == {"A": {"k": 2}, "B": {"waits": 1}}


def test_printed_it_has_one_line_per_env_step(capsys):
    played(G2).print()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert (
        lines[2] == "t=1 | observed 'A': 1, 'B': 21 | acted 'A': 6 | earned 'A': 1.0 | ended 'B': T"
    )


def test_given_data_are_look_back_unless_it_is_said_how_many():
    observations = [{"A": t} for t in range(4)]
    given = {"observations": observations, "actions": [{"A": t} for t in range(3)]}
    rewards = [{"A": 1.0}] * 3
    episode = MultiAgentEpisode("e", **given, rewards=rewards)
    # As in RLlib: what was given lies before env step 0 unless it is said otherwise.
    assert (episode.env_t_started, episode.env_t, len(episode)) == (0, 0, 0)
    assert episode.agent_t_started == {"A": 0}
    assert episode.get_actions(-1, neg_index_as_lookback=True) == {"A": 2}
    assert episode.get_return() == 0.0
    settings = {"len_lookback_buffer": 1, "env_t_started": 9, "agent_t_started": {"A": 1}}
    episode = MultiAgentEpisode("e", **given, rewards=rewards, **settings)
    assert (episode.env_t_started, episode.env_t, len(episode)) == (9, 11, 2)
    assert episode.get_observations() == {"A": [1, 2, 3]}
    assert (episode.get_return(), episode.agent_t_started) == (2.0, {"A": 1})
    episode.validate()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"actions": [{}, {}]}, "do not fit together"),
        ({"rewards": [{"A": 1.0}] * 3}, "do not fit together"),
        ({"len_lookback_buffer": -1}, "look-back"),
        ({"rewards_after_end": "ignore"}, "credit"),
    ],
)
def test_given_data_have_to_fit_together(given, text):
    data = {"observations": [{"A": 0}, {"A": 1}], "actions": [{"A": 0}], **given}
    with pytest.raises(EpisodeError, match=text):
        MultiAgentEpisode("e", **data)


# Old names.


def test_old_names_of_several_agents():
    episode = played(G4, 2, number=7, agent_module_ids={"A": "m"})
    assert episode.episode_id == "golden"
    assert (episode.episode_id % 2, int(episode.episode_id)) == (1, 7)
    assert (episode.length, episode.started, episode.total_reward) == (2, True, 2.75)
    empty = MultiAgentEpisode("e")
    assert empty.length == -1
    assert episode.agent_rewards == {("A", "m"): 2.0, ("B", "default_policy"): 0.75}
    assert episode.policy_for("B") == "default_policy"
    other = played(G1)
    assert other.get_agents() == ["A", "B"]
    assert (episode.last_observation_for("A"), episode.last_observation_for("B")) == (2, 20)
    assert (episode.last_action_for("A"), episode.prev_action_for("A")) == (6, 5)
    assert (episode.last_action_for("B"), episode.prev_action_for("B")) == (5, 0)
    # What the newest env step paid, though the row of B is open.
    assert (episode.last_reward_for("B"), episode.prev_reward_for("B")) == (0.25, 0.5)
    assert episode.cut().last_reward_for("B") == 0.25
    assert episode.last_extra_action_outs_for("B") == {"logp": 0.0}
    assert episode.last_info_for("A") == {}
    assert episode.rnn_state_for("A") == []
    for name in ("last_info_for", "last_action_for", "policy_for", "last_reward_for"):
        with pytest.raises(EpisodeError, match=r"has the agents \['A', 'B'\]"):
            getattr(episode, name)()
    alone = played(G10, 3)
    assert alone.last_observation_for() == 1  # the only agent needs no name
    with pytest.raises(EpisodeError, match="has no number"):
        int(other.episode_id)


def test_the_newest_info_may_come_without_an_observation():
    episode = started(G4)
    infos = {"B": {"waits": 1}, "A": {"k": 2}, "__common__": {"all": 3}}
    episode.add_env_step({"A": 1}, {"A": 5, "B": 5}, {}, infos)
    assert episode.last_info_for("B") == {"waits": 1}
    assert episode.last_info_for("__common__") == {"all": 3}
    successor = episode.cut()
    assert successor.last_info_for("B") == {"waits": 1}
    successor.add_env_step({"A": 2}, {"A": 5}, {})
    assert successor.cut().last_info_for("__common__") == {"all": 3}


def test_who_plays_is_known_in_its_own_process_only():
    class Runner:
        pass

    runner = Runner()
    episode = played(G4, 2)
    episode.note_player(runner, 3)
    successor = episode.cut()
    assert successor.worker is runner
    arrived = pickle.loads(pickle.dumps(successor))
    assert (arrived.worker, arrived.env_id) == (None, 3)
    with pytest.raises(EpisodeError, match="expected the env runner"):
        episode.note_player("runner", 3)


def test_arrays_take_rows_of_their_form_only():
    def made():
        episode = MultiAgentEpisode("e", possible_agents=["A", "B"])
        episode.add_env_reset({"A": np.zeros(2), "B": np.zeros(2)})
        outputs = {agent: {"x": np.zeros(1)} for agent in "AB"}
        step = ({"A": np.ones(2), "B": np.ones(2)}, {"A": 1, "B": 1}, {})
        episode.add_env_step(*step, extra_model_outputs=outputs)
        return episode.to_numpy()

    good = {"observations": np.ones(2), "actions": 2, "outputs": np.ones(1)}
    for part, bad in (("observations", np.ones(3)), ("actions", np.ones(2)), ("outputs", 1.0)):
        episode = made()
        before = as_bytes(episode)
        given = {name: {"A": item, "B": item} for name, item in good.items()}
        given[part]["B"] = bad
        outputs = {agent: {"x": item} for agent, item in given["outputs"].items()}
        with pytest.raises(EpisodeError, match="agent 'B' at env step 2"):
            episode.add_env_step(
                given["observations"], given["actions"], {}, extra_model_outputs=outputs
            )
        assert as_bytes(episode) == before
        outputs["B"]["x"] = good["outputs"]
        given[part]["B"] = good[part]
        episode.add_env_step(
            given["observations"], given["actions"], {}, extra_model_outputs=outputs
        )
        assert plain(episode.get_actions()) == {"A": [1, 2], "B": [1, 2]}


# X11: whatever is left out of a state is missed afterwards.

FEATURES = AgentScript(
    ("A", "B", "C", "D", "E"),
    [
        ScriptedStep({"A": 0, "B": 20, "E": 0}, {}, {}, {}, {"D": {"k": 0}}),
        ScriptedStep({"A": 1, "B": 21}, {"A": 0.5, "B": 3.0, "D": 5.0, "E": 1.0}, {"B": True}),
        ScriptedStep({"A": 2}, {"A": 1.0, "B": 2.0}, {}, {}, {"__common__": {"w": 2}}),
        ScriptedStep({"A": 3, "C": 40}, {"A": 2.0}, {"D": True}),
        ScriptedStep({"A": 4}, {"A": 1.0, "E": 2.0**-53, "B": 1.0}, {"C": True}),
        ScriptedStep({"A": 5, "E": 1}, {"A": 1.0, "E": 2.0**-53}, {"A": True}),
        ScriptedStep({"E": 2}, {"E": 1.0}, {}, {"E": True}),
    ],
)


def told(episode):
    """Everything that the getters say of an episode."""
    names = ("env_t", "env_t_started", "is_reset", "is_terminated", "is_truncated", "ended_agents")
    said = {name: getattr(episode, name) for name in names}
    said["rows"] = [[agent, own] for agent, own in rows(episode).items()]
    said["clock"] = [episode.agent_t_to_env_t(agent) for agent in episode.agent_ids]
    said["ids"] = [[agent, id_] for agent, id_ in episode.agent_episode_ids.items()]
    said["modules"] = [episode.module_for(agent) for agent in "ABCDE"]
    said["outputs"] = episode.get_extra_model_outputs()
    said["returns"] = [episode.get_return(), episode.get_return(False), episode.get_agent_returns()]
    said["rewritten"] = episode.get_rewritten_return()
    said["outside"] = [dict(episode.reward_before_start), dict(episode.rewards_after_end)]
    said["infos"] = [episode.get_infos(), episode.get_common_infos(), episode.last_info_for("D")]
    said["look-back"] = episode.get_observations(slice(-9, None))
    said["recent"] = [[episode.last_reward_for(a), episode.prev_reward_for(a)] for a in "ABCDE"]
    said["appeared"] = episode.get_agents()
    said["flags"] = [episode.get_terminateds(), episode.get_truncateds()]
    counts = ("num_rewards_after_end", "num_rewards_after_end_unlearnt", "num_empty_steps")
    said["counts"] = [getattr(episode, name) for name in counts]
    said["more"] = [episode.num_truncations_without_observation, episode.number, episode.id_]
    said["user"] = [episode.custom_data, episode.hist_data, episode.task]
    return encode(said)


def forgettings():
    """Ways to leave a part of a state out."""

    def line_of(state, agent):
        return next(each["value"] for each in state["lines"] if each["agent"] == agent)

    def emptied(name):
        return lambda state: state.update({name: type(state[name])()})

    def without(name, agent):
        return lambda state: state.update(
            {name: [each for each in state[name] if each["agent"] != agent]}
        )

    ways = {name: emptied(name) for name in ("modules", "episode_ids", "before", "late_earlier")}
    ways |= {name: emptied(name) for name in ("gone", "infos", "lookback", "custom_data")}
    ways["ends"] = without("ends", "B")
    ways["an agent that is not waited for"] = without("ends", "D")
    ways["appeared"] = without("appeared", "B")
    ways["late"] = without("late", "B")
    ways["rounding_earlier"] = emptied("rounding_earlier")
    ways["gone_change"] = lambda state: state.update(gone_change=None)
    ways["recent"] = lambda state: state.update(recent=[[], []])
    ways["number"] = lambda state: state.update(number=None)
    ways["possible"] = lambda state: state.update(possible=None)
    ways["num_rewards_after_end"] = lambda state: state.update(num_rewards_after_end=0)
    ways["open row"] = lambda state: line_of(state, "E").update(open=None)
    ways["open action"] = lambda state: line_of(state, "E")["open"].update(action=0)
    ways["open reward"] = lambda state: line_of(state, "E")["open"].update(parts=[])
    ways["rest of the open reward"] = lambda state: line_of(state, "E")["open"]["parts"].pop()
    ways["open outputs"] = lambda state: line_of(state, "E")["open"].update(outputs={})
    ways["own steps"] = lambda state: line_of(state, "A")["episode"].update(earlier_return=[])
    return ways


def chunk_with_everything():
    """A chunk after env step 4 with something in every part of its state."""
    modules = {"A": "m", "B": "n", "C": "m", "D": "m", "E": "m"}
    episode = started(FEATURES, number=3, agent_module_ids=modules, agent_episode_ids={"B": "own"})
    for env_t, answer in enumerate(FEATURES.steps[1:5], start=1):
        play_step(episode, answer)
        if env_t == 1:
            own = episode.agent_episodes["B"]
            paid = list(own.rewards_list())
            own.set_rewards(new_data=[7.0])
            own.note_rewrite(paid)
        if env_t == 2:
            episode._ledger.rounding["A"] = [0.125]  # as if rounding took that much off a row
        if env_t in (1, 2, 3):
            episode = episode.cut(2)
    episode.custom_data["seen"] = 1
    return episode


def test_nothing_can_be_left_out_of_a_state():
    def ended(state):
        episode = MultiAgentEpisode.from_state(decode(encode(state)))
        said = told(episode)
        for answer in FEATURES.steps[5:]:
            play_step(episode, answer)
        return said + told(episode)

    whole = ended(chunk_with_everything().get_state())
    assert ended(chunk_with_everything().get_state()) == whole
    unnoticed = []
    for name, forget in forgettings().items():
        state = copy.deepcopy(chunk_with_everything().get_state())
        before = encode(state)
        forget(state)
        assert encode(state) != before, name  # there was something to forget
        try:
            if ended(state) == whole:
                unnoticed.append(name)
        except (EpisodeError, EnvContractError):
            continue  # also a way to notice
    assert not unnoticed


def _both(number):
    return ScriptedStep({"A": number, "B": 20 + number}, {"A": 1.0, "B": 2.0}, {}, {}, {})


def _conversions(episode):
    for own in episode.agent_episodes.values():
        own.to_numpy()
        own.to_lists()


def _arrays(episode):
    for own in episode.agent_episodes.values():
        own.to_numpy()


def _next_chunk(episode):
    following = pickle.loads(pickle.dumps(episode)).cut(1)
    play_step(following, _both(9))
    episode.concat_episode(following)


@pytest.mark.parametrize("again", [0, 1, 2])
@pytest.mark.parametrize("change", [_conversions, _arrays, _next_chunk])
def test_steps_stay_in_their_episode_when_its_lists_are_replaced(change, again):
    episode = started(AgentScript(("A", "B"), [_both(0)]))
    for number in range(1, 4):
        play_step(episode, _both(number))
    change(episode)
    for number in range(4, 4 + again):
        play_step(episode, _both(number))
    change(episode)
    for number in range(6, 8):
        play_step(episode, _both(number))
    episode.validate()
    added = 2 if change is _next_chunk else 0
    assert episode.env_t == 5 + again + added
    for agent, reward in (("A", 1.0), ("B", 2.0)):
        own = episode.agent_episodes[agent]
        assert plain(own.get_rewards()) == [reward] * episode.env_t
        assert plain(own.get_actions()) == [5 + number for number in range(episode.env_t)]
    assert plain(episode.agent_episodes["A"].get_observations(-1)) == 7

"""Envs of several agents: what they say of themselves, what they answer, layers around them."""

import pickle

import cloudpickle
import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from checkpoints import encode
from tests.multi_agent_scripts import G4, checks_of, drive
from trainer import (
    ConfigError,
    EnvContractError,
    EnvCreationError,
    MultiAgentEnv,
    PPOConfig,
    SingleAgentEnvRunner,
    UnsupportedSpaceError,
)
from trainer.envs import (
    AgentIndicator,
    CommonReward,
    EnvAgents,
    EnvContext,
    EnvState,
    PadObservations,
    check_agents_finite,
    make_multi_agent,
)
from trainer.testing import (
    AgentScript,
    CountdownEnv,
    MultiAgentCartPole,
    RepeatAfterMe,
    RockPaperScissors,
    ScriptedMultiAgentEnv,
    ScriptedStep,
    TwoStepGame,
)


class Saying(MultiAgentEnv):
    """Says of itself what it is given; answers what it is given."""

    def __init__(self, **attributes):
        vars(self).update(attributes)

    def reset(self, *, seed=None, options=None):
        return vars(self).get("first", ({}, {}))

    def step(self, actions):
        answer = vars(self)["answer"]
        return answer(actions) if callable(answer) else answer


BOTH = {"observation_space": Box(-1.0, 1.0, (1,)), "action_space": Discrete(2)}


# V1, V3, V4: agents and spaces.


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({**BOTH}, "possible_agents=None and no spaces by agent"),
        ({"possible_agents": {"a", "b"}, **BOTH}, "the set possible_agents"),
        ({"possible_agents": [0, "0"], **BOTH}, "0 and '0' are written alike"),
        ({"possible_agents": ["a", "__all__"], **BOTH}, "'__all__' begins with two underscores"),
        ({"possible_agents": [True], **BOTH}, "True is a bool"),
        ({"possible_agents": ["a", "a"], **BOTH}, "listed twice"),
        ({"possible_agents": "ab", **BOTH}, "expected a list"),
        (
            {"possible_agents": ["a", "b"], "observation_spaces": {"a": Discrete(2)}},
            "nothing of the observation_space of agent 'b'",
        ),
        ({"possible_agents": ["a"], **BOTH, "action_space": 2}, "nothing of the action_space"),
    ],
)
def test_what_an_env_may_not_say_of_its_agents(attributes, text):
    with pytest.raises(EnvContractError, match=text):
        EnvAgents.of(Saying(**attributes), name="env")


class Overriding(Saying):
    def get_observation_space(self, agent_id):
        return BOTH["observation_space"]

    def get_action_space(self, agent_id):
        return BOTH["action_space"]


BY_AGENT = {name: dict.fromkeys("ba", space) for name, space in BOTH.items()}
WAYS_TO_GIVE_SPACES = {
    "one for all": Saying(possible_agents=["a", "b"], **BOTH),
    "by agent": Saying(
        possible_agents=["b", "a"], **{f"{name}s": spaces for name, spaces in BY_AGENT.items()}
    ),
    "Dict by agent": Saying(
        possible_agents=["a", "b"], **{name: Dict(spaces) for name, spaces in BY_AGENT.items()}
    ),
    "dict in the singular": Saying(**BY_AGENT),
    "overridden": Overriding(possible_agents=["a", "b"]),
    "agents of the spaces": Saying(**{f"{name}s": spaces for name, spaces in BY_AGENT.items()}),
    "agents of old envs": Saying(_agent_ids={"a", "b"}, **BOTH),
    "agents alone": Saying(agents=["a", "b"], **BOTH),
}


@pytest.mark.parametrize("env", WAYS_TO_GIVE_SPACES.values(), ids=WAYS_TO_GIVE_SPACES)
def test_all_ways_to_give_spaces_mean_the_same(env):
    agents = EnvAgents.of(env, name="env")
    assert agents.ids == ("a", "b")
    assert agents.observation_spaces == BY_AGENT["observation_space"]
    assert agents.action_spaces == BY_AGENT["action_space"]


def test_a_dict_observation_for_all_is_not_taken_for_spaces_by_agent():
    seen = Dict({"x": Discrete(2), "y": Discrete(3)})
    env = Saying(possible_agents=["a", "b"], observation_space=seen, action_space=Discrete(2))
    assert EnvAgents.of(env, name="env").observation_spaces == {"a": seen, "b": seen}


# V2


def test_envs_of_a_run_have_the_same_agents_and_spaces():
    def agents(ids, **spaces):
        return EnvAgents.of(Saying(possible_agents=ids, **{**BOTH, **spaces}), name="env")

    first = agents(["a", "b"])
    first.check_same(agents(["b", "a"]), first="sub-env 0", second="sub-env 1")
    with pytest.raises(EnvContractError, match=r"sub-env 0 and sub-env 1 .* agents: \['a', 'b'\]"):
        first.check_same(agents(["a", "c"]), first="sub-env 0", second="sub-env 1")
    other = agents(["a", "b"], action_space=Discrete(3))
    with pytest.raises(EnvContractError, match="action_spaces for agent 'a'"):
        first.check_same(other, first="runner 1", second="runner 2")


# V15


def test_unequal_spaces_need_more_than_one_module():
    spaces = {"a": Discrete(2), "b": Discrete(3), "c": Discrete(2)}
    env = Saying(observation_spaces=spaces, action_space=Discrete(2))
    agents = EnvAgents.of(env, name="env")
    assert agents.groups() == [("a", "c"), ("b",)]
    with pytest.raises(ConfigError, match=r"\['a', 'c'\].*'c': 'module_0', 'b': 'module_1'"):
        agents.check_shared(name="env")
    EnvAgents.of(Saying(possible_agents=["a"], **BOTH), name="env").check_shared(name="env")


# V5, V6: answers.

SEEN = np.zeros(1, np.float32)
RESET = ({"a": SEEN}, None)
NESTED = Dict({"x": Discrete(2), "y": gymnasium.spaces.Tuple([Discrete(2), Discrete(3)])})


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        ({"first": {"a": SEEN}}, "returned a dict"),
        ({"first": ({"a": SEEN}, {}, 1)}, "a tuple of 3"),
        ({"first": ([SEEN], {})}, r"observations=\[.*a list; expected a dict by agent"),
        ({"first": ({"a": SEEN}, "info")}, "infos='info'"),
        (
            {"first": ({"a": np.zeros(2, np.float32)}, {})},
            r"agent 'a' .* at the reset: is float32 of shape \(2,\)",
        ),
        ({"first": ({"A": SEEN}, {})}, r"no agent 'A' .* Did you mean 'a'"),
        (
            {"first": ({"a": {"x": 1, "y": (1, 7)}}, {}), "observation_space": NESTED},
            r"key \['y'\]\[1\] is 7",
        ),
        ({"answer": ({}, {}, False, False)}, "a tuple of 4: .* at env step 1"),
        ({"answer": ({}, {}, False, {}, {})}, r"terminateds=False .* Write {\"__all__\": False}"),
        ({"answer": ({}, 1.0, {}, {}, {})}, "rewards=1.0 at env step 1, a float"),
        ({"answer": ({}, {}, {"a": "no"}, {}, {})}, r"terminateds\['a'\]='no'"),
        ({"answer": ({"a": np.array(["x"])}, {}, {}, {}, {})}, "agent 'a' .* at env step 1"),
    ],
)
def test_what_an_env_may_not_answer(answers, text):
    env = Saying(**{"possible_agents": ["a", "b"], "first": RESET, **BOTH, **answers})
    with pytest.raises(EnvContractError, match=text):
        drive(env, checks_of(env), lambda *_: 0)


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        ("observation", r"agent 'a' \['x'\] of the observation array\(\[nan\]\) at env step 3"),
        ("reward", "agent 'a' the reward inf at env step 3"),
        ("waiting", "agent 'b' the reward nan up to env step 4"),
    ],
)
def test_numbers_that_are_not_finite_are_found_with_agent_and_env_step(spoil, text):
    steps = [0]

    def answer(actions):
        steps[0] += 1
        value = np.nan if steps[0] == 3 and spoil == "observation" else 0.0
        paid = np.inf if steps[0] == 3 and spoil == "reward" else 1.0
        waiting = np.nan if spoil == "waiting" else 1.0
        seen = {"a": {"x": np.full(1, value)}}
        return seen, {"a": paid, "b": waiting}, {}, {}, {}

    first = ({"a": {"x": SEEN}, "b": {"x": SEEN}}, {})
    seen = Dict({"x": Box(-1.0, 1.0, (1,), np.float64)})
    own = {**BOTH, "observation_space": seen}
    env = Saying(possible_agents=["a", "b"], first=first, answer=answer, **own)
    episode = drive(env, checks_of(env), lambda *_: 0, most_steps=4)
    for each in (episode, episode.to_numpy()):
        with pytest.raises(EnvContractError, match=text):
            check_agents_finite([each], name="env")


# V7, V9, V11: memory that is used again, missing rewards.


def test_an_env_may_use_its_memory_again():
    seen = {"a": np.zeros(1, np.float32)}
    infos = {"a": {"t": 0}}
    flags = {"__all__": False}

    def answer(actions):
        actions["a"][:] = 9.0  # V11: the env's own copy
        actions.clear()
        seen["a"][0] += 0.25
        infos["a"]["t"] += 1
        flags["__all__"] = infos["a"]["t"] == 3
        return seen, {}, flags, {}, infos

    env = Saying(possible_agents=["a"], first=(seen, infos), answer=answer, **BOTH)
    episode = drive(env, checks_of(env), lambda *_: np.zeros(1))
    assert np.ravel(episode.get_observations()["a"]).tolist() == [0.0, 0.25, 0.5, 0.75]
    assert episode.get_infos() == {"a": [{"t": 0}, {"t": 1}, {"t": 2}, {"t": 3}]}
    assert episode.get_rewards() == {"a": [0.0, 0.0, 0.0]}
    assert np.ravel(episode.get_actions()["a"]).tolist() == [0.0, 0.0, 0.0]


# V8 (repeated flags and flags for those never seen)


def test_flags_of_the_dead_and_of_those_never_seen_are_ignored():
    steps = [
        ScriptedStep({"A": 0, "B": 20}),
        ScriptedStep({"A": 1, "B": 21}, {}, {"B": True, "C": False}),
        ScriptedStep({"A": 2}, {}, {"B": True, "C": True}),
        ScriptedStep({"A": 3}, {}, {"A": True, "B": True, "C": True}),
    ]
    env = ScriptedMultiAgentEnv({"script": AgentScript(("A", "B", "C"), steps)})
    episode = drive(env, checks_of(env), lambda *_: 0)
    assert episode.ended_agents == {"A": 3, "B": 1}
    assert episode.is_terminated  # no agent is waited for any more
    assert list(episode.get_terminateds()) == ["A", "B", "__all__"]


# V10


def test_a_standstill_is_an_error_that_says_who_is_missing():
    def answer(actions):
        return {}, {}, {"a": True}, {}, {}

    env = Saying(possible_agents=["a", "b", "c"], first=({"a": SEEN}, {}), answer=answer, **BOTH)
    with pytest.raises(EnvContractError) as caught:
        drive(env, checks_of(env), lambda *_: 0)
    text = str(caught.value)
    assert "observed no agent in 1001 env steps in a row" in text
    assert "ended: ['a']; never observed: ['b', 'c']" in text
    assert '"__all__"' in text
    with pytest.raises(EnvContractError, match="in 6 env steps in a row"):
        drive(env, checks_of(env, max_empty_steps=5), lambda *_: 0)


# The golden episodes through an env.


# V12: groups.


def test_the_two_step_game_as_one_agent():
    env = TwoStepGame().with_agent_groups({"team": ["player_0", "player_1"]})
    agents = EnvAgents.of(env, name="env")
    assert agents.ids == ("team",)
    assert agents.action_spaces["team"] == gymnasium.spaces.Tuple([Discrete(2), Discrete(2)])
    assert isinstance(env, MultiAgentEnv)
    episode = drive(env, checks_of(env), lambda *_: (1, 1))
    assert episode.get_agent_returns() == {"team": 8.0}
    assert episode.get_infos(-1)["team"]["_group_rewards"] == [4.0, 4.0]
    assert [len(part) for part in episode.get_observations(0)["team"]] == [3, 3]
    assert episode.is_terminated
    assert drive(env, checks_of(env), lambda *_: (0, 1)).get_return() == 7.0
    assert drive(env, checks_of(env), lambda _, t: (1, 1 - t)).get_return() == 1.0


def grouped(steps):
    env = ScriptedMultiAgentEnv({"script": AgentScript(("A", "B", "C"), steps)})
    return env.with_agent_groups({"G": ["B", "A"]})


def test_a_group_ends_when_all_members_have_ended():
    env = grouped(
        [
            ScriptedStep({"A": 0, "B": 20, "C": 40}),
            ScriptedStep({"A": 1, "B": 21, "C": 41}, {"A": 1.0, "C": 2.0}, {"A": True}),
            ScriptedStep({"A": 2, "B": 22}, {"B": 4.0}, {}, {"B": True}, {"B": {"k": 1}}),
        ]
    )
    env.reset()
    observations, rewards, terminateds, truncateds, infos = env.step({"G": (5, 6), "C": 7})
    assert env.env.actions[-1] == {"B": 5, "A": 6, "C": 7}
    assert observations == {"C": 41, "G": (21, 1)}
    assert rewards == {"C": 2.0, "G": 1.0}
    assert terminateds == {}
    assert infos == {"G": {"_group_rewards": [0.0, 1.0]}}
    _, rewards, terminateds, truncateds, infos = env.step({"G": (5, 6)})
    assert (terminateds, truncateds) == ({"G": False}, {"G": True})
    assert infos == {"G": {"_group_info": [{"k": 1}, {}], "_group_rewards": [4.0, 0.0]}}


def test_a_group_has_the_spaces_that_were_given_for_all_groups():
    seen = gymnasium.spaces.Tuple([gymnasium.spaces.Box(-9.0, 9.0, (3,))] * 2)
    env = TwoStepGame().with_agent_groups({"team": ["player_0", "player_1"]}, obs_space=seen)
    assert env.observation_space == env.get_observation_space("team") == seen
    assert env.action_space == Discrete(2)


def test_an_env_that_says_nothing_of_who_runs_has_no_agents_yet():
    class Quiet(TwoStepGame):
        def __init__(self):
            MultiAgentEnv.__init__(self)
            super().__init__()

    env = Quiet()
    assert (len(env.agents), env.num_agents) == (0, 2)
    env.agents = []
    assert env.num_agents == 0


def test_a_member_that_is_not_observed_is_an_error():
    env = grouped([ScriptedStep({"A": 0, "C": 40})])
    with pytest.raises(EnvContractError, match=r"members \['B'\] of the group 'G'"):
        env.reset()


@pytest.mark.parametrize(
    ("groups", "text"),
    [
        ({"G": ["player_0", "Player_1"]}, r"no agent 'Player_1' in the group 'G'.*'player_1'"),
        ({"G": ["player_0"], "H": ["player_0"]}, "'player_0' is in the groups 'G' and 'H'"),
        ({"G": []}, "no members"),
        ({"player_0": ["player_0", "player_1"]}, "is the id of an agent, too"),
        ({"__g__": ["player_0"]}, "two underscores"),
    ],
)
def test_groups_that_cannot_be(groups, text):
    with pytest.raises(EnvContractError, match=text):
        TwoStepGame().with_agent_groups(groups)


# V13: copies of a single-agent env.


def test_copies_have_seeds_of_their_own_and_rest_after_their_end():
    env = MultiAgentCartPole({"num_agents": 3})
    observations, _ = env.reset(seed=4)
    assert len({seen.tobytes() for seen in observations.values()}) == env.num_agents == 3
    again, _ = env.reset(seed=4)
    assert all((observations[agent] == again[agent]).all() for agent in observations)
    other, _ = env.reset(seed=5)
    assert not any((observations[agent] == other[agent]).all() for agent in observations)
    # Whether there are more copies changes nothing for the others.
    fewer, _ = MultiAgentCartPole({"num_agents": 2}).reset(seed=4)
    assert all((observations[agent] == fewer[agent]).all() for agent in fewer)


def test_ended_copies_are_not_stepped():
    calls = []

    class Counting(CountdownEnv):
        def step(self, action):
            calls.append(id(self))
            assert self.steps < self.length  # a step after the end would go beyond it
            return super().step(action)

    env = make_multi_agent(Counting)({"num_agents": 3})
    episode = drive(env, checks_of(env), lambda *_: 0)
    lengths = [own.t for own in episode.agent_episodes.values()]
    assert len(set(lengths)) > 1
    assert len(calls) == sum(lengths)
    assert episode.get_agent_returns() == dict(enumerate(map(float, lengths)))
    assert episode.is_terminated


def test_copies_know_their_place_and_settings():
    places = []

    def create(context):
        places.append((context.worker_index, dict(context)))
        return CountdownEnv(context)

    context = EnvContext({"num_agents": 2, "min_length": 5, "max_length": 5}, worker_index=3)
    env = make_multi_agent(create)(context)
    assert places == [(3, {"min_length": 5, "max_length": 5})] * 2
    assert drive(env, checks_of(env), lambda *_: 0).get_return() == 10.0


def test_classes_of_copies_travel_and_take_their_settings_as_config():
    made = pickle.loads(cloudpickle.dumps(make_multi_agent("CartPole-v1")))
    assert pickle.loads(pickle.dumps(MultiAgentCartPole)) is MultiAgentCartPole
    assert made(config={"num_agents": 2}).max_num_agents == 2
    assert made(config=EnvContext({"num_agents": 3}, worker_index=1)).max_num_agents == 3
    assert made(config=None).max_num_agents == made().max_num_agents == 1
    for num_agents in (0, 1.5, True):
        with pytest.raises(EnvCreationError, match="num_agents"):
            made({"num_agents": num_agents})
    with pytest.raises(EnvCreationError, match="CartPole"):
        make_multi_agent("CartPol-v1")


def test_frames_of_copies_stand_side_by_side():
    class Drawn(CountdownEnv):
        def render(self):
            return np.zeros((4, 5, 3), np.uint8)

    env = make_multi_agent(Drawn)({"num_agents": 2})
    assert env.render().shape == (4, 10, 3)
    env = make_multi_agent(CountdownEnv)({"num_agents": 2})
    env.envs[0].render = env.envs[1].render = lambda: None
    assert env.render() is None
    env.close()


# Ready envs.


def test_repeat_after_me_pays_who_repeats():
    memory = {}

    class Watched(RepeatAfterMe):
        def _observations(self):
            seen = super()._observations()
            memory.update({agent: int(code[1].argmax()) for agent, code in seen.items()})
            return seen

    env = Watched({"num_agents": 3, "num_values": 4, "num_steps": 6})
    episode = drive(env, checks_of(env), lambda agent, _: memory[agent])
    assert episode.get_agent_returns() == {0: 5.0, 1: 5.0, 2: 5.0}


@pytest.mark.parametrize(("first", "second", "won"), [(0, 0, 0), (1, 0, 1), (0, 2, 1), (2, 0, -1)])
def test_rock_paper_scissors(first, second, won):
    env = RockPaperScissors({"num_rounds": 3})
    moves = {"player_0": first, "player_1": second}
    episode = drive(env, checks_of(env), lambda agent, _: moves[agent])
    assert episode.get_agent_returns() == {"player_0": 3.0 * won, "player_1": -3.0 * won}
    assert episode.get_observations(1)["player_0"].argmax() == second


# Layers.


class TwoSizes(MultiAgentEnv):
    def __init__(self):
        self.possible_agents = ["b", "a"]
        self.observation_spaces = {"a": Box(0.5, 2.0, (1,)), "b": Box(-1.0, 1.0, (3,))}
        self.action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        return {"a": np.ones(1, np.float32), "b": np.full(3, 0.5, np.float32)}, {}

    def step(self, actions):
        observations, _ = self.reset()
        return observations, {"a": 1.0, "b": 2.0}, {"__all__": True}, {}, {}


def test_observations_of_one_length():
    env = PadObservations(TwoSizes())
    EnvAgents.of(env, name="env").check_shared(name="env")
    observations, _ = env.reset()
    assert observations["a"].tolist() == [1.0, 0.0, 0.0]
    assert observations["b"].tolist() == [0.5, 0.5, 0.5]
    drive(env, checks_of(env), lambda *_: 0)
    masked = PadObservations(TwoSizes(), with_mask=True)
    observations, _ = masked.reset()
    assert observations["a"]["padding_mask"].tolist() == [1.0, 0.0, 0.0]
    drive(masked, checks_of(masked), lambda *_: 0)


def test_agents_are_told_who_they_are():
    env = AgentIndicator(PadObservations(TwoSizes()))
    observations, _ = env.reset()
    assert observations["a"].tolist() == [1.0, 0.0, 0.0, 1.0, 0.0]
    assert observations["b"][-2:].tolist() == [0.0, 1.0]
    drive(env, checks_of(env), lambda *_: 0)
    with pytest.raises(UnsupportedSpaceError, match=r"AgentIndicator needs Box .* \['A', 'B'\]"):
        AgentIndicator(ScriptedMultiAgentEnv({"script": G4}))


@pytest.mark.parametrize(("how", "each"), [("sum", 3.0), ("mean", 1.5)])
def test_a_common_reward(how, each):
    env = CommonReward(TwoSizes(), how)
    episode = drive(env, checks_of(env), lambda *_: 0)
    assert episode.get_agent_returns() == {"a": each, "b": each}
    with pytest.raises(ConfigError, match="how='max'"):
        CommonReward(TwoSizes(), "max")


# Env state.


class Stateful(RepeatAfterMe):
    """Says what its state is."""

    def get_state(self):
        pairs = [[agent, list(shown)] for agent, shown in self._shown.items()]
        return {"steps": self._steps, "shown": pairs}

    def set_state(self, state):
        self._steps = state["steps"]
        self._shown = {agent: tuple(shown) for agent, shown in state["shown"]}


@pytest.mark.parametrize("layer", [None, PadObservations, "groups"])
def test_an_env_with_a_state_goes_on_from_it_through_layers(layer):
    def made():
        env = Stateful({"num_values": 5})
        if layer == "groups":
            return env.with_agent_groups({"g": [0, 1]})
        return env if layer is None else layer(env)

    def actions(env):
        return dict.fromkeys(env.possible_agents, (1, 1) if layer == "groups" else 1)

    env, other = made(), made()
    env.reset(seed=3)
    env.step(actions(env))
    taken = EnvState.of(env).take()
    other.reset(seed=99)
    assert EnvState.of(other).give_back(taken)
    for _ in range(4):
        assert encode(list(env.step(actions(env)))) == encode(list(other.step(actions(other))))


def test_it_is_refused_by_name_where_only_one_agent_can_act():
    config = PPOConfig().environment(MultiAgentCartPole).env_runners(num_env_runners=0)
    with pytest.raises(EnvContractError, match="'MultiAgentCartPole' is a MultiAgentEnv"):
        SingleAgentEnvRunner(config=config)


def test_old_members_of_an_env():
    env = TwoSizes()  # type checkers know the present names only
    assert env.get_agent_ids() == {"a", "b"}
    assert env.observation_space_contains(env.reset()[0])
    assert not env.observation_space_contains({"a": np.zeros(3, np.float32)})
    assert not env.action_space_contains({"c": 0})
    assert env.action_space_contains(env.action_space_sample())
    assert list(env.observation_space_sample(["b"])) == ["b"]

"""The layers around envs of PettingZoo: with our own, and with PettingZoo's if it is installed."""

import importlib
import math
import sys
import types

import numpy as np
import pytest
from gymnasium import spaces

from checkpoints import encode
from tests.multi_agent_scripts import checks_of, drive, ends, rows
from trainer import EnvContractError, EnvCreationError, MultiAgentEnv, MultiAgentEpisode
from trainer.envs import (
    EnvAgents,
    EnvState,
    ParallelPettingZooEnv,
    PettingZooEnv,
    as_multi_agent_env,
    make_env_factory,
)
from trainer.name_resolution import PROGRAM
from trainer.testing import MultiAgentCartPole, check_replay
from trainer.testing.multi_agent_replay import random_action

# ---- envs written to PettingZoo's rules, for when it is not installed


class AECEnv:
    """Stands for PettingZoo's class of the same name."""

    @property
    def unwrapped(self):
        return self


class ParallelEnv(AECEnv):
    """Stands for PettingZoo's class of the same name."""


@pytest.fixture(autouse=True)
def classes_are_there(monkeypatch):
    """Our two classes are what an imported PettingZoo would have."""
    if importlib.util.find_spec("pettingzoo") is None:
        module = types.ModuleType("pettingzoo.utils.env")
        module.AECEnv, module.ParallelEnv = AECEnv, ParallelEnv
        monkeypatch.setitem(sys.modules, "pettingzoo.utils.env", module)
        return
    real = importlib.import_module("pettingzoo.utils.env")
    monkeypatch.setattr(real, "AECEnv", (real.AECEnv, AECEnv))
    monkeypatch.setattr(real, "ParallelEnv", (real.ParallelEnv, ParallelEnv))


class Nim(AECEnv):
    """Two players take 1 or 2 of some stones in turn; who takes the last one wins.

    The rules of turns are PettingZoo's: rewards add up until an agent's next turn, and an agent
    that has ended gets a turn of its own, in which it does nothing.
    """

    def __init__(self, stones=4):
        self.possible_agents = ["first", "second"]
        self.metadata = {"name": "nim"}
        self.render_mode = None
        self._stones = stones
        self.agents = []
        self.paid = []
        self.resets = 0

    def observation_space(self, agent):
        return spaces.Discrete(16)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.resets += 1
        self.agents = list(self.possible_agents)
        self.left = self._stones
        self.agent_selection = "first"
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self.owed = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {
            agent: {"action_mask": np.array([1, self.left > 1], np.int8)} for agent in self.agents
        }

    def last(self):
        agent = self.agent_selection
        return (
            self.left,
            self.owed[agent],
            self.terminations[agent],
            self.truncations[agent],
            self.infos[agent],
        )

    def step(self, action):
        agent = self.agent_selection
        other = self.possible_agents[agent == "first"]
        self.agent_selection = other
        if self.terminations[agent] or self.truncations[agent]:
            assert action is None
            self.agents.remove(agent)
            return
        self.owed[agent] = 0.0
        self.left -= 1 + action
        won = self.left <= 0
        for each, paid in ((agent, 1.0 if won else -0.125), (other, -1.0 if won else 0.0)):
            self.owed[each] += paid
            self.paid.append(paid)
        if won:
            self.terminations = dict.fromkeys(self.agents, True)
        for each in self.agents:
            self.infos[each] = {"action_mask": np.array([1, self.left > 1], np.int8)}

    def render(self):
        return f"{self.left} left"

    def close(self):
        self.agents = []

    def get_state(self):
        return {"left": self.left, "turn": self.agent_selection, "owed": dict(self.owed)}

    def set_state(self, state):
        self.left, self.agent_selection = state["left"], state["turn"]
        self.owed = dict(state["owed"])


class Leaving(ParallelEnv):
    """Agents leave one after the other, in the way that `ways` says; the last info is for all."""

    def __init__(self, ways=None):
        self.ways = {"a": "T", "b": "U"} if ways is None else ways
        self.possible_agents = list(self.ways)
        self.metadata = {"name": "leaving"}
        self.agents = []
        self.asked = []

    def observation_space(self, agent):
        return spaces.Box(0.0, 9.0, (1,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(3)

    def reset(self, seed=None, options=None):
        self.agents, self.steps, self.asked = list(self.possible_agents), 0, []
        return {agent: np.zeros(1, np.float32) for agent in self.agents}, None

    def step(self, actions):
        self.asked.append(set(actions))
        self.steps += 1
        leaving = self.possible_agents[self.steps - 1]
        present = list(self.agents)
        terminations = {each: each == leaving and "T" in self.ways[each] for each in present}
        truncations = {each: each == leaving and "U" in self.ways[each] for each in present}
        self.agents.remove(leaving)
        seen = {each: np.full(1, self.steps, np.float32) for each in present}
        infos = {each: {} for each in present}
        infos["score"] = self.steps
        return seen, dict.fromkeys(present, 1.0), terminations, truncations, infos

    def close(self):
        self.agents = []


def test_turns_are_reported_as_they_come():
    env = PettingZooEnv(Nim())
    assert env.env.resets == 0  # none in the constructor
    episode = drive(env, checks_of(env), lambda *_: 0)
    # 4 stones, one each time: the second player takes the last one.
    assert rows(episode) == {
        "first": [(4, 0, -0.125, 2), (2, 0, -0.125 - 1.0, 0)],
        "second": [(3, 0, -0.125, 1), (1, 0, 1.0, 0)],
    }
    assert ends(episode) == {"first": "T", "second": "T"}
    assert (episode.is_terminated, episode.is_truncated) == (True, False)
    assert episode.env_steps() == episode.agent_steps() == 4
    assert episode.get_return() == math.fsum(env.env.paid)


def test_only_the_agent_whose_turn_it_is_may_act():
    env = PettingZooEnv(Nim())
    observations, _ = env.reset()
    assert observations == {"first": 4}
    for actions in ({}, {"second": 0}, {"first": 0, "second": 0}):
        with pytest.raises(EnvContractError, match="'first', whose turn it is"):
            env.step(actions)
    env.close()
    with pytest.raises(EnvContractError, match="no agent was left"):
        env.step({"first": 0})


def test_masks_in_infos_are_put_beside_the_observation():
    env = PettingZooEnv(Nim(), mask_from_infos=True)
    agents = EnvAgents.of(env, name="env")
    assert agents.observation_spaces["first"]["action_mask"].shape == (2,)
    rng = np.random.default_rng(0)
    last = {}

    def act(agent, _):
        return random_action(agents.action_spaces[agent], last[agent], rng)

    class Watching(PettingZooEnv):
        def _observed(self, agent, observation, info):
            last[agent] = super()._observed(agent, observation, info)
            return last[agent]

    for _ in range(20):
        env = Watching(Nim(stones=7), mask_from_infos=True)
        episode = drive(env, checks_of(env), act)
        assert env.env.left == 0  # no stone was taken that was not there
    seen = episode.get_observations(0)["first"]
    assert seen["observation"] == 7
    assert seen["action_mask"].tolist() == [1, 1]
    wide = Leaving()
    wide.action_space = lambda agent: spaces.Box(0.0, 1.0)
    with pytest.raises(EnvCreationError, match="masks are for Discrete"):
        ParallelPettingZooEnv(wide, mask_from_infos=True)


@pytest.mark.parametrize(
    ("ways", "terminated"),
    [
        ({"a": "T", "b": "T"}, True),
        ({"a": "T", "b": "U"}, False),
        ({"a": "U", "b": "U"}, False),
        ({"a": "TU", "b": "T"}, True),  # both flags count as terminated
    ],
)
def test_agents_that_leave_one_by_one(ways, terminated):
    env = ParallelPettingZooEnv(Leaving(ways))
    episode = drive(env, checks_of(env), lambda *_: 0)
    assert ends(episode) == ways
    assert (episode.is_terminated, episode.is_truncated) == (terminated, not terminated)
    assert env.env.asked == [{"a", "b"}, {"b"}]  # only the living act
    assert episode.get_common_infos() == [{}, {"score": 1}, {"score": 2}]
    assert episode.get_agent_returns() == {"a": 1.0, "b": 2.0}


def test_envs_that_make_up_agents_are_refused():
    with pytest.raises(EnvCreationError, match="env leaving has no possible_agents"):
        ParallelPettingZooEnv(Leaving({}))


def test_envs_may_be_given_directly():
    for creator, layer in (
        (lambda: Nim(), PettingZooEnv),
        (lambda: Leaving(), ParallelPettingZooEnv),
    ):
        factory = make_env_factory(creator, {}, source=PROGRAM)
        assert isinstance(factory.make(worker_index=0, vector_index=0)[0], layer)
    env = MultiAgentCartPole()
    assert as_multi_agent_env(env) is env


def test_vector_conversions_are_refused():
    hiding = type("MarkovVectorEnv", (), {"__module__": "supersuit.vector.markov"})
    with pytest.raises(EnvCreationError, match="Leave SuperSuit's vector conversion out"):
        as_multi_agent_env(hiding())


def test_what_is_not_of_agents_goes_through():
    env = PettingZooEnv(Nim())
    env.reset()
    assert env.render() == "4 left"
    assert env.get_sub_environments is env.env
    assert env.metadata == {"name": "nim"}
    assert isinstance(env, MultiAgentEnv)
    assert env.unwrapped is env
    assert ParallelPettingZooEnv(Leaving()).par_env.metadata["name"] == "leaving"


def test_the_state_of_an_env_goes_through():
    env, other = PettingZooEnv(Nim()), PettingZooEnv(Nim())
    env.reset()
    env.step({"first": 0})
    taken = EnvState.of(env).take()
    other.reset()
    assert EnvState.of(other).give_back(taken)
    assert encode(list(env.step({"second": 1}))) == encode(list(other.step({"second": 1})))
    assert EnvState.of(ParallelPettingZooEnv(Leaving())) is None  # it has no state to give


def test_the_replay_check_finds_what_does_not_repeat():
    report = check_replay(Nim)
    assert report.is_exact
    assert (report.num_episodes, report.num_env_steps > 6) == (3, True)
    assert check_replay(lambda: MultiAgentCartPole({"num_agents": 2})).is_exact

    class Drifting(Leaving):
        """Its observations go on from episode to episode."""

        drift = 0

        def step(self, actions):
            seen, *rest = super().step(actions)
            self.drift += 1
            return {
                agent: each + np.float32(self.drift / 64) for agent, each in seen.items()
            }, *rest

    report = check_replay(Drifting)
    assert not report.is_exact
    assert (
        "seed 2, in the same env: observations of env step 1 differ for agent 'a'"
        in report.differences
    )
    made = []

    class Restless(Leaving):
        """Who is observed differs from env to env: a later one leaves an agent out."""

        def __init__(self):
            super().__init__()
            made.append(1)
            self.number = len(made)

        def step(self, actions):
            seen, *rest = super().step(actions)
            return ({} if self.number == 2 and self.steps == 1 else seen), *rest

    report = check_replay(Restless, num_steps=1)
    assert "seed 0, in another env: observations of env step 1 are of ['a', 'b'], then of []" in (
        report.differences
    )


# ---- PettingZoo's own envs

pettingzoo = pytest.mark.skipif(
    importlib.util.find_spec("pettingzoo") is None, reason="needs the extra [pettingzoo]"
)
QUICK = [
    ("pettingzoo.classic.rps_v2", "env"),
    ("pettingzoo.classic.rps_v2", "parallel_env"),
    ("pettingzoo.classic.tictactoe_v3", "env"),
    ("pettingzoo.classic.connect_four_v3", "env"),
    ("pettingzoo.classic.leduc_holdem_v4", "env"),
    ("mpe2.simple_spread_v3", "parallel_env"),
    ("mpe2.simple_speaker_listener_v4", "parallel_env"),
    ("mpe2.simple_tag_v3", "parallel_env"),
]
SLOW = [
    ("pettingzoo.classic.chess_v6", "env"),
    ("pettingzoo.butterfly.pistonball_v6", "parallel_env"),
    ("pettingzoo.butterfly.cooperative_pong_v6", "parallel_env"),
    ("pettingzoo.sisl.pursuit_v5", "parallel_env"),
    ("pettingzoo.sisl.multiwalker_v9", "parallel_env"),
]


def made(module, kind):
    pytest.importorskip(module.partition(".")[0])
    return getattr(pytest.importorskip(module), kind)


@pettingzoo
@pytest.mark.filterwarnings("ignore")  # of the envs' own dependencies
@pytest.mark.parametrize(("module", "kind"), QUICK)
def test_envs_of_pettingzoo_replay_exactly(module, kind):
    assert check_replay(made(module, kind), num_steps=50).differences == ()


@pettingzoo
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the envs' own dependencies
@pytest.mark.parametrize(("module", "kind"), SLOW)
def test_large_envs_of_pettingzoo_replay_exactly(module, kind, monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    assert check_replay(made(module, kind), num_steps=100).differences == ()


@pettingzoo
def test_at_once_and_in_turns_are_the_same_game():
    rps = pytest.importorskip("pettingzoo.classic.rps_v2")
    rng = np.random.default_rng(5)
    moves = {agent: rng.integers(3, size=30) for agent in ("player_0", "player_1")}

    def act(agent, own_step):
        return int(moves[agent][own_step])

    both = []
    for env in (ParallelPettingZooEnv(rps.parallel_env()), PettingZooEnv(rps.env())):
        both.append(drive(env, checks_of(env), act).get_agent_returns())
    assert both[0] == both[1]
    assert any(both[0].values())


@pettingzoo
@pytest.mark.filterwarnings("ignore")  # of the envs' own dependencies
@pytest.mark.parametrize(("module", "kind"), QUICK)
def test_no_reward_of_an_env_is_lost(module, kind):
    inner = made(module, kind)()
    env = as_multi_agent_env(inner)
    agents = EnvAgents.of(env, name="env")
    rng = np.random.default_rng(3)
    paid = []
    last = {}
    raw = inner.unwrapped
    step = type(raw).step

    def watched(actions):
        is_dead = kind == "env" and actions is None
        answer = step(raw, actions)
        if kind == "env" and not is_dead:
            paid.extend(raw.rewards.values())
        return answer

    raw.step = watched

    def act(agent, _):
        return random_action(agents.action_spaces[agent], last[agent], rng)

    observed = env._observed

    def keep(agent, observation, info):
        last[agent] = observation
        return observed(agent, observation, info)

    env._observed = keep
    earned = []
    outer = env.step

    def counted(actions):
        answer = outer(actions)
        earned.extend(answer[1].values())
        return answer

    env.step = counted
    episode = drive(env, checks_of(env), act)
    assert episode.is_done
    assert episode.get_return() == pytest.approx(math.fsum(paid if kind == "env" else earned))


@pettingzoo
@pytest.mark.parametrize("name", ["tictactoe_v3", "connect_four_v3"])
def test_games_with_masks_have_no_illegal_move(name):
    env = PettingZooEnv(pytest.importorskip(f"pettingzoo.classic.{name}").env())
    agents = EnvAgents.of(env, name="env")
    rng = np.random.default_rng(0)
    for seed in range(5):
        episode = MultiAgentEpisode("game", possible_agents=agents.ids)
        episode.add_env_reset(*env.reset(seed=seed))
        while not episode.is_done:
            seen = episode.get_observations(-1)
            actions = {
                agent: random_action(agents.action_spaces[agent], seen[agent], rng)
                for agent in episode.get_agents_to_act()
            }
            observations, rewards, terminateds, truncateds, infos = env.step(actions)
            episode.add_env_step(
                observations,
                actions,
                rewards,
                infos,
                terminateds=terminateds,
                truncateds=truncateds,
            )
        assert episode.is_terminated
        assert episode.get_return() == 0.0  # who moves illegally loses alone

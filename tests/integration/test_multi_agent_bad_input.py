"""What envs of several agents may not do: one clear error each, and the run stands as before."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from checkpoints import encode
from trainer import MultiAgentEnv, PPOConfig
from trainer.errors import ConfigError, EnvContractError

SEEN = np.zeros(2, np.float32)
BOX, CHOICE = spaces.Box(-1.0, 1.0, (2,), np.float32), spaces.Discrete(2)


class Plain(MultiAgentEnv):
    """Agents 0 and 1 act in every env step; an episode has 30.

    Settings: `breach` changes what step number 25 of the run's second iteration answers: a function
    of (observations, rewards, terminateds, truncateds, infos); `attributes` are set at last.
    """

    def __init__(self, env_config):
        self.possible_agents = [0, 1]
        self.observation_space, self.action_space = BOX, CHOICE
        self._breach = env_config.get("breach")
        self._breaks_at = env_config.get("at", 45)
        self._total = 0
        for name, value in env_config.get("attributes", {}).items():
            setattr(self, name, value)
        if env_config.get("differs") and env_config.vector_index == 1:
            self.possible_agents = [0, 1, 2]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self._t = 0
        return {0: SEEN, 1: SEEN}, {}

    def step(self, actions):
        self._t += 1
        self._total += 1
        answer = (
            {0: SEEN, 1: SEEN},
            {0: 1.0, 1: 0.5},
            {"__all__": self._t == 30},
            {"__all__": False},
            {},
        )
        if self._breach is not None and self._total >= self._breaks_at:
            return self._breach(*answer)
        return answer


def config(num_envs=1, **env_config):
    made = PPOConfig().environment(Plain, env_config=env_config, max_empty_steps=5)
    made.env_runners(num_env_runners=0, num_envs_per_env_runner=num_envs)
    made.training(train_batch_size=20, minibatch_size=20, num_epochs=1)
    return made.rl_module(model_config={"fcnet_hiddens": [4]}).debugging(seed=3)


MADE = {
    "V1 no agent is possible": (
        {"attributes": {"possible_agents": None}},
        EnvContractError,
        r"possible_agents=None.*Set self\.possible_agents",
    ),
    "V1 a set": (
        {"attributes": {"possible_agents": {"a", "b"}}},
        EnvContractError,
        "differs from process to process",
    ),
    "V1 written alike": (
        {"attributes": {"possible_agents": [0, "0"]}},
        EnvContractError,
        "are written alike",
    ),
    "V1 a name of all": (
        {"attributes": {"possible_agents": ["__all__", "a"]}},
        EnvContractError,
        "__all__",
    ),
    "V1 a truth value": (
        {"attributes": {"possible_agents": [True, False]}},
        EnvContractError,
        "True",
    ),
    "V4 no space": (
        {"attributes": {"observation_space": None, "observation_spaces": {0: BOX}}},
        EnvContractError,
        "says nothing of the observation_space of agent 1",
    ),
    "V15 unequal spaces": (
        {"attributes": {"observation_space": None, "observation_spaces": {0: BOX, 1: CHOICE}}},
        ConfigError,
        r"Write multi_agent\(policies=\['module_0', 'module_1'\]",
    ),
}


@pytest.mark.parametrize("case", list(MADE))
def test_envs_that_say_what_cannot_be_are_refused_when_the_run_is_built(case):
    env_config, error, problem = MADE[case]
    with pytest.raises(error, match=problem):
        config(**env_config).build_algo()


def test_v2_sub_envs_with_other_agents_are_refused():
    with pytest.raises(EnvContractError, match=r"Sub-env 0.*sub-env 1 have different agents"):
        config(2, differs=True).build_algo()


Breach = Callable[[Any, Any, Any, Any, Any], Any]
PLAYED = {
    "V5 NaN": (
        lambda o, r, te, tr, i: ({**o, 1: np.array([np.nan, 0.0], np.float32)}, r, te, tr, i),
        r"agent 1",
    ),
    "a reward that is NaN": (lambda o, r, te, tr, i: (o, {0: np.nan}, te, tr, i), "agent 0"),
    "a reward that is no number": (lambda o, r, te, tr, i: (o, {0: "x"}, te, tr, i), "number"),
    "V6 four parts": (lambda o, r, te, tr, i: (o, r, te, i), "five"),
    "V6 a flag for all": (lambda o, r, te, tr, i: (o, r, False, tr, i), "terminateds"),
    "V6 no dict": (lambda o, r, te, tr, i: (SEEN, r, te, tr, i), "observations"),
    "unknown agent": (lambda o, r, te, tr, i: ({**o, 2: SEEN}, r, te, tr, i), "no agent 2"),
    "unknown key": (lambda o, r, te, tr, i: (o, r, {"__al__": True}, tr, i), "__al__"),
    "an info that is no dict": (
        lambda o, r, te, tr, i: (o, r, te, tr, {0: np.ones(2)}),
        "agent 0 the info.*expected a dict",
    ),
    "V10 standstill": (lambda o, r, te, tr, i: ({}, {}, {}, {}, {}), "env steps"),
    "l it came back": (lambda o, r, te, tr, i: (o, r, {1: True}, tr, i), "ended at env step"),
}


@pytest.mark.parametrize("case", list(PLAYED))
def test_answers_that_cannot_be_are_refused_and_the_run_stands_as_before(case):
    breach, problem = PLAYED[case]
    with config(breach=breach).build_algo() as algo:
        algo.train()
        algo.train()
        before = encode(algo.get_state(not_components=["config"]))
        with pytest.raises(EnvContractError, match=problem) as raised:
            algo.train()
        assert len(str(raised.value).splitlines()) == 1
        assert encode(algo.get_state(not_components=["config"])) == before


def test_v5_the_first_answers_are_compared_with_the_spaces():
    def outside(o, r, te, tr, i):
        return {**o, 1: np.zeros(3, np.float32)}, r, te, tr, i

    with (
        config(breach=outside, at=1).build_algo() as algo,
        pytest.raises(EnvContractError, match=r"[Aa]gent 1"),
    ):
        algo.train()


def test_rewards_after_the_end_are_refused_if_asked_for():
    def ends(o, r, te, tr, i):
        return {0: SEEN}, r, {1: True}, tr, i

    strict = config(breach=ends, at=3).multi_agent(rewards_after_end="error")
    with (
        strict.build_algo() as algo,
        pytest.raises(EnvContractError, match=r"agent 1|Agent 1 .*rewards_after_end"),
    ):
        algo.train()
    with config(breach=ends, at=3).build_algo() as algo:
        assert algo.train()["env_runners"]["num_rewards_after_end"] > 0

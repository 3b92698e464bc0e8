"""How the work of an env step grows with the agents: with those that act, not with all there are.

Work is counted in instructions of Python, so that no test depends on how fast the machine is.
"""

import sys

import gymnasium
import numpy as np
import pytest

from trainer import MultiAgentEnv, PPOConfig


class Crowd(MultiAgentEnv):
    """All agents are observed at the reset (or two of them), and two in turns in every env step."""

    def __init__(self, config):
        self.possible_agents = [f"agent_{number}" for number in range(config["num_agents"])]
        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
        self.action_space = gymnasium.spaces.Discrete(2)
        self.num_at_first = config.get("num_at_first", config["num_agents"])
        self.num_steps = config["num_steps"]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._observed(self.possible_agents[: self.num_at_first]), {}

    def step(self, actions):
        self.steps += 1
        seen = self._observed([f"agent_{self.steps % 3}", f"agent_{3 + self.steps % 4}"])
        is_over = self.steps >= self.num_steps
        return seen, dict.fromkeys(actions, 1.0), {}, {"__all__": is_over}, {}

    def _observed(self, agents):
        return {agent: np.zeros(1, np.float32) for agent in agents}


def instructions(function):
    """How many instructions of Python a call takes, in all functions that it calls.

    Python 3.12 and 3.13 count too few where a function is traced for the first time, so the same is
    counted before.
    """
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


def runner_of(**env_config):
    config = PPOConfig().environment(Crowd, env_config=env_config).debugging(seed=1)
    return config.env_runners(num_env_runners=0, rollout_fragment_length=64)


@pytest.mark.parametrize("counted", ["env_steps", "agent_steps"])
def test_an_env_step_costs_what_those_that_act_cost(counted):
    def work_of_an_env_step(num_agents):
        config = runner_of(num_agents=num_agents, num_steps=1000)
        with config.multi_agent(count_steps_by=counted).build_algo() as algo:
            runner = algo.env_runner
            runner.sample(num_timesteps=2 * num_agents)  # all have acted
            _, few, many = (
                instructions(lambda n=n: runner.sample(num_timesteps=n)) for n in (10, 10, 30)
            )
            return (many - few) / 20

    assert work_of_an_env_step(160) < 1.2 * work_of_an_env_step(20)


def test_an_episode_costs_no_more_than_in_proportion_to_its_possible_agents():
    def work_of_an_episode(num_agents, num_at_first):
        config = runner_of(num_agents=num_agents, num_at_first=num_at_first, num_steps=10)
        with config.build_algo() as algo:
            runner = algo.env_runner
            instructions(lambda: runner.sample(num_episodes=1))
            return instructions(lambda: runner.sample(num_episodes=1))

    for shown in (lambda _: 2, lambda every: every):  # few of them come, or all
        assert work_of_an_episode(160, shown(160)) < 9 * work_of_an_episode(20, shown(20))

"""Short runs of several agents for tests of exactness: envs, settings, and all that comes out."""

import hashlib
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from checkpoints import encode
from trainer import DQNConfig, PPOConfig, SACConfig
from trainer.envs import MultiAgentEnv
from trainer.metrics import comparable


class OneCartPole(MultiAgentEnv):
    """CartPole with the one agent `default_agent`."""

    def __init__(self, env_config):
        del env_config
        self.inner = gym.make("CartPole-v1")
        self.possible_agents = ["default_agent"]
        self.observation_space = self.inner.observation_space
        self.action_space = self.inner.action_space

    def reset(self, *, seed=None, options=None):
        observation, info = self.inner.reset(seed=seed, options=options)
        return {"default_agent": observation}, {"default_agent": info}

    def step(self, actions):
        parts = self.inner.step(actions["default_agent"])
        return tuple({"default_agent": part} for part in parts)


class Gaps(MultiAgentEnv):
    """Agents come late, wait for observations, end early, and come in any order of dicts.

    Settings: `shuffles` gives dicts in another order; `breaks` names a file: the env raises at the
    env steps, counted over all, that it lists, once each; `kills`, its process is killed there.
    """

    def __init__(self, env_config):
        agents = ["a", 3, "late"]
        self._shuffles = env_config.get("shuffles", False)
        self._faults = {kind: env_config.get(kind) for kind in ("breaks", "kills")}
        self.possible_agents = agents[::-1] if self._shuffles else agents
        self.observation_space = spaces.Box(-1.0, 1.0, (3,), np.float32)
        self.action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self._t, self._ended, self._total = 0, set[Any](), 0
        self._late = int(self.np_random.integers(1, 4))
        self._length = int(self.np_random.integers(5, 12))
        return self._shuffled({"a": self._seen(), 3: self._seen()}), {}

    def _seen(self):
        return self.np_random.uniform(-1.0, 1.0, 3).astype(np.float32)

    def _shuffled(self, by_agent):
        pairs = list(by_agent.items())
        return dict(pairs[::-1] if self._shuffles else pairs)

    def step(self, actions):
        self._fail()
        self._t += 1
        self._total += sum(map(int, actions.values()))
        running = [agent for agent in ("a", 3) if agent not in self._ended]
        running += ["late"] if self._t >= self._late else []
        # Drawn for all, in one order; what is paid depends on the actions of all so far.
        draws = {agent: (self.np_random.random(), self._seen()) for agent in running}
        seen = {agent: one for agent, (draw, one) in draws.items() if draw < 0.7}
        rewards = {agent: 0.1 * (self._total % 7) + draw for agent, (draw, _) in draws.items()}
        terminateds = {"__all__": self._t >= self._length}
        if self._t == 4 and "a" in running:
            self._ended.add("a")
            seen["a"], terminateds["a"] = self._seen(), True
        return self._shuffled(seen), self._shuffled(rewards), terminateds, {}, {}

    def _fail(self):
        for kind, file in self._faults.items():
            if file is None:
                continue
            count = Path(file).with_suffix(".count")
            number = int(count.read_text()) if count.exists() else 0
            count.write_text(str(number + 1))
            if str(number) in Path(file).read_text().split():
                if kind == "kills":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise ValueError("on purpose")


class Drawing(Gaps):
    """Its agents see numbers of a generator that no reset seeds; the state of the env has it."""

    def __init__(self, env_config):
        super().__init__(env_config)
        self.generator = np.random.default_rng(11)

    def _seen(self):
        return super()._seen() * self.generator.random(3, np.float32)

    def get_state(self):
        episode = [self._t, sorted(map(str, self._ended)), self._total, self._late, self._length]
        return {"episode": episode, "generator": self.generator.bit_generator.state}

    def set_state(self, state):
        self._t, ended, self._total, self._late, self._length = state["episode"]
        self._ended = {agent for agent in self.possible_agents if str(agent) in ended}
        self.generator.bit_generator.state = state["generator"]


def _mapping(agent_id, episode, **_):
    return "even" if (episode.number + (agent_id == "a")) % 2 == 0 else "odd"


def gaps(num_env_runners=0, num_envs=2, **env_config):
    return (
        PPOConfig()
        .environment(Gaps, env_config=env_config)
        .env_runners(
            num_env_runners=num_env_runners,
            num_envs_per_env_runner=num_envs,
            observation_filter="MeanStdFilter",
        )
        .multi_agent(policies={"odd", "even"}, policy_mapping_fn=_mapping)
        .training(train_batch_size=40, minibatch_size=16, num_epochs=2)
        .rl_module(model_config={"fcnet_hiddens": [8]})
        .debugging(seed=3)
    )


def evaluated(made):
    """An evaluation with a mapping of its own after every second iteration."""
    return made.evaluation(
        evaluation_interval=2,
        evaluation_duration=3,
        evaluation_config={"policy_mapping_fn": {"a": "odd", 3: "even", "late": "even"}},
    )


STRATEGIES = {
    "EpsilonGreedy": {"initial_epsilon": 0.5, "final_epsilon": 0.5},
    "OrnsteinUhlenbeckNoise": {"random_timesteps": 0, "ou_base_scale": 1.0},
    "ParameterNoise": {"random_timesteps": 0},
}


class Pushing(Gaps):
    """Actions are forces."""

    def __init__(self, env_config):
        super().__init__(env_config)
        self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def step(self, actions):
        return super().step({agent: round(10 * float(one[0])) for agent, one in actions.items()})


def exploring(type_, env=None, num_env_runners=0, num_envs=2, **env_config):
    """DQN, or SAC for forces, with a strategy at work from the first step on."""
    is_noise = type_ == "OrnsteinUhlenbeckNoise"
    made = (SACConfig if is_noise else DQNConfig)()
    made.environment(env or (Pushing if is_noise else Gaps), env_config=env_config)
    made.env_runners(
        num_env_runners=num_env_runners,
        num_envs_per_env_runner=num_envs,
        exploration_config={"type": type_, **STRATEGIES[type_]},
    )
    made.training(train_batch_size=8, num_steps_sampled_before_learning_starts=20)
    made.rl_module(model_config={"fcnet_hiddens": [8]})
    return made.reporting(min_sample_timesteps_per_iteration=20).debugging(seed=3)


def outcome(config, iterations=3):
    """All that the run has learnt and where it stands, and its results without times."""
    with config.build_algo() as algo:
        results = [comparable(algo.train()) for _ in range(iterations)]
        for result in results:
            result.pop("config", None), result.pop("fault_tolerance", None)
        state = algo.get_state(not_components=["config"])
        return encode([state["learner"], state["connectors"], state["counters"]]) + encode(
            [text_keys(result["env_runners"]) for result in results]
        )


def text_keys(value):
    if isinstance(value, Mapping):
        return {str(key): text_keys(part) for key, part in value.items()}
    return value


def everything(config, iterations=3):
    """The whole state of the run but its settings, and its results without times and faults."""
    with config.build_algo() as algo:
        results = [told(algo.train()) for _ in range(iterations)]
        return encode([whole_state(algo), results])


def whole_state(algo):
    """All components but the settings."""
    return algo.get_state(not_components=["config"])


def told(result):
    """What a result says, without times, faults and settings, with text keys."""
    kept = comparable(result)
    kept.pop("config", None), kept.pop("fault_tolerance", None)
    return text_keys(kept)


class InOrderOfHashes(Gaps):
    """Gives its dicts in the order of a set of texts."""

    def _shuffled(self, by_agent):
        return {agent: by_agent[agent] for agent in {*by_agent}}


def tell():
    """Prints a digest of a run, and the order of a set of texts in this process."""
    digest = hashlib.sha256(everything(gaps().environment(InOrderOfHashes))).hexdigest()
    print(digest, ",".join({"a", "late", "b", "c", "d", "e"}))

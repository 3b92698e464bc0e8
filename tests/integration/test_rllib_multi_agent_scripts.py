"""What RLlib's examples for several agents configure, with our imports: it runs, or says why not.

RLlib's folder `examples/multi_agent`, in our words; sizes are small, and envs are ready ones of the
same kind. Each test names the script that it follows.
"""

import random

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Tuple

from benchmarks.multi_agent_tasks import ScriptedPlayer
from callbacks import RLlibCallback
from trainer import (
    GroupAgentsWrapper,
    MultiAgentEnv,
    MultiRLModuleSpec,
    ParallelPettingZooEnv,
    PPOConfig,
    RandomRLModule,
    RLModuleSpec,
    register_env,
)
from trainer.errors import ConfigError
from trainer.testing import MultiAgentCartPole, RockPaperScissors, TwoStepGame


def small(env, **env_config):
    return (
        PPOConfig()
        .environment(env, env_config=env_config)
        .env_runners(num_env_runners=0)
        .training(train_batch_size=60, minibatch_size=30, num_epochs=1)
        .rl_module(model_config={"fcnet_hiddens": [4]})
        .debugging(seed=0)
    )


def steps_by_module(config):
    with config.build_algo() as algo:
        return dict(algo.train()["env_runners"]["num_module_steps_sampled"])


def test_multi_agent_cartpole():
    register_env("two_poles", lambda config: MultiAgentCartPole(config))
    config = small("two_poles", num_agents=2).multi_agent(
        policies={f"p{i}" for i in range(2)},
        policy_mapping_fn=lambda aid, *args, **kwargs: f"p{aid}",
    )
    assert steps_by_module(config).keys() == {"p0", "p1"}


def test_rock_paper_scissors_heuristic_vs_learned():
    config = small(RockPaperScissors).multi_agent(
        policies={"always_same", "beat_last", "learned"},
        policy_mapping_fn=lambda aid, episode: (
            "learned" if aid == "player_0" else random.choice(["always_same", "beat_last"])
        ),
        policies_to_train=["learned"],
    )
    config.rl_module(
        rl_module_spec=MultiRLModuleSpec(
            rl_module_specs={
                "always_same": RLModuleSpec(
                    module_class=ScriptedPlayer, model_config={"choice": 1}
                ),
                "beat_last": RLModuleSpec(ScriptedPlayer),
                "learned": RLModuleSpec(),
            }
        )
    )
    sampled = steps_by_module(config)
    assert sampled["learned"] == 60
    assert sampled["always_same"] + sampled["beat_last"] == 60


def test_custom_heuristic_policy():
    config = small(MultiAgentCartPole, num_agents=2).multi_agent(
        policies={"learnable_policy", "random"},
        policy_mapping_fn=lambda aid, *args, **kwargs: ["learnable_policy", "random"][aid],
        policies_to_train=["learnable_policy"],
    )
    specs = {
        "learnable_policy": RLModuleSpec(),
        "random": RLModuleSpec(RandomRLModule),
    }
    config.rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=specs))
    assert steps_by_module(config).keys() == {"learnable_policy", "random"}


class SelfPlay(RLlibCallback):
    """Adds a copy whenever the learner's return is above a bound, as RLlib's callback does."""

    def __init__(self):
        self.current_opponent = 0

    def on_train_result(self, *, algorithm, result, **_):
        if result["env_runners"]["module_episode_returns_mean"]["main"] < -15.0:
            return
        self.current_opponent += 1
        opponents = [f"main_v{i}" for i in range(1, self.current_opponent + 1)]

        def mapping(agent_id, episode, **_):
            if (episode.number % 2 == 0) == (agent_id == "player_0"):
                return "main"
            return str(np.random.choice(opponents))  # noqa: NPY002 - as in RLlib's script

        module = algorithm.get_module("main")
        algorithm.add_module(
            module_id=opponents[-1],
            module_spec=RLModuleSpec.from_module(module),
            module_state=module.get_state(),
            new_agent_to_module_mapping_fn=mapping,
        )


def test_self_play_with_open_spiel():
    config = small(RockPaperScissors).multi_agent(
        policies={"main", "random"},
        policy_mapping_fn=lambda aid, episode, **kwargs: "main" if aid == "player_0" else "random",
        policies_to_train=["main"],
    )
    specs = {"main": RLModuleSpec(), "random": RLModuleSpec(RandomRLModule)}
    config.rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=specs)).callbacks(SelfPlay)
    with config.build_algo() as algo:
        for _ in range(3):
            sampled = algo.train()["env_runners"]["num_module_steps_sampled"]
        assert set(algo.module_ids) == {"main", "random", "main_v1", "main_v2", "main_v3"}
        assert set(sampled) <= {"main", "main_v1", "main_v2", "random"}
        assert sampled["main_v2"] + sampled["main_v1"] > 0
        assert [id_ for id_ in algo.module_ids if algo.is_trained(id_)] == ["main"]


def test_a_hash_of_the_episode_is_refused_with_what_to_write():
    config = small(RockPaperScissors).multi_agent(
        policies={"main", "old"},
        policy_mapping_fn=lambda aid, episode, **_: "main" if hash(episode.id_) % 2 else "old",
    )
    with pytest.raises(ConfigError, match=r"`episode.number % 2` instead of `hash\("):
        config.build_algo()


def test_two_step_game_with_grouped_agents():
    def grouped(config):
        env = TwoStepGame(config)
        agents = list(env.possible_agents)
        spaces = [
            [get(agent) for agent in agents]
            for get in (env.get_observation_space, env.get_action_space)
        ]
        return env.with_agent_groups(
            {"agents": agents}, obs_space=Tuple(spaces[0]), act_space=Tuple(spaces[1])
        )

    register_env("grouped_two_step_game", grouped)
    assert steps_by_module(small("grouped_two_step_game")) == {"default_policy": 60}


class GroupedInside(MultiAgentEnv):
    """As RLlib's TwoStepGameWithGroupedAgents, which asks the env inside for spaces of groups."""

    def __init__(self, config):
        super().__init__()
        inner = TwoStepGame(config)
        pairs = {
            f"{kind}_space": Tuple([getattr(inner, f"{name}_space")] * 2)
            for kind, name in (("obs", "observation"), ("act", "action"))
        }
        self.env = GroupAgentsWrapper(inner, {"agents": inner.possible_agents}, *pairs.values())
        self.observation_space = Dict({"agents": self.env.observation_space})
        self.action_space = Dict({"agents": self.env.action_space})

    def reset(self, *, seed=None, options=None):
        return self.env.reset(seed=seed, options=options)

    def step(self, actions):
        return self.env.step(actions)


def test_a_grouped_env_has_the_spaces_that_were_given():
    assert steps_by_module(small(GroupedInside)) == {"default_policy": 60}


@pytest.mark.parametrize("shared", [True, False])
def test_pettingzoo_parameter_sharing_and_independent_learning(shared):
    rps = pytest.importorskip("pettingzoo.classic.rps_v2")
    register_env("rps", lambda _: ParallelPettingZooEnv(rps.parallel_env(max_cycles=5)))
    ids = ["p0"] if shared else ["player_0", "player_1"]
    config = small("rps").multi_agent(
        policies=set(ids),
        policy_mapping_fn=lambda aid, *args, **kwargs: "p0" if shared else aid,
    )
    specs = {id_: RLModuleSpec() for id_ in ids}
    config.rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=specs))
    assert steps_by_module(config) == dict.fromkeys(ids, 120 // len(ids))


class DifferentSpaces(MultiAgentEnv):
    """Each agent has spaces of its own; an episode lasts ten steps."""

    def __init__(self, env_config=None):
        self.possible_agents = self.agents = ["agent0", "agent1"]
        self.observation_spaces = {
            "agent0": Box(-1.0, 1.0, (1,), np.float32),
            "agent1": Box(-1.0, 1.0, (2,), np.float32),
        }
        self.action_spaces = {
            "agent0": Discrete(2),
            "agent1": Box(0.0, 1.0, (1,), np.float32),
        }

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._t = 0
        return self._seen(), {}

    def step(self, actions):
        self._t += 1
        rewards = dict.fromkeys(self.agents, 1.0)
        return self._seen(), rewards, {"__all__": False}, {"__all__": self._t == 10}, {}

    def _seen(self):
        rng = self.np_random
        spaces = self.observation_spaces.items()
        return {a: rng.uniform(-1.0, 1.0, space.shape).astype(np.float32) for a, space in spaces}


def test_different_spaces_for_agents():
    config = small(DifferentSpaces).multi_agent(
        policies={"module0", "module1"},
        policy_mapping_fn=lambda aid, episode, **kwargs: aid.replace("agent", "module"),
    )
    assert steps_by_module(config) == {"module0": 60, "module1": 60}


def test_two_algorithms_share_an_encoder_is_refused_with_what_to_do():
    """A container of one's own, whose modules share layers, is not offered."""

    class SharedEncoder:
        pass

    with pytest.raises(ConfigError, match="multi_rl_module_class"):
        MultiRLModuleSpec(
            multi_rl_module_class=SharedEncoder,
            rl_module_specs={"p0": RLModuleSpec(), "p1": RLModuleSpec()},
        )

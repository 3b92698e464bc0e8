"""Exploring with several agents: each agent's draws are its own; rewards for novelty by module."""

import numpy as np
import pytest

from checkpoints import encode
from tests.multi_agent_runs import Gaps, Pushing, gaps, outcome
from tests.multi_agent_scripts import G4
from trainer import DQNConfig, MultiAgentEnvRunner, PPOConfig
from trainer.testing.multi_agent_envs import (
    MultiAgentCartPole,
    ScriptedMultiAgentEnv,
)

NOVELTY = {
    "Curiosity": {
        "type": "Curiosity",
        "feature_dim": 4,
        "feature_net_config": {"fcnet_hiddens": [4]},
        "inverse_net_hiddens": [4],
        "forward_net_hiddens": [4],
        "sub_exploration": {"type": "StochasticSampling"},
    },
    "RE3": {
        "type": "RE3",
        "embeds_dim": 4,
        "encoder_net_config": {"fcnet_hiddens": [4]},
        "sub_exploration": {"type": "StochasticSampling"},
    },
}


@pytest.mark.parametrize("kind", list(NOVELTY))
def test_rewards_for_novelty_are_learnt_by_every_module_and_survive_a_restore(kind, tmp_path):
    def config(num_env_runners=0):
        made = gaps(num_env_runners, 2 - num_env_runners // 2)
        return made.env_runners(exploration_config=NOVELTY[kind])

    novel = outcome(config(), 3)
    assert outcome(config(2), 3) == novel
    assert outcome(gaps(0, 2), 3) != novel
    with config().build_algo() as algo:
        result = algo.train()
        paid = result["env_runners"]["hist_stats"]["episode_reward"]
        algo.save_to_path(tmp_path / "c")
        states = [one.get_state() for one in algo.explorations.values()]
        assert encode(states[0]) != encode(states[1])
    with gaps(0, 2).build_algo() as algo:
        assert algo.train()["env_runners"]["hist_stats"]["episode_reward"] == paid
    with config().build_algo() as algo:
        algo.restore_from_path(tmp_path / "c")
        for _ in range(2):
            algo.train()
        state = algo.get_state(not_components=["config"])
    assert novel.startswith(encode([state["learner"], state["connectors"], state["counters"]]))


class Third(Gaps):
    """The same game with a third agent that never appears."""

    def __init__(self, env_config):
        super().__init__(env_config)
        self.possible_agents = [*self.possible_agents, "third"]


def actions_of(env, agent, **settings):
    config = gaps(0, 1).environment(env).env_runners(**settings)
    config.multi_agent(policies={"default_policy"}, policy_mapping_fn=None)
    runner = MultiAgentEnvRunner(config=config.debugging(seed=5))
    episodes = runner.sample(num_episodes=3)
    runner.stop()
    return [
        one.agent_episodes[agent].get_actions().tolist()
        for one in episodes
        if agent in one.agent_episodes
    ]


def test_what_an_agent_draws_does_not_depend_on_who_else_is_possible():
    greedy = {"exploration_config": {"type": "EpsilonGreedy", "initial_epsilon": 0.5}}
    for settings in ({}, greedy):
        plain = actions_of(Gaps, "a", **settings)
        assert actions_of(Third, "a", **settings) == plain
        assert len(plain) == 3


def test_noise_on_weights_is_each_agents_own():
    config = DQNConfig().environment(MultiAgentCartPole, env_config={"num_agents": 2})
    config.env_runners(num_env_runners=0, exploration_config={"type": "ParameterNoise"})
    config.rl_module(model_config={"fcnet_hiddens": [4]}).debugging(seed=3)
    with config.build_algo() as algo:
        runner = algo.env_runner
        (episode,) = runner.sample(num_timesteps=8)
    first, second = (
        one.get_extra_model_outputs("action_dist_inputs") for one in episode.agent_episodes.values()
    )
    shortest = min(len(first), len(second))
    assert (first[:shortest] != second[:shortest]).any()


def test_uniform_actions_change_nothing_that_comes_later():
    def played(*kinds):
        runner = MultiAgentEnvRunner(config=gaps(0, 1))
        episodes = []
        for is_random in kinds:
            episodes.append(runner.sample(num_episodes=2, random_actions=is_random))
        runner.stop()
        return [
            [(a, one.get_actions().tolist()) for e in some for a, one in e.agent_episodes.items()]
            for some in episodes
        ]

    usual, random = played(False, False), played(True, False)
    assert usual[1] == random[1]
    assert usual[0] != random[0]
    assert played(True, False) == random
    counts = np.bincount([a for _, own in played(*[True] * 20)[0] for a in own], minlength=3)
    assert (counts > 0).all()


def test_a_row_that_was_begun_at_random_is_completed_by_a_module():
    runner = MultiAgentEnvRunner(config=gaps(0, 2))
    for is_random in (False, True, False, True, True, False):
        for episode in runner.sample(num_timesteps=6, random_actions=is_random):
            episode.validate()
            for one in episode.agent_episodes.values():
                columns = one.extra_model_outputs
                assert {len(column) for column in columns.values()} <= {len(one)}
    runner.stop()


@pytest.mark.parametrize("is_restored", [False, True])
def test_an_action_that_waited_has_the_likelihood_of_when_it_was_chosen(is_restored, tmp_path):
    """B acts in the first iteration, when all actions are uniform, and is observed in the second,
    when the best one is taken; nothing else of B's module acts meanwhile."""
    told = []

    def shown(*, agent_id, postprocessed_batch, **_):
        told.append((agent_id, "shown", postprocessed_batch["action_logp"].tolist()))

    def sampled(*, samples, **_):
        for episode in samples:
            for agent, chunk in episode.agent_episodes.items():
                logp = chunk.get_extra_model_outputs("action_logp") if len(chunk) else []
                told.append((agent, "sampled", [float(one) for one in logp]))

    def config():
        made = PPOConfig().environment(ScriptedMultiAgentEnv, env_config={"script": G4})
        made.env_runners(
            num_env_runners=0,
            exploration_config={
                "type": "EpsilonGreedy",
                "epsilon_schedule": [[0, 1.0], [1, 1.0], [2, 0.0]],
            },
        )
        made.multi_agent(policies=["a", "b"], policy_mapping_fn={"A": "a", "B": "b"})
        made.training(train_batch_size=2, minibatch_size=None, num_epochs=1)
        made.rl_module(model_config={"fcnet_hiddens": [4]}).debugging(seed=3)
        return made.callbacks(on_postprocess_trajectory=shown, on_sample_end=sampled)

    algo = config().build_algo()
    algo.train()
    assert ("B", "sampled", []) in told  # it waits
    if is_restored:
        path = algo.save_to_path(tmp_path / "c")
        algo.stop()
        algo = config().build_algo()
        algo.restore_from_path(path)
    told.clear()
    algo.train()
    algo.stop()
    uniform = -np.log(64.0)
    for where in ("shown", "sampled"):
        (found,) = [logp for agent, of, logp in told if (agent, of) == ("B", where)]
        np.testing.assert_allclose(found, [uniform, 0.0], rtol=1e-6)


def test_noise_of_features_is_of_one_module_alone():
    """Each agent that it acts for has its own; the module beside it draws as before."""

    def config(num_env_runners=0, *, by_feature=True):
        made = gaps(num_env_runners, 2 - num_env_runners // 2).environment(Pushing)
        if not by_feature:
            return made
        model = {"fcnet_hiddens": [8], "free_log_std": True, "log_std_by_feature": True}
        own = PPOConfig.overrides(
            exploration_config={"type": "StateDependentNoise", "sample_freq": 2},
            model_config=model,
        )
        ids = sorted(made.policies)
        return made.multi_agent(algorithm_config_overrides_per_module={ids[0]: own})

    explored = outcome(config(), 3)
    assert outcome(config(2), 3) == explored
    assert outcome(config(by_feature=False), 3) != explored

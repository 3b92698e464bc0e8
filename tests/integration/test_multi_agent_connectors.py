"""Connector pieces with several agents: each agent has pieces of its own; exact as without."""

import numpy as np
import pytest
from gymnasium import spaces

from tests.exact_runs import counting
from tests.multi_agent_runs import gaps, outcome
from tests.small_runs import small_ppo
from trainer import (
    ConnectorV2,
    FlattenObservations,
    MultiAgentEnvRunner,
    MultiAgentObservationPreprocessor,
    TrainerError,
)
from trainer.connectors import FrameStacking, MeanStdFilter
from trainer.errors import ConfigError


def test_each_agent_has_pieces_that_see_its_own_episode():
    runner = MultiAgentEnvRunner(config=counting(0, 1))
    episodes = runner.sample(num_episodes=3)
    plain = MultiAgentEnvRunner(config=gaps(0, 1))
    assert plain.agents.observation_spaces["a"].shape == (3,)
    assert runner.agents.observation_spaces["a"].shape == (6,)
    plain.stop()
    runner.stop()
    seen = dict.fromkeys((3, "a", "late"), 0)
    for episode in episodes:
        for agent, own in episode.agent_episodes.items():
            observations, rewards = own.get_observations(), own.get_rewards()
            if len(own) and (observations[-1] == observations[-2]).all():
                # It ended unseen: the last one stands there once more.
                observations, rewards = observations[:-1], rewards[:-1]
            rows = np.arange(len(observations))
            np.testing.assert_array_equal(observations[:, 3], rows)
            np.testing.assert_allclose(observations[1:, 4], rewards, rtol=1e-6)
            np.testing.assert_array_equal(observations[:, 5], seen[agent] + rows + 1)
            seen[agent] += len(rows)


class Others(MultiAgentObservationPreprocessor):
    """Shows each agent the sum of what the others see, in front of its own."""

    def recompute_output_observation_space(self, observations, actions):
        assert actions["a"] == spaces.Discrete(3)
        return spaces.Dict({agent: spaces.Box(-9, 9, (4,), np.float32) for agent in observations})

    def preprocess(self, observations, episode):
        assert episode is None
        return {
            agent: np.append(sum(o.sum() for a, o in observations.items() if a != agent), own)
            for agent, own in observations.items()
        }


class Losing(Others):
    def preprocess(self, observations, episode):
        return {}


def test_one_piece_sees_all_agents_of_a_step():
    asked = gaps(0, 1).env_runners(
        env_to_module_connector=lambda *_: [Others(), FrameStacking(num_frames=2)]
    )
    runner = MultiAgentEnvRunner(config=asked)
    (episode,) = runner.sample(num_episodes=1)
    assert runner.agents.observation_spaces["late"].shape == (8,)
    runner.stop()
    first = episode.get_observations(0)
    for agent, other in (("a", 3), (3, "a")):
        assert np.isclose(first[agent][4], first[other][5:].sum())
    assert (first["a"][:4] == 0.0).all()


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (lambda *_: [FlattenObservations(), Others()], "Put it first"),
        (lambda *_: Losing(), r"given the observations of \['a', 3\] and returned \{\}"),
    ],
)
def test_a_piece_of_all_agents_that_does_not_fit_is_told(made, told):
    with pytest.raises(TrainerError, match=told):
        gaps(0, 1).env_runners(env_to_module_connector=made).build_algo().train()


def test_a_piece_of_all_agents_needs_several():
    with pytest.raises(ConfigError, match="needs an env of several agents"):
        small_ppo(env_to_module_connector=lambda *_: Others()).build_algo()


def test_the_env_gets_the_changed_actions():
    class Told(ConnectorV2):
        told = []

        def __call__(self, *, batch, **_):
            self.told.append(int(batch["actions"][0]))
            batch["actions_for_env"] = [0]
            return batch

    config = gaps(0, 1).env_runners(module_to_env_connector=lambda *_: Told())
    runner = MultiAgentEnvRunner(config=config)
    (episode,) = runner.sample(num_episodes=1)
    env = runner.env.envs[0]
    assert env.unwrapped._total == 0
    runner.stop()
    steps = episode.get_actions(return_list=True)
    assert Told.told == [int(action) for actions in steps for action in actions.values()]
    assert any(Told.told)


def test_runs_with_pieces_do_not_depend_on_the_order_of_agents():
    ordered = outcome(counting(0, 2), 2)
    assert outcome(counting(0, 2, shuffles=True), 2) == ordered
    assert outcome(gaps(0, 2), 2) != ordered


def test_evaluation_begins_every_episode_alike():
    config = counting(0, 2).evaluation(evaluation_interval=1, evaluation_duration=2)
    with config.build_algo() as algo:
        algo.train()
        before = algo.evaluate()["env_runners"]["episode_return_mean"]
        assert algo.evaluate()["env_runners"]["num_episodes"] == 2
        assert np.isfinite(before)


def test_ready_made_pieces():
    stacking = gaps(0, 1).env_runners(
        env_to_module_connector=lambda *_: [FlattenObservations(), FrameStacking(num_frames=2)]
    )
    runner = MultiAgentEnvRunner(config=stacking)
    (episode,) = runner.sample(num_episodes=1)
    runner.stop()
    own = episode.agent_episodes["a"].get_observations()
    np.testing.assert_array_equal(own[0][:3], np.zeros(3))
    np.testing.assert_array_equal(own[1:, :3], own[:-1, 3:])
    filtered = gaps(0, 2).env_runners(
        observation_filter="NoFilter",
        env_to_module_connector=lambda *_: MeanStdFilter(multi_agent=True),
    )
    with filtered.build_algo() as algo:
        algo.train()
        assert all(one.has_state for one in algo.normalizations.values())


def test_what_pieces_cannot_do_is_refused():
    wrong = gaps(0, 1).env_runners(env_to_module_connector=lambda *_: "x")
    with pytest.raises(ConfigError, match="expected a ConnectorV2"):
        wrong.build_algo()
    with counting(0, 1).build_algo() as algo, pytest.raises(ConfigError, match="connector"):
        algo.compute_actions({"a": np.zeros(3, np.float32)})

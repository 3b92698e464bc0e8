"""What code written for RLlib's old episodes finds."""

import pickle

import numpy as np
import pytest
from gymnasium import spaces

from trainer import PPOConfig
from trainer.episodes import SingleAgentEpisode
from trainer.errors import EpisodeError
from trainer.testing.envs import CountdownEnv


def played():  # type checkers know the present names only
    episode = SingleAgentEpisode("e")
    episode.add_env_reset("o0", {"i": 0})
    outputs = {"action_logp": -1.0}
    episode.add_env_step("o1", "a1", 1, {"i": 1}, extra_model_outputs=outputs)
    episode.add_env_step("o2", "a2", 2, {"i": 2}, extra_model_outputs=outputs)
    return episode


def test_old_attributes():
    episode = played()
    episode.env_id = 4
    assert (episode.episode_id, episode.env_id, episode.length) == ("e", 4, 2)
    assert episode.total_reward == 3.0
    assert episode.agent_rewards == {("default_agent", "default_policy"): 3.0}
    assert (episode.custom_metrics, episode.user_data, episode.hist_data) == ({}, {}, {})
    assert (episode.get_agents(), episode.policy_for()) == (["default_agent"], "default_policy")
    assert (episode.started, episode.is_finalized) == (True, False)
    named = SingleAgentEpisode("e", agent_id="a", module_id="m")
    assert named.agent_rewards == {("a", "m"): 0.0}
    assert (named.length, named.started) == (-1, False)


@pytest.mark.parametrize("agent", [None, "agent0", "default_agent"])
def test_newest_items(agent):
    episode = played()
    assert episode.last_observation_for(agent) == "o2"
    assert episode.last_raw_obs_for(agent) == "o2"
    assert episode.last_info_for(agent) == {"i": 2}
    assert (episode.last_action_for(agent), episode.prev_action_for(agent)) == ("a2", "a1")
    assert (episode.last_reward_for(agent), episode.prev_reward_for(agent)) == (2.0, 1.0)
    assert episode.last_extra_action_outs_for(agent) == {"action_logp": -1.0}
    assert episode.rnn_state_for(agent) == []


def test_a_fresh_episode_has_no_newest_observation_and_zeros_for_the_rest():
    box = spaces.Box(-1, 1, (2,))
    anonymous = SingleAgentEpisode("e")
    episode = SingleAgentEpisode("e", action_space=box)
    assert episode.last_info_for() is None
    assert episode.last_observation_for() is episode.last_raw_obs_for() is None
    assert episode.last_extra_action_outs_for() == {}
    assert (episode.last_reward_for(), episode.prev_reward_for()) == (0.0, 0.0)
    assert episode.last_action_for().tolist() == episode.prev_action_for().tolist() == [0, 0]
    assert anonymous.last_action_for() == 0  # no space, no form
    episode.add_env_reset(np.ones(1))
    episode.add_env_step(np.ones(1), np.ones(2, np.float32), 5.0)
    assert (episode.last_reward_for(), episode.prev_reward_for()) == (5.0, 0.0)
    assert episode.last_action_for().tolist() == [1, 1]
    assert episode.prev_action_for().tolist() == [0, 0]


class Runner:
    """Whatever steps the env."""


def test_the_worker_is_known_where_it_plays_and_is_not_kept_alive():
    runner, episode = Runner(), played()
    assert (episode.worker, episode.env_id) == (None, None)
    episode.note_player(runner, 3)
    successor = episode.cut()
    for chunk in (episode, successor, successor[0:0]):
        assert chunk.worker is runner
        assert chunk.env_id == 3
    elsewhere = pickle.loads(pickle.dumps(episode))
    assert (elsewhere.worker, elsewhere.env_id) == (None, 3)
    restored = SingleAgentEpisode.from_state(episode.get_state())
    assert (restored.worker, restored.env_id) == (None, None)
    del runner
    assert episode.worker is None


def test_an_info_is_found_right_after_a_cut():
    successor = played().cut(1)
    assert successor.last_info_for() == {"i": 2}
    assert (successor.last_action_for(), successor.last_reward_for()) == ("a2", 2.0)
    assert (successor.prev_action_for(), successor.prev_reward_for()) == (0, 0.0)


def test_an_unknown_agent_is_an_error():
    with pytest.raises(EpisodeError, match=r"no agent 'car_1'.*'default_agent'"):
        played().last_info_for("car_1")


def test_finalize_is_to_numpy():
    episode = SingleAgentEpisode("e")
    episode.add_env_reset(0)
    episode.add_env_step(1, 0, 1.0)
    episode.finalize()
    assert episode.is_finalized
    episode.add_env_step(2, 0, 1.0)
    assert episode.get_observations().tolist() == [0, 1, 2]


def test_callbacks_find_worker_and_sub_env_also_when_an_episode_goes_on():
    seen = []

    def note(episode, env_runner, env_index):
        seen.append((episode.worker is env_runner, episode.env_id == env_index))

    config = PPOConfig().environment(CountdownEnv).debugging(seed=1)
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=2)
    config.training(train_batch_size=20, minibatch_size=10, model={"fcnet_hiddens": [2]})
    config.callbacks(on_episode_created=note, on_episode_step=note, on_episode_end=note)
    with config.build_algo() as algo:
        for _ in range(3):
            algo.env_runner.sample(num_timesteps=5)
        algo.set_state(algo.get_state())  # the running episodes are made anew
        algo.env_runner.sample(num_timesteps=5)
    assert len(seen) > 20
    assert set(seen) == {(True, True)}

"""Cutting, slicing and joining: what belongs to the chunk and what to the whole episode."""

import threading

import numpy as np
import pytest

from trainer.episodes import SingleAgentEpisode
from trainer.errors import EpisodeError


def play(episode, rewards, *, done=False):
    for number, reward in enumerate(rewards):
        step = episode.t + 1
        episode.add_env_step(
            np.array([step, -step], np.float32),
            step % 3,
            reward,
            {"step": step},
            terminated=done and number == len(rewards) - 1,
            extra_model_outputs={"action_logp": step / 8},
        )


def started(**arguments):
    episode = SingleAgentEpisode("e", **arguments)
    episode.add_env_reset(np.zeros(2, np.float32), {"step": 0})
    return episode


def played(rewards, *, done=False):
    episode = started()
    play(episode, rewards, done=done)
    return episode


def test_a_cut_hands_on_what_belongs_to_the_whole_episode():
    episode = started(agent_id="a", module_id="m", multi_agent_episode_id="x")
    episode.env_id = 3
    play(episode, [1.0, 2.0, 4.0])
    successor = episode.cut(len_lookback_buffer=2)
    assert (successor.id_, successor.agent_id, successor.module_id) == ("e", "a", "m")
    assert (successor.multi_agent_episode_id, successor.env_id) == ("x", 3)
    assert (successor.t_started, successor.t, len(successor)) == (3, 3, 0)
    assert [o.tolist() for o in successor.get_observations()] == [[3, -3]]
    assert [o.tolist() for o in successor.observations.data] == [[1, -1], [2, -2], [3, -3]]
    assert successor.get_infos(-1) == {"step": 3}
    assert successor.get_rewards(-1, neg_index_as_lookback=True) == 4.0
    play(successor, [8.0, 16.0], done=True)
    assert (successor.get_return(), successor.chunk_return()) == (31.0, 24.0)
    assert (episode.get_return(), episode.chunk_return()) == (7.0, 7.0)
    assert (len(successor), successor.t) == (2, 5)
    assert not episode.is_done
    own = {"_player", "env_id", "earlier_change"}
    assert vars(successor).keys() - own == vars(SingleAgentEpisode("e")).keys() - own


def test_the_lookback_is_at_most_what_there_is():
    episode = played([1.0, 2.0])
    assert episode.cut(9).lookback == 2
    chain = played([1.0, 2.0]).cut(2)
    play(chain, [3.0])
    assert chain.cut(9).lookback == 3  # the look-back of the chunk before counts as well
    assert started().cut(5).lookback == 0


def test_a_numpy_chunk_has_a_successor_that_grows_lists():
    successor = played([1.0, 2.0]).to_numpy().cut(1)
    assert not successor.is_numpy
    play(successor, [3.0])
    successor.to_numpy().validate()
    assert successor.get_return() == 6.0
    assert successor.observations.data.tolist() == [[1, -1], [2, -2], [3, -3]]


def test_data_of_users_survives_the_cut():
    lock = threading.Lock()
    episode = played([1.0])
    episode.custom_data["angles"] = [0.5]
    episode.user_data["lock"] = lock
    episode.custom_metrics["score"] = 3
    episode.hist_data["speeds"] = [1, 2]
    episode.media["frame"] = "f"
    episode.add_temporary_timestep_data("x", 1)
    angles = episode.custom_data["angles"]
    successor = episode.cut()
    successor.add_temporary_timestep_data("x", 2)
    angles.append(0.75)  # a callback that kept the list still reaches the running episode
    assert successor.custom_data == {"angles": [0.5, 0.75]}
    assert episode.custom_data == {"angles": [0.5]}  # a snapshot for the learner
    assert successor.user_data["lock"] is lock
    assert (successor.custom_metrics, successor.hist_data) == ({"score": 3}, {"speeds": [1, 2]})
    assert successor.media == {"frame": "f"}
    assert successor.get_temporary_timestep_data("x") == [1, 2]
    assert episode.user_data == episode.custom_metrics == episode.hist_data == {}
    assert successor.get_temporary_timestep_data("unknown") == []


def test_custom_data_that_cannot_be_copied_is_named_and_nothing_is_lost():
    episode = played([1.0])
    episode.custom_data["lock"] = threading.Lock()
    with pytest.raises(EpisodeError, match=r"keys \['lock'\] cannot be copied .*self\.files"):
        episode.cut()
    play(episode, [1.0])
    assert episode.get_return() == 2.0


def test_only_a_running_episode_is_cut():
    with pytest.raises(EpisodeError, match="is done, so it cannot be cut"):
        played([1.0], done=True).cut()
    with pytest.raises(EpisodeError, match="was not reset, so it cannot be cut"):
        SingleAgentEpisode("e").cut()


def test_adding_up_chunk_returns_would_be_wrong():
    """Negative control: rounded sums of chunks differ from the return of the whole."""
    rewards = [1e16, 1.0, -1e16, 1.0]
    whole = played(rewards)
    first = played(rewards[:2])
    second = first.cut()
    play(second, rewards[2:])
    assert whole.get_return() == second.get_return() == 2.0
    assert first.chunk_return() + second.chunk_return() != 2.0


def test_concatenation_restores_user_data_and_the_end():
    first = played([1.0])
    first.custom_metrics["score"] = 1
    second = first.cut(1)
    second.custom_metrics["later"] = 2
    second.custom_data["x"] = 1
    play(second, [2.0], done=True)
    first.concat_episode(second)
    assert first.custom_metrics == {"score": 1, "later": 2}
    assert first.custom_data == {"x": 1}
    assert (first.t, len(first), first.is_terminated) == (2, 2, True)


def test_only_the_following_chunk_can_be_appended():
    def problem(first, other):
        with pytest.raises(EpisodeError, match="cannot be appended") as caught:
            first.concat_episode(other)
        return str(caught.value)

    first = played([1.0, 2.0])
    stranger = SingleAgentEpisode("other")
    assert "ids differ" in problem(first, stranger)
    assert "ends at step 2, the other begins at 0" in problem(first, started())
    assert "is done" in problem(played([1.0], done=True), first)
    moved = SingleAgentEpisode("e", observations=[np.ones(2)], t_started=2)
    assert "not the first observation" in problem(first, moved)
    assert "no observation" in problem(first, SingleAgentEpisode("e", t_started=2))
    other_outputs = SingleAgentEpisode("e", observations=[np.array([2, -2])], t_started=2)
    other_outputs.add_env_step(np.zeros(2), 0, 0.0)
    assert "different extra outputs" in problem(first, other_outputs)


def test_slices_are_contiguous_and_single_steps_have_no_form():
    episode = played([1.0, 2.0])
    with pytest.raises(EpisodeError, match="step 2"):
        episode[::2]
    with pytest.raises(NotImplementedError, match=r"get_observations\(1\)"):
        episode[1]


@pytest.mark.parametrize("numpy", [False, True])
def test_the_data_dict_has_one_row_per_step(numpy):
    episode = played([0.5, 0.25]).cut(1)
    play(episode, [1.0, 2.0], done=True)
    if numpy:
        episode.to_numpy()
    data = episode.get_data_dict()
    assert set(data) == {
        *("eps_id", "t", "obs", "infos", "actions", "rewards", "terminateds", "truncateds"),
        "action_logp",
    }
    assert [int(o[0]) for o in data["obs"]] == [2, 3]
    assert data["t"].tolist() == [2, 3]
    assert data["infos"] == [{"step": 2}, {"step": 3}]
    assert [int(a) for a in data["actions"]] == [0, 1]
    assert [float(r) for r in data["rewards"]] == [1.0, 2.0]
    assert data["terminateds"].tolist() == [False, True]
    assert data["truncateds"].tolist() == [False, False]
    assert data["eps_id"].tolist() == ["e", "e"]
    assert [float(x) for x in data["action_logp"]] == [3 / 8, 4 / 8]
    assert list(episode.get_sample_batch()) == list(data)
    assert started().get_data_dict()["terminateds"].shape == (0,)

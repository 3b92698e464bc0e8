"""The built-in metrics of finished episodes."""

import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoints import check_shape, codec
from trainer.episodes import SingleAgentEpisode
from trainer.errors import MetricsError
from trainer.metrics import EpisodeRecord, EpisodeStatistics
from trainer.metrics.logger import EPISODES_STATE


def records(*returns, **more):
    return [
        EpisodeRecord(
            f"e{number}",
            value,
            length=number + 1,
            duration_s=0.5,
            **{"module_id": "default_policy", **more},
        )
        for number, value in enumerate(returns)
    ]


def test_before_any_episode_has_ended():
    result = EpisodeStatistics().result()
    assert math.isnan(result["episode_return_mean"])
    assert math.isnan(result["episode_len_max"])
    assert math.isnan(result["episode_duration_sec_mean"])
    assert (result["num_episodes"], result["num_episodes_lifetime"]) == (0, 0)
    assert (result["custom_metrics"], result["agent_episode_return_mean"]) == ({}, {})


def test_known_answers():
    statistics = EpisodeStatistics()
    statistics.add(records(1.0, 3.0, 8.0))
    result = statistics.result()
    assert [result[f"episode_return_{s}"] for s in ("mean", "min", "max")] == [4.0, 1.0, 8.0]
    assert [result[f"episode_len_{s}"] for s in ("mean", "min", "max")] == [2.0, 1, 3]
    assert result["episode_duration_sec_mean"] == 0.5
    assert result["agent_episode_return_mean"] == {"default_agent": 4.0}
    assert result["module_episode_return_mean"] == {"default_policy": 4.0}
    assert result["hist_stats"] == {"episode_reward": [1.0, 3.0, 8.0], "episode_lengths": [1, 2, 3]}
    assert "episode_media" not in result


def test_without_a_window_all_episodes_count():
    statistics = EpisodeStatistics(smoothing=None)
    for _ in range(3):
        statistics.begin_iteration()
        statistics.add(records(*range(50)))
    assert len(statistics.get_state()["records"]) == 150
    assert statistics.result()["episode_return_mean"] == 24.5
    assert statistics.result()["num_episodes"] == 50


def test_a_window_holds_at_least_one_episode():
    with pytest.raises(MetricsError, match="metrics_num_episodes_for_smoothing"):
        EpisodeStatistics(smoothing=0)


def test_custom_metrics_and_hist_data_of_old_callbacks():
    statistics = EpisodeStatistics(smoothing=2)
    statistics.add(records(1.0, custom_metrics={"x": 9.0}, hist_data={"h": [9]}))
    statistics.begin_iteration()
    statistics.add(records(1.0, custom_metrics={"x": 1.0, "y": math.nan}, hist_data={"h": [1, 2]}))
    statistics.add(records(1.0, custom_metrics={"x": 3.0}, hist_data={"h": [3]}, media={"m": "f"}))
    result = statistics.result()
    assert str(result["custom_metrics"]) == (
        "{'x_mean': 2.0, 'x_min': 1.0, 'x_max': 3.0, 'y_mean': nan, 'y_min': nan, 'y_max': nan}"
    )
    assert result["hist_stats"]["h"] == [1, 2, 3]
    assert result["episode_media"] == {"m": ["f"]}


def test_custom_metrics_can_be_kept_as_lists():
    statistics = EpisodeStatistics(keep_per_episode_custom_metrics=True)
    for value in (1.0, 2.0):
        statistics.add(records(0.0, custom_metrics={"x": value}))
    assert statistics.result()["custom_metrics"] == {"x": [1.0, 2.0]}


def test_returns_by_agent_and_module():
    statistics = EpisodeStatistics()
    statistics.add(records(1.0, agent_id="a", module_id="m"))
    statistics.add(records(2.0, 4.0, agent_id="b", module_id="m"))
    result = statistics.result()
    assert result["agent_episode_return_mean"] == {"a": 1.0, "b": 3.0}
    assert result["module_episode_return_mean"] == {"m": 7.0 / 3.0}


def ended(**arguments):
    episode = SingleAgentEpisode("e", **arguments)
    episode.add_env_reset(0)
    episode.add_env_step(0, 0, 1.0)
    episode = episode.cut(1)
    episode.add_env_step(0, 0, 2.0, terminated=True)
    return episode


def test_a_record_is_of_the_whole_episode():
    episode = ended(agent_id="a", module_id="m")
    episode.custom_metrics = {"x": np.longdouble(0.5), "y": np.array(2), "z": True}  # rebound
    episode.hist_data["h"] = [np.float64(1.0), 2]
    episode.media = {"clip": b"..."}  # RLlib loses what is bound anew; here it counts
    record = EpisodeRecord.from_episode(episode)
    assert (record.id_, record.episode_return, record.length) == ("e", 3.0, 2)
    assert (record.agent_id, record.module_id) == ("a", "m")
    assert record.custom_metrics == {"x": 0.5, "y": 2, "z": True}
    assert type(record.custom_metrics["x"]) is float
    assert (record.hist_data, record.media) == ({"h": [1.0, 2.0]}, {"clip": b"..."})
    assert record.duration_s == episode.get_duration_s()
    assert pickle.loads(pickle.dumps(record)) == record
    assert EpisodeRecord.from_episode(ended()).agent_id == "default_agent"


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("custom_metrics", "text", "a number"),
        ("custom_metrics", [1, 2], "a number"),
        ("custom_metrics", None, "a number"),
        ("custom_metrics", 10**400, "a number"),
        ("hist_data", 5, "a list of numbers"),
        ("hist_data", ["a"], "a list of numbers"),
        ("hist_data", [[1], [1, 2]], "a list of numbers"),
    ],
)
def test_other_values_are_refused_by_name(name, value, wanted):
    episode = ended()
    getattr(episode, name)["k"] = value
    with pytest.raises(MetricsError, match=rf"episode.{name}\['k'\] is .*, not {wanted}"):
        EpisodeRecord.from_episode(episode)


@pytest.mark.parametrize("name", ["episode_reward", "episode_lengths", "rewritten_return"])
def test_hist_data_does_not_mix_with_a_standard_list(name):
    episode = ended()
    episode.hist_data[name] = [1.0]
    with pytest.raises(MetricsError, match=rf"hist_data has '{name}', .* Choose another name"):
        EpisodeRecord.from_episode(episode)


def test_empty_hist_data_is_a_list():
    episode = ended()
    episode.hist_data["h"] = []
    assert EpisodeRecord.from_episode(episode).hist_data == {"h": []}


RETURNS = st.lists(st.lists(st.floats(-1e16, 1e16), max_size=4), max_size=5)


@given(iterations=RETURNS, smoothing=st.integers(1, 6), restore_at=st.integers(0, 5))
def test_a_restored_run_goes_on_with_the_same_numbers(iterations, smoothing, restore_at):
    statistics = EpisodeStatistics(smoothing=smoothing)
    history = []
    for number, returns in enumerate(iterations):
        statistics.begin_iteration()
        assert len(statistics.get_state()["records"]) == min(smoothing, len(history)), "bounded"
        statistics.add(records(*returns, custom_metrics={"x": 1.0}))
        history += returns
        if number == restore_at:
            encoded = codec.encode(statistics.get_state())
            before = statistics.result()
            statistics = EpisodeStatistics(smoothing=smoothing)
            check_shape(codec.decode(encoded), EPISODES_STATE)
            statistics.set_state(codec.decode(encoded))
            assert codec.encode(statistics.get_state()) == encoded
            after = statistics.result()
            before["episode_duration_sec_mean"] = after["episode_duration_sec_mean"]
            assert str(after) == str(before)
        recent = history[-smoothing:]
        result = statistics.result()
        if recent:
            assert result["episode_return_mean"] == math.fsum(recent) / len(recent)
            assert result["episode_return_min"] == min(recent)
        assert result["num_episodes"] == len(returns)
        assert result["num_episodes_lifetime"] == len(history)
        assert result["hist_stats"]["episode_reward"] == returns


def test_states_hold_no_time():
    first, second = EpisodeStatistics(), EpisodeStatistics()
    first.add([EpisodeRecord("e", 1.0, 5, duration_s=0.1)])
    second.add([EpisodeRecord("e", 1.0, 5, duration_s=0.2)])
    assert codec.encode(first.get_state()) == codec.encode(second.get_state())


def test_a_record_made_in_the_short_way_is_as_any_other():
    values = {"episode_return": 2.5, "length": 3, "duration_s": 0.5}
    short = EpisodeRecord.of_plain("e", module_id="m", **values)
    made = EpisodeRecord("e", module_id="m", **values)
    assert short == made
    assert vars(short).keys() == vars(made).keys()
    assert pickle.loads(pickle.dumps(short)) == made

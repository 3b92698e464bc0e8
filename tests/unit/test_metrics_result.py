"""Results: three spellings of keys, the printed form, and what two runs can be compared by."""

import copy
import json
import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.metrics import ResultDict, comparable
from trainer.rllib_names.metrics import OLD_KEYS, OLD_PATHS


def example():
    runners = {
        "episode_return_mean": 20.5,
        "episode_return_min": 9.0,
        "episode_return_max": 31.0,
        "episode_len_mean": 20.5,
        "episode_duration_sec_mean": 0.01,
        "num_episodes": 3,
        "num_episodes_lifetime": 30,
        "num_env_steps_sampled": 4000,
        "num_env_steps_sampled_lifetime": 40000,
        "num_agent_steps_sampled": {"default_agent": 4000},
        "num_agent_steps_sampled_lifetime": {"default_agent": 40000},
        "num_env_steps_sampled_lifetime_throughput": 70000.0,
        "module_episode_return_mean": {"default_policy": 20.5},
        "custom_metrics": {"angle_mean": 0.5},
        "hist_stats": {"episode_reward": [1.0, 2.0]},
        "theta_mean": 0.25,
    }
    return {
        "env_runners": runners,
        "learners": {
            "default_policy": {"policy_loss": -0.1},
            "__all_modules__": {"num_env_steps_trained_lifetime": 40000},
        },
        "evaluation": {
            "env_runners": {"episode_return_mean": 50.0, "num_episodes": 10},
            "evaluated_at_iteration": 10,
            "fault_tolerance": {"num_healthy_workers": 1},
            "foo": 1,
        },
        "fault_tolerance": {"num_healthy_workers": 2, "num_remote_worker_restarts": 1},
        "timers": {"training_iteration": 1.5},
        "training_iteration": 10,
        "time_total_s": 12.0,
        "num_env_steps_sampled_lifetime": 40000,
        "date": "2025-01-01_00-00-00",
        "hostname": "h",
        "pid": 1,
        "config": {"lr": 0.1, "env_config": {}},
    }


def test_three_spellings_of_a_key():
    result = ResultDict(example())
    assert result["env_runners"]["episode_return_mean"] == 20.5
    assert result["env_runners/episode_return_mean"] == 20.5
    assert result["episode_reward_mean"] == 20.5
    for key in ("env_runners", "env_runners/theta_mean", "episode_reward_mean", "info"):
        assert key in result
        assert result.get(key) == result[key]
    absent = ("nothing", "env_runners/nothing", "env_runners/theta_mean/x", "date/x", 5)
    for missing in absent:
        assert missing not in result
        assert result.get(missing, 7) == 7
    assert result.get("nothing") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("episode_reward_min", 9.0),
        ("timesteps_total", 40000),
        ("agent_timesteps_total", 40000),
        ("policy_reward_mean", {"default_policy": 20.5}),
        ("policy_reward_min", {"default_policy": 9.0}),
        ("policy_reward_max", {"default_policy": 31.0}),
        ("num_agent_steps_trained", 40000),
        ("custom_metrics", {"angle_mean": 0.5}),
        (
            "counters",
            {
                "num_env_steps_sampled": 40000,
                "num_env_steps_trained": 40000,
                "num_agent_steps_sampled": 40000,
                "num_agent_steps_trained": 40000,
            },
        ),
    ],
)
def test_old_keys(key, value):
    assert ResultDict(example())[key] == value


def test_the_old_info_holds_learner_stats():
    info = ResultDict(example())["info"]
    assert info["learner"]["default_policy"]["learner_stats"]["policy_loss"] == -0.1
    assert list(info["learner"]) == ["default_policy"]
    assert info["num_env_steps_sampled"] == 40000


def test_old_keys_resolve_inside_the_evaluation():
    result = ResultDict(example())
    assert result["evaluation"]["episode_reward_mean"] == 50.0
    assert result["evaluation/episode_reward_mean"] == 50.0
    assert result["evaluation"]["num_healthy_workers"] == 1
    assert result["evaluation"]["custom_metrics"] == {}
    assert result["env_runners"]["episode_reward_mean"] == 20.5
    assert "info" not in result["evaluation"]


def test_extremes_by_module_are_known_only_of_a_single_module():
    result = ResultDict(example())
    result["env_runners"]["module_episode_return_mean"]["another"] = 1.0
    assert "policy_reward_min" not in result
    assert result["policy_reward_mean"] == {"default_policy": 20.5, "another": 1.0}
    assert "policy_reward_max" not in ResultDict({"a": 1})


def test_every_old_key_has_a_place():
    full = ResultDict()
    for paths in OLD_PATHS.values():
        for path in paths:
            *above, last = path.split("/")
            tree = full
            for part in above:
                tree = tree.setdefault(part, ResultDict())
            tree.setdefault(last, ResultDict())
    assert all(key in full for key in OLD_KEYS)


def test_a_key_of_the_user_wins_over_an_old_one():
    result = ResultDict(example())
    result["episode_reward_mean"] = -1
    assert result["episode_reward_mean"] == result.get("episode_reward_mean") == -1


NEIGHBOURS = {"env_runners": {"episode_return_mean": 1.0, "episode_len_max": 2}}


@pytest.mark.parametrize(
    ("result", "key", "told"),
    [
        (example(), "episode_rewards_mean", "'episode_reward_mean'"),
        (example(), "env_runners/thetamean", "'env_runners/theta_mean'"),
        (example(), "rollout/ep_rew_mean", "Here it is 'env_runners/episode_return_mean'"),
        (example(), 5, "no 5"),
        ({"a": 1}, "episode_reward_mean", "This result has no 'episode_reward_mean'"),
        (
            {"training_iteration": 1, "config": {"in_evaluation": 0}},
            "evaluation",
            "no evaluation c",
        ),
        ({"evaluated_at_iteration": 1}, "evaluation/env_runners", r"evaluate\(\) returns"),
        ({"main": 1, "other": 2}, "p9", "There is 'main', 'other'."),
        ({"learners": {"main": 1}}, "learners/p9", "There is 'learners/main'."),
        # Compared with its neighbours, not with what is before it.
        (NEIGHBOURS, "env_runners/episode_reward", "mean 'episode_reward_m"),
        (NEIGHBOURS, "env_runners/episode_len_maxi", "mean 'env_runners/episode_len_max'"),
    ],
)
def test_a_missing_key_names_the_nearest(result, key, told):
    with pytest.raises(KeyError, match=told):
        ResultDict(result)[key]


def test_old_keys_are_found_but_not_listed():
    result = ResultDict(example())
    assert dict(result) == example()
    assert result == example()
    assert len(result) == len(example())
    assert "episode_reward_mean" not in list(result)
    assert json.loads(json.dumps(result)) == example()


def test_copies_and_pickles_are_results_too():
    result = ResultDict(example())
    for other in (
        result.copy(),
        copy.copy(result),
        copy.deepcopy(result),
        pickle.loads(pickle.dumps(result)),
    ):
        assert type(other) is ResultDict
        assert other == result
        assert other["evaluation"]["episode_reward_mean"] == 50.0
    other = result.copy()
    other["env_runners"]["new"] = 1
    assert "env_runners/new" not in result


def test_changing_a_result_does_not_change_its_source():
    source = example()
    result = ResultDict(source, extra=1)
    result["env_runners"]["new"] = 1
    result["config"]["lr"] = 5
    assert source == example()
    assert result["extra"] == 1


def test_flat_has_one_entry_per_leaf():
    assert ResultDict({"a": {"b": {"c": 1}}, "d": [2], "e": {}}).flat() == {"a/b/c": 1, "d": [2]}
    flat = ResultDict.flatten({"env_runners": {"x": 1, "p": {5: 0.5}}, "agents": {0: {1: 2}}})
    assert flat == {"env_runners/x": 1, "env_runners/p/5": 0.5, "agents/0/1": 2}


NAMES = st.sampled_from(["a", "b", "a/b", "b/a/b", 0, 0.5, "0"])
TREES = st.recursive(
    st.integers(), lambda below: st.dictionaries(NAMES, below, min_size=1, max_size=3), max_leaves=9
)


@given(tree=st.dictionaries(NAMES, TREES, max_size=4))
def test_every_path_that_flat_lists_is_answered(tree):
    """Also with ids that are numbers, percentiles, and slashes in keys."""
    result = ResultDict(tree)
    flat = result.flat()
    assert flat == ResultDict.flatten(tree)
    texts = all_texts(tree)
    for path in flat:
        assert path in result
        if texts.count(path) == 1:  # else two keys look alike, and either will do
            assert result[path] == flat[path]


def all_texts(tree, prefix=""):
    """The slash paths of all leaves and of all dicts on the way."""
    found = [f"{prefix}{key}" for key in tree]
    for key, value in tree.items():
        if isinstance(value, dict):
            found += all_texts(value, f"{prefix}{key}/")
    return found


def test_metrics_of_users_are_printed_and_internals_are_not():
    source = example()
    source["num_crashes"] = 3
    source["env_runners"]["num_crashes"] = 4
    source["evaluation"]["env_runners"]["angle"] = 0.5
    source["stop_reason"] = "enough"
    rows = [line.split()[0] for line in str(ResultDict(source)).splitlines()]
    assert {"num_crashes", "env_runners/num_crashes", "evaluation/env_runners/angle"} <= set(rows)
    assert "env_runners/custom_metrics/angle_mean" in rows
    assert rows.index("stop_reason") == 1
    assert rows.index("num_crashes") < rows.index("learners/default_policy/policy_loss")
    assert len(set(rows)) == len(rows)
    for hidden in ("pid", "env_runners/num_env_steps_sampled", "timers/training_iteration"):
        assert hidden not in rows


def test_the_printed_form_is_short_and_shows_what_matters():
    source = example()
    source["env_runners"].update({f"user_{number}": float(number) for number in range(40)})
    source["env_runners"]["episode_return_mean"] = math.nan
    text = str(ResultDict(source))
    lines = text.splitlines()
    assert len(lines) == 26
    assert lines[0].split() == ["training_iteration", "10"]
    assert any(line.split() == ["env_runners/episode_return_mean", "nan"] for line in lines)
    assert "env_runners/user_3" in text
    assert "evaluation/env_runners/episode_return_mean" in text
    for hidden in ("config", "timers", "hist_stats", "hostname"):
        assert hidden not in text
    assert lines[-1].startswith("… and ")
    assert repr(ResultDict({"a": 1})) == "{'a': 1}"
    assert str(ResultDict()) == ""


def test_comparable_drops_what_no_two_runs_share():
    kept = comparable(example())
    assert set(kept) == {
        *("env_runners", "learners", "evaluation"),
        *("training_iteration", "num_env_steps_sampled_lifetime"),
    }
    assert "episode_duration_sec_mean" not in kept["env_runners"]
    assert "num_env_steps_sampled_lifetime_throughput" not in kept["env_runners"]
    assert kept["env_runners"]["theta_mean"] == 0.25
    assert kept["evaluation"] == {
        "env_runners": {"episode_return_mean": 50.0, "num_episodes": 10},
        "evaluated_at_iteration": 10,
        "foo": 1,
    }


def test_comparable_leaves_the_result_alone_and_drops_more_on_demand():
    result = ResultDict(example())
    kept = comparable(result, also_drop=["env_runners/theta_*", "learners/*/policy_loss"])
    assert kept["env_runners"]["theta_mean"] == 0.25  # `*` stands for a whole part
    assert kept["learners"]["default_policy"] == {}
    assert "theta_mean" not in comparable(result, also_drop=["*/theta_mean"])["env_runners"]
    assert result == example()


def test_every_outcome_shows():
    other = example()
    other["env_runners"]["episode_return_mean"] += 1e-12
    assert comparable(other) != comparable(example())

"""What `train()` returns: keys that are described, NaN where nothing is known, users' values."""

import json
import math
import os
import pickle
import signal
from types import SimpleNamespace

import numpy as np
import pytest

from callbacks import DefaultCallbacks
from checkpoints import encode
from tests.small_runs import small_ppo
from trainer import ResultDict
from trainer.env_runners import episode_player
from trainer.metrics import comparable
from trainer.metrics.result import STANDARD_KEYS, describe
from trainer.rllib_names.metrics import OLD_KEYS
from trainer.testing.envs import CountdownEnv


def config(num_env_runners=0, **settings):
    return small_ppo(num_env_runners, num_envs_per_env_runner=2, batch=40, **settings)


LONG = {"min_length": 500, "max_length": 500}


def always_in(method, *owners):
    """The standard keys that every result of a method has, or that come with some learner."""
    return [
        key.pattern.replace("learners/*", "learners/default_policy")
        for key in STANDARD_KEYS
        if method in key.always_in or key.owner in owners
    ]


@pytest.mark.process
@pytest.mark.parametrize("num_env_runners", [0, 1])
def test_results_hold_exactly_the_standard_keys(num_env_runners):
    settings = {"evaluation_duration": 2}
    with config(num_env_runners, **settings).build_algo() as algo:
        results = [algo.train()]
        evaluation = algo.evaluate()
        results.append(algo.train())
    assert "evaluation" not in results[0]
    assert results[1]["evaluation"] == evaluation
    for result in results:
        unknown = [path for path in result.flat() if not describe(path)]
        assert not unknown
        for path in always_in("train", "PPO learner"):
            assert path in result, path
    flat = ResultDict({"evaluation": evaluation}).flat()
    assert [path for path in flat if not describe(path)] == []
    for path in always_in("evaluate"):
        assert path.removeprefix("evaluation/") in evaluation, path


class SetsByPath(DefaultCallbacks):
    def on_train_result(self, *, result, **_):
        result["env_runners/num_env_steps_sampled"] = 1  # a key of its own, beside the standard one
        result["mine/alone"] = 2


def test_two_values_with_one_path_are_told_once_by_name(caplog):
    with config().callbacks(SetsByPath).build_algo() as algo:
        results = [algo.train(), algo.train()]
    assert [result.flat()["mine/alone"] for result in results] == [2, 2]
    told = [text for text in caplog.messages if "two values" in text]
    assert len(told) == 1
    assert "'env_runners/num_env_steps_sampled'" in told[0]


def test_before_anything_was_played_every_key_is_there():
    with config(env_config=LONG).build_algo() as algo:
        result = algo.train()
    for path in always_in("train", "PPO learner"):
        assert path in result, path


def test_evaluate_returns_a_result_that_answers_paths_and_old_keys():
    seen = []

    def look(evaluation_metrics):
        seen.append(evaluation_metrics["env_runners/episode_return_mean"])
        evaluation_metrics["env_runners"]["mine"] = 1

    algo_config = config(evaluation_interval=1, evaluation_duration=2)
    with algo_config.callbacks(on_evaluate_end=look).build_algo() as algo:
        evaluation = algo.evaluate()
        result = algo.train()
    assert isinstance(evaluation, ResultDict)
    assert evaluation["env_runners/episode_return_mean"] == seen[0]
    assert evaluation["episode_reward_mean"] == seen[0]
    assert evaluation.flat()["env_runners/mine"] == 1
    assert result["evaluation/env_runners/mine"] == 1
    assert result["evaluation/episode_reward_mean"] == seen[1]
    assert result["evaluation"]["episodes_this_iter"] == 2
    assert type(result["config"]) is dict
    assert evaluation["env_runners/num_episodes"] == 2
    assert str(evaluation).startswith("env_runners/episode_return_mean")


def test_metrics_below_or_under_standard_keys_are_named(caplog):
    def in_runners(metrics_logger):
        metrics_logger.log_value("episode_return_mean/mine", 1)
        metrics_logger.log_value("agent_episode_return_mean/mine", 2.0)
        metrics_logger.log_value("num_episodes_lifetime", 3)

    def late(metrics_logger):
        for name in ("training_iteration/mine", "config/mine", "timers/mine"):
            metrics_logger.log_value(name, 4.0)

    algo_config = config(evaluation_interval=1, evaluation_duration=2)
    algo_config.callbacks(on_episode_end=in_runners, on_train_result=late)
    with algo_config.build_algo() as algo:
        results = [algo.train() for _ in range(2)]
    for result in results:
        assert result["env_runners/agent_episode_return_mean/mine"] == 2.0
        assert result["evaluation/env_runners/agent_episode_return_mean/mine"] == 2.0
        assert result["timers/mine"] == 4.0
        assert isinstance(result["env_runners/episode_return_mean"], float)
    told = [text.split("'")[1] for text in caplog.messages if "does not appear" in text]
    assert sorted(told) == [
        "config/mine",
        "env_runners/episode_return_mean/mine",
        "env_runners/num_episodes_lifetime",
        "episode_return_mean/mine",
        "num_episodes_lifetime",
        "training_iteration/mine",
    ]


class OldMetrics(DefaultCallbacks):
    """Reports in the way of RLlib's old stack."""

    def on_episode_start(self, *, episode, **_):
        episode.user_data["steps"] = []

    def on_episode_step(self, *, episode, **_):
        episode.user_data["steps"].append(episode.length)

    def on_episode_end(self, *, episode, **_):
        episode.custom_metrics["last_step"] = episode.user_data["steps"][-1]
        episode.hist_data["steps"] = episode.user_data["steps"]


@pytest.mark.process
@pytest.mark.parametrize("num_env_runners", [0, 2])
def test_old_custom_metrics_come_out_in_both_places(num_env_runners):
    with config(num_env_runners).callbacks(OldMetrics).build_algo() as algo:
        results = [algo.train() for _ in range(2)]
        evaluation = algo.evaluate()
    lengths = [n for r in results for n in r["hist_stats"]["episode_lengths"]]
    result = results[-1]
    assert result["env_runners"]["custom_metrics"] == {
        "last_step_mean": math.fsum(lengths) / len(lengths),
        "last_step_min": min(lengths),
        "last_step_max": max(lengths),
    }
    assert result["custom_metrics"] == result["env_runners/custom_metrics"]
    assert result["custom_metrics/last_step_max"] == max(lengths)
    of_this_iteration = result["hist_stats/episode_lengths"]
    steps = [step for length in of_this_iteration for step in range(1, length + 1)]
    assert result["env_runners/hist_stats/steps"] == steps
    assert evaluation["custom_metrics"]["last_step_mean"] == evaluation["episode_len_mean"]


def test_old_custom_metrics_can_be_kept_as_lists():
    algo_config = config(keep_per_episode_custom_metrics=True).callbacks(OldMetrics)
    with algo_config.build_algo() as algo:
        result = algo.train()
    lengths = result["hist_stats/episode_lengths"]
    assert result["custom_metrics"] == {"last_step": lengths}


def test_negative_control_a_users_key_is_not_described():
    def log(metrics_logger):
        metrics_logger.log_value("my_own", 1)

    with config().callbacks(on_episode_end=log).build_algo() as algo:
        paths = algo.train().flat()
    assert "env_runners/my_own" in paths
    assert describe("env_runners/my_own") is None


def test_before_an_episode_has_ended_its_numbers_are_nan_and_their_count_is_zero():
    with config(env_config=LONG).build_algo() as algo:
        result = algo.train()
    for name in ("episode_return_mean", "episode_return_min", "episode_return_max",
                 "episode_len_mean", "episode_duration_sec_mean"):  # fmt: skip
        assert math.isnan(result["env_runners"][name]), name
    assert result["env_runners/num_episodes"] == result["env_runners/num_episodes_lifetime"] == 0
    assert math.isnan(result["episode_reward_mean"])
    assert result["env_runners/num_env_steps_sampled"] == 40
    assert not result["episode_reward_mean"] >= 450, "comparisons with NaN are False"


def test_counts_are_exact_and_lifetimes_grow():
    with config().build_algo() as algo:
        results = [algo.train() for _ in range(3)]
    for number, result in enumerate(results, start=1):
        assert result["training_iteration"] == number
        assert result["num_env_steps_sampled_lifetime"] == 40 * number
        assert result["env_runners/num_env_steps_sampled"] == 40
        assert result["env_runners/num_agent_steps_sampled"] == {"default_agent": 40}
        assert result["env_runners/num_module_steps_sampled_lifetime/default_policy"] == 40 * number
        assert result["learners/__all_modules__/num_env_steps_trained_lifetime"] == 40 * number
        assert result["num_training_step_calls_per_iteration"] == 1
        assert result["done"] is False
        lengths = result["env_runners/hist_stats/episode_lengths"]
        assert len(lengths) == result["env_runners/num_episodes"]
    ended = [n for r in results for n in r["env_runners/hist_stats/episode_lengths"]]
    assert results[-1]["env_runners/num_episodes_lifetime"] == len(ended)
    assert results[-1]["env_runners/episode_len_mean"] == pytest.approx(sum(ended) / len(ended))
    assert results[-1]["env_runners/episode_return_mean"] == pytest.approx(sum(ended) / len(ended))


def test_an_iteration_lasts_until_enough_was_sampled_and_trained():
    with config(min_sample_timesteps_per_iteration=100).build_algo() as algo:
        result = algo.train()
        assert algo.counters.num_training_steps == 3
    assert result["num_training_step_calls_per_iteration"] == 3
    assert result["env_runners/num_env_steps_sampled"] == 120
    with config(min_train_timesteps_per_iteration=41).build_algo() as algo:
        assert algo.train()["learners/__all_modules__/num_env_steps_trained"] == 80


def test_values_logged_in_on_train_result_appear_in_the_same_result():
    def log(metrics_logger, result, algorithm):
        metrics_logger.log_value("iteration", algorithm.training_iteration)
        metrics_logger.log_value(("nested", "steps"), result["num_env_steps_sampled_lifetime"])
        metrics_logger.log_value("total", 1, reduce="sum", clear_on_reduce=False)
        metrics_logger.log_value(("env_runners", "beside_the_others"), 7)

    with config().callbacks(on_train_result=log).build_algo() as algo:
        results = [algo.train() for _ in range(3)]
    assert [r["iteration"] for r in results] == [1, 2, 3]
    assert [r["nested/steps"] for r in results] == [40, 80, 120]
    assert [r["total"] for r in results] == [1, 2, 3]
    assert [r["env_runners/beside_the_others"] for r in results] == [7, 7, 7]
    assert results[0]["env_runners/num_env_steps_sampled"] == 40


@pytest.mark.process
def test_images_and_percentiles_travel_from_runners_to_results():
    def log(metrics_logger, episode, env_runner):
        image = np.full((4, 3), env_runner.worker_index, np.uint8)
        metrics_logger.log_value(("maps", "heat"), image, reduce=None)
        metrics_logger.log_value(
            "length", episode.t, reduce=None, window=1000, percentiles=[0, 100]
        )

    with config(2).callbacks(on_episode_end=log).build_algo() as algo:
        results = [algo.train() for _ in range(2)]
    lengths = []
    for result in results:
        heat = result["env_runners/maps/heat"]
        assert len(heat) == result["env_runners/num_episodes"]
        assert {(image.shape, image.dtype.name) for image in heat} == {((4, 3), "uint8")}
        owners = [int(image[0, 0]) for image in heat]
        assert owners == sorted(owners)
        assert set(owners) == {1, 2}
        lengths += result["hist_stats/episode_lengths"]
        assert result["env_runners/length/100"] == max(lengths)
    assert "maps" not in str(results[0])


def test_users_keys_stand_beside_the_standard_ones_of_every_section():
    sections = ("env_runners", "learners/default_policy", "timers", "fault_tolerance", "evaluation",
                "evaluation/env_runners")  # fmt: skip

    def log(metrics_logger):
        for section in sections:
            metrics_logger.log_value(f"{section}/mine", 1, min_max=False)
        metrics_logger.log_value("timers/training_iteration", -1, min_max=False)

    algo_config = config(evaluation_interval=2, evaluation_duration=1)
    with algo_config.callbacks(on_algorithm_init=log).build_algo() as algo:
        results = [algo.train() for _ in range(2)]
    for section in sections:
        assert results[0][f"{section}/mine"] == 1
        assert f"{section}/mine" in results[1]
    assert results[1]["evaluation/env_runners/num_episodes"] == 1
    assert results[0]["timers/training_iteration"] > 0  # a standard value stays


def test_changes_of_a_result_are_returned_and_do_not_leak_into_the_next():
    before = []

    def change(result):
        before.append(encode({**comparable(result), "learners": None, "env_runners": None}))
        result["mine"] = "added"
        result["training_iteration"] = -1
        result["env_runners"]["episode_return_mean"] = -7.0
        result["config"]["gamma"] = -1.0
        result["config"]["model_config"]["fcnet_hiddens"].append(99)
        del result["done"]

    with config(env_config=LONG).callbacks(on_train_result=change).build_algo() as algo:
        results = [algo.train() for _ in range(2)]
        assert algo.training_iteration == 2
        assert algo.config.gamma == 0.99
        assert algo.config.model_config["fcnet_hiddens"] == [8]
    for result in results:
        assert result["mine"] == "added"
        assert result["training_iteration"] == -1
        assert result["episode_reward_mean"] == -7.0
        assert result["config"]["model_config"]["fcnet_hiddens"] == [8, 99]
        assert "done" not in result
    assert b"mine" not in before[1]


def test_the_listeners_of_one_result_see_each_others_changes_in_order():
    def first(result):
        result["steps"] = ["first"]

    def second(result):
        result["steps"].append("second")

    with config().callbacks(on_train_result=[first, second]).build_algo() as algo:
        assert algo.train()["steps"] == ["first", "second"]


def test_old_keys_mean_the_same_numbers_and_are_not_listed():
    with config().build_algo() as algo:
        result = algo.train()
    assert isinstance(result, ResultDict)
    pairs = {
        "episode_reward_mean": "env_runners/episode_return_mean",
        "episode_reward_max": "env_runners/episode_return_max",
        "episodes_this_iter": "env_runners/num_episodes",
        "timesteps_total": "num_env_steps_sampled_lifetime",
        "num_healthy_workers": "fault_tolerance/num_healthy_workers",
        "hist_stats": "env_runners/hist_stats",
    }
    for old, new in pairs.items():
        assert result[old] == result[new], old
    stats = result["info"]["learner"]["default_policy"]["learner_stats"]
    assert stats["total_loss"] == result["learners/default_policy/total_loss"]
    for old in OLD_KEYS:
        assert old not in list(result), old
        assert old in result or old in ("episode_media", "agent_steps"), old
    assert "episode_reward_mean" not in str(result)


@pytest.mark.process
def test_comparable_leaves_what_equal_runs_share_and_nothing_else():
    """A killed runner, another machine and another clock are not part of an outcome."""
    outcomes, dropped = [], []
    for should_kill in (False, True):
        with config(2).build_algo() as algo:
            algo.train()
            if should_kill:
                os.kill(algo.env_runner_group.env_runner_pids()[1], signal.SIGKILL)
            result = algo.train()
        outcomes.append(comparable(result))
        dropped.append(set(result.flat()) - set(ResultDict(outcomes[-1]).flat()))
    assert encode(outcomes[0]) == encode(outcomes[1])
    assert dropped[0] == dropped[1]
    must_go = {"time_this_iter_s", "date", "hostname", "pid", "fault_tolerance/repair_time_s",
               "timers/training_iteration", "env_runners/episode_duration_sec_mean"}  # fmt: skip
    assert must_go <= dropped[0]
    must_stay = {
        "training_iteration",
        "env_runners/num_episodes",
        "learners/default_policy/entropy",
    }
    assert must_stay.isdisjoint(dropped[0])


def test_a_result_can_be_written_as_json_and_pickled():
    with config(evaluation_interval=1).build_algo() as algo:
        result = algo.train()
    result.pop("config")
    assert json.loads(json.dumps(result))["training_iteration"] == 1
    assert pickle.loads(pickle.dumps(result)) == result


def test_timers_tell_slow_steps_resets_and_callbacks_apart(monkeypatch):
    now, num_resets = [0.0], [0]

    class Slow(CountdownEnv):
        def reset(self, *, seed=None, options=None):
            now[0] += 100.0
            num_resets[0] += 1
            return super().reset(seed=seed, options=options)

        def step(self, action):
            now[0] += 1.0
            return super().step(action)

    def slow_callback(**_):
        now[0] += 1e4

    clock = SimpleNamespace(perf_counter=lambda: now[0])
    monkeypatch.setattr(episode_player, "time", clock)
    made = config(evaluation_duration=1).environment(Slow)
    with made.callbacks(on_episode_step=slow_callback).build_algo() as algo:
        result, resets = algo.train()["env_runners"], num_resets[0]
        evaluation = algo.evaluate()["env_runners"]
    assert result["env_step_timer"] == 40 * 1.0
    assert result["env_reset_timer"] == resets * 100.0 > 0.0
    assert result["callbacks_timer"] == 40 * 1e4
    assert result["rlmodule_inference_timer"] == 0.0
    assert evaluation["env_step_timer"] == evaluation["num_env_steps_sampled"]
    assert evaluation["env_reset_timer"] == (num_resets[0] - resets) * 100.0


def test_a_long_result_has_a_short_repr_and_all_of_it_is_there():
    with config().build_algo() as algo:
        result = algo.train()
    assert len(repr(result)) < 600
    assert "'training_iteration': 1" in repr(result)
    assert "to_dict()" in repr(result)
    assert len(str(result)) < 2_500
    plain = result.to_dict()
    assert plain == result
    assert type(plain["env_runners"]) is dict
    assert len(repr(plain)) > 2_000


def test_settings_without_effect_are_told_once(caplog):
    made = config().resources(num_gpus=1).framework("tf2")
    with made.build_algo():
        pass
    told = [record.message for record in caplog.records if "no effect" in record.message]
    assert len(told) == 1
    assert "num_gpus=1" in told[0]
    assert "framework_str='tf2'" in told[0]
    caplog.clear()
    with config().resources(num_gpus=0).framework("torch").build_algo():
        pass
    assert "no effect" not in caplog.text
